//! The life of streams, from head to record, with all that it needs beside it.
//!
//! Arrives: events of connections, and timers. Leaves: what the owners below make of it. This is the top of the worker:
//! it may use every owner, and none of them knows of it.

pub(crate) mod accept;
mod ahead;
pub(crate) mod answered;
mod app;
pub(crate) mod arriving;
mod asked;
pub(crate) mod attempt_log;
pub(crate) mod callout;
mod callout_spans;
mod charge;
pub(crate) mod choice;
pub(crate) mod clients;
mod connect;
pub(crate) mod connection_state;
mod criteria;
pub(crate) mod downstream;
pub(crate) mod drain;
mod dropping;
pub(crate) mod edge;
pub(crate) mod export;
pub(crate) mod filters;
pub(crate) mod finish;
pub(crate) mod forward;
pub(crate) mod greetings;
pub(crate) mod grpc;
pub(crate) mod hand_over;
pub(crate) mod hedging;
mod inside;
pub(crate) mod judge;
pub(crate) mod lazy_head;
mod load;
pub(crate) mod log;
mod measured;
mod memory;
mod mirror;
pub(crate) mod names;
pub(crate) mod offer;
mod overload;
mod overrides;
mod passing;
pub(crate) mod plain;
mod proxy_status;
pub(crate) mod recorder;
mod redirect;
pub(crate) mod replace;
pub(crate) mod retry;
pub(crate) mod rewrite;
pub(crate) mod router;
pub(crate) mod rpc;
pub(crate) mod spans;
pub(crate) mod stream;
mod strict_headers;
pub(crate) mod subs;
pub(crate) mod talk;
pub(crate) mod tcp;
pub(crate) mod timers;
pub(crate) mod tls;
pub(crate) mod tracing;
pub(crate) mod tunnel;
mod tunneling;
pub(crate) mod upstream;
mod upstream_filters;
mod waiting;
mod wanted;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::tls::Fault;
use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::context::ChainContext;
use crate::conn::{ConnectionTimer, Connections, Role};
use crate::downstream::listener::Listeners;
use crate::env::Env;
use crate::exchange::ahead::AskedAhead;
use crate::exchange::callout::Callouts;
use crate::exchange::export::Exports;
use crate::exchange::stream::Streams;
use crate::exchange::tracing::Reporters;
use crate::ids::Closer;
use crate::record::close;
use crate::snapshot::Snapshot;
use crate::snapshot::listener::PassthroughState;
use crate::upstream::{Congestion, Upstreams};

/// The streams of a worker, and the owners of what they run on.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) streams: Streams,
    pub(crate) callouts: Callouts,
    pub(crate) conns: Connections,
    pub(crate) upstreams: Upstreams,
    pub(crate) listeners: Listeners,
    pub(crate) env: Env,
    /// What tells collectors of spans.
    pub(crate) reporters: Reporters,
    /// What tells servers something for the control thread.
    pub(crate) exports: Exports,
    /// What its first worker asks servers before requests need it.
    pub(crate) asked_ahead: AskedAhead,
    /// The chain of the app's streams, once there are any.
    pub(crate) app_context: Option<Rc<ChainContext>>,
    /// What goes along with the connection to a listener of this process that is accepted next.
    pub(crate) passed: Option<Box<PassthroughState>>,
}

impl Exchange {
    /// One that waits for its first snapshot.
    pub(crate) fn new(env: Env) -> Self {
        Self {
            snapshot: Arc::default(),
            streams: Streams::default(),
            callouts: Callouts::default(),
            reporters: Reporters::default(),
            exports: Exports::default(),
            asked_ahead: AskedAhead::default(),
            conns: Connections::default(),
            upstreams: Upstreams::default(),
            listeners: Listeners::default(),
            env,
            app_context: None,
            passed: None,
        }
    }
}

impl Exchange {
    /// Closes a client's connection that carries nothing.
    pub(crate) fn close_downstream(&mut self, id: ConnectionId, now: Instant) {
        let closer = Closer::Local(close::DRAINED);
        self.listeners.close_client(id, closer, &mut self.conns, &mut self.env, now);
    }

    /// The same as [`Upstreams::close_upstream`].
    pub(crate) fn close_upstream(&mut self, id: ConnectionId, how: Close, now: Instant) {
        self.upstreams.close_upstream(id, how, &mut self.conns, &mut self.env, now);
    }

    pub(crate) fn on_connection_deadline(
        &mut self,
        id: ConnectionId,
        timer: ConnectionTimer,
        now: Instant,
    ) {
        let Some(connection) = self.conns.table.get(id) else { return };
        match (&connection.role, timer) {
            (Role::Closing(_), _) => {
                self.listeners.on_closing_deadline(id, &mut self.conns, &mut self.env, now);
            }
            (Role::Arriving(_), _) => self.on_arriving_deadline(id, now),
            (Role::Downstream(_), timer) => self.on_downstream_deadline(id, timer, now),
            (Role::Upstream(_), timer) => self.on_upstream_deadline(id, timer, now),
        }
    }

    pub(crate) fn on_received(&mut self, id: ConnectionId, chunk: Bytes, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else {
            return self.on_handshake_received(id, &chunk, now);
        };
        if connection.tls.is_some() && !matches!(connection.role, Role::Closing(_)) {
            if connection.downstream().is_some_and(|downstream| !downstream.ready)
                && self.puts_off_handshake(id, &chunk)
            {
                return;
            }
            return self.on_sealed(id, &chunk, now);
        }
        connection.bytes_received += chunk.len() as u64;
        match &connection.role {
            Role::Downstream(downstream) if downstream.unjudged => {
                self.receive_judged(id, chunk, now);
            }
            Role::Downstream(_) => {
                connection.mux.receive(chunk);
                self.pump(id, now);
            }
            Role::Upstream(upstream) => {
                let hears = upstream.app.is_some();
                connection.mux.receive(chunk);
                if hears {
                    self.hear(id, now);
                }
                self.pump(id, now);
            }
            Role::Arriving(_) => self.on_arriving_received(id, &chunk, now),
            Role::Closing(_) => {
                Listeners::on_closing_received(id, chunk.len(), &mut self.conns, &mut self.env);
            }
        }
    }

    pub(crate) fn on_sent(&mut self, id: ConnectionId, bytes: usize, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else {
            return self.conns.on_handshake_sent(id, bytes);
        };
        connection.bytes_sent += bytes as u64;
        connection.outstanding = connection.outstanding.saturating_sub(bytes);
        connection.mux.sent(connection.outstanding);
        let carries_calls = connection.mux.sends_whole();
        let is_closing = matches!(connection.role, Role::Closing(_));
        if connection.congested {
            let has_room = connection.outstanding <= connection.high_watermark() / 2;
            connection.congested = !has_room;
            self.upstreams.show_buffered(id, &mut self.conns);
            if self.upstreams.is_flushed(id) {
                return self.on_flushed(id, has_room, now);
            }
            if has_room {
                self.upstreams.count_congestion(id, Congestion::Drained, &mut self.conns);
                self.on_room(id, now);
            }
        }
        if carries_calls {
            self.release_frames(id);
        }
        if is_closing {
            self.listeners.on_closing_sent(id, &mut self.conns, &mut self.env, now);
        }
    }

    /// A server takes what its client, which is gone, has left for it.
    fn on_flushed(&mut self, id: ConnectionId, is_over: bool, now: Instant) {
        if is_over {
            self.close_upstream(id, Close::Flush, now);
        } else {
            self.upstreams.on_flushed_some(id, &mut self.conns, &mut self.env, now);
        }
    }

    pub(crate) fn on_ended(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else {
            return self.on_handshake_ended(id, Fault::Ended, now);
        };
        connection.ended = true;
        match &connection.role {
            Role::Closing(_) => {
                let how = Close::Flush;
                self.listeners.end_closing(id, how, &mut self.conns, &mut self.env, now);
            }
            Role::Arriving(_) => self.on_arriving_ended(id, now),
            Role::Downstream(downstream) if downstream.unjudged => self.judge_end(id, now),
            Role::Downstream(_) => self.on_client_ended(id, now),
            Role::Upstream(_) => self.on_upstream_ended(id, now),
        }
    }
}
