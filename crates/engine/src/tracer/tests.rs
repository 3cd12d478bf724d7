use std::sync::Arc;
use std::time::Duration;

use super::report::{Load, Next, Reporter, Stats};
use super::*;
use crate::filter::{Answer, Failed};
use crate::header_ops::{HeaderOps, Scratch};
use crate::snapshot::tracing::Collector;
use crate::stats::Registry;

fn tracing(sampling: Sampling) -> Tracing {
    Tracing {
        sampling,
        verbose: false,
        max_path: 256,
        tags: Vec::new(),
        spawns_upstream: false,
        operation: None,
        upstream_operation: None,
        phases: false,
        silent: false,
        is_egress: false,
        packs_reason: true,
        draws_by_id: true,
        provider: None,
    }
}

fn share(numerator: u32) -> Fraction {
    Fraction { numerator, denominator: 10_000 }
}

fn head(id: &str, fields: &[(Name, &str)]) -> Head {
    let mut head = Head::request(b"GET", b"http", b"one.test", b"/");
    head.set(Name::XRequestId, id.as_bytes());
    for (name, value) in fields {
        head.set(*name, value.as_bytes());
    }
    head
}

/// Draws 0x2710 + 5 of 10,000.
const ID: &str = "00002715-05d8-4f0e-94a3-879238afd704";

fn decided(sampling: Sampling, fields: &[(Name, &str)]) -> (Reason, String) {
    let mut head = head(ID, fields);
    let reason = decide(&tracing(sampling), sampling, &mut head, &mut Random::new(1));
    (reason, String::from_utf8(head.get(Name::XRequestId).unwrap().to_vec()).unwrap())
}

#[test]
fn the_id_draws_the_share_and_says_why() {
    let random = |numerator| Sampling { random: share(numerator), ..Sampling::ALL };
    assert_eq!(decided(random(5), &[]), (Reason::NotTraceable, ID.to_owned()));
    assert_eq!(decided(random(6), &[]), (Reason::Sampled, ID.replace("-4f", "-9f")));
    let client = [(Name::XClientTraceId, "mine")];
    assert_eq!(decided(random(0), &client), (Reason::Client, ID.replace("-4f", "-bf")));
    let forced = [(Name::XEnvoyForceTrace, "1")];
    assert_eq!(decided(random(0), &forced), (Reason::Forced, ID.replace("-4f", "-af")));
    let none = Sampling { overall: share(5), ..Sampling::ALL };
    assert_eq!(decided(none, &forced), (Reason::NotTraceable, ID.to_owned()));
}

#[test]
fn an_id_that_is_none_is_not_traced_and_stays() {
    for id in ["", "short", "zzzzzzzz-05d8-4f0e-94a3-879238afd704"] {
        let mut head = head(id, &[]);
        let reason = decide(&tracing(Sampling::ALL), Sampling::ALL, &mut head, &mut Random::new(1));
        assert_eq!(reason, Reason::NotTraceable, "{id}");
        assert_eq!(head.get(Name::XRequestId), Some(id.as_bytes()));
    }
}

fn provider(batch: usize, most_waiting: usize) -> Arc<Provider> {
    Arc::new(Provider {
        dialect: Dialect::Zipkin(Zipkin {
            is_binary: false,
            long_ids: false,
            shares: true,
            with_w3c: false,
        }),
        collector: Collector {
            cluster: "spans".into(),
            authority: "spans".into(),
            path: "/api/v2/spans".into(),
            headers: HeaderOps::default(),
            timeout: Duration::from_secs(1),
            is_grpc: false,
            skip_envoy_headers: false,
            retry: None,
        },
        batch,
        interval: Duration::from_secs(5),
        most_waiting,
    })
}

fn reporter(batch: usize, most_waiting: usize, registry: &Registry) -> Reporter {
    let provider = provider(batch, most_waiting);
    let stats = Stats::of(&provider.dialect, registry, 0);
    Reporter::new(provider, stats)
}

fn finished(name: &[u8]) -> Finished {
    let mut span = Span::of(Ids { trace: 1, span: 2, parent: 0 }, true);
    span.name = name.to_vec().into();
    let tags = Tags::default();
    Finished { span, start_ns: 1_000, end_ns: 3_000, tags, events: Vec::new() }
}

fn number(registry: &Registry, name: &str) -> u64 {
    registry.read().number(name).unwrap_or(0)
}

#[test]
fn spans_leave_together_or_after_a_while() {
    let registry = Registry::default();
    let mut reporter = reporter(2, 10, &registry);
    let due = Instant::ZERO + Duration::from_secs(5);
    assert_eq!(reporter.add(finished(b"a"), Instant::ZERO), Next::Wait(due));
    assert_eq!(reporter.due, Some(due));
    assert_eq!(reporter.add(finished(b"b"), due), Next::Leave);
    let (callout, load) = reporter.take(false, "me", &mut Scratch::default()).unwrap();
    assert_eq!((load.spans, reporter.due), (2, None));
    let body = String::from_utf8(callout.body.to_vec()).unwrap();
    assert_eq!(body.matches(r#""serviceName":"me""#).count(), 2);
    assert!(body.starts_with(concat!(
        r#"[{"traceId":"0000000000000001","id":"0000000000000002","kind":"SERVER","shared":true,"#,
        r#""name":"a","timestamp":1,"duration":2,"#
    )));
    assert!(reporter.take(false, "me", &mut Scratch::default()).is_none());
    assert_eq!(number(&registry, "tracing.zipkin.spans_sent"), 2);
}

#[test]
fn what_waits_or_is_on_its_way_is_limited() {
    for most in [0, 1, 3] {
        let registry = Registry::default();
        let mut reporter = reporter(2, most, &registry);
        let mut loads = Vec::new();
        for _ in 0..=most {
            let next = reporter.add(finished(b"a"), Instant::ZERO);
            if next == Next::Leave {
                loads.extend(
                    reporter.take(false, "", &mut Scratch::default()).map(|(_, load)| load),
                );
            }
        }
        assert_eq!(number(&registry, "tracing.zipkin.spans_dropped"), 1, "one past {most}");
        // What was on its way makes room.
        for load in loads {
            reporter.end(load, &Answer::Failed(Failed::TimedOut));
            assert_ne!(reporter.add(finished(b"a"), Instant::ZERO), Next::Dropped);
        }
    }
}

#[test]
fn large_spans_are_limited_by_their_size() {
    let registry = Registry::default();
    let mut reporter = reporter(1000, 1000, &registry);
    let dropped = (0..10)
        .filter(|_| reporter.add(finished(&[b'a'; 1 << 20]), Instant::ZERO) == Next::Dropped);
    assert_eq!(dropped.count(), 7);
    assert!(!reporter.is_idle());
}

#[test]
fn what_came_of_reports_is_counted() {
    let registry = Registry::default();
    let mut reporter = reporter(1, 10, &registry);
    let load = Load { spans: 0, bytes: 0 };
    let answer = |status| Answer::Response {
        head: Head::response(status),
        body: bytes::Bytes::new(),
        trailers: None,
    };
    reporter.end(load, &answer(202));
    reporter.end(load, &answer(200));
    reporter.end(load, &Answer::Failed(Failed::NoCluster));
    reporter.end(load, &Answer::Failed(Failed::Reset));
    let names = ["sent", "dropped", "skipped_no_cluster", "failed"];
    let counts = names.map(|name| number(&registry, &format!("tracing.zipkin.reports_{name}")));
    assert_eq!(counts, [1; 4]);
}
