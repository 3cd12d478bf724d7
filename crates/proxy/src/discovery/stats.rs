//! Counters of what became of resources, by Envoy's names.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use towpath_config::{ConfigSource, Conflict, Discovery, Kind, Need, Use};
use towpath_engine::stats::{
    ClientTlsContextStats, ClusterStats, ControlPlaneStats, DiscoveryStats, ExtensionStats,
    Registry, RotationStats, Scope, ServerTlsContextStats,
};
use towpath_xds::{Rejected, Type};

use super::channels::Channel;

use crate::server_stats::CONTROL;

pub(super) struct Stats {
    registry: Arc<Registry>,
    clusters: Arc<DiscoveryStats>,
    listeners: Arc<DiscoveryStats>,
    control_plane: Arc<ControlPlaneStats>,
    /// Of endpoints, route tables and secrets, by what they belong to and their name.
    needed: HashMap<(Kind, Arc<str>, Arc<str>), Needed>,
    /// Those that were counted.
    conflicts: BTreeSet<Conflict>,
    /// Of clusters' TLS contexts.
    clients: HashMap<Arc<str>, Arc<ClientTlsContextStats>>,
    /// Of listeners'.
    servers: HashMap<Arc<str>, Arc<ServerTlsContextStats>>,
}

/// The counters of something that is needed.
enum Needed {
    Endpoints(Arc<ClusterStats>),
    Routes(Arc<DiscoveryStats>),
    Runtime(Arc<DiscoveryStats>),
    Secret(Arc<DiscoveryStats>, Arc<RotationStats>),
    Extension(Arc<DiscoveryStats>, Arc<ExtensionStats>),
}

impl Stats {
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn new(registry: Arc<Registry>) -> Self {
        Self {
            clusters: registry.set(CONTROL, Scope::ClusterDiscovery),
            listeners: registry.set(CONTROL, Scope::ListenerDiscovery),
            control_plane: registry.set(CONTROL, Scope::ControlPlane),
            registry,
            needed: HashMap::new(),
            conflicts: BTreeSet::new(),
            clients: HashMap::new(),
            servers: HashMap::new(),
        }
    }

    pub(super) fn connected(&self, is: bool) {
        self.control_plane.connected_state.set(u64::from(is));
    }

    pub(super) fn held_up(&self, requests: u64) {
        let counted = &self.control_plane.rate_limit_enforced;
        counted.add(requests.saturating_sub(counted.value()));
    }

    /// A secret is another one: each context that has it was made anew.
    pub(super) fn secret_changed(&mut self, name: &str, uses: &[Use]) {
        for Use { by, stat_name, .. } in uses.iter().filter(|it| *it.secret == *name) {
            let name = Arc::clone(stat_name);
            let updates = if *by == Kind::Cluster {
                let scope = Scope::ClusterTlsContext(Arc::clone(&name));
                let made = || self.registry.set(CONTROL, scope);
                &self.clients.entry(name).or_insert_with(made).ssl_context_update_by_sds
            } else {
                let scope = Scope::ListenerTlsContext(Arc::clone(&name));
                let made = || self.registry.set(CONTROL, scope);
                &self.servers.entry(name).or_insert_with(made).ssl_context_update_by_sds
            };
            updates.inc();
        }
    }

    /// What a file of a secret holds cannot be made use of.
    pub(super) fn rotation_failed(&self, name: &str) {
        let key = (Kind::Secret, Arc::from(name), Arc::from(name));
        if let Some(Needed::Secret(_, stats)) = self.needed.get(&key) {
            stats.key_rotation_failed.inc();
        }
    }

    /// An extension is another one, or gone: all that have it have taken that.
    pub(super) fn extension_changed(&self, name: &str, needs: &[Need]) {
        let is_it = |need: &&Need| need.kind == Kind::Extension && *need.name == *name;
        for needed in needs.iter().filter(is_it).filter_map(|need| self.find(need)) {
            if let Needed::Extension(_, stats) = needed {
                stats.config_reload.inc();
            }
        }
    }

    /// All extensions that are not for a listener that asks for them.
    pub(super) fn conflicts(&mut self, conflicts: BTreeSet<Conflict>) {
        for (family, name, _) in conflicts.difference(&self.conflicts) {
            let key = (Kind::Extension, Arc::clone(family), Arc::clone(name));
            if let Some(Needed::Extension(_, stats)) = self.needed.get(&key) {
                stats.config_conflict.inc();
            }
        }
        self.conflicts = conflicts;
    }

    pub(super) fn attempt(&self, kind: Kind) {
        if let Some(stats) = self.of_all(kind) {
            stats.update_attempt.inc();
        }
    }

    /// These are asked for; those that were not before are counted.
    pub(super) fn wanted<'a>(&mut self, needs: impl Iterator<Item = &'a Need>) {
        for need in needs {
            let key = (need.kind, need.stat_name.clone(), need.name.clone());
            if !self.needed.contains_key(&key) {
                let needed = self.register(need);
                needed.attempt();
                self.needed.insert(key, needed);
            }
        }
    }

    /// Nothing else is needed, and no other context has a secret: what was counted of others is gone, as in Envoy.
    pub(super) fn keep(&mut self, needs: &[Need], uses: &[Use]) {
        let needs: HashSet<(Kind, &str, &str)> =
            needs.iter().map(|need| (need.kind, &*need.stat_name, &*need.name)).collect();
        self.needed.retain(|(kind, of, name), _| needs.contains(&(*kind, &**of, &**name)));
        let of = |is_cluster: bool| -> HashSet<&str> {
            let uses = uses.iter().filter(|it| (it.by == Kind::Cluster) == is_cluster);
            uses.map(|it| &*it.stat_name).collect()
        };
        let (clusters, listeners) = (of(true), of(false));
        self.clients.retain(|name, _| clusters.contains(&**name));
        self.servers.retain(|name, _| listeners.contains(&**name));
    }

    /// Resources came; and these are bad.
    pub(super) fn update(
        &self,
        kind: Kind,
        names: &[&str],
        rejected: &[Rejected],
        needs: &[Need],
        version: &str,
    ) {
        if let Some(stats) = self.of_all(kind) {
            return count(stats, rejected.is_empty(), version);
        }
        let names: BTreeSet<&str> = names.iter().copied().collect();
        let bad: HashSet<&str> = rejected.iter().map(|it| &*it.name).collect();
        for name in names {
            // What is needed is in the order of kinds and names.
            let at = needs.binary_search_by(|need| (need.kind, &*need.name).cmp(&(kind, name)));
            if let Some(needed) = at.ok().and_then(|at| self.find(&needs[at])) {
                needed.count(!bad.contains(name), version);
            }
        }
    }

    /// Nothing could be read of a file.
    pub(super) fn refused(&self, kind: Kind, names: Option<&BTreeSet<String>>, needs: &[Need]) {
        if let Some(stats) = self.of_all(kind) {
            return count(stats, false, "");
        }
        let is_of = |need: &&Need| {
            need.kind == kind && names.is_some_and(|names| names.contains(&*need.name))
        };
        for needed in needs.iter().filter(is_of).filter_map(|need| self.find(need)) {
            needed.count(false, "");
        }
    }

    pub(super) fn timed_out(&self, kind: Kind, names: &[String], needs: &[Need]) {
        if let Some(stats) = self.of_all(kind) {
            stats.init_fetch_timeout.inc();
            return stats.update_attempt.inc();
        }
        for need in needs.iter().filter(|need| need.kind == kind) {
            if let Some(needed) =
                self.find(need).filter(|_| names.iter().any(|name| **name == *need.name))
            {
                needed.attempt();
                match needed {
                    Needed::Routes(stats) | Needed::Runtime(stats) | Needed::Secret(stats, _) => {
                        stats.init_fetch_timeout.inc();
                    }
                    Needed::Extension(stats, of_use) => {
                        stats.init_fetch_timeout.inc();
                        of_use.config_fail.inc();
                    }
                    Needed::Endpoints(_) => {}
                }
            }
        }
    }

    /// A stream to a control plane ended, or could not be opened; these are asked for by it.
    pub(super) fn failure<'a>(
        &self,
        needs: impl Iterator<Item = &'a Need>,
        discovery: &Discovery,
        channel: &Channel,
    ) {
        let is_asked = |source: &Option<ConfigSource>, of| {
            source.as_ref().is_some_and(|source| channel.is_for(&source.from, of))
        };
        let all = [
            (&self.clusters, is_asked(&discovery.clusters, Type::Cluster)),
            (&self.listeners, is_asked(&discovery.listeners, Type::Listener)),
        ];
        // Listeners are asked for when clusters are there.
        for (stats, _) in all.iter().filter(|(stats, is)| *is && stats.update_attempt.value() > 0) {
            stats.update_attempt.inc();
            stats.update_failure.inc();
        }
        for needed in needs.filter_map(|need| self.find(need)) {
            needed.attempt();
            match needed {
                Needed::Endpoints(stats) => stats.update_failure.inc(),
                Needed::Routes(stats)
                | Needed::Runtime(stats)
                | Needed::Secret(stats, _)
                | Needed::Extension(stats, _) => {
                    stats.update_failure.inc();
                }
            }
        }
    }

    fn of_all(&self, kind: Kind) -> Option<&DiscoveryStats> {
        match kind {
            Kind::Cluster => Some(&self.clusters),
            Kind::Listener => Some(&self.listeners),
            Kind::Endpoints | Kind::Routes | Kind::Secret | Kind::Runtime | Kind::Extension => None,
        }
    }

    fn find(&self, need: &Need) -> Option<&Needed> {
        self.needed.get(&(need.kind, need.stat_name.clone(), need.name.clone()))
    }

    fn register(&self, need: &Need) -> Needed {
        match need.kind {
            Kind::Routes => {
                let (prefix, table) = (need.stat_name.clone(), need.name.clone());
                Needed::Routes(self.registry.set(CONTROL, Scope::RouteDiscovery { prefix, table }))
            }
            Kind::Runtime => Needed::Runtime(self.registry.set(CONTROL, Scope::RuntimeDiscovery)),
            Kind::Secret => Needed::Secret(
                self.registry.set(CONTROL, Scope::Secret(need.name.clone())),
                self.registry.set(CONTROL, Scope::SecretFiles(need.name.clone())),
            ),
            Kind::Extension => {
                let (family, name) = (need.stat_name.clone(), need.name.clone());
                let scope = Scope::ExtensionUse { family: family.clone(), name: name.clone() };
                Needed::Extension(
                    self.registry.set(CONTROL, Scope::Extension { family, name }),
                    self.registry.set(CONTROL, scope),
                )
            }
            Kind::Cluster | Kind::Endpoints | Kind::Listener => Needed::Endpoints(
                self.registry.set(CONTROL, Scope::Cluster(need.stat_name.clone())),
            ),
        }
    }
}

impl Needed {
    fn attempt(&self) {
        match self {
            Self::Endpoints(stats) => stats.update_attempt.inc(),
            Self::Routes(stats)
            | Self::Runtime(stats)
            | Self::Secret(stats, _)
            | Self::Extension(stats, _) => {
                stats.update_attempt.inc();
            }
        }
    }

    fn count(&self, is_good: bool, version: &str) {
        match self {
            Self::Routes(stats) | Self::Runtime(stats) | Self::Secret(stats, _) => {
                count(stats, is_good, version);
            }
            Self::Extension(stats, of_use) => {
                count(stats, is_good, version);
                if !is_good {
                    of_use.config_fail.inc();
                }
            }
            Self::Endpoints(stats) => {
                stats.update_attempt.inc();
                if is_good {
                    stats.update_success.inc();
                    stats.version.set(digest(version));
                } else {
                    stats.update_rejected.inc();
                }
            }
        }
    }
}

fn count(stats: &DiscoveryStats, is_good: bool, version: &str) {
    stats.update_attempt.inc();
    if is_good {
        stats.update_success.inc();
        stats.version.set(digest(version));
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        stats.update_time.set(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    } else {
        stats.update_rejected.inc();
    }
}

/// A version as a number. Envoy's is another digest, which nothing can tell from this one.
fn digest(version: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    version.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use towpath_config::From;

    use super::*;

    fn need(name: &str) -> Need {
        Need {
            kind: Kind::Secret,
            name: Arc::from(name),
            source: ConfigSource { from: From::Ads, timeout: None },
            stat_name: Arc::from(name),
            is_awaited: true,
        }
    }

    #[test]
    fn of_names_that_come_and_go_nothing_stays() {
        let mut stats = Stats::new(Arc::new(Registry::new()));
        for number in 0..100 {
            let needs = [need("stays"), need(&number.to_string())];
            let uses = needs.each_ref().map(|need| Use {
                secret: Arc::clone(&need.name),
                by: Kind::Listener,
                stat_name: Arc::clone(&need.name),
            });
            stats.keep(&needs, &uses);
            stats.wanted(needs.iter());
            needs.iter().for_each(|need| stats.secret_changed(&need.name, &uses));
            assert!(stats.needed.len() <= 2 && stats.servers.len() <= 2, "{number}");
        }
        assert_eq!(stats.servers["stays"].ssl_context_update_by_sds.value(), 100);
        let Some(Needed::Secret(counted, _)) = stats.find(&need("stays")) else { panic!() };
        assert_eq!(counted.update_attempt.value(), 1);
    }
}
