//! Istio's standard metrics.

use std::sync::Arc;

use towpath_engine::filter::istio_stats::IstioStats;

use super::Known;
use crate::convert::istio::STATS;

/// Its fields are in the same table as those of opaque bytes.
pub(super) const FILTER: Known = Known {
    config_type: STATS,
    convert: |converter, config| {
        let telemetry = converter.istio_telemetry(config)?;
        Some(Arc::new(IstioStats(Arc::new(telemetry))))
    },
    by_route: None,
    support: &[],
};
