//! Server-sent events from servers that hang up, fail and come back.

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath::events::{Event, Listener};
use towpath::{Engine, Error, Failed};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_head};

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n";

/// Answers the attempts in their order with these, and hangs up after each.
fn server(answers: &'static [&'static str]) -> (Server, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = Server::new(move |stream, _| {
        let Some(head) = read_head(stream) else { return };
        let answer = {
            let mut log = log.lock().unwrap();
            log.push(head);
            answers[log.len().min(answers.len()) - 1]
        };
        let _ = stream.write_all(answer.as_bytes());
    });
    (server, seen)
}

#[test]
fn a_stream_goes_on_behind_the_last_event_until_the_server_has_enough() {
    const ANSWERS: &[&str] = &[
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\n\
         retry: 20\nid: 1\ndata: one\n\nid: 2\ndata: tw",
        "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: TEXT/event-stream; x=y\r\n\r\n: hello\n\nid: 2\nevent: own\ndata: two\n\n",
        "HTTP/1.1 204 Enough\r\n\r\n",
    ];
    for is_async in [false, true] {
        let (server, seen) = server(ANSWERS);
        let client = Engine::new().unwrap().client();
        let request = client.get(&server.url("/")).retries(0).fail_at_rest();
        let mut events = request.header("Accept", "*/*").events();
        let mut next = || match is_async {
            false => events.next().transpose().unwrap(),
            true => block_on(events.next_async()).unwrap(),
        };
        let one = next().unwrap();
        assert_eq!((one.name(), one.data(), one.id()), ("message", "one", "1"));
        let two = next().unwrap();
        assert_eq!((two.name(), two.data(), two.id()), ("own", "two", "2"));
        assert_eq!((next(), next()), (None, None));
        let seen = seen.lock().unwrap();
        let ids: Vec<Option<&str>> = seen
            .iter()
            .map(|head| head.lines().find_map(|line| line.strip_prefix("last-event-id: ")))
            .collect();
        let at_rest = ids.len() - 2;
        assert_eq!(ids[0], None);
        assert_eq!(ids[1..at_rest + 1], vec![Some("1"); at_rest]);
        assert_eq!(ids[at_rest + 1], Some("2"));
        for head in seen.iter() {
            assert!(head.contains("accept: text/event-stream\r\n"), "{head}");
            assert!(
                !head.contains("*/*") && head.contains("cache-control: no-store\r\n"),
                "{head}"
            );
        }
        let told: Vec<&str> = events.history().iter().map(|it| it.what.as_str()).collect();
        assert_eq!(told[0], "events: the stream is open");
        assert!(told[1].starts_with("events: again in 0.0 s: "), "{told:?}");
    }
}

#[test]
fn what_is_no_stream_of_events_is_an_error_and_the_end() {
    let plain = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n";
    let missing = "HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n";
    let client = Engine::new().unwrap().client();
    for (answers, error) in [
        (&*vec![plain].leak(), Error::Events("the answer is no event stream")),
        (&*vec![missing].leak(), Error::Status(404)),
    ] {
        let (server, _) = server(answers);
        let mut events = client.get(&server.url("/")).events();
        assert_eq!(events.next(), Some(Err(error)));
        assert_eq!(events.next(), None);
    }
    let long = format!("{HEAD}\r\ndata: {}\n\n", "x".repeat(5000)).leak();
    let (server, _) = server(vec![&*long].leak());
    let mut events = client.get(&server.url("/")).events().max_event_bytes(4000);
    assert_eq!(events.next(), Some(Err(Error::Events("an event is too long"))));
    assert!(matches!(client.get("ftp://x/").events().next(), Some(Err(Error::Url(_)))));
    let late = format!("{HEAD}\r\ndata: a\n\ndata: {}\n\n", "x".repeat(5000)).leak();
    let (server, _) = self::server(vec![&*late].leak());
    let mut events = client.get(&server.url("/")).events().max_event_bytes(4000);
    assert_eq!(events.next().unwrap().unwrap().data(), "a");
    assert!(events.next().unwrap().is_err() && events.next().is_none());
}

#[test]
fn a_silent_connection_is_left_and_the_last_life_s_id_is_sent() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = Server::new(move |stream, number| {
        log.lock().unwrap().push(read_head(stream).unwrap_or_default());
        if number == 0 {
            let _ = stream.write_all(format!("{HEAD}\r\ndata: a\n\n").as_bytes());
            // It keeps the connection, and says no more.
            let _ = std::io::copy(stream, &mut std::io::sink());
        } else {
            answer(stream, "200 OK", "Content-Type: text/event-stream\r\n", b"data: b\n\n");
        }
    });
    let client = Engine::new().unwrap().client();
    let began = Instant::now();
    let request = client.get(&server.url("/")).gap_timeout(Duration::from_millis(200));
    let mut events = request.events().after("41");
    let mut data = || events.next().unwrap().unwrap().data().to_owned();
    assert_eq!((data(), data()), ("a".to_owned(), "b".to_owned()));
    assert!(began.elapsed() < Duration::from_secs(30));
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|head| head.contains("last-event-id: 41\r\n")), "{seen:?}");
}

#[test]
fn a_compressed_stream_is_read_as_it_comes() {
    use flate2::{Compression, write::GzEncoder};
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let server = Server::new(move |stream, _| {
        let _ = read_head(stream);
        let _ = stream.write_all(format!("{HEAD}Content-Encoding: gzip\r\n\r\n").as_bytes());
        let mut encoder = GzEncoder::new(stream, Compression::default());
        encoder.write_all(b"data: first\n\n").unwrap();
        encoder.flush().unwrap();
        let _ = may_go_on.lock().unwrap().recv();
        encoder.write_all(b"data: second\n\n").unwrap();
        encoder.finish().unwrap();
    });
    let mut events = Engine::new().unwrap().client().get(&server.url("/")).events();
    assert_eq!(events.next().unwrap().unwrap().data(), "first");
    go_on.send(()).unwrap();
    assert_eq!(events.next().unwrap().unwrap().data(), "second");
}

/// What a listener was told, in words.
struct Heard(Sender<String>);

impl Listener for Heard {
    fn on_open(&mut self) {
        let _ = self.0.send("open".to_owned());
    }

    fn on_event(&mut self, event: Event) {
        let _ = self.0.send(format!("{} {} {}", event.name(), event.data(), event.id()));
        assert_ne!(event.data(), "panic", "this panic is a part of the test");
    }

    fn on_break(&mut self, why: &str) {
        assert!(!why.is_empty());
        let _ = self.0.send("break".to_owned());
    }

    fn on_end(&mut self, outcome: Result<(), Error>) {
        let _ = self.0.send(format!("end {outcome:?}"));
    }
}

fn heard() -> (Heard, Receiver<String>) {
    let (sender, receiver) = channel();
    (Heard(sender), receiver)
}

#[test]
fn a_listener_is_told_of_each_connection_each_event_and_one_end() {
    const ANSWERS: &[&str] = &[
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\n\
         retry: 20\nid: 1\ndata: one\n\nid: 2\ndata: tw",
        "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 2\nevent: own\ndata: two\n\nid: 3\n\n",
        "HTTP/1.1 204 Enough\r\n\r\n",
    ];
    let (server, seen) = server(ANSWERS);
    let client = Engine::new().unwrap().client();
    let (listener, told) = heard();
    let request = client.get(&server.url("/")).retries(0);
    let listening = request.events().after("0").listen(listener).unwrap();
    let wanted =
        ["open", "message one 1", "break", "break", "open", "own two 2", "break", "end Ok(())"];
    assert_eq!(told.iter().collect::<Vec<_>>(), wanted);
    assert!(listening.is_over());
    assert_eq!(listening.last_event_id(), "3");
    assert_eq!(listening.history()[0].what, "events: the stream is open");
    listening.close();
    let ids: Vec<String> = seen.lock().unwrap().iter().map(|head| id(head)).collect();
    assert_eq!(ids, ["0", "1", "1", "3"]);
}

/// What a request goes on from.
fn id(head: &str) -> String {
    let id = head.lines().find_map(|line| line.strip_prefix("last-event-id: "));
    id.unwrap_or_default().to_owned()
}

#[test]
fn a_listener_s_stream_ends_where_it_is_closed_wherever_it_is() {
    let waits = Server::new(|stream, _| {
        let _ = read_head(stream);
        let _ = stream.write_all(format!("{HEAD}\r\ndata: a\n\n").as_bytes());
        let _ = std::io::copy(stream, &mut std::io::sink());
    });
    let silent = Server::new(|stream, _| drop(std::io::copy(stream, &mut std::io::sink())));
    let away = format!("{HEAD}Content-Length: 99\r\n\r\nretry: 9999999\n\n").leak();
    let (pauses, _) = server(vec![&*away].leak());
    let cancelled = format!("end {:?}", Err::<(), Error>(Failed::Cancelled.into()));
    let client = Engine::new().unwrap().client();
    for (server, before) in
        [(&waits, &["open", "message a "][..]), (&silent, &[]), (&pauses, &["open", "break"])]
    {
        for is_dropped in [false, true] {
            let (listener, told) = heard();
            let listening = client.get(&server.url("/")).events().listen(listener).unwrap();
            for what in before {
                assert_eq!(told.recv().unwrap(), *what);
            }
            let listening = (!is_dropped).then_some(listening);
            if let Some(listening) = &listening {
                listening.close();
                listening.close();
            }
            assert_eq!(told.iter().collect::<Vec<_>>(), [&*cancelled]);
        }
    }
}

#[test]
fn a_listener_that_panics_hears_its_end_and_what_cannot_be_asked_tells_nobody() {
    let text = format!("{HEAD}\r\ndata: panic\n\ndata: more\n\n").leak();
    let (server, _) = server(vec![&*text].leak());
    let client = Engine::new().unwrap().client();
    let (listener, told) = heard();
    let _listening = client.get(&server.url("/")).events().listen(listener).unwrap();
    let end = format!("end {:?}", Err::<(), Error>(Error::Handler));
    assert_eq!(told.iter().collect::<Vec<_>>(), ["open", "message panic ", &*end]);
    let (listener, told) = heard();
    assert!(matches!(client.get("ftp://x/").events().listen(listener), Err(Error::Url(_))));
    assert_eq!(told.iter().count(), 0);
}

#[test]
fn a_listener_that_takes_its_time_holds_its_server_back_and_nobody_else() {
    let sent = Arc::new(Mutex::new(0_usize));
    let count = Arc::clone(&sent);
    let server = Server::new(move |stream, _| {
        let head = read_head(stream).unwrap_or_default();
        if head.starts_with("GET /other") {
            return answer(stream, "200 OK", "", b"hello");
        }
        let _ = stream.write_all(format!("{HEAD}\r\n").as_bytes());
        let event = format!("data: {}\n\n", "x".repeat(10_000));
        while stream.write_all(event.as_bytes()).is_ok() {
            *count.lock().unwrap() += event.len();
        }
    });
    struct Slow(Receiver<()>);
    impl Listener for Slow {
        fn on_event(&mut self, _: Event) {
            let _ = self.0.recv();
        }

        fn on_end(&mut self, _: Result<(), Error>) {}
    }
    let client = Engine::new().unwrap().client();
    let (go_on, may_go_on) = channel();
    let listening = client.get(&server.url("/")).events().listen(Slow(may_go_on)).unwrap();
    assert_eq!(client.get(&server.url("/other")).send().unwrap().status(), 200);
    // What the window and the system's buffers hold.
    let (began, mut before) = (Instant::now(), 0);
    while before == 0 || *sent.lock().unwrap() != before {
        assert!(began.elapsed() < Duration::from_secs(30), "{before}");
        before = *sent.lock().unwrap();
        std::thread::sleep(Duration::from_millis(500));
    }
    listening.close();
    drop(go_on);
}
