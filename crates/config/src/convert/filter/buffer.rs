//! Requests that are collected before they go on.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::buffer::{Buffer, RouteBuffer};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.buffer.v3.Buffer",
    convert: |_, config| Some(Arc::new(buffer(config)?)),
    by_route: Some(("envoy.extensions.filters.http.buffer.v3.BufferPerRoute", by_route)),
    support: SUPPORT,
};

fn buffer(config: &Message) -> Option<Buffer> {
    let limit = usize::try_from(config.number("max_request_bytes")?).ok()?;
    Some(Buffer { limit })
}

fn by_route(_converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    let limit = config.message("buffer").map(buffer);
    let disabled = config.flag("disabled").then_some(RouteBuffer::Disabled);
    let config = limit.map_or(disabled, |limit| limit.map(RouteBuffer::Limit))?;
    Some(Arc::new(config))
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.extensions.filters.http.buffer.v3.Buffer",
        honoured: &["max_request_bytes"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.buffer.v3.BufferPerRoute",
        honoured: &["disabled", "buffer"],
        harmless: &[],
        changes: &[],
    },
];
