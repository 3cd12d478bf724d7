//! A client as a [`tower_service::Service`], for what is built of `tower`'s layers and the `http` crate's types.
//! Feature `tower`.
//!
//! With [`Service::grpc`] it is a channel for gRPC, as clients that `tonic` generates take one.
//!
//! It needs no runtime: futures are woken by the engine's thread, and nothing is spawned. A request's body is sent
//! while its response is awaited, and, where a server answers before it has everything, while the response's body is
//! read.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};

use crate::grpc;
use crate::http_types::{head, map, with_fields};
use crate::report::Report;
use crate::upload::Upload;
use crate::url::Url;
use crate::{Client, Error};

/// A [`Client`] that answers [`http::Request`]s, whose URI has to be absolute unless it has an [origin](Self::origin).
/// It is always ready: what is too much fails.
#[derive(Clone)]
pub struct Service {
    client: Client,
    shape: Arc<Shape>,
    kind: Kind,
    /// Who is asked by a URI that is a path alone.
    origin: Option<Arc<str>>,
}

/// What its requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    /// Calls, which end with a status of their own.
    Grpc,
}

type Shape = dyn Fn(crate::Request) -> crate::Request + Send + Sync;

/// Why a request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// As everywhere in this crate.
    Request(Error),
    /// The body of the request gave an error.
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The body of the request has trailers, which are not sent.
    Trailers,
}

/// A response's body. Dropping it before its end gives the request up.
pub struct Incoming {
    /// There is none of a call that came to nothing.
    body: Option<crate::Body>,
    /// What is left of the request.
    outgoing: Option<Outgoing>,
    left: Option<u64>,
    ended: bool,
    kind: Kind,
}

/// A request's body on its way.
struct Outgoing {
    body: Pin<Box<dyn Pieces>>,
    upload: Upload,
    rest: Bytes,
}

impl Service {
    /// Requests of this client, with its defaults.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, shape: Arc::new(|request| request), kind: Kind::Http, origin: None }
    }

    /// A channel for gRPC: HTTP/2 alone, under TLS or by prior knowledge, for calls of all four shapes. Only a call's
    /// own limit (`grpc-timeout`) ends it, or a peer that does not answer a PING for 20 s. What goes wrong is told as a
    /// status of gRPC: no connection, or one that was lost, is `UNAVAILABLE`, a limit on time `DEADLINE_EXCEEDED`.
    ///
    /// Messages of a call are sent while its response, or the next message of it, is awaited.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), towpath::Error> {
    /// let channel = towpath::Service::grpc(towpath::Engine::new()?.client());
    /// let channel = channel.origin("https://example.org")?;
    /// // let greeter = GreeterClient::with_interceptor(channel, intercept);
    /// # drop(channel); Ok(()) }
    /// ```
    #[must_use]
    pub fn grpc(client: Client) -> Self {
        Self { kind: Kind::Grpc, ..Self::new(client) }
    }

    /// Changes every request before it is sent: limits on time, repetitions, keys.
    #[must_use]
    pub fn with(
        self,
        shape: impl Fn(crate::Request) -> crate::Request + Send + Sync + 'static,
    ) -> Self {
        Self { shape: Arc::new(shape), ..self }
    }

    /// Asks this origin (`https://example.org`, with a port if it is not the scheme's) for what has a path alone for
    /// its URI, as calls of gRPC have. A URI with an authority goes where it says.
    ///
    /// # Errors
    ///
    /// [`Error::Url`] where it is not scheme and authority alone.
    pub fn origin(self, origin: &str) -> Result<Self, Error> {
        let origin = origin.strip_suffix('/').unwrap_or(origin);
        let url = Url::parse(origin)?;
        // One that is a path, a query or a fragment has a slash more, a `?` or a `#`.
        if origin.bytes().filter(|&byte| byte == b'/').count() > 2 || origin.contains(['?', '#']) {
            return Err(Error::Url("an origin is a scheme and an authority alone"));
        }
        let origin = format!("{}://{}", url.scheme, url.authority).into();
        Ok(Self { origin: Some(origin), ..self })
    }

    fn request<B>(&self, request: &Request<B>) -> Result<crate::Request, Error> {
        let uri = request.uri();
        let url = match &self.origin {
            Some(origin) if uri.authority().is_none() => format!("{origin}{uri}"),
            _ => uri.to_string(),
        };
        let mut wanted = self.client.request(request.method().as_str(), &url);
        wanted = with_fields(wanted, request.headers())?;
        if self.kind == Kind::Grpc {
            let timeout = request.headers().get("grpc-timeout").map(HeaderValue::as_bytes);
            wanted = grpc::prepare(wanted, timeout)?;
        }
        // Layers above it follow redirects and decode, or its `shape` says so.
        Ok((self.shape)(wanted.redirects(0).no_decode()))
    }
}

type Answer = Result<Response<Incoming>, ServiceError>;

impl<B> tower_service::Service<Request<B>> for Service
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Incoming>;
    type Error = ServiceError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (wanted, kind) = (self.request(&request), self.kind);
        let bodiless = request.method() == http::Method::HEAD;
        let body = request.into_body();
        Box::pin(async move {
            let answered = async { exchange(wanted?, body).await }.await;
            match (answered, kind) {
                (Ok((head, outgoing)), _) => Ok(response(head, outgoing, bodiless, kind)),
                (Err(error), Kind::Http) => Err(error),
                (Err(error), Kind::Grpc) => Ok(refusal(&error)),
            }
        })
    }
}

/// Sends a request until its response's head is there; and what is left to send then.
async fn exchange<B>(
    wanted: crate::Request,
    body: B,
) -> Result<(crate::Response, Option<Outgoing>), ServiceError>
where
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.is_end_stream() {
        return Ok((wanted.send_async().await?, None));
    }
    let upload = wanted.upload(body.size_hint().exact())?;
    let body: Pin<Box<dyn Pieces>> = Box::pin(body);
    let mut outgoing = Some(Outgoing { body, upload, rest: Bytes::new() });
    let head = std::future::poll_fn(|context| poll_head(&mut outgoing, context)).await?;
    Ok((head, outgoing))
}

/// A call that came to nothing, as servers say it: with trailers alone.
fn refusal(error: &ServiceError) -> Response<Incoming> {
    let mut response = Response::new(Incoming::empty());
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = status(error);
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
    response
}

/// What an error is for gRPC.
fn status(error: &ServiceError) -> HeaderMap {
    let (code, message) = grpc::status(error);
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", HeaderValue::from(code));
    if let Ok(message) = HeaderValue::from_str(&message) {
        fields.insert("grpc-message", message);
    }
    fields
}

/// Sends until the response's head is there. What is left to send stays.
fn poll_head(
    outgoing: &mut Option<Outgoing>,
    context: &mut Context<'_>,
) -> Poll<Result<crate::Response, ServiceError>> {
    let Some(sending) = outgoing else { return Poll::Ready(Err(Error::Stopped.into())) };
    let sent = sending.poll_send(context);
    if let Poll::Ready(Err(error @ (ServiceError::Body(_) | ServiceError::Trailers))) = sent {
        return Poll::Ready(Err(error));
    }
    // A server that has answered may have stopped listening: that is no failure.
    let head = ready!(sending.upload.poll_response(context))?;
    if sent.is_ready() {
        *outgoing = None;
    }
    Poll::Ready(Ok(head))
}

fn response(
    theirs: crate::Response,
    outgoing: Option<Outgoing>,
    bodiless: bool,
    kind: Kind,
) -> Response<Incoming> {
    let response = head(&theirs);
    let length = theirs.header("content-length").and_then(|length| length.parse().ok());
    // RFC 9110 §8.6: of these it tells what another response would have had.
    let left = length.filter(|_| !bodiless && theirs.status() != 304);
    let body = Incoming { body: Some(theirs.into_body()), outgoing, left, ended: false, kind };
    response.map(|()| body)
}

impl Outgoing {
    /// Done when all of it was handed to the engine.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
        loop {
            while !self.rest.is_empty() {
                let sent = ready!(self.upload.poll_write(context, &self.rest))?;
                self.rest.advance(sent);
            }
            match ready!(self.body.as_mut().poll_piece(context)) {
                Some(piece) => self.rest = piece?,
                None => return Poll::Ready(Ok(self.upload.close()?)),
            }
        }
    }
}

/// A request's body, whatever it is made of.
trait Pieces: Send {
    fn poll_piece(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ServiceError>>>;
}

impl<B> Pieces for B
where
    B: Body + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll_piece(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ServiceError>>> {
        let frame = match ready!(self.poll_frame(context)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(ServiceError::Body(error.into())))),
            Some(Ok(frame)) => frame,
        };
        Poll::Ready(Some(match frame.into_data() {
            Ok(mut data) => Ok(data.copy_to_bytes(data.remaining())),
            Err(_) => Err(ServiceError::Trailers),
        }))
    }
}

impl Incoming {
    const fn empty() -> Self {
        Self { body: None, outgoing: None, left: None, ended: true, kind: Kind::Grpc }
    }

    /// What happened to the request, once the body has ended.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.body.as_ref()?.report()
    }

    /// It ends with this error; as a call of gRPC with a status.
    fn fail(&mut self, error: ServiceError) -> Option<Result<Frame<Bytes>, ServiceError>> {
        self.ended = true;
        Some(match self.kind {
            Kind::Http => Err(error),
            Kind::Grpc => Ok(Frame::trailers(status(&error))),
        })
    }
}

/// One that is over, as layers answer with it that refuse a request.
impl Default for Incoming {
    fn default() -> Self {
        Self::empty()
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = ServiceError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ServiceError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(outgoing) = &mut self.outgoing
            && let Poll::Ready(sent) = outgoing.poll_send(context)
        {
            self.outgoing = None;
            if let Err(error @ (ServiceError::Body(_) | ServiceError::Trailers)) = sent {
                return Poll::Ready(self.fail(error));
            }
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match ready!(body.poll_chunk(context)) {
            Ok(Some(chunk)) => {
                self.left = self.left.map(|left| left.saturating_sub(chunk.len() as u64));
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
            Ok(None) => {
                let trailers = map(body.trailers());
                self.ended = true;
                Poll::Ready((!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers))))
            }
            Err(error) => Poll::Ready(self.fail(error.into())),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.ended => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

impl From<Error> for ServiceError {
    fn from(error: Error) -> Self {
        Self::Request(error)
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Body(_) => f.write_str("the body of the request failed"),
            Self::Trailers => f.write_str("trailers of a request are not sent"),
        }
    }
}

impl std::error::Error for ServiceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Body(error) => Some(&**error),
            Self::Request(_) | Self::Trailers => None,
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("client", &self.client).finish_non_exhaustive()
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("body", &self.body).finish_non_exhaustive()
    }
}
