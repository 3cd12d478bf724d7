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
    let stands_for = || match facts.record.status {
        0 => None,
        400 => Some(13),
        401 => Some(16),
        403 => Some(7),
        404 => Some(12),
        429 | 502..=504 => Some(14),
        _ => Some(UNKNOWN),
    };
    said(facts.trailers).or_else(|| said(facts.response)).or_else(stands_for)
}

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
