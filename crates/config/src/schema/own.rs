//! Messages that the packaged descriptors lack: Towpath's own, which no proto file has, and Istio's. The build script
//! encodes them.
//!
//! They are configured through a `TypedStruct` or as themselves, and are typed, checked and reported like Envoy's own.

/// One message: its name and its fields.
type Message = (&'static str, &'static [Field]);
/// Name, type, and what the others are to it.
type Field = (&'static str, Type, Place);
/// An enum: its name and its values, the first of them 0.
type Choice = (&'static str, &'static [&'static str]);

#[derive(Clone, Copy)]
enum Type {
    Bool,
    Int32,
    String,
    /// From strings to strings.
    Map,
    /// A message or, with its leading `.`, a full name.
    Of(&'static str),
    /// An enum.
    Enum(&'static str),
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    One,
    Many,
    /// One of the message's only oneof.
    Either,
}

use Place::{Either, Many, One};
use Type::{Bool, Enum, Int32, Map, Of};

const PACKAGE: &str = "towpath.extensions.bolt.v1";
const DURATION: Type = Of(".google.protobuf.Duration");
const NUMBER: Type = Of(".google.protobuf.UInt32Value");
const STRING_MATCHER: Type = Of(".envoy.type.matcher.v3.StringMatcher");

const IMPORTS: [&str; 6] = [
    "envoy/config/accesslog/v3/accesslog.proto",
    "envoy/config/core/v3/base.proto",
    "envoy/config/route/v3/route_components.proto",
    "envoy/type/matcher/v3/string.proto",
    "google/protobuf/duration.proto",
    "google/protobuf/wrappers.proto",
];

const MESSAGES: [Message; 12] = [
    (
        "BoltProxy",
        &[
            ("stat_prefix", Type::String, One),
            ("routes", Of(".towpath.extensions.bolt.v1.Route"), Many),
            ("access_log", Of(".envoy.config.accesslog.v3.AccessLog"), Many),
            ("idle_timeout", DURATION, One),
            ("max_requests_in_flight", NUMBER, One),
            ("max_frame_bytes", NUMBER, One),
            ("max_unread_bytes", NUMBER, One),
            ("max_held_bytes", NUMBER, One),
            ("go_away", Bool, One),
        ],
    ),
    (
        "Route",
        &[
            ("name", Type::String, One),
            ("match", Of(".towpath.extensions.bolt.v1.RouteMatch"), One),
            ("route", Of(".towpath.extensions.bolt.v1.RouteAction"), One),
        ],
    ),
    (
        "RouteMatch",
        &[
            ("service", STRING_MATCHER, One),
            ("method", STRING_MATCHER, One),
            ("headers", Of(".towpath.extensions.bolt.v1.HeaderMatch"), Many),
        ],
    ),
    (
        "HeaderMatch",
        &[
            ("name", Type::String, One),
            ("string_match", STRING_MATCHER, One),
            ("invert_match", Bool, One),
        ],
    ),
    (
        "RouteAction",
        &[
            ("cluster", Type::String, Either),
            ("weighted_clusters", Of(".towpath.extensions.bolt.v1.WeightedClusters"), Either),
            ("timeout", DURATION, One),
            ("retry_policy", Of(".envoy.config.route.v3.RetryPolicy"), One),
            ("priority", Enum(".envoy.config.core.v3.RoutingPriority"), One),
            ("http", Of(".towpath.extensions.bolt.v1.HttpBridge"), One),
        ],
    ),
    (
        "HttpBridge",
        &[
            ("method", Type::String, One),
            ("host", Type::String, One),
            ("path_prefix", Type::String, One),
            ("content_type", Type::String, One),
            ("class", Type::String, One),
            ("max_response_bytes", NUMBER, One),
        ],
    ),
    (
        "BoltBridge",
        &[
            ("service", Type::String, One),
            ("method", Type::String, One),
            ("class", Type::String, One),
            ("codec", NUMBER, One),
            ("version", NUMBER, One),
            ("checksum", Bool, One),
            ("content_type", Type::String, One),
            ("max_request_bytes", NUMBER, One),
        ],
    ),
    ("WeightedClusters", &[("clusters", Of(".towpath.extensions.bolt.v1.WeightedCluster"), Many)]),
    ("WeightedCluster", &[("name", Type::String, One), ("weight", NUMBER, One)]),
    (
        "BoltProtocolOptions",
        &[
            ("connections_per_host", NUMBER, One),
            ("max_requests_in_flight", NUMBER, One),
            ("max_frame_bytes", NUMBER, One),
            ("heartbeat", Of(".towpath.extensions.bolt.v1.Heartbeat"), One),
        ],
    ),
    (
        "Heartbeat",
        &[("interval", DURATION, One), ("timeout", DURATION, One), ("misses", NUMBER, One)],
    ),
    ("BoltHealthCheck", &[("version", NUMBER, One)]),
];

/// What the packaged descriptors lack of `xds.type.matcher.v3`.
const MATCHERS: &str = "xds.type.matcher.v3";
const MATCHER_IMPORTS: [&str; 3] =
    ["xds/core/v3/cidr.proto", "xds/type/matcher/v3/matcher.proto", "xds/type/v3/cel.proto"];
const MATCHER_MESSAGES: [Message; 4] = [
    ("IPMatcher", &[("range_matchers", Of(".xds.type.matcher.v3.IPRangeMatcher"), Many)]),
    // In Envoy it is a part of `IPMatcher`; its name is written nowhere.
    (
        "IPRangeMatcher",
        &[
            ("ranges", Of(".xds.core.v3.CidrRange"), Many),
            ("on_match", Of(".xds.type.matcher.v3.Matcher.OnMatch"), One),
            ("exclusive", Bool, One),
        ],
    ),
    (
        "CelMatcher",
        &[
            ("expr_match", Of(".xds.type.v3.CelExpression"), One),
            ("description", Type::String, One),
        ],
    ),
    ("HttpAttributesCelMatchInput", &[]),
];

/// What carries a type's URL and an untyped value, by its name and by the one that Istio still gives it.
const TYPED_STRUCT: &str = "xds.type.v3";
const OLD_TYPED_STRUCT: &str = "udpa.type.v1";
const TYPED_STRUCT_MESSAGES: [Message; 1] = [(
    "TypedStruct",
    &[("type_url", Type::String, One), ("value", Of(".google.protobuf.Struct"), One)],
)];

/// Istio's `stats.PluginConfig` (`istio.io/api`, `envoy/extensions/stats`): the fields have the numbers of their
/// places.
const STATS: &str = "stats";
const STATS_MESSAGES: [Message; 3] = [
    (
        "PluginConfig",
        &[
            ("debug", Bool, One),
            ("max_peer_cache_size", Int32, One),
            ("stat_prefix", Type::String, One),
            ("field_separator", Type::String, One),
            ("value_separator", Type::String, One),
            ("disable_host_header_fallback", Bool, One),
            ("tcp_reporting_duration", DURATION, One),
            ("metrics", Of(".stats.MetricConfig"), Many),
            ("definitions", Of(".stats.MetricDefinition"), Many),
            ("reporter", Enum(".stats.Reporter"), One),
            ("rotation_interval", DURATION, One),
            ("graceful_deletion_interval", DURATION, One),
        ],
    ),
    (
        "MetricConfig",
        &[
            ("dimensions", Map, Many),
            ("name", Type::String, One),
            ("tags_to_remove", Type::String, Many),
            ("match", Type::String, One),
            ("drop", Bool, One),
        ],
    ),
    (
        "MetricDefinition",
        &[
            ("name", Type::String, One),
            ("value", Type::String, One),
            ("type", Enum(".stats.MetricType"), One),
        ],
    ),
];
const STATS_ENUMS: [Choice; 2] = [
    ("Reporter", &["UNSPECIFIED", "SERVER_GATEWAY"]),
    ("MetricType", &["COUNTER", "GAUGE", "HISTOGRAM"]),
];

/// Istio's `alpn.v2alpha1.FilterConfig`. What is nested there stands beside it here: its name is written nowhere.
const ALPN: &str = "istio.envoy.config.filter.http.alpn.v2alpha1";
const ALPN_MESSAGES: [Message; 2] = [
    (
        "FilterConfig",
        &[(
            "alpn_override",
            Of(".istio.envoy.config.filter.http.alpn.v2alpha1.AlpnOverride"),
            Many,
        )],
    ),
    (
        "AlpnOverride",
        &[
            (
                "upstream_protocol",
                Enum(".istio.envoy.config.filter.http.alpn.v2alpha1.Protocol"),
                One,
            ),
            ("alpn_override", Type::String, Many),
        ],
    ),
];
const ALPN_ENUMS: [Choice; 1] = [("Protocol", &["HTTP10", "HTTP11", "HTTP2"])];

/// Istio's `metadata_exchange` of HTTP (Envoy `contrib/istio/filters/http/peer_metadata`), likewise.
const PEER: &str = "io.istio.http.peer_metadata";
const PEER_MESSAGES: [Message; 7] = [
    (
        "Config",
        &[
            ("downstream_discovery", Of(".io.istio.http.peer_metadata.DiscoveryMethod"), Many),
            ("upstream_discovery", Of(".io.istio.http.peer_metadata.DiscoveryMethod"), Many),
            ("downstream_propagation", Of(".io.istio.http.peer_metadata.PropagationMethod"), Many),
            ("upstream_propagation", Of(".io.istio.http.peer_metadata.PropagationMethod"), Many),
            ("shared_with_upstream", Bool, One),
            ("additional_labels", Type::String, Many),
        ],
    ),
    (
        "DiscoveryMethod",
        &[
            ("baggage", Of(".io.istio.http.peer_metadata.Baggage"), Either),
            ("workload_discovery", Of(".io.istio.http.peer_metadata.WorkloadDiscovery"), Either),
            ("istio_headers", Of(".io.istio.http.peer_metadata.IstioHeaders"), Either),
            (
                "upstream_filter_state",
                Of(".io.istio.http.peer_metadata.UpstreamFilterState"),
                Either,
            ),
        ],
    ),
    (
        "PropagationMethod",
        &[
            ("istio_headers", Of(".io.istio.http.peer_metadata.IstioHeaders"), Either),
            ("baggage", Of(".io.istio.http.peer_metadata.Baggage"), Either),
        ],
    ),
    ("Baggage", &[]),
    ("WorkloadDiscovery", &[]),
    ("IstioHeaders", &[("skip_external_clusters", Bool, One)]),
    ("UpstreamFilterState", &[("peer_metadata_key", Type::String, One)]),
];

/// The same of TCP (`istio.io/api`, `envoy/config/filter/network/metadata_exchange`).
const EXCHANGE: &str = "envoy.tcp.metadataexchange.config";
const EXCHANGE_MESSAGES: [Message; 1] = [(
    "MetadataExchange",
    &[
        ("protocol", Type::String, One),
        ("enable_discovery", Bool, One),
        ("additional_labels", Type::String, Many),
    ],
)];

/// The files as entries of a `FileDescriptorSet`.
pub(crate) fn files() -> Vec<u8> {
    let duration = &["google/protobuf/duration.proto"];
    [
        file("towpath/extensions/bolt/v1/bolt.proto", PACKAGE, &IMPORTS, &MESSAGES, &[]),
        file(
            "xds/type/matcher/v3/towpath_more.proto",
            MATCHERS,
            &MATCHER_IMPORTS,
            &MATCHER_MESSAGES,
            &[],
        ),
        typed_struct("xds/type/v3/typed_struct.proto", TYPED_STRUCT),
        typed_struct("udpa/type/v1/typed_struct.proto", OLD_TYPED_STRUCT),
        file("towpath/istio/stats.proto", STATS, duration, &STATS_MESSAGES, &STATS_ENUMS),
        file("towpath/istio/alpn.proto", ALPN, &[], &ALPN_MESSAGES, &ALPN_ENUMS),
        file("towpath/istio/peer_metadata.proto", PEER, &[], &PEER_MESSAGES, &[]),
        file("towpath/istio/metadata_exchange.proto", EXCHANGE, &[], &EXCHANGE_MESSAGES, &[]),
    ]
    .concat()
}

fn typed_struct(name: &str, package: &str) -> Vec<u8> {
    file(name, package, &["google/protobuf/struct.proto"], &TYPED_STRUCT_MESSAGES, &[])
}

fn file(
    name: &str,
    package: &str,
    imports: &[&str],
    messages: &[Message],
    enums: &[Choice],
) -> Vec<u8> {
    // Numbers are those of descriptor.proto.
    let mut file = Vec::new();
    text(&mut file, 1, name);
    text(&mut file, 2, package);
    imports.iter().for_each(|import| text(&mut file, 3, import));
    messages.iter().for_each(|message| nested(&mut file, 4, &descriptor(package, message)));
    enums.iter().for_each(|choice| nested(&mut file, 5, &enum_descriptor(choice)));
    text(&mut file, 12, "proto3");
    let mut entry = Vec::new();
    nested(&mut entry, 1, &file);
    entry
}

fn descriptor(package: &str, (name, fields): &Message) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, name);
    for (field, number) in fields.iter().zip(1..) {
        let entry = format!("{}Entry", capital(&camel(field.0)));
        let holder = format!(".{package}.{name}.{entry}");
        nested(&mut out, 2, &field_descriptor(field, number, &holder));
        if let Map = field.1 {
            nested(&mut out, 3, &entry_descriptor(&entry));
        }
    }
    if fields.iter().any(|(_, _, place)| *place == Either) {
        let mut oneof = Vec::new();
        text(&mut oneof, 1, "cluster_specifier");
        nested(&mut out, 8, &oneof);
    }
    out
}

/// What a map is made of.
fn entry_descriptor(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, name);
    for (name, number) in [("key", 1), ("value", 2)] {
        nested(&mut out, 2, &field_descriptor(&(name, Type::String, One), number, ""));
    }
    // `MessageOptions.map_entry`.
    let mut options = Vec::new();
    varint(&mut options, 7, 1);
    nested(&mut out, 7, &options);
    out
}

fn enum_descriptor((name, values): &Choice) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, name);
    for (value, number) in values.iter().zip(0..) {
        let mut entry = Vec::new();
        text(&mut entry, 1, value);
        varint(&mut entry, 2, number);
        nested(&mut out, 2, &entry);
    }
    out
}

/// `entry` is the full name of what the field is made of, if it is a map.
fn field_descriptor(&(name, kind, place): &Field, number: u64, entry: &str) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, name);
    varint(&mut out, 3, number);
    varint(&mut out, 4, if place == Many { 3 } else { 1 });
    let (kind, of) = match kind {
        Int32 => (5, None),
        Bool => (8, None),
        Type::String => (9, None),
        Map => (11, Some(entry)),
        Of(name) => (11, Some(name)),
        Enum(name) => (14, Some(name)),
    };
    varint(&mut out, 5, kind);
    if let Some(name) = of {
        text(&mut out, 6, name);
    }
    if place == Either {
        varint(&mut out, 9, 0);
    }
    text(&mut out, 10, &camel(name));
    out
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| all + &capital(word))
}

fn capital(word: &str) -> String {
    let (head, tail) = word.split_at(word.len().min(1));
    head.to_ascii_uppercase() + tail
}

fn text(out: &mut Vec<u8>, field: u64, text: &str) {
    nested(out, field, text.as_bytes());
}

fn nested(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    number(out, field << 3 | 2);
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, field: u64, value: u64) {
    number(out, field << 3);
    number(out, value);
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
