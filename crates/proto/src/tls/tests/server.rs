//! The server's side against our own client and against rustls's.

use rcgen::{PKCS_RSA_SHA256, RsaKeySize};
use rustls::client::danger::ServerCertVerifier;
use rustls::{ClientConfig, ClientConnection, SignatureScheme};

use super::super::hello::{Greeting, HelloReader, Offer};
use super::super::verify::Verifier;
use super::*;

const BOTH: [Version; 2] = [Version::Tls12, Version::Tls13];

#[test]
fn bytes_pass_both_ways_whichever_way_they_are_cut() {
    let world = World::new();
    for version in BOTH {
        for size in [1, 2, 3, 7, 64, 1000, usize::MAX] {
            let server = world.settings().build().unwrap().server(&clock());
            let (mut ours, mut theirs) = (server.accept(), world.client(version, "a.test"));
            converse_both(&mut theirs, &mut ours, size).unwrap();
            assert!(ours.is_established() && theirs.is_established(), "{version:?} {size}");
            assert_eq!(ours.version(), Some(version));
            assert_eq!(ours.server_name(), Some("a.test"));
            assert_eq!(ours.cipher_suite(), theirs.cipher_suite());
            assert!(!ours.is_resumed() && ours.peer_certificate().is_none());
            assert_eq!(theirs.peer_certificate(), Some(&world.leaf.der[..]));
            assert_eq!(ours.own_certificate(), Some(&world.leaf.der[..]));
            assert_eq!(theirs.own_certificate(), None);

            let question = vec![b'q'; 40_000];
            assert_eq!(said(&mut theirs, &mut ours, &question, size), question);
            let answer = vec![b'a'; 40_000];
            assert_eq!(said(&mut ours, &mut theirs, &answer, size), answer);
            assert_eq!(ours.buffered(), 0, "nothing is kept at rest");

            let (mut sealed, mut plain) = (BytesMut::new(), BytesMut::new());
            theirs.send_close_notify(&mut sealed);
            ours.receive(&sealed, &mut plain).unwrap();
            assert!(ours.is_ended() && plain.is_empty());
        }
    }
}

/// Both ends say the same of a session of TLS 1.2 without tickets; one of TLS 1.3 has no id.
#[test]
fn a_session_of_the_older_version_has_an_id() {
    let world = World::new();
    for (version, tickets) in
        [(Version::Tls12, false), (Version::Tls12, true), (Version::Tls13, false)]
    {
        let given = if tickets { Tickets::Own } else { Tickets::None };
        let settings = ServerSettings { tickets: given, ..world.settings() };
        let server = settings.build().unwrap().server(&clock());
        for size in [1, usize::MAX] {
            let name = ServerName::new("a.test").unwrap();
            let mut ours = server.accept();
            let mut theirs = world.client(version, "a.test").remembering(&name);
            converse_both(&mut theirs, &mut ours, size).unwrap();
            assert_eq!(theirs.asked_name(), Some("a.test"));
            let (own, other) = (ours.session_id(), theirs.session_id());
            match (version, tickets) {
                (Version::Tls13, _) => assert_eq!((own, other), (None, None)),
                (Version::Tls12, false) => {
                    assert_eq!(own.map(<[u8]>::len), Some(32));
                    assert_eq!(own, other);
                }
                // A ticket stands for the session.
                (Version::Tls12, true) => {
                    assert_eq!((own, other.map(<[u8]>::len)), (None, Some(32)));
                }
            }
        }
    }
}

#[test]
fn every_cut_of_a_clients_first_flight_leads_to_the_same_end() {
    let world = World::new();
    let server = world.settings().build().unwrap().server(&clock());
    let whole = world.client(Version::Tls13, "a.test").take_output();
    for at in 1..whole.len() {
        let mut client = world.client(Version::Tls13, "a.test");
        let mut ours = server.accept();
        let flight = client.take_output();
        let (head, tail) = flight.split_at(at);
        let mut plain = BytesMut::new();
        ours.receive(head, &mut plain).unwrap();
        assert!(ours.take_output().is_empty(), "cut at {at}");
        ours.receive(tail, &mut plain).unwrap();
        converse_both(&mut client, &mut ours, usize::MAX).unwrap();
        assert!(ours.is_established(), "cut at {at}");
    }
    assert!(whole.len() > 150, "{}", whole.len());
}

#[test]
fn a_hello_in_many_records_is_read() {
    let world = World::new();
    let server = world.settings().build().unwrap().server(&clock());
    for size in [1, 5, 100] {
        let mut client = world.client(Version::Tls13, "a.test");
        let flight = client.take_output();
        let mut records = Vec::new();
        for fragment in flight[5..].chunks(size) {
            records.extend([22, 3, 1, 0, u8::try_from(fragment.len()).unwrap()]);
            records.extend(fragment);
        }
        let mut ours = server.accept();
        ours.receive(&records, &mut BytesMut::new()).unwrap();
        assert_eq!(ours.server_name(), Some("a.test"), "{size} bytes each");
    }
}

#[test]
fn what_a_hello_offers_is_read_and_what_is_none_offers_nothing() {
    let world = World::new();
    let flight = client_with_alpn(&world, &["h2", "http/1.1"]).take_output();
    let read = |bytes: &[u8]| HelloReader::default().read(bytes);
    let offer = read(&flight).unwrap();
    assert_eq!(offer.server_name.as_deref(), Some("a.test"));
    assert_eq!(offer.protocols, b"\x02h2\x08http/1.1");
    for end in 0..flight.len() {
        assert_eq!(read(&flight[..end]), None, "cut at {end}");
        assert_eq!(Greeting::read(&flight[..end]), Greeting::Incomplete);
    }
    let protocols = vec![b"h2"[..].into(), b"http/1.1"[..].into()];
    let hello =
        Greeting::Hello { server_name: Some("a.test".into()), protocols, size: flight.len() };
    assert_eq!(Greeting::read(&flight), hello);
    for at in 0..flight.len() {
        let mut changed = flight.clone();
        changed[at] ^= 0x55;
        // Whatever a byte becomes, reading it ends.
        let _ = read(&changed);
    }
    for other in [&b"GET / HTTP/1.1\r\n"[..], &[22, 3, 1, 0, 1, 2], &[22, 3, 1, 0xff, 0xff], &[0]] {
        assert_eq!(read(other), Some(Offer::default()), "{other:?}");
        assert_eq!(Greeting::read(other), Greeting::Plain, "{other:?}");
    }
    let endless = [22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff];
    assert_eq!(read(&endless), Some(Offer::default()));
    let empty = [22, 3, 1, 0, 0].repeat(14_000);
    assert_eq!(read(&empty), Some(Offer::default()), "beyond the limit");
}

#[test]
fn a_protocol_is_chosen_by_the_servers_order_or_none_is() {
    let world = World::new();
    for (ours, theirs, expected) in [
        (&["h2", "http/1.1"][..], &["http/1.1", "h2"][..], Some("h2")),
        (&["http/1.1"], &["h2", "http/1.1"], Some("http/1.1")),
        (&["h2"], &["http/1.1"], None),
        (&["h2"], &[], None),
        (&[], &["h2"], None),
    ] {
        let alpn = ours.iter().map(|name| name.as_bytes().to_vec()).collect();
        let settings = ServerSettings { alpn, ..world.settings() };
        let mut server = settings.build().unwrap().server(&clock()).accept();
        let mut client = client_with_alpn(&world, theirs);
        converse_both(&mut client, &mut server, usize::MAX).unwrap();
        let expected = expected.map(str::as_bytes);
        assert_eq!((server.alpn(), client.alpn()), (expected, expected), "{ours:?} {theirs:?}");
    }
}

#[test]
fn a_certificate_is_chosen_by_name_and_by_what_the_client_verifies() {
    let authority = Authority::new("root");
    let rsa = || KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let leaf = |names: &[&str]| authority.leaf(names, YEARS);
    let certificates = [
        leaf(&["first.test"]),
        authority.leaf_of(rsa(), &["a.test"]),
        leaf(&["a.test", "A.Upper.Test"]),
        leaf(&["*.wild.test", "a.wild.test.other"]),
        leaf(&["exact.wild.test"]),
        authority.leaf_of(rsa(), &["rsa.test"]),
    ];
    let chosen = |name: &str, kinds: &[SignatureScheme], scans: bool| {
        let settings = ServerSettings {
            identities: certificates.iter().map(Leaf::identity).collect(),
            scans_all_identities: scans,
            ..ServerSettings::default()
        };
        let mut server = settings.build().unwrap().server(&clock()).accept();
        let mut client = plain_client(name, kinds);
        converse_with(&mut client, &mut server)?;
        let shown = &client.peer_certificates().unwrap()[0];
        assert_eq!(server.own_certificate(), Some(&shown[..]));
        Ok(certificates.iter().position(|leaf| leaf.der == *shown).unwrap())
    };
    let all = &[SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256][..];
    for (name, expected) in [
        ("first.test", 0),
        ("a.test", 2),
        ("a.upper.test", 2),
        ("x.wild.test", 3),
        ("exact.wild.test", 4),
        ("wild.test", 0),
        ("x.y.wild.test", 0),
        ("rsa.test", 5),
        ("unknown.test", 0),
        ("192.0.2.1", 0),
    ] {
        assert_eq!(chosen(name, all, false), Ok(expected), "{name}");
    }
    let rsa_only = &all[1..];
    assert_eq!(chosen("a.test", rsa_only, false), Ok(1));
    assert_eq!(chosen("192.0.2.1", rsa_only, false), Ok(1), "no name is sent");
    assert_eq!(chosen("unknown.test", rsa_only, true), Ok(1));
    let stuck = chosen("unknown.test", rsa_only, false);
    assert_eq!(stuck, Err(Fault::Incompatible), "the first one, which the client cannot verify");
}

#[test]
fn a_certificate_without_other_names_goes_by_its_common_name() {
    let authority = Authority::new("root");
    let mut params = params(&[], YEARS);
    params.distinguished_name.push(rcgen::DnType::CommonName, "common.test");
    let key = KeyPair::generate().unwrap();
    let named = Leaf::new(&params.signed_by(&key, &authority.issuer).unwrap(), key);
    let first = authority.leaf(&["first.test"], YEARS);
    let identities = vec![first.identity(), named.identity()];
    let settings = ServerSettings { identities, ..ServerSettings::default() };
    let mut server = settings.build().unwrap().server(&clock()).accept();
    let mut client = plain_client("common.test", &[SignatureScheme::ECDSA_NISTP256_SHA256]);
    converse_with(&mut client, &mut server).unwrap();
    assert_eq!(client.peer_certificates().unwrap()[0], named.der);
}

#[test]
fn clients_show_certificates_as_the_server_wants_them() {
    let world = World::new();
    let (known, strange) = (Authority::new("known"), Authority::new("strange"));
    let me = known.leaf(&["me.test"], YEARS);
    let stranger = strange.leaf(&["me.test"], YEARS);
    let old = known.leaf(&["me.test"], (2020, 2025));
    let key = KeyPair::generate().unwrap();
    let alone = Leaf::new(&params(&["me.test"], YEARS).self_signed(&key).unwrap(), key);
    let outcome = |trust: Trust, requires_certificate: bool, shown: Option<&Leaf>, version| {
        let trust = Some(trust);
        let settings = ServerSettings { trust, requires_certificate, ..world.settings() };
        let mut server = settings.build().unwrap().server(&clock()).accept();
        let mut client = world.client_showing(version, shown);
        let client_end = converse_both(&mut client, &mut server, usize::MAX);
        match server.receive(b"", &mut BytesMut::new()) {
            Ok(()) => {
                assert!(server.is_established() && client_end.is_ok(), "{client_end:?}");
                assert_eq!(server.peer_certificate(), shown.map(|leaf| &leaf.der[..]));
                None
            }
            Err(Fault::Certificate(distrust)) => {
                let alerts = [
                    (Distrust::Missing, 116),
                    (Distrust::UnknownIssuer, 48),
                    (Distrust::Expired, 45),
                ];
                let alert =
                    alerts.iter().find(|(of, _)| *of == distrust).map_or(46, |(_, alert)| *alert);
                assert_eq!(client_end, Err(Fault::Alert(alert)), "{distrust}");
                Some(distrust)
            }
            Err(other) => panic!("{other}"),
        }
    };
    let trust = |names| known.trust(names);
    let matching = |wanted: &'static str| Names::Matching(vec![Arc::new(Exactly(wanted))]);
    let pinned = |pin| Trust { certificate_sha256: vec![pin], ..Trust::default() };
    let careless = Trust { accept_untrusted: true, ..trust(Names::Any) };
    for version in BOTH {
        for (trust, required, shown, expected) in [
            (trust(Names::Any), true, Some(&me), None),
            (trust(Names::Any), true, None, Some(Distrust::Missing)),
            (trust(Names::Any), false, None, None),
            (trust(Names::Any), false, Some(&stranger), Some(Distrust::UnknownIssuer)),
            (trust(Names::Any), false, Some(&alone), Some(Distrust::UnknownIssuer)),
            (trust(Names::Any), false, Some(&old), Some(Distrust::Expired)),
            (trust(matching("me.test")), true, Some(&me), None),
            (trust(matching("you.test")), true, Some(&me), Some(Distrust::Name)),
            (pinned(sha256(&me.der)), true, Some(&me), None),
            (pinned(sha256(&me.der)), true, Some(&stranger), Some(Distrust::Pin)),
            (careless.clone(), true, Some(&stranger), None),
            (Trust::default(), false, Some(&me), Some(Distrust::UnknownIssuer)),
        ] {
            let named = format!("{version:?} {trust:?} {required}");
            assert_eq!(outcome(trust, required, shown, version), expected, "{named}");
        }
    }
}

#[test]
fn a_certificate_for_servers_alone_is_no_clients() {
    let world = World::new();
    let known = Authority::new("known");
    for (purpose, expected) in [
        (rcgen::ExtendedKeyUsagePurpose::ClientAuth, None),
        (rcgen::ExtendedKeyUsagePurpose::ServerAuth, Some(Distrust::Purpose)),
    ] {
        let mut params = params(&["me.test"], YEARS);
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let me = Leaf::new(&params.signed_by(&key, &known.issuer).unwrap(), key);
        let trust = Some(known.trust(Names::Any));
        let settings = ServerSettings { trust, ..world.settings() };
        let mut server = settings.build().unwrap().server(&clock()).accept();
        let mut client = world.client_showing(Version::Tls13, Some(&me));
        let _ = converse_both(&mut client, &mut server, usize::MAX);
        let end = server.receive(b"", &mut BytesMut::new()).err();
        assert_eq!(end, expected.map(Fault::Certificate));
    }
}

#[test]
fn roots_are_told_unless_they_are_hidden() {
    let world = World::new();
    let known = Authority::new("a-known-root");
    for hides_roots in [false, true] {
        let trust = Some(known.trust(Names::Any));
        let versions = (Version::Tls12, Version::Tls12);
        let settings = ServerSettings { trust, hides_roots, versions, ..world.settings() };
        let mut server = settings.build().unwrap().server(&clock()).accept();
        let hello = world.client(Version::Tls12, "a.test").take_output();
        server.receive(&hello, &mut BytesMut::new()).unwrap();
        let flight = server.take_output();
        let told = flight.windows(12).any(|window| window == b"a-known-root");
        assert_eq!(told, !hides_roots);
    }
}

#[test]
fn versions_that_do_not_meet_are_refused_by_the_server() {
    let world = World::new();
    for (served, asked) in [(Version::Tls12, Version::Tls13), (Version::Tls13, Version::Tls12)] {
        let settings = ServerSettings { versions: (served, served), ..world.settings() };
        let mut server = settings.build().unwrap().server(&clock()).accept();
        let mut client = world.client(asked, "a.test");
        let end = converse_both(&mut client, &mut server, usize::MAX);
        assert_eq!(end, Err(Fault::Alert(70)));
        let fault = server.receive(b"", &mut BytesMut::new()).unwrap_err();
        assert!(matches!(fault, Fault::Version | Fault::Incompatible), "{fault}");
    }
}

#[test]
fn what_is_not_tls_is_refused_by_the_server() {
    let world = World::new();
    let server = world.settings().build().unwrap().server(&clock());
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"[..],
        &[0; 64],
        &[22, 3, 3, 255, 255, 0],
        &[22, 3, 1, 0, 5, 1, 0, 0, 1, 9],
        &[21, 3, 1, 0, 2, 2, 40],
    ] {
        for size in [1, usize::MAX] {
            let mut layer = server.accept();
            let mut plain = BytesMut::new();
            let fault = garbage
                .chunks(size)
                .find_map(|piece| layer.receive(piece, &mut plain).err())
                .unwrap();
            assert_ne!(fault, Fault::HelloRefused, "only a server refuses one");
            assert!(!layer.is_established() && plain.is_empty());
            let mut sealed = BytesMut::new();
            assert_eq!(layer.seal(b"more", &mut sealed), Err(fault), "it stays so");
            assert!(sealed.is_empty());
        }
    }
}

#[test]
fn a_layer_that_has_read_nothing_says_nothing() {
    let world = World::new();
    let mut layer = world.settings().build().unwrap().server(&clock()).accept();
    let mut out = BytesMut::new();
    assert!(!layer.is_established() && !layer.is_ended() && layer.take_output().is_empty());
    assert_eq!(layer.version(), None);
    assert_eq!(layer.seal(b"early", &mut out), Err(Fault::Internal));
    layer.send_close_notify(&mut out);
    assert!(out.is_empty());
    assert!(size_of::<Layer>() <= 1280, "{}", size_of::<Layer>());
}

#[test]
fn settings_of_a_server_that_contradict_each_other_are_refused() {
    let world = World::new();
    let build = |settings: ServerSettings| settings.build().err();
    assert_eq!(build(ServerSettings::default()), Some(SettingsError::NoCertificate));
    let trust = Some(world.authority.trust(Names::Server));
    let named = ServerSettings { trust, ..world.settings() };
    assert_eq!(build(named), Some(SettingsError::Names));
    let keyless = ServerSettings { tickets: Tickets::Given(Vec::new()), ..world.settings() };
    assert_eq!(build(keyless), Some(SettingsError::TicketKey));
    let versions = (Version::Tls13, Version::Tls12);
    assert_eq!(
        build(ServerSettings { versions, ..world.settings() }),
        Some(SettingsError::NoVersion)
    );
    let other = Authority::new("other").leaf(&["a.test"], YEARS);
    let chain = world.leaf.pem.as_bytes();
    let mixed = Identity::from_pem(chain, other.key.serialize_pem().as_bytes()).unwrap();
    let mixed = ServerSettings { identities: vec![mixed], ..ServerSettings::default() };
    assert_eq!(build(mixed), Some(SettingsError::WrongKey));
    for count in [0, 79, 81] {
        let key = TicketKey::from_bytes(&vec![1; count]).err();
        assert_eq!(key, Some(SettingsError::TicketKey));
    }
}

#[test]
fn sessions_are_resumed_with_any_worker() {
    let world = World::new();
    let key = |byte| TicketKey::from_bytes(&[byte; 80]).unwrap();
    for version in BOTH {
        for (tickets, stored, expected) in [
            (Tickets::Own, 0, true),
            (Tickets::Given(vec![key(1), key(2)]), 0, true),
            (Tickets::None, 0, false),
            (Tickets::None, 8, version == Version::Tls12),
        ] {
            let named = format!("{version:?} {tickets:?} {stored}");
            let settings = ServerSettings { tickets, stored_sessions: stored, ..world.settings() };
            let template = settings.build().unwrap();
            let client = world.client_template(version).client(&clock());
            let resumed: Vec<_> =
                (0..3).map(|_| visit(&client, &template.server(&clock()))).collect();
            assert_eq!(resumed, [false, expected, expected], "{named}");
        }
    }
}

#[test]
fn keys_that_are_given_open_tickets_of_other_processes() {
    let world = World::new();
    let key = |byte| TicketKey::from_bytes(&[byte; 80]).unwrap();
    let server = |keys: Vec<TicketKey>| {
        let tickets = Tickets::Given(keys);
        let settings = ServerSettings { tickets, stored_sessions: 0, ..world.settings() };
        settings.build().unwrap().server(&clock())
    };
    for version in BOTH {
        let client = world.client_template(version).client(&clock());
        assert!(!visit(&client, &server(vec![key(1)])));
        assert!(visit(&client, &server(vec![key(2), key(1)])), "an older key still opens");
        assert!(visit(&client, &server(vec![key(2)])), "the first key sealed");
        assert!(!visit(&client, &server(vec![key(3)])));
    }
}

#[test]
fn sessions_have_a_lifetime() {
    let world = World::new();
    for (version, tickets) in
        [(Version::Tls12, true), (Version::Tls13, true), (Version::Tls12, false)]
    {
        for (pause, expected) in [(100, true), (101, false), (1000, false)] {
            let settings = ServerSettings {
                tickets: if tickets { Tickets::Own } else { Tickets::None },
                session_lifetime: Duration::from_secs(100),
                ..world.settings()
            };
            let time = clock();
            let server = settings.build().unwrap().server(&time);
            let client = world.client_template(version).client(&clock());
            assert!(!visit(&client, &server));
            time.set(NOW + Duration::from_secs(pause));
            assert_eq!(visit(&client, &server), expected, "{version:?} {tickets} {pause}");
        }
    }
}

#[test]
fn a_resumed_session_is_judged_by_its_certificate_again() {
    let world = World::new();
    let known = Authority::new("known");
    let me = known.leaf(&["me.test"], (2020, 2031));
    for version in BOTH {
        let trust = Some(known.trust(Names::Any));
        let lifetime = Duration::from_secs(3 * YEAR);
        let settings = ServerSettings { trust, session_lifetime: lifetime, ..world.settings() };
        let time = clock();
        let server = settings.build().unwrap().server(&time);
        let identity = Some(me.identity());
        let settings = ClientSettings { identity, ..world.client_settings(version) };
        let client = settings.build().unwrap().client(&clock());
        assert!(!visit(&client, &server));
        assert!(visit(&client, &server));
        time.set(NOW + Duration::from_secs(2 * YEAR));
        let mut theirs = client.connect(&ServerName::new("a.test").unwrap()).unwrap();
        let mut ours = server.accept();
        converse_both(&mut theirs, &mut ours, usize::MAX).unwrap();
        let fault = ours.receive(b"", &mut BytesMut::new()).unwrap_err();
        assert_eq!(fault, Fault::Certificate(Distrust::Expired), "{version:?}");
        assert!(theirs.is_resumed() && !ours.is_established());
    }
}

#[test]
fn keys_of_our_own_are_rotated_and_the_last_one_still_opens() {
    let world = World::new();
    let lifetime = Duration::from_secs(100);
    let settings = ServerSettings { session_lifetime: lifetime, ..world.settings() };
    let time = clock();
    let server = settings.build().unwrap().server(&time);
    let client = world.client_template(Version::Tls13).client(&clock());
    assert!(!visit(&client, &server));
    // Each visit gets new tickets; by the last one the first key is gone.
    for second in [60, 120, 180, 240, 300, 360] {
        time.set(NOW + Duration::from_secs(second));
        assert!(visit(&client, &server), "after {second} s");
    }
    time.set(NOW - Duration::from_secs(10_000));
    visit(&client, &server);
    assert!(visit(&client, &server), "a clock that was set back");
}

const YEAR: u64 = 365 * 24 * 60 * 60;

/// A server with one certificate, and clients that trust it.
pub(super) struct World {
    pub(super) authority: Authority,
    leaf: Leaf,
}

impl World {
    pub(super) fn new() -> Self {
        let authority = Authority::new("root");
        let leaf = authority.leaf(&["a.test"], YEARS);
        Self { authority, leaf }
    }

    pub(super) fn settings(&self) -> ServerSettings {
        ServerSettings { identities: vec![self.leaf.identity()], ..ServerSettings::default() }
    }

    pub(super) fn client_settings(&self, version: Version) -> ClientSettings {
        let trust = self.authority.trust(Names::Server);
        ClientSettings { versions: (version, version), trust, ..ClientSettings::default() }
    }

    fn client_template(&self, version: Version) -> ClientTemplate {
        self.client_settings(version).build().unwrap()
    }

    fn client(&self, version: Version, name: &str) -> Layer {
        begin(self.client_settings(version), name)
    }

    pub(super) fn client_showing(&self, version: Version, shown: Option<&Leaf>) -> Layer {
        let identity = shown.map(Leaf::identity);
        begin(ClientSettings { identity, ..self.client_settings(version) }, "a.test")
    }
}

impl Leaf {
    pub(super) fn identity(&self) -> Identity {
        let key = self.key.serialize_pem();
        Identity::from_pem(self.pem.as_bytes(), key.as_bytes()).unwrap()
    }
}

impl Authority {
    fn leaf_of(&self, key: KeyPair, names: &[&str]) -> Leaf {
        Leaf::new(&params(names, YEARS).signed_by(&key, &self.issuer).unwrap(), key)
    }
}

pub(super) fn begin(settings: ClientSettings, name: &str) -> Layer {
    let client = settings.build().unwrap().client(&clock());
    client.connect(&ServerName::new(name).unwrap()).unwrap()
}

fn client_with_alpn(world: &World, names: &[&str]) -> Layer {
    let alpn = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    begin(ClientSettings { alpn, ..world.client_settings(Version::Tls13) }, "a.test")
}

/// Whether a connection resumes an earlier one.
fn visit(client: &Client, server: &Server) -> bool {
    let mut theirs = client.connect(&ServerName::new("a.test").unwrap()).unwrap();
    let mut ours = server.accept();
    converse_both(&mut theirs, &mut ours, usize::MAX).unwrap();
    assert!(ours.is_established() && ours.is_resumed() == theirs.is_resumed());
    ours.is_resumed()
}

/// Passes bytes between both until neither has any. The client's fault is told; the server's stays in its layer.
pub(super) fn converse_both(
    client: &mut Layer,
    server: &mut Layer,
    size: usize,
) -> Result<(), Fault> {
    loop {
        let (asked, answered) = (client.take_output(), server.take_output());
        if asked.is_empty() && answered.is_empty() {
            return Ok(());
        }
        let mut plain = BytesMut::new();
        for piece in asked.chunks(size) {
            let _ = server.receive(piece, &mut plain);
        }
        for piece in answered.chunks(size) {
            client.receive(piece, &mut plain)?;
        }
        assert!(plain.is_empty());
    }
}

/// What one side hears of what the other says.
fn said(from: &mut Layer, to: &mut Layer, what: &[u8], size: usize) -> Vec<u8> {
    let (mut sealed, mut plain) = (BytesMut::new(), BytesMut::new());
    from.seal(what, &mut sealed).unwrap();
    for piece in sealed.chunks(size) {
        to.receive(piece, &mut plain).unwrap();
    }
    plain.to_vec()
}

/// rustls's own client, which verifies these kinds of signatures and trusts all certificates.
fn plain_client(name: &str, kinds: &[SignatureScheme]) -> ClientConnection {
    let mut provider = aws_lc_rs::default_provider();
    let supported = provider.signature_verification_algorithms;
    let mapping: Vec<_> =
        supported.mapping.iter().filter(|(kind, _)| kinds.contains(kind)).copied().collect();
    provider.signature_verification_algorithms.mapping = mapping.leak();
    let provider = Arc::new(provider);
    let trust_all: Arc<dyn ServerCertVerifier> =
        Arc::new(Verifier::new(Trust::default(), &[], &provider).unwrap());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(trust_all)
        .with_no_client_auth();
    ClientConnection::new(config.into(), name.to_owned().try_into().unwrap()).unwrap()
}

fn converse_with(client: &mut ClientConnection, server: &mut Layer) -> Result<(), Fault> {
    loop {
        let mut asked = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut asked).unwrap();
        }
        let mut plain = BytesMut::new();
        server.receive(&asked, &mut plain)?;
        let answered = server.take_output();
        if asked.is_empty() && answered.is_empty() {
            return Ok(());
        }
        let mut rest = &answered[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            let _ = client.process_new_packets();
        }
    }
}
