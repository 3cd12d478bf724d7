//! Dates as servers write them into cookies, in whatever format (RFC 6265bis §5.1.1).

use std::ops::RangeInclusive;
use std::str::FromStr;

use time::{Date, Month};

/// Seconds since 1970; none for what is no date, and 0 for what is before.
pub(super) fn parse(text: &str) -> Option<u64> {
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(is_delimiter).filter(|token| !token.is_empty()) {
        if let Some(found) = clock(token).filter(|_| time.is_none()) {
            time = Some(found);
        } else if let Some(found) = number(token, 1..=2).filter(|_| day.is_none()) {
            day = Some(found);
        } else if let Some(found) = month_of(token).filter(|_| month.is_none()) {
            month = Some(found);
        } else if let Some(found) = number(token, 2..=4).filter(|_| year.is_none()) {
            year = Some(found);
        }
    }
    let ((hour, minute, second), day, month, year) = (time?, day?, month?, year?);
    let year: i32 = match year {
        70..=99 => year + 1900,
        0..=69 => year + 2000,
        _ => year,
    };
    if year < 1601 {
        return None;
    }
    let date = Date::from_calendar_date(year, month, day).ok()?;
    let seconds = date.with_hms(hour, minute, second).ok()?.assume_utc().unix_timestamp();
    Some(u64::try_from(seconds).unwrap_or(0))
}

fn is_delimiter(character: char) -> bool {
    matches!(character, '\t' | ' '..='/' | ';'..='@' | '['..='`' | '{'..='~')
}

/// Its digits at the beginning, if there are so many; what follows must be no digit.
fn number<N: FromStr>(token: &str, digits: RangeInclusive<usize>) -> Option<N> {
    let end = token.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(token.len());
    digits.contains(&end).then(|| token[..end].parse().ok()).flatten()
}

fn clock(token: &str) -> Option<(u8, u8, u8)> {
    let mut parts = token.splitn(3, ':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let whole =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| number(part, 1..=2));
    Some((whole(hour)??, whole(minute)??, number(second, 1..=2)?))
}

fn month_of(token: &str) -> Option<Month> {
    let name = token.get(..3)?.to_ascii_lowercase();
    let names = "jan feb mar apr may jun jul aug sep oct nov dec";
    let at = names.split(' ').position(|month| month == name)?;
    Month::try_from(u8::try_from(at + 1).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_every_format_are_read() {
        for text in [
            "Wed, 09 Jun 2021 10:18:14 GMT",
            "Wednesday, 09-Jun-21 10:18:14 GMT",
            "Wed Jun  9 10:18:14 2021",
            "9 june 2021 10:18:14",
            "10:18:14 2021 jUN 09",
            "Wed, 09-Jun-2021 10:18:14 UTC",
        ] {
            assert_eq!(parse(text), Some(1_623_233_894), "{text}");
        }
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse("Mon, 01 Jan 1601 00:00:00 GMT"), Some(0));
        assert_eq!(parse("Tue, 29 Feb 2000 00:00:00 GMT"), Some(951_782_400));
        assert_eq!(parse("Sun, 31 Dec 69 23:59:59 GMT"), Some(3_155_759_999));
        assert_eq!(parse("Fri, 31 Dec 9999 23:59:59 GMT"), Some(253_402_300_799));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "tomorrow",
            "Wed, 09 Jun 2021",
            "Wed, 32 Jun 2021 10:18:14 GMT",
            "Sun, 30 Feb 2020 10:18:14 GMT",
            "Mon, 29 Feb 2100 10:18:14 GMT",
            "Wed, 09 Jun 1600 10:18:14 GMT",
            "Wed, 09 Jun 2021 24:18:14 GMT",
            "Wed, 09 Jun 2021 10:60:14 GMT",
            "09 Jun 20210 10:18:14",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
