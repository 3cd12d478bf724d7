//! The corpus of malformed and ambiguous messages: whole, and cut at every byte.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "../../../conformance/h1/corpus.rs"]
mod corpus;

use std::sync::Arc;

use bytes::Bytes;
use corpus::{Case, Expect};
use towpath_proto::http1::{Client, Error, Options, Server, Underscores};
use towpath_proto::{Event, Next, Out};
use towpath_proto::{Head, HeadPool, Name};

#[test]
fn requests_are_accepted_or_refused_as_the_corpus_says() {
    let cases = cases(include_str!("../../../conformance/h1/requests.txt"));
    assert!(cases.len() >= 200);
    let mut wrong = Vec::new();
    for case in &cases {
        for cut in cuts(case.bytes.len()) {
            let (count, error) = serve(case, cut);
            let right = match case.expect {
                Expect::Accept(wanted) => error.is_none() && count == wanted,
                Expect::Reject(status) => error.is_some_and(|error| error.status() == status),
                Expect::Wait => error.is_none() && count == 0,
            };
            if !right {
                wrong.push(format!("{} cut at {cut:?}: {count} messages, {error:?}", case.name));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn responses_are_accepted_or_refused_as_the_corpus_says() {
    let cases = cases(include_str!("../../../conformance/h1/responses.txt"));
    assert!(cases.len() >= 80);
    let mut wrong = Vec::new();
    for case in &cases {
        for cut in cuts(case.bytes.len()) {
            let (count, error) = ask(case, cut);
            let right = match case.expect {
                Expect::Accept(wanted) => error.is_none() && count == wanted,
                Expect::Reject(_) => error.is_some(),
                Expect::Wait => error.is_none() && count == 0,
            };
            if !right {
                wrong.push(format!("{} cut at {cut:?}: {count} messages, {error:?}", case.name));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What an HTTP/1 receiver reports must not depend on where the bytes were cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Nowhere,
    At(usize),
    Everywhere,
}

/// Every place, or for long messages every place near the ends and some between.
fn cuts(length: usize) -> Vec<Cut> {
    let near = |at: &usize| *at < 300 || at + 300 > length || at.is_multiple_of(997);
    let single = (1..length).filter(near).map(Cut::At);
    [Cut::Nowhere, Cut::Everywhere].into_iter().chain(single).collect()
}

fn pieces(bytes: &[u8], cut: Cut) -> Vec<Bytes> {
    match cut {
        Cut::Nowhere => vec![Bytes::copy_from_slice(bytes)],
        Cut::At(at) => {
            vec![Bytes::copy_from_slice(&bytes[..at]), Bytes::copy_from_slice(&bytes[at..])]
        }
        Cut::Everywhere => bytes.chunks(1).map(Bytes::copy_from_slice).collect(),
    }
}

/// Feeds a server that answers every whole request; counts those and reports the first error.
fn serve(case: &Case, cut: Cut) -> (usize, Option<Error>) {
    let mut pool = HeadPool::default();
    let mut server = Server::new(Arc::new(options(case)));
    let mut count = 0;
    for piece in pieces(&case.bytes, cut) {
        server.receive(piece);
        loop {
            match server.poll(&mut pool) {
                Ok(Some(_)) => {}
                Ok(None) if server.request_complete() => {
                    count += 1;
                    server.encode_head(&Head::response(204), true, &mut Out::new());
                    if server.next() == Next::Close {
                        return (count, None);
                    }
                }
                Ok(None) => break,
                Err(error) => return (count, Some(error)),
            }
        }
    }
    server.ended();
    // A client that goes away between two requests does nothing wrong; inside one it does.
    let cut_short = matches!(server.poll(&mut pool), Err(Error::Truncated));
    assert_eq!(cut_short, case.expect == Expect::Wait, "{}: after the end", case.name);
    (count, None)
}

/// Feeds a client that asked one request; counts whole responses and reports the first error.
fn ask(case: &Case, cut: Cut) -> (usize, Option<Error>) {
    let mut pool = HeadPool::default();
    let mut client = Client::new(Arc::new(options(case)));
    let mut request = match case.to.as_str() {
        "upgrade" => Head::request(b"GET", b"http", b"a", b"/"),
        method => Head::request(method.as_bytes(), b"http", b"a:1", b"/"),
    };
    if case.to == "upgrade" {
        request.append(Name::Upgrade, b"websocket");
    }
    client.encode_head(&request, true, &mut Out::new());
    let mut count = 0;
    let mut drain = |client: &mut Client| loop {
        match client.poll(&mut pool) {
            Ok(Some(Event::Head { end: true, .. } | Event::Trailers(_) | Event::End)) => count += 1,
            Ok(Some(_)) => {}
            Ok(None) => return (count, None),
            Err(error) => return (count, Some(error)),
        }
    };
    let mut outcome = drain(&mut client);
    for piece in pieces(&case.bytes, cut) {
        client.receive(piece);
        outcome = drain(&mut client);
        if outcome.1.is_some() {
            return outcome;
        }
    }
    if case.close {
        client.ended();
        outcome = drain(&mut client);
    }
    outcome
}

fn options(case: &Case) -> Options {
    let mut options = Options::default();
    for leniency in &case.with {
        match leniency.as_str() {
            "http10" => options.accept_http10 = true,
            "trailers" => options.enable_trailers = true,
            "custom-methods" => options.allow_custom_methods = true,
            "chunked-length" => options.allow_chunked_length = true,
            "reject-underscores" => options.underscores = Underscores::Reject,
            other => panic!("{}: unknown leniency {other}", case.name),
        }
    }
    options
}

fn cases(text: &str) -> Vec<Case> {
    corpus::parse(text).unwrap_or_else(|problem| panic!("{problem}"))
}
