//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.credential_injector.…`, or of a cluster.
    pub(in crate::filter) CredentialInjectorStats {
        Counter already_exists;
        Counter failed;
        Counter injected;
    }
}
