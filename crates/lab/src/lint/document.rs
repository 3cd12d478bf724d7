//! Tables in Markdown or CSV, either way round, with the headings above them.

use std::borrow::Cow;

use super::{Row, prose};
use crate::number;

/// What a column (or, in a table on its side, a row) holds.
#[derive(Clone, Debug, PartialEq)]
enum Quantity {
    Concurrency,
    Rate,
    Mean,
    Percentile(f64),
    Cpu,
    Memory,
    Count,
    Total,
    Repeat,
}

/// A heading's words and the number in it, which in most reports is the concurrency.
#[derive(Default)]
struct Heading {
    text: String,
    concurrency: Option<f64>,
}

#[derive(Default)]
struct Table<'t> {
    /// The line of each row.
    lines: Vec<usize>,
    cells: Vec<Vec<Cow<'t, str>>>,
}

/// Reads every row that a text's tables, lists and sentences tell.
pub fn read(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut heading = Heading::default();
    let mut table: Option<Table<'_>> = None;
    for (at, line) in text.lines().enumerate() {
        match cells(line) {
            Some(cells) => {
                let is_rule =
                    cells.iter().all(|cell| cell.chars().all(|c| matches!(c, '-' | ':' | ' ')));
                let current = table.get_or_insert_default();
                if !is_rule {
                    current.lines.push(at + 1);
                    current.cells.push(cells);
                } else if current.cells.len() > 1 {
                    // A rule's header began a table of its own without a gap.
                    let next = Table {
                        lines: current.lines.pop().into_iter().collect(),
                        cells: current.cells.pop().into_iter().collect(),
                    };
                    rows.extend(std::mem::replace(current, next).rows(&heading));
                }
            }
            None => {
                rows.extend(table.take().map(|table| table.rows(&heading)).into_iter().flatten());
                if line.trim_start().starts_with('#') {
                    heading = Heading::read(line);
                }
            }
        }
    }
    rows.extend(table.take().map(|table| table.rows(&heading)).into_iter().flatten());
    rows.extend(prose::read(text));
    rows
}

impl Heading {
    fn read(line: &str) -> Self {
        let text = line.trim_start_matches([' ', '#']).trim().to_owned();
        let is_concurrency = quantity(&text) == Some(Quantity::Concurrency);
        let concurrency = if is_concurrency {
            number::first(&text).map(|number| number.value.abs())
        } else {
            None
        };
        Self { text, concurrency }
    }
}

impl Table<'_> {
    fn rows(&self, heading: &Heading) -> Vec<Row> {
        let Some((header, body)) = self.cells.split_first() else { return Vec::new() };
        // Lines of figures without names above them are no table, whatever separates them.
        let is_figure = |cell: &Cow<'_, str>| cell.starts_with(|c: char| c.is_ascii_digit());
        if header.len() > 1 && header[1..].iter().all(is_figure) {
            return Vec::new();
        }
        let across = quantities(header.iter().map(|cell| &**cell));
        let down = quantities(body.iter().map(|cells| cells.first().map_or("", |cell| &**cell)));
        let (in_header, in_first) =
            (across.iter().flatten().count(), down.iter().flatten().count());
        if in_header > 0 && in_header >= in_first {
            return body
                .iter()
                .enumerate()
                .map(|(at, cells)| self.row(at, cells, header, &across, heading))
                .collect();
        }
        if in_first > 0 {
            return (1..header.len())
                .map(|column| self.column(column, header, body, &down, heading))
                .collect();
        }
        // Neither names quantities: cells may carry their own labels.
        body.iter()
            .enumerate()
            .flat_map(|(at, cells)| {
                let labelled = cells.iter().enumerate().skip(1);
                labelled.filter_map(move |(column, cell)| {
                    let mut row = prose::labelled_cell(cell)?;
                    row.line = self.lines[at + 1];
                    row.case = cells.first().map(ToString::to_string).unwrap_or_default();
                    // Some headers leave the first column out and the last one empty.
                    let shift = usize::from(header.last().is_some_and(|cell| cell.is_empty()));
                    row.who =
                        header.get(column - shift).map(ToString::to_string).unwrap_or_default();
                    Some(row)
                })
            })
            .collect()
    }

    fn row(
        &self,
        at: usize,
        cells: &[Cow<'_, str>],
        header: &[Cow<'_, str>],
        across: &[Option<Quantity>],
        heading: &Heading,
    ) -> Row {
        let mut row =
            Row { line: self.lines[at + 1], concurrency: heading.concurrency, ..Row::default() };
        let mut words = Vec::new();
        for (column, cell) in cells.iter().enumerate() {
            match across.get(column).and_then(Option::as_ref) {
                Some(quantity) => row.take(quantity, &header[column], cell),
                None => words.push(&**cell),
            }
        }
        row.case = words.join(" ").trim().to_owned();
        if row.case.is_empty() {
            row.case.clone_from(&heading.text);
        }
        row
    }

    fn column(
        &self,
        column: usize,
        header: &[Cow<'_, str>],
        body: &[Vec<Cow<'_, str>>],
        down: &[Option<Quantity>],
        heading: &Heading,
    ) -> Row {
        let mut row = Row {
            line: self.lines[0],
            case: heading.text.clone(),
            who: header[column].to_string(),
            concurrency: heading.concurrency,
            ..Row::default()
        };
        for (cells, quantity) in body.iter().zip(down) {
            if let (Some(quantity), Some(cell)) = (quantity, cells.get(column)) {
                row.take(quantity, &cells[0], cell);
            }
        }
        row
    }
}

impl Row {
    fn take(&mut self, quantity: &Quantity, label: &str, cell: &str) {
        self.has_spread |= cell.contains(['±', '[']) || cell.contains("+/-") || cell.contains("+-");
        let unit = unit_of(label);
        match quantity {
            Quantity::Concurrency => {
                self.concurrency = number::first(cell).map(|number| number.value)
            }
            Quantity::Rate => self.rate = number::rate(cell),
            Quantity::Mean => self.mean_s = number::seconds(cell, unit.unwrap_or("ms")),
            Quantity::Percentile(share) => {
                self.percentiles.extend(
                    number::seconds(cell, unit.unwrap_or("ms")).map(|value| (*share, value)),
                );
            }
            Quantity::Cpu => {
                let factor = |unit: &str| if unit.starts_with(['c', 'v']) { 1.0 } else { 0.01 };
                let is_figure =
                    cell.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '~' | '<' | '≈'));
                self.cpus = number::first(cell).filter(|_| is_figure).map(|number| {
                    number.value
                        * factor(if number.unit.is_empty() {
                            unit.unwrap_or("%")
                        } else {
                            number.unit
                        })
                });
            }
            Quantity::Memory => self.memory = number::bytes(cell, unit.unwrap_or("MB")),
            Quantity::Count => self.count = number::rate(cell),
            Quantity::Total => self.total_s = number::seconds(cell, unit.unwrap_or("s")),
            Quantity::Repeat => {
                // "37.2 suc VS 61.0 fail" is no repeat of a difference.
                let number = number::first(cell)
                    .filter(|number| number.rest.trim().is_empty() && number.unit.is_empty());
                self.repeats.extend(number.map(|number| number.value));
            }
        }
    }
}

/// What labels that stand beside each other name. Percentiles are of one thing: those that are of another than the
/// first, as in "requests, p50" and "connects, p99", are left out, because nothing about them can be said of each
/// other.
fn quantities<'l>(labels: impl Iterator<Item = &'l str>) -> Vec<Option<Quantity>> {
    let mut first: Option<Vec<String>> = None;
    let of_one = |label: &str| {
        let found = quantity(label)?;
        if !matches!(found, Quantity::Percentile(_)) {
            return Some(found);
        }
        let subject = subject(label);
        (*first.get_or_insert_with(|| subject.clone()) == subject).then_some(found)
    };
    labels.map(of_one).collect()
}

/// What a percentile is of: its label without the percentile itself and without words that say no more than a time.
fn subject(label: &str) -> Vec<String> {
    const TIME: [&str; 11] = [
        "latency",
        "rt",
        "rtt",
        "response",
        "time",
        "of",
        "percentile",
        "in",
        "tail",
        "the",
        "quantile",
    ];
    let label = label.to_lowercase();
    let said = |word: &&str| {
        let is_time = TIME.contains(word) || number::seconds_per(word).is_some();
        !is_time && percentile(word).is_none()
    };
    words(&label).into_iter().filter(said).map(str::to_owned).collect()
}

fn words(label: &str) -> Vec<&str> {
    let pieces = label.split(|c: char| !c.is_alphanumeric() && c != '.');
    pieces.filter(|word| !word.is_empty()).collect()
}

/// Whether a rate stands in a label with its number: that is what was asked for, as in "at 2,000 requests/s".
fn is_condition(label: &str) -> bool {
    let rate = ["requests/s", "requests per", "req/s", "rps", "qps", "tps"];
    let before = rate.iter().find_map(|word| label.split_once(word)).map(|(before, _)| before);
    before.is_some_and(|before| before.trim_end().ends_with(|c: char| c.is_ascii_digit()))
}

/// Whether a label is of the CPU that a request takes, or of a time, and not of a share.
fn is_cpu_time(label: &str, words: &[&str]) -> bool {
    let is_each = words.windows(2).any(|it| it[0] == "per" && !matches!(it[1], "cent" | "core"));
    if label.contains('%') {
        return false;
    }
    is_each
        || label.contains("/req")
        || unit_of(label).is_some_and(|unit| number::seconds_per(unit).is_some())
        || words.iter().any(|word| matches!(*word, "µs" | "us" | "ms" | "ns" | "time"))
}

/// What a label names. Percentiles come before means: "RT (P99)" holds both words.
fn quantity(label: &str) -> Option<Quantity> {
    let label = label.to_lowercase();
    let words = words(&label);
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
    let begins = |wanted: &str| words.iter().any(|word| word.starts_with(wanted));
    if let Some(share) = words.iter().find_map(|word| percentile(word)) {
        return Some(Quantity::Percentile(share));
    }
    if is_condition(&label) {
        return None;
    }
    // An error rate is none.
    let is_rate = label.contains("requests/s")
        || label.contains("per second")
        || words
            .windows(3)
            .any(|it| matches!(it, ["requests" | "req", "per", "s" | "sec" | "second"]))
        || matches!(words[..], ["rate"] | ["rate", "s" | "sec" | "1", ..]);
    let is_mean = has(&["rt", "rtt", "latency", "mean", "avg", "average"]);
    let is_duration = has(&["duration"]);
    // That of a run has whole seconds or says so; that of a request is a mean.
    let is_of_run = is_duration && !is_mean && has(&["s", "sec", "seconds", "test", "run"]);
    match () {
        () if is_rate || has(&["qps", "rps", "tps", "throughput", "req"]) => Some(Quantity::Rate),
        () if begins("concurren")
            || has(&["connections", "conns", "clients", "vus", "threads"]) =>
        {
            Some(Quantity::Concurrency)
        }
        () if has(&["cpu", "cpus"]) => (!is_cpu_time(&label, &words)).then_some(Quantity::Cpu),
        () if has(&["mem", "memory", "rss", "pss"]) => Some(Quantity::Memory),
        () if has(&["total", "elapsed"]) || is_of_run => Some(Quantity::Total),
        () if has(&["requests", "count"]) => Some(Quantity::Count),
        () if words.last().is_some_and(|word| is_repeat(word)) => Some(Quantity::Repeat),
        () if is_mean || is_duration => Some(Quantity::Mean),
        () => None,
    }
}

fn percentile(word: &str) -> Option<f64> {
    if word == "max" {
        return Some(100.0);
    }
    if word == "median" {
        return Some(50.0);
    }
    let digits = word.strip_prefix('p').or_else(|| word.strip_suffix("th"))?;
    let share: f64 = digits.parse().ok()?;
    // p999 is 99.9
    Some(if share >= 1000.0 {
        share / 100.0
    } else if share > 100.0 {
        share / 10.0
    } else {
        share
    })
}

fn is_repeat(word: &str) -> bool {
    let digits = word.strip_prefix("run").or_else(|| word.strip_prefix('r'));
    digits
        .is_some_and(|digits| digits.len() == 1 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The unit in a label: "latency (ms)", `RT [us]`, "cpu_percent".
fn unit_of(label: &str) -> Option<&str> {
    let inside = label.split(['(', '[', ',', '_']).nth(1)?;
    let word = inside.split([')', ']']).next()?.trim();
    (number::seconds_per(word).is_some() || number::bytes("1", word).is_some() || word == "cores")
        .then_some(word)
}

/// The cells of a table's line; `None` for any other line.
fn cells(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let line = line.trim();
    if line.contains('|') {
        let inner = line.strip_prefix('|').unwrap_or(line);
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        return Some(
            inner.split('|').map(|cell| Cow::Borrowed(cell.trim().trim_matches('"'))).collect(),
        );
    }
    let is_prose = line.contains(". ") || line.ends_with('.');
    let separator = [';', ','].into_iter().find(|it| line.matches(*it).count() >= 2)?;
    let pieces = (!is_prose).then(|| quoted(line, separator))?;
    // "Details (average, fastest, slowest):" is a sentence that was cut in three.
    let is_whole = |cell: &&str| cell.matches('(').count() == cell.matches(')').count();
    let cells = pieces.iter().all(is_whole).then_some(pieces)?.into_iter();
    Some(if separator == ';' {
        let has_commas = cells.clone().any(is_decimal);
        cells.map(|cell| with_point(cell, has_commas)).collect()
    } else {
        cells.map(Cow::Borrowed).collect()
    })
}

/// Splits where the separator stands outside quotes.
fn quoted(line: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    let pieces = line.split(|c: char| {
        is_quoted ^= c == '"';
        c == separator && !is_quoted
    });
    pieces.map(|cell| cell.trim().trim_matches('"')).collect()
}

/// Whether a comma stands between digits.
fn is_decimal(cell: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    cell.split_once(',')
        .is_some_and(|(before, after)| before.ends_with(is_digit) && after.starts_with(is_digit))
}

/// Semicolons separate cells where the comma is the decimal point: "1.234,5" is 1234.5, and on a line that has such a
/// comma "1.234" is 1234.
fn with_point(cell: &str, has_commas: bool) -> Cow<'_, str> {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = cell.split('.');
    let begins =
        groups.next().is_some_and(|first| (1..4).contains(&first.len()) && is_digits(first));
    let is_thousands =
        begins && cell.contains('.') && groups.all(|group| group.len() == 3 && is_digits(group));
    match (is_decimal(cell), is_thousands && has_commas) {
        (true, _) => Cow::Owned(cell.replace('.', "").replace(',', ".")),
        (false, true) => Cow::Owned(cell.replace('.', "")),
        (false, false) => Cow::Borrowed(cell),
    }
}
