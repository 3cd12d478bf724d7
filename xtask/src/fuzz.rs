//! Every fuzz target for a few seconds, on stable: the flags make rustc instrument the code, libFuzzer does the rest.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::shell::{Result, Share, root, run as run_command};

/// What `cargo fuzz` would pass for the code that is searched, without the address sanitizer, which only nightly has.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Clink-dead-code",
];

/// `[--seconds N] [TARGET…]`
pub(crate) fn run(words: &[String]) -> Result<()> {
    let mut seconds: u64 = 10;
    let mut wanted = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--seconds" {
            seconds = words.next().ok_or("--seconds wants a number")?.parse()?;
        } else {
            wanted.push(word.as_str());
        }
    }
    build(Share::Fair)?;
    let folder = root().join("fuzz");
    let targets = targets(&folder)?;
    for name in &wanted {
        if !targets.iter().any(|target| target == name) {
            return Err(format!("no fuzz target '{name}'; there are {}", targets.join(", ")).into());
        }
    }
    let chosen: Vec<&String> = targets
        .iter()
        .filter(|target| wanted.is_empty() || wanted.contains(&target.as_str()))
        .collect();
    let programs = folder.join("target").join(platform()).join("release");
    for pair in chosen.chunks(AT_ONCE) {
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let search = |target| search(&folder, &programs, target, seconds);
            let running: Vec<_> =
                pair.iter().map(|target| scope.spawn(move || search(target))).collect();
            running.into_iter().map(|running| running.join()).collect()
        });
        for (target, outcome) in pair.iter().zip(outcomes) {
            let said = outcome.map_err(|_| format!("{target}: the search panicked"))??;
            println!("fuzz: {target} for {seconds} s: {said}");
        }
    }
    Ok(())
}

/// Builds every target; nothing is left to do when it was done before.
pub(crate) fn build(share: Share) -> Result<()> {
    let folder = root().join("fuzz");
    if !folder.join("Cargo.toml").is_file() {
        return Err("there is no fuzz package".into());
    }
    run_command(
        share
            .of_cargo()
            .args(["build", "--quiet", "--release", "--target", &platform()])
            .env("RUSTFLAGS", "--cfg fuzzing")
            .env("RUSTC_WRAPPER", std::env::current_exe()?)
            .env(WRAPS_RUSTC, "1")
            .current_dir(&folder),
    )
}

/// Set for the copy of this program that cargo runs in the place of rustc.
pub(crate) const WRAPS_RUSTC: &str = "TOWPATH_FUZZ_WRAPS_RUSTC";

/// Runs rustc as cargo wants it, with [`FLAGS`] for our own crates. Instrumented too, the judge of trace files and
/// the schema of Envoy's configuration take minutes, and lead the search away from the code in question.
pub(crate) fn wrap_rustc(words: &[String]) -> std::io::Error {
    let Some((rustc, words)) = words.split_first() else {
        return std::io::Error::other("cargo named no rustc");
    };
    let is_ours = words.windows(2).any(|pair| {
        pair[0] == "--crate-name" && (pair[1].starts_with("towpath") || is_target(&pair[1]))
    });
    // Build scripts and macros, which have no libFuzzer to link with, are built without `--target`.
    let is_searched = is_ours && words.iter().any(|word| word == "--target");
    let flags: &[&str] = if is_searched { FLAGS } else { &[] };
    Command::new(rustc).args(words).args(flags).exec()
}

fn is_target(name: &str) -> bool {
    root().join("fuzz/fuzz_targets").join(name).with_extension("rs").is_file()
}

pub(crate) fn platform() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Targets that run at the same time.
const AT_ONCE: usize = 2;

/// Lets one target search, and answers its figures.
fn search(
    folder: &Path,
    programs: &Path,
    target: &str,
    seconds: u64,
) -> std::result::Result<String, String> {
    let corpus = folder.join("corpus").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let mut command = Command::new(programs.join(target));
    command
        .args([&format!("-max_total_time={seconds}"), "-max_len=4096", "-timeout=5"])
        .args(["-verbosity=0", "-print_final_stats=1"])
        .arg(corpus);
    let seeds = folder.join("seeds").join(target);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    closing_lines(command.current_dir(folder))
        .map_err(|error| format!("{target} found something; its input is in fuzz/crash-…: {error}"))
}

/// Runs a target and returns libFuzzer's own figures; all that it said when it failed.
fn closing_lines(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}\n{said}", output.status).into());
    }
    let figures = said.lines().filter_map(|line| line.strip_prefix("stat::"));
    let figures: Vec<String> =
        figures.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    Ok(figures.join(", "))
}

/// The package's programs, in the order of their names.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets"))? {
        let path = entry?.path();
        if let (Some("rs"), Some(stem)) = (
            path.extension().and_then(|it| it.to_str()),
            path.file_stem().and_then(|it| it.to_str()),
        ) {
            targets.push(stem.to_owned());
        }
    }
    targets.sort();
    Ok(targets)
}
