//! Matcher trees.

use super::Entry;

const fn whole(message: &'static str, honoured: &'static [&'static str]) -> Entry {
    Entry { message, honoured, harmless: &[], changes: &[] }
}

macro_rules! tree {
    ($name:literal, $outcome:expr, $tree:expr) => {
        [
            whole($name, &["matcher_list", "matcher_tree", "on_no_match"]),
            whole(concat!($name, ".OnMatch"), $outcome),
            whole(concat!($name, ".MatcherList"), &["matchers"]),
            whole(concat!($name, ".MatcherList.FieldMatcher"), &["predicate", "on_match"]),
            whole(
                concat!($name, ".MatcherList.Predicate"),
                &["single_predicate", "or_matcher", "and_matcher", "not_matcher"],
            ),
            whole(
                concat!($name, ".MatcherList.Predicate.SinglePredicate"),
                &["input", "value_match", "custom_match"],
            ),
            whole(concat!($name, ".MatcherList.Predicate.PredicateList"), &["predicate"]),
            whole(concat!($name, ".MatcherTree"), $tree),
            whole(concat!($name, ".MatcherTree.MatchMap"), &["map"]),
        ]
    };
}

macro_rules! input {
    ($package:literal, $name:literal) => {
        whole(concat!("envoy.extensions.matching.common_inputs.", $package, ".v3.", $name), &[])
    };
}

macro_rules! socket_input {
    ($name:literal) => {
        concat!("envoy.extensions.matching.common_inputs.transport_socket.v3.", $name)
    };
}

pub(super) const TREE: &[Entry] = &tree!(
    "xds.type.matcher.v3.Matcher",
    &["matcher", "action", "keep_matching"],
    &["input", "exact_match_map", "prefix_match_map", "custom_match"]
);
pub(super) const OLD_TREE: &[Entry] = &tree!(
    "envoy.config.common.matcher.v3.Matcher",
    &["matcher", "action"],
    &["input", "exact_match_map", "prefix_match_map"]
);

pub(super) const ENTRIES: &[Entry] = &[
    whole("xds.core.v3.TypedExtensionConfig", &["name", "typed_config"]),
    whole("xds.core.v3.CidrRange", &["address_prefix", "prefix_len"]),
    whole(
        "xds.type.matcher.v3.StringMatcher",
        &["exact", "prefix", "suffix", "safe_regex", "contains", "ignore_case"],
    ),
    Entry {
        message: "xds.type.matcher.v3.RegexMatcher",
        honoured: &["regex"],
        harmless: &[("google_re2", "there is one kind of regular expression")],
        changes: &[],
    },
    whole("xds.type.matcher.v3.RegexMatcher.GoogleRE2", &[]),
    whole("xds.type.matcher.v3.IPMatcher", &["range_matchers"]),
    whole("xds.type.matcher.v3.IPRangeMatcher", &["ranges", "on_match", "exclusive"]),
    Entry {
        message: "envoy.extensions.matching.input_matchers.ip.v3.Ip",
        honoured: &["cidr_ranges"],
        harmless: &[("stat_prefix", "addresses that are none are not counted")],
        changes: &[],
    },
    whole("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", &["header_name"]),
    whole("envoy.type.matcher.v3.HttpRequestQueryParamMatchInput", &["query_param"]),
    whole("envoy.type.matcher.v3.HttpResponseHeaderMatchInput", &["header_name"]),
    whole("envoy.type.matcher.v3.HttpResponseStatusCodeMatchInput", &[]),
    whole("envoy.type.matcher.v3.HttpResponseStatusCodeClassMatchInput", &[]),
    whole("envoy.type.matcher.v3.HttpResponseLocalReplyMatchInput", &[]),
    input!("network", "DestinationIPInput"),
    input!("network", "SourceIPInput"),
    input!("network", "DirectSourceIPInput"),
    input!("network", "DestinationPortInput"),
    input!("network", "SourcePortInput"),
    input!("network", "SourceTypeInput"),
    input!("network", "ServerNameInput"),
    input!("network", "TransportProtocolInput"),
    input!("network", "ApplicationProtocolInput"),
    whole(
        "envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput",
        &["filter", "path"],
    ),
    whole("envoy.extensions.matching.common_inputs.network.v3.FilterStateInput", &["key", "field"]),
    whole(
        "envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput.PathSegment",
        &["key"],
    ),
    whole("envoy.extensions.matching.input_matchers.metadata.v3.Metadata", &["value", "invert"]),
    whole(socket_input!("EndpointMetadataInput"), &["filter", "path"]),
    whole(socket_input!("EndpointMetadataInput.PathSegment"), &["key"]),
    whole(socket_input!("LocalityMetadataInput"), &["filter", "path"]),
    whole(socket_input!("LocalityMetadataInput.PathSegment"), &["key"]),
    whole(socket_input!("FilterStateInput"), &["key"]),
    whole(socket_input!("TransportSocketNameAction"), &["name"]),
    input!("ssl", "UriSanInput"),
    input!("ssl", "DnsSanInput"),
    input!("ssl", "SubjectInput"),
    whole("envoy.extensions.filters.common.matcher.action.v3.SkipFilter", &[]),
    whole("google.protobuf.StringValue", &["value"]),
    whole("envoy.config.rbac.v3.Action", &["name", "action"]),
    whole("envoy.config.route.v3.RouteList", &["routes"]),
    Entry {
        message: "envoy.extensions.common.matching.v3.ExtensionWithMatcher",
        honoured: &["matcher", "xds_matcher", "extension_config"],
        harmless: &[],
        changes: &[],
    },
];
