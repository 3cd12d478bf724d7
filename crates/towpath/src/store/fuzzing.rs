//! Any file of what is remembered: it is refused, or bounded, understood by what remembers, and written again as it
//! was read.

use std::time::Duration;

use towpath_engine::client::answers::{Answers, MOST_ADDRESSES as MOST_OF_A_NAME, MOST_ANSWERS};
use towpath_engine::client::heartbeat::{Heartbeat, MOST_NETWORKS, Settings};
use towpath_engine::client::memory::{MOST_ADDRESSES, Memory};
use towpath_proto::Instant;

use super::{Stored, parse, parse_lines, text};

pub(crate) fn check(bytes: &[u8]) {
    let _ = parse(bytes, NOW_S);
    // What a checksum would stop goes past it.
    let lines = String::from_utf8_lossy(bytes);
    let Some(found) = parse_lines(&lines, THEN_S, NOW_S) else { return };
    let written = text(&found, NOW_S);
    let again = parse(written.as_bytes(), NOW_S).expect("what was written is read");
    assert_eq!(text(&again, NOW_S), written);
    remember(found);
}

fn remember(found: Stored) {
    let (now, later) = (Instant::ZERO, Instant::ZERO + Duration::from_secs(3600));
    let Stored { remembered, silences } = found;
    assert!(remembered.answers.iter().all(|one| one.addresses.len() <= MOST_OF_A_NAME));
    let mut answers = Answers::default();
    answers.restore(remembered.answers, now);
    assert!(answers.save(later).len() <= MOST_ANSWERS);

    let places: Vec<_> = remembered.addresses.iter().map(|one| one.address).collect();
    let networks: Vec<_> = remembered.addresses.iter().map(|one| one.network.clone()).collect();
    let mut memory = Memory::new();
    memory.restore(remembered.addresses, now);
    assert!(memory.len() <= MOST_ADDRESSES);
    for network in &networks {
        memory.set_network(network);
        let order = memory.order(&places, later);
        assert!(places.iter().all(|place| order.contains(place)), "an address is never tried");
        let _ = memory.stagger(&order, later);
    }

    let settings = Settings::default();
    let mut heartbeat = Heartbeat::new(settings);
    let networks: Vec<_> = silences.iter().map(|one| one.network.clone()).collect();
    heartbeat.restore(silences, now);
    assert!(heartbeat.save(later).len() <= MOST_NETWORKS);
    for network in networks {
        heartbeat.set_network(&network);
        let interval = heartbeat.interval(later);
        assert!((settings.shortest..=settings.longest).contains(&interval), "{interval:?}");
    }
}

const NOW_S: u64 = 2_000_000_000;
const THEN_S: u64 = 1_999_999_000;
