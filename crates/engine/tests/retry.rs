//! What bounds one attempt ends with its answer, also where that is not passed on.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "scene/rig.rs"]
mod rig;
mod scene;
#[path = "../../../conformance/h1/wire.rs"]
mod wire;

use std::sync::Arc;
use std::time::Duration;

use rig::{Rig, Script};
use scene::{Plan, retries};
use towpath_engine::snapshot::route::{RateLimitedBackOff, ResetHeader, RetryOn};
use towpath_proto::HeaderName;

#[test]
fn the_time_for_one_attempt_does_not_go_on_while_the_next_is_waited_for() {
    let mut plan = Plan::new(1);
    plan.adjust_forward = |forward| {
        let mut policy = retries(RetryOn::STATUS_5XX, 1);
        policy.per_try_timeout = Some(Duration::from_millis(1));
        (policy.base_interval, policy.max_interval) = (LONG, LONG);
        forward.timeout = None;
        forward.retry = Some(Arc::new(policy));
    };
    let mut rig = Rig::new(plan);
    let busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec();
    rig.script = Some(Script { pieces: vec![busy], close: false });
    let client = rig.connect();
    let outcome = rig.ask(client, b"GET /case HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(outcome.received.escape_ascii().to_string(), "", "it is tried again");
    // The wait is drawn below `LONG`; the time for an attempt is a thousandth of it.
    rig.wait(Duration::from_millis(1));
    rig.wait(LONG);
    let outcome = rig.take();
    let answer = &outcome.answers(&[]).whole[0];
    assert_eq!(answer.status, 200);
    assert!(answer.keeps_alive());
}

/// The rig's clock begins at the second 1,700,000,000 since 1970.
#[test]
fn an_answer_says_when_it_is_asked_again() {
    // With the answer's field, and how long it is waited at least and at most.
    let cases = [
        ("X-After: 20", 20, 30),
        ("X-At: 1700000040", 39, 60),
        ("X-After: 61\r\nX-At: 1700000040", 39, 60),
        ("X-After: soon", 0, 1),
        ("X-At: 1699999999", 0, 1),
        ("X-After: 18446744073709551615", 0, 1),
    ];
    for (field, least, most) in cases {
        let mut plan = Plan::new(1);
        plan.adjust_forward = |forward| {
            let mut policy = retries(RetryOn::STATUS_5XX, 1);
            let header = |name, is_timestamp| ResetHeader {
                name: HeaderName::new(name).unwrap(),
                is_timestamp,
            };
            policy.rate_limited = Some(RateLimitedBackOff {
                headers: vec![header("x-after", false), header("x-at", true)],
                max: Duration::from_secs(60),
            });
            forward.timeout = None;
            forward.retry = Some(Arc::new(policy));
        };
        let mut rig = Rig::new(plan);
        let busy = format!("HTTP/1.1 503 Busy\r\n{field}\r\nContent-Length: 0\r\n\r\n");
        rig.script = Some(Script { pieces: vec![busy.into_bytes()], close: false });
        let client = rig.connect();
        rig.ask(client, b"GET /case HTTP/1.1\r\nHost: a\r\n\r\n");
        rig.wait(Duration::from_secs(least));
        assert!(least == 0 || rig.take().answers(&[]).whole.is_empty(), "{field}");
        rig.wait(Duration::from_secs(most - least));
        assert_eq!(rig.take().answers(&[]).whole[0].status, 200, "{field}");
    }
}

const LONG: Duration = Duration::from_secs(1);
