use std::fs;

use super::*;
use crate::outbox::record::tests::message;

const SALT: u64 = 0x1122_3344_5566_7788;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("towpath-outbox-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("outbox")
    }

    fn open(&self) -> (Log, Found) {
        Log::open(&self.file(), SALT).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn put(log: &mut Log, body: &str) -> (u64, Places) {
    let id = log.next_id();
    let record = Record::Put { id, message: message(body) };
    let put = log.append(&record, Sync::Now).unwrap();
    (id, Places { put, ended: None })
}

fn bodies(found: &Found) -> Vec<(u64, String)> {
    let body = |kept: &Kept| String::from_utf8(kept.message.body.to_vec()).unwrap();
    found.entries.iter().map(|(id, kept)| (*id, body(kept))).collect()
}

fn pairs(list: &[(u64, &str)]) -> Vec<(u64, String)> {
    list.iter().map(|(id, body)| (*id, (*body).to_owned())).collect()
}

#[test]
fn what_was_put_is_there_in_the_next_life_until_it_is_done() {
    let folder = Folder::new("lives");
    let (mut log, found) = folder.open();
    assert!(found.entries.is_empty());
    let (first, places) = put(&mut log, "one");
    put(&mut log, "two");
    assert_eq!(log.read(places.put).unwrap().body, "one");
    let outcome = Outcome::Answered { status: 200, body: "ok".into(), whole: true };
    log.append(&Record::Ended { id: first, outcome: outcome.clone() }, Sync::Now).unwrap();
    drop(log);
    let (mut log, found) = folder.open();
    assert_eq!(bodies(&found), pairs(&[(1, "one"), (2, "two")]));
    assert_eq!(found.entries[&1].outcome, Some(outcome), "it is to be told");
    log.append(&Record::Done { id: first }, Sync::Later).unwrap();
    drop(log);
    let (mut log, found) = folder.open();
    assert_eq!((bodies(&found), found.lost), (pairs(&[(2, "two")]), 0));
    log.append(&Record::Done { id: 2 }, Sync::Later).unwrap();
    drop(log);
    let (mut log, found) = folder.open();
    assert!(found.entries.is_empty());
    assert_eq!(put(&mut log, "three").0, 3, "no number is given twice");
}

#[test]
fn a_file_that_ends_anywhere_has_what_was_whole_and_goes_on() {
    let folder = Folder::new("cuts");
    let (mut log, _) = folder.open();
    let ends: Vec<u64> = ["one", "two", "three"]
        .map(|body| {
            put(&mut log, body);
            log.length
        })
        .to_vec();
    drop(log);
    let whole = fs::read(folder.file()).unwrap();
    for cut in HEADER_BYTES..=whole.len() {
        fs::write(folder.file(), &whole[..cut]).unwrap();
        let (mut log, found) = folder.open();
        let kept = ends.iter().filter(|end| **end <= cut as u64).count();
        let expected = &[(1, "one"), (2, "two"), (3, "three")][..kept];
        assert_eq!(bodies(&found), pairs(expected), "cut at {cut}");
        let ended = ends[..kept].last().map_or(HEADER_BYTES as u64, |end| *end);
        assert_eq!(found.lost, cut as u64 - ended, "cut at {cut}");
        let (id, _) = put(&mut log, "after");
        drop(log);
        let mut expected = pairs(expected);
        expected.push((id, "after".to_owned()));
        let (_, found) = folder.open();
        assert_eq!((bodies(&found), found.lost), (expected, 0), "cut at {cut}");
    }
    for cut in 1..HEADER_BYTES {
        fs::write(folder.file(), &whole[..cut]).unwrap();
        assert!(Log::open(&folder.file(), SALT).is_err(), "a header is never written in parts");
    }
}

#[test]
fn a_damaged_record_costs_itself_alone() {
    let folder = Folder::new("damage");
    let (mut log, _) = folder.open();
    let places: Vec<Place> = ["one", "two", "three"].map(|body| put(&mut log, body).1.put).to_vec();
    drop(log);
    let whole = fs::read(folder.file()).unwrap();
    let second = places[1].offset as usize..places[2].offset as usize;
    for place in second.clone() {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        fs::write(folder.file(), &damaged).unwrap();
        let (_, found) = folder.open();
        assert_eq!(bodies(&found), pairs(&[(1, "one"), (3, "three")]), "at {place}");
        assert_eq!(found.lost, second.len() as u64);
    }
    for place in 0..HEADER_BYTES {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        fs::write(folder.file(), &damaged).unwrap();
        assert!(Log::open(&folder.file(), SALT).is_err(), "at {place}");
    }
}

#[test]
fn a_frame_in_a_body_is_no_frame() {
    let folder = Folder::new("frames");
    let (mut log, _) = folder.open();
    let other = Record::Put { id: 9, message: message("not sent") }.frame(SALT ^ 1);
    let id = log.next_id();
    let mut outer = message("");
    outer.body = other.into();
    let place = log.append(&Record::Put { id, message: outer }, Sync::Now).unwrap();
    drop(log);
    let mut bytes = fs::read(folder.file()).unwrap();
    bytes[place.offset as usize + 4] ^= 1;
    fs::write(folder.file(), &bytes).unwrap();
    assert_eq!(bodies(&folder.open().1), []);
}

#[test]
fn what_is_of_no_use_leaves_the_file() {
    let folder = Folder::new("compact");
    let (mut log, _) = folder.open();
    let large = "x".repeat(40_000);
    let (kept, mut kept_places) = put(&mut log, "kept");
    for _ in 0..10 {
        let (id, places) = put(&mut log, &large);
        log.append(&Record::Done { id }, Sync::Later).unwrap();
        log.forget(places);
        if log.is_wasteful() {
            log.compact([(kept, &mut kept_places)].into_iter()).unwrap();
        }
        assert_eq!(log.read(kept_places.put).unwrap().body, "kept");
        assert!(fs::metadata(folder.file()).unwrap().len() < 120_000);
    }
    drop(log);
    assert_eq!(bodies(&folder.open().1), pairs(&[(1, "kept")]));
}

#[test]
fn what_a_crash_left_of_a_compaction_is_not_looked_at() {
    let folder = Folder::new("half");
    let (mut log, _) = folder.open();
    put(&mut log, "one");
    drop(log);
    fs::write(beside(&folder.file(), ".new"), "half a fi").unwrap();
    assert_eq!(bodies(&folder.open().1), pairs(&[(1, "one")]));
}

#[test]
fn one_process_at_a_time() {
    let folder = Folder::new("lock");
    let (log, _) = folder.open();
    let error = Log::open(&folder.file(), SALT).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    drop(log);
    folder.open();
}

#[test]
fn a_child_that_has_not_executed_its_program_does_not_keep_the_lock() {
    let folder = Folder::new("child");
    let (log, _) = folder.open();
    // What fork leaves in the child until then: the same open file by another descriptor.
    let childs = log.lock.try_clone().unwrap();
    drop(log);
    folder.open();
    drop(childs);
}

#[test]
fn what_is_no_outbox_is_refused_and_left_alone() {
    let folder = Folder::new("other");
    fs::write(folder.file(), "something else, and longer than a header is").unwrap();
    let error = Log::open(&folder.file(), SALT).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(fs::read(folder.file()).unwrap().starts_with(b"something else"));
}

#[test]
fn a_file_that_cannot_be_written_anew_goes_on_as_it_is() {
    let folder = Folder::new("full");
    let (mut log, _) = folder.open();
    let (first, places) = put(&mut log, "one");
    put(&mut log, "two");
    log.append(&Record::Done { id: first }, Sync::Now).unwrap();
    log.forget(places);
    drop(log);
    // A tail that a crash cut off, and no room for a file beside it.
    let mut bytes = fs::read(folder.file()).unwrap();
    bytes.extend_from_slice(b"half a record");
    fs::write(folder.file(), &bytes).unwrap();
    fs::create_dir(folder.0.join("outbox.new")).unwrap();
    let (mut log, found) = folder.open();
    assert_eq!((bodies(&found), found.lost), (pairs(&[(2, "two")]), 13));
    put(&mut log, "three");
    drop(log);
    let (_, found) = folder.open();
    assert_eq!(bodies(&found), pairs(&[(2, "two"), (3, "three")]));
}

#[cfg(unix)]
#[test]
fn a_link_to_a_file_does_not_get_round_its_lock() {
    let folder = Folder::new("link");
    let (_log, _) = folder.open();
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(folder.file(), &link).unwrap();
    let busy = Log::open(&link, SALT).map(drop).unwrap_err();
    assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
}
