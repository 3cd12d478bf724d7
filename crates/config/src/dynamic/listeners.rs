//! What listeners came to last. Endpoints are no part of them: where nothing but endpoints came, they are taken as
//! they are, and are not read again with all their routes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use towpath_engine::snapshot::{Listener, Snapshot};

use super::{Conflict, Key, Kind, Resources};
use crate::base::{Base, Print};
use crate::convert::{Converter, Need};
use crate::load::Converted;

/// All listeners, each good and complete.
#[derive(Debug)]
pub(crate) struct MadeListeners {
    /// [`Resources::others`] at the time.
    others: u64,
    listeners: Vec<Arc<Listener>>,
    prints: HashMap<Arc<str>, Print>,
    needs: Vec<(Arc<str>, Vec<Need>)>,
    conflicts: BTreeSet<Conflict>,
    /// Files that secrets name.
    secret_files: BTreeSet<(usize, Arc<str>)>,
    /// Keys of the runtime that were asked for.
    asked: BTreeSet<String>,
    /// Which clusters ask for which endpoints.
    users: HashMap<Arc<str>, Vec<Arc<str>>>,
}

impl Resources {
    /// What listeners would come to again, if these are what is judged.
    pub(super) fn made_listeners(
        &self,
        base: &Base,
        judged: &BTreeSet<Key>,
    ) -> Option<&MadeListeners> {
        let are_endpoints =
            !judged.is_empty() && judged.iter().all(|(kind, _)| *kind == Kind::Endpoints);
        self.standing_listeners(&base.snapshot).filter(|_| are_endpoints)
    }

    /// What listeners came to, if they serve and nothing but endpoints came since.
    fn standing_listeners(&self, serving: &Snapshot) -> Option<&MadeListeners> {
        let made = self.made_listeners.as_ref()?;
        let serving = &serving.listeners;
        let is_same = made.others == self.others
            && serving.len() == made.listeners.len()
            && serving.iter().zip(&made.listeners).all(|(one, other)| Arc::ptr_eq(one, other));
        is_same.then_some(made)
    }

    /// The clusters that ask for these endpoints, each once, as long as nothing but endpoints came since listeners
    /// were made.
    pub(super) fn users_of<'a>(
        &self,
        endpoints: impl Iterator<Item = &'a str>,
        serving: &Snapshot,
    ) -> Option<BTreeSet<Arc<str>>> {
        let made = self.standing_listeners(serving)?;
        let mut users = BTreeSet::new();
        for name in endpoints {
            users.extend(made.users.get(name)?.iter().cloned());
        }
        Some(users)
    }

    /// Keeps what listeners came to, if nothing is wrong and none waits.
    pub(super) fn keep_listeners(&mut self, converted: &Converted, is_whole: bool) {
        if !is_whole {
            self.made_listeners = None;
            return;
        }
        let needs = converted.needs.iter().filter(|((kind, _), _)| *kind == Kind::Listener);
        let mut users: HashMap<Arc<str>, Vec<Arc<str>>> = HashMap::new();
        for ((kind, name), needs) in &converted.needs {
            let endpoints = needs.iter().filter(|need| need.kind == Kind::Endpoints);
            for need in endpoints.filter(|_| *kind == Kind::Cluster) {
                users.entry(Arc::clone(&need.name)).or_default().push(Arc::clone(name));
            }
        }
        self.made_listeners = Some(MadeListeners {
            others: self.others,
            listeners: converted.snapshot.listeners.clone(),
            prints: converted.prints.listeners.clone(),
            needs: needs.map(|((_, name), needs)| (Arc::clone(name), needs.clone())).collect(),
            conflicts: converted.conflicts.clone(),
            secret_files: converted.secret_files.clone(),
            asked: converted.bootstrap.runtime.asked(),
            users,
        });
    }
}

impl Converter<'_> {
    /// Takes listeners as they were made.
    pub(crate) fn take_listeners(&mut self, made: &MadeListeners) {
        self.snapshot.listeners.clone_from(&made.listeners);
        self.prints.listeners.clone_from(&made.prints);
        // Those of listeners are among them.
        self.prints.secrets.clone_from(&self.base.prints.secrets);
        self.conflicts.clone_from(&made.conflicts);
        self.secret_files.clone_from(&made.secret_files);
        self.runtime.note_asked(&made.asked);
        for (name, needs) in &made.needs {
            for need in needs {
                let key = (need.kind, Arc::clone(&need.name));
                self.sources.entry(key).or_insert_with(|| need.source.from.clone());
            }
            self.needs.insert((Kind::Listener, Arc::clone(name)), needs.clone());
        }
        self.keep_own_clusters();
        // Clusters that only routes name have ids as well.
        let ids = Arc::make_mut(&mut self.snapshot.cluster_ids);
        for (name, id) in &*self.base.snapshot.cluster_ids {
            ids.entry(Arc::clone(name)).or_insert(*id);
        }
    }
}
