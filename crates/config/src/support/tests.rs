use std::collections::HashSet;
use std::path::Path;

use super::*;
use crate::schema::Schema;

#[test]
fn every_entry_names_what_exists_and_once() {
    let schema = Schema::with(entries().map(|entry| entry.message));
    let mut messages = HashSet::new();
    for entry in entries() {
        assert!(messages.insert(entry.message), "{} is there twice", entry.message);
        let descriptor =
            schema.message(entry.message).unwrap_or_else(|| panic!("no message {}", entry.message));
        let mut fields = HashSet::new();
        let others = entry.harmless.iter().chain(entry.changes).map(|(field, _)| *field);
        for field in entry.honoured.iter().copied().chain(others) {
            assert!(
                descriptor.get_field_by_name(field).is_some(),
                "no field {}.{field}",
                entry.message
            );
            assert!(fields.insert(field), "{}.{field} is there twice", entry.message);
        }
    }
}

#[test]
fn what_is_not_in_the_field_table_changes_behaviour() {
    assert_eq!(of("envoy.config.cluster.v3.Cluster", "queuing_policies"), DEFAULT);
    assert_eq!(of("envoy.extensions.filters.http.cors.v3.Cors", "anything"), DEFAULT);
}

/// `docs/envoy-compatibility.md` holds what the table of support says. Run with `TOWPATH_BLESS=1` to write it.
#[test]
fn the_documentation_says_the_same() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/envoy-compatibility.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let (introduction, _) = written.split_once(MARK).expect("the documentation has the mark");
    let wanted = format!("{introduction}{MARK}\n{}", render());
    if std::env::var_os("TOWPATH_BLESS").is_some() {
        std::fs::write(&path, wanted).unwrap();
    } else {
        assert!(
            written == wanted,
            "docs/envoy-compatibility.md is out of date; run the tests once with TOWPATH_BLESS=1"
        );
    }
}

const MARK: &str =
    "<!-- Below this line the table of support speaks (crates/config/src/support). -->\n";

fn render() -> String {
    let mut text = String::new();
    for entry in entries() {
        text += &format!("\n### `{}`\n\n", entry.message);
        if entry.honoured.is_empty() && entry.harmless.is_empty() && entry.changes.is_empty() {
            text += "It has no fields.\n";
        }
        if !entry.honoured.is_empty() {
            let fields: Vec<_> = entry.honoured.iter().map(|field| format!("`{field}`")).collect();
            text += &format!("Honoured: {}\n", fields.join(", "));
        }
        if entry.harmless.is_empty() && entry.changes.is_empty() {
            continue;
        }
        text += "\n| Field | | Because |\n|---|---|---|\n";
        for (field, reason) in entry.harmless {
            text += &format!("| `{field}` | ignored | {reason} |\n");
        }
        for (field, reason) in entry.changes {
            text += &format!("| `{field}` | **refused** | {reason} |\n");
        }
    }
    text
}
