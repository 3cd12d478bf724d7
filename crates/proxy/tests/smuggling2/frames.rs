//! HTTP/2 as bytes: frames that no codec would write, and what comes back.
#![allow(dead_code, reason = "each story uses a part of it")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use towpath_proto::http2::PREFACE;
use towpath_proto::http2::hpack::{Decoder, Limits};

use crate::common::PATIENCE;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// One frame (RFC 9113 §4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let header = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, payload].concat()
}

/// A header block of literals, neither indexed nor compressed (RFC 7541 §6.2.2).
pub(crate) fn block<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            put_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// RFC 7541 §5.1, with a prefix of seven bits.
fn put_length(out: &mut Vec<u8>, length: usize) {
    if length < 127 {
        return out.push(length as u8);
    }
    out.push(127);
    let mut left = length - 127;
    while left >= 128 {
        out.push((left % 128) as u8 | 128);
        left /= 128;
    }
    out.push(left as u8);
}

/// The usual fields of a request.
pub(crate) fn request<'a>(method: &'a str, path: &'a str) -> Vec<(&'a [u8], &'a [u8])> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
    fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())).to_vec()
}

/// A stream's answer as far as it has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) is_whole: bool,
    pub(crate) reset: Option<u32>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.fields.get(":status").and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_whole || self.reset.is_some()
    }
}

/// A client's connection.
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    decoder: Decoder,
    pub(crate) answers: BTreeMap<u32, Answer>,
    pub(crate) go_away: Option<u32>,
    pub(crate) is_closed: bool,
    /// PINGs of ours that were answered.
    pub(crate) pongs: usize,
}

impl Client {
    /// Connects from this address of the loopback and says the preface with these SETTINGS.
    pub(crate) fn connect(from: Ipv4Addr, to: &str, settings: &[(u16, u32)]) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&to.parse::<SocketAddr>().unwrap().into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self {
            stream,
            received: Vec::new(),
            decoder: Decoder::new(4096),
            answers: BTreeMap::new(),
            go_away: None,
            is_closed: false,
            pongs: 0,
        };
        let setting =
            |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let settings: Vec<u8> = settings.iter().flat_map(setting).collect();
        client.send(&[PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat());
        client
    }

    /// Sends bytes; false once the proxy has closed.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// A PING, which is answered behind all that came before it.
    pub(crate) fn ping(&mut self) {
        self.send(&frame(PING, 0, 0, b"question"));
    }

    /// Reads until this is so, or the proxy has closed.
    pub(crate) fn read_until(&mut self, holds: impl Fn(&Self) -> bool) {
        let mut chunk = [0; 16 * 1024];
        while !holds(self) && !self.is_closed {
            match self.stream.read(&mut chunk) {
                Ok(length @ 1..) => {
                    self.received.extend_from_slice(&chunk[..length]);
                    self.take_frames();
                }
                Ok(0) => self.is_closed = true,
                Err(error) => {
                    let late = error.kind() == std::io::ErrorKind::WouldBlock;
                    assert!(!late, "the connection hangs: {:?}", self.answers);
                    self.is_closed = true;
                }
            }
        }
    }

    /// Reads until the stream's answer is over.
    pub(crate) fn answer(&mut self, stream: u32) -> Answer {
        self.read_until(|it| it.answers.get(&stream).is_some_and(Answer::is_over));
        self.answers.get(&stream).cloned().unwrap_or_default()
    }

    fn take_frames(&mut self) {
        while let Some(header) = self.received.first_chunk::<9>() {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let (kind, flags) = (header[3], header[4]);
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            if self.received.len() < 9 + length {
                return;
            }
            let payload = self.received[9..9 + length].to_vec();
            self.received.drain(..9 + length);
            self.take_frame(kind, flags, stream, &payload);
        }
    }

    fn take_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(*payload[at..].first_chunk().unwrap());
        match kind {
            SETTINGS if flags & ACK == 0 => {
                self.send(&frame(SETTINGS, ACK, 0, &[]));
            }
            PING if flags & ACK != 0 => self.pongs += 1,
            GO_AWAY => self.go_away = Some(number(4)),
            RESET => self.answers.entry(stream).or_default().reset = Some(number(0)),
            HEADERS => {
                assert_ne!(flags & END_HEADERS, 0, "the proxy's heads are small");
                let answer = self.answers.entry(stream).or_default();
                answer.is_whole |= flags & END_STREAM != 0;
                let limits = Limits { max_list_size: 1 << 20, max_fields: 1000 };
                let decoded = self.decoder.decode(payload, &limits, &mut |field| {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    answer.fields.insert(text(field.name.as_bytes()), text(field.value));
                });
                decoded.unwrap();
            }
            DATA => {
                let answer = self.answers.entry(stream).or_default();
                answer.body.extend_from_slice(payload);
                answer.is_whole |= flags & END_STREAM != 0;
            }
            _ => {}
        }
    }
}
