//! A `tracing` subscriber that writes the ring, and nothing else.

use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::{Interest, Subscriber};
use tracing_core::{Event, LevelFilter, Metadata};

use crate::category::Category;
use crate::facade::{self, Plan, entered, slab};

/// Records what `tracing`'s macros emit, in this program and in its libraries.
///
/// While nothing is recorded every callsite is off by its own static check; a recording that begins or ends has
/// `tracing` ask again.
///
/// ```
/// use towpath_trace::{Category, Options, TraceSubscriber};
///
/// tracing::subscriber::set_global_default(TraceSubscriber::new(Category::APP))?;
/// let recording = Options::new().start()?;
/// tracing::info_span!("work", bytes = 7).in_scope(|| tracing::info!("half way"));
/// assert_eq!(recording.stop().spans()[0].name, "work");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceSubscriber {
    plan: Plan,
}

impl Default for TraceSubscriber {
    fn default() -> Self {
        Self::new(Category::APP)
    }
}

impl TraceSubscriber {
    /// Events belong to `category`.
    #[must_use]
    pub fn new(category: impl Into<Category>) -> Self {
        facade::follow_the_gate();
        Self { plan: Plan::new(category.into()) }
    }

    /// Events belong to what `category` says of their metadata; [`Category::NONE`] leaves them where they were.
    #[must_use]
    pub fn with_categories(mut self, category: fn(&Metadata<'_>) -> Category) -> Self {
        self.plan.category = category;
        self
    }

    /// Names alone are kept, without fields.
    #[must_use]
    pub fn without_fields(mut self) -> Self {
        self.plan.fields = false;
        self
    }
}

impl Subscriber for TraceSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.plan.interest(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.plan.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(facade::most_verbose())
    }

    #[inline]
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        Id::from_u64(u64::from(facade::open(&self.plan, attributes)) + 1)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        facade::learn(&self.plan, index(span), values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        facade::follow(index(span), index(follows));
    }

    #[inline]
    fn event(&self, event: &Event<'_>) {
        facade::event(&self.plan, event);
    }

    #[inline]
    fn enter(&self, span: &Id) {
        facade::enter(index(span));
    }

    #[inline]
    fn exit(&self, span: &Id) {
        facade::exit(index(span));
    }

    fn clone_span(&self, span: &Id) -> Id {
        if let Some(slot) = slab::get(index(span)) {
            slot.add_reference();
        }
        span.clone()
    }

    #[inline]
    fn try_close(&self, span: Id) -> bool {
        let index = index(&span);
        let Some(slot) = slab::get(index) else { return false };
        let last = slot.drop_reference();
        if last {
            facade::close(index, slot);
        }
        last
    }

    fn current_span(&self) -> Current {
        let top =
            entered::top().and_then(|index| Some((index, slab::get(index)?.site()?.metadata)));
        top.map_or_else(Current::none, |(index, metadata)| {
            Current::new(Id::from_u64(u64::from(index) + 1), metadata)
        })
    }
}

#[inline]
fn index(span: &Id) -> u32 {
    u32::try_from(span.into_u64() - 1).unwrap_or(u32::MAX)
}
