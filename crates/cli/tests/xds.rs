//! What a control plane sends, written down, compared and sent again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const TYPES: [&str; 5] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
];
const HCM: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
HttpConnectionManager";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towpath-xds-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn towpath(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towpath")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A control plane made of a recording.
struct Replay {
    child: Child,
    lines: BufReader<ChildStdout>,
    at: String,
}

impl Replay {
    fn start(file: &str, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_towpath"))
            .args(["xds", "replay", file, "--listen", "127.0.0.1:0"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut replay = Self { child, lines, at: String::new() };
        replay.at = replay.until("listening on ").trim_start_matches("listening on ").to_owned();
        replay
    }

    /// The next line with this in it.
    fn until(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no line with {wanted}");
            if line.contains(wanted) {
                return line.trim().to_owned();
            }
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(text: &str) -> Value {
    let (host, port) = text.rsplit_once(':').unwrap();
    json!({"socket_address": {"address": host, "port_value": port.parse::<u16>().unwrap()}})
}

fn bootstrap(control_plane: &str, form: &str) -> Value {
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    json!({
        "node": {"id": "me", "cluster": "here"},
        "admin": {"address": address("127.0.0.1:0")},
        "dynamic_resources": {
            "ads_config": {"api_type": form, "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]},
            "cds_config": ads, "lds_config": ads},
        "static_resources": {"clusters": [{
            "name": "xds", "type": "STATIC",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {"http2_protocol_options": {}}}},
            "load_assignment": {"cluster_name": "xds", "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": address(control_plane)}}]}]},
        }]},
    })
}

fn step(at_ms: u64, kind: usize, version: &str, resources: &[(&str, Value)]) -> String {
    let one = |(name, resource): &(&str, Value)| json!({"name": name, "version": version, "resource": resource});
    let resources: Vec<Value> = resources.iter().map(one).collect();
    let line = json!({"at_ms": at_ms, "type": TYPES[kind], "version": version, "resources": resources,
        "removed": [], "rejected": []});
    format!("{line}\n")
}

fn hosts(ports: &[u16]) -> Value {
    let host = |port: &u16| json!({"endpoint": {"address": address(&format!("127.0.0.1:{port}"))}});
    let hosts: Vec<Value> = ports.iter().map(host).collect();
    json!({"cluster_name": "app", "endpoints": [{"lb_endpoints": hosts}]})
}

fn cluster(more: &Value) -> Value {
    let mut cluster =
        json!({"name": "app", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}});
    cluster.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    cluster
}

fn table(one: u32, other: u32) -> Value {
    json!({"name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
        {"match": {"path": "/fixed"}, "direct_response": {"status": 418}},
        {"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [
            {"name": "app", "weight": one}, {"name": "xds", "weight": other}]}}}]}]})
}

/// Clusters, endpoints, a listener with its table and a secret; then other endpoints and weights, and a cluster that is
/// no good.
fn recording(folder: &Folder) -> String {
    let listener = json!({"name": "web", "address": address("127.0.0.1:0"), "filter_chains": [{"filters": [
        {"name": "http", "typed_config": {"@type": HCM, "stat_prefix": "web",
            "rds": {"route_config_name": "table", "config_source": {"ads": {}}},
            "http_filters": [{"name": "router", "typed_config": {"@type": ROUTER}}]}}]}]});
    let secret = json!({"name": "key", "tls_certificate": {
        "certificate_chain": {"inline_string": "x"}, "private_key": {"inline_string": "[redacted]"}}});
    let lines = [
        json!({"towpath_xds": 1, "bootstrap": bootstrap("127.0.0.1:1", "GRPC")}).to_string() + "\n",
        step(0, 0, "c1", &[("app", cluster(&json!({})))]),
        step(0, 1, "e1", &[("app", hosts(&[1, 2]))]),
        step(0, 2, "l1", &[("web", listener)]),
        step(0, 3, "r1", &[("table", table(90, 10))]),
        step(0, 4, "s1", &[("key", secret)]),
        step(600, 1, "e2", &[("app", hosts(&[2, 3, 4]))]),
        step(700, 3, "r2", &[("table", table(50, 50))]),
        step(800, 0, "c2", &[("app", cluster(&json!({"connect_timeout": "-1s"})))]),
    ];
    folder.write("a.xds", &lines.concat())
}

#[test]
fn what_is_replayed_is_written_down_again() {
    let folder = Folder::new("again");
    let first = recording(&folder);
    for form in ["GRPC", "DELTA_GRPC"] {
        let mut replay = Replay::start(&first, &[]);
        let own = folder.write("b.yaml", &bootstrap(&replay.at, form).to_string());
        let second = folder.path("b.xds");
        let dumped = towpath(&["xds", "dump", &own, "-o", &second]);
        assert!(dumped.status.success(), "{form}: {}", text(&dumped));
        replay.until("Cluster: refused: app: connect_timeout");
        let written = std::fs::read_to_string(&second).unwrap();
        let last: Value = serde_json::from_str(written.lines().last().unwrap()).unwrap();
        assert_eq!(last["rejected"][0]["name"], "app", "{form}: {written}");
        // All but the secret, which was not asked for, came as it was.
        let compared = text(&towpath(&["xds", "diff", &first, &second]));
        assert_eq!(compared, "secret key: gone\n", "{form}");
        let checked = towpath(&["check", "--xds", &second]);
        let said = text(&checked);
        assert!(!checked.status.success(), "{form}: {said}");
        assert!(said.contains("refused `app`: connect_timeout"), "{form}: {said}");
        assert!(said.contains("these listeners would serve: web"), "{form}: {said}");
    }
}

#[test]
fn steps_are_told_in_a_persons_words() {
    let folder = Folder::new("words");
    let file = recording(&folder);
    let said = text(&towpath(&["xds", "diff", &file]));
    for line in [
        "step 1, 0.000 s: Cluster version 'c1', 1 resources\n  cluster app: new: EDS\n",
        "  endpoints of app: new: 2 endpoints\n",
        "  route table table: new: 1 virtual hosts, 2 routes\n",
        "  endpoints of app: +2 -1\n    + 127.0.0.1:3\n    + 127.0.0.1:4\n    - 127.0.0.1:1\n",
        "  route table table: virtual host all: route 2 (prefix /): weights app 90, xds 10 -> app 50, xds 50\n",
        "  cluster app: connect_timeout: -1s is new\n",
    ] {
        assert!(said.contains(line), "{line}\nin\n{said}");
    }
    let two = towpath(&["xds", "diff", "--json", &format!("{file}@5"), &format!("{file}@6")]);
    assert_eq!(two.status.code(), Some(1));
    let two: Value = serde_json::from_slice(&two.stdout).unwrap();
    assert_eq!(two["changes"][0]["summary"], "+2 -1");
    assert_eq!(two["changes"].as_array().unwrap().len(), 1);
    let none = towpath(&["xds", "diff", &file, &file]);
    assert_eq!((none.status.code(), text(&none)), (Some(0), "nothing changed\n".to_owned()));
    // What was cut off has what came before.
    let whole = std::fs::read_to_string(&file).unwrap();
    let cut = folder.write("cut.xds", &whole[..whole.len() - 20]);
    let said = text(&towpath(&["xds", "diff", &format!("{file}@7"), &cut]));
    assert_eq!(said, "nothing changed\n");
    for (bad, why) in [("none.xds", "No such file"), ("a.xds@99", "no step 99")] {
        let refused = towpath(&["xds", "diff", &folder.path(bad)]);
        let refused = if bad.contains('@') {
            towpath(&["xds", "diff", &folder.path(bad), &file])
        } else {
            refused
        };
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused).contains(why), "{}", text(&refused));
    }
}

#[test]
fn a_recording_is_checked_without_a_proxy() {
    let folder = Folder::new("check");
    let file = recording(&folder);
    let checked = towpath(&["check", "--xds", &file, "--json"]);
    assert_eq!(checked.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(said["steps"][7]["refused"][0]["name"], "app");
    let refused = |step: &Value| !step["refused"].as_array().unwrap().is_empty();
    assert_eq!(said["steps"].as_array().unwrap().iter().filter(|step| refused(step)).count(), 1);
    assert_eq!(said["listeners"], json!(["web"]));
    assert_eq!(said["secrets_not_looked_at"], json!(["key"]));
    assert_eq!(said["clusters"], 2);
    // Without the bad step all is well.
    let whole = std::fs::read_to_string(&file).unwrap();
    let good: Vec<&str> = whole.lines().take(8).collect();
    let good = folder.write("good.xds", &(good.join("\n") + "\n"));
    let checked = towpath(&["check", "--xds", &good]);
    assert!(checked.status.success(), "{}", text(&checked));
    let neither = towpath(&["check"]);
    assert!(!neither.status.success() && text(&neither).contains("<FILE>"), "{}", text(&neither));
}

#[test]
fn nothing_secret_is_written_down() {
    let folder = Folder::new("secret");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let socket = json!({"name": "tls", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "key", "sds_config": {"ads": {}}}]}}});
    let secret = json!({"name": "key", "tls_certificate": {
        "certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}});
    let lines = [
        json!({"towpath_xds": 1}).to_string() + "\n",
        step(0, 0, "c1", &[("app", cluster(&json!({"transport_socket": socket})))]),
        step(0, 1, "e1", &[("app", hosts(&[1]))]),
        step(0, 2, "l1", &[]),
        step(0, 4, "s1", &[("key", secret)]),
    ];
    let replay = Replay::start(&folder.write("a.xds", &lines.concat()), &[]);
    let own = folder.write("b.yaml", &bootstrap(&replay.at, "DELTA_GRPC").to_string());
    let second = folder.path("b.xds");
    let dumped = towpath(&["xds", "dump", &own, "-o", &second]);
    assert!(dumped.status.success(), "{}", text(&dumped));
    let written = std::fs::read_to_string(&second).unwrap();
    assert!(written.contains("\"key\"") && written.contains("BEGIN CERTIFICATE"), "{written}");
    assert!(!written.contains("PRIVATE KEY"), "{written}");
}

/// The program against what was recorded, and Envoy where there is one.
fn serves(mut command: Command, folder: &Folder, replay: &mut Replay) {
    let file = folder.write("proxy.yaml", &bootstrap(&replay.at, "GRPC").to_string());
    let admin = folder.path("admin");
    let mut child = command
        .args(["-c", &file, "--admin-address-path", &admin, "-l", "critical", "--concurrency", "1"])
        .spawn()
        .unwrap();
    for wanted in ["Cluster: acknowledged", "Endpoints: acknowledged", "Routes: acknowledged"] {
        replay.until(wanted);
    }
    replay.until("Cluster: refused: ");
    assert!(Path::new(&admin).exists());
    let began = Instant::now();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_proxy_takes_what_was_recorded() {
    let folder = Folder::new("proxy");
    let mut replay = Replay::start(&recording(&folder), &["--every", "0.3"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
    command.arg("proxy");
    serves(command, &folder, &mut replay);
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn envoy_takes_what_was_recorded() {
    let peers = std::env::var("TOWPATH_PEERS").expect("TOWPATH_PEERS names the folder of peers");
    let folder = Folder::new("envoy");
    let mut replay = Replay::start(&recording(&folder), &["--every", "0.3"]);
    let mut command = Command::new(format!("{peers}/envoy"));
    command.arg("--use-dynamic-base-id");
    serves(command, &folder, &mut replay);
}
