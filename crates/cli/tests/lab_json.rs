//! Sections of `docs/lab-json.md` whose commands run the program itself: all that these write is in the page.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[test]
fn the_members_of_a_comparison_are_those_of_the_page() {
    let (experiment, out) = (scratch("experiment.toml"), scratch("compare.json"));
    std::fs::write(&experiment, EXPERIMENT).unwrap();
    let code = lab(&["compare", experiment.to_str().unwrap(), "--json", out.to_str().unwrap()]);
    assert!(matches!(code, 0 | 3 | 4), "decided or not: {code}");
    let value = read(&out);
    assert_documented(
        "compare",
        &value,
        &["", "/effects/0", "/effects/0/effect", "/noise", "/runs/0"],
    );
    // Both arms are loads.
    assert_documented("load", &value["a"], &["", "/latency_ns", "/generator", "/noise"]);
    assert_eq!(value["runs"].as_array().unwrap().len(), 2 * (3 + 3));
}

const EXPERIMENT: &str = r#"
title = "a server and itself"
pairs = 3
equal_pairs = 3

[hypothesis]
metric = "cpu_per_request"
expect = "same"

[load]
rate = 200
connections = 2
duration = "200ms"
warmup = "0ms"

[programs.plain]
command = "{towpath} lab origin --listen {listen}"

[a]
chain = "plain"

[b]
chain = "plain"
"#;

#[test]
#[ignore = "needs wrk: cargo xtask peers wrk, then TOWPATH_PEERS=target/peers/bin"]
fn the_members_of_an_agreement_are_those_of_the_page() {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    let wrk = PathBuf::from(folder).join("wrk");
    let out = scratch("agree.json");
    let (mut origin, address) = origin();
    let pid = origin.id().to_string();
    let code = lab(&[
        "agree",
        "--program",
        wrk.to_str().unwrap(),
        "--pid",
        &pid,
        "--rounds",
        "3",
        "-d",
        "1s",
        "-c",
        "2",
        "--json",
        out.to_str().unwrap(),
        &address,
    ]);
    origin.kill().unwrap();
    origin.wait().unwrap();
    assert!(matches!(code, 0 | 3 | 4), "decided or not: {code}");
    let value = read(&out);
    assert_documented("agree", &value, &["", "/agreement", "/agreement/effect"]);
    assert_eq!((&value["with"], &value["url"]), (&Value::from("wrk"), &Value::from(address + "/")));
    assert_eq!(value["agreement"]["rounds"].as_array().unwrap().len(), 3);
    assert!(code == 3 || value["rounds_needed"].is_null(), "three rounds are enough: {value}");
}

/// What was changed while the command ran is in the account of the run, as what was planned is.
#[test]
fn changes_of_a_running_link_are_told() {
    if !rustix::process::geteuid().is_root() {
        return assert!(std::env::var_os("CI").is_none(), "CI promises root");
    }
    let (socket, out) = (scratch("control"), scratch("link.json"));
    let mut link = Command::new(env!("CARGO_BIN_EXE_towpath"))
        .args(["lab", "link", "--delay", "10", "--change", "0.2:lte", "--no-calibration"])
        .args(["--control", socket.to_str().unwrap(), "--json", out.to_str().unwrap()])
        .args(["--", "sleep", "1"])
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let mut stream = loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    stream.write_all(b"show\nset delay=50ms\nset delay=never\noutage 300ms\n").unwrap();
    assert!(link.wait().unwrap().success());
    let value = read(&out);
    assert_documented("link", &value, &["", "/changes/0", "/conditions/down"]);
    let changes = value["changes"].as_array().unwrap();
    let what: Vec<&str> = changes.iter().map(|it| it["what"].as_str().unwrap()).collect();
    assert_eq!(what.len(), 2, "what was refused or only shown is no change: {value}");
    assert!(what.contains(&"lte") && what.contains(&"down: any rate, 50ms; up: any rate, 50ms"));
    let outages = value["outages_s"].as_array().unwrap();
    assert_eq!((outages.len(), &outages[0][1]), (1, &Value::from(0.3)));
}

/// A server of the lab's own.
fn origin() -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_towpath"))
        .args(["lab", "origin", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().find(|word| word.contains("127.0.0.1:")).unwrap();
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    (child, format!("http://{address}"))
}

fn lab(words: &[&str]) -> i32 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    let output = command.arg("lab").args(words).output().unwrap();
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::remove_file(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Every member of the objects at these places is named in the section, or in what all sections share.
fn assert_documented(section: &str, value: &Value, places: &[&str]) {
    let page = include_str!("../../../docs/lab-json.md");
    let common = page.split("\n## ").next().unwrap();
    let own = page.split("\n## ").find(|part| part.lines().next() == Some(section)).unwrap();
    for place in places {
        let object = value.pointer(place).and_then(Value::as_object);
        for key in object.unwrap_or_else(|| panic!("{section}{place}: {value}")).keys() {
            let name = format!("`{key}`");
            let is_documented = own.contains(&name) || common.contains(&name);
            assert!(is_documented, "{section}{place}: {key} is not in docs/lab-json.md");
        }
    }
}

fn scratch(name: &str) -> PathBuf {
    let name = format!("lab-json-{}-{name}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}
