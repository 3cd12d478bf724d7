//! Responses that come compressed.

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use towpath::request::Handler;
use towpath::{Chunk, Engine, Error, Report, Response};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_head};

pub(crate) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Compresses for clients that ask, whatever they ask for; `/cut` half of it.
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
            } else if head.contains("accept-encoding: ") && head.contains("gzip") {
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

/// One body in the coding that the path names.
fn in_codings() -> Server {
    Server::new(|stream, _| {
        while let Some(head) = read_head(stream) {
            let coding = head["GET /".len()..].split(' ').next().unwrap().to_owned();
            let plain = b"said, and said again";
            let mut body = Vec::new();
            match coding.as_str() {
                "br" => {
                    brotli::CompressorWriter::new(&mut body, 4096, 5, 22).write_all(plain).unwrap();
                }
                "zstd" => body = zstd::bulk::compress(plain, 3).unwrap(),
                "deflate" => {
                    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                    encoder.write_all(plain).unwrap();
                    body = encoder.finish().unwrap();
                }
                "gzip" => body = gzip(plain),
                _ => body.extend_from_slice(plain),
            }
            let asked = head.lines().find_map(|line| line.strip_prefix("accept-encoding: "));
            let asked = asked.unwrap_or("nothing");
            let fields = format!("Content-Encoding: {coding}\r\nX-Asked: {asked}\r\n");
            answer(stream, "200 OK", &fields, &body);
        }
    })
}

#[test]
fn every_coding_that_is_asked_for_is_decoded_and_no_other() {
    let server = in_codings();
    let engine = Engine::new().unwrap();
    for coding in ["zstd", "br", "gzip", "deflate"] {
        let mut response = engine.client().get(&server.url(&format!("/{coding}"))).send().unwrap();
        assert_eq!(response.header("x-asked"), Some("zstd, br, gzip, deflate"));
        assert_eq!(response.header("content-encoding"), None);
        assert_eq!(response.body().bytes(99).unwrap(), "said, and said again", "{coding}");
    }
    let mut other = engine.client().get(&server.url("/compress")).send().unwrap();
    assert_eq!(other.header("content-encoding"), Some("compress"));
    assert_eq!(other.body().bytes(99).unwrap(), "said, and said again");
}

/// Tells what comes; keeps the pieces if it is to.
struct Gathering {
    keeps: bool,
    kept: Vec<Chunk>,
    all: Vec<u8>,
    told: mpsc::Sender<(bool, Vec<u8>, Result<(), Error>)>,
    coded: bool,
}

impl Handler for Gathering {
    fn on_head(&mut self, response: Response) {
        self.coded = response.header("content-encoding").is_some();
    }

    fn on_data(&mut self, chunk: Chunk) {
        self.all.extend_from_slice(&chunk);
        if self.keeps {
            self.kept.push(chunk);
        }
    }

    fn on_end(&mut self, outcome: Result<(), Error>, _: Option<&Report>) {
        let all = std::mem::take(&mut self.all);
        self.told.send((self.coded, all, outcome)).unwrap();
    }
}

type Gathered = (bool, Vec<u8>, Result<(), Error>);

fn gather(keeps: bool, start: impl FnOnce(Gathering)) -> Gathered {
    let (told, ends) = mpsc::channel();
    start(Gathering { keeps, kept: Vec::new(), all: Vec::new(), told, coded: false });
    ends.recv_timeout(Duration::from_secs(120)).unwrap()
}

#[test]
fn handlers_get_bodies_as_they_were() {
    let (server, codings) = (server(), in_codings());
    let engine = Engine::new().unwrap();
    let get = |url: &str| engine.client().get(url);
    let large = vec![b'x'; 1_000_000];
    let whole = gather(true, |it| drop(get(&server.url("/")).send_with(it).unwrap()));
    assert_eq!(whole, (false, large.clone(), Ok(())));
    let sent = gather(false, |it| drop(get(&server.url("/")).start_with(|_| it).unwrap()));
    assert_eq!(sent, (false, large, Ok(())));
    let (_, all, outcome) =
        gather(false, |it| drop(get(&server.url("/cut")).send_with(it).unwrap()));
    assert!(matches!(outcome, Err(Error::Decoding(_))), "{outcome:?}");
    assert!(!all.is_empty(), "what came of it before");
    let plain = gather(false, |it| {
        drop(get(&codings.url("/gzip")).no_decode().send_with(it).unwrap());
    });
    assert_eq!((plain.0, plain.2), (true, Ok(())));
    let upload = gather(false, |it| {
        let sender = get(&codings.url("/zstd")).upload_with(Some(0), |_| it).unwrap();
        sender.finish().unwrap();
    });
    assert_eq!(upload, (false, b"said, and said again".to_vec(), Ok(())));
}

#[test]
fn a_handler_that_keeps_what_a_bomb_becomes_is_spared_most_of_it() {
    let server = Server::new(|stream, _| {
        read_head(stream).unwrap();
        let bomb = gzip(&vec![0; 200 << 20]);
        answer(stream, "200 OK", "Content-Encoding: gzip\r\n", &bomb);
    });
    let engine = Engine::new().unwrap();
    let get = || engine.client().get(&server.url("/"));
    let (_, all, outcome) = gather(true, |it| drop(get().send_with(it).unwrap()));
    assert!(matches!(outcome, Err(Error::Decoding(_))), "{outcome:?}");
    assert!(all.len() < 33 << 20, "{}", all.len());
    let (_, all, outcome) = gather(false, |it| drop(get().send_with(it).unwrap()));
    assert_eq!((all.len(), outcome), (200 << 20, Ok(())), "one that uses them gets all");
}
