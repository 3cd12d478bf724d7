//! HTTP/2 with servers on loopback, in clear text and under TLS.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use towpath::{Engine, Error, HttpVersions, Priority, Tls, Version};
use towpath_engine::local::message::Error as Failed;
use towpath_proto::Failure;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Connection, Options};
use towpath_proto::tls::Fault;
use towpath_proto::{Event, Out};

mod coalesce;

use crate::authority::Authority;
use crate::server::{Server, answer, read_head};

/// Serves a connection that speaks HTTP/2: the answer is what was sent, with the request's fields that begin with `x-`
/// and its `priority`, and a trailer that counts bytes. Many are answered at once, in the other order.
pub(crate) fn speak(stream: &mut (impl Read + Write)) -> Option<()> {
    speak_with(stream, &reply)
}

/// How a request, with its body, is answered.
pub(crate) type Reply<'a> = dyn Fn(&mut Connection, u32, &Head, Vec<u8>, &mut Out) + 'a;

/// The same with other answers.
pub(crate) fn speak_with(stream: &mut (impl Read + Write), reply: &Reply<'_>) -> Option<()> {
    let mut http2 = Connection::server(Arc::new(Options::default()));
    let (mut heads, mut chunk) = (HeadPool::default(), vec![0; 65_536]);
    let mut open: Vec<(u32, Head, Vec<u8>, bool)> = Vec::new();
    loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        http2.receive(Bytes::copy_from_slice(&chunk[..read]));
        while let Some((number, arrival)) = http2.poll(&mut heads).ok()? {
            let at = open.iter().position(|(other, ..)| *other == number);
            match (arrival, at) {
                (Arrival::Part(Event::Head { head, end }), _) => {
                    open.push((number, head, Vec::new(), end));
                }
                (Arrival::Part(Event::Data(data)), Some(at)) => {
                    open[at].2.extend_from_slice(&data);
                    http2.consumed(number);
                }
                (Arrival::Part(_), Some(at)) => open[at].3 = true,
                (Arrival::Reset(_) | Arrival::Refused, Some(at)) => {
                    open.remove(at);
                    http2.release(number);
                }
                (_, None) => {}
            }
        }
        let mut out = Out::new();
        for at in (0..open.len()).rev() {
            if open[at].3 {
                let (number, request, body, _) = open.remove(at);
                reply(&mut http2, number, &request, body, &mut out);
                http2.release(number);
            }
        }
        http2.flush(&mut out);
        for chunk in out.drain() {
            stream.write_all(&chunk).ok()?;
        }
        stream.flush().ok()?;
    }
}

fn reply(http2: &mut Connection, number: u32, request: &Head, body: Vec<u8>, out: &mut Out) {
    let mut head = Head::response(200);
    for field in request.iter() {
        if field.name_bytes.starts_with(b"x-") || field.name_bytes == b"priority" {
            head.append_bytes(field.name_bytes, field.value);
        }
    }
    let mut trailers = Head::default();
    trailers.append_bytes(b"x-length", body.len().to_string().as_bytes());
    http2.send_head(number, &head, false, out);
    http2.send_data(number, body.into());
    http2.send_trailers(number, &trailers);
}

/// A server under TLS that lets the client choose among these.
struct Secure {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Secure {
    fn new(authority: &Authority, protocols: &[&[u8]]) -> Self {
        let mut config = ServerConfig::clone(&authority.config("app.test"));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let stream = StreamOwned::new(connection, stream.unwrap());
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address, connections }
    }

    fn url(&self) -> String {
        format!("https://app.test:{}/", self.address.port())
    }
}

fn serve(mut stream: StreamOwned<ServerConnection, std::net::TcpStream>) -> Option<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).ok()?;
    }
    if stream.conn.alpn_protocol() == Some(b"h2") {
        return speak(&mut stream);
    }
    loop {
        read_head(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nold").ok()?;
        stream.flush().ok()?;
    }
}

fn engine(authority: &Authority) -> Engine {
    let loopback = |_: &str| Ok::<_, Failure>(vec![IpAddr::from([127, 0, 0, 1])]);
    let tls = Tls::new().roots(authority.issuer.pem());
    Engine::builder().tls(tls).resolver(loopback).start().unwrap()
}

#[test]
fn a_server_that_chooses_it_is_asked_many_things_over_one_connection() {
    let authority = Authority::new("ours");
    let server = Secure::new(&authority, &[b"h2", b"http/1.1"]);
    let engine = engine(&authority);
    let threads: Vec<_> = (0..20)
        .map(|number| {
            let (client, url) = (engine.client(), server.url());
            std::thread::spawn(move || {
                let body = vec![number; 50_000];
                let request =
                    client.post(&url, body.clone()).header("x-number", &number.to_string());
                let mut response = request.send().unwrap();
                assert_eq!((response.status(), response.version()), (200, Version::Http2));
                assert_eq!(response.header("x-number"), Some(&*number.to_string()));
                assert_eq!(response.body().bytes(1 << 20).unwrap(), body);
                let trailers: Vec<_> = response.body().trailers().collect();
                assert_eq!(trailers, [(&b"x-length"[..], &b"50000"[..])]);
                let report = response.body().report().unwrap();
                assert_eq!(report.tries[0].version, Version::Http2);
                let told = towpath::timeline::entries(report);
                assert!(told.iter().any(|entry| entry.what.contains("HTTP/2")));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // One, and another where this machine was held up for so long that it was suspected.
    assert!(server.connections.load(Ordering::SeqCst) <= 3);
}

#[test]
fn a_server_that_does_not_is_asked_by_http_1() {
    let authority = Authority::new("ours");
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let server = Secure::new(&authority, protocols);
        let engine = engine(&authority);
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let request = engine.client().get(&server.url());
                std::thread::spawn(move || {
                    let mut response = request.send().unwrap();
                    assert_eq!(response.version(), Version::Http11);
                    assert_eq!(response.body().bytes(10).unwrap(), "old");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let only = engine.client().get(&server.url()).http_versions(HttpVersions::Http2).send();
        let Err(Error::Failed(failed)) = only else { panic!("it was asked by HTTP/2") };
        let refusals = [Fault::Incompatible, Fault::Alert(120)];
        assert!(refusals.iter().any(|fault| failed.why() == Failed::Tls(*fault)), "{failed:?}");
    }
}

#[test]
fn who_wants_one_version_gets_that() {
    let authority = Authority::new("ours");
    let server = Secure::new(&authority, &[b"h2", b"http/1.1"]);
    let engine = engine(&authority);
    let version = |versions| {
        let client = engine.client().http_versions(versions);
        client.get(&server.url()).send().unwrap().version()
    };
    assert_eq!(version(HttpVersions::Http1), Version::Http11);
    assert_eq!(version(HttpVersions::Http2), Version::Http2);
    assert_eq!(version(HttpVersions::Negotiated), Version::Http2);
    assert!(server.connections.load(Ordering::SeqCst) >= 3, "they do not share");
}

#[test]
fn in_clear_text_it_is_spoken_by_prior_knowledge() {
    let server = Server::new(|stream, _| {
        speak(stream);
    });
    let engine = Engine::new().unwrap();
    let client = engine.client().http_versions(HttpVersions::Http2);
    for _ in 0..3 {
        let body: Vec<u8> = (0..3_000_000u32).map(|at| at as u8).collect();
        let mut upload = client.request("PUT", &server.url("/")).upload(None).unwrap();
        for piece in body.chunks(100_000) {
            upload.write(piece.to_vec()).unwrap();
        }
        let mut response = upload.finish().unwrap();
        assert_eq!(response.version(), Version::Http2);
        assert!(response.body().bytes(4 << 20).unwrap() == body);
    }
    assert!(server.connections() <= 3, "{}", server.connections());
}

#[test]
fn in_clear_text_it_is_not_guessed() {
    let server = Server::new(|stream, _| {
        while read_head(stream).is_some() {
            answer(stream, "200 OK", "", b"old");
        }
    });
    let response = Engine::new().unwrap().client().get(&server.url("/")).send().unwrap();
    assert_eq!(response.version(), Version::Http11);
}

#[test]
fn a_server_is_told_how_urgent_it_is() {
    let server = Server::new(|stream, _| {
        speak(stream);
    });
    let engine = Engine::new().unwrap();
    let client = engine.client().http_versions(HttpVersions::Http2);
    let told = |priority, own: Option<&str>| {
        let mut request = client.get(&server.url("/")).priority(priority);
        if let Some(own) = own {
            request = request.header("priority", own);
        }
        request.send().unwrap().header("priority").map(str::to_owned)
    };
    assert_eq!(told(Priority::High, None).as_deref(), Some("u=1"));
    assert_eq!(told(Priority::Normal, None), None);
    assert_eq!(told(Priority::Low, None).as_deref(), Some("u=5"));
    assert_eq!(told(Priority::Low, Some("u=0, i")).as_deref(), Some("u=0, i"));
}

#[test]
fn a_response_that_is_given_up_leaves_the_connection_to_others() {
    let server = Server::new(|stream, _| {
        speak(stream);
    });
    let engine = Engine::new().unwrap();
    let client = engine.client().http_versions(HttpVersions::Http2);
    for round in 0..10 {
        let response = client.post(&server.url("/"), vec![7; 200_000]).send().unwrap();
        drop(response);
        let mut other = client.post(&server.url("/"), "short").send().unwrap();
        assert_eq!(other.body().bytes(10).unwrap(), "short", "{round}");
    }
    assert!(server.connections() <= 3, "{}", server.connections());
}
