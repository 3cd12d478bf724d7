//! Layers of the runtime in directories, and what another directory in their place changes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use towpath_xds::Type;

use super::beside::{Start, envoy, towpath};
use super::common::{Proxy, Scratch, origin, until};
use super::control_plane::ControlPlane;
use super::{ANY_PORT, ask, bootstrap, fill, listener, routes, tcp};

/// Four layers: of a file, of two directories, and of an operator.
fn layers(root: &str) -> String {
    format!(
        "layered_runtime:\n  layers:\n  - {{ name: base, static_layer: {{ share: 0, low: 1, hidden: 2 }} }}\n  \
         - {{ name: disk, disk_layer: {{ symlink_root: {root}, subdirectory: all }} }}\n  \
         - {{ name: own, disk_layer: {{ symlink_root: {root}, subdirectory: by, append_service_cluster: true }} }}\n  \
         - {{ name: admin, admin_layer: {{}} }}\n"
    )
}

/// A bootstrap with one listener, whose first route takes the `share` and the second the share of `a.b`.
fn served(root: &str) -> String {
    let first = |status: u16, key: &str| {
        format!(
            "{{ match: {{ prefix: \"/\", runtime_fraction: {{ default_value: {{ numerator: 0 }}, \
             runtime_key: {key} }} }}, direct_response: {{ status: {status} }} }}, "
        )
    };
    let table = routes("table", "direct_response: { status: 204 }");
    let more = format!("routes: [ {}{}", first(418, "share"), first(419, "a.b"));
    let table = table.replace("routes: [ ", &more);
    let web = listener("web", ANY_PORT, "table");
    let at = web.find("rds: {").unwrap();
    let end = at + web[at..].find('\n').unwrap();
    let web = web.replace(&web[at..end], &format!("route_config: {table}"));
    format!(
        "admin: {{ address: {ANY_PORT} }}\nnode: {{ id: a, cluster: b }}\n{}static_resources:\n  \
         listeners:\n  - {}\n",
        layers(root),
        web.trim().replace('\n', "\n    ")
    )
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Puts a link to a folder in the place of the one that is there, in one step.
fn swap(scratch: &Scratch, target: &str) {
    symlink(scratch.path(target), scratch.path("next")).unwrap();
    fs::rename(scratch.path("next"), scratch.path("current")).unwrap();
}

const COUNTERS: [&str; 6] = [
    "load_success",
    "load_error",
    "override_dir_exists",
    "override_dir_not_exists",
    "num_layers",
    "num_keys",
];

fn counters(proxy: &Proxy) -> Vec<u64> {
    let value = |name: &&str| proxy.stat(&format!("runtime.{name}")).unwrap();
    COUNTERS.iter().map(value).collect()
}

/// What is served and shown at each step, which counters moved with it, and what gauges say.
#[derive(Debug, PartialEq)]
struct Seen {
    what: &'static str,
    status: u16,
    shown: Value,
    counters: Vec<u64>,
}

fn story(start: Start) -> Vec<Seen> {
    let scratch = Scratch::new();
    let first = scratch.path("one");
    write(
        &first,
        &[
            ("all/share", "# all of them\n100  \n"),
            ("all/a/b", "0"),
            ("all/hidden", "# a place for a value\n"),
            ("all/text", "some words\n\nand more \n# the end\n"),
            ("all/yes", "true\n"),
            ("all/half", "{ numerator: 1, denominator: TEN_THOUSAND }"),
            ("all/.dot", "1.50"),
            ("by/b/low", "7"),
            ("by/c/low", "8"),
        ],
    );
    symlink(first.join("all/share"), first.join("all/linked")).unwrap();
    write(
        &scratch.path("two"),
        &[("all/share", "0"), ("all/a/b", "{numerator: 100}"), ("elsewhere/b/low", "9")],
    );
    write(&scratch.path("three"), &[("all/share", "0"), ("all/a/b", "{numerator: ")]);
    write(
        &scratch.path("four"),
        &[("all/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d", "1"), ("by/b/share", "100")],
    );
    write(
        &scratch.path("five"),
        &[("all/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d", "3.7"), ("by/b/share", "100.7")],
    );
    symlink(scratch.path("nowhere"), scratch.path("five/by/b/loose")).unwrap();
    write(
        &scratch.path("six"),
        &[("all/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d", "3.7"), ("by/b/share", "100.7")],
    );
    symlink(scratch.path("one"), scratch.path("current")).unwrap();

    let proxy = start(&served(&scratch.path("current").display().to_string()));
    until("it serves", || proxy.get("/ready").0 == 200);
    let mut before = vec![0; 4];
    let mut seen = Vec::new();
    let mut see = |what| {
        // Envoy reads all once for each layer that is in the directory.
        let after = counters(&proxy);
        let moved = after.iter().zip(&before).map(|(after, before)| u64::from(after > before));
        let counters = moved.chain(after[4..].iter().copied()).collect();
        before = after[..4].to_vec();
        let shown = serde_json::from_str(&proxy.get("/runtime").1).unwrap();
        seen.push(Seen { what, status: ask(&proxy, "web").0, shown, counters });
    };
    see("the start");
    let loads =
        || proxy.stat("runtime.load_success").unwrap() + proxy.stat("runtime.load_error").unwrap();
    let steps = [
        ("two", "without a directory of its own"),
        ("three", "a file that is no value"),
        ("nowhere", "no directory at all"),
        ("four", "too deep"),
        ("five", "a link that leads nowhere"),
        ("six", "as deep as may be"),
        ("one", "the first again"),
    ];
    for (target, what) in steps {
        let before = loads();
        swap(&scratch, target);
        until(what, || loads() > before);
        std::thread::sleep(Duration::from_millis(100));
        see(what);
    }
    assert_eq!(proxy.post("/runtime_modify?share=0&a.b=%7Bnumerator:%20100%7D").1, "OK\n");
    see("what an operator says");
    // What is written in place is not looked at.
    write(&scratch.path("one"), &[("all/new", "1")]);
    std::thread::sleep(Duration::from_millis(600));
    see("a file more");
    seen
}

#[test]
fn a_directory_is_a_layer_until_another_takes_its_place() {
    let seen = story(towpath);
    let of = |what: &str| seen.iter().find(|seen| seen.what == what).unwrap();
    let first = of("the start");
    assert_eq!(first.status, 418);
    assert_eq!(first.shown["layers"], serde_json::json!(["base", "disk", "own", "admin"]));
    let value = |key: &str| &first.shown["entries"][key]["final_value"];
    assert_eq!(value("share"), "100");
    assert_eq!(value("text"), "some words\nand more \n");
    assert_eq!(
        (value("low"), value("hidden"), value(".dot")),
        (&"7".into(), &"2".into(), &"1.50".into())
    );
    let statuses: Vec<u16> = seen.iter().map(|seen| seen.status).collect();
    assert_eq!(statuses, [418, 419, 204, 204, 418, 204, 418, 418, 419, 419]);
    let errors: Vec<u64> = seen.iter().map(|seen| seen.counters[1]).collect();
    assert_eq!(errors, [0, 0, 1, 0, 1, 1, 0, 0, 0, 0]);
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn layers_of_directories_are_as_in_envoy() {
    let (ours, theirs) = (story(towpath), story(envoy));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn a_control_plane_is_served_with_layers_of_directories() {
    let plane = ControlPlane::start();
    fill(&plane, origin(Duration::ZERO));
    let first = "{ match: { prefix: \"/\", runtime_fraction: { default_value: { numerator: 0 }, \
                 runtime_key: share } }, direct_response: { status: 418 } }, ";
    let table = routes("table", "route: { cluster: app }");
    let table = table.replace("routes: [ ", &format!("routes: [ {first}"));
    plane.set(Type::Routes, "r1", &[("table", &table)]);
    let scratch = Scratch::new();
    write(&scratch.path("one"), &[("all/share", "100")]);
    write(&scratch.path("two"), &[("all/share", "0")]);
    swap(&scratch, "one");
    let layers = layers(&scratch.path("current").display().to_string());
    let proxy =
        Proxy::launch(Scratch::new(), &(bootstrap(&tcp(plane.address), "GRPC") + &layers), &[]);
    until("it serves", || proxy.get("/ready").0 == 200);
    assert_eq!(ask(&proxy, "web").0, 418);
    swap(&scratch, "two");
    until("the new value", || ask(&proxy, "web").0 == 200);
    swap(&scratch, "one");
    until("the old value", || ask(&proxy, "web").0 == 418);
    assert_eq!(proxy.stat("runtime.num_layers"), Some(3), "one directory is not there");
}
