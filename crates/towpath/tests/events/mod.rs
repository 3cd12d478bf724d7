//! Server-sent events from servers that hang up, fail and come back.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath::{Engine, Error};

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
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
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
