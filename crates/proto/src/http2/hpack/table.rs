//! The table that both ends of a connection build up alike (RFC 7541 §2.3.2 and §4).
//!
//! Names and values lie one behind the other in one piece of memory, the oldest first; what is well known is kept by
//! its number. The strings of a field that is being read are written behind them before it is known whether they
//! stay.

use std::collections::VecDeque;

use super::error::Error;
use super::field::{Field, FieldName, Pseudo};
use super::huffman;
use super::statics;
use crate::block;
use crate::chars::is_token;
use crate::name::Name;

/// The fields of a table, and room for one that is being read.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    /// Zeroed, and longer than what is in use.
    room: Vec<u8>,
    /// Where the bytes of the newest field end.
    end: usize,
    size: usize,
    max: usize,
    /// How many fields entered.
    inserted: u16,
    /// How often fields entered, or its size was set.
    changes: u64,
}

/// A field whose bytes are in the table's room: first those of its name, if that is no well-known one, then its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    at: usize,
    value_len: u32,
    name_len: u32,
    key: Key,
    name_is_valid: bool,
    value_is_valid: bool,
}

/// A name as far as it has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Known(Name),
    Pseudo(Pseudo),
    Other,
}

/// A string as it stands in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) huffman: bool,
}

impl Text<'_> {
    /// How much room it may take.
    #[inline]
    pub(super) fn bound(self) -> usize {
        if self.huffman { huffman::decoded_bound(self.bytes.len()) } else { self.bytes.len() }
    }
}

impl Table {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            room: Vec::new(),
            end: 0,
            size: 0,
            max,
            inserted: 0,
            changes: 0,
        }
    }

    /// RFC 7541 §4.3: the oldest fields leave until the others fit.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
        self.changes += 1;
        self.evict(max);
        self.trim();
        self.entries.shrink_to(max / OVERHEAD);
    }

    /// Begins a field with a name that stands in the block; `more` is how much room its value may take.
    pub(super) fn begin(&mut self, name: Text<'_>, more: usize) -> Result<Entry, Error> {
        self.reserve(name.bound() + more);
        let at = self.end;
        let length = self.write(at, name)?;
        let (key, name_is_valid) = judge_name(&self.room[at..at + length]);
        let name_len = if key == Key::Other { length } else { 0 };
        let name_len = u32::try_from(name_len).map_err(|_| Error::FarTooLarge)?;
        Ok(Entry { at, value_len: 0, name_len, key, name_is_valid, value_is_valid: true })
    }

    /// Begins a field with the name of another.
    pub(super) fn begin_like(&mut self, index: u32, more: usize) -> Result<Entry, Error> {
        if let Some(name) = statics::name(index) {
            self.reserve(more);
            return Ok(Entry::named(key_of(name).0, self.end));
        }
        let name_len = self.get(index)?.name_len as usize;
        self.reserve(name_len + more);
        let other = self.get(index)?;
        let entry = Entry { at: self.end, value_len: 0, value_is_valid: true, ..*other };
        let from = other.at;
        self.room.copy_within(from..from + name_len, entry.at);
        Ok(entry)
    }

    /// Writes the value of a field that was begun with room for it.
    pub(super) fn set_value(&mut self, entry: &mut Entry, value: Text<'_>) -> Result<(), Error> {
        let at = entry.value_at();
        let length = self.write(at, value)?;
        entry.value_len = u32::try_from(length).map_err(|_| Error::FarTooLarge)?;
        entry.value_is_valid = is_valid_value(&self.room[at..at + length]);
        Ok(())
    }

    /// RFC 7541 §4.4: the field that was read last enters, and the oldest ones leave until it fits. If it never does,
    /// the table is empty; what was read can be looked at all the same.
    pub(super) fn insert(&mut self, entry: Entry) {
        let size = entry.size();
        self.changes += 1;
        self.evict(self.max.saturating_sub(size));
        if size <= self.max {
            self.end = entry.end();
            self.size += size;
            self.entries.push_back(entry);
            self.inserted = self.inserted.wrapping_add(1);
        }
    }

    /// The field with an index of both tables (RFC 7541 §2.3.3), if that is one of this table.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Result<&Entry, Error> {
        let newest = statics::FIELDS.len() + 1;
        (index as usize)
            .checked_sub(newest)
            .and_then(|back| self.entries.len().checked_sub(back + 1))
            .and_then(|at| self.entries.get(at))
            .ok_or(Error::UnknownIndex(index))
    }

    /// How a field looks from outside.
    #[inline]
    pub(super) fn field(&self, entry: &Entry, never_indexed: bool) -> Field<'_> {
        let value = entry.value_at();
        let name = match entry.key {
            Key::Known(name) => FieldName::Known(name),
            Key::Pseudo(pseudo) => FieldName::Pseudo(pseudo),
            Key::Other => FieldName::Other(&self.room[entry.at..value]),
        };
        Field {
            name,
            value: &self.room[value..entry.end()],
            never_indexed,
            well_formed: entry.name_is_valid & entry.value_is_valid,
        }
    }

    /// The field with this number and its index, unless it has left. Its number is how many entered before it, in
    /// sixteen bits: no table that we write with has so many fields, and in a larger one the answer may be another
    /// field.
    #[inline(always)]
    pub(super) fn numbered(&self, number: u16) -> Option<(&Entry, u32)> {
        let back = self.inserted.wrapping_sub(1).wrapping_sub(number);
        let at = self.entries.len().checked_sub(usize::from(back) + 1)?;
        Some((self.entries.get(at)?, statics::FIELDS.len() as u32 + 1 + u32::from(back)))
    }

    /// Whether a field has this name.
    #[inline(always)]
    pub(super) fn has_name(&self, entry: &Entry, name: FieldName<'_>) -> bool {
        let (key, bytes) = key_of(name);
        entry.key == key && (key != Key::Other || &self.room[entry.at..entry.value_at()] == bytes)
    }

    /// Whether a field has this name and this value.
    #[inline(always)]
    pub(super) fn is(&self, entry: &Entry, name: FieldName<'_>, value: &[u8]) -> bool {
        entry.value_len as usize == value.len() && self.has_name(entry, name) && {
            let own = &self.room[entry.value_at()..entry.end()];
            block::same(own, value) || own == value
        }
    }

    /// Enters a field of our own.
    pub(super) fn enter(&mut self, name: FieldName<'_>, value: &[u8]) {
        let (key, bytes) = key_of(name);
        let (Ok(name_len), Ok(value_len)) = (bytes.len().try_into(), value.len().try_into()) else {
            return self.evict(0);
        };
        self.reserve(bytes.len() + value.len());
        let entry = Entry { name_len, value_len, ..Entry::named(key, self.end) };
        block::copy_few(&mut self.room[entry.at..], bytes);
        block::copy_few(&mut self.room[entry.value_at()..], value);
        self.insert(entry);
    }

    /// How often fields entered, or its size was set: where that is the same, so are its fields.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// How many fields entered, in sixteen bits.
    pub(super) const fn inserted(&self) -> u16 {
        self.inserted
    }

    /// The fields, the newest first.
    #[cfg(test)]
    pub(super) fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.entries.iter().rev().map(|entry| self.field(entry, false))
    }

    /// The size that it may have.
    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// Its size, as RFC 7541 §4.1 counts it.
    #[cfg(test)]
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Bytes of memory that it holds.
    pub(super) fn capacity(&self) -> usize {
        self.room.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Gives back room that was only needed for a long string or a larger table.
    pub(super) fn trim(&mut self) {
        if self.room.len() > 2 * self.max + MOST_SLACK {
            self.relocate(self.end - self.start());
        }
    }

    /// Gives back all room that is not in use.
    pub(super) fn shrink(&mut self) {
        let used = self.end - self.start();
        if self.room.len() > used {
            self.relocate(used);
        }
        self.entries.shrink_to_fit();
    }

    fn evict(&mut self, most: usize) {
        while self.size > most
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.size();
        }
        if self.entries.is_empty() {
            self.end = 0;
        }
    }

    fn write(&mut self, at: usize, text: Text<'_>) -> Result<usize, Error> {
        let room = &mut self.room[at..];
        if text.huffman {
            return huffman::decode(text.bytes, room);
        }
        block::copy_few(room, text.bytes);
        Ok(text.bytes.len())
    }

    #[inline]
    fn reserve(&mut self, bytes: usize) {
        if self.room.len() - self.end < bytes {
            self.make_room(bytes);
        }
    }

    /// Moves what is in use to the start of the room, or of a larger one where that would have to be done again soon.
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        let needed = self.end - self.start() + bytes;
        if needed > self.room.len() / 4 * 3 {
            self.relocate((needed / 3 * 4).next_power_of_two().max(LEAST_ROOM));
        } else {
            self.relocate(self.room.len());
        }
    }

    fn relocate(&mut self, length: usize) {
        let start = self.start();
        if length == self.room.len() {
            self.room.copy_within(start..self.end, 0);
        } else {
            let mut room = vec![0; length];
            room[..self.end - start].copy_from_slice(&self.room[start..self.end]);
            self.room = room;
        }
        self.end -= start;
        self.entries.iter_mut().for_each(|entry| entry.at -= start);
    }

    fn start(&self) -> usize {
        self.entries.front().map_or(self.end, |oldest| oldest.at)
    }
}

impl Entry {
    /// One without a value, whose name has a number.
    const fn named(key: Key, at: usize) -> Self {
        Self { at, value_len: 0, name_len: 0, key, name_is_valid: true, value_is_valid: true }
    }

    /// RFC 7541 §4.1.
    #[inline]
    pub(super) fn size(&self) -> usize {
        let name = match self.key {
            Key::Known(name) => name.as_str().len(),
            Key::Pseudo(pseudo) => pseudo.as_str().len(),
            Key::Other => self.name_len as usize,
        };
        name + self.value_len as usize + OVERHEAD
    }

    #[inline]
    const fn value_at(&self) -> usize {
        self.at + self.name_len as usize
    }

    #[inline]
    const fn end(&self) -> usize {
        self.value_at() + self.value_len as usize
    }
}

/// What it is, and whether it is valid.
fn judge_name(name: &[u8]) -> (Key, bool) {
    match key_of(FieldName::resolve(name)) {
        // RFC 9113 §8.2.1.
        (Key::Other, name) => {
            (Key::Other, is_token(name) && !name.iter().any(u8::is_ascii_uppercase))
        }
        (key, _) => (key, true),
    }
}

/// Its number, and the bytes of one that has none.
fn key_of(name: FieldName<'_>) -> (Key, &[u8]) {
    match name {
        FieldName::Known(name) => (Key::Known(name), b""),
        FieldName::Pseudo(pseudo) => (Key::Pseudo(pseudo), b""),
        FieldName::Other(name) => (Key::Other, name),
    }
}

/// RFC 9113 §8.2.1, and RFC 9110 §5.5 as HTTP/1 takes it: no control character but tabs, no blank or tab around it.
fn is_valid_value(value: &[u8]) -> bool {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let (blocks, left) = value.as_chunks::<16>();
    let mut last = [b' '; 16];
    block::copy_few(&mut last, left);
    let controls = |block: &[u8; 16]| block::colons_and_controls(block).1;
    let controls = blocks.iter().fold(controls(&last), |all, block| all | controls(block));
    controls == 0 && !value.first().is_some_and(blank) && !value.last().is_some_and(blank)
}

/// What RFC 7541 §4.1 counts for each field beside its bytes.
pub(super) const OVERHEAD: usize = 32;
/// What most connections need.
const LEAST_ROOM: usize = 256;
/// Room that is kept beyond twice the table's size.
const MOST_SLACK: usize = 1024;
