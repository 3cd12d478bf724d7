//! Frame by frame against either role, section by section of RFC 9113; both roles against one another in
//! `tests/pair.rs`.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::frame::{self, Kind, put_header};
use super::hpack::{Decoder, Encoder, FieldName, Limits};
use super::{Arrival, Code, Connection, Error, Options, PREFACE, Unread};
use crate::event::Event;
use crate::head::{Head, HeadPool};
use crate::name::Name;
use crate::out::Out;

mod abuse;
mod fair;
mod known;
mod messages;
mod mirrored;
mod pair;
mod wire;

/// One end, and a peer that is written by hand.
struct Scene {
    connection: Connection,
    heads: HeadPool,
    encoder: Encoder,
    decoder: Decoder,
}

/// A frame that was written: type, flags, stream, payload.
type Written = (Kind, u8, u32, Vec<u8>);

fn frame(kind: Kind, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    put_header(&mut bytes, payload.len(), kind, flags, id);
    bytes.extend_from_slice(payload);
    bytes.to_vec()
}

fn settings(parameters: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in parameters {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(Kind::Settings, 0, 0, &payload)
}

const END: u8 = frame::END_STREAM;
const WHOLE: u8 = frame::END_HEADERS;

/// A request for `/`.
const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")];
const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")];

impl Scene {
    fn new(connection: Connection) -> Self {
        let (heads, encoder) = (HeadPool::default(), Encoder::new(4096));
        Self { connection, heads, encoder, decoder: Decoder::new(4096) }
    }

    /// A server whose client has opened.
    fn server(options: Options) -> Self {
        let mut scene = Self::new(Connection::server(Arc::new(options)));
        assert_eq!(scene.feed(PREFACE), Ok(vec![]));
        assert_eq!(scene.feed(&settings(&[])), Ok(vec![]));
        scene.written();
        scene
    }

    /// A client whose server has opened.
    fn client(options: Options) -> Self {
        let mut scene = Self::new(Connection::client(Arc::new(options)));
        assert_eq!(scene.feed(&settings(&[])), Ok(vec![]));
        let mut out = Out::new();
        scene.connection.flush(&mut out);
        scene
    }

    /// What bytes come to.
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, Error> {
        self.connection.receive(Bytes::copy_from_slice(bytes));
        let mut arrived = Vec::new();
        while let Some((number, arrival)) = self.connection.poll(&mut self.heads)? {
            arrived.push(format!("{number} {}", text(&arrival)));
        }
        Ok(arrived)
    }

    fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = BytesMut::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            // As it is: names that are none must be possible.
            block.extend_from_slice(&[0, u8::try_from(name.len()).unwrap()]);
            block.extend_from_slice(name.as_bytes());
            assert!(value.len() < 127, "a length in one byte");
            block.extend_from_slice(&[u8::try_from(value.len()).unwrap()]);
            block.extend_from_slice(value.as_bytes());
        }
        block.to_vec()
    }

    fn headers(&mut self, id: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
        let block = self.block(fields);
        frame(Kind::Headers, flags | WHOLE, id, &block)
    }

    fn feed_headers(
        &mut self,
        id: u32,
        flags: u8,
        fields: &[(&str, &str)],
    ) -> Result<Vec<String>, Error> {
        let frame = self.headers(id, flags, fields);
        self.feed(&frame)
    }

    fn feed_frame(
        &mut self,
        kind: Kind,
        flags: u8,
        id: u32,
        payload: &[u8],
    ) -> Result<Vec<String>, Error> {
        self.feed(&frame(kind, flags, id, payload))
    }

    /// A stream of a client with a request without content on its way.
    fn ask(&mut self, method: &str) -> u32 {
        let number = self.connection.open().unwrap();
        let head = Head::request(method.as_bytes(), b"http", b"a.test", b"/");
        let mut out = Out::new();
        self.connection.send_head(number, &head, true, &mut out);
        number
    }

    /// The frames that were written.
    fn written(&mut self) -> Vec<Written> {
        let mut out = Out::new();
        self.connection.flush(&mut out);
        self.frames(&mut out)
    }

    fn frames(&mut self, out: &mut Out) -> Vec<Written> {
        let mut bytes: Bytes = out.drain().collect::<Vec<_>>().concat().into();
        if bytes.starts_with(PREFACE) {
            drop(bytes.split_to(PREFACE.len()));
        }
        let mut frames = Vec::new();
        while let Some(header) = bytes.first_chunk::<9>() {
            let header = frame::FrameHeader::read(header);
            drop(bytes.split_to(9));
            let payload = bytes.split_to(header.length).to_vec();
            frames.push((header.kind, header.flags, header.stream, payload));
        }
        assert!(bytes.is_empty(), "whole frames");
        frames
    }

    /// The fields of a block that was written.
    fn fields(&mut self, block: &[u8]) -> Vec<String> {
        let limits = Limits { max_list_size: 1 << 20, max_fields: 1000 };
        let mut fields = Vec::new();
        let mut sink = |field: super::hpack::Field<'_>| {
            let name: FieldName<'_> = field.name;
            let text = [name.as_bytes(), b"=", field.value].concat();
            fields.push(String::from_utf8_lossy(&text).into_owned());
        };
        self.decoder.decode(block, &limits, &mut sink).unwrap();
        fields
    }

    fn goaway(&mut self) -> Option<Code> {
        let frames = self.written();
        let (_, _, _, payload) = frames.iter().find(|(kind, ..)| *kind == Kind::GoAway)?;
        frame::number(&payload[4..]).map(Code)
    }

    fn reset_codes(&mut self) -> Vec<(u32, Code)> {
        let code = |payload: &[u8]| Code(frame::number(payload).unwrap());
        let frames = self.written().into_iter();
        let resets = frames.filter(|(kind, ..)| *kind == Kind::Reset);
        resets.map(|(_, _, id, payload)| (id, code(&payload))).collect()
    }
}

fn text(arrival: &Arrival) -> String {
    match arrival {
        Arrival::Part(Event::Head { head, end }) => {
            format!("{}{}", head_text(head), if *end { " end" } else { "" })
        }
        Arrival::Part(Event::Informational(head)) => format!("interim {}", head.status()),
        Arrival::Part(Event::Data(data)) => format!("data {}", data.escape_ascii()),
        Arrival::Part(Event::Trailers(head)) => format!("trailers{}", fields_text(head)),
        Arrival::Part(Event::End) => "end".to_owned(),
        Arrival::Reset(code) => format!("reset {}", code.0),
        Arrival::Refused => "refused".to_owned(),
    }
}

fn head_text(head: &Head) -> String {
    let start = match head.status() {
        0 => {
            let parts = [head.method_bytes(), head.scheme(), head.authority(), head.path()];
            String::from_utf8_lossy(&parts.join(&b' ')).into_owned()
        }
        status => status.to_string(),
    };
    start + &fields_text(head)
}

fn fields_text(head: &Head) -> String {
    let field =
        |name: &[u8], value: &[u8]| format!(" {}={}", name.escape_ascii(), value.escape_ascii());
    head.iter().map(|it| field(it.name_bytes, it.value)).collect()
}

fn lenient() -> Options {
    Options { stream_error_on_malformed: true, ..Options::default() }
}
