//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.cors.…`
    pub(in crate::filter) CorsStats {
        Counter origin_invalid;
        Counter origin_valid;
    }
}
