//! What gRPC adds to a request, and what its errors are called there
//! (`grpc/grpc: doc/PROTOCOL-HTTP2.md`, `doc/statuscodes.md`).

use std::fmt::Write as _;
use std::time::Duration;

use towpath_engine::local::message::Error as Failed;

use crate::service::ServiceError;
use crate::{Error, HttpVersions, Request};

/// A call: over HTTP/2, with no limit on time but its own.
pub(crate) fn prepare(request: Request, timeout: Option<&[u8]>) -> Result<Request, Error> {
    let request = request
        .http_versions(HttpVersions::Http2)
        .first_byte_timeout(UNLIMITED)
        .attempt_timeout(UNLIMITED)
        .gap_timeout(UNLIMITED)
        .timeout(Duration::ZERO);
    let Some(text) = timeout else { return Ok(request) };
    let limit = parse_timeout(text).ok_or_else(|| Error::NotAToken("grpc-timeout".to_owned()))?;
    // Zero would be without a limit.
    Ok(request.timeout(limit.max(Duration::from_nanos(1))))
}

/// `grpc-timeout`: at most eight digits and a unit.
fn parse_timeout(text: &[u8]) -> Option<Duration> {
    let (&unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The status and the message for an error, that one as it is written in a field.
pub(crate) fn status(error: &ServiceError) -> (u16, String) {
    let code = match error {
        ServiceError::Request(error) => code(error),
        ServiceError::Body(_) => CANCELLED,
        ServiceError::Trailers => INTERNAL,
    };
    (code, percent_encode(&error.to_string()))
}

fn code(error: &Error) -> u16 {
    match error {
        Error::Failed(failed) => match failed.why() {
            Failed::Cancelled => CANCELLED,
            Failed::TimedOut(_) => DEADLINE_EXCEEDED,
            Failed::Limited(_) | Failed::Overflow => RESOURCE_EXHAUSTED,
            Failed::NoTls | Failed::NoHttp2 | Failed::NoUpgrade | Failed::Protocol => INTERNAL,
            Failed::Offline
            | Failed::Resolve(_)
            | Failed::Connect(_)
            | Failed::Tls(_)
            | Failed::Disconnected
            | Failed::Resting(_)
            | _ => UNAVAILABLE,
        },
        Error::Stopped => CANCELLED,
        Error::TooLarge(_) => RESOURCE_EXHAUSTED,
        Error::Engine(_) => UNAVAILABLE,
        Error::Url(_)
        | Error::NotAToken(_)
        | Error::Upload(_)
        | Error::Proxy(_)
        | Error::Redirect(_)
        | Error::Decoding(_)
        | Error::Events(_)
        | Error::WebSocket(_)
        | Error::Status(_)
        | Error::Json(_)
        | Error::Tls(_)
        | Error::EngineThread
        | Error::Handler => INTERNAL,
    }
}

/// As `grpc-message` is written: what is not printable, and `%`, in hexadecimal.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// A year: longer than any connection lives.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);

const CANCELLED: u16 = 1;
const DEADLINE_EXCEEDED: u16 = 4;
const RESOURCE_EXHAUSTED: u16 = 8;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_at_most_eight_digits_and_a_unit() {
        assert_eq!(parse_timeout(b"100m"), Some(Duration::from_millis(100)));
        assert_eq!(parse_timeout(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse_timeout(b"1n"), Some(Duration::from_nanos(1)));
        assert_eq!(parse_timeout(b"0S"), Some(Duration::ZERO));
        for wrong in [&b""[..], b"S", b"10", b"100000000S", b"-1S", b"1 S", b"1s", b"+1S"] {
            assert_eq!(parse_timeout(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn messages_are_ascii() {
        assert_eq!(percent_encode("50 % \u{e9}\n~"), "50 %25 %C3%A9%0A~");
    }
}
