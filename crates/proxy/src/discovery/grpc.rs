//! One gRPC stream to a control plane, over HTTP/2.
//!
//! Messages to send arrive in a channel; what is received, and how the stream began and ended, leaves as [`News`].
//! What a control plane may send is limited by [`MAX_MESSAGE`].

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::{Ping, PingPong, SendStream, client};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use towpath_config::Grpc;
use towpath_engine::grpc::of_http;
use towpath_engine::snapshot::cluster::Endpoint;
use towpath_engine::snapshot::{Cluster, UpstreamTls};
use towpath_engine::stats::{GoogleGrpcStats, Registry, Scope};
use towpath_proto::Address;
use towpath_proto::tls::{ClientTemplate, ServerName};

use super::asks::{self, Reach};
use super::tls::Secured;
use crate::control::Control;
use crate::server_stats::CONTROL;

/// The largest message that is taken.
pub(super) const MAX_MESSAGE: usize = 256 << 20;

/// What became of a stream.
#[derive(Debug)]
pub(crate) enum News {
    /// It is open.
    Connected,
    /// A message came.
    Message(Bytes),
    /// It could not be opened, or ended, for this reason.
    Ended(String),
}

/// What to open, and where.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(super) address: Address,
    /// How it is spoken to, if not in clear text, and by which name.
    pub(super) tls: Option<(ClientTemplate, ServerName)>,
    pub(super) authority: String,
    /// `/service/method`.
    pub(super) method: &'static str,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) connect_timeout: Duration,
    /// After what time without a byte a PING is sent, and how long its answer may take.
    pub(super) keepalive: Option<(Duration, Duration)>,
    /// Of a `google_grpc`.
    pub(super) counts: Option<Arc<GoogleGrpcStats>>,
}

impl Target {
    /// A call of a service at one of the hosts of its cluster.
    pub(super) fn new(
        grpc: &Grpc,
        cluster: &Cluster,
        (host, attempt): (&Endpoint, usize),
        method: &'static str,
        registry: &Registry,
        owner: u32,
    ) -> Result<Self, &'static str> {
        let headers = cluster.proxy_headers.as_ref();
        if headers.is_some_and(|headers| headers.of(host.socket).is_some()) {
            return Err("its cluster speaks the PROXY protocol, which is not spoken here");
        }
        let tls = match host.socket {
            Some(socket) => cluster.sockets.get(usize::from(socket)).and_then(Option::as_deref),
            None => cluster.tls.as_deref(),
        };
        let tls = match tls {
            None => None,
            Some(UpstreamTls { template: Some(template), name, .. }) => {
                Some((template.clone(), name.of(&host.hostname)))
            }
            Some(UpstreamTls { template: None, .. }) => {
                return Err("the secrets of its cluster are not there");
            }
        };
        let authority = if grpc.authority.is_empty() { &grpc.cluster } else { &grpc.authority };
        let addresses = host.addresses.as_deref().unwrap_or_default();
        let address = addresses.get(attempt % addresses.len().max(1)).unwrap_or(&host.address);
        let keepalive = cluster.http2.as_ref().and_then(|http2| http2.keepalive);
        let counts = cluster
            .google_prefix()
            .and_then(|prefix| registry.lasting(owner, Scope::GoogleGrpc(Arc::from(prefix))));
        Ok(Self {
            address: address.clone(),
            tls,
            authority: authority.to_string(),
            method,
            metadata: grpc.metadata.clone(),
            connect_timeout: cluster.connect_timeout,
            keepalive: keepalive.and_then(|it| Some((it.interval?, it.timeout))),
            counts,
        })
    }
}

/// A call of a service, where its cluster is now.
pub(crate) fn reach(
    control: &Control,
    grpc: &Grpc,
    method: &'static str,
) -> Result<Target, &'static str> {
    let Reach { cluster, endpoints } = asks::reach(control, &grpc.cluster);
    let attempt = usize::try_from(crate::random()).unwrap_or(0);
    let host = endpoints.get(attempt % endpoints.len().max(1));
    let (Some(host), Some(cluster)) = (host, cluster) else {
        return Err("its cluster has no endpoints");
    };
    Target::new(grpc, &cluster, (host, attempt), method, &control.registry, CONTROL)
}

/// A stream, and the task that serves it.
pub(crate) struct Link {
    pub(crate) outgoing: UnboundedSender<Bytes>,
    pub(crate) news: Receiver<News>,
}

/// Opens a stream, of which so much may be unread.
pub(crate) fn open(target: Target, unread: usize) -> Link {
    let (outgoing, to_send) = mpsc::unbounded_channel();
    let (sender, news) = mpsc::channel(unread);
    tokio::task::spawn_local(run(target, to_send, sender));
    Link { outgoing, news }
}

/// Opens the stream and serves it until it ends.
async fn run(target: Target, outgoing: UnboundedReceiver<Bytes>, news: Sender<News>) {
    if let Some(counts) = &target.counts {
        counts.streams_total.inc();
    }
    let mut code = INTERNAL;
    let connected = tokio::time::timeout(target.connect_timeout, connect(&target)).await;
    let outcome = match connected {
        Ok(Ok(socket)) => speak(socket, &target, outgoing, &news, &mut code).await,
        Ok(Err(error)) => Err(format!("cannot connect to {}: {error}", target.address)),
        Err(_) => {
            let (address, time) = (&target.address, target.connect_timeout);
            Err(format!("no connection to {address} in {time:?}"))
        }
    };
    // What ended here is not counted, as in Envoy.
    if let Some(counts) = target.counts.as_ref().filter(|_| !news.is_closed()) {
        counts.closed(code).inc();
    }
    let why = outcome.err().unwrap_or_else(|| "it was closed".to_owned());
    // The receiver is gone only when the process ends.
    let _ = news.send(News::Ended(why)).await;
}

/// Any of TCP and unix sockets, under TLS or not.
trait Socket: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Socket for S {}

async fn connect(target: &Target) -> Result<Box<dyn Socket>, String> {
    let failed = |error: io::Error| error.to_string();
    let (socket, local): (Box<dyn Socket>, Address) = match &target.address {
        Address::Ip(ip) => {
            let stream = TcpStream::connect(ip).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let local = Address::Ip(stream.local_addr().map_err(failed)?);
            (Box::new(stream), local)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(Path::new(&**path)).await.map_err(failed)?;
            (Box::new(stream), Address::Unix(Arc::from(Path::new(""))))
        }
        Address::Internal(_) => return Err("a listener of our own is no control plane".to_owned()),
    };
    match &target.tls {
        None => Ok(socket),
        Some((template, name)) => {
            let ends = (&local, &target.address);
            Ok(Box::new(Secured::connect(socket, template, name, ends).await?))
        }
    }
}

/// The stream's life, from its first bytes to its last.
async fn speak(
    socket: impl AsyncRead + AsyncWrite + Unpin + 'static,
    target: &Target,
    mut outgoing: UnboundedReceiver<Bytes>,
    news: &Sender<News>,
    code: &mut u32,
) -> Result<(), String> {
    let failed = |error: h2::Error| error.to_string();
    let (requests, connection) = client::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .enable_push(false)
        .handshake::<_, Bytes>(socket)
        .await
        .map_err(failed)?;
    let mut connection = connection;
    let pings = target.keepalive.and_then(|times| Some((connection.ping_pong()?, times)));
    // It ends with the stream, which is its only one.
    let connection = tokio::task::spawn_local(connection);
    let mut silence = std::pin::pin!(silence(pings));
    let _ends = Aborts(connection.abort_handle());
    let mut requests = requests.ready().await.map_err(failed)?;
    let (response, mut sender) = requests.send_request(head(target)?, false).map_err(failed)?;
    let _ = news.send(News::Connected).await;
    let mut response = std::pin::pin!(response);
    let mut body: Option<h2::RecvStream> = None;
    let mut buffer = BytesMut::new();
    loop {
        tokio::select! {
            message = taken(&mut sender, &mut outgoing) => {
                // Its other end is dropped where this stream is not wanted any longer.
                let Some(message) = message else { return Ok(()) };
                sender.send_data(frame(&message), false).map_err(failed)?;
            }
            () = &mut silence => return Err("a PING was not answered in time".to_owned()),
            // The same, where the peer does not read.
            () = news.closed() => return Ok(()),
            head = &mut response, if body.is_none() => {
                let head = head.map_err(failed)?;
                if !head.status().is_success() {
                    *code = of_http(head.status().as_u16());
                    return Err(format!("it answered {}", head.status()));
                }
                *code = UNAVAILABLE;
                status(head.headers(), code)?;
                body = Some(head.into_body());
            }
            data = next(&mut body), if body.is_some() => match data {
                Some(data) => {
                    let data = data.map_err(failed)?;
                    if let Some(body) = &mut body {
                        body.flow_control().release_capacity(data.len()).map_err(failed)?;
                    }
                    buffer.extend_from_slice(&data);
                    while let Some(message) = take(&mut buffer)? {
                        let _ = news.send(News::Message(message)).await;
                    }
                }
                None => {
                    let trailers = match &mut body {
                        Some(body) => body.trailers().await.map_err(failed)?,
                        None => None,
                    };
                    *code = UNKNOWN;
                    return status(&trailers.unwrap_or_default(), code);
                }
            },
        }
    }
}

/// The next message, as soon as what was sent before has left: of a peer that does not read, nothing piles up here.
async fn taken(
    sender: &mut SendStream<Bytes>,
    outgoing: &mut UnboundedReceiver<Bytes>,
) -> Option<Bytes> {
    sender.reserve_capacity(1);
    while sender.capacity() == 0 {
        // Where the stream has ended, the next send says so.
        let Some(Ok(_)) = poll_fn(|context| sender.poll_capacity(context)).await else { break };
    }
    outgoing.recv().await
}

async fn next(body: &mut Option<h2::RecvStream>) -> Option<Result<Bytes, h2::Error>> {
    match body {
        Some(body) => body.data().await,
        None => std::future::pending().await,
    }
}

fn head(target: &Target) -> Result<Request<()>, String> {
    let uri = Uri::builder()
        .scheme(if target.tls.is_some() { "https" } else { "http" })
        .authority(&*target.authority)
        .path_and_query(target.method)
        .build()
        .map_err(|error| format!("authority {:?}: {error}", target.authority))?;
    let mut head = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", concat!("towpath/", env!("CARGO_PKG_VERSION")));
    for (name, value) in &target.metadata {
        let name = HeaderName::try_from(name).map_err(|error| format!("{name:?}: {error}"))?;
        // The value may be secret.
        let value = HeaderValue::try_from(value).map_err(|error| format!("{name}: {error}"))?;
        head = head.header(name, value);
    }
    head.body(()).map_err(|error| error.to_string())
}

/// A message with its prefix: not compressed, and its length.
fn frame(message: &Bytes) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + PREFIX);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(message);
    frame.freeze()
}

/// A whole message at the start of what was received, if there is one.
fn take(buffer: &mut BytesMut) -> Result<Option<Bytes>, String> {
    let Some((prefix, _)) = buffer.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 {
        return Err("it sent a compressed message, unasked".to_owned());
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(format!("it sent a message of {length} bytes; the limit is {MAX_MESSAGE}"));
    }
    if buffer.len() < PREFIX + length {
        return Ok(None);
    }
    buffer.advance(PREFIX);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Asks a peer by PING whether it is there, and ends when it does not answer.
async fn silence(pings: Option<(PingPong, (Duration, Duration))>) {
    if let Some((mut pings, (interval, timeout))) = pings {
        loop {
            tokio::time::sleep(interval).await;
            match tokio::time::timeout(timeout, pings.ping(Ping::opaque())).await {
                Ok(Ok(_)) => {}
                Err(_) => return,
                // The connection has ended, which is told where it is read.
                Ok(Err(_)) => break,
            }
        }
    }
    std::future::pending().await
}

/// What a head or its end says of the call.
fn status(headers: &HeaderMap, code: &mut u32) -> Result<(), String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let said = text("grpc-status").map(|said| said.parse().unwrap_or(UNKNOWN));
    *code = said.unwrap_or(*code);
    match text("grpc-status") {
        None | Some("0") => Ok(()),
        Some(code) => {
            Err(format!("gRPC status {code}: {}", text("grpc-message").unwrap_or_default()))
        }
    }
}

struct Aborts(tokio::task::AbortHandle);

impl Drop for Aborts {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Of gRPC's statuses.
const UNKNOWN: u32 = 2;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const PREFIX: usize = 5;
/// Of the stream and of its connection.
const WINDOW: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_however_they_are_cut() {
        let whole = [frame(&Bytes::from_static(b"one")), frame(&Bytes::new())].concat();
        for cut in 0..=whole.len() {
            let mut buffer = BytesMut::from(&whole[..cut]);
            let mut found = Vec::new();
            while let Some(message) = take(&mut buffer).unwrap() {
                found.push(message);
            }
            buffer.extend_from_slice(&whole[cut..]);
            while let Some(message) = take(&mut buffer).unwrap() {
                found.push(message);
            }
            assert_eq!(found, [&b"one"[..], b""]);
        }
    }

    #[test]
    fn what_is_compressed_or_too_large_ends_the_stream() {
        assert!(take(&mut BytesMut::from(&[1, 0, 0, 0, 0][..])).is_err());
        assert!(take(&mut BytesMut::from(&[0, 0xff, 0, 0, 0][..])).is_err());
    }

    #[test]
    fn a_status_is_an_end_with_a_reason() {
        let mut headers = HeaderMap::new();
        let mut code = 14;
        assert_eq!((status(&headers, &mut code), code), (Ok(()), 14));
        headers.insert("grpc-status", HeaderValue::from_static("14"));
        headers.insert("grpc-message", HeaderValue::from_static("gone"));
        let mut code = 2;
        assert_eq!(status(&headers, &mut code), Err("gRPC status 14: gone".to_owned()));
        assert_eq!(code, 14);
    }
}
