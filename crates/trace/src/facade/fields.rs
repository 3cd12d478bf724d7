//! Fields of a `tracing` event or span as values.

use std::cell::RefCell;
use std::fmt::{self, Write};

use tracing_core::field::{Field, Visit};

use super::kept::Kept;
use super::site::Site;
use super::slab::Slot;
use crate::clock::ticks;
use crate::record::{self, Kind, NAMELESS, value_kind};
use crate::ring::{self, Claim};
use crate::span::{write_long, write_named};
use crate::value::Value;

/// Reads fields that are two short values at most; finds out when they are more, and then what it kept counts for
/// nothing. For places without a message.
pub(crate) struct Short<'a> {
    slot: &'a Slot,
    /// Of the first value in the lowest byte, of the second above it: two bytes that are written apart and read as
    /// one number make the processor wait.
    pub(crate) kinds: u32,
    pub(crate) fits: bool,
}

impl<'a> Short<'a> {
    #[inline(always)]
    pub(crate) fn new(slot: &'a Slot) -> Self {
        Self { slot, kinds: 0, fits: true }
    }

    #[inline(always)]
    fn keep(&mut self, field: &Field, kind: u8, word: u64) {
        let index = field.index();
        if index > 1 {
            self.fits = false;
            return;
        }
        self.kinds |= u32::from(kind) << (8 * index);
        self.slot.set_short_word(index, word);
    }
}

impl Visit for Short<'_> {
    #[inline]
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value_kind::UNSIGNED, value);
    }

    #[inline]
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, value_kind::SIGNED, value as u64);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, value_kind::FLOAT, value.to_bits());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, value_kind::BOOL, u64::from(value));
    }

    fn record_str(&mut self, _field: &Field, _value: &str) {
        self.fits = false;
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn fmt::Debug) {
        self.fits = false;
    }
}

/// Writes all fields of a span to what is kept of it.
pub(crate) struct All<'a> {
    message_at: usize,
    kept: &'a mut Kept,
    /// They came after the span was made.
    learns: bool,
}

impl<'a> All<'a> {
    pub(crate) fn new(site: &Site, kept: &'a mut Kept, learns: bool) -> Self {
        Self { message_at: site.message_at.unwrap_or(usize::MAX), kept, learns }
    }

    fn index(&mut self, field: &Field) -> usize {
        let index = field.index() - usize::from(field.index() > self.message_at);
        if self.learns {
            self.kept.learn(index);
        }
        index
    }

    fn short(&mut self, field: &Field, kind: u8, word: u64) {
        let index = self.index(field);
        self.kept.set(index, kind, word);
    }
}

impl Visit for All<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.short(field, value_kind::UNSIGNED, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.short(field, value_kind::SIGNED, value as u64);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.short(field, value_kind::FLOAT, value.to_bits());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.short(field, value_kind::BOOL, u64::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let index = self.index(field);
        self.kept.set_text(index, |text| text.push_str(record::cut(value, MOST)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let index = self.index(field);
        self.kept.set_text(index, |text| write_limited(text, value));
    }
}

/// Collects the fields of one event.
pub(crate) struct Fields {
    message_at: usize,
    wanted: bool,
    expected: Option<&'static str>,
    message: Message,
    /// The first two fields, as long as there are no others and none is a text.
    kinds: [u8; 2],
    words: [u64; 2],
    /// All fields, once there are more or a text is among them.
    all: Option<Box<Kept>>,
}

/// What the message was.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    None,
    /// The same as the first of the place.
    Expected,
    Other(String),
}

thread_local! {
    /// Memory for the fields of the next event.
    static FIELDS: RefCell<Option<Box<Kept>>> = const { RefCell::new(None) };
}

impl Fields {
    #[inline]
    pub(crate) fn new(site: &Site, wanted: bool) -> Self {
        Self {
            message_at: site.message_at.unwrap_or(usize::MAX),
            wanted,
            expected: site.message.get().map(|callsite| callsite.name()),
            message: Message::None,
            kinds: [value_kind::ABSENT; 2],
            words: [0; 2],
            all: None,
        }
    }

    /// Writes a mark with these fields.
    #[inline]
    pub(crate) fn emit(self, site: &'static Site) {
        let (callsite, name) = match &self.message {
            Message::None => (site.span.id(), None),
            Message::Expected => (site.message.get().unwrap_or(&site.span).id(), None),
            Message::Other(message) => match site.message.get() {
                None => (site.named(message).id(), None),
                Some(_) => (NAMELESS, Some(message.as_str())),
            },
        };
        if self.all.is_none() && name.is_none() {
            let head = record::head(Kind::Mark, callsite, self.kinds[0], self.kinds[1]);
            ring::write([head, ticks(), self.words[0], self.words[1]], Claim::Alone);
            return;
        }
        self.emit_long(callsite, name, site);
        self.give_back();
    }

    #[cold]
    fn emit_long(&self, callsite: u32, name: Option<&str>, site: &Site) {
        let first = [record::head(Kind::Mark, callsite, 0, 0), ticks(), 0, 0];
        self.with(|values| {
            match name {
                None => write_long(first, None, values, Claim::Alone),
                Some(name) => write_named(first, name, site.span, values, Claim::Alone),
            };
        });
    }

    fn with(&self, take: impl FnOnce(&[Value<'_>])) {
        match &self.all {
            Some(all) => all.with(0, None, false, take),
            None => take(&std::array::from_fn::<_, 2, _>(|index| {
                record::short_value(self.kinds[index], self.words[index])
            })),
        }
    }

    fn give_back(self) {
        if let Some(mut all) = self.all {
            all.clear();
            let _ = FIELDS.try_with(|kept| kept.replace(Some(all)));
        }
    }

    /// The message, for tools that are attached to a probe, and the first two values.
    pub(crate) fn shown(&self) -> (Option<&str>, [u64; 2]) {
        let message = match &self.message {
            Message::None => None,
            Message::Expected => self.expected,
            Message::Other(message) => Some(message.as_str()),
        };
        (message, self.words)
    }

    #[inline]
    fn short(&mut self, field: &Field, kind: u8, word: u64) {
        let index = field.index();
        if !self.wanted || index == self.message_at {
            return;
        }
        let index = index - usize::from(index > self.message_at);
        if index < 2 {
            self.kinds[index] = kind;
            self.words[index] = word;
            if self.all.is_none() {
                return;
            }
        }
        self.all().set(index, kind, word);
    }

    #[cold]
    fn all(&mut self) -> &mut Kept {
        let Self { all, kinds, words, .. } = self;
        all.get_or_insert_with(|| {
            let kept = FIELDS.try_with(|kept| kept.borrow_mut().take()).ok().flatten();
            let mut all = kept.unwrap_or_default();
            for (index, (&kind, &word)) in kinds.iter().zip(words.iter()).enumerate() {
                if kind != value_kind::ABSENT {
                    all.set(index, kind, word);
                }
            }
            all
        })
    }

    fn text(&mut self, field: &Field, write: impl FnOnce(&mut String)) {
        let index = field.index();
        if index == self.message_at {
            let mut text = String::new();
            write(&mut text);
            self.message = Message::Other(text);
        } else if self.wanted {
            let index = index - usize::from(index > self.message_at);
            self.all().set_text(index, write);
        }
    }
}

impl Visit for Fields {
    #[inline]
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.short(field, value_kind::UNSIGNED, value);
    }

    #[inline]
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.short(field, value_kind::SIGNED, value as u64);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.short(field, value_kind::FLOAT, value.to_bits());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.short(field, value_kind::BOOL, u64::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.index() == self.message_at && self.expected == Some(value) {
            self.message = Message::Expected;
            return;
        }
        self.text(field, |text| text.push_str(record::cut(value, MOST)));
    }

    #[inline]
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let is_message = field.index() == self.message_at;
        let expected = if is_message { self.expected } else { None };
        if let Some(expected) = expected {
            let mut compared = Compared { expected, same: true };
            if write!(compared, "{value:?}").is_ok()
                && compared.same
                && compared.expected.is_empty()
            {
                self.message = Message::Expected;
                return;
            }
        }
        if is_message || self.wanted {
            self.text(field, |text| write_limited(text, value));
        }
    }
}

/// Text is compared as it is written, so that the usual message is never put together.
struct Compared {
    expected: &'static str,
    same: bool,
}

impl Write for Compared {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match self.expected.strip_prefix(text) {
            Some(rest) => self.expected = rest,
            None => {
                self.same = false;
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

/// A little more than is kept, so that the cut is seen and counted.
const MOST: usize = crate::TEXT_LIMIT + 4;

/// What a value says of itself, as far as it is kept.
fn write_limited(text: &mut String, value: &dyn fmt::Debug) {
    struct Limited<'a> {
        text: &'a mut String,
        end: usize,
    }
    impl Write for Limited<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = self.end.saturating_sub(self.text.len());
            self.text.push_str(record::cut(text, room));
            if room < text.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let end = text.len() + MOST;
    let _ = write!(Limited { text, end }, "{value:?}");
}
