//! How long a server asks to be left alone: `Retry-After` (RFC 9110 §10.2.3).
//!
//! Arrives: the field's value, what the server's own clock says, and ours. Leaves: a [`Duration`] from now on, or
//! nothing where the value is neither a number of seconds nor a date.

use std::time::{Duration, SystemTime};

/// The wait that a value asks for. A date counts from the response's own `date`, so that neither clock need be right;
/// without one, from `unix_s`, which is our time in seconds since 1970. A date that has passed is no wait at all.
#[must_use]
pub fn parse(value: &[u8], date: Option<&[u8]>, unix_s: u64) -> Option<Duration> {
    let value = value.trim_ascii();
    if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        let add =
            |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
        return Some(Duration::from_secs(value.iter().fold(0, add)));
    }
    let until = http_date(value)?;
    let from = date.and_then(|date| http_date(date.trim_ascii())).unwrap_or(unix_s);
    Some(Duration::from_secs(until.saturating_sub(from)))
}

/// An HTTP date in any of the three forms that a recipient has to take (RFC 9110 §5.6.7), in seconds since 1970. Years
/// of two digits are 1970 to 2069.
fn http_date(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    date.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 784_111_777;

    fn seconds(value: &str) -> Option<u64> {
        parse(value.as_bytes(), None, NOW).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_are_taken_as_they_are_and_never_overflow() {
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds(" 120 "), Some(120));
        assert_eq!(seconds("99999999999999999999999999"), Some(u64::MAX));
        assert_eq!([seconds(""), seconds("-1"), seconds("1.5"), seconds("soon")], [None; 4]);
    }

    #[test]
    fn all_three_forms_of_a_date_are_read() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun Nov  6 08:50:37 1994"), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:36 GMT"), Some(0), "it has passed");
    }

    #[test]
    fn a_date_counts_from_the_server_s_own_clock() {
        let asked =
            parse(b"Fri, 01 Mar 2030 00:00:05 GMT", Some(b"Thu, 28 Feb 2030 23:59:55 GMT"), NOW);
        assert_eq!(asked, Some(Duration::from_secs(10)));
        let asked = parse(b"Sun, 06 Nov 1994 08:50:37 GMT", Some(b"yesterday"), NOW);
        assert_eq!(asked, Some(Duration::from_secs(60)));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |value: &str| http_date(value.as_bytes());
        assert_eq!(at("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(at("Tue, 29 Feb 2000 00:00:00 GMT"), Some(951_782_400));
        assert_eq!(at("Sun, 28 Feb 2100 23:59:59 GMT"), Some(4_107_542_399));
        assert_eq!(at("Thursday, 01-Jan-70 00:00:00 GMT"), Some(0));
        assert_eq!(at("Monday, 31-Dec-68 23:59:59 GMT"), Some(3_124_223_999));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for value in [
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT more",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nox 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Thu, 01 Jan 0000 00:00:00 GMT",
            "Sun,",
            "\u{ff}",
        ] {
            assert_eq!(seconds(value), None, "{value}");
        }
        assert_eq!(parse(b"\xff\xfe", None, NOW), None);
    }

    #[test]
    fn whatever_comes_there_is_an_answer() {
        let mut state = 1u64;
        let mut random = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % bound
        };
        let seeds = [
            "Sun, 06 Nov 9999 23:59:60 GMT",
            "Sunday, 06-Nov-94 08:50:37 GMT",
            "Sun Nov  6 08:50:37 1994",
            "18446744073709551615",
        ];
        let bytes = b"0123456789 ,-:GMTJanxyz\xff\0";
        for _ in 0..50_000 {
            let mut value = seeds[random(seeds.len())].as_bytes().to_vec();
            for _ in 0..random(4) {
                let at = random(value.len());
                value[at] = bytes[random(bytes.len())];
            }
            let wait = parse(&value, Some(&value), [0, NOW, u64::MAX][random(3)]);
            let begins_with_digit = value.trim_ascii().first().is_some_and(u8::is_ascii_digit);
            assert!(wait.is_none_or(|wait| wait.is_zero() || begins_with_digit), "{value:?}");
            let _ = parse(&value, None, [0, NOW, u64::MAX][random(3)]);
        }
    }
}
