//! Responses of the admin endpoint: a status and a body, whole or made piece by piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, SERVER};
use hyper::{Response, StatusCode};

/// What a command answers.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: ReplyBody,
}

impl Reply {
    /// 200 with text.
    pub(crate) fn text(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, PLAIN, body)
    }

    /// 202 with text: it is being done.
    pub(crate) fn accepted(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::ACCEPTED, PLAIN, body)
    }

    /// 200 with JSON.
    pub(crate) fn json(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, JSON, body)
    }

    /// 200 with HTML.
    pub(crate) fn html(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, "text/html; charset=UTF-8", body)
    }

    /// Another status, with text.
    pub(crate) fn refused(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self::of(status, PLAIN, body)
    }

    /// The same where Envoy does not say in which characters.
    pub(crate) fn refused_plainly(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self::of(status, "text/plain", body)
    }

    /// 200 with bytes to keep.
    pub(crate) fn file(body: impl Into<Bytes>) -> Self {
        Self::of(StatusCode::OK, "application/octet-stream", body)
    }

    /// 200 with a body that is made while it is sent, so that it never lies in memory as a whole.
    pub(crate) fn streamed(
        content_type: &'static str,
        chunks: impl Iterator<Item = Bytes> + Send + 'static,
    ) -> Self {
        Self { status: StatusCode::OK, content_type, body: ReplyBody::Streamed(Box::new(chunks)) }
    }

    /// As hyper wants it.
    pub(crate) fn into_response(self) -> Response<ReplyBody> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, max-age=0"));
        headers.insert(
            HeaderName::from_static("x-content-type-options"),
            HeaderValue::from_static("nosniff"),
        );
        headers.insert(SERVER, HeaderValue::from_static("envoy"));
        response
    }

    fn of(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, content_type, body: ReplyBody::Whole(Some(body.into())) }
    }
}

/// `text/plain`, as Envoy writes it.
pub(crate) const PLAIN: &str = "text/plain; charset=UTF-8";
/// `application/json`.
pub(crate) const JSON: &str = "application/json";

/// A body.
pub(crate) enum ReplyBody {
    Whole(Option<Bytes>),
    Streamed(Box<dyn Iterator<Item = Bytes> + Send>),
}

impl ReplyBody {
    /// Keeps something until the body has been sent; one that is whole counts as sent.
    pub(crate) fn keep(&mut self, kept: impl Send + 'static) {
        if let Self::Streamed(chunks) = self {
            let sent = std::mem::replace(chunks, Box::new(std::iter::empty()));
            *chunks = Box::new(sent.inspect(move |_| {
                let _ = &kept;
            }));
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Self::Whole(bytes) => bytes.take(),
            Self::Streamed(chunks) => chunks.find(|chunk| !chunk.is_empty()),
        };
        Poll::Ready(next.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Streamed(_) => SizeHint::default(),
        }
    }
}
