//! When a request is tried again, where, and for how long.
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
use scene::bench::Bench;
use scene::filters::{add_asked_cluster, add_filter};
use scene::{Plan, origin_address, retries};
use towpath_engine::filter::ext_authz::{ExtAuthz, HttpService, Server, Service, SharedExtAuthz};
use towpath_engine::header_ops::HeaderMutations;
use towpath_engine::matcher::{HeaderMatcher, HeaderTest};
use towpath_engine::snapshot::cluster::{Balancer, Balancing};
use towpath_engine::snapshot::route::{
    Forward, HeaderOps, Mirror, MirrorCluster, OmittedHosts, RateLimitedBackOff, ResetHeader,
    RetryOn, RetryPolicy,
};
use towpath_engine::stream_info::Value;
use towpath_proto::{Address, HeaderName};

#[test]
fn the_time_for_one_attempt_does_not_go_on_while_the_next_is_waited_for() {
    for is_idle in [false, true] {
        let mut plan = Plan::new(1);
        plan.adjust_forward = match is_idle {
            false => |forward| waits_long(forward, |policy| policy.per_try_timeout = Some(SHORT)),
            true => |forward| waits_long(forward, |it| it.per_try_idle_timeout = Some(SHORT)),
        };
        let mut rig = Rig::new(plan);
        let busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec();
        rig.script = Some(Script { pieces: vec![busy], close: false });
        let client = rig.connect();
        let outcome = rig.ask(client, b"GET /case HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(outcome.received.escape_ascii().to_string(), "", "it is tried again");
        // The wait is drawn below `LONG`; the time for an attempt is a thousandth of it.
        rig.wait(SHORT);
        rig.wait(LONG);
        let outcome = rig.take();
        let answer = &outcome.answers(&[]).whole[0];
        assert_eq!(answer.status, 200, "idle: {is_idle}");
        assert!(answer.keeps_alive());
    }
}

fn waits_long(forward: &mut Forward, adjust: fn(&mut RetryPolicy)) {
    let mut policy = retries(RetryOn::STATUS_5XX, 1);
    adjust(&mut policy);
    (policy.base_interval, policy.max_interval) = (LONG, LONG);
    forward.timeout = None;
    forward.retry = Some(Arc::new(policy));
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

/// Envoy's `omit_canary_hosts`: canaries have their share of the first attempts and none of the others.
#[test]
fn a_canary_gets_first_attempts_and_no_retries() {
    let mut plan = Plan::new(2);
    let mut endpoints = plan.cluster.endpoints.to_vec();
    let canary = [("canary".into(), Value::Bool(true))].into();
    let metadata = [("envoy.lb".into(), Value::Struct(canary))].into();
    endpoints[0].filter_metadata = Some(Arc::new(metadata));
    plan.cluster.endpoints = endpoints.into();
    plan.adjust_forward = |forward| {
        let mut policy = retries(RetryOn::STATUS_5XX, 1);
        (policy.omitted, policy.host_attempts) = (Some([OmittedHosts::Canaries].into()), 10);
        forward.retry = Some(Arc::new(policy));
    };
    let mut bench = Bench::of(plan.snapshot());
    // Each attempt has a connection of its own, and so says where it goes.
    let last = |bench: &Bench| bench.asked.last().unwrap().1.clone();
    let mut firsts: Vec<Address> = Vec::new();
    for _ in 0..8 {
        assert!(bench.ask(GET).starts_with(b"GET / "));
        firsts.push(last(&bench));
        assert!(bench.answer(BUSY).is_empty());
        assert!(bench.wait(25).starts_with(b"GET / "));
        assert_eq!(last(&bench), origin_address(2));
        assert!(bench.answer(OK).starts_with(b"HTTP/1.1 200 "));
    }
    firsts.sort();
    firsts.dedup();
    assert_eq!(firsts, [origin_address(1), origin_address(2)]);
}

/// Envoy's `previous_hosts`: the hosts that a request has been to are not picked again.
#[test]
fn a_retry_goes_to_another_host() {
    let mut plan = Plan::new(2);
    plan.cluster.balancing = Balancing::new(Balancer::Random);
    plan.adjust_forward = |forward| {
        let mut policy = retries(RetryOn::STATUS_5XX, 1);
        (policy.avoid_previous_hosts, policy.host_attempts) = (true, 100);
        forward.retry = Some(Arc::new(policy));
    };
    let mut bench = Bench::of(plan.snapshot());
    for _ in 0..16 {
        bench.ask(GET);
        assert!(bench.answer(BUSY).is_empty());
        assert!(bench.wait(25).starts_with(b"GET / "));
        assert!(bench.answer(OK).starts_with(b"HTTP/1.1 200 "));
    }
    for attempts in bench.asked.chunks(2) {
        assert_ne!(attempts[0].1, attempts[1].1);
    }
}

/// The wait is drawn below a bound that doubles with each retry.
#[test]
fn waits_grow() {
    let mut plan = Plan::new(1);
    plan.adjust_forward = |forward| {
        let mut policy = retries(RetryOn::STATUS_5XX, 12);
        (policy.base_interval, policy.max_interval) = (Duration::from_millis(1), LONG);
        (forward.timeout, forward.retry) = (None, Some(Arc::new(policy)));
    };
    let mut bench = Bench::of(plan.snapshot());
    bench.ask(GET);
    let mut longest = 0;
    for retry in 0..12 {
        assert!(bench.answer(BUSY).is_empty());
        let bound = (1 << retry).min(LONG.as_millis() as u64);
        let wait = (1..=bound).find(|_| !bench.wait(1).is_empty());
        longest = longest.max(wait.expect("it is tried again within its bound"));
    }
    assert!(longest > 100, "{longest}");
}

/// Envoy's `retriable-4xx` is about 409 alone.
#[test]
fn of_a_clients_errors_a_conflict_is_tried_again() {
    for (status, is_retried) in [(408, false), (409, true), (410, false), (429, false)] {
        let mut plan = Plan::new(1);
        plan.adjust_forward =
            |forward| forward.retry = Some(Arc::new(retries(RetryOn::STATUS_4XX, 1)));
        let mut bench = Bench::of(plan.snapshot());
        bench.ask(GET);
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(bench.answer(answer.as_bytes()).is_empty(), is_retried, "{status}");
    }
}

/// Envoy's `retriable-headers`: an answer is tried again for what it says, whatever its status.
#[test]
fn an_answer_with_a_field_of_the_policy_is_tried_again_where_fields_count() {
    let answer = |field| format!("HTTP/1.1 200 OK\r\n{field}Content-Length: 0\r\n\r\n");
    let again = answer("X-Again: 1\r\n");
    for (on, answer, is_retried) in [
        (RetryOn::HEADERS, &again, true),
        (RetryOn::HEADERS, &answer(""), false),
        (RetryOn::STATUS_5XX, &again, false),
    ] {
        let looks: fn(&mut Forward) = |forward| looks_for_again(forward, RetryOn::HEADERS);
        let ignores: fn(&mut Forward) = |forward| looks_for_again(forward, RetryOn::STATUS_5XX);
        let mut plan = Plan::new(1);
        plan.adjust_forward = if on == RetryOn::HEADERS { looks } else { ignores };
        let mut bench = Bench::of(plan.snapshot());
        bench.ask(GET);
        assert_eq!(bench.answer(answer.as_bytes()).is_empty(), is_retried, "{on:?}, {answer}");
        assert_eq!(bench.wait(25).starts_with(b"GET / "), is_retried, "{on:?}, {answer}");
    }
}

fn looks_for_again(forward: &mut Forward, on: RetryOn) {
    let mut policy = retries(on, 1);
    policy.headers.push(HeaderMatcher::new("x-again", HeaderTest::Present(true)).unwrap());
    forward.retry = Some(Arc::new(policy));
}

/// What a filter asks is told how long it has: for one attempt, or for all of them where that is less.
#[test]
fn the_time_for_one_attempt_counts_where_it_is_shorter_than_that_for_all() {
    for (per_try, told) in [(300, "300"), (499, "499"), (500, "500"), (700, "500")] {
        let mut policy = retries(RetryOn::STATUS_5XX, 1);
        policy.per_try_timeout = Some(Duration::from_millis(per_try));
        let service = HttpService {
            cluster: "authz".into(),
            path_prefix: "".into(),
            path: "".into(),
            headers: HeaderOps::default(),
            upstream: Vec::new(),
            appended: Vec::new(),
            client: Vec::new(),
            client_on_success: Vec::new(),
            metadata: Vec::new(),
            retry: Some(Arc::new(policy)),
        };
        let server = Server {
            service: Service::Http(Box::new(service)),
            timeout: Duration::from_millis(500),
        };
        let config = ExtAuthz::new(Arc::new(server), "".into());
        let mut snapshot = Plan::new(1).snapshot();
        add_asked_cluster(&mut snapshot, "authz");
        add_filter(&mut snapshot, "authz", SharedExtAuthz(Arc::new(config)));
        let asked = Bench::of(snapshot).ask(GET).escape_ascii().to_string();
        let wanted = format!("x-envoy-expected-rq-timeout-ms: {told}\\r\\n");
        assert!(asked.contains(&wanted), "{per_try}: {asked}");
    }
}

/// What a cluster says counts in place of what the route says, but for the time of one attempt.
#[test]
fn a_clusters_policy_takes_the_place_of_its_routes() {
    for (most, is_retried) in [(1, true), (0, false)] {
        let mut plan = Plan::new(1);
        plan.adjust_forward = |forward| forward.retry = Some(retries(RetryOn::RESET, 4).into());
        let mut policy = retries(RetryOn::STATUS_5XX, most);
        policy.per_try_timeout = Some(SHORT);
        plan.cluster.retry = Some(Arc::new(policy));
        let mut bench = Bench::of(plan.snapshot());
        bench.ask(GET);
        assert_eq!(bench.wait(10).escape_ascii().to_string(), "");
        assert_eq!(bench.answer(BUSY).is_empty(), is_retried, "{most}");
        assert_eq!(bench.wait(25).starts_with(b"GET / "), is_retried, "{most}");
    }
}

/// Envoy copies without end.
#[test]
fn of_a_cluster_that_mirrors_to_itself_there_are_few_copies() {
    let mut plan = Plan::new(1);
    let mirror = Mirror {
        cluster: MirrorCluster::Named("app".into()),
        share: None,
        marks_host: true,
        host: None,
        ops: HeaderMutations::default(),
        is_sampled: None,
    };
    plan.cluster.mirrors = Some([mirror].into());
    let sent = Bench::of(plan.snapshot()).ask(GET);
    let sent = String::from_utf8_lossy(&sent).into_owned();
    assert_eq!(sent.matches("GET / HTTP/1.1\r\n").count(), 9, "{sent}");
    assert_eq!(sent.matches("host: a-shadow-shadow\r\n").count(), 1, "{sent}");
}

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(1);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
