//! What leaves a connection: pieces are gathered for one connection at a time and handed to the driver as one chunk.

use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Close, ConnectionId, Instant, Output};

use crate::conn::{ConnectionTimer, Connections};
use crate::env::{Env, TimerSlot, Work};
use crate::ids::Leg;
use crate::message::Message;

impl Connections {
    /// The next response is the last of its connection.
    pub(crate) fn close_after_response(&mut self, id: ConnectionId) {
        if let Some(downstream) =
            self.table.get_mut(id).and_then(|connection| connection.downstream_mut())
        {
            downstream.closing = true;
        }
    }

    /// Starts `request_headers_timeout` when a head is only partly there.
    pub(crate) fn await_rest_of_head(&mut self, id: ConnectionId, env: &mut Env, now: Instant) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let timer = ConnectionTimer::RequestHead as usize;
        let is_amid_head = if connection.mux.is_alone() {
            !connection.is_busy() && connection.mux.buffered() > 0
        } else {
            let is_amid_block = connection.mux.is_amid_block();
            // Of a server it is its SETTINGS that are waited for.
            if !is_amid_block && connection.mux.is_http2() && connection.upstream().is_none() {
                // It was the end of a message.
                connection.deadlines.clear(timer);
            }
            is_amid_block
        };
        if !is_amid_head || connection.deadlines.is_set(timer) {
            return;
        }
        let timeout = connection
            .downstream()
            .and_then(|downstream| downstream.context.http())
            .and_then(|http| http.config.request_headers_timeout);
        if let Some(timeout) = timeout {
            self.set_connection_timer(id, ConnectionTimer::RequestHead, now + timeout, env);
        }
    }
}

impl Connections {
    /// Makes `out` belong to a connection.
    pub(crate) fn encode_for(&mut self, id: ConnectionId, env: &mut Env) {
        if self.out_for != Some(id) {
            if self.out_for.is_some() {
                self.flush_out(env);
            }
            self.out_for = Some(id);
        }
    }

    /// What was encoded, and for which connection, if it may be the next output itself: where no other output stands
    /// before it, it is one piece and no TLS seals it, it need not go through the queue.
    pub(crate) fn take_out(&mut self, env: &mut Env) -> Option<(ConnectionId, Bytes)> {
        let id = self.out_for.filter(|_| env.outputs.is_empty())?;
        let connection = self.table.get_mut(id).filter(|it| it.tls.is_none())?;
        connection.mux.put_kept(&mut self.out);
        let chunk = self.out.take_only()?;
        self.out_for = None;
        connection.outstanding += chunk.len();
        connection.encoded += chunk.len() as u64;
        if connection.backs_up() {
            env.work.push_back(Work::BackedUp(id));
        }
        Some((id, chunk))
    }

    /// Hands what was encoded to the driver.
    pub(crate) fn flush_out(&mut self, env: &mut Env) {
        let Some(id) = self.out_for.take() else { return };
        let Some(connection) = self.table.get_mut(id) else {
            self.out.drain().for_each(drop);
            return;
        };
        connection.mux.put_kept(&mut self.out);
        if let Some(layer) = &mut connection.tls {
            connection.encoded += self.out.len() as u64;
            let chunk = self.handshakes.seal(id, layer, &mut self.out);
            if !chunk.is_empty() {
                connection.outstanding += chunk.len();
                env.outputs.push_back(Output::Send { connection: id, chunk });
            }
        } else {
            for chunk in self.out.drain() {
                connection.outstanding += chunk.len();
                connection.encoded += chunk.len() as u64;
                env.outputs.push_back(Output::Send { connection: id, chunk });
            }
        }
        if connection.backs_up() {
            env.work.push_back(Work::BackedUp(id));
        }
    }

    /// Whether more can be written for a stream: neither its connection nor its own window is full.
    pub(crate) fn has_room(&self, leg: Leg) -> bool {
        self.table.get(leg.connection).is_none_or(|connection| {
            !connection.congested && connection.mux.writable(leg.number) > 0
        })
    }
}

impl Connections {
    /// Queues an output behind everything that was encoded so far.
    pub(crate) fn push(&mut self, output: Output<Message>, env: &mut Env) {
        if self.out_for.is_some() {
            self.flush_out(env);
        }
        env.outputs.push_back(output);
    }

    pub(crate) fn set_connection_timer(
        &mut self,
        id: ConnectionId,
        timer: ConnectionTimer,
        at: Instant,
        env: &mut Env,
    ) {
        if let Some(connection) = self.table.get_mut(id) {
            connection.deadlines.set(
                timer as usize,
                at,
                TimerSlot::of_connection(id),
                &mut env.timers,
            );
        }
    }

    /// Looks at a connection that rests and may be idle for so long: false if it was. Otherwise it gives back memory
    /// that only traffic needs.
    pub(crate) fn settle(
        &mut self,
        id: ConnectionId,
        idle: Option<Duration>,
        env: &mut Env,
        now: Instant,
    ) -> bool {
        let Some(connection) = self.table.get_mut(id) else { return false };
        let was_idle = idle.is_some_and(|idle| connection.idle_since(now) >= idle);
        if was_idle || !connection.mux.is_http2() {
            return false;
        }
        connection.mux.rest();
        if let Some(idle) = idle {
            let end = connection.rested + idle;
            self.set_connection_timer(id, ConnectionTimer::Idle, end, env);
        }
        true
    }

    /// Drops a connection that nothing hangs on any more.
    pub(crate) fn end_connection(&mut self, id: ConnectionId, how: Close, env: &mut Env) {
        // What was encoded for it stands before the close; once it is removed, nothing goes to it.
        if self.out_for == Some(id) {
            self.flush_out(env);
        }
        if how == Close::Flush {
            self.send_close_notify(id, env);
        }
        if self.table.remove(id).is_some() {
            env.timers.clear(TimerSlot::of_connection(id));
            self.push(Output::Close { connection: id, how }, env);
        }
    }
}
