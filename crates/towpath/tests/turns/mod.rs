//! Requests to one origin that wait for one another.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use towpath::request::Handler;
use towpath::{Chunk, Engine, Error, Failed, Report, Response, Settings};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_request};

/// A server that tells of each request, and answers it when it may.
struct Held {
    server: Server,
    came: mpsc::Receiver<String>,
    go: mpsc::Sender<()>,
}

impl Held {
    fn new() -> Self {
        let (told, came) = mpsc::channel();
        let (go, may) = mpsc::channel::<()>();
        let (told, may) = (Mutex::new(told), Mutex::new(may));
        let server = Server::new(move |stream, _| {
            while let Some(request) = read_request(stream) {
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let is_moved = path == "/moved";
                let body = request.split("\r\n\r\n").nth(1).unwrap_or_default().len();
                told.lock().unwrap().send(path).unwrap();
                if may.lock().unwrap().recv().is_err() {
                    return;
                }
                if is_moved {
                    answer(stream, "302 Found", "Location: /there\r\n", b"over there");
                } else {
                    answer(stream, "200 OK", "", body.to_string().as_bytes());
                }
            }
        });
        Self { server, came, go }
    }

    fn next(&self) -> String {
        self.came.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    fn has_no_more(&self) {
        assert_eq!(self.came.recv_timeout(Duration::from_millis(150)).ok(), None);
    }

    fn url(&self, path: impl std::fmt::Display) -> String {
        self.server.url(&format!("/{path}"))
    }
}

fn engine(most: usize) -> Engine {
    Engine::builder().max_calls_per_origin(most).start().unwrap()
}

/// Tells a channel how it ended.
struct Ends(mpsc::Sender<Result<u16, Error>>, u16);

impl Handler for Ends {
    fn on_head(&mut self, response: Response) {
        self.1 = response.status();
    }

    fn on_data(&mut self, _: Chunk) {}

    fn on_end(&mut self, outcome: Result<(), Error>, _: Option<&Report>) {
        self.0.send(outcome.map(|()| self.1)).unwrap();
    }
}

#[test]
fn further_ones_wait_in_their_order_and_other_origins_do_not() {
    let (held, other) = (Held::new(), Held::new());
    let engine = engine(2);
    let (sender, ends) = mpsc::channel();
    for number in 0..20 {
        let request = engine.client().get(&held.url(number));
        request.send_with(Ends(sender.clone(), 0)).unwrap();
    }
    let mut first = [held.next(), held.next()];
    first.sort_unstable();
    assert_eq!(first, ["/0", "/1"]);
    held.has_no_more();
    engine.client().get(&other.url("other")).send_with(Ends(sender, 0)).unwrap();
    assert_eq!(other.next(), "/other");
    other.go.send(()).unwrap();
    assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(200));
    for number in 2..20 {
        held.go.send(()).unwrap();
        assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(200));
        assert_eq!(held.next(), format!("/{number}"));
    }
    held.has_no_more();
}

#[test]
fn further_ones_wait_whatever_their_origin_where_there_is_a_limit_on_all() {
    let (one, other) = (Held::new(), Held::new());
    let engine = Engine::builder().max_calls_under_way(3).max_calls_per_origin(2).start().unwrap();
    let (sender, ends) = mpsc::channel();
    let ask = |held: &Held, path: &str| {
        engine.client().get(&held.url(path)).send_with(Ends(sender.clone(), 0)).unwrap();
    };
    ["a", "b", "c"].iter().for_each(|path| ask(&one, path));
    let mut first = [one.next(), one.next()];
    first.sort_unstable();
    assert_eq!(first, ["/a", "/b"]);
    ["d", "e"].iter().for_each(|path| ask(&other, path));
    assert_eq!(other.next(), "/d");
    one.has_no_more();
    other.has_no_more();
    // `c` came before `e`, and its origin has no room.
    other.go.send(()).unwrap();
    assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(200));
    assert_eq!(other.next(), "/e");
    one.go.send(()).unwrap();
    assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(200));
    assert_eq!(one.next(), "/c");
    other.has_no_more();
}

#[test]
fn one_that_is_given_up_while_it_waits_takes_no_turn_and_gives_none() {
    let held = Held::new();
    let engine = engine(1);
    let (sender, ends) = mpsc::channel();
    let ask = |path: &str| {
        engine.client().get(&held.url(path)).send_with(Ends(sender.clone(), 0)).unwrap()
    };
    let _first = ask("first");
    assert_eq!(held.next(), "/first");
    let (waits, _third) = (ask("second"), ask("third"));
    let mut awaited = Box::pin(engine.client().get(&held.url("awaited")).send_async());
    assert!(awaited.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    waits.cancel();
    waits.cancel();
    let cancelled = ends.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(cancelled, Err(Failed::Cancelled.into()));
    drop(awaited);
    held.has_no_more();
    held.go.send(()).unwrap();
    assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(200));
    assert_eq!(held.next(), "/third");
    let _last = ask("last");
    held.has_no_more();
    held.go.send(()).unwrap();
    assert_eq!(held.next(), "/last");
}

#[test]
fn one_that_is_given_up_under_way_gives_its_turn_on() {
    let held = Held::new();
    let engine = engine(1);
    let (sender, ends) = mpsc::channel();
    let ask = |path: &str| {
        engine.client().get(&held.url(path)).send_with(Ends(sender.clone(), 0)).unwrap()
    };
    let first = ask("first");
    assert_eq!(held.next(), "/first");
    let _second = ask("second");
    first.cancel();
    assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Err(Failed::Cancelled.into()));
    // The server still holds the first: its connection is closed, and another one asks.
    assert_eq!(held.next(), "/second");
    assert!(ends.try_recv().is_err());
}

#[test]
fn the_wait_counts_to_the_limit_on_the_whole_and_to_its_own() {
    let held = Held::new();
    let engine = engine(1);
    let (sender, _ends) = mpsc::channel();
    engine.client().get(&held.url("first")).send_with(Ends(sender, 0)).unwrap();
    assert_eq!(held.next(), "/first");
    let began = Instant::now();
    let limit = Duration::from_millis(200);
    let total = engine.client().get(&held.url("total")).timeout(limit);
    let turn = engine.client().get(&held.url("turn")).turn_timeout(limit);
    let error = total.send().unwrap_err();
    assert!(error.timed_out().is_some(), "{error}");
    let error = block_on(turn.send_async()).unwrap_err();
    assert_eq!(error, Failed::Overflow.into());
    assert!(began.elapsed() >= limit && began.elapsed() < Duration::from_secs(5));
    // What is left of it holds once it is sent.
    let limit = Duration::from_millis(600);
    let late = engine.client().get(&held.url("late")).timeout(limit);
    let began = Instant::now();
    let late = thread::spawn(move || late.send().unwrap_err());
    thread::sleep(limit / 2);
    held.go.send(()).unwrap();
    assert_eq!(held.next(), "/late");
    assert!(late.join().unwrap().timed_out().is_some());
    assert!((limit..2 * limit).contains(&began.elapsed()), "{:?}", began.elapsed());
    held.has_no_more();
}

#[test]
fn a_body_that_follows_is_kept_until_it_may_be_sent() {
    let held = Held::new();
    let engine = engine(1);
    let (sender, _ends) = mpsc::channel();
    engine.client().get(&held.url("first")).send_with(Ends(sender, 0)).unwrap();
    assert_eq!(held.next(), "/first");
    let mut upload = engine.client().post(&held.url("up"), "").upload(Some(1_000_000));
    assert!(upload.is_err(), "it has a body already");
    upload = engine.client().request("POST", &held.url("up")).upload(Some(1_000_000));
    let mut upload = upload.unwrap();
    let sends = thread::spawn(move || {
        for _ in 0..10 {
            upload.write(vec![b'x'; 100_000]).unwrap();
        }
        upload.finish().unwrap().body().bytes(100).unwrap()
    });
    held.has_no_more();
    assert!(!sends.is_finished(), "no more than the window waits here");
    held.go.send(()).unwrap();
    assert_eq!(held.next(), "/up");
    held.go.send(()).unwrap();
    assert_eq!(sends.join().unwrap(), "1000000");
}

#[test]
fn redirects_have_a_turn_each() {
    let held = Held::new();
    let engine = engine(1);
    let (sender, ends) = mpsc::channel();
    for _ in 0..20 {
        held.go.send(()).unwrap();
    }
    let moved = || engine.client().get(&held.url("moved"));
    assert_eq!(moved().send().unwrap().status(), 200);
    assert_eq!(block_on(moved().send_async()).unwrap().status(), 200);
    for _ in 0..3 {
        moved().send_with(Ends(sender.clone(), 0)).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(200));
    }
    let came: Vec<String> = held.came.try_iter().collect();
    assert_eq!(came.iter().filter(|path| *path == "/there").count(), 5, "{came:?}");
}

#[test]
fn a_response_has_its_turn_until_its_body_has_come_or_is_dropped() {
    let held = Held::new();
    let engine = engine(1);
    let (sender, ends) = mpsc::channel();
    held.go.send(()).unwrap();
    let response = engine.client().get(&held.url("first")).send().unwrap();
    assert_eq!(held.next(), "/first");
    drop(response);
    engine.client().get(&held.url("second")).send_with(Ends(sender, 0)).unwrap();
    assert_eq!(held.next(), "/second");
    held.go.send(()).unwrap();
    assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(200));
}

#[test]
fn what_has_no_limits_does_not_wait_and_too_many_do_not_either() {
    let held = Held::new();
    let settings = Settings { max_calls: 3, ..Settings::default() };
    let engine = Engine::builder().settings(settings).max_calls_per_origin(1).start().unwrap();
    let (sender, _ends) = mpsc::channel();
    let ask = |path: &str| engine.client().get(&held.url(path));
    ask("first").send_with(Ends(sender.clone(), 0)).unwrap();
    assert_eq!(held.next(), "/first");
    ask("free").unlimited().send_with(Ends(sender.clone(), 0)).unwrap();
    assert_eq!(held.next(), "/free");
    for _ in 0..3 {
        ask("waits").send_with(Ends(sender.clone(), 0)).unwrap();
    }
    let full = ask("full").send_with(Ends(sender, 0));
    assert_eq!(full.err(), Some(Failed::Overflow.into()));
    held.has_no_more();
}

#[test]
#[cfg(feature = "websocket")]
fn a_websocket_takes_no_turn() {
    let held = Held::new();
    let engine = engine(1);
    let (sender, ends) = mpsc::channel();
    engine.client().get(&held.url("first")).send_with(Ends(sender, 0)).unwrap();
    assert_eq!(held.next(), "/first");
    let url = held.url("chat");
    let client = engine.client();
    let opens = thread::spawn(move || client.get(&url).websocket().open().err());
    assert_eq!(held.next(), "/chat");
    held.go.send(()).unwrap();
    held.go.send(()).unwrap();
    assert_eq!(opens.join().unwrap(), Some(Error::Status(200)));
    assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(200));
}

#[test]
fn an_engine_that_ends_tells_those_that_wait_once() {
    let held = Held::new();
    let engine = engine(1);
    let (sender, ends) = mpsc::channel();
    for number in 0..5 {
        let request = engine.client().get(&held.url(number));
        request.send_with(Ends(sender.clone(), 0)).unwrap();
    }
    assert_eq!(held.next(), "/0");
    drop(engine);
    for _ in 0..5 {
        assert_eq!(ends.recv_timeout(Duration::from_secs(10)).unwrap(), Err(Error::Stopped));
    }
    assert!(ends.recv_timeout(Duration::from_millis(100)).is_err());
    held.has_no_more();
}

#[test]
fn handlers_are_called_by_the_thread_that_is_lent() {
    /// Tells by which thread it was called.
    struct By(mpsc::Sender<thread::ThreadId>);

    impl Handler for By {
        fn on_head(&mut self, _: Response) {}

        fn on_data(&mut self, _: Chunk) {}

        fn on_end(&mut self, _: Result<(), Error>, _: Option<&Report>) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    let held = Held::new();
    let (engine, mut runner) = Engine::builder().max_calls_per_origin(1).lend().unwrap();
    let (sender, by) = mpsc::channel();
    engine.client().get(&held.url("first")).send_with(By(sender.clone())).unwrap();
    let late = engine.client().get(&held.url("late")).turn_timeout(Duration::from_millis(50));
    late.send_with(By(sender.clone())).unwrap();
    let given_up = engine.client().get(&held.url("given-up")).send_with(By(sender)).unwrap();
    let other = thread::spawn(move || given_up.cancel());
    other.join().unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(by.try_recv().is_err(), "nothing is told but by its thread");
    let until = Instant::now() + Duration::from_secs(10);
    let mut told = Vec::new();
    while told.len() < 2 && Instant::now() < until {
        runner.turn(Duration::from_millis(50)).unwrap();
        told.extend(by.try_iter());
    }
    assert_eq!(told, [thread::current().id(); 2]);
    drop(runner);
    assert_eq!(by.recv_timeout(Duration::from_secs(10)).unwrap(), thread::current().id());
}

#[test]
fn many_threads_are_never_more_than_may_be() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, seen) = (Arc::clone(&now), Arc::clone(&most));
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            if request.starts_with("GET /given-up") {
                // How long it is here is not known there.
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            seen.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            counted.fetch_sub(1, Ordering::SeqCst);
            answer(stream, "200 OK", "", b"hello");
        }
    });
    let engine = engine(3);
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let (client, url) = (engine.client(), server.url("/"));
            let given_up = server.url("/given-up");
            thread::spawn(move || {
                for round in 0..40 {
                    if (round + thread) % 4 == 0 {
                        // Given up before it is known whether it is its turn.
                        let mut asked = Box::pin(client.get(&given_up).send_async());
                        let mut context = Context::from_waker(Waker::noop());
                        assert!(asked.as_mut().poll(&mut context).is_pending());
                        continue;
                    }
                    let mut response = client.get(&url).send().unwrap();
                    assert_eq!(response.body().bytes(10).unwrap(), "hello");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!((2..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}
