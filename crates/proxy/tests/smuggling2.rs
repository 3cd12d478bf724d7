//! Requests that HTTP/2 forbids, or that HTTP/1.1 reads in two ways, through the program to an origin of HTTP/1.1:
//! never two requests where one was sent, never one that HTTP/2 forbids, and what arrives is what was asked.
//!
//! Each run comes from an address of its own, which the proxy writes into `x-client`. So each request at an origin
//! says which run it belongs to, and one that the proxy did not write says nothing.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;
#[path = "../../../conformance/h2/corpus.rs"]
mod corpus;
#[path = "smuggling2/frames.rs"]
mod frames;
#[path = "../../../conformance/h2/wire.rs"]
mod h2;
#[path = "smuggling2/origin.rs"]
mod origin;
#[path = "smuggling/origins.rs"]
#[allow(dead_code, reason = "the number of bodies is of no use here")]
mod origins;
#[path = "../../../conformance/h1/wire.rs"]
#[allow(dead_code, reason = "answers are read elsewhere")]
mod wire;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use common::Proxy;
use corpus::{Case, Expect, Step};
use frames::{Answer, Client};
use h2::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, block, frame, request};
use origins::{HeadLine, Heard, Origin};

#[test]
fn a_strict_origin_gets_each_request_once_and_as_it_was_asked() {
    attack(&origin::strict());
}

#[test]
#[ignore = "needs nginx, Node and Go"]
fn servers_of_others_get_each_request_once_and_as_it_was_asked() {
    for start in [Origin::nginx as fn() -> Option<Origin>, Origin::node, Origin::go] {
        if let Some(origin) = start() {
            attack(&origin);
        }
    }
}

/// One sending of a case.
struct Run<'a> {
    case: &'a Case,
    how: How,
    listener: &'static str,
    client: String,
    answer: Answer,
    go_away: Option<u32>,
    is_closed: bool,
}

/// How header blocks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Whole,
    /// Their first byte alone in HEADERS, the others in CONTINUATION.
    Cut,
}

/// What a malformed message ends: its connection, or its stream alone.
const LISTENERS: [(&str, &str); 2] = [
    ("connection", ""),
    ("stream", "http2_protocol_options: { override_stream_error_on_invalid_http_message: true }"),
];

/// Sends every case in every way to a proxy before one origin, and checks each.
fn attack(origin: &Origin) {
    let cases = corpus::parse(include_str!("../../../conformance/h2/requests.txt")).unwrap();
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let proxy = Proxy::start(&bootstrap(&origin.endpoint), &["--concurrency", "1"]);
    let mut runs = Vec::new();
    for (name, _) in LISTENERS {
        let listener = proxy.listener(name);
        let mut canary = Canary::new(&listener);
        for case in &cases {
            for how in [How::Whole, How::Cut] {
                let number = u32::try_from(runs.len()).unwrap();
                let client = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 79, 0, 0)) + number);
                runs.push(send(case, how, client, name, &listener));
                canary.sing(origin, number);
            }
        }
    }
    let heard = origin.heard();
    let mut wrong = judge(&heard, &runs, origin.name);
    if heard.refused > 0 {
        wrong.push(format!("{} times came what is no request", heard.refused));
    }
    eprintln!(
        "{}: {} cases, {} runs, {} requests arrived",
        origin.name,
        cases.len(),
        runs.len(),
        heard.heads.len() - runs.len()
    );
    assert!(wrong.is_empty(), "{}: {} wrong\n{}", origin.name, wrong.len(), wrong.join("\n"));
    for (name, _) in LISTENERS {
        common::until("no request is left", || {
            proxy.stat(&format!("http.{name}.downstream_rq_active")) == Some(0)
        });
    }
}

/// Sends a case on a connection of its own, and reads until it is known what the proxy makes of it.
fn send<'a>(
    case: &'a Case,
    how: How,
    client: Ipv4Addr,
    name: &'static str,
    listener: &str,
) -> Run<'a> {
    let mut connection = Client::connect(client, listener, &[]);
    connection.send(&bytes(case, how));
    // Its answer comes behind all that was sent has been read.
    connection.ping();
    connection.read_until(|it| it.pongs > 0 || it.go_away.is_some());
    if case.ends {
        connection.answer(1);
    }
    let answer = connection.answers.get(&1).cloned().unwrap_or_default();
    let (go_away, is_closed) = (connection.go_away, connection.is_closed);
    Run { case, how, listener: name, client: client.to_string(), answer, go_away, is_closed }
}

fn bytes(case: &Case, how: How) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, step) in case.steps.iter().enumerate() {
        let is_last = at + 1 == case.steps.len();
        let end = if is_last && case.ends { END_STREAM } else { 0 };
        match step {
            Step::Data(content) => bytes.extend(frame(DATA, end, 1, content)),
            Step::Block(fields) => {
                let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
                let block = block(fields);
                let first = if how == How::Cut { block.len().min(1) } else { block.len() };
                let is_whole = first == block.len();
                let flags = if is_whole { end | END_HEADERS } else { end };
                bytes.extend(frame(HEADERS, flags, 1, &block[..first]));
                if !is_whole {
                    bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &block[first..]));
                }
            }
        }
    }
    bytes
}

/// Asks after each run, so that what a run left on a shared connection to the origin is found at once.
struct Canary {
    listener: String,
    client: Client,
    stream: u32,
}

impl Canary {
    const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 76, 0, 2);

    fn new(listener: &str) -> Self {
        let client = Client::connect(Self::CLIENT, listener, &[]);
        Self { listener: listener.into(), client, stream: 1 }
    }

    fn sing(&mut self, origin: &Origin, number: u32) {
        // Connections are changed now and then, so that not only one is tried.
        if number.is_multiple_of(100) {
            *self = Self::new(&self.listener);
        }
        let (target, song) = (format!("/canary/{number}"), number.to_string());
        let mut fields = request("GET", &target);
        fields.push((b"x-canary", song.as_bytes()));
        let head = frame(HEADERS, END_HEADERS | END_STREAM, self.stream, &block(fields));
        assert!(self.client.send(&head), "the canary's connection stays");
        let answer = self.client.answer(self.stream);
        self.stream += 2;
        assert_eq!(answer.status(), 200, "{}: run {number}: {answer:?}", origin.name);
        assert_eq!(answer.fields.get("x-canary"), Some(&song), "{}: another's", origin.name);
        origin.hear(&target);
    }
}

/// Holds what an origin heard against what was sent.
fn judge(heard: &Heard, runs: &[Run<'_>], origin: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_client: HashMap<&str, Vec<&HeadLine>> = HashMap::new();
    for head in &heard.heads {
        if head.client == "-" || head.id == "-" {
            wrong.push(format!("the proxy did not write this: {head:?}"));
        }
        if head.length != "-" && head.coding != "-" {
            wrong.push(format!("framed twice: {head:?}"));
        }
        by_client.entry(&head.client).or_default().push(head);
    }
    for run in runs {
        let heads = by_client.remove(run.client.as_str()).unwrap_or_default();
        if let Err(problem) = judge_run(run, &heads, heard, origin) {
            let (name, how, listener) = (&run.case.name, run.how, run.listener);
            let (answer, go_away) = (&run.answer, run.go_away);
            wrong.push(format!(
                "{name} ({how:?}, {listener}): {problem}; {answer:?}, GOAWAY {go_away:?}; {heads:?}"
            ));
        }
    }
    by_client.remove(Canary::CLIENT.to_string().as_str());
    for (client, heads) in by_client {
        wrong.push(format!("none is {client}: {heads:?}"));
    }
    wrong
}

fn judge_run(
    run: &Run<'_>,
    heads: &[&HeadLine],
    heard: &Heard,
    origin: &str,
) -> Result<(), String> {
    let Run { case, answer, .. } = run;
    let whole: Vec<_> = heads.iter().filter(|it| heard.whole.contains_key(&it.id)).collect();
    let is_refused = answer.reset.is_some()
        || run.go_away.is_some()
        || run.is_closed
        || (400..600).contains(&answer.status());
    match case.expect {
        Expect::Accept => {
            let [head] = whole[..] else { return Err(format!("{} arrived", whole.len())) };
            let text = |bytes: Option<&[u8]>| {
                bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            };
            let path = text(case.field(":path")).unwrap_or_default();
            // Node's script writes what it understood encoded once more.
            let is_asked = [path.replace('%', "%25"), path].contains(&head.target);
            if Some(&head.method) != text(case.field(":method")).as_ref() || !is_asked {
                return Err("another request arrived than was sent".into());
            }
            let bytes = heard.whole.get(&head.id).copied().flatten();
            if bytes.is_some_and(|bytes| bytes != case.body() as u64) {
                return Err(format!("{bytes:?} bytes of a body of {} arrived", case.body()));
            }
            if answer.status() != 200 || !answer.fields.contains_key("x-origin") {
                return Err("it was not answered by the origin".into());
            }
        }
        Expect::Reject if !heads.is_empty() => return Err("something arrived".into()),
        Expect::Cut if heads.len() > 1 || !whole.is_empty() => {
            return Err(format!("a whole request arrived at {origin}"));
        }
        // What is not whole may as well be waited for.
        Expect::Reject | Expect::Cut if case.ends && !is_refused => {
            return Err("the client is not told".into());
        }
        Expect::Reject | Expect::Cut => {}
    }
    Ok(())
}

fn bootstrap(endpoint: &str) -> String {
    let listener = |(name, options): (&str, &str)| {
        include_str!("smuggling/listener.yaml").replace("NAME", name).replace("OPTIONS", options)
    };
    include_str!("smuggling/bootstrap.yaml")
        .replace("LISTENERS", &LISTENERS.map(listener).concat())
        .replace("ENDPOINT", endpoint)
}
