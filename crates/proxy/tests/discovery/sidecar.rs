//! A sidecar as Istio's agent starts it: its flags, its sockets, what it asks the admin port, and resources in the
//! shape of a mesh as it is installed.

use std::net::TcpListener;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use towpath_xds::Type;

use super::common::{Proxy, Scratch, exchange, origin, program, until};
use super::control_plane::{ControlPlane, Place};
use super::{endpoints, tcp};

/// The agent's, but for the bootstrap's path and the workers.
const FLAGS: [&str; 11] = [
    "--drain-time-s",
    "45",
    "--drain-strategy",
    "immediate",
    "--local-address-ip-version",
    "v4",
    "--disable-hot-restart",
    "--allow-unknown-static-fields",
    "--component-log-level",
    "misc:error",
    "--skip-deprecated-logs",
];

const BOOTSTRAP: &str = r#"
node:
  id: sidecar~10.0.0.1~client-0.test~test.svc.cluster.local
  cluster: client.test
  metadata:
    NAME: client-0
    NAMESPACE: test
    WORKLOAD_NAME: client
    CLUSTER_ID: Kubernetes
    ISTIO_VERSION: 1.31.0
    LABELS: { app: client, version: v1, service.istio.io/canonical-name: client,
      service.istio.io/canonical-revision: v1 }
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
bootstrap_extensions:
- name: envoy.bootstrap.internal_listener
  typed_config:
    "@type": type.googleapis.com/udpa.type.v1.TypedStruct
    type_url: type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener
dynamic_resources:
  ads_config:
    api_type: DELTA_GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services: [ { envoy_grpc: { cluster_name: xds-grpc } } ]
  cds_config: { ads: {}, resource_api_version: V3, initial_fetch_timeout: 0s }
  lds_config: { ads: {}, resource_api_version: V3, initial_fetch_timeout: 0s }
stats_config:
  use_all_default_tags: false
  stats_tags: [ { tag_name: cluster_name, regex: '^cluster(\.(.+);)' } ]
  stats_matcher: { inclusion_list: { patterns: [ { prefix: cluster_manager }, { prefix: listener_manager },
    { prefix: server }, { prefix: istio } ] } }
static_resources:
  clusters:
  - name: xds-grpc
    typed_extension_protocol_options: &h2
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment: { cluster_name: xds-grpc,
      endpoints: [ { lb_endpoints: [ { endpoint: { address: { pipe: { path: ./XDS } } } } ] } ] }
  - name: sds-grpc
    typed_extension_protocol_options: *h2
    load_assignment: { cluster_name: sds-grpc,
      endpoints: [ { lb_endpoints: [ { endpoint: { address: { pipe: { path: ./SDS } } } } ] } ] }
"#;

/// What a TLS context says of secrets.
fn secrets(more: &str) -> String {
    let source = "sds_config: { resource_api_version: V3, initial_fetch_timeout: 0s, api_config_source: { api_type: \
    GRPC, \
                  transport_api_version: V3, set_node_on_first_message_only: true, \
                  grpc_services: [ { envoy_grpc: { cluster_name: sds-grpc } } ] } }";
    format!(
        "tls_certificate_sds_secret_configs: [ {{ name: default, {source} }} ], combined_validation_context: \
         {{ default_validation_context: {{ {more} }}, validation_context_sds_secret_config: {{ name: ROOTCA, {source} \
         }} }}"
    )
}

fn outbound(name: &str) -> String {
    let context =
        secrets("match_subject_alt_names: [ { exact: spiffe://cluster.local/ns/test/sa/client } ]");
    format!(
        r#"
name: {name}
type: EDS
connect_timeout: 1s
lb_policy: LEAST_REQUEST
eds_cluster_config: {{ service_name: {name}, eds_config: {{ ads: {{}}, resource_api_version: V3,
  initial_fetch_timeout: 0s }} }}
metadata: {{ filter_metadata: {{ istio: {{ services: [ {{ host: echo.test.svc.cluster.local, name: echo,
  namespace: test }} ] }} }} }}
filters:
- name: istio.metadata_exchange
  typed_config:
    "@type": type.googleapis.com/udpa.type.v1.TypedStruct
    type_url: type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange
    value: {{ enable_discovery: true, protocol: istio-peer-exchange }}
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    use_downstream_protocol_config: {{ http_protocol_options: {{}}, http2_protocol_options: {{}} }}
transport_socket_matches:
- name: tlsMode-istio
  match: {{ tlsMode: istio }}
  transport_socket:
    name: envoy.transport_sockets.tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      sni: outbound_.80_._.echo.test.svc.cluster.local
      common_tls_context: {{ alpn_protocols: [ istio-peer-exchange, istio ], {context} }}
- name: tlsMode-disabled
  match: {{}}
  transport_socket:
    name: envoy.transport_sockets.raw_buffer
    typed_config: {{ "@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer }}
"#
    )
}

/// The connection manager of one side.
fn http(side: &str, filters: &str, route: &str) -> String {
    format!(
        r#"
  - name: envoy.filters.network.http_connection_manager
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: {side}
      use_remote_address: false
      http_filters:
{filters}
      - name: envoy.filters.http.grpc_stats
        typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.grpc_stats.v3.FilterConfig,
          emit_filter_state: true, stats_for_all_methods: false }}
      - name: istio.stats
        typed_config: {{ "@type": type.googleapis.com/stats.PluginConfig, disable_host_header_fallback: true }}
      - name: envoy.filters.http.router
        typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
      {route}
"#
    )
}

fn exchange_filter(way: &str) -> String {
    format!(
        "      - name: istio.metadata_exchange\n        typed_config:\n          \"@type\": \
         type.googleapis.com/udpa.type.v1.TypedStruct\n          type_url: \
         type.googleapis.com/io.istio.http.peer_metadata.Config\n          value: {{ {way}_discovery: \
         [ {{ istio_headers: {{}} }}, {{ workload_discovery: {{}} }} ], {way}_propagation: [ {{ istio_headers: {{}} \
         }} ] }}\n"
    )
}

const ALPN: &str = r#"      - name: istio.alpn
        typed_config:
          "@type": type.googleapis.com/istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig
          alpn_override: [ { upstream_protocol: HTTP11, alpn_override: [ istio-http/1.1, istio, http/1.1 ] },
            { upstream_protocol: HTTP2, alpn_override: [ istio-h2, istio, h2 ] } ]
"#;

#[test]
fn a_sidecar_serves_in_the_default_mode_of_a_mesh() {
    let scratch = Scratch::new();
    let planes = ["XDS", "SDS"].map(|name| ControlPlane::start_at(Place::Unix(scratch.path(name))));
    let [xds, sds] = &planes;
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let inbound_at = free.local_addr().unwrap();
    drop(free);
    let name = "outbound|80||echo.test.svc.cluster.local";
    let app = origin(Duration::ZERO);
    let inbound_cluster = format!(
        "{{ name: 'inbound|8080||', load_assignment: {{ cluster_name: i, endpoints: [ {{ lb_endpoints: \
         [ {{ endpoint: {{ address: {} }} }} ] }} ] }} }}",
        tcp(app)
    );
    xds.set(Type::Cluster, "c1", &[(name, &outbound(name)), ("inbound|8080||", &inbound_cluster)]);
    let at = endpoints(name, inbound_at).replace(
        "endpoint: {",
        "metadata: { filter_metadata: { envoy.transport_socket_match: { tlsMode: istio }, \
         istio: { workload: client;test;client;v1;Kubernetes } } }, endpoint: {",
    );
    xds.set(Type::Endpoints, "e1", &[(name, &at)]);
    let rds = "rds: { route_config_name: \"80\", config_source: { ads: {}, resource_api_version: V3, \
    initial_fetch_timeout: 0s } }";
    let of_client = http("outbound", &(exchange_filter("upstream") + ALPN), rds);
    let of_server = http(
        "inbound",
        &exchange_filter("downstream"),
        "route_config: { name: inbound, virtual_hosts: [ { name: all, domains: ['*'], routes: \
         [ { match: { prefix: / }, route: { cluster: 'inbound|8080||' } } ] } ] }",
    );
    let outbound_listener = format!(
        "name: 0.0.0.0_80\ntraffic_direction: OUTBOUND\naddress: {}\nfilter_chains:\n- filters:{of_client}",
        super::ANY_PORT
    );
    let tls = secrets("match_subject_alt_names: [ { prefix: 'spiffe://cluster.local/' } ]");
    let inbound_listener = format!(
        "name: virtualInbound\ntraffic_direction: INBOUND\naddress: {}\nlistener_filters:\n- name: tls\n  \
        typed_config: {{ \
         \"@type\": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector \
         }}\nfilter_chains:\n\
         - filter_chain_match: {{ transport_protocol: tls, application_protocols: [ istio-http/1.1, istio-h2 ] }}\n  \
         filters:{of_server}\n  \
         transport_socket:\n    name: tls\n    typed_config: {{ \"@type\": \
         type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, \
         require_client_certificate: true, \
         common_tls_context: {{ alpn_protocols: [ h2, http/1.1 ], {tls} }} }}\n",
        tcp(inbound_at)
    );
    xds.set(
        Type::Listener,
        "l1",
        &[("0.0.0.0_80", &outbound_listener), ("virtualInbound", &inbound_listener)],
    );
    let table = format!(
        "{{ name: \"80\", virtual_hosts: [ {{ name: echo, domains: ['*'], routes: [ {{ match: {{ prefix: / }}, \
         route: {{ cluster: '{name}' }} }} ] }} ] }}"
    );
    xds.set(Type::Routes, "r1", &[("80", &table)]);

    let mut command = program();
    command.current_dir(scratch.path("."));
    let proxy = Proxy::run(command, scratch, BOOTSTRAP, &FLAGS);
    // The readiness probe of the agent: first whether there was an update, then whether it serves.
    let filter =
        r"^(cluster_manager\.cds|listener_manager\.lds)\.(update_success|update_rejected)$";
    let updates = || proxy.get(&format!("/stats?usedonly&filter={filter}")).1;
    until("both have come", || updates().contains("cluster_manager.cds.update_success: 1"));
    // Without certificates it does not serve.
    let state = || {
        proxy.get(r"/stats?usedonly&filter=^(server\.state|listener_manager\.workers_started)").1
    };
    assert!(!state().contains("server.state: 0"), "{}", state());
    let (chain, key, root) = identity();
    let text = |text: &str| serde_json::Value::from(text);
    sds.set(
        Type::Secret,
        "s1",
        &[
            (
                "default",
                &format!(
                    "{{ name: default, tls_certificate: {{ certificate_chain: {{ inline_string: {} }}, private_key: \
                    {{ inline_string: {} }} }} }}",
                    text(&chain),
                    text(&key)
                ),
            ),
            (
                "ROOTCA",
                &format!(
                    "{{ name: ROOTCA, validation_context: {{ trusted_ca: {{ inline_string: {} }} }} }}",
                    text(&root)
                ),
            ),
        ],
    );
    until("it is ready", || {
        state() == "listener_manager.workers_started: 1\nserver.state: 0\n"
            && updates()
                == "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 1\n"
    });
    assert_eq!(
        exchange(&proxy.listener("0.0.0.0_80"), "GET", "/").unwrap(),
        (200, "hello".to_owned())
    );
    let (_, metrics) = proxy.get("/stats/prometheus");
    let total = |reporter: &str, rest: &str| {
        let of_reporter = format!("istio_requests_total{{reporter=\"{reporter}\",");
        metrics.lines().any(|line| {
            line.starts_with(&of_reporter)
                && rest.split(' ').all(|part| line.contains(part))
                && line.ends_with(" 1")
        })
    };
    let both = "source_workload=\"client\" destination_workload=\"client\" response_code=\"200\" \
                source_principal=\"spiffe://cluster.local/ns/test/sa/client\" \
                destination_service=\"echo.test.svc.cluster.local\"";
    assert!(total("source", both), "{metrics}");
    let secured = "source_workload=\"client\" connection_security_policy=\"mutual_tls\" \
    destination_service_name=\"client\"";
    assert!(total("destination", secured), "{metrics}");
    assert_eq!(sds.last(Type::Secret).unwrap().error, None);
    assert_eq!(proxy.post("/drain_listeners?inboundonly&graceful").0, 200);
}

/// The certificate and key of a workload, and who has signed it.
fn identity() -> (String, String, String) {
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    let id = "spiffe://cluster.local/ns/test/sa/client".to_owned();
    params.subject_alt_names = vec![SanType::URI(id.try_into().unwrap())];
    (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem(), root)
}
