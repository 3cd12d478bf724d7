//! Everything that must hold before a change lands, in the order of what fails fastest.

use std::time::Instant;

use crate::shell::{Result, cargo, output, run as run_command};
use crate::{fuzz, instructions, peers, tidy};

/// `[--quick]` leaves out fuzzing and the peers.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let quick = match words {
        [] => false,
        [word] if word == "--quick" => true,
        _ => return Err("usage: cargo xtask test [--quick]".into()),
    };
    step("format", || run_command(cargo().args(["fmt", "--all", "--check"])))?;
    step("tidy", || tidy::run(&[]))?;
    step("clippy", || {
        run_command(
            cargo()
                .args(["clippy", "--quiet", "--workspace", "--all-targets"])
                .args(["--", "-D", "warnings"]),
        )
    })?;
    // The judge of trace files: with it the tests that need it run, and fail where they would be left out.
    if !quick {
        step("trace processor", || peers::ensure("trace-processor").map(drop))?;
    }
    step("test", || {
        let mut tests = cargo();
        tests.args(["test", "--workspace", "--no-fail-fast"]);
        if !quick {
            tests.env("TOWPATH_PEERS", peers::folder().join("bin"));
        }
        run_command(&mut tests)
    })?;
    if quick {
        return doc();
    }
    // One large crate of the fuzz package keeps a single processor busy for minutes: others use the rest meanwhile.
    let built = std::thread::scope(|scope| {
        let building = scope.spawn(|| fuzz::build().map_err(|error| error.to_string()));
        doc()?;
        step("instructions", || instructions::run(&[]))?;
        Ok::<_, Box<dyn std::error::Error>>(building.join())
    })?;
    built.map_err(|_| "building the fuzz targets panicked")??;
    step("fuzz", || fuzz::run(&["--seconds".to_owned(), "10".to_owned()]))?;
    step("peers", with_peers)
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
    peers::run(&[])?;
    let suites =
        output(cargo().args(["test", "--quiet", "--workspace", "--", "--ignored", "--list"]))?;
    let count = suites.lines().filter(|line| line.ends_with(": test")).count();
    println!("peers: {count} tests against real peers");
    run_command(
        cargo()
            .args(["test", "--workspace", "--no-fail-fast", "--", "--ignored"])
            .env("TOWPATH_PEERS", peers::folder().join("bin")),
    )
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    work().map_err(|error| format!("{name}: {error}"))?;
    println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
