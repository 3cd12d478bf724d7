//! Slots for spans: handed out by a thread from its own small stock, given back to the stock of whoever closes.
//!
//! A slot is all atomics and is never freed, so a span may be made, entered and closed on different threads with no lock
//! and no count beyond the one `tracing` asks for.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::fields::{Fields, Owned};
use super::site::Site;
use crate::record::{self, Kind, value_kind};
use crate::ring::{self, Claim};
use crate::span::write_long;
use crate::{clock, gate};

/// What is known of one span.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    references: AtomicU32,
    /// Kinds of the two short values, or [`MORE`] when `more` has all of them; and [`CHANGED`].
    kinds: AtomicU32,
    words: [AtomicU64; 2],
    /// Callsite, and above it the gate's generation in which the span was found to be recorded; 0 for none.
    plain: AtomicU64,
    /// The thread that made it.
    thread: AtomicU64,
    /// Stamp of the first poll; 0 before that.
    first: AtomicU64,
    track: AtomicU64,
    /// Number of the site plus one.
    site: AtomicU32,
    more: Mutex<Vec<Owned>>,
}

const MORE: u32 = 0xffff;
/// Something was learned since the last poll began.
const CHANGED: u32 = 1 << 16;

impl Slot {
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "the value a static table is filled with"
    )]
    const EMPTY: Self = Self {
        references: AtomicU32::new(0),
        kinds: AtomicU32::new(0),
        words: [const { AtomicU64::new(0) }; 2],
        plain: AtomicU64::new(0),
        thread: AtomicU64::new(0),
        first: AtomicU64::new(0),
        track: AtomicU64::new(0),
        site: AtomicU32::new(0),
        more: Mutex::new(Vec::new()),
    };

    /// A span of `site` begins its life here, with one reference.
    #[inline]
    pub(crate) fn begin(&self, site: &'static Site, thread: u64) {
        self.references.store(1, Relaxed);
        self.kinds.store(0, Relaxed);
        self.plain.store(site.plain(), Relaxed);
        self.thread.store(thread, Relaxed);
        self.first.store(0, Relaxed);
        self.track.store(0, Relaxed);
        self.site.store(site.number, Relaxed);
    }

    /// The callsite, if the gate stands as it stood when the span was made and was found to be recorded, and this is
    /// the first poll, by the thread that made it.
    #[inline]
    pub(crate) fn is_plain(&self, thread: u64) -> Option<u32> {
        let plain = self.plain.load(Relaxed);
        let plainly = (plain >> 32) as u32 == gate::generation()
            && self.first.load(Relaxed) == 0
            && self.thread.load(Relaxed) == thread;
        plainly.then_some(plain as u32)
    }

    #[inline]
    pub(crate) fn site(&self) -> Option<&'static Site> {
        site_of(self.site.load(Relaxed))
    }

    pub(crate) fn thread(&self) -> u64 {
        self.thread.load(Relaxed)
    }

    /// Counts a poll; answers whether there was one before.
    #[inline]
    pub(crate) fn entered(&self, stamp: u64) -> bool {
        let before = self.first.load(Relaxed) != 0;
        if !before {
            self.first.store(stamp.max(1), Relaxed);
        }
        before
    }

    pub(crate) fn first(&self) -> u64 {
        self.first.load(Relaxed)
    }

    /// The track of its lifetime; 0 for none.
    #[inline]
    pub(crate) fn track(&self) -> u64 {
        self.track.load(Relaxed)
    }

    /// Gives it a track that no other span has.
    pub(crate) fn start_track(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 62);
        let track = NEXT.fetch_add(1, Relaxed);
        self.track.store(track, Relaxed);
        track
    }

    #[inline]
    pub(crate) fn set_short_values(&self, kinds: [u8; 2], words: [u64; 2]) {
        self.kinds.store(u32::from(u16::from_le_bytes(kinds)), Relaxed);
        self.words[0].store(words[0], Relaxed);
        self.words[1].store(words[1], Relaxed);
    }

    #[cold]
    pub(crate) fn set_values(&self, fields: &Fields) {
        *self.more.lock().unwrap_or_else(PoisonError::into_inner) = fields.values();
        self.kinds.store(MORE, Relaxed);
    }

    /// Adds values that came later, over those of the same fields.
    pub(crate) fn merge_values(&self, fields: &Fields) {
        let mut values = self.values();
        for (index, value) in
            fields.values().into_iter().enumerate().filter(|(_, value)| is_present(value))
        {
            if values.len() <= index {
                values.resize(index + 1, Owned::Absent);
            }
            values[index] = value;
        }
        *self.more.lock().unwrap_or_else(PoisonError::into_inner) = values;
        self.kinds.store(MORE | CHANGED, Relaxed);
    }

    pub(crate) fn values(&self) -> Vec<Owned> {
        let kinds = self.kinds.load(Relaxed) & MORE;
        if kinds == MORE {
            return self.more.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        let kinds = [(kinds & 0xff) as u8, (kinds >> 8) as u8];
        let count = 2 - kinds.iter().rev().take_while(|&&kind| kind == value_kind::ABSENT).count();
        (0..count)
            .map(|index| Owned::Short(kinds[index], self.words[index].load(Relaxed)))
            .collect()
    }

    /// Whether something was learned since the last poll began.
    #[inline]
    pub(crate) fn take_changed(&self) -> bool {
        let kinds = self.kinds.load(Relaxed);
        if kinds & CHANGED != 0 {
            self.kinds.store(kinds & !CHANGED, Relaxed);
        }
        kinds & CHANGED != 0
    }

    /// Writes the begin of a plain span.
    #[inline]
    pub(crate) fn write_begin(&self, callsite: u32, stamp: u64) -> u64 {
        let kinds = self.kinds.load(Relaxed);
        if kinds == 0 {
            return ring::write([record::head(Kind::Begin, callsite, 0, 0), stamp], Claim::Opens);
        }
        if kinds & MORE == MORE {
            return self.write_long_begin(callsite, stamp);
        }
        let head = record::head(Kind::Begin, callsite, kinds as u8, (kinds >> 8) as u8);
        ring::write(
            [head, stamp, self.words[0].load(Relaxed), self.words[1].load(Relaxed)],
            Claim::Opens,
        )
    }

    #[cold]
    fn write_long_begin(&self, callsite: u32, stamp: u64) -> u64 {
        let values = self.values();
        let values: Vec<_> = values.iter().map(Owned::value).collect();
        write_long(
            [record::head(Kind::Begin, callsite, 0, 0), stamp, 0, 0],
            None,
            &values,
            Claim::Opens,
        )
    }

    /// Another holder.
    pub(crate) fn add_reference(&self) {
        self.references.fetch_add(1, Relaxed);
    }

    /// One holder less; `true` for the last.
    #[inline]
    pub(crate) fn drop_reference(&self) -> bool {
        // Whoever holds the only reference is the only one who could add another.
        self.references.load(Acquire) == 1 || self.references.fetch_sub(1, Release) == 1
    }
}

fn is_present(value: &Owned) -> bool {
    !matches!(value, Owned::Absent | Owned::Short(value_kind::ABSENT, _))
}

/// The slot of this number.
#[inline]
pub(crate) fn get(index: u32) -> Option<&'static Slot> {
    SLOTS.get(index as usize)
}

/// The slot behind a span's id.
pub(crate) fn by_id(id: u64) -> Option<&'static Slot> {
    get(u32::try_from(id.checked_sub(1)?).ok()?)
}

/// A free slot. When there is none the span gets a number without one, and nothing of it is kept.
#[inline]
pub(crate) fn take() -> (u32, Option<&'static Slot>) {
    let index = STOCK.with(Stock::pop).unwrap_or_else(refill);
    (index, get(index))
}

/// The slot is free again.
#[inline]
pub(crate) fn give_back(index: u32, slot: &Slot) {
    if slot.kinds.load(Relaxed) & MORE == MORE {
        slot.more.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
    STOCK.with(|stock| stock.push(index));
}

/// Spans that may live at once.
pub(crate) const MOST: usize = 1 << 17;
const STOCKED: usize = 64;

/// All zero, so that it costs address space and no memory until it is used.
static SLOTS: [Slot; MOST] = [const { Slot::EMPTY }; MOST];
/// Slots given back, and how many were ever used.
static FREE: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));
/// The number of a span without a slot.
const NO_SLOT: u32 = MOST as u32;

/// A few free slots at hand.
struct Stock {
    count: Cell<usize>,
    slots: [Cell<u32>; STOCKED],
}

impl Stock {
    #[inline]
    fn pop(&self) -> Option<u32> {
        let count = self.count.get().checked_sub(1)?;
        self.count.set(count);
        Some(self.slots.get(count)?.get())
    }

    #[inline]
    fn push(&self, index: u32) {
        let count = self.count.get();
        match self.slots.get(count) {
            Some(slot) => {
                slot.set(index);
                self.count.set(count + 1);
            }
            None => self.spill(index),
        }
    }

    /// Half goes to the common stock, for threads that only make.
    #[cold]
    fn spill(&self, index: u32) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.push(index);
        for _ in 0..STOCKED / 2 {
            free.0.extend(self.pop());
        }
    }
}

thread_local! {
    static STOCK: Stock = const { Stock { count: Cell::new(0), slots: [const { Cell::new(0) }; STOCKED] } };
    static LEAVING: Leaving = const { Leaving };
}

/// Gives a dying thread's slots to the others.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        let _ = STOCK.try_with(|stock| {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(index) = stock.pop() {
                free.0.push(index);
            }
        });
    }
}

#[cold]
fn refill() -> u32 {
    let _ = LEAVING.try_with(|_| ());
    clock::choose();
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let (given_back, used) = &mut *free;
    if given_back.is_empty() {
        let fresh = *used..(*used + STOCKED as u32 / 2).min(NO_SLOT);
        *used = fresh.end;
        given_back.extend(fresh.rev());
    }
    STOCK.with(|stock| {
        let from = given_back.len().saturating_sub(STOCKED / 2);
        given_back.drain(from..).for_each(|index| stock.push(index));
        stock.pop().unwrap_or(NO_SLOT)
    })
}

/// Sites by number, so that a slot can hold one in an atomic.
static NUMBERED: [OnceLock<&'static Site>; MOST_SITES] = [const { OnceLock::new() }; MOST_SITES];
const MOST_SITES: usize = 1 << 14;

#[inline]
fn site_of(number: u32) -> Option<&'static Site> {
    NUMBERED.get(number.checked_sub(1)? as usize)?.get().copied()
}

/// Gives a site its number.
pub(crate) fn keep_site(number: u32, site: &'static Site) {
    if let Some(cell) = number.checked_sub(1).and_then(|index| NUMBERED.get(index as usize)) {
        let _ = cell.set(site);
    }
}
