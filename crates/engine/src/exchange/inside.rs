//! Connections to listeners of this process take metadata and filter state along, as with Envoy's internal upstream
//! transport.
//!
//! Arrives: that the driver has made such a connection, right before the listener accepts it. Leaves: what goes along,
//! for the one that is accepted next.

use towpath_proto::AttemptId;

use crate::exchange::Exchange;
use crate::snapshot::listener::PassthroughState;
use crate::snapshot::passing::MetadataOf;
use crate::stream_info::{Sharing, StateObject, Struct};

impl Exchange {
    /// What goes along with a connection that was made to a listener of this process.
    #[cold]
    pub(crate) fn passed_by(&self, id: AttemptId) -> Option<Box<PassthroughState>> {
        let attempt = self.upstreams.attempts.get(id)?;
        let clusters = &self.upstreams.clusters;
        let cluster = clusters.get(attempt.pool_key.cluster)?;
        let pool = cluster.pool(attempt.pool_key)?;
        let sources = cluster.config.passing.as_ref()?.of(pool.socket)?;
        let of_host = clusters.endpoint(attempt.pool_key.cluster, pool);
        let mut metadata = Struct::new();
        for source in sources {
            let of = match source.of {
                MetadataOf::Host => of_host.and_then(|host| host.filter_metadata.as_ref()),
                MetadataOf::Cluster => cluster.config.filter_metadata.as_ref(),
            };
            match of.and_then(|of| of.get(&source.namespace)) {
                Some(entries) => {
                    metadata.insert(source.namespace.clone(), entries.clone());
                }
                None => {
                    if let Some(stats) = &cluster.passing_stats {
                        stats.no_metadata.inc();
                    }
                }
            }
        }
        // Of requests that share a connection, those of the first one.
        let stream = attempt.stream.or_else(|| pool.pending.front().copied());
        let info = stream.and_then(|index| self.streams.get(index)?.recorder.info());
        let mut state = info.map(|info| info.shared_state()).unwrap_or_default();
        for (_, object) in &mut state {
            if object.sharing == Sharing::Once {
                *object = StateObject { sharing: Sharing::None, ..std::mem::take(object) };
            }
        }
        Some(Box::new(PassthroughState { metadata, state }))
    }
}
