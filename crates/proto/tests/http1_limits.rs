//! Every limit at zero, at the limit and one past it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod wire;

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::http1::{Client, Error, Options, Server};
use towpath_proto::{COPY_LIMIT, Event, Out};
use towpath_proto::{Head, HeadPool};
use wire::poll_all;

const HEAD: &str = "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";

#[test]
fn head_bytes() {
    let length = HEAD.len() as u32;
    for (limit, expected) in [
        (0, Some(Error::HeadTooLarge)),
        (length - 1, Some(Error::HeadTooLarge)),
        (length, None),
        (length + 1, None),
        (u32::MAX, None),
    ] {
        for cut in 0..HEAD.len() {
            let options = Options { max_head_bytes: limit, ..Options::default() };
            assert_eq!(request_error(options, HEAD, cut), expected, "limit {limit} cut at {cut}");
        }
    }
}

#[test]
fn fields() {
    for (limit, expected) in [
        (0, Some(Error::TooManyFields)),
        (1, Some(Error::TooManyFields)),
        (2, None),
        (u32::MAX, None),
    ] {
        let options = Options { max_fields: limit, ..Options::default() };
        assert_eq!(request_error(options, HEAD, 20), expected, "{limit}");
    }
}

#[test]
fn lines_that_came_before_count_as_others_do() {
    // Such as are kept: names that are well known, written as they will leave.
    let request = "GET / HTTP/1.1\r\nhost: a.example\r\naccept: text/html\r\naccept-encoding: gzip\r\n\
                   user-agent: curl/8.5.0\r\n\r\n";
    let mut pool = HeadPool::default();
    let mut outcome = |max_fields| {
        let options = Options { max_fields, ..Options::default() };
        let mut server = Server::new(Arc::new(options));
        server.receive(request.into());
        match server.poll(&mut pool) {
            Ok(Some(Event::Head { head, .. })) => {
                pool.give(head);
                Ok(())
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    };
    for _ in 0..3 {
        assert_eq!(outcome(4), Ok(()));
        assert_eq!(outcome(3), Err(Error::TooManyFields));
    }
}

#[test]
fn trailers_have_the_limits_of_heads() {
    let request = |trailers: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{trailers}\r\n"
        )
    };
    let options = |bytes| Options { max_head_bytes: bytes, max_fields: 2, ..Options::default() };
    assert_eq!(request_error(options(100), &request("A: b\r\nC: d\r\n"), 7), None);
    assert_eq!(
        request_error(options(100), &request("A: b\r\nC: d\r\nE: f\r\n"), 7),
        Some(Error::TooManyFields)
    );
    let long = |length: usize| request(&format!("A: {}\r\n", "x".repeat(length)));
    assert_eq!(request_error(options(100), &long(100 - 7), 7), None);
    assert_eq!(request_error(options(100), &long(100 - 6), 7), Some(Error::HeadTooLarge));
}

#[test]
fn an_unfinished_line_is_refused_as_soon_as_it_is_too_long() {
    let mut server = Server::new(Arc::new(Options { max_head_bytes: 100, ..Options::default() }));
    server.receive(Bytes::from(vec![b'A'; 100]));
    assert!(matches!(server.poll(&mut HeadPool::default()), Ok(None)));
    assert_eq!(server.buffered(), 100);
    server.receive("A".into());
    assert_eq!(server.poll(&mut HeadPool::default()).err(), Some(Error::HeadTooLarge));
    assert_eq!(server.buffered(), 0);
}

#[test]
fn a_method_may_be_so_long() {
    let outcome = |length: usize| {
        let options = Options { allow_custom_methods: true, ..Options::default() };
        let request = format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(length));
        request_error(options, &request, 10)
    };
    assert_eq!(outcome(64), None);
    assert!(outcome(64 + 1).is_some());
}

#[test]
fn a_head_in_single_bytes_costs_linear_time() {
    let mut server =
        Server::new(Arc::new(Options { max_head_bytes: 1 << 20, ..Options::default() }));
    let mut pool = HeadPool::default();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(1_000_000));
    let started = std::time::Instant::now();
    let mut found = false;
    for byte in head.into_bytes() {
        server.receive(Bytes::copy_from_slice(&[byte]));
        found |= server.poll(&mut pool).unwrap().is_some();
    }
    assert!(found);
    // A quadratic search would look at half a million megabytes.
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

#[test]
fn a_pool_keeps_so_many_heads_and_no_huge_ones() {
    for (limit, kept) in [(0, 0), (2, 2)] {
        let mut pool = HeadPool::new(limit);
        (0..5).for_each(|_| pool.give(Head::response(200)));
        assert_eq!(pool.len(), kept);
    }
    let mut pool = HeadPool::new(1);
    let mut head = Head::response(200);
    head.append_bytes(b"x", &[b'y'; 100_000]);
    pool.give(head);
    assert!(pool.is_empty());
    let mut head = Head::request(b"FROB", b"https", b"a", b"/x");
    head.append_bytes(b"x", b"y");
    pool.give(head);
    let fresh = pool.take();
    assert_eq!((fresh.len(), fresh.byte_size()), (0, Head::default().byte_size()));
}

#[test]
fn large_pieces_pass_uncopied_and_small_ones_together() {
    let large = Bytes::from(vec![1; COPY_LIMIT + 1]);
    let small = Bytes::from(vec![2; COPY_LIMIT]);
    let mut out = Out::new();
    for piece in [&small, &large, &small, &small, &large] {
        out.push(piece.clone());
    }
    assert_eq!(out.len(), 5 * COPY_LIMIT + 2);
    let pieces: Vec<Bytes> = out.drain().collect();
    let lengths: Vec<usize> = pieces.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [COPY_LIMIT, COPY_LIMIT + 1, 2 * COPY_LIMIT, COPY_LIMIT + 1]);
    assert_eq!(pieces[1].as_ptr(), large.as_ptr());
    assert!(out.is_empty() && out.drain().next().is_none());
}

#[test]
fn connections_are_small() {
    assert!(size_of::<Server>() <= 200, "{}", size_of::<Server>());
    assert!(size_of::<Client>() <= 200, "{}", size_of::<Client>());
    assert_eq!(size_of::<Head>(), size_of::<usize>());
    assert!(size_of::<Event>() <= 48);
}

/// Feeds a request in two pieces; the error, if that is how it ends.
fn request_error(options: Options, request: &str, cut: usize) -> Option<Error> {
    let mut server = Server::new(Arc::new(options));
    let mut pool = HeadPool::default();
    for piece in [&request[..cut], &request[cut..]] {
        server.receive(piece.to_owned().into());
        if let Err(error) = poll_all(&mut pool, |pool| server.poll(pool)) {
            return Some(error);
        }
    }
    assert!(server.request_complete());
    None
}
