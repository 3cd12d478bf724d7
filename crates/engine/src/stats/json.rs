//! `/stats?format=json`.

use std::fmt::Write as _;

use super::Bins;
use super::sorted::{Merged, Sorted};
use super::text::{CHUNK, QUANTILES};
use crate::json::json_string;

/// `/stats?format=json` in chunks of about 16 KiB.
pub struct Json {
    lines: Sorted,
    place: Place,
}

/// What was written last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nothing,
    Start,
    Numbers,
    Histograms,
    End,
}

impl Json {
    pub(super) fn new(lines: Sorted) -> Self {
        Self { lines, place: Place::Nothing }
    }

    fn number(&mut self, chunk: &mut String, name: &str, number: u64) {
        if self.place == Place::Numbers {
            chunk.push(',');
        }
        self.place = Place::Numbers;
        let _ = write!(chunk, r#"{{"name":{},"value":{number}}}"#, quoted(name));
    }

    fn histogram(&mut self, chunk: &mut String, name: &str, total: &Bins, interval: &Bins) {
        match self.place {
            Place::Histograms => chunk.push(','),
            Place::Numbers => {
                chunk.push(',');
                chunk.push_str(&histograms_start());
            }
            Place::Nothing | Place::Start | Place::End => chunk.push_str(&histograms_start()),
        }
        self.place = Place::Histograms;
        let values = QUANTILES.map(|quantile| {
            let value = |bins: &Bins| {
                let value = bins.quantile(quantile / 100.0);
                value.map_or_else(|| "null".to_owned(), |value| value.to_string())
            };
            format!(r#"{{"cumulative":{},"interval":{}}}"#, value(total), value(interval))
        });
        let _ = write!(chunk, r#"{{"name":{},"values":[{}]}}"#, quoted(name), values.join(","));
    }
}

impl Iterator for Json {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut chunk = String::new();
        if self.place == Place::Nothing {
            chunk.push_str(r#"{"stats":["#);
            self.place = Place::Start;
        }
        while self.place != Place::End && chunk.len() < CHUNK {
            match self.lines.next() {
                Some(line) => match line.value {
                    Merged::Number(number) => self.number(&mut chunk, &line.name, number),
                    Merged::Histogram { total, interval } => {
                        self.histogram(&mut chunk, &line.name, &total, &interval);
                    }
                },
                None => {
                    chunk.push_str(if self.place == Place::Histograms { "]}}]}" } else { "]}" });
                    self.place = Place::End;
                }
            }
        }
        (!chunk.is_empty()).then_some(chunk)
    }
}

fn histograms_start() -> String {
    let quantiles = QUANTILES.map(|quantile| quantile.to_string()).join(",");
    format!(r#"{{"histograms":{{"supported_quantiles":[{quantiles}],"computed_quantiles":["#)
}

fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    json_string(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}
