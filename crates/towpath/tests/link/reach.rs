//! How a link finds its server, and makes sure that it is the one.

use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, mpsc};

use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use towpath::link::{Error, Link};
use towpath::{Engine, Failed, Question, Tls};
use towpath_proto::tls::{Distrust, Fault};

use super::{PATIENCE, Peer, TestServer};
use crate::authority::Authority;

#[test]
fn under_tls_the_server_s_name_is_sent_and_frames_of_any_size_go_both_ways() {
    let authority = Authority::new("ours");
    let server = SecureServer::new(&authority, NAME);
    let link = server.link(Tls::new().roots(authority.issuer.pem()));
    let request = link.request(vec![7; 300_000]).waits().send_async().unwrap();
    let (mut peer, name) = server.accept();
    peer.echo();
    assert_eq!(request.wait().unwrap().content(), &vec![7; 300_000]);
    assert_eq!(name, NAME);
    assert_eq!(link.state().failure, None);
    // A server that ends well is connected to again, with the session that it gave.
    drop(peer);
    let request = link.request("again").waits().send_async().unwrap();
    server.accept().0.echo();
    assert_eq!(request.wait().unwrap().content(), "again");
    assert_eq!(link.state().connections, 2);
}

#[test]
fn a_server_that_is_not_the_one_is_refused_and_the_reason_is_told() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let roots = || Tls::new().roots(ours.issuer.pem());
    for (authority, name, tls, why) in [
        (&theirs, NAME, roots(), Distrust::UnknownIssuer),
        (&ours, "other.test", roots(), Distrust::Name),
        (&ours, NAME, roots().pin([7; 32]), Distrust::Pin),
    ] {
        let server = SecureServer::new(authority, name);
        let link = server.link(tls);
        let refuse = std::thread::spawn(move || server.refuse());
        let failure = Some(Failed::Tls(Fault::Certificate(why)));
        assert!(link.wait_until(PATIENCE, |state| state.failure == failure), "{why:?}");
        assert_eq!(link.state().connections, 0);
        refuse.join().unwrap();
    }
    let broken = Engine::builder().tls(Tls::new().roots("no certificate")).start().unwrap();
    assert!(matches!(broken.link("tls://127.0.0.1:9").open(), Err(Error::Tls(_))));
}

#[test]
fn a_server_that_asks_is_shown_who_we_are() {
    let authority = Authority::new("ours");
    let mut server = SecureServer::new(&authority, NAME);
    let (leaf, key) = authority.sign(NAME);
    let mut roots = RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let (own, own_key) = authority.sign("app.test");
    server.config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap()
        .into();
    let tls = Tls::new().roots(authority.issuer.pem());
    let link = server.link(tls.identity(own.pem(), own_key.serialize_pem()));
    let request = link.request("who").waits().send_async().unwrap();
    server.accept().0.echo();
    assert_eq!(request.wait().unwrap().content(), "who");
}

#[test]
fn the_app_is_asked_and_what_it_said_is_remembered() {
    let server = TestServer { listener: TcpListener::bind("127.0.0.1:0").unwrap() };
    let port = server.listener.local_addr().unwrap().port();
    let url = format!("tcp://{NAME}:{port}");
    let dead = IpAddr::from([127, 0, 0, 9]);
    let resolver = move |_: &str| Ok(vec![dead, IpAddr::from([127, 0, 0, 1])]);
    let engine = Engine::builder().resolver(resolver).start().unwrap();
    let link = engine.link(&url).open().unwrap();
    // It keeps its engine.
    let memory = std::env::temp_dir().join(format!("towpath-link-{port}"));
    let mut peer = server.accept();
    assert!(link.wait_until(PATIENCE, |state| state.connected));
    engine.save_memory(&memory).unwrap();
    drop(engine);
    let request = link.request("there").waits().send_async().unwrap();
    peer.echo();
    assert_eq!(request.wait().unwrap().content(), "there");
    let text = std::fs::read_to_string(&memory).unwrap();
    let line = |address: &str| {
        let begin = format!("{address}:{port} ");
        text.lines().find_map(|line| line.strip_prefix(&*begin)).unwrap().to_owned()
    };
    assert!(line("127.0.0.1").starts_with("1 0 0 "), "{text}");
    assert!(line("127.0.0.9").starts_with("0 1 1 "), "{text}");
    // The next life's resolver is slow: what was remembered is taken at once.
    let (keep, kept) = mpsc::channel::<Question>();
    let slow = move |question: Question| keep.send(question).unwrap();
    let engine = Engine::builder().memory(&memory).questions(slow).start().unwrap();
    let link = engine.link(&url).open().unwrap();
    let mut peer = server.accept();
    let request = link.request("at once").waits().send_async().unwrap();
    peer.echo();
    assert_eq!(request.wait().unwrap().content(), "at once");
    assert_eq!(kept.recv().unwrap().name(), NAME);
    std::fs::remove_file(&memory).unwrap();
}

#[test]
fn a_name_without_addresses_is_told() {
    let none = |_: &str| Ok(Vec::new());
    let engine = Engine::builder().resolver(none).start().unwrap();
    let link = engine.link("tcp://nowhere.test:9").open().unwrap();
    let failure = Some(Failed::Resolve(towpath::Failure::NoSuchName));
    assert!(link.wait_until(PATIENCE, |state| state.failure == failure));
}

const NAME: &str = "push.test";

struct SecureServer {
    server: TestServer,
    config: Arc<ServerConfig>,
}

impl SecureServer {
    fn new(authority: &Authority, name: &str) -> Self {
        let server = TestServer { listener: TcpListener::bind("127.0.0.1:0").unwrap() };
        Self { server, config: authority.config(name) }
    }

    /// A link to it by its name.
    fn link(&self, tls: Tls) -> Link {
        let here = |_: &str| Ok(vec![IpAddr::from([127, 0, 0, 1])]);
        let engine = Engine::builder().tls(tls).resolver(here).start().unwrap();
        let port = self.server.listener.local_addr().unwrap().port();
        engine.link(&format!("tls://{NAME}:{port}")).open().unwrap()
    }

    /// A connection after its handshake, and the name that was asked for.
    fn accept(&self) -> (Peer, String) {
        let (mut stream, _) = self.server.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut connection = ServerConnection::new(Arc::clone(&self.config)).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).unwrap();
        }
        let name = connection.server_name().unwrap_or_default().to_owned();
        (Peer::on(StreamOwned::new(connection, stream)), name)
    }

    /// Sees one handshake fail.
    fn refuse(&self) {
        let (mut stream, _) = self.server.listener.accept().unwrap();
        let mut connection = ServerConnection::new(Arc::clone(&self.config)).unwrap();
        while connection.complete_io(&mut stream).is_ok_and(|(read, _)| read > 0) {}
    }
}
