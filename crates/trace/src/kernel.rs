//! The kernel's scheduling, from ftrace's binary ring to a Perfetto file: who ran when, and who woke whom.
//!
//! Takes root and tracefs. The recorder uses an instance of its own, on the boot clock that our other files are on, and
//! reads the raw pages: the text that ftrace prints has microseconds only.
//! The layout of a page is in the kernel's `Documentation/trace/ring-buffer-design.rst` and `events/header_page`.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::perfetto::PACKET;
use crate::wire::{bytes, message, uint};

/// Records scheduling until it is stopped.
#[derive(Debug)]
pub struct KernelRecording {
    instance: PathBuf,
    switch: Format,
    waking: Format,
}

/// Where the fields of an event lie in its record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Format {
    id: u16,
    fields: Vec<(String, usize, usize)>,
}

impl KernelRecording {
    /// Begins, with a buffer of `kilobytes` for each processor. When it is full the oldest events go.
    ///
    /// # Errors
    /// When tracefs is not there, or not ours to use.
    pub fn start(kilobytes: u32) -> io::Result<Self> {
        let root = Path::new("/sys/kernel/tracing");
        let instance = root.join("instances").join(format!("towpath-{}", std::process::id()));
        fs::create_dir(&instance)?;
        let mut recording = Self { instance, switch: Format::default(), waking: Format::default() };
        recording.begin(kilobytes)?;
        Ok(recording)
    }

    fn begin(&mut self, kilobytes: u32) -> io::Result<()> {
        self.set("trace_clock", "boot")?;
        self.set("buffer_size_kb", &kilobytes.to_string())?;
        self.switch = Format::parse(&self.text("events/sched/sched_switch/format")?);
        self.waking = Format::parse(&self.text("events/sched/sched_waking/format")?);
        self.set("events/sched/sched_switch/enable", "1")?;
        self.set("events/sched/sched_waking/enable", "1")?;
        self.set("tracing_on", "1")
    }

    /// Ends the recording and writes what was seen as a Perfetto trace.
    ///
    /// # Errors
    /// Those of tracefs, and of `out`.
    pub fn stop(self, mut out: impl Write) -> io::Result<()> {
        self.set("tracing_on", "0")?;
        let mut file = Vec::new();
        for entry in fs::read_dir(self.instance.join("per_cpu"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let Some(cpu) = name.strip_prefix("cpu").and_then(|digits| digits.parse().ok()) else {
                continue;
            };
            self.processor(cpu, &mut file)?;
        }
        out.write_all(&file)?;
        out.flush()
    }

    fn processor(&self, cpu: u64, file: &mut Vec<u8>) -> io::Result<()> {
        let folder = self.instance.join("per_cpu").join(format!("cpu{cpu}"));
        let mut left = entries(&fs::read_to_string(folder.join("stats"))?);
        let mut raw = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(folder.join("trace_pipe_raw"))?;
        let mut page = vec![0; PAGE];
        let mut bundle = Vec::new();
        uint(&mut bundle, 1, cpu);
        while left > 0 {
            let length = match raw.read(&mut page) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let Some(page) = page.get(..length).filter(|page| !page.is_empty()) else { break };
            let mut seen = 0;
            events(page, &mut |ns, data| {
                seen += 1;
                self.event(&mut bundle, ns, data);
            });
            if seen == 0 {
                break;
            }
            left = left.saturating_sub(seen);
        }
        // Clock 5 of bundles, unspecified here, is the boot clock by default.
        message(file, PACKET, |packet| bytes(packet, 1, &bundle));
        Ok(())
    }

    fn event(&self, bundle: &mut Vec<u8>, ns: u64, data: &[u8]) {
        let Some(id) = data.get(..2).and_then(|id| id.try_into().ok()).map(u16::from_le_bytes)
        else {
            return;
        };
        let pid = number(data, 4, 4);
        message(bundle, 2, |event| {
            uint(event, 1, ns);
            uint(event, 2, pid);
            if id == self.switch.id {
                message(event, 4, |out| {
                    self.switch.put(
                        out,
                        data,
                        &[(1, "prev_comm"), (2, "prev_pid"), (3, "prev_prio"), (4, "prev_state")],
                    );
                    self.switch.put(
                        out,
                        data,
                        &[(5, "next_comm"), (6, "next_pid"), (7, "next_prio")],
                    );
                });
            } else if id == self.waking.id {
                message(event, 20, |out| {
                    self.waking.put(
                        out,
                        data,
                        &[(1, "comm"), (2, "pid"), (3, "prio"), (5, "target_cpu")],
                    );
                    uint(out, 4, 1);
                });
            }
        });
    }

    fn text(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.instance.join(file))
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.instance.join(file), value)
    }
}

impl Drop for KernelRecording {
    fn drop(&mut self) {
        let _ = self.set("tracing_on", "0");
        let _ = fs::remove_dir(&self.instance);
    }
}

/// The ring's pages are the machine's; none is larger than this.
const PAGE: usize = 1 << 16;
const HEADER: usize = 16;

/// What `stats` counts as readable.
fn entries(stats: &str) -> u64 {
    stats.lines().find_map(|line| line.strip_prefix("entries:")?.trim().parse().ok()).unwrap_or(0)
}

/// Calls `found` with the time and data of each event of a page. Stops at what it does not understand.
fn events(page: &[u8], found: &mut dyn FnMut(u64, &[u8])) {
    let mut ns = number(page, 0, 8);
    // The high bits of the length say whether events were lost before this page.
    let length = (number(page, 8, 8) & 0xf_ffff) as usize;
    let end = (HEADER + length).min(page.len());
    let mut at = HEADER;
    while at + 4 <= end {
        let head = number(page, at, 4);
        let (kind, delta) = (head & 31, head >> 5);
        let (start, size) = match kind {
            // Padding: to the end of the page, or over what was discarded.
            29 if delta == 0 => return,
            29 => (at + 4, number(page, at + 4, 4) as usize),
            30 => {
                ns += (number(page, at + 4, 4) << 27) + delta;
                at += 8;
                continue;
            }
            31 => {
                // The stamp has 59 bits; those above are those of the page.
                ns = (ns & !((1 << 59) - 1)) | ((number(page, at + 4, 4) << 27) + delta);
                at += 8;
                continue;
            }
            // The length is in a word of its own, which it counts.
            0 => (at + 8, (number(page, at + 4, 4) as usize).saturating_sub(4)),
            words => (at + 4, words as usize * 4),
        };
        ns += delta;
        if kind < 29 {
            page.get(start..start + size).into_iter().for_each(|data| found(ns, data));
        }
        at = (start + size).next_multiple_of(4);
    }
}

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes.get(at..at + size).unwrap_or_default();
    bytes.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte))
}

impl Format {
    /// Reads the file `format` of an event.
    fn parse(text: &str) -> Self {
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok())
            .unwrap_or(0);
        let fields = text.lines().filter_map(|line| {
            let mut parts = line.trim().split(';').map(str::trim);
            let name = parts.next()?.strip_prefix("field:")?.split(' ').next_back()?;
            let name = name.split('[').next()?.to_owned();
            let mut value = |key| parts.next()?.strip_prefix(key)?.parse().ok();
            Some((name, value("offset:")?, value("size:")?))
        });
        Self { id, fields: fields.collect() }
    }

    fn put(&self, out: &mut Vec<u8>, data: &[u8], wanted: &[(u32, &str)]) {
        for &(number_of, name) in wanted {
            let Some((_, offset, size)) = self.fields.iter().find(|(known, ..)| known == name)
            else {
                continue;
            };
            if name.ends_with("comm") {
                let text = data.get(*offset..offset + size).unwrap_or_default();
                let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
                bytes(out, number_of, String::from_utf8_lossy(&text[..end]).as_bytes());
            } else {
                uint(out, number_of, number(data, *offset, *size));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_give_places_of_fields() {
        let text = "name: sched_waking\nID: 321\nformat:\n\tfield:unsigned short \
            common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                    \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t \
                    pid;\toffset:24;\tsize:4;\tsigned:1;\n";
        let format = Format::parse(text);
        assert_eq!(format.id, 321);
        assert_eq!(format.fields[1..], [("comm".to_owned(), 8, 16), ("pid".to_owned(), 24, 4)]);
        assert_eq!(Format::parse("nothing"), Format::default());
    }

    #[test]
    fn pages_are_read_event_by_event() {
        let mut page = 1_000u64.to_le_bytes().to_vec();
        page.extend([0; 8]);
        let head = |kind: u32, delta: u32| ((delta << 5) | kind).to_le_bytes();
        page.extend(head(1, 5)); // four bytes of data
        page.extend([1, 2, 3, 4]);
        page.extend(head(30, 7)); // time goes on by a lot
        page.extend(2u32.to_le_bytes());
        page.extend(head(0, 1)); // eight bytes, their length in a word
        page.extend(12u32.to_le_bytes());
        page.extend([9; 8]);
        page.extend(head(29, 3)); // discarded
        page.extend(4u32.to_le_bytes());
        page.extend(head(29, 0)); // the rest is nothing
        page.extend([7; 64]);
        let length = page.len() as u64 - 16;
        page[8..16].copy_from_slice(&length.to_le_bytes());
        let mut seen = Vec::new();
        events(&page, &mut |ns, data| seen.push((ns, data.to_vec())));
        assert_eq!(seen, [(1_005, vec![1, 2, 3, 4]), (1_005 + (2 << 27) + 7 + 1, vec![9; 8])]);
        for cut in 0..page.len() {
            events(&page[..cut], &mut |_, _| ());
        }
    }
}
