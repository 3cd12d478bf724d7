//! The stamp: the processor's counter where it can be trusted, the monotonic clock elsewhere.
//!
//! Nothing is calibrated at start. A [`Reading`] pairs the counter with the system's clocks; records between two
//! readings are placed by the line through them, so an error of the counter's rate cannot add up.

#![expect(unsafe_code, reason = "reads the cycle counter and the system's clocks")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::probe;

/// A point in time, cheap to take; give it to [`complete!`](crate::complete) later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub(crate) value: u64,
    pub(crate) monotonic: bool,
}

impl Stamp {
    /// This moment.
    #[inline(always)]
    #[must_use]
    pub fn now() -> Self {
        // Before the first recording the counter is not trusted yet; the stamp remembers which clock it is of.
        let counted = is_counter();
        Self { value: if counted { counter() } else { monotonic_ns() }, monotonic: !counted }
    }

    /// What events that happen at this moment are stamped with.
    #[inline(always)]
    pub(crate) fn ticks() -> Self {
        Self { value: ticks(), monotonic: false }
    }

    /// The later of two stamps of one clock; `self` if they are of different ones.
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if self.monotonic == other.monotonic && other.value > self.value { other } else { self }
    }

    /// This moment of `CLOCK_MONOTONIC`, whatever records are stamped with.
    #[must_use]
    pub fn now_monotonic() -> Self {
        Self::monotonic_ns(monotonic_ns())
    }

    /// How long after `earlier` it is, where both are moments of `CLOCK_MONOTONIC`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use towpath_trace::Stamp;
    ///
    /// let earlier = Stamp::monotonic_ns(1_000);
    /// assert_eq!(Stamp::monotonic_ns(3_000).since(earlier), Some(Duration::from_nanos(2_000)));
    /// assert_eq!(earlier.since(Stamp::now_monotonic()), Some(Duration::ZERO));
    /// ```
    #[must_use]
    pub const fn since(self, earlier: Self) -> Option<Duration> {
        if self.monotonic && earlier.monotonic {
            Some(Duration::from_nanos(self.value.saturating_sub(earlier.value)))
        } else {
            None
        }
    }

    /// A moment of `CLOCK_MONOTONIC`, in nanoseconds.
    #[must_use]
    pub const fn monotonic_ns(ns: u64) -> Self {
        Self { value: ns, monotonic: true }
    }
}

/// A stamp: of the counter, or of what stands in for it.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    if is_counter() { counter() } else { monotonic_ns() }
}

/// Decides once which clock stamps are taken from; recordings do this before they open the gate.
pub(crate) fn choose() -> Source {
    static CHOSEN: OnceLock<Source> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let source =
            if told().unwrap_or_else(trusted) { Source::Counter } else { Source::Monotonic };
        let counted = source == Source::Counter;
        COUNTED.store(counted, Relaxed);
        probe::set(probe::NO_COUNTER, if counted { 0 } else { probe::NO_COUNTER });
        source
    })
}

/// Where stamps come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The processor's counter (TSC, or the generic timer on ARM).
    Counter,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
}

/// The counter and the system's clocks at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reading {
    pub(crate) ticks: u64,
    pub(crate) boot_ns: u64,
    pub(crate) monotonic_ns: u64,
    pub(crate) real_ns: u64,
}

impl Reading {
    /// Takes the closest of a few tries: an interrupt between two reads shows as a wide gap.
    pub(crate) fn take() -> Self {
        choose();
        let tries = (0..TRIES).map(|_| {
            let before = ticks();
            let boot_ns = boot_ns();
            let after = ticks();
            (
                after.wrapping_sub(before),
                before.wrapping_add(after.wrapping_sub(before) / 2),
                boot_ns,
            )
        });
        let (_, ticks, boot_ns) = tries.min_by_key(|&(gap, ..)| gap).unwrap_or_default();
        let now = self::boot_ns();
        let since = now.saturating_sub(boot_ns);
        Self {
            ticks,
            boot_ns,
            monotonic_ns: monotonic_ns().saturating_sub(since),
            real_ns: real_ns().saturating_sub(since),
        }
    }

    pub(crate) fn monotonic_to_boot(&self, ns: u64) -> u64 {
        ns.saturating_add(self.boot_ns.saturating_sub(self.monotonic_ns))
    }
}

const TRIES: usize = 9;

static COUNTED: AtomicBool = AtomicBool::new(false);

/// Whether stamps are of the counter; not before it is known to be right.
#[inline(always)]
fn is_counter() -> bool {
    COUNTED.load(Relaxed)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it unless `prctl(PR_SET_TSC)`
    // forbids it, in which case the kernel's clock is not the TSC either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
pub(crate) fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets programs read the virtual counter; the instruction has no other effect.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn counter() -> u64 {
    monotonic_ns()
}

/// What the environment says: `TOWPATH_TRACE_CLOCK=monotonic`, or `counter` where a hypervisor or an emulator hides
/// that the counter is good.
fn told() -> Option<bool> {
    let clock = std::env::var_os("TOWPATH_TRACE_CLOCK")?;
    let is_supported = cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)));
    match clock.to_str()? {
        "monotonic" => Some(false),
        "counter" => is_supported.then_some(true),
        _ => None,
    }
}

/// The TSC counts at one rate on all cores, and the kernel itself has not found it unstable.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn trusted() -> bool {
    #[allow(unused_unsafe, reason = "a call of `__cpuid` is unsafe before Rust 1.94")]
    // SAFETY: every x86-64 processor has the instruction.
    let leaf = |number| unsafe { core::arch::x86_64::__cpuid(number) };
    let power = 0x8000_0007;
    let invariant = leaf(0x8000_0000).eax >= power && leaf(power).edx & (1 << 8) != 0;
    // A kernel on kvm-clock or Hyper-V's page derives its time from the same TSC.
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let kernel = std::fs::read_to_string(path).ok();
    let agrees = kernel.is_none_or(|name| {
        matches!(name.trim(), "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page")
    });
    invariant && agrees
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn trusted() -> bool {
    true
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn trusted() -> bool {
    false
}

#[cfg(unix)]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec; the clocks asked for exist on every kernel we build for.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(unix)]
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
fn boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

#[cfg(all(unix, any(miri, not(any(target_os = "linux", target_os = "android")))))]
fn boot_ns() -> u64 {
    monotonic_ns()
}

#[cfg(unix)]
fn real_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

#[cfg(not(unix))]
pub(crate) fn monotonic_ns() -> u64 {
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(not(unix))]
fn boot_ns() -> u64 {
    monotonic_ns()
}

#[cfg(not(unix))]
fn real_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
