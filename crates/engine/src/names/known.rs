//! What one worker knows of names, and which streams wait for them.
//!
//! Arrives: a name that a stream wants to go to, and news of the control thread. Leaves: its address, or a place in the
//! queue of those that wait for it, which is given up with its [`Ticket`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::{NameEvent, NameNews, Resolved};
use crate::snapshot::names::DnsCache;
use crate::stats::{DnsCacheBreakerStats, DnsCacheStats, Registry, Scope};

/// All caches of a worker.
#[derive(Debug, Default)]
pub(crate) struct Names {
    caches: RefCell<Vec<Known>>,
    last: std::cell::Cell<u64>,
}

#[derive(Debug)]
struct Known {
    config: Arc<DnsCache>,
    stats: Arc<DnsCacheStats>,
    totals: Arc<DnsCacheBreakerStats>,
    hosts: HashMap<Arc<str>, Arc<Resolved>>,
    /// Names that the control thread was asked for, and what waits for each.
    asked: HashMap<Arc<str>, Vec<(u64, Waiter)>>,
}

/// What waits for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    /// The index of a stream.
    pub(crate) stream: u32,
    pub(crate) serial: u64,
    /// The place of the filter that holds it up; without, it is on its way to its cluster.
    pub(crate) place: Option<usize>,
}

/// What is known of a name.
#[derive(Debug)]
pub(crate) enum Lookup {
    Known(Arc<Resolved>),
    /// It is to be waited for.
    Wait {
        ticket: Ticket,
        /// The control thread does not know that it is wanted.
        is_new: bool,
    },
    /// There are too many names.
    Full,
    /// Too many requests wait.
    Overflow,
    /// No such cache.
    Unknown,
}

/// A place in a queue, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket {
    names: Rc<Names>,
    totals: Arc<DnsCacheBreakerStats>,
    cache: Arc<str>,
    host: Arc<str>,
    id: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.totals.pending.sub(1);
        let mut caches = self.names.caches.borrow_mut();
        let cache = caches.iter_mut().find(|it| it.config.name == self.cache);
        if let Some(queue) = cache.and_then(|cache| cache.asked.get_mut(&self.host)) {
            queue.retain(|(id, _)| *id != self.id);
        }
    }
}

impl Names {
    /// Takes the caches of a configuration; what is known of those that stay is kept.
    pub(crate) fn update(&self, configs: &[Arc<DnsCache>], registry: &Registry, worker: u32) {
        let mut caches = self.caches.borrow_mut();
        if configs.is_empty() && caches.is_empty() {
            return;
        }
        let mut before = std::mem::take(&mut *caches);
        *caches = (configs.iter())
            .map(|config| {
                let at = before.iter().position(|it| it.config.name == config.name);
                let mut known = match at {
                    Some(at) => before.swap_remove(at),
                    None => Known::new(config, registry, worker),
                };
                known.config = Arc::clone(config);
                known.totals.limit(config.max_pending);
                known
            })
            .collect();
    }

    /// Looks a name (`HOST:PORT`) up for a stream that will wait if need be.
    pub(crate) fn look_up(self: &Rc<Self>, cache: &str, host: &str, waiter: Waiter) -> Lookup {
        let mut caches = self.caches.borrow_mut();
        let Some(known) = caches.iter_mut().find(|it| *it.config.name == *cache) else {
            return Lookup::Unknown;
        };
        if !known.totals.begin() {
            known.stats.dns_rq_pending_overflow.inc();
            return Lookup::Overflow;
        }
        if let Some(resolved) = known.hosts.get(host) {
            known.totals.pending.sub(1);
            return Lookup::Known(Arc::clone(resolved));
        }
        let most = known.config.max_hosts;
        if known.totals.hosts.value() >= most.into() || known.asked.len() >= most as usize {
            known.totals.pending.sub(1);
            known.stats.host_overflow.inc();
            return Lookup::Full;
        }
        let id = self.last.get() + 1;
        self.last.set(id);
        let is_new = !known.asked.contains_key(host);
        let host: Arc<str> = Arc::from(host);
        known.asked.entry(Arc::clone(&host)).or_default().push((id, waiter));
        let ticket = Ticket {
            names: Rc::clone(self),
            totals: Arc::clone(&known.totals),
            cache: Arc::clone(&known.config.name),
            host,
            id,
        };
        Lookup::Wait { ticket, is_new }
    }

    /// What is known of a name, without waiting.
    pub(crate) fn get(&self, cache: &str, host: &str) -> Option<Arc<Resolved>> {
        let caches = self.caches.borrow();
        caches.iter().find(|it| *it.config.name == *cache)?.hosts.get(host).cloned()
    }

    /// Takes news in; answers what waited for them.
    pub(crate) fn take(&self, news: &NameNews) -> Vec<Waiter> {
        let mut caches = self.caches.borrow_mut();
        let Some(known) = caches.iter_mut().find(|it| it.config.name == news.cache) else {
            return Vec::new();
        };
        match &news.event {
            NameEvent::Resolved(resolved) => {
                known.hosts.insert(Arc::clone(&news.host), Arc::clone(resolved));
            }
            NameEvent::Gone => {
                known.hosts.remove(&news.host);
                return Vec::new();
            }
            NameEvent::Full => {}
        }
        let waited = known.asked.remove(&news.host).unwrap_or_default();
        waited.into_iter().map(|(_, waiter)| waiter).collect()
    }
}

impl Known {
    fn new(config: &Arc<DnsCache>, registry: &Registry, worker: u32) -> Self {
        let name = || Arc::clone(&config.name);
        Self {
            config: Arc::clone(config),
            stats: registry.set(worker, Scope::DnsCache(name())),
            totals: registry.set(u32::MAX, Scope::DnsCacheBreakers(name())),
            hosts: HashMap::new(),
            asked: HashMap::new(),
        }
    }
}
