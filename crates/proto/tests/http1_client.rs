//! What a client writes and reports, one story each.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod wire;

use std::sync::Arc;

use towpath_proto::http1::{Client, Error, Options};
use towpath_proto::{Event, Out};
use towpath_proto::{Head, HeadPool, Name};
use wire::{collect, head, poll_all};

#[test]
fn framing_of_the_request_follows_its_head() {
    let request = |method: &str| Head::request(method.as_bytes(), b"http", b"a", b"/x");
    let mut with_length = request("PUT");
    with_length.append(Name::ContentLength, b"2");
    let mut hop = request("GET");
    hop.append(Name::Connection, b"x");
    hop.append(Name::TransferEncoding, b"gzip");
    hop.append(Name::KeepAlive, b"1");
    hop.append(Name::Te, b"gzip");
    hop.append(Name::Te, b"trailers");
    hop.append(Name::Host, b"other");
    let mut upgrade = request("GET");
    upgrade.append(Name::Upgrade, b"websocket");
    for (head, body, wire) in [
        (request("GET"), "", "GET /x HTTP/1.1\r\nhost: a\r\n\r\n"),
        (request("HEAD"), "", "HEAD /x HTTP/1.1\r\nhost: a\r\n\r\n"),
        (request("DELETE"), "", "DELETE /x HTTP/1.1\r\nhost: a\r\n\r\n"),
        (request("TRACE"), "", "TRACE /x HTTP/1.1\r\nhost: a\r\n\r\n"),
        (request("POST"), "", "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"),
        (request("PATCH"), "", "PATCH /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"),
        (request("PROPFIND"), "", "PROPFIND /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"),
        (
            request("POST"),
            "hi",
            "POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ),
        (with_length, "hi", "PUT /x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"),
        (hop, "", "GET /x HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n"),
        (
            upgrade,
            "",
            "GET /x HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        ),
        (
            Head::request(b"CONNECT", b"", b"a:1", b""),
            "",
            "CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n",
        ),
        (
            Head::request(b"OPTIONS", b"http", b"a", b"*"),
            "",
            "OPTIONS * HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
        ),
    ] {
        let mut client = client();
        let mut out = Out::new();
        client.encode_head(&head, body.is_empty(), &mut out);
        if !body.is_empty() {
            client.encode_data(body.to_owned().into(), &mut out);
            client.encode_end(&mut out);
        }
        assert_eq!(collect(&mut out), wire);
    }
}

#[test]
fn a_connection_is_reusable_only_after_a_clean_exchange() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    for (response, reusable) in [
        (ok.to_owned(), true),
        ("HTTP/1.1 204 No Content\r\n\r\n".into(), true),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".into(), false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n".into(), false),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n".into(), true),
        // It closes, and says so by nothing but its end.
        ("HTTP/1.1 200 OK\r\n\r\n".into(), false),
        (format!("{ok}X"), false),
    ] {
        let mut client = asked("GET");
        client.receive(response.clone().into());
        let outcome = poll_all(&mut HeadPool::default(), |pool| client.poll(pool));
        assert_eq!(outcome.is_ok(), !response.ends_with('X'), "{response}");
        assert_eq!(client.reusable(), reusable, "{response}");
        let says_so =
            response.contains("close") || response.starts_with("HTTP/1.0 200 OK\r\nContent");
        assert_eq!(client.was_told_to_close(), says_so, "{response}");
    }
}

#[test]
fn an_early_answer_leaves_the_request_unfinished() {
    let mut client = client();
    let mut out = Out::new();
    client.encode_head(&Head::request(b"POST", b"http", b"a", b"/"), false, &mut out);
    client.receive("HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\n\r\n".into());
    head(client.poll(&mut HeadPool::default()), true);
    assert!(!client.exchange_complete() && !client.reusable());
    client.encode_end(&mut out);
    assert!(client.exchange_complete() && client.reusable());
}

#[test]
fn bytes_on_an_idle_connection_are_an_error() {
    let mut client = client();
    assert!(client.reusable());
    client.receive("HTTP/1.1 408 Request Timeout\r\n\r\n".into());
    assert!(client.idle_bytes() > 0 && !client.reusable());
    assert_eq!(client.poll(&mut HeadPool::default()).err(), Some(Error::UnexpectedBytes));
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let mut client = asked("GET");
    assert!(!client.response_started());
    client.receive(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 2".into(),
    );
    let events = poll_all(&mut HeadPool::default(), |pool| client.poll(pool)).unwrap();
    let statuses: Vec<u16> = events
        .iter()
        .map(|event| {
            let Event::Informational(head) = event else { panic!("{event:?}") };
            head.status()
        })
        .collect();
    assert_eq!(statuses, [100, 103]);
    assert!(client.response_started() && !client.exchange_complete());
    client.receive("00 OK\r\nContent-Length: 0\r\n\r\n".into());
    assert_eq!(head(client.poll(&mut HeadPool::default()), true).status(), 200);
}

#[test]
fn a_close_is_told_apart_by_how_far_the_response_was() {
    for (bytes, expected) in [
        ("", Some(Error::ClosedBeforeResponse)),
        ("H", Some(Error::Truncated)),
        ("HTTP/1.1 100 Continue\r\n\r\n", Some(Error::Truncated)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", Some(Error::Truncated)),
        ("HTTP/1.1 200 OK\r\n\r\nwhatever", None),
    ] {
        let mut client = asked("GET");
        client.receive(bytes.into());
        client.ended();
        let outcome = poll_all(&mut HeadPool::default(), |pool| client.poll(pool));
        assert_eq!(outcome.err(), expected, "{bytes:?}");
        assert!(!client.reusable());
    }
    let mut idle = client();
    idle.ended();
    assert!(matches!(idle.poll(&mut HeadPool::default()), Ok(None)));
    assert!(!idle.reusable());
}

#[test]
fn a_switched_connection_is_raw() {
    let mut pool = HeadPool::default();
    let mut client = client();
    let mut request = Head::request(b"GET", b"http", b"a", b"/");
    request.append(Name::Upgrade, b"websocket");
    client.encode_head(&request, true, &mut Out::new());
    client.receive("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nfirst".into());
    assert_eq!(head(client.poll(&mut pool), true).get(Name::Upgrade), Some(&b"websocket"[..]));
    assert!(matches!(client.poll(&mut pool), Ok(None)));
    assert_eq!(client.upgraded(), "first");
    client.receive("second".into());
    assert!(matches!(client.poll(&mut pool), Ok(Some(Event::Data(data))) if data == "second"));
    let mut out = Out::new();
    client.encode_data("up".into(), &mut out);
    assert_eq!(collect(&mut out), "up");
    assert!(!client.reusable());
}

#[test]
fn trailers_are_written_and_hop_fields_in_them_are_not() {
    let options = Options { enable_trailers: true, ..Options::default() };
    let mut client = Client::new(Arc::new(options));
    let mut out = Out::new();
    client.encode_head(&Head::request(b"POST", b"http", b"a", b"/"), false, &mut out);
    collect(&mut out);
    let mut trailers = Head::default();
    trailers.append(Name::GrpcStatus, b"0");
    trailers.append(Name::ContentLength, b"5");
    client.encode_trailers(&trailers, &mut out);
    assert_eq!(collect(&mut out), "0\r\ngrpc-status: 0\r\n\r\n");
}

#[test]
fn trailers_are_left_out_where_they_are_not_enabled() {
    let mut client = client();
    let mut out = Out::new();
    client.encode_head(&Head::request(b"POST", b"http", b"a", b"/"), false, &mut out);
    collect(&mut out);
    let mut trailers = Head::default();
    trailers.append(Name::GrpcStatus, b"0");
    client.encode_trailers(&trailers, &mut out);
    assert_eq!(collect(&mut out), "0\r\n\r\n");
}

/// RFC 9112 §3.2.2; a tunnel has its authority alone.
#[test]
fn a_proxy_is_asked_with_a_whole_url() {
    for (method, path, line) in [
        ("GET", "/a?b=c", "GET https://a:8/a?b=c HTTP/1.1\r\nhost: a:8\r\n"),
        ("GET", "", "GET https://a:8/ HTTP/1.1\r\nhost: a:8\r\n"),
        ("CONNECT", "", "CONNECT a:8 HTTP/1.1\r\nhost: a:8\r\n"),
    ] {
        let options = Options { absolute_form: true, ..Options::default() };
        let (mut client, mut out) = (Client::new(Arc::new(options)), Out::new());
        let head = Head::request(method.as_bytes(), b"https", b"a:8", path.as_bytes());
        client.encode_head(&head, true, &mut out);
        let sent = collect(&mut out);
        assert!(sent.starts_with(line), "{sent}");
    }
}

fn client() -> Client {
    Client::new(Arc::new(Options::default()))
}

fn asked(method: &str) -> Client {
    let mut client = client();
    client.encode_head(
        &Head::request(method.as_bytes(), b"http", b"a", b"/"),
        true,
        &mut Out::new(),
    );
    client
}
