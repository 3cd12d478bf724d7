//! `envoy.filters.network.local_ratelimit`, and what the listener filter of that name shares with it: connections are
//! let in at a rate.

use std::sync::Arc;

use towpath_proto::Instant;

use super::{NetworkFilter, NetworkFilterConfig};
use crate::filter::local_ratelimit::{Bucket, Tokens};
use crate::stats::{FilterNames, Registry, stats};

/// Envoy `extensions.filters.network.local_ratelimit.v3.LocalRateLimit`, and
/// `extensions.filters.listener.local_ratelimit.v3.LocalRateLimit`: all workers take from one bucket. A connection for
/// which it has no token is closed before anything of it is read.
#[derive(Clone, Debug)]
pub struct ConnectionRate {
    /// Its counters' prefix.
    pub stat_prefix: Arc<str>,
    /// `share_key`: filters with the same key and the same tokens take from one bucket.
    pub share_key: Option<Arc<str>>,
    /// None where it is switched off (`runtime_enabled`).
    bucket: Option<(Tokens, Arc<Bucket>)>,
}

stats! {
    /// `local_rate_limit.<stat prefix>.…`, and `listener_local_ratelimit.<stat prefix>.…`
    pub(crate) ConnectionRateStats {
        Counter rate_limited;
    }
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

    /// Its counters, of a listener or of a chain.
    pub(crate) fn stats(
        &self,
        registry: &Registry,
        worker: u32,
        family: &'static str,
        label: &'static str,
    ) -> Arc<ConnectionRateStats> {
        let names = FilterNames::new(family, format!("{family}.{}", self.stat_prefix));
        registry.filter_set(worker, names.label(label, &self.stat_prefix))
    }
}

impl NetworkFilterConfig for ConnectionRate {
    fn start(self: Arc<Self>, registry: &Registry, worker: u32) -> Box<dyn NetworkFilter> {
        let label = "envoy_local_network_ratelimit_prefix";
        let stats = self.stats(registry, worker, "local_rate_limit", label);
        Box::new(Running { rate: self, stats })
    }
}

#[derive(Debug)]
struct Running {
    rate: Arc<ConnectionRate>,
    stats: Arc<ConnectionRateStats>,
}

impl NetworkFilter for Running {
    fn admits(&self, now: Instant) -> bool {
        let is_admitted = self.rate.admits(now);
        if !is_admitted {
            self.stats.rate_limited.inc();
        }
        is_admitted
    }
}

/// So that a bucket is full at the clock's zero, too: it fills for a hundred years at most.
const START: u64 = 100 * 365 * 24 * 3600 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tokens(max: u32) -> Tokens {
        Tokens { max, per_fill: 1, interval: Duration::from_secs(1) }
    }

    #[test]
    fn a_connection_without_a_token_is_counted() {
        let registry = Registry::default();
        let rate = Arc::new(ConnectionRate::new("r".into(), Some(tokens(1))));
        let [one, other] = [0, 1].map(|worker| Arc::clone(&rate).start(&registry, worker));
        assert!(one.admits(Instant::ZERO) && !other.admits(Instant::ZERO));
        assert!(other.admits(Instant::ZERO + Duration::from_secs(1)));
        let off = Arc::new(ConnectionRate::new("r".into(), None)).start(&registry, 0);
        assert!(off.admits(Instant::ZERO));
        assert_eq!(registry.read().number("local_rate_limit.r.rate_limited"), Some(1));
    }

    #[test]
    fn those_of_one_key_and_the_same_tokens_share_a_bucket() {
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
