//! Malformed and ambiguous requests through the program to nginx, Node and Go: never two requests where one
//! was sent, and what arrives is one well-formed request that all three understand alike.
//!
//! Each run comes from an address of its own, which the proxy writes into `x-client`. So each request at an
//! origin says which run it belongs to, and one that the proxy did not write says nothing.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;
#[path = "../../../conformance/h1/corpus.rs"]
mod corpus;
#[path = "smuggling/origins.rs"]
mod origins;
#[expect(dead_code, reason = "requests are read elsewhere")]
#[path = "../../../conformance/h1/wire.rs"]
mod wire;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use common::{PATIENCE, Proxy};
use corpus::{Case, Expect};
use origins::{HeadLine, Heard, Origin};
use socket2::{Domain, Socket, Type};
use wire::Answers;

#[test]
#[ignore = "needs nginx, Node and Go"]
fn origins_see_each_request_once_and_alike() {
    let text = include_str!("../../../conformance/h1/requests.txt");
    let cases = corpus::parse(text).unwrap();
    assert!(cases.len() >= 150);
    let origins = [Origin::nginx as fn() -> Option<Origin>, Origin::node, Origin::go];
    let understood: Vec<(&str, Understood)> = std::thread::scope(|scope| {
        let cases = &cases;
        let threads = origins.map(|start| scope.spawn(move || attack(&start()?, cases)));
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    let mut wrong = Vec::new();
    for pair in understood.windows(2) {
        let [(one, left), (other, right)] = pair else { continue };
        for (case, requests) in left.iter().filter(|(case, _)| *case != REFUSED_BY_NODE) {
            if !alike(requests, &right[case]) {
                wrong.push(format!("{case}: {one} {requests:?}, {other} {:?}", right[case]));
            }
        }
    }
    assert!(wrong.is_empty(), "the origins disagree:\n{}", wrong.join("\n"));
}

/// Method, target and bytes of the body of each whole request of a case, by the case's name.
type Understood = BTreeMap<String, Vec<(String, String, Option<u64>)>>;

fn alike(left: &[(String, String, Option<u64>)], right: &[(String, String, Option<u64>)]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| {
            let bytes = left.2.is_none() || right.2.is_none() || left.2 == right.2;
            left.0 == right.0 && left.1 == right.1 && bytes
        })
}

/// The one case that an origin refuses though it is well-formed: Node knows its methods by name.
const REFUSED_BY_NODE: &str = "method-unknown-allowed";

/// Sends every case to one origin and checks each.
fn attack(origin: &Origin, cases: &[Case]) -> Option<(&'static str, Understood)> {
    let proxy = Proxy::start(&bootstrap(&origin.endpoint), &["--concurrency", "1"]);
    let listeners: HashMap<&str, String> =
        LENIENCIES.iter().map(|(name, _)| (*name, proxy.listener(name))).collect();
    let mut canary = Canary::new(&listeners["strict"]);
    let mut runs: Vec<Run<'_>> = Vec::new();
    for case in cases {
        let listener = match &case.with[..] {
            [] => &listeners["strict"],
            [one] => &listeners[one.as_str()],
            _ => panic!("{}: no listener has several leniencies", case.name),
        };
        for cut in cuts(&case.bytes) {
            let number = u32::try_from(runs.len()).unwrap();
            let client = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 77, 0, 0)) + number);
            let answers = send(case, cut, client, listener);
            runs.push(Run { case, cut, client: client.to_string(), answers });
            canary.sing(origin, number);
        }
    }
    let heard = origin.heard();
    let (understood, mut wrong) = judge(&heard, &runs);
    let refused_there = |run: &&Run<'_>| origin.name == "node" && run.case.name == REFUSED_BY_NODE;
    if heard.refused != runs.iter().filter(refused_there).count() {
        wrong.push(format!("{} times came what is no request", heard.refused));
    }
    eprintln!(
        "{}: {} cases, {} runs, {} requests arrived, {} refused there",
        origin.name,
        cases.len(),
        runs.len(),
        heard.heads.len() - runs.len(),
        heard.refused,
    );
    assert!(wrong.is_empty(), "{}: {} wrong\n{}", origin.name, wrong.len(), wrong.join("\n"));
    for gauge in ["http.strict.downstream_rq_active", "cluster.origin.upstream_rq_active"] {
        assert_eq!(proxy.stat(gauge), Some(0), "{gauge}");
    }
    Some((origin.name, understood))
}

/// One sending of a case.
struct Run<'a> {
    case: &'a Case,
    cut: Option<usize>,
    client: String,
    answers: Answers,
}

/// Whole, and cut where it hurts: in the first line, in the middle of the head's end, behind the head, and where
/// numbers drawn from the length say.
fn cuts(bytes: &[u8]) -> Vec<Option<usize>> {
    let length = bytes.len();
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let mut places: Vec<usize> = vec![5, length / 2, (length * 7 + 3) % length.max(1), length - 1];
    places.extend(head.into_iter().flat_map(|head| [head + 1, head + 3, head + 4]));
    places.retain(|&at| at > 0 && at < length);
    places.sort_unstable();
    places.dedup();
    std::iter::once(None).chain(places.into_iter().map(Some)).collect()
}

/// Sends a case with a request behind it, and reads until the proxy ends the connection.
fn send(case: &Case, cut: Option<usize>, client: Ipv4Addr, listener: &str) -> Answers {
    let mut stream = connect_from(client, listener);
    let mut bytes = case.bytes.clone();
    // A case that waits would take the request for its own rest.
    if case.expect != Expect::Wait {
        bytes.extend_from_slice(FOLLOW_UP);
    }
    let (first, second) = bytes.split_at(cut.unwrap_or(bytes.len()));
    for piece in [first, second] {
        // The proxy may have answered and closed before the second piece.
        if piece.is_empty() || stream.write_all(piece).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if case.expect == Expect::Wait {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut received = Vec::new();
    let outcome = stream.read_to_end(&mut received);
    if let Err(error) = outcome {
        let late = matches!(error.kind(), std::io::ErrorKind::WouldBlock);
        assert!(!late, "{} cut at {cut:?}: the connection hangs", case.name);
    }
    wire::answers(&received, &methods(case), true)
}

const FOLLOW_UP: &[u8] = b"GET /follow-up HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn methods(case: &Case) -> Vec<&str> {
    let word = case.bytes.split(|&byte| byte == b' ').next().unwrap_or_default();
    vec![std::str::from_utf8(word).unwrap_or("GET").trim()]
}

fn connect_from(client: Ipv4Addr, listener: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((client, 0)).into()).unwrap();
    socket.connect(&listener.parse::<SocketAddr>().unwrap().into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Asks after each run, so that what a run left on a shared upstream connection is found at once.
struct Canary {
    listener: String,
    stream: TcpStream,
}

impl Canary {
    fn new(listener: &str) -> Self {
        Self { listener: listener.into(), stream: connect_from(Self::CLIENT, listener) }
    }

    const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 76, 0, 1);

    fn sing(&mut self, origin: &Origin, number: u32) {
        // Connections are changed now and then, so that not only one is tried.
        if number.is_multiple_of(100) {
            self.stream = connect_from(Self::CLIENT, &self.listener);
        }
        let target = format!("/canary/{number}");
        write!(self.stream, "GET {target} HTTP/1.1\r\nHost: a\r\nx-canary: {number}\r\n\r\n")
            .unwrap();
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let length = self.stream.read(&mut buffer).expect("the canary is answered");
            assert!(length > 0, "the canary's connection stays");
            received.extend_from_slice(&buffer[..length]);
            let answers = wire::answers(&received, &[], false);
            if let [answer] = &answers.whole[..] {
                assert_eq!(answer.status, 200, "{}: {answer:?}", origin.name);
                let song = answer.field("x-canary").map(str::to_owned);
                assert_eq!(song, Some(number.to_string()), "{}: another's answer", origin.name);
                break;
            }
        }
        origin.hear(&target);
    }
}

/// Holds what an origin heard against what was sent.
fn judge(heard: &Heard, runs: &[Run<'_>]) -> (Understood, Vec<String>) {
    let mut wrong = Vec::new();
    let mut ids = HashSet::new();
    let mut by_client: HashMap<&str, Vec<&HeadLine>> = HashMap::new();
    for head in &heard.heads {
        if head.client == "-" || head.id == "-" || !ids.insert(&head.id) {
            wrong.push(format!("the proxy did not write this: {head:?}"));
        }
        if head.length != "-" && head.coding != "-" {
            wrong.push(format!("framed twice: {head:?}"));
        }
        by_client.entry(&head.client).or_default().push(head);
    }
    let mut understood = Understood::new();
    for run in runs {
        let heads = by_client.remove(run.client.as_str()).unwrap_or_default();
        let mut fail = |problem: String| {
            let (name, statuses) = (&run.case.name, statuses(&run.answers));
            wrong.push(format!(
                "{name} cut at {:?}: {problem}; answers {statuses}; {heads:?}",
                run.cut
            ));
        };
        if let Err(problem) = judge_run(run, &heads, heard) {
            fail(problem);
        }
        let requests: Vec<_> = heads
            .iter()
            .filter_map(|head| {
                let bytes = heard.whole.get(&head.id)?;
                Some((head.method.clone(), head.target.clone(), *bytes))
            })
            .collect();
        let first = understood.entry(run.case.name.clone()).or_insert_with(|| requests.clone());
        if *first != requests {
            fail(format!("whole it was {first:?}"));
        }
    }
    by_client.remove(Canary::CLIENT.to_string().as_str());
    for (client, heads) in by_client {
        wrong.push(format!("none is {client}: {heads:?}"));
    }
    (understood, wrong)
}

fn judge_run(run: &Run<'_>, heads: &[&HeadLine], heard: &Heard) -> Result<(), String> {
    let answers = &run.answers.whole;
    let whole = heads.iter().filter(|head| heard.whole.contains_key(&head.id)).count();
    let from_origin = answers.iter().filter(|answer| answer.field("x-origin").is_some()).count();
    let follow_ups = heads.iter().filter(|head| head.target == "/follow-up").count();
    if let Some(rest) = &run.answers.rest {
        return Err(format!("the client got half an answer: {rest}"));
    }
    if let Some(early) = answers.iter().rev().skip(1).find(|answer| !answer.keeps_alive()) {
        return Err(format!("answers follow one that closes: {early:?}"));
    }
    if whole != from_origin {
        return Err(format!("{whole} whole requests at the origin, {from_origin} answers from it"));
    }
    match run.case.expect {
        Expect::Accept(count) => {
            let closed = answers.last().is_some_and(|answer| !answer.keeps_alive());
            let all = answers.len() == count + 1 || (closed && answers.len() <= count);
            let asked = usize::from(answers.len() == count + 1);
            let refused = answers.last().is_some_and(|answer| answer.field("x-origin").is_none());
            if !all || heads.len() != whole {
                return Err(format!("{count} requests were sent, and one behind them"));
            }
            if follow_ups != asked && !refused {
                return Err(format!("the request behind arrived {follow_ups} times"));
            }
        }
        Expect::Reject(status) => {
            if follow_ups > 0 || heads.len() > whole + 1 {
                return Err("what follows an error was understood".into());
            }
            if answers.last().is_none_or(|answer| answer.status != status) {
                return Err(format!("{status} was due"));
            }
        }
        Expect::Wait => {
            if whole > 0 || !answers.iter().all(|answer| answer.status >= 400) {
                return Err("half a request was taken for a whole one".into());
            }
        }
    }
    Ok(())
}

fn statuses(answers: &Answers) -> String {
    format!("{:?}", answers.whole.iter().map(|answer| answer.status).collect::<Vec<_>>())
}

/// The listeners, and what makes each lenient, as the corpus names it.
const LENIENCIES: [(&str, &str); 6] = [
    ("strict", ""),
    ("http10", "http_protocol_options: { accept_http_10: true }"),
    ("trailers", "http_protocol_options: { enable_trailers: true }"),
    ("custom-methods", "http_protocol_options: { allow_custom_methods: true }"),
    ("chunked-length", "http_protocol_options: { allow_chunked_length: true }"),
    (
        "reject-underscores",
        "common_http_protocol_options: { headers_with_underscores_action: REJECT_REQUEST }",
    ),
];

fn bootstrap(endpoint: &str) -> String {
    let listeners: String =
        LENIENCIES.iter().map(|(name, options)| listener(name, options)).collect();
    include_str!("smuggling/bootstrap.yaml")
        .replace("LISTENERS", &listeners)
        .replace("ENDPOINT", endpoint)
}

fn listener(name: &str, options: &str) -> String {
    include_str!("smuggling/listener.yaml").replace("NAME", name).replace("OPTIONS", options)
}
