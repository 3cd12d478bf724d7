//! Numbers with units, in and out.

use std::time::Duration;

use crate::histogram::Nanoseconds;

/// `10`, `2.5s`, `300ms`, `50us`, `1m`, `2h`: seconds unless said otherwise.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, 1e9)
}

/// `20`, `20ms`, `1.5s`, `300us`: milliseconds unless said otherwise.
pub fn parse_milliseconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, 1e6)
}

/// `1000`, `64k`, `2M`: bytes; k and M are 1024 and its square.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "b" | "B" => 1,
        "k" | "K" | "kb" | "KB" | "KiB" => 1024,
        "m" | "M" | "mb" | "MB" | "MiB" => 1024 * 1024,
        _ => return Err(format!("'{unit}' is no unit of size; use k or M")),
    };
    let number: usize =
        number.parse().map_err(|_| format!("'{number}' is not a number of bytes"))?;
    match number.checked_mul(factor) {
        Some(size) if size <= SIZE_LIMIT => Ok(size),
        Some(_) | None => Err("more than 1024M".to_owned()),
    }
}

/// A rate above zero: `2000`, `10k`.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "/s" => 1.0,
        "k" | "k/s" => 1000.0,
        _ => return Err(format!("'{unit}' is no unit of rate; use k")),
    };
    match number.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate * factor),
        Ok(_) | Err(_) => Err(format!("'{text}' is not a rate above zero")),
    }
}

/// What is below this share of all, in the unit that suits it; a dash where nothing was counted.
pub fn show_quantile(histogram: &Nanoseconds, share: f64) -> String {
    match histogram.count() {
        0 => "–".to_owned(),
        _ => show_ns(histogram.quantile(share) as f64),
    }
}

/// Nanoseconds in the unit that suits them.
pub fn show_ns(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// Bytes in the unit that suits them.
pub fn show_bytes(bytes: u64) -> String {
    match bytes as f64 {
        small if small < 10_240.0 => format!("{bytes} B"),
        kilo if kilo < 10_485_760.0 => format!("{:.0} KiB", kilo / 1024.0),
        mega => format!("{:.1} MiB", mega / 1_048_576.0),
    }
}

/// An integer with thousands separators.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something whose plural ends in s.
pub fn show_number_of(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", show_count(count))
}

fn parse_duration(text: &str, default_ns: f64) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" => default_ns,
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(format!("'{unit}' is no unit of time; use us, ms, s, m or h")),
    };
    match number.parse::<f64>() {
        Ok(value) if value >= 0.0 && value * factor < 1e18 => {
            Ok(Duration::from_nanos((value * factor).round() as u64))
        }
        Ok(_) | Err(_) => Err(format!("'{text}' is not a duration")),
    }
}

fn split(text: &str) -> (&str, &str) {
    let end =
        text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

const SIZE_LIMIT: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_nonsense_is_not() {
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(parse_milliseconds("2.5"), Ok(Duration::from_micros(2500)));
        assert_eq!(parse_milliseconds("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_seconds("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_milliseconds("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_size("64k"), Ok(65_536));
        assert_eq!(parse_rate("10k"), Ok(10_000.0));
        for text in ["", "-1", "1x", "s", "1e99"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert!(parse_size("1025M").is_err() && parse_size("1024M").is_ok());
        assert!(parse_rate("0").is_err());
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_ns(1_500.0), "1.5 µs");
        let rows = [0, 1, 2000].map(|count| show_number_of(count, "row"));
        assert_eq!(rows, ["0 rows", "1 row", "2,000 rows"]);
    }
}
