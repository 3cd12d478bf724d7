//! Connections that the kernel leads to a sidecar (REDIRECT and TPROXY of nftables), in a network namespace that the
//! test makes: they go where they were going, or to the listener that has that address.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use common::{Proxy, exchange};

#[test]
#[ignore = "needs nft: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn connections_go_where_they_were_going() {
    let program = std::env::current_exe().unwrap();
    let inside = ["--exact", "a_sidecar_in_its_namespace", "--nocapture"];
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--net"]).arg(program).args(inside);
    assert!(unshare.env(INSIDE, "yes").status().unwrap().success());
}

/// What the test above runs in a namespace of its own; nothing by itself.
#[test]
fn a_sidecar_in_its_namespace() {
    if std::env::var(INSIDE).is_err() {
        return;
    }
    run("ip", "link set lo up");
    run("ip", "route add local 10.7.0.0/16 dev lo");
    run("ip", "route add local default dev lo table 101");
    run("ip", "rule add fwmark 1 lookup 101");
    for (address, name) in [("10.7.0.1:8080", "one"), ("10.7.0.2:8080", "two")] {
        app(address, name);
    }
    let proxy = Proxy::start(CONFIG, &[]);
    let said = |address: &str| exchange(address, "GET", "/").unwrap();
    assert_eq!(said("10.7.0.1:8080"), (200, "one".into()), "without rules");
    assert_eq!(proxy.stat("tcp.redirected.downstream_cx_total"), Some(0));

    // What the proxy itself sends has the mark 2.
    nft("add table ip test");
    nft("add chain ip test out { type nat hook output priority -100; }");
    nft("add rule ip test out meta mark != 2 tcp dport 8080 redirect to :15001");
    assert_eq!(said("10.7.0.1:8080"), (200, "one".into()));
    assert_eq!(said("10.7.0.2:8080"), (200, "two".into()));
    assert_eq!(proxy.stat("tcp.redirected.downstream_cx_total"), Some(2));
    assert_eq!(said("10.7.0.3:8080"), (200, "listener".into()), "the listener of that address");
    assert_eq!(proxy.stat("tcp.redirected.downstream_cx_total"), Some(2));

    nft("flush table ip test");
    nft("add chain ip test marks { type route hook output priority -150; }");
    nft("add rule ip test marks meta mark != 2 tcp dport 8080 meta mark set 1");
    nft("add chain ip test led { type filter hook prerouting priority -150; }");
    nft("add rule ip test led meta mark 1 tcp dport 8080 tproxy to :15002 accept");
    assert_eq!(said("10.7.0.1:8080"), (200, "one".into()));
    assert_eq!(said("10.7.0.2:8080"), (200, "two".into()));
    assert_eq!(proxy.stat("tcp.transparent.downstream_cx_total"), Some(2));
    assert_eq!(proxy.stat("tcp.redirected.downstream_cx_total"), Some(2));
}

/// Answers each request with its name.
fn app(address: &str, name: &'static str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ";
            let _ = stream.write_all(format!("{head}{}\r\n\r\n{name}", name.len()).as_bytes());
        }
    });
}

fn nft(words: &str) {
    run(&format!("{}/nft", std::env::var("TOWPATH_PEERS").unwrap()), words);
}

fn run(program: &str, words: &str) {
    let status = Command::new(program).args(words.split(' ')).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} {words}");
}

const INSIDE: &str = "TOWPATH_INSIDE_NAMESPACE";

const CONFIG: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
  - name: redirected
    address: { socket_address: { address: 0.0.0.0, port_value: 15001 } }
    use_original_dst: true
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: redirected
          cluster: there
  - name: its_own
    address: { socket_address: { address: 10.7.0.3, port_value: 8080 } }
    bind_to_port: false
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: its_own
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [ { match: { prefix: / }, direct_response: { status: 200, body: { inline_string: listener } } } ]
          http_filters:
          - name: router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  - name: transparent
    address: { socket_address: { address: 0.0.0.0, port_value: 15002 } }
    transparent: true
    listener_filters:
    - name: original_dst
      typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst }
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: transparent
          cluster: there
  clusters:
  - name: there
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    upstream_bind_config:
      socket_options: [ { description: SO_MARK, level: 1, name: 36, int_value: 2, state: STATE_PREBIND } ]
"#;
