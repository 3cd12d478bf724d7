//! The link against a server that speaks Bolt, and one that stops to.

mod reach;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use towpath::link::{Builder, Error, HeartbeatSettings, Link, State, Status};
use towpath::{Engine, NetworkKind};
use towpath_proto::bolt::{Command, Decoder, Frame, Kind, Message, Options, Version};

use crate::memory::write_memory;

#[test]
fn answers_find_their_requests_in_any_order() {
    let (server, _engine, link) = opened(|link| link);
    let mut peer = server.accept();
    let one = link.request("one").class("a.Class").header("k", "v").codec(7).waits();
    let one = one.send_async().unwrap();
    let other = link.clone();
    let two = other.request("two").waits().send_async().unwrap();
    let (tell, told) = mpsc::channel();
    let three = link.request("three").waits();
    let _ = three.send_with(move |outcome| tell.send(outcome).unwrap()).unwrap();
    let mut frames: Vec<Frame> = (0..3).map(|_| peer.read()).collect();
    assert_eq!((frames[0].class(), frames[0].codec()), (&b"a.Class"[..], 7));
    assert_eq!(frames[0].headers().unwrap().get(b"k"), Some(&b"v"[..]));
    assert_eq!(frames[0].timeout(), Some(Duration::from_secs(15)));
    frames.reverse();
    for frame in &frames {
        let content = Bytes::from([b"re ", &frame.content()[..]].concat());
        peer.write(&Message {
            content,
            ..Message::response(Version::V1, frame.id(), Status::SUCCESS)
        });
    }
    assert_eq!(two.wait().unwrap().content(), "re two");
    assert_eq!(super::block_on(one).unwrap().content(), "re one");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().unwrap().content(), "re three");
    assert_eq!(other.state().connections, 1);
    drop(link);
    assert!(other.state().connected, "the other link has it");
}

#[test]
fn a_status_is_the_server_s_word_and_a_oneway_has_none() {
    let (server, _engine, link) = opened(|link| link);
    let mut peer = server.accept();
    let oneway = link.request("gone").oneway().waits().send().unwrap();
    assert!(oneway.content().is_empty());
    let frame = peer.read();
    assert_eq!((frame.kind(), &frame.content()[..]), (Kind::Oneway, &b"gone"[..]));
    let busy = link.request("").send_async().unwrap();
    let asked = peer.read();
    peer.write(&Message::response(Version::V1, asked.id(), Status::SERVER_BUSY));
    assert_eq!(busy.wait().unwrap().status(), Status::SERVER_BUSY);
}

#[test]
fn what_the_server_sends_reaches_the_app_which_may_answer() {
    let (tell, told) = mpsc::channel();
    let (server, _engine, _link) = opened(|link| {
        link.on_push(move |push| {
            tell.send((push.content(), push.is_oneway())).unwrap();
            match &push.content()[..] {
                b"drop" => drop(push),
                b"no" => push.refuse(Status::SERVER_BUSY),
                _ => push.answer("seen"),
            }
        })
    });
    let mut peer = server.accept();
    let request = |id, content| Message {
        content: Bytes::from_static(content),
        ..Message::request(Version::V1, id)
    };
    peer.write(&Message { kind: Kind::Oneway, ..request(6, b"oneway") });
    peer.write(&request(7, b"hello"));
    peer.write(&request(8, b"drop"));
    peer.write(&request(9, b"no"));
    peer.write(&Message::heartbeat(Version::V1, 10));
    let answers: Vec<_> = (0..4).map(|_| peer.read()).map(|it| (it.id(), it.status())).collect();
    let status = |id| answers.iter().find(|one| one.0 == id).unwrap().1.unwrap();
    assert_eq!(status(7), Status::SUCCESS);
    assert_eq!(status(8), Status::ERROR);
    assert_eq!(status(9), Status::SERVER_BUSY);
    assert_eq!(status(10), Status::SUCCESS);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), (Bytes::from_static(b"oneway"), true));
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), (Bytes::from_static(b"hello"), false));
}

#[test]
fn without_a_handler_the_server_is_told_so() {
    let (server, _engine, _link) = opened(|link| link);
    let mut peer = server.accept();
    peer.write(&Message::request(Version::V1, 3));
    assert_eq!(peer.read().status(), Some(Status::NO_PROCESSOR));
}

#[test]
fn what_was_sent_on_a_lost_connection_is_lost_and_what_waits_goes_on_the_next() {
    let long = Duration::from_secs(3600);
    let (server, engine, link) = opened(|link| link.pauses(long, long));
    let mut peer = server.accept();
    let lost = link.request("lost").waits().send_async().unwrap();
    peer.read();
    drop(peer);
    assert_eq!(lost.wait(), Err(Error::Lost));
    assert!(link.wait_until(PATIENCE, |state| !state.connected));
    assert_eq!(link.request("").send(), Err(Error::NotConnected));
    let waits = link.request("waits").waits().send_async().unwrap();
    engine.network_changed("other", NetworkKind::Fixed, true).unwrap();
    let mut peer = server.accept();
    peer.echo();
    assert_eq!(waits.wait().unwrap().content(), "waits");
    assert_eq!(link.state().connections, 2);
    drop(server);
}

#[test]
fn a_server_that_closes_is_connected_to_again() {
    let quick = Duration::from_millis(10);
    let (server, _engine, link) = opened(|link| link.pauses(quick, quick));
    for round in 1..=3 {
        let mut peer = server.accept();
        let request = link.request("again").waits().send_async().unwrap();
        peer.echo();
        assert_eq!(request.wait().unwrap().content(), "again");
        assert_eq!(link.state().connections, round);
        drop(peer);
        assert!(link.wait_until(PATIENCE, |state| !state.connected || state.connections > round));
    }
}

#[test]
fn answered_beats_keep_a_silent_link() {
    let (server, engine, link) = opened(|link| link.heartbeat(EVERY_SECOND));
    let mut peer = server.accept();
    for _ in 0..2 {
        let heartbeat = peer.read();
        assert_eq!((heartbeat.kind(), heartbeat.command()), (Kind::Request, Command::Heartbeat));
        peer.write(&Message::heartbeat_answer(Version::V1, heartbeat.id()));
    }
    let request = link.request("still").send_async().unwrap();
    peer.echo();
    assert_eq!(request.wait().unwrap().content(), "still");
    assert_eq!(link.state().connections, 1);
    let learned = silences(&engine, server.listener.local_addr().unwrap().port());
    assert!(learned.starts_with("silence 1 - ") && !learned.contains("- -"), "{learned}");
}

#[test]
fn what_was_learned_of_silences_is_there_in_the_next_life() {
    let server = TestServer { listener: TcpListener::bind("127.0.0.1:0").unwrap() };
    let address = server.listener.local_addr().unwrap();
    let memory = std::env::temp_dir().join(format!("towpath-silence-{}", address.port()));
    write_memory(&memory, "silence 290 315 86400 home of us\n");
    let engine = Engine::builder().memory(&memory).start().unwrap();
    engine.network_changed("home of us", NetworkKind::Fixed, true).unwrap();
    let link = engine.link(&format!("tcp://{address}")).open().unwrap();
    let found = Duration::from_secs(270);
    let is_so = |state: State| state.connected && state.interval == found;
    assert!(link.wait_until(PATIENCE, is_so), "{:?}", link.state());
    assert_eq!(link.state().connections, 1, "it knew the network before it began");
    let saved = silences(&engine, address.port());
    assert!(saved.starts_with("silence 290 315 864"), "{saved}");
    assert_eq!(saved.lines().count(), 1, "{saved}");
}

/// What an engine saves of them.
fn silences(engine: &Engine, number: u16) -> String {
    let path = std::env::temp_dir().join(format!("towpath-silence-{number}"));
    engine.save_memory(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    text.split_inclusive('\n').filter(|line| line.starts_with("silence")).collect()
}

#[test]
fn an_unanswered_heartbeat_finds_a_dead_link() {
    let limit = Duration::from_millis(100);
    let (server, _engine, link) = opened(|link| link.heartbeat(EVERY_SECOND).beat_timeout(limit));
    let _silent = server.accept();
    let _next = server.accept();
    assert!(link.wait_until(PATIENCE, |state| state.connections >= 2));
    assert!(link.state().heartbeats >= 1);
}

#[test]
fn a_request_without_an_answer_has_the_link_looked_at() {
    let short = Duration::from_millis(50);
    let (server, _engine, link) = opened(|link| link.beat_timeout(short));
    let _silent = server.accept();
    assert!(link.wait_until(PATIENCE, |state| state.connected));
    let request = link.request("").timeout(short).send();
    assert_eq!(request, Err(Error::TimedOut { sent: true }));
    let _next = server.accept();
    assert!(link.wait_until(PATIENCE, |state| state.connections >= 2));
    assert_eq!(link.state().heartbeats, 1);
}

#[test]
fn what_waits_too_long_or_is_given_up_ends() {
    let engine = Engine::new().unwrap();
    engine.network_changed("", NetworkKind::Fixed, false).unwrap();
    let link = engine.link("tcp://192.0.2.1:9").open().unwrap();
    let limit = Duration::from_millis(20);
    let outcome = link.request("").waits().timeout(limit).send();
    assert_eq!(outcome, Err(Error::TimedOut { sent: false }));
    let (tell, told) = mpsc::channel();
    let callback = move |outcome| tell.send(outcome).unwrap();
    let canceller = link.request("").waits().send_with(callback).unwrap();
    canceller.cancel();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Err(Error::Cancelled));
    drop(link.request("").waits().send_async().unwrap());
    let (tell, told) = mpsc::channel();
    let callback = move |outcome| tell.send(outcome).unwrap();
    let _ = link.request("").waits().send_with(callback).unwrap();
    drop(link);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Err(Error::Closed));
}

#[test]
fn what_one_link_holds_is_limited() {
    let (server, _engine, link) = opened(|link| link.room(2, 1000).max_frame(1024));
    let mut peer = server.accept();
    assert_eq!(link.request(vec![0; 1000]).send(), Err(Error::TooLarge));
    assert_eq!(link.request("").class(vec![b'c'; 40_000]).send(), Err(Error::TooLarge));
    let one = link.request("").waits().send_async().unwrap();
    let two = link.request("").waits().send_async().unwrap();
    assert_eq!(link.request("").waits().send(), Err(Error::Full));
    drop(two);
    assert_eq!(link.request(vec![0; 950]).waits().send(), Err(Error::Full));
    let id = peer.read().id();
    let content = Bytes::from(vec![0; 1024]);
    peer.write(&Message { content, ..Message::response(Version::V1, id, Status::SUCCESS) });
    assert_eq!(one.wait(), Err(Error::Lost));
}

#[test]
fn a_name_is_resolved_and_what_is_no_address_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = TestServer { listener };
    let engine = Engine::new().unwrap();
    let port = server.listener.local_addr().unwrap().port();
    let link = engine.link(&format!("TCP://localhost:{port}")).open().unwrap();
    let mut peer = server.accept();
    let request = link.request("named").waits().send_async().unwrap();
    peer.echo();
    assert_eq!(request.wait().unwrap().content(), "named");
    for url in [
        "host:1",
        "tcp://host",
        "tls://host",
        "ssl://host:1",
        "http://h:1",
        "tcp://:1",
        "tcp://h:0",
        "tcp://h:1/p",
    ] {
        assert!(matches!(engine.link(url).open(), Err(Error::Url(_))), "{url}");
    }
}

#[test]
fn an_idle_link_sleeps() {
    let (server, _engine, link) = opened(|link| link);
    let mut peer = server.accept();
    let request = link.request("").waits().send_async().unwrap();
    peer.echo();
    request.wait().unwrap();
    let sleeps = || {
        let before = link.wakeups();
        std::thread::sleep(Duration::from_millis(300));
        link.wakeups() == before
    };
    assert!((0..20).any(|_| sleeps()));
}

const PATIENCE: Duration = Duration::from_secs(30);
const EVERY_SECOND: HeartbeatSettings = HeartbeatSettings {
    shortest: Duration::from_secs(1),
    first: Duration::from_secs(1),
    longest: Duration::from_secs(1),
    foreground: Duration::from_secs(1),
    margin: Duration::ZERO,
    resolution: Duration::from_secs(1),
    relearn: Duration::from_secs(3600),
};

struct TestServer {
    listener: TcpListener,
}

fn opened(with: impl FnOnce(Builder) -> Builder) -> (TestServer, Engine, Link) {
    let server = TestServer { listener: TcpListener::bind("127.0.0.1:0").unwrap() };
    let engine = Engine::new().unwrap();
    let url = format!("tcp://{}", server.listener.local_addr().unwrap());
    let link = with(engine.link(&url)).open().unwrap();
    (server, engine, link)
}

impl TestServer {
    fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer::on(stream)
    }
}

/// The server's end of a connection.
struct Peer {
    stream: Box<dyn Stream>,
    decoder: Decoder,
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

impl Peer {
    fn on(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), decoder: Decoder::new(Options::default()) }
    }

    fn read(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.decoder.poll().unwrap() {
                return frame;
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "it closed");
            self.decoder.receive(Bytes::copy_from_slice(&buffer[..length]));
        }
    }

    fn write(&mut self, message: &Message) {
        self.stream.write_all(message.frame().unwrap().bytes()).unwrap();
        self.stream.flush().unwrap();
    }

    /// Answers one request with its own content, and the heartbeats before it.
    fn echo(&mut self) {
        let mut frame = self.read();
        while frame.command() == Command::Heartbeat {
            self.write(&Message::heartbeat_answer(Version::V1, frame.id()));
            frame = self.read();
        }
        let content = frame.content();
        self.write(&Message {
            content,
            ..Message::response(Version::V1, frame.id(), Status::SUCCESS)
        });
    }
}
