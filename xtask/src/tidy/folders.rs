//! Who may import whom inside the engine: as the floors of crates, a list that grows together with its reason.
//!
//! An owner never imports what stands above it, so that a call can only go down; what must go up is left as work.

use std::fs;
use std::path::Path;

use crate::shell::{Result, root};

/// The owners of a worker, lowest first, and what each may import of them. Everything else in the crate is below all of
/// them.
const OWNERS: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("env", &["ids"]),
    ("local", &["env", "ids"]),
    ("conn", &["env", "ids", "local"]),
    ("upstream", &["conn", "env", "ids", "local"]),
    ("downstream", &["conn", "env", "ids"]),
    ("exchange", &["conn", "downstream", "env", "ids", "local", "upstream"]),
    ("worker", &["conn", "downstream", "env", "exchange", "ids", "local", "upstream"]),
    // Not an owner: what the app is told, and tells, is among all other messages.
    ("message", &["local"]),
];

/// Checks all files of the engine.
pub(super) fn check(files: &str, complaints: &mut Vec<String>) -> Result<()> {
    for file in files.lines() {
        let Some(inside) = file.strip_prefix("crates/engine/src/") else { continue };
        // One that is deleted and not committed as such is none.
        if inside.ends_with(".rs")
            && let Ok(text) = fs::read_to_string(root().join(file))
        {
            complaints
                .extend(complaints_of(inside, &text).into_iter().map(|it| format!("{file}:{it}")));
        }
    }
    Ok(())
}

/// What is wrong with the imports of one file, each with its line.
fn complaints_of(inside: &str, text: &str) -> Vec<String> {
    let first = Path::new(inside).iter().next().unwrap_or_default();
    let module = Path::new(first).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let may = OWNERS.iter().find(|(owner, _)| *owner == module).map_or(&[][..], |(_, may)| may);
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        for import in code.split("crate::").skip(1) {
            let name = import.split(|it: char| !it.is_alphanumeric() && it != '_').next();
            let name = name.unwrap_or_default();
            let is_owner = OWNERS.iter().any(|(owner, _)| *owner == name);
            if is_owner && name != module && name != "message" && !may.contains(&name) {
                complaints.push(format!("{number}: {module} may not import {name}"));
            }
        }
        let is_of_worker = code.starts_with("impl Worker ") || code.ends_with(" for Worker {");
        if is_of_worker && inside != "worker.rs" {
            complaints.push(format!("{number}: only worker.rs says what a worker does"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_of_what_stands_above_is_found() {
        let text = "use crate::exchange::Exchange;\nuse crate::ids::Side; // crate::worker\n";
        assert_eq!(complaints_of("conn/mux/mod.rs", text), ["1: conn may not import exchange"]);
        assert_eq!(complaints_of("exchange/http.rs", text), Vec::<String>::new());
        assert_eq!(complaints_of("route/mod.rs", "fn f(a: &crate::env::Env) {}").len(), 1);
    }

    #[test]
    fn what_a_worker_does_stands_in_one_file() {
        for text in ["impl Worker {", "impl Machine for Worker {"] {
            assert_eq!(complaints_of("exchange/mod.rs", text).len(), 1);
            assert_eq!(complaints_of("worker.rs", text), Vec::<String>::new());
        }
    }
}
