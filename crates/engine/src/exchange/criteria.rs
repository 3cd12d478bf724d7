//! Which subset of its cluster's hosts a stream asks for. Envoy: `metadata_match`, and dynamic metadata of `envoy.lb`.

use std::sync::Arc;

use crate::exchange::stream::{Routed, Stream};
use crate::record::metadata_of_connection;
use crate::snapshot::subset::{Criteria, NAMESPACE};
use crate::stream_info::Value;

/// What a stream asks for: what filters have said comes on top of what its route says.
#[cold]
pub(crate) fn criteria_of(stream: &Stream) -> Option<Arc<Criteria>> {
    let given = || stream.retries.tried.as_deref()?.criteria.clone();
    let below = stream.routed().map_or_else(given, of_route);
    let Some(info) = stream.recorder.info() else { return below };
    let below = of_connection(stream, below);
    info.read_metadata(NAMESPACE, &[], |said| match said {
        Some(Value::Struct(said)) => Some(Arc::new(Criteria::over(below.as_ref(), said))),
        _ => below.clone(),
    })
}

/// What is said of a request's connection comes on top of what its route says, and below what is said of the request.
/// A stream of opaque bytes is its connection.
fn of_connection(stream: &Stream, below: Option<Arc<Criteria>>) -> Option<Arc<Criteria>> {
    let record = stream.recorder.record();
    let (left, proxied) = (&record.connection_metadata, record.proxied.as_deref());
    if (left.is_none() && proxied.is_none()) || stream.context.http().is_none() {
        return below;
    }
    match metadata_of_connection(left, proxied).get(NAMESPACE) {
        Some(Value::Struct(said)) => Some(Arc::new(Criteria::over(below.as_ref(), said))),
        _ => below,
    }
}

/// What a route asks for.
pub(crate) fn of_route(routed: Routed<'_>) -> Option<Arc<Criteria>> {
    let weighted = routed.weighted.and_then(|weighted| weighted.criteria.as_ref());
    weighted.or(routed.forward()?.criteria.as_ref()).cloned()
}
