//! Clusters that requests have made: Envoy's sub-clusters of a dynamic forward proxy.
//!
//! Arrives: what workers want, what names resolve to, another configuration, the time. Leaves: news for all workers,
//! and names to follow. Each cluster that has such holds at most its `max_sub_clusters`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use towpath_engine::names::{SubCluster, SubEvent, SubNews, SubQuestion};
use towpath_engine::snapshot::cluster::{self, Discovery, Endpoint};
use towpath_engine::snapshot::{Cluster, ClusterId, Snapshot};

use crate::dns::DnsCluster;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct SubClusters {
    parents: HashMap<ClusterId, Parent>,
    /// How many there ever were: each has an id of its own.
    made: u32,
}

/// A cluster whose requests make others.
#[derive(Debug)]
struct Parent {
    config: Arc<Cluster>,
    /// When those that no request was for are looked for.
    check_at: Instant,
    /// By their names.
    subs: HashMap<Arc<str>, Sub>,
}

#[derive(Debug)]
struct Sub {
    id: ClusterId,
    cluster: Arc<Cluster>,
    /// When a request was for it, in milliseconds since 1970.
    used: Arc<AtomicU64>,
    /// Workers know it.
    is_ready: bool,
}

/// What comes of a question.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is there, or on its way; or there is none such.
    Nothing,
    /// This name is to be followed.
    New(DnsCluster),
    /// There are too many.
    Full(SubNews),
}

/// One that is over: its id, and what workers are told.
pub(crate) type Gone = (ClusterId, SubNews);

impl SubClusters {
    /// A worker wants one.
    pub(crate) fn ask(&mut self, question: &SubQuestion, unix_ms: u64) -> Asked {
        let Some(parent) = self.parents.get_mut(&question.parent) else { return Asked::Nothing };
        let name: Arc<str> = Arc::from(question.name());
        if let Some(sub) = parent.subs.get(&name) {
            sub.used.fetch_max(unix_ms, Ordering::Relaxed);
            return Asked::Nothing;
        }
        if parent.subs.len() >= parent.settings().map_or(0, |it| it.most as usize)
            || self.made == MOST_MADE
        {
            let event = SubEvent::Full;
            return Asked::Full(SubNews { parent: question.parent, name, event });
        }
        let made = parent.config.sub_cluster(&name, &question.host, question.port);
        let Some(cluster) = made else { return Asked::Nothing };
        let Discovery::Dns(dns) = &cluster.discovery else { return Asked::Nothing };
        let id = ClusterId::of_sub(self.made);
        self.made += 1;
        let followed = DnsCluster {
            id,
            name: Arc::clone(&name),
            stat_name: Arc::clone(&cluster.stat_name),
            dns: (**dns).clone(),
        };
        let (cluster, used) = (Arc::new(cluster), Arc::new(AtomicU64::new(unix_ms)));
        parent.subs.insert(name, Sub { id, cluster, used, is_ready: false });
        Asked::New(followed)
    }

    /// A name was looked up. If workers wait for it, what they are told.
    pub(crate) fn resolved(
        &mut self,
        id: ClusterId,
        endpoints: &Arc<[Endpoint]>,
    ) -> Option<SubNews> {
        if !id.is_sub() {
            return None;
        }
        self.parents.iter_mut().find_map(|(parent, of)| {
            let (name, sub) = of.subs.iter_mut().find(|(_, sub)| sub.id == id && !sub.is_ready)?;
            sub.is_ready = true;
            if let Some(cluster) = Arc::get_mut(&mut sub.cluster) {
                cluster.endpoints = Arc::clone(endpoints);
            }
            let ready = SubCluster::new(id, Arc::clone(&sub.cluster), Arc::clone(&sub.used));
            let (parent, name) = (*parent, Arc::clone(name));
            Some(SubNews { parent, name, event: SubEvent::Ready(Arc::new(ready)) })
        })
    }

    /// Another configuration serves: what clusters have made that are others in it, or gone, is over.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot, now: Instant) -> Vec<Gone> {
        let mut gone = Vec::new();
        self.parents.retain(|id, parent| {
            let stays = snapshot.cluster(*id).is_some_and(|it| Arc::ptr_eq(it, &parent.config));
            if !stays {
                gone.extend(parent.subs.drain().map(|(name, sub)| over(*id, name, &sub)));
            }
            stays
        });
        for (id, config) in (0..).map(ClusterId).zip(&snapshot.clusters) {
            let Some(config) = config else { continue };
            let Some(settings) = settings(config) else { continue };
            self.parents.entry(id).or_insert_with(|| Parent {
                config: Arc::clone(config),
                check_at: after(now, settings.ttl),
                subs: HashMap::new(),
            });
        }
        gone
    }

    /// When [`SubClusters::expire`] is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.parents.values().map(|parent| parent.check_at).min()
    }

    /// Ends those that no request was for. As in Envoy it is looked for them once in their time.
    pub(crate) fn expire(&mut self, now: Instant, unix_ms: u64) -> Vec<Gone> {
        let mut gone = Vec::new();
        for (id, parent) in &mut self.parents {
            let Some(ttl) = parent.settings().map(|it| it.ttl) else { continue };
            if parent.check_at > now {
                continue;
            }
            parent.check_at = after(now, ttl);
            let is_unused = |sub: &Sub| {
                let unused = unix_ms.saturating_sub(sub.used.load(Ordering::Relaxed));
                Duration::from_millis(unused) > ttl
            };
            let ended = parent.subs.extract_if(|_, sub| is_unused(sub));
            gone.extend(ended.map(|(name, sub)| over(*id, name, &sub)));
        }
        gone
    }

    /// The names that are followed for them.
    pub(crate) fn followed(&self) -> impl Iterator<Item = DnsCluster> {
        self.all().filter_map(|sub| {
            let Discovery::Dns(dns) = &sub.cluster.discovery else { return None };
            let (name, stat_name) = (sub.cluster.name.clone(), sub.cluster.stat_name.clone());
            Some(DnsCluster { id: sub.id, name, stat_name, dns: (**dns).clone() })
        })
    }

    /// Those that workers know.
    pub(crate) fn ready(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.all().filter(|sub| sub.is_ready).map(|sub| &sub.cluster)
    }

    fn all(&self) -> impl Iterator<Item = &Sub> {
        self.parents.values().flat_map(|parent| parent.subs.values())
    }
}

impl Parent {
    fn settings(&self) -> Option<&cluster::SubClusters> {
        settings(&self.config)
    }
}

fn settings(config: &Cluster) -> Option<&cluster::SubClusters> {
    match &config.discovery {
        Discovery::SubClusters(settings) => Some(settings),
        Discovery::Static
        | Discovery::Dns(_)
        | Discovery::OriginalDestination(_)
        | Discovery::Named(_)
        | Discovery::Aggregate(_) => None,
    }
}

fn over(parent: ClusterId, name: Arc<str>, sub: &Sub) -> Gone {
    (sub.id, SubNews { parent, name, event: SubEvent::Gone })
}

/// A time that may be as far as the clock goes.
fn after(now: Instant, pause: Duration) -> Instant {
    now.checked_add(pause).unwrap_or_else(|| now + Duration::from_secs(u32::MAX.into()))
}

/// Ids are not used again.
const MOST_MADE: u32 = (1 << 31) - 2;

#[cfg(test)]
mod tests;
