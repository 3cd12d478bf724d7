//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.set_metadata.…`
    pub(in crate::filter) SetMetadataStats {
        Counter overwrite_denied;
    }
}
