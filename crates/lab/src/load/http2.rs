//! Load in HTTP/2 (RFC 9113): each connection carries several streams.
//!
//! In the clear the server is taken to speak it (prior knowledge, RFC 9113 §3.3), under TLS it says so by ALPN.
//! A connection carries requests once the server's SETTINGS have come, and no more streams than those allow; one that
//! the server leaves by GOAWAY ends with its last answer and is opened again.

mod line;
pub(super) mod reasons;

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::http2::Options;
use towpath_proto::{Head, Name};

pub(super) use self::line::Line;
use super::tls::Dialler;
use super::{LoadError, Plan};

/// The request, and what all connections share.
pub(super) struct Template {
    head: Head,
    body: Bytes,
    /// The status that counts is gRPC's.
    is_grpc: bool,
    tls: Option<Dialler>,
    options: Arc<Options>,
}

impl Template {
    pub(super) fn new(plan: &Plan) -> Result<Self, LoadError> {
        let request = &plan.request;
        let mut head = head_of(plan);
        for (name, value) in &request.headers {
            if name.eq_ignore_ascii_case("host") {
                head.set_authority(value.as_bytes());
            } else if !head.append_bytes(name.to_ascii_lowercase().as_bytes(), value.as_bytes()) {
                return Err(LoadError::Plan("a header's name is not one"));
            }
        }
        let is_grpc = is_grpc(&head);
        // gRPC's messages say how long they are themselves.
        if !request.body.is_empty() && !is_grpc && head.get(Name::ContentLength).is_none() {
            head.append(Name::ContentLength, request.body.len().to_string().as_bytes());
        }
        Ok(Self {
            head,
            body: Bytes::from(request.body.clone()),
            is_grpc,
            tls: plan.tls.as_ref().map(|tls| tls.dialler()),
            options: Arc::new(options()),
        })
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

fn head_of(plan: &Plan) -> Head {
    let request = &plan.request;
    let usual = if request.body.is_empty() { "GET" } else { "POST" };
    let method = request.method.as_deref().unwrap_or(usual);
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    let target = &plan.target;
    Head::request(
        method.as_bytes(),
        scheme.as_bytes(),
        target.authority.as_bytes(),
        target.path.as_bytes(),
    )
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
