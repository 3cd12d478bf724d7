//! The resources that were taken, by kind and name. They are kept as they came; their messages, which take many times
//! that, are there while they are converted.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Key, Kind};
use crate::message::{Message, Seen, UnknownFields, decode_binary};
use crate::report::Report;
use crate::schema::Schema;

/// A resource that was taken.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) body: Bytes,
    /// The number of its text.
    pub(super) text: usize,
    /// What it says, once that was asked.
    message: OnceCell<Option<Message>>,
    /// No two entries have the same.
    pub(super) revision: u64,
    /// A digest of its message.
    pub(super) print: u64,
}

impl Entry {
    pub(super) fn new(body: Bytes, message: Message, revision: u64, print: u64) -> Self {
        let text = message.at.text;
        Self { body, text, message: OnceCell::from(Some(message)), revision, print }
    }
}

/// See the module. Each kind in the order of names.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    kinds: [BTreeMap<String, Entry>; Kind::ALL.len()],
    /// Digests of resources by the numbers of their texts.
    prints: Vec<Option<u64>>,
    /// Some messages are there.
    are_read: Cell<bool>,
}

/// The resources that were taken, to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(super) entries: &'a Entries,
    pub(super) schema: &'a Schema,
}

impl<'a> Known<'a> {
    /// What a resource says.
    pub(crate) fn get(self, kind: Kind, name: &str) -> Option<&'a Message> {
        self.message(kind, self.entries.get(kind, name)?)
    }

    /// The same of an entry. It could be read when it was taken.
    pub(super) fn message(self, kind: Kind, entry: &'a Entry) -> Option<&'a Message> {
        let read = || {
            let (mut report, mut seen) = (Report::default(), Seen::default());
            let unknown = UnknownFields::Refuse;
            let text = entry.text;
            let schema = self.schema;
            decode_binary(
                schema,
                &mut report,
                unknown,
                kind.message(),
                &entry.body,
                text,
                &mut seen,
            )
            .ok()
            .flatten()
        };
        self.entries.are_read.set(true);
        entry.message.get_or_init(read).as_ref()
    }

    /// The digest of the resource of a text.
    pub(crate) fn print(self, text: usize) -> Option<u64> {
        self.entries.prints.get(text).copied().flatten()
    }
}

impl Entries {
    /// Those of a kind.
    pub(super) const fn of(&self, kind: Kind) -> &BTreeMap<String, Entry> {
        &self.kinds[kind as usize]
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<&Entry> {
        self.of(kind).get(name)
    }

    pub(super) fn has(&self, kind: Kind, name: &str) -> bool {
        self.of(kind).contains_key(name)
    }

    /// All of them, by kind and name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Kind, &str, &Entry)> {
        let all = Kind::ALL.into_iter().zip(&self.kinds);
        all.flat_map(|(kind, all)| all.iter().map(move |(name, entry)| (kind, &**name, entry)))
    }

    /// Says what had this name before.
    pub(super) fn insert(&mut self, (kind, name): Key, entry: Entry) -> Option<Entry> {
        if self.prints.len() <= entry.text {
            self.prints.resize(entry.text + 1, None);
        }
        self.prints[entry.text] = Some(entry.print);
        self.are_read.set(true);
        self.kinds[kind as usize].insert(name, entry)
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> Option<Entry> {
        let gone = self.kinds[kind as usize].remove(name)?;
        self.prints[gone.text] = None;
        Some(gone)
    }

    /// Keeps no message.
    pub(super) fn forget_messages(&mut self) {
        if !self.are_read.replace(false) {
            return;
        }
        let all = self.kinds.iter_mut().flat_map(BTreeMap::values_mut);
        all.for_each(|entry| drop(entry.message.take()));
    }

    pub(super) fn forget_message(&mut self, kind: Kind, name: &str) {
        let entry = self.kinds[kind as usize].get_mut(name);
        entry.into_iter().for_each(|entry| drop(entry.message.take()));
    }
}
