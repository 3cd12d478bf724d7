//! The operations that the benchmark and the instruction counter share.

use std::hint::black_box;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towpath_proto::http1::{Client, Options, Server};
use towpath_proto::http2::hpack::{Decoder, Encoder, FieldName, Limits};
use towpath_proto::{Event, Next, Out};
use towpath_proto::{Head, HeadPool, Name};

/// Eight fields, as an HTTP client of today sends them.
pub(crate) const REQUEST: &[u8] =
    b"GET /api/v1/users/12345/orders?limit=20&sort=-date HTTP/1.1\r\n\
    Host: orders.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: application/json, text/plain, */*\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://shop.example.com/orders/list\r\n\
    Connection: keep-alive\r\n\
    X-Session-Token: 8f14e45fceea167a5a36dedd4bea2543\r\n\r\n";

/// A head and 200 bytes of content.
pub(crate) const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx/1.27.3\r\n\
    Date: Fri, 20 Nov 2026 11:28:39 GMT\r\n\
    Content-Type: application/json; charset=utf-8\r\n\
    Content-Length: 200\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: no-store, max-age=0\r\n\
    X-Response-Time: 12ms\r\n\
    Etag: W/\"5f4dcc3b5aa765d61d8327deb882cf99\"\r\n\r\n\
    01234567890123456789012345678901234567890123456789\
    01234567890123456789012345678901234567890123456789\
    01234567890123456789012345678901234567890123456789\
    01234567890123456789012345678901234567890123456789";

/// Twelve fields, as browsers send them; all but path and authorization come again with each request.
const FIELDS: [(&str, &str); 12] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "orders.example.com"),
    (":path", "/api/v1/users/12345/orders?limit=20&sort=-date"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "application/json, text/plain, */*"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://shop.example.com/orders/list"),
    ("authorization", "Bearer 8f14e45fceea167a5a36dedd4bea2543"),
    ("x-session-token", "5f4dcc3b5aa765d61d8327deb882cf99"),
    ("te", "trailers"),
];

/// What the operations need between two runs.
pub(crate) struct Bench {
    pool: HeadPool,
    out: Out,
    options: Arc<Options>,
    server: Server,
    client: Client,
    request: Bytes,
    response: Bytes,
    chunked: Bytes,
    reply: Head,
    content: Bytes,
    fields: Vec<(FieldName<'static>, &'static [u8])>,
    encoder: Encoder,
    decoder: Decoder,
    /// Its fields are in the decoder's table, but for those that enter none.
    header_block: BytesMut,
    first_block: BytesMut,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let options = Arc::new(Options::default());
        let mut reply = Head::response(200);
        reply.append(Name::Server, b"towpath");
        reply.append(Name::Date, b"Fri, 20 Nov 2026 11:28:39 GMT");
        reply.append(Name::ContentType, b"application/json; charset=utf-8");
        reply.append(Name::ContentLength, b"200");
        reply.append_bytes(b"x-response-time", b"12ms");
        let mut chunked =
            b"POST /upload HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for _ in 0..10 {
            chunked.extend_from_slice(b"64\r\n");
            chunked.extend_from_slice(&[b'x'; 100]);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(b"0\r\n\r\n");
        let fields =
            FIELDS.map(|(name, value)| (FieldName::resolve(name.as_bytes()), value.as_bytes()));
        let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new(4096));
        let first_block = header_block(&mut encoder, &fields);
        decode(&mut decoder, &first_block);
        Self {
            header_block: header_block(&mut encoder, &fields),
            first_block,
            fields: fields.to_vec(),
            encoder,
            decoder,
            pool: HeadPool::default(),
            out: Out::new(),
            server: Server::new(options.clone()),
            client: Client::new(options.clone()),
            options,
            request: Bytes::from_static(REQUEST).to_vec().into(),
            response: Bytes::from_static(RESPONSE).to_vec().into(),
            chunked: chunked.into(),
            reply,
            content: Bytes::from_static(&[b'y'; 200]),
        }
    }

    /// A fresh connection takes one chunk with one request and reports its head.
    pub(crate) fn request_head(&mut self) {
        let mut server = Server::new(self.options.clone());
        server.receive(self.request.clone());
        match server.poll(&mut self.pool) {
            Ok(Some(Event::Head { head, .. })) => self.pool.give(black_box(head)),
            other => panic!("{other:?}"),
        }
    }

    /// A server takes a request, writes an answer of 200 bytes and gets ready for the next.
    pub(crate) fn server_exchange(&mut self) {
        self.server.receive(self.request.clone());
        let Ok(Some(Event::Head { head, end: true })) = self.server.poll(&mut self.pool) else {
            panic!()
        };
        self.server.encode_head(&self.reply, false, &mut self.out);
        self.server.encode_data(self.content.clone(), &mut self.out);
        self.server.encode_end(&mut self.out);
        self.pool.give(head);
        assert_eq!(self.server.next(), Next::KeepAlive);
        self.out.drain().for_each(|piece| drop(black_box(piece)));
    }

    /// What a proxy does for one exchange: parse and re-serialise the request, then the response.
    pub(crate) fn proxy_exchange(&mut self) {
        self.server.receive(self.request.clone());
        let Ok(Some(Event::Head { head: request, end: true })) = self.server.poll(&mut self.pool)
        else {
            panic!()
        };
        self.client.encode_head(&request, true, &mut self.out);
        self.out.drain().for_each(|piece| drop(black_box(piece)));
        self.client.receive(self.response.clone());
        let Ok(Some(Event::Head { head: response, end: false })) = self.client.poll(&mut self.pool)
        else {
            panic!()
        };
        self.server.encode_head(&response, false, &mut self.out);
        let Ok(Some(Event::Data(data))) = self.client.poll(&mut self.pool) else { panic!() };
        self.server.encode_data(data, &mut self.out);
        let Ok(Some(Event::End)) = self.client.poll(&mut self.pool) else { panic!() };
        self.server.encode_end(&mut self.out);
        self.out.drain().for_each(|piece| drop(black_box(piece)));
        self.pool.give(request);
        self.pool.give(response);
        assert!(self.client.reusable());
        assert_eq!(self.server.next(), Next::KeepAlive);
    }

    /// A client asks and takes the response with its content.
    pub(crate) fn client_exchange(&mut self) {
        self.client.encode_head(&self.reply, true, &mut self.out);
        self.out.buffer().clear();
        self.client.receive(self.response.clone());
        while let Ok(Some(event)) = self.client.poll(&mut self.pool) {
            if let Event::Head { head, .. } = black_box(event) {
                self.pool.give(head);
            }
        }
    }

    /// The header block of a request like the one before on its connection.
    pub(crate) fn hpack_encode(&mut self) {
        self.header_block.clear();
        self.encoder.begin(&mut self.header_block);
        for (name, value) in &self.fields {
            self.encoder.field(*name, value, false, &mut self.header_block);
        }
    }

    /// As [`Bench::hpack_encode`], the other way round.
    pub(crate) fn hpack_decode(&mut self) {
        decode(&mut self.decoder, &self.header_block);
    }

    /// The first request of a connection.
    pub(crate) fn hpack_encode_first(&mut self) {
        black_box(header_block(&mut Encoder::new(4096), &self.fields));
    }

    /// As [`Bench::hpack_encode_first`], the other way round.
    pub(crate) fn hpack_decode_first(&mut self) {
        decode(&mut Decoder::new(4096), &self.first_block);
    }

    /// A server takes ten chunks of 100 bytes.
    pub(crate) fn chunked_body(&mut self) {
        let mut server = Server::new(self.options.clone());
        server.receive(self.chunked.clone());
        while let Ok(Some(event)) = server.poll(&mut self.pool) {
            if let Event::Head { head, .. } = black_box(event) {
                self.pool.give(head);
            }
        }
        assert!(server.request_complete());
    }
}

fn header_block(encoder: &mut Encoder, fields: &[(FieldName<'_>, &[u8])]) -> BytesMut {
    let mut block = BytesMut::with_capacity(4096);
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.field(*name, value, false, &mut block);
    }
    block
}

fn decode(decoder: &mut Decoder, block: &[u8]) {
    let (limits, mut size) = (Limits { max_list_size: 60 * 1024, max_fields: 100 }, 0);
    let answer = decoder.decode(block, &limits, &mut |field| size += black_box(field).value.len());
    assert_eq!(answer, Ok(()));
    assert_eq!(size, FIELDS.iter().map(|(_, value)| value.len()).sum::<usize>());
}

/// One operation of a [`Bench`].
pub(crate) type Operation = fn(&mut Bench);

/// Every operation by its name.
pub(crate) const CASES: &[(&str, Operation)] = &[
    ("request-head", Bench::request_head),
    ("client-exchange", Bench::client_exchange),
    ("server-exchange", Bench::server_exchange),
    ("proxy-exchange", Bench::proxy_exchange),
    ("chunked-body", Bench::chunked_body),
    ("hpack-encode", Bench::hpack_encode),
    ("hpack-decode", Bench::hpack_decode),
    ("hpack-encode-first", Bench::hpack_encode_first),
    ("hpack-decode-first", Bench::hpack_decode_first),
];
