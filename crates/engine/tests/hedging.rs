//! Attempts that go on beside a later one, and which of them is answered.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::sync::Arc;
use std::time::Duration;

use scene::bench::Bench;
use scene::{Plan, retries};
use towpath_engine::snapshot::cluster::Cluster;
use towpath_engine::snapshot::route::{Forward, RetryOn};
use towpath_proto::{ConnectionId, Failure, Input};

#[test]
fn the_first_attempt_is_answered_after_the_second_began() {
    let mut bench = hedging(hedged, |_| {});
    let (first, second) = two_attempts(&mut bench);
    assert!(bench.reset.is_empty(), "an attempt goes on beside the other");
    let answered = answer(&mut bench, first, OK);
    assert_eq!(answered, "200");
    assert_eq!(bench.reset, [second]);
    assert_eq!(counted(&bench), (2, 1, 0, 0));
    assert_eq!(bench.number("cluster.app.upstream_rq_active"), 0);
    assert_eq!(bench.number("cluster.app.circuit_breakers.default.rq_retry_open"), 0);
}

#[test]
fn the_second_attempt_is_answered_first() {
    let mut bench = hedging(hedged, |_| {});
    let (first, second) = two_attempts(&mut bench);
    assert_eq!(answer(&mut bench, second, OK), "200");
    assert_eq!(bench.reset, [first]);
    assert_eq!(counted(&bench), (2, 1, 1, 0));
}

/// Whether an attempt is a retry counts, not whether it may be followed by another.
#[test]
fn a_retry_that_is_late_itself_is_answered() {
    let mut bench = hedging(hedged, |_| {});
    let (first, second) = two_attempts(&mut bench);
    bench.wait(LATE_MS);
    assert_eq!(answer(&mut bench, first, ERROR), "");
    assert_eq!(answer(&mut bench, second, OK), "200");
    assert_eq!(counted(&bench), (2, 1, 1, 1));
    assert_eq!(bench.number("cluster.app.circuit_breakers.default.rq_retry_open"), 0);
}

#[test]
fn an_error_waits_for_what_the_other_brings() {
    for first_fails in [true, false] {
        let mut bench = hedging(hedged, |_| {});
        let (first, second) = two_attempts(&mut bench);
        let (fails, serves) = if first_fails { (first, second) } else { (second, first) };
        assert_eq!(answer(&mut bench, fails, ERROR), "");
        assert_eq!(answer(&mut bench, serves, OK), "200", "first fails: {first_fails}");
        assert_eq!(bench.number("cluster.app.upstream_rq_active"), 0);
    }
}

#[test]
fn the_last_error_is_passed_on() {
    let mut bench = hedging(hedged, |_| {});
    let (first, second) = two_attempts(&mut bench);
    assert_eq!(answer(&mut bench, second, ERROR), "");
    assert_eq!(answer(&mut bench, first, ERROR), "503");
    // The second could not be tried again, for there was one retry.
    assert_eq!(counted(&bench), (2, 1, 0, 1));
}

#[test]
fn a_connection_that_is_lost_takes_its_attempt_alone() {
    for first_fails in [true, false] {
        let mut bench = hedging(hedged, |_| {});
        let (first, second) = two_attempts(&mut bench);
        let (fails, serves) = if first_fails { (first, second) } else { (second, first) };
        bench.give(Input::Closed { connection: fails, failure: Failure::Reset });
        assert!(bench.sent().is_empty());
        assert_eq!(answer(&mut bench, serves, OK), "200", "first fails: {first_fails}");
    }
    let mut bench = hedging(hedged, |_| {});
    let (first, second) = two_attempts(&mut bench);
    for lost in [first, second] {
        bench.give(Input::Closed { connection: lost, failure: Failure::Reset });
    }
    assert!(text(&bench.sent()).starts_with("HTTP/1.1 503"));
    assert_eq!(bench.number("cluster.app.upstream_rq_active"), 0);
}

#[test]
fn an_answer_ends_the_wait_for_another_attempt() {
    let mut bench = hedging(hedged, |_| {});
    bench.ask(GET);
    let first = bench.origin.unwrap();
    bench.wait(LATE_MS);
    assert_eq!(answer(&mut bench, first, OK), "200");
    bench.wait(1_000);
    assert_eq!(bench.connects, 1, "no other attempt begins");
    assert_eq!(counted(&bench), (1, 0, 0, 0));
}

#[test]
fn a_client_that_leaves_ends_all_attempts() {
    let mut bench = hedging(hedged, |_| {});
    let (first, second) = two_attempts(&mut bench);
    bench.give(Input::Closed { connection: bench.client, failure: Failure::Reset });
    bench.sent();
    let mut reset = bench.reset.clone();
    reset.sort_by_key(|id| id.slot());
    assert_eq!(reset, [first, second]);
    assert_eq!(bench.number("cluster.app.upstream_rq_active"), 0);
}

#[test]
fn the_time_for_all_ends_all_attempts() {
    let mut bench = hedging(
        |forward| {
            hedged(forward);
            forward.timeout = Some(Duration::from_secs(1));
        },
        |_| {},
    );
    two_attempts(&mut bench);
    assert!(text(&bench.wait(1_000)).starts_with("HTTP/1.1 504"));
    assert_eq!(bench.number("cluster.app.upstream_rq_timeout"), 2);
    assert_eq!(bench.number("cluster.app.upstream_rq_per_try_timeout"), 0);
    assert_eq!(bench.number("cluster.app.upstream_rq_504"), 2);
    assert_eq!(bench.number("cluster.app.upstream_rq_active"), 0);
}

#[test]
fn a_cluster_ends_a_request_whose_first_attempt_takes_too_long() {
    let mut bench =
        hedging(hedged, |cluster| cluster.max_stream_duration = Some(Duration::from_millis(400)));
    two_attempts(&mut bench);
    assert!(bench.wait(100).is_empty());
    assert!(text(&bench.wait(200)).starts_with("HTTP/1.1 504"), "400 ms after the first began");
    assert_eq!(bench.number("cluster.app.upstream_rq_max_duration_reached"), 1);
    assert_eq!(bench.number("cluster.app.upstream_rq_active"), 0);
}

#[test]
fn without_retries_a_late_attempt_goes_on() {
    let mut bench = hedging(
        |forward| {
            let mut policy = retries(RetryOn::default(), 1);
            policy.per_try_timeout = Some(Duration::from_millis(100));
            (forward.retry, forward.hedges) = (Some(Arc::new(policy)), true);
        },
        |_| {},
    );
    bench.ask(GET);
    let first = bench.origin.unwrap();
    bench.wait(LATE_MS);
    bench.wait(1_000);
    assert_eq!(answer(&mut bench, first, OK), "200");
    assert_eq!(counted(&bench), (1, 0, 0, 0));
}

#[test]
fn an_interim_response_decides() {
    let mut bench = hedging(hedged, |_| {});
    let (first, second) = two_attempts(&mut bench);
    bench.give(Input::Received { connection: first, chunk: "HTTP/1.1 103 X\r\n\r\n".into() });
    assert!(text(&bench.sent()).starts_with("HTTP/1.1 103"));
    assert_eq!(bench.reset, [second]);
    bench.wait(1_000);
    assert_eq!(bench.connects, 2, "nothing is tried again");
    assert_eq!(answer(&mut bench, first, ERROR), "503");
}

/// A worker with such a route and cluster.
fn hedging(adjust_forward: fn(&mut Forward), adjust_cluster: fn(&mut Cluster)) -> Bench {
    let mut plan = Plan::new(1);
    adjust_cluster(&mut plan.cluster);
    plan.adjust_forward = adjust_forward;
    Bench::of(plan.snapshot())
}

/// One retry, and 100 ms for an attempt, which goes on then.
fn hedged(forward: &mut Forward) {
    let mut policy = retries(RetryOn::STATUS_5XX, 1);
    policy.per_try_timeout = Some(Duration::from_millis(100));
    (forward.retry, forward.hedges) = (Some(Arc::new(policy)), true);
}

/// Asks, and lets a second attempt begin.
fn two_attempts(bench: &mut Bench) -> (ConnectionId, ConnectionId) {
    let asked = text(&bench.ask(GET));
    assert!(asked.starts_with("GET / "), "{asked}");
    // Of an attempt that may be one of several its own time is not told.
    assert!(!asked.contains("timeout-ms: 100\r\n"), "{asked}");
    let first = bench.origin.unwrap();
    bench.wait(LATE_MS);
    let mut again = bench.wait(25);
    again.extend(bench.wait(25));
    assert!(text(&again).starts_with("GET / "), "another begins");
    (first, bench.origin.unwrap())
}

/// The status that the client gets when a server has answered.
fn answer(bench: &mut Bench, connection: ConnectionId, response: &'static str) -> String {
    bench.give(Input::Received { connection, chunk: response.into() });
    let sent = text(&bench.sent());
    sent.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Attempts, retries, those that were answered well, and those that there were too many of.
fn counted(bench: &Bench) -> (u64, u64, u64, u64) {
    let number = |name: &str| bench.number(&format!("cluster.app.{name}"));
    assert_eq!(number("upstream_rq_per_try_timeout"), 0);
    (
        number("upstream_rq_total"),
        number("upstream_rq_retry"),
        number("upstream_rq_retry_success"),
        number("upstream_rq_retry_limit_exceeded"),
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const ERROR: &str = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
/// The time of an attempt is over.
const LATE_MS: u64 = 100;
