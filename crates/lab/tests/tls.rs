//! Load over TLS against rustls's own server.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};
use towpath_lab::address::Target;
use towpath_lab::load::tls::{Tls, Trusted};
use towpath_lab::load::{Arrivals, LoadError, Plan, Protocol, run};

/// A server that answers every request, and what it counts.
struct Server {
    address: SocketAddr,
    certificate: String,
    handshakes: Arc<AtomicU64>,
    resumed: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

fn serve() -> Server {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server {
        address: listener.local_addr().unwrap(),
        certificate: made.cert.pem(),
        handshakes: Arc::default(),
        resumed: Arc::default(),
        answered: Arc::default(),
    };
    let counts = [&server.handshakes, &server.resumed, &server.answered].map(Arc::clone);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (config, counts) = (Arc::clone(&config), counts.clone());
            std::thread::spawn(move || answer(stream.unwrap(), config, &counts));
        }
    });
    server
}

fn answer(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    [handshakes, resumed, answered]: &[Arc<AtomicU64>; 3],
) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        request.extend_from_slice(&chunk[..count]);
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        if stream.conn.alpn_protocol() == Some(b"http/1.1") {
            answered.fetch_add(1, Ordering::Relaxed);
        }
        request.clear();
        // Twenty kilobytes are more than one record.
        let body = "x".repeat(20_000);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all((head + &body).as_bytes()).and_then(|()| stream.flush()).is_err() {
            break;
        }
    }
    handshakes.fetch_add(u64::from(stream.conn.handshake_kind().is_some()), Ordering::Relaxed);
    let is_resumed = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
    resumed.fetch_add(u64::from(is_resumed), Ordering::Relaxed);
}

fn plan(server: &Server, trusted: &Trusted, is_resuming: bool) -> Plan {
    let target: Target = format!("https://127.0.0.1:{}/x", server.address.port()).parse().unwrap();
    assert!(target.is_tls);
    let mut plan = Plan::new(target);
    plan.tls = Some(Tls::new("localhost", trusted, is_resuming, Protocol::Http1).unwrap());
    plan.arrivals = Arrivals::Paced { rate: 100.0 };
    plan.connections = 4;
    plan.duration = Duration::from_millis(500);
    plan.timeout = Duration::from_secs(30);
    plan
}

#[test]
fn requests_go_over_tls_to_a_server_that_is_trusted() {
    let server = serve();
    let trusted = Trusted::Roots(server.certificate.clone().into_bytes());
    let mut plan = plan(&server, &trusted, false);
    plan.threads = 2;
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.sent, outcome.errors.total()), (50, 0), "{:?}", outcome.errors);
    assert_eq!(outcome.latency.count(), 50);
    assert_eq!(server.answered.load(Ordering::Relaxed), 50);
}

#[test]
fn a_connection_for_each_request_shakes_hands_each_time_or_resumes() {
    for is_resuming in [false, true] {
        let server = serve();
        let mut plan = plan(&server, &Trusted::All, is_resuming);
        plan.keep_alive = false;
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.sent, outcome.errors.total()), (50, 0), "{:?}", outcome.errors);
        let resumed = server.resumed.load(Ordering::Relaxed);
        assert_eq!(resumed > 0, is_resuming, "{resumed} of 50 were resumed");
    }
}

#[test]
fn a_server_that_is_not_trusted_gets_no_request() {
    let server = serve();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let mut plan = plan(&server, &Trusted::Roots(other.cert.pem().into_bytes()), false);
    plan.timeout = Duration::from_millis(500);
    let why = match run(&plan) {
        Err(LoadError::Connect { error, .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(why.contains("certificate") && why.contains("--insecure"), "{why}");
    assert_eq!(server.answered.load(Ordering::Relaxed), 0);
}
