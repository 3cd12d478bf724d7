//! A client of HTTP/2 that says whatever it is told to, and what comes back.
#![allow(dead_code, reason = "each story uses a part of it")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use towpath_proto::http2::hpack::{Decoder, Limits};

use crate::common::PATIENCE;
use crate::h2::{
    ACK, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, PING, RESET, SETTINGS, first_frame,
    frame, opening,
};

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
        client.send(&opening(settings));
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
        while let Some((kind, flags, stream, payload)) = first_frame(&self.received) {
            let payload = payload.to_vec();
            self.received.drain(..9 + payload.len());
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
