//! Clients of HTTP/1.1 that send calls by gRPC.

use std::sync::Arc;

use towpath_engine::filter::grpc_http1_bridge::GrpcHttp1Bridge;

use super::Known;
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.grpc_http1_bridge.v3.Config",
    convert: |_, config| {
        Some(Arc::new(GrpcHttp1Bridge { without_query: config.flag("ignore_query_parameters") }))
    },
    by_route: None,
    support: SUPPORT,
};

const SUPPORT: &[Entry] = &[Entry {
    message: "envoy.extensions.filters.http.grpc_http1_bridge.v3.Config",
    honoured: &["ignore_query_parameters"],
    harmless: &[],
    changes: &[("upgrade_protobuf_to_grpc", "only what is gRPC already is bridged")],
}];
