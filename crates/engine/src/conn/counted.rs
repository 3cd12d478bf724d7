//! What counts requests beside their cluster: virtual clusters, and routes with a `stat_prefix`.

use std::sync::Arc;

use crate::filter::FilterScope;
use crate::snapshot::route::{Route, RouteTable, VirtualHost};
use crate::stats::{RequestStats, Scope};

/// The counters of a filter chain's routes, by the numbers of virtual host and route. Empty where none has any.
#[derive(Debug, Default)]
pub(crate) struct CountedRoutes(Box<[CountedHost]>);

#[derive(Debug)]
struct CountedHost {
    virtual_clusters: Box<[Arc<RequestStats>]>,
    routes: Box<[Option<Arc<RequestStats>>]>,
}

impl CountedRoutes {
    pub(crate) fn of(table: &RouteTable, scope: &FilterScope) -> Self {
        if !table.hosts.iter().any(VirtualHost::is_counted) {
            return Self::default();
        }
        Self(table.hosts.iter().map(|host| CountedHost::of(host, scope)).collect())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What counts a request of a route.
    #[inline]
    pub(crate) fn each(
        &self,
        host: u32,
        route: u32,
        virtual_cluster: Option<u16>,
    ) -> impl Iterator<Item = &RequestStats> {
        let host = self.0.get(host as usize);
        let of_cluster = host
            .zip(virtual_cluster)
            .and_then(|(host, at)| host.virtual_clusters.get(usize::from(at)));
        let of_route = host.and_then(|host| host.routes.get(route as usize)?.as_ref());
        of_cluster.into_iter().chain(of_route).map(|stats| &**stats)
    }
}

impl CountedHost {
    fn of(host: &VirtualHost, scope: &FilterScope) -> Self {
        let of_host = || Arc::clone(&host.name);
        let of_route = |route: &Arc<Route>| {
            let name = route.stat_prefix.clone()?;
            Some(scope.set(Scope::Route { host: of_host(), name }))
        };
        let of_cluster = |name: &Arc<str>| {
            scope.set(Scope::VirtualCluster { host: of_host(), name: name.clone() })
        };
        Self {
            virtual_clusters: host.virtual_clusters.iter().map(|it| of_cluster(&it.name)).collect(),
            routes: host.routes.iter().map(of_route).collect(),
        }
    }
}
