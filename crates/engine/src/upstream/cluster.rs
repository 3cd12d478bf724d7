//! Clusters as a worker lives them: hosts, their pools, what is in use, and the choice of a host.
//!
//! Arrives: configuration and resolved endpoints. Leaves: the [`PoolKey`] that a stream goes to.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use towpath_proto::{Close, ConnectionId, Instant};

use crate::balancer::{Among, Balancer, Host};
use crate::conn::Connections;
use crate::conn::context::PlacedFilter;
use crate::conn::tls::{ClusterSockets, ClusterTls};
use crate::env::Env;
use crate::filter::FilterScope;
use crate::ids::{PoolClass, PoolKey, Priority};
use crate::serving::HTTP2;
use crate::snapshot::cluster::{Discovery, Endpoint, Limits, Tracks};
use crate::snapshot::health::{ClusterHealth, HealthFlags};
use crate::snapshot::subset::Criteria;
use crate::snapshot::{Cluster, ClusterId};
use crate::stats::{
    BreakerStats, ClusterBoltStats, ClusterStats, GoogleGrpcStats, GreetingStats, Http2Stats,
    PartStats, PassingStats, ProxyHeaderStats, Registry, Scope,
};
use crate::total::{Share, Total, slack};
use crate::upstream::Upstreams;
use crate::upstream::aggregate::Aggregate;
use crate::upstream::asked::Places;
use crate::upstream::avoided::Avoided;
use crate::upstream::destinations::Destinations;
use crate::upstream::host_pools::HostPools;
use crate::upstream::named::Named;
use crate::upstream::pool::Pool;
use crate::upstream::shown::{Shown, SocketMatches};
use crate::upstream::subsets::LiveSubsets;
use crate::upstream::tracked::Tracked;
use crate::upstream::wishes::Wishes;
use crate::upstream::zone_books::ZoneBooks;

/// A cluster's live state.
#[derive(Debug)]
pub(crate) struct ClusterState {
    pub(crate) id: ClusterId,
    pub(crate) config: Arc<Cluster>,
    pub(crate) stats: Arc<ClusterStats>,
    /// How its hosts are spoken to, if not in plain text.
    pub(crate) tls: Option<ClusterTls>,
    /// The same, of hosts that differ.
    pub(crate) sockets: Vec<Option<ClusterTls>>,
    /// Where one of them is chosen for each connection.
    pub(crate) matches: Option<Box<SocketMatches>>,
    /// Where Bolt is spoken.
    pub(crate) bolt_stats: Option<Arc<ClusterBoltStats>>,
    /// Where HTTP/2 may be spoken.
    pub(crate) http2_stats: Option<Arc<Http2Stats>>,
    /// Where it carries calls of a `google_grpc`.
    pub(crate) google_stats: Option<Arc<GoogleGrpcStats>>,
    /// Where its hosts say first who they are.
    pub(crate) greeting_stats: Option<Arc<GreetingStats>>,
    pub(crate) header_stats: Option<Arc<ProxyHeaderStats>>,
    pub(crate) passing_stats: Option<Arc<PassingStats>>,
    /// What this worker has in use, by [`Priority`].
    loads: [Load; 2],
    /// How far requests may be counted behind, by [`Priority`].
    slack: [u32; 2],
    /// How many workers count.
    workers: u32,
    /// What this worker shows of its hosts, if it is the one that does.
    pub(crate) shown: Option<Box<Shown>>,
    /// The gauges of the circuit breakers, which all workers share. They are shown as long as a worker has them.
    breakers: Option<Arc<BreakerStats>>,
    /// What the balancer sees; `pools_of` says where each host's pools are.
    pub(crate) hosts: Vec<Host>,
    pub(crate) pools_of: Vec<HostPools>,
    pub(crate) balancer: Balancer,
    /// Those of its hosts, where requests ask for them.
    pub(crate) subsets: Option<Box<LiveSubsets>>,
    /// When its hosts are next weighed, if they say themselves what they weigh.
    pub(crate) weigh_at: Option<Instant>,
    /// Where its hosts are, if requests name them.
    pub(crate) places: Option<Box<Places>>,
    /// Where its clients wanted to go, if that decides.
    pub(crate) destinations: Option<Box<Destinations>>,
    /// Where the names are that its requests choose, if these decide.
    pub(crate) named: Option<Box<Named>>,
    /// It has no hosts: each name that its requests choose is a cluster of its own.
    pub(crate) has_subs: bool,
    /// Whose hosts it chooses among, if it has none of its own.
    pub(crate) aggregate: Option<Box<Aggregate>>,
    /// Where requests are counted by zones, if this proxy is in one.
    pub(crate) zone_books: Option<Box<ZoneBooks>>,
    /// What is counted of each attempt, if anything.
    pub(crate) tracked: Option<Rc<Tracked>>,
    /// Where the answers of canaries are counted, once there are any.
    pub(crate) canary_stats: Option<Arc<PartStats>>,
    /// Some host is one, or was.
    pub(crate) has_canaries: bool,
    /// What was found out about its hosts, as it was last told.
    pub(crate) health: Option<Arc<ClusterHealth>>,
    /// The monitor knows that it is used.
    pub(crate) told_traffic: bool,
    /// How many requests were dropped by share.
    pub(crate) dropped: u64,
    pub(crate) pools: Vec<Option<Pool>>,
    /// What requests have asked of TLS, which classes of pools name by their places.
    pub(crate) wishes: Wishes,
    /// Its connects are raced: it is an origin of the app.
    pub(crate) races: bool,
    /// Its configuration asks for nothing but that requests go out over connections that are kept.
    pub(crate) plain: bool,
    /// What each attempt passes before its host.
    pub(crate) filters: Rc<[PlacedFilter]>,
    /// No configuration has it any more: it is gone with its last connection.
    pub(crate) leaves: bool,
}

/// What circuit breakers limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Connections,
    Pending,
    Requests,
    Retries,
    Pools,
}

impl Resource {
    const ALL: [Self; 5] =
        [Self::Connections, Self::Pending, Self::Requests, Self::Retries, Self::Pools];
}

/// What became of a request, as `/clusters` counts it for its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    /// `rq_success`: a response below 500 began.
    Success,
    /// `rq_error`: another response, or none.
    Error,
    /// The client went before there was a response.
    Cancelled,
}

/// What this worker has in use, by [`Resource`].
type Load = [Share; 5];

impl ClusterState {
    pub(crate) fn new(id: ClusterId, config: Arc<Cluster>, stats: Arc<ClusterStats>) -> Self {
        let balancer = Balancer::new(config.balancing);
        let destinations = Destinations::of(&config.discovery);
        let aggregate = Aggregate::of(&config.discovery);
        let named = Named::of(&config.discovery);
        let has_subs = matches!(config.discovery, Discovery::SubClusters(_));
        Self {
            id,
            plain: is_plain(&config),
            config,
            stats,
            tls: None,
            sockets: Vec::new(),
            matches: None,
            bolt_stats: None,
            http2_stats: None,
            google_stats: None,
            greeting_stats: None,
            header_stats: None,
            passing_stats: None,
            loads: [Load::default(); 2],
            slack: [0; 2],
            workers: 1,
            shown: None,
            breakers: None,
            hosts: Vec::new(),
            pools_of: Vec::new(),
            balancer,
            subsets: None,
            weigh_at: None,
            places: None,
            destinations,
            named,
            has_subs,
            aggregate,
            zone_books: None,
            tracked: None,
            canary_stats: None,
            has_canaries: false,
            health: None,
            told_traffic: false,
            dropped: 0,
            pools: Vec::new(),
            wishes: Wishes::default(),
            races: false,
            filters: Rc::default(),
            leaves: false,
        }
    }

    /// How the host of a pool is spoken to, if not in plain text.
    pub(crate) fn tls_of(&self, pool_key: PoolKey) -> Option<&ClusterTls> {
        match self.pool(pool_key)?.socket {
            Some(socket) => self.sockets.get(usize::from(socket))?.as_ref(),
            None => self.tls.as_ref(),
        }
    }

    /// What the host of a pool is shown, if it asks for a certificate (DER).
    pub(crate) fn own_certificate(&self, pool_key: PoolKey) -> Option<&[u8]> {
        let tls = match self.pool(pool_key)?.socket {
            Some(socket) => self.config.sockets.get(usize::from(socket))?,
            None => &self.config.tls,
        };
        Some(&tls.as_ref()?.certificates.own.first()?.der)
    }

    pub(crate) fn pool(&self, pool_key: PoolKey) -> Option<&Pool> {
        self.pools.get(pool_key.pool as usize)?.as_ref()
    }

    pub(crate) fn pool_mut(&mut self, pool_key: PoolKey) -> Option<&mut Pool> {
        self.pools.get_mut(pool_key.pool as usize)?.as_mut()
    }

    /// For how many streams a pool has connections, for each thousand: a host that is not well gets none ahead of need.
    pub(crate) fn preconnect_milli(&self, pool_key: PoolKey) -> u32 {
        let host = self.pool(pool_key).and_then(|pool| self.hosts.get(pool.host? as usize));
        let is_well = host.is_some_and(|host| host.health_flags == HealthFlags::WELL);
        if is_well { self.config.preconnect_milli } else { 1000 }
    }

    /// What all workers have in use of a priority.
    fn in_use(&self, priority: Priority, resource: Resource) -> u32 {
        self.loads[priority as usize][resource as usize].in_use(total(
            &self.config,
            priority,
            resource,
        ))
    }

    /// Whether its circuit breaker is open.
    pub(crate) fn is_full(&mut self, pool_key: PoolKey, resource: Resource) -> bool {
        self.is_full_for(self.priority(pool_key), resource)
            || resource == Resource::Connections && self.is_host_full(pool_key)
    }

    /// Whether there are as many connections to the host of a pool as there may be.
    fn is_host_full(&self, pool_key: PoolKey) -> bool {
        let most = self.config.host_connections[self.priority(pool_key) as usize];
        let total = self.pool(pool_key).and_then(|pool| pool.total.as_ref());
        most.zip(total).is_some_and(|(most, total)| total.value() >= u64::from(most))
    }

    /// The same for a priority.
    pub(crate) fn is_full_for(&mut self, priority: Priority, resource: Resource) -> bool {
        let limits = self.limits_of(priority);
        let limit = match resource {
            Resource::Connections => limits.connections,
            Resource::Pending => limits.pending,
            Resource::Requests => limits.requests,
            Resource::Retries => limits.retries,
            Resource::Pools => limits.pools,
        };
        self.is_at(limit, priority, resource)
    }

    /// Whether no more retries are allowed.
    pub(crate) fn is_full_of_retries(&mut self, priority: Priority, now: Instant) -> bool {
        let limits = self.limits_of(priority);
        let limit = match limits.retry_budget {
            Some(budget) => self.retries_allowed(priority, budget, now),
            None => limits.retries,
        };
        self.is_at(limit, priority, Resource::Retries)
    }

    /// Whether so many are in use.
    fn is_at(&mut self, limit: u32, priority: Priority, resource: Resource) -> bool {
        let full = self.in_use(priority, resource) >= limit;
        if full {
            let config = Arc::clone(&self.config);
            let share = &mut self.loads[priority as usize][resource as usize];
            share.tell_all(total(&config, priority, resource));
        }
        full
    }

    fn retries_allowed(
        &self,
        priority: Priority,
        (percent_hundredths, least): (u32, u32),
        now: Instant,
    ) -> u32 {
        let requests = match self.limits_of(priority).budget_interval {
            Some(interval) => self.config.in_use[priority as usize].recent.value(interval, now),
            None => {
                u64::from(self.in_use(priority, Resource::Requests))
                    + u64::from(self.in_use(priority, Resource::Pending))
            }
        };
        let share = requests * u64::from(percent_hundredths) / 10_000;
        u32::try_from(share).unwrap_or(u32::MAX).max(least)
    }

    pub(crate) fn take(&mut self, pool_key: PoolKey, resource: Resource) {
        let (priority, slack) = (self.priority(pool_key), self.slack(pool_key, resource));
        let total = total(&self.config, priority, resource);
        self.loads[priority as usize][resource as usize].take(total, slack);
        if let Some(total) = self.total_of(pool_key, resource) {
            total.add(1);
        }
    }

    /// What all workers have of a host, where that is limited.
    fn total_of(&self, pool_key: PoolKey, resource: Resource) -> Option<&Total> {
        let is_limited = resource == Resource::Connections;
        self.pool(pool_key).filter(|_| is_limited)?.total.as_deref()
    }

    pub(crate) fn give(&mut self, pool_key: PoolKey, resource: Resource) {
        let (priority, slack) = (self.priority(pool_key), self.slack(pool_key, resource));
        let total = total(&self.config, priority, resource);
        self.loads[priority as usize][resource as usize].give(total, slack);
        if let Some(total) = self.total_of(pool_key, resource) {
            total.sub(1);
        }
    }

    /// Requests alone come often enough for the total's cache line to matter.
    fn slack(&self, pool_key: PoolKey, resource: Resource) -> u32 {
        match resource {
            Resource::Requests => self.slack[self.priority(pool_key) as usize],
            Resource::Connections | Resource::Pending | Resource::Retries | Resource::Pools => 0,
        }
    }

    /// The circuit breakers of a priority.
    pub(crate) fn limits_of(&self, priority: Priority) -> &Limits {
        match priority {
            Priority::Default => &self.config.limits,
            Priority::High => &self.config.high_limits,
        }
    }

    pub(crate) fn priority(&self, pool_key: PoolKey) -> Priority {
        self.pool(pool_key).map_or(Priority::Default, |pool| pool.class.priority)
    }

    /// Counts with the other workers.
    fn share_breakers(&mut self, registry: &Registry, workers: u32) {
        let scope = Scope::ClusterBreakers(Arc::clone(&self.config.stat_name));
        self.breakers = Some(registry.set(u32::MAX, scope));
        self.workers = workers;
        self.follow_limits();
    }

    fn follow_limits(&mut self) {
        if let Some(breakers) = &self.breakers {
            let cluster: Weak<Cluster> = Arc::downgrade(&self.config);
            breakers.follow(cluster);
        }
        for priority in [Priority::Default, Priority::High] {
            let limits = self.limits_of(priority);
            let exact = limits.track_remaining;
            let slack = if exact { 0 } else { slack(limits.requests, self.workers) };
            self.slack[priority as usize] = slack;
        }
    }

    /// Chooses a host for a stream, not one to be avoided if there is another. Where there are subsets, its criteria
    /// say which.
    #[inline(always)]
    pub(crate) fn pick(
        &mut self,
        random: u64,
        class: PoolClass,
        avoided: Avoided<'_>,
        criteria: Option<&Criteria>,
        now: Instant,
    ) -> Option<PoolKey> {
        if self.subsets.is_some() {
            return self.pick_of_subset(None, random, class, avoided, criteria, now);
        }
        if avoided.priorities.is_none() {
            return self.pick_among(None, random, class, avoided, now);
        }
        self.pick_past(random, class, avoided, now)
    }

    #[cold]
    fn pick_past(
        &mut self,
        random: u64,
        class: PoolClass,
        avoided: Avoided<'_>,
        now: Instant,
    ) -> Option<PoolKey> {
        let Avoided { hosts, omitted, attempts, priorities } = avoided;
        let past = priorities?;
        let among = self.balancer.past(past, random);
        let avoided = Avoided { hosts, omitted, attempts, priorities: None };
        let picked = self.pick_among(among, random, class, avoided, now)?;
        let host = self.pool(picked).and_then(|pool| self.hosts.get(pool.host? as usize));
        past.note(host.map_or(0, |host| host.endpoint.priority as usize));
        Some(picked)
    }

    /// The same; where an aggregate has decided for it, among which hosts.
    pub(crate) fn pick_among(
        &mut self,
        among: Option<Among>,
        random: u64,
        class: PoolClass,
        avoided: Avoided<'_>,
        now: Instant,
    ) -> Option<PoolKey> {
        if self.weigh_at.is_some() {
            self.weigh_if_due(random, now);
        }
        let (id, hosts, pools_of) = (self.id, &self.hosts, &self.pools_of);
        let skip = |host: usize| avoided.has(id, hosts.get(host), pools_of.get(host));
        let attempts = avoided.attempts;
        let host = self.balancer.pick_among(among, &self.hosts, random, &skip, attempts, now);
        if self.balancer.in_panic() || self.hosts.is_empty() {
            self.stats.lb_healthy_panic.inc();
        }
        self.pool_of(host?, class)
    }

    /// The pool of a host for a class.
    pub(crate) fn pool_of(&mut self, host: usize, class: PoolClass) -> Option<PoolKey> {
        let pool = match self.pools_of.get(host)?.get(class) {
            Some(pool) => pool,
            None => self.add_later_pool(host, class)?,
        };
        Some(PoolKey { cluster: self.id, pool })
    }

    /// A host gets a pool that it was not wanted of before.
    fn add_later_pool(&mut self, host: usize, class: PoolClass) -> Option<u32> {
        let endpoint = self.hosts.get(host)?.endpoint.clone();
        let pool = self.add_pool(&endpoint, class);
        if let Some(Some(made)) = self.pools.get_mut(pool as usize) {
            made.host = u32::try_from(host).ok();
        }
        self.pools_of.get_mut(host)?.put(class, pool);
        Some(pool)
    }

    /// A stream will be tried again.
    pub(crate) fn retry_began(&mut self, priority: Priority) {
        let total = total(&self.config, priority, Resource::Retries);
        self.loads[priority as usize][Resource::Retries as usize].take(total, 0);
    }

    /// A retry is over. A cluster of another kind, in place of the one that it was counted in, has counted none.
    pub(crate) fn retry_over(&mut self, priority: Priority) {
        let total = total(&self.config, priority, Resource::Retries);
        self.loads[priority as usize][Resource::Retries as usize].give(total, 0);
    }

    /// It is gone from the configuration, and nothing hangs on it any more.
    pub(crate) fn is_left(&self) -> bool {
        let retries = self.loads.iter().any(|load| load[Resource::Retries as usize].is_used());
        self.leaves && !retries && self.pools.iter().all(Option::is_none)
    }

    /// A stream waits for a connection.
    pub(crate) fn joined_queue(&mut self, pool_key: PoolKey) {
        self.take(pool_key, Resource::Pending);
        self.stats.upstream_rq_pending_total.inc();
        self.stats.upstream_rq_pending_active.inc();
    }

    /// A stream left the queue of a pool.
    pub(crate) fn left_queue(&mut self, pool_key: PoolKey) {
        self.give(pool_key, Resource::Pending);
        self.stats.upstream_rq_pending_active.dec();
        self.show_pool(pool_key);
    }

    /// A stream begins (or ends) on a host.
    pub(crate) fn request_began(&mut self, pool_key: PoolKey, now: Instant) {
        self.take(pool_key, Resource::Requests);
        let priority = self.priority(pool_key);
        if let Some(interval) = self.limits_of(priority).budget_interval {
            self.config.in_use[priority as usize].recent.note(interval, now);
        }
        self.stats.upstream_rq_total.inc();
        self.stats.upstream_rq_active.inc();
        let Some(pool) = self.pools.get_mut(pool_key.pool as usize).and_then(Option::as_mut) else {
            return;
        };
        pool.counts.requests_total += 1;
        pool.counts.requests_active += 1;
        if let Some(host) = pool.host.and_then(|host| self.hosts.get_mut(host as usize)) {
            host.active += 1;
        }
    }

    pub(crate) fn request_over(&mut self, pool_key: PoolKey, outcome: RequestOutcome) {
        self.give(pool_key, Resource::Requests);
        self.stats.upstream_rq_active.dec();
        let Some(pool) = self.pools.get_mut(pool_key.pool as usize).and_then(Option::as_mut) else {
            return;
        };
        pool.counts.requests_active -= 1;
        match outcome {
            RequestOutcome::Success => pool.counts.requests_success += 1,
            RequestOutcome::Error => pool.counts.requests_error += 1,
            RequestOutcome::Cancelled => {}
        }
        pool.show();
        if let Some(host) = pool.host.and_then(|host| self.hosts.get_mut(host as usize)) {
            host.active -= 1;
        }
    }

    /// Whether a configuration can take the place of this one's while it serves: it counts and speaks alike.
    pub(crate) fn may_become(&self, config: &Cluster) -> bool {
        let now = &self.config;
        now.name == config.name
            && now.stat_name == config.stat_name
            && now.bolt.is_some() == config.bolt.is_some()
            && now.http2.is_some() == config.http2.is_some()
            && now.greetings.is_some() == config.greetings.is_some()
    }

    /// Takes another configuration. Answers the pools whose host is gone.
    pub(crate) fn reconfigure(
        &mut self,
        config: Arc<Cluster>,
        tls: ClusterSockets,
        env: &mut Env,
        now: Instant,
    ) -> Vec<u32> {
        let before = std::mem::replace(&mut self.config, config);
        let config = Arc::clone(&self.config);
        self.plain = is_plain(&config);
        self.weigh_at = None;
        self.filters = start_filters(&config, env);
        (self.tls, self.sockets) = tls;
        self.matches = SocketMatches::of_state(&config, &env.registry, env.index);
        self.tracked = Tracked::of(&config, env);
        self.leaves = false;
        if config.balancing != before.balancing
            || config.subsets != before.subsets
            || config.zones != before.zones
        {
            self.begin_balancers(env);
        }
        let random = env.random.next();
        if config.health_check.is_none() && config.outliers.is_none() {
            self.health = None;
        }
        // Names are asked for elsewhere, and their addresses stay until there are others.
        let resolved =
            config.discovery != Discovery::Static && config.discovery == before.discovery;
        let gone = if resolved && self.named.is_some() {
            Vec::new()
        } else if resolved {
            let known: Vec<Endpoint> =
                self.hosts.iter().map(|host| host.endpoint.clone()).collect();
            self.update(&known, random, now)
        } else {
            self.destinations = Destinations::of(&config.discovery);
            self.named = Named::of(&config.discovery);
            self.aggregate = Aggregate::of(&config.discovery);
            self.has_subs = matches!(config.discovery, Discovery::SubClusters(_));
            self.update(&config.endpoints, random, now)
        };
        for pool in self.pools.iter_mut().flatten() {
            pool.tally = config.tally_of(&pool.address);
            pool.count_in(config.connections_of(&pool.address));
        }
        self.track_pools();
        for priority in [Priority::Default, Priority::High] {
            for resource in Resource::ALL {
                let share = &mut self.loads[priority as usize][resource as usize];
                share.move_to(
                    total(&before, priority, resource),
                    total(&config, priority, resource),
                );
            }
        }
        self.follow_limits();
        gone
    }

    pub(crate) fn pool_keys(&self) -> Vec<PoolKey> {
        let pools = (0_u32..).zip(&self.pools).filter(|(_, pool)| pool.is_some());
        pools.map(|(pool, _)| PoolKey { cluster: self.id, pool }).collect()
    }

    pub(crate) fn open_connections(&self) -> Vec<ConnectionId> {
        self.pools.iter().flatten().flat_map(|pool| pool.open.iter().copied()).collect()
    }
}

/// Whether a cluster speaks HTTP, takes a host's word for its health, has hosts of its own and keeps its connections.
fn is_plain(config: &Cluster) -> bool {
    let asks = config.http2.as_ref().and_then(|http2| http2.keepalive?.idle).is_some();
    Destinations::of(&config.discovery).is_none()
        && Named::of(&config.discovery).is_none()
        && Aggregate::of(&config.discovery).is_none()
        && !matches!(config.discovery, Discovery::SubClusters(_))
        && config.bolt.is_none()
        && config.proxy_headers.is_none()
        && config.passing.is_none()
        && config.outliers.is_none()
        && config.drops.is_none()
        && config.override_hosts.is_none()
        && config.chooses_by_state().is_none()
        && config.load_reports.is_none()
        && config.filters.is_empty()
        && config.hash.is_empty()
        && config.retry.is_none()
        && config.mirrors.is_none()
        && config.max_requests_per_connection == 0
        && config.preconnect_milli == 1000
        && config.tracks == Tracks::default()
        && !asks
}

/// The filters of a cluster as this worker has them.
fn start_filters(config: &Cluster, env: &Env) -> Rc<[PlacedFilter]> {
    if config.filters.is_empty() {
        return Rc::default();
    }
    let (notes, registry) = (Rc::clone(&env.notes), Arc::clone(&env.registry));
    let name = Arc::clone(&config.stat_name);
    let mut scope = FilterScope::new(name, notes, registry, env.index);
    scope.is_of_cluster = true;
    PlacedFilter::start(&config.filters, &scope, None)
}

/// What all workers have in use of a cluster.
fn total(config: &Cluster, priority: Priority, resource: Resource) -> &Total {
    let in_use = &config.in_use[priority as usize];
    match resource {
        Resource::Connections => &in_use.connections,
        Resource::Pending => &in_use.pending,
        Resource::Requests => &in_use.requests,
        Resource::Retries => &in_use.retries,
        Resource::Pools => &in_use.pools,
    }
}

impl Upstreams {
    /// Begins with a cluster of a snapshot.
    pub(crate) fn open_cluster(
        &mut self,
        id: ClusterId,
        config: &Arc<Cluster>,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let stats = env.registry.set(env.index, Scope::Cluster(Arc::clone(&config.stat_name)));
        let mut cluster = ClusterState::new(id, Arc::clone(config), stats);
        cluster.begin_balancers(env);
        cluster.filters = start_filters(config, env);
        (cluster.tls, cluster.sockets) = conns.cluster_tls(config, env);
        cluster.matches = SocketMatches::of_state(config, &env.registry, env.index);
        if config.bolt.is_some() {
            let scope = Scope::ClusterBolt(Arc::clone(&config.stat_name));
            cluster.bolt_stats = Some(env.registry.set(env.index, scope));
        }
        if config.http2.is_some() {
            let scope = Scope::ClusterHttp2(Arc::clone(&config.stat_name));
            cluster.http2_stats = Some(env.registry.set(env.index, scope));
        }
        let google = config.google_prefix().map(|prefix| Scope::GoogleGrpc(Arc::from(prefix)));
        cluster.google_stats = google.map(|scope| env.registry.set(env.index, scope));
        cluster.header_stats = config.proxy_headers.as_ref().map(|_| {
            env.registry.set(env.index, Scope::ClusterProxyHeader(Arc::clone(&config.stat_name)))
        });
        cluster.passing_stats = config.passing.as_ref().map(|_| {
            env.registry.set(env.index, Scope::ClusterPassing(Arc::clone(&config.stat_name)))
        });
        if config.greetings.is_some() {
            cluster.greeting_stats = Some(env.registry.set(env.index, Scope::MetadataExchange));
        }
        cluster.tracked = Tracked::of(config, env);
        cluster.zone_books = ZoneBooks::of(config, &env.registry, env.index);
        cluster.health = self.clusters.early_health.remove(&id);
        cluster.update(&config.endpoints, env.random.next(), now);
        cluster.share_breakers(&env.registry, env.workers);
        if env.index == 0 && cluster.destinations.is_none() {
            // Of what requests had made the first hosts are news.
            let is_news = !(id.is_sub() && config.endpoints.is_empty());
            if cluster.named.is_none() && !cluster.has_subs && is_news {
                cluster.stats.membership_change.inc();
            }
            let shown = Shown::of(config, &env.registry, env.index);
            shown.count_matches(&config.endpoints);
            cluster.shown = Some(Box::new(shown));
            cluster.show_hosts();
        }
        self.clusters.put(id, Some(Box::new(cluster)));
    }

    /// Adds a cluster that no snapshot has: an origin of the app.
    pub(crate) fn add_cluster(
        &mut self,
        config: Arc<Cluster>,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> ClusterId {
        let free = self.clusters.slots.iter().position(Option::is_none);
        let id = ClusterId(u32::try_from(free.unwrap_or(self.clusters.len())).unwrap_or(u32::MAX));
        let stats = env.registry.set(env.index, Scope::Cluster(Arc::clone(&config.stat_name)));
        let mut cluster = ClusterState::new(id, Arc::clone(&config), stats);
        (cluster.tls, cluster.sockets) = conns.cluster_tls(&config, env);
        if HTTP2 && config.http2.is_some() {
            let scope = Scope::ClusterHttp2(Arc::clone(&config.stat_name));
            cluster.http2_stats = Some(env.registry.set(env.index, scope));
        }
        cluster.races = true;
        cluster.update(&config.endpoints, env.random.next(), now);
        self.clusters.put(id, Some(Box::new(cluster)));
        id
    }

    /// Takes what was found out about the hosts of a cluster. Answers the pools of those that are not well any more.
    pub(crate) fn update_health(
        &mut self,
        id: ClusterId,
        health: Arc<ClusterHealth>,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> Vec<u32> {
        let Some(cluster) = self.clusters.get_mut(id) else {
            self.clusters.early_health.insert(id, health);
            return Vec::new();
        };
        let before = cluster.config.ends.on_change.then(|| cluster.flags());
        let fell = cluster.take_health(health, env.random.next(), now);
        if env.index == 0 {
            cluster.show_hosts();
        }
        let changed = before.is_some_and(|before| before != cluster.flags());
        let drained = if changed { cluster.places_of_pools() } else { fell.clone() };
        self.clusters.follow_local();
        for pool in drained {
            self.drain_pool(PoolKey { cluster: id, pool }, conns, env, now);
        }
        fell
    }

    /// The host of a pool is not well, or gone: none of its connections is used for another stream.
    pub(crate) fn drain_pool(
        &mut self,
        pool_key: PoolKey,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let open = self.clusters.pool(pool_key).map(|pool| pool.open.clone());
        for id in open.unwrap_or_default() {
            let Some(connection) = conns.table.get_mut(id) else { continue };
            let busy = connection.is_busy();
            if let Some(upstream) = connection.upstream_mut() {
                upstream.retired = true;
            }
            if !busy {
                self.close_upstream(id, Close::Flush, conns, env, now);
            }
        }
    }
}
