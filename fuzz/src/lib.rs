//! What the targets share: feeding bytes whole or cut, and writing down what came out.

pub mod encode;
pub mod filters;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towpath_proto::http1::{Client, Error, Options, Server};
use towpath_proto::{Event, Next, Out};
use towpath_proto::{Head, HeadPool, Method, Name};

/// A message as a reader of it would remember it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub first: Vec<u8>,
    pub authority: Vec<u8>,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    pub complete: bool,
    /// Written again by our own encoder.
    pub encoded: Vec<u8>,
}

/// All messages, and the error that ended them.
pub type Transcript = (Vec<Message>, Option<Error>);

/// Options from two bits, so that leniencies are reached too.
pub fn options(choice: u8) -> Arc<Options> {
    Arc::new(Options {
        accept_http10: choice & 1 != 0,
        enable_trailers: choice & 2 != 0,
        allow_chunked_length: choice & 4 != 0,
        allow_custom_methods: choice & 8 != 0,
        default_host_http10: (choice & 16 != 0).then(|| Bytes::from_static(b"default")),
        max_head_bytes: 2048,
        max_fields: 20,
        max_chunk_extension_bytes: 32,
        ..Options::default()
    })
}

/// Cuts bytes at places that follow from `seed`.
pub fn cut(bytes: &[u8], mut seed: u64) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let longest = if seed >> 63 == 0 { 3 } else { 64 };
        let length = (1 + (seed >> 33) as usize % longest).min(rest.len());
        pieces.push(Bytes::copy_from_slice(&rest[..length]));
        rest = &rest[length..];
    }
    pieces
}

/// Everything that a server understands, with each request written again by a client.
pub fn requests(options: &Arc<Options>, pieces: &[Bytes]) -> Transcript {
    let mut pool = HeadPool::default();
    let mut server = Server::new(options.clone());
    let mut messages: Vec<Message> = Vec::new();
    let mut client = Client::new(options.clone());
    let mut out = Out::new();
    for piece in pieces.iter().map(Some).chain([None]) {
        match piece {
            Some(piece) => server.receive(piece.clone()),
            None => server.ended(),
        }
        loop {
            match server.poll(&mut pool) {
                Ok(Some(Event::Head { head, end })) => {
                    client.encode_head(&head, end, &mut out);
                    messages.push(message(&head, end));
                    pool.give(head);
                }
                Ok(Some(event)) => {
                    let Some(last) = messages.last_mut() else { panic!("a body without a head") };
                    record(last, event, |event| match event {
                        Event::Data(data) => client.encode_data(data, &mut out),
                        Event::Trailers(trailers) => client.encode_trailers(&trailers, &mut out),
                        _ => client.encode_end(&mut out),
                    });
                }
                Ok(None) if server.request_complete() => {
                    if let Some(last) = messages.last_mut() {
                        last.encoded = collect(&mut out);
                    }
                    server.encode_head(&Head::response(204), true, &mut Out::new());
                    if server.next() == Next::Close {
                        return (messages, None);
                    }
                    client = Client::new(options.clone());
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(server.poll(&mut pool).err(), Some(error), "an error repeats");
                    return (messages, Some(error));
                }
            }
        }
    }
    (messages, None)
}

/// Everything that a client understands as the answer to `method`, written again by a server.
pub fn responses(options: &Arc<Options>, method: &[u8], pieces: &[Bytes]) -> Transcript {
    let mut pool = HeadPool::default();
    let mut client = Client::new(options.clone());
    let mut request = Head::request(method, b"http", b"a:1", b"/");
    if method == b"GET" {
        request.append(Name::Upgrade, b"websocket");
    }
    let mut out = Out::new();
    client.encode_head(&request, true, &mut out);
    let asked: Vec<Bytes> = out.drain().collect();
    let mut server = Server::new(options.clone());
    asked.into_iter().for_each(|piece| server.receive(piece));
    assert!(matches!(server.poll(&mut pool), Ok(Some(Event::Head { .. }))));

    let mut messages: Vec<Message> = Vec::new();
    for piece in pieces.iter().map(Some).chain([None]) {
        match piece {
            Some(piece) => client.receive(piece.clone()),
            None => client.ended(),
        }
        loop {
            match client.poll(&mut pool) {
                Ok(Some(Event::Informational(head))) => messages.push(message(&head, true)),
                Ok(Some(Event::Head { head, end })) => {
                    server.encode_head(&head, end, &mut out);
                    let mut message = message(&head, end);
                    if end {
                        message.encoded = collect(&mut out);
                    }
                    messages.push(message);
                }
                Ok(Some(event)) => {
                    let Some(last) = messages.last_mut() else { panic!("a body without a head") };
                    record(last, event, |event| match event {
                        Event::Data(data) => server.encode_data(data, &mut out),
                        Event::Trailers(trailers) => server.encode_trailers(&trailers, &mut out),
                        _ => server.encode_end(&mut out),
                    });
                    if last.complete {
                        last.encoded = collect(&mut out);
                    }
                }
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

fn message(head: &Head, complete: bool) -> Message {
    let first = match head.status() {
        0 => [head.method_bytes(), b" ", head.path()].concat(),
        status => status.to_string().into_bytes(),
    };
    assert!(head.status() != 0 || head.method() == Method::Connect || !head.path().is_empty());
    Message {
        first,
        authority: head.authority().to_vec(),
        fields: fields(head),
        complete,
        ..Message::default()
    }
}

fn record(message: &mut Message, event: Event, encode: impl FnOnce(Event)) {
    assert!(!message.complete, "something follows the end");
    match &event {
        Event::Data(data) => {
            assert!(!data.is_empty());
            message.body.extend_from_slice(data);
        }
        Event::Trailers(trailers) => {
            assert!(!trailers.is_empty());
            message.trailers = fields(trailers);
            message.complete = true;
        }
        Event::End => message.complete = true,
        Event::Head { .. } | Event::Informational(_) => panic!("a head inside a message"),
    }
    encode(event);
}

/// Names in lower case; what frames a message may change its form on the way and is left out.
fn fields(head: &Head) -> Vec<(Vec<u8>, Vec<u8>)> {
    for field in head.iter() {
        assert!(!field.value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        assert_eq!(Name::resolve(field.name_bytes), field.name);
    }
    head.iter()
        .filter(|field| !matches!(field.name, Name::ContentLength | Name::Trailer))
        .map(|field| (field.name_bytes.to_ascii_lowercase(), field.value.to_vec()))
        .collect()
}

fn collect(out: &mut Out) -> Vec<u8> {
    out.drain().flatten().collect::<BytesMut>().to_vec()
}

/// What must hold for every input: cutting changes nothing, and what we write reads as what we read.
pub fn check_requests(options: &Arc<Options>, bytes: &[u8], seed: u64) {
    let whole = requests(options, &[Bytes::copy_from_slice(bytes)]);
    assert_eq!(
        plain(&whole),
        plain(&requests(options, &cut(bytes, seed))),
        "cutting changes what is understood"
    );
    for message in whole.0.iter().filter(|message| message.complete && !message.encoded.is_empty())
    {
        let (again, error) = requests(&roomy(options), &[Bytes::copy_from_slice(&message.encoded)]);
        assert_eq!(error, None, "{}", message.encoded.escape_ascii());
        assert_eq!(again.len(), 1, "{}", message.encoded.escape_ascii());
        assert_same(message, &again[0]);
    }
}

/// As [`check_requests`], for the answers to `method`.
pub fn check_responses(options: &Arc<Options>, method: &[u8], bytes: &[u8], seed: u64) {
    let whole = responses(options, method, &[Bytes::copy_from_slice(bytes)]);
    let pieces = cut(bytes, seed);
    assert_eq!(
        plain(&whole),
        plain(&responses(options, method, &pieces)),
        "cutting changes what is understood"
    );
    for message in whole.0.iter().filter(|message| message.complete && !message.encoded.is_empty())
    {
        let (again, error) =
            responses(&roomy(options), method, &[Bytes::copy_from_slice(&message.encoded)]);
        assert_eq!(error, None, "{}", message.encoded.escape_ascii());
        assert_eq!(again.len(), 1, "{}", message.encoded.escape_ascii());
        assert_same(message, &again[0]);
    }
}

/// With room for what framing adds.
fn roomy(options: &Options) -> Arc<Options> {
    Arc::new(Options { max_head_bytes: 8192, max_fields: 100, ..options.clone() })
}

/// Without the encodings, in which chunks follow the cuts.
fn plain((messages, error): &Transcript) -> Transcript {
    (
        messages.iter().map(|message| Message { encoded: Vec::new(), ..message.clone() }).collect(),
        *error,
    )
}

fn assert_same(one: &Message, other: &Message) {
    let (mut one, mut other) = (one.clone(), other.clone());
    for message in [&mut one, &mut other] {
        message.encoded.clear();
        // Of the fields that belong to an upgrade only an upgrade keeps any.
        message.fields.retain(|(name, _)| name != b"upgrade");
    }
    assert_eq!(one, other);
}
