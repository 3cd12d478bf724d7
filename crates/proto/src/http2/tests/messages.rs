//! What a message may be: RFC 9113 §8, and RFC 8441.

use super::*;
use crate::http2::head::{Builder, Section, put_request};
use crate::http2::hpack::Field;

#[test]
fn section_8_1_requests_and_answers_with_bodies_and_trailers() {
    let mut scene = Scene::server(Options::default());
    let mut arrived =
        scene.feed_headers(1, 0, &[POST, &[("content-length", "5")]].concat()).unwrap();
    arrived.extend(scene.feed_frame(Kind::Data, 0, 1, b"hel").unwrap());
    arrived.extend(scene.feed_frame(Kind::Data, 0, 1, b"lo").unwrap());
    arrived.extend(scene.feed_headers(1, END, &[("x-sum", "9"), ("content-length", "7")]).unwrap());
    assert_eq!(
        arrived,
        ["0 POST http a.test / content-length=5", "0 data hel", "0 data lo", "0 trailers x-sum=9"]
    );
    let mut out = Out::new();
    scene.connection.send_informational(0, &Head::response(103), &mut out);
    let mut head = Head::response(200);
    head.append(Name::ContentType, b"text/plain");
    head.append(Name::Connection, b"close");
    head.append(Name::TransferEncoding, b"chunked");
    head.append_bytes(b"X-Custom", b"1");
    scene.connection.send_head(0, &head, false, &mut out);
    scene.connection.send_data(0, Bytes::from_static(b"body"));
    let mut trailers = Head::default();
    trailers.append(Name::GrpcStatus, b"0");
    scene.connection.send_trailers(0, &trailers);
    scene.connection.release(0);
    scene.connection.flush(&mut out);
    let frames = scene.frames(&mut out);
    let kinds: Vec<(Kind, u8)> = frames.iter().map(|(kind, flags, ..)| (*kind, *flags)).collect();
    let headers = Kind::Headers;
    assert_eq!(
        kinds,
        [(headers, WHOLE), (headers, WHOLE), (Kind::Data, 0), (headers, WHOLE | END)]
    );
    assert_eq!(scene.fields(&frames[0].3), [":status=103"]);
    assert_eq!(
        scene.fields(&frames[1].3),
        [":status=200", "content-type=text/plain", "x-custom=1"]
    );
    assert_eq!(scene.fields(&frames[3].3), ["grpc-status=0"]);
    assert_eq!(scene.connection.streams(), 0);
}

#[test]
fn section_8_1_trailers_leave_at_once_behind_what_has_room() {
    let mut scene = Scene::server(Options::default());
    scene.feed(&settings(&[(4, 10)])).unwrap();
    scene.written();
    let mut trailers = Head::default();
    trailers.append(Name::GrpcStatus, b"0");
    let kinds = |scene: &mut Scene, out: &mut Out| -> Vec<(Kind, u8, u32)> {
        scene.frames(out).into_iter().map(|(kind, flags, id, _)| (kind, flags, id)).collect()
    };
    for (id, content, waits) in [(1, "", false), (3, "content", false), (5, "much content", true)] {
        scene.feed_headers(id, END, GET).unwrap();
        let mut out = Out::new();
        scene.connection.send_head(0, &Head::response(200), false, &mut out);
        scene.connection.send_data(0, Bytes::copy_from_slice(content.as_bytes()));
        scene.connection.write_trailers(0, &trailers, &mut out);
        let ends = (Kind::Headers, WHOLE | END, id);
        let mut expected = vec![(Kind::Headers, WHOLE, id)];
        expected.extend((!content.is_empty() && !waits).then_some((Kind::Data, 0, id)));
        expected.extend((!waits).then_some(ends));
        assert_eq!(kinds(&mut scene, &mut out), expected, "{content}");
        scene.connection.release(0);
        scene.connection.flush(&mut out);
        let first = (Kind::Data, 0, id);
        assert_eq!(kinds(&mut scene, &mut out), if waits { vec![first] } else { vec![] });
        if waits {
            scene.feed_frame(Kind::WindowUpdate, 0, id, &[0, 0, 0, 2]).unwrap();
            scene.connection.flush(&mut out);
            assert_eq!(kinds(&mut scene, &mut out), [first, ends]);
        }
        assert_eq!(scene.connection.streams(), 0);
    }
}

#[test]
fn section_8_1_a_client_reads_interim_and_final_answers() {
    let mut client = Scene::client(Options::default());
    client.ask("GET");
    let mut arrived = client.feed_headers(1, 0, &[(":status", "103"), ("link", "x")]).unwrap();
    arrived.extend(client.feed_headers(1, 0, &[(":status", "200")]).unwrap());
    arrived.extend(client.feed_frame(Kind::Data, END, 1, b"body").unwrap());
    assert_eq!(arrived, ["0 interim 103", "0 200", "0 data body", "0 end"]);
    client.connection.release(0);
    client.ask("HEAD");
    let length = [(":status", "200"), ("content-length", "9")];
    assert_eq!(client.feed_headers(3, END, &length).unwrap(), ["0 200 content-length=9 end"]);
    client.connection.release(0);
    for fields in [
        &[(":status", "101")][..],
        &[(":status", "20")],
        &[(":status", "2000")],
        &[(":status", "099")],
        &[(":status", "200"), (":status", "200")],
        &[(":path", "/"), (":status", "200")],
        &[("x-early", "1"), (":status", "200")],
        &[],
    ] {
        let mut client = Scene::client(lenient());
        client.ask("GET");
        assert_eq!(client.feed_headers(1, END, fields).unwrap(), ["0 reset 1"], "{fields:?}");
        assert_eq!(client.reset_codes(), [(1, Code::PROTOCOL_ERROR)]);
    }
    let mut client = Scene::client(lenient());
    client.ask("GET");
    assert_eq!(client.feed_headers(1, END, &[(":status", "103")]).unwrap(), ["0 reset 1"]);
    let mut client = Scene::client(lenient());
    client.ask("GET");
    assert_eq!(client.feed_frame(Kind::Data, END, 1, b"x").unwrap(), ["0 reset 1"], "no head");
}

/// What is added to a request, or replaces one of its fields, and makes it malformed.
const WRONG: &[(&str, &str)] = &[
    ("Upper", "1"),
    ("x y", "1"),
    ("x:y", "1"),
    ("", "1"),
    ("x-cr", "a\rb"),
    ("x-lf", "a\nb"),
    ("x-nul", "a\0b"),
    ("x-blank", " a"),
    ("x-tab", "a\t"),
    ("connection", "close"),
    ("proxy-connection", "close"),
    ("keep-alive", "1"),
    ("transfer-encoding", "chunked"),
    ("upgrade", "h2c"),
    ("te", "gzip"),
    ("te", "trailers, gzip"),
    ("content-length", "x"),
    ("content-length", "+1"),
    ("content-length", "1, 1"),
    ("host", "b.test"),
    ("host", "a.test, a.test"),
    (":path", "/again"),
    (":status", "200"),
    (":whatever", "1"),
    (":protocol", "websocket"),
];

#[test]
fn section_8_2_and_8_3_malformed_requests_get_nowhere() {
    let mut requests: Vec<Vec<(&str, &str)>> =
        WRONG.iter().map(|field| [GET, &[*field]].concat()).collect();
    for missing in 0..4 {
        let mut fields = GET.to_vec();
        fields.remove(missing);
        requests.push(fields);
    }
    for (at, value) in [
        (0, "G T"),
        (0, ""),
        (1, "ftp"),
        (1, ""),
        (2, ""),
        (2, "user@a.test"),
        (2, "a b"),
        (3, ""),
        (3, "x"),
        (3, "*"),
        (3, "http://a.test/"),
        (3, "/a b"),
        (3, "/a\tb"),
        (3, "/#f"),
        (3, "/a\r\n"),
    ] {
        let mut fields = GET.to_vec();
        fields[at].1 = value;
        requests.push(fields);
    }
    requests.push([&[("x-early", "1")], GET].concat());
    requests.push([GET, &[("content-length", "1"), ("content-length", "1")]].concat());
    requests.push([GET, &[("host", "a.test"), ("host", "a.test")]].concat());
    for fields in &requests {
        let mut scene = Scene::server(lenient());
        assert_eq!(scene.feed_headers(1, END, fields), Ok(vec![]), "{fields:?}");
        assert_eq!(scene.reset_codes(), [(1, Code::PROTOCOL_ERROR)], "{fields:?}");
        assert_eq!(scene.feed_headers(3, END, GET).unwrap().len(), 1, "the connection goes on");
        // As Envoy does unless it is told otherwise.
        let mut scene = Scene::server(Options::default());
        assert_eq!(scene.feed_headers(1, END, fields), Err(Error::Malformed), "{fields:?}");
        assert_eq!(scene.goaway(), Some(Code::PROTOCOL_ERROR));
    }
}

#[test]
fn section_8_2_what_is_allowed_arrives() {
    let mut scene = Scene::server(Options::default());
    let fields = [
        GET,
        &[
            ("cookie", "a=1"),
            ("te", "trailers"),
            ("x-b", ""),
            ("cookie", "b=2"),
            ("host", "A.test"),
        ],
        &[("x_under", "1"), ("cookie", "c=3"), ("http2-settings", "x")],
    ];
    let arrived = scene.feed_headers(1, END, &fields.concat()).unwrap();
    let expected = "0 GET http a.test / te=trailers x-b= x_under=1 cookie=a=1; b=2; c=3 end";
    assert_eq!(arrived, [expected]);
    let only_host = [&GET[..2], &GET[3..], &[("host", "b.test:80")]].concat();
    assert_eq!(scene.feed_headers(3, END, &only_host).unwrap(), ["1 GET http b.test:80 / end"]);
    let options = [&[(":method", "OPTIONS")], &GET[1..3], &[(":path", "*")]].concat();
    assert_eq!(scene.feed_headers(5, END, &options).unwrap(), ["2 OPTIONS http a.test * end"]);
    let underscored = [GET, &[("x_under", "1")]].concat();
    let underscores = crate::http1::Underscores::Drop;
    let mut scene = Scene::server(Options { underscores, ..Options::default() });
    // It is counted each time, also when its block has come before.
    for id in [1, 3, 5, 7] {
        let arrived = scene.feed_headers(id, END, &underscored).unwrap();
        assert!(arrived[0].ends_with("GET http a.test / end"), "{arrived:?}");
        assert_eq!(scene.heads.take_underscored().unwrap().dropped, 1);
    }
    let underscores = crate::http1::Underscores::Reject;
    let mut scene = Scene::server(Options { underscores, ..Options::default() });
    assert_eq!(scene.feed_headers(1, END, &underscored), Ok(vec![]));
    assert_eq!(scene.connection.take_unread(), Some(Unread::Underscore));
    assert_eq!(scene.reset_codes(), [(1, Code::INTERNAL_ERROR)]);
    assert_eq!(scene.feed_headers(3, END, GET).unwrap().len(), 1);
    let fields = [&GET[..3], &[(":path", "/a?b#c#d")]].concat();
    for (cut_fragment, expected) in
        [(true, Ok(vec!["0 GET http a.test /a?b end".to_owned()])), (false, Err(Error::Malformed))]
    {
        let mut scene = Scene::server(Options { cut_fragment, ..Options::default() });
        assert_eq!(scene.feed_headers(1, END, &fields), expected);
    }
}

#[test]
fn section_8_1_1_a_body_is_as_long_as_it_says() {
    for (length, pieces) in
        [("5", &["hel"][..]), ("5", &["hello!"]), ("0", &["x"]), ("3", &["", "abcd"]), ("1", &[])]
    {
        let mut scene = Scene::server(lenient());
        let fields = [POST, &[("content-length", length)]].concat();
        let end = if pieces.is_empty() { END } else { 0 };
        let mut arrived = scene.feed_headers(1, end, &fields).unwrap();
        for (at, piece) in pieces.iter().enumerate() {
            let end = if at + 1 == pieces.len() { END } else { 0 };
            arrived.extend(scene.feed_frame(Kind::Data, end, 1, piece.as_bytes()).unwrap());
        }
        assert_eq!(scene.reset_codes(), [(1, Code::PROTOCOL_ERROR)], "{length} {pieces:?}");
        let reset = arrived.iter().any(|it| it == "0 reset 1");
        assert!(reset || pieces.is_empty(), "{arrived:?}");
        assert!(!arrived.iter().any(|it| it == "0 end"), "{arrived:?}");
    }
    let mut scene = Scene::server(lenient());
    scene.feed_headers(1, 0, &[POST, &[("content-length", "5")]].concat()).unwrap();
    scene.feed_frame(Kind::Data, 0, 1, b"hel").unwrap();
    assert_eq!(scene.feed_headers(1, END, &[("x-t", "1")]).unwrap(), ["0 reset 1"]);
}

#[test]
fn section_8_1_trailers_end_a_message_and_have_no_pseudo_fields() {
    for (flags, fields) in
        [(0, &[("x-t", "1")]), (END, &[(":path", "/")]), (END, &[("Upper", "1")])]
    {
        let mut scene = Scene::server(lenient());
        scene.feed_headers(1, 0, POST).unwrap();
        assert_eq!(scene.feed_headers(1, flags, fields).unwrap(), ["0 reset 1"], "{fields:?}");
    }
    let mut scene = Scene::server(lenient());
    scene.feed_headers(1, 0, POST).unwrap();
    assert_eq!(scene.feed_headers(1, END, &[("content-length", "1")]).unwrap(), ["0 end"]);
}

#[test]
fn section_8_5_connect_names_a_host_and_a_port_alone() {
    let mut scene = Scene::server(lenient());
    let fields = [(":method", "CONNECT"), (":authority", "a.test:443")];
    assert_eq!(scene.feed_headers(1, 0, &fields).unwrap(), ["0 CONNECT  a.test:443 "]);
    assert_eq!(scene.feed_frame(Kind::Data, 0, 1, b"\x16").unwrap(), ["0 data \\x16"]);
    for wrong in [
        &[(":method", "CONNECT"), (":authority", "a.test")][..],
        &[(":method", "CONNECT"), (":authority", "a.test:443"), (":path", "/")],
        &[(":method", "CONNECT"), (":authority", "a.test:443"), (":scheme", "http")],
        &[(":method", "CONNECT"), ("host", "a.test:443")],
    ] {
        let mut scene = Scene::server(lenient());
        assert_eq!(scene.feed_headers(1, 0, wrong), Ok(vec![]), "{wrong:?}");
    }
}

#[test]
fn rfc_8441_an_extended_connect_stands_for_an_upgrade() {
    let options = Options { allow_connect: true, ..Options::default() };
    let mut scene = Scene::server(options.clone());
    let mut fields = [GET, &[(":protocol", "websocket"), ("x-a", "1")]].concat();
    fields[0].1 = "CONNECT";
    let arrived = scene.feed_headers(1, 0, &fields).unwrap();
    assert_eq!(arrived, ["0 GET http a.test / x-a=1 upgrade=websocket"]);
    let mut out = Out::new();
    scene.connection.send_head(0, &Head::response(101), false, &mut out);
    let frames = scene.frames(&mut out);
    assert_eq!(scene.fields(&frames.last().unwrap().3), [":status=200"]);
    fields[0].1 = "GET";
    assert_eq!(scene.feed_headers(3, 0, &fields), Err(Error::Malformed), "CONNECT alone has it");
    // The client's side of it.
    let mut client = Scene::client(options);
    client.feed(&settings(&[(8, 1)])).unwrap();
    assert!(client.connection.takes_extended_connect());
    client.written();
    let mut head = Head::request(b"GET", b"https", b"a.test", b"/chat");
    head.append(Name::Upgrade, b"websocket");
    let number = client.connection.open().unwrap();
    let mut out = Out::new();
    client.connection.send_head(number, &head, false, &mut out);
    let frames = client.frames(&mut out);
    assert_eq!(
        client.fields(&frames[0].3),
        [
            ":method=CONNECT",
            ":scheme=https",
            ":authority=a.test",
            ":path=/chat",
            ":protocol=websocket"
        ]
    );
    assert_eq!(client.feed_headers(1, 0, &[(":status", "200")]).unwrap(), ["0 101"]);
    assert_eq!(client.feed(&settings(&[(8, 0)])), Err(Error::BadSetting), "it is not taken back");
}

#[test]
fn a_head_that_is_too_large_ends_its_stream_alone() {
    let options = Options { max_head_bytes: 400, max_fields: 6, ..Options::default() };
    let long = "v".repeat(120);
    let mut scene = Scene::server(options);
    let large: Vec<(&str, &str)> = [GET, &[("a", &long), ("b", &long)]].concat();
    assert_eq!(scene.feed_headers(1, END, &large), Ok(vec![]));
    assert_eq!(scene.reset_codes(), [(1, Code::ENHANCE_YOUR_CALM)]);
    let many = [GET, &[("a", "1"), ("b", "2"), ("c", "3")]].concat();
    assert_eq!(scene.feed_headers(3, END, &many), Ok(vec![]));
    assert_eq!(scene.feed_headers(5, END, &many[..6]).unwrap().len(), 1);
    let counts = scene.connection.take_counts();
    assert_eq!((counts.heads_too_large, counts.header_overflows), (1, 1));
}

#[test]
fn a_request_that_is_refused_while_its_head_is_read_is_told_once() {
    let mut scene = Scene::server(Options { max_fields: 4, ..lenient() });
    let many = [GET, &[("a", "1")]].concat();
    assert_eq!(scene.feed_headers(1, END, &many), Ok(vec![]));
    assert_eq!(scene.feed_headers(3, END, &GET[..3]), Ok(vec![]));
    assert_eq!(scene.feed_headers(5, END, GET).unwrap().len(), 1);
    assert_eq!(scene.connection.take_unread(), Some(Unread::TooManyFields));
    assert_eq!(scene.connection.take_unread(), Some(Unread::Malformed));
    assert_eq!(scene.connection.take_unread(), None);
    let mut scene = Scene::server(Options::default());
    assert_eq!(scene.feed_headers(1, END, &GET[..3]), Err(Error::Malformed));
    assert_eq!(scene.connection.take_unread(), Some(Unread::Malformed));
}

#[test]
fn connections_that_have_rested_understand_each_other() {
    let mut client = Scene::client(Options::default());
    let mut server = Encoder::new(4096);
    let mut head = Head::request(b"GET", b"http", b"a.test", b"/");
    head.append_bytes(b"x-own", b"one");
    for id in [1, 3, 5] {
        let number = client.connection.open().unwrap();
        let mut out = Out::new();
        client.connection.send_head(number, &head, true, &mut out);
        let frames = client.frames(&mut out);
        let block = frames.last().map(|(.., payload)| payload.clone()).unwrap();
        assert!(client.fields(&block).contains(&"x-own=one".to_owned()), "{id}");
        let mut block = BytesMut::new();
        server.begin(&mut block);
        for (name, value) in [(":status", "200"), ("x-theirs", "two")] {
            server.field(FieldName::resolve(name.as_bytes()), value.as_bytes(), false, &mut block);
        }
        let answer = frame(Kind::Headers, WHOLE | END, id, &block);
        assert_eq!(client.feed(&answer).unwrap(), ["0 200 x-theirs=two end"], "{id}");
        client.connection.release(number);
        client.connection.rest();
    }
}

#[test]
fn a_long_block_leaves_in_continuations_and_comes_back_whole() {
    let mut client = Scene::client(Options::default());
    let mut head = Head::request(b"GET", b"http", b"a.test", b"/");
    let value: Vec<u8> = (0..40_000).map(|at| b'!' + (at % 90) as u8).collect();
    head.append_bytes(b"x-long", &value);
    let number = client.connection.open().unwrap();
    let mut out = Out::new();
    client.connection.send_head(number, &head, true, &mut out);
    let bytes = out.drain().collect::<Vec<_>>().concat();
    let mut frames = out;
    frames.buffer().extend_from_slice(&bytes);
    let kinds: Vec<(Kind, u8)> =
        client.frames(&mut frames).iter().map(|(kind, flags, ..)| (*kind, *flags)).collect();
    assert_eq!(kinds.first(), Some(&(Kind::Headers, END)));
    assert_eq!(kinds.last(), Some(&(Kind::Continuation, WHOLE)));
    let mut scene = Scene::server(Options::default());
    let arrived = scene.feed(&bytes).unwrap();
    assert_eq!(arrived, [format!("0 GET http a.test / x-long={} end", value.escape_ascii())]);
}

#[test]
fn a_request_without_a_scheme_has_that_of_its_client() {
    for (forwarded, scheme) in [(None, "http"), (Some("https"), "https"), (Some("ftp"), "http")] {
        let mut client = Scene::client(Options::default());
        let mut head = Head::request(b"GET", b"", b"a.test", b"/");
        if let Some(forwarded) = forwarded {
            head.append(Name::XForwardedProto, forwarded.as_bytes());
        }
        let number = client.connection.open().unwrap();
        let mut out = Out::new();
        client.connection.send_head(number, &head, true, &mut out);
        let frames = client.frames(&mut out);
        let block = frames.last().map(|(.., payload)| payload.clone()).unwrap();
        assert!(client.fields(&block).contains(&format!(":scheme={scheme}")));
    }
}

/// RFC 7541 §6.2.3: an intermediary that passes a field on keeps its mark.
#[test]
fn what_may_enter_no_table_is_passed_on_so() {
    let fields: [(&str, &str, bool); 8] = [
        (":method", "GET", false),
        (":scheme", "http", false),
        (":authority", "a", false),
        (":path", "/", false),
        ("x-secret", "one", true),
        ("x-open", "two", false),
        ("accept", "three", true),
        ("cookie", "a=a-long-one-that-none-can-guess", true),
    ];
    let (options, limits) = (Options::default(), Limits { max_list_size: 4096, max_fields: 100 });
    let (mut block, mut encoder) = (BytesMut::new(), Encoder::new(4096));
    for (name, value, sensitive) in fields {
        let name = FieldName::resolve(name.as_bytes());
        encoder.field(name, value.as_bytes(), sensitive, &mut block);
    }
    encoder.field(FieldName::resolve(b"cookie"), b"b=another-long-one-like-it", false, &mut block);
    let mut pool = HeadPool::default();
    let mut builder = Builder::new(Section::Request, &options, &mut pool);
    Decoder::new(4096).decode(&block, &limits, &mut |field| builder.add(&field)).unwrap();
    let head = builder.finish().unwrap().head;
    let mut passed_on = BytesMut::new();
    put_request(&mut Encoder::new(4096), &head, false, &mut passed_on);
    let mut marked = Vec::new();
    let mut note = |field: Field<'_>| {
        if field.never_indexed {
            marked.push(String::from_utf8(field.name.as_bytes().to_vec()).unwrap());
        }
    };
    Decoder::new(4096).decode(&passed_on, &limits, &mut note).unwrap();
    assert_eq!(marked, ["x-secret", "accept", "cookie"]);
}

/// Its content may be here and its end on its way, in a frame of its own.
#[test]
fn a_request_that_lacks_its_end_alone_is_not_reset() {
    for (length, content, resets) in
        [("2", &b"ab"[..], false), ("0", b"", false), ("3", b"ab", true)]
    {
        let mut scene = Scene::server(Options::default());
        let fields = [POST, &[("content-length", length)]].concat();
        scene.feed_headers(1, 0, &fields).unwrap();
        scene.feed_frame(Kind::Data, 0, 1, content).unwrap();
        scene.connection.send_head(0, &Head::response(200), true, &mut Out::new());
        scene.connection.release(0);
        let told = if resets { vec![(1, Code::NO_ERROR)] } else { vec![] };
        assert_eq!(scene.reset_codes(), told, "{length}");
        assert_eq!(scene.connection.streams(), 0);
        assert_eq!(scene.feed_frame(Kind::Data, END, 1, b""), Ok(vec![]));
        assert_eq!(scene.written(), []);
        assert_eq!(scene.feed_headers(3, END, GET).unwrap().len(), 1);
    }
}

#[test]
fn how_long_a_head_was_is_told_in_frames_and_before_it_was_compressed() {
    let mut scene = Scene::server(Options::default());
    let plain: usize = GET.iter().map(|(name, value)| name.len() + value.len()).sum();
    let block = scene.block(GET);
    scene.feed(&frame(Kind::Headers, END | WHOLE, 1, &block)).unwrap();
    assert_eq!(scene.connection.head_read(), (block.len() + 9, plain));
    let block = scene.block(GET);
    let (first, second) = block.split_at(block.len() / 2);
    scene.feed(&frame(Kind::Headers, END, 3, first)).unwrap();
    scene.feed(&frame(Kind::Continuation, WHOLE, 3, second)).unwrap();
    assert_eq!(scene.connection.head_read(), (block.len() + 2 * 9, plain));

    let mut scene = Scene::client(Options::default());
    let number = scene.connection.open().unwrap();
    let mut out = Out::new();
    let head = Head::request(b"GET", b"http", b"a.test", b"/");
    scene.connection.send_head(number, &head, true, &mut out);
    assert_eq!(scene.connection.head_written(), out.len());
}

#[test]
fn behind_the_last_number_no_stream_begins() {
    // RFC 9113 §5.1.1: a stream has 31 bits of number, and a connection without any left is of no more use.
    const LAST: u32 = (1 << 31) - 1;
    let mut client = Scene::client(Options::default());
    client.ask("GET");
    client.connection.last_id = LAST - 4;
    assert!(!client.connection.is_exhausted());
    for id in [LAST - 2, LAST] {
        assert!(client.connection.capacity() > 0);
        let number = client.connection.open().unwrap();
        let head = Head::request(b"GET", b"http", b"a.test", b"/");
        let mut out = Out::new();
        client.connection.send_head(number, &head, true, &mut out);
        let ids: Vec<u32> = client.frames(&mut out).iter().map(|(_, _, id, _)| *id).collect();
        assert_eq!(ids, [id]);
    }
    assert!(client.connection.is_exhausted());
    assert_eq!((client.connection.capacity(), client.connection.open()), (0, None));
    let answer = client.headers(LAST, END, &[(":status", "200")]);
    assert_eq!(client.feed(&answer), Ok(vec!["2 200 end".to_owned()]));

    let mut server = Scene::server(Options::default());
    server.feed_headers(LAST - 2, END, GET).unwrap();
    assert!(!server.connection.is_exhausted());
    server.feed_headers(LAST, END, GET).unwrap();
    assert!(server.connection.is_exhausted());
}
