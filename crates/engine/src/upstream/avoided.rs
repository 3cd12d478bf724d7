//! Where a stream is not to be sent again, while there is another place.

use crate::balancer::{Host, PastPriorities};
use crate::ids::PoolKey;
use crate::snapshot::ClusterId;
use crate::snapshot::route::OmittedHosts;
use crate::upstream::host_pools::HostPools;

/// What another host is to be drawn for.
#[derive(Debug, Default)]
pub(crate) struct Avoided<'a> {
    /// The hosts that it has been to.
    pub(crate) hosts: &'a [PoolKey],
    /// Those that retries do not go to.
    pub(crate) omitted: &'a [OmittedHosts],
    /// How often another is drawn where one of them comes up.
    pub(crate) attempts: u32,
    /// The priorities that it has been to.
    pub(crate) priorities: Option<&'a mut PastPriorities>,
}

impl Avoided<'_> {
    /// Whether a host of a cluster is one of them.
    pub(crate) fn has(
        &self,
        cluster: ClusterId,
        host: Option<&Host>,
        pools: Option<&HostPools>,
    ) -> bool {
        let was_tried = |pool: u32| self.hosts.contains(&PoolKey { cluster, pool });
        let is_omitted = |host: &Host| {
            let metadata = &host.endpoint.filter_metadata;
            self.omitted.iter().any(|those| those.has(metadata))
        };
        (!self.hosts.is_empty() && pools.is_some_and(|pools| pools.iter().any(was_tried)))
            || (!self.omitted.is_empty() && host.is_some_and(is_omitted))
    }
}
