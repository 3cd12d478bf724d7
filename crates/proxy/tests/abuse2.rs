//! Attacks over HTTP/2: each is ended with a reason or held within bounds, of processor time and of memory, and others
//! are served meanwhile.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

#[path = "../../../conformance/h2/abuse.rs"]
mod abuse;
mod common;
#[path = "../../../conformance/h2/wire.rs"]
mod h2_wire;
#[path = "smuggling2/origin.rs"]
mod origin;
#[path = "smuggling/origins.rs"]
#[allow(dead_code, reason = "this story has an origin of its own")]
mod origins;
#[path = "../../../conformance/h1/wire.rs"]
#[allow(dead_code, reason = "answers are read elsewhere")]
mod wire;

use std::time::{Duration, Instant};

use abuse::ATTACKS;
use common::{PATIENCE, Proxy, bootstrap, exchange, until};

/// ENHANCE_YOUR_CALM (RFC 9113 §7).
const CALM: u32 = 11;

/// Those after which nothing has to be ended, and the statistic that says when all of it has come.
const STAY: [(&str, &str, u64); 3] = [
    ("zero-window", "cluster.origin.upstream_rq_2xx", 100),
    ("slow-reader", "cluster.origin.upstream_rq_total", 1001),
    ("never-ends", "cluster.origin.upstream_rq_active", 1000),
];

/// Those that end the connection only if they come faster than they are answered.
const MAY_GO_ON: [&str; 3] = ["settings-unread", "settings", "ping-unread"];

/// Milliseconds of processor time, without optimisation, and MiB more than before: the most of each.
const MOST: (u64, u64) = (3000, 48);
/// Of 1,000 answers of 256 KiB each, which are all under way: not all of them.
const MOST_OF_SLOW_READER: (u64, u64) = (15_000, 240);

#[test]
fn every_attack_is_bounded() {
    let origin = origin::strict();
    let text = bootstrap(([127, 0, 0, 1], 1).into());
    let address = "{ socket_address: { address: 127.0.0.1, port_value: 1 } }";
    let text = text.replacen(address, &origin.endpoint, 1);
    // A thousand connections at once take a while, and are not to be refused.
    let limits = "connect_timeout: 20s
    circuit_breakers: { thresholds: [ { max_connections: 9000, max_requests: 9000 } ] }";
    let text = text.replacen("connect_timeout: 1s", limits, 1);
    let mut wrong = Vec::new();
    for attack in &ATTACKS {
        let name = attack.name;
        let proxy = Proxy::start(&text, &["--concurrency", "1"]);
        let listener = proxy.listener("ingress");
        assert_eq!(exchange(&listener, "GET", "/small").unwrap().0, 200);
        // What was resident at its start is not the attack's.
        std::fs::write(format!("/proc/{}/clear_refs", proxy.child.id()), "5").unwrap();
        let (cpu, memory) = (cpu_ms(&proxy), peak_mib(&proxy));
        let seen = abuse::run(attack, listener.parse().unwrap()).unwrap();
        let stays = STAY.iter().find(|(it, ..)| *it == name);
        if let Some((_, statistic, count)) = stays {
            let start = Instant::now();
            while proxy.stat(statistic).is_none_or(|found| found < *count) {
                assert!(start.elapsed() < 6 * PATIENCE, "{name} does not arrive");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let (status, _) = exchange(&listener, "GET", "/small").unwrap();
        let (cpu, memory) = (cpu_ms(&proxy) - cpu, peak_mib(&proxy) - memory);
        eprintln!(
            "{name}: {} times, GOAWAY {:?}, {cpu} ms, {memory} MiB",
            seen.times, seen.go_away
        );
        let is_right = match stays {
            None if MAY_GO_ON.contains(&name) => seen.go_away.is_none_or(|code| code == CALM),
            None => seen.go_away == Some(CALM),
            Some(_) => (seen.go_away, seen.is_closed) == (None, false),
        };
        let most = if name == "slow-reader" { MOST_OF_SLOW_READER } else { MOST };
        if !is_right || cpu > most.0 || memory > most.1 || status != 200 {
            wrong.push(format!("{name}: {seen:?}, {cpu} ms, {memory} MiB, then {status}"));
        }
        // What keeps it up is over.
        drop(seen.stream);
        until("nothing is left of it", || {
            proxy.stat("http.ingress.downstream_rq_active") == Some(0)
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// User and system time so far.
fn cpu_ms(proxy: &Proxy) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", proxy.child.id())).unwrap();
    let fields = text.rsplit(") ").next().unwrap().split(' ').skip(11).take(2);
    // Ticks of ten milliseconds.
    fields.map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum()
}

/// The most memory that was resident since it was last asked to forget.
fn peak_mib(proxy: &Proxy) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", proxy.child.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
