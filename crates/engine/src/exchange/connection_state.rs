//! The filter state of a client's connection (`envoy.filters.network.set_filter_state`), with which all of its streams
//! begin.
//!
//! Arrives: that a connection began, its handshake is over, or its first bytes have come. Leaves: objects.

use std::rc::Rc;

use towpath_proto::{ConnectionId, Instant};

use crate::downstream::listener::connection_record;
use crate::exchange::Exchange;
use crate::format::Facts;
use crate::snapshot::listener::Moment;
use crate::stream_info::StreamInfo;

impl Exchange {
    /// Sets what the chain of a connection says for its first bytes, once.
    pub(crate) fn set_first_state(&mut self, id: ConnectionId, now: Instant) {
        let connection = self.conns.table.get(id);
        let is_first = connection.and_then(|it| it.downstream()).is_some_and(|downstream| {
            downstream.context.chain.filters.looks_at_first_bytes()
                && !downstream.particulars.as_ref().is_some_and(|it| it.is_read)
        });
        if is_first {
            self.set_state(id, Moment::Received, now);
        }
    }

    /// Sets what the chain of a connection says for a moment.
    pub(crate) fn set_state(&mut self, id: ConnectionId, moment: Moment, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let context = Rc::clone(&downstream.context);
        let states = &context.chain.filters.states;
        if states.iter().all(|state| state.at(moment).is_empty()) {
            return;
        }
        // It is read once, when there is something to read.
        let tls = if downstream.ready { connection.downstream_tls() } else { None };
        let Some(downstream) = connection.downstream() else { return };
        let mut record =
            connection_record(connection.local.clone(), connection.peer.clone(), connection.opened);
        record.connection = downstream.serial;
        record.downstream_direct_remote = Some(connection.direct_peer().clone());
        record.downstream_tls = tls;
        record.server_name = downstream.server_name().cloned();
        record.proxied = downstream.proxied().cloned();
        let info = record.proxied.as_ref().map_or_else(StreamInfo::default, |it| it.info());
        if let Some(particulars) = &downstream.particulars {
            record.fingerprints = particulars.fingerprints.clone();
            particulars.note_state(&info, false);
        }
        let mut facts = Facts::new(&record, now);
        facts.info = Some(&info);
        facts.epoch_unix_ns = self.env.clock.epoch_unix_ns;
        facts.hostname = &self.env.clock.hostname;
        facts.listener = &context.listener.name;
        facts.filter_chain = &context.chain.name;
        for setting in states.iter().flat_map(|state| state.at(moment)) {
            setting.write(&facts);
        }
        // What came by the PROXY protocol has a place of its own.
        let mut state = info.state();
        state.retain(|(name, _)| &**name != crate::proxied::STATE);
        if let Some(downstream) = connection.downstream_mut() {
            let particulars = downstream.particulars.get_or_insert_default();
            particulars.state = state;
            particulars.is_read |= moment == Moment::Received;
        }
        let particulars = connection.downstream().and_then(|it| it.particulars.as_deref());
        for index in connection.streams.all() {
            let info = self.streams.get(index).and_then(|stream| stream.recorder.info());
            if let (Some(particulars), Some(info)) = (particulars, info) {
                particulars.note_state(info, false);
            }
        }
    }
}
