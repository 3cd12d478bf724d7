//! The resources that were taken, by kind and name.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Key, Kind};
use crate::message::Message;

/// A resource that was taken.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) body: Bytes,
    pub(super) message: Message,
    /// No two entries have the same.
    pub(super) revision: u64,
    /// A digest of its message.
    pub(super) print: u64,
}

/// See the module. Each kind in the order of names.
#[derive(Debug, Default)]
pub(super) struct Entries {
    kinds: [BTreeMap<String, Entry>; Kind::ALL.len()],
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

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Kind, &mut Entry)> {
        let all = Kind::ALL.into_iter().zip(&mut self.kinds);
        all.flat_map(|(kind, all)| all.values_mut().map(move |entry| (kind, entry)))
    }

    /// Says what had this name before.
    pub(super) fn insert(&mut self, (kind, name): Key, entry: Entry) -> Option<Entry> {
        self.kinds[kind as usize].insert(name, entry)
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> Option<Entry> {
        self.kinds[kind as usize].remove(name)
    }
}
