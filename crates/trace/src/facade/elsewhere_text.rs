//! Events of the facade for those beside the ring: markers, and whoever is attached to a probe.

use super::fields::{Fields, Owned, show};
use super::site::Site;
use super::slab::Slot;
use crate::{gate, marker, probe};

#[cold]
pub(super) fn mark(site: &'static Site, fields: &Fields) {
    let name = fields.message().unwrap_or_else(|| site.span.name());
    if probe::attached() {
        probe::mark(name, fields.words[0], fields.words[1]);
    }
    if gate::marked(site.category, site.level) {
        marker::instant(&with_fields(name, site, &fields.values()));
    }
}

#[cold]
pub(super) fn begin(site: &'static Site, slot: &Slot) -> bool {
    let name = site.span.name();
    if probe::attached() {
        probe::begin(name, 0, 0);
    }
    gate::marked(site.category, site.level)
        && marker::begin(&with_fields(name, site, &slot.values()))
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

/// `name, key = value, …`, as `libatrace_rust` writes it.
fn with_fields(name: &str, site: &Site, values: &[Owned]) -> String {
    let mut text = name.to_owned();
    for (key, value) in site.span.fields().iter().zip(values) {
        if *value != Owned::Absent {
            text.push_str(", ");
            text.push_str(key);
            text.push_str(" = ");
            let _ = show(&mut text, &value.value());
        }
    }
    text
}
