//! Errors as numbers and words; panics end here.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

use towpath::{Error, Failed, Layer, Limit, link};

use crate::abi::Code;

/// Why a call came to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Code::Argument, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code(&error), chain(&error))
    }
}

/// An error and what led to it, in words.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    if let Some(source) = error.source() {
        text = format!("{text}: {}", chain(source));
    }
    text
}

/// The header's number for an error of the client library.
pub(crate) fn code(error: &Error) -> Code {
    match error {
        Error::Url(_) => Code::Url,
        Error::Proxy(_) => Code::Argument,
        Error::NotAToken(_) => Code::Token,
        Error::Upload(_) => Code::Body,
        Error::Tls(_) => Code::TlsSetup,
        Error::Engine(_) => Code::Resource,
        Error::Stopped => Code::Stopped,
        Error::EngineThread => Code::State,
        Error::Decoding(_) => Code::Decoding,
        Error::WebSocket(_) => Code::WebSocket,
        Error::Events(_) => Code::Events,
        Error::Failed(failed) => failed_code(failed.why()),
        Error::TooLarge(_) | _ => Code::Other,
    }
}

impl From<link::Error> for Failure {
    fn from(error: link::Error) -> Self {
        let code = match error {
            link::Error::Url(_) => Code::Url,
            link::Error::TooLarge => Code::Argument,
            link::Error::Full => Code::Overflow,
            link::Error::NotConnected => Code::NotConnected,
            link::Error::Lost => Code::Disconnected,
            link::Error::TimedOut { sent } if !sent => Code::NotConnected,
            link::Error::TimedOut { .. } => Code::TotalTimeout,
            link::Error::Cancelled => Code::Cancelled,
            link::Error::Tls(_) => Code::TlsSetup,
            link::Error::Closed => Code::Stopped,
            link::Error::System(_) => Code::Resource,
            _ => Code::Other,
        };
        Self::new(code, error.to_string())
    }
}

/// The header's number for what an engine says.
pub(crate) fn failed_code(why: Failed) -> Code {
    match why {
        Failed::Cancelled => Code::Cancelled,
        Failed::Offline => Code::Offline,
        Failed::Resolve(_) => Code::Resolve,
        Failed::Connect(_) => Code::Connect,
        Failed::Tls(_) => Code::Tls,
        Failed::Proxy(_) => Code::Proxy,
        Failed::TimedOut(layer) => layer_code(layer),
        Failed::Disconnected => Code::Disconnected,
        Failed::Protocol => Code::Protocol,
        Failed::NoTls => Code::TlsSetup,
        Failed::NoHttp2 | Failed::NoUpgrade => Code::Protocol,
        Failed::Overflow => Code::Overflow,
        Failed::Resting(_) => Code::Resting,
        Failed::Limited(limit) => limit_code(limit),
        _ => Code::Other,
    }
}

const fn limit_code(limit: Limit) -> Code {
    match limit {
        Limit::Identical => Code::IdenticalLimit,
        Limit::Flow => Code::FlowLimit,
    }
}

const fn layer_code(layer: Layer) -> Code {
    match layer {
        Layer::FirstByte => Code::FirstByteTimeout,
        Layer::Gap => Code::GapTimeout,
        Layer::Attempt => Code::AttemptTimeout,
        Layer::Total => Code::TotalTimeout,
    }
}

/// Does a call's work; what goes wrong becomes its number, and its words those of this thread. A panic is a mistake of
/// ours, and the caller's program goes on.
pub(crate) fn guard(work: impl FnOnce() -> Result<()>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::new(Code::Internal, "a mistake in the library")));
    match outcome {
        Ok(()) => Code::Ok as i32,
        Err(failure) => {
            remember(&failure.text);
            failure.code as i32
        }
    }
}

/// The same for calls that answer something else, which they do not in a panic.
pub(crate) fn guard_or<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(text: &str) {
    // At the end of a thread nothing is left to ask.
    let _ = LAST.try_with(|last| *last.borrow_mut() = c_text(text));
}

/// What the last failure on this thread said.
pub(crate) fn last() -> *const std::ffi::c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A text for C, up to its first NUL.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// What a number means.
pub(crate) const fn words(code: i32) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"an argument that cannot be used",
        2 => c"not a URL that can be asked",
        3 => c"a method or field that HTTP does not allow",
        4 => c"the request's body is not as promised",
        5 => c"not now, or not from this thread",
        6 => c"there is none",
        20 => c"TLS cannot be set up",
        21 => c"the system lacks something",
        22 => c"the engine was stopped",
        23 => c"a mistake in the library",
        40 => c"cancelled",
        41 => c"there is no network",
        42 => c"cannot resolve the name",
        43 => c"cannot connect",
        44 => c"the TLS handshake failed",
        45 => c"timed out before the first byte",
        46 => c"timed out between two pieces",
        47 => c"timed out in one attempt",
        48 => c"timed out",
        49 => c"the connection ended before the response was whole",
        50 => c"the response is not HTTP",
        51 => c"too many requests are under way",
        53 => c"the server wants to be left alone",
        54 => c"the limit on identical requests is reached",
        55 => c"the limit on bytes sent is reached",
        56 => c"the link has no connection",
        57 => c"the body is not in the coding that it names",
        58 => c"the proxy gives no way to the origin",
        59 => c"no WebSocket, or no more",
        60 => c"no stream of events, or no more",
        _ => c"another error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_number() {
        let quiet = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(guard(|| panic!("inside")), Code::Internal as i32);
        assert_eq!(guard_or(7, || panic!("inside")), 7);
        std::panic::set_hook(quiet);
    }

    #[test]
    fn a_text_ends_at_its_first_nul() {
        assert_eq!(c_text("ab\0c").as_c_str(), c"ab");
        assert_eq!(c_text("").as_c_str(), c"");
    }
}
