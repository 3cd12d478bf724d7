//! Fields of a `tracing` event or span as values.

use std::fmt::{self, Write};

use tracing_core::field::{Field, Visit};

use super::is_short;
use super::site::Site;
use crate::clock::ticks;
use crate::record::{self, Kind, NAMELESS, value_kind};
use crate::ring::{self, Claim};
use crate::span::write_long;
use crate::value::Value;

/// Collects the fields of one event or span.
pub(crate) struct Fields {
    message_at: usize,
    wanted: bool,
    expected: Option<&'static str>,
    message: Message,
    /// The first two fields, as long as there are no others and none is a text.
    pub(crate) kinds: [u8; 2],
    pub(crate) words: [u64; 2],
    /// All fields, once there are more or a text is among them.
    pub(crate) all: Vec<Owned>,
}

/// Reads fields that are two short values at most; finds out, and keeps nothing, when they are more.
pub(crate) struct Short {
    message_at: usize,
    pub(crate) kinds: [u8; 2],
    pub(crate) words: [u64; 2],
    pub(crate) fits: bool,
}

impl Short {
    #[inline]
    pub(crate) fn new(site: &Site) -> Self {
        Self {
            message_at: site.message_at.unwrap_or(usize::MAX),
            kinds: [0; 2],
            words: [0; 2],
            fits: true,
        }
    }

    #[inline]
    fn keep(&mut self, field: &Field, kind: u8, word: u64) {
        let index = field.index();
        let index = index - usize::from(index > self.message_at);
        match (self.kinds.get_mut(index), self.words.get_mut(index)) {
            (Some(kept), Some(kept_word)) => (*kept, *kept_word) = (kind, word),
            _ => self.fits = false,
        }
    }
}

impl Visit for Short {
    #[inline]
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value_kind::UNSIGNED, value);
    }

    #[inline]
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, value_kind::SIGNED, value.cast_unsigned());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, value_kind::FLOAT, value.to_bits());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, value_kind::BOOL, u64::from(value));
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn fmt::Debug) {
        self.fits = false;
    }
}

/// What the message was.
#[derive(Debug, PartialEq, Eq)]
enum Message {
    None,
    /// The same as the first of the place.
    Expected,
    Other(String),
}

/// A value that holds its text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Owned {
    #[default]
    Absent,
    Short(u8, u64),
    Text(String),
}

impl Owned {
    pub(crate) const ABSENT: Self = Self::Absent;

    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Absent => Value::Absent,
            Self::Text(text) => Value::Text(text),
            Self::Short(kind, word) => match *kind {
                value_kind::SIGNED => Value::Signed(word.cast_signed()),
                value_kind::FLOAT => Value::Float(f64::from_bits(*word)),
                value_kind::BOOL => Value::Bool(*word != 0),
                value_kind::UNSIGNED => Value::Unsigned(*word),
                _ => Value::Absent,
            },
        }
    }
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
            all: Vec::new(),
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
        if self.all.is_empty() && name.is_none() {
            let head = record::head(Kind::Mark, callsite, self.kinds[0], self.kinds[1]);
            ring::write([head, ticks(), self.words[0], self.words[1]], Claim::Alone);
            return;
        }
        self.emit_long(callsite, name, site);
    }

    #[cold]
    fn emit_long(&self, callsite: u32, name: Option<&str>, site: &Site) {
        let own = self.values();
        let values = own.iter().map(Owned::value);
        let first = [record::head(Kind::Mark, callsite, 0, 0), ticks(), 0, 0];
        if name.is_none() {
            write_long(first, None, &values.collect::<Vec<_>>(), Claim::Alone);
            return;
        }
        // A name of its own has no callsite to name its fields: they are written out, as `key = value`.
        let category = Value::Unsigned(site.category.bits());
        let mut text = String::new();
        for (index, value) in values.enumerate().filter(|(_, value)| *value != Value::Absent) {
            let key = site.span.fields().get(index).copied().unwrap_or("value");
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}{key} = ");
            let _ = show(&mut text, &value);
        }
        let values = [category, Value::Text(&text)];
        write_long(first, name, &values[..1 + usize::from(!text.is_empty())], Claim::Alone);
    }

    /// All fields in order.
    pub(crate) fn values(&self) -> Vec<Owned> {
        if !self.all.is_empty() {
            return self.all.clone();
        }
        let count =
            2 - self.kinds.iter().rev().take_while(|&&kind| kind == value_kind::ABSENT).count();
        (0..count).map(|index| Owned::Short(self.kinds[index], self.words[index])).collect()
    }

    pub(crate) fn message(&self) -> Option<&str> {
        match &self.message {
            Message::None => None,
            Message::Expected => self.expected,
            Message::Other(message) => Some(message),
        }
    }

    #[inline]
    fn short(&mut self, field: &Field, kind: u8, word: u64) {
        let index = field.index();
        if !self.wanted || index == self.message_at {
            return;
        }
        let index = index - usize::from(index > self.message_at);
        if index < 2 && self.all.is_empty() && is_short(kind) {
            self.kinds[index] = kind;
            self.words[index] = word;
        } else {
            self.set(index, Owned::Short(kind, word));
        }
    }

    #[cold]
    fn set(&mut self, index: usize, value: Owned) {
        if self.all.is_empty() {
            self.all = self.values();
        }
        if self.all.len() <= index {
            self.all.resize(index + 1, Owned::Absent);
        }
        self.all[index] = value;
    }

    #[cold]
    fn text(&mut self, field: &Field, text: String) {
        let index = field.index();
        if index == self.message_at {
            self.message = Message::Other(text);
        } else if self.wanted {
            self.set(index - usize::from(index > self.message_at), Owned::Text(text));
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
        self.short(field, value_kind::SIGNED, value.cast_unsigned());
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
        self.text(field, value.to_owned());
    }

    #[inline]
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let is_message = field.index() == self.message_at;
        if is_message && let Some(expected) = self.expected {
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
            self.text(field, limited(value));
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

/// What a value says of itself, as far as it is kept.
fn limited(value: &dyn fmt::Debug) -> String {
    struct Limited(String);
    impl Write for Limited {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // One byte more than is kept, so that the cut is seen and counted.
            let room = (crate::TEXT_LIMIT + 4).saturating_sub(self.0.len());
            self.0.push_str(record::cut(text, room));
            if room < text.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut text = Limited(String::new());
    let _ = write!(text, "{value:?}");
    text.0
}

/// A value as people write it.
pub(crate) fn show(text: &mut String, value: &Value<'_>) -> fmt::Result {
    match value {
        Value::Unsigned(value) => write!(text, "{value}"),
        Value::Signed(value) => write!(text, "{value}"),
        Value::Float(value) => write!(text, "{value}"),
        Value::Bool(value) => write!(text, "{value}"),
        Value::Text(value) => text.write_str(value),
        Value::Absent | Value::Interned(_) | Value::Flow(_) => Ok(()),
    }
}
