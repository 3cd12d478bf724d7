//! How certificates are judged beside roots and names, how handshakes are signed, and whose secrets are written.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Mutex;

use rcgen::{KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize};

use super::server::{World, begin, converse_both};
use super::*;
use crate::Address;

const BOTH: [Version; 2] = [Version::Tls12, Version::Tls13];

/// A leaf, with those between it and its root.
struct Deep {
    leaf: Leaf,
    between: CertificateDer<'static>,
}

impl Deep {
    fn new(root: &Authority, of_between: (i32, i32), of_leaf: (i32, i32)) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut between = params(&[], of_between);
        between.distinguished_name.push(rcgen::DnType::CommonName, "between");
        between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = between.signed_by(&key, &root.issuer).unwrap().der().clone();
        let issuer = Issuer::new(between, key);
        let key = KeyPair::generate().unwrap();
        let leaf = params(&["a.test"], of_leaf).signed_by(&key, &issuer).unwrap();
        Self { leaf: Leaf::new(&leaf, key), between: der }
    }

    /// What both sides say to one that shows this.
    fn judged(&self, trust: &Trust) -> Option<Distrust> {
        let chain = [self.leaf.der.clone(), self.between.clone()];
        judged(trust, &self.leaf.der, &chain[1..])
    }
}

/// What a client and a server say of a certificate.
fn judged(
    trust: &Trust,
    leaf: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
) -> Option<Distrust> {
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::server::danger::ClientCertVerifier as _;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let now = rustls::pki_types::UnixTime::since_unix_epoch(NOW);
    let name = "a.test".try_into().unwrap();
    let client = Verifier::new(trust.clone(), &[], &provider).unwrap();
    let server = verify::ClientVerifier::new(trust.clone(), &[], &provider).unwrap();
    let of_server = client.verify_server_cert(leaf, between, &name, &[], now).map(drop);
    let of_client = server.verify_client_cert(leaf, between, now).map(drop);
    let distrust = |judged: Result<(), rustls::Error>| match judged.map_err(|it| Fault::of(&it)) {
        Ok(()) => None,
        Err(Fault::Certificate(distrust)) => Some(distrust),
        Err(other) => panic!("{other}"),
    };
    let (of_server, of_client) = (distrust(of_server), distrust(of_client));
    match of_server {
        // A client is told `unknown_ca`.
        Some(Distrust::Depth) => assert_eq!(of_client, Some(Distrust::UnknownIssuer)),
        _ => assert_eq!(of_client, of_server, "both sides alike"),
    }
    of_server
}

#[test]
fn a_chain_may_have_so_many_certificates() {
    let root = Authority::new("root");
    let deep = Deep::new(&root, YEARS, YEARS);
    let plain = root.leaf(&["a.test"], YEARS);
    let at_most = |most| Trust { max_depth: Some(most), ..root.trust(Names::Any) };
    for (most, expected) in
        [(0, Some(Distrust::Depth)), (1, Some(Distrust::Depth)), (2, None), (100, None)]
    {
        assert_eq!(deep.judged(&at_most(most)), expected, "{most}");
    }
    assert_eq!(judged(&at_most(0), &plain.der, &[]), Some(Distrust::Depth));
    assert_eq!(judged(&at_most(1), &plain.der, &[]), None);
    // It needs no other.
    let roots = Roots::from_der([plain.der.to_vec()]).unwrap();
    let itself = Trust { roots: Some(roots), max_depth: Some(0), ..Trust::default() };
    assert_eq!(judged(&itself, &plain.der, &[]), None);
    let stranger = Authority::new("other");
    let of_others = Trust { max_depth: Some(100), ..stranger.trust(Names::Any) };
    assert_eq!(deep.judged(&of_others), Some(Distrust::UnknownIssuer));
}

#[test]
fn dates_are_not_looked_at_where_that_is_said() {
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let at_any_time = |trust| Trust { ignores_dates: true, ..trust };
    let ours = || at_any_time(root.trust(Names::Any));
    for years in [(2020, 2025), (2035, 2040), YEARS] {
        let leaf = root.leaf(&["a.test"], years);
        assert_eq!(judged(&ours(), &leaf.der, &[]), None, "{years:?}");
        let roots = Roots::from_der([leaf.der.to_vec()]).unwrap();
        let itself = at_any_time(Trust { roots: Some(roots), ..Trust::default() });
        assert_eq!(judged(&itself, &leaf.der, &[]), None, "{years:?}");
        let of_others = at_any_time(other.trust(Names::Any));
        assert_eq!(judged(&of_others, &leaf.der, &[]), Some(Distrust::UnknownIssuer));
        let deep = Deep::new(&root, (2019, 2036), years);
        assert_eq!(deep.judged(&ours()), None, "{years:?}");
        let few = Trust { max_depth: Some(1), ..ours() };
        assert_eq!(deep.judged(&few), Some(Distrust::Depth), "{years:?}");
    }
    let never = Deep::new(&root, (2020, 2022), (2024, 2026));
    assert_eq!(never.judged(&ours()), Some(Distrust::Expired), "never valid together");
}

#[test]
fn a_key_for_something_else_does_not_sign_handshakes() {
    use KeyUsagePurpose::{DigitalSignature, KeyAgreement, KeyEncipherment};
    let root = Authority::new("root");
    for (usages, fits) in [
        (vec![], true),
        (vec![DigitalSignature], true),
        (vec![KeyEncipherment, DigitalSignature], true),
        (vec![KeyEncipherment], false),
        (vec![KeyAgreement], false),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut params = params(&["a.test"], YEARS);
        params.key_usages = usages.clone();
        let leaf = Leaf::new(&params.signed_by(&key, &root.issuer).unwrap(), key);
        let expected = (!fits).then_some(Distrust::KeyUsage);
        let strict = Trust { checks_key_usage: true, ..root.trust(Names::Any) };
        assert_eq!(judged(&strict, &leaf.der, &[]), expected, "{usages:?}");
        let careless = Trust { accept_untrusted: true, ..strict };
        assert_eq!(judged(&careless, &leaf.der, &[]), expected, "{usages:?}");
        assert_eq!(judged(&root.trust(Names::Any), &leaf.der, &[]), None, "{usages:?}");
    }
}

fn algorithms(names: &[&str]) -> Vec<SignatureAlgorithm> {
    names.iter().map(|name| SignatureAlgorithm::named(name).unwrap()).collect()
}

#[test]
fn handshakes_are_signed_in_the_ways_that_are_chosen() {
    let (world, root) = (World::new(), Authority::new("root"));
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let certificate = params(&["a.test"], YEARS).signed_by(&key, &root.issuer).unwrap();
    let rsa = Leaf::new(&certificate, key);
    let outcome = |version, of_server: &[&str], of_client: &[&str]| {
        let server = ServerSettings {
            identities: vec![rsa.identity()],
            signature_algorithms: algorithms(of_server),
            ..world.settings()
        };
        let client = ClientSettings {
            signature_algorithms: algorithms(of_client),
            trust: root.trust(Names::Any),
            ..world.client_settings(version)
        };
        let mut server = server.build().unwrap().server(&clock()).accept();
        let mut client = begin(client, "a.test");
        let _ = converse_both(&mut client, &mut server, usize::MAX);
        server.is_established() && client.is_established()
    };
    let (pss256, pss384) = ("rsa_pss_rsae_sha256", "rsa_pss_rsae_sha384");
    for version in BOTH {
        assert!(outcome(version, &[], &[]));
        assert!(outcome(version, &[pss384], &[]));
        assert!(outcome(version, &[pss384], &[pss256, pss384]));
        assert!(outcome(version, &[], &[pss256]));
        assert!(!outcome(version, &[pss384], &[pss256]));
        assert!(!outcome(version, &["ecdsa_secp256r1_sha256"], &[]), "the key is of RSA");
    }
    // TLS 1.3 has no handshakes that are signed so (RFC 8446 §4.2.3).
    let pkcs = ["rsa_pkcs1_sha256"];
    assert!(outcome(Version::Tls12, &pkcs, &pkcs));
    assert!(!outcome(Version::Tls13, &pkcs, &[]));
    assert_eq!(SignatureAlgorithm::named("rsa_pkcs1_sha1"), None);
}

#[test]
fn clients_sign_in_the_ways_that_a_server_has_chosen() {
    let (world, known) = (World::new(), Authority::new("known"));
    let me = known.leaf(&["me.test"], YEARS);
    for version in BOTH {
        for (chosen, fits) in [("ecdsa_secp256r1_sha256", true), ("ecdsa_secp384r1_sha384", false)]
        {
            let settings = ServerSettings {
                signature_algorithms: algorithms(&["ecdsa_secp256r1_sha256"]),
                trust: Some(known.trust(Names::Any)),
                requires_certificate: true,
                ..world.settings()
            };
            let mut server = settings.build().unwrap().server(&clock()).accept();
            let client =
                ClientSettings { identity: Some(me.identity()), ..world.client_settings(version) };
            let signature_algorithms = algorithms(&[chosen, "ecdsa_secp521r1_sha512"]);
            let mut client = begin(ClientSettings { signature_algorithms, ..client }, "a.test");
            let _ = converse_both(&mut client, &mut server, usize::MAX);
            assert_eq!(server.is_established(), fits, "{version:?} {chosen}");
        }
    }
}

/// Wants what one peer says.
#[derive(Debug, Default)]
struct OfOne {
    lines: Mutex<String>,
    peer: Option<IpAddr>,
}

impl KeyLines for OfOne {
    fn write(&self, line: &str) {
        self.lines.lock().unwrap().push_str(line);
    }

    fn is_partial(&self) -> bool {
        true
    }

    fn wants(&self, _local: &Address, remote: &Address) -> bool {
        remote.ip().map(|address| address.ip()) == self.peer
    }
}

#[test]
fn secrets_of_some_connections_are_written() {
    let world = World::new();
    let local = Address::Ip(([127, 0, 0, 1], 1).into());
    let peer = |last| Address::Ip(([127, 0, 0, last], 2).into());
    let wanted = || OfOne { peer: Some(Ipv4Addr::LOCALHOST.into()), ..OfOne::default() };
    for (remote, is_written) in
        [(peer(1), true), (peer(2), false), (Address::Unix(Path::new("/a").into()), false)]
    {
        let (of_server, of_client) = (Arc::new(wanted()), Arc::new(wanted()));
        let settings =
            ServerSettings { key_log: Some(Arc::clone(&of_server) as _), ..world.settings() };
        let server = settings.build().unwrap().server(&clock());
        let key_log = Some(Arc::clone(&of_client) as _);
        let settings = ClientSettings { key_log, ..world.client_settings(Version::Tls13) };
        let client = settings.build().unwrap().client(&clock());
        let name = ServerName::new("a.test").unwrap();
        for resumes in [false, true] {
            let mut ours = server.between(&local, &remote).accept();
            let mut theirs = client.between(&local, &remote).connect(&name).unwrap();
            converse_both(&mut theirs, &mut ours, usize::MAX).unwrap();
            assert!(ours.is_established());
            assert_eq!(ours.is_resumed(), resumes, "sessions are those of all");
            for written in [&of_server, &of_client] {
                assert_eq!(!written.lines.lock().unwrap().is_empty(), is_written, "{remote:?}");
            }
        }
    }
}
