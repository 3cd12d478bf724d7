use std::sync::Arc;

use super::{Ring, Thread};

fn ring(capacity: usize, flight: bool) -> Ring {
    Ring::new(capacity, 3, flight, Thread { tid: 1, name: String::new() })
}

fn seconds(ring: &Ring, from: u64) -> Vec<u64> {
    ring.take(from).records.iter().map(|words| words[1]).collect()
}

#[test]
fn a_record_ring_is_full_exactly_at_its_capacity_and_goes_on_when_read() {
    let ring = ring(8, false);
    let base = ring.base();
    for value in 0..8 {
        assert_eq!(ring.push([value, value], 0), Some(base + value));
    }
    assert_eq!(ring.push([8, 8], 0), None);
    assert_eq!(seconds(&ring, base), (0..8).collect::<Vec<_>>());
    ring.release(base + 3);
    assert_eq!(ring.push_all(&[[8, 8, 0, 0]; 4], 0), None, "all or none");
    assert_eq!(ring.push_all(&[[8, 8, 0, 0]; 3], 0), Some(base + 8));
    assert_eq!(seconds(&ring, base + 3), [3, 4, 5, 6, 7, 8, 8, 8]);
}

#[test]
fn room_set_aside_is_kept_free() {
    let ring = ring(8, false);
    (0..6).for_each(|value| assert!(ring.push([value], 2).is_some()));
    assert_eq!(ring.push([6], 2), None);
    assert!(ring.push([6], 1).is_some() && ring.push([7], 0).is_some());
}

#[test]
fn a_flight_recorder_says_what_was_overwritten() {
    let ring = ring(8, true);
    for value in 0..20 {
        ring.push([value, value], 0);
    }
    let taken = ring.take(ring.base());
    // The writer may be in the middle of the oldest.
    assert_eq!(taken.overwritten, 13);
    assert_eq!(
        taken.records.iter().map(|words| words[1]).collect::<Vec<_>>(),
        (13..20).collect::<Vec<_>>()
    );
    assert_eq!(taken.first, ring.base() + 13);
}

#[test]
fn a_closed_ring_takes_nothing_and_a_release_does_not_open_it() {
    for flight in [false, true] {
        let ring = ring(8, flight);
        ring.push([1], 0);
        ring.close();
        assert_eq!((ring.push([2], 0), ring.push_all(&[[2; 4]], 0)), (None, None));
        ring.release(ring.base() + 1);
        assert_eq!(ring.push([2], 0), None);
        assert_eq!(ring.take(ring.base()).records.len(), 1);
    }
}

#[test]
fn a_reader_beside_the_writer_sees_each_record_once_and_whole() {
    let count: u64 = if cfg!(miri) { 300 } else { 200_000 };
    let ring = Arc::new(ring(64, false));
    let writer = ring.clone();
    let writing = std::thread::spawn(move || {
        for value in 0..count {
            while writer.push([value, value ^ 0xff, value, !value], 0).is_none() {
                std::thread::yield_now();
            }
        }
    });
    let (mut next, mut expected) = (ring.base(), 0);
    while expected < count {
        let taken = ring.take(next);
        next = taken.first + taken.records.len() as u64;
        for words in taken.records {
            assert_eq!(words, [expected, expected ^ 0xff, expected, !expected]);
            expected += 1;
        }
        ring.release(next);
        std::thread::yield_now();
    }
    writing.join().unwrap();
}

#[test]
fn a_copy_of_a_running_flight_recorder_holds_only_whole_records() {
    let rounds: u64 = if cfg!(miri) { 400 } else { 400_000 };
    let ring = Arc::new(ring(64, true));
    let writer = ring.clone();
    let writing = std::thread::spawn(move || {
        for value in 0..rounds {
            if value % 7 == 0 {
                writer.push_all(&[[value, value, value, !value]; 3], 0);
            } else {
                writer.push([value, value, value, !value], 0);
            }
        }
    });
    while !writing.is_finished() {
        let taken = ring.take(ring.base());
        let values: Vec<u64> = taken.records.iter().map(|words| words[0]).collect();
        assert!(
            taken.records.iter().all(|words| words[1] == words[0] && words[3] == !words[0]),
            "torn"
        );
        assert!(values.is_sorted(), "{values:?}");
    }
    writing.join().unwrap();
}
