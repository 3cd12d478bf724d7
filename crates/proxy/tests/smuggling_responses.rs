//! Malformed and ambiguous responses through the program: the client never gets two where it asked once, never one
//! of a wrong length, and what it asks next gets its own answer.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;
#[path = "../../../conformance/h1/corpus.rs"]
mod corpus;
#[expect(dead_code, reason = "requests are read elsewhere")]
#[path = "../../../conformance/h1/wire.rs"]
mod wire;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{PATIENCE, Proxy};
use corpus::{Case, Expect};
use wire::{Answer, Answers, answers};

#[test]
fn a_client_gets_one_whole_answer_or_an_error() {
    let text = include_str!("../../../conformance/h1/responses.txt");
    let cases = corpus::parse(text).unwrap();
    let origin = Origin::start();
    let proxy = Proxy::start(&bootstrap(origin.address), &["--concurrency", "1"]);
    let listener = proxy.listener("strict");
    let (mut wrong, mut number) = (Vec::new(), 0);
    for case in &cases {
        for cut in cuts(&case.bytes) {
            number += 1;
            let received = run(&origin, case, cut, number, &listener);
            if let Err(problem) = judge(case, &received, number) {
                let Answers { whole, rest } = received;
                wrong.push(format!("{} cut at {cut:?}: {problem}; {whole:?} {rest:?}", case.name));
            }
        }
    }
    eprintln!("{} cases, {number} runs", cases.len());
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    for gauge in [
        "http.strict.downstream_rq_active",
        "cluster.origin.upstream_rq_active",
        "cluster.origin.upstream_rq_pending_active",
    ] {
        common::until(gauge, || proxy.stat(gauge) == Some(0));
    }
    assert!(proxy.stat("cluster.origin.upstream_cx_protocol_error").is_some_and(|count| count > 0));
}

/// Whole, and cut in the first line, around the end of the head, and where numbers drawn from the length say.
fn cuts(bytes: &[u8]) -> Vec<Option<usize>> {
    let length = bytes.len();
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let mut places =
        vec![5, length / 2, (length * 7 + 3) % length.max(1), length.saturating_sub(1)];
    places.extend(head.into_iter().flat_map(|head| [head + 1, head + 3, head + 4]));
    places.retain(|&at| at > 0 && at < length);
    places.sort_unstable();
    places.dedup();
    std::iter::once(None).chain(places.into_iter().map(Some)).collect()
}

/// Asks for a case and then for something harmless, on one connection.
fn run(origin: &Origin, case: &Case, cut: Option<usize>, number: u32, listener: &str) -> Answers {
    *origin.script.lock().unwrap() = Some((case.clone(), cut));
    let mut stream = TcpStream::connect(listener).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = match case.to.as_str() {
        "CONNECT" => "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned(),
        "upgrade" => {
            "GET /case HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                .into()
        }
        method => format!("{method} /case HTTP/1.1\r\nHost: a\r\n\r\n"),
    };
    let next = format!("GET /next/{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let tunnel = matches!(case.to.as_str(), "CONNECT" | "upgrade");
    if tunnel {
        // What follows may be opaque, so nothing does.
        stream.write_all(ask.as_bytes()).unwrap();
        origin.written();
        std::thread::sleep(Duration::from_millis(2));
        let _ = stream.shutdown(Shutdown::Write);
    } else if cut.is_none() {
        stream.write_all([ask, next].concat().as_bytes()).unwrap();
        origin.written();
    } else {
        stream.write_all(ask.as_bytes()).unwrap();
        origin.written();
        std::thread::sleep(Duration::from_millis(2));
        // The proxy may have ended the connection, as it must after half an answer.
        let _ = stream.write_all(next.as_bytes());
    }
    let mut received = Vec::new();
    if let Err(error) = stream.read_to_end(&mut received) {
        let late = matches!(error.kind(), std::io::ErrorKind::WouldBlock);
        assert!(
            !late,
            "{} cut at {cut:?}: the connection hangs: {}",
            case.name,
            received.escape_ascii()
        );
    }
    answers(&received, &[if tunnel && case.to == "upgrade" { "GET" } else { &case.to }], true)
}

fn judge(case: &Case, received: &Answers, number: u32) -> Result<(), String> {
    let own = |answer: &Answer| answer.field("x-number") == Some(number.to_string().as_str());
    let (first, others) = match received.whole.split_first() {
        Some((first, others)) => (Some(first), others),
        None => (None, &[][..]),
    };
    match others {
        [] => {}
        [next] if own(next) => {}
        _ => return Err("what was asked next has no answer of its own".into()),
    }
    if first.is_some_and(own) {
        return Err("the case has no answer".into());
    }
    if !others.is_empty() && received.rest.is_some() {
        return Err("something follows the last answer".into());
    }
    if first.is_some_and(|answer| answer.field("x-again").is_some()) {
        // Asked again on a fresh connection, as is safe when a pooled one ends without a word.
        return if case.bytes.is_empty() { Ok(()) } else { Err("asked twice".into()) };
    }
    let tunnel = matches!(case.to.as_str(), "CONNECT" | "upgrade");
    // Only an origin's answer is marked with its time, and where a tunnel was asked for not even that.
    let told = first.filter(|answer| match tunnel {
        true => !matches!(answer.status, 502..=504),
        false => answer.field("x-envoy-upstream-service-time").is_some(),
    });
    let close = case.close || case.expect == Expect::Wait;
    let sent = answers(&case.bytes, &[&case.to], close);
    match case.expect {
        Expect::Accept(_) => {
            let told = told.ok_or("the origin's answer was refused")?;
            let sent = sent.whole.first().ok_or("the strict client cannot read it either")?;
            if told.status != sent.status || told.body != sent.body {
                return Err(format!("sent was {sent:?}"));
            }
            if others.is_empty() && !tunnel {
                return Err("what was asked next got no answer".into());
            }
        }
        // A whole answer may stand before what is wrong; the wrong part goes to no client.
        Expect::Reject(_) | Expect::Wait => match (told, sent.whole.first()) {
            (Some(told), Some(sent)) if told.status == sent.status && told.body == sent.body => {}
            (Some(_), _) => return Err(format!("a whole answer was made of {sent:?}")),
            (None, _) if first.is_some_and(|answer| !matches!(answer.status, 502..=504)) => {
                return Err("an error was due".into());
            }
            (None, _) => {}
        },
    }
    Ok(())
}

type Script = Arc<Mutex<Option<(Case, Option<usize>)>>>;

/// Answers `/next/N` well and everything else with the bytes of a case.
struct Origin {
    address: SocketAddr,
    script: Script,
    written: Receiver<()>,
}

impl Origin {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, written) = channel();
        let script = Script::default();
        let shared = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, sender) = (Arc::clone(&shared), sender.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &script, &sender));
            }
        });
        Self { address, script, written }
    }

    /// Waits until all of the case went out.
    fn written(&self) {
        self.written.recv_timeout(PATIENCE).expect("the origin is asked");
    }
}

fn serve(mut stream: TcpStream, script: &Script, written: &Sender<()>) {
    stream.set_nodelay(true).unwrap();
    while let Some(head) = read_head(&mut stream) {
        let target = head.split(' ').nth(1).unwrap_or_default();
        if let Some(number) = target.strip_prefix("/next/") {
            let answer =
                format!("HTTP/1.1 200 OK\r\nX-Number: {number}\r\nContent-Length: 2\r\n\r\nok");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
            continue;
        }
        let Some((case, cut)) = script.lock().unwrap().take() else {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Again: 1\r\nContent-Length: 0\r\n\r\n");
            continue;
        };
        let (first, second) = case.bytes.split_at(cut.unwrap_or(case.bytes.len()));
        for piece in [first, second] {
            let _ = stream.write_all(piece);
            if cut.is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if case.close || case.expect == Expect::Wait {
            let _ = stream.shutdown(Shutdown::Write);
        }
        written.send(()).unwrap();
    }
}

/// Up to the empty line; requests here have no body.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn bootstrap(origin: SocketAddr) -> String {
    let upgrades = "upgrade_configs: [ { upgrade_type: websocket }, { upgrade_type: CONNECT } ]";
    let connect = "[ { match: { connect_matcher: {} }, route: { cluster: origin } }, { match";
    let listener = include_str!("smuggling/listener.yaml")
        .replace("NAME", "strict")
        .replace("OPTIONS", upgrades)
        .replace("[ { match", connect);
    let endpoint =
        format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {} }} }}", origin.port());
    include_str!("smuggling/bootstrap.yaml")
        .replace("LISTENERS", &listener)
        .replace("ENDPOINT", &endpoint)
}
