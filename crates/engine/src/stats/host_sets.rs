//! What is counted and shown of a cluster's hosts beside their number.

use super::sets::stats;
use super::{Codes, Counter, Gauge, Histogram, Stat, StatSet};

stats! {
    /// `cluster.<name>.ring_hash_lb.…`
    RingStats {
        Gauge max_hashes_per_host;
        Gauge min_hashes_per_host;
        Gauge size;
    }
}

stats! {
    /// `cluster.<name>.maglev_lb.…`
    MaglevStats {
        Gauge max_entries_per_host;
        Gauge min_entries_per_host;
    }
}

stats! {
    /// `cluster.<name>.<name of a transport socket match>.…`
    SocketMatchStats {
        Counter total_match_count;
    }
}

stats! {
    /// `cluster.<name>.zone.<ours>.<the host's>.…`
    ZonePairStats {
        Codes upstream_rq;
        Histogram upstream_rq_time;
    }
}
