//! Which names are kept, when each is asked for (again), and when it goes: the control thread's side of a cache.
//!
//! Arrives: names that workers ask for, answers of a resolver, time. Leaves: [`Act`]s. It opens no socket and reads no
//! clock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use towpath_proto::Instant;

use super::{NameEvent, NameFault, NameNews, Resolved, parts};
use crate::snapshot::cluster::Family;
use crate::snapshot::names::DnsCache;
use crate::stats::{DnsCacheBreakerStats, DnsCacheStats, Registry, Scope};

/// The names of one `DnsCacheConfig`.
#[derive(Debug)]
pub struct Cache {
    config: Arc<DnsCache>,
    stats: Arc<DnsCacheStats>,
    totals: Arc<DnsCacheBreakerStats>,
    hosts: HashMap<Arc<str>, Entry>,
    /// When something is due for which name.
    due: BTreeSet<(Instant, Arc<str>)>,
    acts: VecDeque<Act>,
    last_query: u64,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Act {
    /// Ask for the addresses of a name; answered with [`Cache::answer`], or never.
    Query {
        /// Comes back with the answer.
        query: u64,
        /// `HOST:PORT`.
        host: Arc<str>,
        /// The name alone.
        name: Box<str>,
    },
    /// Tell all workers.
    Tell(NameNews),
}

/// What a resolver says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Addresses, and how long they hold if the answer says so.
    Found {
        /// In the order of preference; not empty.
        addresses: Vec<IpAddr>,
        /// How long they hold.
        ttl: Option<Duration>,
    },
    /// None.
    Fault(NameFault),
}

#[derive(Debug)]
struct Entry {
    /// The question that is not answered yet.
    query: Option<u64>,
    /// What workers were told.
    told: Option<Arc<Resolved>>,
    used: Arc<AtomicU64>,
    /// The next pause after a failure.
    pause: Option<Duration>,
    due: Option<Instant>,
}

/// The time, by two clocks.
#[derive(Clone, Copy, Debug)]
struct Times {
    now: Instant,
    unix_ms: u64,
}

impl Cache {
    /// An empty one, which asks for the names that its configuration wants at once.
    #[must_use]
    pub fn new(
        config: Arc<DnsCache>,
        registry: &Registry,
        worker: u32,
        now: Instant,
        unix_ms: u64,
    ) -> Self {
        let name = || Arc::clone(&config.name);
        let mut cache = Self {
            stats: registry.set(worker, Scope::DnsCache(name())),
            totals: registry.set(u32::MAX, Scope::DnsCacheBreakers(name())),
            config: Arc::clone(&config),
            hosts: HashMap::new(),
            due: BTreeSet::new(),
            acts: VecDeque::new(),
            last_query: 0,
        };
        cache.totals.limit(config.max_pending);
        // As in Envoy, `max_hosts` does not bound what the configuration itself names.
        for host in &config.preresolved {
            if !cache.hosts.contains_key(host) {
                cache.add(host, Times { now, unix_ms });
            }
        }
        cache
    }

    /// Another configuration; the names stay.
    pub fn reconfigure(&mut self, config: Arc<DnsCache>, now: Instant, unix_ms: u64) {
        self.totals.limit(config.max_pending);
        for host in &config.preresolved {
            if !self.hosts.contains_key(host) {
                self.add(host, Times { now, unix_ms });
            }
        }
        self.config = config;
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// When [`Cache::advance`] is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// What is to be done next.
    pub fn take_act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// A worker wants to know a name.
    pub fn want(&mut self, host: &Arc<str>, now: Instant, unix_ms: u64) {
        match self.hosts.get(host).map(|entry| entry.told.clone()) {
            Some(Some(told)) => self.tell(host, NameEvent::Resolved(told)),
            // Its answer is told to all.
            Some(None) => {}
            None if self.hosts.len() >= self.config.max_hosts as usize => {
                self.stats.host_overflow.inc();
                self.tell(host, NameEvent::Full);
            }
            None => self.add(host, Times { now, unix_ms }),
        }
    }

    /// A resolver has answered. An answer that no request waits for any more does nothing. `random` decides how long a
    /// pause after a failure is.
    pub fn answer(
        &mut self,
        host: &Arc<str>,
        query: u64,
        answer: Answer,
        now: Instant,
        unix_ms: u64,
        random: u64,
    ) {
        if self.hosts.get(host).and_then(|entry| entry.query) == Some(query) {
            self.settle(host, answer, Times { now, unix_ms }, random);
        }
    }

    /// Does what is due: questions that were not answered in time have failed; names are asked for again, or go.
    pub fn advance(&mut self, now: Instant, unix_ms: u64, random: u64) {
        let times = Times { now, unix_ms };
        while let Some((at, host)) = self.due.first().cloned()
            && at <= now
        {
            self.due.pop_first();
            let ttl = self.config.host_ttl;
            let Some(entry) = self.hosts.get_mut(&host) else { continue };
            entry.due = None;
            if entry.query.is_some() {
                self.stats.dns_query_timeout.inc();
                self.settle(&host, Answer::Fault(NameFault::TimedOut), times, random);
            } else if entry.unused(unix_ms) > ttl {
                self.remove(&host);
            } else {
                self.ask(&host, times);
            }
        }
    }

    fn add(&mut self, host: &Arc<str>, times: Times) {
        let entry = Entry {
            query: None,
            told: None,
            used: Arc::new(AtomicU64::new(times.unix_ms)),
            pause: None,
            due: None,
        };
        self.hosts.insert(Arc::clone(host), entry);
        self.totals.hosts.add(1);
        self.stats.host_added.inc();
        self.stats.num_hosts.inc();
        self.ask(host, times);
    }

    fn remove(&mut self, host: &Arc<str>) {
        if self.hosts.remove(host).is_none() {
            return;
        }
        self.totals.hosts.sub(1);
        self.stats.host_removed.inc();
        self.stats.num_hosts.dec();
        self.tell(host, NameEvent::Gone);
    }

    /// Asks for the addresses of a name. One that is an address, or cannot be a name, is not asked for.
    fn ask(&mut self, host: &Arc<str>, times: Times) {
        self.stats.dns_query_attempt.inc();
        let (name, _) = parts(host);
        if let Ok(address) = name.parse()
            && takes(self.config.family, address)
        {
            let found = Answer::Found { addresses: vec![address], ttl: None };
            return self.settle(host, found, times, 0);
        }
        if !can_be_name(name) {
            return self.settle(host, Answer::Fault(NameFault::Malformed), times, 0);
        }
        self.last_query += 1;
        let query = self.last_query;
        self.acts.push_back(Act::Query { query, host: Arc::clone(host), name: name.into() });
        if let Some(entry) = self.hosts.get_mut(host) {
            entry.query = Some(query);
        }
        if let Some(timeout) = self.config.query_timeout {
            self.set_due(host, times.now + timeout);
        }
    }

    fn settle(&mut self, host: &Arc<str>, answer: Answer, times: Times, random: u64) {
        let Some(entry) = self.hosts.get_mut(host) else { return };
        entry.query = None;
        let failed = match &answer {
            Answer::Found { .. } => false,
            // The server has answered.
            Answer::Fault(NameFault::NoSuchName | NameFault::NoAddress) => false,
            Answer::Fault(NameFault::Malformed | NameFault::Failed | NameFault::TimedOut) => true,
        };
        let pause = if failed {
            self.stats.dns_query_failure.inc();
            let pause = entry.back_off(&self.config, random);
            // What no request uses does not stay for longer because it fails.
            let left = self.config.host_ttl.saturating_sub(entry.unused(times.unix_ms));
            pause.min(left).max(LEAST_PAUSE)
        } else {
            self.stats.dns_query_success.inc();
            entry.pause = None;
            match &answer {
                Answer::Found { ttl, .. } => ttl.unwrap_or_default().max(self.config.least_refresh),
                Answer::Fault(_) => self.config.refresh.max(self.config.least_refresh),
            }
        };
        let address = match answer {
            Answer::Found { addresses, .. } => {
                let first = addresses.first().ok_or(NameFault::NoAddress);
                first.map(|address| SocketAddr::new(*address, parts(host).1))
            }
            Answer::Fault(fault) => Err(fault),
        };
        // Once there is an address, it stays until there is another.
        let changes = match (&entry.told, address) {
            (None, _) => true,
            (Some(told), Ok(_)) => told.address != address,
            (Some(told), Err(_)) => told.address.is_err() && told.address != address,
        };
        if changes {
            if address.is_ok() {
                self.stats.host_address_changed.inc();
            }
            let resolved = Arc::new(Resolved { address, used: Arc::clone(&entry.used) });
            entry.told = Some(Arc::clone(&resolved));
            self.tell(host, NameEvent::Resolved(resolved));
        }
        self.set_due(host, times.now + pause);
    }

    fn set_due(&mut self, host: &Arc<str>, at: Instant) {
        let Some(entry) = self.hosts.get_mut(host) else { return };
        if let Some(before) = entry.due.replace(at) {
            self.due.remove(&(before, Arc::clone(host)));
        }
        self.due.insert((at, Arc::clone(host)));
    }

    fn tell(&mut self, host: &Arc<str>, event: NameEvent) {
        let (cache, host) = (Arc::clone(&self.config.name), Arc::clone(host));
        self.acts.push_back(Act::Tell(NameNews { cache, host, event }));
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.totals.hosts.sub(self.hosts.len() as u64);
    }
}

impl Entry {
    /// For how long no request went there.
    fn unused(&self, unix_ms: u64) -> Duration {
        Duration::from_millis(unix_ms.saturating_sub(self.used.load(Ordering::Relaxed)))
    }

    /// The pause after a failure: it doubles from the base to the maximum, and a random share of it is waited.
    fn back_off(&mut self, config: &DnsCache, random: u64) -> Duration {
        let Some((base, most)) = config.failure_refresh else { return config.refresh };
        let whole = self.pause.unwrap_or(base).min(most);
        self.pause = Some(whole.saturating_mul(2));
        let half = whole / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(random.checked_rem(nanos).unwrap_or(0))
    }
}

/// Whether an address stands for itself: as with c-ares, an IPv6 one does not where IPv4 alone is wanted.
fn takes(family: Family, address: IpAddr) -> bool {
    family != Family::V4Only || address.is_ipv4()
}

/// Whether a resolver can be asked for it (RFC 1035 §2.3.4).
fn can_be_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'*' | b'/');
    name.len() <= 253
        && name
            .split('.')
            .all(|label| (1..=63).contains(&label.len()) && label.bytes().all(is_plain))
}

/// However soon something is due.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
