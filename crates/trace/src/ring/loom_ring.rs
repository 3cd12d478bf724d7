//! Models of the ring: every order in which a writer and a reader can meet.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p towpath-trace --lib --release loom_`

use loom::sync::Arc;
use loom::thread;

use super::{Ring, Thread};

fn ring(flight: bool) -> Arc<Ring> {
    Arc::new(Ring::new(2, 1, flight, Thread { tid: 1, name: String::new() }))
}

fn push(ring: &Ring, words: [u64; 4]) -> Option<u64> {
    ring.push(words, ring.head() + 1)
}

fn push_all(ring: &Ring, records: &[[u64; 4]]) -> Option<u64> {
    ring.push_all(records, ring.head() + records.len() as u64)
}

fn whole(words: &[u64; 4]) -> u64 {
    assert!(
        words[1] == words[0] && words[2] == words[0] && words[3] == !words[0],
        "torn: {words:?}"
    );
    words[0]
}

const fn record(value: u64) -> [u64; 4] {
    [value, value, value, !value]
}

/// In record mode what is kept is read once, in order, and whole.
#[test]
fn loom_a_drain_beside_the_writer() {
    loom::model(|| {
        let ring = ring(false);
        let writer = ring.clone();
        let writing = thread::spawn(move || {
            (1..=3).filter(|&value| push(&writer, record(value)).is_some()).count()
        });
        let (mut next, mut seen) = (ring.base(), Vec::new());
        for _ in 0..2 {
            let taken = ring.take(next);
            assert_eq!(taken.overwritten, 0);
            next += taken.records.len() as u64;
            seen.extend(taken.records.iter().map(whole));
            ring.release(next);
        }
        let kept = writing.join().unwrap();
        seen.extend(ring.take(next).records.iter().map(whole));
        assert_eq!(seen.len(), kept);
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    });
}

/// In a flight recorder a copy may miss what is being overwritten, and never holds half of it.
#[test]
fn loom_a_capture_beside_the_writer() {
    loom::model(|| {
        let ring = ring(true);
        let writer = ring.clone();
        let writing = thread::spawn(move || {
            (1..=3).for_each(|value| assert!(push(&writer, record(value)).is_some()))
        });
        let seen: Vec<u64> = ring.take(ring.base()).records.iter().map(whole).collect();
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        writing.join().unwrap();
        assert_eq!(ring.take(ring.base()).records.iter().map(whole).collect::<Vec<_>>(), [3]);
    });
}

/// An event of several records is announced before the first of them is overwritten.
#[test]
fn loom_a_capture_beside_a_long_event() {
    loom::model(|| {
        let ring = ring(true);
        push(&ring, record(1));
        let writer = ring.clone();
        let writing = thread::spawn(move || push_all(&writer, &[record(2), record(3)]));
        ring.take(ring.base()).records.iter().for_each(|words| {
            whole(words);
        });
        writing.join().unwrap();
    });
}

/// Closing while the reader lets the writer go on: the ring stays closed.
#[test]
fn loom_a_close_is_not_undone() {
    loom::model(|| {
        let ring = ring(false);
        push(&ring, record(1));
        let reader = ring.clone();
        let reading = thread::spawn(move || {
            let taken = reader.take(reader.base());
            reader.release(reader.base() + taken.records.len() as u64);
        });
        ring.close();
        reading.join().unwrap();
        assert_eq!(push(&ring, record(2)), None);
    });
}
