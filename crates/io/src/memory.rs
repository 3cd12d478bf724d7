//! Memory that a program does not need any more.

/// Gives freed memory back to the kernel, and lets go of those pages of the program's own files (code, tables)
/// that were only needed so far. To be called once after a phase that needed much more than what follows (a
/// start-up): allocators keep what was freed, in the hope that it is wanted again, and so does the kernel with
/// pages of files. What is still used comes back by itself, from the page cache.
pub fn give_back() {
    crate::sys::trim_heap();
    #[cfg(target_os = "linux")]
    if let Ok(smaps) = std::fs::read_to_string("/proc/self/smaps") {
        for Mapping { start, length } in clean_file_mappings(&smaps) {
            crate::sys::drop_file_pages(start, length);
        }
    }
}

/// A range of addresses.
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    length: usize,
}

/// Private mappings of files that cannot be written and of which no page was ever changed. The second matters:
/// what a dynamic linker relocates is made read-only afterwards, and differs from the file.
#[cfg(target_os = "linux")]
fn clean_file_mappings(smaps: &str) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some("0")) => found.extend(candidate.take()),
            (Some(range), Some(permissions)) if range.contains('-') && !range.ends_with(':') => {
                let is_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
                let read_only = matches!(permissions, "r--p" | "r-xp");
                candidate = (is_file && read_only).then(|| mapping(range)).flatten();
            }
            _ => {}
        }
    }
    found
}

#[cfg(target_os = "linux")]
fn mapping(range: &str) -> Option<Mapping> {
    let (start, end) = range.split_once('-')?;
    let (start, end) =
        (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some(Mapping { start, length: end.checked_sub(start)? })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55e0c8a00000-55e0c8b00000 r--p 00000000 fe:00 123 /usr/bin/program
Size:               1024 kB
Anonymous:             0 kB
55e0c8b00000-55e0c8d00000 r-xp 00100000 fe:00 123 /usr/bin/program
Anonymous:             0 kB
55e0c8d00000-55e0c8d10000 r--p 00300000 fe:00 123 /usr/bin/program
Anonymous:            64 kB
55e0c8d10000-55e0c8d11000 rw-p 00310000 fe:00 123 /usr/bin/program
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f0000002000-7f0000003000 r--s 00000000 fe:00 9 /shared
Anonymous:             0 kB
";

    #[test]
    fn only_clean_private_read_only_files_are_let_go() {
        let whole = |start, end: usize| Mapping { start, length: end - start };
        assert_eq!(
            clean_file_mappings(SMAPS),
            [whole(0x55e0_c8a0_0000, 0x55e0_c8b0_0000), whole(0x55e0_c8b0_0000, 0x55e0_c8d0_0000)]
        );
    }

    #[test]
    fn a_program_goes_on_after_it() {
        let before: Vec<String> = (0..1000).map(|number| format!("{number:>40}")).collect();
        give_back();
        let after: Vec<String> = (0..1000).map(|number| format!("{number:>40}")).collect();
        assert_eq!(before, after);
    }
}
