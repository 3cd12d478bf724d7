//! The crates that are released: whether a registry would take them, and whether what it would take is whole.
//!
//! Arrives: the workspace's manifests. Leaves: `target/package`, packed without a network, or all that is missing.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::shell::{Result, cargo, output, target};

/// What people name in their manifests. What these need of the workspace, in tests too, is released with them.
const ROOTS: [&str; 3] = ["towpath", "towpath-c", "towpath-trace"];

/// What has to be in a package beside its code.
const INCLUDED: &[(&str, &str)] = &[("towpath-c", "include/towpath.h")];

/// The registry's limit.
const MOST_BYTES: u64 = 10 << 20;
const MOST_KEYWORDS: usize = 5;

/// Checks what is said of each crate, packs all, and looks into what was packed.
pub(crate) fn run(_words: &[String]) -> Result<()> {
    let metadata = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata: Value = serde_json::from_str(&output(cargo().args(metadata))?)?;
    let all = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let all: HashMap<&str, &Value> =
        all.iter().filter_map(|package| Some((package["name"].as_str()?, package))).collect();
    let released = released(&all)?;
    let mut complaints = Vec::new();
    for name in &released {
        complaints.extend(described(name, all[name]));
    }
    if complaints.is_empty() {
        let mut pack = cargo();
        pack.args(["package", "--quiet", "--offline", "--no-verify", "--allow-dirty"]);
        for name in &released {
            pack.args(["--package", name]);
        }
        output(&mut pack)?;
        for name in &released {
            complaints.extend(packed(name, all[name])?);
        }
    }
    if complaints.is_empty() {
        let names: Vec<&str> = released.into_iter().collect();
        println!("package: {}", names.join(", "));
        return Ok(());
    }
    Err(format!("not to be released so\n  {}", complaints.join("\n  ")).into())
}

/// The roots, and what they need of the workspace.
fn released<'a>(all: &HashMap<&'a str, &'a Value>) -> Result<BTreeSet<&'a str>> {
    let (mut found, mut left) = (BTreeSet::new(), ROOTS.to_vec());
    while let Some(name) = left.pop() {
        let (&name, package) =
            all.get_key_value(name).ok_or_else(|| format!("there is no crate {name}"))?;
        if found.insert(name) {
            left.extend(
                paths(package).filter_map(|it| it["name"].as_str()).filter(|it| *it != name),
            );
        }
    }
    Ok(found)
}

/// Its dependencies that lie in the workspace.
fn paths(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten().filter(|it| it["path"].is_string())
}

/// What is wrong with what is said of a crate.
fn described(name: &str, package: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    for key in ["description", "license", "rust_version"] {
        if package[key].as_str().is_none_or(|text| text.trim().is_empty()) {
            complaints.push(format!("{name}: has no {key}"));
        }
    }
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let page = package["readme"]
        .as_str()
        .and_then(|page| fs::read_to_string(manifest.with_file_name(page)).ok());
    if page.is_none_or(|page| !page.starts_with(&format!("# {name}\n"))) {
        complaints.push(format!("{name}: has no page that begins with its name"));
    }
    let keywords: Vec<&str> =
        package["keywords"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if keywords.len() > MOST_KEYWORDS || !keywords.iter().all(|word| is_keyword(word)) {
        complaints.push(format!("{name}: no registry takes the keywords {keywords:?}"));
    }
    if package["publish"].as_array().is_some_and(Vec::is_empty) {
        complaints.push(format!("{name}: its manifest says that it is not released"));
    }
    for needed in paths(package) {
        let needs = needed["name"].as_str().unwrap_or_default();
        // A crate that needs itself in its tests is left out when it is packed.
        if needed["req"].as_str() == Some("*") && needs != name {
            complaints.push(format!("{name}: says no version of {needs}"));
        }
    }
    complaints
}

fn is_keyword(word: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || "_-+".contains(character);
    word.len() <= 20
        && word.starts_with(|it: char| it.is_ascii_alphanumeric())
        && word.chars().all(fits)
}

/// What is wrong with a crate as it was packed.
fn packed(name: &str, package: &Value) -> Result<Vec<String>> {
    let version = package["version"].as_str().ok_or("a package has a version")?;
    let size = fs::metadata(target().join(format!("package/{name}-{version}.crate")))?.len();
    let list = ["package", "--quiet", "--offline", "--allow-dirty", "--list", "--package", name];
    let list = output(cargo().args(list))?;
    let wanted = INCLUDED.iter().filter(|(of, _)| *of == name).map(|(_, file)| *file);
    let wanted = ["Cargo.toml", "README.md", "src/lib.rs"].into_iter().chain(wanted);
    let has = |file: &str| list.lines().any(|line| line == file);
    let mut complaints: Vec<String> = wanted
        .filter(|file| !has(file))
        .map(|file| format!("{name}: is packed without {file}"))
        .collect();
    if size > MOST_BYTES {
        complaints.push(format!("{name}: has {size} bytes, and a registry takes {MOST_BYTES}"));
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_roots_need_is_released_with_them_and_nothing_else() {
        let needs = |names: &[&str]| {
            let needed: Vec<Value> =
                names.iter().map(|name| json!({"name": name, "path": "/x", "req": "^1"})).collect();
            json!({ "dependencies": needed })
        };
        let (base, proto, none) = (needs(&["proto"]), needs(&["towpath"]), needs(&[]));
        let mut all = HashMap::from([
            ("towpath", &base),
            ("proto", &proto),
            ("towpath-trace", &none),
            ("proxy", &base),
        ]);
        assert!(released(&all).is_err(), "a root is missing");
        all.insert("towpath-c", &proto);
        let names: Vec<&str> = released(&all).unwrap().into_iter().collect();
        assert_eq!(names, ["proto", "towpath", "towpath-c", "towpath-trace"]);
    }

    #[test]
    fn what_is_missing_is_said() {
        let package = json!({
            "description": " ", "license": "x", "manifest_path": "/nowhere/Cargo.toml", "publish": [],
            "keywords": ["two words"],
            "dependencies": [
                {"name": "a", "path": "/a", "req": "*"},
                {"name": "b", "path": "/b", "req": "^1"},
                {"name": "c", "req": "*"},
                {"name": "it", "path": "/it", "req": "*"},
            ],
        });
        let complaints = described("it", &package);
        let expected = [
            "no description",
            "no rust_version",
            "no page",
            "two words",
            "not released",
            "version of a",
        ];
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, expected) in complaints.iter().zip(expected) {
            assert!(complaint.contains(expected), "{complaint}");
        }
        assert!(is_keyword("http-client") && !is_keyword("") && !is_keyword("-x"));
        assert!(!is_keyword("a-word-of-21-letters-"));
    }
}
