//! The outbox's file: what was put and what became of it, appended line by line.
//!
//! Arrives: records. Leaves: the same, after whatever a crash left of the file. A record that [`Log::append`] has
//! written with [`Sync::Now`] is on the disk when it returns. When too much of the file is of no use any more what is
//! left is written beside it, brought to the disk and renamed over it.
//!
//! A crash leaves a part of the last record at most: it is cut off. Where the disk has damaged the middle, what follows
//! is still found, by its marker and checksum. A lock in a file beside it keeps a second process out.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crc32fast::hash;

use super::Outcome;
use super::record::{MARKER_BYTES, Message, Record, marker};
use crate::file::{beside, private, replace};

/// An open file.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Locked until this is dropped.
    lock: File,
    salt: u64,
    /// Bytes of whole records, with the header.
    length: u64,
    /// Bytes of those that are still of use.
    live: u64,
    next: u64,
    /// A write failed and could not be undone.
    broken: bool,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    offset: u64,
    length: u32,
}

/// An entry that is still of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) message: Message,
    pub(super) places: Places,
    pub(super) outcome: Option<Outcome>,
}

/// Where an entry's records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) put: Place,
    pub(super) ended: Option<Place>,
}

/// What a file had in it.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) entries: BTreeMap<u64, Kept>,
    /// Bytes that were no records.
    pub(super) lost: u64,
}

/// Whether a record has to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    Now,
    Later,
}

impl Log {
    /// Opens a file, or makes one. `salt` is for a new one.
    pub(super) fn open(path: &Path, salt: u64) -> io::Result<(Self, Found)> {
        let path = &real(path)?;
        let lock = lock(&beside(path, ".lock"))?;
        let mut bytes = read(path)?;
        if bytes.is_empty() {
            bytes = header(salt);
            replace(path, &bytes)?;
        }
        let salt = parse_header(&bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "it is no outbox of this version")
        })?;
        let (mut found, next) = scan(&bytes, salt);
        let file = private().read(true).open(path)?;
        let length = bytes.len() as u64;
        let mut log = Self {
            path: path.to_owned(),
            file,
            lock,
            salt,
            length,
            live: found.entries.values().map(|kept| kept.places.bytes()).sum(),
            next,
            broken: false,
        };
        if log.length > HEADER_BYTES as u64 + log.live {
            let places = found.entries.iter_mut().map(|(id, kept)| (*id, &mut kept.places));
            // On a full disk the file goes on as it is: what is in it is sent, and makes room.
            let _ = log.compact(places);
        }
        Ok((log, found))
    }

    /// A number that no entry of this file has had.
    pub(super) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Writes a record behind the others. When that fails, nothing of it stays.
    pub(super) fn append(&mut self, record: &Record, sync: Sync) -> io::Result<Place> {
        if self.broken {
            return Err(io::Error::other("an earlier write failed and could not be undone"));
        }
        let frame = record.frame(self.salt);
        let length = u32::try_from(frame.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "it is too large"))?;
        let written = self.write(&frame, sync);
        if let Err(error) = written {
            let undone = self.file.set_len(self.length).and_then(|()| self.file.sync_data());
            self.broken = undone.is_err();
            return Err(error);
        }
        let place = Place { offset: self.length, length };
        self.length += u64::from(length);
        match record {
            Record::Put { .. } | Record::Ended { .. } => self.live += u64::from(length),
            Record::Done { .. } | Record::Next { .. } => {}
        }
        Ok(place)
    }

    fn write(&mut self, frame: &[u8], sync: Sync) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(frame)?;
        match sync {
            Sync::Now => self.file.sync_data(),
            Sync::Later => Ok(()),
        }
    }

    /// What was put.
    pub(super) fn read(&mut self, place: Place) -> io::Result<Message> {
        let mut frame = vec![0; place.length as usize];
        self.file.seek(SeekFrom::Start(place.offset))?;
        self.file.read_exact(&mut frame)?;
        match Record::parse(&frame, self.salt) {
            Some((Record::Put { message, .. }, _)) => Ok(message),
            Some((Record::Ended { .. } | Record::Done { .. } | Record::Next { .. }, _)) | None => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "its record was damaged"))
            }
        }
    }

    /// An entry is of no use any more.
    pub(super) fn forget(&mut self, places: Places) {
        self.live = self.live.saturating_sub(places.bytes());
    }

    /// Whether most of the file is of no use.
    pub(super) fn is_wasteful(&self) -> bool {
        self.length - self.live > self.live + WASTE_BYTES
    }

    /// Writes what is left anew. The places change; when it fails they do not, and the file is as it was.
    pub(super) fn compact<'a>(
        &mut self,
        entries: impl Iterator<Item = (u64, &'a mut Places)>,
    ) -> io::Result<()> {
        let mut bytes = header(self.salt);
        bytes.extend_from_slice(&Record::Next { id: self.next }.frame(self.salt));
        let mut moved = Vec::new();
        for (_, places) in entries {
            let put = self.copy(places.put, &mut bytes)?;
            let ended = places.ended.map(|ended| self.copy(ended, &mut bytes)).transpose()?;
            moved.push((places, Places { put, ended }));
        }
        let file = replace(&self.path, &bytes)?;
        for (places, new) in moved {
            *places = new;
        }
        (self.file, self.length, self.broken) = (file, bytes.len() as u64, false);
        Ok(())
    }

    fn copy(&mut self, place: Place, to: &mut Vec<u8>) -> io::Result<Place> {
        let begin = to.len();
        to.resize(begin + place.length as usize, 0);
        self.file.seek(SeekFrom::Start(place.offset))?;
        self.file.read_exact(&mut to[begin..])?;
        Ok(Place { offset: begin as u64, length: place.length })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Closing it is not enough: a process that was forked meanwhile, and has not executed its program yet, has the
        // descriptor as well.
        let _ = self.lock.unlock();
    }
}

impl Place {
    pub(super) const fn bytes(self) -> u64 {
        self.length as u64
    }
}

impl Places {
    pub(super) fn bytes(self) -> u64 {
        self.put.bytes() + self.ended.map_or(0, Place::bytes)
    }
}

/// Where a path leads, so that a file has one lock whatever it is called by.
fn real(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = fs::canonicalize(folder.unwrap_or_else(|| Path::new(".")))?;
            Ok(folder.join(path.file_name().unwrap_or_default()))
        }
        found => found,
    }
}

/// The whole file; nothing, where there is none.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than any outbox"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Keeps others out, as long as it is open.
fn lock(path: &Path) -> io::Result<File> {
    let file = private().create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is open elsewhere"))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn header(salt: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&salt.to_le_bytes());
    let sum = hash(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The salt.
fn parse_header(bytes: &[u8]) -> Option<u64> {
    let (head, sum) = bytes.get(..HEADER_BYTES)?.split_at(HEADER_BYTES - 4);
    let salt = head.strip_prefix(&MAGIC)?;
    (hash(head).to_le_bytes() == *sum).then_some(())?;
    salt.try_into().ok().map(u64::from_le_bytes)
}

/// Everything that is whole, and the highest number.
fn scan(bytes: &[u8], salt: u64) -> (Found, u64) {
    let (mut found, mut next, mut offset) = (Found::default(), 0, HEADER_BYTES);
    while offset < bytes.len() {
        let Some((record, length)) = Record::parse(&bytes[offset..], salt) else {
            let skipped = next_marker(&bytes[offset..], salt);
            found.lost += skipped as u64;
            offset += skipped;
            continue;
        };
        let place = Place {
            offset: offset as u64,
            length: u32::try_from(length).expect("a frame's length is a u32 and its head"),
        };
        offset += length;
        next = next.max(found.take(record, place));
    }
    (found, next)
}

/// How far it is to where another frame may begin; all of it, where none does.
fn next_marker(bytes: &[u8], salt: u64) -> usize {
    let marker = marker(salt);
    let next = bytes.windows(MARKER_BYTES).skip(1).position(|window| *window == marker);
    next.map_or(bytes.len(), |skipped| skipped + 1)
}

impl Found {
    /// Takes a record in; the number that it has.
    fn take(&mut self, record: Record, place: Place) -> u64 {
        match record {
            Record::Put { id, message } => {
                let places = Places { put: place, ended: None };
                self.entries.insert(id, Kept { message, places, outcome: None });
                id
            }
            Record::Ended { id, outcome } => {
                if let Some(kept) = self.entries.get_mut(&id) {
                    (kept.outcome, kept.places.ended) = (Some(outcome), Some(place));
                }
                id
            }
            Record::Done { id } => {
                self.entries.remove(&id);
                id
            }
            Record::Next { id } => id,
        }
    }
}

const MAGIC: [u8; 16] = *b"towpath-outbox\0\x01";
const HEADER_BYTES: usize = 28;
/// No file that was written here is larger: what is of use is at most `MOST_BYTES` of the outbox, and the rest hardly
/// more.
const MOST_BYTES: u64 = 1 << 30;
/// What a file may have of no use, beside as much as is of use.
const WASTE_BYTES: u64 = 64 * 1024;

#[cfg(fuzzing)]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
