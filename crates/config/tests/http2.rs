//! Who speaks HTTP/2, and with which options.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use towpath_config::{Options, Source, Sources, load};
use towpath_engine::snapshot::Http2;
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::snapshot::listener::Terminal;
use towpath_proto::http1::Underscores;
use towpath_proto::http2;

/// How the clients of a connection manager with these fields speak HTTP/2, and the hosts of a cluster with those.
fn spoken(manager: &str, cluster: &str) -> [Option<Arc<Http2>>; 2] {
    let text = format!(
        "
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: 10000}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          route_config: {{virtual_hosts: []}}
          http_filters: \
          [{{name: router, typed_config: {{'@type': \
          type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]
          {manager}
  clusters: [{{name: a, type: STATIC, {cluster}}}]
"
    );
    let source = Sources::file(Source::yaml("t", &text));
    let loaded = load(&source, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let Terminal::Http(http) = &loaded.snapshot.listeners[0].chains[0].terminal else { panic!() };
    let id = loaded.snapshot.cluster_id("a").unwrap();
    [http.http2.clone(), loaded.snapshot.cluster(id).unwrap().http2.clone()]
}

fn of_clients(manager: &str) -> Option<Arc<Http2>> {
    spoken(manager, "").into_iter().next().unwrap()
}

/// With these `HttpProtocolOptions`.
fn of_hosts(options: &str, others: &str) -> Option<Arc<Http2>> {
    let name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let options = format!("{{'@type': type.googleapis.com/{name}, {options}}}");
    spoken("", &format!("typed_extension_protocol_options: {{{name}: {options}}}, {others}"))[1]
        .clone()
}

#[test]
fn clients_choose_unless_the_codec_is_fixed() {
    assert_eq!(of_clients("").unwrap().choice, Choice::Negotiated);
    assert_eq!(of_clients("codec_type: AUTO").unwrap().choice, Choice::Negotiated);
    assert_eq!(of_clients("codec_type: HTTP2").unwrap().choice, Choice::Always);
    assert_eq!(of_clients("codec_type: HTTP1"), None);
    // Without options Envoy's defaults.
    let options = &of_clients("").unwrap().options;
    assert_eq!(**options, http2::Options::default());
    assert_eq!((options.stream_window, options.connection_window), (16 << 20, 24 << 20));
    assert_eq!((options.max_concurrent_streams, options.header_table_size), (1024, 4096));
}

#[test]
fn every_option_arrives() {
    let http2 = of_clients(
        "max_request_headers_kb: 10
          common_http_protocol_options: {max_headers_count: 7, headers_with_underscores_action: DROP_HEADER}
          http2_protocol_options:
            hpack_table_size: 0
            max_concurrent_streams: 1
            initial_stream_window_size: 65535
            initial_connection_window_size: 65536
            max_outbound_frames: 2
            max_outbound_control_frames: 3
            max_consecutive_inbound_frames_with_empty_payload: 0
            max_inbound_priority_frames_per_stream: 4
            max_inbound_window_update_frames_per_data_frame_sent: 5
            connection_keepalive: {interval: 3s, timeout: 0.5s, interval_jitter: {value: 7.6}}",
    )
    .unwrap();
    let expected = http2::Options {
        header_table_size: 0,
        max_concurrent_streams: 1,
        stream_window: 65_535,
        connection_window: 65_536,
        max_head_bytes: 10 * 1024,
        max_fields: 7,
        max_outbound_frames: 2,
        max_outbound_control_frames: 3,
        max_empty_frames: 0,
        max_priority_frames: 4,
        max_window_updates: 5,
        underscores: Underscores::Drop,
        ..http2::Options::default()
    };
    assert_eq!(*http2.options, expected);
    let keepalive = http2.keepalive.unwrap();
    assert_eq!(keepalive.interval, Some(Duration::from_secs(3)));
    assert_eq!((keepalive.timeout, keepalive.jitter_percent), (Duration::from_millis(500), 8));
    let keepalive = |fields: &str| {
        let options = format!("http2_protocol_options: {{connection_keepalive: {{{fields}}}}}");
        of_clients(&options).unwrap().keepalive
    };
    assert_eq!(keepalive("timeout: 1s"), None);
    let ahead = keepalive("timeout: 1s, connection_idle_interval: 2s").unwrap();
    assert_eq!((ahead.interval, ahead.idle), (None, Some(Duration::from_secs(2))));
    assert_eq!(ahead.jitter_percent, 15);
}

/// Its own word counts most, then the connection manager's, then the one of old.
#[test]
fn a_malformed_message_ends_its_stream_or_the_connection() {
    let ends_stream =
        |manager: &str| of_clients(manager).unwrap().options.stream_error_on_malformed;
    let field = "stream_error_on_invalid_http_message";
    assert!(!ends_stream(""));
    assert!(ends_stream(&format!("{field}: true")));
    let own = format!("http2_protocol_options: {{override_{field}: false}}");
    assert!(!ends_stream(&format!("{field}: true\n          {own}")));
    assert!(ends_stream(&own.replace("false", "true")));
    let old = "http2_protocol_options: {stream_error_on_invalid_http_messaging: true}";
    assert!(ends_stream(old));
    assert!(!ends_stream(&format!("{field}: false\n          {old}")));
}

#[test]
fn a_cluster_speaks_what_its_options_say() {
    assert_eq!(of_hosts("explicit_http_config: {http_protocol_options: {}}", ""), None);
    let explicit = "explicit_http_config: {http2_protocol_options: {max_concurrent_streams: 9}}";
    let http2 = of_hosts(explicit, "").unwrap();
    assert_eq!(http2.choice, Choice::Always);
    assert_eq!(
        (http2.options.max_concurrent_streams, http2.options.max_head_bytes),
        (9, 60 * 1024)
    );
    let larger =
        format!("common_http_protocol_options: {{max_response_headers_kb: 61}}, {explicit}");
    assert_eq!(of_hosts(&larger, "").unwrap().options.max_head_bytes, 61 * 1024);
    let tls = "transport_socket: {name: tls, typed_config: \
               {'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext}}";
    assert_eq!(of_hosts("auto_config: {}", tls).unwrap().choice, Choice::Negotiated);
    let follows =
        "use_downstream_protocol_config: {http2_protocol_options: {max_concurrent_streams: 7}}";
    let follows = of_hosts(follows, "").unwrap();
    let said = (follows.choice, follows.options.max_concurrent_streams);
    assert_eq!(said, (Choice::AsDownstream, 7));
    let [_, of_old] = spoken("", "protocol_selection: USE_DOWNSTREAM_PROTOCOL");
    assert_eq!(of_old.unwrap().choice, Choice::AsDownstream);
    let [_, of_old] = spoken("", "http2_protocol_options: {hpack_table_size: 1}");
    let of_old = of_old.unwrap();
    assert_eq!((of_old.choice, of_old.options.header_table_size), (Choice::Always, 1));
}
