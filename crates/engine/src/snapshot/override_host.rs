//! Hosts that requests name before the balancer chooses. Envoy: `envoy.load_balancing_policies.override_host`.

use crate::field::Field;

/// Envoy `override_host.v3.OverrideHost`, but its `fallback_policy`, which is the cluster's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideHosts {
    /// `override_host_sources`: where a request has addresses as `IP:PORT,IP:PORT`, for its first attempt and those
    /// that follow. Those of all sources count, in order.
    pub sources: Vec<HostSource>,
    /// `selected_host_key`: the dynamic metadata that is told which host was chosen, by whatever.
    pub selected: Option<MetadataPath>,
}

/// Envoy `OverrideHostSource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostSource {
    /// `header`: the first one of a request's.
    Header(Field),
    /// `metadata`: text in its dynamic metadata.
    Metadata(MetadataPath),
}

/// Envoy `MetadataKey`: a place in the dynamic metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPath {
    /// `key`.
    pub namespace: Box<str>,
    /// `path`: at least one key.
    pub path: Vec<Box<str>>,
}
