//! Responses that come compressed.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use towpath::{Engine, Error};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_head};

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Compresses for those who ask, whatever they ask for; `/cut` half of it.
fn server() -> Server {
    Server::new(|stream, _| {
        while let Some(head) = read_head(stream) {
            let mut body = gzip(&vec![b'x'; 1_000_000]);
            if head.starts_with("GET /cut") {
                body.truncate(body.len() / 2);
            }
            if head.starts_with("HEAD") {
                let field = "Content-Length: 9\r\nContent-Encoding: gzip\r\n";
                let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{field}\r\n").as_bytes());
            } else if head.contains("accept-encoding: gzip\r\n") {
                answer(stream, "200 OK", "Content-Encoding: gzip\r\nX-Own: 1\r\n", &body);
            } else {
                answer(stream, "200 OK", "", b"plain");
            }
        }
    })
}

#[test]
fn a_compressed_body_is_handed_out_as_it_was() {
    let server = server();
    let engine = Engine::new().unwrap();
    let get = || engine.client().get(&server.url("/"));
    for mut response in [get().send().unwrap(), block_on(get().send_async()).unwrap()] {
        assert_eq!(response.header("content-encoding"), None);
        assert_eq!(response.header("content-length"), None);
        assert_eq!(response.header("x-own"), Some("1"));
        assert_eq!(response.body().bytes(1_000_000).unwrap(), vec![b'x'; 1_000_000]);
        assert!(response.body().report().unwrap().record.bytes_sent < 10_000);
    }
    let limited = get().send().unwrap().body().bytes(999_999).unwrap_err();
    assert_eq!(limited, Error::TooLarge(999_999), "what it becomes counts");
    let mut head = engine.client().request("HEAD", &server.url("/")).send().unwrap();
    assert_eq!(head.body().bytes(10).unwrap(), "");
}

#[test]
fn what_the_app_says_of_codings_holds() {
    let server = server();
    let engine = Engine::new().unwrap();
    let get = || engine.client().get(&server.url("/"));
    for request in [get().no_decode(), get().header("Range", "bytes=0-9")] {
        assert_eq!(request.send().unwrap().body().bytes(100).unwrap(), "plain");
    }
    let own = get().header("Accept-Encoding", "gzip").send().unwrap();
    assert_eq!(own.header("content-encoding"), Some("gzip"));
}

#[test]
fn a_body_that_is_cut_in_its_coding_is_an_error() {
    let server = server();
    let engine = Engine::new().unwrap();
    let mut response = engine.client().get(&server.url("/cut")).send().unwrap();
    let error = response.body().bytes(usize::MAX).unwrap_err();
    assert!(matches!(error, Error::Decoding(_)), "{error:?}");
}
