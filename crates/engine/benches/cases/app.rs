//! One request of an app every 200 ms and its response of 1 KB, over a connection that has carried the like before.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::local::message::{
    CallId, Command, Event, HttpVersions, Open, Options, Origin, Transport,
};
use towpath_engine::message::{FromWorker, Message, ToWorker};
use towpath_engine::worker::Worker;
use towpath_proto::head::HeadPool;
use towpath_proto::http2::{self, Arrival, Connection};
use towpath_proto::{ConnectionId, Head, Input, Instant, Machine, Name, Out, Output};

pub(crate) struct App {
    worker: Worker,
    now: Instant,
    origin: ConnectionId,
    http: HttpVersions,
    next: u64,
    /// What the origin answers; over HTTP/2 the number of the stream is written into it.
    response: Vec<u8>,
}

/// After so many requests the next ones have the same bytes, but for the stream's number.
const BEFORE: u64 = 4;

impl App {
    pub(crate) fn http1() -> Self {
        Self { response: super::requests::response().to_vec(), ..Self::new(HttpVersions::Http1) }
    }

    pub(crate) fn http2() -> Self {
        let mut app = Self::new(HttpVersions::Http2);
        let mut origin = Connection::server(Arc::new(http2::Options::default()));
        for _ in 0..BEFORE {
            let sent = app.ask();
            origin.receive(sent.into());
            app.response = respond(&mut origin);
            app.answer();
        }
        app
    }

    fn new(http: HttpVersions) -> Self {
        Self {
            worker: super::worker(),
            now: Instant::from_nanos(1_000_000),
            origin: ConnectionId::new(0, 1),
            http,
            next: 0,
            response: Vec::new(),
        }
    }

    /// One request and its response.
    pub(crate) fn exchange(&mut self) {
        black_box(self.ask());
        if self.http == HttpVersions::Http2 {
            set_stream(&mut self.response, 2 * self.next as u32 - 1);
        }
        self.answer();
    }

    /// Answers with what was sent.
    fn ask(&mut self) -> Vec<u8> {
        self.now += Duration::from_millis(200);
        let host = b"service-7.namespace.svc:8080";
        let mut request = Head::request(b"GET", b"http", host, b"/api/v1/items/42?q=1");
        request.append(Name::UserAgent, b"curl/8.5.0");
        request.append(Name::Accept, b"*/*");
        let origin = Origin { host: "10.0.0.9".into(), port: 8080, transport: Transport::Plain };
        let options = Options { http: self.http, ..Options::default() };
        let call = CallId(self.next);
        let open = Open { call, request, body: Bytes::new(), end: true, origin, options };
        self.command(Command::Open(Box::new(open)));
        if self.next == 0 {
            super::connect(&mut self.worker, self.origin, self.now);
        }
        self.next += 1;
        self.pass_on().0
    }

    fn answer(&mut self) {
        let chunk = Bytes::copy_from_slice(&self.response);
        self.worker.handle(Input::Received { connection: self.origin, chunk }, self.now);
        let (_, received, ended) = self.pass_on();
        assert_eq!((received, ended), (1024, 1), "a whole response");
        let call = CallId(self.next - 1);
        self.command(Command::Consumed { call, bytes: received });
        self.pass_on();
    }

    fn command(&mut self, command: Command) {
        self.worker.handle(Input::Message(Message::To(ToWorker::Local(command))), self.now);
    }

    /// What the worker sends; bytes of bodies and ends that the app is told.
    fn pass_on(&mut self) -> (Vec<u8>, usize, usize) {
        let (mut sent, mut received, mut ended) = (Vec::new(), 0, 0);
        loop {
            match self.worker.poll(self.now) {
                Output::Wait(_) | Output::Idle => break,
                Output::Send { chunk, .. } => sent.extend_from_slice(&chunk),
                Output::Message(Message::From(FromWorker::Local(event))) => match event {
                    Event::Data { chunk, .. } => received += chunk.len(),
                    Event::Ended { .. } => ended += 1,
                    _ => {}
                },
                _ => {}
            }
        }
        if !sent.is_empty() {
            let (connection, bytes) = (self.origin, sent.len());
            self.worker.handle(Input::Sent { connection, bytes }, self.now);
        }
        (sent, received, ended)
    }
}

/// What a server of HTTP/2 answers to all that it was sent.
fn respond(origin: &mut Connection) -> Vec<u8> {
    let (mut heads, mut out) = (HeadPool::default(), Out::new());
    let fields: [(Name, &[u8]); 4] = [
        (Name::Server, b"origin"),
        (Name::Date, b"Fri, 20 Nov 2026 11:28:39 GMT"),
        (Name::ContentType, b"application/octet-stream"),
        (Name::ContentLength, b"1024"),
    ];
    while let Some((number, arrival)) = origin.poll(&mut heads).expect("a worker speaks HTTP/2") {
        if matches!(arrival, Arrival::Part(towpath_proto::Event::Head { .. })) {
            let mut head = Head::response(200);
            for (name, value) in fields {
                head.append(name, value);
            }
            origin.send_head(number, &head, false, &mut out);
            origin.send_data(number, Bytes::from_static(&[b'x'; 1024]));
            origin.send_end(number);
            origin.release(number);
        }
    }
    origin.flush(&mut out);
    out.drain().fold(Vec::new(), |all, chunk| [&all[..], &chunk[..]].concat())
}

/// Writes a stream's number into each frame that is one's.
fn set_stream(frames: &mut [u8], stream: u32) {
    let mut at = 0;
    while let Some(&[a, b, c, _, _, ref id @ ..]) = frames.get(at..at + 9) {
        if id != [0; 4] {
            frames[at + 5..at + 9].copy_from_slice(&stream.to_be_bytes());
        }
        at += 9 + u32::from_be_bytes([0, a, b, c]) as usize;
    }
}
