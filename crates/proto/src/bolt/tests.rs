use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::Out;

const V1: Version = Version::V1;
const V2: Version = Version::V2 { checksums: false };
const V2_CRC: Version = Version::V2 { checksums: true };

fn written(message: &Message) -> Vec<u8> {
    let mut out = Out::new();
    message.write(&mut out).unwrap();
    out.drain().collect::<Vec<_>>().concat()
}

fn decoded(bytes: &[u8]) -> Result<Option<Frame>, Error> {
    let mut decoder = Decoder::new(Options::default());
    decoder.receive(Bytes::copy_from_slice(bytes));
    decoder.poll()
}

fn call(version: Version, content: usize) -> Message {
    let mut headers = BytesMut::new();
    write_header(&mut headers, b"service", b"com.example.Orders:1.0");
    write_header(&mut headers, b"sofa_head_method_name", b"list");
    Message {
        timeout: Some(Duration::from_millis(3000)),
        class: Bytes::from_static(b"com.alipay.sofa.rpc.core.request.SofaRequest"),
        headers: headers.freeze(),
        content: vec![b'x'; content].into(),
        checksum: true,
        ..Message::request(version, 0x0102_0304)
    }
}

/// One of each sort.
fn messages() -> Vec<Message> {
    let mut messages = Vec::new();
    for version in [V1, V2, V2_CRC] {
        for content in [0, 1, 1024, 5000] {
            messages.push(call(version, content));
            messages.push(Message { kind: Kind::Oneway, ..call(version, content) });
            let status = Status::SERVER_BUSY;
            messages.push(Message { kind: Kind::Response, status, ..call(version, content) });
        }
        messages.push(Message::heartbeat(version, 7));
        messages.push(Message::heartbeat_answer(version, 7));
        messages.push(Message { command: Command::GoAway, ..Message::request(version, 8) });
    }
    messages
}

#[test]
fn a_frame_is_what_its_receiver_would_have() {
    for message in messages() {
        let (frame, bytes) = (message.frame().unwrap(), written(&message));
        assert_eq!(frame.bytes()[..], bytes);
        assert_same(&frame, &message);
        assert_eq!(frame.has_checksum(), decoded(&bytes).unwrap().unwrap().has_checksum());
    }
    let class = Bytes::from(vec![b'c'; 1 << 15]);
    let message = Message { class, ..call(V1, 1) };
    assert_eq!(message.frame().unwrap_err(), Error::ClassTooLong(1 << 15));
}

fn assert_same(frame: &Frame, message: &Message) {
    assert_eq!(frame.version(), message.version);
    assert_eq!((frame.kind(), frame.command()), (message.kind, message.command));
    assert_eq!((frame.id(), frame.codec()), (message.id, message.codec));
    assert_eq!((frame.class(), frame.content()), (&message.class[..], message.content.clone()));
    let is_response = message.kind == Kind::Response;
    assert_eq!(frame.status(), is_response.then_some(message.status));
    assert_eq!(frame.timeout(), message.timeout.filter(|_| !is_response));
    assert_eq!(frame.has_checksum(), message.checksum && message.version == V2_CRC);
    let headers: Vec<_> = frame.headers().unwrap().collect();
    assert_eq!(headers, Headers::parse(&message.headers).unwrap().collect::<Vec<_>>());
}

#[test]
fn the_layout_is_sofa_bolts() {
    let message = Message {
        class: Bytes::from_static(b"C"),
        headers: Bytes::from_static(&[0, 0, 0, 1, b'k', 0xff, 0xff, 0xff, 0xff]),
        content: Bytes::from_static(b"body"),
        timeout: Some(Duration::from_millis(100)),
        ..Message::request(V1, 5)
    };
    let tail = b"\x00\x01\x00\x09\x00\x00\x00\x04C\x00\x00\x00\x01k\xff\xff\xff\xffbody";
    let v1 = [&b"\x01\x01\x00\x01\x01\x00\x00\x00\x05\x01\x00\x00\x00\x64"[..], tail].concat();
    assert_eq!(written(&message), v1);
    let v2 =
        [&b"\x02\x01\x01\x00\x01\x01\x00\x00\x00\x05\x01\x00\x00\x00\x00\x64"[..], tail].concat();
    assert_eq!(written(&Message { version: V2, ..message.clone() }), v2);
    let checked = Message { version: V2_CRC, checksum: true, ..message.clone() };
    let v2 =
        [&b"\x02\x02\x01\x00\x01\x01\x00\x00\x00\x05\x01\x01\x00\x00\x00\x64"[..], tail].concat();
    let by_zlib = 0xfed39bfe_u32.to_be_bytes();
    assert_eq!(written(&checked), [&v2[..], &by_zlib].concat());
    let answer = Message { kind: Kind::Response, status: Status::TIMEOUT, ..message };
    let v1 = [&b"\x01\x00\x00\x02\x01\x00\x00\x00\x05\x01\x00\x07"[..], tail].concat();
    assert_eq!(written(&answer), v1);
    assert_eq!(written(&Message::heartbeat(V1, 1)).len(), 22);
    assert_eq!(written(&Message::heartbeat_answer(V1, 1)).len(), 20);
    assert_eq!(written(&Message::heartbeat(V2, 1)).len(), 24);
    assert_eq!(written(&Message::heartbeat_answer(V2, 1)).len(), 22);
}

#[test]
fn what_is_written_is_read_again() {
    for message in messages() {
        assert_same(&decoded(&written(&message)).unwrap().unwrap(), &message);
    }
}

#[test]
fn frames_are_the_same_however_they_are_cut() {
    let messages = messages();
    let all: Vec<u8> = messages.iter().flat_map(written).collect();
    for size in [1, 2, 3, 7, 19, 23, 100, 1000, 1 << 20] {
        let mut decoder = Decoder::new(Options::default());
        let mut frames = Vec::new();
        for chunk in all.chunks(size) {
            decoder.receive(Bytes::copy_from_slice(chunk));
            while let Some(frame) = decoder.poll().unwrap() {
                frames.push(frame);
            }
        }
        assert_eq!((frames.len(), decoder.buffered()), (messages.len(), 0), "{size}");
        frames.iter().zip(&messages).for_each(|(frame, message)| assert_same(frame, message));
    }
    let one = written(&call(V2_CRC, 10));
    for cut in 1..one.len() {
        let mut decoder = Decoder::new(Options::default());
        decoder.receive(Bytes::copy_from_slice(&one[..cut]));
        assert!(decoder.poll().unwrap().is_none(), "{cut}");
        decoder.receive(Bytes::copy_from_slice(&one[cut..]));
        assert_same(&decoder.poll().unwrap().unwrap(), &call(V2_CRC, 10));
    }
}

#[test]
fn another_number_changes_nothing_else() {
    for message in messages() {
        let frame = decoded(&written(&message)).unwrap().unwrap();
        let mut out = Out::new();
        frame.write_as(u32::MAX, &mut out);
        let bytes = out.drain().collect::<Vec<_>>().concat();
        assert_eq!(bytes, written(&Message { id: u32::MAX, ..message }));
    }
}

#[test]
fn what_is_no_frame_is_refused_as_soon_as_that_is_known() {
    let good = written(&call(V1, 4));
    let changed = |version: Version, at: usize, byte: u8| {
        let mut bytes = written(&call(version, 4));
        bytes[at] = byte;
        bytes
    };
    for (bytes, error) in [
        (vec![0], Error::UnknownProtocol(0)),
        (b"GET / HTTP/1.1\r\n".to_vec(), Error::UnknownProtocol(b'G')),
        (vec![2, 0], Error::UnknownVersion(0)),
        (vec![2, 3], Error::UnknownVersion(3)),
        (vec![1, 3], Error::UnknownKind(3)),
        (vec![2, 1, 9], Error::UnknownKind(9)),
        (changed(V1, 2, 1), Error::UnknownCommand(0x101)),
        (changed(V1, 3, 2), Error::UnknownCommand(2)),
        (changed(V1, 1, 0), Error::UnknownCommand(1)),
        (changed(V1, 4, 0), Error::UnknownVersion(0)),
        (changed(V2, 11, 3), Error::UnknownSwitch(3)),
        (changed(V2_CRC, 11, 2), Error::UnknownSwitch(2)),
        (changed(V1, 14, 0x80), Error::ClassTooLong(0x8000 + 44)),
        (changed(V1, 16, 0xff), Error::HeadersTooLong(0xff00 + good[17] as usize)),
        (changed(V2_CRC, 30, b'?'), Error::WrongChecksum),
        (changed(V2_CRC, 7, 9), Error::WrongChecksum),
    ] {
        let mut decoder = Decoder::new(Options::default());
        decoder.receive(bytes.clone().into());
        assert_eq!(decoder.poll().unwrap_err(), error, "{bytes:?}");
        decoder.receive(good.clone().into());
        assert_eq!(decoder.poll().unwrap_err(), error, "nothing behind it is believed");
        assert_eq!(decoder.buffered(), 0);
    }
}

#[test]
fn a_frame_has_a_limit_and_its_length_costs_nothing() {
    let small = written(&call(V1, 4));
    let mut decoder = Decoder::new(Options { max_frame: small.len() });
    decoder.receive(small.clone().into());
    assert!(decoder.poll().unwrap().is_some());
    decoder.receive(written(&call(V1, 5)).into());
    assert_eq!(decoder.poll().unwrap_err(), Error::FrameTooLarge(small.len() + 1));

    let mut huge = written(&Message::heartbeat(V1, 1));
    huge[18..22].copy_from_slice(&[0xff; 4]);
    assert_eq!(decoded(&huge).unwrap_err(), Error::FrameTooLarge(22 + 0xffff_ffff));
    huge[18..22].copy_from_slice(&[0, 0xff, 0, 0]);
    let mut decoder = Decoder::new(Options::default());
    decoder.receive(huge.into());
    assert!(decoder.poll().unwrap().is_none());
    assert!(decoder.held() <= 128 * 1024, "{} bytes for a promise", decoder.held());
}

#[test]
fn nothing_that_no_length_can_say_is_written() {
    let mut out = Out::new();
    let long = Bytes::from(vec![0; 32_768]);
    let message = Message { class: long.clone(), ..Message::request(V1, 1) };
    assert_eq!(message.write(&mut out), Err(Error::ClassTooLong(32_768)));
    let message = Message { headers: long, ..Message::request(V1, 1) };
    assert_eq!(message.write(&mut out), Err(Error::HeadersTooLong(32_768)));
    assert!(out.is_empty());
}

#[test]
fn headers_are_whole_pairs() {
    let null = [0xff; 4];
    let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes()[..], text].concat();
    let block =
        [text(b"a"), text(b"1"), text(b"b"), null.to_vec(), text(b"a"), text(b"2")].concat();
    let headers = Headers::parse(&block).unwrap();
    assert_eq!(headers.get(b"a"), Some(&b"1"[..]));
    assert_eq!((headers.get(b"A"), headers.get(b"b")), (None, None));
    let pairs: Vec<_> = headers.collect();
    assert_eq!(pairs, [(&b"a"[..], &b"1"[..]), (b"a", b"2")], "a pair with null is none");
    for end in 1..block.len() {
        let whole = [10, 19].contains(&end);
        assert_eq!(Headers::parse(&block[..end]).is_ok(), whole, "{end}");
    }
    assert!(Headers::parse(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]).is_err());
}

#[test]
fn timeouts_of_zero_and_less_are_none() {
    for (bytes, timeout) in [([0, 0, 0, 0], None), ([0xff; 4], None), ([0, 0, 0, 1], Some(1))] {
        let mut frame = written(&Message::request(V1, 1));
        frame[10..14].copy_from_slice(&bytes);
        let frame = decoded(&frame).unwrap().unwrap();
        assert_eq!(frame.timeout(), timeout.map(Duration::from_millis));
    }
    let short = Message { timeout: Some(Duration::from_nanos(1)), ..Message::request(V1, 1) };
    let frame = decoded(&written(&short)).unwrap().unwrap();
    assert_eq!(frame.timeout(), Some(Duration::from_millis(1)));
}

#[test]
fn a_connection_is_known_by_more_than_its_first_byte() {
    for message in messages() {
        let bytes = written(&message);
        let decided = (1..10).find(|&end| detect(&bytes[..end]) != Detection::Undecided);
        assert_eq!(detect(&bytes), Detection::Bolt);
        assert_eq!(decided, Some(if message.version == V1 { 5 } else { 6 }));
    }
    assert_eq!(detect(b""), Detection::Undecided);
    for other in [
        &b"GET"[..],
        b"\x16\x03\x01",
        b"\x01\x05",
        b"\x02\x09",
        b"\x01\x01\x07",
        b"\x01\x01\x00\x09\x01",
    ] {
        assert_eq!(detect(other), Detection::Other, "{other:?}");
    }
}

#[test]
fn statuses_have_their_names_and_their_places_in_http() {
    assert_eq!(Status(0x12).text(), Some("server deserialise exception"));
    assert_eq!(Status(0x13).text(), None);
    assert_eq!(Status(0x13).to_string(), "status 0x13");
    let http = [Status::SUCCESS, Status::SERVER_BUSY, Status::TIMEOUT, Status::CONNECTION_CLOSED];
    assert_eq!(http.map(Status::to_http), [200, 503, 504, 502]);
    assert_eq!(http.map(|status| Status::from_http(status.to_http())), http);
    assert_eq!(Status::UNKNOWN.to_http(), 500);
}

#[test]
fn a_checksum_that_is_wished_for_where_none_can_be_is_not_there() {
    let mut wished = written(&call(V2, 4));
    wished[11] = 1;
    let frame = decoded(&wished).unwrap().unwrap();
    assert!(!frame.has_checksum());
    assert_eq!(frame.content(), &b"xxxx"[..]);
}

#[test]
fn a_frame_is_a_head_where_it_is_routed() {
    let mut pool = crate::head::HeadPool::default();
    let head = decoded(&written(&call(V1, 3))).unwrap().unwrap().head(&mut pool).unwrap();
    assert_eq!(head.method_bytes(), b"POST");
    assert_eq!(head.path(), b"/com.example.Orders:1.0/list");
    assert_eq!(head.get_bytes(b"service"), Some(&b"com.example.Orders:1.0"[..]));
    let response = Message::response(V2_CRC, 1, Status::SERVER_BUSY);
    let head = decoded(&written(&response)).unwrap().unwrap().head(&mut pool).unwrap();
    assert_eq!((head.status(), head.len()), (503, 0));
}

#[test]
fn no_pair_of_a_block_passes_for_a_field_of_http_or_ends_a_line() {
    let mut headers = BytesMut::new();
    for (key, value) in [
        ("connection", "upgrade"),
        ("not a token", "x"),
        ("evil", "a\r\nb: c"),
        ("service", "a/../b c#d"),
    ] {
        write_header(&mut headers, key.as_bytes(), value.as_bytes());
    }
    let message = Message { headers: headers.freeze(), ..call(V1, 0) };
    let mut pool = crate::head::HeadPool::default();
    let head = decoded(&written(&message)).unwrap().unwrap().head(&mut pool).unwrap();
    assert_eq!(head.get(crate::name::Name::Connection), None);
    let name = crate::head::HeaderName::new("Connection").unwrap();
    assert_eq!(head.get_named(&name), Some(&b"upgrade"[..]), "for a reader that asks by its text");
    assert_eq!(head.get_all(&name).count(), 1);
    assert_eq!(head.get_bytes(b"evil"), Some(&b"a  b: c"[..]));
    assert_eq!(head.path(), b"/a/../b%20c%23d");
    assert_eq!(head.len(), 3);
    let malformed = Message { headers: Bytes::from_static(b"\0\0\0\x09x"), ..call(V1, 0) };
    assert!(decoded(&written(&malformed)).unwrap().unwrap().head(&mut pool).is_err());
}
