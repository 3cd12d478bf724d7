//! Calls of Bolt through the proxy, each answer held against its own call: simulated, and over loopback while the
//! server is restarted. What is short in the tests is long here.

use crate::shell::{Result, cargo, run as run_command};

/// `[CALLS]`, 1,000,000 unless said: one in a hundred is simulated.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let calls = match words {
        [] => 1_000_000,
        [calls] => calls.replace('_', "").parse::<u64>()?,
        _ => return Err("usage: cargo xtask marks [CALLS]".into()),
    };
    let simulated = calls / 100;
    let parts = [
        ("towpath-engine", "bolt", "marks::no_answer", simulated),
        ("towpath-proxy", "bolt_peers", "marks::no_answer", calls - simulated),
    ];
    for (package, suite, test, calls) in parts {
        run_command(
            cargo()
                .args(["test", "--release", "--quiet", "--package", package, "--test", suite])
                .args([test, "--", "--nocapture"])
                .env("TOWPATH_CALLS", calls.to_string()),
        )?;
    }
    Ok(())
}
