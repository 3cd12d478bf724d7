//! SIGTERM drains, a second one ends, SIGUSR1 opens logs anew, SIGHUP reads the configuration again.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{PATIENCE, Proxy, Scratch, bootstrap, exchange, origin, until, with_access_log};

#[test]
fn idle_it_ends_at_once() {
    for signal in ["TERM", "INT"] {
        let mut proxy = Proxy::start(&bootstrap(origin(Duration::ZERO)), &[]);
        let start = Instant::now();
        proxy.signal(signal);
        assert!(proxy.wait().success());
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_request_that_is_under_way_is_answered() {
    let mut proxy = Proxy::start(&bootstrap(origin(Duration::from_millis(400))), &[]);
    let listener = proxy.listener("ingress");
    let mut stream = request(&listener);
    until("the request is under way", || {
        proxy.stat("http.ingress.downstream_rq_active") == Some(1)
    });
    proxy.signal("TERM");
    until("no more connections", || TcpStream::connect(&listener).is_err());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    assert!(proxy.wait().success());
}

#[test]
fn it_says_that_it_drains() {
    let proxy = Proxy::start(&bootstrap(origin(Duration::from_secs(2))), &[]);
    let _stream = request(&proxy.listener("ingress"));
    until("the request is under way", || {
        proxy.stat("http.ingress.downstream_rq_active") == Some(1)
    });
    proxy.signal("TERM");
    until("draining", || proxy.get("/ready") == (503, "DRAINING\n".into()));
    assert_eq!(proxy.stat("server.state"), Some(1));
}

#[test]
fn a_second_signal_ends_it() {
    let mut proxy = Proxy::start(&bootstrap(origin(PATIENCE)), &[]);
    let _stream = request(&proxy.listener("ingress"));
    until("the request is under way", || {
        proxy.stat("http.ingress.downstream_rq_active") == Some(1)
    });
    proxy.signal("TERM");
    until("draining", || proxy.get("/ready").0 == 503);
    assert!(proxy.child.try_wait().unwrap().is_none());
    proxy.signal("TERM");
    let start = Instant::now();
    assert!(proxy.wait().success());
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_drain_time_is_the_longest_it_takes() {
    let mut proxy = Proxy::start(&bootstrap(origin(PATIENCE)), &["--drain-time-s", "1"]);
    let _stream = request(&proxy.listener("ingress"));
    until("the request is under way", || {
        proxy.stat("http.ingress.downstream_rq_active") == Some(1)
    });
    let start = Instant::now();
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    let took = start.elapsed();
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn it_listens_for_the_drain_delay_and_tells_clients_to_go() {
    let flags = ["--drain-delay-s", "2"];
    let mut proxy = Proxy::start(&bootstrap(origin(Duration::ZERO)), &flags);
    let at = proxy.listener("ingress");
    let start = Instant::now();
    proxy.signal("TERM");
    until("draining", || proxy.get("/ready").0 == 503);
    let answer = request_and_read(&at);
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close\r\n"),
        "{answer}"
    );
    assert!(proxy.wait().success());
    let took = start.elapsed();
    assert!(took > Duration::from_millis(1900) && took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn hanging_up_reads_the_same_configuration_again() {
    let proxy = Proxy::start(&bootstrap(origin(Duration::ZERO)), &[]);
    proxy.signal("HUP");
    until("it is read", || proxy.stat("towpath.config.update_success") == Some(1));
    assert_eq!(exchange(&proxy.listener("ingress"), "GET", "/").unwrap().0, 200);
    assert_eq!(proxy.get("/ready").0, 200);
}

#[test]
fn renamed_logs_are_opened_anew_and_lines_survive_the_end() {
    let scratch = Scratch::new();
    let text = with_access_log(&bootstrap(origin(Duration::ZERO)), &scratch.path("access.log"));
    let mut proxy = Proxy::launch(scratch, &text, &[]);
    until("ready", || proxy.get("/ready").0 == 200);
    let listener = proxy.listener("ingress");
    let ask = |path| assert_eq!(exchange(&listener, "GET", path).unwrap().0, 200);

    ask("/first");
    until("written", || proxy.scratch.read("access.log") == "/first\n");
    rename(&proxy, "access.log", "access.log.1");
    ask("/second");
    until("written to the old file", || proxy.scratch.read("access.log.1") == "/first\n/second\n");
    proxy.signal("USR1");
    until("opened anew", || proxy.scratch.path("access.log").exists());
    ask("/third");
    until("written to the new file", || proxy.scratch.read("access.log") == "/third\n");

    rename(&proxy, "access.log", "access.log.2");
    assert_eq!(proxy.post("/reopen_logs").0, 200);
    until("opened anew", || proxy.scratch.path("access.log").exists());
    ask("/fourth");
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    assert_eq!(proxy.scratch.read("access.log"), "/fourth\n");
}

fn rename(proxy: &Proxy, from: &str, to: &str) {
    std::fs::rename(proxy.scratch.path(from), proxy.scratch.path(to)).unwrap();
}

fn request_and_read(listener: &str) -> String {
    let mut answer = String::new();
    request(listener).read_to_string(&mut answer).unwrap();
    answer
}

fn request(listener: &str) -> TcpStream {
    let mut stream = TcpStream::connect(listener).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    stream
}
