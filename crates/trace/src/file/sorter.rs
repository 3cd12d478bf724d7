//! Records in the order of their keys, in a few megabytes however many there are.
//!
//! An external merge sort: what does not fit into memory waits, sorted in parts, in a file without a name in the
//! system's folder for such files, as `sort` has it (`TMPDIR`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU32, Ordering};

/// What records are sorted by, the first before the second.
pub type Key = (u128, u64);

/// Takes records, and gives them back in the order of their keys.
#[derive(Debug)]
pub struct Sorter {
    held: Vec<u8>,
    /// Key, begin and end of each record held.
    index: Vec<(Key, usize, usize)>,
    /// From where to where the sorted parts reach in the file.
    parts: Vec<(u64, u64)>,
    file: Option<File>,
    /// Bytes held before they are written out.
    most: usize,
}

impl Default for Sorter {
    fn default() -> Self {
        Self::holding(MOST_HELD)
    }
}

impl Sorter {
    /// With this limit of bytes in memory.
    fn holding(most: usize) -> Self {
        Self { held: Vec::new(), index: Vec::new(), parts: Vec::new(), file: None, most }
    }

    /// Takes a record. Records of one key come back in any order.
    ///
    /// # Errors
    /// Those of the file that holds what does not fit into memory.
    pub fn push(&mut self, key: Key, record: &[u8]) -> io::Result<()> {
        let begin = self.held.len();
        self.held.extend_from_slice(record);
        self.index.push((key, begin, self.held.len()));
        let held = self.held.len() + self.index.len() * size_of::<(Key, usize, usize)>();
        if held >= self.most { self.write_out() } else { Ok(()) }
    }

    /// No more records will come.
    ///
    /// # Errors
    /// Those of the file that holds what does not fit into memory.
    pub fn sorted(mut self) -> io::Result<Sorted> {
        if self.file.is_some() {
            self.write_out()?;
            (self.held, self.index) = (Vec::new(), Vec::new());
        }
        self.index.sort_unstable();
        let Self { held, index, parts, file, .. } = self;
        Ok(Sorted { held, index, parts, file })
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.index.sort_unstable();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless()?),
        };
        let begin = file.seek(SeekFrom::End(0))?;
        let mut out = BufWriter::with_capacity(1 << 16, file);
        for &((first, second), from, until) in &self.index {
            out.write_all(&first.to_le_bytes())?;
            out.write_all(&second.to_le_bytes())?;
            out.write_all(&(until - from).to_le_bytes())?;
            out.write_all(&self.held[from..until])?;
        }
        let end = out.stream_position()?;
        out.flush()?;
        self.parts.push((begin, end));
        self.held.clear();
        self.index.clear();
        Ok(())
    }
}

/// Records in the order of their keys, to be read any number of times.
#[derive(Debug)]
pub struct Sorted {
    held: Vec<u8>,
    index: Vec<(Key, usize, usize)>,
    parts: Vec<(u64, u64)>,
    file: Option<File>,
}

impl Sorted {
    /// From the first record on.
    ///
    /// # Errors
    /// Those of the file that holds what does not fit into memory.
    pub fn iter(&self) -> io::Result<Records<'_>> {
        let buffer = (MOST_BUFFERED / self.parts.len().max(1)).clamp(512, 1 << 16);
        let part = |&(at, end): &(u64, u64)| Part { at, end, ahead: Vec::new(), used: 0, buffer };
        let mut records = Records {
            sorted: self,
            next: 0,
            parts: self.parts.iter().map(part).collect(),
            first: BinaryHeap::new(),
        };
        for part in 0..records.parts.len() {
            records.find_first(part)?;
        }
        Ok(records)
    }
}

/// An iterator over [`Sorted`].
#[derive(Debug)]
pub struct Records<'a> {
    sorted: &'a Sorted,
    /// Position among those in memory.
    next: usize,
    parts: Vec<Part>,
    /// The first key of each part that is not at its end.
    first: BinaryHeap<Reverse<(Key, usize)>>,
}

impl Records<'_> {
    fn find_first(&mut self, part: usize) -> io::Result<()> {
        if let (Some(of), Some(file)) = (self.parts.get_mut(part), &self.sorted.file) {
            self.first.extend(of.key(file)?.map(|key| Reverse((key, part))));
        }
        Ok(())
    }

    fn next_of_file(&mut self, file: &File) -> io::Result<Option<(Key, Vec<u8>)>> {
        let Some(Reverse((key, part))) = self.first.pop() else { return Ok(None) };
        let length = u64::from_le_bytes(self.parts[part].take(file)?);
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let record = self.parts[part].bytes(length, file)?.to_vec();
        self.find_first(part)?;
        Ok(Some((key, record)))
    }
}

impl Iterator for Records<'_> {
    type Item = io::Result<(Key, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(file) = &self.sorted.file {
            return self.next_of_file(file).transpose();
        }
        let &(key, from, until) = self.sorted.index.get(self.next)?;
        self.next += 1;
        Some(Ok((key, self.sorted.held[from..until].to_vec())))
    }
}

/// A sorted part of the file, and what was read of it ahead.
#[derive(Debug)]
struct Part {
    at: u64,
    end: u64,
    ahead: Vec<u8>,
    used: usize,
    buffer: usize,
}

impl Part {
    /// The next record's key; `None` at the end.
    fn key(&mut self, file: &File) -> io::Result<Option<Key>> {
        if self.at == self.end && self.used == self.ahead.len() {
            return Ok(None);
        }
        let first = u128::from_le_bytes(self.take(file)?);
        Ok(Some((first, u64::from_le_bytes(self.take(file)?))))
    }

    fn take<const N: usize>(&mut self, file: &File) -> io::Result<[u8; N]> {
        self.bytes(N, file)?.try_into().map_err(io::Error::other)
    }

    fn bytes(&mut self, length: usize, mut file: &File) -> io::Result<&[u8]> {
        let missing = (self.used + length).saturating_sub(self.ahead.len());
        if missing > 0 {
            self.ahead.drain(..self.used);
            self.used = 0;
            file.seek(SeekFrom::Start(self.at))?;
            let left = self.end - self.at;
            let wanted = left.min(missing.max(self.buffer) as u64);
            self.at += file.take(wanted).read_to_end(&mut self.ahead)? as u64;
        }
        let bytes = self.ahead.get(self.used..self.used + length);
        self.used += length;
        bytes.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// A file that is gone when it is closed.
fn nameless() -> io::Result<File> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-sort.{}.{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match options.open(&path) {
            Ok(file) => {
                fs::remove_file(&path)?;
                return Ok(file);
            }
            // Of a process of this number that was killed in between.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let said = format!("{}: {error}", path.display());
                return Err(io::Error::new(error.kind(), said));
            }
        }
    }
}

const MOST_HELD: usize = 8 << 20;
/// What is read ahead of all parts together.
const MOST_BUFFERED: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Some records in no order, of lengths from none to several buffers.
    fn sorted(count: u64, most: usize) -> Vec<(Key, Vec<u8>)> {
        let mut sorter = Sorter::holding(most);
        for number in 0..count {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let length = if number % 97 == 0 { 3_000 } else { number as usize % 50 };
            sorter.push((u128::from(key % 7) << 70, key), &vec![number as u8; length]).unwrap();
        }
        let sorted = sorter.sorted().unwrap();
        let records: Vec<_> = sorted.iter().unwrap().map(Result::unwrap).collect();
        let again: Vec<_> = sorted.iter().unwrap().map(Result::unwrap).collect();
        assert_eq!(records, again);
        records
    }

    #[test]
    fn what_does_not_fit_comes_back_as_what_fits() {
        // Every record a part of its own; some parts; one part, and nothing held at the end.
        for (count, most) in
            [(0, 1), (1, 1), (2, 1), (3_000, 1), (20_000, 50_000), (20_000, 1 << 22)]
        {
            let within = sorted(count, usize::MAX);
            assert!(within.is_sorted() && within.len() as u64 == count);
            assert!(sorted(count, most) == within, "{count} records, {most} bytes");
        }
    }
}
