//! The original's layer, by its name and with its methods.

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, LevelFilter, Metadata};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::AtraceTag;
use crate::layer::TraceLayer;

/// Sends what passes a `Registry` to `trace_marker`, every level of it, while the tag is on; a recording keeps it too.
#[derive(Debug, Default)]
pub struct AtraceSubscriber(TraceLayer);

impl AtraceSubscriber {
    /// Events have this tag.
    #[must_use]
    pub fn new(tag: AtraceTag) -> Self {
        Self(TraceLayer::new(tag))
    }

    /// While the tag is off everything is switched off, for the other layers as well.
    #[must_use]
    pub fn with_filter(self) -> Self {
        Self(self.0.with_filter_for_all())
    }

    /// Names and messages alone, without fields.
    #[must_use]
    pub fn without_fields(self) -> Self {
        Self(self.0.without_fields())
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for AtraceSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::<S>::register_callsite(&self.0, metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        self.0.enabled(metadata, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&self.0)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.0.on_record(id, values, context);
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, context: Context<'_, S>) {
        self.0.on_follows_from(id, follows, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        self.0.on_event(event, context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.0.on_enter(id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.0.on_exit(id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.0.on_close(id, context);
    }
}
