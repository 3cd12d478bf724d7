//! What no subscriber can go below: one that looks at the fields and reads the clock, and keeps nothing.

use std::hint::black_box;

use towpath_trace::Stamp;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};

/// Reads the clock when a span is entered and left.
pub(crate) struct Clock;

struct Look;

impl Visit for Look {
    fn record_u64(&mut self, _: &Field, value: u64) {
        black_box(value);
    }

    fn record_i64(&mut self, _: &Field, value: i64) {
        black_box(value);
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl tracing::Subscriber for Clock {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut Look);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &Id) {
        black_box(Stamp::now());
    }

    fn exit(&self, _: &Id) {
        black_box(Stamp::now());
    }
}
