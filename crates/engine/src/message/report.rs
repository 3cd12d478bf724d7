//! What happened to one request of the app: every question to DNS, connect attempt and attempt, with times.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use towpath_proto::head::Version;
use towpath_proto::proxy::Refusal;
use towpath_proto::tls::Fault;
use towpath_proto::{Address, Failure, FlowLimit, Instant};

use super::app::{Error, Layer, Proxy};
use crate::client::priority::Priority;
use crate::client::race::Why;
use crate::client::timeouts::Layers;
use crate::record::Record;

/// The record of one request. Times are the driver's; [`Record::start`] is when it began.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is known of every stream.
    pub record: Record,
    /// The label of the network that it began on.
    pub network: Arc<str>,
    /// How urgent it was.
    pub priority: Priority,
    /// The proxy that it goes through.
    pub proxy: Option<Arc<Proxy>>,
    /// What the proxy said of credentials that it wants, where it gave no tunnel for want of them: the values of its
    /// fields `proxy-authenticate`.
    pub proxy_challenges: Vec<String>,
    /// Questions to the resolver that were under way while it waited.
    pub lookups: Vec<Lookup>,
    /// Connection attempts that were under way while it waited.
    pub attempts: Vec<Attempt>,
    /// Each time that it was given to a connection.
    pub tries: Vec<Try>,
    /// The limits on time that held for the last attempt.
    pub layers: Option<Layers>,
    /// The limit that ended it.
    pub fired: Option<Layer>,
    /// Repetitions after a failure.
    pub retries: u32,
    /// Repetitions on a standby connection, because the one it was on did not move.
    pub redone: u32,
    /// Times that it was sent a second time beside the first: 0 or 1.
    pub hedges: u32,
    /// Times that its response went on on another connection; the first 32.
    pub resumed: Vec<Resumed>,
    /// Times that its connection's peer was asked for a sign of life (PING, HTTP/2) for it; the first 32.
    pub pings: Vec<Ping>,
    /// Bounds on what its connection has under way, while it was on it; the first 32.
    pub limits: Vec<Limited>,
    /// Times that the window of each response on its connection grew (HTTP/2); the first 32.
    pub widened: Vec<Widened>,
    /// Times that it waited because its origin had too much to do; the first 32.
    pub rests: Vec<Rested>,
}

/// A question to the resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// When it was asked.
    pub asked: Instant,
    /// When it was answered.
    pub answered: Option<Instant>,
    /// How many addresses, or why none.
    pub outcome: Option<Result<usize, Failure>>,
    /// Who answered.
    pub by: Answerer,
}

/// Who answered a question for addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answerer {
    /// The system, or the DNS servers that the driver asks.
    #[default]
    System,
    /// The app.
    App,
    /// A server of DNS over HTTPS (RFC 8484); with a fault it has, no answer came.
    Https(Option<HttpsFault>),
}

/// Why a server of DNS over HTTPS told no addresses of a name that may have some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpsFault {
    /// It was not reached, or its response was not whole.
    Request(Error),
    /// It could not be asked: TLS cannot be set up, say.
    Unasked,
    /// It answered with a status that is not 200.
    Status(u16),
    /// Its answer is no `application/dns-message`.
    ContentType,
    /// Its answer is longer than any DNS message: 65535 bytes.
    TooLong,
    /// Its answer is no DNS message that answers the question.
    Malformed,
    /// Its answer was cut off by the server (the bit TC), where HTTP has room for all of it.
    Truncated,
    /// Its answer has this response code of DNS (RFC 1035 §4.1.1).
    Code(u8),
}

impl HttpsFault {
    /// Whether it is an answer, so that the same question would be answered so again.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Status(status) => !matches!(status, 408 | 425 | 429 | 500..),
            // As an origin that refuses ends its requests.
            Self::Request(
                Error::Tls(_)
                | Error::NoTls
                | Error::NoHttp2
                | Error::Resolve(_)
                | Error::Connect(_)
                | Error::Protocol,
            )
            | Self::Unasked
            | Self::ContentType
            | Self::TooLong
            | Self::Malformed
            | Self::Truncated => true,
            // Servers may know later what they cannot tell, except what they do not want or know how to.
            Self::Code(code) => matches!(code, 1 | 4 | 5),
            Self::Request(_) => false,
        }
    }
}

impl fmt::Display for HttpsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Unasked => f.write_str("it cannot be asked"),
            Self::Status(status) => write!(f, "the server answered {status}"),
            Self::ContentType => f.write_str("the answer is no application/dns-message"),
            Self::TooLong => f.write_str("the answer is longer than 65535 bytes"),
            Self::Malformed => f.write_str("the answer is no DNS message to the question"),
            Self::Truncated => f.write_str("the answer is cut off"),
            Self::Code(1) => f.write_str("the server does not understand the question (FORMERR)"),
            Self::Code(2) => f.write_str("the server cannot tell (SERVFAIL)"),
            Self::Code(4) => f.write_str("the server does not do that (NOTIMP)"),
            Self::Code(5) => f.write_str("the server does not want to tell (REFUSED)"),
            Self::Code(code) => write!(f, "the server answered with code {code} of DNS"),
        }
    }
}

/// A connection attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where to.
    pub address: SocketAddr,
    /// Why it was begun.
    pub why: Why,
    /// What was known of the address, in words; empty when nothing.
    pub known: String,
    /// When it began.
    pub started: Instant,
    /// When it came to something.
    pub ended: Option<Instant>,
    /// What it came to; `None` while it is under way.
    pub outcome: Option<AttemptOutcome>,
}

/// What a connection attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// A usable connection.
    Usable,
    /// A failure.
    Failed(Failure),
    /// A connection whose TLS handshake failed.
    Tls(Fault),
    /// A connection to a proxy that gave no tunnel.
    Proxy(Refusal),
    /// Given up: too old, or a fresher one took its place.
    GivenUp,
}

/// The [`Try::reset_reason`] of one that another beside it was quicker than: it went on until then.
pub const OTHER_FIRST: &str = "another attempt answered first";

/// One time that a request was given to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// When.
    pub began: Instant,
    /// Whose connection.
    pub peer: Address,
    /// Which connection, as a number of this worker.
    pub connection: u64,
    /// What is spoken there.
    pub version: Version,
    /// It had carried a request before.
    pub reused: bool,
    /// The name that the connection was opened for, where it is another origin's.
    pub shared: Option<Arc<str>>,
    /// It was begun beside another, which had no answer yet.
    pub hedge: bool,
    /// Why it ended without an answer; empty if it did not.
    pub reset_reason: &'static str,
}

/// A response that went on where it had stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// When the rest began.
    pub at: Instant,
    /// Bytes of the body that the app had already.
    pub from: u64,
}

/// A PING, which a peer answers at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// When it was sent.
    pub at: Instant,
    /// On which connection, as a number of this worker.
    pub connection: u64,
    /// When something came over that connection.
    pub answered: Option<Instant>,
}

/// A bound on what a connection has under way, because its path is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Since when.
    pub at: Instant,
    /// Which direction, and how much.
    pub limit: FlowLimit,
}

/// A window that grew, because the path bears more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widened {
    /// When.
    pub at: Instant,
    /// Bytes of each response that may be under way from then on.
    pub bytes: u32,
}

/// A wait because the origin had answered 429 or 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rested {
    /// Since when.
    pub began: Instant,
    /// Until when, with the request's own jitter.
    pub until: Instant,
    /// The origin named the time (`Retry-After`).
    pub asked: bool,
    /// What it answered to this request; `None` where it had answered another.
    pub status: Option<u16>,
}
