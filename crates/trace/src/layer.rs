//! A layer for programs that keep a `Registry`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, LevelFilter, Metadata};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::category::Category;
use crate::facade::{self, Plan, entered, slab};
use crate::gate;

/// Records what passes a `Registry`, beside its other layers.
///
/// A span may be made while recording is off and entered when it is on, and the other way round: what was begun is
/// ended, and nothing else. While nothing is recorded no field is looked at, so a span that was made then has none.
///
/// ```
/// use towpath_trace::{Category, Options, TraceLayer};
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry().with(TraceLayer::new(Category::APP)).init();
/// let recording = Options::new().start()?;
/// tracing::info_span!("work").in_scope(|| ());
/// assert_eq!(recording.stop().spans()[0].name, "work");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceLayer {
    plan: Plan,
    filter: bool,
}

impl Default for TraceLayer {
    fn default() -> Self {
        Self::new(Category::APP)
    }
}

impl TraceLayer {
    /// Events belong to `category`.
    #[must_use]
    pub fn new(category: impl Into<Category>) -> Self {
        facade::follow_the_gate();
        Self { plan: Plan::new(category.into()), filter: false }
    }

    /// Events belong to what `category` says of their metadata; [`Category::NONE`] leaves them where they were.
    #[must_use]
    pub fn with_categories(mut self, category: fn(&Metadata<'_>) -> Category) -> Self {
        self.plan.category = category;
        self
    }

    /// What is not recorded is switched off for **all** layers, by the callsite's own check. Without this the other
    /// layers see everything they ask for. A filter for this layer alone is [`Layer::with_filter`].
    #[must_use]
    pub fn with_filter_for_all(mut self) -> Self {
        self.filter = true;
        self
    }

    /// Names alone are kept, without fields.
    #[must_use]
    pub fn without_fields(mut self) -> Self {
        self.plan.fields = false;
        self
    }
}

/// Our slot, kept by the registry.
struct Handle(u32);

/// Spans that the registry holds with a slot of ours: while there are none, no span need be looked up.
static HANDLES: AtomicUsize = AtomicUsize::new(0);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.filter { self.plan.interest(metadata) } else { Interest::always() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        !self.filter || self.plan.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.filter.then(facade::most_verbose)
    }

    #[inline]
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if gate::is_open() {
            self.make(attributes, id, &context);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(index) = handle(id, &context) {
            facade::learn(&self.plan, index, values);
        }
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, context: Context<'_, S>) {
        if let (Some(index), Some(follows)) = (handle(id, &context), handle(follows, &context)) {
            facade::follow(index, follows);
        }
    }

    #[inline]
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if gate::is_open() {
            facade::event(&self.plan, event);
        }
    }

    #[inline]
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if gate::is_open() {
            self.enter(id, &context);
        }
    }

    #[inline]
    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if are_held() {
            exit(id, &context);
        }
    }

    #[inline]
    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if are_held() {
            close(&id, &context);
        }
    }
}

/// What is done while there is something to do: apart, so that a layer that is off does nothing but ask.
impl TraceLayer {
    #[inline(never)]
    fn make<S: Subscriber + for<'a> LookupSpan<'a>>(
        &self,
        attributes: &Attributes<'_>,
        id: &Id,
        context: &Context<'_, S>,
    ) {
        if !facade::is_wanted(&self.plan, attributes.metadata()) {
            return;
        }
        if let Some(span) = context.span(id) {
            keep(&span, facade::open(&self.plan, attributes));
        }
    }

    #[inline(never)]
    fn enter<S: Subscriber + for<'a> LookupSpan<'a>>(&self, id: &Id, context: &Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let known = span.extensions().get::<Handle>().map(|handle| handle.0);
        let late = || {
            let wanted = facade::is_wanted(&self.plan, span.metadata());
            wanted.then(|| keep(&span, facade::open_late(&self.plan, span.metadata())))
        };
        if let Some(index) = known.or_else(late) {
            facade::enter(index);
        }
    }
}

#[inline(never)]
fn exit<S: Subscriber + for<'a> LookupSpan<'a>>(id: &Id, context: &Context<'_, S>) {
    if entered::is_empty() {
        return;
    }
    if let Some(index) = handle(id, context) {
        facade::exit(index);
    }
}

#[inline(never)]
fn close<S: Subscriber + for<'a> LookupSpan<'a>>(id: &Id, context: &Context<'_, S>) {
    if let Some(index) = handle(id, context) {
        if let Some(slot) = slab::get(index) {
            facade::close(index, slot);
        }
        HANDLES.fetch_sub(1, Relaxed);
    }
}

/// Whether the registry holds any span with a slot of ours.
#[inline(always)]
fn are_held() -> bool {
    HANDLES.load(Relaxed) != 0
}

fn keep<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>, index: u32) -> u32 {
    HANDLES.fetch_add(1, Relaxed);
    span.extensions_mut().insert(Handle(index));
    index
}

fn handle<S: Subscriber + for<'a> LookupSpan<'a>>(
    id: &Id,
    context: &Context<'_, S>,
) -> Option<u32> {
    if !are_held() {
        return None;
    }
    context.span(id)?.extensions().get::<Handle>().map(|handle| handle.0)
}
