//! Requests that a cluster is to drop by share, before any host is chosen. Envoy: `drop_overloads`.

use towpath_proto::Instant;

use crate::exchange::Exchange;
use crate::ids::StreamIndex;
use crate::record::{Flags, details};
use crate::snapshot::cluster::DropOverload;

impl Exchange {
    /// Answers a request that its cluster is to drop; false, and nothing done, if it goes on.
    #[inline]
    pub(crate) fn drop_overload(&mut self, index: StreamIndex, now: Instant) -> bool {
        let cluster = self.streams.get(index).map(|stream| stream.cluster);
        let cluster = cluster.and_then(|id| self.upstreams.clusters.get(id));
        match cluster.and_then(|cluster| cluster.config.drops.as_deref()).map(|drops| drops.parts) {
            None | Some(0) => false,
            Some(parts) => self.drop_share(index, parts, now),
        }
    }

    #[cold]
    fn drop_share(&mut self, index: StreamIndex, parts: u32, now: Instant) -> bool {
        let all = DropOverload::ALL;
        if parts < all && self.env.random.next() % u64::from(all) >= u64::from(parts) {
            return false;
        }
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let cluster = self.upstreams.clusters.get_mut(stream.cluster);
        if let Some(cluster) = cluster {
            cluster.dropped += 1;
            let name = cluster.config.name.clone();
            stream.recorder.note(|record| record.cluster = Some(name));
        }
        let (flag, field, text, why): (_, &[u8], &[u8], _) = match parts < all {
            true => (
                Flags::DROP_OVERLOAD,
                b"x-envoy-drop-overload",
                b"drop overload",
                details::DROP_OVERLOAD,
            ),
            false => (
                Flags::UNCONDITIONAL_DROP_OVERLOAD,
                b"x-envoy-unconditional-drop-overload",
                b"unconditional drop overload",
                details::UNCONDITIONAL_DROP_OVERLOAD,
            ),
        };
        stream.flags.set(flag);
        let is_quiet = stream.router().is_none_or(|router| router.suppress_envoy_headers);
        self.charge(index, 503);
        let mut head = self.env.heads.take();
        head.set_status(503);
        if !is_quiet {
            head.append_bytes(field, b"true");
        }
        self.answer(index, head, text.to_vec(), why, now);
        true
    }
}
