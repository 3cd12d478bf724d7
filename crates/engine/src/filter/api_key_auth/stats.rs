//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.api_key_auth.…`
    pub(in crate::filter) ApiKeyAuthStats {
        Counter allowed;
        Counter forbidden;
        Counter unauthorized;
    }
}
