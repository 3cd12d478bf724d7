//! Calls of real clients and servers of gRPC, Python's grpcio, grpc-go and grpc-java, through the program over HTTP/2
//! on both sides.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;
#[path = "smuggling/origins.rs"]
#[allow(dead_code, reason = "the servers here are others")]
mod origins;
#[path = "http2_peers/server.rs"]
mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{OVER_HTTP2, Proxy, bootstrap, until};
use server::Server;

#[test]
#[ignore = "needs Python's grpcio"]
fn calls_come_and_go_as_if_there_were_no_proxy() {
    let Some(mut peer) = Peer::start("peer.py") else { return };
    let proxy = Proxy::start(&front(peer.port), &[]);
    until("the server was checked", || {
        proxy.stat("cluster.origin.health_check.success").is_some_and(|count| count > 0)
    });
    let stories = peer.call_through(&proxy);
    let told: Vec<&str> = stories.lines().collect();
    let all = [
        "unary",
        "statuses",
        "streams",
        "to_and_fro",
        "many_at_once",
        "deadlines",
        "cancellation",
        "retries",
    ];
    assert_eq!(told, all);
    assert_eq!(proxy.stat("cluster.origin.membership_healthy"), Some(1));
    assert_eq!(proxy.stat("cluster.origin.health_check.failure"), Some(0));
    assert_eq!(proxy.stat("cluster.origin.grpc.test.Calls.echo.0"), Some(203));
    assert_eq!(proxy.stat("cluster.origin.grpc.test.Calls.fail.9"), Some(1));
    assert_eq!(proxy.stat("cluster.origin.grpc.test.Calls.each.response_message_count"), Some(220));
    assert_eq!(proxy.stat("cluster.origin.upstream_rq_retry"), Some(2));
}

/// gRPC's interoperability cases, as far as both ends have them.
#[test]
#[ignore = "needs Python's grpcio"]
fn the_cases_of_interoperability_pass() {
    let Some(mut peer) = Peer::start("interop.py") else { return };
    let proxy = Proxy::start(&front(peer.port), &[]);
    let passed = peer.call_through(&proxy);
    let passed: Vec<&str> = passed.lines().collect();
    assert_eq!(passed, CASES);
    assert!(proxy.stat("cluster.origin.upstream_cx_http2_total").is_some_and(|count| count > 0));
    assert_eq!(proxy.stat("cluster.origin.upstream_cx_http1_total"), Some(0));
}

/// The same cases with both ends by grpc-go, and with one by grpc-go and the other by grpcio; its soaks; and the load
/// that grpc-go's server reports with an answer.
#[test]
#[ignore = "needs Go's peers and Python's grpcio"]
fn grpc_go_passes_its_own_cases_and_those_with_grpcio() {
    let Some(go) = origins::peer("go-peers") else { return };
    let all = [&CASES[..], &["rpc_soak", "channel_soak", "orca_per_rpc"]].concat();
    let calls = |port: u16, not: &[&str]| {
        let text = bootstrap(([127, 0, 0, 1], port).into());
        let proxy = Proxy::start(&text.replacen("    load_assignment:", OVER_HTTP2, 1), &[]);
        let mut call = Command::new(&go);
        call.args(["call", "grpc", &proxy.listener("ingress")]).args(not);
        let call = call.output().unwrap();
        let (passed, said) = (String::from_utf8(call.stdout).unwrap(), call.stderr);
        let said = String::from_utf8_lossy(&said);
        let wanted: Vec<_> = all.iter().copied().filter(|case| !not.contains(case)).collect();
        assert_eq!(passed.lines().collect::<Vec<_>>(), wanted, "{said}");
        assert_eq!(proxy.stat("cluster.origin.upstream_cx_http1_total"), Some(0));
        until("no call is left", || proxy.stat("cluster.origin.upstream_rq_active") == Some(0));
    };
    let server = Server::start(Command::new(&go).args(["serve", "grpc"]));
    calls(server.address.port(), &[]);
    let Some(mut grpcio) = Peer::start("interop.py") else { return };
    calls(grpcio.port, &["orca_per_rpc"]);
    let text = bootstrap(server.address).replacen("    load_assignment:", OVER_HTTP2, 1);
    let passed = grpcio.call_through(&Proxy::start(&text, &[]));
    assert_eq!(passed.lines().collect::<Vec<_>>(), CASES);
}

/// The same cases by grpc-java, with grpc-go as its server.
#[test]
#[ignore = "needs grpc-java and Go's peers"]
fn grpc_java_passes_the_cases_of_interoperability() {
    let (Some(go), Some(java)) = (origins::peer("go-peers"), origins::peer("grpc-java")) else {
        return;
    };
    let server = Server::start(Command::new(&go).args(["serve", "grpc"]));
    let text = bootstrap(server.address).replacen("    load_assignment:", OVER_HTTP2, 1);
    let proxy = Proxy::start(&text, &[]);
    assert_eq!(call_by_java(&java, &proxy, &[]), CASES);
}

/// The same cases with both ends by grpc-java, and its four of compressed messages, which grpc-go's server and grpcio
/// do not have: flags of messages come as they were sent, both ways. Then grpcio's with that server.
#[test]
#[ignore = "needs grpc-java and Python's grpcio"]
fn grpc_java_passes_the_cases_of_compression_with_itself() {
    let Some(java) = origins::peer("grpc-java") else { return };
    let server = Server::start(Command::new(&java).arg(java_script()).arg("serve"));
    // The server resets a call whose time is over, which would be UNAVAILABLE: the proxy's own limit comes before.
    let limited = "{ cluster: origin, max_stream_duration: { grpc_timeout_header_max: 0s } }";
    let text = bootstrap(server.address).replacen("    load_assignment:", OVER_HTTP2, 1).replacen(
        "route: { cluster: origin }",
        &format!("route: {limited}"),
        1,
    );
    assert!(text.contains(limited), "the route is as it was");
    let proxy = Proxy::start(&text, &[]);
    let compressed = [
        "client_compressed_unary",
        "server_compressed_unary",
        "client_compressed_streaming",
        "server_compressed_streaming",
    ];
    let all = [&CASES[..], &compressed].concat();
    assert_eq!(call_by_java(&java, &proxy, &["compressed"]), all);
    assert!(proxy.stat("cluster.origin.upstream_cx_http2_total").is_some_and(|count| count > 0));
    assert_eq!(proxy.stat("cluster.origin.upstream_cx_http1_total"), Some(0));
    let Some(mut grpcio) = Peer::start("interop.py") else { return };
    let passed = grpcio.call_through(&proxy);
    assert_eq!(passed.lines().collect::<Vec<_>>(), CASES);
    until("no call is left", || proxy.stat("cluster.origin.upstream_rq_active") == Some(0));
}

fn java_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc/GrpcJava.java")
}

/// The cases that grpc-java says it passed through a proxy.
fn call_by_java(java: &Path, proxy: &Proxy, which: &[&str]) -> Vec<String> {
    let address = proxy.listener("ingress");
    let call = Command::new(java).arg(java_script()).arg(address).args(which).output().unwrap();
    let said = String::from_utf8_lossy(&call.stderr);
    assert!(call.status.success(), "{said}");
    String::from_utf8(call.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// ghz calls grpc-go's service through the proxy: one message and many in each direction, with what it knows of the
/// service from a file, for there is no reflection; and a method that the server does not have.
#[test]
#[ignore = "needs ghz and Go's peers"]
fn ghz_has_every_call_answered() {
    let (Some(go), Some(ghz)) = (origins::peer("go-peers"), origins::peer("ghz")) else { return };
    let server = Server::start(Command::new(&go).args(["serve", "grpc"]));
    let text = bootstrap(server.address).replacen("    load_assignment:", OVER_HTTP2, 1);
    let proxy = Proxy::start(&text, &[]);
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/ghz/testing.proto");
    // "aGVsbG8=" is what five bytes are in JSON.
    let hello = r#""payload":{"body":"aGVsbG8="}"#;
    let sized = format!(r#"{{"response_parameters":[{{"size":100}},{{"size":70000}}],{hello}}}"#);
    let calls = [
        ("UnaryCall", format!(r#"{{"response_size":1000,{hello}}}"#), "OK"),
        ("StreamingInputCall", format!("[{{{hello}}},{{{hello}}},{{{hello}}}]"), "OK"),
        ("StreamingOutputCall", sized.clone(), "OK"),
        ("FullDuplexCall", format!("[{sized},{sized}]"), "OK"),
        ("NoSuchCall", "{}".to_owned(), "Unimplemented"),
    ];
    let mut asked = 0;
    for (method, data, status) in &calls {
        let told = Command::new(&ghz)
            .args(["--insecure", "--proto"])
            .arg(&proto)
            .args(["--call", &format!("grpc.testing.TestService.{method}"), "--data", data])
            .args(["--total", "300", "--concurrency", "20", "--connections", "4"])
            .args(["--timeout", "20s", "--format", "json", &proxy.listener("ingress")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&told.stderr);
        let report: serde_json::Value =
            serde_json::from_slice(&told.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        let expected = serde_json::json!({ *status: 300 });
        assert_eq!(report["statusCodeDistribution"], expected, "{method}: {report:#}");
        assert_eq!(report["count"], 300, "{method}");
        asked += 300;
    }
    assert_eq!(proxy.stat("cluster.origin.upstream_rq_total"), Some(asked));
    assert_eq!(proxy.stat("cluster.origin.upstream_cx_http1_total"), Some(0));
    until("no call is left", || proxy.stat("cluster.origin.upstream_rq_active") == Some(0));
}

const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// A server of gRPC and a client of it, in one process.
struct Peer {
    process: Child,
    said: BufReader<ChildStdout>,
    port: u16,
}

impl Peer {
    /// Starts its server; none where there is no Python.
    fn start(script: &str) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc").join(script);
        let mut process = Command::new(origins::peer("python")?)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut port = String::new();
        said.read_line(&mut port).unwrap();
        Some(Self { process, said, port: port.trim().parse().unwrap() })
    }

    /// Has its client call its server through a proxy; what it says of that.
    fn call_through(&mut self, proxy: &Proxy) -> String {
        writeln!(self.process.stdin.take().unwrap(), "{}", proxy.listener("ingress")).unwrap();
        let mut stories = String::new();
        self.said.read_to_string(&mut stories).unwrap();
        assert!(self.process.wait().unwrap().success(), "after {stories}");
        stories
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is gone already, or of no more use.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A proxy in front of a server of gRPC on this port, which it asks whether it serves.
fn front(port: u16) -> String {
    let routes = r#"routes:
              - { match: { prefix: /closed. }, route: { cluster: closed } }
              - { match: { prefix: /short. }, route: { cluster: origin, max_stream_duration: { MAX: 0.5s } } }
              - match: { prefix: /retried. }
                route: { cluster: origin, retry_policy: { retry_on: unavailable, num_retries: 5 } }
              - { match: { prefix: /none. }, direct_response: { status: 404 } }
              - { match: { prefix: /, grpc: {} }, route: { cluster: origin, max_stream_duration: { MAX: 0s } } }"#
        .replace("MAX", "grpc_timeout_header_max");
    let options = r#"    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    health_checks:
    - { timeout: 5s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, grpc_health_check: {} }
    load_assignment:"#;
    let filters = r#"http_filters:
          - name: stats
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.grpc_stats.v3.FilterConfig
              stats_for_all_methods: true"#;
    let text = bootstrap(([127, 0, 0, 1], port).into())
        .replacen(
            "routes: [ { match: { prefix: \"/\" }, route: { cluster: origin } } ]",
            &routes,
            1,
        )
        .replacen("    load_assignment:", options, 1)
        .replacen("http_filters:", filters, 1);
    assert!(text.contains("grpc_timeout_header_max"), "the routes are as they were");
    text + "  - { name: closed, type: STATIC, connect_timeout: 1s }\n"
}
