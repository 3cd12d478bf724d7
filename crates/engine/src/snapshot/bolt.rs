//! How Bolt is spoken, on both sides. Towpath's own network filter and cluster options; `docs/bolt.md` has their
//! schema.

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::bolt::{Frame, Options, Version};

use super::Http;
use crate::matcher::StringMatcher;

/// `towpath.filters.network.bolt_proxy`.
#[derive(Debug)]
pub struct BoltProxy {
    /// What it shares with HTTP: prefix of the counters, the routes' actions, access logs, timeouts. Its table has one
    /// virtual host, whose routes stand in the order of `matches`.
    pub http: Arc<Http>,
    /// What each route takes; the first match wins.
    pub matches: Vec<BoltMatch>,
    /// What a client may send.
    pub options: Options,
    /// `max_requests_in_flight`: requests of one connection that are not answered; above it, the connection is not
    /// read. Default 1024, at least 1.
    pub max_in_flight: u32,
    /// `max_unread_bytes`: answers that wait for a client that does not read them; above it, the client is cut off.
    /// Default 16 MiB.
    pub max_unread: usize,
    /// `max_held_bytes`: requests of one connection that are not answered; above it, the connection is not read.
    /// Likewise bodies that are collected for it over HTTP; above it, a call is answered with an error. Default 16 MiB.
    pub max_held: usize,
    /// `go_away`: clients understand MOSN's `GoAway` and are told so before their connection ends. Default false:
    /// sofa-bolt takes it for a protocol error.
    pub go_away: bool,
}

/// What a route takes: all that is given must match.
#[derive(Debug, Default)]
pub struct BoltMatch {
    /// `service`.
    pub service: Option<StringMatcher>,
    /// `method`.
    pub method: Option<StringMatcher>,
    /// `headers`.
    pub headers: Vec<BoltHeader>,
}

/// A test of one key of the block of headers. Keys are compared with case.
#[derive(Debug)]
pub struct BoltHeader {
    /// The key.
    pub name: Arc<str>,
    /// What one of its values must match; none asks only that the key is there.
    pub value: Option<StringMatcher>,
    /// `invert_match`.
    pub invert: bool,
}

/// How the requests of a route change their protocol.
#[derive(Debug)]
pub enum Bridge {
    /// HTTP comes in, Bolt goes out.
    ToBolt(ToBolt),
    /// Bolt comes in, HTTP/1.1 goes out.
    ToHttp(ToHttp),
}

/// `towpath.extensions.bolt.v1.BoltBridge`: each request of an HTTP route becomes a call, its body the content.
#[derive(Debug)]
pub struct ToBolt {
    /// `service`; without it the path's first segment.
    pub service: Option<Arc<str>>,
    /// `method`; without it the path's next segment.
    pub method: Option<Arc<str>>,
    /// `class` of the content.
    pub class: Bytes,
    /// `codec`: how the content is serialised; 1 is Hessian 2.
    pub codec: u8,
    /// `version` and `checksum`.
    pub version: Version,
    /// `content_type` of answers that do not name one.
    pub content_type: Arc<str>,
    /// `max_request_bytes`: the longest body that is collected. Default 1 MiB.
    pub max_request: usize,
}

/// `towpath.extensions.bolt.v1.HttpBridge`: each call of a Bolt route becomes a request, its content the body.
#[derive(Debug)]
pub struct ToHttp {
    /// `method` of the requests. Default POST.
    pub method: Arc<str>,
    /// `host`: their authority; without it the cluster's name.
    pub host: Option<Arc<str>>,
    /// `path_prefix`: what stands before `/<service>/<method>`.
    pub path_prefix: Arc<str>,
    /// `content_type` of requests whose block of headers does not name one.
    pub content_type: Arc<str>,
    /// `class` of the content of successful answers that do not name one.
    pub class: Bytes,
    /// `max_response_bytes`: the longest body that is collected. Default 1 MiB.
    pub max_response: usize,
}

/// `towpath.extensions.bolt.v1.BoltProtocolOptions`: a cluster that speaks Bolt.
#[derive(Debug, PartialEq, Eq)]
pub struct BoltUpstream {
    /// `connections_per_host`: connections of one worker to one host, which all its clients share. Default 1.
    pub connections_per_host: u32,
    /// `max_requests_in_flight` on one of them; the next ones wait. Default 4096, at most 32,768.
    pub max_in_flight: u32,
    /// What a server may send.
    pub options: Options,
    /// Whether and how quiet connections are asked for a sign of life.
    pub heartbeat: Option<Heartbeat>,
}

/// `heartbeat` of the cluster's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// A connection on which nothing came for this long is asked. Default 15 s.
    pub interval: Duration,
    /// How long it has for its answer. Default 1 s.
    pub timeout: Duration,
    /// It is closed when so many in a row are missed. Default 3, at least 1.
    pub misses: u32,
}

impl Default for Heartbeat {
    /// As the client of sofa-bolt has it.
    fn default() -> Self {
        Self { interval: Duration::from_secs(15), timeout: Duration::from_secs(1), misses: 3 }
    }
}

impl BoltProxy {
    /// The first route that takes the request. A block of headers that is not made of whole pairs has no key at all.
    #[must_use]
    pub fn pick(&self, frame: &Frame) -> Option<usize> {
        let (service, method) =
            (LazyCell::new(|| frame.service()), LazyCell::new(|| frame.method()));
        self.matches.iter().position(|route| {
            is_taken(route.service.as_ref(), || *service)
                && is_taken(route.method.as_ref(), || *method)
                && route.headers.iter().all(|header| header.matches(frame))
        })
    }
}

fn is_taken<'f>(wanted: Option<&StringMatcher>, value: impl FnOnce() -> Option<&'f [u8]>) -> bool {
    wanted.is_none_or(|wanted| value().is_some_and(|value| wanted.matches(value)))
}

impl BoltHeader {
    fn matches(&self, frame: &Frame) -> bool {
        let key = self.name.as_bytes();
        let found = frame.headers().is_ok_and(|mut headers| {
            headers.any(|(name, value)| {
                name == key && self.value.as_ref().is_none_or(|wanted| wanted.matches(value))
            })
        });
        found != self.invert
    }
}
