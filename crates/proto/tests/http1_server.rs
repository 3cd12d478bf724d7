//! What a server reports and writes, one story each.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod wire;

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::http1::{Error, NameCase, Options, Server, Underscores};
use towpath_proto::{Event, Next, Out};
use towpath_proto::{Head, HeadPool, Name, Version};
use wire::{collect, head, poll_all};

#[test]
fn the_example_of_rfc_9110_is_understood() {
    let mut server = server(Options::default());
    server.receive(Bytes::from_static(
        b"GET /hello.txt HTTP/1.1\r\nUser-Agent: curl/7.64.1\r\nHost: www.example.com\r\nAccept-Language: en, \
            mi\r\n\r\n",
    ));
    let head = head(server.poll(&mut HeadPool::default()), true);
    assert_eq!(head.method_bytes(), b"GET");
    assert_eq!((head.path(), head.authority()), (&b"/hello.txt"[..], &b"www.example.com"[..]));
    assert_eq!(head.version(), Version::Http11);
    assert_eq!(head.get(Name::UserAgent), Some(&b"curl/7.64.1"[..]));
    assert_eq!(head.get_bytes(b"accept-LANGUAGE"), Some(&b"en, mi"[..]));
    let names: Vec<&[u8]> = head.iter().map(|field| field.name_bytes).collect();
    assert_eq!(names, [&b"User-Agent"[..], b"Accept-Language"]);
}

#[test]
fn the_chunked_example_of_rfc_9112_is_decoded() {
    let mut server = server(Options { enable_trailers: true, ..Options::default() });
    server.receive(Bytes::from_static(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Expires\r\n\r\n\
          4\r\nWiki\r\n7\r\npedia i\r\nB\r\nn \r\nchunks.\r\n0\r\nX-Checksum: 9\r\nContent-Length: 3\r\n\r\n",
    ));
    let events = poll_all(&mut HeadPool::default(), |pool| server.poll(pool)).unwrap();
    let body: Vec<u8> = events.iter().filter_map(wire::data).flatten().copied().collect();
    assert_eq!(body, b"Wikipedia in \r\nchunks.");
    let Some(Event::Trailers(trailers)) = events.last() else { panic!("{events:?}") };
    assert_eq!(trailers.len(), 1);
    assert_eq!(trailers.get_bytes(b"x-checksum"), Some(&b"9"[..]));
    assert!(server.request_complete());
}

#[test]
fn the_target_gives_scheme_authority_and_path() {
    for (target, expected) in [
        ("http://b:81/x?y", ("http", "b:81", "/x?y")),
        ("HTTPS://b", ("https", "b", "/")),
        ("http://b?q=1", ("http", "b", "/?q=1")),
        ("/x?y", ("", "a", "/x?y")),
    ] {
        let head = request(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found = (text(head.scheme()), text(head.authority()), text(head.path()));
        assert_eq!(found, (expected.0.into(), expected.1.into(), expected.2.into()), "{target}");
    }
    assert_eq!(request("OPTIONS http://b HTTP/1.1\r\nHost: a\r\n\r\n").path(), b"*");
    let connect = request("CONNECT b:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((connect.authority(), connect.path()), (&b"b:443"[..], &b""[..]));
}

#[test]
fn what_belongs_to_the_connection_is_not_in_the_head() {
    let head = request(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Hop, keep-alive, TE\r\nX-Hop: 1\r\nX-HOP: 2\r\nKeep-Alive: 5\r\n\
         Proxy-Connection: keep-alive\r\nTE: gzip, trailers\r\nUpgrade: websocket\r\nX: y\r\n\r\n",
    );
    let left: Vec<(Name, &[u8])> = head.iter().map(|field| (field.name, field.value)).collect();
    assert_eq!(left, [(Name::Custom, &b"y"[..]), (Name::Te, b"trailers")]);
}

#[test]
fn framing_of_the_response_follows_request_and_head() {
    let with_length = |length: &str| {
        let mut head = Head::response(200);
        head.append(Name::ContentLength, length.as_bytes());
        head
    };
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let head_request = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let old = "GET / HTTP/1.0\r\nHost: a\r\n\r\n";
    let old_kept = "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n";
    let no_content = Head::response(204);
    for (asked, head, body, wire, next) in [
        (
            get,
            with_length("2"),
            "hi",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
            Next::KeepAlive,
        ),
        (
            get,
            Head::response(200),
            "hi",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            Next::KeepAlive,
        ),
        (
            get,
            Head::response(200),
            "",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            Next::KeepAlive,
        ),
        (get, no_content, "hi", "HTTP/1.1 204 No Content\r\n\r\n", Next::KeepAlive),
        (get, Head::response(304), "", "HTTP/1.1 304 Not Modified\r\n\r\n", Next::KeepAlive),
        (
            head_request,
            with_length("2"),
            "hi",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
            Next::KeepAlive,
        ),
        (head_request, Head::response(200), "", "HTTP/1.1 200 OK\r\n\r\n", Next::KeepAlive),
        (
            old,
            Head::response(200),
            "hi",
            "HTTP/1.0 200 OK\r\nconnection: close\r\n\r\nhi",
            Next::Close,
        ),
        (
            old_kept,
            Head::response(200),
            "hi",
            "HTTP/1.0 200 OK\r\nconnection: close\r\n\r\nhi",
            Next::Close,
        ),
        (
            old_kept,
            with_length("2"),
            "hi",
            "HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nhi",
            Next::KeepAlive,
        ),
        (
            get,
            with_length("3"),
            "hi",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi",
            Next::Close,
        ),
        (
            get,
            with_length("1"),
            "hi",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nh",
            Next::KeepAlive,
        ),
        (
            get,
            with_length("x"),
            "hi",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            Next::KeepAlive,
        ),
    ] {
        let mut server = server(Options { accept_http10: true, ..Options::default() });
        server.receive(asked.to_owned().into());
        assert!(matches!(
            server.poll(&mut HeadPool::default()),
            Ok(Some(Event::Head { end: true, .. }))
        ));
        let mut out = Out::new();
        server.encode_head(&head, body.is_empty(), &mut out);
        if !body.is_empty() {
            server.encode_data(body.to_owned().into(), &mut out);
            server.encode_end(&mut out);
        }
        assert_eq!(collect(&mut out), wire, "{asked}");
        assert!(server.response_complete());
        assert_eq!(server.next(), next, "{asked} {wire}");
    }
}

#[test]
fn the_engine_can_ask_for_close_and_so_can_the_client() {
    for (asked, ask) in [("", true), ("Connection: close\r\n", false)] {
        let mut server = server(Options::default());
        server.receive(format!("GET / HTTP/1.1\r\nHost: a\r\n{asked}\r\n").into());
        assert!(server.poll(&mut HeadPool::default()).is_ok());
        if ask {
            server.close_after_response();
        }
        let mut out = Out::new();
        server.encode_head(&Head::response(200), true, &mut out);
        assert_eq!(
            collect(&mut out),
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        assert_eq!(server.next(), Next::Close);
    }
}

#[test]
fn trailers_are_written_where_they_are_enabled() {
    for (enable_trailers, end) in [(true, "0\r\ngrpc-status: 0\r\n\r\n"), (false, "0\r\n\r\n")] {
        let mut server = server(Options { enable_trailers, ..Options::default() });
        server.receive(Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        poll_all(&mut HeadPool::default(), |pool| server.poll(pool)).unwrap();
        let mut out = Out::new();
        server.encode_head(&Head::response(200), false, &mut out);
        collect(&mut out);
        let mut trailers = Head::default();
        trailers.append(Name::GrpcStatus, b"0");
        server.encode_trailers(&trailers, &mut out);
        assert_eq!(collect(&mut out), end);
        assert!(server.response_complete());
        assert_eq!(server.next(), Next::KeepAlive);
    }
}

#[test]
fn pipelined_requests_wait_for_their_turn() {
    let mut pool = HeadPool::default();
    let mut server = server(Options::default());
    let one = "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let two = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    server.receive(format!("{one}{two}").into());
    assert_eq!(poll_all(&mut pool, |pool| server.poll(pool)).unwrap().len(), 3);
    assert_eq!(server.buffered(), two.len());
    assert_eq!(server.next(), Next::Close, "no response yet");
    server.encode_head(&Head::response(200), true, &mut Out::new());
    assert_eq!(server.next(), Next::KeepAlive);
    assert_eq!(head(server.poll(&mut pool), true).path(), b"/2");
    assert_eq!(server.buffered(), 0);
}

#[test]
fn an_expectation_is_told_until_it_is_met() {
    let asked = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n";
    let fresh = || {
        let mut server = server(Options::default());
        server.receive(asked.to_owned().into());
        assert!(!server.wants_continue());
        head(server.poll(&mut HeadPool::default()), false);
        assert!(server.wants_continue());
        server
    };
    let mut out = Out::new();
    let mut answered = fresh();
    answered.encode_informational(&Head::response(100), &mut out);
    assert_eq!(collect(&mut out), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(!answered.wants_continue());

    let mut impatient = fresh();
    impatient.receive("h".into());
    assert!(matches!(impatient.poll(&mut HeadPool::default()), Ok(Some(Event::Data(_)))));
    assert!(!impatient.wants_continue());

    let mut refused = fresh();
    refused.encode_head(&Head::response(417), true, &mut out);
    assert!(!refused.wants_continue());
    assert_eq!(refused.next(), Next::Close, "the body never came");
}

#[test]
fn an_old_client_gets_no_interim_response() {
    let mut server = server(Options { accept_http10: true, ..Options::default() });
    server.receive("GET / HTTP/1.0\r\nHost: a\r\n\r\n".into());
    assert!(server.poll(&mut HeadPool::default()).is_ok());
    let mut out = Out::new();
    server.encode_informational(&Head::response(103), &mut out);
    assert!(out.is_empty());
}

#[test]
fn an_old_client_without_host_gets_the_default() {
    let options = Options {
        accept_http10: true,
        default_host_http10: Some(Bytes::from_static(b"fallback")),
        ..Options::default()
    };
    let mut server = server(options);
    server.receive("GET / HTTP/1.0\r\n\r\n".into());
    assert_eq!(head(server.poll(&mut HeadPool::default()), true).authority(), b"fallback");
}

#[test]
fn an_upgrade_turns_the_connection_raw() {
    let mut pool = HeadPool::default();
    let mut server = server(Options::default());
    server.receive(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly"
            .into(),
    );
    let request = head(server.poll(&mut pool), true);
    assert_eq!(request.get(Name::Upgrade), Some(&b"websocket"[..]));
    assert!(server.wants_upgrade());
    server.receive(" and ".into());
    server.receive("more".into());
    let mut out = Out::new();
    let mut answer = Head::response(101);
    answer.append(Name::Upgrade, b"websocket");
    server.encode_head(&answer, false, &mut out);
    assert_eq!(
        collect(&mut out),
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
    );
    assert_eq!(server.upgraded(), "early and more");
    server.receive("later".into());
    assert!(matches!(server.poll(&mut pool), Ok(Some(Event::Data(data))) if data == "later"));
    server.encode_data("down".into(), &mut out);
    assert_eq!(collect(&mut out), "down");
    server.ended();
    assert!(matches!(server.poll(&mut pool), Ok(Some(Event::End))));
    assert!(matches!(server.poll(&mut pool), Ok(None)));
    assert_eq!(server.next(), Next::Close);
}

#[test]
fn a_tunnel_is_opened_without_framing() {
    let mut server = server(Options::default());
    server.receive("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n\x16\x03".into());
    head(server.poll(&mut HeadPool::default()), true);
    let mut out = Out::new();
    let mut answer = Head::response(200);
    answer.append(Name::ContentLength, b"7");
    server.encode_head(&answer, false, &mut out);
    assert_eq!(collect(&mut out), "HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(server.upgraded(), "\x16\x03");
}

#[test]
fn names_are_written_lower_or_proper() {
    for (case, wire) in [
        (
            NameCase::Lower,
            "HTTP/1.1 200 OK\r\nx-my-name: 1\r\ncontent-type: a\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            NameCase::Proper,
            "HTTP/1.1 200 OK\r\nX-My-Name: 1\r\nContent-Type: a\r\nContent-Length: 0\r\n\r\n",
        ),
    ] {
        let mut server = server(Options { name_case: case, ..Options::default() });
        server.receive("GET / HTTP/1.1\r\nHost: a\r\n\r\n".into());
        assert!(server.poll(&mut HeadPool::default()).is_ok());
        let mut answer = Head::response(200);
        answer.append_bytes(b"x-MY-name", b"1");
        answer.append(Name::ContentType, b"a");
        let mut out = Out::new();
        server.encode_head(&answer, true, &mut out);
        assert_eq!(collect(&mut out), wire);
    }
}

#[test]
fn names_with_underscores_can_be_dropped() {
    let mut server = server(Options { underscores: Underscores::Drop, ..Options::default() });
    server.receive("GET / HTTP/1.1\r\nHost: a\r\na_b: 1\r\nab: 2\r\n\r\n".into());
    let head = head(server.poll(&mut HeadPool::default()), true);
    assert_eq!((head.len(), head.get_bytes(b"ab")), (1, Some(&b"2"[..])));
}

#[test]
fn after_an_error_one_closing_answer_can_be_written() {
    let mut pool = HeadPool::default();
    let mut server = server(Options::default());
    server.receive("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into());
    for _ in 0..2 {
        assert_eq!(server.poll(&mut pool).err(), Some(Error::MissingHost));
    }
    assert_eq!((server.buffered(), Error::MissingHost.details()), (0, "missing_host_header"));
    let mut out = Out::new();
    server.encode_head(&Head::response(Error::MissingHost.status()), true, &mut out);
    assert_eq!(
        collect(&mut out),
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(server.next(), Next::Close);
}

#[test]
fn a_fragment_is_cut_where_that_is_asked_for() {
    for (line, target) in [
        ("GET /a?b#c HTTP/1.1", "/a?b"),
        ("PROPFIND /#/a#b HTTP/1.1", "/"),
        ("GET http://a/b# HTTP/1.1", "/b"),
        ("GET /a HTTP/1.1", "/a"),
    ] {
        let text = format!("{line}\r\nHost: a\r\nX-Id: 7\r\n\r\n");
        for pieces in [text.len(), 1] {
            let mut pool = HeadPool::default();
            let mut server = server(Options { cut_fragment: true, ..Options::default() });
            let mut found = None;
            for piece in text.as_bytes().chunks(pieces) {
                server.receive(Bytes::copy_from_slice(piece));
                found = found.or_else(|| server.poll(&mut pool).unwrap());
            }
            let Some(Event::Head { head, .. }) = found else { panic!("{line}: {found:?}") };
            assert_eq!(String::from_utf8_lossy(head.path()), target, "{line}");
            assert_eq!(head.get_bytes(b"x-id"), Some(&b"7"[..]), "{line}");
        }
    }
    for line in
        ["GET #a HTTP/1.1", "GET /a#b\u{1} HTTP/1.1", "GET /a#b HTTP/1.x", "GET /a# b HTTP/1.1"]
    {
        let mut server = server(Options { cut_fragment: true, ..Options::default() });
        server.receive(format!("{line}\r\nHost: a\r\n\r\n").into());
        assert!(server.poll(&mut HeadPool::default()).is_err(), "{line}");
    }
}

#[test]
fn a_head_that_says_too_little_or_too_much_is_kept_to_be_told_of() {
    let fields = "Host: a\r\nX-Id: 7\r\n\r\n";
    for (text, error, kept) in [
        (
            "GET /x HTTP/1.1\r\nX-Id: 7\r\n\r\n".to_owned(),
            Error::MissingHost,
            Some(("/x", "", "7")),
        ),
        (
            format!("GET /x?y#z HTTP/1.1\r\n{fields}"),
            Error::FragmentInTarget,
            Some(("/x?y#z", "a", "7")),
        ),
        (
            format!("\r\nGET /x#y#z HTTP/1.1\r\n{fields}"),
            Error::FragmentInTarget,
            Some(("/x#y#z", "a", "7")),
        ),
        ("GET /x#z HTTP/1.1\r\nHost:".to_owned(), Error::FragmentInTarget, Some(("/x#z", "", ""))),
        (format!("GET /x# y HTTP/1.1\r\n{fields}"), Error::FragmentInTarget, None),
        (format!("GET /x#\u{a} HTTP/1.1\r\n{fields}"), Error::BareLf, None),
        ("GET /x HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), Error::MissingColon, None),
    ] {
        for pieces in [text.len(), 1] {
            let mut pool = HeadPool::default();
            let mut server = server(Options::default());
            let mut failed = None;
            for piece in text.as_bytes().chunks(pieces) {
                server.receive(Bytes::copy_from_slice(piece));
                failed = failed.or_else(|| server.poll(&mut pool).err());
            }
            assert_eq!(failed, Some(error), "{text:?}");
            let head = server.refused();
            // What comes a byte at a time is refused as soon as its first line is there.
            let early = pieces == 1 && error == Error::FragmentInTarget;
            let found = head.as_ref().map(|head| {
                let id = head.get_bytes(b"x-id").unwrap_or_default();
                [head.path(), head.authority(), id]
                    .map(|it| String::from_utf8_lossy(it).into_owned())
            });
            let wanted = kept.map(|(path, host, id)| {
                if early { [path, "", ""] } else { [path, host, id] }.map(str::to_owned)
            });
            assert_eq!(found, wanted, "{text:?}");
            assert!(server.refused().is_none());
        }
    }
}

#[test]
fn an_end_inside_a_request_is_an_error_and_between_requests_is_none() {
    let mut pool = HeadPool::default();
    for (bytes, cut_short) in [
        ("", false),
        ("\r\n", false),
        ("\r\n\r\n\r\n", false),
        ("G", true),
        ("\r\n\r\nG", true),
        ("GET / HTTP/1.1\r\n", true),
    ] {
        let mut server = server(Options::default());
        server.receive(bytes.into());
        server.ended();
        assert_eq!(
            server.poll(&mut pool).err(),
            cut_short.then_some(Error::Truncated),
            "{bytes:?}"
        );
    }
    let mut server = server(Options::default());
    server.receive("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nh".into());
    server.ended();
    assert_eq!(poll_all(&mut pool, |pool| server.poll(pool)).err(), Some(Error::Truncated));
}

fn server(options: Options) -> Server {
    Server::new(Arc::new(options))
}

fn request(text: &str) -> Head {
    let mut server = server(Options::default());
    server.receive(text.to_owned().into());
    head(server.poll(&mut HeadPool::default()), true)
}

#[test]
fn no_length_stands_where_there_is_no_content() {
    for status in [204, 304] {
        let mut server = Server::new(Arc::new(Options::default()));
        server.receive("GET / HTTP/1.1\r\nHost: a\r\n\r\n".into());
        head(server.poll(&mut HeadPool::default()), true);
        let mut response = Head::response(status);
        response.append(Name::ContentLength, b"5");
        let mut out = Out::new();
        server.encode_head(&response, true, &mut out);
        let written = collect(&mut out);
        // RFC 9110 §8.6: of a 304 it says what a 200 would have had.
        assert_eq!(written.contains("content-length: 5"), status == 304, "{written}");
    }
}

#[test]
fn header_bytes_are_those_of_fields_without_white_space_around_values() {
    for (request, bytes) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 8),
        ("GET http://a:80/ HTTP/1.1\r\nHost:a\r\n\r\n", 8),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\nX-A:   b c \t \r\nX-E:\r\n\r\n", 8 + 9 + 6),
        // What the connection keeps for itself came too.
        (
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            8 + 18 + 18,
        ),
    ] {
        let mut server = Server::new(Arc::new(Options::default()));
        server.receive(request.to_owned().into());
        let mut head = head(server.poll(&mut HeadPool::default()), true);
        assert_eq!(head.received_bytes(), bytes, "{request}");
        head.set(Name::Server, b"changes nothing");
        assert_eq!(head.received_bytes(), bytes, "{request}");
        head.reset();
        assert_eq!(head.received_bytes(), 0);
    }
}
