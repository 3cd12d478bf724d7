//! Frames, streams and windows: RFC 9113 §3.4 to §6.

use super::*;

#[test]
fn section_3_4_the_preface_and_settings_come_first() {
    let server = || Scene::new(Connection::server(Arc::new(Options::default())));
    for at in 0..PREFACE.len() {
        let mut scene = server();
        assert_eq!(scene.feed(&PREFACE[..at]), Ok(vec![]));
        assert_eq!(scene.feed(&PREFACE[at..]), Ok(vec![]), "in two pieces");
        assert_eq!(scene.feed_frame(Kind::Ping, 0, 0, &[0; 8]), Err(Error::MissingSettings));
        let mut wrong = PREFACE.to_vec();
        wrong[at] ^= 1;
        assert_eq!(server().feed(&wrong), Err(Error::BadPreface));
    }
    let mut scene = server();
    assert_eq!(scene.feed(b"GET / HTTP/1.1\r\n\r\n"), Err(Error::BadPreface));
    assert_eq!(scene.goaway(), Some(Code::PROTOCOL_ERROR));
    let mut client = Scene::new(Connection::client(Arc::new(Options::default())));
    assert_eq!(client.feed_frame(Kind::Settings, 1, 0, b""), Err(Error::MissingSettings));
}

#[test]
fn section_4_frames_of_unknown_types_are_ignored_and_large_ones_refused() {
    let mut scene = Scene::server(Options::default());
    assert_eq!(scene.feed_frame(Kind::Unknown, 0xff, 7, b"whatever"), Ok(vec![]));
    assert_eq!(scene.feed(&frame(Kind::Ping, 0, 0, &[7; 8])), Ok(vec![]));
    assert_eq!(scene.written(), [(Kind::Ping, frame::ACK, 0, vec![7; 8])]);
    let mut scene = Scene::server(Options::default());
    let large = frame(Kind::Data, 0, 1, &[0; 16_385]);
    assert_eq!(scene.feed(&large), Err(Error::FrameTooLarge));
    assert_eq!(scene.goaway(), Some(Code::FRAME_SIZE_ERROR));
    let mut scene = Scene::server(Options { max_frame_size: 20_000, ..Options::default() });
    assert_eq!(scene.feed_frame(Kind::Unknown, 0, 0, &[0; 20_000]), Ok(vec![]));
}

#[test]
fn section_4_3_nothing_stands_inside_a_header_block() {
    let mut scene = Scene::server(Options::default());
    let block = scene.block(GET);
    scene.feed_frame(Kind::Headers, END, 1, &block[..5]).unwrap();
    assert_eq!(scene.feed_frame(Kind::Continuation, 0, 1, &block[5..9]), Ok(vec![]));
    let head = scene.feed_frame(Kind::Continuation, WHOLE, 1, &block[9..]).unwrap();
    assert_eq!(head, ["0 GET http a.test / end"]);
    for (kind, id) in [(Kind::Data, 3), (Kind::Headers, 3), (Kind::Ping, 0), (Kind::Unknown, 0)] {
        let mut scene = Scene::server(Options::default());
        scene.feed_frame(Kind::Headers, END, 3, &block[..5]).unwrap();
        let payload = if kind == Kind::Ping { &[0; 8][..] } else { b"" };
        assert_eq!(scene.feed_frame(kind, 0, id, payload), Err(Error::BlockInterrupted));
    }
    let mut scene = Scene::server(Options::default());
    scene.feed_frame(Kind::Headers, END, 3, &block[..5]).unwrap();
    let other = scene.feed_frame(Kind::Continuation, WHOLE, 5, &block[5..]);
    assert_eq!(other, Err(Error::BlockInterrupted));
    let mut scene = Scene::server(Options::default());
    let alone = scene.feed_frame(Kind::Continuation, WHOLE, 1, b"");
    assert_eq!(alone, Err(Error::UnexpectedContinuation));
    let mut scene = Scene::server(Options::default());
    assert_eq!(scene.feed_frame(Kind::Headers, WHOLE | END, 1, &[0xff]), Err(Error::BadBlock));
    assert_eq!(scene.goaway(), Some(Code::COMPRESSION_ERROR));
}

#[test]
fn section_5_1_frames_for_streams_that_are_idle_or_over() {
    for (kind, payload) in
        [(Kind::Data, &b""[..]), (Kind::Reset, &[0; 4]), (Kind::WindowUpdate, &[0, 0, 0, 1])]
    {
        let mut scene = Scene::server(Options::default());
        assert_eq!(scene.feed_frame(kind, END, 1, payload), Err(Error::IdleStream), "{kind:?}");
    }
    // Half-closed (remote): the client has ended.
    for late in [frame(Kind::Data, END, 1, b"x"), frame(Kind::Headers, END | WHOLE, 1, b"\x82")] {
        let mut scene = Scene::server(Options::default());
        scene.feed_headers(1, END, GET).unwrap();
        let arrived = scene.feed(&late);
        assert_eq!(arrived, Ok(vec!["0 reset 5".to_owned()]));
        assert_eq!(scene.reset_codes(), [(1, Code::STREAM_CLOSED)]);
    }
    // Closed by both.
    let over = || {
        let mut scene = Scene::server(Options::default());
        scene.feed_headers(1, END, GET).unwrap();
        scene.connection.send_head(0, &Head::response(200), true, &mut Out::new());
        scene.connection.release(0);
        assert_eq!(scene.connection.streams(), 0);
        scene
    };
    assert_eq!(over().feed_headers(1, END, GET), Err(Error::StreamClosed));
    let mut scene = over();
    assert_eq!(scene.feed_frame(Kind::Data, END, 1, b"x"), Ok(vec![]));
    assert_eq!(scene.reset_codes(), [(1, Code::STREAM_CLOSED)]);
    assert_eq!(over().feed_frame(Kind::Reset, 0, 1, &[0; 4]), Ok(vec![]));
    assert_eq!(over().feed_frame(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 1]), Ok(vec![]));
    // Reset by us: what was under way is ignored, but for the table and the window.
    let mut scene = Scene::server(Options::default());
    scene.feed_headers(1, 0, POST).unwrap();
    scene.connection.reset(0, Code::CANCEL);
    assert_eq!(scene.reset_codes(), [(1, Code::CANCEL)]);
    for _ in 0..2 {
        assert_eq!(scene.feed_frame(Kind::Data, 0, 1, b"late"), Ok(vec![]));
        scene.connection.release(0);
    }
    assert_eq!(scene.feed_headers(1, END, &[("x-late", "1")]), Ok(vec![]));
    assert_eq!(scene.written(), []);
}

#[test]
fn section_5_1_1_numbers_are_odd_and_ascend() {
    let mut scene = Scene::server(Options::default());
    assert_eq!(scene.feed_headers(2, END, GET), Err(Error::BadStream));
    let mut scene = Scene::server(Options::default());
    scene.feed_headers(5, END, GET).unwrap();
    assert_eq!(scene.feed_headers(3, END, GET), Err(Error::BadStream));
    let mut scene = Scene::server(Options::default());
    assert_eq!(scene.feed_headers(0, END, GET), Err(Error::NoStream));
    let mut client = Scene::client(Options::default());
    client.ask("GET");
    assert_eq!(client.feed_headers(3, END, &[(":status", "200")]), Err(Error::IdleStream));
    let mut client = Scene::client(Options::default());
    assert_eq!(client.feed_headers(2, END, &[(":status", "200")]), Err(Error::BadStream));
}

#[test]
fn section_5_1_2_more_streams_than_allowed_are_refused() {
    let mut scene = Scene::server(Options { max_concurrent_streams: 2, ..Options::default() });
    for id in [1, 3] {
        assert_eq!(scene.feed_headers(id, END, GET).unwrap().len(), 1);
    }
    assert_eq!(scene.feed_headers(5, END, GET), Ok(vec![]));
    assert_eq!(scene.reset_codes(), [(5, Code::REFUSED_STREAM)]);
    scene.connection.send_head(0, &Head::response(200), true, &mut Out::new());
    scene.connection.release(0);
    assert_eq!(scene.feed_headers(7, END, GET).unwrap(), ["0 GET http a.test / end"]);
    // A client begins as many as the server takes.
    let mut client = Scene::client(Options::default());
    assert_eq!(client.connection.capacity(), 100);
    client.feed(&settings(&[(3, 2)])).unwrap();
    let first = client.ask("GET");
    client.ask("GET");
    assert_eq!((client.connection.open(), client.connection.capacity()), (None, 0));
    let refused = client.feed_frame(Kind::Reset, 0, 1, &[0, 0, 0, 7]);
    assert_eq!(refused, Ok(vec![format!("{first} refused")]));
    client.connection.release(first);
    assert_eq!(client.connection.capacity(), 1);
}

#[test]
fn section_5_2_windows_of_streams_and_of_the_connection() {
    let mut scene = Scene::server(Options::default());
    scene.feed(&settings(&[(4, 10)])).unwrap();
    for id in [1, 3] {
        scene.feed_headers(id, END, GET).unwrap();
        let number = id / 2;
        scene.connection.send_head(number, &Head::response(200), false, &mut Out::new());
        assert_eq!(scene.connection.writable(number), 10);
        scene.connection.send_data(number, Bytes::from_static(b"0123456789abcdef"));
        scene.connection.send_end(number);
        assert_eq!(scene.connection.writable(number), 0);
        scene.connection.release(number);
    }
    let data = |id, flags, data: &[u8]| (Kind::Data, flags, id, data.to_vec());
    let frames = scene.written();
    assert_eq!(frames, [data(1, 0, b"0123456789"), data(3, 0, b"0123456789")]);
    scene.feed_frame(Kind::WindowUpdate, 0, 3, &[0, 0, 0, 2]).unwrap();
    assert_eq!(scene.written(), [data(3, 0, b"ab")]);
    // A larger initial window opens all; the last piece says that it is.
    scene.feed(&settings(&[(4, 14)])).unwrap();
    assert_eq!(scene.written()[1..], [data(1, 0, b"abcd"), data(3, END, b"cdef")]);
    assert_eq!(scene.connection.streams(), 1);
    scene.feed_frame(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 9]).unwrap();
    assert_eq!(scene.written(), [data(1, END, b"ef")]);
    assert_eq!(scene.connection.streams(), 0);
}

#[test]
fn section_5_2_the_connections_window_is_shared_in_turn() {
    let mut scene = Scene::server(Options::default());
    scene.feed(&settings(&[(4, 1 << 20)])).unwrap();
    for id in [1, 3] {
        scene.feed_headers(id, END, GET).unwrap();
        scene.connection.send_head(id / 2, &Head::response(200), false, &mut Out::new());
    }
    scene.written();
    scene.connection.send_data(0, vec![1; 100_000].into());
    scene.connection.send_data(1, vec![3; 40_000].into());
    let sizes = |frames: Vec<Written>| -> Vec<(u32, usize)> {
        frames.into_iter().map(|(_, _, id, payload)| (id, payload.len())).collect()
    };
    let first = sizes(scene.written());
    assert_eq!(first, [(1, 16_384), (3, 16_384), (1, 16_384), (3, 16_383)], "65,535 in all");
    assert_eq!(scene.connection.writable(1), 0);
    scene.connection.take_opened();
    scene.feed_frame(Kind::WindowUpdate, 0, 0, &[0, 0, 0x40, 0]).unwrap();
    assert_eq!(scene.connection.take_opened(), [0, 1]);
    assert_eq!(sizes(scene.written()), [(1, 16_384)]);
    scene.feed_frame(Kind::WindowUpdate, 0, 0, &[0, 0, 0x40, 0]).unwrap();
    assert_eq!(sizes(scene.written()), [(3, 7_233), (1, 9_151)], "the other has its turn");
}

#[test]
fn section_6_1_data_beyond_a_window_is_refused() {
    let options = Options { stream_window: 65_535, connection_window: 65_535, ..lenient() };
    let mut scene = Scene::server(options.clone());
    scene.feed_headers(1, 0, POST).unwrap();
    for _ in 0..3 {
        scene.feed_frame(Kind::Data, 0, 1, &[0; 16_384]).unwrap();
    }
    assert!(!scene.connection.has_output(), "nothing has a place yet");
    assert_eq!(scene.feed_frame(Kind::Data, 0, 1, &[0; 16_384]), Err(Error::WindowExceeded));
    assert_eq!(scene.goaway(), Some(Code::FLOW_CONTROL_ERROR));
    let mut scene = Scene::server(Options { connection_window: 100_000, ..options });
    scene.feed_headers(1, 0, POST).unwrap();
    for _ in 0..3 {
        scene.feed_frame(Kind::Data, 0, 1, &[0; 16_384]).unwrap();
    }
    let arrived = scene.feed_frame(Kind::Data, 0, 1, &[0; 16_384]).unwrap();
    assert_eq!(arrived, ["0 reset 3"]);
    assert_eq!(scene.reset_codes(), [(1, Code::FLOW_CONTROL_ERROR)]);
}

#[test]
fn section_6_1_what_has_a_place_opens_both_windows_and_padding_does_by_itself() {
    let options = Options { stream_window: 65_535, connection_window: 65_535, ..lenient() };
    let mut scene = Scene::server(options);
    scene.feed_headers(1, 0, POST).unwrap();
    scene.written();
    scene.feed_frame(Kind::Data, 0, 1, &[0; 16_384]).unwrap();
    scene.feed_frame(Kind::Data, 0, 1, &[0; 16_384]).unwrap();
    assert_eq!(scene.written(), []);
    scene.connection.consumed(0);
    let update = |id, more: u32| (Kind::WindowUpdate, 0, id, more.to_be_bytes().to_vec());
    assert_eq!(scene.written(), [update(1, 32_768), update(0, 32_768)]);
    let mut padded = vec![255];
    padded.extend_from_slice(&[b'x'; 3]);
    padded.extend_from_slice(&[0; 255]);
    for _ in 0..200 {
        let arrived = scene.feed_frame(Kind::Data, frame::PADDED, 1, &padded).unwrap();
        assert_eq!(arrived, ["0 data xxx"]);
        scene.connection.consumed(0);
        scene.written();
    }
}

#[test]
fn section_6_padding_and_sizes() {
    let mut scene = Scene::server(Options::default());
    let mut block = vec![3];
    block.extend_from_slice(&[0, 0, 0, 5, 200]);
    block.extend_from_slice(&scene.block(GET));
    block.extend_from_slice(&[0; 3]);
    let flags = WHOLE | END | frame::PADDED | frame::PRIORITY;
    let arrived = scene.feed_frame(Kind::Headers, flags, 1, &block).unwrap();
    assert_eq!(arrived, ["0 GET http a.test / end"]);
    type Case = (Kind, u8, u32, &'static [u8], Error);
    let wrong: &[Case] = &[
        (Kind::Headers, WHOLE | frame::PADDED, 3, b"", Error::BadFrameSize),
        (Kind::Headers, WHOLE | frame::PADDED, 3, b"\x02x", Error::BadPadding),
        (Kind::Headers, WHOLE | frame::PRIORITY, 3, b"1234", Error::BadFrameSize),
        (Kind::Headers, WHOLE | frame::PRIORITY, 3, b"\0\0\0\x03\0", Error::BadStream),
        (Kind::Data, frame::PADDED, 1, b"", Error::BadFrameSize),
        (Kind::Data, frame::PADDED, 1, b"\x01", Error::BadPadding),
        (Kind::Data, 0, 0, b"x", Error::NoStream),
        (Kind::Priority, 0, 0, b"12345", Error::NoStream),
        (Kind::Priority, 0, 1, b"1234", Error::BadFrameSize),
        (Kind::Priority, 0, 1, b"\0\0\0\x01\0", Error::BadStream),
        (Kind::Reset, 0, 0, b"1234", Error::NoStream),
        (Kind::Reset, 0, 1, b"123", Error::BadFrameSize),
        (Kind::Settings, 0, 1, b"", Error::UnexpectedStream),
        (Kind::Settings, 0, 0, b"12345", Error::BadFrameSize),
        (Kind::Settings, frame::ACK, 0, b"123456", Error::BadFrameSize),
        (Kind::Push, 0, 1, b"1234", Error::UnexpectedPush),
        (Kind::Ping, 0, 1, b"12345678", Error::UnexpectedStream),
        (Kind::Ping, 0, 0, b"1234567", Error::BadFrameSize),
        (Kind::GoAway, 0, 1, b"12345678", Error::UnexpectedStream),
        (Kind::GoAway, 0, 0, b"1234567", Error::BadFrameSize),
        (Kind::WindowUpdate, 0, 0, b"123", Error::BadFrameSize),
        (Kind::WindowUpdate, 0, 0, &[0; 4], Error::EmptyWindowUpdate),
        (Kind::WindowUpdate, 0, 0, &[0x7f, 0xff, 0xff, 0xff], Error::WindowOverflow),
    ];
    for &(kind, flags, id, payload, error) in wrong {
        let mut scene = Scene::server(Options::default());
        scene.feed_headers(1, 0, POST).unwrap();
        assert_eq!(scene.feed_frame(kind, flags, id, payload), Err(error), "{kind:?}");
        assert_eq!(scene.goaway(), Some(error.code()));
        assert_eq!(scene.feed(b"more"), Err(error), "what follows means nothing");
        assert_eq!(scene.connection.buffered(), 0);
    }
}

#[test]
fn section_6_5_settings_are_checked_applied_and_acknowledged() {
    for (name, value, error) in [
        (2, 2, Error::BadSetting),
        (4, 1 << 31, Error::BadWindowSetting),
        (5, 16_383, Error::BadSetting),
        (5, 1 << 24, Error::BadSetting),
        (8, 2, Error::BadSetting),
    ] {
        let mut scene = Scene::server(Options::default());
        assert_eq!(scene.feed(&settings(&[(name, value)])), Err(error), "{name} {value}");
    }
    let mut client = Scene::client(Options::default());
    assert_eq!(client.feed(&settings(&[(2, 1)])), Err(Error::BadSetting), "servers push nothing");
    let mut scene = Scene::server(Options::default());
    scene.feed(&settings(&[(99, 1), (1, 0), (3, 1), (5, 20_000), (6, 1)])).unwrap();
    assert_eq!(scene.written(), [(Kind::Settings, frame::ACK, 0, vec![])]);
    // What we say ourselves.
    let options = Options { header_table_size: 100, allow_connect: true, ..Options::default() };
    let said = Scene::new(Connection::server(Arc::new(options))).written();
    let (kind, flags, id, payload) = &said[0];
    assert_eq!((*kind, *flags, *id), (Kind::Settings, 0, 0));
    let parameters: Vec<(u16, u32)> = payload
        .chunks(6)
        .map(|it| (u16::from_be_bytes([it[0], it[1]]), frame::number(&it[2..]).unwrap()))
        .collect();
    assert_eq!(parameters, [(1, 100), (3, 1024), (4, 16 << 20), (6, 60 << 10), (8, 1)]);
    let more: u32 = (24 << 20) - 65_535;
    assert_eq!(said[1], (Kind::WindowUpdate, 0, 0, more.to_be_bytes().to_vec()));
}

#[test]
fn section_6_5_2_a_smaller_table_counts_once_it_is_acknowledged() {
    let options = Options { header_table_size: 0, ..Options::default() };
    let mut scene = Scene::server(options);
    // An entry in the table of 4,096 bytes, which is allowed until our SETTINGS are taken.
    let mut block = BytesMut::new();
    for (name, value) in GET {
        let name = FieldName::resolve(name.as_bytes());
        scene.encoder.field(name, value.as_bytes(), false, &mut block);
    }
    scene.feed_frame(Kind::Headers, WHOLE | END, 1, &block).unwrap();
    scene.feed_frame(Kind::Settings, frame::ACK, 0, b"").unwrap();
    scene.encoder.set_max_size(0);
    let mut block = BytesMut::new();
    scene.encoder.begin(&mut block);
    for (name, value) in GET {
        let name = FieldName::resolve(name.as_bytes());
        scene.encoder.field(name, value.as_bytes(), false, &mut block);
    }
    let arrived = scene.feed_frame(Kind::Headers, WHOLE | END, 3, &block).unwrap();
    assert_eq!(arrived, ["1 GET http a.test / end"]);
}

#[test]
fn section_6_8_a_server_goes_away_in_two_steps() {
    let mut scene = Scene::server(Options::default());
    scene.feed_headers(1, END, GET).unwrap();
    scene.written();
    assert!(scene.connection.go_away_soon());
    assert!(!scene.connection.go_away_soon());
    let frames = scene.written();
    assert_eq!(frames[0], (Kind::GoAway, 0, 0, vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
    let (kind, _, _, opaque) = frames[1].clone();
    assert_eq!(kind, Kind::Ping);
    assert_eq!(scene.feed_headers(3, END, GET).unwrap().len(), 1, "it was on its way");
    scene.feed_frame(Kind::Ping, frame::ACK, 0, &opaque).unwrap();
    assert_eq!(scene.written(), [(Kind::GoAway, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    assert_eq!(scene.feed_headers(5, 0, POST), Ok(vec![]), "it is not looked at");
    assert_eq!(scene.feed_frame(Kind::Data, 0, 5, b"late"), Ok(vec![]));
    assert_eq!(scene.feed_headers(5, END, &[("x-late", "1")]), Ok(vec![]));
    for number in [0, 1] {
        scene.connection.send_head(number, &Head::response(200), true, &mut Out::new());
        scene.connection.release(number);
    }
    assert_eq!(scene.connection.streams(), 0);
}

#[test]
fn section_6_8_a_server_that_goes_away_answers_what_it_says() {
    let mut client = Scene::client(Options::default());
    let (first, second) = (client.ask("GET"), client.ask("GET"));
    assert_eq!(client.connection.peer_left(), None);
    let arrived = client.feed_frame(Kind::GoAway, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]).unwrap();
    assert_eq!(arrived, [format!("{second} refused")]);
    assert_eq!(client.connection.peer_left(), Some(Code::ENHANCE_YOUR_CALM));
    assert_eq!(client.connection.goaways_received(), 1);
    assert!(client.connection.is_exhausted());
    assert_eq!(client.connection.open(), None);
    client.connection.release(second);
    let arrived = client.feed_headers(1, END, &[(":status", "200")]).unwrap();
    assert_eq!(arrived, [format!("{first} 200 end")]);
}

#[test]
fn section_6_7_a_ping_of_ours_is_answered() {
    let mut client = Scene::client(Options::default());
    client.written();
    assert!(client.connection.ask());
    assert!(!client.connection.ask(), "the first is not answered");
    let (kind, flags, _, opaque) = client.written()[0].clone();
    assert_eq!((kind, flags), (Kind::Ping, 0));
    client.feed_frame(Kind::Ping, frame::ACK, 0, b"whatever").unwrap();
    assert!(client.connection.is_asked());
    client.feed_frame(Kind::Ping, frame::ACK, 0, &opaque).unwrap();
    assert!(!client.connection.is_asked());
}

#[test]
fn section_6_9_windows_of_streams_have_their_limits() {
    for (more, code) in
        [([0; 4], Code::PROTOCOL_ERROR), ([0x7f, 0xff, 0xff, 0xff], Code::FLOW_CONTROL_ERROR)]
    {
        let mut scene = Scene::server(Options::default());
        scene.feed_headers(1, 0, POST).unwrap();
        let arrived = scene.feed_frame(Kind::WindowUpdate, 0, 1, &more).unwrap();
        assert_eq!(arrived, [format!("0 reset {}", code.0)]);
        assert_eq!(scene.reset_codes(), [(1, code)]);
    }
    let mut scene = Scene::server(Options::default());
    scene.feed_headers(1, 0, POST).unwrap();
    scene.feed_frame(Kind::WindowUpdate, 0, 1, &[0x7f, 0xff, 0, 0]).unwrap();
    let overflow = scene.feed(&settings(&[(4, 65_535 + 0xffff + 1)]));
    assert_eq!(overflow, Err(Error::BadWindowSetting));
}

#[test]
fn section_6_5_3_of_two_table_sizes_in_one_frame_the_smaller_one_is_told_too() {
    let mut scene = Scene::server(Options::default());
    scene.feed(&settings(&[(1, 0), (1, 4096), (1, 4096)])).unwrap();
    scene.feed_headers(1, END, GET).unwrap();
    let mut out = Out::new();
    scene.connection.send_head(0, &Head::response(200), true, &mut out);
    let frames = scene.frames(&mut out);
    let (kind, .., block) = frames.last().unwrap();
    // RFC 7541 §6.3: no table, one of 4,096 bytes, and 200.
    assert_eq!((*kind, &block[..]), (Kind::Headers, &[0x20, 0x3f, 0xe1, 0x1f, 0x88][..]));
    // What grows alone needs no word.
    scene.feed(&settings(&[(1, 8192)])).unwrap();
    scene.feed_headers(3, END, GET).unwrap();
    let mut out = Out::new();
    scene.connection.send_head(1, &Head::response(200), true, &mut out);
    let frames = scene.frames(&mut out);
    assert_eq!(frames.last().unwrap().3, [0x88]);
}

#[test]
fn parameters_that_are_written_out_stand_before_those_of_the_options() {
    let said = |connection: Connection| {
        let frames = Scene::new(connection).written();
        let (kind, _, _, payload) = &frames[0];
        assert_eq!(*kind, Kind::Settings);
        let parameters = payload.as_chunks::<6>().0.iter();
        parameters
            .map(|it| (u16::from_be_bytes([it[0], it[1]]), frame::number(&it[2..]).unwrap()))
            .collect::<Vec<_>>()
    };
    let custom = [(9, 1), (2, 0), (1, 100), (3, 7), (6, 5000), (5, 16_384)];
    let options = Arc::new(Options {
        custom_settings: custom.into(),
        stream_window: 65_535,
        ..Options::default()
    });
    let own = [(1, 4096), (3, 1024), (5, 16_384)];
    assert_eq!(said(Connection::server(Arc::clone(&options))), [&custom[..], &own].concat());
    let of_client = [(9, 1), (1, 100), (3, 7), (6, 5000), (5, 16_384)];
    let own = [(1, 4096), (2, 0), (3, 1024), (5, 16_384)];
    assert_eq!(said(Connection::client(options)), [&of_client[..], &own].concat());
    let many = Options { custom_settings: vec![(77, 1); 5000].into(), ..Options::default() };
    assert!(said(Connection::server(Arc::new(many))).len() < 2000);
}

#[test]
fn values_of_ascii_alone_are_wanted_where_the_options_say_so() {
    let request = |ascii_values, field: (&str, &str)| {
        let mut scene = Scene::server(Options { ascii_values, ..lenient() });
        let fields = [GET, &[field]].concat();
        scene.feed_headers(1, END, &fields).unwrap();
        scene.reset_codes()
    };
    for field in [("x-a", "\u{e9}"), ("cookie", "\u{e9}"), ("user-agent", "a\u{e9}")] {
        assert_eq!(request(false, field), []);
        assert_eq!(request(true, field), [(1, Code::PROTOCOL_ERROR)], "{field:?}");
    }
    assert_eq!(request(true, ("x-a", "plain\u{7f}")), request(false, ("x-a", "plain\u{7f}")));
}
