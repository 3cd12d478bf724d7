//! What tells servers of streams, each in its place for as long as it has something to tell.

use towpath_proto::Instant;

use crate::free_slot;

/// Entries for one server.
pub(super) trait Batch {
    /// When what waits leaves at the latest.
    fn due(&self) -> Option<Instant>;

    /// Whether something waits.
    fn is_waiting(&self) -> bool;

    /// Whether its place may be given to another: it has nothing to tell, and no configuration has it.
    fn is_unused(&self) -> bool;
}

/// The batches of a worker, by their places.
#[derive(Debug)]
pub(super) struct Slots<T>(Vec<Option<T>>);

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Batch> Slots<T> {
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.0.get_mut(at)?.as_mut()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }

    /// The place of the one that is like this, or of a fresh one.
    pub(super) fn place(
        &mut self,
        is_like: impl Fn(&T) -> bool,
        fresh: impl FnOnce() -> T,
    ) -> usize {
        if let Some(at) = self.0.iter().position(|slot| slot.as_ref().is_some_and(&is_like)) {
            return at;
        }
        for slot in &mut self.0 {
            slot.take_if(|batch| batch.is_unused());
        }
        free_slot::put(&mut self.0, fresh())
    }

    /// When entries leave next.
    #[inline]
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.iter().flatten().filter_map(Batch::due).min()
    }

    /// The places of those that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> {
        let all = self.0.iter().enumerate();
        all.filter(|(_, slot)| slot.as_ref().is_some_and(Batch::is_waiting)).map(|(at, _)| at)
    }

    /// The place of one that has waited long enough.
    pub(super) fn overdue(&self, now: Instant) -> Option<usize> {
        let due = |slot: &Option<T>| slot.as_ref().and_then(Batch::due);
        self.0.iter().position(|slot| due(slot).is_some_and(|due| due <= now))
    }
}
