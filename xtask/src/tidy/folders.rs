//! Who may import whom inside the engine: as the floors of crates, a list that grows together with its reason.
//!
//! An owner never imports what stands above it, so that a call can only go down; what must go up is left as work. Below
//! the owners any module may import any other, as long as no circle comes of it.

use std::collections::{BTreeMap, BTreeSet};
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
];

/// What each module imports, without its tests.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks all files of the engine.
pub(super) fn check(files: &str, complaints: &mut Vec<String>) -> Result<()> {
    let mut imports = Imports::new();
    for file in files.lines() {
        let Some(inside) = file.strip_prefix("crates/engine/src/") else { continue };
        // One that is deleted and not committed as such is none.
        if inside.ends_with(".rs")
            && let Ok(text) = fs::read_to_string(root().join(file))
        {
            complaints
                .extend(complaints_of(inside, &text).into_iter().map(|it| format!("{file}:{it}")));
            note_imports(inside, &text, &mut imports);
        }
    }
    complaints
        .extend(circle(&imports).map(|it| format!("engine: modules import in a circle: {it}")));
    Ok(())
}

/// Adds what a file outside of its tests imports of other modules.
fn note_imports(inside: &str, text: &str, imports: &mut Imports) {
    let module = module_of(inside);
    if module == "lib" || inside.contains("tests") {
        return;
    }
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let names = code.lines().flat_map(imports_of).filter(|name| *name != module);
    imports.entry(module.to_owned()).or_default().extend(names.map(str::to_owned));
}

/// A circle of modules, if there is one: what is left once those are taken out that import nothing that is left.
fn circle(imports: &Imports) -> Option<String> {
    let mut left = imports.clone();
    while let Some(done) = left
        .iter()
        .find(|(_, uses)| uses.iter().all(|it| !left.contains_key(it)))
        .map(|(module, _)| module.clone())
    {
        left.remove(&done);
    }
    // From any of them, one import after another comes round.
    let mut path = vec![left.keys().next()?];
    loop {
        let next = left[*path.last()?].iter().find(|it| left.contains_key(*it))?;
        if let Some(at) = path.iter().position(|it| *it == next) {
            let names: Vec<&str> = path[at..].iter().map(|it| it.as_str()).collect();
            return Some(names.join(" → "));
        }
        path.push(next);
    }
}

fn module_of(inside: &str) -> &str {
    let first = Path::new(inside).iter().next().unwrap_or_default();
    Path::new(first).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

/// The modules that a line names.
fn imports_of(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split("crate::")
        .skip(1)
        .filter_map(|import| import.split(|it: char| !it.is_alphanumeric() && it != '_').next())
}

/// What is wrong with the imports of one file, each with its line.
fn complaints_of(inside: &str, text: &str) -> Vec<String> {
    let module = module_of(inside);
    let may = OWNERS.iter().find(|(owner, _)| *owner == module).map_or(&[][..], |(_, may)| may);
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        for name in imports_of(code) {
            let is_owner = OWNERS.iter().any(|(owner, _)| *owner == name);
            if is_owner && name != module && !may.contains(&name) {
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
    fn modules_that_import_each_other_are_found() {
        let mut imports = Imports::new();
        note_imports("a/x.rs", "use crate::b::B;\n", &mut imports);
        note_imports(
            "b.rs",
            "use crate::c::C;\n\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
            &mut imports,
        );
        note_imports("c/mod.rs", "// crate::a\n", &mut imports);
        assert_eq!(circle(&imports), None);
        note_imports("c/tests.rs", "use crate::a::A;\n", &mut imports);
        assert_eq!(circle(&imports), None);
        note_imports("c/y.rs", "    let it = crate::b::f();\n", &mut imports);
        assert_eq!(circle(&imports).as_deref(), Some("b → c"));
    }

    #[test]
    fn what_a_worker_does_stands_in_one_file() {
        for text in ["impl Worker {", "impl Machine for Worker {"] {
            assert_eq!(complaints_of("exchange/mod.rs", text).len(), 1);
            assert_eq!(complaints_of("worker.rs", text), Vec::<String>::new());
        }
    }
}
