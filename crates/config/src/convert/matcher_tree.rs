//! Matcher trees: `xds.type.matcher.v3.Matcher`, and the older message of Envoy's own, whose fields have the same
//! names.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_engine::field::Field;
use towpath_engine::filter::FilterConfig;
use towpath_engine::filter::matching::{Matching, Skip};
use towpath_engine::matcher::tree::{Branches, Outcome, Predicate, Ranges, Tree};
use towpath_engine::matcher::{Input, MetadataMatcher, Whose};

use super::Converter;
use super::extension::{INPUT_MATCHER, MATCHING_ACTION, MATCHING_INPUT};
use crate::message::{Message, Value};

/// The entries of a map.
type Entries<A> = Vec<(Box<[u8]>, Outcome<A>)>;

/// What has a tree, and which inputs the tree may look at.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// How messages call it.
    pub(super) name: &'static str,
    pub(super) allows: fn(&Input) -> bool,
    pub(super) about: About,
}

/// What is at hand where a tree is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// A connection, or a request on it.
    Stream,
    /// A response and its stream.
    Response,
    /// A host that is connected to.
    Host,
}

/// Reads what an action is.
type ReadAction<'f, 'c, A> = dyn FnMut(&mut Converter<'c>, &Message) -> Option<A> + 'f;

impl<'c> Converter<'c> {
    /// A tree. `actions` are the types that its actions may have.
    pub(super) fn matcher_tree<A>(
        &mut self,
        message: &Message,
        place: Place,
        actions: &[&str],
        read: &mut ReadAction<'_, 'c, A>,
    ) -> Option<Tree<A>> {
        self.accept(message);
        TreeReader { place, actions, read }.tree(self, message, 0)
    }

    /// `ExtensionWithMatcher` around an HTTP filter; `inner` reads the filter.
    pub(super) fn matching_filter(
        &mut self,
        config: &Message,
        inner: Arc<dyn FilterConfig>,
    ) -> Option<Arc<dyn FilterConfig>> {
        let tree = config.message("xds_matcher").or_else(|| config.message("matcher"));
        let Some(tree) = tree else {
            self.report.problem(&config.at, "one of `matcher` and `xds_matcher` must be set");
            return None;
        };
        let place = Place {
            name: "a filter of requests",
            allows: |input| !input.is_of_arrival(),
            about: About::Stream,
        };
        let tree = self.matcher_tree(tree, place, &[SKIP], &mut |_, _| Some(Skip))?;
        Some(Arc::new(Matching { inner, tree }))
    }
}

struct TreeReader<'r, 'f, 'c, A> {
    place: Place,
    actions: &'r [&'r str],
    read: &'r mut ReadAction<'f, 'c, A>,
}

impl<'c, A> TreeReader<'_, '_, 'c, A> {
    fn tree(
        &mut self,
        converter: &mut Converter<'c>,
        message: &Message,
        depth: usize,
    ) -> Option<Tree<A>> {
        if depth == MAX_DEPTH {
            let text = format!("matchers nest deeper than {MAX_DEPTH}");
            converter.report.problem(&message.at, text);
            return None;
        }
        let branches = match message.oneof("matcher_type").map(|it| (it, &it.value)) {
            None => Some(Branches::List(Vec::new())),
            Some((field, Value::Message(list))) if field.descriptor.name() == "matcher_list" => {
                self.list(converter, list, depth)
            }
            Some((_, Value::Message(tree))) => self.map(converter, tree, depth),
            Some(_) => None,
        };
        let otherwise = match message.message("on_no_match") {
            None => Some(None),
            Some(outcome) => self.outcome(converter, outcome, depth).map(Some),
        };
        Some(Tree::new(branches?, otherwise?))
    }

    fn list(
        &mut self,
        converter: &mut Converter<'c>,
        list: &Message,
        depth: usize,
    ) -> Option<Branches<A>> {
        let mut branches = Vec::new();
        let mut is_whole = true;
        for matcher in list.messages("matchers") {
            let predicate = matcher.message("predicate");
            let predicate = predicate.and_then(|it| self.predicate(converter, it, depth));
            let outcome = matcher.message("on_match");
            let outcome = outcome.and_then(|it| self.outcome(converter, it, depth));
            is_whole &= predicate.is_some() && outcome.is_some();
            branches.extend(predicate.zip(outcome));
        }
        is_whole.then_some(Branches::List(branches))
    }

    fn predicate(
        &mut self,
        converter: &mut Converter<'c>,
        message: &Message,
        depth: usize,
    ) -> Option<Predicate> {
        let field = message.oneof("match_type")?;
        let Value::Message(inner) = &field.value else { return None };
        if depth == MAX_DEPTH {
            let text = format!("matchers nest deeper than {MAX_DEPTH}");
            converter.report.problem(&field.at, text);
            return None;
        }
        Some(match field.descriptor.name() {
            "or_matcher" => Predicate::AnyOf(self.predicates(converter, inner, depth)?),
            "and_matcher" => Predicate::All(self.predicates(converter, inner, depth)?),
            "not_matcher" => {
                Predicate::Not(Box::new(self.predicate(converter, inner, depth + 1)?))
            }
            _ => self.single(converter, inner)?,
        })
    }

    fn predicates(
        &mut self,
        converter: &mut Converter<'c>,
        list: &Message,
        depth: usize,
    ) -> Option<Vec<Predicate>> {
        let predicates: Vec<_> = list
            .messages("predicate")
            .map(|predicate| self.predicate(converter, predicate, depth + 1))
            .collect();
        predicates.into_iter().collect()
    }

    fn single(&self, converter: &mut Converter<'c>, message: &Message) -> Option<Predicate> {
        let holder = message.message("input")?;
        let input = self.input(converter, holder);
        if matches!(input, Some(Input::Metadata)) {
            return self.metadata(converter, holder, message);
        }
        if matches!(input, Some(Input::Attributes)) {
            return self.attributes(converter, message);
        }
        if let Some(text) = message.message("value_match") {
            let matcher = converter.string_matcher(text);
            return Some(Predicate::Text(input?, matcher?));
        }
        let custom = message.message("custom_match")?;
        let (config, _) = converter.extension(custom, INPUT_MATCHER, &[IP])?;
        let ranges: Vec<_> = config.messages("cidr_ranges").collect();
        let ranges: Vec<_> = ranges.into_iter().map(|range| converter.prefix(range)).collect();
        Some(Predicate::Address(input?, ranges.into_iter().collect::<Option<_>>()?))
    }

    /// A value of metadata, which the matcher of metadata alone looks at.
    fn metadata(
        &self,
        converter: &mut Converter<'c>,
        holder: &Message,
        message: &Message,
    ) -> Option<Predicate> {
        let Some(custom) = message.message("custom_match") else {
            converter.report.unsupported(&message.at, NO_TEXT);
            return None;
        };
        let (config, _) = converter.extension(custom, INPUT_MATCHER, &[METADATA])?;
        let value = converter.value_matcher(config.message("value")?)?;
        let (input, _) = converter.extension(holder, MATCHING_INPUT, &[METADATA_INPUT])?;
        let keys = input.messages("path").map(|segment| segment.text("key").into());
        Some(Predicate::Metadata(MetadataMatcher {
            namespace: input.text("filter").into(),
            path: keys.collect(),
            value,
            invert: config.flag("invert"),
        }))
    }

    /// All that is known, which the matcher of expressions alone looks at.
    fn attributes(&self, converter: &mut Converter<'c>, message: &Message) -> Option<Predicate> {
        let Some(custom) = message.message("custom_match") else {
            converter.report.problem(&message.at, NO_TEXT_OF_ATTRIBUTES);
            return None;
        };
        let (config, _) = converter.extension(custom, INPUT_MATCHER, &[EXPRESSION])?;
        converter.matched_expression(config.message("expr_match")?).map(Predicate::Expression)
    }

    fn map(
        &mut self,
        converter: &mut Converter<'c>,
        tree: &Message,
        depth: usize,
    ) -> Option<Branches<A>> {
        let input = tree.message("input").and_then(|input| self.input(converter, input));
        if matches!(input, Some(Input::Metadata)) {
            converter.report.unsupported(&tree.at, NO_TEXT);
            return None;
        }
        if matches!(input, Some(Input::Attributes)) {
            converter.report.problem(&tree.at, NO_TEXT_OF_ATTRIBUTES);
            return None;
        }
        let field = tree.oneof("tree_type")?;
        let Value::Message(inner) = &field.value else { return None };
        match field.descriptor.name() {
            "exact_match_map" => {
                let entries = self.entries(converter, inner, depth)?;
                Some(Branches::Exact(input?, HashMap::from_iter(entries)))
            }
            "prefix_match_map" => {
                Some(Branches::Prefix(input?, self.entries(converter, inner, depth)?))
            }
            _ => {
                let (config, _) = converter.extension(inner, INPUT_MATCHER, &[IP_TREE])?;
                let mut list = Vec::new();
                for ranges in config.messages("range_matchers") {
                    let outcome = ranges.message("on_match")?;
                    let outcome = self.outcome(converter, outcome, depth)?;
                    let is_exclusive = ranges.flag("exclusive");
                    let ranges = converter.prefixes(ranges, "ranges");
                    list.push(Ranges { ranges, outcome, is_exclusive });
                }
                Some(Branches::Ranges(input?, list))
            }
        }
    }

    fn entries(
        &mut self,
        converter: &mut Converter<'c>,
        map: &Message,
        depth: usize,
    ) -> Option<Entries<A>> {
        let mut entries = Vec::new();
        let mut is_whole = true;
        for (key, item) in map.entries("map") {
            let Value::Message(outcome) = &item.value else { continue };
            let outcome = self.outcome(converter, outcome, depth);
            is_whole &= outcome.is_some();
            entries.extend(outcome.map(|outcome| (key.as_bytes().into(), outcome)));
        }
        is_whole.then_some(entries)
    }

    fn outcome(
        &mut self,
        converter: &mut Converter<'c>,
        message: &Message,
        depth: usize,
    ) -> Option<Outcome<A>> {
        let field = message.oneof("on_match")?;
        let Value::Message(inner) = &field.value else { return None };
        // The older message has no such field. No place that has a tree here takes it in Envoy.
        if message.descriptor.get_field_by_name("keep_matching").is_some()
            && message.flag("keep_matching")
        {
            let text = "keep_matching is not supported in this context";
            converter.report.problem(message.at("keep_matching"), text);
        }
        Some(match field.descriptor.name() {
            "matcher" => Outcome::Ask(Box::new(self.tree(converter, inner, depth + 1)?)),
            _ => {
                let (config, _) = converter.extension(inner, MATCHING_ACTION, self.actions)?;
                Outcome::Act((self.read)(converter, config)?)
            }
        })
    }

    fn input(&self, converter: &mut Converter<'c>, holder: &Message) -> Option<Input> {
        let known: Vec<_> = INPUTS.iter().map(|(name, _)| *name).collect();
        let (config, at) = converter.extension(holder, MATCHING_INPUT, &known)?;
        let name = config.descriptor.full_name();
        let (_, read) = INPUTS.iter().find(|(known, _)| *known == name)?;
        let input = read(converter, config)?;
        if input.is_of_response() && self.place.about != About::Response {
            let text = format!("{} does not look at responses", self.place.name);
            converter.report.unsupported(at, text);
            return None;
        }
        let is_left =
            matches!(input, Input::Metadata | Input::FilterState { .. } | Input::Attributes);
        if is_left && !(self.place.allows)(&input) {
            let text = format!("{} does not look at what filters leave", self.place.name);
            converter.report.unsupported(at, text);
            return None;
        }
        let is_at_hand = input.is_of_host() == (self.place.about == About::Host);
        if !is_at_hand || !(self.place.allows)(&input) {
            converter.report.problem(at, format!("{} cannot match `{name}`", self.place.name));
            return None;
        }
        Some(input)
    }
}

macro_rules! input {
    ($package:literal, $name:literal) => {
        concat!("envoy.extensions.matching.common_inputs.", $package, ".v3.", $name)
    };
}

type ReadInput = fn(&mut Converter<'_>, &Message) -> Option<Input>;

const INPUTS: [(&str, ReadInput); 24] = [
    ("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", |converter, config| {
        header(converter, config).map(Input::RequestHeader)
    }),
    ("envoy.type.matcher.v3.HttpResponseHeaderMatchInput", |converter, config| {
        header(converter, config).map(Input::ResponseHeader)
    }),
    ("envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput", |_, _| Some(Input::Status)),
    ("envoy.type.matcher.v3.HttpResponseStatusCodeClassMatchInput", |_, _| {
        Some(Input::StatusClass)
    }),
    ("envoy.type.matcher.v3.HttpResponseLocalReplyMatchInput", |_, _| Some(Input::LocalReply)),
    ("envoy.type.matcher.v3.HttpRequestQueryParamMatchInput", |_, config| {
        Some(Input::QueryParameter(config.text("query_param").as_bytes().into()))
    }),
    (input!("network", "DestinationIPInput"), |_, _| Some(Input::Ip(Whose::Local))),
    (input!("network", "SourceIPInput"), |_, _| Some(Input::Ip(Whose::Remote))),
    (input!("network", "DirectSourceIPInput"), |_, _| Some(Input::Ip(Whose::Direct))),
    (input!("network", "DestinationPortInput"), |_, _| Some(Input::Port(Whose::Local))),
    (input!("network", "SourcePortInput"), |_, _| Some(Input::Port(Whose::Remote))),
    (input!("network", "SourceTypeInput"), |_, _| Some(Input::SourceType)),
    (input!("network", "ServerNameInput"), |_, _| Some(Input::ServerName)),
    (input!("network", "TransportProtocolInput"), |_, _| Some(Input::Transport)),
    (input!("network", "ApplicationProtocolInput"), |_, _| Some(Input::Protocols)),
    (input!("network", "FilterStateInput"), |_, config| {
        let (name, field) = (config.text("key").into(), config.text("field").into());
        Some(Input::FilterState { name, field })
    }),
    (input!("transport_socket", "EndpointMetadataInput"), |_, config| {
        Some(host_metadata(config, false))
    }),
    (input!("transport_socket", "LocalityMetadataInput"), |_, config| {
        Some(host_metadata(config, true))
    }),
    (input!("transport_socket", "FilterStateInput"), |_, config| {
        Some(Input::SharedState(config.text("key").into()))
    }),
    (METADATA_INPUT, |_, _| Some(Input::Metadata)),
    ("xds.type.matcher.v3.HttpAttributesCelMatchInput", |_, _| Some(Input::Attributes)),
    (input!("ssl", "UriSanInput"), |_, _| Some(Input::Uris)),
    (input!("ssl", "DnsSanInput"), |_, _| Some(Input::Domains)),
    (input!("ssl", "SubjectInput"), |_, _| Some(Input::CertificateSubject)),
];

fn host_metadata(config: &Message, of_locality: bool) -> Input {
    let namespace = match config.text("filter") {
        "" => "envoy.lb",
        name => name,
    };
    let keys = config.messages("path").map(|segment| segment.text("key").into());
    Input::HostMetadata { of_locality, namespace: namespace.into(), path: keys.collect() }
}

fn header(converter: &mut Converter<'_>, config: &Message) -> Option<Field> {
    let name = config.text("header_name");
    let field = Field::parse(name);
    if field.is_none() {
        let text = format!("'{name}' is not a header name");
        converter.report.problem(config.at("header_name"), text);
    }
    field
}

const MAX_DEPTH: usize = 32;
const NO_TEXT: &str = "a value of metadata is no text; the metadata matcher looks at it";
const NO_TEXT_OF_ATTRIBUTES: &str = "attributes are no text; the CEL matcher looks at them";
const EXPRESSION: &str = "xds.type.matcher.v3.CelMatcher";
const METADATA_INPUT: &str = input!("network", "DynamicMetadataInput");
const METADATA: &str = "envoy.extensions.matching.input_matchers.metadata.v3.Metadata";
const IP: &str = "envoy.extensions.matching.input_matchers.ip.v3.Ip";
const IP_TREE: &str = "xds.type.matcher.v3.IPMatcher";
const SKIP: &str = "envoy.extensions.filters.common.matcher.action.v3.SkipFilter";
