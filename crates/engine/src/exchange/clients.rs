//! Hosts are told for whom connections to them are made: by a header of the PROXY protocol, before all else.
//!
//! Arrives: a connection that the driver has made to a host of a cluster that wants to know. Leaves: its header.

use std::sync::Arc;

use towpath_proto::{AttemptId, ConnectionId};

use crate::conn::Connections;
use crate::conn::tls::Reached;
use crate::exchange::Exchange;
use crate::exchange::lazy_head::LazyHead;
use crate::exchange::recorder::Recorder;
use crate::exchange::stream::Stream;
use crate::ids::Kind;
use crate::proxied::Client;
use crate::snapshot::original_src::Source;
use crate::stream_info::{StateObject, StreamInfo};
use crate::upstream::protocol::{Asks, OfWhom};

impl Exchange {
    /// Tells the host of a new connection for whom it is made, where its cluster does that.
    #[inline]
    pub(crate) fn tell_client(
        &mut self,
        id: AttemptId,
        connection: ConnectionId,
        reached: &mut Reached,
    ) {
        let Some(attempt) = self.upstreams.attempts.get(id) else { return };
        let Some(cluster) = self.upstreams.clusters.get(attempt.pool_key.cluster) else { return };
        let Some(headers) = &cluster.config.proxy_headers else { return };
        let Some(pool) = cluster.pool(attempt.pool_key) else { return };
        let Some(header) = headers.of(pool.socket) else { return };
        let client = match attempt.stream {
            Some(index) => self.streams.get(index).and_then(|it| client_of(it, &self.conns)),
            None => cluster.wishes.get(pool.class.wish).and_then(|wish| wish.client.clone()),
        };
        let peer = self.upstreams.attempts.address(id);
        let peer = peer.as_ref().unwrap_or(&pool.address);
        let clusters = &self.upstreams.clusters;
        let endpoint = clusters.endpoint(attempt.pool_key.cluster, pool);
        let own = endpoint.and_then(|endpoint| endpoint.tlvs.as_deref()).unwrap_or_default();
        let (bytes, had_room) = header.write(client.as_deref(), own, &reached.local, peer);
        if let (false, Some(stats)) = (had_room, &cluster.header_stats) {
            stats.v2_tlvs_exceed_max_length.inc();
        }
        cluster.stats.upstream_cx_tx_bytes_total.add(bytes.len() as u64);
        reached.outstanding += bytes.len();
        self.conns.send_records(connection, bytes, &mut self.env);
    }
}

/// For which client connections of a stream are made; none where it is our own.
pub(crate) fn client_of(stream: &Stream, conns: &Connections) -> Option<Arc<Client>> {
    if matches!(stream.kind, Kind::Callout(_)) {
        return None;
    }
    let connection = conns.table.get(stream.downstream.connection)?;
    let proxied = connection.downstream()?.proxied();
    let mut client = Client {
        source: connection.peer.ip()?,
        destination: connection.local.ip()?,
        tlvs: proxied.map(|proxied| proxied.passed().into()).unwrap_or_default(),
    };
    let tcp = stream.context.tcp().and_then(|tcp| tcp.config.tlvs.as_ref());
    if let Some(own) = tcp {
        client.tlvs = own.joined(&client.tlvs, proxied.is_some());
    }
    Some(Arc::new(client))
}

/// Where connections of a stream come from, if not from us.
#[inline]
fn source_of(stream: &Stream, conns: &Connections) -> Option<Source> {
    if !stream.context.listener.filters.binds_source || matches!(stream.kind, Kind::Callout(_)) {
        return None;
    }
    let downstream = conns.table.get(stream.downstream.connection)?.downstream()?;
    downstream.particulars.as_ref()?.source
}

/// The number of a stream's connection; none where it is our own.
#[inline]
fn connection_of(stream: &Stream, conns: &Connections) -> Option<u64> {
    if matches!(stream.kind, Kind::Callout(_)) {
        return None;
    }
    Some(conns.table.get(stream.downstream.connection)?.downstream()?.serial)
}

/// What of a stream's filter state goes along with its connection to a host.
fn state_of(stream: &Stream) -> Vec<(Box<str>, StateObject)> {
    let info = stream.recorder.info().filter(|_| !matches!(stream.kind, Kind::Callout(_)));
    info.map(StreamInfo::shared_state).unwrap_or_default()
}

/// For whom a request's connection is, to a host of a cluster that is told or not.
#[inline]
pub(crate) fn whom(stream: &Stream, conns: &Connections, is_told: bool) -> OfWhom {
    let client = is_told.then(|| client_of(stream, conns)).flatten();
    let (source, connection) = (source_of(stream, conns), connection_of(stream, conns));
    OfWhom { client, source, connection, state: state_of(stream) }
}

/// The same of a stream of opaque bytes: who a connection of its own is for is asked when that is made.
pub(crate) fn whom_of_tcp(stream: &Stream, conns: &Connections) -> OfWhom {
    let is_tunneled = stream.context.tcp().is_some_and(|tcp| tcp.config.tunneling.is_some());
    let of = whom(stream, conns, is_tunneled);
    OfWhom { connection: of.connection.filter(|_| is_tunneled), ..of }
}

/// What a stream may ask of the connection to its host.
#[inline]
pub(crate) fn asks<'a>(recorder: &'a Recorder, request: &'a LazyHead, of: OfWhom) -> Asks<'a> {
    let alpn = recorder.mesh().and_then(|mesh| mesh.get()?.alpn.get());
    Asks { alpn: alpn.map(|alpn| &**alpn), request: request.present(), of }
}
