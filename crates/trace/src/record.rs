//! The 32-byte record: what the writer puts into a ring and the reader takes out.
//!
//! ```text
//! word 0   head: bits 0–6 kind · 7 later stamp is CLOCK_MONOTONIC · 8–11, 12–15 kinds of the two values ·
//!          16 stamp is CLOCK_MONOTONIC · 18–31 records that follow and belong to this one · 32–63 callsite
//! word 1   stamp
//! word 2   first value   (End: position of its begin · async: track · Complete: the later stamp)
//! word 3   second value  (async: parent track · Complete: track)
//! ```
//! A record that follows has [`FOLLOWS`] set in its head and holds three values, or 24 bytes of text.

use crate::value::{TEXT_LIMIT, Value};

/// The words of one record.
pub(crate) type Words = [u64; 4];

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Begin = 1,
    End = 2,
    Mark = 3,
    Counter = 4,
    AsyncBegin = 5,
    AsyncEnd = 6,
    /// A span whose two stamps are both known.
    Complete = 7,
    AsyncMark = 8,
    /// Follows: three values.
    Values = 10,
    /// Follows: the name of an event without a callsite, or a text value.
    Text = 11,
}

impl Kind {
    pub(crate) const fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits & 0x7f {
            1 => Self::Begin,
            2 => Self::End,
            3 => Self::Mark,
            4 => Self::Counter,
            5 => Self::AsyncBegin,
            6 => Self::AsyncEnd,
            7 => Self::Complete,
            8 => Self::AsyncMark,
            10 => Self::Values,
            11 => Self::Text,
            _ => return None,
        })
    }
}

/// Set in the head of records that belong to an earlier one.
pub(crate) const FOLLOWS: u64 = 1 << 17;
/// Set in the head when the stamp is of `CLOCK_MONOTONIC`.
pub(crate) const MONOTONIC: u64 = 1 << 16;
/// Set in the head when the later stamp of a complete span is of `CLOCK_MONOTONIC`.
pub(crate) const LATER_MONOTONIC: u64 = 1 << 7;
/// The callsite number of events that bring their own name.
pub(crate) const NAMELESS: u32 = 0;
/// The most records one event takes; far below the smallest ring.
pub(crate) const LONGEST: usize = 1024;

const _: () = assert!(LONGEST < 1 << 14, "the head counts them in 14 bits");

/// The head of an event of `callsite` with two values of these kinds.
#[inline(always)]
pub(crate) const fn head(kind: Kind, callsite: u32, a: u8, b: u8) -> u64 {
    kind as u64 | (a as u64) << 8 | (b as u64) << 12 | (callsite as u64) << 32
}

pub(crate) const fn follows(head: u64) -> usize {
    (head >> 18 & 0x3fff) as usize
}

pub(crate) const fn callsite(head: u64) -> u32 {
    (head >> 32) as u32
}

pub(crate) const fn kinds(head: u64) -> [u8; 2] {
    [(head >> 8 & 0xf) as u8, (head >> 12 & 0xf) as u8]
}

/// Kinds of values in the head's four bits.
pub(crate) mod value_kind {
    pub(crate) const ABSENT: u8 = 0;
    pub(crate) const UNSIGNED: u8 = 1;
    pub(crate) const SIGNED: u8 = 2;
    pub(crate) const FLOAT: u8 = 3;
    pub(crate) const BOOL: u8 = 4;
    pub(crate) const INTERNED: u8 = 5;
    /// The word is the text's length; its bytes follow the values.
    pub(crate) const TEXT: u8 = 6;
    pub(crate) const FLOW: u8 = 7;
    pub(crate) const LAST_FLOW: u8 = 8;
}

/// A value as its kind and its word.
#[inline(always)]
pub(crate) const fn encode(value: &Value<'_>) -> (u8, u64) {
    use value_kind::*;
    match *value {
        Value::Absent => (ABSENT, 0),
        Value::Unsigned(value) => (UNSIGNED, value),
        Value::Signed(value) => (SIGNED, value as u64),
        Value::Float(value) => (FLOAT, value.to_bits()),
        Value::Bool(value) => (BOOL, value as u64),
        Value::Interned(text) => (INTERNED, text.number() as u64),
        Value::Text(text) => (TEXT, text.len() as u64),
        Value::Flow(flow) => (if flow.last { LAST_FLOW } else { FLOW }, flow.id),
    }
}

/// The value of a kind that is no text.
#[cfg(feature = "tracing")]
pub(crate) const fn short_value<'a>(kind: u8, word: u64) -> Value<'a> {
    match kind {
        value_kind::UNSIGNED => Value::Unsigned(word),
        value_kind::SIGNED => Value::Signed(word as i64),
        value_kind::FLOAT => Value::Float(f64::from_bits(word)),
        value_kind::BOOL => Value::Bool(word != 0),
        _ => Value::Absent,
    }
}

/// An event too long for one record, laid out in as many as it takes.
pub(crate) struct Long {
    /// The first few lie here; an event with a short text or a few values needs no memory of its own.
    near: [Words; NEAR],
    far: Vec<Words>,
    count: usize,
    /// Texts that did not fit whole.
    pub(crate) cut: u64,
}

const NEAR: usize = 12;

impl Long {
    /// `first` without its value kinds and count; `name` for an event without a callsite; then all values.
    pub(crate) fn new(first: Words, name: Option<&str>, values: &[Value<'_>]) -> Self {
        let mut long = Self { near: [[0; 4]; NEAR], far: Vec::new(), count: 0, cut: 0 };
        long.push(first);
        if let Some(name) = name {
            long.text(name);
        }
        for chunk in values.chunks(3) {
            long.values(chunk);
        }
        for value in values {
            if let Value::Text(text) = value {
                long.text(text);
            }
        }
        // Only the longest lists of long texts come here: their last texts are not kept.
        if long.count > LONGEST {
            long.far.truncate(LONGEST);
            (long.count, long.cut) = (LONGEST, long.cut + 1);
        }
        let follows = ((long.count - 1) as u64) << 18;
        long.near[0][0] |= follows;
        if let Some(first) = long.far.first_mut() {
            first[0] |= follows;
        }
        long
    }

    pub(crate) fn records(&self) -> &[Words] {
        if self.far.is_empty() { &self.near[..self.count] } else { &self.far }
    }

    fn push(&mut self, words: Words) {
        if let Some(near) = self.near.get_mut(self.count) {
            *near = words;
        } else {
            if self.far.is_empty() {
                self.far.extend_from_slice(&self.near);
            }
            self.far.push(words);
        }
        self.count += 1;
    }

    fn values(&mut self, values: &[Value<'_>]) {
        let mut words = [Kind::Values as u64 | FOLLOWS, 0, 0, 0];
        for (index, value) in values.iter().enumerate() {
            let (kind, word) = encode(value);
            words[0] |= u64::from(kind) << (20 + 4 * index);
            words[index + 1] = word;
        }
        words[0] |= (values.len() as u64) << 8;
        self.push(words);
    }

    fn text(&mut self, text: &str) {
        let kept = cut(text, TEXT_LIMIT);
        self.cut += u64::from(kept.len() < text.len());
        let head = Kind::Text as u64 | FOLLOWS | (kept.len() as u64) << 32;
        let mut rest = kept.as_bytes();
        while let Some((chunk, behind)) = rest.split_first_chunk::<24>() {
            self.push_text(head, chunk);
            rest = behind;
        }
        // An empty text still takes a record, for its length.
        if !rest.is_empty() || kept.is_empty() {
            let mut padded = [0; 24];
            padded[..rest.len()].copy_from_slice(rest);
            self.push_text(head, &padded);
        }
    }

    fn push_text(&mut self, head: u64, chunk: &[u8; 24]) {
        let word = |at: usize| {
            let bytes = chunk.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        self.push([head, word(0), word(8), word(16)]);
    }
}

/// The longest prefix of at most `limit` bytes that ends between characters.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
