//! WebSocket through the program, with a library of other people on both ends.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Proxy, bootstrap, until};

#[test]
#[ignore = "needs Python with websockets"]
fn messages_pass_whole_in_both_directions() {
    let Some(python) = python() else { return };
    let mut server = Command::new(&python)
        .arg(script())
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let origin = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap()));
    let upgrades =
        "stat_prefix: ingress\n          upgrade_configs: [ { upgrade_type: websocket } ]";
    let proxy = Proxy::start(&bootstrap(origin).replace("stat_prefix: ingress", upgrades), &[]);
    let listener = proxy.listener("ingress");
    let talked = Command::new(&python)
        .arg(script())
        .args(["talk", &format!("ws://{listener}/chat")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&talked.stderr);
    assert_eq!(String::from_utf8_lossy(&talked.stdout), "talked\n", "{said}");
    assert_eq!(proxy.stat("http.ingress.downstream_cx_upgrades_total"), Some(10));
    nothing_is_left(&proxy);

    // A server that goes away takes its clients along.
    let open = TcpStream::connect(&listener).unwrap();
    let hello = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    std::io::Write::write_all(&mut &open, hello.as_bytes()).unwrap();
    open.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let mut reader = BufReader::new(&open);
    let mut status = String::new();
    reader.read_line(&mut status).unwrap();
    assert_eq!(status, "HTTP/1.1 101 Switching Protocols\r\n");
    assert_eq!(proxy.stat("http.ingress.downstream_cx_upgrades_active"), Some(1));
    server.kill().unwrap();
    server.wait().unwrap();
    let mut rest = Vec::new();
    // A FIN or a reset: the end, in any case.
    if let Err(error) = std::io::Read::read_to_end(&mut reader, &mut rest) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the client hangs");
    }
    nothing_is_left(&proxy);
}

/// The interpreter that `cargo xtask peers` made.
fn python() -> Option<PathBuf> {
    let folder = std::env::var_os("TOWPATH_PEERS").unwrap_or_default();
    let python = Path::new(&folder).join("python");
    if python.exists() {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "no python: TOWPATH_PEERS does not lead to it");
    eprintln!("left out, there is no python: TOWPATH_PEERS does not lead to it");
    None
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/talks.py")
}

fn nothing_is_left(proxy: &Proxy) {
    for gauge in [
        "http.ingress.downstream_rq_active",
        "http.ingress.downstream_cx_active",
        "http.ingress.downstream_cx_upgrades_active",
        "cluster.origin.upstream_rq_active",
        "cluster.origin.upstream_cx_active",
    ] {
        until(gauge, || proxy.stat(gauge) == Some(0));
    }
}
