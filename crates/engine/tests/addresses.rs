//! A host with several addresses: each is tried, the next one after a while.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::time::Duration;

use scene::bench::Bench;
use scene::{Plan, endpoint, origin_address};
use towpath_engine::snapshot::cluster::Endpoint;
use towpath_proto::{Address, Failure, Input};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// A host at so many addresses, of which the first `silent` do not answer.
fn bench(count: u8, silent: u8) -> Bench {
    let all: Vec<Address> = (1..=count).map(origin_address).collect();
    let mut plan = Plan::new(1);
    let addresses = Some(all.clone().into());
    plan.cluster.endpoints = [Endpoint { addresses, ..endpoint(origin_address(1)) }].into();
    plan.cluster.connect_timeout = Duration::from_secs(1);
    let mut bench = Bench::of(plan.snapshot());
    bench.silent = all[..usize::from(silent)].to_vec();
    bench
}

fn asked(bench: &Bench) -> Vec<Address> {
    bench.asked.iter().map(|(_, address)| address.clone()).collect()
}

fn first(count: u8) -> Vec<Address> {
    (1..=count).map(origin_address).collect()
}

#[test]
fn the_next_address_is_tried_after_a_while() {
    let mut bench = bench(4, 2);
    assert!(bench.ask(GET).is_empty());
    for count in [1, 2] {
        assert!(bench.wait(299).is_empty());
        assert_eq!(asked(&bench), first(count));
        let sent = bench.wait(1);
        assert_eq!(asked(&bench), first(count + 1));
        assert_eq!(sent.starts_with(b"GET / "), count == 2);
    }
    assert_eq!(bench.cancelled.len(), 2, "no request waits for the others");
    let number = |name| bench.number(&format!("cluster.app.upstream_cx_{name}"));
    assert_eq!((number("total"), number("active"), number("connect_fail")), (3, 1, 0));
}

#[test]
fn all_addresses_together_have_the_time_of_one() {
    let mut bench = bench(9, 9);
    bench.ask(GET);
    for _ in 0..3 {
        assert!(bench.wait(300).is_empty());
    }
    assert_eq!(asked(&bench), first(4));
    assert!(bench.wait(99).is_empty());
    assert!(bench.wait(1).starts_with(b"HTTP/1.1 503 "));
    assert_eq!((asked(&bench), bench.cancelled.len()), (first(4), 4));
    let number = |name| bench.number(&format!("cluster.app.upstream_cx_{name}"));
    assert_eq!((number("total"), number("active")), (4, 0));
    assert_eq!((number("connect_fail"), number("connect_timeout")), (1, 1));
}

#[test]
fn one_that_fails_makes_room_for_the_next_at_once_and_the_last_decides() {
    let mut bench = bench(3, 3);
    bench.ask(GET);
    bench.wait(300);
    let mut fail = |number: usize| {
        let attempt = bench.asked[number].0;
        bench.give(Input::ConnectFailed { attempt, failure: Failure::Refused });
        let sent = bench.sent();
        (sent.starts_with(b"HTTP/1.1 503 "), bench.asked.len())
    };
    assert_eq!([fail(0), fail(2), fail(1)], [(false, 3), (false, 3), (true, 3)]);
    assert_eq!(bench.cancelled, []);
    let number = |name| bench.number(&format!("cluster.app.upstream_cx_{name}"));
    assert_eq!((number("total"), number("active"), number("connect_fail")), (3, 0, 1));
}

#[test]
fn a_client_that_goes_takes_all_attempts_with_it() {
    let mut bench = bench(3, 3);
    bench.accept(scene::TCP);
    bench.wait(300);
    assert_eq!(asked(&bench), first(2));
    bench.give(Input::Closed { connection: bench.client, failure: Failure::Reset });
    bench.sent();
    assert_eq!(bench.cancelled.len(), 2);
    assert_eq!(bench.number("cluster.app.upstream_cx_active"), 0);
    bench.wait(2000);
    assert_eq!(asked(&bench), first(2));
}
