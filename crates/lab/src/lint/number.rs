//! Numbers as people write them.

/// A number and the unit that follows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number<'t> {
    pub(super) value: f64,
    pub(super) unit: &'t str,
    /// What follows number and unit.
    pub(super) rest: &'t str,
}

/// The first number in `text`: `~5.16%`, `1,234.5`, `3.549ms`, `5. 64`.
pub(super) fn first(text: &str) -> Option<Number<'_>> {
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
    let after = text[end..].trim_start();
    let length =
        after.find(|c: char| !(c.is_alphabetic() || c == '%' || c == '/')).unwrap_or(after.len());
    let value: f64 = digits.parse().ok()?;
    let value = if is_negative { -value } else { value };
    Some(Number { value, unit: &after[..length], rest: &after[length..] })
}

/// Seconds in a cell; a bare number is in `default`.
pub(super) fn seconds(text: &str, default: &str) -> Option<f64> {
    let number = first(text)?;
    let unit = if number.unit.is_empty() { default } else { number.unit };
    Some(number.value * seconds_per(unit)?)
}

/// Seconds in a unit of time.
pub(super) fn seconds_per(unit: &str) -> Option<f64> {
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
pub(super) fn bytes(text: &str, default: &str) -> Option<f64> {
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
pub(super) fn rate(text: &str) -> Option<f64> {
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
        assert_eq!(first("-0.036").map(|number| number.value), Some(-0.036));
        assert_eq!(first("none"), None);
    }
}
