//! What a configuration carries on from: the one that serves while it is loaded.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use towpath_engine::snapshot::{Cluster, ClusterId, Listener, Snapshot};

use crate::convert::Converter;
use crate::dynamic::Kind;
use crate::message::{Message, digest};
use crate::stamp::Stamp;

/// A configuration that serves. What its successor does not change is the same object there, so that workers need not
/// look at it; names of clusters keep their ids.
#[derive(Debug, Default)]
pub struct Base {
    /// What is served.
    pub snapshot: Arc<Snapshot>,
    /// What its parts were made from.
    pub prints: Prints,
    /// Ids of clusters that are gone, and that no request knows any more.
    pub free: Vec<ClusterId>,
}

/// What clusters and listeners were made from, by name: a digest of its message and of the files it names.
#[derive(Clone, Debug, Default)]
pub struct Prints {
    pub(crate) clusters: HashMap<Arc<str>, Print>,
    pub(crate) listeners: HashMap<Arc<str>, Print>,
    pub(crate) secrets: BTreeMap<Box<str>, Stamp>,
    /// Clusters that no file names, by the cluster or listener that calls them.
    pub(crate) own: HashMap<(Kind, Arc<str>), Vec<Arc<str>>>,
}

/// A digest of a cluster or listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Print {
    /// Of its own text.
    own: u64,
    /// With all that it is made of.
    whole: u64,
}

impl Print {
    /// That of its own text.
    pub(crate) const fn own(self) -> u64 {
        self.own
    }
}

/// Takes over the clusters that no file names and that a cluster or listener calls which stays as it serves.
pub(crate) fn carry(
    snapshot: &mut Snapshot,
    prints: &mut Prints,
    base: &Base,
    (kind, owner): (Kind, &Arc<str>),
) {
    let key = (kind, Arc::clone(owner));
    let Some(own) = base.prints.own.get(&key) else { return };
    for name in own {
        let id = base.snapshot.cluster_id(name);
        let Some((id, cluster)) = id.and_then(|id| Some((id, base.snapshot.cluster(id)?))) else {
            continue;
        };
        let least = id.0 as usize + 1;
        if snapshot.clusters.len() < least {
            snapshot.clusters.resize_with(least, || None);
        }
        snapshot.clusters[id.0 as usize].get_or_insert_with(|| Arc::clone(cluster));
        Arc::make_mut(&mut snapshot.cluster_ids).entry(Arc::clone(name)).or_insert(id);
        if let Some(print) = base.prints.clusters.get(name) {
            prints.clusters.entry(Arc::clone(name)).or_insert(*print);
        }
    }
    prints.own.insert(key, own.clone());
}

impl Prints {
    /// Whether a cluster is another one by its own text, not by what it asks for.
    #[must_use]
    pub fn is_another_cluster(&self, before: &Self, name: &str) -> bool {
        is_another(&before.clusters, &self.clusters, name)
    }

    /// The same of a listener.
    #[must_use]
    pub fn is_another_listener(&self, before: &Self, name: &str) -> bool {
        is_another(&before.listeners, &self.listeners, name)
    }

    /// The files with certificates, keys and what goes with them, as they were when they were read.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, Stamp)> {
        self.secrets.iter().map(|(path, stamp)| (&**path, *stamp))
    }
}

fn is_another(
    before: &HashMap<Arc<str>, Print>,
    after: &HashMap<Arc<str>, Print>,
    name: &str,
) -> bool {
    before.get(name).map(|print| print.own) != after.get(name).map(|print| print.own)
}

impl Converter<'_> {
    /// The id of a cluster's name: the one that it has always had, or one that is free.
    pub(crate) fn intern(&mut self, name: &str) -> ClusterId {
        if let Some(id) = self.snapshot.cluster_id(name) {
            return id;
        }
        let next = ClusterId(u32::try_from(self.snapshot.clusters.len()).unwrap_or(u32::MAX));
        let known = self.base.snapshot.cluster_ids.get_key_value(name);
        let id = known.map(|(_, id)| *id).or_else(|| self.free.pop()).unwrap_or(next);
        let least = id.0 as usize + 1;
        if self.snapshot.clusters.len() < least {
            self.snapshot.clusters.resize_with(least, || None);
        }
        let name = known.map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name));
        Arc::make_mut(&mut self.snapshot.cluster_ids).insert(name, id);
        id
    }

    /// A digest of a resource, or of a part of the bootstrap.
    pub(crate) fn print(&self, message: &Message) -> u64 {
        self.discovered.print(message.at.text).unwrap_or_else(|| digest(message))
    }

    /// What a part of the configuration is made from; `files` is what was read for it.
    pub(crate) fn part_print(&self, message: &Message) -> Print {
        let own = self.print(message);
        let mut hasher = DefaultHasher::new();
        (own, self.files, self.secrets, self.rotating, self.runtime.told()).hash(&mut hasher);
        Print { own, whole: hasher.finish() }
    }

    /// What a cluster is made from that no file names.
    pub(crate) fn own_print(&self, message: &Message) -> Print {
        let own = digest(message);
        let mut hasher = DefaultHasher::new();
        (own, self.files).hash(&mut hasher);
        Print { own, whole: hasher.finish() }
    }

    /// The cluster that serves, if this one is the same.
    pub(crate) fn same_cluster(&mut self, cluster: Cluster, print: Print) -> Arc<Cluster> {
        let name = &cluster.name;
        let before = self.base.prints.clusters.get(name) == Some(&print);
        let id = self.base.snapshot.cluster_id(name).filter(|_| before);
        let same = id.and_then(|id| self.base.snapshot.cluster(id)).cloned();
        // They follow from more than the cluster's own text.
        let same = same.filter(|same| same.zones == cluster.zones);
        self.prints.clusters.insert(Arc::clone(name), print);
        same.unwrap_or_else(|| Arc::new(cluster))
    }

    /// The listener that serves, if this one is the same. Its connections are counted on in any case.
    pub(crate) fn same_listener(&mut self, mut listener: Listener, print: Print) -> Arc<Listener> {
        let mut live = self.base.snapshot.listeners.iter();
        let before = live.find(|before| before.name == listener.name);
        let same = self.base.prints.listeners.get(&listener.name) == Some(&print);
        self.prints.listeners.insert(Arc::clone(&listener.name), print);
        match before {
            Some(before) if same => Arc::clone(before),
            Some(before) => {
                listener.open = Arc::clone(&before.open);
                Arc::new(listener)
            }
            None => Arc::new(listener),
        }
    }
}
