//! Deadlines for many slots at next to no cost for each change.
//!
//! A connection or stream moves its deadline with every request, and almost none of them ever
//! passes. So a deadline that moves *later* touches nothing but a number: the slot's one heap
//! entry stays where it is, and is put back when it comes up too early. A deadline that moves
//! *earlier* adds an entry; the stale one is dropped when it surfaces.
//!
//! The heap holds at most one live entry a slot, and stale ones only until their time.
//!
//! Slots whose numbers leave the same remainder by four stand beside each other: an owner of several kinds of slots, of
//! which one has many, pays for the others' gaps with nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Instant;

/// A table of deadlines, one for each slot.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
    slots: Slots,
}

/// By the remainder of their numbers by [`KINDS`].
#[derive(Debug, Default)]
struct Slots([Vec<Slot>; KINDS as usize]);

const KINDS: u32 = 4;

#[derive(Clone, Copy, Debug)]
struct Slot {
    deadline: Instant,
    /// When the slot's live heap entry comes up; `FAR_FUTURE` when there is none.
    entry: Instant,
}

impl Timers {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the slot's deadline; [`Instant::FAR_FUTURE`] means none.
    pub fn set(&mut self, slot: u32, deadline: Instant) {
        let (kind, index) = place(slot);
        let slots = &mut self.slots.0[kind];
        if index >= slots.len() {
            if deadline == Instant::FAR_FUTURE {
                return;
            }
            slots.resize(index + 1, Slot::EMPTY);
        }
        let entry = &mut slots[index];
        entry.deadline = deadline;
        if deadline < entry.entry {
            entry.entry = deadline;
            self.heap.push(Reverse((deadline, slot)));
        }
    }

    /// Takes the slot's deadline away.
    pub fn clear(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.deadline = Instant::FAR_FUTURE;
        }
    }

    /// A slot whose deadline is at or before `now`; its deadline is cleared.
    pub fn expired(&mut self, now: Instant) -> Option<u32> {
        while let Some(&Reverse((at, slot))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            let Some(entry) = self.slots.get_mut(slot) else { continue };
            if entry.entry != at {
                continue;
            }
            entry.entry = Instant::FAR_FUTURE;
            if entry.deadline <= now {
                entry.deadline = Instant::FAR_FUTURE;
                return Some(slot);
            }
            if entry.deadline != Instant::FAR_FUTURE {
                entry.entry = entry.deadline;
                self.heap.push(Reverse((entry.deadline, slot)));
            }
        }
        None
    }

    /// Drops stale entries from the front, so that [`Timers::next`] is the earliest deadline itself. For a caller that
    /// is about to sleep for long: on a busy path it would cost what the lazy entries save.
    pub fn prune(&mut self) {
        while let Some(&Reverse((at, slot))) = self.heap.peek() {
            let entry = self.slots.get_mut(slot);
            if entry.as_ref().is_some_and(|entry| entry.entry == at && entry.deadline == at) {
                return;
            }
            self.heap.pop();
            let Some(entry) = entry.filter(|entry| entry.entry == at) else { continue };
            entry.entry = entry.deadline;
            if entry.deadline != Instant::FAR_FUTURE {
                self.heap.push(Reverse((entry.deadline, slot)));
            }
        }
    }

    /// The slot's deadline, if it has one.
    #[must_use]
    pub fn deadline(&self, slot: u32) -> Option<Instant> {
        let (kind, index) = place(slot);
        let entry = self.slots.0[kind].get(index)?;
        (entry.deadline != Instant::FAR_FUTURE).then_some(entry.deadline)
    }

    /// When to look again: never later than the earliest deadline, possibly earlier.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

impl Slots {
    fn get_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        let (kind, index) = place(slot);
        self.0[kind].get_mut(index)
    }
}

const fn place(slot: u32) -> (usize, usize) {
    ((slot % KINDS) as usize, (slot / KINDS) as usize)
}

impl Slot {
    const EMPTY: Self = Self { deadline: Instant::FAR_FUTURE, entry: Instant::FAR_FUTURE };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn fires_once_at_its_deadline() {
        let mut timers = Timers::new();
        timers.set(3, at(10));
        assert_eq!(timers.expired(at(9)), None);
        assert_eq!(timers.expired(at(10)), Some(3));
        assert_eq!(timers.expired(at(100)), None);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn moving_later_costs_no_entry_and_moving_earlier_wins() {
        let mut timers = Timers::new();
        timers.set(0, at(10));
        timers.set(0, at(50));
        assert_eq!(timers.heap.len(), 1);
        assert_eq!(timers.expired(at(20)), None);
        assert_eq!(timers.next(), Some(at(50)));
        timers.set(0, at(30));
        assert_eq!(timers.expired(at(30)), Some(0));
        assert_eq!(timers.expired(at(60)), None);
    }

    #[test]
    fn a_cleared_slot_stays_quiet_and_can_be_used_again() {
        let mut timers = Timers::new();
        timers.set(1, at(10));
        timers.clear(1);
        assert_eq!(timers.expired(at(10)), None);
        timers.set(1, at(20));
        timers.clear(1);
        timers.set(1, at(40));
        assert_eq!(timers.expired(at(39)), None);
        assert_eq!(timers.expired(at(40)), Some(1));
    }

    #[test]
    fn pruned_it_wakes_for_deadlines_only() {
        let mut timers = Timers::new();
        timers.set(0, at(10));
        timers.set(0, at(50));
        timers.set(1, at(20));
        timers.clear(1);
        timers.set(2, at(40));
        timers.set(2, at(30));
        timers.prune();
        assert_eq!(timers.next(), Some(at(30)));
        timers.clear(2);
        timers.prune();
        assert_eq!(timers.next(), Some(at(50)));
        timers.set(1, at(45));
        assert_eq!(timers.expired(at(45)), Some(1));
        assert_eq!(timers.expired(at(50)), Some(0));
        timers.prune();
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn agrees_with_a_plain_list() {
        let mut timers = Timers::new();
        let mut model = [Instant::FAR_FUTURE; 8];
        let mut state = 0x9e37_79b9_u64;
        for now in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let slot = (state >> 60) as u32 % 8;
            if state & 0x700 == 0 {
                timers.prune();
            }
            let deadline = at(now + (state >> 20) % 64);
            if state & 1 == 0 {
                timers.set(slot, deadline);
                model[slot as usize] = deadline;
            }
            let mut fired = Vec::new();
            while let Some(slot) = timers.expired(at(now)) {
                fired.push(slot);
            }
            fired.sort_unstable();
            let expected: Vec<u32> = (0..8).filter(|&s| model[s as usize] <= at(now)).collect();
            assert_eq!(fired, expected, "at {now}");
            for slot in expected {
                model[slot as usize] = Instant::FAR_FUTURE;
            }
        }
    }
}
