//! What an operation costs in instructions, counted by callgrind: the same on a busy machine as on a quiet one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers;
use crate::shell::{Result, Share, output, root, run as run_command, target};

/// By how much a count may grow before it is held against a change: the compiler moves it by less.
const SLACK: f64 = 0.03;
/// Two runs whose difference leaves out what starting costs.
const RUNS: (u64, u64) = (200, 1200);

/// `[--bless]` writes the counts down, as those that later ones are held against.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let bless = match words {
        [] => false,
        [word] if word == "--bless" => true,
        _ => return Err("usage: cargo xtask instructions [--bless]".into()),
    };
    check(bless, Share::Fair)
}

/// Counts, prints the table in one piece, and writes the counts down or holds them against the recorded ones.
pub(crate) fn check(bless: bool, share: Share) -> Result<()> {
    let valgrind = peers::ensure("valgrind")?;
    run_command(
        share
            .of_cargo()
            .args(["build", "--quiet", "--release", "--package", "towpath-engine"])
            .args(["--example", "instructions"]),
    )?;
    let program = target().join("release/examples/instructions");
    let record = root().join("conformance/instructions.txt");
    let before = read(&fs::read_to_string(&record).unwrap_or_default())?;
    let mut counts = BTreeMap::new();
    let mut table = format!("{:<28}{:>12}{:>12}{:>9}\n", "operation", "recorded", "now", "change");
    for case in output(&mut Command::new(&program))?.lines() {
        let count = count(&|| share.of(&valgrind), &program, case)?;
        let _ = writeln!(table, "{}", line(case, before.get(case).copied(), count));
        counts.insert(case.to_owned(), count);
    }
    print!("{table}");
    if bless {
        return Ok(fs::write(&record, written(&counts))?);
    }
    let worse = worse(&before, &counts);
    if worse.is_empty() {
        return Ok(());
    }
    let why = "costs more than is recorded, or is not recorded; if it must, say why in the commit and run `cargo \
               xtask instructions --bless`";
    Err(format!("{}: {why}", worse.join(", ")).into())
}

fn line(case: &str, before: Option<u64>, now: u64) -> String {
    let (recorded, change) = before.map_or_else(
        || ("-".to_owned(), "-".to_owned()),
        |before| {
            (before.to_string(), format!("{:+.1} %", (now as f64 / before as f64 - 1.0) * 100.0))
        },
    );
    format!("{case:<28}{recorded:>12}{now:>12}{change:>9}")
}

/// Those that cost more than what is recorded allows, and those that nothing is recorded of.
fn worse(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> Vec<String> {
    let is_worse = |case: &String, count: u64| {
        before.get(case).is_none_or(|&before| count as f64 > before as f64 * (1.0 + SLACK))
    };
    now.iter()
        .filter(|&(case, &count)| is_worse(case, count))
        .map(|(case, _)| case.clone())
        .collect()
}

fn count(valgrind: &dyn Fn() -> Command, program: &Path, case: &str) -> Result<u64> {
    let (few, many) = RUNS;
    let (first, second) =
        (total(valgrind, program, case, few)?, total(valgrind, program, case, many)?);
    Ok(second.saturating_sub(first) / (many - few))
}

/// The instructions of a whole run.
fn total(valgrind: &dyn Fn() -> Command, program: &Path, case: &str, times: u64) -> Result<u64> {
    let file: PathBuf = target().join(format!("callgrind.{}", std::process::id()));
    output(
        valgrind()
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(program)
            .args([case, &times.to_string()]),
    )?;
    let report = fs::read_to_string(&file)?;
    fs::remove_file(&file)?;
    let summary = report.lines().find_map(|line| line.strip_prefix("summary: "));
    let summary = summary.ok_or("callgrind's report has no summary")?;
    Ok(summary.trim().parse()?)
}

/// `CASE COUNT` in each line, `#` before what is for readers.
fn read(text: &str) -> Result<BTreeMap<String, u64>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (case, count) =
                line.rsplit_once(' ').ok_or_else(|| format!("'{line}' has no count"))?;
            Ok((case.trim().to_owned(), count.parse()?))
        })
        .collect()
}

fn written(counts: &BTreeMap<String, u64>) -> String {
    let mut text =
        "# Instructions for one operation, as `cargo xtask instructions --bless` counted them.\n"
            .to_owned();
    for (case, count) in counts {
        let _ = writeln!(text, "{case} {count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let counts = BTreeMap::from([("exchange".to_owned(), 5000), ("head".to_owned(), 700)]);
        assert_eq!(read(&written(&counts)).unwrap(), counts);
        assert!(read("exchange").is_err() && read("exchange many").is_err());
    }

    #[test]
    fn more_than_the_slack_is_worse() {
        let before = BTreeMap::from([("a".to_owned(), 1000), ("b".to_owned(), 1000)]);
        let now = |a, b, c| {
            BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b), ("c".to_owned(), c)])
        };
        assert_eq!(worse(&before, &now(1030, 900, 1)), ["c"]);
        assert_eq!(worse(&before, &now(1031, 2000, 1)), ["a", "b", "c"]);
    }
}
