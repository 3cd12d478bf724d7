//! Arbitrary bytes to a connection of HTTP/2 of either role, between arbitrary operations of its user.
#![no_main]

use std::sync::Arc;

use bytes::{Buf, Bytes};
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Code, Connection, Error, Options, PREFACE};
use towpath_proto::{Event, Out};

libfuzzer_sys::fuzz_target!(|data: &[u8]| drive(data));

/// The first byte chooses role and leniency; each operation is a byte, and a length where it has one.
fn drive(data: &[u8]) {
    let Some((&first, mut data)) = data.split_first() else { return };
    let options = Arc::new(Options {
        max_concurrent_streams: 5,
        max_head_bytes: 2000,
        max_fields: 20,
        stream_window: 65_535,
        connection_window: 65_535,
        header_table_size: [0, 4096][usize::from(first >> 1 & 1)],
        stream_error_on_malformed: first & 4 != 0,
        allow_connect: first & 8 != 0,
        ..Options::default()
    });
    let is_client = first & 1 == 1;
    let mut user = User {
        connection: if is_client {
            Connection::client(options)
        } else {
            Connection::server(options)
        },
        heads: HeadPool::default(),
        streams: Vec::new(),
        out: Out::new(),
        written: Vec::new(),
        is_client,
    };
    if !is_client {
        user.connection.receive(Bytes::from_static(PREFACE));
    }
    user.connection.receive(Bytes::from_static(&[0, 0, 0, 4, 0, 0, 0, 0, 0]));
    while let Some((&operation, rest)) = data.split_first() {
        data = user.act(operation, rest);
        if user.poll().is_err() {
            break;
        }
    }
    user.check();
}

struct User {
    connection: Connection,
    heads: HeadPool,
    /// Numbers that are in use.
    streams: Vec<u32>,
    out: Out,
    written: Vec<u8>,
    is_client: bool,
}

impl User {
    fn act<'a>(&mut self, operation: u8, data: &'a [u8]) -> &'a [u8] {
        let number = self.streams.get(usize::from(operation >> 4)).copied();
        let connection = &mut self.connection;
        match (operation & 15, number) {
            (0..=5, _) => {
                let Some((&length, data)) = data.split_first() else { return data };
                let (piece, data) = data.split_at(usize::from(length).min(data.len()));
                connection.receive(Bytes::copy_from_slice(piece));
                return data;
            }
            (6, Some(number)) if self.is_client => {
                let head = Head::request(b"POST", b"http", b"a.test", b"/");
                connection.send_head(number, &head, operation & 16 != 0, &mut self.out);
            }
            (6, Some(number)) => {
                connection.send_head(number, &Head::response(200), operation & 16 != 0, &mut self.out)
            }
            (7, Some(number)) => {
                connection.send_data(number, Bytes::from_static(&[b'x'; 3000]));
            }
            (8, Some(number)) => connection.send_end(number),
            (9, Some(number)) => {
                let mut trailers = Head::default();
                trailers.append_bytes(b"x-end", b"1");
                if operation & 16 != 0 {
                    connection.send_trailers(number, &trailers);
                } else {
                    connection.write_trailers(number, &trailers, &mut self.out);
                }
            }
            (10, Some(number)) => connection.consumed(number),
            (11, Some(number)) => {
                connection.reset(number, Code::CANCEL);
                connection.release(number);
                self.streams.retain(|other| *other != number);
            }
            (12, Some(number)) => {
                connection.release(number);
                self.streams.retain(|other| *other != number);
            }
            (13, _) => self.streams.extend(connection.open()),
            (14, _) => connection.flush(&mut self.out),
            (15, _) if operation & 16 != 0 => connection.sent(0),
            (15, _) => {
                connection.go_away_soon();
            }
            (_, None) => {}
            (16.., _) => {}
        }
        data
    }

    /// Takes what arrived: each stream is what it was said to be.
    fn poll(&mut self) -> Result<(), Error> {
        while let Some((number, arrival)) = self.connection.poll(&mut self.heads)? {
            let known = self.streams.contains(&number);
            match arrival {
                Arrival::Part(Event::Head { head, .. }) => {
                    assert!(known == self.is_client, "a stream begins once");
                    assert!(self.is_client || !head.authority().is_empty());
                    if !known {
                        self.streams.push(number);
                    }
                }
                Arrival::Part(_) | Arrival::Reset(_) => assert!(known, "of a stream that is there"),
                Arrival::Refused => assert!(known && self.is_client),
            }
        }
        assert!(self.connection.streams() <= 5, "{} streams", self.connection.streams());
        assert!(self.connection.buffered() <= 2 * 2000 + 4 * 16_384 + 1000);
        Ok(())
    }

    /// What was written is whole frames, none larger than allowed.
    fn check(&mut self) {
        self.connection.flush(&mut self.out);
        self.out.drain().for_each(|piece| self.written.extend_from_slice(&piece));
        let mut written = &self.written[..];
        if self.is_client {
            assert!(written.starts_with(PREFACE));
            written.advance(PREFACE.len());
        }
        while let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = written {
            let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            assert!(length <= 1 << 24 && rest.len() >= length && *kind <= 9);
            written = &rest[length..];
        }
        assert!(written.is_empty(), "whole frames");
    }
}
