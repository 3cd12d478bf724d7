//! The library against servers that keep to the rules and servers that do not, on loopback.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

mod auth;
mod authority;
mod block_on;
mod build;
mod cache;
mod coding;
mod cookies;
mod dns_over_https;
mod events;
mod faults;
mod hsts;
#[cfg(feature = "http2")]
mod http2;
mod intercept;
mod life;
mod link;
mod memory;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod network;
mod outbox;
mod proxy;
mod redirect;
mod server;
mod tls;
mod turns;
#[cfg(feature = "websocket")]
mod websocket;

use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use block_on::block_on;
use bytes::Bytes;
use server::{Server, answer, read_head, read_request};
use towpath::request::Handler;
use towpath::{
    Chunk, Engine, Error, Layer, Limit, NetworkKind, Priority, Report, Response, Sender, Settings,
    Trailers,
};
use towpath_engine::client::race::Why;
use towpath_engine::local::message::Error as Failed;
use towpath_proto::Failure;

#[test]
fn a_response_comes_whole_with_its_fields_and_its_report() {
    let server = Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            assert!(request.starts_with("GET /path?q=1 HTTP/1.1\r\n"), "{request}");
            assert!(request.contains("x-mine: yes\r\n"));
            answer(stream, "200 OK", "X-Theirs: also\r\n", b"hello");
        }
    });
    let engine = Engine::new().unwrap();
    let request = engine.client().get(&server.url("/path?q=1")).header("X-Mine", "yes");
    for round in 0..3 {
        let mut response = request.clone().send().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.header("x-theirs"), Some("also"));
        assert_eq!(response.body().bytes(5).unwrap(), "hello");
        let report = response.body().report().unwrap();
        assert_eq!(report.tries.len(), 1);
        assert_eq!(report.tries[0].reused, round > 0);
        assert_eq!(report.attempts.len(), usize::from(round == 0));
        assert_eq!(report.record.bytes_sent, 5);
        assert!(!towpath::timeline::entries(report).is_empty());
    }
    assert_eq!(server.connections(), 1);
    let too_large = request.send().unwrap().body().bytes(4);
    assert_eq!(too_large, Err(Error::TooLarge(4)));
}

#[test]
fn a_body_goes_up_whole_or_in_pieces() {
    let server = Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            let body = request.split_once("\r\n\r\n").unwrap().1.len().to_string();
            answer(stream, "200 OK", "", body.as_bytes());
        }
    });
    let engine = Engine::new().unwrap();
    let client = engine.client();
    let mut whole = client.post(&server.url("/"), vec![b'x'; 300_000]).send().unwrap();
    assert_eq!(whole.body().bytes(100).unwrap(), "300000");
    let mut upload = client.request("PUT", &server.url("/")).upload(Some(1_000_000)).unwrap();
    for _ in 0..10 {
        upload.write(vec![b'y'; 100_000]).unwrap();
    }
    assert_eq!(upload.finish().unwrap().body().bytes(100).unwrap(), "1000000");
    let mut chunked = client.request("PUT", &server.url("/")).upload(None).unwrap();
    chunked.write("abc").unwrap();
    chunked.write("defg").unwrap();
    assert_eq!(chunked.finish().unwrap().body().bytes(100).unwrap(), "7");
    let mut broken = client.request("PUT", &server.url("/")).upload(Some(3)).unwrap();
    assert!(matches!(broken.write("four"), Err(Error::Upload(_))));
}

#[test]
fn a_connection_that_was_closed_while_idle_costs_nothing() {
    let (closes, closed) = mpsc::channel();
    let server = Server::new(move |stream, _| {
        read_request(stream);
        answer(stream, "200 OK", "", b"once");
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        closes.send(()).unwrap();
    });
    let engine = Engine::new().unwrap();
    for method in ["GET", "POST", "GET", "POST"] {
        let mut response = engine.client().request(method, &server.url("/")).send().unwrap();
        assert_eq!(response.body().bytes(100).unwrap(), "once");
        closed.recv().unwrap();
        // A POST that meets the server's FIN half-way may have been processed, and is not repeated.
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn what_may_be_processed_twice_is_repeated_and_nothing_else() {
    let server = Server::new(|stream, _| {
        read_request(stream);
    });
    let engine = Engine::new().unwrap();
    let client = engine.client();
    let disconnected = Error::from(Failed::Disconnected);
    assert_eq!(client.get(&server.url("/")).send().unwrap_err(), disconnected);
    assert_eq!(server.connections(), 3, "two retries");
    assert_eq!(client.post(&server.url("/"), "x").send().unwrap_err(), disconnected);
    assert_eq!(server.connections(), 4, "none for what may have been processed");
    let keyed = client.post(&server.url("/"), "x").idempotency_key("k1").retries(1);
    assert_eq!(keyed.send().unwrap_err(), disconnected);
    assert_eq!(server.connections(), 6, "one, as asked, for what the server knows again");
}

#[test]
fn a_server_that_wants_to_be_left_alone_is() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let server = Server::new(move |stream, _| {
        while read_request(stream).is_some() {
            match count.fetch_add(1, Ordering::SeqCst) {
                0 => answer(stream, "503 Service Unavailable", "Retry-After: 1\r\n", b"busy"),
                1 => answer(stream, "200 OK", "", b"well"),
                _ => answer(stream, "429 Too Many Requests", "Retry-After: 3600\r\n", b"later"),
            }
        }
    });
    let engine = Engine::new().unwrap();
    let client = engine.client();
    let mut response = client.get(&server.url("/")).send().unwrap();
    assert_eq!((response.status(), response.body().bytes(9).unwrap()), (200, "well".into()));
    let report = response.body().report().unwrap();
    assert_eq!((report.retries, report.rests.len()), (1, 1));
    let rest = report.rests[0];
    assert!(rest.asked && rest.until - rest.began >= Duration::from_secs(1), "{rest:?}");
    let told = towpath::timeline::entries(report);
    assert!(told.iter().any(|one| one.what.ends_with("as it asked: it answered 503")), "{told:?}");
    assert!(towpath::report::to_json(report).contains("\"asked\":true,\"status\":503}"));
    let refused = client.post(&server.url("/"), "x").send().unwrap();
    assert_eq!(refused.status(), 429, "what must not be repeated gets the answer");
    let again = || client.post(&server.url("/"), "x");
    for request in [again(), again().fail_at_rest()] {
        let Err(Error::Failed(failed)) = request.send() else { panic!("it cannot wait so long") };
        assert!(matches!(failed.why(), Failed::Resting(_)), "{failed:?}");
    }
    assert_eq!(seen.load(Ordering::SeqCst), 3);
}

#[test]
fn an_app_that_repeats_itself_or_sends_too_much_is_stopped() {
    let server = Server::new(|stream, _| {
        while read_request(stream).is_some() {
            answer(stream, "200 OK", "", b"ok");
        }
    });
    let settings = Settings { max_identical: 2, max_flow_bytes: 100_000, ..Settings::default() };
    let engine = Engine::builder().settings(settings).start().unwrap();
    let client = engine.client();
    let post = |body: &'static str| client.post(&server.url("/"), body).send().map(|_| ());
    let identical = Err(Error::from(Failed::Limited(Limit::Identical)));
    assert_eq!([post("a"), post("a"), post("b")], [Ok(()), Ok(()), Ok(())]);
    assert_eq!(post("a"), identical);
    assert_eq!(client.post(&server.url("/"), "a").unlimited().send().map(|_| ()), Ok(()));
    let get = |path: &str| client.get(&server.url(path)).send().map(|_| ());
    assert_eq!([get("/1"), get("/1"), get("/2")], [Ok(()), Ok(()), Ok(())]);
    assert_eq!(get("/1"), identical);
    assert_eq!(get("/1").unwrap_err().to_string(), "the limit on identical requests is reached");
    let flow = Error::from(Failed::Limited(Limit::Flow));
    let large = client.post(&server.url("/"), vec![b'x'; 100_000]);
    assert_eq!(large.send().unwrap_err(), flow);
    assert_eq!(post("c"), Ok(()), "what was refused took nothing away");
    let mut upload = client.request("PUT", &server.url("/")).upload(None).unwrap();
    let cut = (0..20).find_map(|_| upload.write(vec![b'y'; 10_000]).err());
    let error = cut.unwrap_or_else(|| upload.finish().unwrap_err());
    assert_eq!(error, flow, "where its length was not known it is cut off");
}

#[test]
fn the_urgent_request_gets_the_connection_that_becomes_free() {
    let (release, released) = mpsc::channel::<()>();
    let (arrived, arrives) = mpsc::channel();
    let gate = std::sync::Mutex::new((arrived, released));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            let path = request.split(' ').nth(1).unwrap().to_owned();
            if path == "/first" {
                let (arrived, released) = &*gate.lock().unwrap();
                arrived.send(()).unwrap();
                released.recv().unwrap();
            }
            seen.lock().unwrap().push(path);
            answer(stream, "200 OK", "", b"");
        }
    });
    let settings = Settings { max_connections: 1, ..Settings::default() };
    let engine = Engine::builder().settings(settings).start().unwrap();
    let (ended, ends) = mpsc::channel();
    let send = |path: &str, priority| {
        let request = engine.client().get(&server.url(path)).priority(priority);
        request.send_with(Tell(ended.clone())).unwrap();
    };
    send("/first", Priority::Normal);
    arrives.recv().unwrap();
    send("/low", Priority::Low);
    send("/normal", Priority::Normal);
    send("/high", Priority::High);
    // Commands are taken in order: what this one finds out comes after the others are in the queue.
    engine.save_memory(&std::env::temp_dir().join("towpath-priorities")).unwrap();
    release.send(()).unwrap();
    let told: Vec<String> = (0..4).map(|_| ends.recv().unwrap()).collect();
    assert_eq!(*order.lock().unwrap(), ["/first", "/high", "/normal", "/low"]);
    assert!(told[3].contains("begin with low priority"), "{told:?}");
}

/// Tells the timeline of a request when it is over.
struct Tell(mpsc::Sender<String>);

impl Handler for Tell {
    fn on_head(&mut self, _: Response) {}

    fn on_data(&mut self, _: Chunk) {}

    fn on_end(&mut self, outcome: Result<(), Error>, report: Option<&Report>) {
        outcome.unwrap();
        let entries = towpath::timeline::entries(report.unwrap());
        let _ = self.0.send(entries.iter().map(ToString::to_string).collect());
    }
}

#[test]
fn a_response_that_is_cut_is_an_error_after_what_came_of_it() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    let engine = Engine::new().unwrap();
    let mut response = engine.client().get(&server.url("/")).send().unwrap();
    assert_eq!(response.body().chunk().unwrap().unwrap(), "half");
    assert!(matches!(response.body().chunk(), Err(Error::Failed(_))));
    assert!(response.body().report().is_some());
}

#[test]
fn a_request_that_is_late_is_sent_a_second_time_and_the_first_is_given_up() {
    let (hung_up, hangs_up) = mpsc::channel();
    let hung_up = std::sync::Mutex::new(hung_up);
    let late = AtomicUsize::new(0);
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            if request.starts_with("GET /late") && late.fetch_add(1, Ordering::SeqCst) == 0 {
                let _ = stream.read_to_end(&mut Vec::new());
                let _ = hung_up.lock().unwrap().send(());
                return;
            }
            answer(stream, "200 OK", "", b"here");
        }
    });
    let engine = Engine::new().unwrap();
    let client = engine.client();
    for _ in 0..20 {
        client.get(&server.url("/")).send().unwrap().body().bytes(10).unwrap();
    }
    let mut response = client.get(&server.url("/late")).hedge().send().unwrap();
    assert_eq!(response.body().bytes(10).unwrap(), "here");
    hangs_up.recv().unwrap();
    let report = response.body().report().unwrap();
    assert_eq!(report.hedges, 1);
    assert_eq!(report.tries.last().map(|last| last.hedge), Some(true));
    let told = towpath::timeline::entries(report);
    assert!(told.iter().any(|one| one.what.starts_with("send beside it on")), "{told:?}");
    assert!(towpath::report::to_json(report).contains("\"hedge\":true"));
}

#[test]
fn a_response_that_is_cut_goes_on_where_it_stopped() {
    let server = Server::new(|stream, number| {
        let request = read_request(stream).unwrap();
        let (head, body): (&str, &[u8]) = match number {
            0 => ("200 OK\r\nAccept-Ranges: bytes\r\nContent-Length: 10", b"0123"),
            1 => {
                assert!(request.contains("range: bytes=4-\r\nif-range: \"v1\"\r\n"), "{request}");
                ("206 Partial Content\r\nContent-Range: bytes 4-9/10\r\nContent-Length: 6", b"45")
            }
            2 => {
                assert!(request.contains("range: bytes=6-\r\nif-range: \"v1\"\r\n"), "{request}");
                ("206 Partial Content\r\nContent-Range: bytes 6-9/10\r\nContent-Length: 4", b"6789")
            }
            3 => ("200 OK\r\nContent-Length: 10", b"01234"),
            _ => ("200 OK\r\nContent-Length: 10", b"abcdefghij"),
        };
        let _ = write!(stream, "HTTP/1.1 {head}\r\nETag: \"v1\"\r\n\r\n");
        let _ = stream.write_all(body);
    });
    let engine = Engine::new().unwrap();
    let mut response = engine.client().get(&server.url("/")).send().unwrap();
    assert_eq!((response.status(), response.header("content-length")), (200, Some("10")));
    assert_eq!(response.body().bytes(10).unwrap(), "0123456789");
    let report = response.body().report().unwrap();
    assert_eq!(report.resumed.iter().map(|one| one.from).collect::<Vec<_>>(), [4, 6]);
    let told = towpath::timeline::entries(report);
    assert!(told.iter().any(|one| one.what == "response goes on behind byte 6"), "{told:?}");
    assert!(towpath::report::to_json(report).contains("\"from\":4},{"));
    // A server that sends all of it again is not believed to send the same.
    let mut response = engine.client().get(&server.url("/")).send().unwrap();
    assert_eq!(response.body().chunk().unwrap().unwrap(), "01234");
    let failed = response.body().chunk().unwrap_err();
    assert_eq!(failed, Error::from(Failed::Protocol));
    assert_eq!(server.connections(), 5);
}

#[test]
fn trailers_come_with_the_end() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n";
        let body = "3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n";
        let _ = stream.write_all([head, body].concat().as_bytes());
    });
    let engine = Engine::new().unwrap();
    let mut response = engine.client().get(&server.url("/")).send().unwrap();
    assert_eq!(response.body().bytes(10).unwrap(), "abc");
    assert_eq!(response.body().trailer("x-sum"), Some("42"));
}

#[test]
fn what_is_not_http_is_an_error() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        let _ = stream.write_all(b"SSH-2.0-OpenSSH\r\n\r\n");
    });
    let engine = Engine::new().unwrap();
    let failed = engine.client().get(&server.url("/")).retries(0).send().unwrap_err();
    assert_eq!(failed, Error::from(Failed::Protocol));
}

#[test]
fn each_limit_on_time_ends_what_it_is_for_and_is_named() {
    let server = Server::new(|stream, _| {
        let request = read_request(stream).unwrap_or_default();
        if request.starts_with("GET /gap") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        }
        // Until the client hangs up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let engine = Engine::new().unwrap();
    let limit = Duration::from_millis(150);
    let get = |path: &str| engine.client().get(&server.url(path)).retries(0);
    let without = |path: &str| {
        let request = get(path);
        Box::pin(async move { request.send_async().await?.body().bytes_async(100).await })
    };
    let mut others = [without("/silent"), without("/gap")];
    let mut others_wait = || {
        let mut context = Context::from_waker(Waker::noop());
        others.iter_mut().all(|other| other.as_mut().poll(&mut context).is_pending())
    };
    assert!(others_wait());
    let first = get("/silent").first_byte_timeout(limit).send().unwrap_err();
    assert_eq!(first.timed_out(), Some(Layer::FirstByte));
    let total = get("/silent").timeout(limit).send().unwrap_err();
    assert_eq!(total.timed_out(), Some(Layer::Total));
    let mut response = get("/gap").gap_timeout(limit).send().unwrap();
    assert_eq!(response.body().bytes(100).unwrap_err().timed_out(), Some(Layer::Gap));
    assert_eq!(response.body().report().unwrap().fired, Some(Layer::Gap));
    assert!(others_wait(), "these limits passed before those that hold where none is set");
}

#[test]
fn an_answer_before_the_body_is_complete_ends_the_upload() {
    let server = Server::new(|stream, _| {
        read_head(stream);
        answer(stream, "413 Too Large", "Connection: close\r\n", b"no");
        // Until the client hangs up: what is not read would end the connection with a reset.
        let _ = std::io::copy(stream, &mut std::io::sink());
    });
    let engine = Engine::new().unwrap();
    let mut upload = engine.client().request("PUT", &server.url("/")).upload(None).unwrap();
    let mut written = Ok(());
    for _ in 0..10_000 {
        written = upload.write(vec![0; 16_384]);
        if written.is_err() {
            break;
        }
    }
    assert_eq!(written, Err(Error::Upload("it was answered early")));
    assert_eq!(upload.finish().unwrap().status(), 413);
}

#[test]
fn without_a_listener_it_fails_at_once() {
    // Nothing listens there, and nothing else can be given it: a connection has it.
    let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = std::net::TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let closed = connected.local_addr().unwrap();
    let engine = Engine::new().unwrap();
    let failed = engine.client().get(&format!("http://{closed}/")).send().unwrap_err();
    assert_eq!(failed, Error::from(Failed::Connect(Failure::Refused)));
    let report = failed.report().unwrap();
    assert_eq!((report.attempts.len(), report.retries), (1, 0), "{report:?}");
    assert!(matches!(engine.client().get("nonsense").send(), Err(Error::Url(_))));
    let tokens = engine.client().request("G T", &format!("http://{closed}/")).send();
    assert!(matches!(tokens, Err(Error::NotAToken(_))));
}

#[test]
fn an_address_that_refuses_costs_nothing_beside_one_that_answers() {
    let server = Server::new(|stream, _| {
        while read_request(stream).is_some() {
            answer(stream, "200 OK", "", b"hello");
        }
    });
    let addresses: Vec<IpAddr> = vec![[127, 0, 0, 2].into(), [127, 0, 0, 1].into()];
    let mut settings = Settings::default();
    settings.race.stagger = Duration::from_secs(60);
    let engine = Engine::builder()
        .settings(settings)
        .resolver(move |name| match name {
            "app.test" => Ok(addresses.clone()),
            _ => Err(Failure::NoSuchName),
        })
        .start()
        .unwrap();
    let url = format!("http://app.test:{}/", server.address.port());
    let mut response = engine.client().get(&url).send().unwrap();
    assert_eq!(response.body().bytes(10).unwrap(), "hello");
    let report = response.body().report().unwrap();
    let whys: Vec<Why> = report.attempts.iter().map(|attempt| attempt.why).collect();
    assert_eq!(
        (report.lookups.len(), &whys[..]),
        (1, &[Why::Wanted, Why::Failed][..]),
        "{report:?}"
    );
    let missing = engine.client().get("http://nowhere.test/").send().unwrap_err();
    assert_eq!(missing, Error::from(Failed::Resolve(Failure::NoSuchName)));
}

#[test]
fn a_question_may_be_answered_later_by_any_thread_and_is_asked_again_when_it_was_not() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        answer(stream, "200 OK", "", b"hello");
    });
    let (ask, asked) = mpsc::channel::<towpath::Question>();
    let engine = Engine::builder().questions(move |question| ask.send(question).unwrap());
    let engine = engine.start().unwrap();
    let answers = std::thread::spawn(move || {
        drop(asked.recv().unwrap());
        let question = asked.recv().unwrap();
        assert_eq!(question.name(), "app.test");
        question.answer(Ok(vec![[127, 0, 0, 1].into()]));
        asked.recv().unwrap()
    });
    let url = format!("http://App.test:{}/", server.address.port());
    assert_eq!(engine.client().get(&url).send().unwrap().status(), 200);
    let other = engine.client().get("http://other.test/").timeout(Duration::from_millis(50));
    assert_eq!(other.send().unwrap_err().timed_out(), Some(Layer::Total));
    let late = answers.join().unwrap();
    drop(engine);
    late.answer(Ok(Vec::new()));
}

struct Told {
    events: mpsc::Sender<String>,
}

impl Handler for Told {
    fn on_head(&mut self, response: Response) {
        let _ = self.events.send(format!("head {}", response.status()));
    }

    fn on_data(&mut self, chunk: Chunk) {
        let _ = self.events.send(format!("data {}", String::from_utf8_lossy(&chunk)));
    }

    fn on_end(&mut self, outcome: Result<(), Error>, report: Option<&Report>) {
        let _ = self.events.send(format!("end {outcome:?} {}", report.is_some()));
    }
}

#[test]
fn callbacks_come_in_order_and_end_once() {
    let server = Server::new(|stream, number| {
        read_request(stream);
        if number > 0 {
            let _ = stream.read_to_end(&mut Vec::new());
        }
        answer(stream, "200 OK", "", b"hello");
    });
    let engine = Engine::new().unwrap();
    let (events, told) = mpsc::channel();
    let request = engine.client().get(&server.url("/"));
    request.clone().send_with(Told { events: events.clone() }).unwrap();
    let wait = Duration::from_secs(5);
    assert_eq!(told.recv_timeout(wait).unwrap(), "head 200");
    assert_eq!(told.recv_timeout(wait).unwrap(), "data hello");
    assert_eq!(told.recv_timeout(wait).unwrap(), "end Ok(()) true");
    let canceller = request.send_with(Told { events }).unwrap();
    canceller.cancel();
    canceller.cancel();
    assert_eq!(told.recv_timeout(wait).unwrap(), "end Err(Failed(Cancelled)) true");
    assert!(told.recv_timeout(wait).is_err(), "nothing after the end");
}

/// Passes everything on, pieces as they are.
struct Keep {
    sender: Sender,
    events: mpsc::Sender<Kept>,
}

enum Kept {
    Piece(Chunk),
    Room,
    Trailers(String),
    End(Result<(), Error>),
}

impl Handler for Keep {
    fn on_head(&mut self, response: Response) {
        if response.status() == 204 {
            self.sender.cancel();
        }
    }

    fn on_data(&mut self, chunk: Chunk) {
        let _ = self.events.send(Kept::Piece(chunk));
    }

    fn on_trailers(&mut self, trailers: Trailers) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let all = trailers.iter().map(|(name, value)| format!("{}={}", text(name), text(value)));
        let _ = self.events.send(Kept::Trailers(all.collect()));
    }

    fn on_room(&mut self) {
        let _ = self.events.send(Kept::Room);
    }

    fn on_end(&mut self, outcome: Result<(), Error>, _: Option<&Report>) {
        let _ = self.events.send(Kept::End(outcome));
    }
}

#[test]
fn pieces_that_a_handler_keeps_hold_the_server_back() {
    const ALL: usize = 4 << 20;
    let server = Server::new(|stream, _| {
        read_request(stream);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(format!("{head}{ALL:x}\r\n").as_bytes());
        let _ = stream.write_all(&vec![b'x'; ALL]);
        let _ = stream.write_all(b"\r\n0\r\nX-Sum: 1\r\n\r\n");
    });
    let engine = Engine::new().unwrap();
    let (events, told) = mpsc::channel();
    let request = engine.client().get(&server.url("/"));
    request.start_with(|sender| Keep { sender, events }).unwrap();
    let mut kept = Vec::new();
    while let Ok(event) = told.recv_timeout(Duration::from_millis(300)) {
        let Kept::Piece(piece) = event else { panic!("it ends before all of it is there") };
        kept.push(piece);
    }
    let mut all: usize = kept.iter().map(|piece| piece.len()).sum();
    assert!(all > 0 && all <= (256 + 128) * 1024, "{all}");
    drop(kept);
    let mut trailers = String::new();
    loop {
        match told.recv().unwrap() {
            Kept::Piece(piece) => all += piece.into_bytes().len(),
            Kept::Trailers(text) => trailers = text,
            Kept::Room => panic!("nothing was written"),
            Kept::End(outcome) => break assert_eq!(outcome, Ok(())),
        }
    }
    assert_eq!((all, trailers.as_str()), (ALL, "X-Sum=1"));
    assert!(told.recv().is_err(), "nothing after the end");
}

#[test]
fn a_handler_s_body_goes_up_as_there_is_room() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        answer(stream, "200 OK", "", b"thanks");
    });
    let engine = Engine::new().unwrap();
    engine.network_changed("none", NetworkKind::Fixed, false).unwrap();
    let (events, told) = mpsc::channel();
    let request = engine.client().request("PUT", &server.url("/")).wait_for_network();
    let sender = request.upload_with(Some(2 << 20), |sender| Keep { sender, events }).unwrap();
    let mut left = vec![b'x'; 2 << 20];
    let mut write = || {
        let taken = sender.write(&left).unwrap();
        left.drain(..taken);
        left.is_empty()
    };
    assert!(!write(), "without a network only so much is taken");
    engine.network_changed("some", NetworkKind::Fixed, true).unwrap();
    while matches!(told.recv().unwrap(), Kept::Room) && !write() {}
    assert_eq!(sender.write(b"x"), Err(Error::Upload("more was written than promised")));
    sender.finish().unwrap();
    assert!(matches!(told.recv().unwrap(), Kept::Piece(piece) if *piece == *b"thanks"));
    assert!(matches!(told.recv().unwrap(), Kept::End(Ok(()))));
    assert!(sender.write(b"").is_err(), "it is over");
}

#[test]
fn a_handler_may_give_its_request_up() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
    });
    let engine = Engine::new().unwrap();
    let (events, told) = mpsc::channel();
    let request = engine.client().get(&server.url("/"));
    let sender = request.start_with(|sender| Keep { sender, events }).unwrap();
    // Whole at once: giving it up may come too late, and its end comes once either way.
    let Kept::End(outcome) = told.recv().unwrap() else { panic!("there is no body") };
    assert!(outcome.is_ok() || outcome == Err(Error::from(Failed::Cancelled)));
    sender.cancel();
    assert!(told.recv().is_err(), "nothing after the end");
}

#[test]
fn futures_need_no_runtime() {
    let server = Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            let body = request.split_once("\r\n\r\n").unwrap().1.to_owned();
            answer(stream, "200 OK", "", body.as_bytes());
        }
    });
    let engine = Engine::new().unwrap();
    let client = engine.client();
    let echoed = block_on(async {
        let mut upload = client.request("PUT", &server.url("/")).upload(Some(600_000))?;
        upload.write_async(vec![b'z'; 600_000]).await?;
        let mut response = upload.finish_async().await?;
        let up = response.body().bytes_async(1 << 20).await?.len();
        let mut response = client.post(&server.url("/"), "ping").send_async().await?;
        Ok::<_, Error>((up, response.body().bytes_async(100).await?))
    });
    assert_eq!(echoed.unwrap(), (600_000, Bytes::from("ping")));
}

#[test]
fn a_body_that_is_not_read_stays_with_the_server() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut total = 0;
        while let Ok(written) = stream.write(&[0; 65_536]) {
            total += written;
        }
        server::SENT.store(total, Ordering::SeqCst);
    });
    let engine = Engine::new().unwrap();
    let response = engine.client().get(&server.url("/")).gap_timeout(Duration::from_secs(60));
    let response = response.send().unwrap();
    while server::SENT.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let sent = server::SENT.load(Ordering::SeqCst);
    // The window, and what two kernels hold.
    assert!(sent < 20_000_000, "{sent}");
    drop(response);
}

#[test]
fn an_idle_engine_sleeps_and_a_stopped_one_ends_everything() {
    let server = Server::new(|stream, number| {
        read_request(stream);
        if number == 0 {
            answer(stream, "200 OK", "", b"hello");
        }
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let engine = Engine::new().unwrap();
    let mut response = engine.client().get(&server.url("/")).send().unwrap();
    response.body().bytes(10).unwrap();
    // What is left to do of the request may take its time on a busy machine.
    let sleeps = || {
        let before = engine.wakeups();
        std::thread::sleep(Duration::from_millis(400));
        engine.wakeups() == before
    };
    assert!((0..20).any(|_| sleeps()), "something wakes it all the time");
    let (events, told) = mpsc::channel();
    let client = engine.client();
    client.post(&server.url("/"), "x").send_with(Told { events }).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    drop((engine, response, client));
    assert_eq!(told.recv().unwrap(), "end Err(Stopped) false");
}

#[test]
fn an_engine_that_stops_between_two_requests_of_another_thread_ends_or_refuses_each() {
    for _ in 0..300 {
        let (engine, runner) = Engine::builder().lend().unwrap();
        let client = engine.client();
        let (events, told) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        let app = std::thread::spawn(move || {
            let handler = || Told { events: events.clone() };
            let post = || client.post("http://127.0.0.1:9/", "x").send_with(handler());
            let mut taken = usize::from(post().is_ok());
            begin.send(()).unwrap();
            while post().is_ok() {
                taken += 1;
            }
            taken
        });
        begun.recv().unwrap();
        drop(runner);
        let taken = app.join().unwrap();
        // One that was refused is not told of an end as well.
        assert_eq!(told.iter().count(), taken);
    }
}

#[test]
fn an_engine_runs_on_a_thread_of_the_app() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        answer(stream, "200 OK", "", b"hello");
    });
    let (engine, mut runner) = Engine::builder().lend().unwrap();
    let (events, told) = mpsc::channel();
    engine.client().get(&server.url("/")).send_with(Told { events }).unwrap();
    let mut all = Vec::new();
    while all.len() < 3 {
        runner.turn(Duration::from_millis(100)).unwrap();
        all.extend(told.try_iter());
    }
    assert_eq!(all, ["head 200", "data hello", "end Ok(()) true"]);
}
