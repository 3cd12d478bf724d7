//! Values of one span or event with their texts behind each other, in memory that is used again.

use crate::record::{self, value_kind};
use crate::value::Value;

/// Values by their position, and the texts among them.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    values: Vec<(u8, u64)>,
    texts: String,
    /// Positions that were given after the span was made; the last bit stands for all from there on.
    learned: u64,
    /// What markers say of the span: its name with the fields, as they came.
    pub(crate) marker: String,
}

impl Kept {
    /// Forgets all values. What took much memory gives it back.
    pub(crate) fn clear(&mut self) {
        if self.texts.capacity() > MOST_KEPT || self.marker.capacity() > MOST_KEPT {
            *self = Self::default();
        }
        self.values.clear();
        self.texts.clear();
        self.marker.clear();
        self.learned = 0;
    }

    pub(crate) fn set(&mut self, index: usize, kind: u8, word: u64) {
        if self.values.len() <= index {
            self.values.resize(index + 1, (value_kind::ABSENT, 0));
        }
        self.values[index] = (kind, word);
    }

    /// A text that `write` puts together.
    pub(crate) fn set_text(&mut self, index: usize, write: impl FnOnce(&mut String)) {
        let start = self.texts.len();
        write(&mut self.texts);
        let word = (start as u64) << 32 | (self.texts.len() - start) as u64;
        self.set(index, value_kind::TEXT, word);
    }

    /// From here on values are learned.
    pub(crate) fn learn(&mut self, index: usize) {
        self.learned |= 1 << index.min(63);
    }

    /// What was learned so far stands somewhere.
    pub(crate) fn forget_learned(&mut self) {
        self.learned = 0;
    }

    /// Hands all values to `take`, at least `least` of them, and `last` behind them; those that were learned alone if
    /// `learned`.
    pub(crate) fn with<T>(
        &self,
        least: usize,
        last: Option<Value<'_>>,
        learned: bool,
        take: impl FnOnce(&[Value<'_>]) -> T,
    ) -> T {
        let mut near = [Value::Absent; NEAR];
        let count = self.values.len().max(least);
        let mut far;
        let all = if count < NEAR {
            &mut near[..]
        } else {
            far = vec![Value::Absent; count + 1];
            &mut far[..]
        };
        for (index, (value, &stored)) in all.iter_mut().zip(&self.values).enumerate() {
            if !learned || self.learned & 1 << index.min(63) != 0 {
                *value = self.value(stored);
            }
        }
        all[count] = last.unwrap_or(Value::Absent);
        take(&all[..count + usize::from(last.is_some())])
    }

    fn value(&self, (kind, word): (u8, u64)) -> Value<'_> {
        if kind != value_kind::TEXT {
            return record::short_value(kind, word);
        }
        let (start, length) = ((word >> 32) as usize, word as u32 as usize);
        Value::Text(self.texts.get(start..start + length).unwrap_or_default())
    }
}

/// Values that need no memory of their own.
const NEAR: usize = 17;
/// Bytes of texts that an idle slot may hold.
const MOST_KEPT: usize = 4096;
