//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.basic_auth.…`
    pub(in crate::filter) BasicAuthStats {
        Counter allowed;
        Counter denied;
    }
}
