//! Copies of requests whose content comes by and by.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::sync::Arc;

use bytes::Bytes;
use scene::bench::Bench;
use scene::filters::add_asked_cluster;
use scene::{Plan, origin_address};
use towpath_engine::header_ops::HeaderMutations;
use towpath_engine::snapshot::route::{Mirror, MirrorCluster};
use towpath_proto::{ConnectionId, Failure, Input};

const PIECE: usize = 1000;
/// The connection of the copy, which is made before that of its request.
const COPY: ConnectionId = ConnectionId::new(2, 1);

/// Copies go to a second cluster, at the same host.
fn bench() -> Bench {
    let mut plan = Plan::new(1);
    plan.adjust_forward = |forward| forward.mirrors = [mirror("copies")].into();
    let mut snapshot = plan.snapshot();
    add_asked_cluster(&mut snapshot, "copies");
    Bench::of(snapshot)
}

fn mirror(cluster: &str) -> Mirror {
    Mirror {
        cluster: MirrorCluster::Named(cluster.into()),
        share: None,
        marks_host: true,
        host: None,
        ops: HeaderMutations::default(),
        is_sampled: None,
    }
}

fn head(length: usize) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").into()
}

fn count(sent: &[u8], what: u8) -> usize {
    sent.iter().filter(|byte| **byte == what).count()
}

#[test]
fn content_goes_to_the_copy_as_it_comes() {
    let mut bench = bench();
    let sent = bench.ask(&head(2 * PIECE));
    assert_eq!(String::from_utf8_lossy(&sent).matches("POST / HTTP/1.1\r\n").count(), 2);
    assert_eq!(count(&bench.ask(&[b'#'; PIECE]), b'#'), 2 * PIECE);
    assert_eq!(count(&bench.ask(&[b'#'; PIECE]), b'#'), 2 * PIECE);
}

/// What waits for the copy's connection is bounded by not reading the client, and goes on when that fails.
#[test]
fn a_copy_that_gets_no_connection_holds_its_request_up() {
    let mut bench = bench();
    bench.silent = vec![origin_address(9)];
    bench.ask(&head(1000 * PIECE));
    let client = bench.client;
    let mut given = 0;
    while !bench.unread.contains(&client) {
        assert!(given < 200 * PIECE, "{given} bytes are held");
        given += count(&bench.ask(&[b'#'; PIECE]), b'#');
    }
    let (attempt, _) = bench.asked.first().cloned().unwrap();
    bench.give(Input::ConnectFailed { attempt, failure: Failure::Refused });
    bench.sent();
    assert!(!bench.unread.contains(&client), "it goes on without the copy");
    assert_eq!(count(&bench.ask(&[b'#'; PIECE]), b'#'), PIECE);
}

#[test]
fn a_copy_ends_with_the_request_that_is_given_up() {
    let mut bench = bench();
    bench.ask(&head(PIECE));
    let client = bench.client;
    bench.give(Input::Closed { connection: client, failure: Failure::Reset });
    bench.sent();
    assert!(bench.reset.contains(&COPY), "{:?}", bench.reset);
    assert_eq!(bench.number("cluster.copies.upstream_rq_active"), 0);
}

/// The server of a copy that answers early, or ends, takes no more of it.
#[test]
fn a_copy_that_is_over_is_left_out() {
    let mut bench = bench();
    bench.ask(&head(2 * PIECE));
    let chunk = Bytes::from_static(b"HTTP/1.1 413 Enough\r\nContent-Length: 0\r\n\r\n");
    bench.give(Input::Received { connection: COPY, chunk });
    bench.sent();
    assert_eq!(count(&bench.ask(&[b'#'; PIECE]), b'#'), PIECE);
    assert_eq!(count(&bench.ask(&[b'#'; PIECE]), b'#'), PIECE);
    assert_eq!(bench.number("cluster.copies.upstream_rq_active"), 0);
}

/// Envoy copies without end.
#[test]
fn of_a_cluster_that_mirrors_to_itself_there_are_few_copies_of_content() {
    let mut plan = Plan::new(1);
    plan.cluster.mirrors = Some(Arc::new([mirror("app")]));
    let mut bench = Bench::of(plan.snapshot());
    let sent = bench.ask(&head(PIECE));
    assert_eq!(String::from_utf8_lossy(&sent).matches("POST / HTTP/1.1\r\n").count(), 9);
    assert_eq!(count(&bench.ask(&[b'#'; PIECE]), b'#'), 9 * PIECE);
}
