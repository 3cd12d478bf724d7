//! Requests whose `x-envoy-…` headers are not what they should be: Envoy's `strict_check_headers`.

use towpath_proto::head::Head;
use towpath_proto::name::Name;

use crate::retry_policy::RetryOn;

/// A header that is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The details of the answer.
    pub(crate) details: &'static str,
    /// The answer.
    pub(crate) body: Vec<u8>,
}

/// The first of these headers whose value a request has wrong.
#[cold]
pub(crate) fn refused(checked: &[Name], request: &Head) -> Option<Refused> {
    DETAILS.iter().filter(|(name, _)| checked.contains(name)).find_map(|&(name, details)| {
        let value = request.get(name)?;
        if is_right(name, value) {
            return None;
        }
        let name = name.as_str().as_bytes();
        let body = [b"invalid header '", name, b"' with value '", value, b"'"].concat();
        Some(Refused { details, body })
    })
}

fn is_right(name: Name, value: &[u8]) -> bool {
    if name == Name::XEnvoyRetryGrpcOn {
        return are_named(value, |word| RetryOn::named_for_grpc(word).is_some());
    }
    if name == Name::XEnvoyRetryOn {
        let of_http3 = b"http3-post-connect-failure";
        return are_named(value, |word| word == of_http3 || RetryOn::named(word).is_some());
    }
    is_number(value)
}

/// What can be checked, in the order in which it is.
const DETAILS: [(Name, &str); 5] = [
    (
        Name::XEnvoyUpstreamRqTimeoutMs,
        "request_headers_failed_strict_check{x-envoy-upstream-rq-timeout-ms}",
    ),
    (
        Name::XEnvoyUpstreamRqPerTryTimeoutMs,
        "request_headers_failed_strict_check{x-envoy-upstream-rq-per-try-timeout-ms}",
    ),
    (Name::XEnvoyMaxRetries, "request_headers_failed_strict_check{x-envoy-max-retries}"),
    (Name::XEnvoyRetryOn, "request_headers_failed_strict_check{x-envoy-retry-on}"),
    (Name::XEnvoyRetryGrpcOn, "request_headers_failed_strict_check{x-envoy-retry-grpc-on}"),
];

/// A whole number of 64 bits, as Envoy reads it: blanks around it, and a plus sign, are none of it.
fn is_number(value: &[u8]) -> bool {
    let digits = value.trim_ascii();
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    let text = std::str::from_utf8(digits).unwrap_or_default();
    digits.iter().all(u8::is_ascii_digit) && text.parse::<u64>().is_ok()
}

/// Whether each word of a list is one that is known.
fn are_named(value: &[u8], is_known: impl Fn(&[u8]) -> bool) -> bool {
    let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    words.filter(|word| !word.is_empty()).all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_envoy_reads() {
        for right in ["0", "12", " 7 ", "+3", "18446744073709551615"] {
            assert!(is_number(right.as_bytes()), "{right}");
        }
        for wrong in ["", "-1", "1.5", "a", "++1", "1 2", "18446744073709551616"] {
            assert!(!is_number(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn the_first_header_that_is_wrong_is_told() {
        let mut head = Head::request(b"GET", b"http", b"a", b"/");
        let checked = [Name::XEnvoyMaxRetries, Name::XEnvoyRetryOn];
        assert_eq!(refused(&checked, &head), None);
        head.set(Name::XEnvoyRetryGrpcOn, b"never");
        head.set(Name::XEnvoyRetryOn, b"5xx, ,reset");
        assert_eq!(refused(&checked, &head), None);
        head.set(Name::XEnvoyRetryOn, b"5xx,unavailable");
        let text = b"invalid header 'x-envoy-retry-on' with value '5xx,unavailable'";
        assert_eq!(refused(&checked, &head).unwrap().body, text);
        head.set(Name::XEnvoyMaxRetries, b"many");
        let details = "request_headers_failed_strict_check{x-envoy-max-retries}";
        assert_eq!(refused(&checked, &head).unwrap().details, details);
    }
}
