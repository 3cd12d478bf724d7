//! `envoy.router.cluster_specifier_plugin.lua`: a script that finds the cluster of a request.
//!
//! Arrives: the head of a request and the clusters that there are. Leaves: the name of one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, LuaString, UserData, UserDataMethods, Value};
use towpath_proto::Head;

use super::handle::wrong;
use super::machine::{Machine, Script, ScriptError, text_of};
use crate::field::Field;
use crate::filter::notes::{NoteLevel, Notes};
use crate::matcher::joined_values;

/// Envoy `extensions.router.cluster_specifiers.lua.v3.LuaConfig`.
#[derive(Debug)]
pub struct LuaSpecifier {
    /// `source_code`.
    script: Arc<Script>,
    /// `default_cluster`: where the script fails, or says no name.
    default: Arc<str>,
}

impl LuaSpecifier {
    /// A script; none where it does not have the function which is called.
    ///
    /// # Errors
    /// When it is no Lua, or fails outside of its functions.
    pub fn new(source: &str, default: Arc<str>) -> Result<Option<Self>, ScriptError> {
        let script = Script::new(source, "script")?;
        let machine = Machine::new(&script).map_err(|error| ScriptError::Run(text_of(&error)))?;
        Ok(on_route(&machine).map(|_| Self { script: Arc::new(script), default }))
    }
}

/// What is in use of a cluster, of both priorities.
pub(crate) struct ClusterUse {
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) pending: u64,
}

/// Says what is in use of the cluster with a name, if there is one.
pub(crate) type ClusterUses = Rc<dyn Fn(&str) -> Option<ClusterUse>>;

/// The scripts of one worker's chain that have run.
#[derive(Debug)]
pub(crate) struct Specifiers {
    notes: Rc<Notes>,
    machines: RefCell<Vec<(Arc<Script>, Rc<Machine>)>>,
}

impl Specifiers {
    pub(crate) fn new(notes: Rc<Notes>) -> Self {
        Self { notes, machines: RefCell::default() }
    }

    /// The name of the cluster of a request.
    pub(crate) fn find(
        &self,
        specifier: &LuaSpecifier,
        head: &Head,
        clusters: ClusterUses,
    ) -> Arc<str> {
        let found = self.machine(&specifier.script).and_then(|machine| {
            let found = run(&machine, head, clusters);
            if machine.is_full() {
                self.machines.borrow_mut().retain(|(_, known)| !Rc::ptr_eq(known, &machine));
            }
            found
        });
        found.unwrap_or_else(|error| {
            let text = format!("script log: {}, use default cluster", text_of(&error));
            self.notes.add(NoteLevel::Error, &text);
            Arc::clone(&specifier.default)
        })
    }

    fn machine(&self, script: &Arc<Script>) -> mlua::Result<Rc<Machine>> {
        let mut machines = self.machines.borrow_mut();
        if let Some((_, machine)) = machines.iter().find(|(known, _)| Arc::ptr_eq(known, script)) {
            return Ok(Rc::clone(machine));
        }
        let machine = Rc::new(Machine::new(script)?);
        machines.push((Arc::clone(script), Rc::clone(&machine)));
        Ok(machine)
    }
}

fn on_route(machine: &Machine) -> Option<Function> {
    machine.lua().globals().get(ON_ROUTE).ok()
}

fn run(machine: &Machine, head: &Head, clusters: ClusterUses) -> mlua::Result<Arc<str>> {
    let function = on_route(machine).ok_or_else(|| wrong("envoy_on_route is gone"))?;
    let seen = Seen { head: head.clone(), clusters };
    let shared = Rc::new(RefCell::new(Some(seen)));
    let said = machine.run(&function, RouteHandle(Rc::clone(&shared)));
    // What a script keeps of it shows nothing from here on.
    *shared.borrow_mut() = None;
    match said? {
        Value::String(name) => Ok(Arc::from(name.to_string_lossy())),
        Value::Integer(number) => Ok(Arc::from(number.to_string())),
        Value::Number(number) => Ok(Arc::from(number.to_string())),
        _ => Err(wrong("return value is not string")),
    }
}

/// What a script may look at, while it runs.
struct Seen {
    head: Head,
    clusters: ClusterUses,
}

type Shared = Rc<RefCell<Option<Seen>>>;

fn look<R>(shared: &Shared, look: impl FnOnce(&Seen) -> R) -> mlua::Result<R> {
    shared.borrow().as_ref().map(look).ok_or_else(|| wrong("object used outside of proper scope"))
}

struct RouteHandle(Shared);

impl UserData for RouteHandle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("headers", |_, this, ()| Ok(RouteHeaders(Rc::clone(&this.0))));
        methods.add_method("getCluster", |_, this, name: LuaString| {
            let name = name.to_string_lossy();
            let is_there = look(&this.0, |seen| (seen.clusters)(&name).is_some())?;
            Ok(is_there.then(|| RouteCluster { name: (&*name).into(), shared: Rc::clone(&this.0) }))
        });
    }
}

struct RouteHeaders(Shared);

impl UserData for RouteHeaders {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, name: LuaString| {
            let field = Field::parse(&name.to_string_lossy().to_ascii_lowercase());
            let value = look(&this.0, |seen| {
                Some(joined_values(field.as_ref()?, &seen.head)?.into_owned())
            })?;
            value.map(|value| lua.create_string(value)).transpose()
        });
    }
}

struct RouteCluster {
    name: Box<str>,
    shared: Shared,
}

impl RouteCluster {
    fn count(&self, of: fn(ClusterUse) -> u64) -> mlua::Result<u64> {
        look(&self.shared, |seen| (seen.clusters)(&self.name).map_or(0, of))
    }
}

impl UserData for RouteCluster {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("numConnections", |_, this, ()| this.count(|it| it.connections));
        methods.add_method("numRequests", |_, this, ()| this.count(|it| it.requests));
        methods.add_method("numPendingRequests", |_, this, ()| this.count(|it| it.pending));
    }
}

const ON_ROUTE: &str = "envoy_on_route";
