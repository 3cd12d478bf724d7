//! Envoy's response flags: why a stream went as it did.

/// Declares the flags with their short and long names, in the order in which they are written.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $short:literal, $long:literal;)+) => {
        impl Flags {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)+

            /// Every flag with its short and its long name, in the order in which they are written.
            pub const ALL: &[(Self, &'static str, &'static str)] =
                &[$((Self::$name, $short, $long),)+];
        }
    };
}

/// Envoy's response flags, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u32);

// Envoy writes flags as they were set: that retries are spent is noticed before why the last attempt failed.
flags! {
    /// All retries are spent.
    UPSTREAM_RETRY_LIMIT_EXCEEDED = 15, "URX", "UpstreamRetryLimitExceeded";
    /// The local service failed its health check.
    FAILED_LOCAL_HEALTH_CHECK = 0, "LH", "FailedLocalHealthCheck";
    /// The cluster has no host to pick.
    NO_HEALTHY_UPSTREAM = 1, "UH", "NoHealthyUpstream";
    /// The route's timeout passed.
    UPSTREAM_REQUEST_TIMEOUT = 2, "UT", "UpstreamRequestTimeout";
    /// We reset the stream.
    LOCAL_RESET = 3, "LR", "LocalReset";
    /// The upstream reset the stream.
    UPSTREAM_REMOTE_RESET = 4, "UR", "UpstreamRemoteReset";
    /// The upstream could not be connected.
    UPSTREAM_CONNECTION_FAILURE = 5, "UF", "UpstreamConnectionFailure";
    /// The upstream closed the connection.
    UPSTREAM_CONNECTION_TERMINATION = 6, "UC", "UpstreamConnectionTermination";
    /// A circuit breaker is open.
    UPSTREAM_OVERFLOW = 7, "UO", "UpstreamOverflow";
    /// No route, or no filter chain, takes it.
    NO_ROUTE_FOUND = 8, "NR", "NoRouteFound";
    /// A delay was injected.
    DELAY_INJECTED = 9, "DI", "DelayInjected";
    /// An abort was injected.
    FAULT_INJECTED = 10, "FI", "FaultInjected";
    /// Rate limited.
    RATE_LIMITED = 11, "RL", "RateLimited";
    /// An authorization service refused it.
    UNAUTHORIZED_EXTERNAL_SERVICE = 12, "UAEX", "UnauthorizedExternalService";
    /// A rate-limit service failed.
    RATELIMIT_SERVICE_ERROR = 13, "RLSE", "RateLimitServiceError";
    /// The client closed the connection.
    DOWNSTREAM_CONNECTION_TERMINATION = 14, "DC", "DownstreamConnectionTermination";
    /// Nothing moved for too long.
    STREAM_IDLE_TIMEOUT = 16, "SI", "StreamIdleTimeout";
    /// An `x-envoy-*` header failed its check.
    INVALID_ENVOY_REQUEST_HEADERS = 17, "IH", "InvalidEnvoyRequestHeaders";
    /// The client broke its protocol.
    DOWNSTREAM_PROTOCOL_ERROR = 18, "DPE", "DownstreamProtocolError";
    /// The upstream stream lived too long.
    UPSTREAM_MAX_STREAM_DURATION = 19, "UMSDR", "UpstreamMaxStreamDurationReached";
    /// The answer came from a cache.
    RESPONSE_FROM_CACHE = 20, "RFCF", "ResponseFromCacheFilter";
    /// A filter has no configuration yet.
    NO_FILTER_CONFIG_FOUND = 21, "NFCF", "NoFilterConfigFound";
    /// The stream or connection lived too long.
    DURATION_TIMEOUT = 22, "DT", "DurationTimeout";
    /// The upstream broke its protocol.
    UPSTREAM_PROTOCOL_ERROR = 23, "UPE", "UpstreamProtocolError";
    /// The route's cluster does not exist.
    NO_CLUSTER_FOUND = 24, "NC", "NoClusterFound";
    /// The overload manager ended it.
    OVERLOAD_MANAGER = 25, "OM", "OverloadManagerTerminated";
    /// A name could not be resolved.
    DNS_RESOLUTION_FAILED = 26, "DF", "DnsResolutionFailed";
    /// Dropped as the endpoints' assignment tells.
    DROP_OVERLOAD = 27, "DO", "DropOverload";
    /// The client reset the stream.
    DOWNSTREAM_REMOTE_RESET = 28, "DR", "DownstreamRemoteReset";
    /// Dropped without condition.
    UNCONDITIONAL_DROP_OVERLOAD = 29, "UDO", "UnconditionalDropOverload";
}

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);

    /// The flag with this short name.
    #[must_use]
    pub fn from_short(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, short, _)| *short == name).map(|(flag, ..)| *flag)
    }

    /// Adds the flags of `other`.
    pub const fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Adds [`Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED`], written last: where connects are counted and not requests, Envoy
    /// notices it after why the last attempt failed.
    pub const fn set_last_try_failed(&mut self) {
        self.0 |= Self::UPSTREAM_RETRY_LIMIT_EXCEEDED.0 | RETRY_LIMIT_LAST;
    }

    /// Whether any flag of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no flag is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The short names (`%RESPONSE_FLAGS%`), in Envoy's order.
    pub fn short_names(self) -> impl Iterator<Item = &'static str> {
        self.members().map(|(_, short, _)| short)
    }

    /// The long names (`%RESPONSE_FLAGS_LONG%`).
    pub fn long_names(self) -> impl Iterator<Item = &'static str> {
        self.members().map(|(.., long)| long)
    }

    fn members(self) -> impl Iterator<Item = (Self, &'static str, &'static str)> {
        let limit_is_last = usize::from(self.0 & RETRY_LIMIT_LAST != 0);
        let (before, after) = Self::ALL.split_at(limit_is_last);
        after.iter().chain(before).copied().filter(move |(flag, ..)| self.has(*flag))
    }
}

/// Beside the flags: the first of [`Flags::ALL`] is written last.
const RETRY_LIMIT_LAST: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let all = Flags::ALL.iter().fold(Flags::NONE, |all, (flag, ..)| all.with(*flag));
        assert_eq!((Flags::ALL.len(), all.0), (30, (1 << 30) - 1));
        for (flag, short, _) in Flags::ALL {
            assert_eq!(Flags::from_short(short), Some(*flag));
        }
        assert_eq!(Flags::from_short(""), None);
    }

    #[test]
    fn a_set_is_written_in_envoys_order() {
        let mut set = Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED;
        set.set(Flags::UPSTREAM_CONNECTION_FAILURE);
        assert_eq!(set.short_names().collect::<Vec<_>>(), ["URX", "UF"]);
        assert!(set.has(Flags::UPSTREAM_CONNECTION_FAILURE));
        assert!(!set.has(Flags::NO_ROUTE_FOUND));
        assert_eq!(Flags::NONE.long_names().count(), 0);
        let mut connects = Flags::UPSTREAM_CONNECTION_FAILURE;
        connects.set_last_try_failed();
        assert_eq!(connects.short_names().collect::<Vec<_>>(), ["UF", "URX"]);
    }
}
