//! WebSocket against a server that keeps to the protocol, and against such as do not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use towpath::websocket::{CloseReason, Incident, Listener, Message, Received};
use towpath::{Engine, Error, Failed, Layer, Proxies, Proxy, WebSocket};
use towpath_proto::websocket::{Frames, Header, Item, Opcode, Sender, accept, frame};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_head};

/// The value of a field of a head.
fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Answers a handshake, with more fields.
fn switch(stream: &mut TcpStream, head: &str, fields: &str) {
    let accept = accept(field(head, "sec-websocket-key").unwrap().as_bytes());
    let accept = std::str::from_utf8(&accept).unwrap();
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{fields}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
}

/// What a client sends, frame by frame.
struct Reading {
    frames: Frames,
    bytes: Vec<u8>,
    /// Whole messages and control frames, in their order.
    came: std::collections::VecDeque<(Opcode, Vec<u8>)>,
    message: Vec<u8>,
}

impl Reading {
    fn new() -> Self {
        let frames = Frames::of(Sender::Client);
        Self { frames, bytes: vec![0; 65536], came: Default::default(), message: Vec::new() }
    }

    /// The next; nothing when the client hangs up.
    fn next(&mut self, stream: &mut TcpStream) -> Option<(Opcode, Vec<u8>)> {
        while self.came.is_empty() {
            let count = stream.read(&mut self.bytes).ok().filter(|count| *count > 0)?;
            let mut rest = &self.bytes[..count];
            while let Some(item) = self.frames.next(&mut rest).expect("clients keep to it") {
                match item {
                    Item::Begin(..) => self.message.clear(),
                    Item::Piece(piece) => self.message.extend_from_slice(piece),
                    Item::End(opcode) => self.came.push_back((opcode, self.message.clone())),
                    Item::Control(opcode, payload) => {
                        self.came.push_back((opcode, payload.to_vec()));
                    }
                }
            }
        }
        self.came.pop_front()
    }
}

/// Sends messages back, and answers pings and closes.
fn echo(stream: &mut TcpStream) {
    let mut reading = Reading::new();
    while let Some((opcode, payload)) = reading.next(stream) {
        let (opcode, is_last) = match opcode {
            Opcode::Ping => (Opcode::Pong, false),
            Opcode::Pong => continue,
            Opcode::Close => (Opcode::Close, true),
            Opcode::Continuation | Opcode::Text | Opcode::Binary => (opcode, false),
        };
        if stream.write_all(&frame(opcode, &payload, None)).is_err() || is_last {
            return;
        }
    }
}

fn echoing() -> Server {
    Server::new(|stream, _| {
        let Some(head) = read_head(stream) else { return };
        switch(stream, &head, "");
        echo(stream);
    })
}

fn open(engine: &Engine, url: &str) -> Result<WebSocket, Error> {
    engine.client().get(url).websocket().open()
}

fn ws(server: &Server) -> String {
    server.url("/chat").replace("http://", "ws://")
}

#[test]
fn messages_of_any_length_come_back_and_a_close_ends_it() {
    let server = Server::new(|stream, _| {
        let head = read_head(stream).unwrap();
        assert!(head.starts_with("GET /chat HTTP/1.1\r\n"), "{head}");
        for (name, value) in [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "chat.v2, chat.v1"),
            ("x-mine", "yes"),
        ] {
            assert_eq!(field(&head, name), Some(value), "{head}");
        }
        assert_eq!(field(&head, "accept-encoding"), None);
        switch(stream, &head, "Sec-WebSocket-Protocol: chat.v1\r\n");
        echo(stream);
    });
    let engine = Engine::new().unwrap();
    let request = engine.client().get(&ws(&server)).header("x-mine", "yes");
    let connect = request.websocket().subprotocol("chat.v2").subprotocol("chat.v1");
    let socket = connect.open().unwrap();
    assert_eq!(socket.subprotocol().as_deref(), Some("chat.v1"));
    assert!(!socket.is_compressed() && !socket.is_over());
    let upgrade = (b"upgrade".to_vec(), b"websocket".to_vec());
    let lower = |(name, value): (Vec<u8>, Vec<u8>)| (name.to_ascii_lowercase(), value);
    assert!(socket.headers().into_iter().map(lower).any(|field| field == upgrade));
    for length in [0, 1, 125, 126, 65_535, 65_536, 65_537, 1_000_000] {
        let text = "ä€ t".repeat(length / 7) + &"x".repeat(length % 7);
        let messages = [Message::from(text), Message::from(vec![0xff; length])];
        for message in messages {
            socket.send(message.clone()).unwrap();
            assert!(socket.receive().unwrap() == Some(message), "{length}");
        }
    }
    assert!(matches!(socket.close(1005, ""), Err(Error::WebSocket(_))));
    socket.send("last").unwrap();
    socket.close(4000, "enough").unwrap();
    assert_eq!(socket.receive(), Ok(Some("last".into())), "what was under way still comes");
    assert_eq!(socket.receive(), Ok(None));
    assert_eq!(socket.receive(), Ok(None));
    let reason = CloseReason { code: 4000, reason: "enough".to_owned() };
    assert_eq!(socket.close_reason(), Some(reason));
    assert!(matches!(socket.send("more"), Err(Error::WebSocket(_))));
    let until = Instant::now() + Duration::from_secs(10);
    while !socket.is_over() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let history = socket.history();
    let told: Vec<&str> = history.iter().map(|entry| entry.what.as_str()).collect();
    let expected =
        ["WebSocket: open", "WebSocket: close with 4000", "WebSocket: the server closes with 4000"];
    assert_eq!(told, expected);
    assert_eq!(socket.report().unwrap().record.status, 101);
}

#[test]
fn futures_need_no_runtime_and_many_share_one() {
    let server = echoing();
    let engine = Engine::new().unwrap();
    block_on(async {
        let connect = engine.client().get(&ws(&server)).websocket();
        let socket = connect.open_async().await.unwrap();
        let other = socket.clone();
        for number in 0..100 {
            other.send_async(format!("{number}")).await.unwrap();
        }
        for number in 0..100 {
            let expected = Message::Text(format!("{number}"));
            assert_eq!(socket.receive_async().await, Ok(Some(expected)));
        }
        socket.close(1000, "").unwrap();
        assert_eq!(socket.receive_async().await, Ok(None));
    });
}

/// Tells a channel what it is told.
struct Teller(mpsc::Sender<String>);

impl Listener for Teller {
    fn on_open(&mut self, subprotocol: Option<&str>) {
        self.0.send(format!("open {subprotocol:?}")).unwrap();
    }

    fn on_message(&mut self, message: Received) {
        assert_ne!(message.message().as_text(), Some("panic"), "a part of the test");
        self.0.send(format!("message {:?}", message.into_message())).unwrap();
    }

    fn on_end(&mut self, outcome: Result<CloseReason, Error>) {
        self.0.send(format!("end {outcome:?}")).unwrap();
    }
}

#[test]
fn a_listener_is_told_in_order_and_of_the_end_once() {
    let server = echoing();
    let engine = Engine::new().unwrap();
    let open = |url: &str| {
        let (sender, told) = mpsc::channel();
        let connect = engine.client().get(url).websocket();
        (connect.open_with(Teller(sender)).unwrap(), told)
    };
    let (socket, told) = open(&ws(&server));
    assert_eq!(told.recv().unwrap(), "open None");
    for number in 0..1000 {
        socket.send(format!("{number}")).unwrap();
    }
    for number in 0..1000 {
        assert_eq!(told.recv().unwrap(), format!("message Text(\"{number}\")"));
    }
    socket.close(1000, "").unwrap();
    let end = "end Ok(CloseReason { code: 1000, reason: \"\" })";
    assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), end);
    assert!(told.recv_timeout(Duration::from_secs(10)).is_err(), "and its listener is dropped");

    let (socket, told) = open(&ws(&server));
    assert_eq!(told.recv().unwrap(), "open None");
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    socket.send("panic").unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), "end Err(Handler)");
    std::panic::set_hook(quiet);

    let refusing = Server::new(|stream, _| {
        if read_head(stream).is_some() {
            answer(stream, "403 Forbidden", "", b"no");
        }
    });
    let (_socket, told) = open(&ws(&refusing));
    assert_eq!(told.recv().unwrap(), "end Err(Status(403))");
}

#[test]
fn a_server_that_does_not_switch_as_it_must_is_refused() {
    let plain = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
    let cases: [(&str, &str, Error); 7] = [
        ("404 Not Found", "", Error::Status(404)),
        ("200 OK", plain, Error::Status(200)),
        (
            "101 Switching Protocols",
            plain,
            Error::WebSocket("the server has not understood the handshake"),
        ),
        (
            "101 Switching Protocols",
            "Upgrade: soap\r\nConnection: Upgrade\r\n",
            Error::WebSocket("the server switches to another protocol"),
        ),
        (
            "accepted",
            "Sec-WebSocket-Protocol: chat\r\n",
            Error::WebSocket("the server has chosen a subprotocol that was not offered"),
        ),
        (
            "accepted",
            "Sec-WebSocket-Extensions: x-own\r\n",
            Error::WebSocket("the server has an extension that was not offered"),
        ),
        (
            "accepted",
            "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Extensions: \
             permessage-deflate\r\n",
            Error::WebSocket("the server has a field of the handshake twice"),
        ),
    ];
    for (status, fields, expected) in cases {
        let server = Server::new(move |stream, _| {
            let Some(head) = read_head(stream) else { return };
            if status == "accepted" {
                switch(stream, &head, fields);
            } else {
                let head = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
                let _ = stream.write_all(head.as_bytes());
            }
            let _ = stream.read(&mut [0; 100]);
        });
        let engine = Engine::new().unwrap();
        assert_eq!(open(&engine, &ws(&server)).map(drop), Err(expected), "{status} {fields}");
    }
    let engine = Engine::new().unwrap();
    let refused = open(&engine, "ws://127.0.0.1:1/").unwrap_err();
    assert!(matches!(&refused, Error::Failed(it) if matches!(it.why(), Failed::Connect(_))));
}

#[test]
fn hostile_frames_are_answered_with_their_code_and_nothing_is_read_behind_them() {
    let text = |payload: &[u8]| frame(Opcode::Text, payload, None);
    let long = Header::new(Opcode::Binary, true, usize::MAX >> 1, None);
    let cases: Vec<(Vec<u8>, u16)> = vec![
        (vec![0xc1, 0x00], 1002),
        (vec![0x83, 0x00], 1002),
        (vec![0x8b, 0x00], 1002),
        (frame(Opcode::Text, b"masked", Some([1, 2, 3, 4])), 1002),
        (vec![0x80, 0x00], 1002),
        ([&[0x01, 0x00][..], &text(b"within")].concat(), 1002),
        (vec![0x09, 0x00], 1002),
        (vec![0x89, 0x7e, 0x00, 0x7e], 1002),
        (vec![0x81, 0x7e, 0x00, 0x01, b'a'], 1002),
        (vec![0x82, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 1002),
        (frame(Opcode::Close, b"\x03", None), 1002),
        (frame(Opcode::Close, b"\x03\xed", None), 1002),
        (text(b"\xff"), 1007),
        (text(b"\xe2\x82"), 1007),
        (frame(Opcode::Close, b"\x03\xe8\xff", None), 1007),
        (frame(Opcode::Binary, &[0; 1001], None), 1009),
        ([long.bytes(), &[0; 1001]].concat(), 1009),
        ([&[0x02, 0x01, 7][..], &frame(Opcode::Continuation, &[0; 1000], None)].concat(), 1009),
    ];
    for (bytes, code) in cases {
        let hostile = bytes.clone();
        let (sender, closed) = mpsc::channel();
        let sender = Mutex::new(sender);
        let server = Server::new(move |stream, _| {
            let head = read_head(stream).unwrap();
            switch(stream, &head, "");
            let all = [text(b"before"), hostile.clone(), text(b"behind")].concat();
            stream.write_all(&all).unwrap();
            let came = Reading::new().next(stream);
            sender.lock().unwrap().send(came).unwrap();
        });
        let engine = Engine::new().unwrap();
        let connect = engine.client().get(&ws(&server)).websocket().max_message_bytes(1000);
        let socket = connect.open().unwrap();
        assert_eq!(socket.receive(), Ok(Some("before".into())), "{bytes:x?}");
        assert!(matches!(socket.receive(), Err(Error::WebSocket(_))), "{bytes:x?}");
        let (opcode, payload) = closed.recv().unwrap().unwrap();
        assert_eq!((opcode, &payload[..2]), (Opcode::Close, &code.to_be_bytes()[..]), "{bytes:x?}");
        assert!(matches!(socket.send("more"), Err(Error::WebSocket(_))));
    }
}

#[test]
fn what_the_app_does_not_take_stays_with_the_server() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let server = Server::new(move |stream, _| {
        let head = read_head(stream).unwrap();
        switch(stream, &head, "");
        let message = frame(Opcode::Binary, &[7; 10_000], None);
        // 40 MB, and empty messages, of which two bytes make one.
        for _ in 0..4000 {
            if stream.write_all(&message).is_err() {
                return;
            }
            count.fetch_add(message.len(), Ordering::SeqCst);
        }
        stream.write_all(&[0x82, 0].repeat(100_000)).unwrap();
        stream.write_all(&frame(Opcode::Close, b"", None)).unwrap();
        let _ = stream.read(&mut [0; 100]);
    });
    let engine = Engine::new().unwrap();
    let socket = open(&engine, &ws(&server)).unwrap();
    let mut before = usize::MAX;
    // Until it stands still.
    while sent.load(Ordering::SeqCst) != before {
        before = sent.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(before < 20_000_000, "{before} bytes were taken that no caller reads");
    let (mut full, mut empty) = (0, 0);
    while let Some(message) = socket.receive().unwrap() {
        if message.is_empty() {
            empty += 1;
        } else {
            full += 1;
        }
    }
    assert_eq!((full, empty), (4000, 100_000));
    assert_eq!(socket.close_reason().unwrap().code, 1005);
}

#[test]
fn what_the_network_does_not_take_holds_the_app_up() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::new(move |stream, _| {
        let head = read_head(stream).unwrap();
        switch(stream, &head, "");
        wait.lock().unwrap().recv().unwrap();
        echo(stream);
    });
    let engine = Engine::new().unwrap();
    let socket = open(&engine, &ws(&server)).unwrap();
    let message = Message::from(vec![7; 100_000]);
    let mut sent = 0;
    let mut refused = 0;
    while refused < 20 {
        if socket.try_send(&message).unwrap() {
            (sent, refused) = (sent + 1, 0);
        } else {
            refused += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(sent < 400, "40 MB are somewhere that the app has not taken");
    }
    assert!((256 * 1024..512 * 1024).contains(&socket.waiting()), "{}", socket.waiting());
    go_on.send(()).unwrap();
    let other = socket.clone();
    let sender = std::thread::spawn(move || other.send("last").unwrap());
    for _ in 0..sent {
        assert!(socket.receive().unwrap() == Some(message.clone()));
    }
    assert_eq!(socket.receive(), Ok(Some("last".into())));
    assert_eq!(socket.waiting(), 0);
    sender.join().unwrap();
}

#[test]
fn a_silent_server_is_found_and_one_that_answers_pings_is_not() {
    let server = Server::new(|stream, number| {
        let Some(head) = read_head(stream) else { return };
        switch(stream, &head, "");
        if number == 0 {
            let _ = stream.read_to_end(&mut Vec::new());
        } else {
            echo(stream);
        }
    });
    let engine = Engine::new().unwrap();
    let ms = Duration::from_millis;
    let connect = || {
        let connect = engine.client().get(&ws(&server)).websocket();
        connect.ping_interval(ms(100)).pong_timeout(ms(200))
    };
    let began = Instant::now();
    let silent = connect().open().unwrap();
    assert_eq!(silent.receive().unwrap_err().timed_out(), Some(Layer::Gap));
    assert!((ms(280)..ms(5000)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(silent.history().last().unwrap().what.contains("after a ping"));
    let alive = connect().open().unwrap();
    std::thread::sleep(ms(900));
    alive.send("still there").unwrap();
    assert_eq!(alive.receive(), Ok(Some("still there".into())));
}

#[test]
fn what_came_before_a_break_is_heard_and_the_next_connection_is_opened() {
    let server = Server::new(|stream, number| {
        let Some(head) = read_head(stream) else { return };
        match number {
            1 => answer(stream, "503 Service Unavailable", "", b""),
            3 => {
                switch(stream, &head, "");
                let _ = stream.write_all(&frame(Opcode::Text, b"for good", None));
                let _ = stream.write_all(&frame(Opcode::Close, b"\x03\xe8", None));
                let _ = stream.read_to_end(&mut Vec::new());
            }
            _ => {
                switch(stream, &head, "");
                let _ = stream.write_all(&frame(Opcode::Text, b"hello", None));
            }
        }
    });
    let engine = Engine::new().unwrap();
    let socket = open(&engine, &ws(&server)).unwrap();
    assert_eq!(socket.receive(), Ok(Some("hello".into())));
    let broken = socket.receive().unwrap_err();
    assert!(matches!(&broken, Error::Failed(it) if it.why() == Failed::Disconnected), "{broken}");

    let request = engine.client().get(&ws(&server)).retries(0).fail_at_rest();
    let mut lasting = request.websocket().lasting();
    let mut told = Vec::new();
    for incident in lasting.by_ref() {
        told.push(match incident.unwrap() {
            Incident::Opened(_) => "opened".to_owned(),
            Incident::Message(message) => message.as_text().unwrap().to_owned(),
            Incident::Lost => "lost".to_owned(),
            _ => unreachable!("there is nothing else"),
        });
    }
    assert_eq!(told, ["opened", "hello", "lost", "opened", "for good"], "{:?}", lasting.history());
}

#[test]
fn a_ping_is_answered_by_its_own_pong_or_a_later_one() {
    let server = Server::new(|stream, _| {
        let Some(head) = read_head(stream) else { return };
        switch(stream, &head, "");
        let (mut reading, mut pings) = (Reading::new(), Vec::new());
        let pong = |stream: &mut TcpStream, payload: &[u8]| {
            let _ = stream.write_all(&frame(Opcode::Pong, payload, None));
        };
        while let Some((opcode, payload)) = reading.next(stream) {
            match opcode {
                Opcode::Ping => pings.push(payload),
                // The last alone, and before it what was not asked for.
                Opcode::Text => {
                    pong(stream, b"");
                    pong(stream, &u64::MAX.to_be_bytes());
                    stream.write_all(&frame(Opcode::Text, b"first", None)).unwrap();
                    let waits = payload == b"all";
                    pong(stream, pings.last().filter(|_| waits).map_or(&[], Vec::as_slice));
                }
                Opcode::Continuation | Opcode::Binary | Opcode::Close | Opcode::Pong => return,
            }
        }
    });
    let engine = Engine::new().unwrap();
    let socket = open(&engine, &ws(&server)).unwrap();
    let (told, answers) = mpsc::channel();
    for _ in 0..3 {
        let (socket, told) = (socket.clone(), told.clone());
        std::thread::spawn(move || told.send(socket.ping()).unwrap());
    }
    std::thread::sleep(Duration::from_millis(200));
    socket.send("none").unwrap();
    assert_eq!(socket.receive(), Ok(Some("first".into())));
    assert!(answers.recv_timeout(Duration::from_millis(200)).is_err(), "not by those");
    socket.send("all").unwrap();
    assert_eq!(socket.receive(), Ok(Some("first".into())));
    for _ in 0..3 {
        let took = answers.recv_timeout(Duration::from_secs(5)).unwrap().unwrap();
        assert!(took > Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    }
    let (waits, ping) = (socket.clone(), std::thread::spawn(move || block_on(socket.ping_async())));
    std::thread::sleep(Duration::from_millis(100));
    waits.close(1000, "").unwrap();
    assert!(ping.join().unwrap().is_err(), "it is over");
    assert!(matches!(waits.ping(), Err(Error::WebSocket(_) | Error::Failed(_))));
}

#[test]
fn a_limit_on_the_whole_holds_until_it_is_open() {
    let server = echoing();
    let engine = Engine::new().unwrap();
    let limit = Duration::from_millis(400);
    let socket = engine.client().get(&ws(&server)).timeout(limit).websocket().open().unwrap();
    std::thread::sleep(2 * limit);
    socket.send("still").unwrap();
    assert_eq!(socket.receive(), Ok(Some("still".into())));
    let silent = Server::new(|stream, _| {
        let _ = (read_head(stream), stream.read(&mut [0]));
    });
    let began = Instant::now();
    let error = engine.client().get(&ws(&silent)).timeout(limit).websocket().open().unwrap_err();
    assert!(error.timed_out().is_some() && began.elapsed() < Duration::from_secs(5), "{error}");
}

#[test]
fn a_socket_that_is_dropped_says_that_it_goes() {
    let (sender, came) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = Server::new(move |stream, _| {
        let head = read_head(stream).unwrap();
        switch(stream, &head, "");
        let mut reading = Reading::new();
        while let Some(item) = reading.next(stream) {
            sender.lock().unwrap().send(Some(item)).unwrap();
        }
        sender.lock().unwrap().send(None).unwrap();
    });
    let engine = Engine::new().unwrap();
    let socket = open(&engine, &ws(&server)).unwrap();
    socket.send("bye").unwrap();
    drop(socket.clone());
    assert_eq!(came.recv().unwrap(), Some((Opcode::Text, b"bye".to_vec())));
    assert!(came.recv_timeout(Duration::from_millis(100)).is_err(), "there is another");
    drop(socket);
    assert_eq!(came.recv().unwrap(), Some((Opcode::Close, vec![0x03, 0xe9])));
    assert_eq!(came.recv_timeout(Duration::from_secs(10)), Ok(None), "it does not stay");
}

#[test]
fn redirects_and_proxies_lead_there_as_for_any_request() {
    let target = echoing();
    let location = format!("Location: {}\r\n", target.url("/there"));
    let server = Server::new(move |stream, _| {
        while read_head(stream).is_some() {
            answer(stream, "302 Found", &location, b"");
        }
    });
    let engine = Engine::new().unwrap();
    let socket = open(&engine, &ws(&server)).unwrap();
    socket.send("over there").unwrap();
    assert_eq!(socket.receive(), Ok(Some("over there".into())));

    // Under `ws` as well it is a tunnel, not a request in absolute-form (RFC 6455 §4.1).
    let proxy = Server::new(|stream, _| {
        let head = read_head(stream).unwrap();
        assert!(head.starts_with("CONNECT ws.test:80 HTTP/1.1\r\n"), "{head}");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let head = read_head(stream).unwrap();
        assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
        switch(stream, &head, "");
        echo(stream);
    });
    let proxies = Proxies::all(Proxy::new(&proxy.url("")).unwrap());
    let client = engine.client().proxies(proxies);
    let socket = client.get("ws://ws.test/").websocket().open().unwrap();
    socket.send("through it").unwrap();
    assert_eq!(socket.receive(), Ok(Some("through it".into())));
}

#[test]
fn another_network_is_asked_at_once_whether_the_server_is_still_there() {
    let (sender, came) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = Server::new(move |stream, _| {
        let head = read_head(stream).unwrap();
        switch(stream, &head, "");
        let item = Reading::new().next(stream);
        sender.lock().unwrap().send(item).unwrap();
        // It is gone, as seen from there.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let engine = Engine::builder().no_watch_network().start().unwrap();
    let connect = engine.client().get(&ws(&server)).websocket();
    let socket = connect.pong_timeout(Duration::from_millis(300)).open().unwrap();
    engine.network_changed("other", towpath::NetworkKind::Mobile, true).unwrap();
    let (kind, _) = came.recv_timeout(Duration::from_secs(5)).unwrap().unwrap();
    assert_eq!(kind, Opcode::Ping);
    assert_eq!(socket.receive().unwrap_err().timed_out(), Some(Layer::Gap));
}

#[test]
fn the_engine_s_thread_is_not_blocked_by_it() {
    let server = echoing();
    let engine = Engine::new().unwrap();
    struct Blocking(Option<WebSocket>, mpsc::Sender<(WebSocket, Result<Option<Message>, Error>)>);
    impl Listener for Blocking {
        fn on_open(&mut self, _: Option<&str>) {}
        fn on_message(&mut self, _: Received) {
            let other = self.0.take().unwrap();
            let received = other.receive();
            self.1.send((other, received)).unwrap();
        }
        fn on_end(&mut self, _: Result<CloseReason, Error>) {}
    }
    let other = open(&engine, &ws(&server)).unwrap();
    let (sender, received) = mpsc::channel();
    let (told, is_open) = mpsc::channel();
    let opened = engine.client().get(&ws(&server)).websocket().open_with(Teller(told)).unwrap();
    assert_eq!(is_open.recv().unwrap(), "open None");
    drop(opened);
    let connect = engine.client().get(&ws(&server)).websocket();
    let socket = connect.open_with(Blocking(Some(other), sender)).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while socket.send("go").is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (_other, received) = received.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(received, Err(Error::EngineThread));
}
