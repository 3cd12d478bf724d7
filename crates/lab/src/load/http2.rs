//! Load in HTTP/2 (RFC 9113): each connection carries several streams.
//!
//! In the clear the server is taken to speak it (prior knowledge, RFC 9113 §3.3), under TLS it says so by ALPN.
//! A connection carries requests once the server's SETTINGS have come, and no more streams than those allow; one that
//! the server leaves by GOAWAY ends with its last answer and is opened again.

mod line;
pub(super) mod reasons;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::http2::Options;
use towpath_proto::{Head, Name};

pub(super) use self::line::Line;
use super::mix::{Form, Messages, Piece, Values, pieces};
use super::tls::Dialler;
use super::{Entry, LoadError, Plan};

/// The requests, and what all connections share.
pub(super) struct Template {
    messages: Messages<Message>,
    tls: Option<Dialler>,
    options: Arc<Options>,
}

/// A request.
pub(super) struct Message {
    head: Head,
    body: Bytes,
    /// The status that counts is gRPC's.
    is_grpc: bool,
    holes: Option<Box<Holes>>,
}

/// What is filled in for each request of an entry, and what stays.
struct Holes {
    method: String,
    scheme: &'static str,
    authority: String,
    path: Vec<Piece>,
    fields: Vec<(String, Vec<Piece>)>,
    body: Vec<Piece>,
}

impl Template {
    pub(super) fn new(plan: &Plan) -> Result<Self, LoadError> {
        Ok(Self {
            messages: Messages::new(plan)?,
            tls: plan.tls.as_ref().map(|tls| tls.dialler()),
            options: Arc::new(options()),
        })
    }
}

impl Form for Message {
    fn new(plan: &Plan, entry: &Entry, has_holes: bool) -> Result<Self, LoadError> {
        let request = &entry.request;
        let usual = if request.body.is_empty() { "GET" } else { "POST" };
        let method = request.method.as_deref().unwrap_or(usual);
        let scheme = if plan.tls.is_some() { "https" } else { "http" };
        let path = entry.path.as_deref().unwrap_or(&plan.target.path);
        let fields =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes().into()));
        let body = request.body.clone();
        let authority = &plan.target.authority;
        let mut message = Self::made(method, scheme, authority, path.as_bytes(), fields, body)?;
        if has_holes {
            let of = |(name, value): &(String, String)| (name.clone(), pieces(value.as_bytes()));
            message.holes = Some(Box::new(Holes {
                method: method.to_owned(),
                scheme,
                authority: authority.clone(),
                path: pieces(path.as_bytes()),
                fields: request.headers.iter().map(of).collect(),
                body: pieces(&request.body),
            }));
        }
        Ok(message)
    }

    fn fill(&mut self, values: &mut Values<'_>) {
        let Some(holes) = self.holes.take() else { return };
        let path = values.fill(&holes.path);
        let fields: Vec<_> = holes
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), Cow::Owned(values.fill(value))))
            .collect();
        let body = values.fill(&holes.body);
        let fields = fields.into_iter();
        // Its names were looked at when the entry was read.
        if let Ok(next) =
            Self::made(&holes.method, holes.scheme, &holes.authority, &path, fields, body)
        {
            *self = next;
        }
        self.holes = Some(holes);
    }
}

impl Message {
    fn made<'a>(
        method: &str,
        scheme: &str,
        authority: &str,
        path: &[u8],
        fields: impl Iterator<Item = (&'a str, Cow<'a, [u8]>)>,
        body: Vec<u8>,
    ) -> Result<Self, LoadError> {
        let mut head =
            Head::request(method.as_bytes(), scheme.as_bytes(), authority.as_bytes(), path);
        for (name, value) in fields {
            if name.eq_ignore_ascii_case("host") {
                head.set_authority(&value);
            } else if !head.append_bytes(name.to_ascii_lowercase().as_bytes(), &value) {
                return Err(LoadError::Plan("a header's name is not one"));
            }
        }
        let is_grpc = is_grpc(&head);
        // gRPC's messages say how long they are themselves.
        if !body.is_empty() && !is_grpc && head.get(Name::ContentLength).is_none() {
            head.append(Name::ContentLength, body.len().to_string().as_bytes());
        }
        Ok(Self { head, body: Bytes::from(body), is_grpc, holes: None })
    }
}

/// Whether a message is one of gRPC's.
pub(crate) fn is_grpc(head: &Head) -> bool {
    head.get(Name::ContentType).is_some_and(|value| value.starts_with(b"application/grpc"))
}

/// A message of gRPC that is not compressed: a flag, its length, and its bytes.
pub(crate) fn grpc_message(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), content].concat()
}

/// Windows so large that the generator is not what a body waits for.
fn options() -> Options {
    Options {
        max_concurrent_streams: u32::MAX >> 1,
        stream_window: WINDOW,
        connection_window: WINDOW,
        max_fields: 1000,
        ..Options::default()
    }
}

const WINDOW: u32 = 1 << 26;
