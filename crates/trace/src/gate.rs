//! The static check: one load and a test say whether an event is wanted at all.
//!
//! There is one mask per level, so category and level are answered by the same load. That of the level that nearly all
//! callsites have lies in one word with whether a tool is attached to a probe, so that they take no second load and
//! branch.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::category::{Category, Level};
use crate::directives::Directives;
use crate::probe::{self, BELOW_CATEGORIES};

/// Whether an event of this category and level is wanted by the ring, a sink or a subscriber.
#[inline(always)]
#[must_use]
pub fn enabled(category: Category, level: Level) -> bool {
    if level == SHORT_LEVEL && category.bits() <= SHORT {
        return probe::word() & (category.bits() << BELOW_CATEGORIES | probe::ATTACHED) != 0;
    }
    GATE.masks[level as usize].load(Relaxed) & category.bits() != 0 || probe::attached()
}

/// The level whose lower categories lie in [`probe::word`].
const SHORT_LEVEL: Level = Level::Info;
const SHORT: u64 = u64::MAX >> BELOW_CATEGORIES;

/// Whether the recording wants it.
pub(crate) fn recorded(category: Category, level: Level) -> bool {
    RECORDED[level as usize].load(Relaxed) & category.bits() != 0
}

/// Whether the recording wants an event of this target. It takes a lock: keep the answer while [`generation`] stands.
#[cfg(feature = "tracing")]
pub(crate) fn recorded_of_target(category: Category, level: Level, target: &str) -> bool {
    let named = RECORDS_TARGETS
        .load(Relaxed)
        .then(|| TARGETS.read().unwrap_or_else(PoisonError::into_inner).of_target(target, level));
    named.flatten().unwrap_or_else(|| recorded(category, level))
}

/// Whether it goes to ftrace's `trace_marker`.
pub(crate) fn marked(category: Category, level: Level) -> bool {
    MARKED[level as usize].load(Relaxed) & category.bits() != 0
}

/// What the gate lets through at `level`.
pub(crate) fn wanted(level: Level) -> Category {
    Category::from_bits(GATE.masks[level as usize].load(Relaxed))
}

/// The most verbose level that is wanted of any category.
#[cfg(feature = "tracing")]
pub(crate) fn most_verbose() -> Option<Level> {
    let targets = TARGETS.read().unwrap_or_else(PoisonError::into_inner);
    let of_targets = targets.targets.iter().filter_map(|&(_, level)| level).max();
    let of_targets = of_targets.filter(|_| RECORDS_TARGETS.load(Relaxed));
    let is_wanted = |level: &Level| {
        wanted(*level) != Category::NONE || probe::attached() || of_targets >= Some(*level)
    };
    Level::ALL.into_iter().rev().find(is_wanted)
}

/// Records what these directives say; the default records nothing.
pub(crate) fn record(directives: Directives) {
    set(&RECORDED, directives.masks);
    RECORDS_TARGETS.store(!directives.targets.is_empty(), Relaxed);
    *TARGETS.write().unwrap_or_else(PoisonError::into_inner) = directives;
    changed();
}

/// Marks these categories at `level` and what is more important.
pub(crate) fn mark(categories: Category, level: Level) {
    set(&MARKED, Directives::of(categories, level).masks);
    changed();
}

fn set(masks: &[AtomicU64; 5], wanted: [u64; 5]) {
    masks.iter().zip(wanted).for_each(|(mask, wanted)| mask.store(wanted, Relaxed));
}

/// Runs `hook` after every change of the gate: what caches an answer of [`enabled`] forgets it there.
pub fn on_change(hook: fn()) {
    let mut hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    if !hooks.iter().any(|&known| std::ptr::fn_addr_eq(known, hook)) {
        hooks.push(hook);
    }
}

/// Opens and shuts the gate as the recording, the marker and the probes want it, and runs the hooks.
pub(crate) fn changed() {
    turn();
    GENERATION.fetch_add(1, Release);
    crate::atrace::gate_changed();
    let hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    hooks.into_iter().for_each(|hook| hook());
}

fn turn() {
    let mut marks = 0;
    for (mask, (recorded, marked)) in GATE.masks.iter().zip(RECORDED.iter().zip(&MARKED)) {
        let marked = marked.load(Relaxed);
        marks |= marked;
        mask.store(recorded.load(Relaxed) | marked, Relaxed);
    }
    let any = Level::ALL.into_iter().any(|level| wanted(level) != Category::NONE);
    let open = if any || RECORDS_TARGETS.load(Relaxed) { probe::OPEN } else { 0 };
    let short = wanted(SHORT_LEVEL).bits() << BELOW_CATEGORIES;
    let marker = if marks == 0 { 0 } else { probe::MARKER };
    let all = SHORT << BELOW_CATEGORIES | probe::OPEN | probe::MARKER;
    probe::set(all, short | open | marker);
}

/// Ends recording without running hooks: the child's side of a fork, where a lock may be held for ever.
#[cfg(all(unix, not(miri)))]
pub(crate) fn shut_after_fork() {
    RECORDED.iter().for_each(|mask| mask.store(0, Relaxed));
    RECORDS_TARGETS.store(false, Relaxed);
    turn();
    GENERATION.fetch_add(1, Release);
    crate::atrace::gate_changed();
}

/// Counts the changes: what was true of the gate then is true while this stands still.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// The same, with all that was changed before it.
#[cfg(feature = "tracing")]
pub(crate) fn latest_generation() -> u32 {
    GENERATION.load(std::sync::atomic::Ordering::Acquire)
}

/// Whether any event of any place is wanted.
#[cfg(feature = "layer")]
#[inline(always)]
pub(crate) fn is_open() -> bool {
    probe::word() & (probe::OPEN | probe::ATTACHED) != 0
}

#[repr(align(64))]
struct Gate {
    masks: [AtomicU64; 5],
}

static GATE: Gate = Gate { masks: [const { AtomicU64::new(0) }; 5] };
static GENERATION: AtomicU32 = AtomicU32::new(1);
static RECORDED: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
static MARKED: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
/// What the recording keeps by target; a forked child must not touch the lock.
static TARGETS: RwLock<Directives> = RwLock::new(Directives { masks: [0; 5], targets: Vec::new() });
static RECORDS_TARGETS: AtomicBool = AtomicBool::new(false);
static HOOKS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());
