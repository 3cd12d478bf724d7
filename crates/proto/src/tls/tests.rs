//! A layer against rustls's own server, in memory: every split of the handshake's bytes, and all ways to refuse.

mod any_name;
mod fingerprint;
mod judged;
mod revoked;
mod server;

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData as _, SanType,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::verify::{Verifier, sha256};
use super::*;

/// 2030-01-01, when the certificates of these tests are valid.
const NOW: Duration = Duration::from_secs(1_893_456_000);

#[test]
fn bytes_pass_both_ways_and_the_end_is_told() {
    for version in [Version::Tls12, Version::Tls13] {
        let authority = Authority::new("root");
        let mut server = authority.server(&["a.test"], version);
        let settings =
            ClientSettings { trust: authority.trust(Names::Server), ..ClientSettings::default() };
        let mut layer = shake(settings, "a.test", &mut server, usize::MAX).unwrap();
        assert_eq!(layer.version(), Some(version));
        let cipher = layer.cipher_suite().unwrap().name();
        assert!(cipher.contains("AES") && cipher.contains("128"), "{cipher}");

        let mut sealed = BytesMut::new();
        let question = vec![b'q'; 100_000];
        layer.seal(&question, &mut sealed).unwrap();
        assert_eq!(served(&mut server, &sealed), question);

        server.writer().write_all(b"answer").unwrap();
        server.send_close_notify();
        let mut plain = BytesMut::new();
        layer.receive(&wire(&mut server), &mut plain).unwrap();
        assert_eq!(&plain[..], b"answer");
        assert!(layer.is_ended());

        // Half-closed: our direction still works, until we send close_notify.
        sealed.clear();
        layer.seal(b"more", &mut sealed).unwrap();
        layer.send_close_notify(&mut sealed);
        assert_eq!(served(&mut server, &sealed), b"more");
        assert_eq!(layer.seal(b"too late", &mut sealed), Err(Fault::Internal));
        let len = sealed.len();
        layer.send_close_notify(&mut sealed);
        assert_eq!(sealed.len(), len, "once");
    }
}

#[test]
fn a_handshake_does_not_care_how_its_bytes_are_cut() {
    for version in [Version::Tls12, Version::Tls13] {
        let authority = Authority::new("root");
        for size in [1, 2, 3, 5, 7, 64, 1000] {
            let mut server = authority.server(&["a.test"], version);
            let trust = authority.trust(Names::Server);
            let settings = ClientSettings { trust, ..ClientSettings::default() };
            let mut layer = shake(settings, "a.test", &mut server, size).unwrap();
            server.writer().write_all(b"hello").unwrap();
            let mut plain = BytesMut::new();
            for piece in wire(&mut server).chunks(size) {
                layer.receive(piece, &mut plain).unwrap();
            }
            assert_eq!(&plain[..], b"hello", "{version:?} in pieces of {size}");
        }
    }
}

#[test]
fn every_cut_of_the_servers_flight_leads_to_the_same_end() {
    let authority = Authority::new("root");
    let template = ClientSettings { trust: authority.trust(Names::Server), ..Default::default() }
        .build()
        .unwrap();
    let mut at = 1;
    loop {
        let mut server = authority.server(&["a.test"], Version::Tls13);
        let clock = clock();
        let mut layer =
            template.client(&clock).connect(&ServerName::new("a.test").unwrap()).unwrap();
        feed(&mut server, &layer.take_output());
        let flight = wire(&mut server);
        let Some((head, rest)) = flight.split_at_checked(at) else { break };
        let mut plain = BytesMut::new();
        layer.receive(head, &mut plain).unwrap();
        assert_eq!(layer.is_established(), rest.is_empty());
        if rest.is_empty() {
            break;
        }
        layer.receive(rest, &mut plain).unwrap();
        assert!(layer.is_established(), "cut at {at}");
        at += 1;
    }
    assert!(at > 500, "{at}");
}

#[test]
fn an_established_layer_at_rest_keeps_no_bytes() {
    let authority = Authority::new("root");
    let mut server = authority.server(&["a.test"], Version::Tls13);
    let settings =
        ClientSettings { trust: authority.trust(Names::Server), ..ClientSettings::default() };
    let layer = shake(settings, "a.test", &mut server, usize::MAX).unwrap();
    assert_eq!(layer.buffered(), 0);
    assert!(size_of::<Layer>() <= 1280, "{}", size_of::<Layer>());
}

#[test]
fn certificates_are_judged() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let refused = |trust: Trust, name: &str, server: &mut ServerConnection| {
        let settings = ClientSettings { trust, ..ClientSettings::default() };
        match shake(settings, name, server, usize::MAX) {
            Ok(_) => None,
            Err(Fault::Certificate(distrust)) => Some(distrust),
            Err(other) => panic!("{other}"),
        }
    };
    let leaf = ours.leaf(&["a.test"], YEARS);
    let (pin, key_pin) = (sha256(&leaf.der), sha256(&leaf.key.subject_public_key_info()));
    let server = || serve(&leaf, Version::Tls13, None);
    let roots = || ours.trust(Names::Any).roots;

    let any = Trust::default();
    assert_eq!(refused(any, "b.test", &mut server()), None, "nothing is asked for");
    let chain = |names| Trust { roots: roots(), names, ..Trust::default() };
    assert_eq!(refused(chain(Names::Any), "b.test", &mut server()), None);
    assert_eq!(refused(chain(Names::Server), "a.test", &mut server()), None);
    assert_eq!(refused(chain(Names::Server), "b.test", &mut server()), Some(Distrust::Name));
    let strange = theirs.trust(Names::Any);
    assert_eq!(refused(strange.clone(), "a.test", &mut server()), Some(Distrust::UnknownIssuer));
    let careless = Trust { accept_untrusted: true, ..strange };
    assert_eq!(refused(careless, "a.test", &mut server()), None);

    let matching = |wanted: &'static str| Names::Matching(vec![Arc::new(Exactly(wanted))]);
    assert_eq!(refused(chain(matching("a.test")), "x.test", &mut server()), None);
    assert_eq!(refused(chain(matching("b.test")), "a.test", &mut server()), Some(Distrust::Name));
    let by_name = Trust { names: matching("b.test"), ..Trust::default() };
    assert_eq!(refused(by_name, "a.test", &mut server()), Some(Distrust::Name), "without roots");

    let pinned = |certificate_sha256, spki_sha256| Trust {
        certificate_sha256,
        spki_sha256,
        ..Trust::default()
    };
    assert_eq!(refused(pinned(vec![pin], vec![]), "a.test", &mut server()), None);
    assert_eq!(refused(pinned(vec![], vec![key_pin]), "a.test", &mut server()), None);
    assert_eq!(refused(pinned(vec![[0; 32]], vec![key_pin]), "a.test", &mut server()), None);
    let wrong = pinned(vec![key_pin], vec![pin]);
    assert_eq!(refused(wrong, "a.test", &mut server()), Some(Distrust::Pin));
    let both = Trust { spki_sha256: vec![[0; 32]], ..chain(Names::Server) };
    assert_eq!(refused(both, "a.test", &mut server()), Some(Distrust::Pin), "though trusted");

    // A platform's judgement stands in for roots, and pins are looked at beside it.
    let judged = |trust: Trust| {
        let make = |provider| {
            let made = Verifier::new(trust, &[], &provider);
            made.map_err(|error| rustls::Error::General(error.to_string()))
        };
        Trust { platform: Some(Platform::new(make).unwrap()), ..Trust::default() }
    };
    let ours_alone = || judged(ours.trust(Names::Server));
    assert_eq!(refused(ours_alone(), "a.test", &mut server()), None);
    assert_eq!(refused(ours_alone(), "b.test", &mut server()), Some(Distrust::Name));
    let other = judged(theirs.trust(Names::Server));
    assert_eq!(refused(other, "a.test", &mut server()), Some(Distrust::UnknownIssuer));
    let pinned = Trust { spki_sha256: vec![[0; 32]], ..ours_alone() };
    assert_eq!(refused(pinned, "a.test", &mut server()), Some(Distrust::Pin));
}

#[test]
fn certificates_have_their_time() {
    let ours = Authority::new("ours");
    for (years, expected) in [
        ((2020, 2029), Some(Distrust::Expired)),
        ((2031, 2040), Some(Distrust::NotYetValid)),
        (YEARS, None),
    ] {
        let leaf = ours.leaf(&["a.test"], years);
        let trusts_authority = ours.trust(Names::Any);
        let roots = Roots::from_der([leaf.der.to_vec()]).unwrap();
        let trusts_leaf = Trust { roots: Some(roots), ..Trust::default() };
        for trust in [trusts_authority, trusts_leaf] {
            let settings = ClientSettings { trust, ..ClientSettings::default() };
            let mut server = serve(&leaf, Version::Tls13, None);
            let outcome = shake(settings, "a.test", &mut server, usize::MAX);
            assert_eq!(outcome.err(), expected.map(Fault::Certificate), "{years:?}");
        }
    }
}

#[test]
fn a_self_signed_certificate_is_told_from_a_stranger_and_may_be_trusted_itself() {
    let key = KeyPair::generate().unwrap();
    let leaf = Leaf::new(&params(&["a.test"], YEARS).self_signed(&key).unwrap(), key);
    let stranger = Authority::new("other").trust(Names::Any);
    let itself =
        Trust { roots: Some(Roots::from_der([leaf.der.to_vec()]).unwrap()), ..Trust::default() };
    for (trust, expected) in
        [(stranger, Some(Fault::Certificate(Distrust::SelfSigned))), (itself, None)]
    {
        let settings = ClientSettings { trust, ..ClientSettings::default() };
        let mut server = serve(&leaf, Version::Tls13, None);
        assert_eq!(shake(settings, "a.test", &mut server, usize::MAX).err(), expected);
    }
}

#[test]
fn without_a_time_nothing_that_expires_is_trusted() {
    let authority = Authority::new("root");
    let template = ClientSettings { trust: authority.trust(Names::Any), ..Default::default() }
        .build()
        .unwrap();
    let client = template.client(&Clock::default());
    let mut layer = client.connect(&ServerName::unnamed()).unwrap();
    let mut server = authority.server(&["a.test"], Version::Tls13);
    assert_eq!(converse(&mut layer, &mut server, usize::MAX), Err(Fault::Time));
}

#[test]
fn a_server_that_asks_gets_our_certificate() {
    let (ours, server_side) = (Authority::new("clients"), Authority::new("servers"));
    let leaf = server_side.leaf(&["a.test"], YEARS);
    let me = ours.leaf(&["me.test"], YEARS);
    let identity = || Identity::from_pem(me.pem.as_bytes(), me.key.serialize_pem().as_bytes());
    for version in [Version::Tls12, Version::Tls13] {
        let settings = ClientSettings {
            trust: server_side.trust(Names::Server),
            identity: Some(identity().unwrap()),
            ..ClientSettings::default()
        };
        let mut server = serve(&leaf, version, Some(&ours));
        shake(settings, "a.test", &mut server, usize::MAX).unwrap();
        assert_eq!(server.peer_certificates().unwrap()[0], me.der);

        let settings =
            ClientSettings { trust: server_side.trust(Names::Server), ..Default::default() };
        let mut server = serve(&leaf, version, Some(&ours));
        let outcome = shake(settings, "a.test", &mut server, usize::MAX);
        assert_eq!(outcome.err(), Some(Fault::Alert(116)), "{version:?}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let build = |settings: ClientSettings| settings.build().err();
    let versions = (Version::Tls13, Version::Tls12);
    let none = ClientSettings { versions, ..ClientSettings::default() };
    assert_eq!(build(none), Some(SettingsError::NoVersion));
    for name in [Vec::new(), vec![b'x'; 256]] {
        let alpn = ClientSettings { alpn: vec![name], ..ClientSettings::default() };
        assert_eq!(build(alpn), Some(SettingsError::Alpn));
    }
    let (one, other) = (Authority::new("a"), Authority::new("b"));
    let (chain, key) = (one.leaf(&["a"], YEARS).pem, other.leaf(&["a"], YEARS).key);
    let identity = Identity::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes());
    let mixed = ClientSettings { identity: identity.ok(), ..ClientSettings::default() };
    assert_eq!(build(mixed), Some(SettingsError::WrongKey));
    assert_eq!(Identity::from_pem(b"", b"").err(), Some(SettingsError::NoCertificate));
    assert_eq!(Roots::from_pem(b"nothing").err(), Some(SettingsError::NoRoots));
    let broken = b"-----BEGIN CERTIFICATE-----\nYnJva2Vu\n-----END CERTIFICATE-----\n";
    assert_eq!(Roots::from_pem(broken).err(), Some(SettingsError::MalformedRoot));
    assert_eq!(ServerName::new("not a name").err(), Some(SettingsError::ServerName));
}

#[test]
fn a_second_connection_resumes_the_first_within_the_limit() {
    for version in [Version::Tls12, Version::Tls13] {
        for (stored, expected) in [(0, false), (1, true)] {
            let authority = Authority::new("root");
            let config = Arc::new(authority.config(&["a.test"], version));
            let trust = authority.trust(Names::Server);
            let settings = ClientSettings { trust, stored_sessions: stored, ..Default::default() };
            let client = settings.build().unwrap().client(&clock());
            let mut resumed = Vec::new();
            for _ in 0..3 {
                let mut server = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut layer = client.connect(&ServerName::new("a.test").unwrap()).unwrap();
                converse(&mut layer, &mut server, usize::MAX).unwrap();
                resumed.push(layer.is_resumed());
            }
            assert_eq!(resumed, [false, expected, expected], "{version:?}, {stored} stored");
        }
    }
}

#[test]
fn a_connection_may_serve_another_name_that_its_certificate_has_and_by_the_same_trust() {
    let ours = Authority::new("ours");
    let leaf = ours.leaf(&["a.test", "*.wild.test"], YEARS);
    let key_pin = sha256(&leaf.key.subject_public_key_info());
    let vouched = |trust: Trust, names: &[&str]| {
        let settings = ClientSettings { trust, ..ClientSettings::default() };
        let client = settings.build().unwrap().client(&clock());
        let mut layer = client.connect(&ServerName::new("a.test").unwrap()).unwrap();
        let asked =
            |layer: &Layer, name: &str| client.vouches(layer, &ServerName::new(name).unwrap());
        assert!(!asked(&layer, "a.test"), "nothing was shown yet");
        let mut server = serve(&leaf, Version::Tls13, None);
        converse(&mut layer, &mut server, usize::MAX).unwrap();
        names.iter().map(|name| asked(&layer, name)).collect::<Vec<_>>()
    };
    let names = ["a.test", "x.wild.test", "x.y.wild.test", "wild.test", "b.test", "127.0.0.1"];
    let server = || ours.trust(Names::Server);
    assert_eq!(vouched(server(), &names), [true, true, false, false, false, false]);
    let pinned = |pin| Trust { spki_sha256: vec![pin], ..server() };
    assert_eq!(vouched(pinned(key_pin), &names[..2]), [true, true]);
    let pin_alone = Trust { roots: None, ..pinned(key_pin) };
    assert_eq!(vouched(pin_alone, &["x.wild.test", "b.test"]), [true, false]);
    // Where a handshake looks at nothing, one with another name says nothing of it.
    let careless = Trust { accept_untrusted: true, ..server() };
    let without_roots = Trust { roots: None, ..server() };
    for trust in [careless, without_roots, ours.trust(Names::Any), Trust::default()] {
        assert_eq!(vouched(trust, &names[..2]), [false, false]);
    }
}

#[test]
fn what_a_resumed_connection_may_serve_is_judged_by_the_clock_and_the_settings_of_today() {
    let authority = Authority::new("root");
    let leaf = authority.leaf(&["a.test", "b.test"], (2020, 2031));
    let config = Arc::new(server_config(&leaf, Version::Tls13, None));
    let settings =
        || ClientSettings { trust: authority.trust(Names::Server), ..Default::default() };
    let clock = clock();
    let (template, other) = (settings().build().unwrap(), settings().build().unwrap());
    let client = template.client(&clock);
    let mut layers = Vec::new();
    for _ in 0..2 {
        let mut server = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut layer = client.connect(&ServerName::new("a.test").unwrap()).unwrap();
        converse(&mut layer, &mut server, usize::MAX).unwrap();
        layers.push(layer);
    }
    assert!(layers[1].is_resumed());
    let name = ServerName::new("b.test").unwrap();
    assert!(layers.iter().all(|layer| client.vouches(layer, &name)));
    assert!(client.is_like(&template.client(&clock)) && !client.is_like(&other.client(&clock)));
    clock.set(NOW + Duration::from_secs(2 * 366 * 24 * 3600));
    assert!(!layers.iter().any(|layer| client.vouches(layer, &name)), "it has expired");
}

#[test]
fn a_protocol_is_agreed_on() {
    let authority = Authority::new("root");
    for (theirs, expected) in [(&[b"http/1.1".to_vec()][..], Some(&b"http/1.1"[..])), (&[], None)] {
        let mut config = authority.config(&["a.test"], Version::Tls13);
        config.alpn_protocols = theirs.to_vec();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let settings = ClientSettings { alpn, ..ClientSettings::default() };
        let layer = shake(settings, "a.test", &mut server, usize::MAX).unwrap();
        assert_eq!(layer.alpn(), expected);
    }
}

#[test]
fn versions_that_do_not_meet_are_a_fault() {
    let authority = Authority::new("root");
    let mut server = authority.server(&["a.test"], Version::Tls12);
    let versions = (Version::Tls13, Version::Tls13);
    let settings = ClientSettings { versions, ..ClientSettings::default() };
    let outcome = shake(settings, "a.test", &mut server, usize::MAX);
    assert_eq!(outcome.err(), Some(Fault::Alert(70)));
}

#[test]
fn what_is_not_tls_is_refused_with_an_alert() {
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0; 64], &[22, 3, 3, 255, 255, 0]] {
        let client = ClientSettings::default().build().unwrap().client(&clock());
        let mut layer = client.connect(&ServerName::unnamed()).unwrap();
        layer.take_output();
        let mut plain = BytesMut::new();
        let fault = layer.receive(garbage, &mut plain).unwrap_err();
        assert!(matches!(fault, Fault::NotTls | Fault::Violation), "{fault}");
        assert!(!layer.take_output().is_empty(), "an alert");
        assert_eq!(layer.receive(b"more", &mut plain), Err(fault), "it stays so");
    }
}

#[test]
fn a_record_that_was_changed_on_its_way_is_refused() {
    let authority = Authority::new("root");
    let mut server = authority.server(&["a.test"], Version::Tls13);
    let mut layer = shake(ClientSettings::default(), "a.test", &mut server, usize::MAX).unwrap();
    server.writer().write_all(b"answer").unwrap();
    let mut records = wire(&mut server);
    *records.last_mut().unwrap() ^= 1;
    let mut plain = BytesMut::new();
    assert_eq!(layer.receive(&records, &mut plain), Err(Fault::Decrypt));
    assert!(plain.is_empty());
    assert!(!layer.take_output().is_empty(), "an alert");
    assert_eq!(layer.seal(b"more", &mut plain), Err(Fault::Decrypt));
}

#[test]
fn names_of_every_kind_are_read() {
    let key = KeyPair::generate().unwrap();
    let mut params = params(&["a.test", "*.b.test"], YEARS);
    params.subject_alt_names.extend([
        SanType::URI("spiffe://here/app".try_into().unwrap()),
        SanType::Rfc822Name("me@a.test".try_into().unwrap()),
        SanType::IpAddress([192, 0, 2, 1].into()),
        SanType::IpAddress([0x20, 1, 13, 184, 0, 0, 0, 0].into()),
        SanType::OtherName((vec![1, 2, 3, 4], "other".into())),
    ]);
    let der = params.self_signed(&key).unwrap().der().clone();
    let certificate = Certificate::parse(&der).unwrap();
    let names: Vec<_> = certificate.alternative_names().collect();
    assert_eq!(
        names,
        [
            AlternativeName::Dns(b"a.test"),
            AlternativeName::Dns(b"*.b.test"),
            AlternativeName::Uri(b"spiffe://here/app"),
            AlternativeName::Email(b"me@a.test"),
            AlternativeName::Ip([192, 0, 2, 1].into()),
            AlternativeName::Ip([0x20, 1, 13, 184, 0, 0, 0, 0].into()),
            AlternativeName::Other { kind: &[42, 3, 4], tag: 12, value: b"other" },
        ]
    );
    assert_eq!(certificate.subject_public_key_info(), key.subject_public_key_info());
    assert!(certificate.is_self_issued());
    for end in 0..der.len() {
        assert!(Certificate::parse(&der[..end]).is_none(), "cut at {end}");
    }
    for at in 0..der.len() {
        // Whatever a byte becomes, reading it ends and stays within bounds.
        let mut changed = der.to_vec();
        changed[at] ^= 0x55;
        if let Some(certificate) = Certificate::parse(&changed) {
            let _ = certificate.alternative_names().count();
        }
    }
}

const YEARS: (i32, i32) = (2020, 2040);

#[derive(Debug)]
struct Exactly(&'static str);

impl NameMatcher for Exactly {
    fn matches(&self, name: &AlternativeName<'_>) -> bool {
        *name == AlternativeName::Dns(self.0.as_bytes())
    }
}

struct Leaf {
    der: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Leaf {
    fn new(certificate: &rcgen::Certificate, key: KeyPair) -> Self {
        Self { der: certificate.der().clone(), pem: certificate.pem(), key }
    }
}

struct Authority {
    der: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params(&[], YEARS);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).unwrap();
        Self { der: own.der().clone(), pem: own.pem(), issuer: Issuer::new(params, key) }
    }

    fn trust(&self, names: Names) -> Trust {
        let roots = Roots::from_pem(self.pem.as_bytes()).unwrap();
        Trust { roots: Some(roots), names, ..Trust::default() }
    }

    fn leaf(&self, names: &[&str], years: (i32, i32)) -> Leaf {
        let key = KeyPair::generate().unwrap();
        Leaf::new(&params(names, years).signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn config(&self, names: &[&str], version: Version) -> ServerConfig {
        server_config(&self.leaf(names, YEARS), version, None)
    }

    fn server(&self, names: &[&str], version: Version) -> ServerConnection {
        ServerConnection::new(Arc::new(self.config(names, version))).unwrap()
    }
}

fn params(names: &[&str], (from, to): (i32, i32)) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(to, 1, 1);
    params
}

fn serve(leaf: &Leaf, version: Version, clients: Option<&Authority>) -> ServerConnection {
    ServerConnection::new(Arc::new(server_config(leaf, version, clients))).unwrap()
}

fn server_config(leaf: &Leaf, version: Version, clients: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let version: &'static SupportedProtocolVersion = match version {
        Version::Tls12 => &rustls::version::TLS12,
        Version::Tls13 => &rustls::version::TLS13,
    };
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der.clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            config.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let key = PrivateKeyDer::try_from(leaf.key.serialize_der()).unwrap();
    config.with_single_cert(vec![leaf.der.clone()], key).unwrap()
}

fn clock() -> Clock {
    let clock = Clock::default();
    clock.set(NOW);
    clock
}

/// A layer whose handshake with this server is over, its bytes cut into pieces of `size`.
fn shake(
    settings: ClientSettings,
    name: &str,
    server: &mut ServerConnection,
    size: usize,
) -> Result<Layer, Fault> {
    let client = settings.build().unwrap().client(&clock());
    let mut layer = client.connect(&ServerName::new(name).unwrap())?;
    converse(&mut layer, server, size)?;
    assert!(layer.is_established());
    Ok(layer)
}

/// Passes bytes between both until neither has any.
fn converse(layer: &mut Layer, server: &mut ServerConnection, size: usize) -> Result<(), Fault> {
    loop {
        let ours = layer.take_output();
        for piece in ours.chunks(size) {
            feed(server, piece);
        }
        let theirs = wire(server);
        if ours.is_empty() && theirs.is_empty() {
            return Ok(());
        }
        for piece in theirs.chunks(size) {
            let mut plain = BytesMut::new();
            layer.receive(piece, &mut plain)?;
            assert!(plain.is_empty());
        }
    }
}

fn feed(server: &mut ServerConnection, mut bytes: &[u8]) {
    while !bytes.is_empty() && server.read_tls(&mut bytes).is_ok() {
        // What it has against us it says in an alert.
        let _ = server.process_new_packets();
    }
}

fn wire(server: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// What a server reads of these records.
fn served(server: &mut ServerConnection, mut records: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !records.is_empty() {
        server.read_tls(&mut records).unwrap();
        server.process_new_packets().unwrap();
        let mut piece = vec![0; 1 << 17];
        while let Ok(count @ 1..) = server.reader().read(&mut piece) {
            plain.extend_from_slice(&piece[..count]);
        }
    }
    plain
}
