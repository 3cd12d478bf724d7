//! Clusters that requests have made: one for each name that they choose. Envoy's sub-clusters of a dynamic forward
//! proxy.
//!
//! The control thread makes and ends them ([`SubQuestion`], [`SubNews`]). A worker has [`Subs`]: those that it was told
//! of, and which streams wait for others. Each such stream has a place in a queue, which it gives up with its
//! [`SubTicket`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Waiter;
use crate::snapshot::{Cluster, ClusterId};

/// From a worker: a request wants to go to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubQuestion {
    /// The cluster that its route says.
    pub parent: ClusterId,
    /// The host, an IPv6 address without its brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

impl SubQuestion {
    /// What Envoy calls the cluster of that name.
    #[must_use]
    pub fn name(&self) -> String {
        sub_name(&self.host, self.port)
    }
}

/// To all workers: what became of such a cluster.
#[derive(Clone, Debug)]
pub struct SubNews {
    /// The cluster whose requests had it made.
    pub parent: ClusterId,
    /// `DFPCluster:HOST:PORT`.
    pub name: Arc<str>,
    /// What became of it.
    pub event: SubEvent,
}

/// What became of a cluster that a request wants.
#[derive(Clone, Debug)]
pub enum SubEvent {
    /// Its name was looked up.
    Ready(Arc<SubCluster>),
    /// No request was for it for its time, or the cluster whose it is is another or gone.
    Gone,
    /// There are `max_sub_clusters` others.
    Full,
}

/// A cluster that requests have made.
#[derive(Debug)]
pub struct SubCluster {
    /// Its id, which no other had.
    pub id: ClusterId,
    /// The cluster itself.
    pub cluster: Arc<Cluster>,
    used: Arc<AtomicU64>,
}

impl SubCluster {
    /// One that was last used at the time that `used` says, in milliseconds since 1970.
    #[must_use]
    pub const fn new(id: ClusterId, cluster: Arc<Cluster>, used: Arc<AtomicU64>) -> Self {
        Self { id, cluster, used }
    }
}

/// Envoy's name of the cluster for a host and port.
#[must_use]
pub fn sub_name(host: &str, port: u16) -> String {
    format!("DFPCluster:{host}:{port}")
}

/// Those of all clusters that have some.
#[derive(Debug, Default)]
pub(crate) struct Subs {
    of: RefCell<HashMap<ClusterId, Known>>,
    last: Cell<u64>,
}

#[derive(Debug, Default)]
struct Known {
    clusters: HashMap<Arc<str>, Arc<SubCluster>>,
    asked: HashMap<Arc<str>, Vec<(u64, Waiter)>>,
}

/// A place in a queue, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct SubTicket {
    subs: Rc<Subs>,
    parent: ClusterId,
    name: Arc<str>,
    id: u64,
}

impl Drop for SubTicket {
    fn drop(&mut self) {
        let mut of = self.subs.of.borrow_mut();
        let Some(known) = of.get_mut(&self.parent) else { return };
        if let Some(queue) = known.asked.get_mut(&self.name) {
            queue.retain(|(id, _)| *id != self.id);
            if queue.is_empty() {
                known.asked.remove(&self.name);
            }
        }
    }
}

impl Subs {
    /// Waits for one.
    pub(crate) fn wait(
        self: &Rc<Self>,
        parent: ClusterId,
        name: &Arc<str>,
        waiter: Waiter,
    ) -> SubTicket {
        let id = self.last.get() + 1;
        self.last.set(id);
        let mut of = self.of.borrow_mut();
        let queue = of.entry(parent).or_default().asked.entry(Arc::clone(name)).or_default();
        queue.push((id, waiter));
        SubTicket { subs: Rc::clone(self), parent, name: Arc::clone(name), id }
    }

    /// Says that a request is for one, if it is there.
    pub(crate) fn touch(&self, parent: ClusterId, name: &str, unix_ms: u64) -> bool {
        let of = self.of.borrow();
        let known = of.get(&parent).and_then(|known| known.clusters.get(name));
        if let Some(known) = known {
            known.used.fetch_max(unix_ms, Ordering::Relaxed);
        }
        known.is_some()
    }

    /// The id of one, if it is there.
    pub(crate) fn get(&self, parent: ClusterId, name: &str) -> Option<ClusterId> {
        Some(self.of.borrow().get(&parent)?.clusters.get(name)?.id)
    }

    /// Takes one in, in place of the one of this name whose id is the answer.
    pub(crate) fn put(
        &self,
        parent: ClusterId,
        name: &Arc<str>,
        sub: &Arc<SubCluster>,
    ) -> Option<ClusterId> {
        let mut of = self.of.borrow_mut();
        let clusters = &mut of.entry(parent).or_default().clusters;
        let before = clusters.insert(Arc::clone(name), Arc::clone(sub));
        before.map(|before| before.id).filter(|id| *id != sub.id)
    }

    /// Forgets one. Answers its id.
    pub(crate) fn remove(&self, parent: ClusterId, name: &str) -> Option<ClusterId> {
        let mut of = self.of.borrow_mut();
        let known = of.get_mut(&parent)?;
        let gone = known.clusters.remove(name).map(|gone| gone.id);
        if known.clusters.is_empty() && known.asked.is_empty() {
            of.remove(&parent);
        }
        gone
    }

    /// What waits for one.
    pub(crate) fn waiters(&self, parent: ClusterId, name: &str) -> Vec<Waiter> {
        let mut of = self.of.borrow_mut();
        let asked = of.get_mut(&parent).and_then(|known| known.asked.remove(name));
        asked.unwrap_or_default().into_iter().map(|(_, waiter)| waiter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: ClusterId = ClusterId(3);

    #[test]
    fn a_place_in_the_queue_is_given_up_with_its_ticket() {
        let subs = Rc::new(Subs::default());
        let name: Arc<str> = Arc::from(sub_name("a.test", 80));
        let waiter = |stream| Waiter { stream, serial: 1, place: Some(0) };
        let first = subs.wait(PARENT, &name, waiter(1));
        let _second = subs.wait(PARENT, &name, waiter(2));
        drop(first);
        assert_eq!(subs.waiters(PARENT, &name), [waiter(2)]);
        assert_eq!(subs.waiters(PARENT, &name), []);
        let third = subs.wait(PARENT, &name, waiter(3));
        drop(third);
        assert!(subs.of.borrow()[&PARENT].asked.is_empty(), "what no stream waits for is not kept");
    }

    #[test]
    fn names_are_those_of_envoy() {
        let question = |host: &str| SubQuestion { parent: PARENT, host: host.into(), port: 80 };
        assert_eq!(question("a.test").name(), "DFPCluster:a.test:80");
        assert_eq!(question("fc00::1").name(), "DFPCluster:fc00::1:80");
    }
}
