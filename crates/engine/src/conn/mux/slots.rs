//! The numbers of calls on one upstream connection.
//!
//! A call's number is a slot. Its peer knows it by an identifier: the slot (its low half) and how often that has been
//! used (its high half). A slot whose call was given up is not used again before the late answer has come: an answer
//! can only ever reach the call that asked for it. Free slots are used in turn, so that a number comes back as late as
//! possible.

use std::collections::VecDeque;

/// All numbers of a connection.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: VecDeque<u16>,
    taken: u32,
    abandoned: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    uses: u16,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Taken,
    /// The answer has come; the call is not over yet.
    Answered,
    /// Given up; the answer may still come.
    Abandoned,
}

/// What an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The call with this number.
    Call(u32),
    /// A call that was given up.
    Abandoned,
    /// There was no such call.
    Unknown,
}

impl Slots {
    /// A number for a call; none when all are in use or waiting for late answers.
    pub(crate) fn open(&mut self) -> Option<u32> {
        // A few unused ones are kept, so that the same one does not come back at once.
        let index = if self.free.len() > RESERVE || self.slots.len() > usize::from(u16::MAX) {
            self.free.pop_front()?
        } else {
            self.slots.push(Slot { uses: FIRST_USE, state: State::Free });
            u16::try_from(self.slots.len() - 1).ok()?
        };
        let slot = self.slots.get_mut(usize::from(index))?;
        slot.uses = slot.uses.wrapping_add(1);
        slot.state = State::Taken;
        self.taken += 1;
        Some(index.into())
    }

    /// Under which the peer knows a call.
    pub(crate) fn id(&self, number: u32) -> Option<u32> {
        self.slots.get(number as usize).map(|slot| u32::from(slot.uses) << 16 | number)
    }

    /// Whose an identifier is.
    pub(crate) fn owner(&self, id: u32) -> Owner {
        let slot = self.slots.get((id & 0xffff) as usize);
        match slot.filter(|slot| u32::from(slot.uses) == id >> 16).map(|slot| slot.state) {
            Some(State::Taken) => Owner::Call(id & 0xffff),
            Some(State::Abandoned) => Owner::Abandoned,
            Some(State::Free | State::Answered) | None => Owner::Unknown,
        }
    }

    /// An answer came: whose is it? The number of a call that was given up is free again.
    pub(crate) fn answer(&mut self, id: u32) -> Owner {
        let owner = self.owner(id);
        if let Some(slot) = self.slots.get_mut((id & 0xffff) as usize) {
            match owner {
                Owner::Call(_) => slot.state = State::Answered,
                Owner::Abandoned => {
                    slot.state = State::Free;
                    self.abandoned -= 1;
                    self.free.push_back((id & 0xffff) as u16);
                }
                Owner::Unknown => {}
            }
        }
        owner
    }

    /// A call is over: its number is free again where its answer came, and waits for it where it did not.
    pub(crate) fn release(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        match slot.state {
            State::Taken => {
                slot.state = State::Abandoned;
                self.abandoned += 1;
            }
            State::Answered => {
                slot.state = State::Free;
                self.free.push_back((number & 0xffff) as u16);
            }
            State::Free | State::Abandoned => return,
        }
        self.taken -= 1;
    }

    /// The connection is over: no answer comes any more.
    pub(crate) fn lose(&mut self) {
        for slot in &mut self.slots {
            if slot.state == State::Taken {
                slot.state = State::Answered;
            }
        }
    }

    /// Calls under way.
    pub(crate) const fn taken(&self) -> u32 {
        self.taken
    }

    /// Numbers that wait for answers which no call waits for.
    pub(crate) const fn abandoned(&self) -> u32 {
        self.abandoned
    }
}

/// So many slots lie between two uses of the same one.
const RESERVE: usize = 64;

/// The count wraps after a few uses already: what only happened after days would happen unseen.
const FIRST_USE: u16 = u16::MAX - 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// A call, and the identifier under which it is sent.
    fn open(slots: &mut Slots) -> Option<(u32, u32)> {
        let number = slots.open()?;
        Some((number, slots.id(number).unwrap()))
    }

    #[test]
    fn an_answer_reaches_its_call_once() {
        let mut slots = Slots::default();
        let (one, two) = (open(&mut slots).unwrap(), open(&mut slots).unwrap());
        assert_ne!(one, two);
        assert_eq!(slots.answer(two.1), Owner::Call(two.0));
        assert_eq!(slots.answer(two.1), Owner::Unknown);
        slots.release(two.0);
        assert_eq!(slots.answer(two.1), Owner::Unknown);
        assert_eq!(slots.answer(one.1), Owner::Call(one.0));
        assert_eq!(slots.answer(0x1234_0007), Owner::Unknown);
        slots.release(one.0);
        slots.release(one.0);
        assert_eq!((slots.taken(), slots.abandoned()), (0, 0));
    }

    #[test]
    fn an_answer_to_another_use_of_a_number_is_nobodys() {
        let mut slots = Slots::default();
        let (number, id) = open(&mut slots).unwrap();
        for other in [id.wrapping_sub(1 << 16), id.wrapping_add(1 << 16)] {
            assert_eq!(slots.answer(other), Owner::Unknown);
        }
        assert_eq!(slots.answer(id), Owner::Call(number));
    }

    #[test]
    fn the_number_of_a_call_that_was_given_up_waits_for_its_answer() {
        let mut slots = Slots::default();
        let (late, late_id) = open(&mut slots).unwrap();
        slots.release(late);
        assert_eq!((slots.taken(), slots.abandoned()), (0, 1));
        for _ in 0..1_000_000 {
            let (number, id) = open(&mut slots).unwrap();
            assert_ne!(number, late);
            assert_eq!(slots.answer(id), Owner::Call(number));
            slots.release(number);
        }
        assert_eq!(slots.answer(late_id), Owner::Abandoned);
        assert_eq!(slots.abandoned(), 0);
    }

    #[test]
    fn all_numbers_can_be_in_use_and_no_more() {
        let mut slots = Slots::default();
        let calls: Vec<(u32, u32)> = (0..=u16::MAX).map(|_| open(&mut slots).unwrap()).collect();
        assert_eq!(slots.open(), None);
        assert_eq!(slots.answer(calls[7].1), Owner::Call(calls[7].0));
        assert_eq!(slots.open(), None, "it is answered, and not over");
        slots.release(calls[7].0);
        assert!(slots.open().is_some());
        assert_eq!(slots.open(), None);
        assert_eq!(slots.taken(), 1 << 16);
    }

    #[test]
    fn a_number_comes_back_only_after_all_others_of_its_slot() {
        let mut slots = Slots::default();
        let (number, first) = open(&mut slots).unwrap();
        slots.answer(first);
        slots.release(number);
        let mut uses = 0;
        loop {
            let (number, id) = open(&mut slots).unwrap();
            slots.answer(id);
            slots.release(number);
            if id == first {
                break;
            }
            uses += u32::from(id & 0xffff == first & 0xffff);
        }
        assert_eq!(uses, 0xffff);
    }
}
