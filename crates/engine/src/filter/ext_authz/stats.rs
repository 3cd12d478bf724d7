//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.ext_authz.…` and `cluster.<name>.ext_authz.…`
    pub(in crate::filter) ExtAuthzStats {
        Counter denied;
        Counter disabled;
        Counter error;
        Counter failure_mode_allowed;
        Counter ignored_dynamic_metadata;
        Counter invalid;
        Counter ok;
        Counter shadow_denied;
        Counter shadow_error;
    }
}
