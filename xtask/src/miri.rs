//! The tracing crate's unit tests under Miri: its rings hand pointers and torn reads between threads.
//!
//! Not a step of `cargo xtask test`: Miri comes only with a nightly toolchain, which a machine with a stable one lacks.

use std::process::Command;

use crate::shell::{Result, output, root, run as run_command};

/// Runs them.
pub(crate) fn run(words: &[String]) -> Result<()> {
    if !words.is_empty() {
        return Err("usage: cargo xtask miri".into());
    }
    let nightly = || {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo", "miri"]).current_dir(root());
        command
    };
    if output(nightly().arg("--version")).is_err() {
        return Err("there is no Miri: `rustup toolchain install nightly --component miri`".into());
    }
    // Recordings read the clocks and /proc.
    run_command(
        nightly()
            .args(["test", "-p", "towpath-trace", "--lib"])
            .env("MIRIFLAGS", "-Zmiri-disable-isolation"),
    )
}
