//! WebSocket with servers that others wrote, and with Autobahn's cases.
#![cfg(feature = "websocket")]
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use towpath::websocket::Message;
use towpath::{Engine, HttpVersions, WebSocket};

struct Peer {
    process: Child,
    lines: BufReader<ChildStdout>,
    port: u16,
}

impl Peer {
    /// Nothing where there is no Python with what it needs.
    fn start(name: &str, words: &[&str]) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers.py");
        let mut process = Command::new(python()?)
            .arg(script)
            .arg(name)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Some(Self { process, lines, port })
    }

    fn url(&self, path: &str) -> String {
        format!("ws://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
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

fn echoes(socket: &WebSocket) {
    for length in [0, 1, 125, 126, 1000, 65_536, 300_000] {
        let messages =
            [Message::from("tow€".repeat(length / 6)), Message::from(vec![0xff; length])];
        for message in messages {
            socket.send(message.clone()).unwrap();
            assert!(socket.receive().unwrap() == Some(message), "{length}");
        }
    }
    let (sending, chance) = (socket.clone(), 0x2545_f491_u64);
    let bodies = (0..500_u64).map(move |it| format!("{}", it.wrapping_mul(chance)).repeat(20));
    let expected: Vec<String> = bodies.clone().collect();
    let sender = std::thread::spawn(move || bodies.for_each(|it| sending.send(it).unwrap()));
    for text in expected {
        assert_eq!(socket.receive().unwrap(), Some(Message::Text(text)));
    }
    sender.join().unwrap();
    socket.close(1000, "enough").unwrap();
    assert_eq!(socket.receive().unwrap(), None);
    assert_eq!(socket.close_reason().unwrap().code, 1000);
}

#[test]
#[ignore = "needs Python with websockets"]
fn websockets_is_talked_with_compressed_and_plain() {
    let Some(peer) = Peer::start("websockets", &[]) else { return };
    let engine = Engine::new().unwrap();
    let connect = engine.client().get(&peer.url("chat")).websocket();
    let compressed = connect.clone().open().unwrap();
    assert_eq!(compressed.is_compressed(), cfg!(feature = "gzip"));
    echoes(&compressed);
    let plain = connect.no_compression().open().unwrap();
    assert!(!plain.is_compressed());
    echoes(&plain);
}

#[test]
#[ignore = "needs Python with hypercorn"]
#[cfg(feature = "http2")]
fn hypercorn_is_talked_with_over_both_versions() {
    let Some(peer) = Peer::start("hypercorn", &[]) else { return };
    let engine = Engine::new().unwrap();
    for (versions, name) in [(HttpVersions::Http1, "http1.1"), (HttpVersions::Http2, "http2")] {
        let request = engine.client().get(&peer.url("")).http_versions(versions);
        let connect = request.websocket().subprotocol("http1.1").subprotocol("http2");
        let socket = connect.open().unwrap();
        assert_eq!(socket.subprotocol().as_deref(), Some(name));
        echoes(&socket);
    }
}

/// Autobahn's test suite, as `kosoku` runs it: each case ends as it must, or as it may where the specification leaves a
/// choice. Left out are those of speed (9), and of compression those that differ from others by the lengths alone in
/// which a server writes.
#[test]
#[ignore = "needs Python with kosoku"]
fn autobahn_s_cases_end_as_they_must() {
    let Some(mut peer) = Peer::start("autobahn", CASES) else { return };
    let engine = Engine::new().unwrap();
    let open = |path: &str| {
        let connect = engine.client().get(&peer.url(path)).websocket();
        connect.max_message_bytes(64 << 20).close_timeout(Duration::from_secs(5)).open().unwrap()
    };
    let count = open("getCaseCount").receive().unwrap().unwrap();
    let count: u32 = count.as_text().unwrap().parse().unwrap();
    assert!(count > 250, "{count} cases");
    for case in 1..=count {
        let socket = open(&format!("runCase?case={case}&agent=towpath"));
        while let Ok(Some(message)) = socket.receive() {
            if socket.send(message).is_err() {
                break;
            }
        }
        // The server ends the connection.
        while !socket.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(open("updateReports?agent=towpath"));
    let mut line = String::new();
    peer.lines.read_line(&mut line).unwrap();
    let results: Vec<[String; 4]> = serde_json::from_str(&line).unwrap();
    assert_eq!(results.len(), count as usize);
    let wrong: Vec<_> = results
        .iter()
        .filter(|[case, behaviour, close, _]| {
            let is_fine = match behaviour.as_str() {
                "OK" | "NON-STRICT" | "INFORMATIONAL" => true,
                "UNIMPLEMENTED" => NOT_OFFERED.iter().any(|of| case.starts_with(of)),
                _ => false,
            };
            !is_fine || !["OK", "INFORMATIONAL"].contains(&close.as_str())
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let choices = results.iter().filter(|[_, behaviour, ..]| behaviour != "OK");
    let choices: Vec<_> = choices.map(|[case, behaviour, ..]| (case, behaviour)).collect();
    println!("{count} cases; not simply OK: {choices:?}");
}

const CASES: &[&str] = &[
    "1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*", "12.1.*", "13.1.*", "13.2.1",
    "13.3.1", "13.4.1", "13.5.1", "13.6.1", "13.7.*",
];
/// A server wants our own window to be smaller, or begun anew with each message: neither is offered, because a server
/// that can do without would then do so as well.
const NOT_OFFERED: [&str; 5] = ["13.2.", "13.3.", "13.4.", "13.5.", "13.6."];
