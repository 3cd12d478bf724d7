//! A server that is told statistics: gRPC over HTTP/2, in the clear. What it is told is kept as it came.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};

/// A message: which stream of the run it came on, by which method, and what it is.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) stream: usize,
    pub(crate) path: String,
    pub(crate) message: Bytes,
}

/// Starts one. Without `reads`, it takes a few bytes of each stream and no more.
pub(crate) fn start(reads: bool) -> (SocketAddr, Receiver<Told>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let mut streams = 0;
            let (count, mut counted) = tokio::sync::mpsc::unbounded_channel::<Accepted>();
            tokio::task::spawn_local(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    tokio::task::spawn_local(accept(socket, reads, count.clone()));
                }
            });
            while let Some((request, respond)) = counted.recv().await {
                streams += 1;
                tokio::task::spawn_local(serve(request, respond, streams, reads, sender.clone()));
            }
        });
    });
    (address, receiver)
}

type Accepted = (http::Request<h2::RecvStream>, h2::server::SendResponse<Bytes>);

async fn accept(
    socket: tokio::net::TcpStream,
    reads: bool,
    count: tokio::sync::mpsc::UnboundedSender<Accepted>,
) {
    let mut server = h2::server::Builder::new();
    if !reads {
        server.initial_window_size(1000);
    }
    let Ok(mut connection) = server.handshake::<_, Bytes>(socket).await else { return };
    while let Some(Ok(accepted)) = connection.accept().await {
        let _ = count.send(accepted);
    }
}

async fn serve(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    stream: usize,
    reads: bool,
    sender: Sender<Told>,
) {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut waiting = BytesMut::new();
    while let Some(Ok(data)) = body.data().await {
        if !reads {
            // Nothing is given back: the window stays shut.
            std::future::pending::<()>().await;
        }
        let _ = body.flow_control().release_capacity(data.len());
        waiting.extend_from_slice(&data);
        while let Some([0, length @ ..]) = waiting.get(..5) {
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if waiting.len() < 5 + length {
                break;
            }
            waiting.advance(5);
            let message = waiting.split_to(length).freeze();
            let _ = sender.send(Told { stream, path: path.clone(), message });
        }
    }
    assert!(waiting.is_empty(), "half a message");
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let Ok(mut send) = respond.send_response(head, false) else { return };
    let _ = send.send_data(Bytes::from_static(&[0; 5]), false);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let _ = send.send_trailers(trailers);
}
