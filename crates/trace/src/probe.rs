//! A USDT semaphore: perf, bpftrace and ftrace switch events on by attaching, with no configuration.
//!
//! The kernel adds one to the semaphore while a tool is attached to a probe of this program. The probes are
//! `towpath:begin`, `towpath:end`, `towpath:mark` and `towpath:counter`; each has the arguments
//! (name, length of the name, first value, second value). A name is not NUL-terminated: `str(arg0, arg1)` in bpftrace.

#![cfg_attr(
    all(target_os = "linux", not(miri)),
    expect(
        unsafe_code,
        reason = "a probe is a no-op instruction with an ELF note that names its address"
    )
)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What places ask before they emit, in one word, so that one load and one test answer most of them:
///
/// ```text
/// 0–15  how many are attached to a probe, counted by the kernel · 16 MARKER · 17 NO_COUNTER · 18 OPEN
/// 19–63 the lower categories that the gate lets through at the level that places have unless told otherwise
/// ```
#[inline(always)]
pub(crate) fn word() -> u64 {
    SEMAPHORE.load(Relaxed)
}

/// Everything that keeps an event from the shortest path.
#[inline(always)]
pub(crate) fn detours() -> u64 {
    word() & DETOURS
}

/// Whether a tool is attached to a probe.
#[inline(always)]
pub(crate) fn attached() -> bool {
    word() & ATTACHED != 0
}

/// Sets the bits of `which` to those of `to`.
pub(crate) fn set(which: u64, to: u64) {
    // The kernel may count meanwhile.
    let set = |word| Some(word & !which | to & which);
    let _ = SEMAPHORE.fetch_update(Relaxed, Relaxed, set);
}

pub(crate) const ATTACHED: u64 = 0xffff;
/// Some category goes to ftrace's `trace_marker`.
pub(crate) const MARKER: u64 = 1 << 16;
/// The processor's counter is not what stamps are taken from.
pub(crate) const NO_COUNTER: u64 = 1 << 17;
/// The gate lets some event of some place through.
pub(crate) const OPEN: u64 = 1 << 18;
const DETOURS: u64 = ATTACHED | MARKER | NO_COUNTER;
/// Bits below those of the categories.
pub(crate) const BELOW_CATEGORIES: u32 = 19;

/// The kernel counts in 16 bits at this address, the lowest on little-endian machines.
// SAFETY: the section is one of our own for the tools to find; it is writable data like any other static's.
#[cfg_attr(all(target_os = "linux", not(miri)), unsafe(link_section = ".probes"))]
#[used]
static SEMAPHORE: AtomicU64 = AtomicU64::new(0);

#[cfg(target_arch = "x86_64")]
macro_rules! probe {
    ($function:ident, $name:literal) => {
        // The tools read operands in the assembler's AT&T spelling.
        probe_with!($function, $name, att_syntax, readonly, nostack, preserves_flags);
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! probe {
    ($function:ident, $name:literal) => {
        probe_with!($function, $name, readonly, nostack, preserves_flags);
    };
}

macro_rules! probe_with {
    ($function:ident, $name:literal, $($option:ident),*) => {
        #[cold]
        #[inline(never)]
        #[cfg(all(
            target_os = "linux",
            target_endian = "little",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            not(miri)
        ))]
        pub(crate) fn $function(name: &str, a: u64, b: u64) {
            // SAFETY: the instruction does nothing; the rest are notes outside the program's memory. The operands
            // are only read, by the tool that is attached.
            unsafe {
                core::arch::asm!(
                    "990: nop",
                    ".pushsection .note.stapsdt,\"?\",\"note\"",
                    ".balign 4",
                    ".4byte 992f-991f, 994f-993f, 3",
                    "991: .asciz \"stapsdt\"",
                    "992: .balign 4",
                    "993: .8byte 990b",
                    ".8byte _.stapsdt.base",
                    ".8byte {semaphore}",
                    ".asciz \"towpath\"",
                    concat!(".asciz \"", $name, "\""),
                    ".asciz \"8@{name} 8@{length} 8@{a} 8@{b}\"",
                    "994: .balign 4",
                    ".popsection",
                    ".ifndef _.stapsdt.base",
                    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat",
                    ".weak _.stapsdt.base",
                    ".hidden _.stapsdt.base",
                    "_.stapsdt.base: .space 1",
                    ".size _.stapsdt.base, 1",
                    ".popsection",
                    ".endif",
                    semaphore = sym SEMAPHORE,
                    name = in(reg) name.as_ptr(),
                    length = in(reg) name.len(),
                    a = in(reg) a,
                    b = in(reg) b,
                    options($($option),*),
                );
            }
        }

        #[cfg(not(all(
            target_os = "linux",
            target_endian = "little",
            any(target_arch = "x86_64", target_arch = "aarch64"),
            not(miri)
        )))]
        pub(crate) fn $function(_name: &str, _a: u64, _b: u64) {}
    };
}

probe!(begin, "begin");
probe!(end, "end");
probe!(mark, "mark");
probe!(counter, "counter");
