//! The examples load, and nothing in them is refused or ignored.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

use std::path::{Path, PathBuf};

use towpath_config::{Loaded, Options, Source, Sources, load};

#[test]
fn sidecar_loads_without_a_word() {
    let loaded = example("sidecar.yaml");
    assert_eq!(loaded.notes, []);
    assert_eq!(loaded.ignored, []);
    assert_eq!(loaded.snapshot.listeners.len(), 1);
    assert_eq!(
        loaded
            .snapshot
            .cluster(loaded.snapshot.cluster_id("app").unwrap())
            .unwrap()
            .endpoints
            .len(),
        1
    );
}

#[test]
fn tcp_loads_without_a_word() {
    let loaded = example("tcp.yaml");
    assert_eq!((loaded.notes, loaded.ignored), (vec![], vec![]));
}

#[test]
fn bolt_loads_without_a_word() {
    let loaded = example("bolt.yaml");
    assert_eq!((loaded.notes, loaded.ignored), (vec![], vec![]));
    let id = loaded.snapshot.cluster_id("orders-canary").unwrap();
    assert_eq!(loaded.snapshot.cluster(id).unwrap().bolt.as_ref().unwrap().connections_per_host, 2);
}

#[test]
fn bolt_bridge_loads_without_a_word() {
    let loaded = example("bolt-bridge.yaml");
    assert_eq!((loaded.notes, loaded.ignored), (vec![], vec![]));
}

#[test]
fn a_bridge_that_leads_nowhere_is_refused() {
    let text = include_str!("../../../examples/bolt-bridge.yaml");
    let refused = |from: &str, to: &str| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        let source = Source::yaml("t", &text.replace(from, to));
        load(&Sources::file(source), &Options::default()).unwrap_err().to_string()
    };
    for (from, to, wanted) in [
        ("cluster: orders-bolt, ", "cluster: orders-http, ", "does not speak Bolt"),
        ("cluster: orders-http\n", "cluster: orders-bolt\n", "speaks Bolt, not HTTP"),
        ("towpath.filters.http.bolt_bridge:", "envoy.filters.http.cors:", "speaks Bolt, not HTTP"),
        (
            "route: { cluster: orders-bolt, timeout: 3s }",
            "direct_response: { status: 200 }",
            "only a `route` action",
        ),
        (
            "orders-bolt, timeout: 3s",
            "orders-bolt, upgrade_configs: [{ upgrade_type: websocket }]",
            "Bolt has no upgrades",
        ),
        ("max_request_bytes: 1048576", "max_request_bytes: 1073741825", "must be at most"),
        ("max_request_bytes: 1048576", "codec: 256", "must be at most 255"),
        ("max_request_bytes: 1048576", "version: 3", "must be 1 or 2"),
        ("max_request_bytes: 1048576", "checksum: true", "version 1 has no checksums"),
        ("max_request_bytes: 1048576", "klass: none", "no such field"),
        ("path_prefix: /rpc", "path_prefix: rpc/", "must begin with `/`"),
        ("path_prefix: /rpc", "method: CONNECT", "cannot carry a call"),
        ("path_prefix: /rpc", "host: \"a b\"", "is no host"),
    ] {
        let error = refused(from, to);
        assert!(error.contains(wanted), "{to}: {error}");
    }
}

#[test]
fn gateway_loads_without_a_word() {
    let loaded = example("gateway.yaml");
    assert_eq!((loaded.notes, loaded.ignored), (vec![], vec![]));
}

#[test]
fn mosn_loads_with_a_note_for_each_old_form() {
    let loaded = example("mosn-1.7.yaml");
    let lines: Vec<(u32, &str)> = loaded
        .notes
        .iter()
        .map(|note| (note.location.line, note.location.path.rsplit('.').next().unwrap()))
        .collect();
    let expected =
        [(15, "config"), (21, "type"), (22, "lb_policy"), (23, "hosts"), (37, "access_log_path")];
    assert_eq!(lines, expected);
    assert_eq!(loaded.ignored, []);
}

fn example(name: &str) -> Loaded {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let loaded =
        Source::read(&path).and_then(|source| load(&Sources::file(source), &Options::default()));
    loaded.unwrap_or_else(|error| panic!("{error}"))
}
