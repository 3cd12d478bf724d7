//! Memory that a program does not need any more.

/// Tells when a burst is over, so that the memory it took can be given back: allocators keep what was freed.
///
/// It looks at two numbers from time to time. A burst is over when half of the connections are gone that there were at
/// most; and memory is worth a look when twice as much is resident as after it was last given back, which is asked no
/// more often than every [`Bursts::PAUSE`] looks.
#[derive(Debug, Default)]
pub struct Bursts {
    most_connections: u64,
    settled_bytes: u64,
    looks: u32,
}

impl Bursts {
    /// Looks between two times that memory alone is a reason.
    pub const PAUSE: u32 = 6;
    /// Fewer connections are no burst.
    const LEAST_CONNECTIONS: u64 = 64;
    /// Less growth is not worth the time.
    const LEAST_BYTES: u64 = 8 * 1024 * 1024;

    /// Whether what is free should be given back, with so many connections and so much resident.
    pub fn is_over(&mut self, connections: u64, resident_bytes: u64) -> bool {
        self.looks += 1;
        self.most_connections = self.most_connections.max(connections);
        let fell = self.most_connections >= Self::LEAST_CONNECTIONS
            && connections <= self.most_connections / 2;
        let grew = self.looks >= Self::PAUSE
            && resident_bytes > 2 * self.settled_bytes + Self::LEAST_BYTES;
        fell || grew
    }

    /// Memory was given back, and this is left.
    pub fn settled(&mut self, connections: u64, resident_bytes: u64) {
        *self = Self { most_connections: connections, settled_bytes: resident_bytes, looks: 0 };
    }
}

/// Gives freed memory back to the kernel: 0.1 to 0.4 ms for each MiB, in which other threads that allocate wait.
pub fn trim() {
    crate::sys::trim_heap();
}

/// Bytes of this process that are resident; 0 where the system does not say.
#[must_use]
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Gives freed memory back to the kernel, and lets go of those pages of the program's own files (code, tables)
/// that were only needed so far. To be called once after a phase that needed much more than what follows (a
/// start-up): allocators keep what was freed, in the hope that it is wanted again, and so does the kernel with
/// pages of files. What is still used comes back by itself, from the page cache.
pub fn give_back() {
    crate::sys::trim_heap();
    #[cfg(linux)]
    if let Ok(smaps) = std::fs::read_to_string("/proc/self/smaps") {
        for Mapping { start, length } in clean_file_mappings(&smaps) {
            crate::sys::drop_file_pages(start, length);
        }
    }
}

/// A range of addresses.
#[cfg(linux)]
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    length: usize,
}

/// Private mappings of files that cannot be written and of which no page was ever changed. The second matters:
/// what a dynamic linker relocates is made read-only afterwards, and differs from the file.
#[cfg(linux)]
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

#[cfg(linux)]
fn mapping(range: &str) -> Option<Mapping> {
    let (start, end) = range.split_once('-')?;
    let (start, end) =
        (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some(Mapping { start, length: end.checked_sub(start)? })
}

#[cfg(all(test, linux))]
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
    fn a_burst_is_over_when_half_of_its_connections_are_gone() {
        let mut bursts = Bursts::default();
        bursts.settled(0, 4 << 20);
        assert!(!bursts.is_over(1000, 80 << 20));
        assert!(!bursts.is_over(501, 80 << 20));
        assert!(bursts.is_over(500, 80 << 20));
        bursts.settled(500, 40 << 20);
        assert!(!bursts.is_over(251, 40 << 20));
        assert!(bursts.is_over(250, 40 << 20));
        bursts.settled(63, 4 << 20);
        assert!(!bursts.is_over(0, 4 << 20), "so few are no burst");
    }

    #[test]
    fn memory_that_grew_is_looked_at_now_and_then() {
        let mut bursts = Bursts::default();
        bursts.settled(100, 10 << 20);
        for _ in 1..Bursts::PAUSE {
            assert!(!bursts.is_over(100, 40 << 20));
        }
        assert!(bursts.is_over(100, 40 << 20));
        bursts.settled(100, 20 << 20);
        let looks = 2 * Bursts::PAUSE;
        assert!((0..looks).all(|_| !bursts.is_over(100, 48 << 20)), "not twice as much");
    }

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
