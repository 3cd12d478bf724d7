//! Origins that are killed, frozen, started again, or that close connections as they please.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Proxy, bootstrap};
use crate::load::{Habit, Load, Tally, ask};
use crate::nginx::Nginx;
use crate::nothing_is_left;
use socket2::SockRef;

#[test]
#[ignore = "needs nginx"]
fn a_killed_origin_is_answered_for_until_it_is_back() {
    let Some(mut origin) = Nginx::start() else { return };
    let proxy = Proxy::start(&bootstrap(origin.address), &[]);
    let load = Load::start(&proxy.listener("ingress"), 8, Habit::KeepAlive);
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..3 {
        origin.kill();
        std::thread::sleep(Duration::from_millis(150));
        origin.restart();
        std::thread::sleep(Duration::from_millis(200));
    }
    let tally = load.stop();
    eprintln!("killed: {tally:?}");
    assert_eq!(tally.lost(), 0, "{tally:?}");
    assert!(tally.count(200) > 0 && tally.count(503) > 0, "{tally:?}");
    assert_eq!(tally.answered(), tally.count(200) + tally.count(503), "{tally:?}");
    all_counted(&proxy, &tally);
    assert!(proxy.stat("cluster.origin.upstream_cx_connect_fail") > Some(0));
    // It works as before.
    let load = Load::start(&proxy.listener("ingress"), 4, Habit::KeepAlive);
    std::thread::sleep(Duration::from_millis(100));
    let after = load.stop();
    assert_eq!(after.answered(), after.count(200), "{after:?}");
    nothing_is_left(&proxy);
}

#[test]
#[ignore = "needs nginx"]
fn a_frozen_origin_costs_a_timeout_and_no_more() {
    let Some(origin) = Nginx::start() else { return };
    let config =
        bootstrap(origin.address).replace("cluster: origin }", "cluster: origin, timeout: 0.25s }");
    let proxy = Proxy::start(&config, &[]);
    let load = Load::start(&proxy.listener("ingress"), 8, Habit::KeepAlive);
    std::thread::sleep(Duration::from_millis(200));
    origin.signal("-STOP");
    std::thread::sleep(Duration::from_millis(900));
    origin.signal("-CONT");
    std::thread::sleep(Duration::from_millis(300));
    let tally = load.stop();
    eprintln!("frozen: {tally:?}");
    assert_eq!(tally.lost(), 0, "{tally:?}");
    assert!(tally.count(504) >= 8 && tally.count(200) > 0, "{tally:?}");
    assert_eq!(tally.answered(), tally.count(200) + tally.count(504), "{tally:?}");
    assert!(tally.slowest < Duration::from_secs(5), "{tally:?}");
    assert_eq!(proxy.stat("cluster.origin.upstream_rq_timeout"), Some(tally.count(504)));
    all_counted(&proxy, &tally);
    nothing_is_left(&proxy);
}

#[test]
fn connections_that_close_at_random_cost_no_get_an_error() {
    for close_notify in [CloseNotify::Fin, CloseNotify::Reset, CloseNotify::Late] {
        let proxy = Proxy::start(&bootstrap(fickle(close_notify)), &[]);
        let load = Load::start(&proxy.listener("ingress"), 8, Habit::KeepAlive);
        std::thread::sleep(Duration::from_millis(700));
        let tally = load.stop();
        eprintln!("{close_notify:?}: {tally:?}");
        assert!(tally.count(200) > 100, "{close_notify:?}: {tally:?}");
        assert_eq!(tally.answered(), tally.count(200), "{close_notify:?}: {tally:?}");
        assert_eq!(tally.lost(), 0, "{close_notify:?}: {tally:?}");
        nothing_is_left(&proxy);
    }
}

#[test]
fn a_policy_of_no_retries_sends_nothing_twice() {
    let route = |policy: &str| format!("route: {{ cluster: origin{policy} }}");
    for (policy, second, reached) in [("", 200, 3), (", retry_policy: { num_retries: 0 }", 503, 2)]
    {
        let (origin, requests) = once_for_each_connection();
        let config = bootstrap(origin).replace(&route(""), &route(policy));
        let proxy = Proxy::start(&config, &["--concurrency", "1"]);
        let at = proxy.listener("ingress");
        let ask = || ask(TcpStream::connect(&at).unwrap(), b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!([(); 2].map(|()| ask().unwrap().0.status), [200, second], "{policy}");
        assert_eq!(requests.load(Ordering::SeqCst), reached, "{policy}");
    }
}

/// An origin that answers the first request on a connection and ends it when there is another; and how many came.
fn once_for_each_connection() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            for answer in [&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..], b""] {
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).unwrap();
                }
                count.fetch_add(1, Ordering::SeqCst);
                reader.get_mut().write_all(answer).unwrap();
            }
        }
    });
    (address, requests)
}

/// How an origin ends a connection that it had not said it would end.
#[derive(Clone, Copy, Debug)]
enum CloseNotify {
    Fin,
    Reset,
    /// When the next request may be on its way.
    Late,
}

/// An origin that ends every few connections after any answer.
fn fickle(close_notify: CloseNotify) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            std::thread::spawn(move || serve_a_few(&stream.unwrap(), number, close_notify));
        }
    });
    address
}

fn serve_a_few(stream: &TcpStream, number: usize, close_notify: CloseNotify) {
    stream.set_nodelay(true).unwrap();
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let mut line = String::new();
    // Between one answer and thirty, as numbers that follow each other are far apart.
    for _ in 0..1 + (number * 2_654_435_761) % 30 {
        line.clear();
        while line != "\r\n" {
            line.clear();
            if !reader.read_line(&mut line).is_ok_and(|length| length > 0) {
                return;
            }
        }
        if writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
    match close_notify {
        CloseNotify::Fin => {}
        CloseNotify::Reset => SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap(),
        CloseNotify::Late => {
            std::thread::sleep(Duration::from_micros((number as u64 * 37) % 800));
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

/// Every error that a client saw is in the statistics.
fn all_counted(proxy: &Proxy, tally: &Tally) {
    let errors = tally.answered() - tally.count(200);
    assert_eq!(proxy.stat("http.ingress.downstream_rq_5xx"), Some(errors), "{tally:?}");
    assert_eq!(proxy.stat("http.ingress.downstream_rq_2xx"), Some(tally.count(200)), "{tally:?}");
}
