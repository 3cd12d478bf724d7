//! Endpoints alone: where nothing else has to be looked at, their clusters are converted and no other, so that the cost
//! follows what changed and not what there is.

use std::collections::BTreeSet;
use std::sync::Arc;

use towpath_engine::snapshot::{Cluster, Snapshot};

use super::{Entry, Given, Key, Kind, Need, Resources};
use crate::base::{Base, Prints};
use crate::convert::discovery::{Discovered, Part};
use crate::error::Rank;
use crate::load::converter;

/// What endpoints come to.
#[derive(Debug)]
pub struct Patch {
    /// Clusters in place of those of their names, but for those that stay as they are.
    pub clusters: Vec<Arc<Cluster>>,
    /// What they were made from.
    pub(crate) prints: Prints,
    /// Fields of what is new that are ignored without harm, a line each.
    pub ignored: Vec<String>,
}

impl Patch {
    /// What is to follow what served before, of which `prints` are.
    pub fn apply(self, before: &Snapshot, prints: &mut Prints) -> Snapshot {
        let mut after = before.clone();
        after.generation += 1;
        for cluster in self.clusters {
            let id = after.cluster_id(&cluster.name);
            if let Some(slot) = id.and_then(|id| after.clusters.get_mut(id.0 as usize)) {
                *slot = Some(cluster);
            }
        }
        prints.clusters.extend(self.prints.clusters);
        after
    }
}

impl Resources {
    /// Takes endpoints in, if all of them are good and nothing but their clusters depends on them: endpoints of these
    /// names were there before, and the clusters that ask for them are among those that are `serving`. Otherwise
    /// nothing is done, and [`Resources::offer`] has to judge them.
    pub fn offer_endpoints(&mut self, given: &[Given], serving: &Arc<Snapshot>) -> Option<Patch> {
        let users = self.users_of(given.iter().map(|it| &*it.name), serving)?;
        if !users.iter().all(|name| self.stands(name)) {
            return None;
        }
        let mut before = Vec::new();
        let are_good = given.iter().all(|given| self.replace_endpoints(given, &mut before));
        let patch = are_good.then(|| self.patch(&users, &before, serving)).flatten();
        self.forget_parts(&users);
        if patch.is_none() {
            // The first of a name comes last.
            for (key, old) in before.into_iter().rev() {
                self.entries.insert(key, old);
            }
        }
        patch
    }

    /// Whether a cluster came to something by its resource as it is, and waits for nothing.
    fn stands(&self, cluster: &str) -> bool {
        let entry = self.entries.get(Kind::Cluster, cluster);
        let made = self.made.get(cluster);
        entry.zip(made).is_some_and(|(entry, made)| {
            self.is_same(entry, made) && made.needs.iter().all(|need| self.entry_of(need).is_some())
        })
    }

    fn entry_of(&self, need: &Need) -> Option<&Entry> {
        self.entries.get(need.kind, &need.name)
    }

    /// Puts endpoints in the place of those of their name, and those that were there among `before`.
    fn replace_endpoints(&mut self, given: &Given, before: &mut Vec<(Key, Entry)>) -> bool {
        match self.entries.get(Kind::Endpoints, &given.name) {
            None => return false,
            Some(known) if known.body == given.body => return true,
            Some(_) => {}
        }
        let Ok(message) = self.decode(Kind::Endpoints, &given.name, &given.body) else {
            return false;
        };
        let entry = self.entry(given.body.clone(), message);
        let key = (Kind::Endpoints, given.name.clone());
        if let Some(old) = self.entries.insert(key.clone(), entry) {
            before.push((key, old));
        }
        true
    }

    /// What these clusters come to, if nothing is wrong with them and they ask for what they asked for.
    fn patch(
        &mut self,
        users: &BTreeSet<Arc<str>>,
        changed: &[(Key, Entry)],
        serving: &Arc<Snapshot>,
    ) -> Option<Patch> {
        let mut base = Base { snapshot: Arc::clone(serving), ..Base::default() };
        for name in users {
            let print = self.made.get(&**name)?.print;
            base.prints.clusters.insert(Arc::clone(name), print);
        }
        let judged = changed.iter().filter_map(|(key, _)| self.entries.get(key.0, &key.1));
        let judged: Vec<usize> = judged.map(|entry| entry.text).collect();
        let rules = self.rules.take();
        let discovered = self.parts_of(users, judged)?;
        let mut report = self.report();
        let converted =
            converter(&self.bootstrap, &self.options, &base, &discovered, rules, &mut report)
                .convert_clusters();
        let key = |name: &Arc<str>| (Kind::Cluster, Arc::clone(name));
        let is_alike =
            |name| converted.needs.get(&key(name)) == self.made.get(&**name).map(|it| &it.needs);
        if !report.broken_texts().is_empty() || !users.iter().all(is_alike) {
            return None;
        }
        let mut clusters = Vec::new();
        for name in users {
            let of = |snapshot: &Snapshot| snapshot.cluster(snapshot.cluster_id(name)?).cloned();
            let (before, after) = (of(serving)?, of(&converted.snapshot)?);
            if !Arc::ptr_eq(&before, &after) {
                clusters.push(after);
            }
        }
        let harmless = report.findings.iter().filter(|it| {
            it.rank == Rank::Harmless && discovered.judged.contains(&it.location.text)
        });
        let ignored = harmless.map(ToString::to_string).collect();
        self.keep_made(&converted, &report.broken_texts());
        self.rules = Some(converted.rules);
        Some(Patch { clusters, prints: converted.prints, ignored })
    }

    /// These clusters, to be converted with what they ask for.
    fn parts_of(&self, users: &BTreeSet<Arc<str>>, judged: Vec<usize>) -> Option<Discovered<'_>> {
        let known = self.known();
        let mut found = Discovered {
            judged,
            known: Some(known),
            runtime: self.made_runtime.as_ref(),
            ..Discovered::default()
        };
        for name in users {
            found.clusters.push(Part::New(known.get(Kind::Cluster, name)?));
            for need in &self.made.get(&**name)?.needs {
                let entry = self.entry_of(need)?;
                match need.kind {
                    Kind::Endpoints => {}
                    Kind::Secret => drop(found.secret_texts.insert(entry.text)),
                    Kind::Cluster
                    | Kind::Listener
                    | Kind::Routes
                    | Kind::Runtime
                    | Kind::Extension => return None,
                }
            }
        }
        Some(found)
    }

    /// What was read for a patch.
    fn forget_parts(&mut self, users: &BTreeSet<Arc<str>>) {
        for name in users {
            self.entries.forget_message(Kind::Cluster, name);
            for need in self.made.get(&**name).into_iter().flat_map(|made| &made.needs) {
                self.entries.forget_message(need.kind, &need.name);
            }
        }
    }
}
