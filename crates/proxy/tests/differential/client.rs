//! The client of a case: sends what it is told to and says what came back.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::case::Case;
use crate::pressure;
use crate::script::{self, Step};
use crate::wire::{Framing, Message, show};

/// How long a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long it takes to believe that no more frames come.
const FRAMES_QUIET: Duration = Duration::from_millis(500);
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

/// Talks to `address` as the case says; `folder` is of the proxy there.
pub(crate) fn talk(address: &str, case: &Case, folder: &Path) -> Heard {
    let mut heard = Heard::default();
    let (mut client, mut kept) = (Client::connect(address), Vec::new());
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
                Step::Pressure(name, value) => pressure::set(folder, &name, &value),
                Step::HalfClose => drop(client.writer.shutdown(Shutdown::Write)),
                Step::Another => {
                    kept.push(std::mem::replace(&mut client, Client::connect(address)));
                }
                Step::Close => {
                    client.finish(&mut heard);
                    client = kept.pop().unwrap_or_else(|| Client::connect(address));
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
            ("settings", ids) => self.settings(ids, heard),
            ("frames", _) => self.frames(heard),
            _ => panic!("no such order: {order}"),
        }
    }

    /// The frames that come until there are no more for a while, but for those that each end says of itself.
    fn frames(&mut self, heard: &mut Heard) {
        self.writer.set_read_timeout(Some(FRAMES_QUIET)).unwrap();
        let mut header = [0; 9];
        let end = loop {
            match self.reader.read_exact(&mut header) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break "end",
                Err(error) if error.kind() == ErrorKind::WouldBlock => break "nothing more",
                Err(_) => break "reset",
            }
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            let _ = self.reader.read_exact(&mut payload);
            let id = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            let what = match (header[3], &payload[..]) {
                // SETTINGS and WINDOW_UPDATE, and an end that comes by itself.
                (4 | 8, _) | (0, []) => continue,
                (0, _) => format!("DATA {}", show(&payload)),
                (1, _) => "HEADERS".to_owned(),
                (3, [_, _, _, code]) => format!("RST_STREAM {code}"),
                (6, _) => format!("PING {:#x}", header[4]),
                (7, [a, b, c, d, _, _, _, code, ..]) => {
                    format!("GOAWAY {code} behind {}", u32::from_be_bytes([*a, *b, *c, *d]))
                }
                (kind, _) => format!("type {kind}"),
            };
            heard.lines.push(format!("client: {what} on {id}"));
        };
        heard.lines.push(format!("client: {end}"));
        self.writer.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    /// What the first frame says of these parameters, which is one of SETTINGS.
    fn settings(&mut self, ids: &str, heard: &mut Heard) {
        let mut header = [0; 9];
        let mut payload = Vec::new();
        if self.reader.read_exact(&mut header).is_ok() && header[3] == 4 {
            payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
            let _ = self.reader.read_exact(&mut payload);
        }
        for id in ids.split(' ') {
            let value = settings(&payload, id.parse().unwrap());
            heard.lines.push(format!("client: parameter {id} is {value:?}"));
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
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                "open"
            }
            Err(_) => "reset",
        };
        heard.lines.push(format!("connection: {state}"));
        let _ = self.writer.shutdown(Shutdown::Both);
    }
}

/// The value of a parameter of SETTINGS that holds: that of the last.
pub(crate) fn settings(payload: &[u8], id: u16) -> Option<u32> {
    let (parameters, _) = payload.as_chunks::<6>();
    let own = parameters.iter().rfind(|parameter| parameter[..2] == id.to_be_bytes());
    own.map(|parameter| {
        u32::from_be_bytes([parameter[2], parameter[3], parameter[4], parameter[5]])
    })
}
