//! How much memory the process has, as the kernel counts it.

/// Bytes, read from `/proc/self/status`; zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// In RAM.
    pub(crate) resident: u64,
    /// In RAM and backed by no file: what was allocated and touched.
    pub(crate) anonymous: u64,
    /// Address space of data.
    pub(crate) size: u64,
}

impl Memory {
    pub(crate) fn read() -> Self {
        std::fs::read_to_string("/proc/self/status")
            .map(|status| Self::parse(&status))
            .unwrap_or_default()
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kilobytes: u64 =
                line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
            kilobytes.checked_mul(1024)
        };
        Self {
            resident: field("VmRSS").unwrap_or(0),
            anonymous: field("RssAnon").unwrap_or(0),
            size: field("VmData").unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let status = "Name:\tx\nVmRSS:\t    7000 kB\nRssAnon:\t 3000 kB\nVmData:\t  90 kB\n";
        let expected = Memory { resident: 7_168_000, anonymous: 3_072_000, size: 92_160 };
        assert_eq!(Memory::parse(status), expected);
        assert_eq!(Memory::parse(""), Memory::default());
        assert!(Memory::read().resident > 0);
    }
}
