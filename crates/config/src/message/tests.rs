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
