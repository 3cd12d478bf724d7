//! The client as a `tower::Service`: under a runtime, and without one.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

mod block_on;
#[expect(dead_code, reason = "shared with tests that want more of it")]
mod server;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{Error, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use block_on::block_on;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use server::{Server, answer, read_head, read_request};
use tower_service::Service as _;
use towpath::service::{Incoming, ServiceError};
use towpath::{Engine, Service};

#[test]
fn under_a_runtime() {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(echo());
}

#[test]
fn without_a_runtime() {
    block_on(echo());
}

/// Bodies go both ways in pieces, with and without a known length.
async fn echo() {
    let server = Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("x-mine: yes"), "{head}");
            answer(stream, "201 Created", "X-Theirs: also\r\n", body.as_bytes());
        }
    });
    let engine = Engine::new().unwrap();
    let mut service =
        Service::new(engine.client()).with(|request| request.header("x-mine", "yes").retries(0));
    for known in [true, false] {
        let pieces: Vec<Vec<u8>> = (0..10).map(|number| vec![b'0' + number; 100_000]).collect();
        let request = Request::put(server.url("/")).body(Outgoing::new(&pieces, known)).unwrap();
        let response = call(&mut service, request).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers()["x-theirs"], "also");
        assert_eq!(response.body().size_hint().exact(), Some(1_000_000));
        let (body, trailers, incoming) = read(response).await.unwrap();
        assert_eq!(body, pieces.concat());
        assert!(trailers.is_none());
        assert_eq!(incoming.report().unwrap().tries.len(), 1);
    }
    let empty = Request::get(server.url("/")).body(Outgoing::new(&[], true)).unwrap();
    assert_eq!(read(call(&mut service, empty).await.unwrap()).await.unwrap().0, b"");
}

#[test]
fn trailers_come_and_a_length_without_a_body_is_none() {
    let server = Server::new(|stream, _| {
        while let Some(head) = read_head(stream) {
            let _ = if head.starts_with("HEAD") {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
            } else {
                stream.write_all(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n",
                )
            };
        }
    });
    let engine = Engine::new().unwrap();
    let mut service = Service::new(engine.client());
    block_on(async {
        let get = Request::get(server.url("/")).body(Outgoing::new(&[], true)).unwrap();
        let (body, trailers, _) = read(call(&mut service, get).await.unwrap()).await.unwrap();
        assert_eq!(
            (body.as_slice(), &trailers.unwrap()["x-sum"]),
            (&b"hi"[..], &"7".parse().unwrap())
        );
        let head = Request::head(server.url("/")).body(Outgoing::new(&[], true)).unwrap();
        let response = call(&mut service, head).await.unwrap();
        assert_eq!(response.body().size_hint().exact(), None);
        assert_eq!(read(response).await.unwrap().0, b"");
    });
}

#[test]
fn a_server_that_answers_early_is_heard() {
    let server = Server::new(|stream, _| {
        let _ = read_head(stream);
        answer(stream, "413 Content Too Large", "Connection: close\r\n", b"too much");
    });
    let engine = Engine::new().unwrap();
    let mut service = Service::new(engine.client());
    block_on(async {
        let endless = Outgoing { left: VecDeque::new(), known: None, endless: true };
        let request = Request::put(server.url("/")).body(endless).unwrap();
        let response = call(&mut service, request).await.unwrap();
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    });
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let server = Server::new(|stream, _| while read_request(stream).is_some() {});
    let engine = Engine::new().unwrap();
    let mut service = Service::new(engine.client());
    block_on(async {
        let relative = Request::get("/path").body(Outgoing::new(&[], true)).unwrap();
        let refused = call(&mut service, relative).await;
        assert!(matches!(refused, Err(ServiceError::Request(towpath::Error::Url(_)))));
        for (frame, trailers) in [(Some(Frame::trailers(HeaderMap::new())), true), (None, false)] {
            let request = Request::put(server.url("/")).body(Broken(frame)).unwrap();
            let broken = call(&mut service, request).await;
            match broken {
                Err(ServiceError::Trailers) => assert!(trailers),
                Err(ServiceError::Body(error)) => assert_eq!(error.to_string(), "broken"),
                other => panic!("{other:?}"),
            }
        }
    });
}

/// Pieces that are there.
struct Outgoing {
    left: VecDeque<Bytes>,
    known: Option<u64>,
    endless: bool,
}

impl Outgoing {
    fn new(pieces: &[Vec<u8>], known: bool) -> Self {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let left = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        Self { left, known: known.then_some(bytes), endless: false }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let endless = self.endless.then(|| Bytes::from_static(&[b'x'; 1000]));
        Poll::Ready(self.left.pop_front().or(endless).map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && !self.endless
    }

    fn size_hint(&self) -> SizeHint {
        self.known.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A body of this frame, or of an error.
struct Broken(Option<Frame<Bytes>>);

impl Body for Broken {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Ready(Some(self.0.take().ok_or_else(|| Error::other("broken"))))
    }
}

async fn call<B>(
    service: &mut Service,
    request: Request<B>,
) -> Result<Response<Incoming>, ServiceError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    poll_fn(|context| tower_service::Service::<Request<B>>::poll_ready(service, context)).await?;
    service.call(request).await
}

/// Everything that comes.
async fn read(
    response: Response<Incoming>,
) -> Result<(Vec<u8>, Option<HeaderMap>, Incoming), ServiceError> {
    let mut incoming = response.into_body();
    let (mut body, mut trailers) = (Vec::new(), None);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut incoming).poll_frame(context)).await {
        match frame?.into_data() {
            Ok(data) => body.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((body, trailers, incoming))
}

#[test]
fn requests_and_responses_of_the_http_crate_are_taken_and_given() {
    let server = Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            answer(stream, "200 OK", "X-Twice: 1\r\nX-Twice: 2\r\n", request.as_bytes());
        }
    });
    let client = Engine::new().unwrap().client().header("x-usual", "yes");
    let send = |request: Request<&'static [u8]>| -> Response<towpath::Body> {
        client.http_request(request).unwrap().send().unwrap().into()
    };
    let request = Request::put(server.url("/a?b=c"));
    let request =
        request.header("X-Mine", "1").header("x-mine", "2").header("content-length", "99");
    let response = send(request.body(&b"body"[..]).unwrap());
    assert_eq!((response.status(), response.version()), (StatusCode::OK, http::Version::HTTP_11));
    let twice: Vec<_> = response.headers().get_all("x-twice").iter().collect();
    assert_eq!(twice, ["1", "2"]);
    let mut body = response.into_body();
    let seen = String::from_utf8(body.bytes(4096).unwrap().to_vec()).unwrap();
    assert!(
        seen.starts_with("PUT /a?b=c HTTP/1.1\r\n") && seen.ends_with("\r\n\r\nbody"),
        "{seen}"
    );
    for field in ["x-mine: 1\r\n", "x-mine: 2\r\n", "x-usual: yes\r\n", "content-length: 4\r\n"] {
        assert_eq!(seen.matches(field).count(), 1, "{seen}");
    }
    assert!(body.report().is_some());
    let response =
        send(Request::get(server.url("/")).header("host", "else.test").body(&b""[..]).unwrap());
    let seen = String::from_utf8(response.into_body().bytes(4096).unwrap().to_vec()).unwrap();
    assert!(seen.contains("host: else.test\r\n") && !seen.contains("content-length"), "{seen}");
}

#[test]
fn what_the_http_crate_lets_pass_and_cannot_be_sent_is_refused() {
    let client = Engine::new().unwrap().client();
    let refused = |request: Request<&'static str>| client.http_request(request).unwrap_err();
    let relative = Request::get("/alone").body("").unwrap();
    assert!(matches!(refused(relative), towpath::Error::Url(_)));
    let bytes = http::HeaderValue::from_bytes(b"\xff").unwrap();
    let request = Request::get("http://127.0.0.1/").header("x", bytes).body("").unwrap();
    assert_eq!(refused(request), towpath::Error::NotAToken("x".to_owned()));
    let connect = Request::connect("http://127.0.0.1:1/").body("").unwrap();
    assert!(matches!(refused(connect), towpath::Error::NotAToken(_)));
}
