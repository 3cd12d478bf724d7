//! TLS on connections of either side: the layer between bytes and mux, and what there is before it is up.
//!
//! Arrives: records. Leaves: plain bytes for the mux, records for the driver, or the end of a connect.
//!
//! A connection to a server is in no pool during its handshake and carries nothing: it still belongs to its attempt,
//! whose deadline (`connect_timeout`) runs on. A client's is in the table from the start, and gets its mux when the
//! handshake has told what is spoken. What was encoded for a connection is sealed when it is handed to the driver, so
//! that all pieces of a turn leave in one write.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;
use towpath_proto::tls::{Fault, Layer};
use towpath_proto::{Address, AttemptId, Close, ConnectionId, Instant, Out, Output, proxy, tls};
use towpath_trace::Stamp;

use crate::conn::Connections;
use crate::env::Env;
use crate::snapshot::Cluster;
use crate::snapshot::tls::{AskedName, UpstreamTls};
use crate::stats::{ClientTlsContextStats, Scope, ServerTlsContextStats, TlsStats};

/// A cluster's TLS as a worker lives it.
#[derive(Debug)]
pub(crate) struct ClusterTls {
    /// `None` while a secret is not there.
    pub(crate) client: Option<tls::Client>,
    pub(crate) name: AskedName,
    pub(crate) stats: Arc<TlsStats>,
    /// Where connections are counted that are not made for want of a secret.
    pub(crate) secrets: Option<Arc<ClientTlsContextStats>>,
}

/// The TLS of a cluster's hosts, and of those that differ; `None` is plain text.
pub(crate) type ClusterSockets = (Option<ClusterTls>, Vec<Option<ClusterTls>>);

/// A filter chain's TLS as a worker lives it.
#[derive(Debug)]
pub(crate) struct ChainTls {
    /// `None` while a secret is not there.
    pub(crate) server: Option<tls::Server>,
    pub(crate) stats: Arc<TlsStats>,
    /// Where connections are counted that are closed for want of a secret.
    pub(crate) secrets: Option<Arc<ServerTlsContextStats>>,
}

/// A connection to a server whose handshake is not over.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) attempt: AttemptId,
    pub(crate) layer: Box<Layer>,
    pub(crate) local: Address,
    /// When the driver had connected.
    pub(crate) connected: Instant,
    /// Bytes given to the driver that the kernel has not taken yet.
    pub(crate) outstanding: usize,
    /// When it began, if it is traced.
    pub(crate) since: Option<Stamp>,
}

/// What a driver's connection is before its handshake with the server: nothing, or a tunnel through a proxy.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) local: Address,
    /// When the driver had connected.
    pub(crate) connected: Instant,
    /// Bytes given to the driver that the kernel has not taken yet.
    pub(crate) outstanding: usize,
    /// The proxy's TLS.
    pub(crate) below: Option<Box<Layer>>,
}

/// A connection to a proxy that is being asked for a tunnel.
#[derive(Debug)]
pub(crate) struct OpeningTunnel {
    pub(crate) attempt: AttemptId,
    pub(crate) handshake: proxy::Handshake,
    pub(crate) layer: Option<Box<Layer>>,
    pub(crate) local: Address,
    /// When the driver had connected.
    pub(crate) connected: Instant,
    /// Bytes given to the driver that the kernel has not taken yet.
    pub(crate) outstanding: usize,
}

impl OpeningTunnel {
    /// Takes what the proxy said; `plain` is empty before and after.
    pub(crate) fn receive(
        &mut self,
        chunk: &[u8],
        plain: &mut BytesMut,
    ) -> Result<proxy::Progress, proxy::Refusal> {
        let Some(layer) = &mut self.layer else { return self.handshake.receive(chunk) };
        let received = layer.receive(chunk, plain);
        let said = plain.split();
        received.map_err(proxy::Refusal::Tls)?;
        let progress = self.handshake.receive(&said)?;
        if layer.is_ended() {
            return Err(proxy::Refusal::Ended);
        }
        Ok(progress)
    }

    /// What is to be sent: the request once the proxy's TLS is up.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        let Some(layer) = &mut self.layer else { return self.handshake.take_output() };
        let mut output = layer.take_output();
        if layer.is_established() {
            let (request, mut sealed) = (self.handshake.take_output(), BytesMut::new());
            // One that cannot be sealed has failed, which its next bytes tell.
            if !request.is_empty() && layer.seal(&request, &mut sealed).is_ok() {
                output.extend_from_slice(&sealed);
            }
        }
        output
    }
}

/// All handshakes of a worker, and what they share.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    pub(crate) open: FxHashMap<ConnectionId, Handshake>,
    /// Connections to proxies that are being asked for a tunnel.
    pub(crate) tunnels: FxHashMap<ConnectionId, OpeningTunnel>,
    pub(crate) clock: tls::Clock,
    /// Where records are opened to; most of the time no slice of it is held.
    pub(crate) plain: BytesMut,
    /// Where records are made.
    pub(crate) sealed: BytesMut,
    /// Connections that cannot be written to any more.
    pub(crate) broken: Vec<(ConnectionId, Fault)>,
    /// What clients have sent in their handshakes, and has not been looked at.
    late: FxHashMap<ConnectionId, Vec<Bytes>>,
    /// In which order that comes; one that is gone is not taken out.
    late_order: VecDeque<ConnectionId>,
    /// A round, and how many pieces of handshakes were looked at in it.
    taken: (u32, u32),
}

/// Pieces of clients' handshakes that are looked at in one round; each may cost the signature of a key. It bounds how
/// long a flood of them keeps others waiting.
const HANDSHAKES_PER_ROUND: u32 = 8;

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

impl Connections {
    /// A cluster's TLS, as this worker will live it.
    pub(crate) fn cluster_tls(&self, cluster: &Cluster, env: &Env) -> ClusterSockets {
        let name = &cluster.stat_name;
        let of = |tls: &Option<Box<UpstreamTls>>| {
            tls.as_ref().map(|config| ClusterTls {
                client: config.template.as_ref().map(|it| it.client(&self.handshakes.clock)),
                name: config.name.clone(),
                stats: env.registry.set(env.index, Scope::ClusterTls(Arc::clone(name))),
                secrets: config.template.is_none().then(|| {
                    env.registry.set(env.index, Scope::ClusterTlsContext(Arc::clone(name)))
                }),
            })
        };
        (of(&cluster.tls), cluster.sockets.iter().map(of).collect())
    }

    pub(crate) fn on_handshake_sent(&mut self, id: ConnectionId, bytes: usize) {
        if let Some(handshake) = self.handshakes.open.get_mut(&id) {
            handshake.outstanding = handshake.outstanding.saturating_sub(bytes);
        } else if let Some(opening) = self.handshakes.tunnels.get_mut(&id) {
            opening.outstanding = opening.outstanding.saturating_sub(bytes);
        }
    }

    /// Gives up a handshake together with its connect.
    pub(crate) fn cancel_handshake(&mut self, id: ConnectionId, env: &mut Env) {
        self.handshakes.open.remove(&id);
        self.handshakes.tunnels.remove(&id);
        self.push(Output::Close { connection: id, how: Close::Abort }, env);
    }

    /// Tells the peer of a connection under TLS that nothing more comes, behind all that was encoded for it.
    pub(crate) fn send_close_notify(&mut self, id: ConnectionId, env: &mut Env) {
        if self.out_for == Some(id) {
            self.flush_out(env);
        }
        let Some(connection) = self.table.get_mut(id) else { return };
        let Some(layer) = &mut connection.tls else { return };
        let sealed = &mut self.handshakes.sealed;
        layer.send_close_notify(sealed);
        let records = sealed.split().freeze();
        if !records.is_empty() {
            connection.outstanding += records.len();
            env.outputs.push_back(Output::Send { connection: id, chunk: records });
        }
    }

    /// Records of TLS's own.
    pub(crate) fn send_records(&mut self, id: ConnectionId, records: Vec<u8>, env: &mut Env) {
        if !records.is_empty() {
            self.push(Output::Send { connection: id, chunk: records.into() }, env);
        }
    }
}

impl Handshakes {
    /// Keeps a piece of a client's handshake if its round has had its share of them, or earlier ones wait.
    pub(crate) fn puts_off(&mut self, id: ConnectionId, piece: &Bytes, round: u32) -> bool {
        if self.late_order.is_empty() && self.left(round) > 0 {
            self.taken.1 += 1;
            return false;
        }
        let pieces = self.late.entry(id).or_default();
        if pieces.is_empty() {
            self.late_order.push_back(id);
        }
        pieces.push(piece.clone());
        true
    }

    /// The next handshake that was put off, if the round has room for it.
    pub(crate) fn next_late(&mut self, round: u32) -> Option<(ConnectionId, Vec<Bytes>)> {
        while self.left(round) > 0 {
            let id = self.late_order.pop_front()?;
            if let Some(pieces) = self.late.remove(&id) {
                self.taken.1 += u32::try_from(pieces.len()).unwrap_or(u32::MAX);
                return Some((id, pieces));
            }
        }
        None
    }

    /// What a connection has sent and waits, for one that is over.
    pub(crate) fn take_late(&mut self, id: ConnectionId) -> Option<Vec<Bytes>> {
        self.late.remove(&id)
    }

    /// Whether handshakes wait for their turn.
    pub(crate) fn are_late(&self) -> bool {
        !self.late_order.is_empty()
    }

    /// How many pieces of handshakes may still be looked at in a round.
    fn left(&mut self, round: u32) -> u32 {
        if self.taken.0 != round {
            self.taken = (round, 0);
        }
        HANDSHAKES_PER_ROUND.saturating_sub(self.taken.1)
    }

    pub(crate) fn attempt(&self, id: ConnectionId) -> Option<AttemptId> {
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
