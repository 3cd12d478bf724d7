//! `/listeners`: which addresses are bound.

use serde_json::{Value, json};
use towpath_proto::Address;

use super::query::Query;
use super::reply::Reply;
use crate::control::Control;

/// Lists them, in the order of the file.
pub(super) fn listeners(control: &Control, query: &Query) -> Reply {
    let bound = control.listeners.borrow();
    let snapshot = control.snapshot.borrow();
    let rows = snapshot.listeners.iter().flat_map(|listener| {
        bound.of(&listener.name).map(|address| (listener.name.as_ref(), address))
    });
    if query.first("format") == Some("json") {
        let statuses: Vec<Value> = rows
            .map(|(name, local)| json!({"name": name, "local_address": address(local)}))
            .collect();
        return super::json(&json!({"listener_statuses": statuses}));
    }
    Reply::text(rows.map(|(name, address)| format!("{name}::{address}\n")).collect::<String>())
}

/// An `envoy.config.core.v3.Address` as JSON.
pub(super) fn address(address: &Address) -> Value {
    match address {
        Address::Ip(ip) => {
            json!({"socket_address": {"address": ip.ip().to_string(), "port_value": ip.port()}})
        }
        Address::Unix(path) => json!({"pipe": {"path": path.display().to_string()}}),
        Address::Internal(_) => json!({"envoy_internal_address": {
            "server_listener_name": address.internal(),
        }}),
    }
}
