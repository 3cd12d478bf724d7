//! Scripts.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::lua::{
    LuaConfig, RouteLua, RouteScript, Script, ScriptError, SharedLua,
};

use super::Known;
use crate::convert::Converter;
use crate::convert::metadata::structure;
use crate::message::{At, Message, Value};
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.lua.v3.Lua";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.lua.v3.LuaPerRoute";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| Some(Arc::new(SharedLua(Arc::new(converter.lua(config)?)))),
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    let script = match config.oneof("override").map(|field| field.descriptor.name()) {
        None => RouteScript::Default,
        Some("disabled") => RouteScript::Disabled,
        Some("name") => RouteScript::Named(config.text("name").into()),
        Some(_) => RouteScript::Own(converter.script_of(config.message("source_code")?)?),
    };
    let context = structure(config, "filter_context");
    let context = (!context.is_empty()).then(|| Arc::new(context));
    Some(Arc::new(RouteLua { script, context }))
}

impl Converter<'_> {
    fn lua(&mut self, config: &Message) -> Option<LuaConfig> {
        let inline = config.text("inline_code");
        let source = config.message("default_source_code");
        if source.is_some() && !inline.is_empty() {
            let text =
                "Only one of `inline_code` or `default_source_code` can be set for the Lua filter.";
            self.report.problem(&config.at, text);
        }
        let script = match source {
            Some(source) => Some(self.script_of(source)?),
            None if inline.is_empty() => None,
            None => Some(self.script(inline, config.at("inline_code"))?),
        };
        let mut named = Vec::new();
        for (name, item) in config.entries("source_codes") {
            if let Value::Message(source) = &item.value {
                self.accept(source);
                named.push((name.as_str().into(), self.script_of(source)?));
            }
        }
        Some(LuaConfig {
            script,
            named,
            stat_prefix: Arc::from(config.text("stat_prefix")),
            clears_route: config.wrapped_flag("clear_route_cache").unwrap_or(true),
        })
    }

    fn script_of(&mut self, source: &Message) -> Option<Arc<Script>> {
        let text = self.text_data(source, MOST_BYTES)?;
        self.script(&text, &source.at)
    }

    fn script(&mut self, text: &str, at: &At) -> Option<Arc<Script>> {
        for name in missing(text) {
            self.report.unsupported(at, format!("`{name}()` of scripts is not there"));
        }
        match Script::new(text, "script") {
            Ok(script) => Some(Arc::new(script)),
            Err(ScriptError::Syntax(error)) => {
                self.report.problem(at, format!("script load error: {error}"));
                None
            }
            Err(ScriptError::Run(error)) => {
                self.report.unsupported(at, format!("the script fails when it is loaded: {error}"));
                None
            }
        }
    }
}

/// What a script calls that is not there, each once.
fn missing(script: &str) -> Vec<&'static str> {
    let code = script.lines().map(|line| line.split("--").next().unwrap_or_default());
    let code: Vec<&str> = code.collect();
    let is_called = |name: &&&str| {
        let called = [format!(":{name}("), format!(":{name} (")];
        code.iter().any(|line| called.iter().any(|it| line.contains(it.as_str())))
    };
    NOT_THERE.iter().filter(is_called).copied().collect()
}

/// Of Envoy's stream handle and what it leads to.
const NOT_THERE: &[&str] = &["stats"];

/// Of a script.
pub(in crate::convert) const MOST_BYTES: usize = 1 << 20;

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "inline_code",
            "source_codes",
            "default_source_code",
            "stat_prefix",
            "clear_route_cache",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: ROUTE_TYPE,
        honoured: &["disabled", "name", "source_code", "filter_context"],
        harmless: &[],
        changes: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_not_there_are_named_once() {
        let script = "local s = handle:stats() -- and handle:stats()\nhandle:stats():counter('a')\n\
                      handle:stats ()";
        assert_eq!(missing(script), ["stats"]);
        assert!(
            missing("handle:metadata() handle:route() stats(handle) handle:mystats()").is_empty()
        );
    }
}
