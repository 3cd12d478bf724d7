//! The spans this thread is in.

use std::cell::{Cell, RefCell};

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

/// Entries that lie in the thread's own memory; those further in lie in a list.
const NEAR: usize = 256;

struct Stack {
    depth: Cell<usize>,
    slots: [Cell<u64>; NEAR],
    begins: [Cell<u64>; NEAR],
}

thread_local! {
    static STACK: Stack = const {
        Stack {
            depth: Cell::new(0),
            slots: [const { Cell::new(0) }; NEAR],
            begins: [const { Cell::new(0) }; NEAR],
        }
    };
    /// Entries beyond [`NEAR`].
    static FAR: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// `false` for a thread that is ending and already in [`NEAR`] spans.
#[inline]
pub(crate) fn push(entry: Entry) -> bool {
    STACK.with(|stack| {
        let depth = stack.depth.get();
        let (Some(slot), Some(begin)) = (stack.slots.get(depth), stack.begins.get(depth)) else {
            return push_far(stack, entry);
        };
        slot.set(entry.slot);
        begin.set(entry.begin);
        stack.depth.set(depth + 1);
        true
    })
}

#[cold]
fn push_far(stack: &Stack, entry: Entry) -> bool {
    let pushed = FAR.try_with(|far| far.borrow_mut().push(entry)).is_ok();
    stack.depth.set(stack.depth.get() + usize::from(pushed));
    pushed
}

/// The latest entry into this span: nearly always the last one.
#[inline]
pub(crate) fn remove(slot: u32) -> Option<Entry> {
    STACK.with(|stack| {
        let last = stack.depth.get().checked_sub(1)?;
        let (Some(of), Some(begin)) = (stack.slots.get(last), stack.begins.get(last)) else {
            return remove_far(stack, slot, last);
        };
        let found = Entry { slot: of.get(), begin: begin.get() };
        if found.slot as u32 == slot {
            stack.depth.set(last);
            return Some(found);
        }
        remove_inner(stack, slot, last)
    })
}

#[cold]
fn remove_far(stack: &Stack, slot: u32, last: usize) -> Option<Entry> {
    let in_far = |far: &RefCell<Vec<Entry>>| {
        let mut far = far.borrow_mut();
        let at = far.iter().rposition(|entry| entry.slot as u32 == slot)?;
        Some(far.remove(at))
    };
    if let Some(found) = FAR.try_with(in_far).ok().flatten() {
        stack.depth.set(last);
        return Some(found);
    }
    let found = remove_inner(stack, slot, NEAR - 1)?;
    // The nearest of those further in takes the place that became free.
    let moved = FAR.try_with(|far| far.borrow_mut().remove(0)).ok()?;
    stack.slots[NEAR - 1].set(moved.slot);
    stack.begins[NEAR - 1].set(moved.begin);
    stack.depth.set(last);
    Some(found)
}

/// Spans may be left in another order than they were entered. `last` is the last place that is taken.
#[cold]
fn remove_inner(stack: &Stack, slot: u32, last: usize) -> Option<Entry> {
    let at = (0..=last).rev().find(|&at| stack.slots[at].get() as u32 == slot)?;
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
    STACK.with(|stack| {
        let last = stack.depth.get().checked_sub(1)?;
        let far = || FAR.try_with(|far| far.borrow().last().map(|entry| entry.slot)).ok().flatten();
        let slot = stack.slots.get(last).map_or_else(far, |slot| Some(slot.get()));
        slot.map(|slot| slot as u32)
    })
}

/// Whether the thread is in no span that is known here.
#[cfg(feature = "layer")]
#[inline]
pub(crate) fn is_empty() -> bool {
    STACK.with(|stack| stack.depth.get() == 0)
}

/// A number that differs between threads that live at once.
#[inline]
pub(crate) fn thread() -> u64 {
    STACK.with(|stack| std::ptr::from_ref(stack).addr() as u64)
}
