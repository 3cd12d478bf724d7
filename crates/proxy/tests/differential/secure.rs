//! TLS in front of upstreams that know nothing of it, and the certificates of both sides.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, PublicKeyData as _, RevokedCertParams,
    RsaKeySize, SanType, SerialNumber,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::case::{Breaks, Secure};

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
struct Leaf {
    pem: String,
    key: String,
    spki: Vec<u8>,
}

/// Everything that a suite can name, by name.
struct Certificates {
    root: String,
    leaves: BTreeMap<&'static str, Leaf>,
    /// Lists of revoked certificates, by name.
    lists: [(&'static str, String); 3],
    /// What the root says of `good`, by name: OCSP responses.
    statuses: [(&'static str, Vec<u8>); 2],
}

fn certificates() -> &'static Certificates {
    static MADE: OnceLock<Certificates> = OnceLock::new();
    MADE.get_or_init(|| {
        let authority = |name: &str| {
            let (key, mut params) = (KeyPair::generate().unwrap(), params(&[], (2020, 2040)));
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let pem = params.self_signed(&key).unwrap().pem();
            (pem, Issuer::new(params, key))
        };
        let (root, ours) = authority("ours");
        let (stranger, others) = authority("stranger");
        let signed = |params: CertificateParams| {
            let key = KeyPair::generate().unwrap();
            let pem = params.signed_by(&key, &ours).unwrap().pem();
            Leaf { pem, spki: key.subject_public_key_info(), key: key.serialize_pem() }
        };
        let mut revoked = params(&["me.test"], (2020, 2040));
        revoked.serial_number = Some(SerialNumber::from(0x11_u64));
        let mut good = params(&["app.test", "*.wild.test"], (2020, 2040));
        good.serial_number = Some(SerialNumber::from(0x10_u64));
        good.subject_alt_names.push(SanType::URI("spiffe://here/app".try_into().unwrap()));
        good.subject_alt_names.push(SanType::IpAddress([192, 0, 2, 1].into()));
        let other_name =
            SanType::OtherName((vec![1, 3, 6, 1, 4, 1, 311, 20, 2, 3], "me@corp".into()));
        good.subject_alt_names.push(other_name.clone());
        let mut me = params(&["me.test"], (2020, 2040));
        me.subject_alt_names.push(other_name);
        let key = KeyPair::generate().unwrap();
        let alone = params(&["app.test"], (2020, 2040)).self_signed(&key).unwrap().pem();
        let alone =
            Leaf { pem: alone, spki: key.subject_public_key_info(), key: key.serialize_pem() };
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        let rsa = params(&["app.test", "rsa.test"], (2020, 2040)).signed_by(&key, &ours).unwrap();
        let rsa =
            Leaf { pem: rsa.pem(), spki: key.subject_public_key_info(), key: key.serialize_pem() };
        // Below the root, and with what is between them.
        let (key, mut below) = (KeyPair::generate().unwrap(), params(&[], (2020, 2040)));
        below.distinguished_name.push(rcgen::DnType::CommonName, "between");
        below.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let between = below.signed_by(&key, &ours).unwrap().pem();
        let between_issuer = Issuer::new(below, key);
        let deep = |years| {
            let key = KeyPair::generate().unwrap();
            let made = params(&["app.test"], years).signed_by(&key, &between_issuer).unwrap();
            let (pem, spki) = (made.pem() + &between, key.subject_public_key_info());
            Leaf { pem, spki, key: key.serialize_pem() }
        };
        let (deep, deep_expired) = (deep((2020, 2040)), deep((2020, 2021)));
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        let mut encrypts = params(&["app.test"], (2020, 2040));
        encrypts.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
        let encrypts = encrypts.signed_by(&key, &ours).unwrap().pem();
        let encrypts =
            Leaf { pem: encrypts, spki: key.subject_public_key_info(), key: key.serialize_pem() };
        let mut agrees = params(&["app.test"], (2020, 2040));
        agrees.key_usages = vec![KeyUsagePurpose::KeyAgreement];
        let stranger = Leaf { pem: stranger, spki: Vec::new(), key: String::new() };
        let leaves = BTreeMap::from([
            ("agrees", signed(agrees)),
            ("deep", deep),
            ("deep_expired", deep_expired),
            ("encrypts", encrypts),
            ("good", signed(good)),
            ("expired", signed(params(&["app.test"], (2020, 2021)))),
            ("future", signed(params(&["app.test"], (2038, 2040)))),
            ("self_signed", alone),
            ("me", signed(me)),
            ("other", signed(params(&["other.test"], (2020, 2040)))),
            ("revoked", signed(revoked)),
            ("rsa", rsa),
            ("stranger", stranger),
        ]);
        let lists = [
            ("${crl}", list(&ours, 2040)),
            ("${crl.old}", list(&ours, 2021)),
            ("${crl.others}", list(&others, 2040)),
        ];
        let key = ours.key().serialize_pem();
        let statuses = [
            ("${good.ocsp}", status(&root, &key, &leaves["good"].pem, Some(3650))),
            ("${good.ocsp.undated}", status(&root, &key, &leaves["good"].pem, None)),
        ];
        Certificates { root, leaves, lists, statuses }
    })
}

/// A list with the certificate `revoked`, which holds until a year.
fn list(issuer: &Issuer<'_, KeyPair>, until: i32) -> String {
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(0x11_u64),
        revocation_time: rcgen::date_time_ymd(2021, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2020, 1, 1),
        next_update: rcgen::date_time_ymd(until, 1, 1),
        crl_number: SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().pem().unwrap()
}

/// What OpenSSL's responder says of a certificate; it holds so many days, or does not say how long.
fn status(root: &str, key: &str, leaf: &str, days: Option<u32>) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("towpath-ocsp-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let index = "V\t400101000000Z\t\t10\tunknown\t/CN=app.test\n";
    for (name, text) in [("root", root), ("key", key), ("leaf", leaf), ("index", index)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let lasts = days.map(|days| ["-ndays".to_owned(), days.to_string()]);
    let made = Command::new("openssl")
        .args(["ocsp", "-index", "index", "-CA", "root", "-rsigner", "root", "-rkey", "key"])
        .args(["-issuer", "root", "-cert", "leaf", "-noverify", "-respout", "response"])
        .args(lasts.iter().flatten())
        .current_dir(&folder)
        .output()
        .expect("openssl can be run");
    let response = std::fs::read(folder.join("response"));
    let _ = std::fs::remove_dir_all(&folder);
    response.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&made.stderr)))
}

fn params(names: &[&str], (from, to): (i32, i32)) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, names_or(&params, "nobody"));
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(to, 1, 1);
    params
}

fn names_or(params: &CertificateParams, other: &str) -> String {
    match params.subject_alt_names.first() {
        Some(SanType::DnsName(name)) => name.as_str().to_owned(),
        _ => other.to_owned(),
    }
}

/// Writes certificates where a bootstrap names them: `${root}`, `${me}`, `${me.key}`, `${good.spki}`, …
pub(crate) fn fill(text: &str) -> String {
    use base64::Engine as _;
    if !text.contains("${") {
        return text.to_owned();
    }
    let certificates = certificates();
    let quoted = |pem: &str| serde_json::Value::from(pem).to_string();
    let mut text = text.replace("${root}", &quoted(&certificates.root));
    for (name, list) in &certificates.lists {
        text = text.replace(name, &quoted(list));
    }
    for (name, response) in &certificates.statuses {
        let response = base64::engine::general_purpose::STANDARD.encode(response);
        text = text.replace(name, &quoted(&response));
    }
    for (name, leaf) in &certificates.leaves {
        let spki = base64::engine::general_purpose::STANDARD.encode(sha256(&leaf.spki));
        let der = CertificateDer::from_pem_slice(leaf.pem.as_bytes()).unwrap();
        let hash: String = sha256(&der).iter().map(|byte| format!("{byte:02x}")).collect();
        for (what, value) in [
            (String::new(), quoted(&leaf.pem)),
            (".key".to_owned(), quoted(&leaf.key)),
            (".spki".to_owned(), quoted(&spki)),
            (".hash".to_owned(), quoted(&hash)),
        ] {
            text = text.replace(&format!("${{{name}{what}}}"), &value);
        }
    }
    text
}

/// A file with a certificate and its key, for programs that read files.
pub(crate) fn file(name: &str, folder: &Path) -> PathBuf {
    let leaf = &certificates().leaves[name];
    let path = folder.join(format!("{name}.pem"));
    std::fs::write(&path, leaf.pem.clone() + &leaf.key).unwrap();
    path
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    suite.tls13().unwrap().common.hash_provider.hash(bytes).as_ref().to_vec()
}

/// Opens a server in front of `plain`; it lives as long as the process.
pub(crate) fn open(secure: &Secure, plain: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (config, breaks) = (Arc::new(config(secure)), secure.breaks);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, config) = (stream.unwrap(), Arc::clone(&config));
            thread::spawn(move || match breaks {
                None | Some(Breaks::CloseNotify) => drop(relay(stream, config, plain, breaks)),
                Some(breaks) => break_handshake(stream, breaks),
            });
        }
    });
    address
}

fn config(secure: &Secure) -> ServerConfig {
    let certificates = certificates();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions: Vec<_> = [("1.2", &rustls::version::TLS12), ("1.3", &rustls::version::TLS13)]
        .into_iter()
        .filter(|(name, _)| secure.versions.as_ref().is_none_or(|wanted| wanted == name))
        .map(|(_, version)| version)
        .collect();
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .unwrap();
    let config = if secure.asks_client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificates.root.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
        config.with_client_cert_verifier(verifier.unwrap())
    } else {
        config.with_no_client_auth()
    };
    let leaf = &certificates.leaves[secure.certificate.as_str()];
    let chain = CertificateDer::pem_slice_iter(leaf.pem.as_bytes());
    let chain = chain.collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = secure.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    // Sessions would make the outcome of a case depend on the one before.
    config.send_tls13_tickets = if secure.resumes { 2 } else { 0 };
    if !secure.resumes {
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    }
    config
}

/// Passes bytes on between a client under TLS and a plain upstream, until both have ended.
fn relay(
    mut secure: TcpStream,
    config: Arc<ServerConfig>,
    plain: SocketAddr,
    breaks: Option<Breaks>,
) -> std::io::Result<()> {
    let mut tls = ServerConnection::new(config).map_err(std::io::Error::other)?;
    secure.set_nodelay(true)?;
    while tls.is_handshaking() {
        if let Err(error) = tls.complete_io(&mut secure) {
            // Its alert stands in the kernel's buffer; what the client still sends must not turn the end into a reset.
            let _ = secure.shutdown(Shutdown::Write);
            let _ = secure.read_to_end(&mut Vec::new());
            return Err(error);
        }
    }
    let mut plain = TcpStream::connect(plain)?;
    plain.set_nodelay(true)?;
    secure.set_nonblocking(true)?;
    plain.set_nonblocking(true)?;
    let (mut up, mut down) = (true, true);
    // What came with the end of the handshake.
    forward(&mut tls, &mut plain)?;
    let mut buffer = [0; 16 * 1024];
    while up || down {
        let mut idle = true;
        if up {
            match tls.read_tls(&mut secure) {
                Ok(count) => {
                    idle = false;
                    if forward(&mut tls, &mut plain)? || count == 0 {
                        up = false;
                        let _ = plain.shutdown(Shutdown::Write);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if down {
            match plain.read(&mut buffer) {
                Ok(0) => {
                    (idle, down) = (false, false);
                    if breaks.is_none() {
                        tls.send_close_notify();
                    }
                }
                Ok(count) => {
                    idle = false;
                    tls.writer().write_all(&buffer[..count])?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        secure.set_nonblocking(false)?;
        while tls.wants_write() {
            tls.write_tls(&mut secure)?;
        }
        if !down {
            let _ = secure.shutdown(Shutdown::Write);
        }
        secure.set_nonblocking(true)?;
        if idle {
            thread::sleep(Duration::from_micros(500));
        }
    }
    Ok(())
}

/// Passes on what a client has said; true if that was all.
fn forward(tls: &mut ServerConnection, plain: &mut TcpStream) -> std::io::Result<bool> {
    let state = tls.process_new_packets().map_err(std::io::Error::other)?;
    let mut bytes = vec![0; state.plaintext_bytes_to_read()];
    tls.reader().read_exact(&mut bytes)?;
    plain.set_nonblocking(false)?;
    plain.write_all(&bytes)?;
    plain.set_nonblocking(true)?;
    Ok(state.peer_has_closed())
}

fn break_handshake(mut stream: TcpStream, breaks: Breaks) {
    let mut hello = [0; 16 * 1024];
    let _ = stream.read(&mut hello);
    match breaks {
        Breaks::Stall => drop(stream.read_to_end(&mut Vec::new())),
        Breaks::Close | Breaks::CloseNotify => {}
        Breaks::Reset => {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
        Breaks::Garbage => end_with(stream, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        // handshake_failure and unrecognized_name
        Breaks::Alert => end_with(stream, &[21, 3, 3, 0, 2, 2, 40]),
        Breaks::OtherAlert => end_with(stream, &[21, 3, 3, 0, 2, 2, 112]),
    }
}

fn end_with(mut stream: TcpStream, last: &[u8]) {
    let _ = stream.write_all(last);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}
