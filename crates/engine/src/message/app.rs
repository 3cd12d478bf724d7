//! What passes between an app and the worker that carries its requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::head::Head;
use towpath_proto::proxy::{Credentials, Refusal};
use towpath_proto::tls::{ClientTemplate, Fault};
use towpath_proto::{Failure, QueryId};

use super::report::{Answerer, Report};
use crate::client::answers::SavedAnswer;
use crate::client::memory::Saved;
use crate::client::priority::Priority;
use crate::client::race;
use crate::client::timeouts::Network;

/// A request of the app, named by the app; a number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// From the app.
#[derive(Clone, Debug)]
pub enum Command {
    /// How to behave from here on. Without it the defaults hold.
    Settings(Box<Settings>),
    /// How origins are spoken to under TLS, from here on; those that are known keep what they have.
    Tls(ClientTemplate),
    /// Begin a request. It ends with exactly one [`Event::Ended`].
    Open(Box<Open>),
    /// A piece of the request's body. The app sends no more than [`Event::Room`] has made room for.
    Data {
        /// Of which request.
        call: CallId,
        /// The bytes; never empty.
        chunk: Bytes,
    },
    /// The request's body is complete.
    End {
        /// Of which request.
        call: CallId,
    },
    /// The app has used so much of the response's body: that much more may come.
    Consumed {
        /// Of which request.
        call: CallId,
        /// Bytes of [`Event::Data`].
        bytes: usize,
    },
    /// Give a request up. It ends with [`Outcome::Failed`], unless it has ended already.
    Cancel {
        /// Which.
        call: CallId,
    },
    /// The platform's word on the network.
    Network(NetworkChange),
    /// The answer to [`Event::Resolve`].
    Resolved {
        /// Which question.
        query: QueryId,
        /// The addresses, the best first.
        outcome: Result<Vec<IpAddr>, Failure>,
        /// How long they may be kept in place of [`Settings::fresh_for`], and how long that there is no such name.
        lifetime: Option<Duration>,
        /// Who says so.
        by: Answerer,
    },
    /// Where to connect; answered by [`Event::Found`].
    Find(Find),
    /// What became of a caller's own attempt to connect, for the memory.
    Attempted {
        /// Where to.
        address: SocketAddr,
        /// How long it took to a usable connection; `None` when it came to nothing.
        took: Option<Duration>,
    },
    /// What was remembered in an earlier life.
    Restore(Remembered),
    /// Answer with [`Event::Saved`].
    Save,
}

/// How an app's worker behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How connections are raced.
    pub race: race::Options,
    /// Names are asked of the app ([`Event::Resolve`]), not of the driver.
    pub app_resolves: bool,
    /// Bytes of either body that may wait for the slower side, for each request: default 256 KiB.
    pub window_bytes: usize,
    /// Bytes of each response over HTTP/2 that may be under way, where the path bears that many (its bandwidth times
    /// its round trip): default 4 MiB. It begins with [`Settings::window_bytes`], and does not grow where this is less.
    /// All responses of a connection have 16 MiB at most.
    pub max_stream_window: usize,
    /// Requests under way at the same time; one more is refused: default 1024.
    pub max_calls: usize,
    /// Connections to one origin: default 16.
    pub max_connections: usize,
    /// Connections without a request, to all origins together; one more closes the one that has had none for longest.
    /// By default 32.
    pub max_idle: usize,
    /// Whether a request may go onto an open HTTP/2 connection of another origin, where that one's certificate has its
    /// name too, and the name has that address (RFC 9113 §9.1.1): by default it may.
    pub coalesces: bool,
    /// Requests that a connection may serve; it is closed after the last. By default 0: no limit.
    pub requests_per_connection: u32,
    /// How long a connection may have no request: default 60 s.
    pub idle_timeout: Duration,
    /// How long an answer of the resolver is fresh: default 60 s. An older one is used while a new one is asked for.
    pub fresh_for: Duration,
    /// Attempts of the prober, of all origins together, in a second: default 8.
    pub probes_per_second: u32,
    /// Repetitions that may be saved up: default 10. Each request earns a fifth of one.
    pub max_repetitions: u32,
    /// Bytes of a response's head, or of its trailers: default 256 KiB, 1 GiB at most. A longer one fails the request.
    pub max_head_bytes: u32,
    /// Fields of a response's head, or of its trailers: default 1000.
    pub max_fields: u32,
    /// How much of a request's body is kept to be sent again: default 64 KiB.
    pub replay_bytes: usize,
    /// The longest that an origin is left alone after it answered 429 or 503, whatever it asks for: default 5 min. With
    /// zero such answers are like any other.
    pub max_rest: Duration,
    /// Identical requests (method, address, body) in any stretch of [`Settings::identical_window`]; one more is
    /// refused. By default 0: no limit. Mars has 105 an hour. A request whose body follows in pieces is identical to
    /// none.
    pub max_identical: u32,
    /// Default 1 h.
    pub identical_window: Duration,
    /// Bytes that leave in any stretch of [`Settings::flow_window`]: heads and bodies, without TLS. A request that
    /// would send more is refused, or ended where its length was not known. What is repeated counts, and is not
    /// refused. By default 0: no limit. Mars has 80 MB an hour, on mobile networks.
    pub max_flow_bytes: u64,
    /// Default 1 h.
    pub flow_window: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            race: race::Options::default(),
            app_resolves: false,
            window_bytes: 256 * 1024,
            max_stream_window: 4 << 20,
            max_calls: 1024,
            max_connections: 16,
            max_idle: 32,
            coalesces: true,
            requests_per_connection: 0,
            idle_timeout: Duration::from_secs(60),
            fresh_for: Duration::from_secs(60),
            probes_per_second: 8,
            max_repetitions: 10,
            max_head_bytes: 256 * 1024,
            max_fields: 1000,
            replay_bytes: 64 * 1024,
            max_rest: Duration::from_secs(300),
            max_identical: 0,
            identical_window: Duration::from_secs(3600),
            max_flow_bytes: 0,
            flow_window: Duration::from_secs(3600),
        }
    }
}

/// A request that begins.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its number.
    pub call: CallId,
    /// Its head: method, scheme, authority, path and fields.
    pub request: Head,
    /// What is there of its body. A body that is whole goes with its head: neither can be taken without the other.
    pub body: Bytes,
    /// Whether nothing of the body comes after that.
    pub end: bool,
    /// Where it goes.
    pub origin: Origin,
    /// How it is treated.
    pub options: Options,
}

/// A caller that connects on its own wants to know where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    /// The part of the app that asks. The newest question of each is answered.
    pub asker: u64,
    /// The question's number, at the asker's choice.
    pub question: u64,
    /// A name.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Who asked.
    pub asker: u64,
    /// By which question.
    pub question: u64,
    /// The addresses, in the order in which to try them. None when there are none.
    pub addresses: Vec<SocketAddr>,
    /// How long to wait for the first before the second is tried, where that is known.
    pub stagger: Option<Duration>,
    /// Why the resolver had none.
    pub failure: Option<Failure>,
    /// Whether it is the resolver's word; else it is what the name was answered with before, and more follows.
    pub is_last: bool,
}

impl Found {
    /// The last word on a question that cannot be asked.
    #[must_use]
    pub const fn nothing(question: u64) -> Self {
        let failure = Some(Failure::TimedOut);
        Self { asker: 0, question, addresses: Vec::new(), stagger: None, failure, is_last: true }
    }
}

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// A name, or an address as text (IPv6 without brackets).
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// What is spoken below HTTP.
    pub transport: Transport,
}

impl Open {
    /// Where connections for it go.
    pub(crate) fn dialled(&self) -> Origin {
        match &self.options.proxy {
            Some(proxy) => proxy.dialled(self.origin.transport),
            None => self.origin.clone(),
        }
    }
}

impl Proxy {
    /// Where connections through it go, for origins of this transport.
    pub(crate) fn dialled(&self, transport: Transport) -> Origin {
        let transport = match self.protocol {
            ProxyProtocol::Forward => self.transport,
            ProxyProtocol::Connect | ProxyProtocol::Socks5 => transport,
        };
        Origin { host: Arc::clone(&self.host), port: self.port, transport }
    }
}

impl Origin {
    /// Whether it is this machine itself: a loopback address, or a name that has no other (RFC 6761 §6.3).
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = &*self.host;
        let named = host == "localhost" || host.ends_with(".localhost");
        named || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

/// What is spoken below HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// Nothing: plain TCP.
    #[default]
    Plain,
    /// TLS, as [`Command::Tls`] says; without that word the request fails with [`Error::NoTls`].
    Tls,
}

/// Which versions of HTTP are spoken to an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HttpVersions {
    /// Under TLS HTTP/2 where the server chooses it (RFC 7301), where the feature `http2` is built in; else HTTP/1.1.
    #[default]
    Negotiated,
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 alone: in plain text by prior knowledge (RFC 9113 §3.3); under TLS a server that does not choose it
    /// fails the handshake.
    Http2,
}

/// A proxy. It resolves the origin's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Proxy {
    /// A name, or an address as text (IPv6 without brackets).
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// What is spoken below its protocol. Under TLS it is believed as [`Command::Tls`] says.
    pub transport: Transport,
    /// How it is asked.
    pub protocol: ProxyProtocol,
    /// The credentials.
    pub credentials: Option<Credentials>,
    /// More fields for its CONNECT.
    pub fields: Vec<(String, String)>,
}

/// How a proxy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProxyProtocol {
    /// The request itself is sent to it, as its head says it: with a target in absolute-form (RFC 9112 §3.2.2), and who
    /// asks in a field. All origins that are reached so share connections.
    Forward,
    /// For a tunnel, by CONNECT in HTTP/1.1 (RFC 9110 §9.3.6).
    Connect,
    /// For a tunnel, by SOCKS version 5 (RFC 1928, RFC 1929).
    Socks5,
}

/// How a request is treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The proxy through which its origin is reached; connections are shared by requests with the same. By default
    /// none.
    pub proxy: Option<Arc<Proxy>>,
    /// Which versions of HTTP are spoken; connections are shared by requests that want the same.
    pub http: HttpVersions,
    /// From the beginning to the end, with all repetitions, whatever moves; by default there is no such limit.
    pub total: Option<Duration>,
    /// From the beginning, or from when the request's body last made progress, until the response begins, with all
    /// repetitions; and again from a break until a response goes on: default 60 s. What has begun is watched by
    /// `gap`.
    pub answer: Option<Duration>,
    /// From the beginning until it is given to a connection for the first time; [`Error::Connect`] with
    /// [`Failure::TimedOut`] then. Where it is set, `answer` counts from there. By default there is no such limit.
    pub connect: Option<Duration>,
    /// From the last byte sent to the first received, in one attempt; by formula and history where not set.
    pub first_byte: Option<Duration>,
    /// Between two pieces of the response; by formula where not set.
    pub gap: Option<Duration>,
    /// One attempt; by formula where not set. It does not count once the response has begun.
    pub attempt: Option<Duration>,
    /// How often it is repeated after a failure: default 2.
    pub retries: u32,
    /// Whether it may be repeated when it is not known what became of it.
    pub repeat: Repeat,
    /// Whether it waits when the platform says that there is no network.
    pub waits: bool,
    /// Whether it fails at once while its origin rests ([`Settings::max_rest`]); by default it waits. Then it is not
    /// repeated for an answer 429 or 503 either.
    pub fails_at_rest: bool,
    /// Whether the limits on identical requests and on bytes hold for it; they do by default.
    pub limited: bool,
    /// How urgent it is among those that wait for a connection to the same origin.
    pub priority: Priority,
    /// Whether its response, once begun, may go on on another connection, where a strong `etag` and a known length
    /// allow it: by default it may.
    pub resumes: bool,
    /// Whether it is sent a second time, on another connection, when it takes longer than 95 of 100 requests of its
    /// size to the same origin did; the first answer counts. Only what may be repeated. By default not.
    pub hedges: bool,
    /// Whether it asks to leave HTTP for the protocol that its `upgrade` names (RFC 9110 §7.8, RFC 8441): after an
    /// answer 101 both bodies are that protocol's bytes. It has no body before that. By default not.
    pub upgrades: bool,
    /// Bytes of its body, where known, for its timeouts and for the limit on bytes.
    pub body_bytes: u64,
    /// A number that stands for its body, where that is known as a whole and identical requests are limited.
    pub body_hash: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            proxy: None,
            http: HttpVersions::Negotiated,
            total: None,
            answer: Some(Duration::from_secs(60)),
            connect: None,
            first_byte: None,
            gap: None,
            attempt: None,
            retries: 2,
            repeat: Repeat::ByMethod,
            waits: false,
            fails_at_rest: false,
            limited: true,
            priority: Priority::Normal,
            resumes: true,
            hedges: false,
            upgrades: false,
            body_bytes: 0,
            body_hash: None,
        }
    }
}

/// Whether a request may be sent again when it is not known whether it was processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// As its method says (RFC 9110 §9.2.2).
    #[default]
    ByMethod,
    /// It may: it carries a key by which the server knows it again.
    Always,
    /// It may not.
    Never,
}

/// What outlives an engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remembered {
    /// What is known of addresses.
    pub addresses: Vec<Saved>,
    /// What names were answered with.
    pub answers: Vec<SavedAnswer>,
}

/// What the platform says of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkChange {
    /// A name by which it is known again.
    pub label: Arc<str>,
    /// Of what kind it is.
    pub kind: Network,
    /// Whether there is one.
    pub online: bool,
    /// Origins on this machine itself are not concerned: they are reached without a network, and stay with their
    /// connections.
    pub spares_loopback: bool,
}

/// To the app.
#[derive(Clone, Debug)]
pub enum Event {
    /// The response begins.
    Head {
        /// To which request.
        call: CallId,
        /// Its head.
        head: Head,
    },
    /// A piece of the response's body.
    Data {
        /// Of which request.
        call: CallId,
        /// The bytes; never empty.
        chunk: Bytes,
    },
    /// The response's trailers.
    Trailers {
        /// Of which request.
        call: CallId,
        /// The trailers.
        trailers: Head,
    },
    /// So much of the request's body was taken: that much more may be sent.
    Room {
        /// Of which request.
        call: CallId,
        /// Bytes of [`Command::Data`].
        bytes: usize,
    },
    /// It is over. Nothing more comes for it.
    Ended {
        /// Which request.
        call: CallId,
        /// What became of it.
        outcome: Outcome,
        /// What happened, with times.
        report: Box<Report>,
    },
    /// A name to resolve; answered by [`Command::Resolved`].
    Resolve {
        /// The question's number.
        query: QueryId,
        /// The name.
        name: Arc<str>,
    },
    /// The answer to [`Command::Find`]: at most two, of which the second is the last.
    Found(Found),
    /// The answer to [`Command::Save`].
    Saved(Remembered),
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The response is whole.
    Complete,
    /// There is no response, or only a part of one.
    Failed(Error),
}

/// Why there is no whole response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The app took it back.
    Cancelled,
    /// The platform says that there is no network.
    Offline,
    /// The name has no addresses.
    Resolve(Failure),
    /// No address takes connections.
    Connect(Failure),
    /// The TLS handshake failed.
    Tls(Fault),
    /// The proxy gives no tunnel.
    Proxy(Refusal),
    /// A limit on time; which, is told by its layer.
    TimedOut(Layer),
    /// The connection ended before the response was whole.
    Disconnected,
    /// What came was not HTTP.
    Protocol,
    /// TLS is asked for, and it was not said how.
    NoTls,
    /// HTTP/2 is asked for, and not built in.
    NoHttp2,
    /// The server speaks HTTP/2, and takes no requests there that leave HTTP (RFC 8441 §3).
    NoUpgrade,
    /// Too many requests are under way, or too many origins are known.
    Overflow,
    /// The origin answered 429 or 503 lately, and is left alone for so long yet: the request does not wait, or its time
    /// would be over before.
    Resting(Duration),
    /// A limit that the app has set on itself.
    Limited(Limit),
}

/// A limit that keeps an app's mistake from hurting others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Settings::max_identical`].
    Identical,
    /// [`Settings::max_flow_bytes`].
    Flow,
}

impl Limit {
    /// In a few words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Identical => "identical requests",
            Self::Flow => "bytes sent",
        }
    }
}

/// A limit on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The first byte of the response.
    FirstByte,
    /// The next byte of the response.
    Gap,
    /// One attempt.
    Attempt,
    /// Everything.
    Total,
}

impl Layer {
    /// In a few words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstByte => "first byte",
            Self::Gap => "gap",
            Self::Attempt => "attempt",
            Self::Total => "total",
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::Offline => f.write_str("there is no network"),
            Self::Resolve(failure) => write!(f, "cannot resolve the name: {failure}"),
            Self::Connect(failure) => write!(f, "cannot connect: {failure}"),
            Self::Tls(fault) => write!(f, "the TLS handshake failed: {fault}"),
            Self::Proxy(refusal) => write!(f, "the proxy gives no tunnel: {refusal}"),
            Self::NoTls => f.write_str("TLS is not set up"),
            Self::TimedOut(layer) => write!(f, "timed out ({})", layer.as_str()),
            Self::Disconnected => f.write_str("the connection ended before the response was whole"),
            Self::Protocol => f.write_str("the response is not HTTP"),
            Self::NoHttp2 => f.write_str("HTTP/2 is not built in"),
            Self::NoUpgrade => f.write_str("the server takes no other protocol over HTTP/2"),
            Self::Overflow => f.write_str("too many requests are under way"),
            Self::Limited(limit) => write!(f, "the limit on {} is reached", limit.as_str()),
            Self::Resting(left) => {
                write!(f, "the server wants to be left alone for {:.1} s yet", left.as_secs_f64())
            }
        }
    }
}

impl std::error::Error for Error {}
