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
        let sorted = self.sorted();
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    /// What the median of more such rounds would be, with 95 % certainty and whatever their distribution: values at two
    /// ranks, as many from either end as a fair coin allows. With less than six rounds, the lowest and the highest.
    pub(super) fn interval(&self) -> (f64, f64) {
        let sorted = self.sorted();
        let beyond = ranks_beyond(sorted.len());
        let at = |rank: Option<usize>| rank.and_then(|rank| sorted.get(rank)).copied();
        let last = sorted.len().checked_sub(1 + beyond);
        (at(Some(beyond)).unwrap_or(f64::NAN), at(last).unwrap_or(f64::NAN))
    }

    /// This one's values over the other's, round by round: what disturbed the machine for longer than a round
    /// disturbed both.
    fn over(&self, base: &Self) -> Self {
        Self {
            values: self.values.iter().zip(&base.values).map(|(ours, base)| ours / base).collect(),
        }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    pub(super) fn low(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(super) fn high(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::max)
    }
}

/// How many of so many values may lie beyond either end of a 95 % interval of the median: that more do has a chance of
/// 2.5 % at most, when each lies on either side of the median like a coin.
fn ranks_beyond(values: usize) -> usize {
    // By logarithms, for half to the power of a thousand is zero.
    let mut log_chance = values as f64 * 0.5_f64.ln();
    let mut sum = log_chance.exp();
    let mut beyond = 0;
    while sum <= 0.025 && beyond < values / 2 {
        log_chance += ((values - beyond) as f64 / (beyond + 1) as f64).ln();
        sum += log_chance.exp();
        beyond += 1;
    }
    beyond.saturating_sub(1)
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

    /// Prints a table. Its first column is the one that ratios and spread are of; lower is better. A ratio is the
    /// median of the rounds' ratios. Both have the interval of a median of more rounds; of less than six, the extremes.
    pub(super) fn table(&mut self, title: &str, case: &str, columns: &[Column], rows: &[Row]) {
        println!("\n{title}");
        print!("  {:<9}", "");
        for column in columns {
            print!("{:>12}", column.heading);
        }
        println!("{:>16}{:>20}{:>20}", "95 % of median", "× floor", "× towpath");
        let first =
            |who: &str| rows.iter().find(|row| row.who == who).map(|row| row.figures[0].clone());
        let (floor, towpath) = (first("floor"), first("towpath"));
        for row in rows {
            print!("  {:<9}", row.who);
            for (column, figure) in columns.iter().zip(&row.figures) {
                print!("{:>12}", number(figure.median(), column.decimals));
            }
            let main = &row.figures[0];
            let decimals = columns[0].decimals;
            let (from, to) = main.interval();
            let spread = format!("{}–{}", number(from, decimals), number(to, decimals));
            let over = |base: &Option<Figure>| base.as_ref().map(|base| main.over(base));
            let ratios = [over(&floor), over(&towpath)];
            let [of_floor, of_towpath] =
                ratios.each_ref().map(|it| it.as_ref().map_or_else(|| "–".to_owned(), ratio));
            println!("{spread:>16}{of_floor:>20}{of_towpath:>20}");
            let bases = ["floor", "towpath"].into_iter().zip(&ratios);
            for (base, figure) in bases.filter_map(|(base, it)| Some((base, it.as_ref()?))) {
                let (low, high) = figure.interval();
                self.rows.push(json!({
                    "table": "versus",
                    "case": case,
                    "who": row.who,
                    "metric": format!("{}_over_{base}", columns[0].metric),
                    "value": figure.median(),
                    "low": low,
                    "high": high,
                }));
            }
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

fn ratio(figure: &Figure) -> String {
    let (low, high) = figure.interval();
    let median = number(figure.median(), 2);
    if figure.values.len() < 2 {
        median
    } else {
        format!("{median} ({}–{})", number(low, 2), number(high, 2))
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

    #[test]
    fn an_interval_leaves_as_many_out_as_a_coin_allows() {
        // The ranks of the sign test's tables: of 6 none, of 9 one, of 20 five, of 60 twenty-one.
        assert_eq!([1, 5, 6, 9, 20, 60].map(ranks_beyond), [0, 0, 0, 1, 5, 21]);
        // Of many, half less a standard deviation (half a root) and nearly another.
        let most = ranks_beyond(10_000);
        assert!((4900..=4904).contains(&most), "{most}");
        let figure = Figure { values: (1..=20).map(f64::from).collect() };
        assert_eq!(figure.interval(), (6.0, 15.0));
        let none = Figure::default().interval();
        assert!(none.0.is_nan() && none.1.is_nan());
    }

    #[test]
    fn a_ratio_is_of_the_same_round() {
        let base = Figure { values: vec![1.0, 10.0, 100.0] };
        let ours = Figure { values: vec![2.0, 20.0, 200.0] };
        assert_eq!(ratio(&ours.over(&base)), "2.00 (2.00–2.00)");
    }
}
