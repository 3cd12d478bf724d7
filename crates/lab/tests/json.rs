//! `docs/lab-json.md` and what the commands write have the same members.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Parser;
use serde_json::Value;
use towpath_lab::cli::{Command, run};
use towpath_lab::compare::Findings;
use towpath_lab::load::Errors;
use towpath_lab::load::agents::Agent;
use towpath_lab::origin::{Origin, spawn};
use towpath_lab::stats::{Pair, paired_effect};

#[derive(Parser)]
struct Words {
    #[command(subcommand)]
    command: Command,
}

/// Carries out a command and reads what it wrote.
fn written(words: &[&str]) -> Value {
    let path =
        std::env::temp_dir().join(format!("towpath-json-{}-{}", std::process::id(), words[0]));
    let own = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (own, command) = words.split_at(own);
    let words = [&["lab"], own, &["--json", path.to_str().unwrap()], command].concat();
    run(Words::parse_from(words).command);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The names in backquotes of the section with this heading; of what stands before the first one when it is empty.
fn documented(section: &str) -> BTreeSet<String> {
    let text = include_str!("../../../docs/lab-json.md");
    let body = match section {
        "" => text.split("\n## ").next().unwrap(),
        name => text.split("\n## ").find(|part| part.lines().next() == Some(name)).unwrap(),
    };
    body.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn keys(value: &Value) -> impl Iterator<Item = &String> {
    value.as_object().unwrap().keys()
}

/// Every member of the object is in the section, or is in every object.
fn assert_documented(section: &str, value: &Value) {
    let (own, common) = (documented(section), documented(""));
    for key in keys(value) {
        assert!(
            own.contains(key) || common.contains(key),
            "{section}: {key} is not in docs/lab-json.md"
        );
    }
    for key in ["schema", "kind", "command", "version", "date", "machine"] {
        assert!(value.get(key).is_some() && common.contains(key), "{section}: {key}");
    }
    assert_eq!((&value["schema"], &value["kind"]), (&Value::from(1), &Value::from(section)));
    assert!(value["date"].as_str().unwrap().ends_with('Z'));
    for key in keys(&value["machine"]) {
        assert!(common.contains(key), "machine: {key}");
    }
}

#[test]
fn the_members_of_a_load_are_those_of_the_page() {
    let server = spawn(&Origin::http("127.0.0.1:0".parse().unwrap(), 10)).unwrap();
    let agent = Agent::spawn("127.0.0.1:0".parse().unwrap()).unwrap();
    let (target, pid) = (server.address().to_string(), std::process::id().to_string());
    let value = written(&[
        "load",
        "--agents",
        &agent.address().to_string(),
        "--rate",
        "200",
        "-c",
        "4",
        "-d",
        "1200ms",
        "--warmup",
        "0",
        "--pid",
        &pid,
        "--fail-if",
        "p50<60m",
        &target,
    ]);
    assert_documented("load", &value);
    let own = documented("load");
    for key in keys(&value["target"]).chain(keys(&value["generator"])).chain(keys(&value["noise"]))
    {
        assert!(own.contains(key), "{key} is not in docs/lab-json.md");
    }
    assert_eq!(value["url"], format!("http://{target}/"));
    assert_eq!(value["series"].as_array().unwrap().len(), 2);
    for key in keys(&value["series"][0]) {
        assert!(own.contains(key), "series: {key}");
    }
    for key in keys(&value["agents"][0]) {
        assert!(own.contains(key), "agents: {key}");
    }
    assert_eq!(value["failed_if"][0]["condition"], "p50<60m");
    // The page promises no member that is not there.
    let promised =
        own.iter().filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    let text = value.to_string();
    let values = [
        "name",
        "load",
        "closed",
        "paced",
        "poisson",
        "bunched",
        "ticked",
        "recorded",
        "condition",
        "value",
        "null",
    ];
    let kinds = Errors::KINDS;
    assert!(kinds.iter().all(|kind| own.contains(*kind)), "{own:?}");
    for name in
        promised.filter(|it| !values.contains(&it.as_str()) && !kinds.contains(&it.as_str()))
    {
        assert!(text.contains(&format!("\"{name}\"")), "docs/lab-json.md promises {name}");
    }
}

#[test]
fn the_members_of_the_others_are_those_of_the_page() {
    let delay = Duration::from_millis(20);
    let server =
        spawn(&Origin { delay, ..Origin::http("127.0.0.1:0".parse().unwrap(), 10) }).unwrap();
    let target = server.address().to_string();
    let knee = written(&[
        "knee",
        "--objective",
        "1ms",
        "--from",
        "20",
        "--to",
        "40",
        "-c",
        "4",
        "-d",
        "200ms",
        &target,
    ]);
    assert_documented("knee", &knee);
    for key in keys(&knee["steps"][0]) {
        assert!(documented("knee").contains(key), "steps: {key}");
    }
    let table = std::env::temp_dir().join(format!("towpath-table-{}.csv", std::process::id()));
    std::fs::write(&table, "tool,connections,req/s,mean (ms)\na,10,1000,20\n").unwrap();
    let lint = written(&["lint", table.to_str().unwrap()]);
    std::fs::remove_file(&table).unwrap();
    assert_documented("lint", &lint);
    for key in keys(&lint["findings"][0]) {
        assert!(documented("lint").contains(key), "findings: {key}");
    }
}

/// Like [`assert_documented`], for the members of what lies in the object as well.
fn assert_deep(section: &str, value: &Value, inner: &[&str]) {
    assert_documented(section, value);
    let own = documented(section);
    for pointer in inner {
        let inner = value.pointer(pointer).unwrap_or_else(|| panic!("{section}{pointer}: {value}"));
        for key in keys(inner) {
            assert!(own.contains(key), "{section}{pointer}: {key} is not in docs/lab-json.md");
        }
    }
}

#[test]
fn the_members_of_comparisons_are_those_of_the_page() {
    let commands = written(&["compare", "--a", "true", "--b", "true", "--pairs", "3"]);
    assert_deep("commands", &commands, &["/effect", "/effect/ratio", "/noise", "/runs/0"]);
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/results");
    let [one, other] = ["wrk.txt", "wrk-plain.txt"].map(|name| format!("{results}/{name}"));
    let recorded = written(&["compare", "--a-results", &one, "--b-results", &other]);
    assert_deep("results", &recorded, &["/figures/0"]);
}

#[test]
fn the_members_of_a_self_test_are_those_of_the_page() {
    let pairs = [1.01, 0.99, 1.02].map(|b| Pair { a: 1.0, b, is_b_first: b < 1.0 });
    let effect = paired_effect(&pairs, 1).unwrap();
    let findings =
        Findings { cpu_us_per_request: 5.0, equal: vec![effect], planted: 1.1, found: effect };
    let (value, own) = (findings.to_json(), documented("self-test"));
    for key in keys(&value).filter(|key| *key != "schema") {
        assert!(own.contains(key), "{key} is not in docs/lab-json.md");
    }
    let names = own.iter().filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    for name in names.filter(|name| *name != "compare") {
        assert!(value.get(name).is_some(), "docs/lab-json.md promises {name}");
    }
}

#[test]
fn the_members_of_a_replay_are_those_of_the_page() {
    let row = serde_json::json!({
        "table": "1", "case": "plain", "who": "Towpath", "metric": "time", "value": 1.0, "unit": "s",
        "low": null, "high": null, "published": 2.0
    });
    let earlier = std::env::temp_dir().join(format!("towpath-earlier-{}", std::process::id()));
    let figures = serde_json::json!({ "rows": [row], "notes": ["one"] });
    std::fs::write(&earlier, figures.to_string()).unwrap();
    let replay = written(&["replay", "mosn", "--from", earlier.to_str().unwrap()]);
    std::fs::remove_file(&earlier).unwrap();
    assert_deep("replay", &replay, &["/rows/0"]);
    assert_eq!(replay["rows"][0], row);
}

#[test]
fn the_members_of_a_link_are_those_of_the_page() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let recording = written(&["link", "record", &address, "--for", "300ms"]);
    assert_deep("link-recording", &recording, &["/recording"]);
    // A process with threads may not make itself a user namespace's root: this needs the real one.
    if !rustix::process::geteuid().is_root() {
        return assert!(std::env::var_os("CI").is_none(), "CI promises root");
    }
    let link = written(&["link", "--delay", "1", "--", "true"]);
    assert_deep("link", &link, &["/conditions", "/up", "/down"]);
    assert_eq!(link["exit_code"], 0);
}
