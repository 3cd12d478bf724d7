//! The corpus of malformed and ambiguous messages through a worker, whole and cut at every byte: what reaches the
//! origin is one well-formed request for each that was sent, what reaches the client one answer for each request.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

#[path = "../../../conformance/h1/corpus.rs"]
mod corpus;
#[path = "scene/rig.rs"]
mod rig;
#[path = "../../../conformance/h1/wire.rs"]
mod wire;

use std::sync::Arc;

use corpus::{Case, Expect};
use rig::{Rig, Script};
use scene::Plan;
use towpath_engine::snapshot::http::Http;
use towpath_proto::http1::{Options, Underscores};
use wire::{Answer, answers};

#[test]
fn an_origin_sees_one_well_formed_request_for_each_that_was_sent() {
    let cases = corpus::parse(include_str!("../../../conformance/h1/requests.txt")).unwrap();
    assert!(cases.len() >= 150);
    let (mut wrong, mut runs) = (Vec::new(), 0);
    for case in &cases {
        let mut rig = Rig::new(plan(case));
        let mut bytes = case.bytes.clone();
        if case.expect != Expect::Wait {
            bytes.extend_from_slice(FOLLOW_UP);
        }
        let mut whole = None;
        for cut in cuts(bytes.len(), case.bytes.len()) {
            runs += 1;
            let outcome = rig.run(&pieces(&bytes, cut), case.expect == Expect::Wait);
            let seen = (outcome.requests.clone(), outcome.answers(&[method(case)]).whole.len());
            let mut problem = judge_request(case, &outcome);
            if problem.is_ok()
                && cut != Cut::Everywhere
                && *whole.get_or_insert_with(|| seen.clone()) != seen
            {
                problem = Err(format!("uncut it was {whole:?}"));
            }
            if let Err(problem) = problem.and_then(|()| rig.canary(runs)) {
                wrong.push(format!("{} cut at {cut:?}: {problem}; {outcome:?}", case.name));
                break;
            }
        }
    }
    eprintln!("{} cases, {runs} runs", cases.len());
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_client_gets_one_whole_answer_or_an_error() {
    let cases = corpus::parse(include_str!("../../../conformance/h1/responses.txt")).unwrap();
    let (mut wrong, mut runs) = (Vec::new(), 0);
    for case in cases.iter().filter(|case| !matches!(case.to.as_str(), "CONNECT" | "upgrade")) {
        let mut rig = Rig::new(Plan::new(1));
        for cut in cuts(case.bytes.len(), case.bytes.len()) {
            runs += 1;
            rig.script = Some(Script {
                pieces: pieces(&case.bytes, cut),
                close: case.close || case.expect == Expect::Wait,
            });
            let ask = format!("{} /case HTTP/1.1\r\nHost: a\r\n\r\n", case.to).into_bytes();
            // What comes in a piece of its own, behind a whole answer, may meet the next request on its way: neither
            // side can tell then. So the next request is sent when all is there.
            let asks = match cut {
                Cut::Nowhere => vec![[&ask, FOLLOW_UP].concat()],
                Cut::At(_) | Cut::Everywhere => vec![ask, FOLLOW_UP.to_vec()],
            };
            let outcome = rig.run(&asks, false);
            let judged = judge_response(case, &outcome);
            if let Err(problem) = judged.and_then(|()| rig.canary(runs)) {
                wrong.push(format!("{} cut at {cut:?}: {problem}; {outcome:?}", case.name));
                break;
            }
        }
    }
    eprintln!("{} cases, {runs} runs", cases.len());
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

const FOLLOW_UP: &[u8] = b"GET /follow-up HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn judge_request(case: &Case, outcome: &rig::Outcome) -> Result<(), String> {
    if let Some(problem) = &outcome.problem {
        return Err(problem.clone());
    }
    if !outcome.ended {
        return Err("the connection stays open".into());
    }
    let answers = outcome.answers(&[method(case)]);
    if let Some(rest) = answers.rest {
        return Err(format!("half an answer: {rest}"));
    }
    let from_origin = answers.whole.iter().filter(|answer| is_from_origin(answer)).count();
    if outcome.requests.len() != from_origin {
        return Err(format!("{} requests, {from_origin} answers to them", outcome.requests.len()));
    }
    let follow_ups = outcome.requests.iter().filter(|(_, target)| target == "/follow-up").count();
    match case.expect {
        Expect::Accept(count) => {
            let closed = answers.whole.last().is_some_and(|answer| !answer.keeps_alive());
            if answers.whole.len() > count + 1 || !closed || answers.whole.is_empty() {
                return Err(format!("{count} requests were sent, and one behind them"));
            }
            if follow_ups > 1 || (follow_ups == 1 && answers.whole.len() != count + 1) {
                return Err("the request behind is out of place".into());
            }
        }
        Expect::Reject(status) => {
            if follow_ups > 0 {
                return Err("what follows an error was understood".into());
            }
            if answers.whole.last().is_none_or(|answer| answer.status != status) {
                return Err(format!("{status} was due"));
            }
        }
        Expect::Wait => {
            if !outcome.requests.is_empty() {
                return Err("half a request was taken for a whole one".into());
            }
        }
    }
    Ok(())
}

fn judge_response(case: &Case, outcome: &rig::Outcome) -> Result<(), String> {
    if let Some(problem) = &outcome.problem {
        return Err(problem.clone());
    }
    let received = outcome.answers(&[&case.to]);
    let (first, others) = match received.whole.split_first() {
        Some((first, others)) => (Some(first), others),
        None => (None, &[][..]),
    };
    match others {
        [] => {}
        [next] if next.field("x-target") == Some("/follow-up") && received.rest.is_none() => {}
        _ => return Err("what was asked next has no answer of its own".into()),
    }
    if first.is_some_and(is_from_origin) {
        // Asked again on a fresh connection, as is safe when a pooled one ends without a word.
        return if case.bytes.is_empty() { Ok(()) } else { Err("asked twice".into()) };
    }
    let told = first.filter(|answer| answer.field("x-envoy-upstream-service-time").is_some());
    let close = case.close || case.expect == Expect::Wait;
    let sent = answers(&case.bytes, &[&case.to], close).whole.into_iter().next();
    match (case.expect, told, sent) {
        (_, Some(told), Some(sent)) if told.status == sent.status && told.body == sent.body => {
            if matches!(case.expect, Expect::Accept(_)) && others.is_empty() {
                return Err("what was asked next got no answer".into());
            }
            Ok(())
        }
        (Expect::Accept(_), _, sent) => Err(format!("sent was {sent:?}")),
        (_, Some(_), sent) => Err(format!("a whole answer was made of {sent:?}")),
        (_, None, _) => match first {
            Some(answer) if !matches!(answer.status, 502..=504) => Err("an error was due".into()),
            _ => Ok(()),
        },
    }
}

fn is_from_origin(answer: &Answer) -> bool {
    answer.field("x-target").is_some()
}

fn method(case: &Case) -> &str {
    let word = case.bytes.split(|&byte| byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(word).unwrap_or("GET").trim()
}

fn plan(case: &Case) -> Plan {
    let adjust: fn(&mut Http) = match case.with.first().map(String::as_str) {
        None => |_| {},
        Some("http10") => {
            |http| http.http1 = Options { accept_http10: true, ..Options::default() }.into()
        }
        Some("trailers") => {
            |http| http.http1 = Options { enable_trailers: true, ..Options::default() }.into()
        }
        Some("custom-methods") => {
            |http| http.http1 = Options { allow_custom_methods: true, ..Options::default() }.into()
        }
        Some("chunked-length") => {
            |http| http.http1 = Options { allow_chunked_length: true, ..Options::default() }.into()
        }
        Some("reject-underscores") => |http| {
            http.http1 =
                Arc::new(Options { underscores: Underscores::Reject, ..Options::default() })
        },
        Some(other) => panic!("{}: unknown leniency {other}", case.name),
    };
    Plan { adjust_http: adjust, ..Plan::new(1) }
}

/// Where a message is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Nowhere,
    At(usize),
    Everywhere,
}

/// Every place up to `end`, or for long messages every place near the ends and some between.
fn cuts(length: usize, end: usize) -> Vec<Cut> {
    let near = |at: &usize| *at < 300 || at + 300 > end || at.is_multiple_of(997);
    let single = (1..length.min(end + 1)).filter(near).map(Cut::At);
    let everywhere = (length < 20_000).then_some(Cut::Everywhere);
    std::iter::once(Cut::Nowhere).chain(everywhere).chain(single).collect()
}

fn pieces(bytes: &[u8], cut: Cut) -> Vec<Vec<u8>> {
    match cut {
        Cut::Nowhere => vec![bytes.to_vec()],
        Cut::At(at) => vec![bytes[..at].to_vec(), bytes[at..].to_vec()],
        Cut::Everywhere => bytes.chunks(1).map(<[u8]>::to_vec).collect(),
    }
}
