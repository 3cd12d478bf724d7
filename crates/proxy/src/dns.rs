//! Name resolution for `STRICT_DNS` and `LOGICAL_DNS` clusters.
//!
//! A cluster's [`Dns`] arrives once, its endpoints leave whenever they change. Every name has a task of its own on
//! the control thread; workers see finished lists only. What a failure means follows Envoy 1.40: a lookup that
//! fails keeps the old answer; a name that does not exist empties a strict cluster and keeps a logical one.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use towpath_engine::snapshot::ClusterId;
use towpath_engine::snapshot::cluster::{Dns, DnsName, Endpoint, Family};
use towpath_engine::stats::{ClusterStats, Registry, Scope};
use towpath_proto::Address;

use crate::log;
use crate::server_stats::CONTROL;
use resolver::{Answer, Resolvers};

mod connected;
pub mod names;
mod resolver;

/// A DNS cluster to follow.
#[derive(Clone, Debug)]
pub struct DnsCluster {
    /// Its id.
    pub id: ClusterId,
    /// Its name, for the log.
    pub name: Arc<str>,
    /// The name of its statistics.
    pub stat_name: Arc<str>,
    /// What to resolve.
    pub dns: Dns,
}

/// A cluster's endpoints changed.
#[derive(Clone, Debug)]
pub struct Update {
    /// Which cluster's.
    pub cluster: ClusterId,
    /// All of them.
    pub endpoints: Arc<[Endpoint]>,
}

/// Follows DNS clusters. Must be made and used inside a `LocalSet`; dropping it ends its tasks.
#[derive(Debug)]
pub struct Watcher {
    clusters: RefCell<HashMap<ClusterId, Followed>>,
    resolvers: Rc<RefCell<Resolvers>>,
    updates: mpsc::UnboundedSender<Update>,
    /// A name was looked up for the first time.
    answered: Rc<Notify>,
}

/// A cluster and the tasks of its names, which end with it.
#[derive(Debug)]
struct Followed {
    cluster: Rc<Cluster>,
    tasks: JoinSet<()>,
}

impl Watcher {
    /// Starts a task for each name. Updates go to `updates`.
    #[must_use]
    pub fn start(
        clusters: Vec<DnsCluster>,
        registry: &Registry,
        updates: &mpsc::UnboundedSender<Update>,
    ) -> Self {
        let watcher = Self {
            clusters: RefCell::default(),
            resolvers: Rc::default(),
            updates: updates.clone(),
            answered: Rc::default(),
        };
        watcher.update(clusters, registry);
        watcher
    }

    /// Follows these clusters and no others. Those that it follows already go on. One that asks for other names, or
    /// otherwise, keeps its endpoints until these were looked up.
    pub fn update(&self, clusters: Vec<DnsCluster>, registry: &Registry) {
        let mut before = self.clusters.take();
        for cluster in clusters {
            let live = before.remove(&cluster.id).filter(|live| {
                let known = &live.cluster;
                known.name == cluster.name && known.stat_name == cluster.stat_name
            });
            self.begin(cluster, live, registry);
        }
    }

    /// Follows one more.
    pub fn follow(&self, cluster: DnsCluster, registry: &Registry) {
        self.begin(cluster, None, registry);
    }

    /// Follows one no more.
    pub fn forget(&self, id: ClusterId) {
        self.clusters.borrow_mut().remove(&id);
    }

    /// Follows a cluster, of which it may follow a former configuration.
    fn begin(&self, cluster: DnsCluster, live: Option<Followed>, registry: &Registry) {
        let DnsCluster { id, name, stat_name, dns } = cluster;
        let kept = match live {
            Some(live) if live.cluster.dns == dns => {
                self.clusters.borrow_mut().insert(id, live);
                return;
            }
            Some(live) => live.cluster.endpoints.take(),
            None => Arc::default(),
        };
        let stats = registry.set(CONTROL, Scope::Cluster(stat_name.clone()));
        let updates = self.updates.clone();
        let cluster = Cluster::new(id, name, stat_name, dns, stats, updates);
        // How a host is spoken to says the configuration that it is of.
        if kept.iter().all(|endpoint| endpoint.socket.is_none()) {
            cluster.keeps.set(!kept.is_empty());
            cluster.endpoints.replace(kept);
        }
        let cluster = Rc::new(cluster);
        let mut tasks = JoinSet::new();
        for index in 0..cluster.dns.names.len() {
            let (resolvers, answered) = (self.resolvers.clone(), self.answered.clone());
            tasks.spawn_local(follow(cluster.clone(), index, resolvers, answered));
        }
        self.clusters.borrow_mut().insert(id, Followed { cluster, tasks });
    }

    /// Waits until every name was looked up once, or `bound` has passed; says which.
    pub async fn warmed(&self, bound: Duration) -> bool {
        tokio::time::timeout(bound, async {
            while !self.unready().is_empty() {
                self.answered.notified().await;
            }
        })
        .await
        .is_ok()
    }

    /// What a cluster resolves to.
    #[must_use]
    pub fn endpoints(&self, cluster: ClusterId) -> Option<Arc<[Endpoint]>> {
        Some(self.clusters.borrow().get(&cluster)?.cluster.endpoints.borrow().clone())
    }

    /// Names that were not looked up yet, but for those that requests wait for.
    #[must_use]
    pub fn unready(&self) -> Vec<Arc<str>> {
        let clusters = self.clusters.borrow();
        let waited_for = clusters.values().filter(|followed| !followed.cluster.id.is_sub());
        let pending = waited_for.flat_map(|Followed { cluster, .. }| {
            let answered = cluster.answered.borrow();
            let names = cluster.dns.names.iter().zip(answered.clone());
            names
                .filter(|(_, answered)| !answered)
                .map(|(name, _)| name.name.clone())
                .collect::<Vec<_>>()
        });
        pending.collect()
    }

    /// How many names are followed.
    #[must_use]
    pub fn names(&self) -> usize {
        self.clusters.borrow().values().map(|followed| followed.tasks.len()).sum()
    }
}

#[derive(Debug)]
struct Cluster {
    id: ClusterId,
    name: Arc<str>,
    stat_name: Arc<str>,
    dns: Dns,
    /// The addresses of each name.
    answers: RefCell<Vec<Vec<IpAddr>>>,
    /// Which names were looked up at least once.
    answered: RefCell<Vec<bool>>,
    endpoints: RefCell<Arc<[Endpoint]>>,
    /// They are those of the cluster that was here before, until all names were looked up.
    keeps: Cell<bool>,
    stats: Arc<ClusterStats>,
    updates: mpsc::UnboundedSender<Update>,
}

impl Cluster {
    fn new(
        id: ClusterId,
        name: Arc<str>,
        stat_name: Arc<str>,
        dns: Dns,
        stats: Arc<ClusterStats>,
        updates: mpsc::UnboundedSender<Update>,
    ) -> Self {
        let answers = RefCell::new(vec![Vec::new(); dns.names.len()]);
        let answered = RefCell::new(vec![false; dns.names.len()]);
        Self {
            id,
            name,
            stat_name,
            dns,
            answers,
            answered,
            endpoints: RefCell::new(Arc::from([])),
            keeps: Cell::new(false),
            stats,
            updates,
        }
    }

    /// Takes an answer in; says how long it holds.
    fn on_answer(&self, index: usize, answer: Answer, backoff: &mut Backoff) -> Duration {
        let stats = &self.stats;
        match answer {
            Answer::Found { addresses, ttl } => {
                backoff.reset();
                stats.update_success.inc();
                self.store(index, addresses);
                let ttl = ttl.filter(|ttl| self.dns.respect_ttl && !ttl.is_zero());
                let ttl = ttl.map(|ttl| ttl.max(self.dns.least_refresh));
                ttl.unwrap_or(self.dns.refresh) + jitter(self.dns.jitter)
            }
            Answer::Empty if !self.dns.logical => {
                backoff.reset();
                stats.update_success.inc();
                self.store(index, Vec::new());
                self.dns.refresh + jitter(self.dns.jitter)
            }
            Answer::Empty => {
                stats.update_failure.inc();
                backoff.next(self.dns.refresh)
            }
            Answer::Failed(why) => {
                stats.update_failure.inc();
                log!(
                    Dns,
                    Debug,
                    "cluster '{}': cannot resolve '{}': {why}",
                    self.name,
                    self.dns.names[index].name
                );
                backoff.next(self.dns.refresh)
            }
        }
    }

    fn store(&self, index: usize, addresses: Vec<IpAddr>) {
        let same = {
            let answers = self.answers.borrow();
            let known: HashSet<&IpAddr> = answers[index].iter().collect();
            // The order counts where they are of one host.
            match self.dns.logical {
                true => answers[index] == addresses,
                false => known == addresses.iter().collect(),
            }
        };
        if same {
            self.stats.update_no_rebuild.inc();
            return;
        }
        self.answers.borrow_mut()[index] = addresses;
        if !self.keeps.get() {
            self.publish();
        }
    }

    /// A name was looked up for the first time.
    fn on_first_answer(&self, index: usize) {
        self.answered.borrow_mut()[index] = true;
        if self.answered.borrow().iter().all(|answered| *answered) && self.keeps.take() {
            self.publish();
        } else if self.id.is_sub() && self.endpoints.borrow().is_empty() {
            // Requests wait to hear that it has none.
            self.publish();
        }
    }

    fn publish(&self) {
        let endpoints = self.combine();
        *self.endpoints.borrow_mut() = endpoints.clone();
        log!(Upstream, Debug, "cluster '{}' resolves to {} endpoints", self.name, endpoints.len());
        // The receiver is gone only when the process ends.
        let _ = self.updates.send(Update { cluster: self.id, endpoints });
    }

    /// All names together; an address that two names share is one host.
    fn combine(&self) -> Arc<[Endpoint]> {
        let answers = self.answers.borrow();
        if self.dns.logical {
            let names = self.dns.names.iter().zip(answers.iter());
            return names.filter_map(|(name, addresses)| self.logical(name, addresses)).collect();
        }
        let mut seen = HashSet::new();
        self.dns
            .names
            .iter()
            .zip(answers.iter())
            .flat_map(|(name, addresses)| {
                addresses.iter().map(move |address| endpoint(name, *address))
            })
            .filter(|endpoint| seen.insert(endpoint.address.clone()))
            .collect()
    }
}

impl Cluster {
    /// The one host of a logical cluster, with all its addresses.
    fn logical(&self, name: &DnsName, addresses: &[IpAddr]) -> Option<Endpoint> {
        let mut endpoint = endpoint(name, *addresses.first()?);
        if addresses.len() > 1 {
            let all: Vec<_> = addresses.iter().map(|ip| at_port(*ip, name.port)).collect();
            endpoint.addresses = Some(self.dns.eyeballs.order(&all).into());
        }
        Some(endpoint)
    }
}

async fn follow(
    cluster: Rc<Cluster>,
    index: usize,
    resolvers: Rc<RefCell<Resolvers>>,
    answered: Rc<Notify>,
) {
    let mut backoff = Backoff::new(cluster.dns.failure_refresh);
    let mut first = true;
    loop {
        cluster.stats.update_attempt.inc();
        let resolver = resolvers.borrow_mut().find(&cluster.dns.resolver, cluster.dns.family);
        let answer = match resolver {
            Ok(_) if is_foreign(&cluster.dns, index) => {
                Answer::Failed("an IPv6 address where IPv4 alone is wanted".to_owned())
            }
            Ok(resolver) => resolver::look_up(&resolver, &cluster.dns.names[index].name).await,
            Err(why) => Answer::Failed(why),
        };
        let pause = cluster.on_answer(index, answer, &mut backoff);
        if std::mem::take(&mut first) {
            cluster.on_first_answer(index);
            answered.notify_waiters();
        }
        tokio::time::sleep(pause.max(LEAST_PAUSE)).await;
    }
}

/// Whether a name is an address of a family that is not wanted: as with c-ares, it does not stand for itself then.
fn is_foreign(dns: &Dns, index: usize) -> bool {
    let name = &*dns.names[index].name;
    dns.family == Family::V4Only && name.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok()
}

/// However often the file wants it; Envoy refuses refresh rates under a millisecond.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

fn at_port(address: IpAddr, port: u16) -> Address {
    Address::Ip(SocketAddr::new(address, port))
}

fn endpoint(name: &DnsName, address: IpAddr) -> Endpoint {
    let mut endpoint = name.template.clone();
    endpoint.address = at_port(address, name.port);
    if endpoint.hostname.is_empty() {
        endpoint.hostname = name.name.clone();
    }
    endpoint
}

/// `dns_failure_refresh_rate`: doubles from the base to the maximum, and a random share of that is waited.
struct Backoff {
    bounds: Option<(Duration, Duration)>,
    next: Duration,
}

impl Backoff {
    fn new(bounds: Option<(Duration, Duration)>) -> Self {
        Self { bounds, next: bounds.map_or(Duration::ZERO, |(base, _)| base) }
    }

    fn reset(&mut self) {
        *self = Self::new(self.bounds);
    }

    fn next(&mut self, otherwise: Duration) -> Duration {
        let Some((_, most)) = self.bounds else { return otherwise };
        let whole = self.next.min(most);
        self.next = whole.saturating_mul(2);
        whole / 2 + jitter(whole / 2)
    }
}

/// A random duration below `most`.
fn jitter(most: Duration) -> Duration {
    let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(crate::random().checked_rem(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests;
