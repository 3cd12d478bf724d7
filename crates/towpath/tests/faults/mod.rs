//! The library on networks and against servers that mislead it.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use towpath::{Engine, Error, Failed, Failure, Repeat, Settings, Tls};
use towpath_proto::tls::{Distrust, Fault};

use super::authority::Authority;
use super::server::{Server, answer, read_head, read_request};

const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

#[test]
fn the_end_of_a_server_s_direction_ends_a_response_without_a_length() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nall there is");
        let _ = stream.shutdown(Shutdown::Write);
        // It goes on listening; the client is to hang up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let engine = Engine::new().unwrap();
    let mut response = engine.client().get(&server.url("/")).send().unwrap();
    assert_eq!(response.body().bytes(100).unwrap(), "all there is");
}

#[test]
fn a_server_that_ends_its_direction_without_an_answer_is_asked_again_where_that_is_safe() {
    let server = Server::new(|stream, number| {
        read_request(stream);
        if number == 0 {
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        answer(stream, "200 OK", "", b"hello");
    });
    let engine = Engine::new().unwrap();
    let mut response = engine.client().get(&server.url("/")).send().unwrap();
    assert_eq!(response.body().bytes(100).unwrap(), "hello");
    assert_eq!(response.body().report().unwrap().tries.len(), 2);
    let silent = Server::new(|stream, _| {
        read_request(stream);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let post = engine.client().post(&silent.url("/"), "once").repeat(Repeat::Never);
    assert!(matches!(post.send(), Err(Error::Failed(_))));
    assert_eq!(silent.connections(), 1);
}

#[test]
fn bytes_beyond_the_length_of_a_response_are_no_other_one() {
    let server = Server::new(|stream, number| {
        while read_request(stream).is_some() {
            let late = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: \
                4\r\n\r\nevil";
            if number == 0 {
                let _ = stream.write_all(late);
            } else {
                answer(stream, "200 OK", "", b"right");
            }
        }
    });
    let engine = Engine::new().unwrap();
    let ask = || {
        let mut response = engine.client().get(&server.url("/")).send().unwrap();
        response.body().bytes(100).unwrap()
    };
    assert_eq!((ask(), ask()), ("hello".into(), "right".into()));
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_head_may_be_as_long_as_the_settings_say() {
    let server = Server::new(|stream, _| {
        while let Some(request) = read_head(stream) {
            let fields = if request.contains("/many") {
                (0..900).map(|at| format!("x-{at}: y\r\n")).collect()
            } else {
                format!("x-long: {}\r\n", "y".repeat(200 << 10))
            };
            answer(stream, "200 OK", &fields, b"hello");
        }
    });
    let engine = Engine::new().unwrap();
    for path in ["/many", "/long"] {
        let mut response = engine.client().get(&server.url(path)).send().unwrap();
        assert_eq!(&*response.body().bytes(9).unwrap(), b"hello", "{path}");
    }
    let settings = Settings { max_head_bytes: 100 << 10, max_fields: 899, ..Settings::default() };
    let strict = Engine::builder().settings(settings).start().unwrap();
    for path in ["/many", "/long"] {
        let refused = strict.client().get(&server.url(path)).retries(0).send().unwrap_err();
        assert!(matches!(&refused, Error::Failed(it) if it.why() == Failed::Protocol), "{path}");
    }
}

#[test]
fn lengths_that_contradict_each_other_are_an_error() {
    for lengths in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: five\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let server = Server::new(move |stream, _| {
            read_request(stream);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{lengths}\r\n5\r\nhello\r\n0\r\n\r\n");
        });
        let engine = Engine::new().unwrap();
        let outcome = engine.client().get(&server.url("/")).send();
        assert!(matches!(outcome, Err(Error::Failed(_))), "{lengths}: {outcome:?}");
    }
}

#[test]
fn a_resolver_that_fails_is_asked_again_and_one_that_knows_no_such_name_is_believed() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        answer(stream, "200 OK", "", b"hello");
    });
    let asked = AtomicUsize::new(0);
    let resolver = move |name: &str| match (name, asked.fetch_add(1, Ordering::SeqCst)) {
        ("app.test", 0) => Err(Failure::TimedOut),
        ("app.test", _) => Ok(vec![IpAddr::from(HERE)]),
        _ => Err(Failure::NoSuchName),
    };
    let engine = Engine::builder().resolver(resolver).start().unwrap();
    let url = format!("http://app.test:{}/", server.address.port());
    assert_eq!(engine.client().get(&url).send().unwrap().status(), 200);
    let unknown = engine.client().get("http://unknown.test/").send().unwrap_err();
    assert_eq!(unknown, Error::from(Failed::Resolve(Failure::NoSuchName)));
}

/// An engine that is told of two addresses for every name, the first of which is no good.
fn misled(authority: &Authority) -> Engine {
    let addresses = |_: &str| Ok(vec![IpAddr::from(ELSEWHERE), IpAddr::from(HERE)]);
    let tls = Tls::new().roots(authority.issuer.pem());
    Engine::builder().tls(tls).resolver(addresses).start().unwrap()
}

#[test]
fn an_address_of_another_server_loses_against_the_server_s_own() {
    let (ours, portal) = (Authority::new("ours"), Authority::new("portal"));
    let address = ours.serve("app.test");
    let _portal = portal.serve_at("app.test", SocketAddr::from((ELSEWHERE, address.port())));
    let engine = misled(&ours);
    let mut response =
        engine.client().get(&format!("https://app.test:{}/", address.port())).send().unwrap();
    assert_eq!(response.body().bytes(100).unwrap(), "secret");
    let report = response.body().report().unwrap();
    assert_eq!(report.attempts.len(), 2, "the other was tried: {report:?}");
}

#[test]
fn an_address_that_accepts_and_never_speaks_loses_too() {
    let ours = Authority::new("ours");
    let address = ours.serve("app.test");
    let _mute = TcpListener::bind(SocketAddr::from((ELSEWHERE, address.port()))).unwrap();
    let engine = misled(&ours);
    let mut response =
        engine.client().get(&format!("https://app.test:{}/", address.port())).send().unwrap();
    assert_eq!(response.body().bytes(100).unwrap(), "secret");
}

#[test]
fn behind_a_portal_nothing_is_said_and_when_it_opens_the_same_engine_gets_through() {
    let (ours, portal) = (Authority::new("ours"), Authority::new("portal"));
    let stranger = portal.serve("app.test");
    let port = stranger.port();
    let server = ours.serve_at("app.test", SocketAddr::from((ELSEWHERE, port)));
    let is_open = Arc::new(AtomicBool::new(false));
    let opens = Arc::clone(&is_open);
    let resolver = move |_: &str| {
        let host = if is_open.load(Ordering::SeqCst) { ELSEWHERE } else { HERE };
        Ok(vec![IpAddr::from(host)])
    };
    let tls = Tls::new().roots(ours.issuer.pem());
    let engine = Engine::builder().tls(tls).resolver(resolver).start().unwrap();
    let request = engine.client().post(&format!("https://app.test:{port}/"), "my password");
    let Err(Error::Failed(failed)) = request.clone().send() else {
        panic!("the portal is not the server");
    };
    assert_eq!(failed.why(), Failed::Tls(Fault::Certificate(Distrust::UnknownIssuer)));
    opens.store(true, Ordering::SeqCst);
    engine.network_changed("open", towpath::NetworkKind::Fixed, true).unwrap();
    // The portal's address is still remembered, and raced against the new one.
    assert_eq!(request.send().unwrap().body().bytes(100).unwrap(), "secret");
    assert_eq!(server.port(), port);
}
