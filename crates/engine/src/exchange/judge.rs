//! The rules of a filter chain (`envoy.filters.network.rbac`) judge a connection with the first bytes of its client.
//!
//! Arrives: bytes of a client whose chain has rules, and its end. Leaves: the same for the connection's mux, or the end
//! of the connection.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{ConnectionId, Instant};

use crate::conn::Connection;
use crate::conn::mux::ONLY;
use crate::exchange::Exchange;
use crate::exchange::stream::note_client;
use crate::format::Facts;
use crate::ids::Leg;
use crate::rbac::Subject;
use crate::record::{Flags, Record};

impl Exchange {
    /// Takes what came from a client whose connection has not been judged.
    pub(crate) fn receive_judged(&mut self, id: ConnectionId, chunk: Bytes, now: Instant) {
        self.set_first_state(id, now);
        if self.is_refused(id, chunk.len(), now) || self.is_shed(id, chunk.len(), now) {
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
        self.set_first_state(id, now);
        let Some(connection) = self.conns.table.get(id) else { return };
        let is_half = connection
            .downstream()
            .is_some_and(|downstream| downstream.ready && downstream.context.tcp().is_some());
        if !(is_half && self.is_refused(id, 0, now)) {
            self.on_client_ended(id, now);
        }
    }

    /// A client that its chain does not let in, by a limit or, where it is `over_rate`, for want of a token. A TCP
    /// proxy logs it, and the listener.
    #[cold]
    pub(crate) fn turn_away(
        &mut self,
        id: ConnectionId,
        delay: Duration,
        over_rate: bool,
        now: Instant,
    ) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Some(downstream) = connection.downstream_mut() else { return };
        if over_rate {
            downstream.particulars.get_or_insert_default().over_rate = true;
        }
        let context = Rc::clone(&downstream.context);
        let leg = Leg { connection: id, number: ONLY };
        let opened = context.tcp().and_then(|_| self.open_stream(leg, now));
        self.listeners.refuse(id, &context, delay, &mut self.conns, &mut self.env, now);
        if let Some((index, _)) = opened {
            if let Some(stream) = self.streams.get_mut(index).filter(|_| over_rate) {
                stream.flags.set(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
            }
            self.finish(index, now);
        }
        self.listeners.check_drained(&mut self.env);
    }

    /// Whether load is shed with the first bytes of a connection of HTTP, which is over then.
    fn is_shed(&mut self, id: ConnectionId, length: usize, now: Instant) -> bool {
        let Some(connection) = self.conns.table.get(id) else { return true };
        let Some(downstream) = connection.downstream() else { return false };
        let context = Rc::clone(&downstream.context);
        let (Some(http), true) = (context.http(), connection.bytes_received == length as u64)
        else {
            return false;
        };
        if !self.env.sheds_first_bytes(&context.listener) {
            return false;
        }
        http.stats.downstream_rq_overload_close.inc();
        self.close_downstream(id, now);
        self.listeners.check_drained(&mut self.env);
        true
    }

    /// Whether the rules refuse a client that has sent so many bytes; then its connection is over.
    fn is_refused(&mut self, id: ConnectionId, length: usize, now: Instant) -> bool {
        let Some(connection) = self.conns.table.get_mut(id) else { return true };
        let tls = connection.downstream_tls();
        let Some(downstream) = connection.downstream() else { return false };
        let context = Rc::clone(&downstream.context);
        let info = downstream.proxied().map(|proxied| proxied.info());
        let record = context
            .judges_by_conditions()
            .then(|| Record { downstream_tls: tls.clone(), ..record_of(connection) });
        let facts = record.as_ref().map(|record| {
            let listener = &context.listener;
            Facts {
                info: info.as_ref(),
                epoch_unix_ns: self.env.clock.epoch_unix_ns,
                listener: &listener.name,
                filter_chain: &context.chain.name,
                ..Facts::new(record, now)
            }
        });
        let outcome = context.judge(&Subject {
            local: Some(&connection.local),
            direct: Some(connection.direct_peer()),
            remote: Some(&connection.peer),
            server_name: downstream.server_name().map_or("", |name| name),
            tls: tls.as_deref(),
            info: info.as_ref(),
            facts: facts.as_ref(),
            ..Subject::default()
        });
        let Some((details, delay)) = outcome else {
            if let Some(downstream) = connection.downstream_mut() {
                downstream.unjudged = context.judges_all();
            }
            return false;
        };
        let streams = connection.streams.all();
        if let Some(downstream) = connection.downstream_mut() {
            downstream.particulars.get_or_insert_default().termination = details;
        }
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

/// What is known of a connection that has no stream yet.
#[cold]
fn record_of(connection: &Connection) -> Record {
    let mut record = Record { start: connection.opened, ..Record::default() };
    note_client(&mut record, connection);
    if let Some(downstream) = connection.downstream() {
        record.connection = downstream.serial;
        record.server_name = downstream.server_name().cloned();
    }
    record
}
