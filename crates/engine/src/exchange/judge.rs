//! The rules of a filter chain (`envoy.filters.network.rbac`) judge a connection with the first bytes of its client.
//!
//! Arrives: bytes of a client whose chain has rules, and its end. Leaves: the same for the connection's mux, or the end
//! of the connection.

use std::rc::Rc;

use bytes::Bytes;
use towpath_proto::{ConnectionId, Instant};

use crate::exchange::Exchange;
use crate::rbac::Subject;

impl Exchange {
    /// Takes what came from a client whose connection has not been judged.
    pub(crate) fn receive_judged(&mut self, id: ConnectionId, chunk: Bytes, now: Instant) {
        if self.is_refused(id, chunk.len(), now) {
            return;
        }
        if let Some(connection) = self.conns.table.get_mut(id) {
            connection.mux.receive(chunk);
            if let Some(heard) = connection.mux.take_heard() {
                self.note_heard(id, heard);
            }
            self.pump(id, now);
        }
    }

    /// Judges a client that has said nothing before its end. Only where that is an end of its own, behind which the
    /// other direction goes on: everywhere else it is the end of the connection.
    pub(crate) fn judge_end(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let is_half = connection
            .downstream()
            .is_some_and(|downstream| downstream.ready && downstream.context.tcp().is_some());
        if !(is_half && self.is_refused(id, 0, now)) {
            self.on_client_ended(id, now);
        }
    }

    /// Whether the rules refuse a client that has sent so many bytes; then its connection is over.
    fn is_refused(&mut self, id: ConnectionId, length: usize, now: Instant) -> bool {
        let Some(connection) = self.conns.table.get_mut(id) else { return true };
        let tls = connection.downstream_tls();
        let Some(downstream) = connection.downstream() else { return false };
        let context = Rc::clone(&downstream.context);
        let info = downstream.proxied().map(|proxied| proxied.info());
        let outcome = context.judge(&Subject {
            local: Some(&connection.local),
            direct: Some(connection.direct_peer()),
            remote: Some(&connection.peer),
            server_name: downstream.server_name().map_or("", |name| name),
            tls: tls.as_deref(),
            info: info.as_ref(),
            ..Subject::default()
        });
        let Some((details, delay)) = outcome else {
            if let Some(downstream) = connection.downstream_mut() {
                downstream.unjudged = context.judges_all();
            }
            return false;
        };
        let streams = connection.streams.all();
        self.listeners.refuse(id, &context, delay, &mut self.conns, &mut self.env, now);
        for index in streams {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.recorder.note(|record| {
                    record.termination = details;
                    record.bytes_received += length as u64;
                });
            }
            self.finish(index, now);
        }
        self.listeners.check_drained(&mut self.env);
        true
    }
}
