//! Access-log lines.
//!
//! Arrives: a finished stream. Leaves: whole lines for the control thread, many at a time.

use towpath_proto::Instant;
use towpath_proto::head::Head;

use crate::env::log::Means;
use crate::exchange::Exchange;
use crate::exchange::callout::Asker;
use crate::exchange::stream::Stream;
use crate::format::{Facts, NOT_SET};
use crate::ids::{Kind, StreamIndex};
use crate::snapshot::AccessLog;
use crate::snapshot::route::VirtualCluster;
use crate::tracer::report::{framed, request};
use crate::upstream::clusters::Clusters;
use crate::wall_clock::WallClock;

impl Exchange {
    /// Writes a stream's lines, from its complete record.
    #[inline(always)]
    pub(crate) fn log(&mut self, stream: &Stream, kind: &'static str, now: Instant) {
        let logs = stream.context.access_logs();
        if !logs.is_empty() {
            self.write_lines(logs, stream, kind, now);
        }
    }

    /// Writes the lines of a listener for opaque bytes that are over: their stream is all that is on the connection.
    pub(crate) fn log_for_listener(&mut self, stream: &Stream, now: Instant) {
        let logs = &stream.context.listener.access_logs;
        if matches!(stream.kind, Kind::Tcp(_)) && !logs.is_empty() {
            self.write_lines(logs, stream, NOT_SET, now);
        }
    }

    fn write_lines(
        &mut self,
        logs: &[AccessLog],
        stream: &Stream,
        kind: &'static str,
        now: Instant,
    ) {
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let mut facts = facts(stream, None, setting, now);
        facts.response = (stream.status != 0).then_some(&stream.response);
        facts.log_type = kind;
        let span = stream.recorder.trace();
        // Facts borrow from the clock: what a log needs beside them is taken apart here.
        let means = Means {
            random: &mut self.env.random,
            registry: &self.env.registry,
            worker: self.env.index,
            work: &mut self.env.work,
        };
        let full = self.env.logs.write(logs, &facts, span, means);
        self.env.after_lines(full, now);
    }

    /// Writes lines for a stream that goes on.
    pub(crate) fn log_under_way(&mut self, index: StreamIndex, kind: &'static str, now: Instant) {
        if let Some(mut stream) = self.streams.close(index) {
            stream.complete_record();
            self.log(&stream, kind, now);
            self.streams.put_back(index, stream);
        }
    }

    /// Writes lines for a TCP connection whose upstream is connected, if they are wanted.
    pub(crate) fn log_connected(&mut self, index: StreamIndex, now: Instant) {
        let tcp = self.streams.get(index).and_then(|stream| stream.context.tcp());
        if tcp.is_some_and(|tcp| tcp.config.log_options.on_connected) {
            self.log_under_way(index, TCP_UPSTREAM_CONNECTED, now);
        }
    }
}

impl Exchange {
    /// Tells a server what waits for it.
    pub(crate) fn tell_log(&mut self, at: usize, now: Instant) {
        if let Some((callout, load)) = self.env.logs.loggers.take(at, &mut self.env.scratch) {
            self.call_out(Asker::Log { at, load }, callout, now);
        }
        self.env.set_logger_timer();
    }

    /// The time for entries that wait has come.
    pub(crate) fn on_logger_timer(&mut self, now: Instant) {
        // Each that is told is no longer overdue.
        while let Some(at) = self.env.logs.loggers.overdue(now) {
            self.tell_log(at, now);
        }
        while let Some(at) = self.env.logs.entries.overdue(now) {
            self.tell_entries(at, now);
        }
        self.env.set_logger_timer();
    }

    /// Tells Envoy's access-log service what waits for it, by the call that goes on or by a new one.
    pub(crate) fn tell_entries(&mut self, at: usize, now: Instant) {
        let takes = match self.env.logs.entries.call(at) {
            Some(call) => self.has_room_for_message(call),
            None => !self.env.logs.entries.backs_off(at, now),
        };
        if !takes {
            // A message is not made where nothing takes it: each stream that ends would make a full one.
            self.env.logs.entries.not_sent(at, now);
            return self.env.set_logger_timer();
        }
        let Some((message, call, stream)) = self.env.logs.entries.message(at) else { return };
        let is_sent = match call {
            Some(call) => self.send_message(call, framed(&message), now),
            None => {
                let first = [&stream.opening, &message[..]].concat();
                let callout = request(&stream.collector, b"", first, &mut self.env.scratch);
                let call = self.begin_call(Asker::Entries(at), callout, now);
                self.env.logs.entries.began(at, call);
                let goes_on = self.callouts.stream_of(call).is_some();
                if !goes_on {
                    self.env.logs.entries.back_off(at, now);
                }
                goes_on
            }
        };
        match is_sent {
            true => self.env.logs.entries.sent(at),
            false => self.env.logs.entries.not_sent(at, now),
        }
        self.env.set_logger_timer();
    }

    /// A call of entries is over, unless another one goes on.
    pub(crate) fn end_entries(&mut self, at: usize) {
        let call = self.env.logs.entries.call(at);
        if call.is_some_and(|call| self.callouts.stream_of(call).is_none()) {
            self.env.logs.entries.ended(at);
        }
    }
}

/// What a stream's facts lie in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) clusters: &'a Clusters,
    pub(crate) clock: &'a WallClock,
}

/// What a format can ask about a stream.
pub(crate) fn facts<'a>(
    stream: &'a Stream,
    response: Option<&'a Head>,
    setting: Setting<'a>,
    now: Instant,
) -> Facts<'a> {
    let Setting { clusters, clock } = setting;
    let mut facts = Facts::new(stream.recorder.record(), now);
    if stream.context.http().is_some() {
        facts.request = Some(&stream.request);
    }
    facts.info = stream.recorder.info();
    facts.found = stream.recorder.mesh();
    facts.response = response;
    facts.is_local_reply = stream.local_reply;
    facts.trailers = stream.recorder.trailers();
    facts.epoch_unix_ns = clock.epoch_unix_ns;
    facts.trace = stream.recorder.trace();
    facts.listener = &stream.context.listener.name;
    facts.told.listener = stream.context.listener.filter_metadata.as_deref();
    facts.filter_chain = &stream.context.chain.name;
    facts.told.chain = stream.context.chain.filter_metadata.as_deref();
    if let Some(cluster) = clusters.get(stream.cluster) {
        facts.cluster = &cluster.config.name;
        facts.cluster_stat_name = &cluster.config.stat_name;
        facts.mesh = cluster.config.mesh.as_deref();
        facts.told.cluster = cluster.config.filter_metadata.as_deref();
    }
    if let Some(address) = &stream.recorder.record().upstream_host
        && let Some(host) = stream.retries.pool_key.and_then(|pool_key| clusters.pool(pool_key))
    {
        facts.upstream_hostname = &host.hostname;
        if *address == host.address {
            facts.upstream_address = &host.address_text;
        }
        if let Some(endpoint) = clusters.endpoint(stream.cluster, host) {
            facts.endpoint = endpoint.workload.as_deref().filter(|_| facts.mesh.is_some());
            facts.told.endpoint = endpoint.filter_metadata.as_deref();
        }
    }
    facts.hostname = &clock.hostname;
    if let Some(routed) = stream.routed() {
        facts.route = &routed.route.name;
        facts.virtual_host = &routed.host.name;
        facts.told.route = routed.route.filter_metadata.as_ref();
        facts.told.virtual_host = routed.host.filter_metadata.as_ref();
        facts.virtual_cluster = routed.virtual_cluster.map_or("", VirtualCluster::shown_name);
    }
    facts
}

/// Envoy's `AccessLogType`: why a line is written.
pub(crate) const DOWNSTREAM_START: &str = "DownstreamStart";

pub(crate) const DOWNSTREAM_TUNNEL: &str = "DownstreamTunnelSuccessfullyEstablished";

pub(crate) const DOWNSTREAM_PERIODIC: &str = "DownstreamPeriodic";

pub(crate) const DOWNSTREAM_END: &str = "DownstreamEnd";

pub(crate) const TCP_CONNECTION_START: &str = "TcpConnectionStart";

pub(crate) const TCP_UPSTREAM_CONNECTED: &str = "TcpUpstreamConnected";

pub(crate) const TCP_PERIODIC: &str = "TcpPeriodic";
