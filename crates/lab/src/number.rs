//! Numbers as people write them.

/// A number and the unit that follows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number<'t> {
    pub(crate) value: f64,
    pub(crate) unit: &'t str,
    /// What follows number and unit.
    pub(crate) rest: &'t str,
}

/// The first number in `text`: `~5.16%`, `1,234.5`, `3.549ms`, `5. 64`.
pub(crate) fn first(text: &str) -> Option<Number<'_>> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let is_negative = text[..start].ends_with('-');
    let bytes = text.as_bytes();
    let mut end = start;
    let mut digits = String::new();
    while let Some(byte) = bytes.get(end) {
        let next_is_digit = bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        match byte {
            b'0'..=b'9' => digits.push(*byte as char),
            b'.' if next_is_digit && !digits.contains('.') => digits.push('.'),
            // A stray space after the point.
            b'.' if bytes.get(end + 1) == Some(&b' ')
                && bytes.get(end + 2).is_some_and(u8::is_ascii_digit) =>
            {
                digits.push('.');
                end += 1;
            }
            b',' if bytes[end + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count()
                == 3 => {}
            _ => break,
        }
        end += 1;
    }
    let exponent = exponent(&text[end..]);
    digits.push_str(exponent);
    end += exponent.len();
    let after = text[end..].trim_start();
    let length =
        after.find(|c: char| !(c.is_alphabetic() || c == '%' || c == '/')).unwrap_or(after.len());
    let value: f64 = digits.parse().ok()?;
    let value = if is_negative { -value } else { value };
    Some(Number { value, unit: &after[..length], rest: &after[length..] })
}

/// `e4` or `E-3` at the beginning of what follows digits; a unit that begins so is none.
fn exponent(text: &str) -> &str {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return "" };
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    let is_exponent = (1..=3).contains(&count) && !digits[count..].starts_with(char::is_alphabetic);
    let length = 1 + (rest.len() - digits.len()) + count;
    if is_exponent { &text[..length] } else { "" }
}

/// Seconds in a duration as Go, Rust and wrk print it: `1m30.5s`, `456.5µs`, `0.0011 secs`.
pub(crate) fn go_seconds(text: &str) -> Option<f64> {
    let mut rest = text.trim();
    let mut sum = None;
    while let Some(number) = first(rest) {
        let unit = match number.unit {
            "h" => 3600.0,
            "m" => 60.0,
            unit => seconds_per(unit)?,
        };
        sum = Some(sum.unwrap_or(0.0) + number.value * unit);
        rest = number.rest;
        if !rest.starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
    }
    sum
}

/// Seconds in a cell; a bare number is in `default`.
pub(crate) fn seconds(text: &str, default: &str) -> Option<f64> {
    let number = first(text)?;
    let unit = if number.unit.is_empty() { default } else { number.unit };
    Some(number.value * seconds_per(unit)?)
}

/// Seconds in a unit of time.
pub(crate) fn seconds_per(unit: &str) -> Option<f64> {
    let unit = unit.to_lowercase();
    Some(match unit.as_str() {
        "s" | "sec" | "secs" | "seconds" | "秒" => 1.0,
        "ms" | "msec" | "milliseconds" => 1e-3,
        "us" | "µs" | "μs" | "usec" | "microseconds" => 1e-6,
        "ns" | "nanoseconds" => 1e-9,
        "min" | "minutes" => 60.0,
        _ => return None,
    })
}

/// Bytes in a cell; a bare number is in `default`.
pub(crate) fn bytes(text: &str, default: &str) -> Option<f64> {
    let number = first(text)?;
    let unit = if number.unit.is_empty() { default } else { number.unit };
    let factor = match unit.to_lowercase().as_str() {
        "b" | "bytes" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1_048_576.0,
        "g" | "gb" | "gib" => 1_073_741_824.0,
        _ => return None,
    };
    Some(number.value * factor)
}

/// Requests per second in a cell: `38,800`, `12.5k`.
pub(crate) fn rate(text: &str) -> Option<f64> {
    let number = first(text)?;
    let factor = match number.unit.chars().next() {
        Some('k' | 'K') => 1e3,
        Some('m' | 'M') => 1e6,
        Some(_) | None => 1.0,
    };
    Some(number.value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_in_any_dress() {
        assert_eq!(seconds("3.549ms", ""), Some(0.003_549));
        assert_eq!(seconds("平均耗时:2.4秒", ""), Some(2.4));
        assert_eq!(seconds("5. 64 总耗时:282秒", "s"), None);
        assert_eq!(first("5. 64").map(|number| number.value), Some(5.64));
        assert_eq!(seconds("12", "us"), Some(0.000_012));
        assert_eq!(rate("1,234,567"), Some(1_234_567.0));
        assert_eq!(rate("12.5k"), Some(12_500.0));
        assert_eq!(bytes("24m", ""), Some(25_165_824.0));
        assert_eq!(bytes("24", ""), None);
        assert_eq!(go_seconds("1m30.5s"), Some(90.5));
        assert_eq!(go_seconds(" 0.25 secs"), Some(0.25));
        assert_eq!(go_seconds("2h"), Some(7200.0));
        assert_eq!(go_seconds("456.5µs").map(|s| (s * 1e7).round()), Some(4565.0));
        assert_eq!(go_seconds("12"), None);
        assert_eq!(first("-0.036").map(|number| number.value), Some(-0.036));
        assert_eq!(first("none"), None);
        assert_eq!(rate("1.2e4"), Some(12_000.0));
        assert_eq!(rate("1.2E+4 req/s"), Some(12_000.0));
        assert_eq!(seconds("3e-3", "s"), Some(0.003));
        assert_eq!(first("2eggs").map(|number| (number.value, number.unit)), Some((2.0, "eggs")));
        assert_eq!(first("5e").map(|number| number.unit), Some("e"));
    }
}
