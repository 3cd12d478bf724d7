//! Fields of ours that go into many heads as they are.

use super::{Field, Head, HeaderName, Span};
use crate::name::Name;

/// A field whose line is written once, with what a setter makes of its value, and then copied.
#[derive(Clone, Debug)]
pub struct PreparedField {
    /// Where it is in `line`.
    field: Field,
    line: [u8; BLOCK],
    length: usize,
    /// The value of one that is too long for `line`.
    long: Option<Box<[u8]>>,
}

impl PreparedField {
    /// A field with a well-known name. [`Name::Custom`] has no spelling: it becomes a field that is never added.
    #[must_use]
    pub fn new(name: Name, value: &[u8]) -> Self {
        let mut head = Head::default();
        head.append(name, value);
        let field = head.fields().first().copied();
        let written = head.0.own.as_bytes();
        let mut line = [0; BLOCK];
        let room = line.get_mut(..written.len());
        let fits = room.map(|room| room.copy_from_slice(written)).is_some() && field.is_some();
        Self {
            field: field.unwrap_or(Field::own_line(Name::Custom, Span::own(2, 2))),
            line,
            length: written.len(),
            long: (!fits).then(|| head.get(name).unwrap_or_default().into()),
        }
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        match &self.long {
            Some(value) => value,
            None => {
                let range = self.field.value().own_range();
                range.and_then(|range| self.line.get(range)).unwrap_or_default()
            }
        }
    }
}

/// Fields that go into many heads one behind the other: their lines are written once, and then copied as one piece.
#[derive(Clone, Debug, Default)]
pub struct PreparedFields {
    /// Where they are in `lines`.
    fields: Box<[Field]>,
    lines: Box<[u8]>,
    present: u64,
}

impl PreparedFields {
    /// What [`Head::append_named`] would add of each.
    pub fn new<'a>(fields: impl IntoIterator<Item = (&'a HeaderName, &'a [u8])>) -> Self {
        let mut head = Head::default();
        for (name, value) in fields {
            head.append_named(name, value);
        }
        let fields = head.fields().into();
        Self { fields, lines: head.0.own.as_bytes().into(), present: head.0.present }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl Head {
    /// Adds prepared fields after the others.
    pub fn append_prepared(&mut self, prepared: &PreparedFields) {
        let start = self.0.own.len();
        self.0.own.put(&prepared.lines);
        self.0.present |= prepared.present;
        self.0.fields.extend(prepared.fields.iter().map(|field| field.moved(start)));
    }

    /// Makes a prepared field the only one of its name, in the place of the first; appends it when there is none.
    #[inline]
    pub fn set_prepared(&mut self, prepared: &PreparedField) {
        if let Some(value) = &prepared.long {
            self.set(prepared.field.name, value);
            return;
        }
        let start = self.0.own.put_block(&prepared.line, prepared.length);
        self.place(prepared.field.moved(start));
    }

    /// Makes a number the only value of `name`, in the place of the first; appends it when there is none.
    /// [`Name::Custom`] has no spelling: nothing is added.
    #[inline]
    pub fn set_number(&mut self, name: Name, value: u64) {
        if name == Name::Custom {
            return;
        }
        let start = self.0.own.put_number_line(name, value);
        self.place(Field::own_line(name, Span::own(start, self.0.own.len() - 2)));
    }

    /// Adds a field that is written already, or puts it in the place of those of its name.
    #[inline(always)]
    pub(super) fn place(&mut self, field: Field) {
        if self.0.present & field.name.bit() == 0 { self.push(field) } else { self.replace(field) }
    }

    fn replace(&mut self, field: Field) {
        let Some(index) = self.position(field.name) else { return self.push(field) };
        self.0.fields[index] = field;
        self.remove_behind(index, |_, other| other.name == field.name);
    }
}

/// Most lines of ours fit.
const BLOCK: usize = 64;
