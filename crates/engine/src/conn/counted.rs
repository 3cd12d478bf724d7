//! What counts requests beside their cluster: virtual clusters, and routes with a `stat_prefix`.

use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::Head;

use crate::filter::FilterScope;
use crate::snapshot::route::{Route, RouteTable, VirtualCluster, VirtualHost};
use crate::stats::{RequestStats, Scope};

/// The counters of a filter chain's routes, by the numbers of virtual host and route. Empty where none has any.
#[derive(Debug, Default)]
pub(crate) struct CountedRoutes(Box<[CountedHost]>);

#[derive(Debug)]
struct CountedHost {
    virtual_clusters: Box<[Named]>,
    routes: Box<[Option<Named>]>,
}

#[derive(Clone, Debug)]
struct Named {
    /// Empty for what no other virtual cluster takes.
    name: Arc<str>,
    stats: Arc<RequestStats>,
}

/// What counts one request.
#[derive(Debug)]
pub(crate) struct Counted {
    virtual_cluster: Option<Named>,
    route: Option<Named>,
}

impl CountedRoutes {
    pub(crate) fn of(table: &RouteTable, scope: &FilterScope) -> Self {
        if !table.hosts.iter().any(VirtualHost::is_counted) {
            return Self::default();
        }
        Self(table.hosts.iter().map(|host| CountedHost::of(host, scope)).collect())
    }

    /// What counts a request of a route.
    pub(crate) fn get(
        &self,
        table: &RouteTable,
        (host, route): (u32, u32),
        request: &Head,
    ) -> Option<Rc<Counted>> {
        let (host, route) = (host as usize, route as usize);
        let (counted, host) = (self.0.get(host)?, table.hosts.get(host)?);
        let matching = host.virtual_clusters.iter().position(|one| one.matches(request));
        let virtual_cluster = matching.and_then(|at| counted.virtual_clusters.get(at)).cloned();
        let route = counted.routes.get(route).cloned().flatten();
        (virtual_cluster.is_some() || route.is_some())
            .then(|| Rc::new(Counted { virtual_cluster, route }))
    }
}

impl CountedHost {
    fn of(host: &VirtualHost, scope: &FilterScope) -> Self {
        let virtual_host = &host.name;
        let named = |name: &Arc<str>, scope_of: fn(Arc<str>, Arc<str>) -> Scope| Named {
            name: Arc::clone(name),
            stats: scope.set(scope_of(Arc::clone(virtual_host), Arc::clone(name))),
        };
        let of_cluster = |host, name| Scope::VirtualCluster { host, name };
        let virtual_cluster = |one: &VirtualCluster| {
            let counted = named(&one.name, of_cluster);
            if one.headers.is_empty() { Named { name: Arc::default(), ..counted } } else { counted }
        };
        let of_route = |host, name| Scope::Route { host, name };
        let route = |route: &Arc<Route>| route.stat_prefix.as_ref().map(|it| named(it, of_route));
        Self {
            virtual_clusters: host.virtual_clusters.iter().map(virtual_cluster).collect(),
            routes: host.routes.iter().map(route).collect(),
        }
    }
}

impl Counted {
    /// The virtual cluster's name; empty without one, and for what none of the configured ones takes.
    pub(crate) fn virtual_cluster(&self) -> &str {
        self.virtual_cluster.as_ref().map_or("", |it| &it.name)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &RequestStats> {
        self.virtual_cluster.iter().chain(&self.route).map(|it| &*it.stats)
    }
}
