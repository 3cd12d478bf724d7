//! TLS on upstream connections: the handshake before a connection counts, and the layer between bytes and codec after it.
//!
//! Arrives: records. Leaves: plain bytes for the codec, records for the driver, or the end of a connect.
//!
//! A connection in its handshake is in no pool and carries nothing: it still belongs to its attempt, whose deadline
//! (`connect_timeout`) runs on. What was encoded for a connection is sealed when it is handed to the driver, so that
//! all pieces of a turn leave in one write.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towpath_proto::Out;
use towpath_proto::tls::{self, Fault, Layer};
use towpath_proto::{Address, AttemptId, Close, ConnectionId, Instant, Output};
use towpath_trace::Stamp;

use crate::connection::Connections;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::ids::{Closer, Protocol, ResetReason};
use crate::snapshot::tls::{AskedName, UpstreamTls};
use crate::spans;
use crate::stats::{Scope, TlsStats};
use crate::stream::{Direction, Stream};

/// A cluster's TLS as a worker lives it.
#[derive(Debug)]
pub(crate) struct ClusterTls {
    client: tls::Client,
    name: AskedName,
    stats: Arc<TlsStats>,
}

/// A connection whose handshake is not over.
#[derive(Debug)]
struct Handshake {
    attempt: AttemptId,
    layer: Box<Layer>,
    local: Address,
    /// When the driver had connected.
    connected: Instant,
    /// Bytes given to the driver that the kernel has not taken yet.
    outstanding: usize,
    /// When it began, if it is traced.
    since: Option<Stamp>,
}

/// All handshakes of a worker, and what they share.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    open: HashMap<ConnectionId, Handshake>,
    pub(crate) clock: tls::Clock,
    /// Where records are opened to; most of the time nobody holds a slice of it.
    plain: BytesMut,
    /// Where records are made.
    sealed: BytesMut,
    /// Connections that cannot be written to any more.
    pub(crate) broken: Vec<(ConnectionId, Fault)>,
}

/// What is known of a connection after its handshake.
#[derive(Debug)]
pub(crate) struct Secured {
    pub(crate) layer: Box<Layer>,
    /// When the driver had connected.
    pub(crate) connected: Instant,
    /// Bytes given to the driver that the kernel has not taken yet.
    pub(crate) outstanding: usize,
    /// When the handshake began, if it is traced.
    pub(crate) since: Option<Stamp>,
}

impl Exchange {
    /// Begins the handshake on a connection that the driver has made; false if its cluster is spoken to in plain text.
    pub(crate) fn begin_handshake(
        &mut self,
        id: AttemptId,
        connection: ConnectionId,
        local: &Address,
        now: Instant,
    ) -> bool {
        let Some((pool_key, _)) = self.upstreams.attempts.purpose(id) else { return false };
        let Some(cluster) = self.upstreams.clusters.get(pool_key.cluster) else { return false };
        let (Some(tls), Some(pool)) = (&cluster.tls, cluster.pool(pool_key)) else { return false };
        self.conns.handshakes.clock.set(self.env.clock.since_1970(now));
        let layer = tls.client.connect(&tls.name.of(&pool.hostname));
        self.upstreams.attempts.secure(id, connection);
        match layer {
            Ok(mut layer) => {
                let hello = layer.take_output();
                let handshake = Handshake {
                    attempt: id,
                    layer: Box::new(layer),
                    local: local.clone(),
                    connected: now,
                    outstanding: hello.len(),
                    since: spans::handshake_begins(),
                };
                self.conns.handshakes.open.insert(connection, handshake);
                self.conns.send_records(connection, hello, &mut self.env);
            }
            Err(fault) => self.fail_handshake(id, connection, fault, now),
        }
        true
    }

    /// Records for a connection that is no other's, in its handshake perhaps.
    pub(crate) fn on_handshake_received(&mut self, id: ConnectionId, chunk: &[u8], now: Instant) {
        self.conns.handshakes.clock.set(self.env.clock.since_1970(now));
        let Handshakes { open, plain, .. } = &mut self.conns.handshakes;
        let Some(handshake) = open.get_mut(&id) else { return };
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
        }
    }

    /// The connection is usable; `early` is what its server has said already.
    fn end_handshake(&mut self, id: ConnectionId, early: Bytes, now: Instant) {
        let Some(handshake) = self.conns.handshakes.open.remove(&id) else { return };
        let attempt = handshake.attempt;
        let Some((pool_key, protocol)) = self.upstreams.attempts.purpose(attempt) else { return };
        // A server that speaks HTTP before it is asked would answer a request that it has not seen.
        if !early.is_empty() && protocol == Protocol::Http1 {
            self.fail_handshake(attempt, id, Fault::Violation, now);
            return;
        }
        if let Some(tls) =
            self.upstreams.clusters.get(pool_key.cluster).and_then(|cluster| cluster.tls.as_ref())
        {
            tls.stats.count_handshake(&handshake.layer);
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
    fn fail_handshake(&mut self, attempt: AttemptId, id: ConnectionId, fault: Fault, now: Instant) {
        self.conns.handshakes.open.remove(&id);
        if let Some((pool_key, _)) = self.upstreams.attempts.purpose(attempt)
            && let Some(tls) = self
                .upstreams
                .clusters
                .get(pool_key.cluster)
                .and_then(|cluster| cluster.tls.as_ref())
        {
            tls.stats.count_fault(fault);
        }
        // The alert goes out first. A connection that is gone already is closed once more, which nobody minds.
        self.conns.push(Output::Close { connection: id, how: Close::Flush }, &mut self.env);
        // Whoever refused whom, Envoy counts it as the peer's doing.
        self.fail_connect(attempt, Closer::Remote, ResetReason::Tls(fault), now);
    }

    /// Records for an established connection: opens them and hands on what is in them, a piece at a time, so that a
    /// slice that somebody keeps holds a piece at most.
    pub(crate) fn on_sealed(&mut self, id: ConnectionId, chunk: &Bytes, now: Instant) {
        self.conns.handshakes.clock.set(self.env.clock.since_1970(now));
        self.receive_slowly(id, chunk.len(), now);
        for piece in chunk.chunks(PIECE_BYTES) {
            let Some(connection) = self.conns.table.get_mut(id) else { return };
            let Some(layer) = &mut connection.tls else { return };
            let received = layer.receive(piece, &mut self.conns.handshakes.plain);
            let (output, ended) = (layer.take_output(), layer.is_ended() && !connection.ended);
            connection.outstanding += output.len();
            let plain = self.conns.handshakes.plain.split().freeze();
            self.conns.send_records(id, output, &mut self.env);
            self.receive_plain(id, plain, now);
            match received {
                Err(fault) => return self.on_tls_fault(id, fault, now),
                Ok(()) if ended => return self.on_ended(id, now),
                Ok(()) => {}
            }
        }
    }

    /// Hands plain bytes to the codec.
    fn receive_plain(&mut self, id: ConnectionId, plain: Bytes, now: Instant) {
        if plain.is_empty() {
            return;
        }
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.bytes_received += plain.len() as u64;
        connection.codec.receive(plain);
        self.pump(id, now);
    }

    /// An established connection failed: it is of no more use.
    fn on_tls_fault(&mut self, id: ConnectionId, fault: Fault, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.ended = true;
        let (stream, pool_key) = (connection.stream, connection.upstream().map(|up| up.pool_key));
        if let Some(tls) = pool_key
            .and_then(|pool_key| self.upstreams.clusters.get(pool_key.cluster))
            .and_then(|cluster| cluster.tls.as_ref())
        {
            tls.stats.count_fault(fault);
        }
        if self.conns.is_shared(id) {
            self.fail_shared(id, ResetReason::Terminated, now);
        }
        match stream {
            Some(index) => self.reset_upstream(index, ResetReason::Terminated, now),
            None => {
                self.upstreams.close_upstream(id, Close::Flush, &mut self.conns, &mut self.env, now)
            }
        }
    }

    /// The end of an established connection came without `close_notify`: anybody on the way may have cut it
    /// (RFC 8446 §6.1). So it does not end a message that is ended by nothing else.
    pub(crate) fn on_cut(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let Some(stream) =
            connection.stream.and_then(|index| Some((index, self.streams.get(index)?)))
        else {
            return self.on_upstream_end(id, now);
        };
        let (index, stream) = stream;
        let opaque = matches!(connection.codec, crate::connection::Codec::Raw(_));
        match stream.response_end {
            Direction::Ended | Direction::AwaitingHead if !opaque => self.on_upstream_end(id, now),
            Direction::Ended => self.on_upstream_end(id, now),
            Direction::Streaming | Direction::AwaitingHead => {
                let reason = if opaque { ResetReason::Reset } else { ResetReason::Protocol };
                self.reset_upstream(index, reason, now);
            }
        }
    }

    /// Ends connections that cannot be written to any more.
    pub(crate) fn end_broken(&mut self, now: Instant) {
        while let Some((id, fault)) = self.conns.handshakes.broken.pop() {
            self.on_tls_fault(id, fault, now);
        }
    }
}

impl Connections {
    /// A cluster's TLS, as this worker will live it.
    pub(crate) fn cluster_tls(
        &self,
        config: &UpstreamTls,
        stat_name: &Arc<str>,
        env: &Env,
    ) -> ClusterTls {
        let scope = Scope::ClusterTls(Arc::clone(stat_name));
        ClusterTls {
            client: config.template.client(&self.handshakes.clock),
            name: config.name.clone(),
            stats: env.registry.set(env.index, scope),
        }
    }

    pub(crate) fn on_handshake_sent(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(handshake) = self.handshakes.open.get_mut(&id) {
            handshake.outstanding = handshake.outstanding.saturating_sub(bytes);
        }
    }

    /// Gives up a handshake together with its connect.
    pub(crate) fn cancel_handshake(&mut self, id: ConnectionId, env: &mut Env) {
        self.handshakes.open.remove(&id);
        self.push(Output::Close { connection: id, how: Close::Abort }, env);
    }

    /// Tells the peer of a connection under TLS that nothing more comes, behind all that was encoded for it.
    pub(crate) fn say_goodbye(&mut self, id: ConnectionId, env: &mut Env) {
        if self.table.get(id).is_none_or(|connection| connection.tls.is_none()) {
            return;
        }
        if self.out_for == Some(id) {
            self.flush_out(env);
        }
        let Some(connection) = self.table.get_mut(id) else { return };
        let Some(layer) = &mut connection.tls else { return };
        let sealed = &mut self.handshakes.sealed;
        layer.say_goodbye(sealed);
        let records = sealed.split().freeze();
        if !records.is_empty() {
            connection.outstanding += records.len();
            env.outputs.push_back(Output::Send { connection: id, chunk: records });
        }
    }

    /// Records of TLS's own.
    fn send_records(&mut self, id: ConnectionId, records: Vec<u8>, env: &mut Env) {
        if !records.is_empty() {
            self.push(Output::Send { connection: id, chunk: records.into() }, env);
        }
    }
}

impl Stream {
    /// The connection that it waited for is usable.
    pub(crate) fn on_secured(&mut self, since: Option<Stamp>, layer: Option<&Layer>, now: Instant) {
        if let Some(layer) = layer {
            self.record.secured = Some(now);
            self.trace_handshake(since, layer);
        }
    }
}

impl Handshakes {
    fn attempt(&self, id: ConnectionId) -> Option<AttemptId> {
        self.open.get(&id).map(|handshake| handshake.attempt)
    }

    /// What was encoded, as records. Nothing if that is not possible any more, which `broken` then tells.
    pub(crate) fn seal(&mut self, id: ConnectionId, layer: &mut Layer, out: &mut Out) -> Bytes {
        for chunk in out.drain() {
            if let Err(fault) = layer.seal(&chunk, &mut self.sealed) {
                self.broken.push((id, fault));
                break;
            }
        }
        self.sealed.split().freeze()
    }
}

/// How much of what arrived is opened at once.
const PIECE_BYTES: usize = 32 * 1024;
