//! Cluster specifier plugins: what finds the cluster of a request in place of its route.

use std::collections::HashMap;
use std::sync::Arc;

#[cfg(feature = "lua")]
use towpath_engine::filter::lua::{LuaSpecifier, ScriptError};
use towpath_engine::matcher::Input;
use towpath_engine::snapshot::specifier::Specifier;

use super::Converter;
use super::extension::CLUSTER_SPECIFIER;
#[cfg(feature = "lua")]
use super::filter::lua::MOST_BYTES;
use super::matcher_tree::{About, Place};
use crate::error::Rank;
use crate::message::Message;

/// Those of a route table, by their names. One that is wrong is there too, so that routes do not miss it.
pub(super) type Specifiers = HashMap<Box<str>, Option<Arc<Specifier>>>;

impl Converter<'_> {
    /// `cluster_specifier_plugins`.
    pub(super) fn specifiers(&mut self, table: &Message) -> Specifiers {
        let mut specifiers = Specifiers::new();
        for plugin in table.messages("cluster_specifier_plugins") {
            let Some(extension) = plugin.message("extension") else { continue };
            let specifier = self.specifier(plugin);
            specifiers.insert(extension.text("name").into(), specifier);
        }
        specifiers
    }

    /// One plugin.
    pub(super) fn specifier(&mut self, plugin: &Message) -> Option<Arc<Specifier>> {
        let extension = plugin.message("extension")?;
        let of_envoy = |name: &str| ENVOYS.contains(&name);
        let other = extension.any("typed_config").filter(|(any, _)| !of_envoy(&any.name));
        if let Some((any, at)) = other {
            if !plugin.flag("is_optional") {
                let text = format!("there is no cluster specifier plugin of type `{}`", any.name);
                self.report.problem(at, text);
                return None;
            }
            let text = "is not there, and optional: what is routed to it has no route";
            self.report.finding(&extension.at, Rank::Harmless, text);
            return Some(Arc::new(Specifier::Missing));
        }
        let (config, _) = self.extension(extension, CLUSTER_SPECIFIER, KNOWN)?;
        let specifier = match config.descriptor.full_name() {
            MATCHER => self.cluster_matcher(config)?,
            #[cfg(feature = "lua")]
            _ => Specifier::Lua(self.lua_specifier(config)?),
            #[cfg(not(feature = "lua"))]
            _ => return None,
        };
        Some(Arc::new(specifier))
    }

    fn cluster_matcher(&mut self, config: &Message) -> Option<Specifier> {
        let place = Place {
            name: "a matcher of clusters",
            allows: |input| !(input.is_of_arrival() || matches!(input, Input::Attributes)),
            about: About::Stream,
        };
        let matcher = config.message("cluster_matcher")?;
        let tree = self.matcher_tree(matcher, place, &[CLUSTER_ACTION], &mut |_, action| {
            Some(Arc::from(action.text("cluster")))
        })?;
        Some(Specifier::Matcher(tree))
    }

    #[cfg(feature = "lua")]
    fn lua_specifier(&mut self, config: &Message) -> Option<LuaSpecifier> {
        let source = config.message("source_code")?;
        let default = config.text("default_cluster").into();
        let text = self.text_data(source, MOST_BYTES)?;
        match LuaSpecifier::new(&text, default) {
            Ok(Some(specifier)) => return Some(specifier),
            Ok(None) => self.report.problem(&source.at, "the script has no `envoy_on_route()`"),
            Err(ScriptError::Syntax(error)) => {
                self.report.problem(&source.at, format!("script load error: {error}"));
            }
            Err(ScriptError::Run(error)) => {
                let text = format!("the script fails when it is loaded: {error}");
                self.report.unsupported(&source.at, text);
            }
        }
        None
    }
}

const MATCHER: &str =
    "envoy.extensions.router.cluster_specifiers.matcher.v3.MatcherClusterSpecifier";
const CLUSTER_ACTION: &str = "envoy.extensions.router.cluster_specifiers.matcher.v3.ClusterAction";
const LUA: &str = "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig";
/// Those of Envoy's own program: to be optional does not help one of these.
const ENVOYS: &[&str] = &[
    MATCHER,
    LUA,
    "envoy.extensions.router.cluster_specifiers.dynamic_modules.v3.DynamicModuleClusterSpecifier",
];
/// Those that are here.
const KNOWN: &[&str] = &[
    MATCHER,
    #[cfg(feature = "lua")]
    LUA,
];
