//! Hosts that requests ask for by their addresses.

use towpath_proto::Address;

use crate::filter::WantedHost;
use crate::ids::{PoolClass, PoolKey};
use crate::upstream::cluster::ClusterState;

impl ClusterState {
    /// The place of the host at an address, whatever its health.
    pub(crate) fn host_at(&self, address: &Address) -> Option<usize> {
        self.hosts.iter().position(|host| host.endpoint.address == *address)
    }

    /// The pool of the host that a request asks for, if it may have that.
    #[cold]
    pub(crate) fn pick_wanted(&mut self, wanted: &WantedHost, class: PoolClass) -> Option<PoolKey> {
        let place = self.host_at(wanted.address.as_ref()?)?;
        let status = self.hosts.get(place)?.status();
        let may = self.config.balancing.overridable.has(status);
        if may { self.pool_of(place, class) } else { None }
    }
}
