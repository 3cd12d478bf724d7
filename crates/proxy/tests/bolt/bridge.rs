//! The bridge with peers that know nothing of it: curl to sofa-bolt's server, sofa-bolt's client to Node's HTTP server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{Proxy, until};
use crate::config::{bootstrap, cluster, http, rpc, server};
use crate::java::{Java, PEER};

#[test]
#[ignore = "needs curl and sofa-bolt"]
fn curl_calls_sofa_bolt_and_is_told_of_its_errors_as_http_has_them() {
    let mut origin = Java::server(PEER);
    let route = |prefix: &str, class: &str, codec: u8| {
        let (kind, value) = (
            "type.googleapis.com/towpath.extensions.bolt.v1.BoltBridge",
            format!(
                "{{ method: call, class: {class}, codec: {codec}, version: 2, checksum: true }}"
            ),
        );
        format!(
            r#"{{ match: {{ prefix: {prefix} }}, route: {{ cluster: server, timeout: 3s, prefix_rewrite: / }},
                typed_per_filter_config: {{ towpath.filters.http.bolt_bridge: {{
                "@type": type.googleapis.com/xds.type.v3.TypedStruct, type_url: {kind}, value: {value} }} }} }},"#
        )
    };
    let routes = [
        route("/bytes/", "towpath.Bytes", 11),
        route("/words/", "java.lang.String", 1),
        route("/numbers/", "java.lang.Integer", 1),
        route("/absent/", "no.such.Class", 11),
    ];
    let config = bootstrap(
        &[http("ingress", &routes.concat())],
        &[server("server", origin.address, "heartbeat: { interval: 1s }", "")],
    );
    let proxy = Proxy::start(&config, &["--concurrency", "1"]);
    let url =
        |path: &str| format!("http://{}/{path}/com.example.Orders:1.0", proxy.listener("ingress"));

    let large = vec![b'x'; 900_000];
    for body in [&b"\0\xffbytes\r\n"[..], b"", &large] {
        let answer = curl(&url("bytes"), body);
        assert_eq!((answer.status, answer.field("bolt-status")), (200, "0"), "{answer:?}");
        assert!(answer.body == body, "{} bytes", answer.body.len());
    }
    // In Hessian 2 a short string is its length and itself.
    let answer = curl(&url("words"), b"\x05hello");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"\x05hello"[..]), "{answer:?}");
    assert_eq!(answer.field("bolt-class"), "java.lang.String");
    let answer = curl(&url("words"), b"\x05throw");
    assert_eq!((answer.status, answer.field("bolt-status")), (500, "2"), "{answer:?}");
    let answer = curl(&url("words"), b"\x0asleep:9000");
    assert_eq!((answer.status, answer.field("bolt-status")), (504, ""), "{answer:?}");
    let answer = curl(&url("words"), b"\x43no Hessian");
    assert_eq!((answer.status, answer.field("bolt-status")), (400, "18"), "{answer:?}");
    let answer = curl(&url("absent"), b"hello");
    assert_eq!((answer.status, answer.field("bolt-status")), (500, "2"), "{answer:?}");
    assert!(answer.field("bolt-class").ends_with("RpcServerException"), "that it has no processor");
    // Two seconds of its only thread; a call that comes meanwhile is told that it is busy.
    let (busy, two_seconds) = (url("numbers"), [0xcf, 0xd0]);
    let first = std::thread::spawn({
        let busy = busy.clone();
        move || curl(&busy, &two_seconds)
    });
    until("the first call is with the server", || {
        proxy.stat("cluster.server.upstream_rq_active") == Some(1)
    });
    let answer = curl(&busy, &two_seconds);
    assert_eq!((answer.status, answer.field("bolt-status")), (503, "4"), "{answer:?}");
    assert_eq!(first.join().unwrap().status, 200);
    origin.child.kill().unwrap();
    let answer = curl(&url("bytes"), b"hello");
    assert_eq!(answer.status, 503, "{answer:?}");
}

#[test]
#[ignore = "needs sofa-bolt and Node"]
fn sofa_bolts_client_calls_an_http_server_and_is_told_of_its_errors_as_bolt_has_them() {
    let node = Node::start();
    let route =
        "{ route: { cluster: origin, timeout: 30s, http: { path_prefix: /rpc, class: '[B' } } }";
    let config = bootstrap(&[rpc("ingress", route, "")], &[cluster("origin", node.address, "")]);
    let proxy = Proxy::start(&config, &["--concurrency", "1"]);
    let outcomes = [
        ("200", "answered asked 200"),
        ("place order", "answered asked place order"),
        ("204", "answered nothing"),
        ("400", "CodecException"),
        ("403", "InvokeServerException"),
        ("404", "InvokeException"),
        ("429", "InvokeServerBusyException"),
        ("500", "InvokeException"),
        ("502", "ConnectionClosedException"),
        ("503", "InvokeServerBusyException"),
        ("never", "InvokeTimeoutException"),
        ("cut", "ConnectionClosedException"),
    ];
    for version in crate::VERSIONS {
        // One timeout is enough.
        let outcomes = if version == crate::VERSIONS[0] { &outcomes[..] } else { &outcomes[..4] };
        let mut words =
            vec!["named".to_owned(), format!("{}?{version}", proxy.listener("ingress"))];
        words.extend(outcomes.iter().map(|(method, _)| (*method).to_owned()));
        let said = Java::run(PEER, &words);
        let said: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("named ")).collect();
        let wanted: Vec<String> =
            outcomes.iter().map(|(method, outcome)| format!("{method} {outcome}")).collect();
        assert_eq!(said, wanted, "{version}");
    }
}

/// Node's `http`.
struct Node {
    child: Child,
    address: SocketAddr,
}

impl Node {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bolt/echo.mjs");
        let mut child =
            Command::new("node").arg(script).stdout(Stdio::piped()).spawn().expect("Node is there");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What curl got.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn field(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().trim()
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} and {} bytes", self.head, self.body.len())
    }
}

fn curl(url: &str, body: &[u8]) -> Answer {
    use std::io::Write;
    let mut child = Command::new("curl")
        .args(["-sS", "-i", "--max-time", "60", "--noproxy", "*", "-H", "Expect:"])
        .args(["--data-binary", "@-", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl is there");
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let end = output.stdout.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&output.stdout[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    Answer { status, head, body: output.stdout[end + 4..].to_vec() }
}
