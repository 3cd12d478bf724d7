//! Everything that must hold before a change lands, in the order of what fails fastest.

use std::process::Command;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::shell::{Result, Share, cargo, output, run as run_command, run_tests};
use crate::{bindings, fuzz, instructions, marks, package, peers, sanitize, tidy, toolchains};

/// `--quick` leaves out fuzzing and the peers; `--long` tries more seeds, reloads and inputs than a change waits for.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (quick, long) = match words[..] {
        [] => (false, false),
        ["--quick"] => (true, false),
        ["--long"] => (false, true),
        _ => return Err("usage: cargo xtask test [--quick | --long]".into()),
    };
    step("format", || run_command(cargo().args(["fmt", "--all", "--check"])))?;
    step("tidy", || tidy::run(&[]))?;
    step("package", || package::run(&[]))?;
    if quick {
        clippy()?;
        build()?;
        doc()?;
        return tests(&mut cargo());
    }
    std::thread::scope(|scope| {
        // The peers come over the network while the processors are busy.
        let fetched =
            Aside::start(scope, "fetch peers", || peers::run(&[]).and_then(|()| bindings::fetch()));
        clippy()?;
        // A build's last links and nearly all tests leave processors idle.
        let aside = Aside::start(scope, "toolchains, fuzz targets, instructions", meanwhile);
        build()?;
        doc()?;
        fetched.finish()?;
        tests(cargo().env("TOWPATH_PEERS", peers::folder().join("bin")))?;
        if long {
            step("long", more_seeds)?;
            step("portable", portable)?;
        }
        step("peers", with_peers)?;
        step("bindings", || bindings::run(&[]))?;
        step("sanitize", || sanitize::run(&[]))?;
        aside.finish()
    })?;
    let seconds = if long { "300" } else { "10" };
    step("fuzz", || fuzz::run(&["--seconds".to_owned(), seconds.to_owned()]))
}

/// What is drawn at random, drawn more often; and a thousand changes of configuration with real sockets.
fn more_seeds() -> Result<()> {
    let mut simulations = cargo();
    simulations.env("TOWPATH_SIM_SEEDS", "4000");
    let crates = ["-p", "towpath-engine", "-p", "towpath-proto", "-p", "towpath"];
    run_command(simulations.arg("test").args(crates).args(["--lib", "--tests", "--no-fail-fast"]))?;
    let mut reloads = cargo();
    reloads.env("TOWPATH_RELOADS", "1000").args([
        "test",
        "-p",
        "towpath-proxy",
        "--test",
        "faults",
    ]);
    run_command(reloads.args(["reload", "--no-fail-fast"]))?;
    marks::run(&["10_000_000".to_owned()])
}

fn clippy() -> Result<()> {
    step("clippy", || {
        run_command(
            cargo()
                .args(["clippy", "--quiet", "--workspace", "--all-targets"])
                .args(["--", "-D", "warnings"]),
        )
    })
}

fn build() -> Result<()> {
    step("build", || run_command(cargo().args(WORKSPACE).args(["--quiet", "--no-run"])))
}

fn tests(cargo: &mut Command) -> Result<()> {
    step("test", || run_tests(cargo.args(WORKSPACE).arg("--no-fail-fast")))
}

const WORKSPACE: [&str; 2] = ["test", "--workspace"];

/// What has target folders of its own, and whose outcome does not depend on how long it takes.
fn meanwhile() -> Result<()> {
    toolchains::check(Share::Idle)?;
    fuzz::build(Share::Idle)?;
    instructions::check(false, Share::Idle)
}

/// Work on a thread of its own.
struct Aside<'scope> {
    name: &'static str,
    work: ScopedJoinHandle<'scope, std::result::Result<Duration, String>>,
}

impl<'scope> Aside<'scope> {
    fn start(
        scope: &'scope Scope<'scope, '_>,
        name: &'static str,
        work: fn() -> Result<()>,
    ) -> Self {
        println!("== {name}: started beside the next steps");
        let timed = move || {
            let start = Instant::now();
            work().map(|()| start.elapsed()).map_err(|error| {
                // The steps beside it take half an hour.
                println!("== {name}: failed: {error}");
                format!("{name}: {error}")
            })
        };
        Self { name, work: scope.spawn(timed) }
    }

    /// Waits for it; it must have succeeded.
    fn finish(self) -> Result<()> {
        let start = Instant::now();
        let took = self.work.join().map_err(|_| format!("{}: panicked", self.name))??;
        let (took, waited) = (took.as_secs_f64(), start.elapsed().as_secs_f64());
        println!("== {}: passed in {took:.1} s, {waited:.1} s of them alone", self.name);
        Ok(())
    }
}

/// The client library as other systems have it: without what Linux alone has.
fn portable() -> Result<()> {
    let words = ["-p", "towpath", "--features", "portable"];
    run_tests(cargo().arg("test").args(words).args(["--lib", "--tests", "--no-fail-fast"]))
}

fn doc() -> Result<()> {
    step("doc", || {
        run_command(
            cargo()
                .args(["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })
}

/// The tests that need real peers are `#[ignore]`d, so that `cargo test` runs anywhere; here they must run.
fn with_peers() -> Result<()> {
    // Examples in the documentation need no peers, and each of them is compiled anew.
    let suites = ["test", "--workspace", "--lib", "--bins", "--tests"];
    let listed = output(cargo().args(suites).args(["--quiet", "--", "--ignored", "--list"]))?;
    let count = listed.lines().filter(|line| line.ends_with(": test")).count();
    println!("peers: {count} tests against real peers");
    run_tests(
        cargo()
            .args(suites)
            .args(["--no-fail-fast", "--", "--ignored"])
            .env("TOWPATH_PEERS", peers::folder().join("bin")),
    )
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    work().map_err(|error| {
        // Others may go on for a while before the error comes out.
        println!("== {name}: failed");
        format!("{name}: {error}")
    })?;
    println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
