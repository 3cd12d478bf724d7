//! How connections end, on our side and on theirs.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use towpath_proto::{Close, Failure, Input, Output, ReadInterest};

use super::scene::{PATIENCE, Scene, pattern};
use super::{Runner, Settings};

fn reset(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

pub fn the_peers_end_leaves_our_direction_open<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    stream.write_all(b"that is all").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    scene.expect_bytes(connection, b"that is all");
    scene.expect_ended(connection);
    scene.quiet();
    scene.send(connection, "not from here");
    scene.close(connection, Close::Flush);
    assert_eq!(read_all(&mut stream), b"not from here");
}

pub fn our_end_leaves_the_peers_direction_open<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    let words = pattern(3_000_000);
    scene.send(connection, words.clone());
    scene.close(connection, Close::Half);
    assert!(read_all(&mut stream) == words);
    stream.write_all(b"still here").unwrap();
    scene.expect_bytes(connection, b"still here");
    stream.shutdown(Shutdown::Write).unwrap();
    scene.expect_ended(connection);
    scene.quiet();
    scene.close(connection, Close::Flush);
    scene.quiet();
}

pub fn a_flushed_close_delivers_everything<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    for unread in [0, 1, 100_000] {
        let (mut stream, connection) = scene.accept(address);
        scene.stop_reading(connection);
        // What we never read must not turn the close into a reset.
        stream.write_all(&vec![1; unread]).unwrap();
        let words = pattern(8_000_000);
        scene.send(connection, words.clone());
        scene.close(connection, Close::Flush);
        thread::sleep(Duration::from_millis(20));
        assert!(read_all(&mut stream) == words);
        drop(stream);
        while let Some(told) = scene.strings.told_within(Duration::from_millis(20)) {
            assert!(matches!(told, Input::Sent { .. }), "{told:?}");
        }
    }
}

pub fn a_flushed_close_bears_a_peer_that_goes_on_talking<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    scene.send(connection, "too much");
    scene.close(connection, Close::Flush);
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    for _ in 0..200 {
        stream.write_all(&[0; 10_000]).unwrap();
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "an end, not a reset");
}

pub fn a_closing_connection_is_cut_when_its_peer_does_nothing<R: Runner>() {
    let linger = Some(Duration::from_millis(200));
    let scene = Scene::with::<R>(Settings { linger, ..Settings::default() });
    let address = scene.listen();
    let (mut deaf, connection) = scene.accept(address);
    scene.send(connection, vec![0; 32 << 20]);
    scene.close(connection, Close::Flush);
    let (idle, second) = {
        loop {
            // `Sent` of the first may still come; the accept comes after it.
            let stream = super::scene::connect(address);
            if let Input::Accepted { connection, .. } = scene.told_beside_sent() {
                break (stream, connection);
            }
        }
    };
    scene.close(second, Close::Flush);
    let counters = scene.running.handle.counters();
    let end = Instant::now() + PATIENCE;
    while counters.closes.value() < 2 {
        assert!(Instant::now() < end, "still there");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(counters.flushes_cut.value(), 1, "only the deaf one lost something");
    assert!(deaf.read_to_end(&mut Vec::new()).is_err(), "and knows it");
    drop(idle);
}

pub fn a_peer_that_goes_on_talking_does_not_put_off_the_end<R: Runner>() {
    let linger = Some(Duration::from_millis(200));
    let scene = Scene::with::<R>(Settings { linger, ..Settings::default() });
    let (mut stream, connection) = scene.pair();
    scene.close(connection, Close::Flush);
    let end = Instant::now() + PATIENCE;
    while stream.write_all(b"and another thing").is_ok() {
        assert!(Instant::now() < end, "it is still listened to");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(scene.running.handle.counters().closes.value(), 1);
}

pub fn what_was_sent_arrives_before_the_reset<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    for bytes in [1, 60, 8_000_000] {
        let (mut stream, connection) = scene.accept(address);
        // Unread bytes turn a close into a reset that overtakes what is still queued.
        stream.write_all(&[1; 1000]).unwrap();
        scene.expect_bytes(connection, &[1; 1000]);
        stream.write_all(&[1; 1000]).unwrap();
        let words = pattern(bytes);
        scene.strings.order_all(vec![
            Output::Send { connection, chunk: words.clone().into() },
            Output::Close { connection, how: Close::FlushReset },
        ]);
        let mut all = Vec::new();
        let error = stream.read_to_end(&mut all).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(all == words, "{} of {bytes} bytes came", all.len());
        while scene.strings.told_within(Duration::from_millis(20)).is_some() {}
    }
}

pub fn a_reset_waits_no_longer_than_a_close_for_a_peer_that_does_not_read<R: Runner>() {
    let linger = Some(Duration::from_millis(200));
    let scene = Scene::with::<R>(Settings { linger, ..Settings::default() });
    let (mut deaf, connection) = scene.pair();
    scene.strings.order_all(vec![
        Output::Send { connection, chunk: vec![0; 32 << 20].into() },
        Output::Close { connection, how: Close::FlushReset },
    ]);
    let end = Instant::now() + PATIENCE;
    while scene.running.handle.counters().closes.value() == 0 {
        assert!(Instant::now() < end, "still there");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(deaf.read_to_end(&mut Vec::new()).is_err());
}

pub fn a_close_at_once_waits_for_nothing<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    let (mut stream, connection) = scene.accept(address);
    scene.send(connection, "said before");
    assert!(matches!(scene.told(), Input::Sent { bytes: 11, .. }));
    scene.close(connection, Close::Now);
    assert_eq!(read_all(&mut stream), b"said before", "and an end, because nothing is lost");
    let (mut deaf, second) = scene.accept(address);
    assert_eq!(scene.running.handle.counters().closes.value(), 1);
    scene.send(second, vec![0; 32 << 20]);
    scene.close(second, Close::Now);
    let error = deaf.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "what is lost must not look complete");
}

pub fn an_abort_is_a_reset<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    scene.send(connection, "this may be lost");
    scene.close(connection, Close::Abort);
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(
        scene
            .strings
            .told_within(Duration::from_millis(100))
            .is_none_or(|told| matches!(told, Input::Sent { .. }))
    );
}

pub fn a_reset_is_told_whether_we_read_or_not<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    for interest in [ReadInterest::On, ReadInterest::Off] {
        let (stream, connection) = scene.accept(address);
        scene.read(connection, interest);
        thread::sleep(Duration::from_millis(20));
        reset(&stream);
        drop(stream);
        assert_eq!(scene.expect_closed(connection), Failure::Reset);
        scene.quiet();
    }
}

pub fn a_reset_after_the_peers_end_is_told<R: Runner>() {
    let scene = Scene::new::<R>();
    let (mut stream, connection) = scene.pair();
    stream.write_all(b"last words").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    scene.expect_bytes(connection, b"last words");
    scene.expect_ended(connection);
    drop(stream);
    // The first answer finds no reader and is answered with a reset, of which the second or the kernel tells.
    scene.send(connection, "hello?");
    thread::sleep(Duration::from_millis(20));
    scene.send(connection, "anybody?");
    assert_eq!(scene.expect_closed(connection), Failure::Reset);
    scene.quiet();
}

pub fn what_the_peer_said_before_it_went_is_read_first<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    for _ in 0..20 {
        let (mut stream, connection) = scene.accept(address);
        scene.stop_reading(connection);
        scene.send(connection, "request");
        let mut request = [0; 7];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"413 too large").unwrap();
        drop(stream);
        thread::sleep(Duration::from_millis(5));
        scene.read(connection, ReadInterest::On);
        scene.send(connection, "more of the request");
        scene.send(connection, "and more");
        scene.expect_bytes(connection, b"413 too large");
        let last = match scene.told_beside_sent() {
            Input::Ended { .. } => {
                scene.send(connection, "and more");
                scene.told_beside_sent()
            }
            other => other,
        };
        assert!(matches!(last, Input::Closed { failure: Failure::Reset, .. }), "{last:?}");
    }
}

pub fn a_closed_id_is_dead<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    let (mut first, old) = scene.accept(address);
    scene.close(old, Close::Flush);
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
    let _ = first.write_all(b"too late");
    drop(first);
    scene.quiet();
    let (mut second, new) = scene.accept(address);
    assert_ne!(old, new);
    scene.send(old, "for none");
    scene.close(old, Close::Abort);
    scene.send(new, "for the new one");
    let mut words = [0; 15];
    second.read_exact(&mut words).unwrap();
    assert_eq!(&words, b"for the new one");
}
