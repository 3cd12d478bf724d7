//! One thread writes, one reader at a time takes: a ring of fixed records.
//!
//! The writer never waits. In *record* mode it stops at `limit`, which the reader moves on; in *flight recorder* mode
//! there is no limit and the reader finds out afterwards which of the records it copied may have been overwritten.
//! Every slot is made of atomics, so a torn read is a wrong value and never undefined, and is thrown away.

#![expect(
    unsafe_code,
    reason = "a thread reaches its own ring through a pointer, without a lock or a count"
)]

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

use crate::record::{LONGEST, Words};
use crate::thread;
#[cfg(all(unix, not(miri)))]
use crate::{gate, marker, value};
use std::sync::atomic::AtomicBool as AtomicFlag;

/// A ring and what is known of its thread.
pub(crate) struct Ring {
    /// Where the first record lies in `_words`, so that none lies across two cache lines.
    first: First,
    mask: usize,
    _words: Vec<AtomicU64>,
    /// Position of the first record ever written: unlike that of every other ring.
    base: u64,
    pub(crate) thread: Thread,
    /// Position the writer must not reach; 0 once the ring is closed, `u64::MAX` for a flight recorder.
    limit: AtomicU64,
    written: Written,
}

/// What the writer alone changes, on a line of its own.
#[repr(align(128))]
struct Written {
    /// Position after the last whole record.
    head: AtomicU64,
    /// Position after the record being written, when an event takes several.
    intent: AtomicU64,
    /// Events that found no room.
    lost: AtomicU64,
    /// Texts that were cut.
    cut: AtomicU64,
    /// The thread is gone.
    done: AtomicBool,
}

/// The words of a record.
type Slot = [AtomicU64; WORDS];
const WORDS: usize = 4;

/// A place in the memory that the ring owns.
struct First(*const Slot);

// SAFETY: it is only ever read through as shared atomics, which any thread may do, while the ring lives.
unsafe impl Send for First {}
// SAFETY: as above.
unsafe impl Sync for First {}

/// Words of a cache line.
const LINE: usize = 8;

/// Who wrote a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) name: String,
}

/// What a reader took: whole records and how far they reach.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) records: Vec<Words>,
    /// Position of the first of them.
    pub(crate) first: u64,
    /// Records overwritten since the reader was here last.
    pub(crate) overwritten: u64,
}

impl Ring {
    /// A ring of `capacity` records, a power of two; `serial` makes its positions its own.
    pub(crate) fn new(capacity: usize, serial: u64, flight: bool, thread: Thread) -> Self {
        let capacity = capacity.next_power_of_two();
        let base = serial << SERIAL_SHIFT;
        let words = zeroed(capacity * WORDS + LINE);
        let aside = words.as_ptr().align_offset(LINE * size_of::<u64>()).min(LINE);
        let first = words[aside..].as_ptr().cast::<Slot>();
        Self {
            first: First(first),
            _words: words,
            mask: capacity - 1,
            base,
            thread,
            limit: AtomicU64::new(if flight { u64::MAX } else { base + capacity as u64 }),
            written: Written {
                head: AtomicU64::new(base),
                intent: AtomicU64::new(base),
                lost: AtomicU64::new(0),
                cut: AtomicU64::new(0),
                done: AtomicBool::new(false),
            },
        }
    }

    /// Writes one record if there is room up to `until`; answers its position. Words that the record's kind gives no
    /// meaning need not be given: what an earlier lap left there stays.
    #[inline(always)]
    pub(crate) fn push<const N: usize>(&self, words: [u64; N], until: u64) -> Option<u64> {
        let head = self.head();
        self.has_room(until).then(|| self.put(head, words))
    }

    /// Acquire: the reader has copied what lies below the limit's lap before we write over it.
    #[inline(always)]
    fn has_room(&self, until: u64) -> bool {
        until <= self.limit.load(Acquire)
    }

    /// Writes one record at `head`, where there is room; answers the same.
    #[inline(always)]
    fn put<const N: usize>(&self, head: u64, words: [u64; N]) -> u64 {
        // Pairs with the reader's fence: a reader that sees one of these words also sees the head of the record before.
        fence(Release);
        self.store(head, words);
        self.written.head.store(head + 1, Release);
        head
    }

    /// Writes the records of one event, all or none.
    #[cold]
    pub(crate) fn push_all(&self, records: &[Words], until: u64) -> Option<u64> {
        if records.len() > LONGEST || !self.has_room(until) {
            return None;
        }
        let head = self.head();
        let end = head + records.len() as u64;
        self.written.intent.store(end, Relaxed);
        fence(Release);
        (head..).zip(records).for_each(|(position, words)| self.store(position, *words));
        self.written.head.store(end, Release);
        Some(head)
    }

    /// Where the next record goes, as the writer sees it.
    #[inline(always)]
    pub(crate) fn head(&self) -> u64 {
        self.written.head.load(Relaxed)
    }

    #[inline(always)]
    fn store<const N: usize>(&self, position: u64, words: [u64; N]) {
        let slot = self.slot(position);
        slot.iter().zip(words).for_each(|(slot, word)| slot.store(word, Relaxed));
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot {
        let index = position as usize & self.mask;
        // SAFETY: the mask is one less than the capacity, and from `first` on there is memory for as many records:
        // `new` allocates a line more than they take and sets at most a line aside. The ring owns it.
        unsafe { &*self.first.0.add(index) }
    }

    /// Records that found no room so far.
    pub(crate) fn lost(&self) -> u64 {
        self.written.lost.load(Relaxed)
    }

    /// Texts cut so far.
    pub(crate) fn cut(&self) -> u64 {
        self.written.cut.load(Relaxed)
    }

    fn add(counter: &AtomicU64, count: u64) {
        counter.store(counter.load(Relaxed) + count, Relaxed);
    }

    /// Whether its thread has ended.
    pub(crate) fn done(&self) -> bool {
        self.written.done.load(Acquire)
    }

    /// Whether a reader that got as far as `next` has read all.
    pub(crate) fn is_read(&self, next: u64) -> bool {
        self.written.head.load(Acquire) == next
    }

    fn capacity(&self) -> u64 {
        self.mask as u64 + 1
    }

    /// Where a reader begins.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// No record is written from here on, except one that is being written right now.
    pub(crate) fn close(&self) {
        // Read-modify-write, as `release` is: of two of these one comes first and the other sees it.
        self.limit.swap(0, AcqRel);
    }

    fn closed(&self) -> bool {
        self.limit.load(Relaxed) == 0
    }

    /// Copies what was written since `from`. One reader at a time.
    pub(crate) fn take(&self, from: u64) -> Taken {
        let capacity = self.capacity();
        let head = self.written.head.load(Acquire);
        let first = from.max(head.saturating_sub(capacity));
        let mut records: Vec<Words> = (first..head).map(|position| self.load(position)).collect();
        // Pairs with the writer's fence: a word of a later lap, if we read one, makes these two loads see it coming.
        fence(Acquire);
        let reached = self.written.head.load(Relaxed) + 1;
        let reached = reached.max(self.written.intent.load(Relaxed));
        let limited = self.limit.load(Relaxed) != u64::MAX;
        let safe =
            if limited { first } else { first.max(reached.saturating_sub(capacity)).min(head) };
        records.drain(..(safe - first) as usize);
        Taken { records, first: safe, overwritten: safe - from }
    }

    /// Lets the writer reuse everything below `taken`, in record mode.
    pub(crate) fn release(&self, taken: u64) {
        let limit = self.limit.load(Relaxed);
        if limit != 0 && limit != u64::MAX {
            // A close that comes between is not undone.
            let moved = taken + self.capacity();
            let _ = self.limit.compare_exchange(limit, moved, Release, Relaxed);
        }
    }

    fn load(&self, position: u64) -> Words {
        let slot = self.slot(position);
        std::array::from_fn(|word| slot[word].load(Relaxed))
    }
}

/// Fresh pages of zeros, which cost nothing until they are written. The alignment is that of a word: of more, the
/// system's allocator would clear the memory itself, all of it.
#[cfg(not(any(loom, miri)))]
fn zeroed(count: usize) -> Vec<AtomicU64> {
    let layout =
        std::alloc::Layout::array::<AtomicU64>(count).unwrap_or_else(|_| std::process::abort());
    // SAFETY: the layout is that of the slice and its size is not zero (`count` is at least a line); all-zero bytes
    // are valid atomics.
    unsafe {
        let memory = std::alloc::alloc_zeroed(layout).cast::<AtomicU64>();
        if memory.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Vec::from_raw_parts(memory, count, count)
    }
}

#[cfg(any(loom, miri))]
fn zeroed(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// What the thread keeps at hand.
struct Local {
    /// Its ring, or [`NO_RING`].
    ring: Cell<*const Ring>,
    /// Position up to which room is spoken for: past the last record, and one more for the end of each open span.
    held: Cell<u64>,
    /// Threads end in pieces: after this the ring is not to be touched.
    over: Cell<bool>,
}

impl Local {
    const fn new(no_ring: *const Ring) -> Self {
        Self { ring: Cell::new(no_ring), held: Cell::new(0), over: Cell::new(false) }
    }

    fn leave(&self) {
        self.ring.set(no_ring());
        self.held.set(0);
    }
}

#[cfg(not(loom))]
const fn no_ring() -> *const Ring {
    &raw const NO_RING
}

/// Stands in for the ring of a thread that has none: closed, so that none need ask whether there is a ring and
/// whether it is open.
#[cfg(not(loom))]
static NO_RING: Ring = Ring {
    first: First(std::ptr::null()),
    mask: 0,
    _words: Vec::new(),
    base: 0,
    thread: Thread { tid: 0, name: String::new() },
    limit: AtomicU64::new(0),
    written: Written {
        head: AtomicU64::new(0),
        intent: AtomicU64::new(0),
        lost: AtomicU64::new(0),
        cut: AtomicU64::new(0),
        done: AtomicBool::new(false),
    },
};

/// The models' atomics are no constants.
#[cfg(loom)]
fn no_ring() -> *const Ring {
    let ring = Ring::new(1, 0, false, Thread { tid: 0, name: String::new() });
    ring.close();
    Box::leak(Box::new(ring))
}

/// Owns the ring for the thread and marks it done when the thread ends.
struct Owned(RefCell<Option<Arc<Ring>>>);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = LOCAL.try_with(|local| {
            local.over.set(true);
            local.leave();
        });
        if let Some(ring) = self.0.borrow_mut().take() {
            ring.written.done.store(true, Release);
        }
    }
}

#[cfg(not(loom))]
thread_local! {
    static LOCAL: Local = const { Local::new(no_ring()) };
}

#[cfg(loom)]
thread_local! {
    static LOCAL: Local = Local::new(no_ring());
}

thread_local! {
    static OWNED: Owned = const { Owned(RefCell::new(None)) };
}

/// Room an event asks for beyond its own record, and what it does to the number of open spans.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Stands alone.
    Alone,
    /// Sets room aside for its end.
    Opens,
    /// Uses the room that its begin set aside.
    Closes,
}

/// Writes one record to this thread's ring; answers its position, a plain number, because an `Option` of one is looked
/// at once more.
#[inline(always)]
pub(crate) fn write<const N: usize>(words: [u64; N], claim: Claim) -> u64 {
    // SAFETY: the thread's own, which has nothing to drop and lives as long as the thread.
    let local = unsafe { &*LOCAL.with(std::ptr::from_ref) };
    // SAFETY: the pointer is to NO_RING or to the ring that OWNED keeps alive; both are changed together, by this
    // thread, in `adopt` and in `Owned::drop`.
    let ring = unsafe { &*local.ring.get() };
    let (held, head) = (local.held.get(), ring.head());
    let until = match claim {
        Claim::Alone => held + 1,
        Claim::Opens => held + 2,
        Claim::Closes => held,
    };
    if ring.has_room(until) && (claim != Claim::Closes || head < held) {
        ring.put(head, words);
        // SAFETY: in NO_RING, whose limit is 0, there is no room; of all others the positions begin at 1 <<
        // SERIAL_SHIFT.
        unsafe { std::hint::assert_unchecked(head != NOWHERE) };
        if claim != Claim::Closes {
            local.held.set(until);
        }
        return head;
    }
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    write_one_slow(local, word(0), word(1), word(2), word(3), claim)
}

/// The words one by one: they travel in registers, so that the callers keep none of them in memory.
#[cold]
#[inline(never)]
fn write_one_slow(local: &Local, a: u64, b: u64, c: u64, d: u64, claim: Claim) -> u64 {
    write_slow(local, &[[a, b, c, d]], claim, 0)
}

/// No position: the first ring's serial number is 1.
pub(crate) const NOWHERE: u64 = 0;

/// Writes the records of one long event; `cut` of its texts are not whole.
#[cold]
pub(crate) fn write_all(records: &[Words], claim: Claim, cut: u64) -> u64 {
    LOCAL.with(|local| write_slow(local, records, claim, cut))
}

#[cold]
fn write_slow(local: &Local, records: &[Words], claim: Claim, cut: u64) -> u64 {
    if local.over.get() {
        let mut registry = registry();
        registry.homeless += u64::from(registry.plan.is_some());
        return NOWHERE;
    }
    // SAFETY: as in `write`.
    let mut ring = unsafe { &*local.ring.get() };
    if ring.closed() {
        if claim == Claim::Closes {
            // An end of an earlier recording has nothing to end.
            return NOWHERE;
        }
        let Some(adopted) = adopt(local) else { return NOWHERE };
        // SAFETY: as in `write`; `adopt` has just set both.
        ring = unsafe { &*adopted };
    }
    let (held, count) = (local.held.get(), records.len() as u64);
    let until = match claim {
        Claim::Alone => held + count,
        Claim::Opens => held + count + 1,
        // One record is paid for, unless the span is of an earlier recording.
        Claim::Closes => (held + count - 1).max(ring.head() + count),
    };
    let position = ring.push_all(records, until);
    match position {
        Some(_) => {
            local.held.set(until);
            Ring::add(&ring.written.cut, cut);
        }
        None if ring.closed() => {}
        None => Ring::add(&ring.written.lost, 1),
    }
    position.unwrap_or(NOWHERE)
}

/// Gives this thread a ring of the recording that is on.
#[cold]
fn adopt(local: &Local) -> Option<*const Ring> {
    let ring = if RECORDING.load(Relaxed) { registry().admit() } else { None };
    let Some(ring) = ring else {
        local.leave();
        let _ = OWNED.try_with(|owned| owned.0.replace(None));
        return None;
    };
    let (pointer, base) = (Arc::as_ptr(&ring), ring.base);
    OWNED.try_with(|owned| owned.0.replace(Some(ring))).ok()?;
    local.ring.set(pointer);
    local.held.set(base);
    Some(pointer)
}

/// All rings of the recording that is on.
pub(crate) struct Registry {
    pub(crate) rings: Vec<Arc<Ring>>,
    plan: Option<Plan>,
    serial: u64,
    /// Events that had no ring to go to.
    pub(crate) homeless: u64,
    /// Spans of `tracing` that had no slot to be kept in.
    pub(crate) refused: u64,
    /// Spans of `tracing` that were never entered, and of which it is not known when they were made.
    pub(crate) unentered: u64,
    /// Records that went with the rings of dead threads to make room.
    pub(crate) evicted: u64,
}

/// What rings a recording wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) capacity: usize,
    pub(crate) flight: bool,
    pub(crate) most_rings: usize,
}

impl Registry {
    /// From here on threads get rings by this plan.
    pub(crate) fn begin(&mut self, plan: Plan) {
        self.rings.clear();
        (self.homeless, self.evicted, self.refused, self.unentered) = (0, 0, 0, 0);
        self.plan = Some(plan);
        RECORDING.store(true, Relaxed);
    }

    /// No thread gets a ring; those there are close.
    pub(crate) fn end(&mut self) -> Vec<Arc<Ring>> {
        RECORDING.store(false, Relaxed);
        self.plan = None;
        self.rings.iter().for_each(|ring| ring.close());
        std::mem::take(&mut self.rings)
    }

    fn admit(&mut self) -> Option<Arc<Ring>> {
        let plan = self.plan?;
        if self.rings.len() >= plan.most_rings && !(plan.flight && self.evict()) {
            self.homeless += 1;
            return None;
        }
        self.serial = self.free_serial();
        let ring =
            Arc::new(Ring::new(plan.capacity, self.serial, plan.flight, this_thread(self.serial)));
        self.rings.push(ring.clone());
        Some(ring)
    }

    /// The next serial number that no ring has.
    fn free_serial(&self) -> u64 {
        let mut serial = self.serial % SERIALS + 1;
        while self.rings.iter().any(|ring| ring.base == serial << SERIAL_SHIFT) {
            serial = serial % SERIALS + 1;
        }
        serial
    }

    /// Gives up the ring of the thread that died first.
    fn evict(&mut self) -> bool {
        let Some(oldest) = self.rings.iter().position(|ring| ring.done()) else { return false };
        let ring = self.rings.remove(oldest);
        self.evicted += ring.written.head.load(Acquire) - ring.base;
        true
    }
}

/// Asked before the registry's lock when an event finds no ring: probes may be attached with no recording on.
static RECORDING: AtomicFlag = AtomicFlag::new(false);

fn this_thread(serial: u64) -> Thread {
    // Where the system gives no number, one above those that processes have.
    let unnumbered = || UNNUMBERED + (serial % SERIALS) as u32;
    Thread { tid: thread::number().unwrap_or_else(unnumbered), name: thread::name() }
}

/// Linux numbers processes and threads below 2^22.
const UNNUMBERED: u32 = 1 << 30;

/// The registry, locked.
pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    rings: Vec::new(),
    plan: None,
    serial: 0,
    homeless: 0,
    refused: 0,
    unentered: 0,
    evicted: 0,
});

/// Bits of a position below a ring's serial number: 2^40 records are 35 TB.
const SERIAL_SHIFT: u32 = 40;
/// Serial numbers begin anew after this many rings.
const SERIALS: u64 = (BEYOND >> SERIAL_SHIFT) - 1;
/// All positions are below this.
pub(crate) const BEYOND: u64 = 1 << 62;

/// Makes a forked child start clean: it records nothing, and what it inherited is its parent's to report.
#[cfg(all(unix, not(miri)))]
pub(crate) fn watch_forks() {
    use std::sync::Once;
    static WATCHED: Once = Once::new();
    extern "C" fn prepare() {
        let locks =
            Locks { _sites: crate::callsite::lock(), _texts: value::lock(), registry: registry() };
        let _ = HELD.try_with(|held| held.replace(Some(locks)));
    }
    extern "C" fn parent() {
        let _ = HELD.try_with(|held| held.take());
    }
    extern "C" fn child() {
        gate::shut_after_fork();
        marker::forget_pid();
        if let Ok(Some(mut locks)) = HELD.try_with(|held| held.take()) {
            locks.registry.end();
        }
    }
    // SAFETY: the three functions are plain `extern "C"` functions that live for ever. They take and release the
    // locks of this crate, in one order, so the child finds whole tables and free locks.
    WATCHED.call_once(|| unsafe {
        libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
    });
}

#[cfg(any(not(unix), miri))]
pub(crate) fn watch_forks() {}

#[cfg(all(unix, not(miri)))]
struct Locks {
    _sites: MutexGuard<'static, Vec<&'static crate::callsite::Callsite>>,
    _texts: MutexGuard<'static, Option<value::Interned>>,
    registry: MutexGuard<'static, Registry>,
}

#[cfg(all(unix, not(miri)))]
thread_local! {
    static HELD: RefCell<Option<Locks>> = const { RefCell::new(None) };
}

#[cfg(all(test, loom))]
mod loom_ring;
#[cfg(all(test, not(loom)))]
mod tests;
