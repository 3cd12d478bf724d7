//! Why there is no response, or no whole one.

use std::fmt;
use std::sync::Arc;

use towpath_engine::local::message::{Error as Failed, Layer};
use towpath_engine::local::report::Report;

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
    /// The peer's or the network's fault: the engine tells which.
    Failed(FailedRequest),
    /// The peer's fault: it sent the request from place to place.
    Redirect(&'static str),
    /// The peer's fault: the response's body is not in the coding that it says.
    Decoding(&'static str),
    /// The response's body is larger than the caller takes, in bytes.
    TooLarge(usize),
    /// The caller's fault, or the platform's: TLS cannot be set up as asked.
    Tls(String),
    /// A resource is missing: the engine could not be started, or too much waits for it.
    Engine(String),
    /// The engine was stopped.
    Stopped,
}

/// A request that was made, and came to nothing or to a part of a response.
#[derive(Clone)]
pub struct FailedRequest {
    why: Failed,
    report: Option<Arc<Report>>,
}

impl FailedRequest {
    /// Why.
    #[must_use]
    pub const fn why(&self) -> Failed {
        self.why
    }
}

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
    pub(crate) const fn failed(why: Failed, report: Option<Arc<Report>>) -> Self {
        Self::Failed(FailedRequest { why, report })
    }

    /// What happened to the request, where it was made.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.request()?.report.as_deref()
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
            | Self::Redirect(_)
            | Self::Decoding(_)
            | Self::TooLarge(_)
            | Self::Tls(_)
            | Self::Engine(_)
            | Self::Stopped => None,
        }
    }

    /// Whether the caller can mend it: asking again as it is would fail again.
    #[must_use]
    pub const fn is_caller_s(&self) -> bool {
        matches!(self, Self::Url(_) | Self::NotAToken(_) | Self::Upload(_) | Self::TooLarge(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "not a URL that can be asked: {why}"),
            Self::NotAToken(word) => write!(f, "not a token: {word:?}"),
            Self::Upload(why) => write!(f, "the request's body: {why}"),
            Self::Failed(failed) => failed.why.fmt(f),
            Self::Redirect(why) => write!(f, "the server's redirects: {why}"),
            Self::Decoding(why) => write!(f, "the response's coding: {why}"),
            Self::TooLarge(limit) => write!(f, "the response is larger than {limit} bytes"),
            Self::Tls(why) => write!(f, "TLS cannot be set up: {why}"),
            Self::Engine(why) => write!(f, "the engine cannot be used: {why}"),
            Self::Stopped => f.write_str("the engine was stopped"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::failed(failed, None)
    }
}
