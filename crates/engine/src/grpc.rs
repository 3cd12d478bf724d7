//! The little that a proxy must know of gRPC: which requests are gRPC, and how they ended.

use std::time::Duration;

use towpath_proto::{Head, Name};

use crate::number::Decimal;

/// Whether the head says that its body is gRPC: `application/grpc`, or that and `+…`.
#[must_use]
pub fn is_grpc(head: &Head) -> bool {
    let Some(kind) = head.get(Name::ContentType) else { return false };
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest, [] | [b'+', ..]))
}

/// The status of a finished stream: in the trailers, else in the head, else what the HTTP status stands for. One that
/// is malformed is -1, as in Envoy.
#[must_use]
pub fn status(trailers: Option<&Head>, response: Option<&Head>, http: u16) -> Option<i64> {
    let said = |head: Option<&Head>| {
        let value = head?.get(Name::GrpcStatus).filter(|value| !value.is_empty())?;
        Some(number(value).map_or(MALFORMED, i64::from))
    };
    let stands_for = || (http != 0).then(|| of_http(http).into());
    said(trailers).or_else(|| said(response)).or_else(stands_for)
}

/// The `grpc-status` of a head or of trailers; a number above all that stand for something where it is malformed.
#[must_use]
pub fn status_of(head: &Head) -> Option<u8> {
    let said = number(head.get(Name::GrpcStatus)?);
    let known = said.and_then(|said| u8::try_from(said).ok());
    Some(known.filter(|said| usize::from(*said) < NAMES.len()).unwrap_or(u8::MAX))
}

/// What a status of gRPC stands for where HTTP is counted.
#[must_use]
pub const fn http_status(status: u8) -> u16 {
    match status {
        0 => 200,
        1 => 499,
        3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    }
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

/// How long a caller waits: `grpc-timeout`, rounded up to whole milliseconds; `None` where it is missing or malformed.
/// At most eight digits and a unit ([PROTOCOL-HTTP2.md], Requests).
///
/// [PROTOCOL-HTTP2.md]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
#[must_use]
pub fn timeout(head: &Head) -> Option<Duration> {
    let (unit, digits) = head.get(Name::GrpcTimeout)?.split_last()?;
    let amount = u64::from(number(digits).filter(|amount| *amount <= MOST_TIME)?);
    Some(Duration::from_millis(match unit {
        b'H' => amount * 3_600_000,
        b'M' => amount * 60_000,
        b'S' => amount * 1000,
        b'm' => amount,
        b'u' => amount.div_ceil(1000),
        b'n' => amount.div_ceil(1_000_000),
        _ => return None,
    }))
}

/// Tells a server how long its caller waits: whole milliseconds, or the smallest unit of which eight digits are enough.
pub fn set_timeout(head: &mut Head, timeout: Duration) {
    let units = [(1, b'm'), (1000, b'S'), (60_000, b'M'), (3_600_000, b'H')];
    let amount = |per: u128| u64::try_from(timeout.as_millis() / per).unwrap_or(u64::MAX);
    let fits = |per: &(u128, u8)| amount(per.0) <= u64::from(MOST_TIME);
    let (per, unit) = units.into_iter().find(fits).unwrap_or(units[3]);
    let mut value = Vec::with_capacity(9);
    value.extend_from_slice(Decimal::new().write(amount(per).min(MOST_TIME.into())));
    value.push(unit);
    head.set(Name::GrpcTimeout, &value);
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

/// The text of a `grpc-message`. What is no percent-encoding stays as it is.
#[must_use]
pub fn decode_message(encoded: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut text = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let [first, after @ ..] = rest {
        let decoded = match rest {
            [b'%', high, low, ..] => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match decoded {
            Some((high, low)) => {
                text.push(high << 4 | low);
                rest = &rest[3..];
            }
            None => {
                text.push(*first);
                rest = after;
            }
        }
    }
    text
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// What a status is called: as `DeadlineExceeded` and as `DEADLINE_EXCEEDED`.
#[must_use]
pub fn name(status: i64) -> Option<(&'static str, &'static str)> {
    NAMES.get(usize::try_from(status).ok()?).copied()
}

/// A status of which nothing is known.
pub const UNKNOWN: u32 = 2;
/// A caller waited as long as it was willing to.
pub const DEADLINE_EXCEEDED: u32 = 4;

/// A caller asks for more than there is.
pub const RESOURCE_EXHAUSTED: u32 = 8;

const MALFORMED: i64 = -1;
/// Eight digits.
const MOST_TIME: u32 = 99_999_999;

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

    fn heard(value: &[u8]) -> Option<u128> {
        let mut head = Head::default();
        head.set(Name::GrpcTimeout, value);
        timeout(&head).map(|timeout| timeout.as_millis())
    }

    #[test]
    fn a_timeout_is_a_number_and_a_unit() {
        let values = [
            (&b"1H"[..], 3_600_000),
            (b"2M", 120_000),
            (b"3S", 3000),
            (b"4m", 4),
            (b"5u", 1),
            (b"1001u", 2),
            (b"6n", 1),
            (b"0m", 0),
            (b"99999999H", 359_999_996_400_000),
        ];
        for (value, wanted) in values {
            assert_eq!(heard(value), Some(wanted), "{}", value.escape_ascii());
        }
        let none: [&[u8]; 9] =
            [b"", b"m", b"1", b"1x", b"-1m", b"1 m", b"123456789m", b"1.5S", b"1ms"];
        for value in none {
            assert_eq!(heard(value), None, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn a_timeout_takes_at_most_eight_digits() {
        let values = [
            (Duration::from_micros(1500), "1m"),
            (Duration::from_millis(99_999_999), "99999999m"),
            (Duration::from_millis(100_000_000), "100000S"),
            (Duration::from_secs(100_000_000), "1666666M"),
            (Duration::from_secs(6_000_000_000), "1666666H"),
            (Duration::MAX, "99999999H"),
        ];
        for (timeout, wanted) in values {
            let mut head = Head::default();
            set_timeout(&mut head, timeout);
            let said = head.get(Name::GrpcTimeout).unwrap();
            assert_eq!(said.escape_ascii().to_string(), wanted);
        }
    }

    #[test]
    fn an_http_status_stands_for_one_of_grpc() {
        assert_eq!([400, 404, 429, 503, 418].map(of_http), [13, 12, 14, 14, UNKNOWN]);
    }
}
