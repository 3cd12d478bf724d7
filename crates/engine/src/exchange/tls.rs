//! Handshakes and records, for connects and streams.

use bytes::Bytes;
use towpath_proto::proxy::Refusal;
use towpath_proto::tls::{Certificate, Distrust, Fault, Layer, ServerName};
use towpath_proto::{AttemptId, Close, ConnectionId, Instant, Output};
use towpath_trace::Stamp;

use crate::conn::spans::handshake_begins;
use crate::conn::tls::{Handshake, Handshakes, Reached, Secured};
use crate::conn::{ConnectionTimer, Role};
use crate::exchange::Exchange;
use crate::exchange::stream::{Progress, Stream};
use crate::ids::{Closer, PoolKey, Protocol, ResetReason};
use crate::upstream::cluster::ClusterState;

impl Exchange {
    /// Begins the handshake on a connection that the driver has made; gives it back if its cluster is spoken to in
    /// plain text.
    pub(crate) fn begin_handshake(
        &mut self,
        id: AttemptId,
        connection: ConnectionId,
        reached: Reached,
        now: Instant,
    ) -> Result<(), Reached> {
        let Some(pool_key) = self.upstreams.attempts.get(id).map(|it| it.pool_key) else {
            return Err(reached);
        };
        let Some(cluster) = self.upstreams.clusters.get(pool_key.cluster) else {
            return Err(reached);
        };
        let (Some(tls), Some(pool)) = (cluster.tls_of(pool_key), cluster.pool(pool_key)) else {
            return Err(reached);
        };
        self.conns.handshakes.clock.set(self.env.clock.since_1970(now));
        let asked = cluster.wishes.get(pool.class.wish).and_then(|wish| wish.server.as_ref());
        let name = match asked.map(|asked| ServerName::of_host(asked)) {
            Some(asked) => asked.unwrap_or_else(ServerName::unnamed),
            None => tls.name.of(&pool.hostname),
        };
        let layer = match (&tls.client, &tls.secrets) {
            (Some(client), _) => {
                let peer = self.upstreams.attempts.address(id);
                let peer = peer.as_ref().unwrap_or(&pool.address);
                let client = client.between(&reached.local, peer);
                client.connect_offering(cluster.offer(pool), &name)
            }
            (None, secrets) => {
                if let Some(secrets) = secrets {
                    secrets.upstream_context_secrets_not_ready.inc();
                }
                // To Envoy the connection is one that ended.
                Err(Fault::Ended)
            }
        };
        let is_shown = self.snapshot.shows_upstream_tls;
        self.upstreams.attempts.secure(id, connection);
        match layer {
            Ok(mut layer) => {
                if is_shown {
                    layer = layer.remembering(&name);
                }
                let Reached { local, connected, outstanding, below } = reached;
                if let Some(below) = below {
                    layer = layer.over(below);
                }
                let hello = layer.take_output();
                let handshake = Handshake {
                    attempt: id,
                    layer: Box::new(layer),
                    local,
                    connected,
                    outstanding: outstanding + hello.len(),
                    since: handshake_begins(),
                };
                self.conns.handshakes.open.insert(connection, handshake);
                self.conns.send_records(connection, hello, &mut self.env);
            }
            Err(fault) => self.fail_handshake(id, connection, fault, now),
        }
        Ok(())
    }

    /// Records for a connection that is no other's, in its handshake perhaps.
    pub(crate) fn on_handshake_received(&mut self, id: ConnectionId, chunk: &[u8], now: Instant) {
        self.conns.handshakes.clock.set(self.env.clock.since_1970(now));
        let Handshakes { open, plain, .. } = &mut self.conns.handshakes;
        let Some(handshake) = open.get_mut(&id) else {
            return self.on_tunnel_received(id, chunk, now);
        };
        let attempt = handshake.attempt;
        let received = handshake.layer.receive(chunk, plain);
        let early = plain.split().freeze();
        let output = handshake.layer.take_output();
        handshake.outstanding += output.len();
        let established = handshake.layer.is_established();
        self.conns.send_records(id, output, &mut self.env);
        match received {
            Err(fault) => self.fail_handshake(attempt, id, fault, now),
            Ok(()) if established => self.end_handshake(id, early, now),
            Ok(()) => {}
        }
    }

    /// The peer has ended a connection, or it is gone, in its handshake perhaps.
    pub(crate) fn on_handshake_ended(&mut self, id: ConnectionId, fault: Fault, now: Instant) {
        if let Some(attempt) = self.conns.handshakes.attempt(id) {
            self.fail_handshake(attempt, id, fault, now);
        } else {
            self.fail_tunnel(id, Refusal::Ended, now);
        }
    }

    /// The connection is usable; `early` is what its server has said already.
    pub(crate) fn end_handshake(&mut self, id: ConnectionId, early: Bytes, now: Instant) {
        let Some(handshake) = self.conns.handshakes.open.remove(&id) else { return };
        let attempt = handshake.attempt;
        let Some(made) = self.upstreams.attempts.get(attempt) else { return };
        if let Some(cluster) = self.upstreams.clusters.get(made.pool_key.cluster) {
            let protocol =
                cluster.protocol(made.pool_key, made.stream.is_some(), handshake.layer.alpn());
            if !cluster.takes_alpn(handshake.layer.alpn()) {
                return self.fail_handshake(attempt, id, Fault::Incompatible, now);
            }
            if !cluster.trusts_name(made.pool_key, &handshake.layer) {
                return self.fail_handshake(attempt, id, Fault::Certificate(Distrust::Name), now);
            }
            // A server that speaks HTTP/1 before it is asked would answer a request that it has not seen.
            if !early.is_empty() && protocol == Protocol::Http1 {
                return self.fail_handshake(attempt, id, Fault::Violation, now);
            }
            if let Some(tls) = cluster.tls_of(made.pool_key) {
                tls.stats.count_handshake(&handshake.layer);
            }
        }
        let ended = handshake.layer.is_ended();
        let secured = Secured {
            layer: handshake.layer,
            connected: handshake.connected,
            outstanding: handshake.outstanding,
            since: handshake.since,
        };
        self.establish(attempt, id, handshake.local, Some(secured), now);
        self.receive_plain(id, early, now);
        if ended {
            self.on_ended(id, now);
        }
    }

    /// The handshake came to nothing, and with it the connect.
    pub(crate) fn fail_handshake(
        &mut self,
        attempt: AttemptId,
        id: ConnectionId,
        fault: Fault,
        now: Instant,
    ) {
        self.conns.handshakes.open.remove(&id);
        if let Some(pool_key) = self.upstreams.attempts.get(attempt).map(|it| it.pool_key) {
            self.upstreams.clusters.count_fault(pool_key, fault);
        }
        // The alert goes out first. A connection that is gone already is closed once more, which does no harm.
        self.conns.push(Output::Close { connection: id, how: Close::Flush }, &mut self.env);
        // Whichever side refused, Envoy counts it as the peer's doing.
        self.fail_connect(attempt, Closer::Remote, ResetReason::Tls(fault), now);
    }

    /// Whether a piece of a client's handshake waits for the next round, because this one has had its share of them.
    pub(super) fn puts_off_handshake(&mut self, id: ConnectionId, piece: &Bytes) -> bool {
        let Some(connection) = self.conns.table.get_mut(id) else { return false };
        if !self.conns.handshakes.puts_off(id, piece, self.env.round) {
            return false;
        }
        connection.put_off = true;
        self.update_reading(id);
        true
    }

    /// Looks at handshakes that were put off, in the order in which they came, as far as the round has room for them.
    pub(super) fn go_on_with_handshakes(&mut self, now: Instant) {
        while let Some((id, pieces)) = self.conns.handshakes.next_late(self.env.round) {
            let Some(connection) = self.conns.table.get_mut(id) else { continue };
            connection.put_off = false;
            self.take_late(id, &pieces, now);
            self.update_reading(id);
        }
    }

    /// What a client has sent in its handshake, and has waited.
    pub(crate) fn take_late(&mut self, id: ConnectionId, pieces: &[Bytes], now: Instant) {
        for piece in pieces {
            let Some(connection) = self.conns.table.get(id) else { return };
            match connection.role {
                Role::Closing(_) => self.on_received(id, piece.clone(), now),
                Role::Arriving(_) | Role::Downstream(_) | Role::Upstream(_) => {
                    self.on_sealed(id, piece, now);
                }
            }
        }
    }

    /// Records for an established connection: opens them and hands on what is in them, a piece at a time, so that a
    /// slice that is kept holds a piece at most.
    pub(crate) fn on_sealed(&mut self, id: ConnectionId, chunk: &Bytes, now: Instant) {
        self.conns.handshakes.clock.set(self.env.clock.since_1970(now));
        self.receive_slowly(id, chunk.len(), now);
        for piece in chunk.chunks(PIECE_BYTES) {
            let Some(connection) = self.conns.table.get_mut(id) else { return };
            let Some(layer) = &mut connection.tls else { return };
            let was_established = layer.is_established();
            let received = layer.receive(piece, &mut self.conns.handshakes.plain);
            let is_new = !was_established && layer.is_established();
            let (output, ended) = (layer.take_output(), layer.is_ended() && !connection.ended);
            connection.outstanding += output.len();
            if !was_established && let Some(downstream) = connection.downstream_mut() {
                downstream.note_handshake(piece, now);
            }
            let plain = self.conns.handshakes.plain.split().freeze();
            self.conns.send_records(id, output, &mut self.env);
            if is_new {
                self.on_client_secured(id, now);
            }
            self.receive_plain(id, plain, now);
            match received {
                Err(fault) => return self.on_tls_fault(id, fault, now),
                Ok(()) if ended => return self.on_ended(id, now),
                Ok(()) => {}
            }
        }
    }

    /// Hands plain bytes to the mux.
    pub(crate) fn receive_plain(&mut self, id: ConnectionId, plain: Bytes, now: Instant) {
        if plain.is_empty() {
            return;
        }
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.bytes_received += plain.len() as u64;
        if connection.downstream().is_some_and(|downstream| downstream.unjudged) {
            return self.receive_judged(id, plain, now);
        }
        let hears = connection.upstream().is_some_and(|upstream| upstream.app.is_some());
        connection.mux.receive(plain);
        if let Some(heard) = connection.mux.take_heard() {
            self.note_heard(id, heard);
        }
        if hears {
            self.hear(id, now);
        }
        self.pump(id, now);
    }

    /// An established connection failed: it is of no more use.
    pub(crate) fn on_tls_fault(&mut self, id: ConnectionId, fault: Fault, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if connection.downstream().is_some() {
            return self.on_client_fault(id, fault, now);
        }
        connection.ended = true;
        let pool_key = connection.upstream().map(|upstream| upstream.pool_key);
        if let Some(pool_key) = pool_key {
            self.upstreams.clusters.count_fault(pool_key, fault);
        }
        self.fail_upstream(id, ResetReason::Terminated, Close::Flush, now);
    }

    /// The end of an established connection came without `close_notify`: an attacker on the way may have cut it
    /// (RFC 8446 §6.1). So it does not end a message that is ended by nothing else.
    pub(crate) fn on_cut(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let on = connection.streams.only().filter(|_| connection.mux.is_alone());
        let Some((index, stream)) = on.and_then(|index| Some((index, self.streams.get(index)?)))
        else {
            return self.on_upstream_end(id, now);
        };
        let opaque = connection.mux.is_opaque();
        match stream.response_end {
            Progress::Ended | Progress::AwaitingHead if !opaque => self.on_upstream_end(id, now),
            Progress::Ended => self.on_upstream_end(id, now),
            Progress::Streaming | Progress::AwaitingHead => {
                let reason = if opaque { ResetReason::Reset } else { ResetReason::Protocol };
                self.reset_upstream(index, reason, now);
            }
        }
    }

    /// A client's handshake is over.
    fn on_client_secured(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let (Some(layer), Some(downstream)) = (&connection.tls, connection.downstream()) else {
            return;
        };
        if let Some(tls) = &downstream.context.tls {
            tls.stats.count_handshake(layer);
            tls.stats.count_stapling(layer);
        }
        connection.deadlines.clear(ConnectionTimer::RequestHead as usize);
        if let Some(downstream) = connection.downstream_mut() {
            downstream.end_handshake(now);
        }
        self.open_client(id, now);
    }

    /// A client's handshake came to nothing, or what it sends afterwards is no TLS: the alert goes out, and that is
    /// all.
    fn on_client_fault(&mut self, id: ConnectionId, fault: Fault, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if let Some(downstream) = connection.downstream_mut() {
            downstream.fail_handshake(fault);
        }
        let Some(downstream) = connection.downstream() else { return };
        if let (Some(tls), Some(layer)) = (&downstream.context.tls, &connection.tls) {
            tls.stats.count_fault(fault);
            if !downstream.ready {
                tls.stats.count_stapling(layer);
            }
        }
        // Whichever side refused, Envoy counts it as the peer's doing.
        self.drop_client(id, Close::Flush, Closer::Remote, now);
    }

    /// A client sends nothing more. Under TLS only it can say so: where bytes have no other end, one that an attacker
    /// on the way may have made up ends the connection, and is not passed on (RFC 8446 §6.1).
    pub(crate) fn on_client_ended(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let (Some(layer), Some(downstream)) = (&connection.tls, connection.downstream()) else {
            return self.on_downstream_ended(id, now);
        };
        if !downstream.ready {
            return self.drop_client(id, Close::Flush, Closer::Remote, now);
        }
        // A client that has been told the server's end, by a close_notify, may leave without one.
        let stream = connection.streams.only().and_then(|index| self.streams.get(index));
        let is_open = stream.is_some_and(|stream| stream.response_end != Progress::Ended);
        if connection.mux.is_opaque() && !layer.is_ended() && is_open {
            return self.drop_client(id, Close::FlushReset, Closer::Remote, now);
        }
        self.on_downstream_ended(id, now);
    }

    /// Ends a client's connection and what is on it, at once.
    pub(crate) fn drop_client(
        &mut self,
        id: ConnectionId,
        how: Close,
        closer: Closer,
        now: Instant,
    ) {
        let Self { listeners, conns, env, .. } = self;
        listeners.count_downstream_close(id, closer, conns, env, now);
        let connection = conns.table.get(id);
        let failure = connection.map_or("", |connection| connection.told().failure);
        let streams = connection.map(|connection| connection.streams.all());
        conns.end_connection(id, how, env);
        for index in streams.unwrap_or_default() {
            self.streams.note_failure(index, failure);
            self.streams.mark_gone(index);
            self.finish(index, now);
        }
        self.listeners.check_drained(&mut self.env);
    }

    /// Ends connections that cannot be written to any more.
    pub(crate) fn end_broken(&mut self, now: Instant) {
        while let Some((id, fault)) = self.conns.handshakes.broken.pop() {
            self.on_tls_fault(id, fault, now);
        }
    }
}

impl ClusterState {
    /// Whether a server's certificate has the name that the requests of its pool want there.
    fn trusts_name(&self, pool_key: PoolKey, layer: &Layer) -> bool {
        let wish = self.pool(pool_key).and_then(|pool| self.wishes.get(pool.class.wish));
        let Some(name) = wish.and_then(|wish| wish.certified.as_ref()) else { return true };
        let certificate = layer.peer_certificate().and_then(Certificate::parse);
        certificate.is_some_and(|certificate| certificate.is_for(name))
    }
}

impl Stream {
    /// The connection that it waited for is usable.
    pub(crate) fn on_secured(&mut self, since: Option<Stamp>, layer: Option<&Layer>, now: Instant) {
        if let Some(layer) = layer {
            self.recorder.note(|record| record.secured = Some(now));
            self.trace_handshake(since, layer);
        }
    }
}

/// How much of what arrived is opened at once.
pub(crate) const PIECE_BYTES: usize = 32 * 1024;
