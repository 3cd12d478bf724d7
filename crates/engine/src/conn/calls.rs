//! What is said on a connection by itself: close_notify, answers to heartbeats, room for the app.

use towpath_proto::{ConnectionId, Instant};

use crate::conn::mux::Mux;
use crate::conn::{Connections, Reading, Role};
use crate::env::Env;
use crate::local::message::Event;

impl Connections {
    /// Whether a client's connection should end and nothing more is to be done on it.
    pub(crate) fn is_through(&self, id: ConnectionId) -> bool {
        let Some(connection) = self.table.get(id) else { return false };
        let Some(downstream) = connection.downstream() else { return false };
        let mux = &connection.mux;
        let is_free = !mux.is_alone() && !connection.is_busy() && !mux.has_unsent();
        is_free && (downstream.closing || connection.ended)
    }

    /// Tells a client that understands it to send its next calls elsewhere; whether it had not been told.
    pub(crate) fn send_go_away(&mut self, id: ConnectionId, env: &mut Env, now: Instant) -> bool {
        let Some(connection) = self.table.get_mut(id) else { return false };
        // Nothing goes out behind our FIN.
        let Role::Downstream(_) = &connection.role else { return false };
        self.encode_for(id, env);
        let Some(connection) = self.table.get_mut(id) else { return false };
        let told = connection.mux.go_away(now, &mut self.out);
        if told
            && let Some(bolt) =
                connection.downstream().and_then(|downstream| downstream.context.bolt())
        {
            bolt.stats.downstream_go_aways.inc();
        }
        told
    }

    /// Tells a client that no further stream is taken, where its protocol has a word for that. One that has ended its
    /// side will not begin any.
    pub(crate) fn take_leave(&mut self, id: ConnectionId, env: &mut Env) {
        let connection = self.table.get(id);
        if connection.is_some_and(|connection| connection.mux.is_http2() && !connection.ended) {
            self.encode_for(id, env);
            if let Some(connection) = self.table.get_mut(id) {
                connection.mux.leave(&mut self.out);
            }
        }
    }

    /// Answers the heartbeats, and refuses the calls, that one wake-up brought.
    pub(crate) fn answer_at_once(&mut self, id: ConnectionId, env: &mut Env) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.mux.is_alone() {
            return;
        }
        let replies = connection.mux.take_replies();
        // A server that asks and does not read is not answered for ever.
        if replies.is_empty() || (connection.congested && connection.upstream().is_some()) {
            return;
        }
        if let Some(bolt) = connection.downstream().and_then(|downstream| downstream.context.bolt())
        {
            bolt.stats.downstream_heartbeats.add(replies.len() as u64);
        }
        self.encode_for(id, env);
        for reply in replies {
            // Without parts it is never too long.
            let _ = reply.message().write(&mut self.out);
        }
    }
}

impl Connections {
    /// The app's side of a stream is read again, or not: what was held back is taken.
    pub(crate) fn on_local_reading(&mut self, id: ConnectionId, env: &mut Env) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.reading != Reading::On {
            return;
        }
        let Mux::App(call) = &mut connection.mux else { return };
        let (bytes, call) = (std::mem::take(&mut call.untaken), call.id);
        if bytes > 0 {
            env.tell_app(Event::Room { call, bytes });
        }
    }
}
