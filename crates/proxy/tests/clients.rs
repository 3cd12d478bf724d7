//! Clients that people use: curl, ab, Python's own and httpx.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;
#[expect(dead_code, reason = "a part of the smuggling stories")]
#[path = "smuggling/origins.rs"]
mod origins;

use std::path::Path;
use std::process::Command;

use common::{Proxy, until};
use origins::{Origin, peer, tool};

#[test]
#[ignore = "needs curl and Node"]
fn curl_gets_what_it_asks_for() {
    let (Some(curl), Some(origin)) = (tool("curl"), Origin::node()) else { return };
    let proxy = start(&origin);
    let listener = proxy.listener("strict");
    let upload = proxy.scratch.write("upload", &"0123456789".repeat(100_000));
    let upload = upload.to_str().unwrap();
    let url = format!("http://{listener}/thing?q=1");
    let run = |arguments: &[&str]| -> String {
        let output = Command::new(&curl)
            .args(["-sS", "--max-time", "20", "--noproxy", "*"])
            .args(["-o", "-", "-w", "%{http_code} %{size_download} %{num_connects}"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "curl {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(&[&url]), "ok\n200 3 1");
    assert_eq!(run(&["--http1.0", &url]), "ok\n200 3 1");
    // Two requests over one connection, also with HTTP/1.0.
    assert_eq!(run(&[&url, &url]), "ok\n200 3 1ok\n200 3 0");
    let kept = ["--http1.0", "-H", "Connection: keep-alive", &url, &url];
    assert_eq!(run(&kept), "ok\n200 3 1ok\n200 3 0");
    assert!(run(&["-I", &url]).ends_with("200 0 1"));
    assert_eq!(run(&["-T", upload, &url]), "ok\n200 3 1");
    assert_eq!(run(&["-T", upload, "-H", "Transfer-Encoding: chunked", &url]), "ok\n200 3 1");
    assert_eq!(run(&["-T", upload, "-H", "Expect: 100-continue", &url]), "ok\n200 3 1");
    assert_eq!(run(&["--data-binary", &format!("@{upload}"), &url]), "ok\n200 3 1");
    // Through a tunnel to the same origin.
    let tunnel = proxy.listener("tunnel");
    let through = [
        "--proxytunnel",
        "-x",
        &format!("http://{tunnel}"),
        "--noproxy",
        "",
        "http://a.test/in-the-tunnel",
    ];
    assert!(run(&through).ends_with("ok\n200 3 1"), "{}", run(&through));
    let refused = Command::new(&curl)
        .args(["-sS", "--max-time", "20", "--proxytunnel", "-x", &format!("http://{listener}")])
        .args(["--noproxy", "", "http://a.test/"])
        .output()
        .unwrap();
    assert!(!refused.status.success(), "CONNECT is only where it is configured");

    let heard = origin.heard();
    let bodies: Vec<u64> = heard.heads.iter().filter_map(|head| heard.whole[&head.id]).collect();
    assert_eq!(bodies.iter().filter(|&&bytes| bytes == 1_000_000).count(), 4, "{bodies:?}");
    assert!(heard.heads.iter().any(|head| head.target == "/in-the-tunnel"));
    assert_eq!(heard.refused, 0);
    nothing_is_left(&proxy);
}

#[test]
#[ignore = "needs ab and nginx"]
fn ab_keeps_its_connections() {
    let (Some(ab), Some(origin)) = (peer("ab"), Origin::nginx()) else { return };
    let proxy = start(&origin);
    let url = format!("http://{}/", proxy.listener("http10"));
    let output =
        Command::new(ab).args(["-q", "-k", "-n", "5000", "-c", "20", &url]).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse::<u64>().ok())
    };
    assert_eq!(number("Complete requests:"), Some(5000), "{report}");
    assert_eq!(number("Failed requests:"), Some(0), "{report}");
    assert_eq!(number("Keep-Alive requests:"), Some(5000), "{report}");
    assert_eq!(number("Non-2xx responses:"), None, "{report}");
    assert_eq!(proxy.stat("http.http10.downstream_rq_2xx"), Some(5000));
    assert!(proxy.stat("http.http10.downstream_cx_total") <= Some(20));
    nothing_is_left(&proxy);
}

#[test]
#[ignore = "needs Python with httpx, and Go"]
fn python_asks_and_is_answered() {
    let (Some(python), Some(origin)) = (peer("python"), Origin::go()) else { return };
    let proxy = start(&origin);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/asks.py");
    let output = Command::new(python).arg(script).arg(proxy.listener("strict")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "asked\n", "{said}");
    assert_eq!(origin.heard().refused, 0);
    nothing_is_left(&proxy);
}

/// A proxy with a plain listener, one for HTTP/1.0 and one for CONNECT.
fn start(origin: &Origin) -> Proxy {
    let connect = "[ { match: { connect_matcher: {} }, route: { cluster: origin } }, { match";
    let listener = include_str!("smuggling/listener.yaml");
    let listeners = [
        // curl and ab speak HTTP/1.0.
        listener.replace("NAME", "strict").replace("OPTIONS", HTTP10),
        listener.replace("NAME", "http10").replace("OPTIONS", HTTP10),
        listener
            .replace("NAME", "tunnel")
            .replace("OPTIONS", "upgrade_configs: [ { upgrade_type: CONNECT } ]")
            .replace("[ { match", connect),
    ];
    let bootstrap = include_str!("smuggling/bootstrap.yaml")
        .replace("LISTENERS", &listeners.concat())
        .replace("ENDPOINT", &origin.endpoint);
    Proxy::start(&bootstrap, &[])
}

const HTTP10: &str = "http_protocol_options: { accept_http_10: true }";

fn nothing_is_left(proxy: &Proxy) {
    for gauge in [
        "http.strict.downstream_rq_active",
        "http.strict.downstream_cx_active",
        "http.http10.downstream_cx_active",
        "http.tunnel.downstream_cx_active",
        "cluster.origin.upstream_rq_active",
    ] {
        until(gauge, || proxy.stat(gauge) == Some(0));
    }
}
