//! What a release promises beyond this machine: the oldest compiler that manifests name, and the tracing crate on other
//! systems.
//!
//! Where that compiler is not installed Debian's older one stands in, with the previews that it has of what the
//! promised one is sure of; where a system's standard library is not, it is built from Debian's source. What cannot be
//! had is named, and how to install it; with `--all` that is a failure.

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
                    .arg("check")
                    .args(CRATE)
                    .args(["--target-dir".into(), folder("oldest")]),
            )?;
        }
        None => match peers::ensure("rustc-older") {
            Ok(compiler) => {
                println!("toolchains: the tracing crate with Rust 1.85, older than {oldest}");
                run_command(
                    share
                        .of_cargo()
                        .args(["rustc", "--lib", "--profile", "check", "--ignore-rust-version"])
                        .args(CRATE)
                        .args(["--target-dir".into(), folder("oldest")])
                        .args(["--", PREVIEWS])
                        .env("RUSTC", compiler)
                        .env("RUSTC_BOOTSTRAP", "1")
                        .env("RUSTFLAGS", "-Zcrate-attr=feature(let_chains)"),
                )?;
            }
            Err(why) => {
                absent += 1;
                println!(
                    "toolchains: NOT CHECKED with Rust {oldest}: `rustup toolchain install {oldest}` ({why})"
                );
            }
        },
    }
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]));
    let installed = installed.unwrap_or_default();
    for system in SYSTEMS {
        let mut check = share.of_cargo();
        check.arg("check").args(CRATE).args(["--target", system, "--target-dir"]);
        check.arg(folder("systems")).env("RUSTFLAGS", "-D warnings");
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
                        "toolchains: NOT CHECKED for {system}: `rustup target add {system}` ({why})"
                    );
                    continue;
                }
            }
        };
        println!("toolchains: the tracing crate for {system}{by}");
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

/// What became stable between Debian's older compiler and the promised one, as far as the crate uses it. What came
/// later than the promised one is found by clippy (`incompatible_msrv`).
const PREVIEWS: &str = "-Zcrate-attr=feature(integer_sign_cast,os_str_display,round_char_boundary,\
    slice_as_chunks,vec_pop_if)";

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
