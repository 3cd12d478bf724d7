//! sofa-bolt and SOFARPC on both sides of the proxy, and on one side of the bridge.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "bolt/bridge.rs"]
mod bridge;
mod common;
#[path = "bolt/config.rs"]
mod config;
#[path = "bolt/guards.rs"]
mod guards;
#[path = "bolt/java.rs"]
mod java;
#[path = "bolt/marks.rs"]
mod marks;
#[path = "bolt/rpc.rs"]
mod rpc;
#[path = "bolt/tap.rs"]
mod tap;

use std::net::SocketAddr;

use common::{Proxy, until};
use config::{routed, server};
use java::{Java, PEER};
use tap::Tap;
use towpath_proto::bolt::{Command, Kind, Version};

#[test]
#[ignore = "needs sofa-bolt"]
fn every_kind_of_call_passes_in_both_versions_with_and_without_checksums() {
    let server = Java::server(PEER);
    let behind = Tap::before(server.address);
    let proxy = Proxy::start(&bootstrap(behind.address), &["--concurrency", "1"]);
    let before = Tap::before(proxy.listener("ingress").parse().unwrap());
    let entry = before.address;
    let mut words = vec!["client".to_owned()];
    words.extend(VERSIONS.map(|version| format!("{entry}?{version}")));
    let said = Java::run(PEER, &words);
    assert_eq!(said.lines().filter(|line| line.starts_with("passed ")).count(), 33, "{said}");
    assert!(said.ends_with("done\n"), "{said}");
    let stat = |name: &str| proxy.stat(name).unwrap();
    assert_eq!(stat("cluster.server.upstream_cx_total"), 1, "all share a connection");
    assert!(stat("bolt.rpc.downstream_heartbeats") > 3);
    assert_eq!(stat("bolt.rpc.downstream_rq_oneway"), 30);
    assert_eq!(stat("cluster.server.upstream_rq_timeout"), 3, "the frame's own timeout, each time");
    assert_eq!(stat("cluster.server.bolt.late_answers"), 3);
    assert_eq!(stat("cluster.server.bolt.unasked_answers"), 0);
    assert_eq!(stat("cluster.server.bolt.refused_calls"), 3, "what the server asks");
    // Of three calls at once the server takes one.
    assert_eq!(stat("cluster.server.upstream_rq_503"), 6);
    // Its heartbeats go to us and ours to the server, while there are no calls.
    assert!(stat("cluster.server.bolt.heartbeats") > 0);
    assert_eq!(stat("cluster.server.bolt.heartbeat_failures"), 0);
    assert!(behind.count(Version::V1, Kind::Response, Command::Heartbeat) > 0);
    let versions = [Version::V1, Version::V2 { checksums: false }, Version::V2 { checksums: true }];
    let mut answers = 0;
    for version in versions {
        // 200 in turn, 4000 at once, and the rest.
        for tap in [&before, &behind] {
            let calls = tap.count(version, Kind::Request, Command::Rpc);
            assert!((4300..4500).contains(&calls), "{version:?} {calls}");
            assert_eq!(tap.count(version, Kind::Oneway, Command::Rpc), 10, "{version:?}");
        }
        let calls = before.count(version, Kind::Request, Command::Rpc);
        assert_eq!(before.count(version, Kind::Response, Command::Rpc), calls, "{version:?}");
        // sofa-bolt answers on a connection in the version in which it was first asked there.
        answers += behind.count(version, Kind::Response, Command::Rpc);
    }
    let calls = versions.map(|version| behind.count(version, Kind::Request, Command::Rpc));
    assert_eq!(answers, calls.iter().sum::<u64>());
}

#[test]
#[ignore = "needs sofa-bolt"]
fn a_server_that_dies_is_told_to_the_call_that_waits_for_it_and_the_next_one_serves() {
    let mut server = Java::server(PEER);
    let address = server.address;
    let proxy = Proxy::start(&bootstrap(address), &["--concurrency", "1"]);
    let entry = proxy.listener("ingress");
    let mut words = vec!["loss".to_owned()];
    words.extend(VERSIONS.map(|version| format!("{entry}?{version}")));
    let mut client = Java::start(PEER, &words);
    for _ in VERSIONS {
        client.wait_for("waiting");
        until("the call is with the server", || {
            proxy.stat("cluster.server.upstream_rq_active") == Some(1)
        });
        server.child.kill().unwrap();
        let line = client.wait_for("lost ");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1], "ConnectionClosedException", "{line}");
        // It did not wait for its timeout.
        assert!(words[2].parse::<u64>().unwrap() < 15_000, "{line}");
        server = Java::server_at(PEER, address);
        client.wait_for("back");
    }
}

#[test]
#[ignore = "needs sofa-bolt"]
fn a_client_that_dies_leaves_its_calls_and_no_answer_is_mistaken_for_another() {
    let server = Java::server(PEER);
    let proxy = Proxy::start(&bootstrap(server.address), &["--concurrency", "1"]);
    let entry = proxy.listener("ingress");
    let leave = ["leave".to_owned(), format!("{entry}?{}", VERSIONS[2])];
    let mut client = Java::start(PEER, &leave);
    client.wait_for("waiting");
    let active = || proxy.stat("cluster.server.upstream_rq_active");
    until("its calls are with the server", || active() == Some(5));
    client.child.kill().unwrap();
    until("its calls are given up", || active() == Some(0));
    until("late answers come", || {
        let answered = proxy.stat("cluster.server.upstream_rq_completed").unwrap();
        answered + proxy.stat("cluster.server.bolt.late_answers").unwrap() == 5
    });
    let said = Java::run(PEER, &["echo".to_owned(), format!("{entry}?{}", VERSIONS[2])]);
    assert!(said.ends_with("done\n"), "{said}");
    assert_eq!(proxy.stat("cluster.server.upstream_cx_total"), Some(1), "the connection goes on");
}

#[test]
#[ignore = "needs sofa-bolt"]
fn a_servers_heartbeats_say_whether_it_is_healthy() {
    let mut server = Java::server(PEER);
    let checks = r#"
    health_checks:
    - timeout: 1s
      interval: 0.2s
      no_traffic_interval: 0.2s
      unhealthy_threshold: 1
      healthy_threshold: 1
      custom_health_check:
        name: towpath.health_checkers.bolt
        typed_config:
          "@type": type.googleapis.com/xds.type.v3.TypedStruct
          type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltHealthCheck
          value: { version: 2 }"#;
    let clusters = [config::server("server", server.address, "", checks)];
    let proxy = Proxy::start(&routed(ROUTE, "", &clusters), &["--concurrency", "1"]);
    let healthy = || proxy.stat("cluster.server.membership_healthy");
    until("it is healthy", || healthy() == Some(1));
    until("it was asked again", || proxy.stat("cluster.server.health_check.success") > Some(2));
    server.child.kill().unwrap();
    until("it is not any more", || healthy() == Some(0));
}

/// Version 1; version 2; version 2 with checksums, which sofa-bolt writes by default.
const VERSIONS: [&str; 3] =
    ["_PROTOCOL=1&_VERSION=1", "_PROTOCOL=2&_VERSION=1", "_PROTOCOL=2&_VERSION=2"];
const ROUTE: &str = "{ route: { cluster: server, timeout: 30s } }";

fn bootstrap(address: SocketAddr) -> String {
    let heartbeat = "heartbeat: { interval: 1s }";
    routed(ROUTE, "", &[server("server", address, heartbeat, "")])
}
