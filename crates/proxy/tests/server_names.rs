//! Names that TLS has no place for (RFC 6066 §3) are sent as they are: OpenSSL's server hangs up on any other.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that cannot go on has failed")]

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use common::{Proxy, Scratch, bootstrap, exchange, until};
use rcgen::{CertificateParams, KeyPair};

/// `openssl s_server`, which answers each request with a page about the connection.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    /// It takes one name only.
    fn start(scratch: &Scratch, name: &str, options: &[&str]) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let process = Command::new("openssl")
            .args(["s_server", "-www", "-quiet", "-accept", &address.to_string()])
            .args(["-cert", "me.pem", "-key", "me.key", "-cert2", "me.pem", "-key2", "me.key"])
            .args(["-servername", name, "-servername_fatal"])
            .args(options)
            .current_dir(scratch.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl can be run");
        let server = Self { process, address };
        until("the server listens", || TcpStream::connect(address).is_ok());
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).unwrap();
    }
}

/// The status of a request through a proxy that sends a name to a server which takes one only.
fn status(scratch: &Scratch, sent: &str, taken: &str, options: &[&str]) -> u16 {
    let server = Server::start(scratch, taken, options);
    let socket = format!(
        r#"  - transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: "{sent}"
        common_tls_context:
          tls_params: {{ tls_maximum_protocol_version: TLSv1_3 }}
          tls_certificates:
          - certificate_chain: {{ filename: {} }}
            private_key: {{ filename: {} }}
    name: "#,
        scratch.path("me.pem").display(),
        scratch.path("me.key").display()
    );
    let config = bootstrap(server.address);
    let (before, clusters) = config.split_once("clusters:\n").unwrap();
    let config = format!("{before}clusters:\n{}", clusters.replacen("  - name: ", &socket, 1));
    let proxy = Proxy::start(&config, &[]);
    exchange(&proxy.listener("ingress"), "GET", "/").unwrap().0
}

#[test]
#[ignore = "needs openssl"]
fn any_name_is_sent_as_it_is() {
    let scratch = Scratch::new();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["me.test".into()]).unwrap();
    scratch.write("me.pem", &params.self_signed(&key).unwrap().pem());
    scratch.write("me.key", &key.serialize_pem());
    for name in ["app.test", "sni.app.9090", "10.0.0.1", "fd00::1", "*.b.test"] {
        assert_eq!(status(&scratch, name, name, &["-tls1_3"]), 200, "{name}");
        assert_eq!(status(&scratch, name, name, &["-tls1_2"]), 200, "{name}");
        // All messages are signed by the older version's clients; another group is asked for by the newer one's server.
        assert_eq!(status(&scratch, name, name, &["-tls1_2", "-Verify", "1"]), 200, "{name}");
        let again = ["-tls1_3", "-groups", "P-256", "-Verify", "1"];
        assert_eq!(status(&scratch, name, name, &again), 200, "{name}");
    }
    assert_eq!(status(&scratch, "sni.app.9090", "sni.app.9091", &["-tls1_3"]), 503);
}
