//! Why there is no response, or no whole one.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use towpath_engine::local::message::{Error as Failed, Layer};
use towpath_engine::local::report::{Answerer, AttemptOutcome, HttpsFault, Report};
use towpath_proto::proxy::Refusal;
use towpath_proto::tls::Fault;
use towpath_proto::{Failure, Instant};

/// Why there is no response, or no whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The caller's fault: the URL is none that can be asked.
    Url(&'static str),
    /// The caller's fault: a method, or the name of a field, is not a token.
    NotAToken(String),
    /// The caller's fault: more was written than the request's `content-length`, or after its end.
    Upload(&'static str),
    /// The caller's fault: what should be a [`Proxy`](crate::Proxy) is none.
    Proxy(&'static str),
    /// The peer's or the network's fault: the engine tells which.
    Failed(FailedRequest),
    /// The peer's fault: it sent the request from place to place.
    Redirect(&'static str),
    /// The peer's fault: the response's body is not in the coding that it says.
    Decoding(&'static str),
    /// The peer's fault: it does not send the events that were asked for ([`crate::events`]).
    Events(&'static str),
    /// The peer's fault, or the caller's who sends what is closed: no WebSocket, or not any more.
    WebSocket(&'static str),
    /// The response's status says that the request failed
    /// ([`Response::error_for_status`](crate::Response::error_for_status)).
    Status(u16),
    /// The response's body is not the JSON that was expected.
    Json(String),
    /// The response's body is larger than the caller takes, in bytes.
    TooLarge(usize),
    /// The caller's fault, or the platform's: TLS cannot be set up as asked.
    Tls(String),
    /// A resource is missing: the engine could not be started, or too much waits for it.
    Engine(String),
    /// The caller's fault: on the engine's own thread, where handlers and resolvers are called, nothing may wait for
    /// it.
    EngineThread,
    /// The caller's fault: the request's [`Handler`](crate::Handler) panicked. The request was given up, and the engine
    /// goes on.
    Handler,
    /// The engine was stopped.
    Stopped,
}

/// A request that was made, and came to nothing or to a part of a response.
#[derive(Clone)]
pub struct FailedRequest {
    why: Failed,
    cause: Option<Cause>,
    report: Option<Arc<Report>>,
}

/// What went wrong last before a limit on time passed, or a server of DNS over HTTPS refused: the
/// [`source`](std::error::Error::source) of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The name had no addresses.
    Resolve(Failure),
    /// The server of DNS over HTTPS told no addresses.
    DnsOverHttps(HttpsFault),
    /// The attempt to connect there failed.
    Connect(SocketAddr, Failure),
    /// The TLS handshake there failed.
    Tls(SocketAddr, Fault),
    /// The proxy there gave no tunnel.
    Proxy(SocketAddr, Refusal),
    /// An earlier attempt of the request on a connection was given up for this.
    Attempt(&'static str),
}

impl FailedRequest {
    /// Why.
    #[must_use]
    pub const fn why(&self) -> Failed {
        self.why
    }

    /// What went wrong last, where a limit on time or DNS over HTTPS ended the request.
    #[must_use]
    pub const fn cause(&self) -> Option<Cause> {
        self.cause
    }
}

impl Cause {
    /// The last failure that a report has.
    fn of(report: &Report) -> Option<Self> {
        let lookups = report.lookups.iter().filter_map(|lookup| {
            let failure = lookup.outcome.as_ref()?.as_ref().err()?;
            let cause = match lookup.by {
                Answerer::Https(Some(fault)) => Self::DnsOverHttps(fault),
                Answerer::System | Answerer::App | Answerer::Https(None) => Self::Resolve(*failure),
            };
            Some((lookup.answered?, cause))
        });
        let attempts = report.attempts.iter().filter_map(|attempt| {
            let cause = match attempt.outcome? {
                AttemptOutcome::Failed(failure) => Self::Connect(attempt.address, failure),
                AttemptOutcome::Tls(fault) => Self::Tls(attempt.address, fault),
                AttemptOutcome::Proxy(refusal) => Self::Proxy(attempt.address, refusal),
                AttemptOutcome::Usable | AttemptOutcome::GivenUp => return None,
            };
            Some((attempt.ended?, cause))
        });
        // What ended the last one is the limit itself.
        let ended = report.tries.windows(2).filter(|pair| !pair[0].reset_reason.is_empty());
        let tries = ended.map(|pair| (pair[1].began, Self::Attempt(pair[0].reset_reason)));
        let all = lookups.chain(attempts).chain(tries);
        all.max_by_key(|(at, _): &(Instant, Self)| *at).map(|(_, cause)| cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(failure) => write!(f, "no addresses: {failure}"),
            Self::DnsOverHttps(fault) => write!(f, "no addresses by DNS over HTTPS: {fault}"),
            Self::Connect(address, failure) => write!(f, "connect to {address}: {failure}"),
            Self::Tls(address, fault) => write!(f, "TLS with {address}: {fault}"),
            Self::Proxy(address, refusal) => write!(f, "proxy at {address}: {refusal}"),
            Self::Attempt(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Cause {}

/// Two are the same when they failed for the same reason.
impl PartialEq for FailedRequest {
    fn eq(&self, other: &Self) -> bool {
        self.why == other.why
    }
}

impl Eq for FailedRequest {}

impl fmt::Debug for FailedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl Error {
    pub(crate) fn failed(why: Failed, report: Option<Arc<Report>>) -> Self {
        let cause = report.as_deref().and_then(Cause::of).filter(|cause| {
            // That a name has no addresses is said already, but not why.
            let is_more = matches!(cause, Cause::DnsOverHttps(_));
            matches!(why, Failed::TimedOut(_)) || is_more && matches!(why, Failed::Resolve(_))
        });
        Self::Failed(FailedRequest { why, cause, report })
    }

    /// What happened to the request, where it was made.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.request()?.report.as_deref()
    }

    pub(crate) fn shared_report(&self) -> Option<Arc<Report>> {
        self.request()?.report.clone()
    }

    /// Whether a limit on time passed, and which.
    #[must_use]
    pub const fn timed_out(&self) -> Option<Layer> {
        match self.request() {
            Some(FailedRequest { why: Failed::TimedOut(layer), .. }) => Some(*layer),
            Some(_) | None => None,
        }
    }

    const fn request(&self) -> Option<&FailedRequest> {
        match self {
            Self::Failed(request) => Some(request),
            Self::Url(_)
            | Self::NotAToken(_)
            | Self::Upload(_)
            | Self::Proxy(_)
            | Self::Redirect(_)
            | Self::Decoding(_)
            | Self::Events(_)
            | Self::WebSocket(_)
            | Self::Status(_)
            | Self::Json(_)
            | Self::TooLarge(_)
            | Self::Tls(_)
            | Self::Engine(_)
            | Self::EngineThread
            | Self::Handler
            | Self::Stopped => None,
        }
    }

    /// Whether the caller can mend it: asking again as it is would fail again.
    #[must_use]
    pub const fn is_caller_s(&self) -> bool {
        matches!(
            self,
            Self::Url(_)
                | Self::NotAToken(_)
                | Self::Upload(_)
                | Self::Proxy(_)
                | Self::TooLarge(_)
                | Self::EngineThread
                | Self::Handler
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "not a URL that can be asked: {why}"),
            Self::NotAToken(word) => write!(f, "not a token: {word:?}"),
            Self::Upload(why) => write!(f, "the request's body: {why}"),
            Self::Proxy(why) => write!(f, "not a proxy that can be asked: {why}"),
            Self::Failed(failed) => failed.why.fmt(f),
            Self::Redirect(why) => write!(f, "the server's redirects: {why}"),
            Self::Decoding(why) => write!(f, "the response's coding: {why}"),
            Self::Events(why) => write!(f, "server-sent events: {why}"),
            Self::WebSocket(why) => write!(f, "WebSocket: {why}"),
            Self::Status(status) => write!(f, "the server answered {status}"),
            Self::Json(why) => write!(f, "the response's JSON: {why}"),
            Self::TooLarge(limit) => write!(f, "the response is larger than {limit} bytes"),
            Self::Tls(why) => write!(f, "TLS cannot be set up: {why}"),
            Self::Engine(why) => write!(f, "the engine cannot be used: {why}"),
            Self::EngineThread => f.write_str("the engine's own thread may not wait for it"),
            Self::Handler => f.write_str("the request's handler panicked"),
            Self::Stopped => f.write_str("the engine was stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.request()?.cause.as_ref()?)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::failed(failed, None)
    }
}
