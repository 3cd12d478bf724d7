//! The spans this thread is in.

use std::cell::Cell;

/// One entry into a span, in two words: structs with gaps are copied in pieces that stall on each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// The slot, and [`MARKED`].
    slot: u64,
    /// Position of the begin in the ring.
    pub(crate) begin: u64,
}

impl Entry {
    #[inline]
    pub(crate) fn new(slot: u32, begin: u64, marked: bool) -> Self {
        Self { slot: u64::from(slot) | u64::from(marked) << 32, begin }
    }

    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.slot & MARKED != 0
    }
}

const MARKED: u64 = 1 << 32;

/// Spans one thread can be in at once; those further in are not kept.
pub(crate) const DEEPEST: usize = 256;

struct Stack {
    depth: Cell<usize>,
    slots: [Cell<u64>; DEEPEST],
    begins: [Cell<u64>; DEEPEST],
}

thread_local! {
    static STACK: Stack = const {
        Stack {
            depth: Cell::new(0),
            slots: [const { Cell::new(0) }; DEEPEST],
            begins: [const { Cell::new(0) }; DEEPEST],
        }
    };
}

/// `false` when the thread is in too many spans already.
#[inline]
pub(crate) fn push(entry: Entry) -> bool {
    STACK.with(|stack| {
        let depth = stack.depth.get();
        let (Some(slot), Some(begin)) = (stack.slots.get(depth), stack.begins.get(depth)) else {
            return false;
        };
        slot.set(entry.slot);
        begin.set(entry.begin);
        stack.depth.set(depth + 1);
        true
    })
}

/// The latest entry into this span: nearly always the last one.
#[inline]
pub(crate) fn remove(slot: u32) -> Option<Entry> {
    STACK.with(|stack| {
        let last = stack.depth.get().checked_sub(1)?;
        let found =
            Entry { slot: stack.slots.get(last)?.get(), begin: stack.begins.get(last)?.get() };
        if found.slot as u32 == slot {
            stack.depth.set(last);
            return Some(found);
        }
        remove_inner(stack, slot, last)
    })
}

/// Spans may be left in another order than they were entered.
#[cold]
fn remove_inner(stack: &Stack, slot: u32, last: usize) -> Option<Entry> {
    let at = (0..last).rev().find(|&at| stack.slots[at].get() as u32 == slot)?;
    let found = Entry { slot: stack.slots[at].get(), begin: stack.begins[at].get() };
    for index in at..last {
        stack.slots[index].set(stack.slots[index + 1].get());
        stack.begins[index].set(stack.begins[index + 1].get());
    }
    stack.depth.set(last);
    Some(found)
}

/// The span entered last.
pub(crate) fn top() -> Option<u32> {
    STACK.with(|stack| Some(stack.slots.get(stack.depth.get().checked_sub(1)?)?.get() as u32))
}

/// A number that differs between threads that live at once.
#[inline]
pub(crate) fn thread() -> u64 {
    STACK.with(|stack| std::ptr::from_ref(stack).addr() as u64)
}
