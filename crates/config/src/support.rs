//! Which fields are honoured. A field that is set and not in here changes behaviour: forgetting one makes loading
//! refuse, never ignore.

mod bolt;
mod bootstrap;
mod cluster;
mod discovery;
mod expression;
mod http;
mod listener;
mod matching;
mod rbac;
mod route;
mod shared;
#[cfg(test)]
mod tests;
mod tls;
mod tracing;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::convert::filter::FILTERS;
use crate::convert::network_filter::FILTERS as NETWORK_FILTERS;
use crate::error::Rank;
use crate::message::{Message, Value};
use crate::report::Report;

/// The fields of one message type.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its full name.
    pub(crate) message: &'static str,
    /// Fields that do what they do in Envoy.
    pub(crate) honoured: &'static [&'static str],
    /// Fields that are ignored without harm, and why that is so.
    pub(crate) harmless: &'static [(&'static str, &'static str)],
    /// Fields that would be missed, with more to say than that.
    pub(crate) changes: &'static [(&'static str, &'static str)],
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    Honoured,
    Harmless(&'static str),
    Changes(&'static str),
}

/// Every message type that is looked into.
pub(crate) fn entries() -> impl Iterator<Item = &'static Entry> {
    [
        bootstrap::ENTRIES,
        listener::ENTRIES,
        matching::ENTRIES,
        matching::TREE,
        matching::OLD_TREE,
        http::ENTRIES,
        route::ENTRIES,
        cluster::ENTRIES,
        discovery::ENTRIES,
        shared::ENTRIES,
        tls::ENTRIES,
        rbac::ENTRIES,
        expression::ENTRIES,
        expression::NEW,
        expression::MATCHED,
        bolt::ENTRIES,
        tracing::ENTRIES,
        crate::convert::filter::rate_limits::SUPPORT,
        crate::convert::istio::SUPPORT,
        crate::convert::log_service::SUPPORT,
        crate::convert::log_entry::SUPPORT,
        crate::convert::stats_sink::SUPPORT,
    ]
    .into_iter()
    .flatten()
    .chain(FILTERS.iter().flat_map(|filter| filter.support))
    .chain(NETWORK_FILTERS.iter().flat_map(|filter| filter.support))
}

/// What becomes of a field of a message.
#[cfg(test)]
pub(crate) fn of(message: &str, field: &str) -> Support {
    BY_MESSAGE.get(message).map_or(DEFAULT, |entry| entry.of(field))
}

/// There are hundreds of entries, and a large route table has thousands of messages.
static BY_MESSAGE: LazyLock<HashMap<&str, &Entry>> =
    LazyLock::new(|| entries().map(|entry| (entry.message, entry)).collect());

impl Entry {
    fn of(&self, field: &str) -> Support {
        let reason = |list: &'static [(&str, &'static str)]| {
            list.iter().find(|(name, _)| *name == field).map(|(_, reason)| *reason)
        };
        if self.honoured.contains(&field) {
            return Support::Honoured;
        }
        if let Some(reason) = reason(self.harmless) {
            return Support::Harmless(reason);
        }
        reason(self.changes).map_or(DEFAULT, Support::Changes)
    }
}

const DEFAULT: Support = Support::Changes("this field is not honoured");

/// Reports every field of a message, and of the messages in it, that is set and not honoured. Does not go into an
/// `Any`: its content is checked when an extension takes it.
pub(crate) fn check(message: &Message, report: &mut Report) {
    let entry = BY_MESSAGE.get(message.descriptor.full_name());
    for field in &message.fields {
        if field.value.is_default() && !field.descriptor.supports_presence() {
            continue;
        }
        match entry.map_or(DEFAULT, |entry| entry.of(field.descriptor.name())) {
            Support::Honoured => inside(&field.value, report),
            Support::Harmless(reason) => report.finding(&field.at, Rank::Harmless, reason),
            Support::Changes(reason) => report.finding(&field.at, Rank::ChangesBehaviour, reason),
        }
    }
}

fn inside(value: &Value, report: &mut Report) {
    match value {
        Value::Message(message) => check(message, report),
        Value::List(items) => items.iter().for_each(|item| inside(&item.value, report)),
        Value::Map(entries) => entries.iter().for_each(|(_, item)| inside(&item.value, report)),
        _ => {}
    }
}
