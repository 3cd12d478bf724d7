//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.fault.…`
    pub(in crate::filter) FaultStats {
        Counter aborts_injected;
        Gauge active_faults;
        Counter delays_injected;
        Counter faults_overflow;
        Counter response_rl_injected;
    }
}

stats! {
    /// `http.<stat prefix>.fault.<downstream cluster>.…`
    pub(in crate::filter) FaultClusterStats {
        Counter aborts_injected;
        Counter delays_injected;
    }
}
