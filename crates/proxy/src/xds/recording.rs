//! A recording: a line of JSON for the program that asked, then one for each update. What is cut off loses its last
//! line at most.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use towpath_xds::Type;

use crate::discovery::Step;

/// What was written down.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// The bootstrap that asked, where it is known.
    pub(super) bootstrap: Option<Value>,
    pub(super) steps: Vec<Timed>,
}

/// An update, and when it came.
#[derive(Debug)]
pub(super) struct Timed {
    /// Milliseconds since the recording began.
    pub(super) at_ms: u64,
    pub(super) step: Step,
}

/// All that came and is not gone, by kind and name: version and content.
#[derive(Clone, Debug, Default)]
pub(super) struct State(pub(super) BTreeMap<(String, String), (String, Value)>);

impl State {
    /// What of it a step has to do with.
    pub(super) fn part(&self, step: &Step) -> Self {
        let names = step.resources.iter().map(|(name, ..)| name).chain(&step.removed);
        let keys = names.map(|name| (step.kind.clone(), name.clone()));
        let part = keys.filter_map(|key| self.0.get(&key).cloned().map(|known| (key, known)));
        Self(part.collect())
    }

    pub(super) fn take(&mut self, step: &Step) {
        for name in &step.removed {
            self.0.remove(&(step.kind.clone(), name.clone()));
        }
        for (name, version, resource) in &step.resources {
            let key = (step.kind.clone(), name.clone());
            self.0.insert(key, (version.clone(), resource.clone()));
        }
    }
}

impl Recording {
    /// Reads a recording, or a `/config_dump`.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| failed(&error))?;
        // A device or pipe might never end.
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(failed(&format!("has more than {MAX_BYTES} bytes, which is the limit")));
        }
        let text = text(bytes).map_err(|why| failed(&why))?;
        if let Ok(dump) = serde_json::from_str::<Value>(&text)
            && dump["configs"].is_array()
        {
            return Ok(of_config_dump(&dump));
        }
        Self::of_lines(&text).map_err(|why| failed(&why))
    }

    fn of_lines(text: &str) -> Result<Self, String> {
        let mut lines = text.split_inclusive('\n').zip(1_u64..);
        let first = lines.next().and_then(|(line, _)| serde_json::from_str::<Value>(line).ok());
        let header = first.filter(|header| header["towpath_xds"] == 1);
        let Some(mut header) = header else {
            return Err("is neither a recording of `towpath xds dump` nor a config dump".to_owned());
        };
        let bootstrap = Some(header["bootstrap"].take()).filter(Value::is_object);
        let mut steps = Vec::new();
        for (line, number) in lines {
            let read = serde_json::from_str::<Value>(line);
            let step = match read {
                Ok(step) => step,
                // It was being written when the recording ended.
                Err(_) if !line.ends_with('\n') => break,
                Err(error) => return Err(format!("line {number}: {error}")),
            };
            let timed = timed(&step).ok_or_else(|| format!("line {number} is no update"))?;
            steps.push(timed);
        }
        Ok(Self { bootstrap, steps })
    }
}

impl Timed {
    /// The line of an update, with its end.
    pub(super) fn line(&self) -> String {
        let Step { kind, version, resources, removed, rejected } = &self.step;
        let resource = |(name, version, resource): &(String, String, Value)| {
            json!({"name": name, "version": version,
            "resource": resource})
        };
        let mut line = json!({
            "at_ms": self.at_ms,
            "type": kind,
            "version": version,
            "resources": resources.iter().map(resource).collect::<Vec<_>>(),
            "removed": removed,
            "rejected": pairs(rejected),
        })
        .to_string();
        line.push('\n');
        line
    }

    /// What it is, for people.
    pub(super) fn title(&self, number: u64) -> String {
        let Step { kind, version, resources, removed, rejected } = &self.step;
        let mut title = format!(
            "step {number}, {:.3} s: {} version '{version}', {} resources",
            self.at_ms as f64 / 1000.0,
            short(kind),
            resources.len()
        );
        for (count, what) in [(removed.len(), "removed"), (rejected.len(), "refused")] {
            if count > 0 {
                title += &format!(", {count} {what}");
            }
        }
        title
    }
}

/// The first line.
pub(super) fn header(bootstrap: &Value) -> String {
    let mut line = json!({"towpath_xds": 1, "bootstrap": bootstrap}).to_string();
    line.push('\n');
    line
}

pub(super) fn pairs(rejected: &[(String, String)]) -> Value {
    let one = |(name, reason): &(String, String)| json!({"name": name, "reason": reason});
    rejected.iter().map(one).collect()
}

/// A message's name without its package.
pub(super) fn short(message: &str) -> &str {
    message.rsplit_once('.').map_or(message, |(_, name)| name)
}

/// Text for a terminal, which does what control characters in names tell it.
pub(super) fn printable(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\n' {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Whether something was left out of a resource because it is secret.
pub(super) fn is_redacted(resource: &Value) -> bool {
    match resource {
        // The second is the first as bytes.
        Value::String(text) => text == "[redacted]" || text == "W3JlZGFjdGVkXQ==",
        Value::Array(items) => items.iter().any(is_redacted),
        Value::Object(fields) => fields.values().any(is_redacted),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// What was read as text, but for a character that was cut off at the end.
fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).or_else(|error| {
        let cause = error.utf8_error();
        if cause.error_len().is_some() {
            return Err(cause.to_string());
        }
        let mut bytes = error.into_bytes();
        bytes.truncate(cause.valid_up_to());
        String::from_utf8(bytes).map_err(|error| error.to_string())
    })
}

fn timed(line: &Value) -> Option<Timed> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |name: &str| line[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let resource =
        |it: &Value| Some((text(&it["name"])?, text(&it["version"])?, it.get("resource")?.clone()));
    let step = Step {
        kind: text(&line["type"]).filter(|kind| Type::of_message(kind).is_some())?,
        version: text(&line["version"])?,
        resources: list("resources").iter().map(resource).collect::<Option<_>>()?,
        removed: list("removed").iter().map(text).collect::<Option<_>>()?,
        rejected: list("rejected")
            .iter()
            .map(|it| Some((text(&it["name"])?, text(&it["reason"])?)))
            .collect::<Option<_>>()?,
    };
    Some(Timed { at_ms: line["at_ms"].as_u64()?, step })
}

/// What a proxy shows of itself, as if it had come at once.
fn of_config_dump(dump: &Value) -> Recording {
    let mut recording = Recording::default();
    let mut found: BTreeMap<Type, Step> = BTreeMap::new();
    for section in dump["configs"].as_array().into_iter().flatten() {
        if section["bootstrap"].is_object() {
            recording.bootstrap = Some(section["bootstrap"].clone());
        }
        for (list, states, field, kind) in LISTS {
            for element in section[list].as_array().into_iter().flatten() {
                // Of a listener the one that serves comes first.
                let holders = if states.is_empty() {
                    vec![element]
                } else {
                    states
                        .iter()
                        .map(|state| &element[*state])
                        .filter(|it| it.is_object())
                        .take(1)
                        .collect()
                };
                for holder in holders {
                    let Value::Object(resource) = &holder[field] else { continue };
                    let resource: Map<String, Value> = resource
                        .iter()
                        .filter(|(name, _)| *name != "@type")
                        .map(|(name, it)| (name.clone(), it.clone()))
                        .collect();
                    let name = ["name", "cluster_name"]
                        .iter()
                        .find_map(|name| resource.get(*name)?.as_str());
                    let Some(name) = name.map(str::to_owned) else { continue };
                    let version = holder["version_info"].as_str().unwrap_or_default().to_owned();
                    let step = found.entry(kind).or_insert_with(|| Step {
                        kind: kind.message().to_owned(),
                        version: section["version_info"].as_str().unwrap_or(&version).to_owned(),
                        ..Step::default()
                    });
                    step.resources.push((name, version, resource.into()));
                }
            }
        }
    }
    recording.steps = found.into_values().map(|step| Timed { at_ms: 0, step }).collect();
    recording
}

type List = (&'static str, &'static [&'static str], &'static str, Type);

/// Where a config dump has what came: the list, the states of an element, the field, the kind.
const LISTS: [List; 7] = [
    ("dynamic_active_clusters", &[], "cluster", Type::Cluster),
    ("dynamic_warming_clusters", &[], "cluster", Type::Cluster),
    ("dynamic_endpoint_configs", &[], "endpoint_config", Type::Endpoints),
    ("dynamic_listeners", &["active_state", "warming_state"], "listener", Type::Listener),
    ("dynamic_route_configs", &[], "route_config", Type::Routes),
    ("dynamic_active_secrets", &[], "secret", Type::Secret),
    ("ecds_filters", &[], "ecds_filter", Type::Extension),
];

/// The largest file that is read.
const MAX_BYTES: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> String {
        let step = |version: &str| Step {
            kind: Type::Cluster.message().to_owned(),
            version: version.to_owned(),
            resources: vec![("a".to_owned(), version.to_owned(), json!({"name": "a"}))],
            removed: vec!["b".to_owned()],
            rejected: vec![("c".to_owned(), "why".to_owned())],
        };
        let lines = ["1", "2"].map(|version| Timed { at_ms: 7, step: step(version) }.line());
        header(&json!({"node": {"id": "me"}})) + &lines.concat()
    }

    #[test]
    fn a_recording_that_was_cut_off_has_all_whole_lines() {
        let whole = recorded();
        let ends: Vec<usize> = whole.match_indices('\n').map(|(at, _)| at).collect();
        for cut in ends[0] + 1..=whole.len() {
            let read = Recording::of_lines(&whole[..cut]).unwrap();
            let expected = ends.iter().skip(1).filter(|end| cut >= **end).count();
            assert_eq!(read.steps.len(), expected, "{cut}");
            assert_eq!(read.bootstrap.unwrap()["node"]["id"], "me");
        }
        let read = Recording::of_lines(&whole).unwrap();
        assert_eq!(read.steps.iter().map(Timed::line).collect::<String>(), &whole[ends[0] + 1..]);
    }

    #[test]
    fn a_character_that_was_cut_off_is_no_harm() {
        let whole = header(&json!({"node": {"id": "mé"}}));
        for cut in 0..=whole.len() {
            let read = text(whole.as_bytes()[..cut].to_vec()).unwrap();
            assert!(whole.starts_with(&read) && cut - read.len() <= 1, "{cut}");
        }
        assert!(text(b"a\xffb".to_vec()).is_err());
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for text in
            ["", "{}\n", "{\"towpath_xds\":1}\nx\n", "{\"towpath_xds\":1}\n{\"type\":\"a.B\"}\n"]
        {
            assert!(Recording::of_lines(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_config_dump_will_do() {
        let dump = json!({"configs": [
            {"@type": "x", "bootstrap": {"node": {}}},
            {"@type": "y", "version_info": "7", "dynamic_active_clusters": [
                {"version_info": "6", "cluster": {"@type": "z", "name": "a"}}]},
            {"@type": "l", "dynamic_listeners": [
                {"name": "in", "active_state": {"version_info": "1", "listener": {"name": "in"}},
                 "warming_state": {"version_info": "2", "listener": {"name": "other"}}}]},
        ]});
        let read = of_config_dump(&dump);
        let steps: Vec<&Step> = read.steps.iter().map(|timed| &timed.step).collect();
        assert_eq!(steps[0].version, "7");
        assert_eq!(steps[0].resources, [("a".to_owned(), "6".to_owned(), json!({"name": "a"}))]);
        assert_eq!(steps[1].resources[0].0, "in");
        assert!(read.bootstrap.is_some());
    }

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(printable("é\u{1b}[2J\n\r\u{9b}"), "é\\u{1b}[2J\n\\r\\u{9b}");
    }

    #[test]
    fn what_is_secret_is_noticed() {
        assert!(is_redacted(&json!({"a": [{"b": "W3JlZGFjdGVkXQ=="}]})));
        assert!(!is_redacted(&json!({"a": [{"b": "c"}, 1, null]})));
    }
}
