//! What one request costs in memory, and what of it are routing, picking a host, an access-log line and counting.
#![allow(missing_docs, reason = "criterion makes the entry point")]

mod cases;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use towpath_engine::balancer::{Balancer, Host};
use towpath_engine::format::{Facts, Format, FormatOptions, JsonTemplate};
use towpath_engine::matcher::Known;
use towpath_engine::record::Record;
use towpath_engine::route::PathRules;
use towpath_engine::snapshot::cluster::{self, Endpoint};
use towpath_engine::snapshot::http::EscapedSlashes;
use towpath_engine::stats::{ClusterStats, Query, Registry, Scope};
use towpath_proto::{Address, Head, Instant, Version};

fn routes(c: &mut Criterion) {
    let head = cases::request_head();
    for (hosts, routes) in [(8, 1), (50, 10), (500, 100)] {
        let table = cases::table(hosts, routes);
        c.bench_function(&format!("route/{hosts} hosts, {routes} routes"), |b| {
            b.iter(|| black_box(table.pick(black_box(&head), Known::default(), 7)));
        });
    }
    let rules = PathRules {
        normalize: true,
        merge_slashes: true,
        escaped_slashes: EscapedSlashes::UnescapeAndForward,
    };
    let mut out = Vec::new();
    c.bench_function("route/canonical path", |b| {
        b.iter(|| black_box(rules.sanitize(black_box(head.path()), &mut out)));
    });
}

fn formats(c: &mut Criterion) {
    let (head, response) = (cases::request_head(), Head::response(200));
    let address = |text: &str| text.parse().ok().map(Address::Ip);
    let record = Record {
        start: Instant::from_nanos(1_000_000),
        end: Some(Instant::from_nanos(5_000_000)),
        status: 200,
        bytes_sent: 1024,
        protocol: Some(Version::Http11),
        upstream_host: address("10.0.0.7:8080"),
        ..Record::default()
    };
    let facts = Facts {
        request: Some(&head),
        response: Some(&response),
        epoch_unix_ns: 1_795_175_501_354_309_000,
        ..Facts::new(&record, Instant::from_nanos(6_000_000))
    };
    let mut out = Vec::with_capacity(4096);
    let text = Format::default_access_log();
    c.bench_function("format/default line", |b| {
        b.iter(|| {
            out.clear();
            text.write(&mut out, black_box(&facts));
        });
    });
    let fields = ["START_TIME", "REQ(:METHOD)", "REQ(:PATH)", "RESPONSE_CODE", "DURATION"];
    let fields = fields.map(|name| (name.to_owned(), JsonTemplate::Text(format!("%{name}%"))));
    let template = JsonTemplate::Object(fields.to_vec());
    let Ok(json) = Format::json(&template, &FormatOptions::default()) else { return };
    c.bench_function("format/json line of five", |b| {
        b.iter(|| {
            out.clear();
            json.write(&mut out, black_box(&facts));
        });
    });
}

fn balancers(c: &mut Criterion) {
    let hosts = |weights: fn(u32) -> u32| {
        let host = |n| {
            let address = Address::unspecified();
            Host::new(Endpoint { weight: weights(n), ..Endpoint::new(address) })
        };
        (0..100).map(host).collect::<Vec<_>>()
    };
    let least = cluster::Balancer::LeastRequest { choices: 2, bias_milli: 1000 };
    for (name, policy, hosts) in [
        ("round robin", cluster::Balancer::RoundRobin, hosts(|_| 1)),
        ("round robin, weights", cluster::Balancer::RoundRobin, hosts(|n| n % 7 + 1)),
        ("least request", least, hosts(|_| 1)),
        ("least request, weights", least, hosts(|n| n % 7 + 1)),
        ("random, weights", cluster::Balancer::Random, hosts(|n| n % 7 + 1)),
    ] {
        let mut balancer = Balancer::new(cluster::Balancing::new(policy));
        balancer.rebuild(&hosts, 1, Instant::ZERO);
        let mut random = 0u64;
        c.bench_function(&format!("balancer/{name}"), |b| {
            b.iter(|| {
                random += 1;
                black_box(balancer.pick(black_box(&hosts), random, &|_| false, 0, Instant::ZERO))
            });
        });
    }
}

fn statistics(c: &mut Criterion) {
    let registry = Registry::new();
    let stats: Arc<ClusterStats> = registry.set(0, Scope::Cluster("c".into()));
    c.bench_function("stats/count, gauge, code, time", |b| {
        b.iter(|| {
            stats.upstream_rq_total.inc();
            stats.upstream_rq_active.inc();
            stats.upstream_rq.count(black_box(200));
            stats.upstream_rq_time.record(black_box(17));
            stats.upstream_rq_active.dec();
        });
    });
    let clusters: Vec<Arc<ClusterStats>> =
        (0..100).map(|n| registry.set(0, Scope::Cluster(format!("c{n}").into()))).collect();
    c.bench_function("stats/prometheus of 100 clusters", |b| {
        b.iter(|| {
            registry.read().prometheus(Query::default()).map(|chunk| chunk.len()).sum::<usize>()
        });
    });
    drop(clusters);
}

fn exchanges(c: &mut Criterion) {
    let (_, exchange) =
        cases::CASES.iter().find(|(name, _)| *name == "exchange").expect("it is there");
    let mut bench = cases::Bench::new();
    c.bench_function("request/exchange", |b| b.iter(|| exchange(&mut bench)));
}

criterion_group!(benches, exchanges, routes, formats, balancers, statistics);
criterion_main!(benches);
