//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.…`, and the filter's stat prefix.
    pub(in crate::filter) OAuth2Stats {
        Counter oauth_allow_failed_passthrough;
        Counter oauth_failure;
        Counter oauth_legacy_cbc_decrypt;
        Counter oauth_passthrough;
        Counter oauth_refreshtoken_failure;
        Counter oauth_refreshtoken_success;
        Counter oauth_success;
        Counter oauth_unauthorized_rq;
    }
}
