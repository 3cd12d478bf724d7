//! The static check: one load and a test say whether an event is wanted at all.
//!
//! There is one mask per level, so category and level are answered by the same load.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::category::{Category, Level};
use crate::probe;

/// Whether an event of this category and level is wanted by anyone.
#[inline(always)]
#[must_use]
pub fn enabled(category: Category, level: Level) -> bool {
    GATE.masks[level as usize].load(Relaxed) & category.bits() != 0 || probe::attached()
}

/// Whether the recording wants it.
pub(crate) fn recorded(category: Category, level: Level) -> bool {
    RECORDED[level as usize].load(Relaxed) & category.bits() != 0
}

/// Whether it goes to ftrace's `trace_marker`.
pub(crate) fn marked(category: Category, level: Level) -> bool {
    MARKED[level as usize].load(Relaxed) & category.bits() != 0
}

/// What the gate lets through at `level`.
pub(crate) fn wanted(level: Level) -> Category {
    Category::from_bits(GATE.masks[level as usize].load(Relaxed))
}

/// The most verbose level anyone wants any category at.
#[cfg(feature = "tracing")]
pub(crate) fn most_verbose() -> Option<Level> {
    Level::ALL.into_iter().rev().find(|&level| wanted(level) != Category::NONE || probe::attached())
}

/// Records these categories at `level` and what is more important; `NONE` records nothing.
pub(crate) fn record(categories: Category, level: Level) {
    set(&RECORDED, categories, level);
}

/// Marks these categories at `level` and what is more important.
pub(crate) fn mark(categories: Category, level: Level) {
    set(&MARKED, categories, level);
}

fn set(masks: &[AtomicU64; 5], categories: Category, level: Level) {
    for each in Level::ALL {
        let mask = if each <= level { categories.bits() } else { 0 };
        masks[each as usize].store(mask, Relaxed);
    }
    changed();
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
    let mut marks = 0;
    for level in 0..GATE.masks.len() {
        let marked = MARKED[level].load(Relaxed);
        marks |= marked;
        GATE.masks[level].store(RECORDED[level].load(Relaxed) | marked, Relaxed);
    }
    probe::set_detour(probe::MARKER, marks != 0);
    GENERATION.fetch_add(1, Relaxed);
    crate::atrace::gate_changed();
    let hooks = HOOKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    hooks.into_iter().for_each(|hook| hook());
}

/// Ends recording without running hooks: the child's side of a fork, where a lock may be held for ever.
pub(crate) fn shut_after_fork() {
    RECORDED.iter().for_each(|mask| mask.store(0, Relaxed));
    for (mask, marked) in GATE.masks.iter().zip(&MARKED) {
        mask.store(marked.load(Relaxed), Relaxed);
    }
    GENERATION.fetch_add(1, Relaxed);
    crate::atrace::gate_changed();
}

/// Counts the changes: what was true of the gate then is true while this stands still.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

#[repr(align(64))]
struct Gate {
    masks: [AtomicU64; 5],
}

static GATE: Gate = Gate { masks: [const { AtomicU64::new(0) }; 5] };
static GENERATION: AtomicU32 = AtomicU32::new(1);
static RECORDED: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
static MARKED: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
static HOOKS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());
