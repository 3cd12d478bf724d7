//! Maps of values that scripts read: what the configuration says, and dynamic metadata.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, Lua, LuaString, MetaMethod, UserData, UserDataMethods, Value};

use super::handle::{Shared, any, wrong};
use super::values;
use crate::stream_info::{FilterMetadata, Struct, Value as Held};

/// What the configuration says to a script.
#[derive(Clone, Debug, Default)]
pub(super) struct Configured {
    /// `metadata` of the route.
    pub(super) route: FilterMetadata,
    /// `metadata` of the virtual host.
    pub(super) virtual_host: FilterMetadata,
    /// `filter_context`.
    pub(super) context: FilterMetadata,
}

/// A map, where it is.
#[derive(Clone, Debug)]
pub(super) enum Entries {
    Nothing,
    /// A part of the configuration.
    Whole(Arc<Struct>),
    /// The same, under one name.
    Under(Arc<Struct>, Arc<str>),
    /// The dynamic metadata of the stream, by namespace.
    Stream(Shared),
    /// That of its connection.
    Connection(Rc<Struct>),
}

/// `metadata()`, `filterContext()`, `connectionStreamInfo():dynamicMetadata()`.
pub(super) struct Map(pub(super) Entries);

/// `streamInfo():dynamicMetadata()`.
pub(super) struct Metadata(pub(super) Shared);

/// `route()`, `virtualHost()`.
pub(super) struct Place {
    pub(super) metadata: FilterMetadata,
    pub(super) filter: Arc<str>,
}

impl Entries {
    /// What `metadata` says under the first of these names that it has.
    pub(super) fn under(metadata: &FilterMetadata, names: &[&Arc<str>]) -> Self {
        let Some(all) = metadata else { return Self::Nothing };
        let name = names.iter().find(|name| all.contains_key::<str>(name));
        name.map_or(Self::Nothing, |name| Self::Under(Arc::clone(all), Arc::clone(name)))
    }

    pub(super) fn whole(all: &FilterMetadata) -> Self {
        all.as_ref().map_or(Self::Nothing, |all| Self::Whole(Arc::clone(all)))
    }

    fn read<R>(&self, read: impl FnOnce(&Struct) -> R) -> R {
        let none = Struct::new();
        match self {
            Self::Nothing => read(&none),
            Self::Whole(all) => read(all),
            Self::Under(all, name) => match all.get(&**name) {
                Some(Held::Struct(entries)) => read(entries),
                _ => read(&none),
            },
            Self::Stream(shared) => match &shared.borrow().info {
                Some(info) => info.read_all(read),
                None => read(&none),
            },
            Self::Connection(all) => read(all),
        }
    }

    fn get(&self, lua: &Lua, key: &str) -> mlua::Result<Option<Value>> {
        self.read(|all| all.get(key).map(|value| values::to_lua(lua, value)).transpose())
    }

    /// What `pairs()` goes on with. It keeps where it is, not what is there.
    fn pairs(&self, lua: &Lua) -> mlua::Result<Function> {
        let entries = self.clone();
        let mut last: Option<Box<str>> = None;
        lua.create_function_mut(move |lua, _: mlua::MultiValue| {
            let behind = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = entries.read(|all| {
                let next = all.range::<str, _>((behind, Bound::Unbounded)).next();
                next.map(|(key, value)| (key.clone(), values::to_lua(lua, value)))
            });
            let Some((key, value)) = next else { return Ok((None, None)) };
            let name = lua.create_string(&*key)?;
            last = Some(key);
            Ok((Some(name), Some(value?)))
        })
    }
}

impl UserData for Map {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, key: LuaString| {
            this.0.get(lua, &key.to_string_lossy()).map(any)
        });
        methods.add_meta_method(MetaMethod::Pairs, |lua, this, ()| this.0.pairs(lua));
    }
}

impl UserData for Metadata {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, namespace: LuaString| {
            let entries = Entries::Stream(Rc::clone(&this.0));
            entries.get(lua, &namespace.to_string_lossy()).map(any)
        });
        methods.add_method(
            "set",
            |_, this, (namespace, key, value): (LuaString, LuaString, Value)| {
                let entries: Struct =
                    [(key.to_string_lossy().into(), values::of_lua(&value, 0)?)].into();
                match &this.0.borrow().info {
                    Some(info) => info
                        .add_metadata(&namespace.to_string_lossy(), entries)
                        .map_err(|_| wrong("the stream's metadata is too much")),
                    None => Err(wrong("the stream is over")),
                }
            },
        );
        methods.add_meta_method(MetaMethod::Pairs, |lua, this, ()| {
            Entries::Stream(Rc::clone(&this.0)).pairs(lua)
        });
    }
}

impl UserData for Place {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("metadata", |_, this, ()| {
            Ok(Map(Entries::under(&this.metadata, &[&this.filter])))
        });
    }
}
