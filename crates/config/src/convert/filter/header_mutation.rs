//! Headers that a chain adds and takes away.

use std::sync::Arc;

use towpath_engine::filter::FilterConfig;
use towpath_engine::filter::header_mutation::HeaderMutation;

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
    convert,
    by_route: None,
    support: SUPPORT,
};

fn convert(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn FilterConfig>> {
    let mutations = config.message("mutations");
    let mut ops =
        |name| mutations.map(|mutations| converter.mutations(mutations, name)).unwrap_or_default();
    Some(Arc::new(HeaderMutation {
        request: ops("request_mutations"),
        response: ops("response_mutations"),
    }))
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        honoured: &["mutations"],
        harmless: &[("most_specific_header_mutations_wins", "there is no mutation by route")],
        changes: &[],
    },
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
