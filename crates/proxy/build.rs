//! Tells the program which commit it is made of: `--version` and `/server_info` show it.
//!
//! Packagers who build without a repository set `TOWPATH_COMMIT`. A debug build has none, so that a commit does not
//! make it again.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=TOWPATH_COMMIT");
    let commit =
        env::var("TOWPATH_COMMIT").ok().or_else(committed).unwrap_or_else(|| "0".repeat(40));
    println!("cargo::rustc-env=TOWPATH_COMMIT={commit}");
}

fn committed() -> Option<String> {
    if env::var("PROFILE").as_deref() != Ok("release") {
        println!("cargo::rerun-if-changed=build.rs");
        return None;
    }
    let moves = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={moves}");
    git(&["rev-parse", "HEAD"])
}

/// The one line that a command of git prints, if there is git, and a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
