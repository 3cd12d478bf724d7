//! `streamInfo()` and `connectionStreamInfo()`: what is known of a stream and of its connection.

use std::rc::Rc;
use std::sync::Arc;

use mlua::{LuaString, UserData, UserDataMethods, Value};

use super::entries::{Entries, Map, Metadata};
use super::handle::{Shared, any, wrong};
use super::tls::Tls;
use super::values;
use crate::proxied::Proxied;
use crate::record::metadata_of_connection;
use crate::stream_info::{FilterMetadata, Refused, StateObject, Value as Held};

/// `streamInfo()`.
pub(super) struct Info(pub(super) Shared);

/// `connectionStreamInfo()`.
pub(super) struct ConnectionInfo {
    pub(super) proxied: Option<Arc<Proxied>>,
    pub(super) left: FilterMetadata,
}

/// `streamInfo():filterState()`.
struct State(Shared);

impl UserData for Info {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("protocol", |_, this, ()| Ok(this.0.borrow().told.protocol));
        methods.add_method("routeName", |_, this, ()| Ok(this.0.borrow().told.route.to_string()));
        methods.add_method("virtualClusterName", |_, this, ()| {
            Ok(this.0.borrow().told.virtual_cluster.to_string())
        });
        methods.add_method("requestedServerName", |_, this, ()| {
            Ok(this.0.borrow().told.server_name.to_string())
        });
        methods.add_method("downstreamLocalAddress", |_, this, ()| {
            Ok(this.0.borrow().told.local.as_ref().map(ToString::to_string))
        });
        methods.add_method("downstreamDirectRemoteAddress", |_, this, ()| {
            Ok(this.0.borrow().told.direct.as_ref().map(ToString::to_string))
        });
        methods.add_method("downstreamRemoteAddress", |_, this, ()| {
            Ok(this.0.borrow().told.remote.as_ref().map(ToString::to_string))
        });
        methods.add_method("dynamicMetadata", |_, this, ()| Ok(Metadata(Rc::clone(&this.0))));
        // What filters leave there they leave as structs.
        methods.add_method("dynamicTypedMetadata", |_, _, _: LuaString| Ok(Value::Nil));
        methods.add_method("downstreamDirectLocalAddress", |_, this, ()| {
            Ok(this.0.borrow().told.local.as_ref().map(ToString::to_string))
        });
        methods.add_method("downstreamSslConnection", |_, this, ()| {
            Ok(this.0.borrow().told.tls.clone().map(Tls))
        });
        methods.add_method("drainConnectionUponCompletion", |_, this, ()| {
            if let Some(info) = &this.0.borrow().info {
                info.drain_connection();
            }
            Ok(())
        });
        methods.add_method("filterState", |_, this, ()| Ok(State(Rc::clone(&this.0))));
    }
}

impl UserData for ConnectionInfo {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("dynamicMetadata", |_, this, ()| {
            let metadata = metadata_of_connection(&this.left, this.proxied.as_deref());
            Ok(Map(Entries::Connection(Rc::new(metadata))))
        });
        methods.add_method("dynamicTypedMetadata", |lua, this, namespace: LuaString| {
            let name = namespace.to_string_lossy();
            let values = lua.create_table()?;
            for (of, key, value) in this.proxied.iter().flat_map(|proxied| proxied.typed()) {
                if of == &*name {
                    values.set(key, lua.create_string(value)?)?;
                }
            }
            if values.is_empty() {
                return Ok(None);
            }
            // A `data.core.v3.TlvsMetadata`.
            lua.create_table_from([("typed_metadata", values)]).map(Some)
        });
    }
}

impl UserData for State {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, (name, field): (LuaString, Option<LuaString>)| {
            let shown = this.0.borrow();
            let Some(info) = &shown.info else { return Ok(any(None)) };
            let read = |object: Option<&StateObject>| match (object, &field) {
                (None, _) => Ok(None),
                (Some(StateObject { fields: Some(_), value, .. }), None) if value.is_empty() => {
                    Ok(None)
                }
                (Some(object), None) => {
                    lua.create_string(&object.value).map(|text| Some(Value::String(text)))
                }
                (Some(object), Some(field)) => {
                    let fields = object.fields.as_ref();
                    let value = fields.and_then(|it| it.get(&*field.to_string_lossy()));
                    let said = value.filter(|it| matches!(it, Held::String(_) | Held::Number(_)));
                    said.map(|value| values::to_lua(lua, value)).transpose()
                }
            };
            info.read_state(&name.to_string_lossy(), read).map(any)
        });
        methods.add_method(
            "set",
            |_, this, (name, maker, value): (LuaString, LuaString, LuaString)| {
                let (name, maker) = (name.to_string_lossy(), maker.to_string_lossy());
                if !["envoy.string", HASHABLE].contains(&maker.as_str()) {
                    return Err(wrong(&format!("'{maker}' does not have an object factory")));
                }
                if NUMBERS.contains(&name.as_str()) {
                    return Err(wrong(&format!(
                        "'{name}' is a number, which '{maker}' does not make"
                    )));
                }
                let shown = this.0.borrow();
                let Some(info) = &shown.info else { return Err(wrong("the stream is over")) };
                let value = value.as_bytes().as_ref().into();
                let object =
                    StateObject { value, is_hashable: maker == HASHABLE, ..StateObject::default() };
                info.set_state(&name, object).map_err(|refused| match refused {
                    Refused::TooMuch => wrong("the stream's filter state is too much"),
                    Refused::ReadOnly => wrong("the object may not be replaced"),
                })
            },
        );
    }
}

/// What makes objects that may be a part of a request's hash.
const HASHABLE: &str = "envoy.hashable_string";
/// What is read as a number here; Envoy reads no text there either.
const NUMBERS: [&str; 2] = ["envoy.ratelimit.hits_addend", "envoy.upstream.dynamic_port"];
