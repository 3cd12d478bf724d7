//! Requests that wait for a cluster which is made for them, and the clusters that were made.
//!
//! Arrives: a request at the filter, and news of the control thread. Leaves: the request on its way, or an answer. How
//! many such clusters there are, and for how long, is decided on the control thread.

use std::sync::Arc;

use towpath_proto::Instant;

use crate::conn::Connection;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::names::{AtFilter, Waits, authority_of, wanted_by_client, wanted_by_state};
use crate::exchange::stream::Stream;
use crate::filter::{Reply, Resolve};
use crate::ids::StreamIndex;
use crate::message::FromWorker;
use crate::names::{SubEvent, SubNews, SubQuestion, Waiter, parts, sub_name, with_port};
use crate::snapshot::ClusterId;
use crate::upstream::cluster::ClusterState;

impl Exchange {
    /// A filter wants the cluster to be there that a request wants to go to. As in Envoy, the filter and the cluster
    /// read the name each in its own way, which differ where other filters say a host.
    pub(super) fn find_sub(
        &mut self,
        index: StreamIndex,
        place: usize,
        wish: &Resolve,
        default_port: u16,
        now: Instant,
    ) -> AtFilter {
        let Some(stream) = self.streams.get(index) else { return AtFilter::GoesOn };
        let (host, port) = wanted_at_filter(stream, wish.by_state, default_port);
        let (parent, serial) = (stream.cluster, stream.serial);
        let name: Arc<str> = Arc::from(sub_name(&host, port));
        let time = self.env.clock.since_1970(now).as_millis();
        if self.env.subs.touch(parent, &name, u64::try_from(time).unwrap_or(u64::MAX)) {
            return AtFilter::GoesOn;
        }
        let waiter = Waiter { stream: index.0, serial, place: Some(place) };
        let ticket = self.env.subs.wait(parent, &name, waiter);
        // Each request asks: one that was asked for may have gone before it was there.
        self.env.tell(FromWorker::Sub(SubQuestion { parent, host: Arc::from(host), port }));
        AtFilter::Waits(Box::new(Waits::Sub { within: wish.within, _ticket: ticket }))
    }

    /// Something became of a cluster that requests had made.
    pub(crate) fn on_sub(&mut self, news: &SubNews, now: Instant) {
        let SubNews { parent, name, event } = news;
        let is_full = match event {
            SubEvent::Ready(sub) => {
                if let Some(before) = self.env.subs.put(*parent, name, sub) {
                    self.leave_cluster(before, now);
                }
                if self.upstreams.clusters.get(sub.id).is_none() {
                    let Self { upstreams, conns, env, .. } = self;
                    upstreams.open_cluster(sub.id, &sub.cluster, conns, env, now);
                }
                false
            }
            SubEvent::Gone => {
                if let Some(id) = self.env.subs.remove(*parent, name) {
                    self.leave_cluster(id, now);
                }
                // What waits for it goes on waiting, as in Envoy: another may be made in time.
                return;
            }
            SubEvent::Full => true,
        };
        for Waiter { stream: index, serial, place } in self.env.subs.waiters(*parent, name) {
            let index = StreamIndex(index);
            let stream = self.streams.get(index).filter(|it| it.serial == serial);
            if let (Some(_), Some(place)) = (stream, place) {
                self.go_on_resolved(index, place, is_full, now);
            }
        }
    }
}

/// Where a request wants to go, as the filter has it.
fn wanted_at_filter(stream: &Stream, by_state: bool, default_port: u16) -> (String, u16) {
    let own = with_port(&authority_of(stream), default_port);
    let (host, port) = parts(&own);
    let (by_host, by_port) = if by_state { wanted_by_state(stream) } else { (None, None) };
    (by_host.unwrap_or_else(|| host.to_owned()), by_port.unwrap_or(port))
}

/// The cluster that was made for the name that a connection of opaque bytes wants to go to.
pub(super) fn sub_of_client(
    stream: &Stream,
    cluster: &ClusterState,
    client: Option<&Connection>,
    env: &Env,
) -> Option<ClusterId> {
    let mut port = if cluster.config.tls.is_some() { 443 } else { 80 };
    if let Some(forward) = stream.context.filters.forward() {
        port = forward.port;
    }
    let wanted = wanted_by_client(client, port)?;
    let (host, port) = parts(&wanted);
    env.subs.get(cluster.id, &sub_name(host, port))
}

/// What is said where there are too many such clusters.
pub(super) fn full() -> Reply {
    Reply::new(503, b"Sub cluster overflow", "sub_cluster_overflow")
}

/// What is said where one is not there in time.
pub(super) fn late() -> Reply {
    Reply::new(503, b"Sub cluster warming timeout", "sub_cluster_warming_timeout")
}
