//! Requests to one name over the connection of another: where the certificate has the name and the address is the
//! same, and nowhere else.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use towpath::{Repeat, Report, Response, Settings};

use super::*;

/// What servers do with requests that come over a connection that was opened for another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guests {
    Served,
    /// 421 (RFC 9110 §15.5.20), but for what asks for `/welcome`.
    Misdirected,
    /// Neither they nor what comes after them is answered.
    Ignored,
}

/// A request as a server saw it: the name in its TLS handshake, and its authority's.
type Seen = (String, String);

struct Town {
    port: u16,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// Shows a certificate by the name that is asked for, or the first.
#[derive(Debug)]
struct ByName(Vec<(&'static str, Arc<CertifiedKey>)>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or_default();
        let own = self.0.iter().find(|(own, _)| *own == name).or_else(|| self.0.first());
        own.map(|(_, key)| Arc::clone(key))
    }
}

fn certified(authority: &Authority, names: &[&str]) -> (Arc<CertifiedKey>, [u8; 32]) {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &authority.issuer).unwrap();
    let rustls::SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else { panic!() };
    let mut pin = [0; 32];
    let hash = suite.common.hash_provider.hash(&key.subject_public_key_info());
    pin.copy_from_slice(hash.as_ref());
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&private).unwrap();
    (Arc::new(CertifiedKey::new(vec![leaf.der().clone()], signer)), pin)
}

impl Town {
    fn new(keys: Vec<(&'static str, Arc<CertifiedKey>)>, alpn: &[u8], guests: Guests) -> Self {
        let builder = ServerConfig::builder().with_no_client_auth();
        let mut config = builder.with_cert_resolver(Arc::new(ByName(keys)));
        config.alpn_protocols = vec![alpn.to_vec()];
        let config = Arc::new(config);
        // All of 127/8 is this machine: one port, many addresses.
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let town = Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            seen: Arc::default(),
        };
        let (count, seen) = (Arc::clone(&town.connections), Arc::clone(&town.seen));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let stream = StreamOwned::new(connection, stream.unwrap());
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || attend(stream, guests, &seen));
            }
        });
        town
    }

    /// With one certificate for all that is below `app.test`.
    fn wild(authority: &Authority, guests: Guests) -> Self {
        let (key, _) = certified(authority, &["*.app.test"]);
        Self::new(vec![("", key)], b"h2", guests)
    }

    fn url(&self, name: &str) -> String {
        format!("https://{name}:{}/", self.port)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn seen(&self) -> Vec<(String, String)> {
        self.seen.lock().unwrap().clone()
    }
}

fn attend(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    guests: Guests,
    seen: &Mutex<Vec<Seen>>,
) -> Option<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).ok()?;
    }
    let own = stream.conn.server_name().unwrap_or_default().to_owned();
    if stream.conn.alpn_protocol() != Some(b"h2") {
        return serve(stream);
    }
    let mut http2 = Connection::server(Arc::new(Options::default()));
    let (mut heads, mut chunk) = (HeadPool::default(), vec![0; 65_536]);
    // Requests whose bodies are on their way.
    let mut open = BTreeMap::new();
    loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        http2.receive(Bytes::copy_from_slice(&chunk[..read]));
        let mut out = Out::new();
        while let Some((number, arrival)) = http2.poll(&mut heads).ok()? {
            let head = match arrival {
                Arrival::Part(Event::Head { head, end: true }) => head,
                Arrival::Part(Event::Head { head, .. }) => {
                    open.insert(number, head);
                    continue;
                }
                Arrival::Part(Event::End) => open.remove(&number)?,
                Arrival::Part(_) | Arrival::Reset(_) | Arrival::Refused => {
                    http2.consumed(number);
                    continue;
                }
            };
            let authority = String::from_utf8_lossy(head.authority()).into_owned();
            let name = authority.split(':').next().unwrap_or_default().to_owned();
            seen.lock().unwrap().push((own.clone(), name.clone()));
            let is_guest = name != own;
            if is_guest && guests == Guests::Ignored {
                std::thread::sleep(Duration::from_secs(30));
                return None;
            }
            let misdirected = match head.path() {
                b"/421" => true,
                b"/welcome" => false,
                _ => is_guest && guests == Guests::Misdirected,
            };
            let answer = Head::response(if misdirected { 421 } else { 200 });
            http2.send_head(number, &answer, false, &mut out);
            http2.send_data(number, Bytes::copy_from_slice(own.as_bytes()));
            http2.send_end(number);
            http2.release(number);
            if head.path() == b"/leave" {
                http2.go_away(towpath_proto::http2::Code::NO_ERROR);
            }
        }
        http2.flush(&mut out);
        for chunk in out.drain() {
            stream.write_all(&chunk).ok()?;
        }
        stream.flush().ok()?;
    }
}

/// Names below `far` are at another address, all others at one.
fn builder(authority: &Authority) -> towpath::Builder {
    builder_with(authority, Settings::default())
}

fn builder_with(authority: &Authority, settings: Settings) -> towpath::Builder {
    let resolver = |name: &str| {
        let last = if name.starts_with("far") { 2 } else { 1 };
        Ok::<_, Failure>(vec![IpAddr::from([127, 0, 0, last])])
    };
    let tls = Tls::new().roots(authority.issuer.pem());
    Engine::builder().settings(settings).tls(tls).resolver(resolver)
}

fn get(engine: &Engine, url: &str) -> (Response, Report) {
    let mut response = engine.client().get(url).send().unwrap();
    response.body().bytes(100).unwrap();
    let report = response.body().report().unwrap().clone();
    (response, report)
}

fn shared(report: &Report) -> Vec<Option<&str>> {
    report.tries.iter().map(|each| each.shared.as_deref()).collect()
}

#[test]
fn a_name_that_the_certificate_has_goes_onto_the_connection_to_its_address() {
    let authority = Authority::new("ours");
    let town = Town::wild(&authority, Guests::Served);
    let engine = builder(&authority).start().unwrap();
    let (_, report) = get(&engine, &town.url("a.app.test"));
    assert_eq!(shared(&report), [None]);
    for _ in 0..3 {
        let (response, report) = get(&engine, &town.url("b.app.test"));
        assert_eq!((response.status(), response.version()), (200, Version::Http2));
        assert_eq!(shared(&report), [Some("a.app.test")]);
        let told = towpath::timeline::entries(&report);
        let told = told.iter().find(|entry| entry.what.starts_with("send on connection"));
        assert!(told.unwrap().what.ends_with("(HTTP/2, used before, opened for a.app.test)"));
        assert!(towpath::report::to_json(&report).contains("\"shared\":\"a.app.test\""));
        assert!(report.attempts.is_empty(), "{:?}", report.attempts);
    }
    let names = town.seen().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names, ["a.app.test", "b.app.test", "b.app.test", "b.app.test"]);
    assert_eq!(town.connections(), 1);
}

#[test]
fn a_name_that_the_certificate_has_not_gets_a_connection_of_its_own() {
    let authority = Authority::new("ours");
    let (wild, _) = certified(&authority, &["*.app.test"]);
    let (other, _) = certified(&authority, &["other.test"]);
    let town = Town::new(vec![("", wild), ("other.test", other)], b"h2", Guests::Served);
    let engine = builder(&authority).start().unwrap();
    get(&engine, &town.url("a.app.test"));
    for name in ["other.test", "a.app.test", "other.test"] {
        let (_, report) = get(&engine, &town.url(name));
        assert_eq!(shared(&report), [None], "{name}");
    }
    assert_eq!(town.connections(), 2);
    let own = |(handshake, name): &(String, String)| handshake == name;
    assert!(town.seen().iter().all(own), "{:?}", town.seen());
}

#[test]
fn another_address_or_port_is_another_server() {
    let authority = Authority::new("ours");
    let town = Town::wild(&authority, Guests::Served);
    let next_door = Town::wild(&authority, Guests::Served);
    let engine = builder(&authority).start().unwrap();
    for url in [town.url("a.app.test"), town.url("far.app.test"), next_door.url("b.app.test")] {
        assert_eq!(shared(&get(&engine, &url).1), [None]);
    }
    assert_eq!((town.connections(), next_door.connections()), (2, 1));
    // Each of them has its own guests.
    let (_, report) = get(&engine, &town.url("far2.app.test"));
    assert_eq!(shared(&report), [Some("far.app.test")]);
}

#[test]
fn neither_plain_text_nor_http_1_nor_an_engine_that_does_not_want_it_shares() {
    let authority = Authority::new("ours");
    let old = {
        let (key, _) = certified(&authority, &["*.app.test"]);
        Town::new(vec![("", key)], b"http/1.1", Guests::Served)
    };
    let engine = builder(&authority).start().unwrap();
    for name in ["a.app.test", "b.app.test"] {
        assert_eq!(shared(&get(&engine, &old.url(name)).1), [None]);
    }
    assert_eq!(old.connections(), 2);

    let plain = Server::new(|stream, _| {
        speak(stream);
    });
    let client = engine.client().http_versions(HttpVersions::Http2);
    for name in ["a.app.test", "b.app.test"] {
        let url = format!("http://{name}:{}/", plain.address.port());
        client.get(&url).send().unwrap().body().bytes(10).unwrap();
    }
    assert_eq!(plain.connections(), 2);

    let town = Town::wild(&authority, Guests::Served);
    let settings = Settings { coalesces: false, ..Settings::default() };
    let engine = builder_with(&authority, settings).start().unwrap();
    for name in ["a.app.test", "b.app.test"] {
        assert_eq!(shared(&get(&engine, &town.url(name)).1), [None]);
    }
    assert_eq!(town.connections(), 2);
}

#[test]
fn a_pinned_key_is_looked_for_as_in_a_handshake() {
    let authority = Authority::new("ours");
    let (wild, pin) = certified(&authority, &["*.app.test"]);
    let town = Town::new(vec![("", wild)], b"h2", Guests::Served);
    let engine = builder(&authority).tls(Tls::new().roots(authority.issuer.pem()).pin(pin));
    let engine = engine.start().unwrap();
    get(&engine, &town.url("a.app.test"));
    assert_eq!(shared(&get(&engine, &town.url("b.app.test")).1), [Some("a.app.test")]);
    assert_eq!(town.connections(), 1);
}

#[test]
fn what_is_misdirected_is_asked_again_on_its_own_connection_and_never_there_again() {
    let authority = Authority::new("ours");
    let town = Town::wild(&authority, Guests::Misdirected);
    let engine = builder(&authority).start().unwrap();
    get(&engine, &town.url("a.app.test"));
    // Also what must not be repeated: it was not processed.
    let request = engine.client().post(&town.url("b.app.test"), "once").repeat(Repeat::Never);
    let mut response = request.send().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.body().bytes(100).unwrap(), "b.app.test");
    let report = response.body().report().unwrap();
    assert_eq!(shared(report), [Some("a.app.test"), None]);
    assert_eq!((report.retries, report.tries[0].reset_reason.starts_with("421")), (1, true));
    // Its own connection goes away, and the first origin is not asked again all the same.
    let leave = |name: &str| format!("{}leave", town.url(name));
    get(&engine, &leave("b.app.test"));
    let (response, report) = get(&engine, &town.url("b.app.test"));
    assert_eq!((response.status(), shared(&report)), (200, vec![None]));
    let mut times = BTreeMap::<Seen, u32>::new();
    town.seen().into_iter().for_each(|seen| *times.entry(seen).or_default() += 1);
    let guest = |name: &str| ("a.app.test".to_owned(), name.to_owned());
    assert_eq!(times[&guest("b.app.test")], 1, "{times:?}");
    assert_eq!(town.connections(), 3);
    // Of its own connection it is the app's to know.
    let (response, report) = get(&engine, &format!("{}421", town.url("a.app.test")));
    assert_eq!((response.status(), shared(&report)), (421, vec![None]));
}

#[test]
fn a_body_that_is_not_kept_leaves_421_to_the_app() {
    let authority = Authority::new("ours");
    let town = Town::wild(&authority, Guests::Misdirected);
    let settings = Settings { replay_bytes: 10, ..Settings::default() };
    let engine = builder_with(&authority, settings).start().unwrap();
    get(&engine, &town.url("a.app.test"));
    // What waits for addresses is kept whole: the second request goes out as it comes.
    let (_, report) = get(&engine, &format!("{}welcome", town.url("b.app.test")));
    assert_eq!(shared(&report), [Some("a.app.test")]);
    let request = engine.client().request("POST", &town.url("b.app.test"));
    let mut upload = request.upload(Some(40_000)).unwrap();
    (0..4).for_each(|_| upload.write(vec![b'x'; 10_000]).unwrap());
    let mut response = upload.finish().unwrap();
    assert_eq!(response.status(), 421);
    response.body().bytes(100).unwrap();
    assert_eq!(shared(response.body().report().unwrap()), [Some("a.app.test")]);
    let (response, report) = get(&engine, &town.url("b.app.test"));
    assert_eq!((response.status(), shared(&report)), (200, vec![None]));
}

#[test]
fn a_connection_that_goes_away_takes_no_guests() {
    let authority = Authority::new("ours");
    let town = Town::wild(&authority, Guests::Served);
    let engine = builder(&authority).start().unwrap();
    get(&engine, &format!("{}leave", town.url("a.app.test")));
    let (_, report) = get(&engine, &town.url("b.app.test"));
    assert_eq!(shared(&report), [None]);
    // The other way round: now there is one that may be shared.
    let (_, report) = get(&engine, &town.url("a.app.test"));
    assert_eq!(shared(&report), [Some("b.app.test")]);
    assert_eq!(town.connections(), 2);
}

#[test]
fn a_guest_moves_to_a_connection_of_its_own_where_the_shared_one_does_not_answer() {
    let authority = Authority::new("ours");
    let town = Town::wild(&authority, Guests::Ignored);
    let engine = builder(&authority).start().unwrap();
    get(&engine, &town.url("a.app.test"));
    let (response, report) = get(&engine, &town.url("b.app.test"));
    assert_eq!((response.status(), shared(&report)), (200, vec![Some("a.app.test"), None]));
    let seen = town.seen();
    assert_eq!(seen.last(), Some(&("b.app.test".to_owned(), "b.app.test".to_owned())), "{seen:?}");
}

#[test]
fn requests_to_many_names_at_once_end_each_with_its_answer() {
    let authority = Authority::new("ours");
    let town = Town::wild(&authority, Guests::Served);
    let engine = builder(&authority).start().unwrap();
    let threads: Vec<_> = (0..12)
        .map(|number| {
            let (engine, url) = (engine.clone(), town.url(&format!("n{}.app.test", number % 6)));
            std::thread::spawn(move || assert_eq!(get(&engine, &url).0.status(), 200))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(town.seen().len(), 12);
    assert!(town.connections() <= 6, "{}", town.connections());
}
