//! Secrets: certificates, keys and trust that a control plane or files give.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::CertifiedKey;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use towpath_proto::tls::Certificate;
use towpath_xds::Type;

use super::common::{PATIENCE, Proxy, Scratch, exchange, until};
use super::control_plane::ControlPlane;
use super::{
    ANY_PORT, FORMS, acked, ask, bootstrap, cluster, endpoints, nack, own_stream, routes, tcp,
};

/// A certificate that vouches for itself.
pub(crate) struct Made {
    chain: String,
    key: String,
    der: CertificateDer<'static>,
}

impl Made {
    pub(crate) fn new() -> Self {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["app.test".to_owned()]).unwrap();
        Self { chain: cert.pem(), key: signing_key.serialize_pem(), der: cert.der().clone() }
    }

    /// As a secret.
    pub(crate) fn certificate(&self, name: &str) -> String {
        let (chain, key) = (text(&self.chain), text(&self.key));
        format!(
            "{{ name: {name}, tls_certificate: {{ certificate_chain: {{ inline_string: {chain} }}, \
             private_key: {{ inline_string: {key} }} }} }}"
        )
    }

    /// As whom to believe.
    fn trust(&self, name: &str) -> String {
        let chain = text(&self.chain);
        format!(
            "{{ name: {name}, validation_context: {{ trusted_ca: {{ inline_string: {chain} }} }} }}"
        )
    }
}

fn text(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}

/// A listener under TLS that answers by itself.
pub(crate) fn secured(name: &str, context: &str) -> String {
    format!(
        r#"
name: {name}
address: {ANY_PORT}
filter_chains:
- filters:
  - name: http
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: {name}
      route_config: {routes}
      http_filters:
      - name: router
        typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  transport_socket:
    name: tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
      {context}
"#,
        routes = routes("own", "direct_response: { status: 200, body: { inline_string: hello } }"),
    )
}

pub(crate) fn with_certificate(source: &str) -> String {
    format!(
        "common_tls_context: {{ tls_certificate_sds_secret_configs: \
         [ {{ name: server, sds_config: {source} }} ] }}"
    )
}

pub(crate) type Line = StreamOwned<ClientConnection, TcpStream>;

/// A connection to a server that shows this certificate.
pub(crate) fn connect(at: &str, expected: &Made) -> std::io::Result<Line> {
    let mut roots = RootCertStore::empty();
    roots.add(expected.der.clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = "app.test".try_into().unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(at)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut line = StreamOwned::new(client, socket);
    request(&mut line)?;
    Ok(line)
}

fn request(line: &mut Line) -> std::io::Result<()> {
    line.write_all(b"GET / HTTP/1.1\r\nhost: app.test\r\n\r\n")?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let mut bytes = [0; 1024];
        let count = line.read(&mut bytes)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&bytes[..count]);
    }
    Ok(())
}

pub(crate) fn at(proxy: &Proxy, listener: &str) -> String {
    proxy.listener(listener)
}

#[test]
fn a_listener_waits_for_its_secret_and_new_handshakes_take_the_next() {
    let ads = "{ ads: {}, initial_fetch_timeout: 0s }".to_owned();
    let sources = FORMS.iter().flat_map(|form| [(*form, ads.clone()), (*form, own_stream(form))]);
    for (form, source) in sources {
        let plane = ControlPlane::start();
        plane.set(Type::Cluster, "c1", &[]);
        plane.set(Type::Listener, "l1", &[("web", &secured("web", &with_certificate(&source)))]);
        let config = bootstrap(&tcp(plane.address), form);
        let mut proxy = Proxy::launch(Scratch::new(), &config, &[]);
        acked(&plane, Type::Listener, "l1");
        until("it is asked for", || plane.last(Type::Secret).is_some());
        assert_eq!(plane.last(Type::Secret).unwrap().names, ["server".to_owned()].into());
        assert_eq!(proxy.get("/ready").1, "INITIALIZING\n");
        let (_, dump) = proxy.get("/config_dump?resource=dynamic_warming_secrets");
        assert!(dump.contains("\"server\"") && dump.contains("uninitialized"), "{dump}");
        let (first, second) = (Made::new(), Made::new());
        plane.set(Type::Secret, "s1", &[("server", &first.certificate("server"))]);
        until("it is live", || proxy.get("/ready").1 == "LIVE\n");
        let at = at(&proxy, "web");
        let mut old = connect(&at, &first).unwrap();
        assert!(connect(&at, &second).is_err());
        // One that is bad is named, and the one before stays.
        let bad = second.certificate("server").replace("BEGIN CERTIFICATE", "BEGIN NOTHING");
        plane.set(Type::Secret, "s2", &[("server", &bad)]);
        let error = nack(&plane, Type::Secret);
        assert!(error.contains("server: tls_certificate: "), "{error}");
        connect(&at, &first).unwrap();
        // Another drops no connection.
        plane.set(Type::Secret, "s3", &[("server", &second.certificate("server"))]);
        acked(&plane, Type::Secret, "s3");
        until("the new one", || connect(&at, &second).is_ok());
        assert!(connect(&at, &first).is_err());
        request(&mut old).unwrap();
        let stat = |name: &str| proxy.stat(name);
        assert_eq!(stat("sds.server.update_success"), Some(2), "{form} {source}");
        assert_eq!(stat("sds.server.update_rejected"), Some(1), "{form} {source}");
        let prefix = format!("listener.{}.server_ssl_socket_factory", "127.0.0.1_0");
        assert_eq!(stat(&format!("{prefix}.ssl_context_update_by_sds")), Some(2), "{form}");
        let (_, dump) = proxy.get("/config_dump");
        assert!(dump.contains("dynamic_active_secrets") && dump.contains("[redacted]"), "{dump}");
        assert!(!dump.contains("PRIVATE KEY"), "{dump}");
        let (_, certs) = proxy.get("/certs");
        let certs: serde_json::Value = serde_json::from_str(&certs).unwrap();
        let shown = &certs["certificates"][0]["cert_chain"][0];
        assert_eq!(shown["subject_alt_names"], serde_json::json!([{ "dns": "app.test" }]));
        assert_eq!(shown["path"], "<inline>");
        let serial = Certificate::parse(&second.der).unwrap().serial();
        assert_eq!(shown["serial_number"], serial);
        assert!(proxy.child.try_wait().unwrap().is_none());
    }
}

#[test]
fn clusters_wait_for_theirs_and_keep_their_connections_over_a_rotation() {
    let (server, client, other) = (Made::new(), Made::new(), Made::new());
    let plane = ControlPlane::start();
    let ads = "{ ads: {}, initial_fetch_timeout: 0s }";
    let inner = format!(
        "require_client_certificate: true\n      common_tls_context: {{ \
         tls_certificate_sds_secret_configs: [ {{ name: server, sds_config: {ads} }} ], \
         validation_context_sds_secret_config: {{ name: clients, sds_config: {ads} }} }}"
    );
    let app = cluster("app");
    let app = format!(
        "{}, transport_socket: {{ name: tls, typed_config: {{ \
         \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, \
         sni: app.test, common_tls_context: {{ \
         tls_certificate_sds_secret_configs: [ {{ name: client, sds_config: {ads} }} ], \
         combined_validation_context: {{ \
         default_validation_context: {{ match_typed_subject_alt_names: [ {{ san_type: DNS, matcher: {{ exact: \
         app.test }} }} ] }}, \
         validation_context_sds_secret_config: {{ name: servers, sds_config: {ads} }} }} }} }} }} }}",
        app.trim_end().strip_suffix('}').unwrap()
    );
    let outer = super::listener("outer", ANY_PORT, "table");
    plane.set(Type::Cluster, "c1", &[("app", &app)]);
    let nowhere: SocketAddr = ([127, 0, 0, 1], 9).into();
    plane.set(Type::Endpoints, "e1", &[("app", &endpoints("app", nowhere))]);
    plane.set(Type::Listener, "l1", &[("inner", &secured("inner", &inner)), ("outer", &outer)]);
    plane.set(Type::Routes, "r1", &[("table", &routes("table", "route: { cluster: app }"))]);
    let config = bootstrap(&tcp(plane.address), "DELTA_GRPC");
    let proxy = Proxy::launch(Scratch::new(), &config, &[]);
    acked(&plane, Type::Endpoints, "e1");
    assert_eq!(proxy.get("/ready").1, "PRE_INITIALIZING\n", "its secrets are missing");
    let secrets = |client: &Made| {
        [
            ("server", server.certificate("server")),
            ("client", client.certificate("client")),
            ("servers", server.trust("servers")),
            ("clients", client.trust("clients")),
        ]
    };
    let set = |version: &str, secrets: &[(&str, String)]| {
        let all: Vec<_> = secrets.iter().map(|(name, secret)| (*name, secret.as_str())).collect();
        plane.set(Type::Secret, version, &all);
    };
    set("s1", &secrets(&client));
    until("it is live", || proxy.get("/ready").1 == "LIVE\n");
    let inner: SocketAddr = at(&proxy, "inner").parse().unwrap();
    plane.set(Type::Endpoints, "e2", &[("app", &endpoints("app", inner))]);
    until("the endpoint", || ask(&proxy, "outer") == (200, "hello".to_owned()));
    let destroyed = proxy.stat("cluster.app.upstream_cx_destroy");
    set("s2", &secrets(&other));
    until("both sides take it", || {
        proxy.stat("cluster.app.client_ssl_socket_factory.ssl_context_update_by_sds") == Some(3)
            && proxy
                .stat("listener.127.0.0.1_0.server_ssl_socket_factory.ssl_context_update_by_sds")
                == Some(3)
    });
    for _ in 0..10 {
        assert_eq!(ask(&proxy, "outer"), (200, "hello".to_owned()));
    }
    // Other endpoints leave connections alone, too.
    plane.set(
        Type::Endpoints,
        "e3",
        &[(
            "app",
            &endpoints("app", inner)
                .replace("{ endpoint:", "{ load_balancing_weight: 2, endpoint:"),
        )],
    );
    acked(&plane, Type::Endpoints, "e3");
    until("the weight", || proxy.stat("cluster.app.update_success") == Some(3));
    assert_eq!(ask(&proxy, "outer").0, 200);
    assert_eq!(proxy.stat("cluster.app.upstream_cx_destroy"), destroyed);
    // A client that is not believed any more is not served on new connections.
    let mut spoiled = secrets(&other);
    spoiled[3].1 = client.trust("clients");
    set("s3", &spoiled);
    until("the trust", || proxy.stat("sds.clients.update_success") == Some(3));
    assert!(connect(&inner.to_string(), &server).is_err());
}

#[test]
fn without_its_secret_nothing_is_spoken_to() {
    let plane = ControlPlane::start();
    let source = "{ ads: {}, initial_fetch_timeout: 0.2s }";
    let app = format!(
        "{{ name: app, type: STATIC, load_assignment: {}, transport_socket: {{ name: tls, typed_config: {{ \
         \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, \
         common_tls_context: {{ validation_context_sds_secret_config: {{ name: ca, sds_config: {source} }} }} }} }} }}",
        endpoints("app", plane.address)
    );
    plane.set(Type::Cluster, "c1", &[("app", &app)]);
    plane.set(
        Type::Listener,
        "l1",
        &[
            ("plain", &super::listener("plain", ANY_PORT, "table")),
            ("web", &secured("web", &with_certificate(source))),
        ],
    );
    plane.set(Type::Routes, "r1", &[("table", &routes("table", "route: { cluster: app }"))]);
    let proxy = Proxy::start(&bootstrap(&tcp(plane.address), "GRPC"), &[]);
    assert_eq!(proxy.stat("sds.server.init_fetch_timeout"), Some(1));
    assert_eq!(proxy.stat("sds.ca.init_fetch_timeout"), Some(1));
    let expected = Made::new();
    assert!(connect(&at(&proxy, "web"), &expected).is_err());
    let (status, body) = ask(&proxy, "plain");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("reset reason: remote connection failure"), "{body}");
    let prefix = "listener.127.0.0.1_0.server_ssl_socket_factory";
    assert_eq!(proxy.stat(&format!("{prefix}.downstream_context_secrets_not_ready")), Some(1));
    let prefix = "cluster.app.client_ssl_socket_factory";
    assert!(proxy.stat(&format!("{prefix}.upstream_context_secrets_not_ready")) >= Some(1));
    // It comes late, and is taken all the same.
    plane.set(Type::Secret, "s1", &[("server", &expected.certificate("server"))]);
    until("it is served", || connect(&at(&proxy, "web"), &expected).is_ok());
    // What is no longer asked for is not waited for, and not counted.
    let awaited = || proxy.get("/config_dump?resource=dynamic_warming_secrets").1;
    assert!(awaited().contains("\"ca\""), "{}", awaited());
    plane.set(Type::Cluster, "c2", &[]);
    until("it is shown no more", || !awaited().contains("\"ca\""));
    assert_eq!(proxy.stat("sds.ca.init_fetch_timeout"), None);
    assert_eq!(proxy.stat("sds.server.init_fetch_timeout"), Some(1));
}

#[test]
fn files_of_secrets_are_replaced_while_they_serve() {
    let scratch = Scratch::new();
    let put = |name: &str, text: &str| {
        let next = scratch.write("next", text);
        std::fs::rename(next, scratch.path(name)).unwrap();
    };
    let (first, second) = (Made::new(), Made::new());
    put("chain.pem", &first.chain);
    put("key.pem", &first.key);
    let directory = scratch.path("");
    put(
        "sds.yaml",
        &format!(
            "resources:\n- \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n  \
             name: server\n  tls_certificate:\n    certificate_chain: {{ filename: {} }}\n    \
             private_key: {{ filename: {} }}\n    watched_directory: {{ path: {} }}\n",
            scratch.path("chain.pem").display(),
            scratch.path("key.pem").display(),
            directory.display()
        ),
    );
    let source = format!(
        "{{ path_config_source: {{ path: {}, watched_directory: {{ path: {} }} }} }}",
        scratch.path("sds.yaml").display(),
        directory.display()
    );
    let indented = secured("web", &with_certificate(&source)).trim().replace('\n', "\n    ");
    let config = format!(
        "node: {{ id: a, cluster: b }}\nadmin: {{ address: {ANY_PORT} }}\n\
         static_resources:\n  listeners:\n  - {indented}\n"
    );
    let proxy = Proxy::start(&config, &[]);
    let at = at(&proxy, "web");
    let mut old = connect(&at, &first).unwrap();
    // One file of two: key and certificate do not fit, and what serves stays.
    put("chain.pem", &second.chain);
    until("it is refused", || proxy.stat("sds.server.key_rotation_failed") == Some(1));
    connect(&at, &first).unwrap();
    put("key.pem", &second.key);
    until("the new one", || connect(&at, &second).is_ok());
    request(&mut old).unwrap();
    assert_eq!(proxy.stat("sds.server.key_rotation_failed"), Some(1));
    let updates = "listener.127.0.0.1_0.server_ssl_socket_factory.ssl_context_update_by_sds";
    until("it is counted", || proxy.stat(updates) == Some(2));
    // And the file with the secret itself.
    let sds = scratch.read("sds.yaml").replace("key.pem", "missing.pem");
    put("sds.yaml", &sds);
    until("it is refused", || proxy.stat("sds.server.update_rejected") == Some(1));
    connect(&at, &second).unwrap();
    assert!(exchange(&at, "GET", "/").is_ok_and(|(status, _)| status == 0));
}

/// A server under TLS in front of another: its clients show a certificate.
fn in_front_of(to: SocketAddr, own: &Made, clients: &Made) -> SocketAddr {
    let mut roots = RootCertStore::empty();
    roots.add(clients.der.clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(roots.into()).build().unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own.der.clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, config) = (client.unwrap(), Arc::clone(&config));
            std::thread::spawn(move || carry(client, to, config));
        }
    });
    address
}

/// Carries bytes both ways until either side ends.
fn carry(client: TcpStream, to: SocketAddr, config: Arc<ServerConfig>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(to)?;
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(Duration::from_millis(2)))?;
    }
    let mut client = StreamOwned::new(ServerConnection::new(config).unwrap(), client);
    let mut bytes = [0; 16384];
    let is_quiet = |error: &std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
    };
    while client.conn.is_handshaking() {
        match client.conn.complete_io(&mut client.sock) {
            Err(error) if !is_quiet(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    loop {
        match client.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => server.write_all(&bytes[..count])?,
            Err(error) if is_quiet(&error) => {}
            Err(error) => return Err(error),
        }
        match server.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => client.write_all(&bytes[..count])?,
            Err(error) if is_quiet(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn a_control_plane_is_spoken_to_under_tls() {
    let scratch = Scratch::new();
    let (server, client) = (Made::new(), Made::new());
    let plane = super::planned(super::origin(Duration::ZERO));
    let front = in_front_of(plane.address, &server, &client);
    let resource = format!(
        "resources:\n- {{ \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, {}\n",
        client.certificate("own").trim_start_matches('{')
    );
    let file = scratch.write("own.yaml", &resource);
    let context = |name: &str| {
        format!(
            "    transport_socket:\n      name: tls\n      typed_config:\n        \
             \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext\n        \
             sni: app.test\n        common_tls_context:\n          \
             tls_certificate_sds_secret_configs: [ {{ name: own, sds_config: {{ path_config_source: {{ path: {} }} }} \
             }} ]\n          \
             validation_context:\n            trusted_ca: {{ inline_string: {} }}\n            \
             match_typed_subject_alt_names: [ {{ san_type: DNS, matcher: {{ exact: {name} }} }} ]\n    \
             load_assignment:",
            file.display(),
            text(&server.chain)
        )
    };
    for form in FORMS {
        let config = bootstrap(&tcp(front), form);
        let good = config.replacen("    load_assignment:", &context("app.test"), 1);
        let proxy = Proxy::start(&good, &[]);
        assert_eq!(ask(&proxy, "web"), (200, "hello".to_owned()), "{form}");
        // Another new listener, later.
        let more = super::listener("more", ANY_PORT, "table");
        let web = super::listener("web", ANY_PORT, "table");
        plane.set(Type::Listener, "l2", &[("web", &web), ("more", &more)]);
        until("another listener", || proxy.get("/listeners").1.contains("more::"));
        plane.set(Type::Listener, "l1", &[("web", &web)]);
    }
    // A server of another name is not believed.
    let streams = plane.streams();
    let config = bootstrap(&tcp(front), "GRPC");
    let bad = config.replacen("    load_assignment:", &context("other.test"), 1);
    let proxy = Proxy::launch(Scratch::new(), &bad, &[]);
    until("it fails", || proxy.stat("cluster_manager.cds.update_failure") > Some(0));
    assert_eq!(plane.streams(), streams);
    assert_eq!(proxy.stat("control_plane.connected_state"), Some(0));
}
