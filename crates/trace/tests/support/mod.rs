//! What the tests of files share: scratch files, and Perfetto's own trace processor as the judge.

#![allow(dead_code, unreachable_pub, reason = "each test uses the part it needs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot read its files fails")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// There is one recording at a time in a process: tests that record take turns.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file in the build's scratch folder.
pub fn scratch(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// What the trace processor says about a file.
pub struct Judge {
    file: PathBuf,
}

pub type Row = Vec<Option<String>>;

impl Judge {
    /// Imports `file`; `None`, with a message, where the trace processor cannot be had.
    pub fn of(file: impl AsRef<Path>) -> Option<Self> {
        processor()?;
        Some(Self { file: file.as_ref().to_owned() })
    }

    /// The rows of one query.
    pub fn rows(&self, sql: &str) -> Vec<Row> {
        self.all(&[sql]).remove(0)
    }

    /// The rows of several queries over one import.
    pub fn all(&self, queries: &[&str]) -> Vec<Vec<Row>> {
        let processor = processor().expect("`of` has found it");
        let output = Command::new(processor).arg(&self.file).args(queries).output().unwrap();
        assert!(
            output.status.success(),
            "{}: {}",
            self.file.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        let lines = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<Vec<Row>> = lines.lines().map(json::rows).collect();
        assert_eq!(rows.len(), queries.len(), "{lines}");
        rows
    }

    /// A single number.
    pub fn number(&self, sql: &str) -> i64 {
        let rows = self.rows(sql);
        rows[0][0].as_deref().unwrap_or_else(|| panic!("null: {sql}")).parse().unwrap()
    }

    /// The importer found nothing wrong, and these are the answers to `queries`.
    pub fn clean(&self, queries: &[&str]) -> Vec<Vec<Row>> {
        let mut all = vec![ERRORS];
        all.extend(queries);
        let mut answers = self.all(&all);
        assert_eq!(answers.remove(0), Vec::<Row>::new(), "{}", self.file.display());
        answers
    }
}

pub const ERRORS: &str = "select name, value from stats where severity in ('error', 'data_loss') and value > 0 order \
    by name";

/// Spans and marks of the program itself, not those of the file about itself.
pub const OWN: &str = "category is not 'towpath.trace'";

/// Writes a capture and has it judged.
pub fn judged(capture: &towpath_trace::Capture, name: &str) -> Option<Judge> {
    let path = scratch(name);
    capture.write_perfetto(std::fs::File::create(&path).unwrap()).unwrap();
    Judge::of(path)
}

/// Cells as text, for comparing.
pub fn text(rows: &[Row]) -> Vec<Vec<&str>> {
    rows.iter()
        .map(|row| row.iter().map(|cell| cell.as_deref().unwrap_or("null")).collect())
        .collect()
}

/// The trace processor that `cargo xtask peers trace-processor` installed. Where `TOWPATH_PEERS` promises it its
/// absence is a failure.
fn processor() -> Option<&'static PathBuf> {
    static PROCESSOR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = PROCESSOR.get_or_init(|| {
        let promised = std::env::var_os("TOWPATH_PEERS").map(PathBuf::from);
        let usual = || Some(Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("peers/bin"));
        let program = promised.clone().or_else(usual)?.join("trace-processor");
        let found = program.is_file();
        assert!(found || promised.is_none(), "no {}", program.display());
        if !found {
            eprintln!(
                "SKIPPED: no trace processor; `cargo xtask peers trace-processor` installs it"
            );
        }
        found.then_some(program)
    });
    found.as_ref()
}

/// As much JSON as the query script prints: arrays of arrays of strings and nulls.
mod json {
    use super::Row;

    pub(super) fn rows(line: &str) -> Vec<Row> {
        let mut rest = line.chars().peekable();
        let mut rows = Vec::new();
        assert_eq!(rest.next(), Some('['));
        while let Some(next) = rest.next() {
            match next {
                '[' => rows.push(row(&mut rest)),
                ',' => {}
                ']' => break,
                other => panic!("{other:?} in {line}"),
            }
        }
        rows
    }

    fn row(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Row {
        let mut row = Vec::new();
        while let Some(next) = rest.next() {
            match next {
                '"' => row.push(Some(string(rest))),
                'n' => {
                    assert_eq!(rest.by_ref().take(3).collect::<String>(), "ull");
                    row.push(None);
                }
                ',' => {}
                ']' => break,
                other => panic!("{other:?}"),
            }
        }
        row
    }

    fn string(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
        let mut text = String::new();
        loop {
            match rest.next().unwrap() {
                '"' => return text,
                '\\' => text.push(match rest.next().unwrap() {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'u' => {
                        let code: String = rest.by_ref().take(4).collect();
                        char::from_u32(u32::from_str_radix(&code, 16).unwrap())
                            .unwrap_or('\u{fffd}')
                    }
                    other => other,
                }),
                other => text.push(other),
            }
        }
    }
}
