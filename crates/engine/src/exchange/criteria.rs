//! Which subset of its cluster's hosts a stream asks for. Envoy: `metadata_match`, and dynamic metadata of `envoy.lb`.

use std::sync::Arc;

use crate::exchange::stream::{Routed, Stream};
use crate::snapshot::subset::{Criteria, NAMESPACE};
use crate::stream_info::Value;

/// What a stream asks for: what filters have said comes on top of what its route says.
#[cold]
pub(crate) fn criteria_of(stream: &Stream) -> Option<Arc<Criteria>> {
    let given = || stream.retries.tried.as_deref()?.criteria.clone();
    let below = stream.routed().map_or_else(given, of_route);
    let Some(info) = stream.recorder.info() else { return below };
    info.read_metadata(NAMESPACE, &[], |said| match said {
        Some(Value::Struct(said)) => Some(Arc::new(Criteria::over(below.as_ref(), said))),
        _ => below.clone(),
    })
}

/// What a route asks for.
pub(crate) fn of_route(routed: Routed<'_>) -> Option<Arc<Criteria>> {
    let weighted = routed.weighted.and_then(|weighted| weighted.criteria.as_ref());
    weighted.or(routed.forward()?.criteria.as_ref()).cloned()
}
