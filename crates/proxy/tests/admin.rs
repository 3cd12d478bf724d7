//! The admin endpoint as operators and their tools see it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Proxy, bootstrap, exchange, origin, until};

#[test]
fn istio_sees_that_it_is_ready() {
    let proxy = start();
    let (status, text) =
        proxy.get("/stats?usedonly&filter=^(server\\.state|listener_manager\\.workers_started)$");
    assert_eq!(
        (status, text.as_str()),
        (200, "listener_manager.workers_started: 1\nserver.state: 0\n")
    );
}

#[test]
fn what_is_counted_of_a_host_stands_in_envoys_order() {
    let (_, text) = start().get("/clusters");
    let names = text.lines().filter_map(|line| line.split("::").nth(2));
    let names: Vec<_> = names.skip_while(|name| !name.starts_with("cx_")).take(10).collect();
    assert_eq!(
        names,
        [
            "cx_active",
            "cx_connect_fail",
            "cx_total",
            "rq_active",
            "rq_error",
            "rq_pending_active",
            "rq_success",
            "rq_timeout",
            "rq_total",
            "hostname",
        ],
        "{text}"
    );
}

#[test]
fn answers_have_envoys_shape() {
    let proxy = start();
    let listener = proxy.listener("ingress");
    assert_eq!(exchange(&listener, "GET", "/").unwrap(), (200, "hello".into()));
    for (path, needle) in [
        ("/", "<!DOCTYPE html>"),
        ("/help", "/drain_listeners (POST)"),
        ("/certs", "\"certificates\": []"),
        ("/clusters", "origin::default_priority::max_connections::1024\n"),
        ("/clusters", "::cx_total::1\n"),
        ("/clusters?format=json", "\"cluster_statuses\""),
        ("/clusters?format=json", "\"eds_health_status\": \"HEALTHY\""),
        ("/config_dump", "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump"),
        ("/config_dump?resource=static_clusters&mask=cluster.name", "\"name\": \"origin\""),
        ("/listeners", &format!("ingress::{listener}\n")),
        ("/listeners?format=json", "\"listener_statuses\""),
        ("/server_info", "\"state\": \"LIVE\""),
        ("/server_info", "\"concurrency\": 2"),
        ("/memory", "\"total_physical_bytes\""),
        ("/runtime", "\"layers\""),
        ("/hot_restart_version", "disabled"),
        ("/init_dump", "{}"),
        ("/stats", "cluster.origin.upstream_rq_total: 1\n"),
        ("/stats?format=json", "{\"name\":\"cluster.origin.upstream_rq_total\",\"value\":1}"),
        (
            "/stats?format=prometheus",
            "envoy_cluster_upstream_rq_total{envoy_cluster_name=\"origin\"} 1\n",
        ),
        ("/stats/prometheus", "# TYPE envoy_cluster_upstream_rq_total counter\n"),
        ("/stats/prometheus", "envoy_towpath_worker_wakeups{envoy_worker_id=\"0\"}"),
        ("/stats?type=Gauges&filter=^server", "server.live: 1\n"),
    ] {
        let (status, text) = proxy.get(path);
        assert_eq!(status, 200, "{path}");
        assert!(text.contains(needle), "{path} lacks {needle}:\n{text}");
    }
}

#[test]
fn statistics_are_sorted_and_unused_ones_left_out() {
    let proxy = start();
    let (_, all) = proxy.get("/stats?type=Counters");
    let names: Vec<&str> =
        all.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    assert!(names.is_sorted(), "{all}");
    let (_, used) = proxy.get("/stats?usedonly&type=Counters");
    assert!(!used.is_empty() && used.lines().count() < all.lines().count());
    assert!(used.lines().all(|line| !line.ends_with(": 0")), "{used}");
    let (_, others) = proxy.get("/stats?filter=^server&invert_filter");
    assert!(!others.contains("\nserver.") && others.contains("\ncluster_manager."), "{others}");
}

#[test]
fn the_endpoint_counts_itself() {
    let proxy = start();
    let listener = proxy.listener("ingress");
    assert_eq!(exchange(&listener, "GET", "/").unwrap(), (200, "hello".into()));
    let count = |text: &str, name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|value| value.parse().ok())
    };
    let (_, before) = proxy.get("/stats");
    assert_eq!(proxy.get("/nothing").0, 404);
    let (_, after) = proxy.get("/stats");
    let moved = |name: &str| count(&after, name).unwrap() - count(&before, name).unwrap();
    assert_eq!(moved("http.admin.downstream_rq_total"), 2);
    assert_eq!(moved("http.admin.downstream_rq_2xx"), 1);
    assert_eq!(moved("http.admin.downstream_rq_4xx"), 1);
    assert_eq!(moved("listener.admin.http.admin.downstream_rq_completed"), 2);
    assert_eq!(
        moved("listener.admin.downstream_cx_total"),
        moved("http.admin.downstream_cx_total")
    );
    assert_eq!(count(&after, "http.admin.downstream_rq_active"), Some(1), "this one");
    let (read, written) = ["rx", "tx"]
        .map(|way| moved(&format!("http.admin.downstream_cx_{way}_bytes_total")))
        .into();
    assert!((40..1000).contains(&read), "{read} bytes of two requests");
    assert!((before.len() as u64..2 * before.len() as u64).contains(&written), "{written} bytes");
    let (_, metrics) = proxy.get("/stats/prometheus");
    for prefix in ["admin", "ingress"] {
        let sample = format!(
            "envoy_http_downstream_rq_total{{envoy_http_conn_manager_prefix=\"{prefix}\"}}"
        );
        assert_eq!(metrics.matches(&sample).count(), 1, "{sample}");
    }
}

#[test]
fn what_is_wrong_is_refused_as_envoy_refuses_it() {
    let proxy = start();
    for (path, status, words) in [
        ("/nope", 404, "invalid path. admin commands are:"),
        ("/logging", 405, "Method GET not allowed, POST required."),
        ("/quitquitquit", 405, "Method GET not allowed, POST required."),
        ("/drain_listeners", 405, "Method GET not allowed, POST required."),
        ("/stats?filter=(", 400, "Invalid re2 regex"),
        ("/stats?type=foo", 400, "invalid &type= param"),
        ("/stats?format=foo", 400, "usage: /stats?format="),
        ("/stats?histogram_buckets=detailed", 400, "histogram_buckets=detailed is not supported"),
        (
            "/stats/prometheus?histogram_buckets=detailed",
            400,
            "histogram_buckets=detailed is not supported",
        ),
        ("/config_dump?resource=foo", 404, "foo not found in config dump"),
    ] {
        let (got, text) = proxy.get(path);
        assert_eq!(got, status, "{path}");
        assert!(text.starts_with(words), "{path}: {text}");
    }
    assert_eq!(exchange(&proxy.admin, "DELETE", "/stats").unwrap().0, 405);
}

#[test]
fn levels_change_while_it_runs() {
    let proxy = start();
    let (status, text) = proxy.post("/logging?paths=upstream:debug,config:trace");
    assert_eq!(status, 200);
    assert!(text.contains("  upstream: debug\n") && text.contains("  config: trace\n"));
    assert!(proxy.post("/logging").1.contains("  upstream: debug\n"));
    assert!(proxy.post("/logging?level=error").1.contains("  upstream: error\n"));
    for wrong in [
        "/logging?level=loud",
        "/logging?absent=debug",
        "/logging?paths=upstream:debug,absent:info",
    ] {
        assert_eq!(proxy.post(wrong).0, 400, "{wrong}");
    }
    assert!(proxy.post("/logging").1.contains("  upstream: error\n"), "all or nothing");
}

#[test]
fn a_failed_health_check_can_be_taken_back() {
    let proxy = start();
    assert_eq!(proxy.post("/healthcheck/fail").0, 200);
    assert_eq!(proxy.get("/ready"), (503, "DRAINING\n".into()));
    assert_eq!(proxy.stat("server.state"), Some(1));
    assert_eq!(proxy.stat("server.live"), Some(0));
    proxy.post("/healthcheck/ok");
    assert_eq!(proxy.get("/ready"), (200, "LIVE\n".into()));
}

#[test]
fn counters_are_reset_and_gauges_are_not() {
    let proxy = start();
    let listener = proxy.listener("ingress");
    exchange(&listener, "GET", "/").unwrap();
    assert_eq!(proxy.stat("cluster.origin.upstream_rq_total"), Some(1));
    assert_eq!(proxy.post("/reset_counters").0, 200);
    assert_eq!(proxy.stat("cluster.origin.upstream_rq_total"), Some(0));
    assert_eq!(proxy.stat("server.concurrency"), Some(2));
    exchange(&listener, "GET", "/").unwrap();
    assert_eq!(proxy.stat("cluster.origin.upstream_rq_total"), Some(1));
}

#[test]
fn tags_from_the_command_line_are_on_every_metric() {
    let proxy = Proxy::start(
        &bootstrap(origin(Duration::ZERO)),
        &["--stats-tag", "foo:bar", "--stats-tag", "abc:1"],
    );
    let (_, text) = proxy.get("/stats/prometheus");
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(
        !samples.is_empty() && samples.iter().all(|line| line.contains("foo=\"bar\",abc=\"1\"")),
        "{text}"
    );
    assert!(text.contains("envoy_server_live{foo=\"bar\",abc=\"1\"} 1\n"));
}

#[test]
fn drained_listeners_take_no_more_connections() {
    let proxy = start();
    let listener = proxy.listener("ingress");
    let mut open = TcpStream::connect(&listener).unwrap();
    ask(&mut open);
    assert_eq!(proxy.post("/drain_listeners?inboundonly").0, 200);
    until("refused", || TcpStream::connect(&listener).is_err());
    assert_eq!(proxy.get("/ready").0, 200);
}

#[test]
fn a_graceful_drain_goes_on_accepting() {
    let proxy = Proxy::start(
        &bootstrap(origin(Duration::ZERO)),
        &["--drain-time-s", "1", "--drain-strategy", "immediate"],
    );
    let listener = proxy.listener("ingress");
    assert_eq!(proxy.post("/drain_listeners?graceful").0, 200);
    let mut stream = TcpStream::connect(&listener).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("connection: close\r\n") && answer.ends_with("hello"), "{answer}");
    until("the drain time is over", || TcpStream::connect(&listener).is_err());
}

#[test]
fn quitting_ends_the_process() {
    let mut proxy = start();
    assert_eq!(proxy.post("/quitquitquit"), (200, "OK\n".into()));
    assert!(proxy.wait().success());
}

#[test]
fn a_crowd_of_silent_clients_does_not_lock_others_out() {
    let proxy = start();
    let crowd: Vec<TcpStream> =
        (0..150).map(|_| TcpStream::connect(&proxy.admin).unwrap()).collect();
    assert_eq!(proxy.get("/ready").0, 200);
    drop(crowd);
}

#[test]
fn a_head_without_end_is_refused() {
    let proxy = start();
    let mut stream = TcpStream::connect(&proxy.admin).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    stream.write_all(b"GET /ready HTTP/1.1\r\nhost: x\r\nx: ").unwrap();
    let junk = vec![b'a'; 16 * 1024];
    for _ in 0..8 {
        if stream.write_all(&junk).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(proxy.get("/ready").0, 200);
}

#[test]
fn the_endpoint_may_be_a_unix_socket_and_keeps_an_access_log() {
    let scratch = common::Scratch::new();
    let (socket, log) = (scratch.path("socket"), scratch.path("admin.log"));
    let text = bootstrap(origin(Duration::ZERO)).replace(
        "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }",
        &format!(
            "admin:\n  address: {{ pipe: {{ path: {}, mode: 384 }} }}\n  access_log:\n  - name: file\n    \
             typed_config: \
             {{ \"@type\": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: {} }}",
            socket.display(),
            log.display()
        ),
    );
    let proxy = Proxy::launch(scratch, &text, &[]);
    assert_eq!(proxy.admin, socket.display().to_string());
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream
        .write_all(b"GET /listeners?format=json HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    until("the line is written", || {
        proxy.scratch.read("admin.log").contains("\"GET /listeners?format=json HTTP/1.1\" 200 - 0 ")
    });
}

#[test]
fn its_thread_lets_all_others_go_first() {
    let proxy = start();
    let (admin, process) = proxy.niceness("admin");
    assert_eq!(admin, [(process + 10).min(19)]);
    assert_eq!(proxy.niceness("worker-0").0, [process]);
    assert_eq!(proxy.niceness("worker-1").0, [process]);
}

/// A client that asks for 20 MB and does not read them costs one piece of them, and holds up no other client.
#[test]
fn statistics_are_made_as_fast_as_they_are_read() {
    const CLUSTERS: usize = 1000;
    let more = |number| {
        format!(
            "  - {{ name: service-{number}, type: STATIC, load_assignment: {{ cluster_name: a, endpoints: [ \
             {{ lb_endpoints: [ {{ endpoint: {{ address: {{ socket_address: \
             {{ address: 127.0.0.1, port_value: 9 }} }} }} }} ] }} ] }} }}\n"
        )
    };
    let text = bootstrap(origin(Duration::ZERO)) + &(0..CLUSTERS).map(more).collect::<String>();
    let proxy = Proxy::start(&text, &[]);
    let listener = proxy.listener("ingress");
    let resident = || {
        let path = format!("/proc/{}/status", proxy.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    // What a scrape leaves in the heap is there before.
    let (_, page) = proxy.get("/stats/prometheus");
    let before = resident();
    let clients: [TcpStream; 3] = std::array::from_fn(|_| {
        let mut stream = TcpStream::connect(&proxy.admin).unwrap();
        stream.write_all(b"GET /stats/prometheus HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream
    });
    // Each has begun.
    for stream in &clients {
        stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
    }
    assert_eq!(proxy.get("/ready").0, 200);
    assert_eq!(exchange(&listener, "GET", "/").unwrap().0, 200);
    let more = resident().saturating_sub(before);
    assert!(page.len() > 15_000_000, "{}", page.len());
    assert!(more < 10, "{more} MiB for three pages of {} bytes", page.len());
    drop(clients);
}

fn start() -> Proxy {
    Proxy::start(&bootstrap(origin(Duration::ZERO)), &[])
}

/// A request on a connection that stays open.
fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    let mut answer = [0; 4096];
    let mut length = 0;
    while !answer[..length].ends_with(b"hello") {
        let read = stream.read(&mut answer[length..]).unwrap();
        assert!(read > 0, "closed");
        length += read;
    }
}
