//! A Lua state of one worker for one script, within limits.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::thread::ThreadStatus;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Thread, Value, VmState,
};

/// A script that was loaded once already.
pub struct Script {
    source: Box<str>,
    name: Box<str>,
}

/// Why a script cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptError {
    /// It is no Lua.
    Syntax(String),
    /// What stands outside of its functions fails here.
    Run(String),
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Script {
    /// Loads a script to see that it can be.
    ///
    /// # Errors
    /// When it is no Lua, or fails outside of its functions.
    pub fn new(source: &str, name: &str) -> Result<Self, ScriptError> {
        let script = Self { source: source.into(), name: name.into() };
        match Machine::new(&script) {
            Ok(_) => Ok(script),
            Err(error @ mlua::Error::SyntaxError { .. }) => {
                Err(ScriptError::Syntax(error.to_string()))
            }
            Err(error) => Err(ScriptError::Run(text_of(&error))),
        }
    }
}

/// The state, with what a stream needs of it.
pub(super) struct Machine {
    lua: Lua,
    /// The functions that the script has defined.
    pub(super) on_request: Option<Function>,
    pub(super) on_response: Option<Function>,
    /// The script may ask other servers.
    pub(super) asks: bool,
    handle: Function,
    /// What the prelude's questions begin with.
    token: Table,
    budget: Budget,
}

/// The steps that a script has left.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Rc<Cell<u32>>);

impl Budget {
    fn renew(&self) {
        self.0.set(MOST_STEPS);
    }

    /// Takes steps for what Lua does not count.
    pub(super) fn spend(&self, steps: u32) -> mlua::Result<()> {
        self.0.set(self.0.get().saturating_sub(steps));
        match self.0.get() {
            0 => Err(mlua::Error::runtime(TOO_LONG)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

/// What a script wants that goes on later.
#[derive(Debug)]
pub(super) enum Asked {
    /// Nothing: it is over.
    Done,
    Body {
        always: bool,
    },
    Chunk,
    Trailers,
    Respond {
        headers: Value,
        body: Value,
    },
    Call {
        request: Question,
        duplicates: bool,
    },
    /// A request whose answer it does not want.
    Send(Question),
}

/// A request to another server.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) cluster: Value,
    pub(super) headers: Value,
    pub(super) body: Value,
    pub(super) timeout: Value,
    /// `trace_sampled`.
    pub(super) sampled: Value,
}

impl Machine {
    pub(super) fn new(script: &Script) -> mlua::Result<Self> {
        let libraries =
            StdLib::COROUTINE | StdLib::TABLE | StdLib::STRING | StdLib::UTF8 | StdLib::MATH;
        let lua = Lua::new_with(libraries | StdLib::OS, LuaOptions::default())?;
        lua.set_memory_limit(MOST_MEMORY)?;
        let budget = Budget::default();
        let token = lua.create_table()?;
        let counted = budget.clone();
        let spent = lua.create_function(move |_, ()| counted.spend(0))?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        budget.renew();
        let handle: Function = prelude.call((&token, spent))?;
        let counted = budget.clone();
        let triggers = HookTriggers::new().every_nth_instruction(STEP);
        lua.set_global_hook(triggers, move |_, _| counted.spend(1).map(|()| VmState::Continue))?;
        let chunk = lua.load(&*script.source).set_name(format!("={}", script.name));
        let main = chunk.set_mode(ChunkMode::Text).into_function()?;
        let thread = lua.create_thread(main)?;
        let _: MultiValue = thread.resume(())?;
        if thread.status() == ThreadStatus::Resumable {
            return Err(mlua::Error::runtime("script performed an unexpected yield"));
        }
        let globals = lua.globals();
        let on_request = globals.get("envoy_on_request")?;
        let on_response = globals.get("envoy_on_response")?;
        let asks = script.source.contains("httpCall");
        Ok(Self { lua, on_request, on_response, asks, handle, token, budget })
    }

    pub(super) const fn lua(&self) -> &Lua {
        &self.lua
    }

    pub(super) fn budget(&self) -> Budget {
        self.budget.clone()
    }

    /// Begins one of the script's functions for a stream.
    pub(super) fn begin(
        &self,
        function: &Function,
        stream: impl mlua::UserData + 'static,
    ) -> mlua::Result<(Thread, Value)> {
        self.budget.renew();
        let stream = self.lua.create_userdata(stream)?;
        let handle = self.handle.call(stream)?;
        Ok((self.lua.create_thread(function.clone())?, handle))
    }

    /// Runs a function that asks for nothing; answers the last value that it says.
    pub(super) fn run(
        &self,
        function: &Function,
        shown: impl mlua::UserData + 'static,
    ) -> mlua::Result<Value> {
        self.budget.renew();
        let thread = self.lua.create_thread(function.clone())?;
        let said: MultiValue = thread.resume(self.lua.create_userdata(shown)?)?;
        if thread.status() == ThreadStatus::Resumable {
            return Err(mlua::Error::runtime("script performed an unexpected yield"));
        }
        Ok(said.into_iter().last().unwrap_or(Value::Nil))
    }

    /// Goes on with a function until it asks for something, or ends.
    pub(super) fn resume(
        &self,
        thread: &Thread,
        values: impl mlua::IntoLuaMulti,
    ) -> mlua::Result<Asked> {
        self.budget.renew();
        let said: MultiValue = thread.resume(values)?;
        if thread.status() != ThreadStatus::Resumable {
            return Ok(Asked::Done);
        }
        self.asked(said).ok_or_else(|| mlua::Error::runtime("script performed an unexpected yield"))
    }

    fn asked(&self, said: MultiValue) -> Option<Asked> {
        let mut said = said.into_iter();
        let mut next = || said.next().unwrap_or(Value::Nil);
        if !matches!(next(), Value::Table(table) if table == self.token) {
            return None;
        }
        let Value::String(what) = next() else { return None };
        Some(match &*what.as_bytes() {
            b"body" => Asked::Body { always: next() == Value::Boolean(true) },
            b"chunk" => Asked::Chunk,
            b"trailers" => Asked::Trailers,
            b"respond" => Asked::Respond { headers: next(), body: next() },
            what @ (b"call" | b"send") => {
                let is_awaited = what == b"call";
                let (cluster, headers) = (next(), next());
                let (body, timeout, sampled) = (next(), next(), next());
                let request = Question { cluster, headers, body, timeout, sampled };
                match is_awaited {
                    true => Asked::Call { request, duplicates: next() == Value::Boolean(true) },
                    false => Asked::Send(request),
                }
            }
            _ => return None,
        })
    }

    /// Whether what a script has kept leaves too little room for others, so that the state is to be made anew.
    pub(super) fn is_full(&self) -> bool {
        if self.lua.used_memory() < MOST_MEMORY / 2 {
            return false;
        }
        self.lua.gc_collect().is_err() || self.lua.used_memory() > MOST_MEMORY / 2
    }
}

/// What an error says, without where it went through.
pub(super) fn text_of(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, .. } => cause.to_string(),
        mlua::Error::RuntimeError(text) => text.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

/// Of one state.
const MOST_MEMORY: usize = 16 << 20;
/// Instructions between two looks at the budget.
const STEP: u32 = 1000;
/// How many such steps a script has each time it runs: a million instructions.
const MOST_STEPS: u32 = 1000;
const TOO_LONG: &str = "the script takes too long";

#[cfg(test)]
mod tests;
