//! Programs of Go, by the system's Go, Debian's, or a newer one where a module asks for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Peer, debian_root, folder, unpack, wrap};
use crate::shell::{Result, has, output, root};

/// Builds a program with the versions that are written down.
pub(super) fn build(peer: &Peer, versions: &str, package: &str) -> Result<()> {
    let program = folder().join("go").join(peer.name);
    let versions = root().join(versions);
    let mut build = fit_for(&versions)?;
    build.args(["build", "-mod=readonly", "-trimpath", "-o"]).arg(&program).arg(package);
    // No C compiler is needed, and no other Go than this one.
    build.envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "")]);
    output(build.current_dir(versions))
        .map_err(|error| format!("cannot build {package}: {error}"))?;
    wrap(peer.name, &program, None)
}

/// A Go that is as new as the module in this folder asks for.
fn fit_for(module: &Path) -> Result<Command> {
    let text = fs::read_to_string(module.join("go.mod"))?;
    let wanted = text.lines().find_map(|line| line.strip_prefix("go "));
    let wanted = wanted.ok_or_else(|| format!("{}: go.mod names no Go", module.display()))?;
    let has = environment("GOVERSION")?;
    if numbers(has.trim_start_matches("go")) >= numbers(wanted) {
        return here();
    }
    let root = newer(wanted)?;
    let mut go = Command::new(root.join("bin/go"));
    go.env("GOROOT", root);
    Ok(go)
}

/// The Go of the system, or Debian's beside the peers.
fn here() -> Result<Command> {
    if has("go") {
        return Ok(Command::new("go"));
    }
    let root = debian_root("go").join("usr/lib/go-1.19");
    let program = root.join("bin/go");
    if !program.is_file() {
        unpack("go", &["golang-1.19-go", "golang-1.19-src"])?;
    }
    let mut go = Command::new(program);
    go.env("GOROOT", root);
    Ok(go)
}

fn environment(name: &str) -> Result<String> {
    Ok(output(here()?.args(["env", name]).env("GOTOOLCHAIN", "local"))?.trim().to_owned())
}

/// Go itself as a module, which older ones can fetch and not run: its files come without their permissions.
fn newer(version: &str) -> Result<PathBuf> {
    let place = folder().join(format!("go-{version}"));
    if place.join("bin/go").is_file() {
        return Ok(place);
    }
    let system = format!("{}-{}", environment("GOOS")?, environment("GOARCH")?);
    let module = format!("golang.org/toolchain@v0.0.1-go{version}.{system}");
    let fetched = output(here()?.args(["mod", "download", "-json", &module]))
        .map_err(|error| format!("cannot have Go {version}: {error}"))?;
    let fetched: Value = serde_json::from_str(&fetched)?;
    let source = fetched["Dir"].as_str().ok_or_else(|| format!("no folder of {module}"))?;
    let half = folder().join(format!("go-{version}.part"));
    if half.exists() {
        fs::remove_dir_all(&half)?;
    }
    output(Command::new("cp").args(["-r", "--no-preserve=mode", source]).arg(&half))?;
    for programs in ["bin".to_owned(), format!("pkg/tool/{}", system.replace('-', "_"))] {
        for program in fs::read_dir(half.join(programs))? {
            fs::set_permissions(program?.path(), fs::Permissions::from_mode(0o755))?;
        }
    }
    fs::rename(half, &place)?;
    Ok(place)
}

/// A version's numbers, for comparing.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}
