//! From records back to events.

use crate::record::{self, FOLLOWS, Kind, LATER_MONOTONIC, MONOTONIC, NAMELESS, Words, value_kind};

/// Values and texts of many events, so that an event is a few numbers.
#[derive(Debug, Default, Clone)]
pub(crate) struct Arena {
    values: Vec<Stored>,
    texts: Vec<u8>,
}

/// A value as its kind and its word; a text's word is where it lies in the arena.
pub(crate) type Stored = (u8, u64);

/// A stretch of an arena's values.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Values {
    start: u32,
    count: u32,
}

/// A text of an arena.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    start: u32,
    length: u32,
}

impl Place {
    const fn word(self) -> u64 {
        (self.start as u64) << 32 | self.length as u64
    }

    const fn from_word(word: u64) -> Self {
        Self { start: (word >> 32) as u32, length: word as u32 }
    }
}

impl Arena {
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.texts.clear();
    }

    pub(crate) fn values(&self, values: Values) -> &[Stored] {
        let start = values.start as usize;
        self.values.get(start..start + values.count as usize).unwrap_or_default()
    }

    pub(crate) fn text(&self, place: Place) -> &str {
        let start = place.start as usize;
        let bytes = self.texts.get(start..start + place.length as usize).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The text of a value whose kind says it is one.
    pub(crate) fn text_of(&self, word: u64) -> &str {
        self.text(Place::from_word(word))
    }

    pub(crate) fn keep_text(&mut self, text: &str) -> Place {
        let start = self.texts.len() as u32;
        self.texts.extend_from_slice(text.as_bytes());
        Place { start, length: text.len() as u32 }
    }

    /// Copies values that lie in no ring.
    #[cfg(feature = "tracing")]
    pub(crate) fn keep_values(&mut self, values: &[crate::value::Value<'_>]) -> Values {
        let start = self.values.len() as u32;
        for value in values {
            let (kind, mut word) = record::encode(value);
            if let crate::value::Value::Text(text) = value {
                word = self.keep_text(record::cut(text, crate::value::TEXT_LIMIT)).word();
            }
            self.values.push((kind, word));
        }
        Values { start, count: values.len() as u32 }
    }

    /// Copies values of another arena, with their texts.
    pub(crate) fn keep(&mut self, from: &Self, values: &[Stored]) -> Values {
        let start = self.values.len() as u32;
        for &(kind, word) in values {
            let word = if kind == value_kind::TEXT {
                self.keep_text(from.text_of(word)).word()
            } else {
                word
            };
            self.values.push((kind, word));
        }
        Values { start, count: values.len() as u32 }
    }

    pub(crate) fn is_large(&self) -> bool {
        self.texts.len() > 1 << 30 || self.values.len() > 1 << 27
    }
}

/// One event of one thread, its stamp not yet placed in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) callsite: u32,
    pub(crate) stamp: u64,
    pub(crate) monotonic: bool,
    pub(crate) later_monotonic: bool,
    /// Words 2 and 3, where the kind gives them a meaning of their own.
    pub(crate) words: [u64; 2],
    pub(crate) name: Option<Place>,
    pub(crate) values: Values,
    /// The track's parent, 0 for none.
    pub(crate) parent: u64,
}

/// The event that `records` begin with, and how many of them it takes. `None` steps over a record that begins none:
/// the tail of an event whose head was overwritten.
pub(crate) fn next(records: &[Words], arena: &mut Arena) -> (Option<Event>, usize) {
    let Some(&[head, stamp, a, b]) = records.first() else { return (None, 0) };
    let kind = Kind::from_bits(head).filter(|_| head & FOLLOWS == 0);
    let Some(kind) = kind else { return (None, 1) };
    let follows = record::follows(head);
    let Some(rest) = records.get(1..1 + follows) else { return (None, records.len()) };
    let mut event = Event {
        kind,
        callsite: record::callsite(head),
        stamp,
        monotonic: head & MONOTONIC != 0,
        later_monotonic: head & LATER_MONOTONIC != 0,
        words: [a, b],
        name: None,
        values: Values { start: arena.values.len() as u32, count: 0 },
        parent: 0,
    };
    if matches!(kind, Kind::AsyncBegin | Kind::AsyncEnd | Kind::AsyncMark) {
        event.parent = b;
    }
    if follows > 0 {
        read_long(rest, head, &mut event, arena);
    } else if matches!(kind, Kind::Begin | Kind::Mark | Kind::Counter) {
        let inline = record::kinds(head).into_iter().zip([a, b]);
        // Absent values between present ones keep their place: names go by position.
        let count = if record::kinds(head)[1] != value_kind::ABSENT { 2 } else { 1 };
        arena.values.extend(inline.take(count));
        event.values.count = count as u32;
    }
    (Some(event), 1 + follows)
}

fn read_long(mut rest: &[Words], head: u64, event: &mut Event, arena: &mut Arena) {
    if event.callsite == NAMELESS && event.kind != Kind::End {
        event.name = take_text(&mut rest, arena);
    }
    while let Some(&[head, a, b, c]) = rest.first() {
        if Kind::from_bits(head) != Some(Kind::Values) {
            break;
        }
        let count = (head >> 8 & 3) as usize;
        for (index, word) in [a, b, c].into_iter().enumerate().take(count) {
            arena.values.push(((head >> (20 + 4 * index) & 0xf) as u8, word));
        }
        rest = &rest[1..];
    }
    let mut start = event.values.start as usize;
    for index in start..arena.values.len() {
        if arena.values[index].0 == value_kind::TEXT {
            let place = take_text(&mut rest, arena);
            arena.values[index] =
                place.map_or((value_kind::ABSENT, 0), |place| (value_kind::TEXT, place.word()));
        }
    }
    if event.kind == Kind::Complete && record::kinds(head)[0] != value_kind::ABSENT {
        event.parent = arena.values.get(start).map_or(0, |&(_, parent)| parent);
        start += 1;
    }
    event.values =
        Values { start: start as u32, count: arena.values.len().saturating_sub(start) as u32 };
}

fn take_text(rest: &mut &[Words], arena: &mut Arena) -> Option<Place> {
    let &[head, ..] = rest.first()?;
    if Kind::from_bits(head) != Some(Kind::Text) {
        return None;
    }
    let length = (head >> 32) as usize;
    let count = length.div_ceil(24).max(1);
    let records = rest.get(..count)?;
    let start = arena.texts.len();
    let bytes =
        records.iter().flat_map(|words| words[1..].iter().flat_map(|word| word.to_le_bytes()));
    arena.texts.extend(bytes.take(length));
    *rest = &rest[count..];
    Some(Place { start: start as u32, length: length as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Long;
    use crate::value::{Flow, TEXT_LIMIT, Value};

    #[test]
    fn long_events_come_back_whole() {
        let texts = [
            "",
            "a",
            "exactly twenty-four byte",
            "und fünfundzwanzig bytes!",
            "nul\0inside | pipe",
        ];
        let mut values =
            vec![Value::Absent, Value::Signed(-5), Value::Float(0.5), Value::Bool(true)];
        values.extend(texts.iter().map(|text| Value::Text(text)));
        values.push(Value::Flow(Flow::last(9)));
        let long = Long::new([record::head(Kind::Mark, 3, 0, 0), 77, 0, 0], None, &values);
        let mut arena = Arena::default();
        let (event, used) = next(long.records(), &mut arena);
        let event = event.unwrap();
        assert_eq!((used, event.stamp, event.callsite), (long.records().len(), 77, 3));
        let stored = arena.values(event.values).to_vec();
        assert_eq!(stored.len(), values.len());
        assert_eq!(stored[1], (value_kind::SIGNED, (-5i64) as u64));
        let back: Vec<&str> = stored[4..9].iter().map(|&(_, word)| arena.text_of(word)).collect();
        assert_eq!(back, texts);
        assert_eq!(stored[9], (value_kind::LAST_FLOW, 9));
    }

    #[test]
    fn names_are_cut_at_the_limit_between_characters() {
        for (length, cut) in [(TEXT_LIMIT, 0), (TEXT_LIMIT + 1, 1)] {
            let name = "é".repeat(length / 2) + &"x".repeat(length % 2);
            let long =
                Long::new([record::head(Kind::Begin, NAMELESS, 0, 0), 0, 0, 0], Some(&name), &[]);
            assert_eq!(long.cut, cut);
            let mut arena = Arena::default();
            let (event, _) = next(long.records(), &mut arena);
            assert_eq!(arena.text(event.unwrap().name.unwrap()), &name[..TEXT_LIMIT]);
        }
    }

    #[test]
    fn an_event_without_its_head_or_tail_is_stepped_over() {
        let long = Long::new(
            [record::head(Kind::Mark, 3, 0, 0), 0, 0, 0],
            None,
            &[Value::Text("some longer text, two records")],
        );
        let mut arena = Arena::default();
        assert!(matches!(next(&long.records()[1..], &mut arena), (None, 1)));
        let without_tail = &long.records()[..long.records().len() - 1];
        assert!(
            matches!(next(without_tail, &mut arena), (None, used) if used == without_tail.len())
        );
        assert!(matches!(next(&[], &mut arena), (None, 0)));
    }

    #[test]
    fn too_many_texts_are_cut_and_counted() {
        let text = "x".repeat(TEXT_LIMIT);
        let values = [Value::Text(&text); 4];
        let long = Long::new([record::head(Kind::Mark, 3, 0, 0), 0, 0, 0], None, &values);
        assert_eq!((long.records().len(), long.cut), (record::LONGEST, 1));
        let mut arena = Arena::default();
        let (event, used) = next(long.records(), &mut arena);
        let kinds: Vec<u8> =
            arena.values(event.unwrap().values).iter().map(|&(kind, _)| kind).collect();
        assert_eq!(used, record::LONGEST);
        assert_eq!(
            kinds,
            [value_kind::TEXT, value_kind::TEXT, value_kind::ABSENT, value_kind::ABSENT]
        );
    }
}
