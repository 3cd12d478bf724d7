//! Towpath's own messages: all of them is honoured.

use super::Entry;

macro_rules! honoured {
    ($($message:literal: $($field:literal)+;)+) => {
        pub(super) const ENTRIES: &[Entry] = &[$(Entry {
            message: concat!("towpath.extensions.bolt.v1.", $message),
            honoured: &[$($field),+],
            harmless: &[],
            changes: &[],
        }),+];
    };
}

honoured! {
    "BoltProxy": "stat_prefix" "routes" "access_log" "idle_timeout" "max_requests_in_flight"
        "max_frame_bytes" "max_unread_bytes" "max_held_bytes" "go_away";
    "Route": "name" "match" "route";
    "RouteMatch": "service" "method" "headers";
    "HeaderMatch": "name" "string_match" "invert_match";
    "RouteAction": "cluster" "weighted_clusters" "timeout" "retry_policy" "priority" "http";
    "HttpBridge": "method" "host" "path_prefix" "content_type" "class" "max_response_bytes";
    "BoltBridge": "service" "method" "class" "codec" "version" "checksum" "content_type"
        "max_request_bytes";
    "WeightedClusters": "clusters";
    "WeightedCluster": "name" "weight";
    "BoltProtocolOptions": "connections_per_host" "max_requests_in_flight" "max_frame_bytes"
        "heartbeat";
    "Heartbeat": "interval" "timeout" "misses";
    "BoltHealthCheck": "version";
}
