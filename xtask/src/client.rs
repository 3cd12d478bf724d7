//! The client library's report: every figure that it is to reach, from one command, losing cases included.
//!
//! Mars's benchmark and Envoy Mobile's are replayed in full (an hour and a half, mostly of waiting on bad links) and
//! the library's cost to an app is measured; `--mars FILE` and `--mobile FILE` take what `towpath lab replay … --json`
//! wrote before. The report lies in `target/client/report.md` and says of each goal what was wanted, what was reached,
//! and by which cases it was missed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::shell::{Result, cargo, has, run as run_command, target};
use crate::{peers, sizes};

struct Figures {
    rows: Vec<Row>,
}

/// One figure of a replay; the others of its fields are for its own page.
#[derive(Clone)]
struct Row {
    table: String,
    case: String,
    who: String,
    metric: String,
    value: f64,
}

impl Row {
    /// Its table and case, in words.
    fn cell(&self) -> String {
        format!("{}, {}", self.table.trim_start_matches(DIGITS), self.case)
    }
}

/// One line of the report.
struct Line {
    what: String,
    wanted: String,
    reached: String,
    is_met: bool,
}

pub(crate) fn run(words: &[String]) -> Result<()> {
    let (mut mars, mut mobile, mut is_quick) = (None, None, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => is_quick = true,
            "--mars" => mars = Some(PathBuf::from(words.next().ok_or("--mars wants a file")?)),
            "--mobile" => {
                mobile = Some(PathBuf::from(words.next().ok_or("--mobile wants a file")?))
            }
            other => return Err(format!("unknown: {other}").into()),
        }
    }
    let mobile = mobile.map_or_else(|| replay("envoy-mobile", is_quick), Ok)?;
    let sizes = sizes::measure()?;
    let mars = mars.map_or_else(|| replay("mars", is_quick), Ok)?;
    let figures = Figures { rows: [read(&mars)?, read(&mobile)?].concat() };
    let mut lines = figures.lines();
    lines.extend(sizes.into_iter().filter_map(|figure| {
        let goal = figure.goal?;
        Some(Line {
            what: figure.what,
            wanted: format!("at most {goal} {}", figure.unit),
            reached: format!("{} {}", figure.value, figure.unit),
            is_met: figure.value <= goal,
        })
    }));
    let report = write(&lines, &figures.losses());
    let path = folder()?.join("report.md");
    fs::write(&path, &report)?;
    println!("{report}\nwritten to {}", path.display());
    Ok(())
}

/// Runs a replay; answers where its figures are.
fn replay(recipe: &str, is_quick: bool) -> Result<PathBuf> {
    // A goal beside a peer that is not installed would be left out.
    peers::ensure("okhttp")?;
    let class_path = peers::folder().join("okhttp").join("*");
    if let Some(missing) = ["curl", "javac"].iter().find(|program| !has(program)) {
        return Err(format!("{missing} is needed for what the library is measured beside").into());
    }
    run_command(cargo().args(["build", "--release", "--quiet", "--package", "towpath-cli"]))?;
    let json = folder()?.join(format!("{recipe}.json"));
    let mut command = Command::new(target().join("release/towpath"));
    command.args(["lab", "replay", recipe, "--json"]).arg(&json);
    command.arg("--report").arg(json.with_extension("html")).env("TOWPATH_OKHTTP", class_path);
    if is_quick {
        command.arg("--quick");
    }
    run_command(&mut command)?;
    Ok(json)
}

/// The figures that a replay wrote.
fn read(path: &Path) -> Result<Vec<Row>> {
    let json: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let rows = json["rows"].as_array().ok_or_else(|| format!("{}: no rows", path.display()))?;
    let row = |row: &Value| {
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        Some(Row {
            table: text("table")?,
            case: text("case")?,
            who: text("who")?,
            metric: text("metric")?,
            value: row["value"].as_f64()?,
        })
    };
    Ok(rows.iter().filter_map(row).collect())
}

fn folder() -> Result<PathBuf> {
    let folder = target().join("client");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

impl Figures {
    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for state in ["connecting", "waiting", "idle", "in a response"] {
            for (metric, name, goal) in [
                ("after_recovery_p90", "90th percentile", 1.0),
                ("after_recovery_worst", "worst", 1.5),
            ] {
                let is_it = |row: &&Row| {
                    row.case.starts_with(state) && row.who == OURS && row.metric == metric
                };
                lines.extend(self.rows.iter().find(is_it).map(|row| Line {
                    what: format!("outages, {}: {name} after the return", row.case),
                    wanted: format!("at most {goal} s"),
                    reached: format!("{:.2} s", row.value),
                    is_met: row.value <= goal,
                }));
            }
        }
        for percent in [10, 20, 30] {
            let case = format!("{percent} % loss");
            lines.extend(self.ratio(&case, NEW_CONNECTIONS, "okhttp", 0.5));
            lines.extend(self.ratio(&case, ONE_ENGINE, "okhttp, one client", 0.8));
            for who in [NEW_CONNECTIONS, ONE_ENGINE] {
                lines.extend(self.one(&case, who, "attempts_per_success").map(|tries| Line {
                    what: format!("{case}: tries for each success, {who}"),
                    wanted: "at most 1.1".to_owned(),
                    reached: format!("{tries:.3}"),
                    is_met: tries <= 1.1,
                }));
            }
        }
        for who in [OURS, NEW_CONNECTIONS] {
            let sizes = |row: &&Row| row.who == who && row.metric == "time_over_optimum";
            lines.extend(self.rows.iter().filter(sizes).map(|row| Line {
                what: format!("{}: the link's arithmetic, {who}", row.cell()),
                wanted: "at most 1.03 times".to_owned(),
                reached: format!("{:.3} times", row.value),
                is_met: row.value <= 1.03,
            }));
        }
        lines.extend(self.rows.iter().filter_map(|row| self.beside_controls(row)));
        let cpu = |row: &&Row| row.metric == "cpu_per_request" && row.who == OURS;
        let curls = |row: &&Row| row.metric == "cpu_per_request" && row.who == "curl";
        if let Some((ours, curls)) = self.rows.iter().find(cpu).zip(self.rows.iter().find(curls)) {
            let ratio = ours.value / curls.value;
            lines.push(Line {
                what: "one request every 200 ms: CPU time beside curl's".to_owned(),
                wanted: "at most 1".to_owned(),
                reached: format!("{ratio:.2} times ({:.0} and {:.0} µs)", ours.value, curls.value),
                is_met: ratio <= 1.0,
            });
        }
        lines
    }

    /// A size's time beside the best control's. A process for each request, as [`OURS`] is, is slower by its start.
    fn beside_controls(&self, ours: &Row) -> Option<Line> {
        if ours.metric != "time_over_optimum" || ours.who != NEW_CONNECTIONS {
            return None;
        }
        let is_control = |row: &&Row| {
            (&row.table, &row.case, &row.metric) == (&ours.table, &ours.case, &ours.metric)
                && !row.who.starts_with(OURS)
        };
        let best =
            self.rows.iter().filter(is_control).min_by(|a, b| a.value.total_cmp(&b.value))?;
        let ratio = ours.value / best.value;
        Some(Line {
            what: format!("{}: beside the best control ({})", ours.cell(), best.who),
            wanted: "at most 1.00 times".to_owned(),
            reached: format!("{ratio:.3} times"),
            is_met: ratio < 1.005,
        })
    }

    /// The time for each success beside a peer's.
    fn ratio(&self, case: &str, who: &str, whose: &str, goal: f64) -> Option<Line> {
        let ours = self.one(case, who, "time_per_success")?;
        let theirs = self.one(case, whose, "time_per_success")?;
        Some(Line {
            what: format!("{case}: time for each success, {who} beside {whose}"),
            wanted: format!("at most {goal} times"),
            reached: format!("{:.2} times ({ours:.3} and {theirs:.3} s)", ours / theirs),
            is_met: ours <= goal * theirs,
        })
    }

    fn one(&self, case: &str, who: &str, metric: &str) -> Option<f64> {
        let is_it = |row: &&Row| row.case == case && row.who == who && row.metric == metric;
        self.rows.iter().find(is_it).map(|row| row.value)
    }

    /// Every case in which a control was faster than Towpath.
    fn losses(&self) -> Vec<String> {
        let decides = |row: &&Row| {
            ["after_recovery", "time_per_success", "cpu_per_request"].contains(&row.metric.as_str())
        };
        let ours = self.rows.iter().filter(decides).filter(|row| row.who == OURS);
        let lost = ours.flat_map(|ours| {
            let faster = move |row: &&Row| {
                let is_same =
                    (&row.table, &row.case, &row.metric) == (&ours.table, &ours.case, &ours.metric);
                is_same && !row.who.starts_with(OURS) && row.value < ours.value
            };
            self.rows.iter().filter(faster).map(move |row| {
                format!("{}: {} {:.3}, Towpath {:.3}", row.cell(), row.who, row.value, ours.value)
            })
        });
        // Who keeps connections is not to be compared with who may not.
        lost.filter(|line| !line.contains("one client")).collect()
    }
}

fn write(lines: &[Line], losses: &[String]) -> String {
    let mut text = String::from("| goal | wanted | reached | |\n|---|---|---|---|\n");
    for line in lines {
        let verdict = if line.is_met { "met" } else { "MISSED" };
        let _ =
            writeln!(text, "| {} | {} | {} | {verdict} |", line.what, line.wanted, line.reached);
    }
    let met = lines.iter().filter(|line| line.is_met).count();
    let _ = writeln!(text, "\n{met} of {} goals met.\n", lines.len());
    let _ = writeln!(text, "{} cases in which a peer was faster:\n", losses.len());
    losses.iter().for_each(|loss| {
        let _ = writeln!(text, "- {loss}");
    });
    text
}

const OURS: &str = "towpath";
const ONE_ENGINE: &str = "towpath, one engine";
/// As Mars was measured: one process, a connection for each request.
const NEW_CONNECTIONS: &str = "towpath, one engine, new connections";
/// What a table's title begins with.
const DIGITS: [char; 7] = ['1', '2', '3', '4', '5', '.', ' '];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, who: &str, metric: &str, value: f64) -> Row {
        let (table, case) = ("3. Request sizes".to_owned(), case.to_owned());
        Row { table, case, who: who.to_owned(), metric: metric.to_owned(), value }
    }

    #[test]
    fn what_is_missed_and_lost_is_said() {
        let figures = Figures {
            rows: vec![
                row("30 % loss", NEW_CONNECTIONS, "time_per_success", 0.6),
                row("30 % loss", "okhttp", "time_per_success", 1.0),
                row("3G, 64 KiB", "towpath", "time_over_optimum", 1.02),
                row("3G, 64 KiB", "towpath", "time_per_success", 2.1),
                row("3G, 64 KiB", "curl", "time_per_success", 2.0),
                row("3G, 64 KiB", NEW_CONNECTIONS, "time_over_optimum", 1.01),
                row("3G, 64 KiB", "curl", "time_over_optimum", 1.0),
            ],
        };
        let text = write(&figures.lines(), &figures.losses());
        assert!(
            text.contains("| at most 0.5 times | 0.60 times (0.600 and 1.000 s) | MISSED |"),
            "{text}"
        );
        assert!(text.contains("Request sizes, 3G, 64 KiB: the link's arithmetic"), "{text}");
        assert!(text.contains("(curl) | at most 1.00 times | 1.010 times | MISSED |"), "{text}");
        assert!(text.contains("2 of 4 goals met."), "{text}");
        assert!(text.contains("- Request sizes, 3G, 64 KiB: curl 2.000, Towpath 2.100"), "{text}");
    }
}
