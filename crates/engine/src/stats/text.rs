//! `/stats`: one `name: value` a line.

use std::fmt::Write as _;

use super::sorted::{Merged, Sorted};

/// `/stats` in chunks of about 16 KiB.
pub struct Text(Sorted);

impl Text {
    pub(super) fn new(lines: Sorted) -> Self {
        Self(lines)
    }
}

impl Iterator for Text {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut chunk = String::new();
        for line in self.0.by_ref() {
            match line.value {
                Merged::Number(number) => {
                    let _ = writeln!(chunk, "{}: {number}", line.name);
                }
                Merged::Histogram { total, .. } if total.count() == 0 => {
                    let _ = writeln!(chunk, "{}: No recorded values", line.name);
                }
                Merged::Histogram { total, interval } => {
                    let _ = write!(chunk, "{}:", line.name);
                    for quantile in QUANTILES {
                        let share = quantile / 100.0;
                        let total = total
                            .quantile(share)
                            .map_or_else(|| "nan".to_owned(), |value| value.to_string());
                        let part = interval
                            .quantile(share)
                            .map_or_else(|| "nan".to_owned(), |value| value.to_string());
                        let _ = write!(chunk, " P{quantile}({part},{total})");
                    }
                    chunk.push('\n');
                }
            }
            if chunk.len() >= CHUNK {
                break;
            }
        }
        (!chunk.is_empty()).then_some(chunk)
    }
}

/// The quantiles that Envoy prints, in percent.
pub(super) const QUANTILES: [f64; 10] =
    [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 100.0];

/// When a chunk is passed on.
pub(super) const CHUNK: usize = 16 * 1024;
