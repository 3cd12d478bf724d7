//! Log lines that wait for company, on their way to the control thread.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::Instant;

use crate::env::{Env, TimerSlot, Work};
use crate::format::Facts;
use crate::logger::entries::EntryLogs;
use crate::logger::{Loggers, SpanIds};
use crate::matcher::LogFilter;
use crate::message::FromWorker;
use crate::random::Random;
use crate::record::Record;
use crate::snapshot::log::LogTarget;
use crate::snapshot::{AccessLog, FilterChain, Listener, SinkId};
use crate::stats::Registry;
use crate::stream_info::{StateObject, StreamInfo};

/// Lines that wait for company.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    pub(crate) sinks: Vec<Vec<u8>>,
    pub(crate) waiting: bool,
    /// What servers are told.
    pub(crate) loggers: Loggers,
    pub(crate) entries: EntryLogs,
}

/// What a log needs beside what is known of a stream.
#[derive(Debug)]
pub(crate) struct Means<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) registry: &'a Registry,
    pub(crate) worker: u32,
    pub(crate) work: &'a mut VecDeque<Work>,
}

/// How much a write left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    Nothing,
    /// Nothing but entries for servers.
    Entries,
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
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        logs: &[AccessLog],
        facts: &Facts<'_>,
        span: Option<SpanIds>,
        means: Means<'_>,
    ) -> Fill {
        let Means { random, registry, worker, work } = means;
        let mut fill = Fill::Nothing;
        for log in logs {
            let passes = |filter: &LogFilter| filter.matches(facts, random.next());
            if !log.filter.as_ref().is_none_or(passes) {
                continue;
            }
            let (format, sink) = match &log.target {
                LogTarget::Lines { format, sink } => (format, sink),
                LogTarget::Entry(entry) => {
                    let full = self.entries.add(entry, facts, (registry, worker));
                    work.extend(full.map(Work::TellEntries));
                    fill = fill.max(Fill::Entries);
                    continue;
                }
                LogTarget::Service(service) => {
                    let full = self.loggers.add(service, facts, span, (registry, worker));
                    work.extend(full.map(Work::TellLog));
                    fill = fill.max(Fill::Entries);
                    continue;
                }
            };
            let Some(lines) = self.sinks.get_mut(sink.0 as usize) else { continue };
            format.write(lines, facts);
            fill = fill.max(if lines.len() >= HAND_OVER { Fill::Enough } else { Fill::Some });
        }
        fill
    }
}

impl Logs {
    /// When entries for servers leave next.
    #[inline]
    fn due(&self) -> Option<Instant> {
        earlier(self.loggers.due(), self.entries.due())
    }
}

/// The earlier of two, or the one that is there.
///
/// Not by `zip`, `map` and `or`: where one of the two is not there, LLVM 22 (of Rust 1.95 to 1.97) answers none at
/// opt-levels 1, `s` and `z`. It finds that the minimum of none, which is 0 here, and anything is 0, takes out the test
/// for none, and leaves what is said of the minimum: that it is not 0.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// Envoy's `AccessLogType` of the last line of opaque bytes.
pub(crate) const TCP_CONNECTION_END: &str = "TcpConnectionEnd";

/// What a line about a connection says beside its record.
pub(crate) struct ConnectionLine<'a> {
    pub(crate) listener: &'a Listener,
    /// The filter chain that took it.
    pub(crate) chain: Option<&'a FilterChain>,
    pub(crate) state: &'a [(Box<str>, StateObject)],
    /// Why it is written, where that is said.
    pub(crate) kind: Option<&'static str>,
}

impl Env {
    /// Writes lines for a connection that is over, or that no filter chain took: the listener's, or of a kind of its
    /// own.
    pub(crate) fn log_connection(
        &mut self,
        logs: &[AccessLog],
        of: &ConnectionLine<'_>,
        record: &Record,
        now: Instant,
    ) {
        if logs.is_empty() {
            return;
        }
        let proxied = record.proxied.as_ref();
        let info = proxied.map_or_else(StreamInfo::default, |proxied| proxied.info());
        if let Some(metadata) = &record.connection_metadata {
            let _ = info.add_all(metadata);
        }
        for (name, object) in of.state {
            // It is as much as a connection may hold, at most.
            let _ = info.set_state(name, object.clone());
        }
        let mut facts = Facts::new(record, now);
        facts.info = Some(&info);
        facts.epoch_unix_ns = self.clock.epoch_unix_ns;
        facts.hostname = &self.clock.hostname;
        facts.listener = &of.listener.name;
        facts.told.listener = of.listener.filter_metadata.as_deref();
        facts.filter_chain = of.chain.map_or("", |chain| &chain.name);
        facts.told.chain = of.chain.and_then(|chain| chain.filter_metadata.as_deref());
        if let Some(kind) = of.kind {
            facts.log_type = kind;
        }
        let means = Means {
            random: &mut self.random,
            registry: &self.registry,
            worker: self.index,
            work: &mut self.work,
        };
        let full = self.logs.write(logs, &facts, None, means);
        self.after_lines(full, now);
    }

    /// Sets when entries for servers leave.
    pub(crate) fn set_logger_timer(&mut self) {
        let slot = TimerSlot::Loggers.number();
        match self.logs.due() {
            Some(due) => self.timers.set(slot, due),
            None => self.timers.clear(slot),
        }
    }

    #[inline(always)]
    pub(crate) fn after_lines(&mut self, full: Fill, now: Instant) {
        if self.logs.due().is_some() {
            self.set_logger_timer();
        }
        match full {
            Fill::Nothing | Fill::Entries => {}
            Fill::Some if self.logs.waiting => {}
            Fill::Some => {
                self.logs.waiting = true;
                self.timers.set(TimerSlot::Logs.number(), now + LOG_DELAY);
            }
            Fill::Enough => self.hand_over_logs(),
        }
    }

    /// Has all entries for servers leave, as far as they are told at once: this program ends.
    pub(crate) fn hand_over_entries(&mut self) {
        self.work.extend(self.logs.loggers.waiting().map(Work::TellLog));
        self.work.extend(self.logs.entries.waiting().map(Work::TellEntries));
    }

    /// Gives all lines to the control thread.
    pub(crate) fn hand_over_logs(&mut self) {
        self.logs.waiting = false;
        self.timers.clear(TimerSlot::Logs.number());
        for index in 0..self.logs.sinks.len() {
            let lines = &mut self.logs.sinks[index];
            // After one batch that was full comes another: it need not grow.
            let room = if lines.len() >= HAND_OVER { HAND_OVER + LONG_LINE } else { 0 };
            let lines = std::mem::replace(lines, Vec::with_capacity(room));
            if !lines.is_empty() {
                let sink = SinkId(u32::try_from(index).unwrap_or(u32::MAX));
                self.tell(FromWorker::Log { sink, lines: Bytes::from(lines) });
            }
        }
    }
}

/// Bytes of lines that are worth a message at once.
pub(crate) const HAND_OVER: usize = 32 * 1024;

/// Longer than most lines.
const LONG_LINE: usize = 1024;

/// How long log lines wait for company.
pub(crate) const LOG_DELAY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_of_two_is_the_one_that_is_there() {
        let at = |ns| Some(Instant::from_nanos(ns));
        for (one, other, earliest) in
            [(None, None, None), (at(3), None, at(3)), (None, at(3), at(3)), (at(3), at(2), at(2))]
        {
            assert_eq!(std::hint::black_box(earlier)(one, other), earliest);
        }
    }
}
