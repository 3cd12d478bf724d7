//! Which pools a host has.

use crate::ids::PoolClass;
use crate::upstream::cluster::ClusterState;

/// The pools of one host: that of the default class, and each other once it was wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostPools {
    usual: [Option<u32>; PoolClass::COUNT],
    /// Those of requests that asked something of TLS.
    asked: Vec<(PoolClass, u32)>,
}

impl HostPools {
    pub(crate) fn get(&self, class: PoolClass) -> Option<u32> {
        if class.wish == 0 {
            return self.usual[class.index()];
        }
        self.asked.iter().find(|(known, _)| *known == class).map(|(_, pool)| *pool)
    }

    pub(crate) fn put(&mut self, class: PoolClass, pool: u32) {
        if class.wish == 0 {
            self.usual[class.index()] = Some(pool);
        } else {
            self.asked.push((class, pool));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + use<'_> {
        let asked = self.asked.iter().map(|(_, pool)| *pool);
        self.usual.iter().copied().flatten().chain(asked)
    }
}

impl ClusterState {
    /// Forgets what requests asked of TLS on which nothing hangs any more, with the pools for it.
    pub(crate) fn forget_wishes(&mut self) {
        let mut used = Vec::new();
        for pools in &mut self.pools_of {
            pools.asked.retain(|(class, pool)| {
                let place = *pool as usize;
                let Some(Some(known)) = self.pools.get(place) else { return false };
                let hangs = known.connections > 0 || !known.pending.is_empty();
                if hangs {
                    used.push(class.wish);
                } else {
                    self.pools[place] = None;
                }
                hangs
            });
        }
        // Those of hosts that are gone.
        used.extend(self.pools.iter().flatten().map(|pool| pool.class.wish));
        self.wishes.keep(&used);
    }
}
