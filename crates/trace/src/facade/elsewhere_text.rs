//! Events of the facade for those beside the ring: markers, and tools that are attached to a probe.

use std::fmt::{self, Write};

use tracing_core::Event;
use tracing_core::field::{Field, Visit};

use super::Plan;
use super::fields::Fields;
use super::site::Site;
use super::slab::Slot;
use crate::{gate, marker, probe};

#[cold]
pub(super) fn mark(plan: &Plan, site: &'static Site, event: &Event<'_>, fields: &Fields) {
    if probe::attached() {
        let (message, [a, b]) = fields.shown();
        probe::mark(message.unwrap_or_else(|| site.span.name()), a, b);
    }
    if gate::marked(site.category, site.level) {
        let mut text = Told { text: String::new(), is_event: true, fields: plan.fields };
        event.record(&mut text);
        if !plan.fields && site.message_at.is_none() {
            let _ = write!(text.text, "{} event", site.metadata.level());
        }
        marker::instant(&text.text);
    }
}

/// Keeps what a marker will say of a span.
#[cold]
pub(super) fn tell(site: &Site, slot: &Slot, record: impl FnOnce(&mut dyn Visit)) {
    slot.tell(|text| {
        if text.is_empty() {
            text.push_str(site.span.name());
        }
        let mut told = Told { text: std::mem::take(text), is_event: false, fields: true };
        record(&mut told);
        *text = told.text;
    });
}

#[cold]
pub(super) fn begin(site: &'static Site, slot: &Slot) -> bool {
    let name = site.span.name();
    if probe::attached() {
        probe::begin(name, 0, 0);
    }
    gate::marked(site.category, site.level) && slot.told(|told| marker::begin(told.unwrap_or(name)))
}

#[cold]
pub(super) fn end(marked: bool, slot: Option<&Slot>) {
    if probe::attached() {
        probe::end(slot.and_then(Slot::site).map_or("", |site| site.span.name()), 0, 0);
    }
    if marked {
        marker::end();
    }
}

/// `name, key = value, …`, each value as its `Debug` has it, as `libatrace_rust` writes it; texts stand between quotes
/// as they are.
struct Told {
    text: String,
    /// An event's message is its name.
    is_event: bool,
    fields: bool,
}

impl Told {
    /// Whether the field is to be written, and its key.
    fn key<'a>(&mut self, field: &'a Field) -> Option<&'a str> {
        let is_message = self.is_event && field.name() == "message";
        if !is_message && !self.fields || self.text.len() > marker::LONGEST {
            return None;
        }
        if !self.text.is_empty() {
            self.text.push_str(", ");
        }
        Some(if is_message { "" } else { field.name() })
    }
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        match self.key(field) {
            None => {}
            Some("") => self.text.push_str(value),
            Some(key) => {
                let _ = write!(self.text, "{key} = \"{value}\"");
            }
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match self.key(field) {
            None => Ok(()),
            Some("") => write!(self.text, "{value:?}"),
            Some(key) => write!(self.text, "{key} = {value:?}"),
        };
    }
}
