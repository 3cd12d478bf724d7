//! Counters of calls.

use std::sync::Arc;

use towpath_engine::filter::FilterConfig;
use towpath_engine::filter::grpc_stats::{GrpcStatistics, Methods};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig",
    convert,
    by_route: None,
    support: SUPPORT,
};

#[expect(clippy::unnecessary_wraps, reason = "other filters can fail")]
fn convert(_converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn FilterConfig>> {
    let list = config.message("individual_method_stats_allowlist");
    let methods = match config.wrapped_flag("stats_for_all_methods") {
        Some(true) => Methods::All,
        Some(false) | None => Methods::Listed(list.map(listed).unwrap_or_default().into()),
    };
    Some(Arc::new(GrpcStatistics {
        methods,
        times: config.flag("enable_upstream_stats"),
        without_dots: config.flag("replace_dots_in_grpc_service_name"),
        emits_state: config.flag("emit_filter_state"),
    }))
}

fn listed(list: &Message) -> Vec<(Arc<str>, Arc<str>)> {
    let mut methods = Vec::new();
    for service in list.messages("services") {
        let name: Arc<str> = Arc::from(service.text("name"));
        let of_service = service.texts("method_names");
        methods.extend(of_service.map(|(method, _)| (Arc::clone(&name), Arc::from(method))));
    }
    methods
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.extensions.filters.http.grpc_stats.v3.FilterConfig",
        honoured: &[
            "individual_method_stats_allowlist",
            "stats_for_all_methods",
            "enable_upstream_stats",
            "replace_dots_in_grpc_service_name",
            "emit_filter_state",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcMethodList",
        honoured: &["services"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcMethodList.Service",
        honoured: &["name", "method_names"],
        harmless: &[],
        changes: &[],
    },
];
