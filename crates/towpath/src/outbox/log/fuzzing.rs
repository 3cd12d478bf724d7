//! The file of an outbox after any damage: it opens, and what it opens with stays.

use std::path::{Path, PathBuf};

use super::{Kept, Log, header};
use crate::file::beside;
use crate::outbox::record::Record;

/// Payloads of frames, each behind its length in two bytes, up to an empty one; then damage: a place in two bytes and
/// what is there instead.
pub(crate) fn check(mut bytes: &[u8]) {
    let mut file = header(SALT);
    while let Some(payload) = piece(&mut bytes) {
        file.extend_from_slice(&Record::frame_of(payload, SALT));
    }
    for damage in bytes.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([damage[0], damage[1]]));
        match file.get_mut(place) {
            Some(byte) => *byte = damage[2],
            None => file.truncate(place.abs_diff(usize::from(u16::MAX))),
        }
    }
    let path = path();
    std::fs::write(&path, &file).expect("a file in memory");
    // Of a header that is damaged it says so.
    if let Some((entries, next, lost)) = open(&path) {
        assert!(lost <= file.len() as u64, "more is lost than there was");
        assert_eq!(open(&path), Some((entries, next, 0)), "it opens otherwise the second time");
    }
    for path in [beside(&path, ".lock"), path] {
        let _ = std::fs::remove_file(path);
    }
}

fn piece<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (payload, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    *bytes = rest;
    (!payload.is_empty()).then_some(payload)
}

/// Its entries, without their places; the last number that was given away; what was lost.
type Opened = (Vec<(u64, Kept)>, u64, u64);

fn open(path: &Path) -> Option<Opened> {
    let (mut log, found) = Log::open(path, SALT).ok()?;
    for (id, kept) in &found.entries {
        assert!(*id <= log.next, "a number would be given away again");
        let read = log.read(kept.places.put).expect("what was found is in the file");
        assert_eq!(read, kept.message);
        assert_eq!(kept.outcome.is_some(), kept.places.ended.is_some());
    }
    Some((found.entries.into_iter().collect(), log.next, found.lost))
}

fn path() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    folder.join(format!("towpath-fuzz-{}", std::process::id()))
}

const SALT: u64 = 0x1234_5678_9abc_def0;
