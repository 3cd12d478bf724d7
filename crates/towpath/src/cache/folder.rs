//! A cache's files: for each response a head and a body, `7.head` and `7.body`.
//!
//! A body is written first and does not change; a head is put in place as a whole, and replaced after a 304. Both have
//! checksums, so that whatever a crash leaves is found: what is not whole is as if it had not been there, and is
//! removed when the folder is opened. Nothing is brought to the disk before it goes on: a response that a failing power
//! supply took is asked for again. A lock keeps a second process out.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use crc32fast::hash;

use super::policy::Stored;
use crate::file::private;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locked until this is dropped.
    _lock: File,
}

/// A body's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OnDisk {
    pub(super) length: u64,
    pub(super) checksum: u32,
}

/// What a head's file has in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) url: String,
    pub(super) stored: Stored,
    pub(super) body: OnDisk,
}

impl Folder {
    /// Opens a folder, or makes one. What was whole, by number.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<(u64, Record)>)> {
        fs::create_dir_all(path)?;
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).open(path.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another cache has it open"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let folder = Self { path: path.to_owned(), _lock: lock };
        let mut whole = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name();
            let Some((number, ending)) = name.to_str().and_then(|name| name.split_once('.')) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else { continue };
            match (ending, folder.record(number)) {
                ("head", Some(record)) => whole.push((number, record)),
                ("body", Some(_)) => {}
                ("head" | "body" | "new", _) => folder.remove(number),
                _ => {}
            }
        }
        Ok((folder, whole))
    }

    /// Writes both files.
    pub(super) fn put(
        &self,
        number: u64,
        url: &str,
        stored: &Stored,
        body: &[u8],
    ) -> io::Result<OnDisk> {
        let on_disk = OnDisk { length: body.len() as u64, checksum: hash(body) };
        write(&self.name(number, "body"), body)?;
        self.put_head(number, url, stored, on_disk)?;
        Ok(on_disk)
    }

    /// Puts a head in the place of the one that was there.
    pub(super) fn put_head(
        &self,
        number: u64,
        url: &str,
        stored: &Stored,
        body: OnDisk,
    ) -> io::Result<()> {
        let new = self.name(number, "new");
        let record = Record { url: url.to_owned(), stored: stored.clone(), body };
        write(&new, &record.encode())?;
        fs::rename(&new, self.name(number, "head"))
    }

    /// A body, if it is as it was written.
    pub(super) fn body(&self, number: u64, body: OnDisk) -> Option<Bytes> {
        let all = read(&self.name(number, "body"), body.length)?;
        (all.len() as u64 == body.length && hash(&all) == body.checksum).then(|| all.into())
    }

    pub(super) fn remove(&self, number: u64) {
        // The head first: a body without one is of no use.
        for ending in ["head", "body", "new"] {
            let _ = fs::remove_file(self.name(number, ending));
        }
    }

    fn record(&self, number: u64) -> Option<Record> {
        let record = Record::decode(&read(&self.name(number, "head"), MOST_HEAD_BYTES)?)?;
        let length = fs::metadata(self.name(number, "body")).ok()?.len();
        (length == record.body.length).then_some(record)
    }

    fn name(&self, number: u64, ending: &str) -> PathBuf {
        self.path.join(format!("{number}.{ending}"))
    }
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.bytes(self.url.as_bytes());
        out.number(self.stored.status.into());
        out.number(self.stored.requested_s);
        out.number(self.stored.received_s);
        out.number(self.stored.fields.len() as u64);
        for (name, value) in &self.stored.fields {
            out.bytes(name);
            out.bytes(value);
        }
        out.number(self.stored.selecting.len() as u64);
        for (name, value) in &self.stored.selecting {
            out.bytes(name.as_bytes());
            out.number(value.is_some().into());
            out.bytes(value.as_deref().unwrap_or_default().as_bytes());
        }
        out.number(self.body.length);
        out.number(self.body.checksum.into());
        let checksum = hash(&out.0).to_le_bytes();
        [MAGIC, &checksum, &out.0].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (checksum, content) = bytes.strip_prefix(MAGIC)?.split_at_checked(4)?;
        if hash(content).to_le_bytes() != checksum {
            return None;
        }
        let mut from = Reader(content);
        let url = from.text()?;
        let status = from.number()?.try_into().ok()?;
        let (requested_s, received_s) = (from.number()?, from.number()?);
        let fields = from.list(|from| Some((from.bytes()?.to_vec(), from.bytes()?.to_vec())))?;
        let selecting = from.list(|from| {
            let (name, is_some, value) = (from.text()?, from.number()?, from.text()?);
            Some((name, (is_some == 1).then_some(value)))
        })?;
        let body = OnDisk { length: from.number()?, checksum: from.number()?.try_into().ok()? };
        let stored = Stored { status, fields, selecting, requested_s, received_s };
        (from.0.is_empty() && (200..600).contains(&status)).then_some(Self { url, stored, body })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, left) = self.0.split_first_chunk()?;
        self.0 = left;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?.try_into().ok()?;
        let (bytes, left) = self.0.split_at_checked(length)?;
        self.0 = left;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        // Each has a length at least: a number that is no count ends with the bytes.
        (0..count).map(|_| one(self)).collect()
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    private().create(true).truncate(true).open(path)?.write_all(bytes)
}

/// A file that is no longer than it may be.
fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    File::open(path).ok()?.take(most + 1).read_to_end(&mut all).ok()?;
    (all.len() as u64 <= most).then_some(all)
}

const MAGIC: &[u8] = b"towpath cache 1\n";
/// The engine takes no larger heads.
const MOST_HEAD_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let stored = Stored {
            status: 200,
            fields: vec![pair("etag", "\"a\""), pair("x", "")],
            selecting: vec![("a".to_owned(), None), ("b".to_owned(), Some("c".to_owned()))],
            requested_s: 1,
            received_s: 2,
        };
        let body = OnDisk { length: 5, checksum: hash(b"hello") };
        Record { url: "http://a/".to_owned(), stored, body }
    }

    fn scratch(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("towpath-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_head_is_read_as_it_was_written_or_not_at_all() {
        let bytes = record().encode();
        assert_eq!(Record::decode(&bytes), Some(record()));
        for at in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..at]), None, "{at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Record::decode(&damaged), None, "{at}");
        }
        assert_eq!(Record::decode(&[&bytes[..], b"x"].concat()), None);
    }

    #[test]
    fn what_a_crash_leaves_is_found_and_removed() {
        let path = scratch("crash");
        let (folder, none) = Folder::open(&path).unwrap();
        assert!(none.is_empty());
        assert!(Folder::open(&path).is_err_and(|it| it.kind() == io::ErrorKind::WouldBlock));
        let Record { url, stored, body } = record();
        for number in 1..=5 {
            assert_eq!(folder.put(number, &url, &stored, b"hello").unwrap(), body);
        }
        drop(folder);
        let file = |name: &str| path.join(name);
        fs::write(file("2.body"), "hel").unwrap();
        fs::remove_file(file("3.body")).unwrap();
        fs::write(file("4.head"), "nonsense").unwrap();
        fs::remove_file(file("5.head")).unwrap();
        fs::write(file("6.new"), "a part of a hea").unwrap();
        fs::write(file("notes.txt"), "not ours").unwrap();
        let (folder, whole) = Folder::open(&path).unwrap();
        assert_eq!(whole, [(1, record())]);
        let mut names: Vec<_> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["1.body", "1.head", "lock", "notes.txt"]);
        assert_eq!(folder.body(1, body).unwrap(), "hello");
        fs::write(file("1.body"), "hellO").unwrap();
        assert_eq!(folder.body(1, body), None, "the disk has damaged it");
        drop(folder);
        fs::remove_dir_all(&path).unwrap();
    }
}
