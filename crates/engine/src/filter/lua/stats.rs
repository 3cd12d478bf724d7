//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.lua.…`, and the filter's stat prefix.
    pub(in crate::filter) LuaStats {
        Counter errors;
        Counter executions;
    }
}
