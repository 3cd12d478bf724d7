//! Frames of a peer: what is understood of them, and what is answered, does not depend on how they are cut. The first
//! nine bytes choose cuts and options.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use towpath_fuzz::cut;
use towpath_proto::http2::{Arrival, Code, Connection, Error, Options, PREFACE};
use towpath_proto::{Event, Head, HeadPool, Out};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choice, frames)) = data.split_first_chunk::<9>() else { return };
    let (seed, choice) = (u64::from_le_bytes(*choice.first_chunk().unwrap_or(&[0; 8])), choice[8]);
    let preface = if choice & 1 == 0 { PREFACE } else { &[] };
    let bytes = [preface, &EMPTY_SETTINGS, frames].concat();
    let whole = told(choice, [Bytes::copy_from_slice(&bytes)]);
    assert_eq!(told(choice, cut(&bytes, seed)), whole);
});

const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// What a user is told of a stream; content that follows on content is one.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Head { fields: Fields, end: bool },
    Informational(Fields),
    Data(Vec<u8>),
    Trailers(Fields),
    End,
    Reset(Code),
    Refused,
}

/// Method, scheme, authority, path and status as they were written, then the fields.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug, PartialEq, Eq)]
struct Told {
    said: Vec<(u32, Said)>,
    error: Option<Error>,
    left: Option<Code>,
    streams: usize,
    written: Vec<u8>,
}

fn told(choice: u8, pieces: impl IntoIterator<Item = Bytes>) -> Told {
    let options = Arc::new(Options {
        max_concurrent_streams: 5,
        max_head_bytes: 2000,
        max_fields: 20,
        header_table_size: [0, 4096][usize::from(choice >> 1 & 1)],
        stream_error_on_malformed: choice & 4 != 0,
        allow_connect: choice & 8 != 0,
        ..Options::default()
    });
    let is_client = choice & 1 == 1;
    let mut connection =
        if is_client { Connection::client(options) } else { Connection::server(options) };
    let (mut heads, mut out, mut said) = (HeadPool::default(), Out::new(), Vec::new());
    if is_client {
        for (method, end) in [(&b"GET"[..], true), (b"HEAD", true), (b"POST", false)] {
            let Some(number) = connection.open() else { break };
            connection.send_head(number, &Head::request(method, b"http", b"a.test", b"/"), end, &mut out);
        }
    }
    let mut error = None;
    for piece in pieces {
        connection.receive(piece);
        error = arrived(&mut connection, &mut heads, &mut out, is_client, &mut said).err();
        if error.is_some() {
            break;
        }
    }
    let (left, streams) = (connection.peer_left(), connection.streams());
    connection.flush(&mut out);
    let written = out.drain().flat_map(Vec::from).collect();
    Told { said, error, left, streams, written }
}

/// Takes all that came. A server answers a request as soon as it is whole.
fn arrived(
    connection: &mut Connection,
    heads: &mut HeadPool,
    out: &mut Out,
    is_client: bool,
    said: &mut Vec<(u32, Said)>,
) -> Result<(), Error> {
    while let Some((number, arrival)) = connection.poll(heads)? {
        let is_last = match &arrival {
            Arrival::Part(Event::Head { end, .. }) => *end,
            Arrival::Part(Event::Trailers(_) | Event::End) => true,
            Arrival::Part(Event::Informational(_) | Event::Data(_)) => false,
            Arrival::Reset(_) | Arrival::Refused => true,
        };
        if is_last && !is_client && matches!(arrival, Arrival::Part(_)) {
            connection.send_head(number, &Head::response(200), true, out);
        }
        if is_last {
            connection.release(number);
        }
        let arrival = match arrival {
            Arrival::Part(Event::Head { head, end }) => Said::Head { fields: fields(&head), end },
            Arrival::Part(Event::Informational(head)) => Said::Informational(fields(&head)),
            Arrival::Part(Event::Data(data)) => match said.last_mut() {
                Some((last, Said::Data(before))) if *last == number => {
                    before.extend_from_slice(&data);
                    continue;
                }
                _ => Said::Data(data.to_vec()),
            },
            Arrival::Part(Event::Trailers(head)) => Said::Trailers(fields(&head)),
            Arrival::Part(Event::End) => Said::End,
            Arrival::Reset(code) => Said::Reset(code),
            Arrival::Refused => Said::Refused,
        };
        said.push((number, arrival));
    }
    Ok(())
}

fn fields(head: &Head) -> Fields {
    let line = [head.method_bytes(), head.scheme(), head.authority(), head.path()];
    let status = head.status().to_string().into_bytes();
    let line = line.into_iter().map(<[u8]>::to_vec).chain([status]).map(|part| (Vec::new(), part));
    line.chain(head.iter().map(|field| (field.name_bytes.to_vec(), field.value.to_vec()))).collect()
}
