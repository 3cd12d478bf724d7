//! Scalars between JSON and Protocol Buffers: what takes a text for a number, what a number looks like, dates.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use time::{Date, Month, UtcDateTime};

use super::json::Json;
use super::schema::EnumType;

/// A scalar as errors show it.
pub(super) fn shown(value: &Json) -> String {
    match value {
        Json::Null => "null".into(),
        Json::Bool(value) => value.to_string(),
        Json::Int(value) => value.to_string(),
        Json::Uint(value) => value.to_string(),
        Json::Double(value) => double(*value),
        Json::Text(value) => format!("\"{value}\""),
        Json::List(_) | Json::Object(_) => String::new(),
    }
}

/// A whole number of a type that holds less than all.
pub(super) fn to_whole<N: TryFrom<i128> + std::str::FromStr>(value: &Json) -> Result<N, String> {
    let number = match value {
        Json::Int(value) => N::try_from(i128::from(*value)).ok(),
        Json::Uint(value) => N::try_from(i128::from(*value)).ok(),
        Json::Double(value) => whole(*value).and_then(|value| N::try_from(value).ok()),
        Json::Text(text) => text.parse().ok(),
        Json::Null | Json::Bool(_) | Json::List(_) | Json::Object(_) => None,
    };
    number.ok_or_else(|| shown(value))
}

fn whole(value: f64) -> Option<i128> {
    #[expect(clippy::cast_possible_truncation, reason = "it is in range, and whole")]
    (value.fract() == 0.0 && value.abs() < 1e20).then_some(value as i128)
}

pub(super) fn to_double(value: &Json) -> Result<f64, String> {
    #[expect(clippy::cast_precision_loss, reason = "what cannot be exact is refused")]
    let number = match value {
        Json::Int(value) => Some(*value as f64).filter(|it| whole(*it) == Some((*value).into())),
        Json::Uint(value) => Some(*value as f64).filter(|it| whole(*it) == Some((*value).into())),
        Json::Double(value) => Some(*value),
        Json::Text(text) => match &**text {
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            "NaN" => Some(f64::NAN),
            text => text.parse().ok().filter(|value: &f64| value.is_finite()),
        },
        Json::Null | Json::Bool(_) | Json::List(_) | Json::Object(_) => None,
    };
    number.ok_or_else(|| shown(value))
}

#[expect(clippy::cast_possible_truncation, reason = "it is the nearest, as Envoy's")]
pub(super) fn to_float(value: &Json) -> Result<f32, String> {
    if let Json::Int(_) | Json::Uint(_) = value {
        let number = to_double(value)?;
        let float = number as f32;
        return if f64::from(float) == number { Ok(float) } else { Err(shown(value)) };
    }
    let number = to_double(value)?;
    let float = number as f32;
    if float.is_infinite() && number.is_finite() { Err(shown(value)) } else { Ok(float) }
}

pub(super) fn to_bool(text: &str) -> Option<bool> {
    let is = |words: [&str; 5]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(["true", "t", "yes", "y", "1"]) {
        return Some(true);
    }
    is(["false", "f", "no", "n", "0"]).then_some(false)
}

/// What Base64 stands for, of either alphabet, with or without padding.
pub(super) fn to_bytes(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let url_safe = GeneralPurpose::new(&URL_SAFE, LENIENT);
    let standard = GeneralPurpose::new(&STANDARD, LENIENT);
    url_safe.decode(text).or_else(|_| standard.decode(text)).ok()
}

pub(super) fn to_enum(value: &Json, kind: &EnumType, in_any_case: bool) -> Result<i32, String> {
    let Json::Text(text) = value else {
        return if let Json::Null = value { Ok(0) } else { to_whole(value) };
    };
    let by_number = || {
        let number = to_whole(value).ok()?;
        kind.name_of(number).map(|_| number)
    };
    let in_upper_case = || {
        let name = text.to_ascii_uppercase().replace('-', "_");
        kind.number_of(&name).filter(|_| in_any_case)
    };
    let number = kind.number_of(text).or_else(by_number).or_else(in_upper_case);
    number.ok_or_else(|| shown(value))
}

/// As C's `%.15g`, or with two digits more where those are needed.
pub(super) fn double(value: f64) -> String {
    let short = general(value, 15);
    if short.parse() == Ok(value) { short } else { general(value, 17) }
}

/// The same of a smaller number.
pub(super) fn float(value: f32) -> String {
    let short = general(value.into(), 6);
    if short.parse() == Ok(value) { short } else { general(value.into(), 9) }
}

/// As C's `%g` of so many digits.
fn general(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{:.*e}", digits - 1, value);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let places = i32::try_from(digits).unwrap_or(17);
    if (-4..places).contains(&exponent) {
        let decimals = usize::try_from(places - 1 - exponent).unwrap_or(0);
        return without_zeros(&format!("{value:.decimals$}")).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

fn without_zeros(number: &str) -> &str {
    if !number.contains('.') {
        return number;
    }
    number.trim_end_matches('0').trim_end_matches('.')
}

/// Seconds and nanoseconds.
pub(super) type Time = (i64, i32);

/// A point in time as RFC 3339 writes it.
pub(super) fn timestamp(text: &str) -> Result<Time, &'static str> {
    let (time, offset) = match text.strip_suffix('Z') {
        Some(time) => (time, 0),
        None => {
            const WRONG: &str = "Illegal timestamp format; timestamps must end with 'Z' or have a valid timezone \
            offset.";
            let at = text.rfind(['+', '-']).ok_or(WRONG)?;
            (&text[..at], zone(&text[at..]).ok_or(WRONG)?)
        }
    };
    let (time, fraction) = time.rsplit_once('.').unwrap_or((time, ""));
    let seconds = civil(time).ok_or("Invalid time format: Failed to parse input")?;
    let nanos = nanos(
        fraction,
        "Invalid time format, failed to parse nano seconds",
        "Timestamp value exceeds limits",
    )?;
    let seconds = seconds - offset;
    if (FIRST_SECOND..=LAST_SECOND).contains(&seconds) {
        Ok((seconds, nanos))
    } else {
        Err("Timestamp value exceeds limits")
    }
}

/// `+01:00`, in seconds.
fn zone(text: &str) -> Option<i64> {
    let (sign, time) = text.split_at_checked(1)?;
    let (hours, minutes) = time.split_once(':')?;
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    let seconds = (hours * 60 + minutes) * 60;
    (hours < 24 && minutes < 60).then_some(if sign == "-" { -seconds } else { seconds })
}

fn two(digits: &str) -> Option<i64> {
    let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// `2024-02-29T23:59:59`, in seconds since 1970.
fn civil(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':').map(number);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let small = |number: i64| u8::try_from(number).ok();
    let month = Month::try_from(small(month)?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, small(day)?).ok()?;
    // A second that is inserted is the first of the next minute.
    let is_time = hour < 24 && minute < 60 && second <= 60;
    let midnight = date.midnight().as_utc().unix_timestamp();
    is_time.then_some(midnight + (hour * 60 + minute) * 60 + second)
}

fn number(digits: &str) -> Option<i64> {
    let is_number = (1..=4).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// The first second of year 1.
const FIRST_SECOND: i64 = -62_135_596_800;
/// The last second of year 9999.
const LAST_SECOND: i64 = 253_402_300_799;
/// Ten thousand years.
const LONGEST: i64 = 315_576_000_000;

/// A span as JSON has it, in seconds: `1.5s`.
pub(super) fn duration(text: &str) -> Result<Time, &'static str> {
    let ending = "Illegal duration format; duration must end with 's'";
    let text = text.strip_suffix('s').ok_or(ending)?;
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let (seconds, fraction) = text.rsplit_once('.').unwrap_or((text, ""));
    let seconds: u64 =
        seconds.parse().map_err(|_| "Invalid duration format, failed to parse seconds")?;
    let nanos = nanos(
        fraction,
        "Invalid duration format, failed to parse nano seconds",
        "Duration value exceeds limits",
    )?;
    let seconds = i64::try_from(seconds).ok().filter(|seconds| *seconds <= LONGEST);
    let seconds = seconds.ok_or("Duration value exceeds limits")?;
    Ok((seconds * i64::from(sign), nanos * sign))
}

fn nanos(fraction: &str, wrong: &'static str, too_much: &'static str) -> Result<i32, &'static str> {
    let digits = fraction.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    let number: i32 = digits.parse().map_err(|_| wrong)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(if number < 0 { too_much } else { wrong });
    }
    let missing = 9_usize.checked_sub(fraction.len()).ok_or(too_much)?;
    let scale = 10_i32.pow(u32::try_from(missing).unwrap_or(0));
    number.checked_mul(scale).ok_or(too_much)
}

/// A point in time as JSON has it.
pub(super) fn print_timestamp((seconds, nanos): Time) -> Result<String, &'static str> {
    if seconds < FIRST_SECOND {
        return Err("minimum acceptable time value is 0001-01-01T00:00:00Z");
    }
    if seconds > LAST_SECOND {
        return Err("maximum acceptable time value is 9999-12-31T23:59:59Z");
    }
    if !(0..=999_999_999).contains(&nanos) {
        return Err("nanos must be in range [0, +999,999,999]");
    }
    let time = UtcDateTime::from_unix_timestamp(seconds).map_err(|_| "seconds out of range")?;
    let ((year, month, day), (hour, minute, second)) = (time.to_calendar_date(), time.as_hms());
    let month = u8::from(month);
    let fraction = fraction(nanos.unsigned_abs());
    Ok(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// A span as JSON has it.
pub(super) fn print_duration((seconds, nanos): Time) -> Result<String, &'static str> {
    if seconds.abs() > LONGEST || nanos.unsigned_abs() > 999_999_999 {
        return Err("duration out of range");
    }
    if seconds != 0 && nanos != 0 && (seconds < 0) != (nanos < 0) {
        return Err("nanos and seconds signs do not match");
    }
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let fraction = fraction(nanos.unsigned_abs());
    Ok(format!("{sign}{}{fraction}s", seconds.abs()))
}

/// In three, six or nine digits.
fn fraction(nanos: u32) -> String {
    match nanos {
        0 => String::new(),
        _ if nanos.is_multiple_of(1_000_000) => format!(".{:03}", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1000) => format!(".{:06}", nanos / 1000),
        _ => format!(".{nanos:09}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_c_writes_them() {
        let doubles = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1e15, "1e+15"),
            (1e14, "100000000000000"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.0 / 3.0, "0.33333333333333331"),
            (1e300, "1e+300"),
            (123_456.789, "123456.789"),
            (5e-324, "4.94065645841247e-324"),
        ];
        for (value, text) in doubles {
            assert_eq!(double(value), text);
        }
        for (value, text) in [
            (0.1, "0.1"),
            (16_777_216.0, "16777216"),
            (1e6, "1e+06"),
            (0.333_333_34, "0.333333343"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn times_are_the_same_both_ways() {
        let times = [
            ("1970-01-01T00:00:00Z", (0, 0)),
            ("2024-02-29T23:59:59.500Z", (1_709_251_199, 500_000_000)),
            ("0001-01-01T00:00:00Z", (FIRST_SECOND, 0)),
            ("9999-12-31T23:59:59.999999999Z", (LAST_SECOND, 999_999_999)),
            ("1900-03-01T00:00:00.000001Z", (-2_203_891_200, 1000)),
        ];
        for (text, time) in times {
            assert_eq!(timestamp(text), Ok(time), "{text}");
            assert_eq!(print_timestamp(time).as_deref(), Ok(text));
        }
        assert_eq!(timestamp("1970-01-01T01:00:00+01:00"), Ok((0, 0)));
        for wrong in [
            "",
            "Z",
            "1970-01-01",
            "1970-13-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T00:00:00+1:00",
            "10000-01-01T00:00:00Z",
            "1970-01-01T00:00:00.1234567890Z",
            "1970-01-01T00:00:00.-1Z",
            "é",
            "+é",
        ] {
            assert!(timestamp(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_leap_second_is_the_first_of_the_next_minute() {
        assert_eq!(timestamp("2016-12-31T23:59:60Z"), timestamp("2017-01-01T00:00:00Z"));
        assert!(timestamp("2016-12-31T23:59:61Z").is_err());
    }

    #[test]
    fn spans_are_the_same_both_ways() {
        let spans = [
            ("0s", (0, 0)),
            ("-1.500s", (-1, -500_000_000)),
            ("-0.000000001s", (0, -1)),
            ("315576000000s", (LONGEST, 0)),
        ];
        for (text, time) in spans {
            assert_eq!(duration(text), Ok(time), "{text}");
            assert_eq!(print_duration(time).as_deref(), Ok(text));
        }
        for wrong in ["", "s", "1", "1.s.s", "315576000001s", "1.-5s", "--1s", "1.9999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(print_duration((1, -1)).is_err());
        assert!(print_duration((i64::MIN + 1, 0)).is_err());
    }

    #[test]
    fn whole_numbers_are_told_from_others() {
        assert_eq!(to_whole::<i32>(&Json::Double(3.0)), Ok(3));
        assert_eq!(to_whole::<i32>(&Json::Double(3.5)), Err("3.5".into()));
        assert_eq!(to_whole::<u32>(&Json::Int(-1)), Err("-1".into()));
        assert_eq!(to_whole::<u64>(&Json::Text("18446744073709551615".into())), Ok(u64::MAX));
        assert_eq!(to_whole::<i32>(&Json::Text("x".into())), Err("\"x\"".into()));
        assert_eq!(to_whole::<i64>(&Json::Double(1e300)), Err("1e+300".into()));
        assert!(to_float(&Json::Double(1e39)).is_err());
        assert!(to_double(&Json::Text("inf".into())).is_err());
        assert_eq!(to_bytes("_-8"), Some(vec![255, 239]));
        assert_eq!(to_bytes("/+8="), Some(vec![255, 239]));
        assert_eq!(to_bytes("!"), None);
    }
}
