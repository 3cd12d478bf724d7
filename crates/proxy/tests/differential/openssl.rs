//! A client with another library's TLS: `openssl s_client`, and what it says of its connections.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::case::Case;
use crate::client::Heard;
use crate::script;
use crate::secure;
use crate::wire::Message;

/// Asks once over each connection, one after the other.
pub(crate) fn talk(address: &str, case: &Case, folder: &Path) -> Heard {
    let mut heard = Heard::default();
    let ask = script::bytes(case.ask.as_deref().expect("what OpenSSL's client asks"));
    for options in &case.openssl {
        let said = run(address, &fill(options, folder), &ask);
        heard.lines.extend(said.lines().filter_map(of_handshake));
        let Some((_, answer)) = said.split_once("HTTP/1.1 ") else { continue };
        let (head, body) = answer.split_once("\n\n").unwrap_or((answer, ""));
        let mut fields: Vec<_> = head.lines().map(str::trim_end).collect();
        fields[1..].sort_unstable();
        heard.lines.extend(fields.iter().map(|line| format!("answer: {line}")));
        // Tickets of TLS 1.3 may be told in between.
        let length =
            fields.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        heard.lines.push(format!("answer: {}", body.get(..length.unwrap_or(0)).unwrap_or(body)));
        heard.messages.push(Message { start: format!("HTTP/1.1 {head}"), ..Message::default() });
    }
    heard
}

/// `${me.file}` is a file with that certificate and its key, `${session}` one for sessions.
fn fill(options: &str, folder: &Path) -> Vec<String> {
    let fill = |word: &str| match word.strip_prefix("${").and_then(|name| name.strip_suffix('}')) {
        Some("session") => folder.join("session").display().to_string(),
        Some(name) => {
            let name = name.strip_suffix(".file").expect("only files are named here");
            secure::file(name, folder).display().to_string()
        }
        None => word.to_owned(),
    };
    options.split_whitespace().map(fill).collect()
}

/// All that it prints. It ends when the server does, after eight seconds at most.
fn run(address: &str, options: &[String], ask: &[u8]) -> String {
    let mut child = Command::new("timeout")
        .args(["8", "openssl", "s_client", "-ign_eof", "-connect", address])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl can be run");
    // A server that refuses the handshake ends before it is asked.
    let _ = child.stdin.take().unwrap().write_all(ask);
    let output = child.wait_with_output().unwrap();
    let said = [output.stderr, output.stdout].concat();
    String::from_utf8_lossy(&said).replace("\r\n", "\n")
}

/// What of a line depends on the server alone.
fn of_handshake(line: &str) -> Option<String> {
    if let Some((_, alert)) = line.split_once("SSL alert number ") {
        return Some(format!("alert: {alert}"));
    }
    let told = [
        "subject=",
        "ALPN protocol: ",
        "No ALPN negotiated",
        "New, ",
        "Reused, ",
        "Server Temp Key: ",
        "CN = ",
        "OCSP response: ",
        "    OCSP Response Status: ",
        "    Cert Status: ",
    ];
    told.iter().any(|start| line.starts_with(start)).then(|| format!("handshake: {line}"))
}
