//! The client of a case: sends what it is told to and says what came back.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::script::{self, Step};
use crate::wire::{Framing, Message, show};

/// How long a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long it takes to believe that a connection stays open.
const QUIET: Duration = Duration::from_millis(40);

/// What a conversation came to.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) lines: Vec<String>,
    pub(crate) messages: Vec<Message>,
}

/// A connection in use.
struct Client {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    /// Methods whose responses have not come yet.
    methods: Vec<String>,
    closing: bool,
}

/// Talks to `address` as the case says.
pub(crate) fn talk(address: &str, case: &Case) -> Heard {
    let mut heard = Heard::default();
    let mut client = Client::connect(address);
    if let Some(ask) = &case.ask {
        client.send(&script::bytes(ask));
        client.response(&mut heard);
    }
    for line in &case.talk {
        if let Some(order) = line.strip_prefix("< ") {
            client.hear(order, &mut heard);
            continue;
        }
        for step in script::parse(line) {
            match step {
                Step::Send(bytes) => client.send(&bytes),
                Step::Wait(duration) => thread::sleep(duration),
                Step::HalfClose => drop(client.writer.shutdown(Shutdown::Write)),
                Step::Close => {
                    client.finish(&mut heard);
                    client = Client::connect(address);
                }
                Step::Reset => {
                    rustix::net::sockopt::set_socket_linger(&client.writer, Some(Duration::ZERO))
                        .unwrap();
                    client = Client::connect(address);
                }
                Step::OnHead | Step::Echo | Step::Read(_) | Step::ReadEnd | Step::Silent => {
                    panic!("not for clients: {line}")
                }
            }
        }
    }
    client.finish(&mut heard);
    heard
}

impl Client {
    fn connect(address: &str) -> Self {
        let writer = TcpStream::connect(address).unwrap();
        writer.set_read_timeout(Some(PATIENCE)).unwrap();
        writer.set_nodelay(true).unwrap();
        Self {
            reader: BufReader::new(writer.try_clone().unwrap()),
            writer,
            methods: Vec::new(),
            closing: false,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        for line in text.lines().filter(|line| line.contains(" HTTP/1.")) {
            self.methods.push(line.split(' ').next().unwrap_or_default().to_owned());
        }
        let _ = self.writer.write_all(bytes);
    }

    fn hear(&mut self, order: &str, heard: &mut Heard) {
        match order.split_once(' ').unwrap_or((order, "")) {
            ("response", count) => {
                for _ in 0..count.parse().unwrap_or(1) {
                    self.response(heard);
                }
            }
            ("head", _) => {
                self.head(heard);
            }
            ("end", _) => {
                let mut bytes = Vec::new();
                let start = Instant::now();
                let how = if self.reader.read_to_end(&mut bytes).is_ok() { "end" } else { "reset" };
                let how = if start.elapsed() >= PATIENCE { "nothing more" } else { how };
                heard.lines.push(format!("client: bytes {} and {how}", show(&bytes)));
            }
            ("bytes", count) => {
                let mut bytes = vec![0; count.parse().unwrap()];
                let complete = self.reader.read_exact(&mut bytes).is_ok();
                heard.lines.push(format!(
                    "client: bytes {}",
                    if complete { show(&bytes) } else { "too few".to_owned() }
                ));
            }
            _ => panic!("no such order: {order}"),
        }
    }

    /// Everything up to a final response.
    fn response(&mut self, heard: &mut Heard) {
        while self.head(heard).is_some_and(|status| (100..200).contains(&status) && status != 101) {
        }
    }

    /// One message; its status.
    fn head(&mut self, heard: &mut Heard) -> Option<u16> {
        let who = format!("response {}", heard.messages.len() + 1);
        let Some(mut message) = Message::head(&mut self.reader) else {
            heard.lines.push(format!("{who}: nothing"));
            return None;
        };
        let status = message.status();
        if !(100..200).contains(&status) || status == 101 {
            let method =
                if self.methods.is_empty() { String::new() } else { self.methods.remove(0) };
            let none = method == "HEAD"
                || matches!(status, 101 | 204 | 304)
                || (method == "CONNECT" && status < 300);
            let framing = if none { Framing::Empty } else { message.framing(Framing::UntilClose) };
            message.read_body(&mut self.reader, framing);
            self.closing = message.field("connection").is_some_and(|value| value == "close");
        }
        message.tell(&who, &mut heard.lines);
        heard.messages.push(message);
        Some(status)
    }

    /// What becomes of the connection when the client does nothing more.
    fn finish(&mut self, heard: &mut Heard) {
        let wait = if self.closing { Duration::from_secs(3) } else { QUIET };
        self.writer.set_read_timeout(Some(wait)).unwrap();
        let mut byte = [0];
        let state = match self.reader.read(&mut byte) {
            Ok(0) => "closed",
            Ok(_) => "has more",
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                "open"
            }
            Err(_) => "reset",
        };
        heard.lines.push(format!("connection: {state}"));
        let _ = self.writer.shutdown(Shutdown::Both);
    }
}
