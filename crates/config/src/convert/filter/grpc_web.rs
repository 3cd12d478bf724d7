//! Calls from browsers.

use std::sync::Arc;

use towpath_engine::filter::grpc_web::GrpcWeb;

use super::Known;
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb",
    convert: |_, _| Some(Arc::new(GrpcWeb)),
    by_route: None,
    support: SUPPORT,
};

const SUPPORT: &[Entry] = &[Entry {
    message: "envoy.extensions.filters.http.grpc_web.v3.GrpcWeb",
    honoured: &[],
    harmless: &[],
    changes: &[],
}];
