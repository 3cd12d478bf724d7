//! The statistics of the overload manager, by Envoy's names.

use super::sets::stats;

stats! {
    /// `overload.<resource monitor>.…`
    pub ResourceStats {
        Counter failed_updates;
        Gauge pressure;
        Counter skipped_updates;
    }
}

stats! {
    /// `overload.<resource monitor>.…` of what is counted as it comes.
    pub ProactiveResourceStats {
        Counter failed_updates;
        Gauge pressure;
    }
}

stats! {
    /// `overload.<action>.…`
    pub OverloadActionStats {
        Gauge active;
        Gauge scale_percent;
    }
}

stats! {
    /// `overload.<load shed point>.…`
    pub LoadShedStats {
        Gauge scale_percent;
        Counter shed_load_count;
    }
}

stats! {
    /// `overload.…`
    pub OverloadStats {
        Histogram refresh_interval_delay;
    }
}

stats! {
    /// `envoy.overload_actions.reset_high_memory_stream.…`, without `overload.`, as in Envoy; `held_bytes`, which Envoy
    /// has not, is what streams and connections of workers held when they were looked at last.
    pub HighMemoryStats {
        Counter count;
        Gauge held_bytes;
    }
}

stats! {
    /// `overload.envoy.overload_actions.shrink_heap.…`
    pub ShrinkStats {
        Gauge active;
        Gauge scale_percent;
        Counter shrink_count;
    }
}
