//! What access-log lines say of a stream: its status, bytes, flags, attempts and times, whatever became of it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::sync::Arc;
use std::time::Duration;

use scene::bench::Bench;
use scene::{Plan, TCP, retries};
use towpath_engine::format::Format;
use towpath_engine::snapshot::http::Upgrade;
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::log::Sink;
use towpath_engine::snapshot::route::{Action, PathMatch, RetryOn, RetryPolicy, Text};
use towpath_engine::snapshot::{AccessLog, Http2, SinkId, Snapshot};
use towpath_proto::{Failure, Input};

/// Where each line comes from, what became of the stream, its bytes, and when what was over.
const FORMAT: &str = concat!(
    "%DOWNSTREAM_REMOTE_ADDRESS% %PROTOCOL% %UPSTREAM_PROTOCOL% %ACCESS_LOG_TYPE%: ",
    "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%; ",
    "%UPSTREAM_REQUEST_ATTEMPT_COUNT% to %UPSTREAM_HOST% of %UPSTREAM_CLUSTER%; ",
    "bytes %BYTES_RECEIVED% %BYTES_SENT%, ",
    "wire %DOWNSTREAM_WIRE_BYTES_RECEIVED% %DOWNSTREAM_WIRE_BYTES_SENT%, ",
    "upstream %UPSTREAM_WIRE_BYTES_SENT% %UPSTREAM_WIRE_BYTES_RECEIVED%; ",
    "ms %REQUEST_DURATION% %REQUEST_TX_DURATION% %RESPONSE_DURATION% %RESPONSE_TX_DURATION% %DURATION%\n",
);

/// A worker that logs. Its next stream is made in the memory of one that was whole and had other numbers.
fn bench() -> Bench {
    let mut plan = Plan::new(1);
    let prefix = Text { bytes: (*b"/app").into(), case_sensitive: true };
    plan.path = Some(PathMatch::Prefix(prefix));
    plan.adjust_forward = |forward| {
        forward.timeout = Some(Duration::from_millis(700));
        forward.retry = Some(Arc::new(retries(RetryOn::STATUS_5XX, 1)));
    };
    plan.adjust_http = |http| {
        http.access_logs.push(log());
        http.upgrades.push(Upgrade {
            kind: "websocket".into(),
            enabled: true,
            connect: None,
            chain: None,
        });
    };
    let mut snapshot = plan.snapshot();
    let chain = &mut Arc::get_mut(&mut snapshot.listeners[1]).unwrap().chains[0];
    let Terminal::Tcp(tcp) = &mut Arc::get_mut(chain).unwrap().terminal else { panic!() };
    Arc::get_mut(tcp).unwrap().access_logs.push(log());
    snapshot.sinks.push(Sink::Stdout);
    let mut bench = Bench::of(snapshot);
    bench.ask(b"POST /app HTTP/1.1\r\nHost: before\r\nContent-Length: 5000\r\n\r\n");
    bench.wait(3);
    bench.ask(&[b'x'; 5000]);
    bench.wait(5);
    bench.answer(b"HTTP/1.1 201 Created\r\nContent-Length: 900\r\n\r\n");
    bench.wait(7);
    bench.answer(&[b'y'; 900]);
    line(&mut bench);
    bench
}

fn log() -> AccessLog {
    let format = Format::parse(FORMAT).unwrap();
    AccessLog::lines(format, SinkId(0))
}

/// The one line that is written.
fn line(bench: &mut Bench) -> String {
    bench.wait(150);
    let lines = std::mem::take(&mut bench.lines);
    let [line] = <[String; 1]>::try_from(lines).unwrap();
    line
}

const GET: &[u8] = b"GET /app HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn an_answered_request() {
    let mut bench = bench();
    let head = b"POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n";
    let mut up = bench.ask(head).len() + bench.ask(b"abc").len();
    bench.wait(2);
    up += bench.ask(b"def").len();
    bench.wait(4);
    let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\n";
    let mut down = bench.answer(answer).len();
    bench.wait(8);
    down += bench.answer(b"0123456789").len();
    let (received, sent) = (head.len() + 6, answer.len() + 10);
    assert_eq!(
        line(&mut bench),
        format!(
            "10.0.9.9:999 HTTP/1.1 HTTP/1.1 DownstreamEnd: 404 - via_upstream; 1 to 10.0.1.1:8080 of app; \
             bytes 6 10, wire {received} {down}, upstream {up} {sent}; ms 2 2 6 8 14"
        )
    );
}

#[test]
fn one_that_was_sent_twice() {
    let mut bench = bench();
    let mut up = bench.ask(GET).len();
    bench.wait(2);
    let busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
    bench.answer(busy);
    up += bench.wait(100).len();
    bench.wait(16);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1";
    let down = bench.answer(answer);
    let text = down.escape_ascii().to_string();
    assert!(text.contains("x-envoy-upstream-service-time: 118\\r"), "with all attempts: {text}");
    let down = down.len();
    let (received, sent) = (GET.len(), busy.len() + answer.len());
    assert_eq!(
        line(&mut bench),
        format!(
            "10.0.9.9:999 HTTP/1.1 HTTP/1.1 DownstreamEnd: 200 - via_upstream; 2 to 10.0.1.1:8080 of app; \
             bytes 0 1, wire {received} {down}, upstream {up} {sent}; ms 0 102 118 0 118"
        )
    );
}

#[test]
fn a_local_reply() {
    let mut bench = bench();
    let request = b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n";
    let (received, down) = (request.len(), bench.ask(request).len());
    assert_eq!(
        line(&mut bench),
        format!(
            "10.0.9.9:999 HTTP/1.1 - DownstreamEnd: 404 NR route_not_found; 0 to - of -; \
             bytes 0 0, wire {received} {down}, upstream 0 0; ms 0 - - - 0"
        )
    );
    // To a request that an origin does not answer.
    let up = bench.ask(GET).len();
    let (received, down) = (GET.len(), bench.wait(700).len());
    assert_eq!(
        line(&mut bench),
        format!(
            "10.0.9.9:999 HTTP/1.1 HTTP/1.1 DownstreamEnd: 504 UT response_timeout; 1 to 10.0.1.1:8080 of app; \
             bytes 0 24, wire {received} {down}, upstream {up} 0; ms 0 0 - - 700"
        )
    );
}

#[test]
fn one_whose_origin_goes_away() {
    let mut bench = bench();
    let up = bench.ask(GET).len();
    bench.wait(4);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n012";
    let down = bench.answer(answer).len();
    bench.wait(8);
    let connection = bench.origin.unwrap();
    bench.give(Input::Closed { connection, failure: Failure::Reset });
    let (received, sent) = (GET.len(), answer.len());
    assert_eq!(
        line(&mut bench),
        format!(
            "10.0.9.9:999 HTTP/1.1 HTTP/1.1 DownstreamEnd: 200 UPE \
             upstream_reset_after_response_started{{protocol_error}}; \
             1 to 10.0.1.1:8080 of app; \
             bytes 0 3, wire {received} {down}, upstream {up} {sent}; ms 0 0 4 - 12"
        )
    );
}

#[test]
fn one_whose_client_goes_away() {
    let mut bench = bench();
    let head = b"POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc";
    let up = bench.ask(head).len();
    bench.wait(8);
    let connection = bench.client;
    bench.give(Input::Closed { connection, failure: Failure::Reset });
    let received = head.len();
    assert_eq!(
        line(&mut bench),
        format!(
            "10.0.9.9:999 HTTP/1.1 HTTP/1.1 DownstreamEnd: 0 DC downstream_remote_disconnect; 1 to 10.0.1.1:8080 of \
             app; bytes 3 0, wire {received} 0, upstream {up} 0; ms - - - - 8"
        )
    );
}

/// The origin's frames are SETTINGS and a head of `:status: 200` that ends its stream (RFC 9113 §4.1, RFC 7541 §6.1).
#[test]
fn one_that_goes_on_over_http2() {
    let mut plan = Plan::new(1);
    let (options, choice) = (Arc::default(), Choice::Always);
    plan.cluster.http2 = Some(Arc::new(Http2 { options, choice, keepalive: None }));
    plan.adjust_http = |http| http.access_logs.push(log());
    let mut snapshot = plan.snapshot();
    snapshot.sinks.push(Sink::Stdout);
    let mut bench = Bench::of(snapshot);
    assert!(bench.ask(GET).starts_with(b"PRI * HTTP/2.0\r\n"));
    bench.answer(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x88");
    let line = line(&mut bench);
    let wanted = "10.0.9.9:999 HTTP/1.1 HTTP/2 DownstreamEnd: 200 - via_upstream; 1 to";
    assert!(line.starts_with(wanted), "{line}");
}

#[test]
fn a_websocket() {
    let mut bench = bench();
    let request =
        b"GET /app HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut up = bench.ask(request).len();
    bench.wait(4);
    let answer =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut down = bench.answer(answer).len();
    bench.wait(8);
    up += bench.ask(b"four").len();
    down += bench.answer(b"three").len();
    bench.wait(16);
    for connection in [bench.client, bench.origin.unwrap()] {
        bench.give(Input::Ended { connection });
        bench.sent();
    }
    let (received, sent) = (request.len() + 4, answer.len() + 5);
    assert_eq!(
        line(&mut bench),
        format!(
            "10.0.9.9:999 HTTP/1.1 HTTP/1.1 DownstreamEnd: 101 - via_upstream; 1 to 10.0.1.1:8080 of app; \
             bytes 4 5, wire {received} {down}, upstream {up} {sent}; ms 28 28 4 24 28"
        )
    );
}

#[test]
fn a_connection_of_tcp() {
    let mut bench = bench();
    bench.accept(TCP);
    assert_eq!(bench.ask(b"four"), b"four");
    bench.wait(2);
    bench.answer(b"three");
    bench.wait(4);
    for connection in [bench.client, bench.origin.unwrap()] {
        bench.give(Input::Ended { connection });
        bench.sent();
    }
    assert_eq!(
        line(&mut bench),
        "10.0.9.9:999 - - TcpConnectionEnd: 0 - -; 1 to 10.0.1.1:8080 of app; \
         bytes 4 5, wire 4 5, upstream 4 5; ms 6 6 - - 6"
    );
}

/// Of each attempt: its time begins when all of the request is here, and the answer's pieces must follow one another.
#[test]
fn attempts_that_take_too_long() {
    let slow = |adjust: fn(&mut RetryPolicy)| {
        let mut plan = Plan::new(1);
        plan.adjust_http = |http| http.access_logs.push(log());
        let mut snapshot = plan.snapshot();
        snapshot.sinks.push(Sink::Stdout);
        let mut policy = retries(RetryOn::default(), 1);
        adjust(&mut policy);
        policy_of(&mut snapshot, policy);
        let mut bench = Bench::of(snapshot);
        bench.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
        bench.wait(90);
        bench
    };
    let whole: fn(&mut RetryPolicy) = |it| it.per_try_timeout = Some(Duration::from_millis(50));
    let idle: fn(&mut RetryPolicy) = |it| it.per_try_idle_timeout = Some(Duration::from_millis(50));
    for (adjust, details) in
        [(whole, "upstream_per_try_timeout"), (idle, "upstream_per_try_idle_timeout")]
    {
        let mut bench = slow(adjust);
        bench.ask(b"c");
        assert!(bench.wait(49).is_empty());
        assert!(bench.wait(1).starts_with(b"HTTP/1.1 504 "));
        let line = line(&mut bench);
        assert!(line.contains(&format!(": 504 UT {details}; 1 to")), "{line}");
    }
    // Once the answer has begun the first of them is over, and the second begins anew with each piece.
    for (adjust, end) in [
        (whole, "200 - via_upstream; 1 to 10.0.1.1:8080 of app; bytes 3 3"),
        (idle, "200 UT upstream_per_try_idle_timeout; 1 to 10.0.1.1:8080 of app; bytes 3 2"),
    ] {
        let mut bench = slow(adjust);
        bench.ask(b"c");
        bench.wait(40);
        bench.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n0");
        bench.wait(40);
        bench.answer(b"1");
        bench.wait(49);
        assert!(bench.closed.is_empty());
        bench.wait(1);
        bench.answer(b"2");
        let line = line(&mut bench);
        assert!(line.contains(end), "{line}");
    }
}

/// The first route's.
fn policy_of(snapshot: &mut Snapshot, policy: RetryPolicy) {
    let chain = &mut Arc::get_mut(&mut snapshot.listeners[0]).unwrap().chains[0];
    let Terminal::Http(http) = &mut Arc::get_mut(chain).unwrap().terminal else { panic!() };
    let table = Arc::get_mut(&mut Arc::get_mut(http).unwrap().routes).unwrap();
    let route = Arc::get_mut(&mut table.hosts[0].routes[0]).unwrap();
    let Action::Forward(forward) = &mut route.action else { panic!() };
    forward.retry = Some(Arc::new(policy));
}

/// Lines about a stream that goes on say what is so by then, and do not change the last one.
#[test]
fn one_that_is_under_way() {
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| {
        http.access_logs.push(log());
        http.log_on_new_request = true;
        http.log_flush_interval = Some(Duration::from_millis(1000));
    };
    let mut snapshot = plan.snapshot();
    snapshot.sinks.push(Sink::Stdout);
    let mut bench = Bench::of(snapshot);
    let up = bench.ask(GET).len();
    let received = GET.len();
    bench.wait(100);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n012";
    let down = bench.answer(answer).len();
    bench.wait(900);
    bench.answer(b"3456789");
    bench.wait(100);
    let wire = format!("wire {received} {}, upstream {up} {}", down + 7, answer.len() + 7);
    let host = "1 to 10.0.1.1:8080 of app";
    assert_eq!(
        bench.lines,
        [
            "10.0.9.9:999 HTTP/1.1 - DownstreamStart: 0 - -; 0 to - of app; \
             bytes 0 0, wire 0 0, upstream 0 0; ms 0 - - - 0",
            &format!(
                "10.0.9.9:999 HTTP/1.1 HTTP/1.1 DownstreamPeriodic: 200 - via_upstream; {host}; \
                 bytes 0 3, wire 0 0, upstream 0 0; ms 0 0 100 - 1000"
            ),
            &format!(
                "10.0.9.9:999 HTTP/1.1 HTTP/1.1 DownstreamEnd: 200 - via_upstream; {host}; \
                 bytes 0 10, {wire}; ms 0 0 100 900 1000"
            ),
        ]
    );
}
