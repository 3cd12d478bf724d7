//! TLS with the clients and servers of others, in both versions, either side showing a certificate that the other
//! wants: requests that share a connection, and one on another.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;
#[path = "smuggling/origins.rs"]
#[allow(dead_code, reason = "the servers here are others")]
mod origins;
#[path = "http2_peers/server.rs"]
mod server;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Proxy, Scratch, bootstrap, until};
use origins::{peer, tool};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use server::Server;

const VERSIONS: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

/// `ca.pem`, and of `server` and `client` each `.pem`, `.key` and both as `.p12`.
fn certificates() -> Scratch {
    let scratch = Scratch::new();
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.distinguished_name.push(DnType::CommonName, "root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    scratch.write("ca.pem", &params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".into(), "127.0.0.1".into()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        scratch.write(&format!("{name}.pem"), &params.signed_by(&key, &issuer).unwrap().pem());
        scratch.write(&format!("{name}.key"), &key.serialize_pem());
        let [pem, key, both] = ["pem", "key", "p12"].map(|end| format!("{name}.{end}"));
        let made = Command::new("openssl")
            .args(["pkcs12", "-export", "-in", &pem, "-inkey", &key, "-out", &both])
            .args(["-passout", "pass:changeit"])
            .current_dir(scratch.path(""))
            .output()
            .expect("openssl can be run");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    scratch
}

/// The programs, with what comes before the words that all of them take, and which form their certificate has.
fn peers() -> Vec<(&'static str, Command, &'static str)> {
    let program = |name: &str, path: Option<PathBuf>, script: Option<&str>| {
        let mut command = Command::new(path.unwrap_or_else(|| panic!("no {name}")));
        if let Some(script) = script {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tls_peers");
            command.arg(folder.join(script));
        }
        command
    };
    vec![
        ("Go", program("Go", peer("go-peers"), None), "pem"),
        ("Python", program("Python", tool("python3"), Some("peer.py")), "pem"),
        ("Node", program("Node", tool("node"), Some("peer.mjs")), "pem"),
        ("Java", program("Java", tool("java"), Some("Peer.java")), "p12"),
    ]
}

/// CERT KEY CA VERSION.
fn words(scratch: &Scratch, who: &str, form: &str, version: &str) -> [String; 4] {
    let path = |name: String| scratch.path(&name).display().to_string();
    [
        path(format!("{who}.{form}")),
        path(format!("{who}.key")),
        path("ca.pem".into()),
        version.into(),
    ]
}

fn context(scratch: &Scratch, who: &str, version: &str, more: &str) -> String {
    let path = |name: String| scratch.path(&name).display().to_string();
    let version = version.replace('.', "_");
    format!(
        r#"common_tls_context:
            tls_params: {{ tls_minimum_protocol_version: {version}, tls_maximum_protocol_version: {version} }}
            tls_certificates: [ {{ certificate_chain: {{ filename: {} }}, private_key: {{ filename: {} }} }} ]
            validation_context: {{ trusted_ca: {{ filename: {} }} }}
          {more}"#,
        path(format!("{who}.pem")),
        path(format!("{who}.key")),
        path("ca.pem".into())
    )
}

/// A bootstrap whose cluster shows a server the client's certificate.
fn towards(server: &Server, scratch: &Scratch, version: &str) -> String {
    let socket = format!(
        r#"  - transport_socket:
      name: tls
      typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: localhost
          {}
    name: "#,
        context(scratch, "client", version, "")
    );
    let config = bootstrap(server.address);
    let (before, clusters) = config.split_once("clusters:\n").unwrap();
    format!("{before}clusters:\n{}", clusters.replacen("  - name: ", &socket, 1))
}

/// What is said of requests of the other program, or of itself.
fn serve(
    (name, mut command, form): (&'static str, Command, &'static str),
    scratch: &Scratch,
    version: &str,
) -> Server {
    let tls = (name == "Go").then_some("tls");
    Server::start(command.arg("serve").args(tls).args(words(scratch, "server", form, version)))
}

#[test]
#[ignore = "needs Go's peers, Python, Node, Java, curl and openssl"]
fn clients_of_others_are_served_under_tls() {
    let scratch = certificates();
    for version in VERSIONS {
        let socket = format!(
            r#"    - transport_socket:
        name: tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          {}
      filters:"#,
            context(&scratch, "server", version, "require_client_certificate: true")
        );
        let server = serve(peers().remove(0), &scratch, version);
        let config = towards(&server, &scratch, version).replacen("    - filters:", &socket, 1);
        let proxy = Proxy::start(&config, &["--concurrency", "1"]);
        let address = proxy.listener("ingress");
        for (name, mut client, form) in peers() {
            let (call, tls) = if name == "Go" { ("call", Some("tls")) } else { ("call", None) };
            let output = client
                .arg(call)
                .args(tls)
                .arg(&address)
                .args(words(&scratch, "client", form, version))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(said.lines().collect::<Vec<_>>(), [version; 2], "{name}: {errors}");
        }
        let path = |name: &str| scratch.path(name).display().to_string();
        let known = ["--cacert", &path("ca.pem"), "--cert", &path("client.pem")].map(str::to_owned);
        let url = format!("https://{address}/");
        let curl = Command::new("curl")
            .args(["--silent", "--show-error", "--key", &path("client.key")])
            .args(known)
            .args([&*url, &*url, "--write-out", "|%{num_connects}"])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&curl.stdout),
            format!("0 client {version}|10 client {version}|0"),
            "{curl:?}"
        );
        let mut openssl = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", "-connect", &address])
            .args(["-CAfile", &path("ca.pem"), "-cert", &path("client.pem")])
            .args(["-key", &path("client.key")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        openssl.stdin.as_mut().unwrap().write_all(request).unwrap();
        let said = openssl.wait_with_output().unwrap().stdout;
        let answer = format!("\r\n\r\n0 client {version}");
        assert!(said.ends_with(answer.as_bytes()), "{}", String::from_utf8_lossy(&said));
        let stranger =
            Command::new("curl").args(["--silent", "--insecure", &url]).output().unwrap();
        assert!(!stranger.status.success(), "it shows no certificate");
        until("no request is left", || proxy.stat("http.ingress.downstream_rq_active") == Some(0));
        let of = |name: &str| proxy.stat(&format!("listener.127.0.0.1_0.ssl.{name}"));
        assert_eq!(of("fail_verify_no_cert"), Some(1));
        assert!(of("handshake") >= Some(10), "{:?}", of("handshake"));
    }
}

#[test]
#[ignore = "needs Go's peers, Python, Node, Java and openssl"]
fn servers_of_others_are_asked_under_tls() {
    let scratch = certificates();
    for version in VERSIONS {
        for peer in peers() {
            let name = peer.0;
            let server = serve(peer, &scratch, version);
            let config = towards(&server, &scratch, version);
            let proxy = Proxy::start(&config, &["--concurrency", "1"]);
            let url = format!("http://{}/", proxy.listener("ingress"));
            let body = scratch.write("body", &"x".repeat(300_000));
            for _ in 0..3 {
                let asked = Command::new("curl")
                    .args(["--silent", "--show-error", "--data-binary"])
                    .arg(format!("@{}", body.display()))
                    .arg(&url)
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&asked.stdout);
                assert_eq!(said, format!("300000 client {version}"), "{name}: {asked:?}");
            }
            assert_eq!(proxy.stat("cluster.origin.ssl.handshake"), Some(1), "{name}");
        }
    }
}
