//! Errors as words that stay the same from version to version.

use towpath::report::Report;
use towpath::{Error, Failed, Failure as Cause, Layer};

/// What kind of error it is.
#[must_use]
pub fn kind(error: &Error) -> &'static str {
    match error {
        Error::Url(_) => "url",
        Error::NotAToken(_) => "token",
        Error::Upload(_) => "upload",
        Error::Proxy(_) => "proxy settings",
        Error::Failed(failed) => failed_kind(failed.why(), error.report()),
        Error::Redirect(_) => "redirect",
        Error::Decoding(_) => "decoding",
        Error::TooLarge(_) => "too large",
        Error::WebSocket(_) => "websocket",
        Error::Status(_) => "status",
        Error::Tls(_) => "tls settings",
        Error::Stopped => "stopped",
        // `Error` may grow; what is not known is the engine's fault until it is.
        Error::Engine(_) | _ => "engine",
    }
}

fn failed_kind(why: Failed, report: Option<&Report>) -> &'static str {
    match why {
        Failed::Cancelled => "cancelled",
        Failed::Offline => "offline",
        Failed::Resolve(_) => "resolve",
        Failed::Connect(Cause::TimedOut) => "connect timeout",
        Failed::Connect(_) => "connect",
        Failed::Tls(_) => "tls",
        Failed::Proxy(_) => "proxy",
        Failed::TimedOut(layer) => timeout_kind(layer, report),
        Failed::Disconnected => "disconnected",
        Failed::Protocol => "protocol",
        Failed::NoTls => "tls settings",
        Failed::NoHttp2 | Failed::NoUpgrade => "protocol",
        Failed::Overflow => "overflow",
        Failed::Resting(_) => "back-off",
        Failed::Limited(_) => "limited",
        _ => "engine",
    }
}

/// What was waited for when the time was over.
fn timeout_kind(layer: Layer, report: Option<&Report>) -> &'static str {
    let Some(report) = report else { return "total timeout" };
    match layer {
        _ if report.tries.is_empty() => "connect timeout",
        Layer::Total if report.record.upstream_last_sent.is_none() => "write timeout",
        Layer::FirstByte | Layer::Gap | Layer::Attempt | Layer::Total => "read timeout",
    }
}
