//! What is counted and shown of a cluster's hosts beside their number.

use super::sets::{count_by_origin, stats};

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
    /// `cluster.<name>.…`: which part of their time requests and attempts took.
    pub BudgetStats {
        Histogram upstream_rq_timeout_budget_per_try_percent_used;
        Histogram upstream_rq_timeout_budget_percent_used;
    }
}

stats! {
    /// `cluster.<name>.endpoint.<address>.…`
    pub EndpointStats {
        Gauge cx_active;
        Counter cx_connect_fail;
        Counter cx_total;
        Gauge healthy;
        Gauge rq_active;
        Counter rq_error;
        Gauge rq_pending_active;
        Counter rq_success;
        Counter rq_timeout;
        Counter rq_total;
    }
}

stats! {
    /// `cluster.<name>.…`: how large attempts and their answers were, in bytes and fields.
    pub SizeStats {
        Histogram upstream_rq_body_size;
        Histogram upstream_rq_headers_count;
        Histogram upstream_rq_headers_size;
        Histogram upstream_rs_body_size;
        Histogram upstream_rs_headers_count;
        Histogram upstream_rs_headers_size;
    }
}

stats! {
    /// `cluster.<name>.zone.<ours>.<the host's>.…`, `cluster.<name>.canary.…`
    pub PartStats {
        Codes upstream_rq;
        Histogram upstream_rq_time;
    }
}

stats! {
    /// `cluster.<name>.<another name>.…`: of requests that say the other name.
    pub AltStats {
        Codes external_upstream_rq = "external.upstream_rq";
        Histogram external_upstream_rq_time = "external.upstream_rq_time";
        Codes internal_upstream_rq = "internal.upstream_rq";
        Histogram internal_upstream_rq_time = "internal.upstream_rq_time";
        Codes upstream_rq;
        Histogram upstream_rq_time;
    }
}

count_by_origin! { AltStats }

impl PartStats {
    /// Counts an answer, and how many milliseconds it `took` where that is known.
    pub(crate) fn count(&self, status: u16, took: Option<u64>) {
        self.upstream_rq.count(status);
        took.into_iter().for_each(|took| self.upstream_rq_time.record(took));
    }
}
