//! What a release promises beyond this machine: the oldest compilers that manifests name, and the tracing crate and the
//! client library on other systems, type-checked.
//!
//! Everything is built by the oldest compiler that the workspace names where that is the one at hand, as it is in CI;
//! the tracing crate, which names an older one, is checked with that, Debian's where rustup has none. Where a system's
//! standard library is not installed, it is built from Debian's source. What cannot be had is named, and how to install
//! it; with `--all` that is a failure.

use std::path::PathBuf;
use std::process::Command;

use crate::peers;
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
    let mut absent = 0;
    let oldest = oldest("Cargo.toml")?;
    let at_hand = output(share.of("rustc").arg("--version"))?;
    if !is_version(&at_hand, &oldest) {
        absent += 1;
        println!(
            "toolchains: NOT CHECKED with Rust {oldest}, of which all crates are: this is {at_hand}"
        );
    }
    let oldest = self::oldest("crates/trace/Cargo.toml")?;
    match compiler(&oldest) {
        Ok(compiler) => {
            println!("toolchains: the tracing crate with Rust {oldest}");
            run_command(
                share
                    .of_cargo()
                    .arg("check")
                    .args(CRATE)
                    .args(["--target-dir".into(), folder("oldest")])
                    .env("RUSTC", compiler),
            )?;
        }
        Err(why) => {
            absent += 1;
            println!(
                "toolchains: NOT CHECKED with Rust {oldest}: `rustup toolchain install {oldest}` ({why})"
            );
        }
    }
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]));
    let installed = installed.unwrap_or_default();
    let cryptography = cryptography()?;
    let trace = SYSTEMS.map(|system| ("the tracing crate", &CRATE[..], system));
    let library = APPS.map(|system| ("the client library", &LIBRARY[..], system));
    let without_driver = ("the client library but for its driver", &MACHINES[..], WINDOWS);
    for (what, words, system) in trace.into_iter().chain(library).chain([without_driver]) {
        let mut check = share.of_cargo();
        check.arg("check").args(words).args(["--target", system, "--target-dir"]);
        check.arg(folder("systems")).env("RUSTFLAGS", "-D warnings");
        if words != CRATE {
            // Its C is not compiled, and nothing is linked: what it declares for all systems is enough.
            let place = format!("target.{system}.{cryptography}");
            for of in ["rustc-link-lib=[\"crypto\"]", "rustc-cfg=[\"universal\"]", "include=\"\""] {
                check.args(["--config", &format!("{place}.{of}")]);
            }
        }
        let by = if installed.lines().any(|line| line == system) {
            ""
        } else {
            match standard_library_of(system) {
                Ok((compiler, flags)) => {
                    check.arg("-Zbuild-std=std,panic_abort");
                    check.env("RUSTC", compiler).env("RUSTC_BOOTSTRAP", "1");
                    check.env("RUSTFLAGS", format!("-D warnings{flags}"));
                    ", with a standard library built from source"
                }
                Err(why) => {
                    absent += 1;
                    println!(
                        "toolchains: {what} NOT CHECKED for {system}: `rustup target add {system}` ({why})"
                    );
                    continue;
                }
            }
        };
        println!("toolchains: {what} for {system}{by}");
        run_command(&mut check)?;
    }
    Ok(absent)
}

/// The compiler that has the source of the standard library, and the flags with which it is built for a system.
fn standard_library_of(system: &str) -> Result<(PathBuf, String)> {
    let compiler = peers::ensure("rustc-source")?;
    let flags = if system.contains("windows-gnu") {
        format!(" -Cdlltool={}", peers::ensure("dlltool")?.display())
    } else {
        String::new()
    };
    Ok((compiler, flags))
}

const CRATE: [&str; 5] = ["--quiet", "-p", "towpath-trace", "--features", "attribute,layer"];

/// Where apps that use the tracing crate run.
const SYSTEMS: [&str; 5] = [
    "aarch64-unknown-linux-gnu",
    "aarch64-linux-android",
    "x86_64-pc-windows-gnu",
    "aarch64-apple-darwin",
    "x86_64-unknown-linux-musl",
];

const LIBRARY: [&str; 3] = ["--quiet", "-p", "towpath"];

/// Where apps that use the client library run, beside Linux.
const APPS: [&str; 4] =
    ["aarch64-linux-android", "x86_64-linux-android", "aarch64-apple-ios", "aarch64-apple-darwin"];

/// What the client library is made of without `towpath-io`, which has a driver for Unix alone and says so.
const MACHINES: [&str; 6] =
    ["--quiet", "-p", "towpath-engine", "--no-default-features", "--features", "http2"];
const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// The name by which the cryptography's C library, of the version that is locked, is known to cargo.
fn cryptography() -> Result<String> {
    let lock = std::fs::read_to_string(root().join("Cargo.lock"))?;
    let entry = lock.split("[[package]]").find(|it| it.contains("name = \"aws-lc-sys\""));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    let version = version.ok_or("Cargo.lock has no aws-lc-sys")?;
    Ok(format!("aws_lc_{}", version.replace('.', "_")))
}

fn folder(name: &str) -> PathBuf {
    target().join(name)
}

/// The oldest compiler that a manifest promises.
fn oldest(manifest: &str) -> Result<String> {
    let text = std::fs::read_to_string(root().join(manifest))?;
    let line = text.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = line.ok_or_else(|| format!("{manifest} names no rust-version"))?;
    Ok(version.trim_matches('"').to_owned())
}

/// A compiler of this version: rustup's or Debian's.
fn compiler(version: &str) -> Result<PathBuf> {
    let listed = output(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    if let Some(toolchain) = listed.lines().find_map(|line| toolchain(line, version)) {
        let which = ["which", "--toolchain", toolchain, "rustc"];
        return Ok(output(Command::new("rustup").args(which))?.trim().into());
    }
    let compiler = peers::ensure("rustc-older")?;
    let said = output(Command::new(&compiler).arg("--version"))?;
    if is_version(&said, version) {
        Ok(compiler)
    } else {
        Err(format!("Debian's is {said}").into())
    }
}

/// Whether `rustc --version` names this version, whatever its last number.
fn is_version(said: &str, version: &str) -> bool {
    said.split_whitespace().nth(1).is_some_and(|said| toolchain(said, version).is_some())
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
    fn a_compiler_says_which_it_is() {
        assert!(is_version(
            "rustc 1.85.0 (4d91de4e4 2025-02-17) (built from a source tarball)",
            "1.85"
        ));
        assert!(!is_version("rustc 1.95.0 (59807616e 2026-04-14)", "1.9"));
        assert!(!is_version("", "1.85"));
    }

    #[test]
    fn pages_promise_the_compilers_that_manifests_name() {
        let page = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
        let readme = page("README.md").replace('\n', " ");
        let all = oldest("Cargo.toml").unwrap();
        let trace = oldest("crates/trace/Cargo.toml").unwrap();
        assert!(readme.contains(&format!("Rust {all} or later; the tracing crate takes {trace}.")));
        assert!(page("crates/trace/README.md").contains(&format!("Rust {trace} or later.")));
        assert_eq!(oldest("crates/trace-macros/Cargo.toml").unwrap(), trace);
        assert_eq!(oldest("fuzz/Cargo.toml").unwrap(), all);
    }
}
