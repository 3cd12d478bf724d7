//! Requests whose filters ask for a host, so that their cluster has no choice.
//!
//! Arrives: what the filters of a stream want. Leaves: the pool of that host, or the status of an answer.

use crate::exchange::Exchange;
use crate::exchange::stream::Stream;
use crate::filter::WantedHost;
use crate::ids::{PoolClass, PoolKey};
use crate::upstream::cluster::ClusterState;

impl Stream {
    /// The host that its filters ask for, unless it is on its way again. Of several the last one counts.
    pub(crate) fn wanted_host(&self) -> Option<&WantedHost> {
        let filters = self.filters.as_deref().filter(|_| self.retries.done == 0)?;
        filters.watching.iter().rev().find_map(|(_, watcher)| watcher.wanted_host())
    }
}

impl Exchange {
    /// The status of the answer to a request for which its cluster has no host.
    pub(crate) fn status_without_host(&self, stream: &Stream) -> u16 {
        let cluster = self.upstreams.clusters.get(stream.cluster);
        match (stream.wanted_host(), cluster) {
            (Some(wanted), Some(cluster)) if wanted.strict => {
                let place = wanted.address.as_ref().and_then(|address| cluster.host_at(address));
                if place.is_some() { 503 } else { wanted.missing }
            }
            _ => 503,
        }
    }
}

/// What becomes of a stream whose filters ask for a host: the pool of that, or none where no other will do. Nothing
/// where its cluster chooses, as it does for every retry.
#[cold]
pub(crate) fn wanted_pool(
    stream: &Stream,
    cluster: &mut ClusterState,
    class: Option<PoolClass>,
) -> Option<Option<PoolKey>> {
    let wanted = stream.wanted_host()?;
    let picked = class.and_then(|class| cluster.pick_wanted(wanted, class));
    (picked.is_some() || wanted.strict).then_some(picked)
}
