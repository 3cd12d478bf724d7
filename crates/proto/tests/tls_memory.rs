//! What an idle connection under TLS holds, with all that the cryptography library allocates in C: measured as resident
//! memory, in a process of its own.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a measurement is worth printing"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use towpath_proto::tls::{ClientSettings, Clock, Layer, Names, Roots, ServerName, Trust};

const LAYERS: usize = 600;
const LIMIT_BYTES: usize = 8 * 1024;

#[test]
fn an_idle_connection_holds_at_most_eight_kibibytes() {
    let (server, root) = server();
    let trust = Trust {
        roots: Some(Roots::from_pem(root.as_bytes()).unwrap()),
        names: Names::Server,
        ..Trust::default()
    };
    let settings = ClientSettings { trust, ..ClientSettings::default() };
    let clock = Clock::default();
    clock.set(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap());
    let client = settings.build().unwrap().client(&clock);
    let name = ServerName::new("name-0.app.test").unwrap();
    let shake = || {
        let mut layer = client.connect(&name).unwrap();
        converse(&mut layer, &mut ServerConnection::new(Arc::clone(&server)).unwrap());
        assert!(layer.is_established());
        Box::new(layer)
    };
    // What is allocated once, and what the servers leave behind, is there before.
    drop((0..50).map(|_| shake()).collect::<Vec<_>>());
    let mut layers = Vec::with_capacity(LAYERS);
    let before = resident_bytes();
    layers.extend((0..LAYERS).map(|_| shake()));
    let each = (resident_bytes() - before) / LAYERS;
    let chain: usize =
        layers.first().map_or(0, |layer| layer.peer_certificate().map_or(0, <[u8]>::len));
    println!("{each} bytes for each of {LAYERS} idle connections; the leaf has {chain}");
    assert!(each <= LIMIT_BYTES, "{each}");
}

/// A server with a leaf of many names behind an intermediate, as public servers have them.
fn server() -> (Arc<ServerConfig>, String) {
    let authority = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    let (root_key, mut root) = (KeyPair::generate().unwrap(), CertificateParams::default());
    authority(&mut root);
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let root = Issuer::new(root, root_key);
    let (middle_key, mut middle) = (KeyPair::generate().unwrap(), CertificateParams::default());
    middle.distinguished_name.push(rcgen::DnType::CommonName, "an intermediate authority");
    authority(&mut middle);
    let middle_der = middle.signed_by(&middle_key, &root).unwrap().der().clone();
    let middle = Issuer::new(middle, middle_key);
    let names: Vec<String> = (0..25).map(|number| format!("name-{number}.app.test")).collect();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &middle).unwrap();
    let chain = vec![leaf.der().clone(), middle_der];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    (Arc::new(config), root_pem)
}

/// The handshake, one answer in both directions, and the tickets behind it.
fn converse(layer: &mut Layer, server: &mut ServerConnection) {
    use std::io::{Read as _, Write as _};
    let mut plain = BytesMut::new();
    let mut asked = false;
    loop {
        let mut ours = layer.take_output();
        if layer.is_established() && !std::mem::replace(&mut asked, true) {
            let mut sealed = BytesMut::new();
            layer.seal(b"GET / HTTP/1.1\r\n\r\n", &mut sealed).unwrap();
            ours.extend(sealed);
        }
        let mut rest = &ours[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            let state = server.process_new_packets().unwrap();
            let mut question = vec![0; state.plaintext_bytes_to_read()];
            server.reader().read_exact(&mut question).unwrap();
            if !question.is_empty() {
                server.writer().write_all(&[b'a'; 1000]).unwrap();
            }
        }
        let mut theirs = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut theirs).unwrap();
        }
        if ours.is_empty() && theirs.is_empty() {
            assert_eq!(plain.len(), 1000);
            return;
        }
        layer.receive(&theirs, &mut plain).unwrap();
    }
}

fn resident_bytes() -> usize {
    // The kernel counts in batches.
    std::thread::sleep(Duration::from_millis(1));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}
