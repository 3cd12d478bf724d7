//! Slots for spans: handed out by a thread from its own small stock, given back to the stock of the thread that closes.
//!
//! A slot is all atomics and is never freed, so a span may be made, entered and closed on different threads with no
//! lock
//! and no count beyond the one `tracing` asks for.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::kept::Kept;
use super::site::Site;
use crate::record::{self, Kind, value_kind};
use crate::ring::{self, Claim};
use crate::span::write_long;
use crate::value::Value;
use crate::{clock, gate};

/// What is known of one span.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    references: AtomicU32,
    /// Kinds of the two short values, or [`MORE`] when `more` has all of them; and the flags.
    kinds: AtomicU32,
    words: [AtomicU64; 2],
    /// Callsite, and above it the gate's generation in which the span was found to be recorded; 0 for none.
    plain: AtomicU64,
    /// The thread that made it.
    thread: AtomicU64,
    /// Stamp of the first poll. Before that [`UNENTERED`] and, where it is known, when the span was made; 0 for a span
    /// that was not recorded when it was made, and for none.
    first: AtomicU64,
    track: AtomicU64,
    /// Number of the site plus one.
    site: AtomicU32,
    more: Mutex<Option<Box<Kept>>>,
}

/// Above a stamp, which is below it for decades.
const UNENTERED: u64 = 1 << 63;
const MORE: u32 = 0xffff;
/// Something was learned since the last poll began.
const CHANGED: u32 = 1 << 16;
/// A marker has a text of its own, in `more`.
const TOLD: u32 = 1 << 17;
/// It has a track.
const TRACKED: u32 = 1 << 18;
/// What two short values may set, and neither [`MORE`] nor a flag.
const SHORT: u32 = 0x0f0f;
const _: () = assert!(value_kind::LAST_FLOW <= 0xf && MORE & !SHORT != 0);

impl Slot {
    const fn new() -> Self {
        Self {
            references: AtomicU32::new(0),
            kinds: AtomicU32::new(0),
            words: [const { AtomicU64::new(0) }; 2],
            plain: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            first: AtomicU64::new(0),
            track: AtomicU64::new(0),
            site: AtomicU32::new(0),
            more: Mutex::new(None),
        }
    }

    /// A span of `site` begins its life here, with one reference. Answers whether it is plain: recorded, not known to
    /// be asynchronous, and not marked.
    #[inline(always)]
    pub(crate) fn begin(&self, site: &'static Site, thread: u64) -> bool {
        let plain = site.plain();
        self.references.store(1, Relaxed);
        self.kinds.store(0, Relaxed);
        self.plain.store(plain, Relaxed);
        self.thread.store(thread, Relaxed);
        self.first.store(UNENTERED, Relaxed);
        self.track.store(0, Relaxed);
        self.site.store(site.number, Relaxed);
        plain >> 32 != 0
    }

    /// The callsite, if the gate stands as it stood when the span was made and was found to be recorded, and this is
    /// the first poll, by the thread that made it.
    #[inline(always)]
    pub(crate) fn is_plain(&self, thread: u64) -> Option<u32> {
        let plain = self.plain.load(Relaxed);
        let plainly = (plain >> 32) as u32 == gate::generation()
            && self.is_unentered()
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
        let before = self.first.load(Relaxed);
        let before = before != 0 && before & UNENTERED == 0;
        if !before {
            self.first.store(stamp.max(1), Relaxed);
        }
        before
    }

    /// The same for a poll that is known to be the first. The counter is never 0.
    #[inline(always)]
    pub(crate) fn entered_first(&self, stamp: u64) {
        self.first.store(stamp, Relaxed);
    }

    pub(crate) fn first(&self) -> u64 {
        self.first.load(Relaxed)
    }

    /// It was recorded when it was made, at this stamp.
    pub(crate) fn made(&self, stamp: u64) {
        self.first.store(UNENTERED | stamp, Relaxed);
    }

    /// It was not recorded when it was made, or its lifetime says all of it.
    pub(crate) fn not_awaited(&self) {
        self.first.store(0, Relaxed);
    }

    /// Whether it waits for its first poll, and was recorded when it was made.
    #[inline(always)]
    pub(crate) fn is_unentered(&self) -> bool {
        self.first.load(Relaxed) & UNENTERED != 0
    }

    /// When it was made, if it waits for its first poll and that is known.
    pub(crate) fn made_at(&self) -> Option<u64> {
        let first = self.first.load(Relaxed);
        (first & UNENTERED != 0 && first != UNENTERED).then_some(first & !UNENTERED)
    }

    /// The gate's generation in which it was made and found to be plain.
    pub(crate) fn generation(&self) -> u32 {
        (self.plain.load(Relaxed) >> 32) as u32
    }

    /// The track of its lifetime; 0 for none.
    #[inline]
    pub(crate) fn track(&self) -> u64 {
        self.track.load(Relaxed)
    }

    /// Gives it a track that no other span has.
    pub(crate) fn start_track(&self) -> u64 {
        let track = free_track();
        self.track.store(track, Relaxed);
        self.kinds.fetch_or(TRACKED, Relaxed);
        track
    }

    /// The word of a short value, whose kind comes with [`Slot::set_short_kinds`].
    #[inline(always)]
    pub(crate) fn set_short_word(&self, index: usize, word: u64) {
        self.words[index].store(word, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn set_short_kinds(&self, kinds: u32) {
        self.kinds.store(kinds, Relaxed);
    }

    /// Values that are more, or texts.
    #[inline]
    pub(crate) fn set_values(&self, fill: impl FnOnce(&mut Kept)) {
        self.change(fill);
        self.kinds.store(MORE, Relaxed);
    }

    /// Adds values that came later, over those of the same fields.
    pub(crate) fn learn(&self, fill: impl FnOnce(&mut Kept)) {
        let kinds = self.kinds.load(Relaxed);
        self.change(|kept| {
            if kinds & MORE != MORE {
                self.short_values().for_each(|(index, kind, word)| kept.set(index, kind, word));
            }
            fill(kept);
        });
        self.kinds.fetch_or(MORE | CHANGED, Relaxed);
    }

    /// The lock is not held meanwhile: a value's `Debug` may use this span.
    fn change(&self, fill: impl FnOnce(&mut Kept)) {
        let mut kept = self.lock().take().unwrap_or_default();
        fill(&mut kept);
        *self.lock() = Some(kept);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Kept>>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn short_values(&self) -> impl Iterator<Item = (usize, u8, u64)> {
        let kinds = self.kinds.load(Relaxed);
        let kinds = [(kinds & 0xff) as u8, (kinds >> 8) as u8].into_iter().enumerate();
        let present = kinds.filter(|&(_, kind)| kind != value_kind::ABSENT);
        present.map(|(index, kind)| (index, kind, self.words[index].load(Relaxed)))
    }

    /// Hands its values to `take`, as [`Kept::with`] does.
    pub(crate) fn with<T>(
        &self,
        least: usize,
        last: Option<Value<'_>>,
        learned: bool,
        take: impl FnOnce(&[Value<'_>]) -> T,
    ) -> T {
        if self.kinds.load(Relaxed) & MORE == MORE {
            let kept = self.lock();
            return match &*kept {
                Some(kept) => kept.with(least, last, learned, take),
                None => Kept::default().with(least, last, learned, take),
            };
        }
        let mut kept = Kept::default();
        if !learned {
            self.short_values().for_each(|(index, kind, word)| kept.set(index, kind, word));
        }
        kept.with(least, last, learned, take)
    }

    /// What markers are to say of it.
    pub(crate) fn tell(&self, fill: impl FnOnce(&mut String)) {
        self.change(|kept| fill(&mut kept.marker));
        self.kinds.fetch_or(TOLD, Relaxed);
    }

    /// What [`Slot::tell`] was given; nothing for a span made while no marker was wanted.
    pub(crate) fn told<T>(&self, take: impl FnOnce(Option<&str>) -> T) -> T {
        if self.kinds.load(Relaxed) & TOLD == 0 {
            return take(None);
        }
        take(self.lock().as_deref().map(|kept| kept.marker.as_str()))
    }

    pub(crate) fn is_told(&self) -> bool {
        self.kinds.load(Relaxed) & TOLD != 0
    }

    /// Whether something was learned since the last poll began.
    #[inline]
    pub(crate) fn take_changed(&self) -> bool {
        let kinds = self.kinds.load(Relaxed);
        kinds & CHANGED != 0 && self.kinds.fetch_and(!CHANGED, Relaxed) & CHANGED != 0
    }

    /// Whether it has no more than two short values: nothing is left to be said of it, nor to be cleared.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        self.kinds.load(Relaxed) & !SHORT == 0
    }

    /// Something was learned, and no poll or lifetime that ended since has it.
    pub(crate) fn is_changed(&self) -> bool {
        self.kinds.load(Relaxed) & CHANGED != 0
    }

    /// What was learned so far stands with the begin of the lifetime.
    pub(crate) fn forget_learned(&self) {
        if let Some(kept) = &mut *self.lock() {
            kept.forget_learned();
        }
    }

    /// Writes the begin of a plain span.
    #[inline(always)]
    pub(crate) fn write_begin(&self, callsite: u32, stamp: u64) -> u64 {
        let kinds = self.kinds.load(Relaxed) & MORE;
        if kinds == 0 {
            return ring::write([record::head(Kind::Begin, callsite, 0, 0), stamp], Claim::Opens);
        }
        if kinds == MORE {
            return self.write_long_begin(callsite, stamp);
        }
        let head = record::head(Kind::Begin, callsite, kinds as u8, (kinds >> 8) as u8);
        ring::write(
            [head, stamp, self.words[0].load(Relaxed), self.words[1].load(Relaxed)],
            Claim::Opens,
        )
    }

    #[inline(never)]
    fn write_long_begin(&self, callsite: u32, stamp: u64) -> u64 {
        let first = [record::head(Kind::Begin, callsite, 0, 0), stamp, 0, 0];
        self.with(0, None, false, |values| write_long(first, None, values, Claim::Opens))
    }

    /// Another holder.
    pub(crate) fn add_reference(&self) {
        self.references.fetch_add(1, Relaxed);
    }

    /// One holder less; `true` for the last.
    #[inline]
    pub(crate) fn drop_reference(&self) -> bool {
        // The holder of the only reference is alone in being able to add another.
        self.references.load(Acquire) == 1 || self.references.fetch_sub(1, Release) == 1
    }
}

/// The number of a track that no other span has.
pub(crate) fn free_track() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 62);
    NEXT.fetch_add(1, Relaxed)
}

/// All slots that ever held a span.
pub(crate) fn used() -> impl Iterator<Item = &'static Slot> {
    let used = FREE.lock().unwrap_or_else(PoisonError::into_inner).1;
    (0..used).filter_map(get)
}

/// The slot of this number.
#[inline]
pub(crate) fn get(index: u32) -> Option<&'static Slot> {
    SLOTS.get(index as usize).or_else(|| far(index))
}

/// Slots beyond those that every program has.
#[cold]
fn far(index: u32) -> Option<&'static Slot> {
    let beyond = (index as usize).checked_sub(NEAR)?;
    CHUNKS.get(beyond / NEAR)?.get()?.get(beyond % NEAR)
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
pub(crate) fn give_back(index: u32, slot: &Slot) {
    if let Some(kept) = &mut *slot.lock() {
        kept.clear();
    }
    stock(index);
}

/// A slot without anything to clear is free again.
#[inline(always)]
pub(crate) fn stock(index: u32) {
    STOCK.with(|stock| stock.push(index));
}

/// Spans that may live at once: beyond that they are counted, and nothing of them is kept. They take 2 GB.
pub(crate) const MOST: usize = NEAR * (1 + FAR);
/// Slots of the program's own memory, and of each of the [`CHUNKS`].
const NEAR: usize = 1 << 17;
const FAR: usize = 127;
const STOCKED: usize = 64;

/// All zero, so that it costs address space and no memory until it is used.
static SLOTS: [Slot; NEAR] = [const { Slot::new() }; NEAR];
/// More of them, made when they are needed, for ever.
static CHUNKS: [OnceLock<Box<[Slot]>>; FAR] = [const { OnceLock::new() }; FAR];
/// Slots given back, and how many were ever used.
static FREE: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));
/// The number of a span without a slot.
pub(crate) const NO_SLOT: u32 = MOST as u32;

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
        // Chunks begin at multiples of what is taken at a time.
        let beyond = (fresh.start as usize).checked_sub(NEAR);
        if let Some(chunk) = beyond.and_then(|beyond| CHUNKS.get(beyond / NEAR)) {
            chunk.get_or_init(|| (0..NEAR).map(|_| Slot::new()).collect());
        }
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
pub(crate) const MOST_SITES: usize = 1 << 16;

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
