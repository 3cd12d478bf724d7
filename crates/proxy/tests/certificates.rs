//! Files with certificates and keys that change while they serve.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that cannot go on has failed")]

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Proxy, Scratch, bootstrap, origin, until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

type Client = StreamOwned<ClientConnection, TcpStream>;

/// Signs certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str) -> (String, String) {
        self.sign_until(name, 2100)
    }

    /// The same, until this year begins.
    fn sign_until(&self, name: &str, year: i32) -> (String, String) {
        let (key, names) = (KeyPair::generate().unwrap(), vec!["localhost".into(), name.into()]);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A file is replaced in one step.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(next, path).unwrap();
}

fn connect(
    at: &str,
    root: &Authority,
    identity: Option<&(String, String)>,
) -> std::io::Result<Client> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(at)?;
    socket.set_read_timeout(Some(common::PATIENCE))?;
    Ok(StreamOwned::new(connection, socket))
}

/// A request on a connection that stays; says whether it is answered.
fn ask(client: &mut Client) -> std::io::Result<()> {
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let mut piece = [0; 512];
        match client.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&piece[..count]),
        }
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    Ok(())
}

/// Whether a new client is shown this certificate.
fn shows(at: &str, root: &Authority, pem: &str) -> bool {
    let mut client = connect(at, root, None).unwrap();
    ask(&mut client).unwrap();
    let shown = client.conn.peer_certificates().unwrap();
    shown[0] == CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// The common bootstrap with its listener under TLS: certificate, key, and more of the context.
fn secured(chain: &Path, key: &Path, more: &str) -> String {
    let socket = format!(
        r#"    - transport_socket:
        name: tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            tls_certificates:
            - certificate_chain: {{ filename: {} }}
              private_key: {{ filename: {} }}
{more}
      filters:"#,
        chain.display(),
        key.display()
    );
    bootstrap(origin(Duration::ZERO)).replacen("    - filters:", &socket, 1)
}

const ENDS: &str =
    "listener.127.0.0.1_0.ssl.certificate.unnamed_cert_e3b0c442.expiration_unix_time_seconds";
const UPDATES: &str = "listener.127.0.0.1_0.server_ssl_socket_factory.ssl_context_update_by_sds";

#[test]
fn a_new_certificate_is_shown_and_connections_stay() {
    let (scratch, ours) = (Scratch::new(), Authority::new("ours"));
    let (first, second) = (ours.sign("first.test"), ours.sign("second.test"));
    let (chain, key) = (scratch.write("chain.pem", &first.0), scratch.write("key.pem", &first.1));
    let proxy = Proxy::start(&secured(&chain, &key, ""), &[]);
    let at = proxy.listener("ingress");
    let mut early = connect(&at, &ours, None).unwrap();
    ask(&mut early).unwrap();
    assert!(shows(&at, &ours, &first.0));
    assert_eq!(proxy.stat(UPDATES), Some(0));

    // The bootstrap says something else from here on, but it is not to be read.
    let config = proxy.scratch.read("bootstrap.yaml");
    proxy.scratch.write("bootstrap.yaml", &config.replace("cluster: origin", "cluster: nowhere"));

    // One half of a pair: what serves goes on.
    replace(&chain, &second.0);
    until("it is refused", || proxy.stat("towpath.config.update_rejected") == Some(1));
    assert!(shows(&at, &ours, &first.0));

    replace(&key, &second.1);
    until("the new one is shown", || shows(&at, &ours, &second.0));
    until("it is counted", || proxy.stat(UPDATES) == Some(1));
    ask(&mut early).unwrap();
    assert_eq!(proxy.stat("towpath.config.update_rejected"), Some(1), "it is told of once");
    assert_eq!(proxy.stat("listener_manager.listener_modified"), Some(1));
    assert_eq!(proxy.stat("cluster_manager.cluster_modified"), Some(0));
    let attempts = || proxy.stat("towpath.config.update_attempt");
    until("both readings are counted", || attempts() == Some(2));
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(attempts(), Some(2), "nothing is read unasked");
}

/// As the secrets of Kubernetes are mounted: a link to a folder, which is replaced.
#[test]
fn a_folder_behind_a_link_is_replaced() {
    let (scratch, ours) = (Scratch::new(), Authority::new("ours"));
    let (first, second) = (ours.sign_until("a", 2040), ours.sign_until("b", 2050));
    for (folder, (chain, key)) in [("1", &first), ("2", &second)] {
        std::fs::create_dir(scratch.path(folder)).unwrap();
        scratch.write(&format!("{folder}/tls.crt"), chain);
        scratch.write(&format!("{folder}/tls.key"), key);
    }
    std::os::unix::fs::symlink("1", scratch.path("data")).unwrap();
    let (chain, key) = (scratch.path("data/tls.crt"), scratch.path("data/tls.key"));
    let watched =
        format!("              watched_directory: {{ path: {} }}", scratch.path("").display());
    let proxy = Proxy::start(&secured(&chain, &key, &watched), &[]);
    let at = proxy.listener("ingress");
    assert!(shows(&at, &ours, &first.0));
    assert_eq!(proxy.stat(ENDS), Some(2_208_988_800), "2040-01-01");
    let days = || proxy.stat("server.days_until_first_cert_expiring").unwrap();
    let before = days();
    std::os::unix::fs::symlink("2", scratch.path("next")).unwrap();
    std::fs::rename(scratch.path("next"), scratch.path("data")).unwrap();
    until("the new one is shown", || shows(&at, &ours, &second.0));
    assert_eq!(proxy.stat("towpath.config.update_rejected"), Some(0));
    until("its end is told", || proxy.stat(ENDS) == Some(2_524_608_000));
    // Ten years with three leap days; it may be midnight in between.
    assert!((3652..=3653).contains(&(days() - before)), "{before} and {}", days());
}

#[test]
fn another_authority_is_trusted() {
    let (scratch, ours, other) = (Scratch::new(), Authority::new("ours"), Authority::new("other"));
    let (server, client) = (ours.sign("server.test"), other.sign("client.test"));
    let (chain, key) = (scratch.write("chain.pem", &server.0), scratch.write("key.pem", &server.1));
    let trusted = scratch.write("ca.pem", &ours.pem);
    let more = format!(
        "            validation_context: {{ trusted_ca: {{ filename: {} }} }}\n          require_client_certificate: \
        true",
        trusted.display()
    );
    let proxy = Proxy::start(&secured(&chain, &key, &more), &[]);
    let at = proxy.listener("ingress");
    let is_served = |identity| ask(&mut connect(&at, &ours, Some(identity)).unwrap()).is_ok();
    let known = ours.sign("client.test");
    assert!(is_served(&known) && !is_served(&client));
    replace(&trusted, &other.pem);
    until("the other is trusted", || is_served(&client));
    assert!(!is_served(&known));
}

/// What a client knows of its connections' secrets, as lines of a key log.
#[derive(Debug, Default)]
struct Secrets(Mutex<BTreeSet<String>>);

impl rustls::KeyLog for Secrets {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}", hex(client_random), hex(secret));
        self.0.lock().unwrap().insert(line);
    }
}

/// The secrets that the proxy writes are those that its clients have, and a file that is only read by its owner.
#[test]
fn the_secrets_of_connections_are_written_where_that_is_asked_for() {
    let (scratch, ours) = (Scratch::new(), Authority::new("ours"));
    let (chain, key) = ours.sign("first.test");
    let (chain, key) = (scratch.write("chain.pem", &chain), scratch.write("key.pem", &key));
    let file = scratch.path("keys");
    let asked = format!("            key_log: {{ path: {} }}", file.display());
    let proxy = Proxy::start(&secured(&chain, &key, &asked), &[]);
    assert!(!file.exists(), "nothing was to be written yet");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ours.pem.as_bytes()).unwrap()).unwrap();
    let secrets = Arc::new(Secrets::default());
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut config = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        config.key_log = Arc::clone(&secrets) as _;
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(proxy.listener("ingress")).unwrap();
        socket.set_read_timeout(Some(common::PATIENCE)).unwrap();
        ask(&mut StreamOwned::new(connection, socket)).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap();
    let written: BTreeSet<String> = written.lines().map(String::from).collect();
    let known = secrets.0.lock().unwrap();
    assert!(known.iter().any(|line| line.starts_with("CLIENT_RANDOM ")), "{known:?}");
    assert!(known.iter().any(|line| line.starts_with("SERVER_TRAFFIC_SECRET_0 ")), "{known:?}");
    assert_eq!(written, *known);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others may not read it");
}

/// Of connections from and to other addresses none is written.
#[test]
fn the_secrets_of_some_connections_are_written() {
    let (scratch, ours) = (Scratch::new(), Authority::new("ours"));
    let (chain, key) = ours.sign("first.test");
    let (chain, key) = (scratch.write("chain.pem", &chain), scratch.write("key.pem", &key));
    for (local, remote, is_written) in [
        ("127.0.0.0/8", "127.0.0.1/32", true),
        ("127.0.0.0/8", "192.0.2.0/24", false),
        ("192.0.2.0/24", "127.0.0.1/32", false),
    ] {
        let file = scratch.path(&format!("keys-{}", local.len() + remote.len()));
        let range = |text: &str| {
            let (prefix, length) = text.split_once('/').unwrap();
            format!("[ {{ address_prefix: {prefix}, prefix_len: {length} }} ]")
        };
        let asked = format!(
            "            key_log: {{ path: {}, local_address_range: {}, remote_address_range: {} }}",
            file.display(),
            range(local),
            range(remote)
        );
        let proxy = Proxy::start(&secured(&chain, &key, &asked), &[]);
        ask(&mut connect(&proxy.listener("ingress"), &ours, None).unwrap()).unwrap();
        assert_eq!(file.exists(), is_written, "{local} {remote}");
        let _ = std::fs::remove_file(&file);
    }
}
