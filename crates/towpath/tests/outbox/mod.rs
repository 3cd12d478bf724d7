//! The outbox against servers that fail, and in processes that are killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use towpath::outbox::{Builder, Ended, Error, Outcome};
use towpath::{Engine, NetworkKind};

use crate::server::{Server, answer, read_request};

#[test]
fn it_is_sent_with_one_key_until_the_answer_is_final_and_then_told() {
    let (seen, keys) = mpsc::channel();
    let server = Server::new(move |stream, number| {
        let Some(request) = read_request(stream) else { return };
        assert!(request.starts_with("POST /messages HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("x-mine: yes\r\n") && request.ends_with("\r\n\r\nhello"));
        seen.send(field(&request, "idempotency-key").to_owned()).unwrap();
        match number {
            0 => {}
            1 => answer(stream, "503 Busy", "Connection: close\r\n", b"not now"),
            2 => answer(stream, "500 Oh", "Connection: close\r\n", b""),
            3 => answer(stream, "409 Still", "Connection: close\r\n", b""),
            _ => answer(stream, "201 Created", "", &[b'm'; 10_000]),
        }
    });
    let folder = Folder::new("key");
    let engine = Engine::new().unwrap();
    let (tell, told) = mpsc::channel();
    let outbox = folder.quick(&engine).on_end(move |end| tell.send(end.clone()).unwrap());
    let outbox = outbox.response_bytes(4).open().unwrap();
    let message = engine.client().post(&server.url("/messages"), "hello").header("X-Mine", "yes");
    let id = outbox.put(message).keep().unwrap();
    let end = told.recv_timeout(PATIENCE).unwrap();
    let outcome = Outcome::Answered { status: 201, body: "mmmm".into(), whole: false };
    assert_eq!((end.id, end.outcome), (id, outcome));
    assert!(outbox.wait_until_empty(PATIENCE));
    let keys: Vec<String> = keys.try_iter().collect();
    assert_eq!(keys, vec![end.key.clone(); 5]);
    assert!(end.key.starts_with('"') && end.key.ends_with('"') && end.key.len() == 38);
    // A key of the app's own is taken as it is.
    let own = engine.client().post(&server.url("/messages"), "hello").header("X-Mine", "yes");
    outbox.put(own.idempotency_key("mine")).keep().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().key, "mine");
}

#[test]
fn an_ordering_key_keeps_its_order_and_holds_up_no_other() {
    let (seen, bodies) = mpsc::channel();
    let failures = Mutex::new(0);
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            let body = body(&request);
            let mut failures = failures.lock().unwrap();
            if body == "a1" && *failures < 3 {
                *failures += 1;
                answer(stream, "500 Oh", "", b"");
            } else {
                seen.send(body.to_owned()).unwrap();
                answer(stream, "200 OK", "", b"");
            }
        }
    });
    let folder = Folder::new("keys");
    let engine = Engine::new().unwrap();
    let outbox = folder.quick(&engine).open().unwrap();
    for (ordering_key, body) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3"), ("b", "b2")] {
        let message = engine.client().post(&server.url("/"), body);
        outbox.put(message).ordering_key(ordering_key).keep().unwrap();
    }
    assert!(outbox.wait_until_empty(PATIENCE));
    let bodies: Vec<String> = bodies.try_iter().collect();
    let of_key = |ordering_key: &str| -> String {
        bodies.iter().filter(|body| body.starts_with(ordering_key)).cloned().collect()
    };
    assert_eq!((of_key("a"), of_key("b")), ("a1a2a3".to_owned(), "b1b2".to_owned()));
    assert_eq!(bodies.len(), 5);
}

#[test]
fn what_is_not_answered_in_its_time_is_given_up_and_told() {
    let folder = Folder::new("expires");
    let engine = offline();
    let (tell, told) = mpsc::channel();
    let outbox = folder.quick(&engine).on_end(move |end| tell.send(end.clone()).unwrap());
    let outbox = outbox.open().unwrap();
    let message = engine.client().post(URL, "x");
    outbox.put(message).expires_after(Duration::from_millis(50)).keep().unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().outcome, Outcome::Expired);
    assert!(outbox.wait_until_empty(PATIENCE));
}

#[test]
fn it_takes_no_more_than_it_has_room_for() {
    let folder = Folder::new("room");
    let engine = offline();
    let outbox = folder.quick(&engine).room(2, 2000).open().unwrap();
    let put =
        |url: &str, bytes: usize| outbox.put(engine.client().post(url, vec![b'x'; bytes])).keep();
    assert!(matches!(put("nonsense", 1), Err(Error::Request(towpath::Error::Url(_)))));
    assert!(matches!(put(URL, 2000), Err(Error::Full(_))));
    let first = put(URL, 1000).unwrap();
    assert!(matches!(put(URL, 1000), Err(Error::Full(_))), "too many bytes");
    put(URL, 1).unwrap();
    assert!(matches!(put(URL, 1), Err(Error::Full(_))), "too many");
    assert_eq!(outbox.remove(first), Ok(true));
    assert_eq!(outbox.remove(first), Ok(false));
    put(URL, 1000).unwrap();
    let listed = outbox.list();
    assert_eq!((listed.len(), listed[1].method.as_str()), (2, "POST"));
    assert_eq!(listed[1].url, URL);
    drop(outbox);
    let outbox = folder.quick(&engine).open().unwrap();
    assert_eq!((outbox.recovered().entries, outbox.recovered().lost_bytes), (2, 0));
}

#[test]
fn without_a_network_nothing_is_sent_and_with_it_everything_at_once() {
    let server = Server::new(|stream, _| {
        while read_request(stream).is_some() {
            answer(stream, "200 OK", "", b"");
        }
    });
    let folder = Folder::new("network");
    let engine = offline();
    let hour = Duration::from_secs(3600);
    let outbox = folder.quick(&engine).pauses(hour, hour).open().unwrap();
    outbox.put(engine.client().post(&server.url("/"), "x")).keep().unwrap();
    wait_for(|| outbox.list()[0].tries == 1 && !outbox.list()[0].under_way);
    assert_eq!(server.connections(), 0);
    engine.network_changed("home", NetworkKind::Fixed, true).unwrap();
    assert!(outbox.wait_until_empty(PATIENCE));
}

#[test]
fn a_server_s_retry_after_is_kept() {
    let server = Server::new(|stream, number| {
        read_request(stream);
        match number {
            0 => answer(stream, "429 Slow", "Retry-After: 1\r\nConnection: close\r\n", b""),
            _ => answer(stream, "200 OK", "", b""),
        }
    });
    let folder = Folder::new("after");
    let engine = Engine::new().unwrap();
    let outbox = folder.quick(&engine).open().unwrap();
    let began = Instant::now();
    outbox.put(engine.client().post(&server.url("/"), "x")).keep().unwrap();
    assert!(outbox.wait_until_empty(PATIENCE));
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn one_file_has_one_outbox() {
    let folder = Folder::new("one");
    let engine = Engine::new().unwrap();
    let first = folder.quick(&engine).open().unwrap();
    let refused = folder.quick(&engine).open().unwrap_err();
    assert!(matches!(refused, Error::File { kind: std::io::ErrorKind::ResourceBusy, .. }));
    drop(first);
    std::fs::write(folder.file(), "something else that is longer than a header").unwrap();
    let refused = folder.quick(&engine).open().unwrap_err();
    assert!(matches!(refused, Error::File { kind: std::io::ErrorKind::InvalidData, .. }));
}

#[test]
fn it_outlives_its_engine_and_goes_on_with_the_next() {
    let server = Server::new(|stream, number| {
        let request = read_request(stream).unwrap();
        if number == 0 {
            // Never answered: its process "ends" first.
            let _ = read_request(stream);
            return;
        }
        answer(stream, "200 OK", "", field(&request, "idempotency-key").as_bytes());
    });
    let folder = Folder::new("engines");
    let engine = Engine::new().unwrap();
    let outbox = folder.quick(&engine).open().unwrap();
    outbox.put(engine.client().post(&server.url("/"), "x")).keep().unwrap();
    wait_for(|| server.connections() == 1);
    drop(engine);
    wait_for(|| !outbox.list()[0].under_way);
    let key = outbox.list()[0].key.clone();
    drop(outbox);
    let engine = Engine::new().unwrap();
    let (tell, told) = mpsc::channel();
    let outbox = folder.quick(&engine).on_end(move |end| tell.send(end.clone()).unwrap());
    let _outbox = outbox.open().unwrap();
    let end = told.recv_timeout(PATIENCE).unwrap();
    let outcome = Outcome::Answered { status: 200, body: key.clone().into(), whole: true };
    assert_eq!((end.key, end.outcome), (key, outcome));
}

#[test]
fn a_process_that_dies_while_it_is_told_is_told_again() {
    let server = Server::new(|stream, _| {
        while read_request(stream).is_some() {
            answer(stream, "200 OK", "", b"once");
        }
    });
    let folder = Folder::new("told");
    let mut child = folder.child(&server, "dies-when-told", 1);
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let engine = Engine::new().unwrap();
    let (tell, told) = mpsc::channel();
    let outbox = folder.quick(&engine).on_end(move |end| tell.send(end.clone()).unwrap());
    let outbox = outbox.open().unwrap();
    let end: Ended = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(end.outcome, Outcome::Answered { status: 200, body: "once".into(), whole: true });
    assert!(outbox.wait_until_empty(PATIENCE));
    assert_eq!(server.connections(), 1, "it is told again, not sent again");
}

#[test]
fn a_process_that_is_killed_at_any_time_loses_nothing_and_repeats_nothing() {
    let deliveries = Arc::new(Mutex::new(Deliveries::default()));
    let theirs = Arc::clone(&deliveries);
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            if !theirs.lock().unwrap().process(&request) {
                return;
            }
            answer(stream, "200 OK", "", b"");
        }
    });
    let folder = Folder::new("killed");
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        let mut child = folder.child(&server, &format!("puts {}", round * PUTS), PUTS);
        let output = BufReader::new(child.stdout.take().unwrap());
        // A third of them dies by what it says, the others when the server has a request, before or after it is
        // processed.
        let words = (round % 3 == 0).then_some(round / 3 % (PUTS + 1));
        let dies_at = if words.is_some() { usize::MAX } else { round / 3 % 6 };
        deliveries.lock().unwrap().watch(child, dies_at, round % 3 == 1);
        let mut said = output.lines().map_while(Result::ok);
        if let Some(words) = words {
            kept.extend(said.by_ref().filter_map(kept_body).take(words));
            deliveries.lock().unwrap().kill();
        }
        kept.extend(said.filter_map(kept_body));
        deliveries.lock().unwrap().bury();
    }
    let mut last = folder.child(&server, "puts 0", 0);
    assert!(last.wait().unwrap().success());
    deliveries.lock().unwrap().check(&kept);
}

/// What the server knows, and whom it kills when.
#[derive(Default)]
struct Deliveries {
    /// Key and body of every request that was processed, also of those that were so before.
    processed: Vec<(String, String)>,
    child: Option<Child>,
    dies_at: usize,
    processes_first: bool,
}

impl Deliveries {
    fn watch(&mut self, child: Child, dies_at: usize, processes_first: bool) {
        (self.child, self.dies_at, self.processes_first) = (Some(child), dies_at, processes_first);
    }

    /// Whether it is to be answered.
    fn process(&mut self, request: &str) -> bool {
        let dies = self.dies_at == 0;
        self.dies_at = self.dies_at.saturating_sub(1);
        if dies && !self.processes_first {
            self.kill();
            return false;
        }
        let key = field(request, "idempotency-key");
        self.processed.push((key.to_owned(), body(request).to_owned()));
        if dies {
            self.kill();
        }
        // Some answers are lost with no process dying.
        !dies && !self.processed.len().is_multiple_of(5)
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().unwrap();
        }
    }

    fn bury(&mut self) {
        self.dies_at = usize::MAX;
        self.child.take().unwrap().wait().unwrap();
    }

    fn check(&self, kept: &[String]) {
        let mut by_key = BTreeMap::new();
        let mut order = Vec::new();
        for (key, body) in &self.processed {
            let first = by_key.insert(key, body);
            assert!(first.is_none_or(|first| first == body), "one key for two requests: {key}");
            if first.is_none() {
                order.push(body);
            }
        }
        assert!(by_key.len() < self.processed.len(), "some were sent again, by the same key");
        assert!(kept.len() > ROUNDS, "{}", kept.len());
        for body in kept {
            assert!(order.contains(&body), "{body} is lost");
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), order.len(), "none has two keys");
        for ordering_key in ["a", "b"] {
            let numbers = order.iter().filter_map(|body| body.strip_prefix(ordering_key));
            let numbers: Vec<usize> = numbers.map(|number| number.parse().unwrap()).collect();
            assert!(numbers.is_sorted(), "key {ordering_key}: {numbers:?}");
        }
    }
}

fn kept_body(line: String) -> Option<String> {
    line.strip_prefix("kept ").map(str::to_owned)
}

/// The process that the tests above start and kill; nothing by itself.
#[test]
fn a_process_of_other_tests() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = words.split(' ').collect();
    let [mode, first, count, path, url] = words[..] else { panic!("{words:?}") };
    let engine = Engine::new().unwrap();
    let outbox = quick(engine.outbox(path));
    let outbox = match mode {
        "dies-when-told" => outbox.on_end(|_| std::process::exit(7)),
        _ => outbox.on_end(|_| {}),
    };
    let outbox = outbox.open().unwrap();
    let first: usize = first.parse().unwrap();
    for number in first..first + count.parse::<usize>().unwrap() {
        let ordering_key = ["a", "b", "c"][number % 3];
        let body = format!("{ordering_key}{number}");
        let put = outbox.put(engine.client().post(url, body.clone()));
        let put = if ordering_key == "c" { put } else { put.ordering_key(ordering_key) };
        put.keep().unwrap();
        let mut output = std::io::stdout();
        writeln!(output, "\nkept {body}").and_then(|()| output.flush()).unwrap();
    }
    assert!(outbox.wait_until_empty(PATIENCE));
}

/// A folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("towpath-outboxes-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("outbox")
    }

    fn quick(&self, engine: &Engine) -> Builder {
        quick(engine.outbox(self.file()))
    }

    fn child(&self, server: &Server, mode: &str, count: usize) -> Child {
        let first = if mode.contains(' ') { "" } else { " 0" };
        let file = self.file();
        let words = format!("{mode}{first} {count} {} {}", file.display(), server.url("/"));
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "outbox::a_process_of_other_tests", "--nocapture"])
            .env(CHILD, words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// With pauses that fit a test.
fn quick(outbox: Builder) -> Builder {
    outbox.pauses(Duration::from_millis(20), Duration::from_millis(100))
}

/// An engine that sends nothing.
fn offline() -> Engine {
    let engine = Engine::new().unwrap();
    engine.network_changed("none", NetworkKind::Fixed, false).unwrap();
    engine
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn field<'a>(request: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(": ");
    request.lines().find_map(value).unwrap_or_default()
}

fn body(request: &str) -> &str {
    request.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

const URL: &str = "http://192.0.2.1/";
const PATIENCE: Duration = Duration::from_secs(60);
const CHILD: &str = "TOWPATH_TEST_OUTBOX";
const ROUNDS: usize = 24;
const PUTS: usize = 6;

#[test]
fn what_a_client_does_to_its_requests_it_does_in_an_outbox() {
    let (seen, requests) = mpsc::channel();
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            let is_known = request.contains("authorization: Basic YTpi\r\n");
            seen.send(request).unwrap();
            if is_known {
                answer(stream, "200 OK", "Set-Cookie: new=2\r\n", b"");
            } else {
                answer(stream, "401 Who", "WWW-Authenticate: Basic realm=x\r\n", b"");
            }
        }
    });
    let (folder, engine) = (Folder::new("client"), Engine::new().unwrap());
    let jar = towpath::cookies::Jar::new();
    jar.set(&server.url("/"), "old=1");
    let credentials = towpath::auth::Credentials::password("a", "b");
    let sender = engine.client().cookies(&jar).header("x-sender", "outbox");
    let sender = sender.authenticate(move |_| Some(credentials.clone()));
    let (tell, told) = mpsc::channel();
    let outbox = folder.quick(&engine).client(&sender);
    let outbox = outbox.on_end(move |end| tell.send(end.clone()).unwrap()).open().unwrap();
    let maker = engine.client().header("x-maker", "app").header("x-sender", "not this one");
    outbox.put(maker.post(&server.url("/"), "hello").header("x-maker", "own")).keep().unwrap();
    let end = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(end.outcome, Outcome::Answered { status: 200, body: "".into(), whole: true });
    let (refused, accepted) = (requests.recv().unwrap(), requests.recv().unwrap());
    let fields = ["x-maker", "x-sender", "cookie"].map(|name| field(&accepted, name));
    assert_eq!(fields, ["own", "not this one", "old=1"]);
    assert_eq!(field(&refused, "idempotency-key"), field(&accepted, "idempotency-key"));
    assert_eq!(jar.get(&server.url("/")).unwrap(), "old=1; new=2");
    let plain = engine.client().post(&server.url("/"), "hello");
    outbox.put(plain).keep().unwrap();
    told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(field(&requests.recv().unwrap(), "x-sender"), "outbox");
}
