//! A drain ends when the last client is gone, however it went, and serves those that had connected before.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "scene/rig.rs"]
mod rig;
mod scene;
#[path = "../../../conformance/h1/wire.rs"]
mod wire;

use std::time::Duration;

use rig::Rig;
use scene::Plan;

#[test]
fn without_clients_it_ends_at_once() {
    let mut rig = Rig::new(Plan::new(1));
    rig.drain();
    assert!(rig.drained);
}

#[test]
fn it_ends_when_the_last_client_does() {
    let mut rig = Rig::new(Plan::new(1));
    let client = rig.connect();
    rig.drain();
    assert!(!rig.drained);
    rig.end(client);
    assert!(rig.drained);
}

#[test]
fn who_waited_in_the_listening_socket_is_served() {
    let mut rig = Rig::new(Plan::new(1));
    let client = rig.connect_late();
    rig.drain();
    assert!(!rig.drained, "a client is there");
    let outcome = rig.ask(client, b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    answered_and_closed(&rig, &outcome, "/late");
}

#[test]
fn who_is_quiet_is_let_go() {
    let mut rig = Rig::new(Plan::new(1));
    rig.connect();
    rig.wait(LONG);
    rig.drain();
    rig.wait(Duration::ZERO);
    assert!(rig.drained);
}

#[test]
fn who_has_begun_a_request_is_answered() {
    let mut rig = Rig::new(Plan::new(1));
    let client = rig.connect();
    rig.ask(client, b"GET /begun HTTP/1.1\r\nHo");
    rig.wait(LONG);
    rig.drain();
    rig.wait(LONG);
    let outcome = rig.ask(client, b"st: a\r\n\r\n");
    answered_and_closed(&rig, &outcome, "/begun");
}

#[test]
fn who_begins_a_request_while_it_drains_is_answered() {
    let mut rig = Rig::new(Plan::new(1));
    let client = rig.connect();
    rig.drain();
    rig.ask(client, b"GET /slow HTTP/1.1\r\n");
    rig.wait(LONG);
    assert!(!rig.drained);
    let outcome = rig.ask(client, b"Host: a\r\n\r\n");
    answered_and_closed(&rig, &outcome, "/slow");
}

#[test]
fn a_request_that_never_gets_whole_ends_at_the_deadline() {
    let mut rig = Rig::new(Plan::new(1));
    let client = rig.connect();
    rig.ask(client, b"GET /never HTTP/1.1\r\n");
    rig.drain_within(Some(LONG));
    rig.wait(LONG / 2);
    assert!(!rig.drained);
    rig.wait(LONG / 2);
    assert!(rig.drained);
}

fn answered_and_closed(rig: &Rig, outcome: &rig::Outcome, target: &str) {
    let answers = outcome.answers(&[]).whole;
    assert_eq!(answers.len(), 1, "{outcome:?}");
    assert_eq!(answers[0].field("x-target"), Some(target));
    assert!(!answers[0].keeps_alive());
    assert!(rig.drained);
}

/// More than the second for which a drain waits to see whether a connection is quiet.
const LONG: Duration = Duration::from_secs(4);
