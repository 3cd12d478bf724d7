//! Headers that a chain adds and takes away.

use std::sync::Arc;

use towpath_engine::filter::header_mutation::{
    HeaderMutation, Mutations, QueryMutation, TrailerMutations,
};
use towpath_engine::filter::{FilterConfig, RouteConfig};
use towpath_engine::snapshot::route::HeaderAction;

use super::Known;
use crate::convert::Converter;
use crate::message::{Message, Value};
use crate::support::Entry;
use crate::tree::Value as Tree;

const BY_ROUTE: &str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute";

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
    convert,
    by_route: Some((BY_ROUTE, |converter, config| {
        let config: Arc<dyn RouteConfig> = Arc::new(converter.all_mutations(config));
        Some(config)
    })),
    support: SUPPORT,
};

fn convert(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn FilterConfig>> {
    Some(Arc::new(HeaderMutation {
        own: converter.all_mutations(config),
        route_is_last: config.flag("most_specific_header_mutations_wins"),
    }))
}

impl Converter<'_> {
    fn all_mutations(&mut self, config: &Message) -> Mutations {
        let mutations = config.message("mutations");
        let mut ops =
            |name| mutations.map(|mutations| self.mutations(mutations, name)).unwrap_or_default();
        let (request, response) = (ops("request_mutations"), ops("response_mutations"));
        let trailers = TrailerMutations {
            request: ops("request_trailers_mutations"),
            response: ops("response_trailers_mutations"),
        };
        let changes_trailers = !(trailers.request.is_empty() && trailers.response.is_empty());
        let query: Vec<_> = mutations
            .into_iter()
            .flat_map(|mutations| mutations.messages("query_parameter_mutations"))
            .collect();
        Mutations {
            request,
            query: query.into_iter().filter_map(|it| self.query_mutation(it)).collect(),
            response,
            trailers: changes_trailers.then(|| Arc::new(trailers)),
        }
    }

    /// A `KeyValueMutation`. The words are Envoy's.
    fn query_mutation(&mut self, mutation: &Message) -> Option<QueryMutation> {
        let removed = mutation.text("remove");
        let Some(append) = mutation.message("append") else {
            if removed.is_empty() {
                let text = "One of 'append'/'remove' must be specified.";
                self.report.problem(&mutation.at, text);
                return None;
            }
            return Some(QueryMutation::Remove(removed.as_bytes().into()));
        };
        if !removed.is_empty() {
            let text = "Only one of 'append'/'remove can be specified.";
            self.report.problem(&mutation.at, text);
        }
        let Some(record) = append.message("record") else {
            self.report.problem(&append.at, "No record specified for append mutation.");
            return None;
        };
        let value = match record.get("value").map(|field| &field.value) {
            Some(Value::Json(node)) => match &node.value {
                Tree::String(text) => Some(text.as_str()),
                _ => None,
            },
            _ => None,
        };
        let Some(value) = value else {
            self.report.problem(&record.at, "Only string value is allowed for record value.");
            return None;
        };
        let value = self.header_format(value, record.at("value"))?;
        let action = match append.choice("action").as_str() {
            "ADD_IF_ABSENT" => HeaderAction::AddIfAbsent,
            "OVERWRITE_IF_EXISTS_OR_ADD" => HeaderAction::Overwrite,
            "OVERWRITE_IF_EXISTS" => HeaderAction::OverwriteIfExists,
            _ => HeaderAction::Append,
        };
        Some(QueryMutation::Set { name: record.text("key").as_bytes().into(), value, action })
    }
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        honoured: &["mutations", "most_specific_header_mutations_wins"],
        harmless: &[],
        changes: &[],
    },
    Entry { message: BY_ROUTE, honoured: &["mutations"], harmless: &[], changes: &[] },
    Entry {
        message: "envoy.extensions.filters.http.header_mutation.v3.Mutations",
        honoured: &[
            "request_mutations",
            "query_parameter_mutations",
            "response_mutations",
            "response_trailers_mutations",
            "request_trailers_mutations",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.KeyValueMutation",
        honoured: &["append", "remove"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.KeyValueAppend",
        honoured: &["record", "action"],
        harmless: &[("entry", "Envoy does not read it")],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.KeyValuePair",
        honoured: &["key", "value"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.common.mutation_rules.v3.HeaderMutation",
        honoured: &["remove", "append", "remove_on_match"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.common.mutation_rules.v3.HeaderMutation.RemoveOnMatch",
        honoured: &["key_matcher"],
        harmless: &[],
        changes: &[],
    },
];
