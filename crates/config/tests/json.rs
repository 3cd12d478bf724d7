//! A bootstrap says the same in YAML and in JSON, and whatever text comes, there is an answer.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};
use towpath_config::{Options, Source, Sources, load};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn yaml_and_json_mean_the_same(bootstrap in bootstrap()) {
        let json = outcome(Source::json("t", &bootstrap.to_string()));
        let pretty = outcome(Source::json("t", &serde_json::to_string_pretty(&bootstrap).unwrap()));
        let yaml = outcome(Source::yaml("t", &block_yaml(&bootstrap, 0)));
        prop_assert_eq!(&json, &pretty);
        prop_assert_eq!(&json, &yaml);
        prop_assert!(json.is_ok(), "{:?}", json);
    }

    #[test]
    fn the_dump_loads_as_what_it_is_of(bootstrap in bootstrap()) {
        let first = outcome(Source::json("t", &bootstrap.to_string())).unwrap();
        let dump = load(&Sources::file(Source::json("t", &bootstrap.to_string())), &Options::default()).unwrap().json;
        prop_assert_eq!(first, outcome(Source::json("t", &dump.to_string())).unwrap());
    }

    #[test]
    fn any_text_has_an_answer(text in "\\PC{0,200}", json in any::<bool>()) {
        let source = if json { Source::json("t", &text) } else { Source::yaml("t", &text) };
        let _ = outcome(source);
    }

    #[test]
    fn a_damaged_example_has_an_answer(at in 0usize..3000, byte in any::<u8>()) {
        let mut source = Source::yaml("t", include_str!("../../../examples/sidecar.yaml"));
        let at = at % source.bytes.len();
        source.bytes[at] = byte;
        let _ = outcome(source);
    }
}

/// The snapshot as text, or the messages without their places.
fn outcome(source: Source) -> Result<String, Vec<String>> {
    match load(&Sources::file(source), &Options::default()) {
        Ok(loaded) => Ok(format!("{:?}", loaded.snapshot.listeners)
            + &format!("{:?}", loaded.snapshot.clusters)
            + &loaded.json.to_string()),
        Err(error) => Err(error.to_string().lines().map(str::to_owned).collect()),
    }
}

fn bootstrap() -> impl Strategy<Value = Json> {
    (prop::collection::vec(cluster(), 0..4), "[a-z]{1,8}", any::<bool>()).prop_map(|(clusters, id, flag)| {
        let clusters: Vec<Json> = clusters.into_iter().enumerate().map(|(index, mut cluster)| {
            cluster.insert("name".to_owned(), json!(format!("cluster-{index}")));
            Json::Object(cluster)
        }).collect();
        json!({
            "node": {"id": format!("node-{id}"), "metadata": {"flag": flag, "list": [1, null, "x"]}},
            "static_resources": {"clusters": clusters},
        })
    })
}

fn cluster() -> impl Strategy<Value = Map<String, Json>> {
    let policy = prop::sample::select(vec![
        json!("ROUND_ROBIN"),
        json!("LEAST_REQUEST"),
        json!("RANDOM"),
        json!(0),
    ]);
    let limits = prop::option::of(1u32..1000);
    let values = (1u32..100_000, policy, limits, 0u32..10_000, "\\PC{0,12}");
    values.prop_map(|(milliseconds, policy, limit, weight, name)| {
        let mut cluster = Map::new();
        cluster.insert("type".to_owned(), json!("STATIC"));
        let timeout = format!("{}.{:03}s", milliseconds / 1000, milliseconds % 1000);
        cluster.insert("connect_timeout".to_owned(), json!(timeout));
        cluster.insert("lb_policy".to_owned(), policy);
        cluster.insert("altStatName".to_owned(), json!(name));
        if let Some(limit) = limit {
            let thresholds = json!([{"max_connections": limit, "track_remaining": true}]);
            cluster.insert("circuit_breakers".to_owned(), json!({"thresholds": thresholds}));
        }
        cluster.insert("load_assignment".to_owned(), json!({"cluster_name": "c", "endpoints": [{"lb_endpoints": [{
            "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "portValue": weight}}},
            "load_balancing_weight": weight + 1,
        }]}]}));
        cluster
    })
}

/// JSON as block YAML, strings in JSON's quotes.
fn block_yaml(value: &Json, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    if let Some(entries) = value.as_object().filter(|entries| !entries.is_empty()) {
        let entry = |(key, value)| format!("\n{indent}{key}: {}", block_yaml(value, depth + 1));
        return entries.iter().map(entry).collect();
    }
    if let Some(items) = value.as_array().filter(|items| !items.is_empty()) {
        return items
            .iter()
            .map(|item| format!("\n{indent}- {}", block_yaml(item, depth + 1)))
            .collect();
    }
    value.to_string()
}
