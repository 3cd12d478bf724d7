//! What is said of the sockets of listeners and of the connections to clusters.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use towpath_config::{Loaded, Options, Source, Sources, load};
use towpath_engine::snapshot::Cluster;
use towpath_proto::Keepalive;

const IP: &str = "address: {socket_address: {address: 127.0.0.1, port_value: 10000}}";

/// A listener with these fields, whose first chain has those.
fn listening(listener: &str, chain: &str) -> Result<Loaded, String> {
    let text = format!(
        "
static_resources:
  listeners:
  - {listener}
    filter_chains:
    - filters:
      - {{name: echo, typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}}}
      {chain}
"
    );
    loaded(&text)
}

fn loaded(text: &str) -> Result<Loaded, String> {
    let source = Sources::file(Source::yaml("t", text));
    load(&source, &Options::default()).map_err(|error| error.to_string())
}

/// The only cluster, with these fields.
fn cluster(fields: &str) -> Result<Arc<Cluster>, String> {
    let loaded = loaded(&format!("static_resources: {{clusters: [{{name: a, {fields}}}]}}"))?;
    let id = loaded.snapshot.cluster_id("a").unwrap();
    Ok(Arc::clone(loaded.snapshot.cluster(id).unwrap()))
}

#[test]
fn a_listener_probes_its_clients() {
    let options = |fields: &str| {
        let loaded = listening(&format!("{IP}\n    {fields}"), "").unwrap();
        loaded.snapshot.listeners[0].options.clone()
    };
    assert_eq!(options("").keepalive, None);
    assert_eq!(options("tcp_keepalive: {}").keepalive, Some(Keepalive::default()));
    let all = "tcp_keepalive: {keepalive_probes: 3, keepalive_time: 9, keepalive_interval: 2}";
    let wanted = Keepalive {
        time: Some(Duration::from_secs(9)),
        interval: Some(Duration::from_secs(2)),
        probes: Some(3),
    };
    assert_eq!(options(all).keepalive, Some(wanted));
}

#[test]
fn several_paths_are_of_ip_alone() {
    let multipath = "enable_mptcp: true";
    let loaded = listening(&format!("{IP}\n    {multipath}"), "").unwrap();
    assert!(loaded.snapshot.listeners[0].options.multipath);
    let error = listening(&format!("address: {{pipe: {{path: /t}}}}\n    {multipath}"), "");
    assert!(error.unwrap_err().contains("enable_mptcp can only be used with IP addresses"));
}

#[test]
fn options_of_datagrams_are_not_set() {
    let option = |kind: &str| format!("{{level: 1, name: 9, int_value: 1, {kind}}}");
    let options = ["", "type: {}", "type: {stream: {}}", "type: {datagram: {}}"].map(option);
    let loaded = listening(&format!("{IP}\n    socket_options: [{}]", options.join(", ")), "");
    assert_eq!(loaded.unwrap().snapshot.listeners[0].options.socket_options.len(), 3);
}

#[test]
fn the_first_chain_may_want_a_proxys_header() {
    let filters =
        |chain: &str| listening(IP, chain).unwrap().snapshot.listeners[0].filters.list.len();
    assert_eq!(filters("use_proxy_proto: true"), 1);
    assert_eq!(filters("use_proxy_proto: false"), 0);
    assert_eq!(filters(""), 0);
}

#[test]
fn clients_may_share_no_connections() {
    let own = "connection_pool_per_downstream_connection: true";
    assert!(cluster(own).unwrap().pool_per_client);
    assert!(!cluster("type: STATIC").unwrap().pool_per_client);
    assert_eq!(cluster(own).unwrap().idle_timeout, Some(Duration::from_secs(60)));
}

#[test]
fn a_host_has_tlvs_of_its_own() {
    let host = |config: &str| {
        cluster(&format!(
            "load_assignment: {{cluster_name: a, endpoints: [{{lb_endpoints: [{{\
             endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 1}}}}}}, \
             metadata: {{typed_filter_metadata: {{envoy.transport_sockets.proxy_protocol: {{\
             '@type': type.googleapis.com/envoy.config.core.v3.{config}}}}}}}}}]}}]}}"
        ))
        .map(|cluster| cluster.endpoints[0].tlvs.clone())
    };
    let tlvs = host("PerHostConfig, added_tlvs: [{type: 7, value: YQ==}]").unwrap().unwrap();
    assert_eq!((tlvs.len(), tlvs[0].kind, &*tlvs[0].value), (1, 7, &b"a"[..]));
    assert_eq!(host("PerHostConfig"), Ok(None));
    assert_eq!(host("TlvEntry, type: 7, value: YQ=="), Ok(None));
    // Of a host Envoy reads the value alone.
    let formatted = "{type: 7, format_string: {text_format_source: {inline_string: a}}}";
    for empty in ["{type: 7}", formatted] {
        let tlvs = host(&format!("PerHostConfig, added_tlvs: [{empty}]")).unwrap().unwrap();
        assert_eq!((tlvs[0].kind, &*tlvs[0].value), (7, &b""[..]), "{empty}");
    }
    assert!(host("PerHostConfig, added_tlvs: [{type: 256, value: YQ==}]").is_err());
}
