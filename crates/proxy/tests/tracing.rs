//! Recordings of the real program, opened with Perfetto's own trace processor.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "../../trace/tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{PATIENCE, Proxy, Scratch, bootstrap, exchange, exchange_whole, origin, until};
use support::{Judge, Row, text};
use towpath_trace::{Category, Flow, Options, span};

/// How long the origin thinks.
const THINKS: Duration = Duration::from_millis(80);

#[test]
fn a_file_from_start_to_end_has_the_anatomy_of_every_request() {
    let _turn = support::turn();
    let scratch = Scratch::new();
    let (path, app) = (scratch.path("sidecar.pftrace"), scratch.path("app.pftrace"));
    let mut proxy = Proxy::start(
        &bootstrap(origin(THINKS)),
        &["--trace", path.to_str().unwrap(), "--drain-time-s", "5"],
    );
    let address = proxy.listener("ingress");
    let recording = Options::new().start().unwrap();
    {
        let _span = span!(Category::APP, "call", flow = Flow::from_traceparent(TRACEPARENT));
        assert!(call(&address).ends_with("hello"));
    }
    recording.stop().write_perfetto(std::fs::File::create(&app).unwrap()).unwrap();
    assert_eq!(exchange(&address, "GET", "/again?secret=1").unwrap().0, 200);
    proxy.signal("TERM");
    assert!(proxy.wait().success());

    let both = scratch.path("both.pftrace");
    towpath_trace::file::merge(&[&app, &path], &both).unwrap();
    for file in [&path, &both] {
        let Some(judge) = Judge::of(file) else { return };
        check_anatomy(&judge);
    }
    let flow = Judge::of(&both).unwrap().rows(
        "select a.name, b.name from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id",
    );
    assert_eq!(text(&flow), [["call", "request"]]);
}

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A request of a traced application.
fn call(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET /first HTTP/1.1\r\nhost: test\r\ntraceparent: {TRACEPARENT}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn check_anatomy(judge: &Judge) {
    let answers = judge.clean(&[
        "select extract_arg(arg_set_id, 'debug.method'), extract_arg(arg_set_id, 'debug.path'),
                extract_arg(arg_set_id, 'debug.status'), extract_arg(arg_set_id, 'debug.cluster'),
                extract_arg(arg_set_id, 'debug.details'), extract_arg(arg_set_id, 'debug.attempts')
         from slice where name = 'request' order by ts",
        "select group_concat(name) from
             (select c.name, c.parent_id from slice c join slice r on c.parent_id = r.id
              where r.name = 'request' order by c.ts, c.dur)
         group by parent_id order by parent_id",
        "select p.name, extract_arg(c.arg_set_id, 'debug.outcome')
         from slice c join slice p on c.parent_id = p.id where c.name = 'connect'",
        "select p.name, count(*) from slice c join slice p on c.parent_id = p.id where c.name = 'accept'
         group by p.name",
        "select min(dur), max(dur) from slice where name = 'wait for first byte'",
        "select max(dur) from slice where name in ('parse', 'filters', 'route', 'send', 'body', 'record', 'connect')",
        "select distinct p.name
         from slice s join track t on s.track_id = t.id join track p on t.parent_id = p.id where s.name = 'request'",
    ]);
    let [requests, parts, connects, accepts, waits, others, tracks] =
        <[Vec<Row>; 7]>::try_from(answers).unwrap();
    assert_eq!(
        text(&requests),
        [
            ["GET", "/first", "200", "origin", "via_upstream", "1"],
            ["GET", "/again", "200", "origin", "via_upstream", "1"]
        ]
    );
    let all = "parse,filters,route,pool wait,send,wait for first byte,body,record";
    assert_eq!(text(&parts), [[all], [all]]);
    assert!(!connects.is_empty());
    assert!(text(&connects).iter().all(|row| *row == ["pool wait", "connected"]));
    assert_eq!(text(&accepts), [["connection", "2"]]);
    let number = |cell: &Option<String>| cell.as_deref().unwrap().parse::<u128>().unwrap();
    let thinks = THINKS.as_nanos();
    assert!(number(&waits[0][0]) >= thinks && number(&waits[0][1]) < 10 * thinks, "{waits:?}");
    assert!(number(&others[0][0]) < thinks, "the time was the origin's: {others:?}");
    assert_eq!(text(&tracks), [["connection"]], "each under its connection");
}

#[test]
fn a_trace_on_demand_holds_what_happened_meanwhile() {
    let proxy = Proxy::start(&bootstrap(origin(Duration::from_millis(5))), &[]);
    let address = proxy.listener("ingress");
    assert_eq!(proxy.get("/trace").0, 405, "as all that changes something");
    for wrong in ["0", "61", "x", "-1"] {
        assert_eq!(proxy.post(&format!("/trace?seconds={wrong}")).0, 400, "{wrong}");
    }
    assert_eq!(exchange(&address, "GET", "/before").unwrap().0, 200);

    let asked = demand(&proxy.admin, "0.5");
    std::thread::sleep(Duration::from_millis(100));
    let (status, why) = proxy.post("/trace?seconds=1");
    assert_eq!((status, why.as_str()), (409, "a trace is being recorded for another request\n"));
    let count = ask_meanwhile(&address, &asked);
    let file = asked.join().unwrap();
    assert_eq!(exchange(&address, "GET", "/after").unwrap().0, 200);
    check_paths(&proxy, &file, count);
    // And again: the recording before has let go.
    assert!(!demand(&proxy.admin, "0.01").join().unwrap().is_empty());
}

/// Asks the proxy for something until the trace is there.
fn ask_meanwhile(address: &str, asked: &JoinHandle<Vec<u8>>) -> usize {
    let mut count = 0;
    while !asked.is_finished() {
        assert_eq!(exchange(address, "GET", "/meanwhile").unwrap().0, 200);
        count += 1;
    }
    count
}

fn check_paths(proxy: &Proxy, file: &[u8], count: usize) {
    let path = proxy.scratch.path("demand.pftrace");
    std::fs::write(&path, file).unwrap();
    let Some(judge) = Judge::of(&path) else { return };
    let answers = judge
        .clean(&["select extract_arg(arg_set_id, 'debug.path') as path, count(*) from slice
         where name = 'request' group by path"]);
    // The first and the last may have been under way when the recording began and ended.
    let rows = text(&answers[0]);
    assert_eq!((rows.len(), rows[0][0]), (1, "/meanwhile"));
    let seen: usize = rows[0][1].parse().unwrap();
    assert!(0 < seen && seen <= count, "{seen} of {count}");
}

/// Asks for a trace; the thread answers with the file.
fn demand(admin: &str, seconds: &str) -> JoinHandle<Vec<u8>> {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "POST /trace?seconds={seconds} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    std::thread::spawn(move || {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let text = String::from_utf8_lossy(&answer[..head]).into_owned();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(text.contains("content-type: application/octet-stream"), "{text}");
        answer.split_off(head)
    })
}

#[test]
fn only_slow_requests_get_a_file_and_not_all_at_once() {
    let scratch = Scratch::new();
    let folder = scratch.path("slow");
    let wanted = format!("50ms={}", folder.display());
    let mut proxy = Proxy::start(&bootstrap(moody_origin()), &["--trace-slow", &wanted]);
    let address = proxy.listener("ingress");
    for _ in 0..20 {
        assert_eq!(exchange(&address, "GET", "/fast").unwrap().0, 200);
    }
    assert_eq!(files(&folder), Vec::<PathBuf>::new());
    assert_eq!(proxy.stat("towpath.trace.slow_requests"), Some(0));

    assert_eq!(exchange(&address, "GET", "/slow").unwrap().0, 200);
    until("a file is written", || proxy.stat("towpath.trace.slow_written") == Some(1));
    let written = files(&folder);
    assert_eq!(written.len(), 1, "{written:?}");
    for _ in 0..3 {
        assert_eq!(exchange(&address, "GET", "/slow").unwrap().0, 200);
    }
    until("all are counted", || proxy.stat("towpath.trace.slow_requests") == Some(4));
    assert_eq!(proxy.stat("towpath.trace.slow_suppressed"), Some(3), "one file a second");
    assert_eq!(files(&folder).len(), 1);

    // The recorder that is on anyway answers this, too.
    let asked = demand(&proxy.admin, "0.3");
    let count = ask_meanwhile(&address, &asked);
    check_paths(&proxy, &asked.join().unwrap(), count);
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    let Some(judge) = Judge::of(&written[0]) else { return };
    check_slow(&judge);
}

fn check_slow(judge: &Judge) {
    let answers = judge.clean(&[
        "select extract_arg(arg_set_id, 'debug.path'), dur >= 60000000, parent_id is not null
         from slice where name = 'slow request'",
        "select dur >= 60000000 from slice where name = 'wait for first byte' order by dur desc limit 1",
        "select (select max(ts + dur) from slice where name = 'request') - (select min(ts) from slice where name = \
         'request')
             < 60000000 + 40000000 + 60000000",
    ]);
    assert_eq!(text(&answers[0]), [["/slow", "1", "1"]]);
    assert_eq!(text(&answers[1]), [["1"]]);
    assert_eq!(text(&answers[2]), [["1"]], "no more than the time around it");
}

/// An origin that takes 60 ms for what is called slow.
fn moody_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || answer_by_path(stream));
        }
    });
    address
}

fn answer_by_path(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        request.extend_from_slice(&chunk[..length]);
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        if request.starts_with(b"GET /slow") {
            std::thread::sleep(Duration::from_millis(60));
        }
        request.clear();
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_err() {
            return;
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_place_that_cannot_be_written_is_said_at_the_start() {
    for flags in [["--trace", "/proc/no/such.pftrace"], ["--trace-slow", "50ms=/proc/no/such"]] {
        let scratch = Scratch::new();
        let config = scratch.write("bootstrap.yaml", &bootstrap(origin(Duration::ZERO)));
        let output = common::run(&[flags[0], flags[1], "-c", config.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains("cannot record") && said.contains("/proc/no"), "{said}");
    }
}

#[test]
fn a_local_reply_and_a_refused_connect_are_spans_too() {
    let scratch = Scratch::new();
    let path = scratch.path("refused.pftrace");
    // Nothing listens there, and nothing else can be given it: a connection has it.
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let absent = connected.local_addr().unwrap();
    let mut proxy = Proxy::start(&bootstrap(absent), &["--trace", path.to_str().unwrap()]);
    let address = proxy.listener("ingress");
    assert!(exchange_whole(&address, "GET", "/").unwrap().starts_with("HTTP/1.1 503"));
    assert_eq!(proxy.post("/trace").0, 409, "the file has the recording for itself");
    proxy.signal("TERM");
    assert!(proxy.wait().success());
    let Some(judge) = Judge::of(&path) else { return };
    let answers = judge.clean(&[
        "select c.name, coalesce(extract_arg(c.arg_set_id, 'debug.outcome'), '') from slice c join slice p on \
         c.parent_id = p.id
         where p.name in ('request', 'pool wait') order by c.ts, c.dur desc",
        "select extract_arg(arg_set_id, 'debug.status') from slice where name = 'request'",
    ]);
    let names: Vec<&str> = text(&answers[0]).iter().map(|row| row[0]).collect();
    assert_eq!(names, ["parse", "filters", "route", "pool wait", "connect", "reply", "record"]);
    let outcomes: Vec<&str> =
        text(&answers[0]).iter().map(|row| row[1]).filter(|it| !it.is_empty()).collect();
    assert_eq!(outcomes, ["remote connection failure"]);
    assert_eq!(text(&answers[1]), [["503"]]);
}
