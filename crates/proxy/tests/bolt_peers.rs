//! sofa-bolt on both sides of the proxy: the Java client through it to the Java server.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod common;
#[path = "bolt/marks.rs"]
mod marks;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::Proxy;

#[test]
#[ignore = "needs sofa-bolt"]
fn every_kind_of_call_passes_in_both_versions_with_and_without_checksums() {
    let server = Java::server();
    let proxy = Proxy::start(&bootstrap(server.address), &["--concurrency", "1"]);
    let entry = proxy.listener("ingress");
    let mut words = vec!["client".to_owned()];
    words.extend(VERSIONS.map(|version| format!("{entry}?{version}")));
    let said = Java::run(&words);
    assert_eq!(said.lines().filter(|line| line.starts_with("passed ")).count(), 30, "{said}");
    assert!(said.ends_with("done\n"), "{said}");
    assert_eq!(proxy.stat("cluster.server.upstream_cx_total"), Some(1), "all share a connection");
    assert!(proxy.stat("bolt.rpc.downstream_heartbeats").unwrap() > 3);
    assert_eq!(proxy.stat("bolt.rpc.downstream_rq_oneway"), Some(30));
    assert_eq!(proxy.stat("cluster.server.bolt.unasked_answers"), Some(0));
}

#[test]
#[ignore = "needs sofa-bolt"]
fn a_server_that_dies_is_told_to_the_call_that_waits_for_it() {
    let mut server = Java::server();
    let proxy = Proxy::start(&bootstrap(server.address), &["--concurrency", "1"]);
    let entry = proxy.listener("ingress");
    let mut client = Java::start(&["loss".to_owned(), format!("{entry}?{}", VERSIONS[2])]);
    client.wait_for("waiting");
    std::thread::sleep(Duration::from_millis(500));
    server.child.kill().unwrap();
    let line = client.wait_for("lost ");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1], "ConnectionClosedException", "{line}");
    assert!(words[2].parse::<u64>().unwrap() < 5000, "{line}");
}

/// Version 1; version 2; version 2 with checksums, which sofa-bolt writes by default.
const VERSIONS: [&str; 3] =
    ["_PROTOCOL=1&_VERSION=1", "_PROTOCOL=2&_VERSION=1", "_PROTOCOL=2&_VERSION=2"];

fn bootstrap(server: SocketAddr) -> String {
    format!(
        r#"
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
static_resources:
  listeners:
  - name: ingress
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: towpath.filters.network.bolt_proxy
        typed_config:
          "@type": type.googleapis.com/xds.type.v3.TypedStruct
          type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltProxy
          value: {{ stat_prefix: rpc, routes: [ {{ route: {{ cluster: server, timeout: 30s }} }} ] }}
  clusters:
  - name: server
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      towpath.extensions.bolt.v1.BoltProtocolOptions:
        "@type": type.googleapis.com/xds.type.v3.TypedStruct
        type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltProtocolOptions
        value: {{ heartbeat: {{ interval: 1s }} }}
    load_assignment:
      cluster_name: server
      endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }} }} ] }} ]
"#,
        server.ip(),
        server.port()
    )
}

/// A Java program with sofa-bolt.
struct Java {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Java {
    fn server() -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut server = Self::start(&["server".to_owned(), address.port().to_string()]);
        server.wait_for("listening");
        server.address = address;
        server
    }

    fn start(words: &[String]) -> Self {
        let mut child = Self::command(words).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines, address: SocketAddr::from(([0; 4], 0)) }
    }

    /// Runs a program to its end; what it said.
    fn run(words: &[String]) -> String {
        let output = Self::command(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    fn command(words: &[String]) -> Command {
        let peers = std::env::var_os("TOWPATH_PEERS").map(PathBuf::from).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/bolt/Peer.java");
        let mut command = Command::new(peers.join("bolt"));
        command.args(["-Xmx256m", "-Dbolt.tcp.heartbeat.interval=500"]).arg(source).args(words);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn wait_for(&mut self, begin: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut line = String::new();
            let count = self.lines.read_line(&mut line).unwrap();
            assert!(count > 0 && Instant::now() < deadline, "it never said '{begin}'");
            if line.starts_with(begin) {
                return line;
            }
        }
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
