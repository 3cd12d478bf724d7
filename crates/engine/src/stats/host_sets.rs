//! What is counted and shown of a cluster's hosts beside their number.

use super::sets::stats;

stats! {
    /// `cluster.<name>.ring_hash_lb.…`
    pub RingStats {
        Gauge max_hashes_per_host;
        Gauge min_hashes_per_host;
        Gauge size;
    }
}

stats! {
    /// `cluster.<name>.maglev_lb.…`
    pub MaglevStats {
        Gauge max_entries_per_host;
        Gauge min_entries_per_host;
    }
}

stats! {
    /// `cluster.<name>.<name of a transport socket match>.…`
    pub SocketMatchStats {
        Counter total_match_count;
    }
}

stats! {
    /// `cluster.<name>.zone.<ours>.<the host's>.…`
    pub ZonePairStats {
        Codes upstream_rq;
        Histogram upstream_rq_time;
    }
}
