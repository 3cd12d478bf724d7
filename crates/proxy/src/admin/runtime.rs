//! `/runtime`: what each layer of the runtime says. `/runtime_modify`: fills the admin layer.

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use towpath_config::Runtime;

use super::query::Query;
use super::reply::Reply;
use crate::control::Control;
use crate::discovery::Override;
use crate::reload::Wish;

/// All keys with their value in each layer.
pub(super) fn runtime(control: &Control) -> Reply {
    let boot = control.boot.borrow();
    let layers = boot.runtime.layers();
    let names: Vec<&str> = layers.iter().map(|layer| &*layer.name).collect();
    super::json(&json!({"layers": names, "entries": entries(&boot.runtime)}))
}

fn entries(runtime: &Runtime) -> Map<String, Value> {
    let layers = runtime.layers();
    let keys = layers.iter().flat_map(|layer| layer.values.keys());
    let shown = keys.map(|key| {
        let values: Vec<String> = layers.iter().map(|layer| layer.shown(key)).collect();
        let last = values.iter().rfind(|value| !value.is_empty()).cloned().unwrap_or_default();
        (key.clone(), json!({"layer_values": values, "final_value": last}))
    });
    shown.collect()
}

/// Takes values of the admin layer, and answers when they serve.
pub(super) async fn modify(control: &Control, query: &Query) -> Reply {
    if query.pairs().next().is_none() {
        return Reply::refused(StatusCode::BAD_REQUEST, USAGE);
    }
    if control.boot.borrow().runtime.admin_layer().is_none() {
        return Reply::refused(StatusCode::SERVICE_UNAVAILABLE, "No admin layer specified");
    }
    let before = control.overrides.borrow().clone();
    let mut values = before.clone();
    for (key, value) in query.pairs() {
        match value {
            "" => drop(values.remove(key)),
            value => drop(values.insert(key.to_owned(), value.to_owned())),
        }
    }
    if values.len() > MAX_OVERRIDES {
        return Reply::refused(StatusCode::BAD_REQUEST, "too many keys are overridden\n");
    }
    control.overrides.replace(values.clone());
    if control.is_driven {
        let Some(discovery) = control.to_discovery.borrow().clone() else {
            control.overrides.replace(before);
            return Reply::refused(StatusCode::SERVICE_UNAVAILABLE, "nothing serves yet\n");
        };
        let (teller, told) = oneshot::channel();
        let _ = discovery.send(Override { values, teller });
        // It is gone only when the process ends.
        let _ = told.await;
        return Reply::text("OK\n");
    }
    let (teller, told) = oneshot::channel();
    let _ = control.reload.send(Wish::Runtime(teller));
    match told.await {
        Ok(Ok(_)) => Reply::text("OK\n"),
        Ok(Err(why)) => {
            control.overrides.replace(before);
            Reply::refused(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
        }
        Err(_) => Reply::refused(StatusCode::SERVICE_UNAVAILABLE, "the program ends\n"),
    }
}

/// Keys that may be overridden at once.
const MAX_OVERRIDES: usize = 10_000;
/// Envoy's words.
const USAGE: &str = "usage: /runtime_modify?key1=value1&key2=value2&keyN=valueN
       use an empty value to remove a previously added override
";
