//! `shadow_mode`: what a server has decided is left in the filter state, and the request goes on.

use crate::filter::RequestView;
use crate::json::json_string;
use crate::stream_info::{StateObject, Struct, Value};

/// A field of a refusal: its name and its value.
pub(super) type Shown = (Vec<u8>, Vec<u8>);

/// Writes a decision down, as Envoy's `ShadowDecision`.
pub(super) fn note(request: &RequestView<'_>, result: &str, status: u16, fields: &[Shown]) {
    let Some(info) = request.facts.info else { return };
    let name = format!("{}.shadow", request.route.filter);
    // What is too much for one stream is left out.
    let _ = info.set_state(&name, decision(result, status, fields));
}

fn decision(result: &str, status: u16, fields: &[Shown]) -> StateObject {
    let entries = [
        ("check_result", Value::text(result.as_bytes())),
        ("status_code", Value::Number(status.into())),
    ];
    let entries: Struct = entries.map(|(name, value)| (name.into(), value)).into();
    StateObject {
        value: written(["check_result", "status_code", "response_headers"], result, status, fields),
        json: Some(written(
            ["checkResult", "statusCode", "responseHeaders"],
            result,
            status,
            fields,
        )),
        fields: Some(entries),
        ..StateObject::default()
    }
}

/// The message as JSON, with these names of its fields.
fn written(names: [&str; 3], result: &str, status: u16, fields: &[Shown]) -> Box<[u8]> {
    let [of_result, of_status, of_fields] = names;
    let mut out = format!("{{\"{of_result}\":\"{result}\",\"{of_status}\":{status}").into_bytes();
    for (at, (name, value)) in fields.iter().enumerate() {
        match at {
            0 => out.extend_from_slice(format!(",\"{of_fields}\":[").as_bytes()),
            _ => out.push(b','),
        }
        out.extend_from_slice(b"{\"key\":");
        json_string(&mut out, name);
        out.extend_from_slice(b",\"value\":");
        json_string(&mut out, value);
        out.push(b'}');
    }
    out.extend_from_slice(if fields.is_empty() { b"}" } else { b"]}" });
    out.into()
}

pub(super) const OK: &str = "OK";
pub(super) const DENIED: &str = "DENIED";
pub(super) const ERROR: &str = "ERROR";
