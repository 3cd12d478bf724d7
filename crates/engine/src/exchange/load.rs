//! What answers say of the load of their hosts. Envoy's policy `client_side_weighted_round_robin`.

use towpath_proto::{Head, Instant};

use crate::exchange::stream::Stream;
use crate::ids::PoolKey;
use crate::upstream::clusters::Clusters;

/// Takes note of the first report of a stream, in the head of its answer or in trailers.
#[cold]
pub(crate) fn note_load(
    stream: &mut Stream,
    clusters: &Clusters,
    pool_key: PoolKey,
    trailers: Option<&Head>,
    now: Instant,
) {
    if stream.retries.tried.as_deref().is_some_and(|tried| tried.said_load) {
        return;
    }
    let head = trailers.or_else(|| stream.response.present());
    if head.is_some_and(|head| clusters.read_load(pool_key, head, now)) {
        stream.retries.tried.get_or_insert_default().said_load = true;
    }
}
