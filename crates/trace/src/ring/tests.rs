use std::sync::Arc;

use super::{BEYOND, Registry, Ring, SERIAL_SHIFT, SERIALS, Thread};

fn ring(capacity: usize, flight: bool) -> Ring {
    Ring::new(capacity, 3, flight, Thread { tid: 1, name: String::new() })
}

/// Writes one record if `reserve` more would still fit.
fn push<const N: usize>(ring: &Ring, words: [u64; N], reserve: u64) -> Option<u64> {
    ring.push(words, ring.head() + 1 + reserve)
}

fn push_all(ring: &Ring, records: &[[u64; 4]]) -> Option<u64> {
    ring.push_all(records, ring.head() + records.len() as u64)
}

fn seconds(ring: &Ring, from: u64) -> Vec<u64> {
    ring.take(from).records.iter().map(|words| words[1]).collect()
}

#[test]
fn a_record_ring_is_full_exactly_at_its_capacity_and_goes_on_when_read() {
    let ring = ring(8, false);
    let base = ring.base();
    for value in 0..8 {
        assert_eq!(push(&ring, [value, value], 0), Some(base + value));
    }
    assert_eq!(push(&ring, [8, 8], 0), None);
    assert_eq!(seconds(&ring, base), (0..8).collect::<Vec<_>>());
    ring.release(base + 3);
    assert_eq!(push_all(&ring, &[[8, 8, 0, 0]; 4]), None, "all or none");
    assert_eq!(push_all(&ring, &[[8, 8, 0, 0]; 3]), Some(base + 8));
    assert_eq!(seconds(&ring, base + 3), [3, 4, 5, 6, 7, 8, 8, 8]);
}

#[test]
fn room_set_aside_is_kept_free() {
    let ring = ring(8, false);
    (0..6).for_each(|value| assert!(push(&ring, [value], 2).is_some()));
    assert_eq!(push(&ring, [6], 2), None);
    assert!(push(&ring, [6], 1).is_some() && push(&ring, [7], 0).is_some());
}

#[test]
fn a_flight_recorder_says_what_was_overwritten() {
    let ring = ring(8, true);
    for value in 0..20 {
        push(&ring, [value, value], 0);
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
        push(&ring, [1], 0);
        ring.close();
        assert_eq!((push(&ring, [2], 0), push_all(&ring, &[[2; 4]])), (None, None));
        ring.release(ring.base() + 1);
        assert_eq!(push(&ring, [2], 0), None);
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
            while push(&writer, [value, value ^ 0xff, value, !value], 0).is_none() {
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
                push_all(&writer, &[[value, value, value, !value]; 3]);
            } else {
                push(&writer, [value, value, value, !value], 0);
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

#[test]
fn serial_numbers_begin_anew_and_leave_out_those_in_use() {
    let ring = |serial| Ring::new(2, serial, false, Thread { tid: 1, name: String::new() });
    let rings = vec![Arc::new(ring(1)), Arc::new(ring(2)), Arc::new(ring(SERIALS))];
    let last = ring(SERIALS).base() + (1 << SERIAL_SHIFT);
    assert_eq!(last, BEYOND);
    let registry = Registry {
        rings,
        plan: None,
        serial: SERIALS,
        homeless: 0,
        refused: 0,
        unentered: 0,
        evicted: 0,
    };
    assert_eq!(registry.free_serial(), 3);
}
