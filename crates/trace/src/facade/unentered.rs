//! Spans that were not entered yet: a connection that is only the parent of its requests, a task that waits.
//!
//! They have written nothing. A span of a place whose spans were never entered is stamped when it is made, and its
//! lifetime is written when it closes, or told when the recording ends. Where spans of the place were entered before,
//! no clock was read when this one was made: it is counted, and the place's further spans are stamped.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::site::Site;
use super::slab::{self, Slot};
use super::{end_lifetime, lifetime};
use crate::value::Value;
use crate::{gate, ring};

/// A recording begins: spans that were made before, and are not entered, are not of it.
pub(crate) fn recording_begins(ticks: u64) {
    BEGAN_AT.store(ticks, Relaxed);
    GENERATION.store(gate::latest_generation(), Relaxed);
}

static BEGAN_AT: AtomicU64 = AtomicU64::new(0);
/// The gate's, when the recording had begun.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The span is over, and was never entered.
#[cold]
pub(crate) fn close(slot: &Slot) {
    let made_at = slot.made_at();
    if let Some(site) = slot.site().filter(|site| site.is_recorded() && is_of_recording(slot)) {
        site.set_asynchronous();
        match made_at {
            Some(stamp) => {
                // What found no room has no end: it is lost once.
                if lifetime(slot, site, stamp, 0) {
                    end_lifetime(slot);
                }
            }
            None => ring::registry().unentered += 1,
        }
    }
    slot.not_awaited();
}

/// Tells `take` of the spans of this recording that live and were not entered: when they were made, and their values.
/// Answers how many there are of which that is not known.
pub(crate) fn living(mut take: impl FnMut(&'static Site, u64, &[Value<'_>])) -> u64 {
    let mut unknown = 0;
    for slot in slab::used().filter(|slot| slot.is_unentered() && is_of_recording(slot)) {
        match (slot.site(), slot.made_at()) {
            (Some(site), Some(stamp)) => {
                slot.with(0, None, false, |values| take(site, stamp, values))
            }
            _ => unknown += 1,
        }
    }
    unknown
}

fn is_of_recording(slot: &Slot) -> bool {
    match slot.made_at() {
        Some(stamp) => stamp >= BEGAN_AT.load(Relaxed),
        None => slot.generation() >= GENERATION.load(Relaxed),
    }
}
