//! What a cluster counts of an answer: for all its requests, for those to a zone and of canaries, and by what routes
//! and requests call it.
//!
//! Arrives: the status of a stream, from a host or given here in its place. Leaves: counters.

use std::sync::Arc;

use towpath_proto::name::Name;

use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::lazy_head::LazyHead;
use crate::exchange::overrides::Alt;
use crate::exchange::stream::Stream;
use crate::ids::{PoolKey, StreamIndex};
use crate::stats::{PartStats, Scope};
use crate::upstream::cluster::ClusterState;

/// An answer, as it is counted.
pub(super) struct Counted {
    /// Whose it is, or would have been.
    pub(super) pool_key: Option<PoolKey>,
    pub(super) status: u16,
    /// In milliseconds, of a host's answer.
    pub(super) took: Option<u64>,
    /// Whether the answer itself says that a canary has given it.
    pub(super) says_canary: bool,
}

impl Exchange {
    /// Counts a status that we answer for a cluster as if it had come from there.
    pub(crate) fn charge(&mut self, index: StreamIndex, status: u16) {
        let Some(stream) = self.streams.get(index) else { return };
        if let Some(cluster) = self.upstreams.clusters.get_mut(stream.cluster) {
            // What an earlier attempt was answered says nothing of this one.
            let pool_key = stream.retries.pool_key;
            let answer = Counted { pool_key, status, took: None, says_canary: false };
            count_answer(stream, cluster, &answer, &self.env);
        }
    }
}

/// Counts an answer wherever its stream's cluster does.
#[inline(always)]
pub(super) fn count_answer(
    stream: &Stream,
    cluster: &mut ClusterState,
    answer: &Counted,
    env: &Env,
) {
    // What asks for health is no traffic.
    if stream.is_health_check {
        return;
    }
    let &Counted { pool_key, status, took, says_canary } = answer;
    let internal = stream.request.names(Name::XEnvoyInternal);
    cluster.stats.count_response(status, internal);
    if let Some(took) = took {
        cluster.stats.count_time(took, internal);
    }
    if let Some(zone) = cluster.zone_of(pool_key) {
        zone.stats.count(status, took);
    }
    stream.count(|stats| {
        stats.upstream_rq.count(status);
        took.into_iter().for_each(|took| stats.upstream_rq_time.record(took));
    });
    let is_canary = says_canary || cluster.is_canary(pool_key);
    if let Some(alt) = stream.alt() {
        count_alt(alt, cluster, answer, internal, is_canary, env);
    }
    if is_canary {
        cluster.count_canary(status, took, env);
    }
}

/// Whether an answer says that a canary has given it.
#[inline(always)]
pub(super) fn says_canary(answer: &LazyHead) -> bool {
    answer.names(Name::XEnvoyUpstreamCanary)
        && answer.get(Name::XEnvoyUpstreamCanary) == Some(b"true")
}

/// Counts it under the name that its request has said.
#[cold]
fn count_alt(
    alt: &Alt,
    cluster: &ClusterState,
    &Counted { pool_key, status, took, .. }: &Counted,
    internal: bool,
    is_canary: bool,
    env: &Env,
) {
    alt.stats.count_response(status, internal);
    took.into_iter().for_each(|took| alt.stats.count_time(took, internal));
    let zone = cluster.zone_of(pool_key).map(|zone| &*zone.name);
    for part in zone.into_iter().chain(is_canary.then_some("canary")) {
        let cluster = Arc::clone(&cluster.config.stat_name);
        let name = format!("{}.{part}", alt.name).into();
        let stats = env.registry.lasting(env.index, Scope::ClusterPart { cluster, name });
        stats.into_iter().for_each(|stats: Arc<PartStats>| stats.count(status, took));
    }
}
