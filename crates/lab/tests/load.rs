//! What the generator counts is what the server served.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_lab::address::Address;
use towpath_lab::load::{Arrivals, Entry, LoadError, Plan, Protocol, Request, run};
use towpath_lab::origin::{Origin, Running, spawn};
use towpath_proto::bolt::Version;

fn local() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

fn plan(server: &Running) -> Plan {
    let mut plan = Plan::new(server.address().clone().into());
    plan.duration = Duration::from_millis(400);
    plan.connections = 8;
    plan
}

#[test]
fn every_arrival_process_sends_what_it_intends() {
    let rate = 1000.0;
    let starts = (0..400).map(Duration::from_millis).collect();
    for (arrivals, expected) in [
        (Arrivals::Paced { rate }, 400..=400),
        (Arrivals::Poisson { rate }, 320..=480),
        (Arrivals::Bunched { rate, size: 8 }, 400..=400),
        (Arrivals::Ticked { rate, tick: Duration::from_millis(3) }, 397..=400),
        (Arrivals::PerConnection { per_connection_rate: 125.0 }, 400..=400),
        (Arrivals::ClosedCapped { per_connection_rate: 125.0 }, 380..=400),
        (Arrivals::Recorded { starts }, 400..=400),
    ] {
        let server = spawn(&Origin::http(local(), 100)).unwrap();
        let mut plan = plan(&server);
        plan.arrivals = arrivals;
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.errors.total(), 0, "{}", outcome.arrivals);
        assert!(expected.contains(&outcome.sent), "{}: {}", outcome.arrivals, outcome.sent);
        // No request was made beside them.
        assert_eq!(server.served(), outcome.sent, "{}", outcome.arrivals);
        assert_eq!(outcome.latency.count(), outcome.sent);
    }
}

#[test]
fn a_busy_generator_is_as_slow_as_it_is_told_and_charges_it_to_no_server() {
    let server = spawn(&Origin::http(local(), 100)).unwrap();
    let mut plan = plan(&server);
    plan.busy = Duration::from_millis(4);
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.errors.total(), 0);
    // Of 400 ms; a request takes 4 at least, whichever of the eight connections it is on.
    assert!((1..=101).contains(&outcome.answered), "{}", outcome.answered);
    // Others may have the processor for some of that; one that is not busy takes some 20 µs.
    assert!(outcome.generator.cpu_ns >= outcome.answered * 500_000);
    plan.busy = Duration::from_secs(2);
    assert!(matches!(run(&plan), Err(LoadError::Plan(_))));
}

#[test]
fn arrivals_that_are_close_stay_apart_where_the_generator_is_awake_for_them() {
    let server = spawn(&Origin::http(local(), 100)).unwrap();
    let mut plan = plan(&server);
    let pair = |at: u64| [at, at + 30].map(Duration::from_micros);
    let starts = (1..200).flat_map(|number| pair(number * 2000)).collect();
    (plan.arrivals, plan.awake) = (Arrivals::Recorded { starts }, Duration::from_micros(300));
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.sent, outcome.errors.total()), (398, 0));
    // A sleeper is later than that with every one; others may have the processor at any time.
    let late = outcome.generator.send_lateness.quantile(0.1);
    assert!(late < 5_000, "{late}");
}

#[test]
fn a_busy_generator_sends_in_time_and_works_while_the_server_does() {
    let server = spawn(&Origin::http(local(), 100)).unwrap();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut plan = plan(&server);
        (plan.protocol, plan.arrivals) = (protocol, Arrivals::Paced { rate: 20.0 });
        (plan.duration, plan.busy) = (Duration::from_secs(1), Duration::from_millis(8));
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.sent, outcome.errors.total()), (20, 0));
        // Others may have the processor at any time; half of the work before each request would make all of them late.
        let least = outcome.generator.send_lateness.quantile(0.0);
        assert!(least < 3_900_000, "{protocol:?}: {least}");
        // The answer lies there until the work is done.
        let least = outcome.service.quantile(0.0);
        assert!(least >= 3_900_000, "{protocol:?}: {least}");
    }
}

#[test]
fn threads_together_send_what_one_would_and_count_it_exactly() {
    let rate = 1000.0;
    for arrivals in [
        Arrivals::Paced { rate },
        Arrivals::Bunched { rate, size: 10 },
        Arrivals::PerConnection { per_connection_rate: 100.0 },
        Arrivals::Closed,
    ] {
        let server = spawn(&Origin::http(local(), 100)).unwrap();
        let mut plan = plan(&server);
        (plan.connections, plan.threads) = (10, 3);
        plan.pids = vec![std::process::id()];
        plan.arrivals = arrivals.clone();
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.errors.total(), 0, "{}", outcome.arrivals);
        assert_eq!(
            (outcome.connections, outcome.connections_wanted),
            (10, 10),
            "{}",
            outcome.arrivals
        );
        if arrivals != Arrivals::Closed {
            assert_eq!(
                (outcome.sent, outcome.intended_rps),
                (400, Some(1000.0)),
                "{}",
                outcome.arrivals
            );
        }
        assert_eq!(server.served(), outcome.sent, "{}", outcome.arrivals);
        assert_eq!(
            (outcome.latency.count(), outcome.service.count()),
            (outcome.sent, outcome.sent)
        );
        let of_series: u64 =
            outcome.series.points(outcome.duration).iter().map(|it| it.answered).sum();
        assert!(of_series <= outcome.sent && of_series * 10 >= outcome.sent * 9, "{of_series}");
        assert_eq!(outcome.target.unwrap().answered, outcome.answered);
    }
    let server = spawn(&Origin::http(local(), 0)).unwrap();
    let too_many = Plan { threads: 9, ..plan(&server) };
    assert!(matches!(run(&too_many), Err(LoadError::Plan(_))), "a thread without a connection");
    // Nothing listens there, and nothing else can be given it: a connection has it.
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let gone = connected.local_addr().unwrap();
    let nowhere = Plan { threads: 3, target: Address::Tcp(gone).into(), ..plan(&server) };
    assert!(
        matches!(run(&nowhere), Err(LoadError::Connect { .. })),
        "its reason, not that others wait"
    );
}

#[test]
fn messages_over_websocket_are_counted_one_by_one() {
    let rate = 1000.0;
    for (arrivals, size, keep_alive) in [
        (Arrivals::Paced { rate }, 5, true),
        (Arrivals::Paced { rate }, 70_000, true),
        (Arrivals::PerConnection { per_connection_rate: 125.0 }, 200, true),
        // A connection and a handshake for each message.
        (Arrivals::Paced { rate: 100.0 }, 64, false),
    ] {
        let server = spawn(&Origin::websocket(local())).unwrap();
        let mut plan = plan(&server);
        (plan.protocol, plan.arrivals, plan.keep_alive) =
            (Protocol::WebSocket, arrivals, keep_alive);
        plan.request = Request::with_body(size);
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.errors.total(), 0, "{size}: {:?}", outcome.errors);
        assert_eq!(outcome.sent, if keep_alive { 400 } else { 40 });
        assert_eq!((server.served(), outcome.latency.count()), (outcome.sent, outcome.sent));
    }
    // With a delay at the server, and connections that open while the rate is asked for.
    let delay = Duration::from_millis(20);
    let server = spawn(&Origin { delay, ..Origin::websocket(local()) }).unwrap();
    let mut late = plan(&server);
    (late.protocol, late.connection_ramp) = (Protocol::WebSocket, Duration::from_millis(100));
    late.arrivals = Arrivals::Paced { rate: 100.0 };
    let outcome = run(&late).unwrap();
    assert_eq!((outcome.errors.total(), outcome.sent), (0, 40));
    assert!(outcome.service.quantile(0.5) >= 20_000_000);
    // A server that does not speak it says why nothing can be measured.
    let server = spawn(&Origin::http(local(), 0)).unwrap();
    let refused = Plan { protocol: Protocol::WebSocket, ..plan(&server) };
    let error = run(&refused).unwrap_err().to_string();
    assert!(error.contains("does not switch to WebSocket: it answers 200"), "{error}");
    let mixed = Plan { mix: vec![Entry::default()], ..refused };
    assert!(matches!(run(&mixed), Err(LoadError::Plan(_))));
}

#[test]
fn several_requests_are_drawn_filled_in_and_checked() {
    let (seen, address) = serve_by_path();
    let entry = |name: &str, weight, path: &str| Entry {
        name: name.to_owned(),
        weight,
        path: Some(path.to_owned()),
        ..Entry::default()
    };
    let mut found = entry("found", 3, "/found/{number}");
    found.check.contains = Some(b"needle".to_vec());
    let mut missing = entry("missing", 1, "/missing");
    missing.check.status = Some(404);
    let mut wrong = entry("wrong", 1, "/found/x");
    wrong.check.contains = Some(b"haystack".to_vec());
    wrong.request.body = b"{\"id\": {random:1-3}}".to_vec();
    let mut plan = Plan::new(address.into());
    plan.mix = vec![found, missing, wrong];
    plan.arrivals = Arrivals::Paced { rate: 500.0 };
    plan.duration = Duration::from_millis(400);
    plan.timeout = Duration::from_secs(30);
    plan.threads = 2;
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.sent, 200);
    let counts: Vec<(u64, u64)> =
        outcome.entries.iter().map(|it| (it.latency.count(), it.errors)).collect();
    assert_eq!(counts.iter().map(|(right, wrong)| right + wrong).sum::<u64>(), 200);
    assert!((90..150).contains(&counts[0].0) && counts[0].1 == 0, "{counts:?}");
    assert!(counts[1].0 > 15 && counts[1].1 == 0, "a wanted 404 is no error: {counts:?}");
    assert!(counts[2].0 == 0 && counts[2].1 == outcome.errors.of("check"), "{counts:?}");
    let mut paths = seen.lock().unwrap().clone();
    let numbered =
        paths.iter().filter(|path| path.starts_with("/found/") && *path != "/found/x").count();
    paths.sort();
    paths.dedup();
    let different =
        paths.iter().filter(|path| path.starts_with("/found/") && *path != "/found/x").count();
    assert_eq!(numbered, different, "no number twice");
    let json = outcome.to_json();
    assert_eq!(json["requests"][1]["name"], "missing");
    assert_eq!(json["requests"][2]["latency_ns"], serde_json::Value::Null, "of nothing");
    let page = outcome.to_page(&plan, "again").to_markdown();
    let line = format!("| wrong | 0 | {} | – | – | – |", counts[2].1);
    assert!(page.contains("### Requests") && page.contains(&line), "{page}");
}

/// Answers /found with a chunked body that has a needle across two chunks, anything else with 404.
fn serve_by_path() -> (Arc<Mutex<Vec<String>>>, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.unwrap(), Arc::clone(&all));
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                    let path = text.split(' ').nth(1).unwrap().to_owned();
                    let answer = if path.starts_with("/found") {
                        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na nee\r\n5\r\ndle.\n\r\n0\r\n\r\n"
                    } else {
                        "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"
                    };
                    seen.lock().unwrap().push(path);
                    if stream.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (seen, address)
}

#[test]
fn posts_close_and_echo_work_on_both_kinds_of_socket() {
    let unix = Address::Unix(format!("@towpath-load-{}", std::process::id()).into());
    for listen in [local(), unix] {
        let server = spawn(&Origin::http(listen.clone(), 10)).unwrap();
        let mut plan = plan(&server);
        plan.request = Request::with_body(3000);
        plan.keep_alive = false;
        plan.arrivals = Arrivals::Paced { rate: 500.0 };
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.sent, outcome.errors.total()), (200, 0));
        drop(server);

        let server = spawn(&Origin::tcp(listen)).unwrap();
        let mut plan = Plan { target: server.address().clone().into(), ..plan };
        plan.protocol = Protocol::Tcp;
        plan.keep_alive = true;
        plan.request = Request::with_body(200_000);
        plan.arrivals = Arrivals::Closed;
        let outcome = run(&plan).unwrap();
        assert!(outcome.sent > 20, "{}", outcome.sent);
        assert_eq!(outcome.errors.total(), 0, "{:?}", outcome.errors);
    }
}

#[test]
fn bolt_keeps_requests_in_flight_and_checks_each_answer() {
    for version in [Version::V1, Version::V2 { checksums: false }, Version::V2 { checksums: true }]
    {
        let server = spawn(&Origin::bolt(local(), 1024)).unwrap();
        let mut plan = bolt_plan(&server, version);
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.errors.total(), 0, "{version:?}: {:?}", outcome.errors);
        assert!(outcome.sent > 1000, "{}", outcome.sent);
        // The server counts when it has answered.
        let deadline = Instant::now() + Duration::from_secs(5);
        while server.served() < outcome.sent && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(server.served(), outcome.sent, "{version:?}");
        plan.arrivals = Arrivals::Paced { rate: 1000.0 };
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.sent, outcome.errors.total()), (400, 0), "{version:?}");
    }
    let slow = Origin { delay: Duration::from_millis(20), ..Origin::bolt(local(), 16) };
    let server = spawn(&slow).unwrap();
    let outcome = run(&bolt_plan(&server, Version::V1)).unwrap();
    // Eight connections with sixteen requests each, twenty times at most.
    assert!((1280..=2560).contains(&outcome.sent), "{}", outcome.sent);
    assert_eq!(outcome.errors.total(), 0, "{:?}", outcome.errors);
}

#[test]
fn bolt_answers_that_are_not_the_requests_own_are_errors() {
    let mut refusing = Origin::bolt(local(), 1024);
    refusing.status = 503;
    let server = spawn(&refusing).unwrap();
    let mut plan = bolt_plan(&server, Version::V1);
    plan.arrivals = Arrivals::Paced { rate: 100.0 };
    assert_eq!(run(&plan).unwrap().errors.of("status"), 40);
    // Too short to carry the number of its request.
    let server = spawn(&Origin::bolt(local(), 8)).unwrap();
    plan.target = server.address().clone().into();
    assert_eq!(run(&plan).unwrap().errors.of("crossed"), 40);
    plan.target = serve_badly(b"nonsense").into();
    assert!(run(&plan).unwrap().errors.of("malformed") >= 10);
    // An answer to nothing.
    let unasked = b"\x01\x00\x00\x02\x01\x7f\x7f\x7f\x7f\x01\x00\x00\0\0\0\0\0\0\0\0";
    plan.target = serve_badly(unasked).into();
    assert!(run(&plan).unwrap().errors.of("unasked") >= 10);
    plan.arrivals = Arrivals::Closed;
    plan.in_flight = 0;
    assert!(matches!(run(&plan), Err(LoadError::Plan(_))));
}

fn bolt_plan(server: &Running, version: Version) -> Plan {
    let mut plan = plan(server);
    plan.protocol = Protocol::Bolt;
    plan.request = Request::with_body(1024);
    plan.request.headers.push(("service".to_owned(), "com.example.Echo:1.0".to_owned()));
    plan.bolt.version = version;
    plan.in_flight = 16;
    plan
}

#[test]
fn errors_are_counted_by_kind() {
    let mut refusing = Origin::http(local(), 0);
    refusing.status = 503;
    let server = spawn(&refusing).unwrap();
    let mut plan = plan(&server);
    plan.arrivals = Arrivals::Paced { rate: 100.0 };
    assert_eq!(run(&plan).unwrap().errors.of("status"), 40);

    let slow = Origin { delay: Duration::from_millis(300), ..Origin::http(local(), 0) };
    let server = spawn(&slow).unwrap();
    plan.target = server.address().clone().into();
    plan.timeout = Duration::from_millis(100);
    let outcome = run(&plan).unwrap();
    assert!(outcome.errors.of("timeout") >= 20, "{:?}", outcome.errors);
    assert_eq!(outcome.latency.count(), 0);

    plan.target = serve_badly(b"nonsense\r\n\r\n").into();
    assert!(run(&plan).unwrap().errors.of("malformed") >= 10);
    plan.target = serve_badly(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").into();
    assert!(run(&plan).unwrap().errors.of("closed") >= 10);
}

#[test]
fn plans_that_make_no_sense_and_servers_that_are_not_there_are_refused() {
    let server = spawn(&Origin::http(local(), 0)).unwrap();
    for (connections, rate, duration) in [(0, 1.0, 1), (1, 0.0, 1), (1, f64::NAN, 1), (1, 1.0, 0)] {
        let mut plan = plan(&server);
        (plan.connections, plan.duration) = (connections, Duration::from_secs(duration));
        plan.arrivals = Arrivals::Paced { rate };
        assert!(matches!(run(&plan), Err(LoadError::Plan(_))));
    }
    let mut plan = plan(&server);
    plan.pids = vec![u32::MAX];
    assert!(matches!(run(&plan), Err(LoadError::Meter(_))));
    // Nothing listens there, and nothing else can be given it: a connection has it.
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let gone = connected.local_addr().unwrap();
    plan.target = Address::Tcp(gone).into();
    assert!(matches!(run(&plan), Err(LoadError::Connect { .. })));
}

#[test]
fn slices_are_merged_and_the_json_has_its_keys() {
    let server = spawn(&Origin::http(local(), 100)).unwrap();
    let mut plan = plan(&server);
    plan.pids = vec![std::process::id()];
    plan.arrivals = Arrivals::Paced { rate: 500.0 };
    let mut outcome = run(&plan).unwrap();
    outcome.merge(&run(&plan).unwrap());
    assert_eq!((outcome.sent, outcome.latency.count()), (400, 400));
    assert!((outcome.achieved_rps() - 500.0).abs() < 25.0);
    let json = outcome.to_json();
    for pointer in [
        "/intended_rps",
        "/sent",
        "/achieved_rps",
        "/errors",
        "/connections",
        "/arrivals",
        "/latency_ns/p50",
        "/latency_ns/p90",
        "/latency_ns/p95",
        "/latency_ns/p99",
        "/latency_ns/p999",
        "/latency_ns/max",
        "/service_ns/p999",
        "/target/cpu_ns_per_request",
        "/target/user_ns",
        "/target/system_ns",
        "/target/rss_bytes",
        "/target/pss_bytes",
        "/target/peak_bytes",
        "/target/syscalls_per_request",
        "/generator/cpu_fraction",
        "/generator/send_lateness_ns/p999",
        "/noise/steal",
        "/noise/psi_cpu",
        "/noise/load",
        "/warnings",
    ] {
        assert!(json.pointer(pointer).is_some(), "{pointer}");
    }
    let fortio = outcome.to_fortio(&plan);
    // Fortio's rate is its count over its time.
    let number =
        |pointer: &str| fortio.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap();
    assert_eq!(
        number("/ActualQPS") * number("/ActualDuration") / 1e9,
        number("/DurationHistogram/Count")
    );
    assert_eq!(outcome.to_csv().lines().count(), 3, "a head and a line for each run");
    assert_eq!(fortio["DurationHistogram"]["Count"], 400);
    let counts = fortio["DurationHistogram"]["Data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["Count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 400);
    assert!(outcome.to_histogram_log().contains("Tag=latency,"));
    assert!(outcome.to_page(&plan, "again").to_html().contains("service time"));
    assert_eq!(json["schema"], 1);
    assert!(json["target"]["cpu_ns_per_request"].as_f64().unwrap() > 1000.0);
}

/// Answers whatever is said with `bytes` and closes.
fn serve_badly(bytes: &'static [u8]) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                if stream.read(&mut [0; 1000]).is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(bytes);
                }
            });
        }
    });
    address
}
