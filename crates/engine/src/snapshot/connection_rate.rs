//! `envoy.filters.listener.local_ratelimit`: connections are let in at a rate, before anything of them is read.

use std::sync::Arc;

use towpath_proto::Instant;

use super::listener::{Arrival, ListenerFilter, ListenerFilterConfig, Look};
use crate::network_filter::local_ratelimit::{ConnectionRate, ConnectionRateStats};
use crate::stats::Registry;

impl ListenerFilterConfig for ConnectionRate {
    fn start(&self, registry: &Registry, worker: u32) -> Box<dyn ListenerFilter> {
        let label = "envoy_local_listener_ratelimit_prefix";
        let stats = self.stats(registry, worker, "listener_local_ratelimit", label);
        Box::new(Limiter { rate: self.clone(), stats })
    }
}

#[derive(Debug)]
struct Limiter {
    rate: ConnectionRate,
    stats: Arc<ConnectionRateStats>,
}

impl ListenerFilter for Limiter {
    fn most_bytes(&self) -> usize {
        0
    }

    /// It answers at once, and so is asked once.
    fn look(&self, _bytes: &[u8], _arrival: &mut Arrival, now: Instant) -> Look {
        if self.rate.admits(now) {
            return Look::Done { takes: 0 };
        }
        self.stats.rate_limited.inc();
        Look::Refused
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_proto::Address;

    use super::*;
    use crate::filter::local_ratelimit::Tokens;

    #[test]
    fn all_workers_take_from_one_bucket() {
        let tokens = Tokens { max: 2, per_fill: 1, interval: Duration::from_secs(1) };
        let registry = Registry::default();
        let limit = ConnectionRate::new("a".into(), Some(tokens));
        let [one, other] = [0, 1].map(|worker| limit.start(&registry, worker));
        let address = Address::Ip("127.0.0.1:1".parse().unwrap());
        let mut arrival = Arrival::new(address.clone(), address);
        let mut look = |filter: &dyn ListenerFilter, seconds| {
            filter.look(&[], &mut arrival, Instant::ZERO + Duration::from_secs(seconds))
        };
        let passed = Look::Done { takes: 0 };
        assert_eq!(
            [look(&*one, 0), look(&*other, 0), look(&*one, 0)],
            [passed, passed, Look::Refused]
        );
        assert_eq!([look(&*other, 1), look(&*other, 1)], [passed, Look::Refused]);
        let off = ConnectionRate::new("b".into(), None).start(&registry, 0);
        assert_eq!(look(&*off, 1), passed);
    }
}
