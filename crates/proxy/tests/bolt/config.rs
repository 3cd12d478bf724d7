//! Pieces of configurations for the stories beside this file.

use std::net::SocketAddr;

/// One listener with these routes of Bolt, and these clusters.
pub(crate) fn routed(routes: &str, access_log: &str, clusters: &[String]) -> String {
    bootstrap(&[rpc("ingress", routes, access_log)], clusters)
}

pub(crate) fn bootstrap(listeners: &[String], clusters: &[String]) -> String {
    format!(
        r"
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
static_resources:
  listeners:{}
  clusters:{}
",
        listeners.concat(),
        clusters.concat()
    )
}

/// A listener for Bolt.
pub(crate) fn rpc(name: &str, routes: &str, access_log: &str) -> String {
    listener(
        name,
        &format!(
            r#"name: towpath.filters.network.bolt_proxy
        typed_config:
          "@type": type.googleapis.com/xds.type.v3.TypedStruct
          type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltProxy
          value: {{ stat_prefix: rpc, routes: [ {routes} ], access_log: [ {access_log} ] }}"#
        ),
    )
}

/// A listener for HTTP.
pub(crate) fn http(name: &str, routes: &str) -> String {
    listener(
        name,
        &format!(
            r#"name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          route_config: {{ virtual_hosts: [ {{ name: all, domains: ["*"], routes: [ {routes} ] }} ] }}
          http_filters:
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}"#
        ),
    )
}

fn listener(name: &str, filter: &str) -> String {
    format!(
        "
  - name: {name}
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - {filter}"
    )
}

/// A cluster of one host that speaks Bolt, with these options and this beside them.
pub(crate) fn server(name: &str, address: SocketAddr, options: &str, rest: &str) -> String {
    let speaks = format!(
        r#"
    typed_extension_protocol_options:
      towpath.extensions.bolt.v1.BoltProtocolOptions:
        "@type": type.googleapis.com/xds.type.v3.TypedStruct
        type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltProtocolOptions
        value: {{ {options} }}{rest}"#
    );
    cluster(name, address, &speaks)
}

/// A cluster of one host.
pub(crate) fn cluster(name: &str, address: SocketAddr, rest: &str) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        "
  - name: {name}
    type: STATIC
    connect_timeout: 1s{rest}
    load_assignment:
      cluster_name: {name}
      endpoints: [ \
      {{ lb_endpoints: [ {{ endpoint: {{ address: \
      {{ socket_address: {{ address: {ip}, port_value: {port} }} }} }} }} ] }} ]"
    )
}
