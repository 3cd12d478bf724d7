//! Two sidecars of a mesh that Istio configures: who they tell each other that they are, and what they count by it.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;

use common::{Proxy, Scratch, exchange_whole, until};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

/// Certificates of a trust domain, as files.
struct Domain {
    scratch: Scratch,
    root: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Domain {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = scratch.write("root.pem", &params.self_signed(&key).unwrap().pem());
        Self { scratch, root, issuer: Issuer::new(params, key) }
    }

    /// What a TLS context says of who its sidecar is, and of whom it trusts.
    fn context(&self, account: &str, trusts: &str) -> String {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        let id = format!("spiffe://cluster.local/ns/test/sa/{account}");
        params.subject_alt_names = vec![SanType::URI(id.try_into().unwrap())];
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        let chain = self.scratch.write(&format!("{account}.pem"), &chain);
        let key = self.scratch.write(&format!("{account}.key"), &key.serialize_pem());
        format!(
            "tls_certificates: [ {{ certificate_chain: {{ filename: {} }}, private_key: {{ filename: {} }} }} ], \
             validation_context: {{ trusted_ca: {{ filename: {} }}, match_typed_subject_alt_names: \
             [ {{ san_type: URI, matcher: {{ {trusts} }} }} ] }}",
            chain.display(),
            key.display(),
            self.root.display()
        )
    }
}

fn node(name: &str, service: &str) -> String {
    format!(
        "{{ id: sidecar~{name}, cluster: {service}.test, metadata: {{ NAME: {name}-0, NAMESPACE: test, \
         WORKLOAD_NAME: {name}, CLUSTER_ID: Kubernetes, ISTIO_VERSION: 1.31.0, \
         OWNER: kubernetes://apis/apps/v1/namespaces/test/deployments/{name}, \
         LABELS: {{ app: {service}, version: v1, service.istio.io/canonical-name: {service}, \
         service.istio.io/canonical-revision: v1 }} }} }}"
    )
}

const HTTP: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

fn http(prefix: &str, way: &str, alpn: &str, cluster: &str) -> String {
    format!(
        r#"
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        "@type": type.googleapis.com/{HTTP}
        stat_prefix: {prefix}
        http_filters:
        - name: istio.metadata_exchange
          typed_config:
            "@type": type.googleapis.com/udpa.type.v1.TypedStruct
            type_url: type.googleapis.com/io.istio.http.peer_metadata.Config
            value:
              {way}_discovery: [ {{ istio_headers: {{}} }}, {{ workload_discovery: {{}} }} ]
              {way}_propagation: [ {{ istio_headers: {{}} }} ]
{alpn}
        - name: istio.stats
          typed_config: {{ "@type": type.googleapis.com/stats.PluginConfig, disable_host_header_fallback: true }}
        - name: envoy.filters.http.router
          typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
        route_config:
          virtual_hosts:
          - {{ name: all, domains: ["*"], routes: [ {{ match: {{ prefix: / }}, route: {{ cluster: {cluster} }} }} ] }}
"#
    )
}

const ALPN: &str = r#"
        - name: istio.alpn
          typed_config:
            "@type": type.googleapis.com/istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig
            alpn_override:
            - { upstream_protocol: HTTP10, alpn_override: [ istio-http/1.0, istio, http/1.0 ] }
            - { upstream_protocol: HTTP11, alpn_override: [ istio-http/1.1, istio, http/1.1 ] }
            - { upstream_protocol: HTTP2, alpn_override: [ istio-h2, istio, h2 ] }
"#;

const EXCHANGE: &str = r#"
    - name: istio.metadata_exchange
      typed_config:
        "@type": type.googleapis.com/udpa.type.v1.TypedStruct
        type_url: type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange
        value: { enable_discovery: true, protocol: istio-peer-exchange }
"#;

/// Judges all that a client sends, as Istio's policies do.
const RBAC: &str = r#"
    - name: envoy.filters.network.rbac
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC
        stat_prefix: tcp.
        enforcement_type: CONTINUOUS
        rules:
          policies: { all: { permissions: [ { any: true } ],
            principals: [ { authenticated: { principal_name: { prefix: "spiffe://cluster.local/" } } } ] } }
"#;

fn tcp(cluster: &str) -> String {
    format!(
        r#"
    - name: istio.stats
      typed_config: {{ "@type": type.googleapis.com/stats.PluginConfig, tcp_reporting_duration: 0.2s }}
    - name: envoy.filters.network.tcp_proxy
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        stat_prefix: {cluster}
        cluster: {cluster}
"#
    )
}

fn listener(name: &str, direction: &str) -> String {
    format!(
        "  - name: {name}\n    traffic_direction: {direction}\n    \
         address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}\n"
    )
}

fn endpoint(at: &str, metadata: &str) -> String {
    let at: SocketAddr = at.parse().unwrap();
    let address =
        format!("{{ socket_address: {{ address: {}, port_value: {} }} }}", at.ip(), at.port());
    format!("{{ endpoint: {{ address: {address} }} {metadata} }}")
}

const ADMIN: &str = "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } \
}\nstatic_resources:\n  listeners:\n";

/// The sidecar of an app that answers HTTP at one address and opaque bytes at another.
fn server(domain: &Domain, http_at: SocketAddr, tcp_at: SocketAddr) -> Proxy {
    let context = domain.context("server", "prefix: spiffe://cluster.local/");
    let socket = |alpn: &str| {
        format!(
            "transport_socket: {{ name: tls, typed_config: {{ \"@type\": \
             type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, \
             require_client_certificate: true, common_tls_context: {{ alpn_protocols: [{alpn}], {context} }} }} }}"
        )
    };
    let (h1, raw) = (socket("h2, http/1.1"), socket("istio-peer-exchange, h2, http/1.1"));
    let cluster = |name: &str, at: SocketAddr| {
        format!(
            "  - {{ name: {name}, metadata: {{ filter_metadata: {{ istio: {{ services: [ {{ host: \
             echo.test.svc.cluster.local, name: echo, namespace: test }} ] }} }} }}, load_assignment: \
             {{ cluster_name: {name}, endpoints: [ {{ lb_endpoints: [ {} ] }} ] }} }}\n",
            endpoint(&at.to_string(), "")
        )
    };
    let chain = |matches: &str, filters: &str, socket: &str| {
        format!(
            "    - filter_chain_match: {{ {matches} }}\n      filters:{}\n      {socket}\n",
            filters.replace('\n', "\n  ")
        )
    };
    let of_http = "transport_protocol: tls, application_protocols: [istio-http/1.0, istio-http/1.1, istio-h2]";
    let text = format!(
        "node: {}\n{ADMIN}{}    listener_filters: [ {{ name: tls, typed_config: {{ \"@type\": \
         type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector }} }} ]\n    \
         filter_chains:\n{}{}  clusters:\n{}{}",
        node("server1", "echo"),
        listener("inbound", "INBOUND"),
        chain(of_http, &(EXCHANGE.to_owned() + &http("inbound", "downstream", "", "app")), &h1),
        chain("transport_protocol: tls", &(EXCHANGE.to_owned() + RBAC + &tcp("bytes")), &raw),
        cluster("app", http_at),
        cluster("bytes", tcp_at),
    );
    Proxy::start(&text, &["--concurrency", "1"])
}

/// The sidecar of its client.
fn client(domain: &Domain, server: &str) -> Proxy {
    let context = domain.context("client", "exact: spiffe://cluster.local/ns/test/sa/server");
    let workload =
        ", metadata: { filter_metadata: { istio: { workload: server1;test;echo;v1;Kubernetes } } }";
    let text = format!(
        r#"node: {}
{ADMIN}{}    filter_chains:
    - filters:{}
{}    filter_chains:
    - filters:{}
  clusters:
  - name: outbound|80||echo.test.svc.cluster.local
    metadata: {{ filter_metadata: {{ istio: {{ services: [ {{ host: echo.test.svc.cluster.local, name: echo,
      namespace: test }} ] }} }} }}
    filters:{}
    load_assignment:
      cluster_name: echo
      endpoints: [ {{ lb_endpoints: [ {} ] }} ]
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: outbound_.80_._.echo.test.svc.cluster.local
        common_tls_context: {{ alpn_protocols: [ istio-peer-exchange, istio ], {context} }}
"#,
        node("client", "client"),
        listener("http", "OUTBOUND"),
        http("outbound", "upstream", ALPN, "outbound|80||echo.test.svc.cluster.local")
            .replace('\n', "\n  "),
        listener("tcp", "OUTBOUND"),
        tcp("outbound|80||echo.test.svc.cluster.local").replace('\n', "\n  "),
        EXCHANGE,
        endpoint(server, workload),
    );
    Proxy::start(&text, &["--concurrency", "1"])
}

/// An app that serves each of its connections so.
fn app(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(stream));
        }
    });
    at
}

/// Answers each request with its head.
fn mirror(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|read| read > 0) {
        if head.ends_with("\r\n\r\n") {
            let length = head.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
            head.clear();
        }
    }
}

/// Greets, and then sends back what comes.
fn echo(mut stream: TcpStream) {
    let _ = stream.write_all(b"welcome ");
    let mut reader = stream.try_clone().unwrap();
    let _ = std::io::copy(&mut reader, &mut stream);
    let _ = stream.shutdown(Shutdown::Write);
}

/// A metric of Prometheus, with its labels.
fn metric(proxy: &Proxy, name: &str) -> Vec<String> {
    let (_, text) = proxy.get("/stats/prometheus");
    let lines = text.lines().filter(|line| line.split('{').next() == Some(name));
    lines.map(str::to_owned).collect()
}

const CLIENT: &str = "source_workload=\"client\",source_canonical_service=\"client\",source_canonical_revision=\"v1\",\
     source_workload_namespace=\"test\",source_principal=\"spiffe://cluster.local/ns/test/sa/client\",\
     source_app=\"client\",source_version=\"v1\",source_cluster=\"Kubernetes\"";
const SERVER: &str = "destination_workload=\"server1\",destination_workload_namespace=\"test\",\
     destination_principal=\"spiffe://cluster.local/ns/test/sa/server\",destination_app=\"echo\",\
     destination_version=\"v1\",destination_service=\"echo.test.svc.cluster.local\",\
     destination_canonical_service=\"echo\",destination_canonical_revision=\"v1\",\
     destination_service_name=\"echo\",destination_service_namespace=\"test\",destination_cluster=\"Kubernetes\"";

#[test]
fn sidecars_know_each_other_by_headers() {
    let domain = Domain::new();
    let server = server(&domain, app(mirror), app(echo));
    let client = client(&domain, &server.listener("inbound"));
    for _ in 0..3 {
        let answer = exchange_whole(&client.listener("http"), "GET", "/a").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\n\r\nGET /a HTTP/1.1\r\n"), "{answer}");
        assert!(!answer.contains("x-envoy-peer-metadata"), "it is taken out: {answer}");
    }
    let last = "request_protocol=\"http\",response_code=\"200\",grpc_response_status=\"\",response_flags=\"-\"";
    let expected = format!(
        "istio_requests_total{{reporter=\"source\",{CLIENT},{SERVER},{last},connection_security_policy=\"unknown\"}} 3"
    );
    until("the client's sidecar tells", || !metric(&client, "istio_requests_total").is_empty());
    assert_eq!(metric(&client, "istio_requests_total"), [expected]);
    let expected = format!(
        "istio_requests_total{{reporter=\"destination\",{CLIENT},{SERVER},{last},\
        connection_security_policy=\"mutual_tls\"}} 3"
    );
    assert_eq!(metric(&server, "istio_requests_total"), [expected]);
    for name in ["request_duration_milliseconds", "request_bytes", "response_bytes"] {
        let lines = metric(&client, &format!("istio_{name}_count"));
        assert!(lines.len() == 1 && lines[0].ends_with(" 3"), "{lines:?}");
    }
    // What the connection offered led to the chain of HTTP.
    assert_eq!(server.stat("http.inbound.downstream_rq_2xx"), Some(3));
    assert_eq!(server.stat("metadata_exchange.alpn_protocol_found"), Some(0));
    assert_eq!(
        metric(&client, "istio_build"),
        ["istio_build{component=\"proxy\",tag=\"1.31.0\"} 1"]
    );
    let (_, text) = client.get("/stats?filter=^istiocustom.istio_requests_total");
    assert!(
        text.starts_with(
            "istiocustom.istio_requests_total.reporter.source.source_workload.client."
        )
    );
}

#[test]
fn sidecars_greet_each_other_before_the_bytes_of_apps() {
    let domain = Domain::new();
    let server = server(&domain, app(mirror), app(echo));
    let client = client(&domain, &server.listener("inbound"));
    let mut stream = TcpStream::connect(client.listener("tcp")).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    // The app at the other end speaks first.
    let mut said = [0; 8];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"welcome ");
    stream.write_all(b"hello").unwrap();
    let mut said = [0; 5];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"hello");
    let last = |policy: &str| {
        format!(
            "request_protocol=\"tcp\",response_flags=\"-\",connection_security_policy=\"{policy}\""
        )
    };
    let of_client = format!("{{reporter=\"source\",{CLIENT},{SERVER},{}}}", last("unknown"));
    let of_server =
        format!("{{reporter=\"destination\",{CLIENT},{SERVER},{}}}", last("mutual_tls"));
    for (proxy, labels) in [(&client, &of_client), (&server, &of_server)] {
        until("it is told while it goes on", || {
            metric(proxy, "istio_tcp_sent_bytes_total")
                == [format!("istio_tcp_sent_bytes_total{labels} 13")]
        });
        let is = |name: &str, value: u64| {
            let name = format!("istio_tcp_{name}");
            until(&name, || metric(proxy, &name) == [format!("{name}{labels} {value}")]);
        };
        is("connections_opened_total", 1);
        is("received_bytes_total", 5);
        assert_eq!(metric(proxy, "istio_tcp_connections_closed_total").len(), 1);
    }
    stream.write_all(b" again").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, " again");
    for (proxy, labels) in [(&client, &of_client), (&server, &of_server)] {
        let name = "istio_tcp_connections_closed_total";
        until("it is closed", || metric(proxy, name) == [format!("{name}{labels} 1")]);
        let name = "istio_tcp_received_bytes_total";
        assert_eq!(metric(proxy, name), [format!("{name}{labels} 11")]);
        assert_eq!(proxy.stat("metadata_exchange.alpn_protocol_found"), Some(1));
        assert_eq!(proxy.stat("metadata_exchange.metadata_added"), Some(1));
    }
}
