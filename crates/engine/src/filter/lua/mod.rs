//! `envoy.filters.http.lua`: scripts that look at requests and responses, and change them.
//!
//! Each worker has a Lua state for each script. A function of the script is a coroutine of its own for each stream;
//! what it waits for (content, an answer, trailers) it asks by yielding (`side.rs`). What a script may use of time and
//! memory is limited (`machine.rs`); one that fails is counted, and its stream goes on.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "Lua's values and errors are another library's: what is not expected is refused"
)]

mod answering;
mod entries;
mod handle;
mod info;
mod keys;
mod machine;
mod side;
mod specifier;
mod stats;
mod stream;
mod tls;
mod values;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use self::entries::Configured;
use self::handle::Shown;
use self::machine::{Machine, text_of};
pub use self::machine::{Script, ScriptError};
use self::side::{Has, Outcome, Side};
pub(crate) use self::specifier::ClusterUse;
pub use self::specifier::LuaSpecifier;
pub(crate) use self::specifier::Specifiers;
use self::stats::LuaStats;
use self::stream::LuaStream;
use super::notes::{NoteLevel, Notes};
use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, ResponseFilter, ResponseView,
    RouteConfig, RouteConfigs, StreamFilter,
};
use crate::format::Facts;
use crate::stream_info::FilterMetadata;

/// Envoy `extensions.filters.http.lua.v3.Lua`.
#[derive(Debug)]
pub struct LuaConfig {
    /// `inline_code`, `default_source_code`.
    pub script: Option<Arc<Script>>,
    /// `source_codes`, by the names that routes say.
    pub named: Vec<(Box<str>, Arc<Script>)>,
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `clear_route_cache`: a request that a script has changed is routed anew. Default true.
    pub clears_route: bool,
}

/// Envoy `LuaPerRoute`.
#[derive(Debug)]
pub struct RouteLua {
    /// `override`.
    pub script: RouteScript,
    /// `filter_context`: what the script is told.
    pub context: FilterMetadata,
}

/// Which script a route has.
#[derive(Debug)]
pub enum RouteScript {
    /// That of the filter.
    Default,
    /// None: `disabled`.
    Disabled,
    /// `name`: one of `source_codes`.
    Named(Box<str>),
    /// `source_code`.
    Own(Arc<Script>),
}

impl RouteConfig for RouteLua {}

/// The configuration, shared by all workers.
#[derive(Clone, Debug)]
pub struct SharedLua(pub Arc<LuaConfig>);

impl FilterConfig for SharedLua {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let names = scope.names("http_lua").part("towpath_lua_prefix", &self.0.stat_prefix);
        let stats = scope.named(names);
        let (config, notes) = (Arc::clone(&self.0), Rc::clone(&scope.notes));
        let (machines, name) = (RefCell::default(), OnceCell::new());
        Rc::new(Instance(Rc::new(Host { config, stats, notes, machines, name })))
    }

    fn reads_record(&self) -> bool {
        true
    }
}

/// What the streams of one worker's chain share.
#[derive(Debug)]
struct Host {
    config: Arc<LuaConfig>,
    stats: Arc<LuaStats>,
    notes: Rc<Notes>,
    machines: RefCell<Vec<(Arc<Script>, Rc<Machine>)>>,
    /// The filter's name in its chain, once it has seen a stream.
    name: OnceCell<Arc<str>>,
}

impl Host {
    /// What runs the script of a route.
    fn machine(&self, route: Option<&RouteLua>) -> Option<Rc<Machine>> {
        let script = match route.map(|route| &route.script) {
            None | Some(RouteScript::Default) => self.config.script.as_ref()?,
            Some(RouteScript::Disabled) => return None,
            Some(RouteScript::Own(script)) => script,
            Some(RouteScript::Named(name)) => {
                let named = self.config.named.iter().find(|(known, _)| known == name);
                &named?.1
            }
        };
        let mut machines = self.machines.borrow_mut();
        if let Some((_, machine)) = machines.iter().find(|(known, _)| Arc::ptr_eq(known, script)) {
            return Some(Rc::clone(machine));
        }
        // Scripts of routes that are gone.
        machines.retain(|(script, _)| Arc::strong_count(script) > 1);
        match Machine::new(script) {
            Ok(machine) => {
                let machine = Rc::new(machine);
                machines.push((Arc::clone(script), Rc::clone(&machine)));
                Some(machine)
            }
            Err(error) => {
                self.stats.errors.inc();
                self.notes.add(NoteLevel::Error, &text_of(&error));
                None
            }
        }
    }

    fn name(&self) -> Arc<str> {
        self.name.get().cloned().unwrap_or_default()
    }

    /// What the configuration says to the script of a stream.
    fn configured(&self, route: RouteConfigs<'_>, facts: &Facts<'_>) -> Configured {
        self.name.get_or_init(|| route.filter.into());
        Configured {
            route: facts.told.route.cloned(),
            virtual_host: facts.told.virtual_host.cloned(),
            context: route.first::<RouteLua>().and_then(|route| route.context.clone()),
        }
    }

    /// A script has failed. A state that it has filled is made anew for the next stream.
    fn fail(&self, error: &mlua::Error, machine: &Rc<Machine>) {
        self.stats.errors.inc();
        self.notes.add(NoteLevel::Error, &format!("script log: {}", text_of(error)));
        if machine.is_full() {
            self.machines.borrow_mut().retain(|(_, known)| !Rc::ptr_eq(known, machine));
        }
    }
}

#[derive(Debug)]
struct Instance(Rc<Host>);

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let Some(machine) = self.0.machine(request.route.first()) else { return OnRequest::Pass };
        let answers = machine.on_response.is_some();
        let Some(function) = machine.on_request.clone() else {
            return match answers {
                true => OnRequest::Watch(Box::new(LuaStream::new(&self.0, machine, None))),
                false => OnRequest::Pass,
            };
        };
        let configured = self.0.configured(request.route, request.facts);
        let begun = Side::begin(&self.0, &machine, &function, Shown::new(false, configured));
        let Some((mut side, values)) = begun else { return OnRequest::Pass };
        let has = Has { ends: request.is_empty, waits: !request.ends, asks: true };
        let outcome = side.run_request(&self.0, &machine, values, has, request);
        let waits_for_piece = side.waits_for_piece();
        let stream = Box::new(LuaStream::new(&self.0, machine, Some(side)));
        match outcome {
            Outcome::Done if stream.goes_on() => OnRequest::Watch(stream),
            Outcome::Done => OnRequest::Pass,
            Outcome::Wait if waits_for_piece => OnRequest::Watch(stream),
            Outcome::Wait => OnRequest::Collect(stream, MOST_CONTENT),
            Outcome::Ask(callout) => OnRequest::Ask(stream, callout),
            Outcome::Reply(reply) => OnRequest::Answer(reply),
        }
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Instance {
    fn join(&self, response: &mut ResponseView<'_>) -> Option<Box<dyn StreamFilter>> {
        let machine = self.0.machine(response.route.first())?;
        machine.on_response.as_ref()?;
        Some(Box::new(LuaStream::new(&self.0, machine, None)))
    }
}

/// Of a request or response, where a script wants it as a whole.
const MOST_CONTENT: usize = 1 << 20;

#[cfg(test)]
mod tests;
