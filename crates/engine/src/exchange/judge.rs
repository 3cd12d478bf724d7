//! What filters of a chain do with the first bytes of a client: rules judge it (`envoy.filters.network.rbac`), others
//! set filter state.
//!
//! Arrives: bytes of a client whose chain has such filters, and its end. Leaves: the same for the connection's mux, or
//! the end of the connection; and what filters have left of it, for its streams and logs.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{ConnectionId, Instant};

use crate::conn::mux::{Mux, ONLY};
use crate::exchange::Exchange;
use crate::exchange::connection_state::{record_of, state_of};
use crate::format::Facts;
use crate::ids::{Closer, Leg};
use crate::rbac::Subject;
use crate::record::{Flags, close, details};
use crate::snapshot::overload::Point;
use crate::stream_info::StreamInfo;

impl Exchange {
    /// Takes what came from a client whose connection has not been judged.
    pub(crate) fn receive_judged(&mut self, id: ConnectionId, chunk: Bytes, now: Instant) {
        if self.is_refused(id, chunk.len(), now) || self.is_shed(id, chunk.len(), now) {
            return;
        }
        if let Some(connection) = self.conns.table.get_mut(id) {
            connection.mux.receive(chunk);
            if let Some(heard) = connection.mux.take_heard() {
                self.note_heard(id, heard);
            }
            if !self.is_shed_with_rest(id, now) {
                self.pump(id, now);
            }
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
        downstream.requests += 1;
        let context = Rc::clone(&downstream.context);
        let leg = Leg { connection: id, number: ONLY };
        let opened = context.tcp().and_then(|_| self.open_stream(leg, now));
        let reason = if over_rate { close::OVER_RATE } else { close::CONNECTION_LIMIT };
        let how = (delay, Closer::Local(reason));
        self.listeners.refuse(id, &context, how, &mut self.conns, &mut self.env, now);
        if let Some((index, _)) = opened {
            if let Some(stream) = self.streams.get_mut(index) {
                if over_rate {
                    stream.flags.set(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
                }
                stream.recorder.note(|record| record.local_close = reason);
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

    /// Whether load is shed with anything that comes on a connection of HTTP, which is over then. In Envoy's order.
    fn is_shed_with_rest(&mut self, id: ConnectionId, now: Instant) -> bool {
        let Some(downstream) = self.conns.table.get(id).and_then(|it| it.downstream()) else {
            return false;
        };
        let context = Rc::clone(&downstream.context);
        let Some(http) = context.http().filter(|http| http.bolt.is_none()) else { return false };
        if !self.env.may_shed_all_bytes(&context.listener) {
            return false;
        }
        self.choose_protocol(id, now);
        let Some(connection) = self.conns.table.get(id) else { return true };
        if let Mux::Undecided(_) = connection.mux {
            return false;
        }
        let is_http2 = connection.mux.is_http2();
        if self.env.sheds_bytes(Point::GoAwayAndClose, &context.listener) {
            // Envoy says first that it will, in the same breath.
            self.conns.take_leave(id, &mut self.env);
            self.force_away(id, details::FORCED_GOAWAY, now);
            self.listeners.check_drained(&mut self.env);
            return true;
        }
        if self.env.sheds_bytes(Point::GoAway, &context.listener)
            && let Some(connection) = self.conns.table.get(id)
            && connection.downstream().is_some_and(|downstream| !downstream.closing)
        {
            self.conns.drain(id, &mut self.env, now);
        }
        if !is_http2 && self.env.sheds_bytes(Point::AbortHttp1, &context.listener) {
            http.stats.downstream_rq_overload_close.inc();
            self.answer_broken(id, 500, details::OVERLOAD, now);
            self.listeners.check_drained(&mut self.env);
            return true;
        }
        false
    }

    /// Whether the rules refuse a client that has sent so many bytes; then its connection is over.
    fn is_refused(&mut self, id: ConnectionId, length: usize, now: Instant) -> bool {
        let Some(connection) = self.conns.table.get_mut(id) else { return true };
        let tls = connection.downstream_tls();
        let Some(downstream) = connection.downstream() else { return false };
        let context = Rc::clone(&downstream.context);
        let is_first = !downstream.particulars.as_ref().is_some_and(|it| it.is_read);
        let (filters, judges) = (&context.filters, context.filters.judges);
        let sets = is_first && filters.sets_received;
        let is_http = context.http().is_some();
        let stays = judges.all || (is_http && self.env.may_shed_all_bytes(&context.listener));
        if !sets && !judges.first {
            if let Some(downstream) = connection.downstream_mut() {
                downstream.unjudged = stays;
            }
            return false;
        }
        let info = downstream.info();
        let record = (sets || judges.by_conditions)
            .then(|| record_of(connection, tls.as_ref().map(Arc::clone)));
        let facts = record.as_ref().map(|record| Facts {
            info: Some(&info),
            epoch_unix_ns: self.env.clock.epoch_unix_ns,
            hostname: &self.env.clock.hostname,
            listener: &context.listener.name,
            filter_chain: &context.chain.name,
            ..Facts::new(record, now)
        });
        let verdict = filters.judge(
            &Subject {
                local: Some(&connection.local),
                direct: Some(connection.direct_peer()),
                remote: Some(&connection.peer),
                server_name: downstream.server_name().map_or("", |name| name),
                tls: tls.as_deref(),
                info: Some(&info),
                facts: facts.as_ref(),
                ..Subject::default()
            },
            is_first,
        );
        if let Some(downstream) = connection.downstream_mut() {
            downstream.unjudged = stays;
            if sets || verdict.leaves || stays {
                let particulars = downstream.particulars.get_or_insert_default();
                particulars.is_read = true;
                if sets {
                    particulars.state = state_of(&info);
                }
            }
        }
        if sets || verdict.leaves {
            self.tell_streams(id, verdict.leaves.then_some(&info));
        }
        let Some((details, delay)) = verdict.refused else { return false };
        let Some(connection) = self.conns.table.get_mut(id) else { return true };
        let streams = connection.streams.all();
        if let Some(downstream) = connection.downstream_mut() {
            downstream.particulars.get_or_insert_default().termination = details;
        }
        let how = (delay, Closer::Local(close::RBAC));
        self.listeners.refuse(id, &context, how, &mut self.conns, &mut self.env, now);
        for index in streams {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.recorder.note_local_close(close::RBAC);
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

    /// Keeps what filters have `left` in the dynamic metadata of a connection, and tells its streams of that and of its
    /// filter state.
    #[cold]
    fn tell_streams(&mut self, id: ConnectionId, left: Option<&StreamInfo>) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let streams = connection.streams.all();
        let Some(downstream) = connection.downstream_mut() else { return };
        let is_http = downstream.context.http().is_some();
        let particulars = downstream.particulars.get_or_insert_default();
        if let Some(left) = left {
            left.read_all(|all| {
                // Rules that judge all that comes say the same most times.
                if particulars.metadata.as_deref() != Some(all) {
                    particulars.metadata = Some(Arc::new(all.clone()));
                }
            });
        }
        for index in streams {
            let Some(stream) = self.streams.get_mut(index) else { continue };
            stream.recorder.note(|record| {
                record.connection_metadata.clone_from(&particulars.metadata);
            });
            if let Some(info) = stream.recorder.info() {
                particulars.note(info, is_http);
            }
        }
    }
}
