//! What an event carries: integers, floats, flags, texts, and the ids that join events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One value of an event. Two lie in the event's own record; more take a second record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// No value for this field.
    Absent,
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// A flag.
    Bool(bool),
    /// A text known by its number.
    Interned(Text),
    /// A text copied into the ring; cut after [`TEXT_LIMIT`] bytes.
    Text(&'a str),
    /// The event is part of this flow.
    Flow(Flow),
}

/// The longest text an event keeps, in bytes. What is cut off is counted.
pub const TEXT_LIMIT: usize = 8192;

/// Joins events of different threads, processes and machines with an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The id that all events of the flow share.
    pub id: u64,
    /// Whether the arrow ends here.
    pub last: bool,
}

impl Flow {
    /// A flow that passes through the event.
    #[must_use]
    pub const fn through(id: u64) -> Self {
        Self { id, last: false }
    }

    /// A flow that ends with the event.
    #[must_use]
    pub const fn last(id: u64) -> Self {
        Self { id, last: true }
    }

    /// The flow of a W3C `traceparent`: the id of the span that sent it.
    ///
    /// <https://www.w3.org/TR/trace-context/#traceparent-header>
    #[must_use]
    pub fn from_traceparent(header: &str) -> Option<Self> {
        crate::TraceContext::parse(header).map(|context| context.flow())
    }
}

/// The number of a text that is kept once for the whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text(u32);

impl Text {
    /// Stands for every text that found the table full.
    pub const REFUSED: Self = Self(0);

    pub(crate) const fn from_number(number: u32) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// Keeps `text` for the life of the process and gives its number; equal texts have equal numbers.
///
/// This takes a lock: call it where names are made (a cluster, a peer), not where they are used.
/// The table holds [`INTERNED_LIMIT`] texts and [`INTERNED_BYTES`]; beyond that, or for a text above [`TEXT_LIMIT`],
/// the answer is [`Text::REFUSED`].
pub fn intern(text: &str) -> Text {
    let mut table = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    table.get_or_insert_with(Interned::default).number(text)
}

/// The most texts [`intern`] keeps.
pub const INTERNED_LIMIT: usize = 65_536;
/// The most bytes [`intern`] keeps.
pub const INTERNED_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(crate) struct Interned {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    bytes: usize,
}

impl Interned {
    fn number(&mut self, text: &str) -> Text {
        if let Some(&number) = self.numbers.get(text) {
            return Text(number);
        }
        if self.texts.len() >= INTERNED_LIMIT
            || self.bytes + text.len() > INTERNED_BYTES
            || text.len() > TEXT_LIMIT
        {
            return Text::REFUSED;
        }
        let text: Arc<str> = text.into();
        self.bytes += text.len();
        self.texts.push(text.clone());
        let number = u32::try_from(self.texts.len()).unwrap_or(0);
        self.numbers.insert(text, number);
        Text(number)
    }
}

/// The text behind a number.
pub(crate) fn text(number: Text) -> Option<Arc<str>> {
    let table = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    let index = usize::try_from(number.0.checked_sub(1)?).ok()?;
    table.as_ref()?.texts.get(index).cloned()
}

#[cfg(all(unix, not(miri)))]
pub(crate) fn lock() -> std::sync::MutexGuard<'static, Option<Interned>> {
    INTERNED.lock().unwrap_or_else(PoisonError::into_inner)
}

static INTERNED: Mutex<Option<Interned>> = Mutex::new(None);

macro_rules! from {
    ($($variant:ident($wide:ty): $($narrow:ty),*;)*) => {$($(
        impl From<$narrow> for Value<'_> {
            #[inline(always)]
            fn from(value: $narrow) -> Self {
                Self::$variant(value as $wide)
            }
        }
    )*)*};
}

from! {
    Unsigned(u64): u8, u16, u32, u64, usize;
    Signed(i64): i8, i16, i32, i64, isize;
    Float(f64): f32, f64;
    Bool(bool): bool;
    Interned(Text): Text;
    Flow(Flow): Flow;
}

impl<'a> From<&'a str> for Value<'a> {
    #[inline(always)]
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    #[inline(always)]
    fn from(value: &'a String) -> Self {
        Self::Text(value)
    }
}

impl<'a, T: Into<Self>> From<Option<T>> for Value<'a> {
    #[inline(always)]
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}
