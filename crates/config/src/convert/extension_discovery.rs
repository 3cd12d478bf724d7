//! Filters that a control plane gives (ECDS): `config_discovery`.

use std::sync::Arc;

use super::Converter;
use super::extension::Kind as Extends;
use crate::dynamic::Kind;
use crate::message::{Any, At, Message};

/// A filter's place, and what may stand there.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub(super) extends: Extends,
    /// What counters call it: `extension_config_discovery.<family>.<name>`.
    pub(super) family: &'static str,
    /// The types that are supported.
    pub(super) known: &'p [&'p str],
    /// Those of them that end a chain.
    pub(super) terminal: &'p [&'p str],
    /// It ends its chain.
    pub(super) is_last: bool,
}

/// What a filter is configured by.
pub(super) enum Found<'m> {
    Config(&'m Message),
    /// Nothing has come, and there is no default.
    Missing,
}

impl<'a> Converter<'a> {
    /// The configuration of a filter, its own or a control plane's, checked. `None` when it is not good.
    pub(super) fn filter_config<'m>(
        &mut self,
        holder: &'m Message,
        place: Place<'_>,
    ) -> Option<Found<'m>>
    where
        'a: 'm,
    {
        let Some(discovery) = holder.message("config_discovery") else {
            let (config, _) = self.extension(holder, place.extends, place.known)?;
            return Some(Found::Config(config));
        };
        let name = holder.text("name");
        let types = self.allowed_types(name, discovery, place);
        let default = self.default_config(name, discovery, &types, place);
        let is_awaited = !discovery.flag("apply_default_config_without_warming");
        if !is_awaited && default.is_none() && !discovery.has("default_config") {
            let text = format!(
                "Error: filter config {name} applied without warming but has no default config."
            );
            self.report.problem(&discovery.at, text);
        }
        let source = discovery.message("config_source")?;
        self.node_is_known(&holder.at)?;
        self.need(Kind::Extension, name, source, place.family)?;
        if let Some(need) = self.needs_of_one.last_mut() {
            need.is_awaited = is_awaited;
        }
        let found = self.discovered_config(name, &types, place).or(default);
        Some(found.map_or(Found::Missing, Found::Config))
    }

    /// What came, if it is for this place.
    fn discovered_config(
        &mut self,
        name: &str,
        types: &[&str],
        place: Place<'_>,
    ) -> Option<&'a Message> {
        let found = self.discovered.resource(Kind::Extension, name)?;
        self.files = self.files.rotate_left(1) ^ self.print(found);
        self.accept(found);
        // Without one the rules have told.
        let (any, at) = found.any("typed_config")?;
        if let Err(why) = fits(name, any, types, place) {
            if self.discovered.is_judged(&found.at) {
                self.report.problem(at, why);
            } else {
                let listener = Arc::clone(&self.listener);
                self.conflicts.insert((Arc::from(place.family), Arc::from(name), listener));
            }
            return None;
        }
        self.typed_extension(name, any, at, place.extends, place.known)
    }

    fn default_config<'m>(
        &mut self,
        name: &str,
        discovery: &'m Message,
        types: &[&str],
        place: Place<'_>,
    ) -> Option<&'m Message> {
        let (any, at) = discovery.any("default_config")?;
        if let Err(why) = fits(name, any, types, place) {
            self.report.problem(at, why);
            return None;
        }
        self.typed_extension(name, any, at, place.extends, place.known)
    }

    /// `type_urls`. All of them have to be supported: otherwise a filter that is refused when it comes would have its
    /// listener, which serves without it so far, answer 500.
    fn allowed_types<'m>(
        &mut self,
        name: &str,
        discovery: &'m Message,
        place: Place<'_>,
    ) -> Vec<&'m str> {
        let urls: Vec<(&str, &At)> = discovery.texts("type_urls").collect();
        let type_of = |url: &'m str| url.rsplit_once('/').map_or(url, |(_, name)| name);
        let types: Vec<&str> = urls.iter().map(|(url, _)| type_of(url)).collect();
        for (of, (_, at)) in types.iter().zip(&urls) {
            if !place.extends.may_have(of) {
                let text = format!("Error: no factory found for a required type URL {of}.");
                self.report.problem(at, text);
            } else if !place.known.contains(of) {
                self.report.unsupported(at, format!("`{name}`: {of} is not there"));
            }
        }
        types
    }
}

/// Whether a configuration may stand in a place. The words are Envoy's.
fn fits(name: &str, any: &Any, types: &[&str], place: Place<'_>) -> Result<(), String> {
    let of = &any.name;
    if !types.contains(&of.as_str()) {
        let types = types.join(", ");
        return Err(format!("Error: filter config has type URL {of} but expect {types}."));
    }
    match (place.terminal.contains(&of.as_str()), place.is_last) {
        (true, false) => {
            Err(format!("Error: terminal filter named {name} of type {of} must be the last filter"))
        }
        (false, true) => {
            Err(format!("Error: non-terminal filter named {name} of type {of} is the last filter"))
        }
        (true, true) | (false, false) => Ok(()),
    }
}
