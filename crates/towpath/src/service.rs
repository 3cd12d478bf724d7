//! A client as a [`tower_service::Service`], for what is built of `tower`'s layers and the `http` crate's types.
//! Feature `tower`.
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
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};

use crate::report::Report;
use crate::upload::Upload;
use crate::{Client, Error};

/// A [`Client`] that answers [`http::Request`]s, whose URI has to be absolute. It is always ready: what is too much
/// fails.
#[derive(Clone)]
pub struct Service {
    client: Client,
    shape: Arc<Shape>,
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
    body: crate::Body,
    /// What is left of the request.
    outgoing: Option<Outgoing>,
    left: Option<u64>,
    ended: bool,
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
        Self { client, shape: Arc::new(|request| request) }
    }

    /// Changes every request before it is sent: limits on time, repetitions, keys.
    #[must_use]
    pub fn with(
        self,
        shape: impl Fn(crate::Request) -> crate::Request + Send + Sync + 'static,
    ) -> Self {
        Self { shape: Arc::new(shape), ..self }
    }

    fn request<B>(&self, request: &Request<B>) -> Result<crate::Request, Error> {
        let mut wanted = self.client.request(request.method().as_str(), &request.uri().to_string());
        for (name, value) in request.headers() {
            let value = std::str::from_utf8(value.as_bytes())
                .map_err(|_| Error::NotAToken(name.as_str().to_owned()))?;
            wanted = wanted.header(name.as_str(), value);
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
        let wanted = self.request(&request);
        let bodiless = request.method() == http::Method::HEAD;
        let body = request.into_body();
        Box::pin(async move {
            let wanted = wanted?;
            if body.is_end_stream() {
                return response(wanted.send_async().await?, None, bodiless);
            }
            let upload = wanted.upload(body.size_hint().exact())?;
            let body: Pin<Box<dyn Pieces>> = Box::pin(body);
            let mut outgoing = Some(Outgoing { body, upload, rest: Bytes::new() });
            let head = std::future::poll_fn(|context| poll_head(&mut outgoing, context)).await?;
            response(head, outgoing, bodiless)
        })
    }
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

fn response(theirs: crate::Response, outgoing: Option<Outgoing>, bodiless: bool) -> Answer {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(theirs.status()).unwrap_or_default();
    *response.version_mut() = Version::HTTP_11;
    *response.headers_mut() = map(theirs.headers());
    let length = theirs.header("content-length").and_then(|length| length.parse().ok());
    // RFC 9110 §8.6: of these it tells what another response would have had.
    let left = length.filter(|_| !bodiless && theirs.status() != 304);
    let body = Incoming { body: theirs.into_body(), outgoing, left, ended: false };
    Ok(response.map(|()| body))
}

/// Fields that the `http` crate does not take are left out; there are none among those that were received.
fn map<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> HeaderMap {
    fields
        .filter_map(|(name, value)| {
            HeaderName::from_bytes(name).ok().zip(HeaderValue::from_bytes(value).ok())
        })
        .collect()
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
    /// What happened to the request, once the body has ended.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.body.report()
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
                self.ended = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
        match ready!(self.body.poll_chunk(context)) {
            Ok(Some(chunk)) => {
                self.left = self.left.map(|left| left.saturating_sub(chunk.len() as u64));
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
            Ok(None) => {
                self.ended = true;
                let trailers = map(self.body.trailers());
                Poll::Ready((!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers))))
            }
            Err(error) => {
                self.ended = true;
                Poll::Ready(Some(Err(error.into())))
            }
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
