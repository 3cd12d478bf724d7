//! Words for why a stream or a connection ended, as the counts of errors have them.

use towpath_proto::http2::Code;

/// A stream that the server reset for this reason (RFC 9113 §7).
pub(in crate::load) fn reset(code: Code) -> &'static str {
    word(&RESET, code.0)
}

/// A connection that the server left for this reason.
pub(in crate::load) fn go_away(code: Code) -> &'static str {
    word(&GO_AWAY, code.0)
}

/// A status of gRPC other than 0, or none.
pub(in crate::load) fn grpc(status: Option<u32>) -> &'static str {
    status.map_or("grpc without status", |status| word(&GRPC, status))
}

/// All words.
pub(in crate::load) fn all() -> impl Iterator<Item = &'static str> {
    RESET.into_iter().chain(GO_AWAY).chain(GRPC).chain([grpc(None)])
}

/// The last word stands for all numbers that have none of their own.
fn word(words: &[&'static str], number: u32) -> &'static str {
    let last = words.len() - 1;
    words[usize::try_from(number).map_or(last, |number| number.min(last))]
}

/// One table for what differs in its first word.
macro_rules! by_code {
    ($before:literal) => {
        [
            concat!($before, " NO_ERROR"),
            concat!($before, " PROTOCOL_ERROR"),
            concat!($before, " INTERNAL_ERROR"),
            concat!($before, " FLOW_CONTROL_ERROR"),
            concat!($before, " SETTINGS_TIMEOUT"),
            concat!($before, " STREAM_CLOSED"),
            concat!($before, " FRAME_SIZE_ERROR"),
            concat!($before, " REFUSED_STREAM"),
            concat!($before, " CANCEL"),
            concat!($before, " COMPRESSION_ERROR"),
            concat!($before, " CONNECT_ERROR"),
            concat!($before, " ENHANCE_YOUR_CALM"),
            concat!($before, " INADEQUATE_SECURITY"),
            concat!($before, " HTTP_1_1_REQUIRED"),
            concat!($before, " other"),
        ]
    };
}

const RESET: [&str; 15] = by_code!("reset");
const GO_AWAY: [&str; 15] = by_code!("goaway");

/// By number; 0 is success and never an error.
const GRPC: [&str; 18] = [
    "grpc OK",
    "grpc CANCELLED",
    "grpc UNKNOWN",
    "grpc INVALID_ARGUMENT",
    "grpc DEADLINE_EXCEEDED",
    "grpc NOT_FOUND",
    "grpc ALREADY_EXISTS",
    "grpc PERMISSION_DENIED",
    "grpc RESOURCE_EXHAUSTED",
    "grpc FAILED_PRECONDITION",
    "grpc ABORTED",
    "grpc OUT_OF_RANGE",
    "grpc UNIMPLEMENTED",
    "grpc INTERNAL",
    "grpc UNAVAILABLE",
    "grpc DATA_LOSS",
    "grpc UNAUTHENTICATED",
    "grpc other",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_word() {
        assert_eq!(reset(Code::REFUSED_STREAM), "reset REFUSED_STREAM");
        assert_eq!(reset(Code::HTTP_1_1_REQUIRED), "reset HTTP_1_1_REQUIRED");
        assert_eq!(go_away(Code::ENHANCE_YOUR_CALM), "goaway ENHANCE_YOUR_CALM");
        assert_eq!([reset(Code(14)), go_away(Code(u32::MAX))], ["reset other", "goaway other"]);
        assert_eq!(grpc(Some(16)), "grpc UNAUTHENTICATED");
        assert_eq!([grpc(Some(17)), grpc(None)], ["grpc other", "grpc without status"]);
        let mut words: Vec<_> = all().collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 15 + 15 + 18 + 1, "none twice");
    }
}
