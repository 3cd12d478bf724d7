//! The filter state of a client's connection (`envoy.filters.network.set_filter_state`), with which all of its streams
//! begin.
//!
//! Arrives: that a connection began, or its handshake is over. Leaves: objects. What is set with the first bytes is a
//! part of [`judge`](super::judge).

use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::{ConnectionId, Instant};

use crate::conn::Connection;
use crate::downstream::listener::connection_record;
use crate::exchange::Exchange;
use crate::format::Facts;
use crate::network_filter::Moment;
use crate::record::{DownstreamTls, Record};
use crate::stream_info::{StateObject, StreamInfo};

impl Exchange {
    /// Sets what the chain of a connection says for a moment.
    pub(crate) fn set_state(&mut self, id: ConnectionId, moment: Moment, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let context = Rc::clone(&downstream.context);
        if context.filters.settings(moment).next().is_none() {
            return;
        }
        // It is read once, when there is something to read.
        let tls = if downstream.ready { connection.downstream_tls() } else { None };
        let Some(downstream) = connection.downstream() else { return };
        let info = downstream.info();
        let record = record_of(connection, tls);
        let facts = Facts {
            info: Some(&info),
            epoch_unix_ns: self.env.clock.epoch_unix_ns,
            hostname: &self.env.clock.hostname,
            listener: &context.listener.name,
            filter_chain: &context.chain.name,
            ..Facts::new(&record, now)
        };
        context.filters.settings(moment).for_each(|setting| setting.write(&facts));
        if let Some(downstream) = connection.downstream_mut() {
            downstream.particulars.get_or_insert_default().state = state_of(&info);
        }
    }
}

/// What is known of a connection, for its own filters.
#[cold]
pub(crate) fn record_of(connection: &Connection, tls: Option<Arc<DownstreamTls>>) -> Record {
    let mut record =
        connection_record(connection.local.clone(), connection.peer.clone(), connection.opened);
    record.downstream_direct_remote = Some(connection.direct_peer().clone());
    record.downstream_tls = tls;
    if let Some(downstream) = connection.downstream() {
        record.connection = downstream.serial;
        record.server_name = downstream.server_name().cloned();
        record.proxied = downstream.proxied().cloned();
        if let Some(particulars) = &downstream.particulars {
            record.fingerprints = particulars.fingerprints.clone();
        }
    }
    record
}

/// The objects that its filters have set. What came by the PROXY protocol has a place of its own.
pub(crate) fn state_of(info: &StreamInfo) -> Vec<(Box<str>, StateObject)> {
    let mut state = info.state();
    state.retain(|(name, _)| &**name != crate::proxied::STATE);
    state
}
