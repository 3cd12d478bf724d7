//! `%START_TIME(%Y-%m-%d …)%`: wall-clock time, in UTC or in a zone.
//!
//! Date and time of day change once a second, and lines are written far more often: their digits are kept for the
//! second they were made in, and most specifiers are ranges of them.

use std::cell::Cell;
use std::fmt::Display;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use time::UtcDateTime;

use super::append::{Literal, append, three_digits};
use super::zone::{Shift, Zone};

/// A compiled time format, and the zone of local time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeFormat {
    pieces: Box<[Piece]>,
    /// UTC without one.
    zone: Option<Arc<Zone>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Literal),
    /// A range of [`Digits`]: `%Y`, `%y`, `%C`, `%m`, `%d`, `%H`, `%M`, `%S`, and what stands side by side of them.
    Digits(Range<u8>),
    /// `%b`, `%h`.
    ShortMonthName,
    /// `%B`.
    MonthName,
    /// `%e`: padded with a blank.
    PaddedDay,
    /// `%j`.
    DayOfYear,
    /// `%a`.
    ShortDayName,
    /// `%A`.
    DayName,
    /// `%u`: Monday is 1, Sunday 7.
    IsoWeekday,
    /// `%w`: Sunday is 0.
    Weekday,
    /// `%I`.
    Hour12,
    /// `%p`.
    AmPm,
    /// `%s`.
    UnixSeconds,
    /// `%3f`: so many digits of the second's fraction.
    Fraction(u8),
    /// `%Y-%m-%dT%H:%M:%E3SZ`, the usual format, in one piece.
    Usual,
    /// `%z` of local time: `+0100`.
    Offset,
    /// `%Ez` of local time: `+01:00`.
    OffsetWithColon,
    /// `%Z` of local time.
    ZoneName,
}

impl TimeFormat {
    /// Compiles a format; the empty one is ISO 8601 with milliseconds.
    pub(super) fn new(format: &str) -> Result<Self, String> {
        let pieces = pieces(if format.is_empty() { DEFAULT } else { format })?;
        Ok(Self { pieces: joined(pieces).into(), zone: None })
    }

    /// The same of local time, whose zone [`TimeFormat::set_zone`] says; UTC without.
    pub(super) fn local(format: &str) -> Result<Self, String> {
        let mut pieces = pieces(if format.is_empty() { LOCAL_DEFAULT } else { format })?;
        for piece in &mut pieces {
            if let Piece::Literal(literal) = piece {
                let of_zone = match literal.as_bytes() {
                    OFFSET => Piece::Offset,
                    OFFSET_WITH_COLON => Piece::OffsetWithColon,
                    ZONE_NAME => Piece::ZoneName,
                    _ => continue,
                };
                *piece = of_zone;
            }
        }
        Ok(Self { pieces: joined(pieces).into(), zone: Some(Arc::new(Zone::utc())) })
    }

    /// Sets the zone, where it is local time.
    pub(super) fn set_zone(&mut self, zone: fn() -> &'static Arc<Zone>) {
        if let Some(known) = &mut self.zone {
            *known = Arc::clone(zone());
        }
    }

    /// Appends the moment `unix_ns` nanoseconds after 1970.
    pub(super) fn write(&self, out: &mut Vec<u8>, unix_ns: u64) {
        match &self.zone {
            None => self.write_shifted(out, unix_ns, None),
            Some(zone) => {
                let second = i64::try_from(unix_ns / 1_000_000_000).unwrap_or(i64::MAX);
                let shift = zone.at(second);
                let offset = i64::from(shift.offset) * 1_000_000_000;
                self.write_shifted(out, unix_ns.saturating_add_signed(offset), Some(shift));
            }
        }
    }

    #[inline(always)]
    fn write_shifted(&self, out: &mut Vec<u8>, unix_ns: u64, shift: Option<&Shift>) {
        let second = unix_ns / 1_000_000_000;
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => literal.append_to(out),
                Piece::Digits(range) => {
                    append(out, &Digits::of(second)[range.start.into()..range.end.into()]);
                }
                Piece::Fraction(digits) => fraction(out, unix_ns % 1_000_000_000, *digits),
                Piece::Usual => {
                    let mut text = *b"YYYY-MM-DDTHH:MM:SS.mmmZ";
                    text[..19].copy_from_slice(&Digits::of(second));
                    let millisecond = unix_ns % 1_000_000_000 / 1_000_000;
                    text[20..23].copy_from_slice(&three_digits(millisecond as u16));
                    out.extend_from_slice(&text);
                }
                rare @ (Piece::ShortMonthName
                | Piece::MonthName
                | Piece::PaddedDay
                | Piece::DayOfYear
                | Piece::ShortDayName
                | Piece::DayName
                | Piece::IsoWeekday
                | Piece::Weekday
                | Piece::Hour12
                | Piece::AmPm
                | Piece::UnixSeconds
                | Piece::Offset
                | Piece::OffsetWithColon
                | Piece::ZoneName) => rare.write(out, second, shift),
            }
        }
    }
}

/// Appends the moment `since_1970` as ISO 8601 with milliseconds.
pub(crate) fn iso_8601(out: &mut Vec<u8>, since_1970: Duration) {
    let unix_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
    TimeFormat { pieces: Box::new([Piece::Usual]), zone: None }.write(out, unix_ns);
}

/// Takes a format apart.
fn pieces(format: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        literal(&mut pieces, &rest[..percent]);
        rest = specifier(&rest[percent + 1..], &mut pieces)?;
    }
    literal(&mut pieces, rest);
    Ok(pieces)
}

/// Joins what stands side by side in [`Digits`] too, with the separators between.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        joined.push(piece);
        while let [.., Piece::Digits(first), Piece::Literal(between), Piece::Digits(second)] =
            &joined[..]
            && Digits::PATTERN[first.end.into()..].starts_with(between.as_bytes())
            && first.end as usize + between.as_bytes().len() == usize::from(second.start)
        {
            let whole = Piece::Digits(first.start..second.end);
            joined.truncate(joined.len() - 3);
            joined.push(whole);
        }
    }
    match &joined[..] {
        [
            Piece::Digits(Range { start: 0, end: 19 }),
            Piece::Literal(point),
            Piece::Fraction(3),
            Piece::Literal(zone),
        ] if (point.as_bytes(), zone.as_bytes()) == (b".", b"Z") => vec![Piece::Usual],
        _ => joined,
    }
}

/// `2026-11-20T11:51:42`
#[derive(Clone, Copy)]
struct Digits {
    second: u64,
    text: [u8; Self::PATTERN.len()],
}

impl Digits {
    const PATTERN: &[u8] = b"YYYY-MM-DDTHH:MM:SS";

    /// The digits of a second since 1970.
    fn of(second: u64) -> [u8; Self::PATTERN.len()] {
        thread_local! {
            static LAST: Cell<Digits> = const { Cell::new(Digits { second: u64::MAX, text: [0; _] }) };
        }
        let mut last = LAST.get();
        if last.second != second {
            last = Self { second, text: digits(second) };
            LAST.set(last);
        }
        last.text
    }
}

/// Reads what follows a `%`; the rest of the format comes back.
fn specifier<'a>(text: &'a str, pieces: &mut Vec<Piece>) -> Result<&'a str, String> {
    let unknown = || {
        let spelt: String = text.chars().take(3).collect();
        format!("'%{spelt}' is no time specifier that is known")
    };
    let mut characters = text.chars();
    let character = characters.next().ok_or_else(unknown)?;
    let rest = characters.as_str();
    let piece = match character {
        'Y' => Piece::Digits(0..4),
        'y' => Piece::Digits(2..4),
        'C' => Piece::Digits(0..2),
        'm' => Piece::Digits(5..7),
        'b' | 'h' => Piece::ShortMonthName,
        'B' => Piece::MonthName,
        'd' => Piece::Digits(8..10),
        'e' => Piece::PaddedDay,
        'j' => Piece::DayOfYear,
        'a' => Piece::ShortDayName,
        'A' => Piece::DayName,
        'u' => Piece::IsoWeekday,
        'w' => Piece::Weekday,
        'H' => Piece::Digits(11..13),
        'I' => Piece::Hour12,
        'p' => Piece::AmPm,
        'M' => Piece::Digits(14..16),
        'S' => SECOND,
        's' => Piece::UnixSeconds,
        'f' => Piece::Fraction(9),
        '1'..='9' => {
            let Some(rest) = rest.strip_prefix('f') else { return Err(unknown()) };
            pieces.push(Piece::Fraction(character as u8 - b'0'));
            return Ok(rest);
        }
        'E' => return extended(rest, pieces).ok_or_else(unknown),
        'z' => Piece::Literal(Literal::new(OFFSET)),
        'Z' => Piece::Literal(Literal::new(ZONE_NAME)),
        'n' => Piece::Literal(Literal::new(b"\n")),
        't' => Piece::Literal(Literal::new(b"\t")),
        '%' => Piece::Literal(Literal::new(b"%")),
        'F' => return compound(rest, pieces, "%Y-%m-%d"),
        'T' => return compound(rest, pieces, "%H:%M:%S"),
        'R' => return compound(rest, pieces, "%H:%M"),
        'r' => return compound(rest, pieces, "%I:%M:%S %p"),
        'D' | 'x' => return compound(rest, pieces, "%m/%d/%y"),
        'X' => return compound(rest, pieces, "%H:%M:%S"),
        'c' => return compound(rest, pieces, "%a %b %e %H:%M:%S %Y"),
        _ => return Err(unknown()),
    };
    pieces.push(piece);
    Ok(rest)
}

/// `%E3S`, `%E3f`, `%Ez`: digits of the second, an offset with a colon.
fn extended<'a>(text: &'a str, pieces: &mut Vec<Piece>) -> Option<&'a str> {
    if let Some(rest) = text.strip_prefix('z').or_else(|| text.strip_prefix("*z")) {
        pieces.push(Piece::Literal(Literal::new(OFFSET_WITH_COLON)));
        return Some(rest);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let count: u8 = text[..digits].parse().ok().filter(|count| *count <= 9)?;
    let rest = &text[digits..];
    if let Some(rest) = rest.strip_prefix('S') {
        pieces.push(SECOND);
        if count > 0 {
            literal(pieces, ".");
            pieces.push(Piece::Fraction(count));
        }
        return Some(rest);
    }
    let rest = rest.strip_prefix('f')?;
    pieces.push(Piece::Fraction(count));
    Some(rest)
}

fn compound<'a>(rest: &'a str, into: &mut Vec<Piece>, format: &str) -> Result<&'a str, String> {
    into.extend(pieces(format)?);
    Ok(rest)
}

fn literal(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Literal(Literal::new(text.as_bytes())));
    }
}

impl Piece {
    /// What is rare enough to be made anew each time. The calendar is not inlined: it would be asked before the loop.
    #[inline(never)]
    fn write(&self, out: &mut Vec<u8>, second: u64, shift: Option<&Shift>) {
        let date = date_of(second);
        let offset = shift.map_or(0, |shift| shift.offset);
        match self {
            Self::Literal(_) | Self::Digits(_) | Self::Fraction(_) | Self::Usual => {}
            Self::ShortMonthName => short(out, date.month()),
            Self::MonthName => text(out, date.month()),
            Self::PaddedDay => text(out, format_args!("{:2}", date.day())),
            Self::DayOfYear => padded(out, date.ordinal().into(), 3),
            Self::ShortDayName => short(out, date.weekday()),
            Self::DayName => text(out, date.weekday()),
            Self::IsoWeekday => text(out, date.weekday().number_from_monday()),
            Self::Weekday => text(out, date.weekday().number_days_from_sunday()),
            Self::Hour12 => padded(out, (u64::from(date.hour()) + 11) % 12 + 1, 2),
            Self::AmPm => out.extend_from_slice(if date.hour() < 12 { b"AM" } else { b"PM" }),
            Self::UnixSeconds => text(out, date.unix_timestamp() - i64::from(offset)),
            Self::Offset => write_offset(out, offset, ""),
            Self::OffsetWithColon => write_offset(out, offset, ":"),
            Self::ZoneName => text(out, shift.map_or("UTC", |shift| &shift.name)),
        }
    }
}

/// Appends `+0130`.
fn write_offset(out: &mut Vec<u8>, offset: i32, between: &str) {
    let minutes = offset.unsigned_abs() / 60;
    let sign = if offset < 0 { '-' } else { '+' };
    text(out, format_args!("{sign}{:02}{between}{:02}", minutes / 60, minutes % 60));
}

fn text(out: &mut Vec<u8>, value: impl Display) {
    // Writing to a vector does not fail.
    let _ = write!(out, "{value}");
}

/// The first three letters of a name.
fn short(out: &mut Vec<u8>, name: impl Display) {
    let start = out.len();
    text(out, name);
    out.truncate(start + 3);
}

fn fraction(out: &mut Vec<u8>, nanosecond: u64, digits: u8) {
    if digits == 3 {
        return out.extend_from_slice(&three_digits((nanosecond / 1_000_000) as u16));
    }
    const UNITS: [u32; 10] = {
        let mut units = [1; 10];
        let mut digits = 9;
        while digits > 0 {
            digits -= 1;
            units[digits] = 10 * units[digits + 1];
        }
        units
    };
    let unit = UNITS.get(usize::from(digits)).copied().unwrap_or(1);
    padded(out, nanosecond / u64::from(unit), usize::from(digits));
}

/// Appends a number with at least so many digits.
fn padded(out: &mut Vec<u8>, mut value: u64, digits: usize) {
    let mut text = [b'0'; 20];
    let mut start = text.len();
    while value > 0 {
        start -= 1;
        text[start] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    let start = start.min(text.len() - digits);
    append(out, &text[start..]);
}

/// The digits of a second, as [`Digits::PATTERN`] has them.
#[cold]
fn digits(second: u64) -> [u8; Digits::PATTERN.len()] {
    let date = date_of(second);
    let year = date.year() as u32;
    let (month, day) = (u8::from(date.month()), date.day());
    let (hour, minute, second) = (date.hour(), date.minute(), date.second());
    let numbers = [(year / 100) as u8, (year % 100) as u8, month, day, hour, minute, second];
    let mut text = *b"YYYY-MM-DDTHH:MM:SS";
    for (at, number) in [0, 2, 5, 8, 11, 14, 17].into_iter().zip(numbers) {
        text[at] = b'0' + number / 10;
        text[at + 1] = b'0' + number % 10;
    }
    text
}

/// A second since 1970; nanoseconds in 64 bits end in the year 2554.
fn date_of(second: u64) -> UtcDateTime {
    let second = i64::try_from(second).unwrap_or(i64::MAX);
    UtcDateTime::from_unix_timestamp(second).unwrap_or(UtcDateTime::MAX)
}

/// `%S`
const SECOND: Piece = Piece::Digits(17..19);
const DEFAULT: &str = "%Y-%m-%dT%H:%M:%E3SZ";
/// The same of local time.
const LOCAL_DEFAULT: &str = "%Y-%m-%dT%H:%M:%E3S%z";

const OFFSET: &[u8] = b"+0000";
const OFFSET_WITH_COLON: &[u8] = b"+00:00";
const ZONE_NAME: &[u8] = b"UTC";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(format: &str, unix_ns: u64) -> String {
        let mut out = Vec::new();
        TimeFormat::new(format).unwrap().write(&mut out, unix_ns);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_specifier_of_one_moment() {
        let ns = 1_795_175_502_354_309_001;
        for (format, text) in [
            ("", "2026-11-20T11:51:42.354Z"),
            ("%s.%3f|%1f|%6f|%9f|%f", "1795175502.354|3|354309|354309001|354309001"),
            ("%Y/%m/%dT%H:%M:%S%z %Z", "2026/11/20T11:51:42+0000 UTC"),
            ("%E0S %E6S %Ez %E2f", "42 42.354309 +00:00 35"),
            ("%a %A %b %B %e %j %u %w", "Fri Friday Nov November 20 324 5 5"),
            ("%y %C %I %p %%", "26 20 11 AM %"),
            ("%F %T %R %D", "2026-11-20 11:51:42 11:51 11/20/26"),
            ("%c|%r", "Fri Nov 20 11:51:42 2026|11:51:42 AM"),
        ] {
            assert_eq!(at(format, ns), text, "{format}");
        }
    }

    #[test]
    fn digits_follow_the_second_and_join_only_where_they_stand_side_by_side() {
        for second in [0, 59, 60, 0, 86_399, 86_400] {
            let text = at("%s %T", second * 1_000_000_000);
            let (h, m, s) = (second % 86_400 / 3600, second / 60 % 60, second % 60);
            assert_eq!(text, format!("{second} {h:02}:{m:02}:{s:02}"));
        }
        assert_eq!(*TimeFormat::new("").unwrap().pieces, [Piece::Usual]);
        assert_eq!(at("%Y-%m-%dT%H:%M:%E3S.", 0), "1970-01-01T00:00:00.000.");
        assert_eq!(at("%m-%Y %d-%m %Y-%m-%d-%H %H%M", 0), "01-1970 01-01 1970-01-01-00 0000");
        assert_eq!(at("%Y-%d %YT%H %y-%m %Y%m", 0), "1970-01 1970T00 70-01 197001");
    }

    #[test]
    fn calendars_edges() {
        for (days, text) in [
            (0, "1970-01-01 001 Thu"),
            (58, "1970-02-28 059 Sat"),
            (789, "1972-02-29 060 Tue"),
            (790, "1972-03-01 061 Wed"),
            (10_956, "1999-12-31 365 Fri"),
            (11_016, "2000-02-29 060 Tue"),
            (11_322, "2000-12-31 366 Sun"),
            (47_540, "2100-02-28 059 Sun"),
            (47_541, "2100-03-01 060 Mon"),
        ] {
            assert_eq!(at("%F %j %a", days * 86_400_000_000_000), text);
        }
        assert_eq!(at("%I%p %I%p", 0), "12AM 12AM");
        assert_eq!(at("%I%p", 12 * 3_600_000_000_000), "12PM");
        assert!(at("", u64::MAX).starts_with("2554-07-21"));
    }

    #[test]
    fn local_time_follows_its_zone() {
        let shift = |offset, name: &str| Shift { offset, name: name.into() };
        let summer =
            vec![(1_774_746_000, shift(7200, "CEST")), (1_792_890_000, shift(3600, "CET"))];
        let zone = Arc::new(Zone::new(shift(-12_600, "NST"), summer));
        let at = |format: &str, second: u64| {
            let mut format = TimeFormat::local(format).unwrap();
            format.zone = Some(Arc::clone(&zone));
            let mut out = Vec::new();
            format.write(&mut out, second * 1_000_000_000 + 5_000_000);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(at("", 1_774_745_999), "2026-03-28T21:29:59.005-0330");
        assert_eq!(at("", 1_774_746_000), "2026-03-29T03:00:00.005+0200");
        assert_eq!(at("%H %z %Ez %Z %s", 1_792_889_999), "02 +0200 +02:00 CEST 1792889999");
        assert_eq!(at("%H %z %Ez %Z %s", 1_792_890_000), "02 +0100 +01:00 CET 1792890000");
        // Without a zone it is UTC, and what is written in a format as it is stays so.
        let mut out = Vec::new();
        TimeFormat::local("%H%z %Z +0000x").unwrap().write(&mut out, 0);
        assert_eq!(out, b"00+0000 UTC +0000x");
    }

    #[test]
    fn unknown_specifiers_are_refused() {
        for format in ["%", "%Q", "%3", "%3S", "%E", "%EQ", "%E99S", "%é"] {
            assert!(TimeFormat::new(format).is_err(), "{format}");
        }
    }
}
