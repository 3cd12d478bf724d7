//! The tracing crate's unit tests under the address sanitizer: of Miri's checks what a stable toolchain has.

use crate::fuzz::platform;
use crate::shell::{Result, cargo, run as run_command, target};

/// Runs them.
pub(crate) fn run(words: &[String]) -> Result<()> {
    if !words.is_empty() {
        return Err("usage: cargo xtask sanitize".into());
    }
    // The sanitizer's runtime comes with rustc; only the flag is not stable. With `--target` it does not reach build
    // scripts.
    run_command(
        cargo()
            .args(["test", "--quiet", "-p", "towpath-trace", "--lib", "--target", &platform()])
            .arg("--target-dir")
            .arg(target().join("sanitize"))
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address"),
    )
}
