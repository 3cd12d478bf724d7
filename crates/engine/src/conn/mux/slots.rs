//! The numbers of calls on one upstream connection.
//!
//! A number is a slot (its low half) and how often that slot has been used (its high half). A slot whose call was given up
//! is not used again before the late answer has come: an answer can only ever reach the call that asked for it. Free
//! slots are used in turn, so that a number comes back as late as possible.

use std::collections::VecDeque;

use crate::ids::StreamIndex;

/// All numbers of a connection.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) slots: Vec<Slot>,
    pub(crate) free: VecDeque<u16>,
    pub(crate) taken: u32,
    pub(crate) abandoned: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) uses: u16,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Taken(StreamIndex),
    /// Given up; the answer may still come.
    Abandoned,
}

/// What an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Stream(StreamIndex),
    /// A call that was given up.
    Nobody,
    /// There was no such call.
    Unknown,
}

impl Slots {
    /// A number for a stream; none when all are in use or waiting for late answers.
    pub(crate) fn open(&mut self, stream: StreamIndex) -> Option<u32> {
        // A few unused ones are kept, so that the same one does not come back at once.
        let index = if self.free.len() > RESERVE || self.slots.len() > usize::from(u16::MAX) {
            self.free.pop_front()?
        } else {
            self.slots.push(Slot { uses: FIRST_USE, state: State::Free });
            u16::try_from(self.slots.len() - 1).ok()?
        };
        let slot = self.slots.get_mut(usize::from(index))?;
        slot.uses = slot.uses.wrapping_add(1);
        slot.state = State::Taken(stream);
        self.taken += 1;
        Some(u32::from(slot.uses) << 16 | u32::from(index))
    }

    /// An answer came: whose is it? Its number is free again.
    pub(crate) fn close(&mut self, number: u32) -> Owner {
        let Some((index, slot)) = self.find(number) else { return Owner::Unknown };
        let state = std::mem::replace(&mut slot.state, State::Free);
        match state {
            State::Free => return Owner::Unknown,
            State::Taken(_) => self.taken -= 1,
            State::Abandoned => self.abandoned -= 1,
        }
        self.free.push_back(index);
        match state {
            State::Taken(stream) => Owner::Stream(stream),
            State::Free | State::Abandoned => Owner::Nobody,
        }
    }

    /// Whose a number is.
    pub(crate) fn owner(&self, number: u32) -> Owner {
        let slot = self.slots.get((number & 0xffff) as usize);
        match slot.filter(|slot| u32::from(slot.uses) == number >> 16).map(|slot| slot.state) {
            Some(State::Taken(stream)) => Owner::Stream(stream),
            Some(State::Abandoned) => Owner::Nobody,
            Some(State::Free) | None => Owner::Unknown,
        }
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn abandon(&mut self, number: u32) {
        let Some((_, slot)) = self.find(number) else { return };
        if let State::Taken(_) = slot.state {
            slot.state = State::Abandoned;
            self.taken -= 1;
            self.abandoned += 1;
        }
    }

    /// Takes out the streams of all calls, in no order; the connection is over.
    pub(crate) fn take_all(&mut self) -> Vec<StreamIndex> {
        let slots = std::mem::take(self).slots;
        let stream = |slot: &Slot| match slot.state {
            State::Taken(stream) => Some(stream),
            State::Free | State::Abandoned => None,
        };
        slots.iter().filter_map(stream).collect()
    }

    /// Calls under way.
    pub(crate) const fn taken(&self) -> u32 {
        self.taken
    }

    /// Numbers that wait for answers which nobody else waits for.
    pub(crate) const fn abandoned(&self) -> u32 {
        self.abandoned
    }

    pub(crate) fn find(&mut self, number: u32) -> Option<(u16, &mut Slot)> {
        let (uses, index) = ((number >> 16) as u16, (number & 0xffff) as u16);
        let slot = self.slots.get_mut(usize::from(index))?;
        (slot.uses == uses).then_some((index, slot))
    }
}

/// So many slots lie between two uses of the same one.
pub(crate) const RESERVE: usize = 64;

/// The count wraps after a few uses already: what only happened after days would happen unseen.
pub(crate) const FIRST_USE: u16 = u16::MAX - 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: u32) -> StreamIndex {
        StreamIndex(number)
    }

    #[test]
    fn an_answer_reaches_its_call_once() {
        let mut slots = Slots::default();
        let (one, two) = (slots.open(stream(1)).unwrap(), slots.open(stream(2)).unwrap());
        assert_ne!(one, two);
        assert_eq!(slots.close(two), Owner::Stream(stream(2)));
        assert_eq!(slots.close(two), Owner::Unknown);
        assert_eq!(slots.close(one), Owner::Stream(stream(1)));
        assert_eq!(slots.close(0x1234_0007), Owner::Unknown);
        assert_eq!((slots.taken(), slots.abandoned()), (0, 0));
    }

    #[test]
    fn the_number_of_a_call_that_was_given_up_waits_for_its_answer() {
        let mut slots = Slots::default();
        let late = slots.open(stream(1)).unwrap();
        slots.abandon(late);
        assert_eq!((slots.taken(), slots.abandoned()), (0, 1));
        for other in 0..1_000_000 {
            let number = slots.open(stream(other)).unwrap();
            assert_ne!(number & 0xffff, late & 0xffff);
            assert_eq!(slots.close(number), Owner::Stream(stream(other)));
        }
        assert_eq!(slots.close(late), Owner::Nobody);
        assert_eq!(slots.abandoned(), 0);
    }

    #[test]
    fn all_numbers_can_be_in_use_and_no_more() {
        let mut slots = Slots::default();
        let numbers: Vec<u32> =
            (0..=u32::from(u16::MAX)).map(|number| slots.open(stream(number)).unwrap()).collect();
        assert_eq!(slots.open(stream(0)), None);
        assert_eq!(slots.close(numbers[7]), Owner::Stream(stream(7)));
        assert!(slots.open(stream(9)).is_some());
        assert_eq!(slots.open(stream(0)), None);
        assert_eq!(slots.take_all().len(), 1 << 16);
        assert_eq!(slots.taken(), 0);
    }

    #[test]
    fn a_number_comes_back_only_after_all_others_of_its_slot() {
        let mut slots = Slots::default();
        let first = slots.open(stream(0)).unwrap();
        slots.close(first);
        let mut uses = 0;
        loop {
            let number = slots.open(stream(1)).unwrap();
            slots.close(number);
            if number == first {
                break;
            }
            uses += u32::from(number & 0xffff == first & 0xffff);
        }
        assert_eq!(uses, 0xffff);
    }
}
