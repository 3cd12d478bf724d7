//! libatrace_rust's benchmarks: what it costs a program to emit an event, with tracing off and on.
//!
//! The cases are those of `towpath-trace`'s own benchmark, and run in this process: in turns, in windows of about a
//! millisecond on one processor. Other libraries have a program of their own (`bench-peers`), because not every user
//! should have to build them; what it prints stands beside ours when it is there.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::{Replay, Row};
use crate::report::Table;

#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the benchmark of the tracing crate, where what cannot be set up ends the run"
)]
mod cases;
mod clock;
#[expect(dead_code, reason = "shared with the benchmark of the tracing crate")]
mod published;
mod windows;

use windows::Run;

/// Runs every case; `progress` is told what is being done.
///
/// # Errors
/// When the program of the other libraries is there and fails.
pub fn run(is_quick: bool, progress: &mut dyn FnMut(&str)) -> io::Result<Replay> {
    let mut replay = Replay::default();
    replay.notes.push(windows::machine());
    windows::pin(0);
    let marker = cases::Marker::of_our_own();
    if let Err(why) = &marker {
        replay.notes.push(format!("cases that write to trace_marker are left out: {why}"));
    }
    cases::install();
    let run = Run { windows: if is_quick { 31 } else { 151 } };
    progress("rulers");
    for figure in run.of(cases::rulers(marker.as_ref().ok())) {
        replay.rows.push(row(RULERS, figure.name, "this machine", figure.median, spread(&figure)));
    }
    progress("our paths");
    for figure in run.of(cases::original(marker.as_ref().ok())) {
        match figure.name.split_once(" · ") {
            Some((name, "ruler")) => {
                let name = format!("{name}, in turns with the cases");
                replay.rows.push(row(
                    RULERS,
                    &name,
                    "this machine",
                    figure.median,
                    spread(&figure),
                ));
            }
            Some((name, path)) => {
                let who = format!("towpath {path}");
                replay.rows.push(row(TABLE, name, &who, figure.median, spread(&figure)));
            }
            None => {}
        }
    }
    drop(marker);
    progress("other libraries");
    match others() {
        Some(program) => replay.rows.extend(ask(&program, is_quick)?),
        None => replay.notes.push(format!(
            "other libraries are left out: `cargo build --release --manifest-path bench-peers/Cargo.toml` makes \
             {OTHERS}"
        )),
    }
    Ok(replay)
}

/// The original's cases by name: what it published, our paths, and those of the other libraries that were there.
pub fn table(replay: &Replay) -> Table {
    let mut whos: Vec<&str> = Vec::new();
    let figures = || replay.rows.iter().filter(|row| row.table == TABLE);
    for row in figures() {
        if !whos.contains(&row.who.as_str()) {
            whos.push(&row.who);
        }
    }
    let mut header = vec!["ns", "published Rust", "published C++"];
    header.extend(&whos);
    let mut table = Table::new(&header);
    for case in published::CASES {
        let cell = |value: Option<f64>| value.map_or_else(String::new, |ns| format!("{ns:.2}"));
        let mut cells = vec![case.name.to_owned(), cell(Some(case.rust)), cell(case.cpp)];
        cells.extend(whos.iter().map(|who| {
            let found = figures().find(|row| row.case == case.name && row.who == *who);
            cell(found.map(|row| row.value))
        }));
        table.row(cells);
    }
    table
}

pub(super) const TABLE: &str = "libatrace_rust";
pub(crate) const RULERS: &str = "rulers";

fn row(table: &str, case: &str, who: &str, ns: f64, quartiles: Option<[f64; 2]>) -> Row {
    let published = published::CASES.iter().find(|published| published.name == case);
    Row {
        table: table.to_owned(),
        case: case.to_owned(),
        who: who.to_owned(),
        metric: "time".to_owned(),
        value: ns,
        unit: "ns".to_owned(),
        low: quartiles.map(|[low, _]| low),
        high: quartiles.map(|[_, high]| high),
        published: published.filter(|_| table == TABLE).map(|published| published.rust),
        published_of: None,
    }
}

/// The quartiles of a figure's windows.
fn spread(figure: &windows::Figure) -> Option<[f64; 2]> {
    Some([figure.low, figure.high])
}

/// Where the program of the other libraries is, if it was built.
fn others() -> Option<PathBuf> {
    let told = std::env::var_os("TOWPATH_BENCH_PEERS").map(PathBuf::from);
    told.or_else(|| Some(OTHERS.into())).filter(|program| program.is_file())
}

const OTHERS: &str = "bench-peers/target/release/towpath-bench-peers";

#[derive(Deserialize)]
struct Said {
    rows: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    case: String,
    who: String,
    ns: f64,
    #[serde(default)]
    quartiles: Option<[f64; 2]>,
}

fn ask(program: &Path, is_quick: bool) -> io::Result<Vec<Row>> {
    let mut command = Command::new(program);
    command.arg("--json").args(is_quick.then_some("--quick"));
    let output = command.output()?;
    let failed =
        |why: &dyn std::fmt::Display| io::Error::other(format!("{}: {why}", program.display()));
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    let said: Said = serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))?;
    let rows = said.rows.into_iter();
    Ok(rows
        .map(|figure| row(TABLE, &figure.case, &figure.who, figure.ns, figure.quartiles))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_the_original_has_a_line_with_both_published_figures() {
        let replay = Replay {
            rows: vec![
                row(TABLE, "tracing_on_end", "towpath ring", 12.0, None),
                row(TABLE, "tracing_on_end", "fastrace", 35.5, Some([35.0, 36.0])),
            ],
            notes: Vec::new(),
            made: None,
        };
        assert_eq!(replay.rows[0].published, Some(1120.8));
        let text = table(&replay).to_markdown();
        assert_eq!(text.lines().count(), 2 + 18, "{text}");
        let line = text.lines().find(|line| line.contains("tracing_on_end")).unwrap_or_default();
        for cell in ["1120.80", "1076.00", "12.00", "35.50"] {
            assert!(line.contains(cell), "{line} lacks {cell}");
        }
    }
}
