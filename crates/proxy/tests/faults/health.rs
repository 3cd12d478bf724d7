//! Hosts that are asked how they are: who fails is left out, and no client is sent away when all of them fail.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use crate::common::{Proxy, bootstrap, exchange_whole, until};

#[test]
fn who_fails_its_checks_is_left_out_until_it_passes_them() {
    let hosts = [Host::start(1), Host::start(2), Host::start(3)];
    let proxy = Proxy::start(&watched(&hosts, CHECK), &[]);
    // The start waits for the first checks: no client is sent away.
    assert_eq!(served(&proxy), BTreeSet::from([1, 2, 3]));
    assert_eq!(proxy.stat(HEALTHY), Some(3));
    assert!(flags(&proxy, &hosts[1]).contains("health_flags::healthy"));

    hosts[1].set(503);
    until("one is out", || proxy.stat(HEALTHY) == Some(2));
    until("every worker knows", || served(&proxy) == BTreeSet::from([1, 3]));
    assert!(flags(&proxy, &hosts[1]).contains("health_flags::/failed_active_hc"));
    assert_eq!(proxy.stat("cluster.origin.health_check.healthy"), Some(2));
    assert!(proxy.stat("cluster.origin.health_check.failure") > Some(0));
    let (_, json) = proxy.get("/clusters?format=json");
    assert!(json.contains("failed_active_health_check"), "{json}");

    hosts[1].set(200);
    until("it is back", || proxy.stat(HEALTHY) == Some(3));
    until("and serves", || served(&proxy) == BTreeSet::from([1, 2, 3]));
    assert!(hosts.iter().all(|host| host.checks() > 0));
}

#[test]
fn when_all_fail_all_are_asked_unless_panic_is_off() {
    for (threshold, all) in [("50", true), ("0", false)] {
        let hosts = [Host::start(1), Host::start(2)];
        hosts.iter().for_each(|host| host.set(503));
        let panic = format!(
            "{CHECK}\n    common_lb_config: {{ healthy_panic_threshold: {{ value: {threshold} }} }}"
        );
        let proxy = Proxy::start(&watched(&hosts, &panic), &[]);
        assert_eq!(proxy.stat(HEALTHY), Some(0));
        let answer = exchange_whole(&proxy.listener("ingress"), "GET", "/").unwrap();
        if all {
            assert!(answer.contains("x-host: "), "{answer}");
        } else {
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            assert!(answer.ends_with("no healthy upstream"), "{answer}");
        }
    }
}

#[test]
fn who_answers_with_errors_is_left_out() {
    let hosts = [Host::start(1), Host::start(2), Host::start(3)];
    let proxy = Proxy::start(&watched(&hosts, &outliers("600s")), &[]);
    assert_eq!(served(&proxy), BTreeSet::from([1, 2, 3]));
    hosts[1].state.answer.store(500, Ordering::Relaxed);
    until("one is out", || {
        served(&proxy);
        proxy.stat(HEALTHY) == Some(2)
    });
    until("every worker knows", || served(&proxy) == BTreeSet::from([1, 3]));
    assert!(flags(&proxy, &hosts[1]).contains("health_flags::/failed_outlier_check"));
    assert_eq!(proxy.stat(EJECTED), Some(1));
}

#[test]
fn who_was_left_out_comes_back() {
    let hosts = [Host::start(1), Host::start(2)];
    let proxy = Proxy::start(&watched(&hosts, &outliers("0.2s")), &[]);
    hosts[1].state.answer.store(500, Ordering::Relaxed);
    until("one was out", || {
        served(&proxy);
        proxy.stat("cluster.origin.outlier_detection.ejections_enforced_total") > Some(0)
    });
    hosts[1].state.answer.store(200, Ordering::Relaxed);
    until("no host is out", || proxy.stat(EJECTED) == Some(0));
    until("both serve", || served(&proxy) == BTreeSet::from([1, 2]));
}

/// Three errors in a row, as one worker counts them.
fn outliers(time: &str) -> String {
    format!(
        "outlier_detection: {{ consecutive_5xx: 3, interval: 0.05s, base_ejection_time: {time}, \
         max_ejection_percent: 50, enforcing_success_rate: 0 }}"
    )
}

const EJECTED: &str = "cluster.origin.outlier_detection.ejections_active";

/// Every 20 ms; one failure is believed at once.
const CHECK: &str = r"health_checks:
    - timeout: 5s
      interval: 0.02s
      no_traffic_interval: 0.02s
      unhealthy_threshold: 1
      healthy_threshold: 1
      http_health_check: { path: /healthz }";

const HEALTHY: &str = "cluster.origin.membership_healthy";

/// A bootstrap whose cluster has these hosts and fields.
fn watched(hosts: &[Host], fields: &str) -> String {
    let one = |address: SocketAddr| {
        format!(
            "{{ endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }} }}",
            address.ip(),
            address.port()
        )
    };
    let all: Vec<_> = hosts.iter().map(|host| one(host.address)).collect();
    bootstrap(hosts[0].address)
        .replace("type: STATIC", &format!("type: STATIC\n    lb_policy: ROUND_ROBIN\n    {fields}"))
        .replace(&one(hosts[0].address), &all.join(", "))
}

/// Who serves, by connections that reach both workers.
fn served(proxy: &Proxy) -> BTreeSet<u8> {
    let listener = proxy.listener("ingress");
    let answers = (0..24).map(|_| exchange_whole(&listener, "GET", "/").unwrap());
    let host = |answer: String| {
        let line = answer.lines().find_map(|line| line.strip_prefix("x-host: ").map(str::to_owned));
        line.unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
    };
    answers.map(host).collect()
}

/// What `/clusters` says of a host.
fn flags(proxy: &Proxy, host: &Host) -> String {
    let (_, text) = proxy.get("/clusters");
    let prefix = format!("origin::{}::health_flags", host.address);
    text.lines().find(|line| line.starts_with(&prefix)).unwrap_or_default().to_owned()
}

/// A server whose answers to checks can be changed.
struct Host {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    number: u8,
    /// What checks are told, and all others.
    status: AtomicU16,
    answer: AtomicU16,
    checks: AtomicU64,
}

impl Host {
    fn start(number: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (status, answer) = (AtomicU16::new(200), AtomicU16::new(200));
        let state = State { number, status, answer, checks: AtomicU64::new(0) };
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream.unwrap(), &shared));
            }
        });
        Self { address, state }
    }

    fn set(&self, status: u16) {
        self.state.status.store(status, Ordering::Relaxed);
    }

    fn checks(&self) -> u64 {
        self.state.checks.load(Ordering::Relaxed)
    }
}

fn serve(stream: &TcpStream, state: &State) {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !reader.read_line(&mut head).is_ok_and(|length| length > 0) {
                return;
            }
        }
        let mut status = state.answer.load(Ordering::Relaxed);
        if head.starts_with("GET /healthz ") {
            state.checks.fetch_add(1, Ordering::Relaxed);
            status = state.status.load(Ordering::Relaxed);
        }
        let number = state.number;
        let answer =
            format!("HTTP/1.1 {status} Said\r\nx-host: {number}\r\ncontent-length: 2\r\n\r\nok");
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
