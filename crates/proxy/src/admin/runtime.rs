//! `/runtime`: what the static layers of the bootstrap say.

use serde_json::{Map, Value, json};

use super::reply::Reply;
use crate::control::Control;

/// All keys with their value in each layer.
pub(super) fn runtime(control: &Control) -> Reply {
    let bootstrap = control.boot.borrow().bootstrap();
    let layers =
        bootstrap["layered_runtime"]["layers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&Value> = layers.iter().map(|layer| &layer["name"]).collect();
    super::json(&json!({"layers": names, "entries": entries(layers)}))
}

fn entries(layers: &[Value]) -> Map<String, Value> {
    let flat: Vec<Vec<(String, String)>> =
        layers.iter().map(|layer| flatten("", &layer["static_layer"])).collect();
    let mut entries = Map::new();
    let mut keys: Vec<&String> = flat.iter().flatten().map(|(key, _)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let values: Vec<&str> = flat
            .iter()
            .map(|layer| {
                layer.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value.as_str())
            })
            .collect();
        let last = values.iter().rev().find(|value| !value.is_empty()).copied().unwrap_or_default();
        entries.insert(key.clone(), json!({"layer_values": values, "final_value": last}));
    }
    entries
}

/// Nested objects are keys with dots.
fn flatten(prefix: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&key, value)
            })
            .collect(),
        Value::Null => Vec::new(),
        Value::String(text) => vec![(prefix.to_owned(), text.clone())],
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            vec![(prefix.to_owned(), value.to_string())]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_layers_win() {
        let layers = [
            json!({"name": "base", "static_layer": {"a.b": 3, "c": {"d": true}}}),
            json!({"name": "top", "static_layer": {"a": {"b": 4}}}),
            json!({"name": "admin", "admin_layer": {}}),
        ];
        let expected = json!({
            "a.b": {"layer_values": ["3", "4", ""], "final_value": "4"},
            "c.d": {"layer_values": ["true", "", ""], "final_value": "true"},
        });
        assert_eq!(Value::from(entries(&layers)), expected);
    }
}
