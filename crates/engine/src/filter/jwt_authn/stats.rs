//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.jwt_authn.…`
    pub(in crate::filter) JwtAuthnStats {
        Counter allowed;
        Counter cors_preflight_bypassed;
        Counter denied;
        Counter jwks_fetch_failed;
        Counter jwks_fetch_success;
        Counter jwt_cache_hit;
        Counter jwt_cache_miss;
    }
}
