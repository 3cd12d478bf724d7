//! Statistics that are sent to statsd, in its three dialects, alone and beside Envoy.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Proxy, Scratch, bootstrap, exchange, origin, program, until};

#[test]
fn each_dialect_is_told() {
    let [plain, dog, graphite] = told(program(), &[]);
    for (all, key, value) in [
        (&plain, "p.cluster.origin.upstream_rq_200|c", 3.0),
        (&plain, "p.cluster.origin.upstream_rq_time|ms", 3.0),
        (&plain, "p.cluster.origin.membership_total|g", 1.0),
        (
            &dog,
            "p.cluster.upstream_rq|c envoy.cluster_name:origin envoy.response_code:200 my.tag:v",
            3.0,
        ),
        (&dog, "p.cluster.upstream_rq_time|ms envoy.cluster_name:origin my.tag:v", 3.0),
        (&graphite, "p.cluster.membership_total|g envoy.cluster_name:origin my.tag:v", 1.0),
    ] {
        assert_eq!(all.get(key), Some(&value), "{key} {:#?}", all.keys());
    }
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn envoy_tells_the_same() {
    let peers = std::env::var_os("TOWPATH_PEERS").expect("TOWPATH_PEERS names the peers' folder");
    let mut envoy = Command::new(Path::new(&peers).join("envoy"));
    envoy.stdin(Stdio::null());
    let theirs = told(envoy, &["--concurrency", "1", "--use-dynamic-base-id"]);
    let ours = told(program(), &["--concurrency", "1"]);
    let compared = [
        "upstream_rq",
        "downstream_rq",
        "upstream_cx_total",
        "downstream_cx_total",
        "membership_",
        "upstream_cx_http1_total",
        "upstream_cx_active",
        "upstream_cx_connect_ms",
        "no_filter_chain",
    ];
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let is_compared = |key: &str| {
            let name = key.split(['|', ' ']).next().unwrap_or_default();
            let is_listener = name.starts_with("p.listener.");
            !is_listener
                && compared.iter().any(|part| name.contains(part))
                && !key.contains("admin")
        };
        let count = ours.keys().filter(|key| is_compared(key)).count();
        assert!(count > 20, "{ours:#?}");
        let differs = ours.iter().filter(|(key, value)| theirs.get(*key) != Some(*value));
        let differs: Vec<_> = differs.filter(|(key, _)| is_compared(key)).collect();
        assert!(differs.is_empty(), "{differs:#?} {theirs:#?}");
    }
}

/// What three sinks are told of three requests: counters and numbers of values summed, gauges as they were last.
fn told(program: Command, flags: &[&str]) -> [BTreeMap<String, f64>; 3] {
    let sockets = [(); 3].map(|()| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        socket
    });
    let ports = sockets.each_ref().map(|socket| socket.local_addr().unwrap().port());
    let scratch = Scratch::new();
    let proxy = Proxy::run(program, scratch, &with_sinks(ports), flags);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    for _ in 0..3 {
        assert_eq!(exchange(&listener, "GET", "/").unwrap().0, 200);
    }
    let mut all: [BTreeMap<String, f64>; 3] = Default::default();
    let end = Instant::now() + Duration::from_secs(3);
    let mut datagram = [0; 65536];
    while Instant::now() < end {
        for (socket, all) in sockets.iter().zip(&mut all) {
            while let Ok(length) = socket.recv(&mut datagram) {
                for line in std::str::from_utf8(&datagram[..length]).unwrap().lines() {
                    take(line, all);
                }
                if Instant::now() > end {
                    break;
                }
            }
        }
    }
    all
}

/// `name;tag=a:1|c|@0.5|#tag:a`
fn take(line: &str, all: &mut BTreeMap<String, f64>) {
    let (name, rest) = line.split_once(':').unwrap();
    let mut parts = rest.split('|');
    let value: f64 = parts.next().unwrap().parse().unwrap();
    let kind = parts.next().unwrap();
    let mut name = name.split(';');
    let mut key = format!("{}|{kind}", name.next().unwrap());
    let mut tags: Vec<String> = name.map(|tag| tag.replacen('=', ":", 1)).collect();
    let mut share = 1.0;
    for part in parts {
        match part.split_at(1) {
            ("#", list) => tags.extend(list.split(',').map(str::to_owned)),
            ("@", rate) => share = rate.parse().unwrap(),
            other => panic!("{other:?} in {line}"),
        }
    }
    tags.sort();
    for tag in tags {
        key.push(' ');
        // Listeners are told apart by ports, which both choose.
        let is_address = tag.starts_with("envoy.listener_address");
        key.push_str(if is_address { "envoy.listener_address" } else { &tag });
    }
    let sum = all.entry(key).or_default();
    match kind {
        "c" => *sum += value,
        "g" => *sum = value,
        "ms" => *sum += 1.0 / share,
        other => panic!("{other} in {line}"),
    }
}

fn with_sinks([plain, dog, graphite]: [u16; 3]) -> String {
    let sink = |name: &str, port: u16, more: &str| {
        format!(
            "- name: {name}\n  typed_config:\n    \"@type\": type.googleapis.com/{name}\n    prefix: p\n    \
             address: {{ socket_address: {{ protocol: UDP, address: 127.0.0.1, port_value: {port} }} }}\n{more}"
        )
    };
    let limit = "    max_bytes_per_datagram: 1000\n";
    let sinks = [
        sink("envoy.config.metrics.v3.StatsdSink", plain, ""),
        sink("envoy.config.metrics.v3.DogStatsdSink", dog, limit),
        sink("envoy.extensions.stat_sinks.graphite_statsd.v3.GraphiteStatsdSink", graphite, limit),
    ];
    format!(
        "stats_flush_interval: 0.5s\nstats_config: {{ stats_tags: [ {{ tag_name: my.tag, fixed_value: v }} ] }}\n\
         stats_sinks:\n{}{}",
        sinks.concat(),
        bootstrap(origin(Duration::ZERO))
    )
}
