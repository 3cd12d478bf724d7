//! What few requests say in headers of their own of how they are routed: the longest attempt, another name to count by,
//! another answer when none came in time.
//!
//! Arrives: a request's head, before it is sent. Leaves: the head without these headers, and what they said.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::name::Name;

use crate::env::Env;
use crate::exchange::retry::parse_number;
use crate::exchange::stream::Stream;
use crate::stats::{AltStats, Scope};
use crate::upstream::clusters::Clusters;

/// The headers. A request that has one of them takes no short way.
pub(crate) const OVERRIDES: [Name; 3] = [
    Name::XEnvoyUpstreamAltStatName,
    Name::XEnvoyUpstreamRqTimeoutAltResponse,
    Name::XEnvoyUpstreamStreamDurationMs,
];

/// What a request's headers say.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    /// `x-envoy-upstream-stream-duration-ms`: instead of the cluster's `max_stream_duration`; 0 is none.
    longest: Option<Duration>,
    alt: Option<Alt>,
    /// `x-envoy-upstream-rq-timeout-alt-response`.
    is_late_without_content: bool,
}

/// Where a request is counted beside its cluster: `x-envoy-upstream-alt-stat-name`.
#[derive(Debug)]
pub(crate) struct Alt {
    pub(crate) name: Box<str>,
    pub(crate) stats: Arc<AltStats>,
}

impl Stream {
    /// Takes the headers out of a request and heeds them.
    #[cold]
    pub(crate) fn take_overrides(&mut self, clusters: &Clusters, env: &Env) {
        let head = &self.request;
        // What is said twice is one value, as in Envoy.
        let joined = |name| head.values(name).collect::<Vec<_>>().join(&b","[..]);
        let longest = parse_number::<u64>(&joined(Name::XEnvoyUpstreamStreamDurationMs));
        let name = joined(Name::XEnvoyUpstreamAltStatName);
        let name = Some(name).filter(|name| !name.is_empty());
        let cluster = clusters.get(self.cluster);
        let alt = name.zip(cluster).and_then(|(name, cluster)| {
            let cluster = Arc::clone(&cluster.config.stat_name);
            let name = String::from_utf8_lossy(&name);
            let scope = Scope::ClusterAlt { cluster, name: Arc::from(&*name) };
            let stats = env.registry.lasting(env.index, scope)?;
            Some(Alt { name: Box::from(name), stats })
        });
        let late = head.get(Name::XEnvoyUpstreamRqTimeoutAltResponse);
        let overrides = Overrides {
            longest: longest.map(Duration::from_millis),
            alt,
            is_late_without_content: late.is_some(),
        };
        self.request.remove_each(&OVERRIDES);
        self.retries.tried.get_or_insert_default().overrides = Some(Box::new(overrides));
    }

    #[inline]
    fn overrides(&self) -> Option<&Overrides> {
        self.retries.tried.as_deref()?.overrides.as_deref()
    }

    /// How long an attempt may take, where its cluster says `configured`.
    pub(crate) fn longest_attempt(&self, configured: Option<Duration>) -> Option<Duration> {
        match self.overrides().and_then(|it| it.longest) {
            Some(longest) => Some(longest).filter(|longest| !longest.is_zero()),
            None => configured,
        }
    }

    #[inline]
    pub(crate) fn alt(&self) -> Option<&Alt> {
        self.overrides()?.alt.as_ref()
    }

    /// The answer to a request for which none came in time.
    pub(crate) fn late_reply(&self) -> (u16, &'static [u8]) {
        match self.overrides() {
            Some(it) if it.is_late_without_content => (204, b""),
            Some(_) | None => (504, b"upstream request timeout"),
        }
    }
}
