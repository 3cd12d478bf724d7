//! What a client makes of a server that breaks the rules: the cases of h2spec, which are about servers, the other way
//! round.

use super::*;

/// What comes of the frames of a case.
#[derive(Clone, Copy, Debug)]
enum Comes {
    /// They are as they should be: this arrives.
    Arrives(&'static [&'static str]),
    /// The first stream is over with this code, the second is served.
    Resets(Code),
    /// The message is malformed, which ends its stream or the connection as the options say.
    Malformed,
    /// The connection is over.
    Ends(Error),
}
use Comes::{Arrives, Ends, Malformed, Resets};

/// A section of RFC 9113 (or 7541), what the server does, its frames, and what comes of them. A client has asked for
/// two things: by stream 1, which it has ended, and by stream 3, which it has not.
type Case = (&'static str, &'static str, fn(&mut Scene) -> Vec<u8>, Comes);

const OK: &[(&str, &str)] = &[(":status", "200")];

fn ok(scene: &mut Scene, flags: u8) -> Vec<u8> {
    scene.headers(1, flags, OK)
}

fn fields(scene: &mut Scene, flags: u8, more: &[(&str, &str)]) -> Vec<u8> {
    scene.headers(1, flags, &[OK, more].concat())
}

/// A header block as it is.
fn raw(block: &[u8]) -> Vec<u8> {
    frame(Kind::Headers, WHOLE | END, 1, block)
}

/// All of them, one after the other.
fn both(first: Vec<u8>, second: Vec<u8>) -> Vec<u8> {
    [first, second].concat()
}

fn two_parts(scene: &mut Scene, second: Vec<u8>) -> Vec<u8> {
    let block = scene.block(OK);
    both(frame(Kind::Headers, END, 1, &block[..3]), second)
}

const FRAMES: &[Case] = &[
    ("4.1", "a type that is not known", |_| frame(Kind::Unknown, 0, 1, b"xyz"), Arrives(&[])),
    ("4.1", "flags that have no meaning", |_| frame(Kind::Ping, 0xfe, 0, &[0; 8]), Arrives(&[])),
    (
        "4.1",
        "the reserved bit of a stream's number",
        |scene| {
            let mut bytes = ok(scene, END);
            bytes[5] |= 0x80;
            bytes
        },
        Arrives(&["0 200 end"]),
    ),
    (
        "4.2",
        "DATA of 2¹⁴ bytes",
        |scene| both(ok(scene, 0), frame(Kind::Data, END, 1, &[0; 16_384])),
        Arrives(&["0 200", "0 data", "0 end"]),
    ),
    (
        "4.2",
        "DATA that is larger",
        |scene| both(ok(scene, 0), frame(Kind::Data, END, 1, &[0; 16_385])),
        Ends(Error::FrameTooLarge),
    ),
    (
        "4.2",
        "HEADERS that are larger",
        |_| frame(Kind::Headers, END | WHOLE, 1, &[0; 16_385]),
        Ends(Error::FrameTooLarge),
    ),
    ("4.3", "a block that cannot be decoded", |_| raw(&[0x40]), Ends(Error::BadBlock)),
    (
        "4.3",
        "PRIORITY inside a block",
        |scene| two_parts(scene, frame(Kind::Priority, 0, 1, &[0, 0, 0, 0, 9])),
        Ends(Error::BlockInterrupted),
    ),
    (
        "4.3",
        "HEADERS of another stream inside a block",
        |scene| {
            let other = scene.headers(3, END, OK);
            two_parts(scene, other)
        },
        Ends(Error::BlockInterrupted),
    ),
    ("6.1", "DATA of no stream", |_| frame(Kind::Data, END, 0, b"x"), Ends(Error::NoStream)),
    (
        "6.1",
        "padding of DATA that is longer than its frame",
        |scene| both(ok(scene, 0), frame(Kind::Data, frame::PADDED, 1, &[5, b'x', 0])),
        Ends(Error::BadPadding),
    ),
    ("6.2", "HEADERS of no stream", |scene| scene.headers(0, END, OK), Ends(Error::NoStream)),
    (
        "6.2",
        "padding of HEADERS that is longer than its frame",
        |_| frame(Kind::Headers, WHOLE | END | frame::PADDED, 1, &[9, 0x88]),
        Ends(Error::BadPadding),
    ),
    (
        "6.3",
        "PRIORITY of no stream",
        |_| frame(Kind::Priority, 0, 0, &[0; 5]),
        Ends(Error::NoStream),
    ),
    (
        "6.3",
        "PRIORITY of four bytes",
        |_| frame(Kind::Priority, 0, 1, &[0; 4]),
        Ends(Error::BadFrameSize),
    ),
    (
        "6.4",
        "RST_STREAM of no stream",
        |_| frame(Kind::Reset, 0, 0, &[0; 4]),
        Ends(Error::NoStream),
    ),
    (
        "6.4",
        "RST_STREAM of three bytes",
        |_| frame(Kind::Reset, 0, 1, &[0; 3]),
        Ends(Error::BadFrameSize),
    ),
    (
        "6.5",
        "an acknowledgement with content",
        |_| frame(Kind::Settings, frame::ACK, 0, &[0; 6]),
        Ends(Error::BadFrameSize),
    ),
    (
        "6.5",
        "SETTINGS of a stream",
        |_| frame(Kind::Settings, 0, 1, &[0; 6]),
        Ends(Error::UnexpectedStream),
    ),
    (
        "6.5",
        "SETTINGS of three bytes",
        |_| frame(Kind::Settings, 0, 0, &[0; 3]),
        Ends(Error::BadFrameSize),
    ),
    ("6.5.2", "ENABLE_PUSH of a server", |_| settings(&[(2, 1)]), Ends(Error::BadSetting)),
    ("6.5.2", "a window of 2³¹", |_| settings(&[(4, 1 << 31)]), Ends(Error::BadWindowSetting)),
    ("6.5.2", "frames below 2¹⁴", |_| settings(&[(5, 16_383)]), Ends(Error::BadSetting)),
    ("6.5.2", "frames of 2²⁴", |_| settings(&[(5, 1 << 24)]), Ends(Error::BadSetting)),
    ("6.5.2", "a setting that is not known", |_| settings(&[(0xff, 1)]), Arrives(&[])),
    ("6.7", "PING", |_| frame(Kind::Ping, 0, 0, &[1; 8]), Arrives(&[])),
    ("6.7", "an answer to no PING", |_| frame(Kind::Ping, frame::ACK, 0, &[1; 8]), Arrives(&[])),
    (
        "6.7",
        "PING of a stream",
        |_| frame(Kind::Ping, 0, 1, &[0; 8]),
        Ends(Error::UnexpectedStream),
    ),
    ("6.7", "PING of six bytes", |_| frame(Kind::Ping, 0, 0, &[0; 6]), Ends(Error::BadFrameSize)),
    (
        "6.8",
        "GOAWAY of a stream",
        |_| frame(Kind::GoAway, 0, 1, &[0; 8]),
        Ends(Error::UnexpectedStream),
    ),
    (
        "6.8",
        "GOAWAY of seven bytes",
        |_| frame(Kind::GoAway, 0, 0, &[0; 7]),
        Ends(Error::BadFrameSize),
    ),
    (
        "6.9",
        "a WINDOW_UPDATE by nothing",
        |_| frame(Kind::WindowUpdate, 0, 0, &[0; 4]),
        Ends(Error::EmptyWindowUpdate),
    ),
    (
        "6.9",
        "the same of a stream",
        |_| frame(Kind::WindowUpdate, 0, 1, &[0; 4]),
        Resets(Code::PROTOCOL_ERROR),
    ),
    (
        "6.9",
        "a WINDOW_UPDATE of three bytes",
        |_| frame(Kind::WindowUpdate, 0, 0, &[0; 3]),
        Ends(Error::BadFrameSize),
    ),
    (
        "6.9.1",
        "the connection's window beyond 2³¹ - 1",
        |_| frame(Kind::WindowUpdate, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        Ends(Error::WindowOverflow),
    ),
    (
        "6.9.1",
        "a stream's window beyond 2³¹ - 1",
        |_| frame(Kind::WindowUpdate, 0, 1, &[0x7f, 0xff, 0xff, 0xff]),
        Resets(Code::FLOW_CONTROL_ERROR),
    ),
    (
        "6.10",
        "a block in three frames",
        |scene| {
            let block = scene.block(OK);
            let middle = frame(Kind::Continuation, 0, 1, &block[3..5]);
            two_parts(scene, both(middle, frame(Kind::Continuation, WHOLE, 1, &block[5..])))
        },
        Arrives(&["0 200 end"]),
    ),
    (
        "6.10",
        "DATA inside a block",
        |scene| two_parts(scene, frame(Kind::Data, 0, 1, b"x")),
        Ends(Error::BlockInterrupted),
    ),
    (
        "6.10",
        "CONTINUATION of no stream",
        |scene| two_parts(scene, frame(Kind::Continuation, WHOLE, 0, b"")),
        Ends(Error::BlockInterrupted),
    ),
    (
        "6.10",
        "CONTINUATION behind a block's end",
        |scene| both(ok(scene, 0), frame(Kind::Continuation, WHOLE, 1, b"\x88")),
        Ends(Error::UnexpectedContinuation),
    ),
    (
        "6.10",
        "CONTINUATION behind DATA",
        |scene| {
            let data = both(ok(scene, 0), frame(Kind::Data, 0, 1, b"x"));
            both(data, frame(Kind::Continuation, WHOLE, 1, b"\x88"))
        },
        Ends(Error::UnexpectedContinuation),
    ),
    (
        "7",
        "GOAWAY with a code that is not known",
        |_| frame(Kind::GoAway, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0xff]),
        Arrives(&[]),
    ),
    (
        "7",
        "RST_STREAM with a code that is not known",
        |_| frame(Kind::Reset, 0, 1, &[0, 0, 0, 0xff]),
        Arrives(&["0 reset 255"]),
    ),
];

const STREAMS: &[Case] = &[
    (
        "5.1",
        "DATA of a stream that is idle",
        |_| frame(Kind::Data, 0, 5, b"x"),
        Ends(Error::IdleStream),
    ),
    (
        "5.1",
        "HEADERS of a stream that is idle",
        |scene| scene.headers(5, 0, OK),
        Ends(Error::IdleStream),
    ),
    (
        "5.1",
        "RST_STREAM of a stream that is idle",
        |_| frame(Kind::Reset, 0, 5, &[0; 4]),
        Ends(Error::IdleStream),
    ),
    (
        "5.1",
        "WINDOW_UPDATE of a stream that is idle",
        |_| frame(Kind::WindowUpdate, 0, 5, &[0, 0, 0, 9]),
        Ends(Error::IdleStream),
    ),
    (
        "5.1",
        "CONTINUATION of a stream that is idle",
        |_| frame(Kind::Continuation, WHOLE, 5, b""),
        Ends(Error::UnexpectedContinuation),
    ),
    ("5.1.1", "a stream of its own", |scene| scene.headers(2, END, OK), Ends(Error::BadStream)),
    (
        "5.1.1",
        "DATA of a stream of its own",
        |_| frame(Kind::Data, 0, 2, b"x"),
        Ends(Error::IdleStream),
    ),
    (
        "5.3.1",
        "HEADERS that depend on themselves",
        |_| {
            let flags = WHOLE | END | frame::PRIORITY;
            frame(Kind::Headers, flags, 1, &[0, 0, 0, 1, 9, 0x88])
        },
        Ends(Error::BadStream),
    ),
    (
        "5.3.1",
        "PRIORITY that depends on itself",
        |_| frame(Kind::Priority, 0, 1, &[0, 0, 0, 1, 9]),
        Ends(Error::BadStream),
    ),
    (
        "6.9.1",
        "an answer of a window and one byte",
        |scene| {
            let mut bytes = ok(scene, 0);
            for _ in 0..3 {
                bytes.extend(frame(Kind::Data, 0, 1, &[0; 16_384]));
            }
            both(bytes, frame(Kind::Data, 0, 1, &[0; 16_384]))
        },
        Resets(Code::FLOW_CONTROL_ERROR),
    ),
    (
        "8.4",
        "a push",
        |scene| {
            let block = scene.block(GET);
            frame(Kind::Push, WHOLE, 1, &both(vec![0, 0, 0, 2], block))
        },
        Ends(Error::UnexpectedPush),
    ),
];

const MESSAGES: &[Case] = &[
    ("8.1", "content before a head", |_| frame(Kind::Data, END, 1, b"x"), Malformed),
    (
        "8.1",
        "an interim answer that ends",
        |scene| scene.headers(1, END, &[(":status", "103")]),
        Malformed,
    ),
    ("8.1", "a second head within an answer", |scene| both(ok(scene, 0), ok(scene, 0)), Malformed),
    (
        "8.1",
        "trailers that end nothing",
        |scene| both(ok(scene, 0), scene.headers(1, 0, &[("x", "1")])),
        Malformed,
    ),
    ("8.2.1", "an upper-case name", |scene| fields(scene, END, &[("Upper", "1")]), Malformed),
    (
        "8.2.1",
        "a line end in a value",
        |scene| fields(scene, END, &[("x", "a\r\nb: c")]),
        Malformed,
    ),
    ("8.2.1", "NUL in a value", |scene| fields(scene, END, &[("x", "a\0")]), Malformed),
    ("8.2.1", "a colon in a name", |scene| fields(scene, END, &[("x:y", "1")]), Malformed),
    ("8.2.2", "connection", |scene| fields(scene, END, &[("connection", "close")]), Malformed),
    (
        "8.2.2",
        "transfer-encoding",
        |scene| fields(scene, END, &[("transfer-encoding", "chunked")]),
        Malformed,
    ),
    ("8.3", "a pseudo-field that is none", |scene| fields(scene, END, &[(":x", "1")]), Malformed),
    ("8.3", "one of requests", |scene| fields(scene, END, &[(":path", "/")]), Malformed),
    (
        "8.3",
        "one behind others",
        |scene| scene.headers(1, END, &[("x", "1"), (":status", "200")]),
        Malformed,
    ),
    ("8.3", "one in trailers", |scene| both(ok(scene, 0), ok(scene, END)), Malformed),
    ("8.3.2", "no status", |scene| scene.headers(1, END, &[("x", "1")]), Malformed),
    ("8.3.2", "two of them", |scene| fields(scene, END, &[(":status", "200")]), Malformed),
    (
        "8.3.2",
        "a status that is none",
        |scene| scene.headers(1, END, &[(":status", "2x0")]),
        Malformed,
    ),
    (
        "8.1.1",
        "less content than it says",
        |scene| {
            let head = fields(scene, 0, &[("content-length", "2")]);
            both(head, frame(Kind::Data, END, 1, b"x"))
        },
        Malformed,
    ),
    (
        "8.1.1",
        "more content than it says, in two frames",
        |scene| {
            let head = fields(scene, 0, &[("content-length", "2")]);
            let data = both(frame(Kind::Data, 0, 1, b"xy"), frame(Kind::Data, END, 1, b"z"));
            both(head, data)
        },
        Malformed,
    ),
    ("8.1.1", "none", |scene| fields(scene, END, &[("content-length", "1")]), Malformed),
    (
        "8.1.1",
        "two lengths",
        |scene| fields(scene, END, &[("content-length", "0"), ("content-length", "1")]),
        Malformed,
    ),
];

/// Blocks, of RFC 7541.
const BLOCKS: &[Case] = &[
    ("2.3.3", "an index that neither table has", |_| raw(&[0x88, 0xfe]), Ends(Error::BadBlock)),
    ("4.2", "a change of size behind a field", |_| raw(&[0x88, 0x20]), Ends(Error::BadBlock)),
    ("5.1", "an integer without end", |_| raw(&[0xff; 12]), Ends(Error::BadBlock)),
    (
        "5.2",
        "eight bits of padding",
        |_| raw(&[0x88, 0, 0x82, 0x1f, 0xff, 1, b'x']),
        Ends(Error::BadBlock),
    ),
    (
        "5.2",
        "padding that is no end of a string",
        |_| raw(&[0x88, 0, 0x81, 0x18, 1, b'x']),
        Ends(Error::BadBlock),
    ),
    (
        "5.2",
        "the code of a string's end",
        |_| raw(&[0x88, 0, 0x84, 0xff, 0xff, 0xff, 0xff, 1, b'x']),
        Ends(Error::BadBlock),
    ),
    ("6.1", "index zero", |_| raw(&[0x88, 0x80]), Ends(Error::BadBlock)),
    (
        "6.3",
        "a larger table than was offered",
        |_| raw(&[0x3f, 0xe2, 0x1f, 0x88]),
        Ends(Error::BadBlock),
    ),
];

#[test]
fn every_case_comes_to_what_it_should() {
    for (section, does, frames, comes) in [FRAMES, STREAMS, MESSAGES, BLOCKS].concat() {
        for stream_alone in [false, true] {
            let (case, mut client) = (format!("{section}: {does}"), client(stream_alone));
            let bytes = frames(&mut client);
            let arrived = client.feed(&bytes);
            match comes {
                Arrives(wanted) => {
                    let arrived = arrived.unwrap();
                    let kinds = arrived.iter().map(|it| it.split(" data").next().unwrap());
                    let wanted = wanted.iter().map(|it| it.split(" data").next().unwrap());
                    assert!(kinds.eq(wanted), "{case}: {arrived:?}");
                    is_served(&mut client, &case);
                }
                Resets(code) => is_reset(&mut client, arrived, code, &case),
                Malformed if stream_alone => {
                    is_reset(&mut client, arrived, Code::PROTOCOL_ERROR, &case);
                }
                Malformed => is_over(&mut client, arrived, Error::Malformed, &case),
                Ends(error) => is_over(&mut client, arrived, error, &case),
            }
        }
    }
}

/// Streams that have ended: of these a server may say no more.
#[test]
fn what_comes_behind_the_end_of_an_answer_is_not_taken() {
    for (late, error) in [
        (frame(Kind::Data, END, 1, b"late"), Error::StreamClosed),
        (raw(b"\x88"), Error::StreamClosed),
        (frame(Kind::Continuation, WHOLE, 1, b"\x88"), Error::UnexpectedContinuation),
    ] {
        // Its user may not have taken the end yet, or is through with it.
        for is_released in [true, false] {
            let mut client = client(true);
            let head = ok(&mut client, END);
            client.feed(&head).unwrap();
            if is_released {
                client.connection.release(0);
            }
            let arrived = client.feed(&late);
            if !is_released && error == Error::StreamClosed {
                is_reset(&mut client, arrived, Code::STREAM_CLOSED, "half-closed");
            } else {
                is_over(&mut client, arrived, error, "closed");
            }
        }
        // Behind RST_STREAM.
        let mut client = client(true);
        client.feed_frame(Kind::Reset, 0, 1, &[0, 0, 0, 8]).unwrap();
        client.connection.release(0);
        let arrived = client.feed(&late);
        is_over(&mut client, arrived, error, "reset");
    }
    // What closes windows and streams may cross what ends them.
    for late in [frame(Kind::Reset, 0, 1, &[0; 4]), frame(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 9])]
    {
        let mut client = client(true);
        let head = ok(&mut client, END);
        client.feed(&head).unwrap();
        client.connection.release(0);
        assert_eq!(client.feed(&late), Ok(vec![]));
        is_served(&mut client, "late");
    }
}

/// A client that has asked for two things.
fn client(stream_alone: bool) -> Scene {
    let options = Options {
        stream_error_on_malformed: stream_alone,
        stream_window: 65_535,
        connection_window: 200_000,
        ..Options::default()
    };
    let mut client = Scene::client(options);
    assert_eq!(client.ask("GET"), 0);
    let number = client.connection.open().unwrap();
    let head = Head::request(b"POST", b"http", b"a.test", b"/");
    client.connection.send_head(number, &head, false, &mut Out::new());
    client.written();
    client
}

/// The second stream is answered, and the connection goes on.
fn is_served(client: &mut Scene, case: &str) {
    let arrived = client.feed_headers(3, END, OK);
    assert_eq!(arrived, Ok(vec!["1 200 end".to_owned()]), "{case}");
    assert_eq!(client.goaway(), None, "{case}");
}

fn is_reset(client: &mut Scene, arrived: Result<Vec<String>, Error>, code: Code, case: &str) {
    let told = format!("0 reset {}", code.0);
    let last = arrived.as_ref().ok().and_then(|arrived| arrived.last());
    assert_eq!(last, Some(&told), "{case}: {arrived:?}");
    assert_eq!(client.reset_codes(), [(1, code)], "{case}");
    client.connection.release(0);
    is_served(client, case);
}

fn is_over(client: &mut Scene, arrived: Result<Vec<String>, Error>, error: Error, case: &str) {
    assert_eq!(arrived, Err(error), "{case}");
    assert_eq!(client.goaway(), Some(error.code()), "{case}");
    assert_eq!(client.feed_headers(3, END, OK), Err(error), "{case}: what follows means nothing");
    assert_eq!(client.connection.open(), None, "{case}");
}
