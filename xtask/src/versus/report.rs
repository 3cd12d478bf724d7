//! Tables for people, JSON for programs.

use serde_json::{Value, json};

use crate::shell::Result;

/// One figure over the rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Figure {
    values: Vec<f64>,
}

impl Figure {
    pub(super) fn add(&mut self, value: f64) {
        self.values.push(value);
    }

    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    pub(super) fn low(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(super) fn high(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::max)
    }
}

/// One contender's line.
pub(super) struct Row {
    pub(super) who: &'static str,
    /// In the order of the table's columns.
    pub(super) figures: Vec<Figure>,
}

/// A column: its heading, its unit in JSON, and its decimals.
pub(super) struct Column {
    pub(super) heading: &'static str,
    pub(super) metric: &'static str,
    pub(super) decimals: usize,
}

/// What has been measured so far; each table is printed as soon as it is there.
pub(super) struct Report {
    machine: String,
    rows: Vec<Value>,
}

impl Report {
    pub(super) fn new(machine: String) -> Self {
        println!("\n{machine}");
        Self { machine, rows: Vec::new() }
    }

    /// Prints a table. Its first column is the one that ratios and spread are of; lower is better.
    pub(super) fn table(&mut self, title: &str, case: &str, columns: &[Column], rows: &[Row]) {
        println!("\n{title}");
        print!("  {:<9}", "");
        for column in columns {
            print!("{:>12}", column.heading);
        }
        println!("{:>16}{:>12}{:>12}", "low–high", "× floor", "× towpath");
        let first = |who: &str| {
            rows.iter().find(|row| row.who == who).map_or(f64::NAN, |row| row.figures[0].median())
        };
        let (floor, towpath) = (first("floor"), first("towpath"));
        for row in rows {
            print!("  {:<9}", row.who);
            for (column, figure) in columns.iter().zip(&row.figures) {
                print!("{:>12}", number(figure.median(), column.decimals));
            }
            let main = &row.figures[0];
            let decimals = columns[0].decimals;
            let spread =
                format!("{}–{}", number(main.low(), decimals), number(main.high(), decimals));
            let ratio = |base: f64| number(main.median() / base, 2);
            println!("{spread:>16}{:>12}{:>12}", ratio(floor), ratio(towpath));
            for (column, figure) in columns.iter().zip(&row.figures) {
                self.rows.push(json!({
                    "table": "versus",
                    "case": case,
                    "who": row.who,
                    "metric": column.metric,
                    "value": figure.median(),
                    "low": figure.low(),
                    "high": figure.high(),
                }));
            }
        }
    }

    pub(super) fn to_json(&self) -> Result<String> {
        let report = json!({ "schema": 1, "machine": self.machine, "rows": self.rows });
        Ok(serde_json::to_string_pretty(&report)?)
    }
}

fn number(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { "–".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        let mut figure = Figure::default();
        assert!(figure.median().is_nan());
        for value in [5.0, 1.0, 9.0] {
            figure.add(value);
        }
        assert_eq!((figure.median(), figure.low(), figure.high()), (5.0, 1.0, 9.0));
        figure.add(6.0);
        assert!((figure.median() - 5.5).abs() < 1e-12);
    }
}
