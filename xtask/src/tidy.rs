//! The house rules that a machine can check.
//!
//! - **Floors**: who may import whom, as the table says. A new edge needs a new line here, in the
//!   same commit as the text that explains it.
//! - **Runtimes**: no async runtime below the programs.
//! - **Unsafe**: forbidden by attribute where the table says so; elsewhere only in the named files.
//! - **Folders**: inside the engine, who may import whom (`tidy/folders.rs`).
//! - **Names and lengths**: no `utils`, no `helpers`, no file beyond 800 lines, no line beyond 120 columns.

mod folders;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::shell::{Result, output, root};

/// One crate's place in the house.
struct Floor {
    name: &'static str,
    /// What it may import of ours.
    may: &'static [&'static str],
    /// What its tests, benches and examples may import besides.
    tests_may: &'static [&'static str],
    runtime: Runtime,
    unsafety: Unsafety,
}

#[derive(PartialEq)]
enum Runtime {
    None,
    /// An async runtime is allowed: programs whose control plane lives on one, or who wait for signals with it.
    Allowed,
}

enum Unsafety {
    /// `#![forbid(unsafe_code)]` in the crate's root.
    Forbidden,
    /// Only in these files, below the crate's folder.
    In(&'static [&'static str]),
}

const FLOORS: &[Floor] = &[
    Floor {
        name: "towpath-trace-macros",
        may: &[],
        tests_may: &[],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-trace",
        may: &["towpath-trace-macros"],
        tests_may: &[],
        runtime: Runtime::None,
        // Besides ring and clock: a probe that debuggers attach to, system calls about threads, and Android's own C
        // functions.
        unsafety: Unsafety::In(&[
            "src/ring.rs",
            "src/clock.rs",
            "src/probe.rs",
            "src/thread.rs",
            "src/atrace/property.rs",
        ]),
    },
    Floor {
        name: "towpath-proto",
        may: &["towpath-trace"],
        tests_may: &[],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-engine",
        may: &["towpath-proto", "towpath-trace"],
        tests_may: &["towpath-sim"],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-io",
        may: &["towpath-proto", "towpath-trace"],
        tests_may: &[],
        runtime: Runtime::None,
        unsafety: Unsafety::In(&["src/sys.rs", "src/driver/uring.rs"]),
    },
    Floor {
        name: "towpath-sim",
        may: &["towpath-proto", "towpath-trace"],
        tests_may: &[],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-xds",
        may: &["towpath-proto"],
        tests_may: &[],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-config",
        may: &["towpath-engine", "towpath-proto", "towpath-trace", "towpath-xds"],
        tests_may: &[],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath",
        may: &["towpath-engine", "towpath-io", "towpath-proto", "towpath-trace", "towpath-config"],
        // Itself, with every feature.
        tests_may: &["towpath", "towpath-sim"],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-c",
        may: &["towpath"],
        // Itself, with every feature.
        tests_may: &["towpath-c", "towpath-proto"],
        runtime: Runtime::None,
        unsafety: Unsafety::In(&[
            "src/exports.rs",
            "src/exports/challenge.rs",
            "src/exports/lent.rs",
            "src/exports/link.rs",
            "src/exports/outbox.rs",
            "src/exports/socket.rs",
            "src/exports/stream.rs",
            "src/foreign.rs",
        ]),
    },
    Floor {
        name: "towpath-exchange",
        may: &["towpath"],
        tests_may: &[],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-jvm",
        may: &["towpath", "towpath-exchange"],
        tests_may: &[],
        runtime: Runtime::None,
        // Handles that Java keeps, as pointers, Java's signed bytes, and what java.lang.foreign gives.
        unsafety: Unsafety::In(&["src/bytes.rs", "src/ffm.rs", "src/handle.rs"]),
    },
    Floor {
        name: "towpath-python",
        may: &["towpath", "towpath-exchange"],
        tests_may: &[],
        runtime: Runtime::None,
        // What binds to the interpreter is made by pyo3's macros, which `forbid` would not let through.
        unsafety: Unsafety::In(&[]),
    },
    Floor {
        name: "towpath-proxy",
        may: &[
            "towpath-config",
            "towpath-engine",
            "towpath-io",
            "towpath-proto",
            "towpath-sim",
            "towpath-trace",
            "towpath-xds",
        ],
        tests_may: &[],
        runtime: Runtime::Allowed,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-lab",
        may: &["towpath-io", "towpath-proto", "towpath-sim", "towpath-trace"],
        tests_may: &[],
        runtime: Runtime::Allowed,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "towpath-cli",
        may: &[
            "towpath",
            "towpath-config",
            "towpath-engine",
            "towpath-io",
            "towpath-lab",
            "towpath-proto",
            "towpath-proxy",
            "towpath-sim",
            "towpath-trace",
        ],
        tests_may: &[],
        runtime: Runtime::Allowed,
        unsafety: Unsafety::Forbidden,
    },
    Floor {
        name: "xtask",
        may: &[],
        tests_may: &[],
        runtime: Runtime::None,
        unsafety: Unsafety::Forbidden,
    },
];

const RUNTIMES: &[&str] = &["tokio", "async-std", "smol", "glommio", "monoio"];
const BAD_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "misc"];
const MAX_LINES: usize = 800;
const MAX_COLUMNS: usize = 120;

/// Checks everything and lists all that is wrong.
pub(crate) fn run(_words: &[String]) -> Result<()> {
    let mut complaints = Vec::new();
    let packages = packages()?;
    for package in &packages {
        let Some(floor) = FLOORS.iter().find(|floor| floor.name == package.name) else {
            complaints.push(format!("{}: has no floor in xtask's table", package.name));
            continue;
        };
        check_imports(package, floor, &mut complaints);
        check_lints(package, &mut complaints)?;
        check_unsafe(package, floor, &mut complaints)?;
        if package.is_published {
            check_included(package, &mut complaints)?;
        }
    }
    let files = output(Command::new("git").args(["ls-files"]).current_dir(root()))?;
    for file in files.lines() {
        check_name(file, &mut complaints);
        check_length(file, &mut complaints)?;
    }
    folders::check(&files, &mut complaints)?;
    if complaints.is_empty() {
        println!(
            "tidy: {} packages, {} files, all in order",
            packages.len(),
            files.lines().count()
        );
        return Ok(());
    }
    Err(format!("{} things are not in order\n  {}", complaints.len(), complaints.join("\n  "))
        .into())
}

struct Package {
    name: String,
    folder: std::path::PathBuf,
    is_published: bool,
    imports: Vec<Import>,
    roots: Vec<std::path::PathBuf>,
}

struct Import {
    name: String,
    for_tests: bool,
}

fn packages() -> Result<Vec<Package>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = output(
        Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
            .current_dir(root()),
    )?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    packages.iter().map(package).collect()
}

fn package(value: &Value) -> Result<Package> {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("not a string in metadata");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let manifest = text(&value["manifest_path"])?;
    let folder = Path::new(&manifest).parent().ok_or("a manifest has a folder")?.to_owned();
    let mut imports = Vec::new();
    for dependency in list(&value["dependencies"]) {
        let for_tests = dependency["kind"].as_str() == Some("dev");
        imports.push(Import { name: text(&dependency["name"])?, for_tests });
    }
    let mut roots = Vec::new();
    for target in list(&value["targets"]) {
        let kinds = list(&target["kind"]);
        if kinds.iter().any(|kind| kind == "lib" || kind == "bin" || kind == "cdylib") {
            roots.push(text(&target["src_path"])?.into());
        }
    }
    // An empty list of registries is `publish = false`.
    let is_published = value["publish"].as_array().is_none_or(|registries| !registries.is_empty());
    Ok(Package { name: text(&value["name"])?, folder, is_published, imports, roots })
}

fn check_imports(package: &Package, floor: &Floor, complaints: &mut Vec<String>) {
    for import in &package.imports {
        let name = import.name.as_str();
        let ours = FLOORS.iter().any(|floor| floor.name == name);
        let allowed =
            floor.may.contains(&name) || (import.for_tests && floor.tests_may.contains(&name));
        if ours && !allowed {
            complaints.push(format!("{}: may not import {name}", package.name));
        }
        let runtime = RUNTIMES.contains(&name) && !import.for_tests;
        if runtime && floor.runtime == Runtime::None {
            complaints.push(format!("{}: {name} is an async runtime", package.name));
        }
    }
}

fn check_lints(package: &Package, complaints: &mut Vec<String>) -> Result<()> {
    let manifest = fs::read_to_string(package.folder.join("Cargo.toml"))?;
    let section = manifest.split("[lints]").nth(1).unwrap_or("");
    if !section.trim_start().starts_with("workspace = true") {
        complaints.push(format!("{}: does not take the workspace's lints", package.name));
    }
    Ok(())
}

fn check_unsafe(package: &Package, floor: &Floor, complaints: &mut Vec<String>) -> Result<()> {
    match floor.unsafety {
        Unsafety::Forbidden => {
            for source in &package.roots {
                if !fs::read_to_string(source)?.contains("#![forbid(unsafe_code)]") {
                    complaints.push(format!("{}: lacks #![forbid(unsafe_code)]", source.display()));
                }
            }
        }
        Unsafety::In(allowed) => {
            let listing =
                output(Command::new("git").args(["ls-files", "src"]).current_dir(&package.folder))?;
            for file in listing.lines().filter(|file| file.ends_with(".rs")) {
                let text = fs::read_to_string(package.folder.join(file))?;
                let place = format!("{}: {file}", package.name);
                complaints.extend(unsafe_complaints(&text, &place, allowed.contains(&file)));
            }
        }
    }
    Ok(())
}

/// What is wrong with the `unsafe` of one file.
fn unsafe_complaints(text: &str, place: &str, allowed: bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        let number = index + 1;
        let unsafety = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"];
        if !unsafety.iter().any(|word| code.contains(word)) {
            continue;
        }
        if !allowed {
            complaints.push(format!("{place}:{number}: unsafe code does not belong here"));
        }
        let before = &lines[index.saturating_sub(12)..=index];
        let reasoned =
            before.iter().any(|line| line.contains("SAFETY:") || line.contains("# Safety"));
        if !reasoned {
            complaints.push(format!("{place}:{number}: unsafe code without a SAFETY comment"));
        }
    }
    complaints
}

/// What a package is built from lies in it: `cargo package` takes nothing else along, but follows links.
fn check_included(package: &Package, complaints: &mut Vec<String>) -> Result<()> {
    let sources = output(
        Command::new("git").args(["ls-files", "src", "build.rs"]).current_dir(&package.folder),
    )?;
    for file in sources.lines().filter(|file| file.ends_with(".rs")) {
        // Deleted, and not yet committed as such.
        let Ok(text) = fs::read_to_string(package.folder.join(file)) else { continue };
        for path in outside(file, &text) {
            complaints.push(format!("{}: {file} includes {path} of outside", package.name));
        }
    }
    Ok(())
}

/// The included paths that lead out of the package that `file` lies in.
fn outside<'a>(file: &str, text: &'a str) -> Vec<&'a str> {
    let depth = Path::new(file).components().count() - 1;
    let words = ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""];
    let included = text.lines().flat_map(|line| {
        words.iter().filter_map(|word| line.split_once(word)?.1.split_once('"').map(|it| it.0))
    });
    let leads_out = |path: &&str| path.split('/').take_while(|&part| part == "..").count() > depth;
    included.filter(leads_out).collect()
}

fn check_name(file: &str, complaints: &mut Vec<String>) {
    let stems = Path::new(file).iter().filter_map(|part| Path::new(part).file_stem()?.to_str());
    for stem in stems {
        if BAD_NAMES.contains(&stem) {
            complaints.push(format!("{file}: '{stem}' says nothing about what is inside"));
        }
    }
}

fn check_length(file: &str, complaints: &mut Vec<String>) -> Result<()> {
    if !file.ends_with(".rs") {
        return Ok(());
    }
    let path = root().join(file);
    // Deleted, and not yet committed as such.
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(());
    };
    let lines = text.lines().count();
    if lines > MAX_LINES {
        complaints.push(format!("{file}: {lines} lines; the sub-machine in it wants its own file"));
    }
    let wide = wide_lines(&text);
    complaints.extend(wide.map(|line| format!("{file}:{line}: beyond {MAX_COLUMNS} columns")));
    Ok(())
}

/// The numbers of lines that are too long.
fn wide_lines(text: &str) -> impl Iterator<Item = usize> {
    let lines = text.lines().zip(1..);
    lines.filter(|(line, _)| line.chars().count() > MAX_COLUMNS).map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, imports: &[(&str, bool)]) -> Package {
        let import =
            |&(name, for_tests): &(&str, bool)| Import { name: name.to_owned(), for_tests };
        Package {
            name: name.to_owned(),
            is_published: true,
            folder: "".into(),
            imports: imports.iter().map(import).collect(),
            roots: Vec::new(),
        }
    }

    fn complaints(name: &str, imports: &[(&str, bool)]) -> Vec<String> {
        let floor = FLOORS.iter().find(|floor| floor.name == name).unwrap();
        let mut complaints = Vec::new();
        check_imports(&package(name, imports), floor, &mut complaints);
        complaints
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_found() {
        assert_eq!(
            complaints("towpath-engine", &[("towpath-proto", false), ("bytes", false)]),
            [""; 0]
        );
        assert_eq!(complaints("towpath-engine", &[("towpath-io", false)]).len(), 1);
        assert_eq!(complaints("towpath-lab", &[("towpath-engine", true)]).len(), 1);
    }

    #[test]
    fn a_test_may_import_what_the_code_may_not() {
        assert_eq!(complaints("towpath-engine", &[("towpath-sim", true)]), [""; 0]);
        assert_eq!(complaints("towpath-engine", &[("towpath-sim", false)]).len(), 1);
    }

    #[test]
    fn a_runtime_below_the_programs_is_found() {
        assert_eq!(complaints("towpath-io", &[("tokio", false)]).len(), 1);
        assert_eq!(complaints("towpath-io", &[("tokio", true)]), [""; 0]);
        assert_eq!(complaints("towpath-proxy", &[("tokio", false)]), [""; 0]);
    }

    #[test]
    fn unsafe_code_needs_the_right_file_and_a_reason() {
        let code = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(unsafe_complaints(code, "x", false).len(), 2);
        assert_eq!(unsafe_complaints(code, "x", true).len(), 1);
        let reasoned = "    // SAFETY: g asks for nothing.\n    unsafe { g() }\n";
        assert_eq!(unsafe_complaints(reasoned, "x", true), [""; 0]);
        assert_eq!(unsafe_complaints("// unsafe { in words }", "x", false), [""; 0]);
    }

    #[test]
    fn what_lies_outside_of_a_package_is_found() {
        let within = "include_str!(\"../README.md\") #[path = \"../../tests/scene.rs\"]";
        assert_eq!(outside("src/conn/mux.rs", within), [""; 0]);
        assert_eq!(outside("src/lib.rs", within), ["../../tests/scene.rs"]);
        assert_eq!(outside("src/lib.rs", "include_bytes!(\"../../a\")"), ["../../a"]);
        assert_eq!(outside("build.rs", "    #[path = \"src/own.rs\"]"), [""; 0]);
    }

    #[test]
    fn a_line_that_is_too_wide_is_found() {
        let columns = |n: usize| "é".repeat(n);
        let text = format!("// {}\n    /// {}\nlet a;\n", columns(117), columns(112));
        assert_eq!(wide_lines(&text).collect::<Vec<_>>(), [0; 0]);
        let text = format!("\n// {}\n    a(\"{}\");\n", columns(118), columns(112));
        assert_eq!(wide_lines(&text).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn empty_names_are_found_in_files_and_folders() {
        let mut found = Vec::new();
        check_name("crates/io/src/utils.rs", &mut found);
        check_name("crates/io/helpers/mod.rs", &mut found);
        check_name("crates/io/src/futile.rs", &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
