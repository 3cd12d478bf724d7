//! Sidecars that tell each other who they are before the bytes of their apps, and what is told of those bytes.
//!
//! Arrives: connections of opaque bytes that can be spoken on, and what peers say of themselves. Leaves: what we say of
//! ourselves, before all else, and Istio's metrics.

use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::{ConnectionId, Instant};

use crate::conn::Connection;
use crate::conn::mux::greeting::Heard;
use crate::conn::mux::{Mux, ONLY, Part, Raw};
use crate::exchange::Exchange;
use crate::exchange::log::{Setting, facts};
use crate::exchange::stream::Stream;
use crate::exchange::timers::TcpTimer;
use crate::filter::istio_stats::Ends;
use crate::ids::StreamIndex;
use crate::mesh::Greetings;
use crate::stats::GreetingStats;

impl Exchange {
    /// Says who we are to a client whose handshake is over, if that was agreed on.
    pub(crate) fn greet_client(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Some(downstream) = connection.downstream() else { return };
        let context = Rc::clone(&downstream.context);
        let (Some(greetings), Some(stats)) =
            (&context.chain.filters.greetings, &context.greeting_stats)
        else {
            return;
        };
        if agrees(connection, greetings, stats) && context.tcp().is_some() {
            connection.mux = Mux::Raw(Raw::greeted());
            self.send_greeting(id, greetings);
            stats.metadata_added.inc();
        }
    }

    /// The same to a server that is about to take the bytes of a client.
    pub(crate) fn greet_server(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Some(upstream) = connection.upstream() else { return };
        let Some(cluster) = self.upstreams.clusters.get(upstream.pool_key.cluster) else { return };
        let (Some(greetings), Some(stats)) = (&cluster.config.greetings, &cluster.greeting_stats)
        else {
            return;
        };
        let (greetings, stats) = (Arc::clone(greetings), Arc::clone(stats));
        if agrees(connection, &greetings, &stats) && connection.mux.is_opaque() {
            connection.mux = Mux::Raw(Raw::greeted());
            let _ = connection.mux.open();
            self.send_greeting(id, &greetings);
            stats.metadata_added.inc();
        }
    }

    fn send_greeting(&mut self, id: ConnectionId, greetings: &Greetings) {
        self.conns.encode_for(id, &mut self.env);
        if let Some(connection) = self.conns.table.get_mut(id) {
            let own = bytes::Bytes::copy_from_slice(&greetings.own);
            connection.mux.send(ONLY, Part::Data(own), &mut self.conns.out);
        }
    }

    /// A peer has said who it is.
    pub(crate) fn note_heard(&mut self, id: ConnectionId, heard: Heard) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let is_client = connection.downstream().is_some();
        let stats = match connection.upstream() {
            Some(upstream) => {
                let cluster = self.upstreams.clusters.get(upstream.pool_key.cluster);
                cluster.and_then(|cluster| cluster.greeting_stats.clone())
            }
            None => connection.downstream().and_then(|it| it.context.greeting_stats.clone()),
        };
        match (heard, stats) {
            (Heard::NoGreeting, Some(stats)) => stats.initial_header_not_found.inc(),
            (Heard::Malformed, Some(stats)) => stats.header_not_found.inc(),
            (Heard::Peer(Some(peer)), _) => {
                let stream = connection.streams.only();
                let stream = stream.and_then(|index| self.streams.get(index));
                if let Some(mesh) = stream.and_then(|stream| stream.recorder.mesh()) {
                    let found = mesh.found();
                    let place = if is_client { &found.downstream } else { &found.upstream };
                    // The first says it.
                    let _ = place.set(peer);
                }
            }
            _ => {}
        }
    }

    /// Tells a mesh what a connection of opaque bytes has carried.
    #[cold]
    pub(crate) fn tell_tcp(&self, stream: &mut Stream, is_over: bool, now: Instant) {
        let context = stream.context.clone();
        let Some(metrics) = context.tcp().and_then(|tcp| tcp.metrics.as_deref()) else { return };
        stream.complete_record();
        let Some(mesh) = stream.recorder.mesh() else { return };
        let mut told = mesh.found().told.get();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        metrics.count_connection(Ends::of(&facts(stream, None, setting, now)), &mut told, is_over);
        mesh.found().told.set(told);
    }

    /// It is time to tell of a connection that goes on.
    pub(crate) fn report_tcp(&mut self, index: StreamIndex, now: Instant) {
        let Some(mut stream) = self.streams.close(index) else { return };
        let record = stream.recorder.record();
        // The workload at the other end is known with its first bytes.
        if record.bytes_received > 0 || record.bytes_sent > 0 {
            self.tell_tcp(&mut stream, false, now);
        }
        self.streams.put_back(index, stream);
        self.set_report(index, now);
    }

    /// Starts the time until a connection is told of.
    pub(crate) fn set_report(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let metrics = stream.context.tcp().and_then(|tcp| tcp.metrics.as_deref());
        if let Some(interval) = metrics.and_then(|metrics| metrics.interval()) {
            self.set_timer(index, TcpTimer::Report, now + interval);
        }
    }
}

/// Whether greetings were agreed on in a handshake.
fn agrees(connection: &Connection, greetings: &Greetings, stats: &GreetingStats) -> bool {
    let alpn = connection.tls.as_deref().and_then(|layer| layer.alpn());
    let agrees = alpn == Some(greetings.protocol.as_bytes());
    let counter = if agrees { &stats.alpn_protocol_found } else { &stats.alpn_protocol_not_found };
    counter.inc();
    agrees
}
