//! One exchange after another through both sides.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towpath_proto::http1::{Client, Options, Server};
use towpath_proto::{Event, Next, Out};
use towpath_proto::{Head, HeadPool, Name};

#[test]
fn a_request_and_its_response_pass_and_the_connection_stays() {
    let mut pool = HeadPool::default();
    let mut client = Client::new(Arc::new(Options::default()));
    let mut server = Server::new(Arc::new(Options::default()));
    for _ in 0..3 {
        let mut out = Out::new();
        let mut request = Head::request(b"POST", b"http", b"example.org:8080", b"/a?b=c");
        request.append(Name::Accept, b"*/*");
        request.append_bytes(b"X-Custom", b"1");
        client.encode_head(&request, false, &mut out);
        client.encode_data(Bytes::from_static(b"hello"), &mut out);
        client.encode_end(&mut out);
        let wire = collect(&mut out);
        assert_eq!(
            wire,
            "POST /a?b=c HTTP/1.1\r\nhost: example.org:8080\r\naccept: */*\r\nx-custom: 1\r\n\
             transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        server.receive(wire.into());
        let Some(Event::Head { head, end: false }) = server.poll(&mut pool).unwrap() else {
            panic!()
        };
        assert_eq!(head.authority(), b"example.org:8080");
        assert_eq!(head.get_bytes(b"x-custom"), Some(&b"1"[..]));
        let Some(Event::Data(data)) = server.poll(&mut pool).unwrap() else { panic!() };
        assert_eq!(data, "hello");
        assert!(matches!(server.poll(&mut pool), Ok(Some(Event::End))));
        assert!(server.request_complete());

        server.encode_head(&Head::response(404), true, &mut out);
        assert!(server.response_complete());
        assert_eq!(server.next(), Next::KeepAlive);
        client.receive(collect(&mut out).into());
        let Some(Event::Head { head, end: true }) = client.poll(&mut pool).unwrap() else {
            panic!()
        };
        assert_eq!(head.status(), 404);
        assert!(client.exchange_complete() && client.reusable());
    }
}

fn collect(out: &mut Out) -> String {
    let all: BytesMut = out.drain().flatten().collect();
    String::from_utf8_lossy(&all).into_owned()
}
