//! The log of a cluster's health checks, alone and beside Envoy: hosts that answer by a script, and what is told of it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Proxy, Scratch, program, until};
use serde_json::Value;

/// What a host does when it is asked; the last goes on for ever.
#[derive(Clone, Copy)]
enum Step {
    Well,
    Degraded,
    Status(u16),
    /// It says what a TCP check wants.
    Says(&'static [u8]),
    Closes,
    IsSilent,
}

use Step::{Closes, Degraded, IsSilent, Says, Status, Well};

/// A cluster, what its host does, how it is checked, and what is told: the event and what is in it.
struct Case {
    name: &'static str,
    steps: &'static [Step],
    check: &'static str,
    told: &'static [&'static str],
}

const HTTP: &str =
    "http_health_check: { path: /, retriable_statuses: [ { start: 500, end: 501 } ] }";
const ALL: &str = "always_log_health_check_failures: true, always_log_health_check_success: true, \
                   http_health_check: { path: /, retriable_statuses: [ { start: 500, end: 501 } ] }";
const TCP: &str = "tcp_health_check: { send: { text: \"41\" }, receive: [ { text: \"42\" } ] }";

const CASES: &[Case] = &[
    Case {
        name: "changes",
        steps: &[Well, Well, Degraded, Well, Status(503), Status(503), Well, Well],
        check: HTTP,
        told: &[
            "add_healthy first",
            "degraded_healthy_host",
            "no_longer_degraded_host",
            "eject_unhealthy ACTIVE 503",
            "add_healthy",
        ],
    },
    Case {
        name: "first_fails",
        steps: &[Closes, Closes, Well, Well],
        check: HTTP,
        told: &["failure NETWORK 0 first", "add_healthy"],
    },
    Case {
        name: "all",
        steps: &[
            Well,
            Well,
            Status(500),
            Status(500),
            Closes,
            Status(404),
            Well,
            Well,
            Degraded,
            Closes,
        ],
        check: ALL,
        told: &[
            "add_healthy first",
            "successful",
            "failure ACTIVE 500",
            "eject_unhealthy ACTIVE 500",
            "failure ACTIVE 500",
            "failure NETWORK 0",
            "failure ACTIVE 404",
            "successful",
            "add_healthy",
            "successful",
            "degraded_healthy_host",
            "failure NETWORK 0",
            "eject_unhealthy NETWORK 0",
            "failure NETWORK 0",
        ],
    },
    Case {
        name: "silent",
        steps: &[Says(b"B"), IsSilent, IsSilent, Says(b"B")],
        check: TCP,
        told: &["add_healthy first", "eject_unhealthy NETWORK_TIMEOUT 0", "add_healthy"],
    },
    Case {
        name: "by_grpc",
        steps: &[Closes],
        check: "grpc_health_check: {}",
        told: &["failure NETWORK 0 first"],
    },
];

#[test]
fn what_checks_come_to_is_told() {
    let told = told(program());
    for (case, lines) in CASES.iter().zip(&told) {
        let short: Vec<String> = lines.iter().map(shortened).collect();
        assert_eq!(short, case.told, "{}", case.name);
    }
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn envoy_tells_the_same() {
    let peers = std::env::var_os("TOWPATH_PEERS").unwrap();
    let mut envoy = Command::new(Path::new(&peers).join("envoy"));
    envoy.stdin(Stdio::null()).arg("--use-dynamic-base-id");
    let (theirs, ours) = (told(envoy), told(program()));
    for ((case, theirs), ours) in CASES.iter().zip(theirs).zip(ours) {
        assert_eq!(ours, theirs, "{}", case.name);
    }
}

/// What a program tells of each case, without times and ports.
fn told(program: Command) -> Vec<Vec<Value>> {
    let scratch = Scratch::new();
    let logs: Vec<PathBuf> = CASES.iter().map(|case| scratch.path(case.name)).collect();
    let clusters: String =
        CASES.iter().zip(&logs).map(|(case, log)| cluster(case, host(case.steps), log)).collect();
    let text = format!(
        "admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}\n\
         static_resources:\n  clusters:\n{clusters}"
    );
    let proxy = Proxy::run(program, scratch, &text, &[]);
    let of = |case: &Case| -> Vec<Value> {
        let text = proxy.scratch.read(case.name);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.map(without_chance).take(case.told.len()).collect()
    };
    for case in CASES {
        until(case.name, || of(case).len() == case.told.len());
    }
    CASES.iter().map(of).collect()
}

fn cluster(case: &Case, host: SocketAddr, log: &Path) -> String {
    let (name, check) = (case.name, case.check);
    let (log, port) = (log.display(), host.port());
    let sink = "type.googleapis.com/envoy.extensions.health_check.event_sinks.file.v3.\
                HealthCheckEventFileSink";
    format!(
        r#"  - name: {name}
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ {protocol}: {{}} }}
    load_assignment:
      cluster_name: {name}
      endpoints:
      - locality: {{ region: r, sub_zone: "s/t" }}
        lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}
          metadata: {{ filter_metadata: {{ envoy.lb: {{ a: "b<c", n: 1.5, l: [ true, null ] }} }} }}
    health_checks:
    - {{ timeout: 0.3s, interval: 0.05s, no_traffic_interval: 0.05s, unhealthy_threshold: 2, healthy_threshold: 2,
        reuse_connection: false, {check},
        event_logger: [ {{ name: file, typed_config: {{ "@type": {sink}, event_log_path: "{log}" }} }} ] }}
"#,
        protocol = if check.starts_with("grpc") {
            "http2_protocol_options"
        } else {
            "http_protocol_options"
        },
    )
}

/// A host that does one step for each connection.
fn host(steps: &'static [Step]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let last = steps.last().into_iter().cycle();
        for (stream, step) in listener.incoming().zip(steps.iter().chain(last)) {
            let Ok(mut stream) = stream else { return };
            let answer = match *step {
                Well => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(),
                Degraded => {
                    b"HTTP/1.1 200 OK\r\nx-envoy-degraded: 1\r\ncontent-length: 0\r\n\r\n".to_vec()
                }
                Status(status) => {
                    format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").into_bytes()
                }
                Says(text) => text.to_vec(),
                Closes => continue,
                IsSilent => {
                    std::thread::spawn(move || {
                        stream.read(&mut [0; 1000]).and_then(|_| stream.read(&mut [0]))
                    });
                    continue;
                }
            };
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(&answer);
            // Until the other side closes.
            let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
            let _ = stream.read(&mut [0]);
        }
    });
    address
}

fn without_chance(mut event: Value) -> Value {
    let time = event.as_object_mut().unwrap().remove("timestamp").unwrap();
    let time = time.as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    event["host"]["socket_address"]["port_value"] = Value::from(0);
    event
}

/// The event alone: its kind, and what it says.
fn shortened(event: &Value) -> String {
    let mut fields = event.as_object().unwrap().iter();
    let (kind, said) =
        fields.find(|(name, _)| name.contains("event") || name.contains("degraded")).unwrap();
    let kind = kind.trim_end_matches("_event").trim_start_matches("health_check_");
    let mut text = kind.trim_end_matches("_health_check").to_owned();
    if let (Some(why), Some(status)) =
        (said["failure_type"].as_str(), said["http_status_code"].as_u64())
    {
        text += &format!(" {why} {status}");
    }
    if said["first_check"] == true {
        text += " first";
    }
    text
}
