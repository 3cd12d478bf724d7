//! `towpath get` as somebody at a terminal, or a script, sees it.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};

/// Answers every request with this.
fn serve(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn get(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towpath")).arg("get").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_body_goes_out_and_the_timeline_beside_it() {
    let address = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let output = get(&["--timeline", "-v", &format!("http://{address}/")]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "hello".to_owned()));
    let told = text(&output.stderr);
    for part in ["attempt 1: connect to", "attempt 1: connected", "response begins: 200", "< 200"] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
}

#[test]
fn a_report_is_json() {
    let address = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let output = get(&["--json", &format!("http://{address}/")]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!((&report["status"], &report["body_bytes"]), (&200.into(), &5.into()));
    assert_eq!(report["attempts"][0]["outcome"], "connected");
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = serve("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}/", silent.local_addr().unwrap());
    let code = |words: &[&str]| get(words).status.code();
    assert_eq!(code(&[&format!("http://{gone}/")]), Some(1));
    assert_eq!(code(&["ftp://example.org/"]), Some(2));
    assert_eq!(code(&["-H", "no colon", &silent_url]), Some(2));
    assert_eq!(code(&[&format!("http://{refused}/")]), Some(3));
    assert_eq!(code(&["--max-time", "0.2", &silent_url]), Some(4));
}
