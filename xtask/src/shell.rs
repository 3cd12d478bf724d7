//! Running other programs, and saying clearly which one failed.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Errors here are read by people, not matched.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Where build results go.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs to the end, with the terminal as its own.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} failed: {status}", words(command)).into())
    }
}

/// Runs tests to the end. What those that fail say may lie far above: it is printed once more at the end.
pub(crate) fn run_tests(command: &mut Command) -> Result<()> {
    let start = command.stdout(Stdio::piped()).spawn();
    let mut child = start.map_err(|error| cannot_start(command, &error))?;
    let mut failures = Failures::default();
    for line in
        child.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n'))
    {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        failures.hear(line);
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    println!("\n== what the tests that failed said");
    failures.said.iter().for_each(|line| println!("{line}"));
    Err(format!("{} failed: {status}", words(command)).into())
}

/// What tests that fail say, as libtest prints it.
#[derive(Default)]
struct Failures {
    said: Vec<String>,
    /// How many lines more are kept of the test whose lines come.
    room: usize,
}

impl Failures {
    fn hear(&mut self, line: String) {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.room = MOST_LINES_OF_A_TEST;
        } else if line == "failures:" {
            self.room = 0;
        }
        if let Some(left) = self.room.checked_sub(1) {
            self.room = left;
            self.said.push(line);
        }
    }
}

/// Enough for the cases of a suite, those that differ, and the beginning of a backtrace.
const MOST_LINES_OF_A_TEST: usize = 200;

/// Runs to the end and returns what it printed; what it complained of becomes the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output().map_err(|error| cannot_start(command, &error))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let end: Vec<&str> = complaint.lines().rev().take(8).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        return Err(
            format!("{} failed: {}\n{}", words(command), output.status, end.join("\n")).into()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Ends a program in good order: it is told to, and has this long.
pub(crate) fn terminate(child: &mut Child, limit: Duration) -> Result<()> {
    output(Command::new("kill").args(["-TERM", &child.id().to_string()]))?;
    let end = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() > end {
            return Err("a program does not end when it is told to".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The cargo that runs us, in the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.current_dir(root());
    command
}

/// How much of the processors a program may have.
#[derive(Clone, Copy)]
pub(crate) enum Share {
    /// As much as others.
    Fair,
    /// What others leave.
    Idle,
}

impl Share {
    /// The program with this share, in the workspace.
    pub(crate) fn of(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match self {
            Self::Fair => Command::new(program),
            Self::Idle => {
                let mut nice = Command::new("nice");
                nice.args(["-n", "19"]).arg(program);
                nice
            }
        };
        command.current_dir(root());
        command
    }

    /// Cargo with this share.
    pub(crate) fn of_cargo(self) -> Command {
        self.of(cargo().get_program())
    }
}

/// Whether the program is there.
pub(crate) fn has(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    })
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}", words(command))
}

fn words(command: &Command) -> String {
    let mut words = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        words.push(' ');
        words.push_str(&argument.to_string_lossy());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{Failures, MOST_LINES_OF_A_TEST};

    #[test]
    fn what_failed_tests_say_is_kept_up_to_a_limit() {
        let mut failures = Failures::default();
        let long = "x\n".repeat(300);
        let first =
            "running 3 tests\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nwhy a\n";
        let last = "failures:\n    a\n    b\n\ntest result: FAILED.";
        let text = format!("{first}\n---- b stdout ----\n{long}\n{last}");
        text.lines().for_each(|line| failures.hear(line.to_owned()));
        let (a, b) = failures.said.split_at(3);
        assert_eq!(a, ["---- a stdout ----", "why a", ""]);
        assert_eq!(b.len(), MOST_LINES_OF_A_TEST);
        assert!(b[0].starts_with("---- b") && b[1..].iter().all(|line| line == "x"));
    }
}
