//! No descriptors left, and more connections than a listener takes.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::common::{PATIENCE, Proxy, Scratch, bootstrap, origin, until, with_access_log};
use crate::load::{Habit, Load, ask};
use crate::{many_descriptors, memory, nothing_is_left};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn without_descriptors_it_goes_on_serving_and_recovers() {
    let config = bootstrap(origin(Duration::ZERO));
    let scratch = Scratch::new();
    let log = scratch.path("log").display().to_string();
    let flags = ["--concurrency", "1", "--log-path", &log];
    let proxy = Proxy::launch_limited(scratch, &config, &flags, 96);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    let (_, early) = ask(TcpStream::connect(&listener).unwrap(), GET).unwrap();
    // The kernel takes them all; the proxy has no descriptors for so many.
    let crowd: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&listener).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(200));
    // Who was there before is served: over its pooled connection nothing new is needed.
    let mut early = Some(early);
    for _ in 0..20 {
        let (answer, stream) = ask(early.take().unwrap(), GET).unwrap();
        assert_eq!(answer.status, 200);
        early = Some(stream);
    }
    for _ in 0..5 {
        assert_eq!(proxy.get("/ready").1, "LIVE\n", "a probe does not end the process for this");
    }
    drop(crowd);
    let (answer, _) = ask(TcpStream::connect(&listener).unwrap(), GET).unwrap();
    assert_eq!(answer.status, 200, "it recovers");
    assert!(proxy.stat("towpath.worker_0.accepts_exhausted") > Some(0), "it is counted");
    until("told", || proxy.scratch.read("log").contains("no file descriptors"));
    drop(early);
    nothing_is_left(&proxy);
}

#[test]
fn an_access_log_that_cannot_be_written_is_told_of_once() {
    let scratch = Scratch::new();
    let log = scratch.path("log").display().to_string();
    let config = with_access_log(&bootstrap(origin(Duration::ZERO)), Path::new("/dev/full"));
    let proxy = Proxy::launch(scratch, &config, &["--log-path", &log]);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    for failures in 1..4 {
        ask(TcpStream::connect(&listener).unwrap(), GET).unwrap();
        until("failed", || proxy.stat("filesystem.write_failed") >= Some(failures));
    }
    let told = proxy.scratch.read("log");
    let lines = told.matches("cannot write access log '/dev/full': No space left on device");
    assert_eq!(lines.count(), 1, "{told}");
}

#[test]
fn requests_that_find_no_descriptor_are_answered() {
    let config = bootstrap(origin(Duration::from_millis(100)));
    let proxy = Proxy::launch_limited(Scratch::new(), &config, &["--concurrency", "1"], 96);
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let load = Load::start(&proxy.listener("ingress"), 80, Habit::KeepAlive);
    std::thread::sleep(Duration::from_millis(1500));
    let tally = load.stop();
    eprintln!("without descriptors: {tally:?}");
    assert_eq!(tally.lost(), 0, "{tally:?}");
    // Where clients come slowly, connections to the origin take the descriptors first, and later clients wait for one.
    let waited = proxy.stat("towpath.worker_0.accepts_exhausted") > Some(0);
    assert!(tally.count(200) > 0 && (tally.count(503) > 0 || waited), "{tally:?}");
    assert_eq!(tally.answered(), tally.count(200) + tally.count(503), "{tally:?}");
    assert_eq!(proxy.stat("http.ingress.downstream_rq_5xx"), Some(tally.count(503)));
    nothing_is_left(&proxy);
}

#[test]
fn a_flood_beyond_the_listener_limit_is_turned_away_and_counted() {
    many_descriptors();
    let limit = "layered_runtime: { layers: [ { name: static, static_layer: \
        { envoy.resource_limits.listener.ingress.connection_limit: 50 } } ] }\n";
    let config = [&bootstrap(origin(Duration::ZERO)), limit].concat();
    let proxy = Proxy::start(&config, &["--concurrency", "1"]);
    let listener = proxy.listener("ingress");
    let mut inside: Vec<TcpStream> =
        (0..50).map(|_| ask(TcpStream::connect(&listener).unwrap(), GET).unwrap().1).collect();
    for _ in 0..5 {
        let flood: Vec<TcpStream> =
            (0..200).map(|_| TcpStream::connect(&listener).unwrap()).collect();
        for mut stream in flood {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut nothing = Vec::new();
            let outcome = stream.read_to_end(&mut nothing);
            let late = outcome.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!late && nothing.is_empty(), "who is turned away gets nothing but the end");
        }
        inside = inside
            .into_iter()
            .map(|stream| {
                let (answer, stream) = ask(stream, GET).unwrap();
                assert_eq!(answer.status, 200);
                stream
            })
            .collect();
    }
    let (_, stats) = proxy.get("/stats?filter=downstream_cx_overflow");
    assert!(stats.trim().ends_with(": 1000"), "{stats}");
    drop(inside);
    nothing_is_left(&proxy);
    let (answer, _) = ask(TcpStream::connect(&listener).unwrap(), GET).unwrap();
    assert_eq!(answer.status, 200, "there is room again");
}

#[test]
fn as_many_clients_as_requests_are_allowed_are_served_by_any_number_of_workers() {
    let breaker = "    circuit_breakers: { thresholds: [ { max_requests: 12, track_remaining: true } ] }\n    \
        connect_timeout: 1s\n";
    let config =
        bootstrap(origin(Duration::from_millis(20))).replace("    connect_timeout: 1s\n", breaker);
    for workers in ["2", "4"] {
        let proxy = Proxy::start(&config, &["--concurrency", workers]);
        let load = Load::start(&proxy.listener("ingress"), 12, Habit::KeepAlive);
        until("requests", || proxy.stat("cluster.origin.upstream_rq_total") > Some(300));
        let tally = load.stop();
        assert_eq!(tally.count(503), 0, "{workers} workers: {tally:?}");
        assert!(tally.count(200) >= 300, "{tally:?}");
        nothing_is_left(&proxy);
        let remaining = proxy.stat("cluster.origin.circuit_breakers.default.remaining_rq");
        assert_eq!(remaining, Some(12), "what is taken is given back");
    }
}

#[test]
fn idle_connections_cost_little_memory() {
    many_descriptors();
    let proxy = Proxy::start(&bootstrap(origin(Duration::ZERO)), &[]);
    let listener = proxy.listener("ingress");
    let before = memory(&proxy);
    let count = 900;
    let idle: Vec<TcpStream> =
        (0..count).map(|_| ask(TcpStream::connect(&listener).unwrap(), GET).unwrap().1).collect();
    let grown = memory(&proxy).saturating_sub(before);
    eprintln!("{count} idle connections: {} KiB, {} bytes each", grown >> 10, grown / count);
    assert!(grown < count * 1536, "{count} idle connections cost {grown} bytes");
    drop(idle);
    nothing_is_left(&proxy);
}

#[test]
#[ignore = "takes 10,000 descriptors"]
fn ten_thousand_idle_connections_cost_a_kibibyte_each_at_most() {
    let most = many_descriptors();
    if most < 10_200 {
        assert!(std::env::var_os("CI").is_none(), "too few descriptors: {most}");
        eprintln!("left out, there are too few descriptors: {most}");
        return;
    }
    let proxy = Proxy::start(&bootstrap(origin(Duration::ZERO)), &[]);
    let listener = proxy.listener("ingress");
    let before = memory(&proxy);
    let count = 10_000;
    let idle: Vec<TcpStream> =
        (0..count).map(|_| ask(TcpStream::connect(&listener).unwrap(), GET).unwrap().1).collect();
    let grown = memory(&proxy).saturating_sub(before);
    eprintln!("{count} idle connections: {} KiB, {} bytes each", grown >> 10, grown / count);
    assert!(grown <= count << 10, "{count} idle connections cost {grown} bytes");
    drop(idle);
    nothing_is_left(&proxy);
}
