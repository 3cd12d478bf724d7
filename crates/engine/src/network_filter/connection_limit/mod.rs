//! `envoy.filters.network.connection_limit`: how many connections a chain has at once.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::{NetworkFilter, NetworkFilterConfig};
use crate::stats::{FilterNames, Registry, stats};
use crate::total::Total;

/// Envoy `extensions.filters.network.connection_limit.v3.ConnectionLimit`.
#[derive(Debug)]
pub struct ConnectionLimit {
    /// Its counters' prefix.
    pub stat_prefix: Arc<str>,
    /// Connections at once.
    pub max_connections: u64,
    /// Those that all workers have.
    pub open: Total,
    /// How long a connection over the limit is held before it is closed.
    pub delay: Duration,
}

stats! {
    /// `connection_limit.<stat prefix>.…`
    pub(super) ConnectionLimitStats {
        Gauge active_connections;
        Counter limited_connections;
    }
}

impl NetworkFilterConfig for ConnectionLimit {
    fn start(self: Arc<Self>, registry: &Registry, worker: u32) -> Box<dyn NetworkFilter> {
        let names =
            FilterNames::new("connection_limit", format!("connection_limit.{}", self.stat_prefix))
                .label("envoy_connection_limit_prefix", &self.stat_prefix);
        let stats = registry.filter_set(worker, names);
        Box::new(Running { config: self, stats })
    }

    fn counts_with(&self, other: &dyn NetworkFilterConfig) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<Self>().is_some_and(|other| other.stat_prefix == self.stat_prefix)
    }
}

#[derive(Debug)]
struct Running {
    config: Arc<ConnectionLimit>,
    stats: Arc<ConnectionLimitStats>,
}

impl NetworkFilter for Running {
    fn enter(&self, counts: bool) -> Option<Duration> {
        self.stats.active_connections.inc();
        if self.config.open.add(1) < self.config.max_connections {
            return None;
        }
        if counts {
            self.stats.limited_connections.inc();
        }
        Some(self.config.delay)
    }

    fn leave(&self) {
        self.config.open.sub(1);
        self.stats.active_connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_the_limit_of_all_workers_is_held() {
        let delay = Duration::from_secs(3);
        let limit = Arc::new(ConnectionLimit {
            stat_prefix: "l".into(),
            max_connections: 2,
            open: Total::default(),
            delay,
        });
        let registry = Registry::default();
        let [one, other] = [0, 1].map(|worker| Arc::clone(&limit).start(&registry, worker));
        assert_eq!([one.enter(true), other.enter(true)], [None, None]);
        assert_eq!([one.enter(true), other.enter(false)], [Some(delay); 2]);
        let value = |name: &str| registry.read().number(&format!("connection_limit.l.{name}"));
        assert_eq!(value("active_connections"), Some(4));
        assert_eq!(value("limited_connections"), Some(1), "one that was moved is not counted");
        for filter in [&one, &other, &one, &other] {
            filter.leave();
        }
        assert_eq!((value("active_connections"), limit.open.value()), (Some(0), 0));
        assert_eq!(one.enter(true), None);
    }
}
