//! Access-log lines.
//!
//! Arrives: a finished stream. Leaves: whole lines for the control thread, many at a time.

use bytes::Bytes;
use towpath_proto::Instant;
use towpath_proto::head::Head;

use crate::cluster::Clusters;
use crate::env::Env;
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::format::Facts;
use crate::ids::StreamIndex;
use crate::message::FromWorker;
use crate::record::Record;
use crate::snapshot::{AccessLog, Listener, SinkId};
use crate::stream::Stream;
use crate::wall_clock::WallClock;
use crate::worker::LOG_DELAY;

/// Lines that wait for company.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    sinks: Vec<Vec<u8>>,
    waiting: bool,
}

/// How much a write left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fill {
    Nothing,
    Some,
    /// Worth a message at once.
    Enough,
}

impl Logs {
    pub(crate) fn resize(&mut self, sinks: usize) {
        if sinks > self.sinks.len() {
            self.sinks.resize_with(sinks, Vec::new);
        }
    }

    /// Appends the lines of those logs whose filter lets them.
    fn write(&mut self, logs: &[AccessLog], facts: &Facts<'_>, random: u64) -> Fill {
        let mut fill = Fill::Nothing;
        for log in logs {
            if log.filter.as_ref().is_some_and(|filter| !filter.matches(facts, random)) {
                continue;
            }
            let Some(lines) = self.sinks.get_mut(log.sink.0 as usize) else { continue };
            log.format.write(lines, facts);
            fill = fill.max(if lines.len() >= HAND_OVER { Fill::Enough } else { Fill::Some });
        }
        fill
    }
}

impl Exchange {
    /// Writes a stream's lines.
    pub(crate) fn log(&mut self, stream: &Stream, kind: &'static str, now: Instant) {
        let logs = stream.context.access_logs();
        if !logs.is_empty() {
            let response = (stream.record.status != 0).then_some(&stream.response);
            let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
            let mut facts = facts(stream, response, setting, now);
            facts.log_type = kind;
            let full = self.env.logs.write(logs, &facts, self.env.random.next());
            self.env.after_lines(full, now);
        }
    }

    /// Writes lines for a stream that goes on.
    pub(crate) fn log_under_way(&mut self, index: StreamIndex, kind: &'static str, now: Instant) {
        if let Some(stream) = self.streams.close(index) {
            self.log(&stream, kind, now);
            self.streams.put_back(index, stream);
        }
    }

    /// Writes lines for a stream whose route has been chosen, if they are wanted.
    pub(crate) fn log_new_request(&mut self, index: StreamIndex, now: Instant) {
        let http = self.streams.get(index).and_then(|stream| stream.context.http());
        if http.is_some_and(|http| http.config.log_on_new_request) {
            self.log_under_way(index, DOWNSTREAM_START, now);
        }
    }
}

impl Env {
    /// Writes the listener's lines for a connection that is over, or that no filter chain took.
    pub(crate) fn log_connection(
        &mut self,
        listener: &Listener,
        chain: &str,
        record: &Record,
        now: Instant,
    ) {
        if !listener.access_logs.is_empty() {
            let mut facts = Facts::new(record, now);
            facts.epoch_unix_ns = self.clock.epoch_unix_ns;
            facts.hostname = &self.clock.hostname;
            facts.listener = &listener.name;
            facts.filter_chain = chain;
            let full = self.logs.write(&listener.access_logs, &facts, self.random.next());
            self.after_lines(full, now);
        }
    }

    fn after_lines(&mut self, full: Fill, now: Instant) {
        match full {
            Fill::Nothing => {}
            Fill::Some if self.logs.waiting => {}
            Fill::Some => {
                self.logs.waiting = true;
                self.timers.set(TimerSlot::Logs.number(), now + LOG_DELAY);
            }
            Fill::Enough => self.hand_over_logs(),
        }
    }

    /// Gives all lines to the control thread.
    pub(crate) fn hand_over_logs(&mut self) {
        self.logs.waiting = false;
        self.timers.clear(TimerSlot::Logs.number());
        for index in 0..self.logs.sinks.len() {
            let lines = std::mem::take(&mut self.logs.sinks[index]);
            if !lines.is_empty() {
                let sink = SinkId(u32::try_from(index).unwrap_or(u32::MAX));
                self.tell(FromWorker::Log { sink, lines: Bytes::from(lines) });
            }
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
    let mut facts = Facts::new(&stream.record, now);
    if stream.context.http().is_some() {
        facts.request = Some(&stream.request);
    }
    facts.response = response;
    facts.trailers = stream.trailers.as_ref();
    facts.epoch_unix_ns = clock.epoch_unix_ns;
    facts.listener = &stream.context.listener.name;
    facts.filter_chain = &stream.context.chain.name;
    if let Some(cluster) = clusters.get(stream.cluster) {
        facts.cluster = &cluster.config.name;
        facts.cluster_stat_name = &cluster.config.stat_name;
    }
    if stream.record.upstream_host.is_some()
        && let Some(host) = stream.retries.pool_key.and_then(|pool_key| clusters.pool(pool_key))
    {
        facts.upstream_hostname = &host.hostname;
    }
    facts.hostname = &clock.hostname;
    if let Some(routed) = stream.routed() {
        facts.route = &routed.route.name;
        facts.virtual_host = &routed.host.name;
    }
    facts
}

/// Envoy's `AccessLogType`: why a line is written.
pub(crate) const DOWNSTREAM_START: &str = "DownstreamStart";
pub(crate) const DOWNSTREAM_PERIODIC: &str = "DownstreamPeriodic";
pub(crate) const DOWNSTREAM_END: &str = "DownstreamEnd";
pub(crate) const TCP_CONNECTION_END: &str = "TcpConnectionEnd";

/// Bytes of lines that are worth a message at once.
const HAND_OVER: usize = 32 * 1024;
