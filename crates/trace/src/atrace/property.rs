//! Android's system properties: which tags are on, and for which apps.

#![expect(unsafe_code, reason = "the properties are read through the C library")]

use std::ffi::CStr;
use std::time::Duration;

use crate::category::{Category, Level};
use crate::{gate, marker, thread};

/// Follows the properties from a thread of its own, so that no event pays for looking.
pub(super) fn watch() {
    let mut known = 0;
    let mut look = move || {
        let tags = enabled();
        if tags != known && (tags == 0 || marker::open(None).is_ok()) {
            known = tags;
            gate::mark(Category::from_bits(tags), Level::Trace);
        }
    };
    look();
    let _ = thread::spawn(move || {
        loop {
            std::thread::sleep(EVERY);
            look();
        }
    });
}

const EVERY: Duration = Duration::from_millis(250);

fn enabled() -> u64 {
    let flags = number(c"debug.atrace.tags.enableflags");
    let app = 1 << 12;
    // The apps that are named may trace as an app; the lowest tag is on whenever any is.
    let tags = if is_chosen() { flags | app } else { flags & !app };
    if tags == 0 { 0 } else { (tags | 1) & super::AtraceTag::ValidMask.bits() }
}

fn is_chosen() -> bool {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let program = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let count = number(c"debug.atrace.app_number").min(MOST_APPS);
    (0..count).any(|index| {
        let name = format!("debug.atrace.app_{index}\0");
        let pattern = CStr::from_bytes_with_nul(name.as_bytes()).map(read).unwrap_or_default();
        super::glob(pattern.as_bytes(), program)
    })
}

const MOST_APPS: u64 = 64;

fn number(name: &CStr) -> u64 {
    let text = read(name);
    let text = text.trim();
    text.strip_prefix("0x")
        .map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
        .unwrap_or(0)
}

fn read(name: &CStr) -> String {
    let mut value = [0u8; libc::PROP_VALUE_MAX as usize];
    // SAFETY: the name ends with a NUL and the buffer has the size that the function is documented to fill at most.
    let length = unsafe { libc::__system_property_get(name.as_ptr(), value.as_mut_ptr().cast()) };
    let length = usize::try_from(length).unwrap_or(0).min(value.len());
    String::from_utf8_lossy(&value[..length]).into_owned()
}
