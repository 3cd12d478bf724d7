//! Connections that are answered by their filter chain and go no further (`envoy.filters.network.echo`,
//! `envoy.filters.network.direct_response`).
//!
//! Arrives: a client's connection, what it sends and its end. Leaves: the same bytes, or a text and the end. They have
//! no stream: nothing of them is routed, and only listeners log them.

use bytes::Bytes;
use towpath_proto::{ConnectionId, Instant};

use crate::conn::mux::ONLY;
use crate::exchange::Exchange;
use crate::exchange::forward::Item;
use crate::ids::{Closer, Leg};
use crate::snapshot::listener::Answer;

impl Exchange {
    /// A client is there, and under TLS its handshake is over.
    pub(crate) fn open_answered(&mut self, id: ConnectionId, now: Instant) {
        let Some(Answer::Fixed(text)) = self.answer_of(id) else { return };
        if !text.is_empty() {
            self.write(Leg { connection: id, number: ONLY }, Item::Data(text), now);
        }
        self.close_downstream(id, now);
    }

    /// Bytes have come that belong to no stream.
    #[cold]
    pub(crate) fn answer_bytes(&mut self, id: ConnectionId, chunk: Bytes, now: Instant) {
        if self.answer_of(id) == Some(Answer::Echo) {
            self.write(Leg { connection: id, number: ONLY }, Item::Data(chunk), now);
        }
    }

    /// The end of those.
    #[cold]
    pub(crate) fn end_answered(&mut self, id: ConnectionId, now: Instant) {
        if self.answer_of(id).is_some() {
            let Self { listeners, conns, env, .. } = self;
            listeners.close_client(id, Closer::Remote, conns, env, now);
        }
    }

    /// More waits to leave a connection than may: nothing more is read of it, if it goes back on the same.
    #[cold]
    pub(crate) fn pause_answered(&mut self, id: ConnectionId) {
        if self.answer_of(id).is_some() {
            self.update_reading(id);
        }
    }

    fn answer_of(&self, id: ConnectionId) -> Option<Answer> {
        self.conns.table.get(id)?.downstream()?.context.answer().cloned()
    }
}
