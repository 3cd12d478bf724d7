use prost::Message as _;
use serde_json::{Value as Json, json};

use super::*;
use crate::error::{Note, Problem};
use crate::report::Report;
use crate::schema::{BOOTSTRAP, Schema};
use crate::source::Source;
use crate::tree;

#[test]
fn both_spellings_and_all_scalars_become_canonical() {
    let text = "
statsFlushInterval: 1.5s
stats_server_version_override: '12'
node: {id: node, metadata: {a: [1, ~, x, 1.5]}}
layeredRuntime: {layers: [{name: l, adminLayer: {}}]}
static_resources:
  clusters:
  - {name: c, type: 1, lbPolicy: random, dns_refresh_rate: 0.000001s, common_lb_config: {healthy_panic_threshold: \
  {value: '12.5'}}}
";
    let expected = json!({
        "stats_flush_interval": "1.500s",
        "stats_server_version_override": 12,
        "node": {"id": "node", "metadata": {"a": [1, null, "x", "1.5"]}},
        "layered_runtime": {"layers": [{"name": "l", "admin_layer": {}}]},
        "static_resources": {"clusters": [{
            "name": "c", "type": "STRICT_DNS", "lb_policy": "RANDOM", "dns_refresh_rate": "0.000001s",
            "common_lb_config": {"healthy_panic_threshold": {"value": 12.5}},
        }]},
    });
    assert_eq!(to_json(&read(text).0.unwrap()), expected);
}

#[test]
fn problems_have_paths_and_positions() {
    let (_, problems, _) = read("static_resources:\n  clusters:\n  - name: a\n  - {nam: b}\n");
    assert_eq!(
        problems[0].to_string(),
        "t:4:6: static_resources.clusters[1].nam: no such field in envoy.config.cluster.v3.Cluster; \
         did you mean `name`?"
    );
}

/// A field of two kinds: text, or what is nested in it.
fn nested(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 0x80);
    [&[number << 3 | 2, length], bytes].concat()
}

#[test]
fn an_encoded_typed_struct_is_decoded_where_it_stands() {
    for name in ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"] {
        // `{ max_request_bytes: 7 }`
        let number = [&[0x11][..], &7f64.to_le_bytes()].concat();
        let entry = [nested(1, b"max_request_bytes"), nested(2, &number)].concat();
        let url = b"t/envoy.extensions.filters.http.buffer.v3.Buffer";
        let inner = [nested(1, url), nested(2, &nested(1, &entry))].concat();
        let any = [nested(1, format!("t/{name}").as_bytes()), nested(2, &inner)].concat();
        let filter = [nested(1, b"buffer"), nested(4, &any)].concat();
        let types = [name.to_owned(), "envoy.extensions.filters.http.buffer.v3.Buffer".to_owned()];
        let schema = Schema::with(types.iter().map(String::as_str));
        let of_filter = "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter";
        let schema_of =
            Schema::with([of_filter].into_iter().chain(types.iter().map(String::as_str)));
        let descriptor = schema_of.message(of_filter).unwrap();
        let tree = binary::tree(&schema_of, descriptor, &filter, &mut Seen::default());
        let tree = tree.unwrap();
        let config = tree.get("typed_config").unwrap();
        assert_eq!(config.get("type_url").unwrap().text(), Some(std::str::from_utf8(url).unwrap()));
        assert!(config.get("value").unwrap().get("max_request_bytes").is_some(), "{name}");
        assert!(schema.message(name).is_some(), "{name}");
    }
}

#[test]
fn typed_structs_are_decoded_where_they_stand() {
    let text = "
bootstrap_extensions:
- name: x
  typed_config:
    '@type': type.googleapis.com/udpa.type.v1.TypedStruct
    type_url: type.googleapis.com/envoy.extensions.regex_engines.v3.GoogleRE2
    value: {}
";
    let message = read(text).0.unwrap();
    let (any, _) =
        message.messages("bootstrap_extensions").next().unwrap().any("typed_config").unwrap();
    assert_eq!(any.name, "envoy.extensions.regex_engines.v3.GoogleRE2");
    assert!(any.message.is_some());
}

#[test]
fn unknown_fields_are_notes_when_allowed() {
    let mut report = Report::default();
    let number = report.text(&"t".into());
    let tree =
        tree::parse(&Source::yaml("t", "bogus: 1\nnode: {id: node, more: 2}\n")).unwrap().root;
    let message =
        decode(&Schema::with([]), &mut report, UnknownFields::Note, BOOTSTRAP, &tree, number)
            .unwrap();
    assert_eq!(to_json(&message), json!({"node": {"id": "node"}}));
    assert_eq!(report.problems, []);
    let paths: Vec<_> = report.notes.iter().map(|note| note.location.path.as_str()).collect();
    assert_eq!(paths, ["bogus", "node.more"]);
}

#[test]
fn old_hosts_become_a_load_assignment() {
    let (message, problems, notes) =
        read("static_resources: {clusters: [{name: c, hosts: [{pipe: {path: /x}}]}]}");
    let expected = json!({"static_resources": {"clusters": [{
        "name": "c",
        "load_assignment": {
            "cluster_name": "c",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "/x"}}}}]}],
        },
    }]}});
    assert_eq!(problems, []);
    assert_eq!(to_json(&message.unwrap()), expected);
    assert_eq!(notes.len(), 1);
}

#[test]
fn lists_append_messages_merge_and_scalars_override() {
    let base = "node: {id: a, cluster: c, metadata: {x: 1, y: 2}}\nstatic_resources: {clusters: [{name: one}]}";
    let over = "node: {id: b, metadata: {y: 3}}\nstatic_resources: {clusters: [{name: two}]}";
    let expected = json!({
        "node": {"id": "b", "cluster": "c", "metadata": {"x": 1, "y": 3}},
        "static_resources": {"clusters": [{"name": "one"}, {"name": "two"}]},
    });
    assert_eq!(merged(base, over), expected);
}

#[test]
fn defaults_without_presence_do_not_override() {
    let base = "node: {id: a}\nstats_flush_interval: 5.5s\nstats_server_version_override: 7\nenable_dispatcher_stats: \
        true";
    let over = "node: {id: ''}\nstats_flush_interval: 3s\nstats_server_version_override: 0\nenable_dispatcher_stats: \
        false";
    let expected = json!({
        "node": {"id": "a"}, "stats_flush_interval": "3.500s", "stats_server_version_override": 7,
        "enable_dispatcher_stats": true,
    });
    assert_eq!(merged(base, over), expected);
}

#[test]
fn the_later_of_a_oneof_wins() {
    let base = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 80}}}";
    let over = "admin: {address: {pipe: {path: /x}}}";
    assert_eq!(merged(base, over), json!({"admin": {"address": {"pipe": {"path": "/x"}}}}));
    let default = "stats_config: {stats_matcher: {reject_all: false}}";
    let list = "stats_config: {stats_matcher: {inclusion_list: {patterns: [{exact: a}]}}}";
    assert_eq!(
        merged(list, default),
        json!({"stats_config": {"stats_matcher": {"reject_all": false}}})
    );
}

#[test]
fn durations_print_as_protobuf_does() {
    for (nanos, text) in [
        (0, "0s"),
        (1, "0.000000001s"),
        (1_000, "0.000001s"),
        (-1_500_000_000, "-1.500s"),
        (60_000_000_000, "60s"),
    ] {
        assert_eq!(Nanos(nanos).to_string(), text);
    }
}

#[test]
fn a_digest_is_of_what_is_said_and_not_of_how() {
    let of = |text: &str| digest(&read(text).0.unwrap());
    let one = "
node: { id: a, metadata: { x: 1, y: [ true ] } }
static_resources:
  secrets: [ { name: s, session_ticket_keys: { keys: [ { inline_string: KEY } ] } } ]
";
    let other = "
static_resources: { secrets: [ { session_ticket_keys: { keys: [ { inline_string: KEY } ] }, name: s } ] }
node: { metadata: { y: [ true ], x: 1 }, id: a }
";
    assert_eq!(of(one), of(other));
    for (from, to) in [("KEY", "OTHER"), ("id: a", "id: b"), ("true", "false"), ("y:", "z:")] {
        assert_ne!(of(one), of(&one.replace(from, to)), "{from} becomes {to}");
    }
}

fn merged(base: &str, over: &str) -> Json {
    let mut base = read(base).0.unwrap();
    merge(&mut base, read(over).0.unwrap());
    to_json(&base)
}

fn read(text: &str) -> (Option<Message>, Vec<Problem>, Vec<Note>) {
    let mut report = Report::default();
    let number = report.text(&"t".into());
    let tree = tree::parse(&Source::yaml("t", text)).unwrap().root;
    let schema = Schema::with(["envoy.extensions.regex_engines.v3.GoogleRE2"]);
    let message = decode(&schema, &mut report, UnknownFields::Refuse, BOOTSTRAP, &tree, number);
    (message, report.problems, report.notes)
}

#[test]
fn a_field_is_small() {
    // 5,000 clusters and routes have some 60,000 of them.
    assert_eq!((size_of::<Value>(), size_of::<Field>()), (32, 120));
}

/// Where everything in a message was written, in order.
fn places(message: &Message, out: &mut Vec<String>) {
    let mut note = |at: &At| out.push(format!("{} {} {:?}", at.text, at.path(), at.pos));
    note(&message.at);
    message.fields.iter().for_each(|field| note(&field.at));
    message.fields.iter().for_each(|field| places_of(&field.value, out));
}

fn places_of(value: &Value, out: &mut Vec<String>) {
    let mut of_item = |item: &Item| {
        out.push(format!("{} {} {:?}", item.at.text, item.at.path(), item.at.pos));
        places_of(&item.value, out);
    };
    match value {
        Value::Message(message) => places(message, out),
        Value::Any(any) => any.message.iter().for_each(|message| places(message, out)),
        Value::List(items) => items.iter().for_each(of_item),
        Value::Map(entries) => entries.iter().for_each(|(_, item)| of_item(item)),
        _ => {}
    }
}

/// What an encoded message is by either way; by the first of them perhaps nothing.
fn both_ways(schema: &Schema, bytes: &[u8]) -> (Option<Message>, Option<Message>) {
    let descriptor = schema.message(BOOTSTRAP).unwrap();
    let direct = direct::read(schema, &descriptor, bytes, 3);
    let (mut seen, mut report) = (Seen::default(), Report::default());
    let tree = binary::tree(schema, descriptor, bytes, &mut seen).ok();
    let unknown = UnknownFields::Refuse;
    let slow = tree.and_then(|tree| decode(schema, &mut report, unknown, BOOTSTRAP, &tree, 3));
    let is_good = seen.types.is_empty() && seen.unknown_fields == 0 && report.problems.is_empty();
    (direct, slow.filter(|_| is_good))
}

const RICH: &str = "
node: {id: me, metadata: {a: [1, ~, x, {b: true}], c: -1.5}, locality: {zone: z}}
flags_path: p
stats_flush_interval: 1.5s
layered_runtime: {layers: [{name: l, static_layer: {a.b: {numerator: 1}}}, {name: m, admin_layer: {}}]}
static_resources:
  clusters:
  - name: c
    type: STATIC
    connect_timeout: 0.25s
    lb_policy: RING_HASH
    per_connection_buffer_limit_bytes: 32768
    ring_hash_lb_config: {minimum_ring_size: 0}
    circuit_breakers: {thresholds: [{max_retries: 7}, {priority: HIGH, max_connections: 0}]}
    common_lb_config: {healthy_panic_threshold: {value: 12.5}, update_merge_window: 0s}
    metadata: {filter_metadata: {x: {k: v}, b: {k: [1, 2]}}}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {max_concurrent_streams: 5}}
    health_checks:
    - {timeout: 1s, interval: 2s, unhealthy_threshold: 1, healthy_threshold: 2,
       http_health_check: {path: /, expected_statuses: [{start: 200, end: 299}], send: {text: '00ff'}}}
    load_assignment:
      cluster_name: c
      named_endpoints: {b: {address: {pipe: {path: /p, mode: 511}}}, a: {}}
      endpoints:
      - priority: 1
        load_balancing_weight: 3
        lb_endpoints:
        - {health_status: DRAINING, endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}
        - {endpoint: {hostname: h, address: {socket_address: {address: '::1', named_port: web}}}}
";

#[test]
fn both_ways_of_reading_come_to_the_same() {
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let schema = Schema::with([options]);
    let tree = tree::parse(&Source::yaml("t", RICH)).unwrap().root;
    let mut report = Report::default();
    let message = decode(&schema, &mut report, UnknownFields::Refuse, BOOTSTRAP, &tree, 0).unwrap();
    assert_eq!(report.problems, []);
    let bytes = encode(&message).encode_to_vec();
    let compare = |bytes: &[u8]| {
        let (direct, slow) = both_ways(&schema, bytes);
        let Some(direct) = direct else { return false };
        let slow = slow.unwrap_or_else(|| panic!("{bytes:?} is taken one way alone"));
        assert_eq!(to_json(&direct), to_json(&slow), "{bytes:?}");
        assert_eq!(digest(&direct), digest(&slow), "{bytes:?}");
        let (mut one, mut other) = (Vec::new(), Vec::new());
        places(&direct, &mut one);
        places(&slow, &mut other);
        assert_eq!(one, other);
        true
    };
    assert!(compare(&bytes), "it is ordinary");
    // Bytes that changed, are missing, or stand twice.
    let mut random = 1u64;
    let mut next = |below: usize| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let mut taken = 0;
    for _ in 0..3_000 {
        let mut bytes = bytes.clone();
        let at = next(bytes.len());
        match next(4) {
            0 => bytes[at] = next(256) as u8,
            1 => bytes[at] ^= 1 << next(8),
            2 => drop(bytes.remove(at)),
            _ => bytes.truncate(at),
        }
        taken += usize::from(compare(&bytes));
    }
    assert!(taken > 300, "{taken} of them are messages");
}
