//! What it counts, by Envoy's names.

use std::sync::Arc;

use crate::filter::FilterScope;
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

impl JwtAuthnStats {
    /// Those of a filter with this `stat_prefix`.
    pub(super) fn of(scope: &FilterScope, stat_prefix: &Arc<str>) -> Arc<Self> {
        let names = scope.names("http_jwt_authn");
        scope.named(names.part("envoy_jwt_authn_prefix", stat_prefix))
    }

    /// Keys were fetched, or were not.
    pub(super) fn count_fetch(&self, is_good: bool) {
        if is_good { &self.jwks_fetch_success } else { &self.jwks_fetch_failed }.inc();
    }
}
