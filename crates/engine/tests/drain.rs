//! A drain ends when the last client is gone, however it went, and serves whoever had connected before.
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

use rig::Rig;
use scene::Plan;

#[test]
fn with_nobody_there_it_ends_at_once() {
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
    assert!(!rig.drained, "there is somebody");
    let outcome = rig.ask(client, b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    let answers = outcome.answers(&[]).whole;
    assert_eq!(answers.len(), 1, "{outcome:?}");
    assert_eq!(answers[0].field("x-target"), Some("/late"));
    assert!(!answers[0].keeps_alive());
    assert!(rig.drained);
}
