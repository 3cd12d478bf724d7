//! What bounds one request or one connection holds to the millisecond and to the last one, and no longer than it must.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::sync::Arc;
use std::time::Duration;

use scene::bench::Bench;
use scene::{HTTP, Plan, TCP, address, origin_address, retries};
use towpath_engine::filter::csrf::CsrfPolicy;
use towpath_engine::filter::local_ratelimit::{HostLimits, Limit, LocalRateLimit, Tokens};
use towpath_engine::filter::{ChainFilter, FilterConfig};
use towpath_engine::format::Format;
use towpath_engine::message::{FromWorker, Message, ToWorker};
use towpath_engine::snapshot::health::{Comparison, HealthFlags, OutlierDetection, Rule, Run};
use towpath_engine::snapshot::http::{Http, Upgrade};
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::log::Sink;
use towpath_engine::snapshot::route::{Forward, Fraction, HeaderOps, RetryOn};
use towpath_engine::snapshot::{AccessLog, SinkId, Snapshot};
use towpath_proto::{ConnectionId, Failure, Input};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn bench(adjust_forward: fn(&mut Forward), adjust_http: fn(&mut Http)) -> Bench {
    let mut plan = Plan::new(1);
    (plan.adjust_forward, plan.adjust_http) = (adjust_forward, adjust_http);
    Bench::of(plan.snapshot())
}

fn log(format: &str) -> AccessLog {
    AccessLog::lines(Format::parse(format).unwrap(), SinkId(0))
}

#[test]
fn a_policy_has_so_many_retries_with_waits_that_stop_growing() {
    let mut plan = Plan::new(1);
    // One at a time: each gives its place back.
    plan.cluster.limits.retries = 1;
    plan.adjust_forward = |forward| {
        let mut policy = retries(RetryOn::STATUS_5XX, 6);
        policy.base_interval = Duration::from_millis(20);
        policy.max_interval = Duration::from_millis(30);
        forward.retry = Some(Arc::new(policy));
    };
    let mut bench = Bench::of(plan.snapshot());
    assert!(!bench.ask(GET).is_empty());
    for retry in 1..=6 {
        assert!(bench.answer(BUSY).is_empty(), "retry {retry}");
        assert!(bench.wait(30).starts_with(b"GET / "), "retry {retry}");
    }
    assert!(bench.answer(BUSY).starts_with(b"HTTP/1.1 503 "));
    assert_eq!(bench.number("cluster.app.upstream_rq_retry"), 6);
    assert_eq!(bench.number("cluster.app.upstream_rq_retry_limit_exceeded"), 1);
}

/// A fifth of one request is none.
#[test]
fn a_budget_lets_its_least_number_of_retries_through() {
    for least in [0, 1] {
        let mut plan = Plan::new(1);
        plan.cluster.limits.retry_budget = Some((2000, least));
        plan.adjust_forward =
            |forward| forward.retry = Some(Arc::new(retries(RetryOn::STATUS_5XX, 1)));
        let mut bench = Bench::of(plan.snapshot());
        bench.ask(GET);
        assert_eq!(bench.answer(BUSY).is_empty(), least == 1);
        assert_eq!(bench.wait(25).starts_with(b"GET / "), least == 1);
        assert_eq!(bench.number("cluster.app.upstream_rq_retry_overflow"), u64::from(1 - least));
    }
}

/// A fifth of those that began within the interval, whether they are over or not.
#[test]
fn a_budget_of_an_interval_counts_requests_that_are_over() {
    let mut plan = Plan::new(1);
    plan.cluster.limits.retry_budget = Some((2000, 0));
    plan.cluster.limits.budget_interval = Some(Duration::from_secs(1));
    plan.adjust_forward = |forward| forward.retry = Some(Arc::new(retries(RetryOn::STATUS_5XX, 1)));
    let mut bench = Bench::of(plan.snapshot());
    (0..4).for_each(|_| drop(bench.exchange(GET, OK)));
    bench.ask(GET);
    assert!(bench.answer(BUSY).is_empty(), "the fifth is tried again");
    assert!(bench.wait(25).starts_with(b"GET / "));
    assert!(bench.answer(OK).starts_with(b"HTTP/1.1 200 "));
    bench.wait(1000);
    bench.ask(GET);
    assert!(bench.answer(BUSY).starts_with(b"HTTP/1.1 503 "));
}

/// The monitor leaves such a host out.
#[test]
fn answers_that_do_not_come_are_errors_of_their_host() {
    let mut plan = Plan::new(1);
    plan.cluster.outliers = Some(Box::new(outliers(2)));
    plan.adjust_forward = |forward| forward.timeout = Some(Duration::from_millis(50));
    let mut bench = Bench::of(plan.snapshot());
    for late in [0, 1] {
        assert_eq!(streaks(&bench), 0, "{late}");
        bench.ask(GET);
        assert!(bench.wait(50).starts_with(b"HTTP/1.1 504 "));
    }
    assert_eq!(streaks(&bench), 1);
}

/// A server may end an idle connection while a request is on its way there: one that may be repeated is.
#[test]
fn what_met_a_closing_connection_is_sent_once_more_unless_the_policy_has_no_retries() {
    let never: fn(&mut Forward) =
        |forward| forward.retry = Some(Arc::new(retries(RetryOn::default(), 0)));
    for (adjust, again) in [((|_| {}) as fn(&mut Forward), true), (never, false)] {
        let mut bench = bench(adjust, |_| {});
        bench.exchange(GET, OK);
        bench.ask(GET);
        let connection = bench.origin.unwrap();
        bench.give(Input::Ended { connection });
        let sent = bench.sent();
        let wanted: &[u8] = if again { b"GET / " } else { b"HTTP/1.1 503 " };
        assert!(sent.starts_with(wanted), "{}", sent.escape_ascii());
        assert_eq!(bench.connects, 1 + u32::from(again));
    }
}

/// What a server has of a request that may not be repeated is not sent to it again.
#[test]
fn what_must_not_be_repeated_fails_where_its_connection_was_closing() {
    let whole = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let mut bench = bench(|_| {}, |_| {});
    bench.exchange(GET, OK);
    assert!(bench.ask(whole).starts_with(b"POST / "));
    let connection = bench.origin.unwrap();
    bench.give(Input::Ended { connection });
    let sent = bench.sent();
    assert!(sent.starts_with(b"HTTP/1.1 503 "), "{}", sent.escape_ascii());
    assert_eq!(bench.connects, 1);
}

/// A request that met a closing connection is sent on one of its own, not on the next that another has used.
#[test]
fn what_met_a_closing_connection_waits_for_a_new_one() {
    let mut bench = bench(|_| {}, |_| {});
    bench.exchange(GET, OK);
    let (first, closing) = (bench.client, bench.origin.unwrap());
    bench.ask(GET);
    bench.accept(HTTP);
    bench.ask(GET);
    assert_eq!(bench.connects, 2);
    bench.silent = vec![origin_address(1)];
    bench.give(Input::Ended { connection: closing });
    assert!(bench.sent().is_empty());
    let (attempt, _) = bench.asked[2].clone();
    let sent = bench.answer(OK).escape_ascii().to_string();
    assert!(sent.starts_with("HTTP/1.1 200 ") && !sent.contains("GET / "), "{sent}");
    assert!(!bench.closed.contains(&first));
    let local = address(([10, 0, 0, 1], 40_000));
    let connection = ConnectionId::new(9, 1);
    bench.give(Input::Connected { attempt, connection, local });
    assert!(bench.sent().starts_with(b"GET / "));
}

/// A server that lets connections go after five seconds may do so while a request is on its way: the last second of
/// that is left to what can be repeated.
#[test]
fn what_must_not_be_repeated_gets_no_connection_in_its_last_second() {
    let patient = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n";
    let never: fn(&mut Forward) =
        |forward| forward.retry = Some(Arc::new(retries(RetryOn::default(), 0)));
    let usual: fn(&mut Forward) = |_| {};
    for (adjust, request, idle, connects) in [
        (usual, POST, 3900, 1),
        (usual, POST, 4100, 2),
        (usual, GET, 4100, 1),
        (never, GET, 3900, 1),
        (never, GET, 4100, 2),
    ] {
        let mut bench = bench(adjust, |_| {});
        bench.exchange(GET, patient);
        bench.oversleep(idle);
        bench.ask(request);
        assert_eq!(bench.connects, connects, "{} after {idle} ms", request.escape_ascii());
    }
}

/// What two deadlines end at the same time ends once: the request behind it has its own time.
#[test]
fn a_deadline_does_not_pass_for_the_next_request_of_a_connection() {
    let mut bench = bench(
        |forward| forward.timeout = Some(Duration::from_millis(50)),
        |http| http.stream_idle_timeout = Some(Duration::from_millis(50)),
    );
    bench.ask(&GET.repeat(2));
    let sent = bench.wait(50).escape_ascii().to_string();
    assert_eq!(sent.matches("HTTP/1.1 504 ").count(), 1, "{sent}");
    assert!(sent.contains("GET / "), "{sent}");
    assert!(bench.answer(OK).starts_with(b"HTTP/1.1 200 "));
}

#[test]
fn an_answer_of_our_own_to_a_head_request_has_no_content() {
    let mut plan = Plan::new(1);
    plan.cluster.limits.requests = 0;
    plan.adjust_http = |http| http.access_logs.push(log("%RESPONSE_CODE% %BYTES_SENT%\n"));
    let mut snapshot = plan.snapshot();
    snapshot.sinks.push(Sink::Stdout);
    let mut bench = Bench::of(snapshot);
    let answer = bench.ask(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 503 "), "{}", answer.escape_ascii());
    assert!(answer.ends_with(b"\r\n\r\n"), "{}", answer.escape_ascii());
    bench.wait(100);
    assert_eq!(bench.lines, ["503 0"]);
}

/// A limit never makes a host unreachable.
#[test]
fn a_host_has_its_first_connection_whatever_the_limit() {
    let mut plan = Plan::new(1);
    plan.cluster.limits.connections = 0;
    let mut bench = Bench::of(plan.snapshot());
    assert!(bench.ask(GET).starts_with(b"GET / "));
    bench.accept(HTTP);
    assert!(bench.ask(GET).is_empty());
    assert_eq!((bench.connects, bench.number("cluster.app.upstream_cx_overflow")), (1, 2));
}

/// A request that wants a new connection is not held up by one that another request has left, and no limit is passed.
#[test]
fn a_connection_makes_room_for_a_new_one() {
    let mut plan = Plan::new(1);
    plan.cluster.limits.connections = 2;
    let mut bench = Bench::of(plan.snapshot());
    bench.exchange(GET, OK);
    let closing = bench.origin.unwrap();
    bench.ask(GET);
    bench.accept(HTTP);
    bench.ask(GET);
    let second = bench.origin.unwrap();
    bench.accept(HTTP);
    assert!(bench.ask(GET).is_empty(), "it waits for one of the two");
    bench.give(Input::Ended { connection: closing });
    assert!(bench.sent().starts_with(b"GET / "), "its turn comes with the third connection");
    assert_eq!(bench.connects, 3);
    bench.give(Input::Received { connection: second, chunk: OK.into() });
    let sent = bench.sent().escape_ascii().to_string();
    assert!(sent.contains("GET / "), "the one that met the closing connection: {sent}");
    assert_eq!((bench.connects, bench.closed.contains(&second)), (4, true));
}

/// Where only its end ends an answer, a reset says that it is not whole.
#[test]
fn an_answer_that_stops_early_is_not_taken_for_whole() {
    for (version, length, is_reset) in [
        ("1.1", "Transfer-Encoding: chunked\r\n\r\n5\r\n", false),
        ("1.0", "Transfer-Encoding: chunked\r\n\r\n5\r\n", true),
        ("1.0", "Content-Length: 9\r\n\r\n", false),
    ] {
        let old: fn(&mut Http) = |http| Arc::make_mut(&mut http.http1).accept_http10 = true;
        let mut bench = bench(|_| {}, old);
        bench.ask(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n").as_bytes());
        bench.answer(format!("HTTP/1.1 200 OK\r\n{length}abc").as_bytes());
        let connection = bench.origin.unwrap();
        bench.give(Input::Ended { connection });
        bench.sent();
        assert!(bench.closed.contains(&bench.client), "{version}, {length}");
        assert_eq!(bench.reset.contains(&bench.client), is_reset, "{version}, {length}");
    }
}

/// An answer without an error says that others than its host would serve better.
#[test]
fn a_host_says_that_it_is_degraded_in_answers_that_are_no_errors() {
    for (status, count) in [(200, 1), (404, 1), (500, 0), (503, 0)] {
        let mut plan = Plan::new(1);
        let detection = OutlierDetection { detects_degraded: true, ..outliers(0) };
        plan.cluster.outliers = Some(Box::new(detection));
        let mut bench = Bench::of(plan.snapshot());
        let field = "X-Envoy-Degraded: 1\r\nContent-Length: 0\r\n\r\n";
        bench.exchange(GET, format!("HTTP/1.1 {status} So\r\n{field}").as_bytes());
        let told = bench.told.iter().filter(|it| matches!(it, FromWorker::Degraded { .. }));
        assert_eq!(told.count(), count, "{status}");
    }
}

/// What is under way on a host that is left out is answered, and none of its connections is used again.
#[test]
fn connections_to_a_host_that_is_left_out_end() {
    for (ejected, failed_check) in [(true, false), (false, true)] {
        let mut snapshot = Plan::new(1).snapshot();
        let cluster = snapshot.intern("app");
        let mut bench = Bench::of(snapshot);
        bench.ask(GET);
        let idle = bench.origin.unwrap();
        bench.accept(HTTP);
        bench.ask(GET);
        let busy = bench.origin.unwrap();
        bench.give(Input::Received { connection: idle, chunk: OK.into() });
        bench.sent();
        let known = HealthFlags { ejected, failed_check, ..HealthFlags::WELL };
        let hosts = Arc::new([(origin_address(1), known)].into());
        bench.give(Input::Message(Message::To(ToWorker::Health { cluster, hosts })));
        bench.sent();
        assert_eq!(bench.closed, [idle]);
        assert!(bench.answer(OK).starts_with(b"HTTP/1.1 200 "));
        assert_eq!(bench.closed, [idle, busy]);
    }
}

/// The time for an answer is none of a tunnel's.
#[test]
fn a_tunnel_outlasts_the_time_for_an_answer() {
    let mut bench = bench(
        |forward| forward.timeout = Some(Duration::from_millis(50)),
        |http| {
            let kind = "websocket".into();
            http.upgrades.push(Upgrade { kind, enabled: true, connect: None, chain: None });
        },
    );
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    bench.ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{upgrade}").as_bytes());
    bench.answer(format!("HTTP/1.1 101 Switching Protocols\r\n{upgrade}").as_bytes());
    let connection = bench.client;
    bench.give(Input::Ended { connection });
    bench.sent();
    assert!(bench.wait(100).is_empty());
    assert!(!bench.closed.contains(&bench.client));
    assert_eq!(bench.answer(b"late"), b"late");
}

/// The errors of a host from before it was left out do not count when it is back.
#[test]
fn a_host_that_comes_back_begins_without_errors() {
    let mut plan = Plan::new(1);
    plan.cluster.outliers = Some(Box::new(outliers(3)));
    let mut snapshot = plan.snapshot();
    let cluster = snapshot.intern("app");
    let mut bench = Bench::of(snapshot);
    let tell = |bench: &mut Bench, ejected| {
        let known = HealthFlags { ejected, ..HealthFlags::WELL };
        let hosts = Arc::new([(origin_address(1), known)].into());
        bench.give(Input::Message(Message::To(ToWorker::Health { cluster, hosts })));
        bench.sent();
    };
    let errors = |bench: &mut Bench, count: u32| {
        (0..count).for_each(|_| drop(bench.exchange(GET, BUSY)));
        streaks(bench)
    };
    assert_eq!(errors(&mut bench, 2), 0);
    tell(&mut bench, true);
    tell(&mut bench, false);
    assert_eq!(errors(&mut bench, 2), 0);
    assert_eq!(errors(&mut bench, 1), 1);
}

/// Runs of gateway errors that the monitor is told of.
fn streaks(bench: &Bench) -> usize {
    let told = bench.told.iter();
    told.filter(|it| matches!(it, FromWorker::ErrorStreak { run: Run::Gateway, .. })).count()
}

/// Looks for so many gateway errors in a row.
fn outliers(threshold: u32) -> OutlierDetection {
    let rule = |threshold| Rule { threshold, enforcing: 100 };
    let (interval, none) = (Duration::from_secs(10), Duration::ZERO);
    OutlierDetection {
        errors: rule(0),
        gateway: rule(threshold),
        local: rule(0),
        split: false,
        interval,
        base_time: interval,
        max_time: interval,
        jitter: none,
        max_percent: 100,
        always_one: false,
        returns_when_checked: true,
        detects_degraded: false,
        comparison: Comparison::default(),
    }
}

#[test]
fn the_time_for_a_request_ends_with_the_request() {
    let limited: fn(&mut Http) = |http| http.request_timeout = Some(Duration::from_millis(50));
    let mut in_time = bench(|_| {}, limited);
    in_time.ask(POST);
    in_time.wait(49);
    in_time.ask(b"abc");
    assert!(in_time.wait(100).is_empty());
    assert!(in_time.answer(OK).starts_with(b"HTTP/1.1 200 "));
    let mut late = bench(|_| {}, limited);
    late.ask(POST);
    assert!(late.wait(49).is_empty());
    assert!(late.wait(1).starts_with(b"HTTP/1.1 408 "));
}

#[test]
fn the_last_request_of_a_connection_is_told() {
    let mut bench = bench(|_| {}, |http| http.max_requests_per_connection = 2);
    let closes = |answer: &[u8]| answer.windows(17).any(|it| it == b"connection: close");
    assert!(!closes(&bench.exchange(GET, OK).1));
    assert!(closes(&bench.exchange(GET, OK).1));
    assert_eq!(bench.closed, [bench.client]);
    assert_eq!(bench.number("http.in.downstream_cx_max_requests_reached"), 1);
}

#[test]
fn a_stream_under_way_is_logged_again_and_again() {
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| {
        http.access_logs.push(log("%ACCESS_LOG_TYPE% %DURATION%\n"));
        http.log_flush_interval = Some(Duration::from_millis(200));
    };
    let mut snapshot = plan.snapshot();
    snapshot.sinks.push(Sink::Stdout);
    let mut bench = Bench::of(snapshot);
    bench.ask(GET);
    (0..8).for_each(|_| drop(bench.wait(100)));
    assert_eq!(bench.lines, [200, 400, 600].map(|ms| format!("DownstreamPeriodic {ms}")));
}

/// Lines are handed over at once where they are many, and after a while where they are few.
#[test]
fn lines_wait_for_company_and_not_for_ever() {
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| http.access_logs.push(log(&["x"; 1000].concat()));
    let mut snapshot = plan.snapshot();
    snapshot.sinks.push(Sink::Stdout);
    let mut bench = Bench::of(snapshot);
    (0..32).for_each(|_| drop(bench.exchange(GET, OK)));
    assert!(bench.lines.is_empty());
    bench.exchange(GET, OK);
    assert_eq!(bench.lines.concat().len(), 33_000);
    bench.exchange(GET, OK);
    bench.wait(99);
    assert_eq!(bench.lines.concat().len(), 33_000);
    bench.wait(1);
    assert_eq!(bench.lines.concat().len(), 34_000);
}

#[test]
fn ends_before_their_time_are_counted() {
    let number = |bench: &Bench, name: &str| bench.number(&format!("http.in.downstream_rq_{name}"));
    let mut answered = bench(|_| {}, |_| {});
    answered.ask(POST);
    answered.answer(OK);
    assert_eq!(number(&answered, "response_before_rq_complete"), 1);
    let mut left = bench(|_| {}, |_| {});
    left.ask(POST);
    let connection = left.client;
    left.give(Input::Closed { connection, failure: Failure::Reset });
    left.sent();
    assert_eq!((number(&left, "rx_reset"), number(&left, "active")), (1, 0));
    let mut whole = bench(|_| {}, |_| {});
    whole.exchange(GET, OK);
    let names = ["response_before_rq_complete", "rx_reset", "active"];
    assert_eq!(names.map(|name| number(&whole, name)), [0, 0, 0]);
}

/// A client that sends its next requests ahead is read as far as its listener's limit.
#[test]
fn what_comes_behind_a_request_is_not_read_without_end() {
    let mut bench = bench(|_| {}, |_| {});
    bench.ask(GET);
    let few = GET.repeat(100);
    let rounds = (1..100).find(|_| {
        bench.ask(&few);
        bench.unread.contains(&bench.client)
    });
    // 16 KiB.
    assert_eq!(rounds, Some(16 * 1024 / few.len() + 1));
    (0..200).for_each(|_| drop(bench.answer(OK)));
    assert!(bench.unread.is_empty(), "there is room again");
}

/// Behind what is not HTTP 64 KiB are taken, so that the answer is not lost to a reset.
#[test]
fn what_comes_behind_a_broken_request_is_not_read_without_end() {
    let mut bench = bench(|_| {}, |_| {});
    assert!(bench.ask(b"no request\r\n\r\n").starts_with(b"HTTP/1.1 400 "));
    for _ in 0..63 {
        bench.ask(&[b'x'; 1024]);
        assert!(bench.unread.is_empty());
    }
    bench.ask(&[b'x'; 1024]);
    assert!(bench.unread.contains(&bench.client));
}

#[test]
fn one_request_too_many_is_refused_and_counted() {
    let mut plan = Plan::new(1);
    plan.cluster.limits.requests = 1;
    let mut bench = Bench::of(plan.snapshot());
    bench.ask(GET);
    bench.accept(HTTP);
    let refusal = bench.ask(GET).escape_ascii().to_string();
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    assert!(refusal.contains("x-envoy-overloaded: true"), "{refusal}");
    assert_eq!(bench.number("cluster.app.upstream_rq_active_overflow"), 1);
}

#[test]
fn a_refusal_says_nothing_of_the_proxy_where_that_is_suppressed() {
    let mut plan = Plan::new(1);
    plan.cluster.limits.requests = 0;
    plan.adjust_http = |http| http.chain.router.suppress_envoy_headers = true;
    let refusal = Bench::of(plan.snapshot()).ask(GET).escape_ascii().to_string();
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    assert!(!refusal.contains("x-envoy-"), "{refusal}");
}

/// A stream whose connect is under way may get a connection that has become free: the next stream has the connect.
#[test]
fn no_more_connects_are_begun_than_streams_wait() {
    let mut bench = bench(|_| {}, |_| {});
    bench.ask(GET);
    bench.silent = vec![origin_address(1)];
    let begun = |bench: &Bench| bench.asked.len();
    bench.accept(HTTP);
    assert!(bench.ask(GET).is_empty());
    assert_eq!(begun(&bench), 2);
    let sent = bench.answer(OK).escape_ascii().to_string();
    assert!(sent.contains("GET / "), "{sent}");
    for connects in [2, 3] {
        bench.accept(HTTP);
        assert!(bench.ask(GET).is_empty());
        assert_eq!(begun(&bench), connects);
    }
}

/// A connection that lay idle for long when its server ended it says how long others may lie; one that was ended early
/// says nothing.
#[test]
fn the_patience_of_a_server_is_learnt_from_ends_that_are_not_early() {
    for (idle, kept) in [(1400, 60_000), (3000, 2000)] {
        let mut bench = bench(|_| {}, |_| {});
        bench.exchange(GET, OK);
        bench.wait(idle);
        let connection = bench.origin.unwrap();
        bench.give(Input::Ended { connection });
        bench.sent();
        bench.closed.clear();
        bench.exchange(GET, OK);
        bench.wait(kept - 1);
        assert!(bench.closed.is_empty(), "{idle}");
        bench.wait(1);
        assert_eq!(bench.closed, [bench.origin.unwrap()], "{idle}");
    }
}

/// A server that is seen to be less patient than it was before is trusted for less.
#[test]
fn the_shortest_patience_of_a_server_counts() {
    let mut bench = bench(|_| {}, |_| {});
    for idle in [5000, 3000] {
        bench.exchange(GET, OK);
        bench.wait(idle);
        let connection = bench.origin.unwrap();
        assert!(bench.closed.is_empty(), "it is the server that ends it, after {idle} ms");
        bench.give(Input::Ended { connection });
        bench.sent();
        bench.closed.clear();
    }
    bench.exchange(GET, OK);
    bench.wait(1999);
    assert!(bench.closed.is_empty());
    bench.wait(1);
    assert_eq!(bench.closed, [bench.origin.unwrap()]);
}

/// What a server says of its patience is taken to be a second less.
#[test]
fn a_connection_is_let_go_before_its_server_does_that() {
    let mut bench = bench(|_| {}, |_| {});
    let patient = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n";
    let (_, answer) = bench.exchange(GET, patient);
    assert!(!answer.windows(8).any(|it| it == b"timeout="), "{}", answer.escape_ascii());
    bench.wait(3999);
    assert!(bench.closed.is_empty());
    bench.wait(1);
    assert_eq!(bench.closed, [bench.origin.unwrap()]);
}

/// Its listener's limit is that of the address, whichever configuration has it.
#[test]
fn a_connection_counts_once_however_often_its_listener_changes() {
    let first = Plan::new(1).snapshot();
    let open = Arc::clone(&first.listeners[0].open);
    let mut bench = Bench::of(first);
    for generation in 2..6 {
        let mut next = Snapshot { generation, ..Plan::new(1).snapshot() };
        Arc::get_mut(&mut next.listeners[0]).unwrap().open = Arc::clone(&open);
        bench.give(Input::Message(Message::To(ToWorker::Snapshot(next.into()))));
        bench.sent();
        assert!(bench.exchange(GET, OK).1.starts_with(b"HTTP/1.1 200 "));
        assert_eq!(open.value(), 1, "generation {generation}");
    }
    let connection = bench.client;
    bench.give(Input::Closed { connection, failure: Failure::Reset });
    bench.sent();
    assert_eq!(open.value(), 0);
}

/// Envoy's `xff_num_trusted_hops`: the nth address from the right, one more where the connection's own is not used.
#[test]
fn the_client_is_who_the_trusted_hops_say() {
    let cases = [
        (true, 0, "10.0.9.9"),
        (true, 1, "2.2.2.2"),
        (true, 2, "1.1.1.1"),
        (false, 0, "2.2.2.2"),
        (false, 1, "1.1.1.1"),
    ];
    for (uses_remote, hops, client) in cases {
        let mut snapshot = Plan::new(1).snapshot();
        snapshot.sinks.push(Sink::Stdout);
        let chain = &mut Arc::get_mut(&mut snapshot.listeners[0]).unwrap().chains[0];
        let Terminal::Http(http) = &mut Arc::get_mut(chain).unwrap().terminal else { panic!() };
        let line = log("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%\n");
        let http = Arc::get_mut(http).unwrap();
        http.access_logs.push(line);
        (http.use_remote_address, http.xff_trusted_hops) = (uses_remote, hops);
        let mut bench = Bench::of(snapshot);
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\n\r\n";
        bench.exchange(request, OK);
        bench.wait(100);
        assert_eq!(bench.lines, [client]);
    }
}

#[test]
fn a_proxy_that_says_it_fails_ends_connections_unless_its_listener_is_for_changes_alone() {
    for modify_only in [false, true] {
        let mut snapshot = Plan::new(1).snapshot();
        Arc::get_mut(&mut snapshot.listeners[0]).unwrap().modify_only = modify_only;
        let mut bench = Bench::of(snapshot);
        bench.give(Input::Message(Message::To(ToWorker::FailHealth(true))));
        bench.exchange(GET, OK);
        assert_eq!(bench.closed.contains(&bench.client), !modify_only);
    }
}

#[test]
fn a_host_has_as_many_connections_as_it_may_have() {
    let mut plan = Plan::new(1);
    plan.cluster.host_connections = [Some(1), None];
    let mut bench = Bench::of(plan.snapshot());
    assert!(bench.ask(GET).starts_with(b"GET "));
    bench.accept(HTTP);
    assert!(bench.ask(GET).is_empty(), "it waits for the one that there is");
    assert_eq!((bench.connects, bench.number("cluster.app.upstream_cx_overflow")), (1, 1));
    let sent = bench.answer(OK).escape_ascii().to_string();
    assert!(sent.contains("HTTP/1.1 200 ") && sent.contains("GET "), "{sent}");
    assert_eq!(bench.connects, 1);
}

#[test]
fn a_tcp_connection_without_a_host_says_that_no_attempt_is_left() {
    let mut bench = Bench::of(logged_tcp("%RESPONSE_FLAGS%\n"));
    bench.refuses = true;
    bench.accept(TCP);
    bench.wait(100);
    assert_eq!(bench.lines, ["UF,URX"]);
}

fn logged_tcp(format: &str) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    snapshot.sinks.push(Sink::Stdout);
    let chain = &mut Arc::get_mut(&mut snapshot.listeners[1]).unwrap().chains[0];
    let Terminal::Tcp(tcp) = &mut Arc::get_mut(chain).unwrap().terminal else { panic!() };
    Arc::get_mut(tcp).unwrap().access_logs.push(log(format));
    snapshot
}

const ALL: Option<Fraction> = Some(Fraction { numerator: 100, denominator: 100 });

fn filter(config: impl FilterConfig + 'static) -> ChainFilter {
    ChainFilter { name: "one".into(), disabled: false, config: Arc::new(config) }
}

#[test]
fn a_request_from_elsewhere_is_refused_where_that_is_enabled_and_counted_where_it_is_shadowed() {
    let strange = b"POST / HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nContent-Length: 0\r\n\r\n";
    for (percent, refused) in [(100, true), (0, false)] {
        let mut plan = Plan::new(1);
        plan.adjust_http = if refused { |http| csrf(http, 100) } else { |http| csrf(http, 0) };
        let mut bench = Bench::of(plan.snapshot());
        let sent = bench.ask(strange);
        assert_eq!(sent.starts_with(b"HTTP/1.1 403 "), refused, "{percent} %");
        assert_eq!(sent.starts_with(b"POST / "), !refused, "{percent} %");
        assert_eq!(bench.number("http.in.csrf.request_invalid"), 1, "{percent} %");
    }
}

fn csrf(http: &mut Http, percent: u32) {
    let enabled = Fraction { numerator: percent, denominator: 100 };
    http.chain.filters.push(filter(CsrfPolicy { enabled, shadow: ALL, origins: Vec::new() }));
}

#[test]
fn more_requests_than_there_are_tokens_are_refused_where_that_is_enforced() {
    for enforced in [true, false] {
        let mut plan = Plan::new(1);
        plan.adjust_http = if enforced { |http| rate(http, ALL) } else { |http| rate(http, None) };
        let mut bench = Bench::of(plan.snapshot());
        (0..2).for_each(|_| assert!(bench.exchange(GET, OK).0.starts_with(b"GET / ")));
        let third = bench.ask(GET);
        assert_eq!(third.starts_with(b"HTTP/1.1 429 "), enforced);
        assert_eq!(third.starts_with(b"GET / "), !enforced);
        let count = |name| bench.number(&format!("few.http_local_rate_limit.{name}"));
        let counts = ["enabled", "ok", "rate_limited", "enforced"].map(count);
        assert_eq!(counts, [3, 2, 1, u64::from(enforced)]);
    }
}

fn rate(http: &mut Http, enforced: Option<Fraction>) {
    let tokens = Tokens { max: 2, per_fill: 1, interval: Duration::from_secs(60) };
    http.chain.filters.push(filter(LocalRateLimit::new(Limit {
        stat_prefix: "few".into(),
        tokens: Some(tokens),
        enabled: ALL,
        enforced,
        status: 429,
        response: HeaderOps::default(),
        unenforced: HeaderOps::default(),
        descriptors: Vec::new(),
        rate_limits: Vec::new(),
        stage: 0,
        host_limits: HostLimits::default(),
        most_values: 20,
        takes_common: true,
        tells: false,
        as_exhausted: false,
    })));
}
