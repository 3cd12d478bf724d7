//! Everything that must hold before a change lands, in the order of what fails fastest.

use std::time::Instant;

use crate::shell::{Result, cargo, output, run as run_command};
use crate::{fuzz, instructions, peers, sanitize, tidy};

/// `[--quick]` leaves out fuzzing and the peers.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let quick = match words {
        [] => false,
        [word] if word == "--quick" => true,
        _ => return Err("usage: cargo xtask test [--quick]".into()),
    };
    step("format", || run_command(cargo().args(["fmt", "--all", "--check"])))?;
    step("tidy", || tidy::run(&[]))?;
    // The peers come over the network while the processors are busy.
    beside(if quick { || Ok(()) } else { || peers::run(&[]) }, || {
        step("clippy", || {
            run_command(
                cargo()
                    .args(["clippy", "--quiet", "--workspace", "--all-targets"])
                    .args(["--", "-D", "warnings"]),
            )
        })
    })?;
    let workspace = ["test", "--workspace"];
    step("build", || run_command(cargo().args(workspace).args(["--quiet", "--no-run"])))?;
    let tests = || {
        step("test", || {
            let mut tests = cargo();
            tests.args(workspace).arg("--no-fail-fast");
            if !quick {
                tests.env("TOWPATH_PEERS", peers::folder().join("bin"));
            }
            run_command(&mut tests)
        })?;
        doc()
    };
    if quick {
        return tests();
    }
    // Tests wait more than they compute, and one large crate of the fuzz package keeps a single processor busy for a while.
    beside(fuzz::build_in_spare_time, || {
        tests()?;
        step("sanitize", || sanitize::run(&[]))?;
        step("instructions", || instructions::run(&[]))
    })?;
    step("fuzz", || fuzz::run(&["--seconds".to_owned(), "10".to_owned()]))?;
    step("peers", with_peers)
}

/// Does the first on a thread of its own while the second goes on; both must succeed.
fn beside(first: fn() -> Result<()>, second: impl FnOnce() -> Result<()>) -> Result<()> {
    std::thread::scope(|scope| {
        let first = scope.spawn(move || first().map_err(|error| error.to_string()));
        let second = second();
        first.join().map_err(|_| "a step panicked")??;
        second
    })
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
    run_command(
        cargo()
            .args(suites)
            .args(["--no-fail-fast", "--", "--ignored"])
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
