//! Headers that a chain adds and takes away.

use std::sync::Arc;

use towpath_engine::filter::header_mutation::{HeaderMutation, Mutations};
use towpath_engine::filter::{FilterConfig, RouteConfig};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

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
        Mutations { request: ops("request_mutations"), response: ops("response_mutations") }
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
        honoured: &["request_mutations", "response_mutations"],
        harmless: &[],
        changes: &[
            ("query_parameter_mutations", "the query is not changed"),
            ("response_trailers_mutations", "trailers are not changed"),
            ("request_trailers_mutations", "trailers are not changed"),
        ],
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
