//! Figures outside tables: lists, sentences, benchmark output.

use super::Row;
use crate::number;

/// Reads every figure that sentences and lists tell.
pub(super) fn read(text: &str) -> Vec<Row> {
    let mut rows = changes(text);
    rows.extend(
        text.lines()
            .enumerate()
            .filter_map(|(at, line)| estimate(line).map(|row| Row { line: at + 1, ..row })),
    );
    rows.extend(text.lines().enumerate().flat_map(|(at, line)| {
        bullets(line).into_iter().map(move |row| Row { line: at + 1, ..row })
    }));
    rows
}

/// A cell that labels its own figures, as in "平均耗时:2.4秒 总耗时:120秒" (mean, total).
pub(super) fn labelled_cell(cell: &str) -> Option<Row> {
    let after = |labels: &[&str]| {
        labels.iter().find_map(|label| cell.find(label).map(|at| &cell[at + label.len()..]))
    };
    let mean = after(&["平均耗时", "mean:", "avg:", "average:"]).and_then(number::first)?;
    let total = after(&["总耗时", "total:"]).and_then(number::first)?;
    Some(Row { mean_s: Some(mean.value), total_s: Some(total.value), ..Row::default() })
}

/// "RPS was cut by 44%" and "CPU usage increased 15%", paired by the words before the colon.
fn changes(text: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut section = 0;
    for (at, line) in text.lines().enumerate() {
        section += usize::from(line.starts_with('#'));
        let Some((case, said)) = line.split_once(':') else { continue };
        let case =
            format!("{} (section {section})", case.trim_start_matches([' ', '*', '-']).trim());
        for clause in said.split(',') {
            let Some(percent) = percent_change(clause) else { continue };
            let subject = subject(clause);
            let index = rows.iter().position(|row| row.case == case).unwrap_or_else(|| {
                rows.push(Row { line: at + 1, case: case.clone(), ..Row::default() });
                rows.len() - 1
            });
            if ["rps", "qps", "throughput"].iter().any(|word| subject.contains(word)) {
                rows[index].rate_change = Some(percent);
            } else if subject.contains("cpu") {
                rows[index].cpu_change = Some(percent);
            }
        }
    }
    rows.retain(|row| row.rate_change.is_some() || row.cpu_change.is_some());
    rows
}

/// What a clause is about: its words before the number.
fn subject(clause: &str) -> String {
    let end = clause.find(|c: char| c.is_ascii_digit()).unwrap_or(clause.len());
    clause[..end].to_lowercase()
}

fn percent_change(clause: &str) -> Option<f64> {
    let number = number::first(clause).filter(|number| number.unit.starts_with('%'))?;
    let lower = clause.to_lowercase();
    let is_less =
        ["cut", "decreas", "reduc", "lower", "drop"].iter().any(|word| lower.contains(word));
    let is_more = ["increas", "higher", "more", "grew"].iter().any(|word| lower.contains(word));
    match (is_less, is_more) {
        (true, false) => Some(-number.value),
        (false, true) => Some(number.value),
        (true, true) | (false, false) => None,
    }
}

/// `name time: [6.02 ns 6.04 ns 6.06 ns]`, as criterion prints it.
fn estimate(line: &str) -> Option<Row> {
    let (name, rest) = line.split_once("time:")?;
    let inside = rest.trim().strip_prefix('[')?.split(']').next()?;
    let words: Vec<&str> = inside.split_whitespace().collect();
    let mut values = words.chunks(2).map(|pair| match pair {
        [value, unit] => Some(value.parse::<f64>().ok()? * number::seconds_per(unit)?),
        _ => None,
    });
    let interval_s = [values.next()??, values.next()??, values.next()??];
    Some(Row {
        case: name.trim().to_owned(),
        interval_s: Some(interval_s),
        has_spread: true,
        ..Row::default()
    })
}

/// "Envoy: - Avg CPU: ~4% - Avg memory: 46MB - Battery: 0.2%/min", several systems on one line.
fn bullets(line: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut who = String::new();
    for piece in line.split(" - ") {
        let Some((label, value)) = piece.split_once(": ") else {
            who = last_name(piece).unwrap_or(who);
            continue;
        };
        let mut row = Row::default();
        match label.trim().trim_start_matches("Avg ").to_lowercase().as_str() {
            "cpu" => {
                row.cpus = number::first(value)
                    .filter(|it| it.unit.starts_with('%'))
                    .map(|it| it.value / 100.0)
            }
            "memory" => row.memory = number::bytes(value, ""),
            "battery" => {
                row.battery = number::first(value)
                    .filter(|it| it.unit.starts_with("%/min"))
                    .map(|it| it.value)
            }
            _ => {}
        }
        if row != Row::default() {
            let same = rows
                .last_mut()
                .filter(|last| last.who == who && !(row.cpus.is_some() && last.cpus.is_some()));
            match same {
                Some(last) => {
                    last.cpus = last.cpus.or(row.cpus);
                    last.memory = last.memory.or(row.memory);
                    last.battery = last.battery.or(row.battery);
                }
                None => rows.push(Row { who: who.clone(), case: who.clone(), ..row }),
            }
        }
        who = last_name(value).unwrap_or(who);
    }
    rows
}

/// The word before a closing colon: "… SHA Envoy:" gives "Envoy".
fn last_name(text: &str) -> Option<String> {
    let before = text.trim().strip_suffix(':')?;
    before.split_whitespace().next_back().map(str::to_owned)
}
