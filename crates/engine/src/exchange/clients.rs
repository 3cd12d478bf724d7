//! Hosts are told for whom connections to them are made: by a header of the PROXY protocol, before all else.
//!
//! Arrives: a connection that the driver has made to a host of a cluster that wants to know. Leaves: its header.

use std::sync::Arc;

use towpath_proto::{AttemptId, ConnectionId, Instant};

use crate::added_tlvs::OwnTlvs;
use crate::conn::Connections;
use crate::conn::tls::Reached;
use crate::downstream::listener::connection_record;
use crate::exchange::Exchange;
use crate::exchange::lazy_head::LazyHead;
use crate::exchange::log::{Setting, facts};
use crate::exchange::recorder::Recorder;
use crate::exchange::stream::Stream;
use crate::format::Facts;
use crate::ids::{Kind, StreamIndex};
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
        now: Instant,
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
        let made = match header.added.made.is_empty() {
            true => Box::default(),
            false => {
                let record = connection_record(reached.local.clone(), peer.clone(), now);
                let mut facts = Facts::new(&record, now);
                facts.epoch_unix_ns = self.env.clock.epoch_unix_ns;
                facts.hostname = &self.env.clock.hostname;
                header.added.make(&facts)
            }
        };
        let tlvs = (own, &made[..]);
        let (bytes, had_room) = header.write(client.as_deref(), tlvs, &reached.local, peer);
        if let (false, Some(stats)) = (had_room, &cluster.header_stats) {
            stats.v2_tlvs_exceed_max_length.inc();
        }
        cluster.stats.upstream_cx_tx_bytes_total.add(bytes.len() as u64);
        reached.outstanding += bytes.len();
        self.conns.send_records(connection, bytes, &mut self.env);
    }
}

impl Exchange {
    /// Makes the values of what the TCP proxy tells of a connection, before its host is chosen.
    #[cold]
    pub(crate) fn make_tlvs(&mut self, index: StreamIndex, own: &OwnTlvs, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let made = own.added.make(&facts(stream, None, setting, now));
        stream.retries.tried.get_or_insert_default().tlvs = made;
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
        let made = stream.retries.tried.as_deref().map_or(&[][..], |tried| &tried.tlvs);
        client.tlvs = own.joined(made, &client.tlvs, proxied.is_some());
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
