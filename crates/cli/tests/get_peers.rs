//! `towpath get` with servers that others wrote, over HTTP/2 and HTTP/1.1, under TLS and in clear text.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use towpath_lab::experiment::{Program, Running, free_addresses};

#[path = "../../../conformance/h2spec/servers.rs"]
mod servers;

#[test]
#[ignore = "needs h2specd"]
fn servers_that_break_the_rules_are_told() {
    let command = format!("{} get --http2-prior-knowledge", env!("CARGO_BIN_EXE_towpath"));
    servers::meet(&peer("h2specd"), &command);
}

#[test]
#[ignore = "needs nginx"]
fn nginx_is_asked_by_the_version_that_is_wanted() {
    let folder = Folder::new("nginx");
    let addresses = free_addresses("127.0.0.1", 2).unwrap();
    let (secure, clear) = (addresses[0], addresses[1]);
    let config = NGINX
        .replace("SECURE", &secure.to_string())
        .replace("CLEAR", &clear.to_string())
        .replace("CERTS", &folder.path.display().to_string());
    let command = ["-p", "{dir}", "-c", "{config}"];
    let _nginx = launch("nginx", &command, config, vec![secure, clear]);
    check_versions(&folder, secure);
    let url = format!("http://{clear}/");
    let report = get(&folder, clear, &["--http2-prior-knowledge", "--count", "5", &url]);
    assert_eq!(protocol(&report), "HTTP/2");
}

#[test]
#[ignore = "needs Envoy"]
fn envoy_is_asked_by_the_version_that_is_wanted() {
    let folder = Folder::new("envoy");
    let addresses = free_addresses("127.0.0.1", 2).unwrap();
    let (secure, clear) = (addresses[0], addresses[1]);
    let certs = folder.path.display().to_string();
    let listener = |address: SocketAddr, tls: &str| {
        ENVOY_LISTENER.replace("PORT", &address.port().to_string()).replace("TLS", tls)
    };
    let listeners = listener(secure, &ENVOY_TLS.replace("CERTS", &certs)) + &listener(clear, "");
    let config = format!("static_resources:\n  listeners:\n{listeners}");
    let command = ["-c", "{config}", "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"];
    let _envoy = launch("envoy", &command, config, vec![secure, clear]);
    check_versions(&folder, secure);
    let url = format!("http://{clear}/");
    let report = get(&folder, clear, &["--http2-prior-knowledge", "--count", "5", &url]);
    assert_eq!(protocol(&report), "HTTP/2");
    let report = get(&folder, clear, &["--count", "2", &url]);
    assert_eq!(protocol(&report), "HTTP/1.1");
}

fn check_versions(folder: &Folder, address: SocketAddr) {
    let url = format!("https://app.test:{}/", address.port());
    for (flags, wanted) in [
        (&[][..], "HTTP/2"),
        (&["--http2"], "HTTP/2"),
        (&["--http2-prior-knowledge"], "HTTP/2"),
        (&["--http1.1"], "HTTP/1.1"),
    ] {
        let words = [flags, &["--count", "3", &url]].concat();
        let report = get(folder, address, &words);
        assert_eq!(protocol(&report), wanted, "{flags:?} {report}");
        assert_eq!((&report["status"], &report["body_bytes"]), (&200.into(), &64.into()));
    }
    // What must not be repeated waits for the answer to a PING on a connection that was idle.
    let post = ["-X", "POST", "-d", "x", "--count", "2", "--interval-ms", "1500", &url];
    let report = get(folder, address, &post);
    assert_eq!(protocol(&report), "HTTP/2", "{report}");
    assert_eq!(report["tries"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["pings"].as_array().map(Vec::len), Some(1), "{report}");
}

/// What was spoken in the last try.
fn protocol(report: &Value) -> &str {
    let last = report["tries"].as_array().and_then(|tries| tries.last()).unwrap();
    last["protocol"].as_str().unwrap()
}

/// The report of the last of some requests.
fn get(folder: &Folder, address: SocketAddr, words: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_towpath"))
        .args(["get", "--json", "--max-time", "20", "--cacert"])
        .arg(folder.path.join("cert.pem"))
        .args(["--resolve", &format!("app.test:{}:127.0.0.1", address.port())])
        .args(words)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn launch(name: &str, words: &[&str], config: String, listens: Vec<SocketAddr>) -> Running {
    let program = peer(name).display().to_string();
    let command = [&[program.as_str()], words].concat().iter().map(ToString::to_string).collect();
    let (name, role) = (name.to_owned(), "server".to_owned());
    Running::launch(&[Program { name, role, command, config: Some(config), listens }], None)
        .unwrap()
}

fn peer(name: &str) -> PathBuf {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    Path::new(&folder).join(name)
}

/// A folder with a certificate for `app.test`, and its key.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towpath-get-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let made = rcgen::generate_simple_self_signed(["app.test".to_owned()]).unwrap();
        fs::write(path.join("cert.pem"), made.cert.pem()).unwrap();
        fs::write(path.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self { path }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

const NGINX: &str = "\
daemon off;
master_process off;
pid {dir}/pid;
error_log {dir}/error.log crit;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; \
  scgi_temp_path {dir}/s;
  server {
    listen SECURE ssl http2;
    listen CLEAR http2;
    ssl_certificate CERTS/cert.pem;
    ssl_certificate_key CERTS/key.pem;
    location / { return 200 \"0123456789012345678901234567890123456789012345678901234567890123\"; }
  }
}
";

const ENVOY_LISTENER: &str = r#"
  - address: { socket_address: { address: 127.0.0.1, port_value: PORT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: { prefix: "/" }
                direct_response:
                  status: 200
                  body: { inline_string: "0123456789012345678901234567890123456789012345678901234567890123" }
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
TLS"#;

const ENVOY_TLS: &str = r#"
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2, http/1.1]
            tls_certificates:
            - certificate_chain: { filename: CERTS/cert.pem }
              private_key: { filename: CERTS/key.pem }
"#;
