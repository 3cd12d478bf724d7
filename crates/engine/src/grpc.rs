//! The little that a proxy must know of gRPC: which requests are gRPC, and how they ended.

use towpath_proto::{Head, Name};

use crate::format::Facts;

/// Whether the head says that its body is gRPC: `application/grpc`, or that and `+…`.
#[must_use]
pub fn is_grpc(head: &Head) -> bool {
    let Some(kind) = head.get(Name::ContentType) else { return false };
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest, [] | [b'+', ..]))
}

/// The status of a finished stream: in the trailers, else in the head, else what the HTTP status stands for.
#[must_use]
pub fn status(facts: &Facts<'_>) -> Option<u32> {
    let said = |head: Option<&Head>| number(head?.get(Name::GrpcStatus)?);
    let stands_for = || (facts.record.status != 0).then(|| of_http(facts.record.status));
    said(facts.trailers).or_else(|| said(facts.response)).or_else(stands_for)
}

/// What an HTTP status stands for where gRPC is spoken (gRPC's `http-grpc-status-mapping.md`).
#[must_use]
pub const fn of_http(status: u16) -> u32 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => UNKNOWN,
    }
}

/// A text as `grpc-message` carries it: percent-encoded where it is not plain ASCII.
pub fn encode_message(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if matches!(byte, b' '..=b'}') && byte != b'%' {
            out.push(byte);
        } else {
            out.push(b'%');
            out.extend([byte >> 4, byte & 15].map(|digit| HEX[usize::from(digit)]));
        }
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// What a status is called: as `DeadlineExceeded` and as `DEADLINE_EXCEEDED`.
#[must_use]
pub fn name(status: u32) -> Option<(&'static str, &'static str)> {
    NAMES.get(status as usize).copied()
}

/// A status of which nothing is known.
pub const UNKNOWN: u32 = 2;

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

const NAMES: [(&str, &str); 17] = [
    ("OK", "OK"),
    ("Canceled", "CANCELLED"),
    ("Unknown", "UNKNOWN"),
    ("InvalidArgument", "INVALID_ARGUMENT"),
    ("DeadlineExceeded", "DEADLINE_EXCEEDED"),
    ("NotFound", "NOT_FOUND"),
    ("AlreadyExists", "ALREADY_EXISTS"),
    ("PermissionDenied", "PERMISSION_DENIED"),
    ("ResourceExhausted", "RESOURCE_EXHAUSTED"),
    ("FailedPrecondition", "FAILED_PRECONDITION"),
    ("Aborted", "ABORTED"),
    ("OutOfRange", "OUT_OF_RANGE"),
    ("Unimplemented", "UNIMPLEMENTED"),
    ("Internal", "INTERNAL"),
    ("Unavailable", "UNAVAILABLE"),
    ("DataLoss", "DATA_LOSS"),
    ("Unauthenticated", "UNAUTHENTICATED"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_percent_encoded() {
        let mut out = Vec::new();
        encode_message("50 %~ of é\n".as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "50 %25%7E of %C3%A9%0A");
    }

    #[test]
    fn an_http_status_stands_for_one_of_grpc() {
        assert_eq!([400, 404, 429, 503, 418].map(of_http), [13, 12, 14, 14, UNKNOWN]);
    }
}
