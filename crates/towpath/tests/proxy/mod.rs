//! The library behind proxies on loopback: tunnels in plain text and under TLS, SOCKS, and requests that are forwarded.

mod challenges;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ServerConnection, StreamOwned};
use towpath::{Engine, Error, Failed, Proxies, Proxy, Tls};
use towpath_proto::Failure;
use towpath_proto::proxy::Refusal;
use towpath_proto::tls::{Distrust, Fault};

use crate::authority::Authority;
use crate::server::{Server, answer, read_head, read_request};

/// A proxy that gives tunnels, all to one place, and what it was asked.
struct Tunnels {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Both directions at once, over a stream that one thread has.
trait Duplex: Read + Write + Send {
    fn nonblocking(&self);
}

impl Duplex for TcpStream {
    fn nonblocking(&self) {
        self.set_nonblocking(true).unwrap();
    }
}

impl Duplex for StreamOwned<ServerConnection, TcpStream> {
    fn nonblocking(&self) {
        self.sock.set_nonblocking(true).unwrap();
    }
}

impl Tunnels {
    fn to(target: SocketAddr, authority: Option<&Authority>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = authority.map(|authority| authority.config("proxy.test"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, log, config) = (stream.unwrap(), Arc::clone(&log), config.clone());
                std::thread::spawn(move || match config {
                    None => open(stream, target, &log),
                    Some(config) => {
                        let connection = ServerConnection::new(config).unwrap();
                        open(StreamOwned::new(connection, stream), target, &log)
                    }
                });
            }
        });
        Self { address, asked }
    }

    fn last(&self) -> String {
        self.asked.lock().unwrap().last().unwrap().clone()
    }
}

fn open(mut client: impl Duplex, target: SocketAddr, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut first = [0];
    client.read_exact(&mut first).ok()?;
    if first == [5] {
        let mut methods = [0; 2];
        client.read_exact(&mut methods[..1]).ok()?;
        let mut all = vec![0; methods[0].into()];
        client.read_exact(&mut all).ok()?;
        client.write_all(&[5, 0]).ok()?;
        let mut request = [0; 5];
        client.read_exact(&mut request).ok()?;
        let mut name = vec![0; usize::from(request[4]) + 2];
        client.read_exact(&mut name).ok()?;
        name.truncate(request[4].into());
        log.lock().unwrap().push(String::from_utf8(name).unwrap());
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
    } else {
        let head = format!("{}{}", char::from(first[0]), read_head(&mut client)?);
        let is_known = head.contains("proxy-authorization: Basic dXNlcjpwYXNz\r\n");
        log.lock().unwrap().push(head);
        let says: &[u8] = if is_known {
            b"HTTP/1.1 200 Yes\r\nx: y\r\n\r\n"
        } else {
            b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\ncontent-length: 0\r\n\r\n"
        };
        client.write_all(says).ok()?;
    }
    client.flush().ok()?;
    let mut server = TcpStream::connect(target).ok()?;
    client.nonblocking();
    server.nonblocking();
    loop {
        let moved = pass(&mut client, &mut server)? | pass(&mut server, &mut client)?;
        if !moved {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether something passed; `None` at the end.
fn pass(from: &mut impl Read, to: &mut impl Write) -> Option<bool> {
    let mut bytes = [0; 16 * 1024];
    match from.read(&mut bytes) {
        Ok(0) => None,
        Ok(count) => {
            to.write_all(&bytes[..count]).ok()?;
            to.flush().ok()?;
            Some(true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(false),
        Err(_) => None,
    }
}

/// An engine that can resolve the proxy's name and no other.
fn engine(authority: &Authority) -> Engine {
    let resolver = |name: &str| match name {
        "proxy.test" => Ok::<_, Failure>(vec![IpAddr::from([127, 0, 0, 1])]),
        _ => Err(Failure::NoSuchName),
    };
    let tls = Tls::new().roots(authority.issuer.pem());
    Engine::builder().tls(tls).resolver(resolver).start().unwrap()
}

fn why(error: Error) -> Failed {
    let Error::Failed(failed) = error else { panic!("{error}") };
    failed.why()
}

#[test]
fn https_goes_through_tunnels_in_plain_text_under_tls_and_by_socks() {
    let authority = Authority::new("ours");
    let origin = authority.serve("app.test");
    let plain = Tunnels::to(origin, None);
    let secured = Tunnels::to(origin, Some(&authority));
    let engine = engine(&authority);
    for (tunnels, scheme, asked) in [
        (&plain, "http://user:pass@", "CONNECT app.test:443 HTTP/1.1\r\nhost: app.test:443\r\n"),
        (&secured, "https://user:pass@", "CONNECT app.test:443 HTTP/1.1\r\nhost: app.test:443\r\n"),
        (&plain, "socks5h://", "app.test"),
    ] {
        let proxy = format!("{scheme}proxy.test:{}", tunnels.address.port());
        let client = engine.client().proxies(Proxies::all(Proxy::new(&proxy).unwrap()));
        for round in 0..2 {
            let mut response = client.get("https://app.test/").send().unwrap();
            assert_eq!(response.body().bytes(100).unwrap(), "secret", "{proxy}");
            let report = response.body().report().unwrap();
            assert_eq!(report.tries[0].reused, round > 0);
            let told = towpath::timeline::entries(report);
            assert!(told[0].what.starts_with("through the proxy "), "{told:?}");
            assert!(towpath::report::to_json(report).contains("\"proxy\":\""));
        }
        assert!(tunnels.last().starts_with(asked), "{}", tunnels.last());
    }
    assert_eq!(plain.asked.lock().unwrap().len(), 2);
    assert_eq!(secured.asked.lock().unwrap().len(), 1);
}

#[test]
fn what_a_proxy_refuses_is_told_and_whom_it_shows_is_judged() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let tunnels = Tunnels::to(theirs.serve("app.test"), None);
    let foreign = Tunnels::to(ours.serve("app.test"), Some(&theirs));
    let client = engine(&ours).client();
    let get = |url: &str, proxy: &str| {
        let proxy = Proxy::new(proxy).unwrap();
        why(client.get(url).proxy(Some(proxy)).send().unwrap_err())
    };
    let port = tunnels.address.port();
    let unknown = get("https://app.test/", &format!("http://proxy.test:{port}"));
    assert_eq!(unknown, Failed::Proxy(Refusal::Credentials));
    // The origin is judged behind the tunnel as without.
    let distrust = Fault::Certificate(Distrust::UnknownIssuer);
    let judged = get("https://app.test/", &format!("http://user:pass@proxy.test:{port}"));
    assert_eq!(judged, Failed::Tls(distrust));
    let judged =
        get("https://app.test/", &format!("https://proxy.test:{}", foreign.address.port()));
    assert_eq!(judged, Failed::Proxy(Refusal::Tls(distrust)));
    // No proxy, and a name that cannot be resolved here.
    let direct = client.get("https://app.test/").proxy(None).send().unwrap_err();
    assert_eq!(why(direct), Failed::Resolve(Failure::NoSuchName));
}

#[test]
fn http_is_forwarded_in_absolute_form_with_the_proxy_s_own_fields() {
    let (told, heard) = mpsc::channel();
    let proxy = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            told.send(request).unwrap();
            answer(stream, "302 Found", "location: http://b.test/c\r\n", b"");
            told.send(read_request(stream).unwrap()).unwrap();
            answer(stream, "200 OK", "", b"there");
        }
    });
    let engine = Engine::new().unwrap();
    let asked = Proxy::new(&format!("u:p@127.0.0.1:{}", proxy.address.port())).unwrap();
    let proxies = Proxies::default().http(asked.header("X-Own", "1"));
    let client = engine.client().proxies(proxies);
    let mut response = client.post("http://a.test:81/b?c=d", "body").send().unwrap();
    assert_eq!(response.body().bytes(10).unwrap(), "there");
    let first = heard.recv().unwrap();
    assert!(first.starts_with("POST http://a.test:81/b?c=d HTTP/1.1\r\n"), "{first}");
    assert!(first.contains("host: a.test:81\r\n"), "{first}");
    assert!(first.contains("x-own: 1\r\n") && first.ends_with("\r\n\r\nbody"), "{first}");
    assert!(first.contains("proxy-authorization: Basic dTpw\r\n"), "{first}");
    let second = heard.recv().unwrap();
    assert!(second.starts_with("GET http://b.test/c HTTP/1.1\r\n"), "{second}");
    assert_eq!(proxy.connections(), 1, "one connection for all that it forwards");
}

#[test]
fn http_goes_through_a_tunnel_where_that_is_asked_for() {
    let origin = Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            assert!(request.starts_with("GET /x HTTP/1.1\r\n"), "{request}");
            assert!(!request.contains("proxy-authorization"), "{request}");
            answer(stream, "200 OK", "", b"plain");
        }
    });
    let tunnels = Tunnels::to(origin.address, None);
    let engine = Engine::new().unwrap();
    let proxy = format!("http://user:pass@127.0.0.1:{}", tunnels.address.port());
    let proxy = Proxy::new(&proxy).unwrap().tunnel();
    let mut response = engine.client().get("http://[::7]/x").proxy(Some(proxy)).send().unwrap();
    assert_eq!(response.body().bytes(10).unwrap(), "plain");
    assert!(tunnels.last().starts_with("CONNECT [::7]:80 HTTP/1.1\r\n"), "{}", tunnels.last());
}

#[test]
fn an_exception_is_asked_without_its_client_s_proxy() {
    let origin = Server::new(|stream, _| {
        while read_request(stream).is_some() {
            answer(stream, "200 OK", "", b"direct");
        }
    });
    let engine = Engine::new().unwrap();
    // Nothing listens there.
    let proxies = Proxies::all(Proxy::new("http://127.0.0.1:1").unwrap());
    let client = engine.client().proxies(proxies.clone().except("127.0.0.0/8"));
    let mut response = client.get(&origin.url("/")).send().unwrap();
    assert_eq!(response.body().bytes(10).unwrap(), "direct");
    let through = engine.client().proxies(proxies).get(&origin.url("/")).send().unwrap_err();
    assert_eq!(why(through), Failed::Connect(Failure::Refused));
    let odd = Proxy::new("http://127.0.0.1:1").unwrap().header("x y", "");
    let odd = engine.client().get(&origin.url("/")).proxy(Some(odd)).send().unwrap_err();
    assert!(matches!(odd, Error::Proxy(_)), "{odd}");
}
