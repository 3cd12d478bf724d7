//! What a peer can have us do ends: RFC 9113 §10.5.

use super::*;

/// Feeds the same until the connection is over; how often.
fn feed_until(scene: &mut Scene, mut next: impl FnMut(&mut Scene, u32) -> Vec<u8>) -> (u32, Error) {
    for turn in 0..100_000 {
        let bytes = next(scene, turn);
        if let Err(error) = scene.feed(&bytes) {
            assert_eq!(error.code(), Code::ENHANCE_YOUR_CALM);
            assert_eq!(scene.goaway(), Some(Code::ENHANCE_YOUR_CALM));
            return (turn, error);
        }
    }
    panic!("it may go on for ever");
}

#[test]
fn streams_that_are_given_up_at_once() {
    let mut scene = Scene::server(Options::default());
    let (turns, error) = feed_until(&mut scene, |scene, turn| {
        scene.connection.release(0);
        let mut bytes = scene.headers(2 * turn + 1, END, GET);
        bytes.extend(frame(Kind::Reset, 0, 2 * turn + 1, &[0, 0, 0, 8]));
        scene.connection.sent(0);
        bytes
    });
    assert_eq!((turns, error), (500, Error::Resets));
}

#[test]
fn streams_that_we_are_made_to_reset() {
    let mut scene = Scene::server(lenient());
    let (turns, error) = feed_until(&mut scene, |scene, turn| {
        scene.connection.release(0);
        let mut bytes = scene.headers(2 * turn + 1, END, GET);
        bytes.extend(frame(Kind::WindowUpdate, 0, 2 * turn + 1, &[0; 4]));
        scene.written();
        scene.connection.sent(0);
        bytes
    });
    assert_eq!((turns, error), (500, Error::Resets));
    // Malformed ones as well, and those beyond the limit.
    let mut scene = Scene::server(lenient());
    let (turns, _) = feed_until(&mut scene, |scene, turn| {
        scene.written();
        scene.connection.sent(0);
        scene.headers(2 * turn + 1, END, &[("x", "y")])
    });
    assert_eq!(turns, 500);
}

#[test]
fn questions_whose_answers_are_not_read() {
    for bytes in [frame(Kind::Ping, 0, 0, &[0; 8]), settings(&[])] {
        let mut scene = Scene::server(Options::default());
        let (turns, error) = feed_until(&mut scene, |_, _| bytes.clone());
        assert_eq!(error, Error::OutboundControlFrames);
        assert!((999..=1000).contains(&turns), "{turns}");
        // A peer that reads may go on asking.
        let mut scene = Scene::server(Options::default());
        for _ in 0..5000 {
            scene.feed(&bytes).unwrap();
            scene.written();
            scene.connection.sent(0);
        }
    }
}

#[test]
fn frames_without_content() {
    let mut scene = Scene::server(Options::default());
    scene.feed_headers(1, 0, POST).unwrap();
    let (turns, error) = feed_until(&mut scene, |_, _| frame(Kind::Data, 0, 1, b""));
    assert_eq!((turns, error), (1, Error::EmptyFrames));
    let mut scene = Scene::server(Options::default());
    scene.feed_frame(Kind::Headers, 0, 1, b"x").unwrap();
    let (turns, error) = feed_until(&mut scene, |_, _| frame(Kind::Continuation, 0, 1, b""));
    assert_eq!((turns, error), (1, Error::EmptyFrames));
}

#[test]
fn header_blocks_without_an_end() {
    let mut scene = Scene::server(Options::default());
    scene.feed_frame(Kind::Headers, 0, 1, b"x").unwrap();
    let (turns, error) = feed_until(&mut scene, |_, _| frame(Kind::Continuation, 0, 1, b"x"));
    assert_eq!((turns, error), (22, Error::BlockTooLarge));
    let mut scene = Scene::server(Options::default());
    scene.feed_frame(Kind::Headers, 0, 1, b"x").unwrap();
    let (turns, error) =
        feed_until(&mut scene, |_, _| frame(Kind::Continuation, 0, 1, &[0; 16_384]));
    assert_eq!((turns, error), (8, Error::BlockTooLarge));
}

#[test]
fn priorities_and_windows_without_data() {
    let mut scene = Scene::server(Options::default());
    let (turns, error) =
        feed_until(&mut scene, |_, _| frame(Kind::Priority, 0, 1, &[0, 0, 0, 3, 9]));
    assert_eq!((turns, error), (100, Error::PriorityFrames));
    let mut scene = Scene::server(Options::default());
    scene.feed_headers(1, 0, POST).unwrap();
    let (turns, error) =
        feed_until(&mut scene, |_, _| frame(Kind::WindowUpdate, 0, 1, &[0, 0, 0, 1]));
    assert_eq!((turns, error), (7, Error::WindowUpdates));
}

#[test]
fn a_bomb_of_fields_is_read_and_not_kept() {
    let mut scene = Scene::server(Options::default());
    let mut block = BytesMut::new();
    let value = [b'v'; 3000];
    scene.encoder.field(FieldName::Other(b"x-bomb"), &value, false, &mut block);
    let mut bomb = scene.block(GET);
    bomb.extend_from_slice(&block);
    // Each byte is the whole field once more.
    bomb.extend(std::iter::repeat_n(0xbe, 16_000 - bomb.len()));
    let arrived = scene.feed_frame(Kind::Headers, WHOLE | END, 1, &bomb);
    assert!(arrived == Ok(vec![]) || arrived == Err(Error::BlockTooLarge), "{arrived:?}");
    assert!(size_of::<Connection>() <= 1024, "{}", size_of::<Connection>());
}

/// Each of these would else be a look at every stream.
#[test]
fn windows_that_change_again_and_again_are_looked_at_once() {
    let options = Options { max_concurrent_streams: 500, ..Options::default() };
    let mut scene = Scene::server(options);
    for stream in 0..500 {
        scene.feed_headers(2 * stream + 1, END, GET).unwrap();
    }
    let all: Vec<u8> = (0..900).flat_map(|turn| settings(&[(4, 70_000 + turn)])).collect();
    scene.feed(&all).unwrap();
    assert_eq!(scene.connection.take_opened().len(), 500);
    assert!(scene.connection.take_opened().is_empty());
    // All are looked at only where one may be too wide; here it is a stream that is over.
    scene.feed_frame(Kind::WindowUpdate, 0, 1, &[0x7f, 0, 0, 0]).unwrap();
    scene.feed_frame(Kind::Reset, 0, 1, &[0, 0, 0, 8]).unwrap();
    scene.connection.release(0);
    scene.feed(&settings(&[(4, (1 << 31) - 1)])).unwrap();
    scene.feed(&settings(&[(4, 0)])).unwrap();
    scene.feed_frame(Kind::WindowUpdate, 0, 3, &[0x7f, 0, 0, 0]).unwrap();
    assert_eq!(scene.feed(&settings(&[(4, (1 << 31) - 1)])), Err(Error::BadWindowSetting));
}
