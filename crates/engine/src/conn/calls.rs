//! What is said on a connection by itself: farewells, answers to heartbeats, room for the app.

use towpath_proto::{ConnectionId, Instant};

use crate::conn::mux::Codec;
use crate::conn::{Connections, Reading, Role};
use crate::env::Env;
use crate::local::message::Event;

impl Connections {
    /// Whether a client's connection should end and nothing more is to be done on it.
    pub(crate) fn is_through(&self, id: ConnectionId) -> bool {
        let Some(connection) = self.table.get(id) else { return false };
        let Some(downstream) = connection.downstream() else { return false };
        let is_free = match &connection.codec {
            Codec::BoltServer(server) => server.in_flight() == 0,
            Codec::Server(_)
            | Codec::Client(_)
            | Codec::Raw(_)
            | Codec::Local(_)
            | Codec::BoltClient(_) => false,
        };
        is_free && (downstream.closing || connection.ended)
    }

    /// Tells a client that understands it to send its next calls elsewhere.
    pub(crate) fn bid_farewell(&mut self, id: ConnectionId, env: &mut Env, now: Instant) {
        let Some(connection) = self.table.get_mut(id) else { return };
        // Nothing goes out behind our FIN.
        let Role::Downstream(_) = &connection.role else { return };
        let Codec::BoltServer(server) = &mut connection.codec else { return };
        let Some(message) = server.farewell(now) else { return };
        if let Some(bolt) = connection.downstream().and_then(|downstream| downstream.context.bolt())
        {
            bolt.stats.downstream_go_aways.inc();
        }
        self.encode_for(id, env);
        // Without parts it is never too long.
        let _ = message.write(&mut self.out);
    }

    /// Answers the heartbeats, and refuses the calls, that one wake-up brought.
    pub(crate) fn answer_at_once(&mut self, id: ConnectionId, env: &mut Env) {
        let Some(connection) = self.table.get_mut(id) else { return };
        let replies = match &mut connection.codec {
            Codec::BoltServer(server) => server.take_beats(),
            Codec::BoltClient(client) => client.take_replies(),
            Codec::Server(_) | Codec::Client(_) | Codec::Raw(_) | Codec::Local(_) => return,
        };
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
    /// Whether streams of many clients share this connection.
    pub(crate) fn is_shared(&self, id: ConnectionId) -> bool {
        self.table
            .get(id)
            .is_some_and(|connection| matches!(connection.codec, Codec::BoltClient(_)))
    }
}

impl Connections {
    /// The app's side of a stream is read again, or not: what was held back is taken.
    pub(crate) fn on_local_reading(&mut self, id: ConnectionId, env: &mut Env) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.reading == Reading::Off {
            return;
        }
        let Codec::Local(call) = &mut connection.codec else { return };
        let (bytes, call) = (std::mem::take(&mut call.untaken), call.id);
        if bytes > 0 {
            env.tell_app(Event::Room { call, bytes });
        }
    }
}
