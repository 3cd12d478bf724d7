//! What a release promises beyond this machine: the oldest compiler that manifests name, and the tracing crate on other
//! systems.
//!
//! A toolchain or a system's standard library that is not installed here is named, and how to install it; with `--all`
//! that is a failure.

use std::path::PathBuf;
use std::process::Command;

use crate::shell::{Result, Share, output, root, run as run_command, target};

/// `[--all]` fails where something is not installed.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let all = match words {
        [] => false,
        [word] if word == "--all" => true,
        _ => return Err("usage: cargo xtask toolchains [--all]".into()),
    };
    match check(Share::Fair)? {
        1.. if all => Err("not all of the checks could run".into()),
        _ => Ok(()),
    }
}

/// Runs what can be run here; answers how many checks could not.
pub(crate) fn check(share: Share) -> Result<usize> {
    let oldest = oldest()?;
    let mut absent = 0;
    let listed = output(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    match listed.lines().find_map(|line| toolchain(line, &oldest)) {
        Some(toolchain) => {
            println!("toolchains: the tracing crate with Rust {oldest}");
            run_command(
                share
                    .of("cargo")
                    .arg(format!("+{toolchain}"))
                    .args(CHECK)
                    .args(["--target-dir".into(), folder("oldest")]),
            )?;
        }
        None => {
            absent += 1;
            println!(
                "toolchains: NOT CHECKED with Rust {oldest}: `rustup toolchain install {oldest}`"
            );
        }
    }
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]));
    let installed = installed.unwrap_or_default();
    for system in SYSTEMS {
        if !installed.lines().any(|line| line == system) {
            absent += 1;
            println!("toolchains: NOT CHECKED for {system}: `rustup target add {system}`");
            continue;
        }
        println!("toolchains: the tracing crate for {system}");
        run_command(
            share
                .of_cargo()
                .args(CHECK)
                .args(["--target", system, "--target-dir"])
                .arg(folder("systems"))
                .env("RUSTFLAGS", "-D warnings"),
        )?;
    }
    Ok(absent)
}

const CHECK: [&str; 6] =
    ["check", "--quiet", "-p", "towpath-trace", "--features", "attribute,layer"];

/// Where apps that use the tracing crate run.
const SYSTEMS: [&str; 5] = [
    "aarch64-unknown-linux-gnu",
    "aarch64-linux-android",
    "x86_64-pc-windows-gnu",
    "aarch64-apple-darwin",
    "x86_64-unknown-linux-musl",
];

fn folder(name: &str) -> PathBuf {
    target().join(name)
}

/// The compiler that the workspace's manifest promises.
fn oldest() -> Result<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = line.ok_or("Cargo.toml names no rust-version")?;
    Ok(version.trim_matches('"').to_owned())
}

/// The name of an installed toolchain of this version, whatever its last number.
fn toolchain<'a>(line: &'a str, version: &str) -> Option<&'a str> {
    let name = line.split_whitespace().next()?;
    let rest = name.strip_prefix(version)?;
    rest.starts_with(['.', '-']).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_is_found_by_its_version() {
        let host = "1.91.0-x86_64-unknown-linux-gnu";
        assert_eq!(toolchain("1.91.0-x86_64-unknown-linux-gnu (default)", "1.91"), Some(host));
        assert_eq!(toolchain("1.91-x86_64", "1.91"), Some("1.91-x86_64"));
        assert_eq!(toolchain("1.910.0-x86_64", "1.91"), None);
        assert_eq!(toolchain("stable-x86_64", "1.91"), None);
        assert_eq!(toolchain("", "1.91"), None);
    }

    #[test]
    fn the_manifest_names_the_oldest_compiler() {
        let oldest = oldest().unwrap();
        assert!(oldest.split('.').count() >= 2 && !oldest.contains('"'), "{oldest}");
    }
}
