//! Aggregate clusters: they have no hosts of their own, but choose among those of other clusters, whose priorities
//! stand one behind the other.
//!
//! Arrives: a stream for the aggregate. Leaves: the [`PoolKey`] of a host of one of its clusters. What is counted for
//! connections and requests on them, their limits and how they are made is that cluster's; what is counted for the
//! stream, and its retries, is the aggregate's.

use towpath_proto::Instant;

use crate::balancer::Joined;
use crate::ids::{PoolClass, PoolKey};
use crate::snapshot::ClusterId;
use crate::snapshot::cluster::Discovery;
use crate::snapshot::subset::Criteria;
use crate::upstream::avoided::Avoided;
use crate::upstream::cluster::ClusterState;
use crate::upstream::clusters::Clusters;

/// What a stream wants of the cluster that is to take it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    /// A host of it, by a pool of this class.
    Any(PoolClass),
    /// This one, which it has named.
    Named(PoolKey),
}

/// What an aggregate keeps.
#[derive(Debug)]
pub(crate) struct Aggregate {
    clusters: Vec<ClusterId>,
    joined: Joined,
}

impl Aggregate {
    pub(crate) fn of(discovery: &Discovery) -> Option<Box<Self>> {
        match discovery {
            Discovery::Aggregate(clusters) => {
                Some(Box::new(Self { clusters: clusters.clone(), joined: Joined::default() }))
            }
            Discovery::Static
            | Discovery::Dns(_)
            | Discovery::OriginalDestination(_)
            | Discovery::SubClusters(_)
            | Discovery::Named(_) => None,
        }
    }
}

impl Clusters {
    /// Chooses a host for a stream of a cluster, not one to be avoided if there is another.
    #[inline]
    pub(crate) fn pick(
        &mut self,
        id: ClusterId,
        random: u64,
        aim: &mut dyn FnMut(&mut ClusterState) -> Option<Aim>,
        avoided: Avoided<'_>,
        criteria: Option<&Criteria>,
        now: Instant,
    ) -> Option<PoolKey> {
        let cluster = self.get_mut(id)?;
        if cluster.aggregate.is_none() {
            return match aim(cluster)? {
                Aim::Any(class) => cluster.pick(random, class, avoided, criteria, now),
                Aim::Named(pool_key) => Some(pool_key),
            };
        }
        self.pick_of_aggregate(id, random, aim, avoided, criteria, now)
    }

    /// Whether a request's hash decides which host of a cluster it goes to.
    pub(crate) fn is_hashed(&self, id: ClusterId) -> bool {
        let is_hashed = |cluster: &ClusterState| cluster.config.balancing.policy.is_hashed();
        self.get(id).is_some_and(|cluster| match &cluster.aggregate {
            Some(aggregate) => {
                aggregate.clusters.iter().filter_map(|id| self.get(*id)).all(is_hashed)
            }
            None => is_hashed(cluster),
        })
    }

    /// Whether some hosts of an aggregate are told for whom connections to them are.
    pub(crate) fn tells_clients(&self, id: ClusterId) -> bool {
        let aggregate = self.get(id).and_then(|cluster| cluster.aggregate.as_ref());
        let mut clusters = aggregate.into_iter().flat_map(|it| &it.clusters);
        clusters.any(|id| self.get(*id).is_some_and(|it| it.config.proxy_headers.is_some()))
    }

    fn pick_of_aggregate(
        &mut self,
        id: ClusterId,
        random: u64,
        aim: &mut dyn FnMut(&mut ClusterState) -> Option<Aim>,
        mut avoided: Avoided<'_>,
        criteria: Option<&Criteria>,
        now: Instant,
    ) -> Option<PoolKey> {
        let cluster = self.get_mut(id)?;
        let (threshold, bolt) =
            (cluster.config.balancing.panic_threshold, cluster.config.bolt.is_some());
        let mut aggregate = cluster.aggregate.take()?;
        let Aggregate { clusters, joined } = &mut *aggregate;
        // What speaks otherwise, and another aggregate, has no hosts here.
        let has_hosts = |it: &&ClusterState| {
            let is_chosen = it.destinations.is_none() && it.named.is_none() && !it.has_subs;
            it.config.bolt.is_some() == bolt && is_chosen
        };
        let balancer = |at: usize| {
            let cluster = self.get(*clusters.get(at)?).filter(has_hosts)?;
            Some(&cluster.balancer)
        };
        let past = avoided.priorities.take();
        let chosen = joined.choose(clusters.len(), balancer, threshold, random, past);
        let chosen = chosen.and_then(|(at, among, random)| {
            let cluster = self.get_mut(*clusters.get(at)?)?;
            let class = match aim(cluster)? {
                Aim::Any(class) => class,
                Aim::Named(pool_key) => return Some(pool_key),
            };
            if cluster.subsets.is_some() {
                return cluster.pick_of_subset(Some(among), random, class, avoided, criteria, now);
            }
            cluster.pick_among(Some(among), random, class, avoided, now)
        });
        if let Some(cluster) = self.get_mut(id) {
            cluster.aggregate = Some(aggregate);
        }
        chosen
    }
}
