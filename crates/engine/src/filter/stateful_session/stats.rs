//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.stateful_session.…`
    pub(in crate::filter) StatefulSessionStats {
        Counter failed_closed;
        Counter failed_open;
        Counter no_session;
        Counter routed;
    }
}
