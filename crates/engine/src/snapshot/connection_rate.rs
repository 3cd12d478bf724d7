//! Connections are let in at a rate: before anything of them is read, or by the chain that took them.

use std::sync::Arc;

use towpath_proto::Instant;

use super::listener::{Arrival, ListenerFilter, ListenerFilterConfig, Look};
use crate::filter::local_ratelimit::{Bucket, Tokens};
use crate::stats::{ConnectionRateStats, Registry, Scope};

/// Envoy `extensions.filters.listener.local_ratelimit.v3.LocalRateLimit`, and the network filter of that name: all
/// workers take from one bucket. A connection for which it has no token is closed before anything of it is read.
#[derive(Clone, Debug)]
pub struct ConnectionRate {
    /// Its counters' prefix.
    pub stat_prefix: Arc<str>,
    /// `share_key`: filters with the same key and the same tokens take from one bucket.
    pub share_key: Option<Arc<str>>,
    /// None where it is switched off (`runtime_enabled`).
    bucket: Option<(Tokens, Arc<Bucket>)>,
}

impl ConnectionRate {
    /// One with a full bucket; one without does nothing.
    #[must_use]
    pub fn new(stat_prefix: Arc<str>, tokens: Option<Tokens>) -> Self {
        let bucket = tokens.map(|tokens| (tokens, Arc::new(Bucket::new(tokens))));
        Self { stat_prefix, share_key: None, bucket }
    }

    /// Takes from the bucket of another one from here on, if that is of the same key and tokens; whether it is.
    pub fn join(&mut self, other: &Self) -> bool {
        let (Some((own, _)), Some((tokens, _))) = (&self.bucket, &other.bucket) else {
            return false;
        };
        let joins = self.share_key.is_some() && self.share_key == other.share_key && own == tokens;
        if joins {
            self.bucket.clone_from(&other.bucket);
        }
        joins
    }

    /// Whether one more connection may begin.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        self.bucket.as_ref().is_none_or(|(_, bucket)| bucket.take(now.as_nanos() + START, 1))
    }
}

impl ListenerFilterConfig for ConnectionRate {
    fn start(&self, registry: &Registry, worker: u32) -> Box<dyn ListenerFilter> {
        let scope = Scope::ConnectionRate(Arc::clone(&self.stat_prefix));
        Box::new(Limiter { rate: self.clone(), stats: registry.set(worker, scope) })
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

/// So that a bucket is full at the clock's zero, too: it fills for a hundred years at most.
const START: u64 = 100 * 365 * 24 * 3600 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_proto::Address;

    use super::*;

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

    #[test]
    fn those_of_one_key_and_the_same_tokens_share_a_bucket() {
        let tokens = |max| Tokens { max, per_fill: 1, interval: Duration::from_secs(1) };
        let rate = |key: Option<&str>, max| ConnectionRate {
            share_key: key.map(Arc::from),
            ..ConnectionRate::new("a".into(), Some(tokens(max)))
        };
        let first = rate(Some("k"), 1);
        for (mut other, joins) in [
            (rate(Some("k"), 1), true),
            (rate(Some("k"), 2), false),
            (rate(Some("l"), 1), false),
            (rate(None, 1), false),
            (ConnectionRate::new("a".into(), None), false),
        ] {
            assert_eq!(other.join(&first), joins, "{other:?}");
        }
        let mut other = rate(Some("k"), 1);
        assert!(other.join(&first) && first.admits(Instant::ZERO) && !other.admits(Instant::ZERO));
        assert!(!rate(None, 1).join(&rate(None, 1)));
    }
}
