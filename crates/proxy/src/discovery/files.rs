//! Resources in files. A file is looked at a few times a second, and read anew when it is another one or was written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use towpath_config::{ConfigSource, From, Kind, Source, Stamp, response};
use towpath_xds::{Rejected, Resource, Update};

use super::{Server, Stage};
use crate::log;

/// The files that are asked for something.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<(Arc<str>, Kind), Watched>);

/// A file, as one kind of resource is asked of it.
#[derive(Debug, Default)]
struct Watched {
    seen: Option<Stamp>,
    was_read: bool,
    /// The names that it had; where not all are wanted, those that were looked for in it.
    names: BTreeSet<String>,
    /// The names that are wanted of it, where not all are.
    wanted: Option<BTreeSet<String>>,
}

impl Files {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Server {
    /// Watches the files that clusters, listeners and what they need are asked of.
    pub(super) fn watch(&mut self) {
        let mut before = std::mem::take(&mut self.files.0);
        let mut watch = |file: &Arc<str>, kind, name: Option<&str>| {
            let key = (Arc::clone(file), kind);
            let watched = self.files.0.entry(key.clone()).or_insert_with(|| Watched {
                wanted: None,
                ..before.remove(&key).unwrap_or_default()
            });
            if let Some(name) = name {
                watched.wanted.get_or_insert_default().insert(name.to_owned());
            }
        };
        let asks_for_listeners = matches!(self.stage, Stage::Listeners { .. } | Stage::Serving);
        let all = [
            (&self.discovery.clusters, Kind::Cluster),
            (&self.discovery.listeners, Kind::Listener),
        ];
        for (source, kind) in all {
            if let Some(ConfigSource { from: From::File(file), .. }) = source
                && (kind == Kind::Cluster || asks_for_listeners)
                && !matches!(self.stage, Stage::Runtime)
            {
                watch(file, kind, None);
            }
        }
        let is_asked = |kind| !matches!(kind, Kind::Routes | Kind::Extension) || asks_for_listeners;
        for need in self.needs.iter().filter(|need| is_asked(need.kind)) {
            if let From::File(file) = &need.source.from {
                watch(file, need.kind, Some(&need.name));
            }
        }
    }

    /// Reads the files that are new or have changed, until none is.
    pub(super) async fn look(&mut self) {
        loop {
            self.watch();
            let changed = self.files.0.iter_mut().find_map(|((file, kind), watched)| {
                let stamp = Stamp::of(Path::new(&**file));
                let is_new = !watched.was_read || stamp != watched.seen;
                // What is wanted may be in a file that was read for others.
                let wanted = watched.wanted.clone().unwrap_or_default();
                if !is_new && wanted.is_subset(&watched.names) {
                    return None;
                }
                (watched.seen, watched.was_read) = (stamp, true);
                watched.names.extend(wanted);
                Some((Arc::clone(file), *kind))
            });
            let Some((file, kind)) = changed else { return };
            self.read(&file, kind).await;
        }
    }

    async fn read(&mut self, file: &Arc<str>, kind: Kind) {
        let Some(watched) = self.files.0.get_mut(&(Arc::clone(file), kind)) else { return };
        let wanted = watched.wanted.clone();
        let found = Source::read(Path::new(&**file)).and_then(|source| response(&source));
        let response = match found {
            Ok(response) => response,
            Err(error) => {
                for line in error.to_string().lines() {
                    log!(Config, Warning, "{file}: nothing was taken: {line}");
                }
                self.stats.refused(kind, wanted.as_ref(), &self.needs);
                self.note_known(kind);
                for name in wanted.into_iter().flatten() {
                    // What it had before stays.
                    self.resources.give_up(kind, &name);
                }
                return self.again(kind).await;
            }
        };
        let version = response.version;
        let mut names = BTreeSet::new();
        let mut rejected = Vec::new();
        let mut resources = Vec::new();
        for (of, given) in response.resources {
            if of != kind || wanted.as_ref().is_some_and(|wanted| !wanted.contains(&given.name)) {
                continue;
            }
            if given.name.is_empty() {
                let reason = "a resource without a name".to_owned();
                rejected.push(Rejected { name: String::new(), reason });
            } else if names.insert(given.name.clone()) {
                resources.push(Resource {
                    name: given.name,
                    version: version.clone(),
                    body: given.body,
                });
            } else {
                let reason = "is there twice in one file".to_owned();
                rejected.push(Rejected { name: given.name, reason });
            }
        }
        let mut removed = Vec::new();
        if wanted.is_none() {
            removed = watched.names.difference(&names).cloned().collect();
            watched.names = names.clone();
        }
        for name in wanted.into_iter().flatten() {
            if !names.contains(&name) {
                // What needs it does without, or with what was there before.
                self.resources.give_up(kind, &name);
            }
        }
        let update = Update { kind, version, resources, removed, rejected };
        self.judge(kind, update).await;
        self.advance().await;
    }
}
