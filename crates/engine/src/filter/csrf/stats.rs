//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.csrf.…`
    pub(in crate::filter) CsrfStats {
        Counter missing_source_origin;
        Counter request_invalid;
        Counter request_valid;
    }
}
