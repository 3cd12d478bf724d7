//! Log lines that wait for company, on their way to the control thread.

use std::time::Duration;

use bytes::Bytes;
use towpath_proto::Instant;

use crate::env::{Env, TimerSlot};
use crate::format::Facts;
use crate::matcher::LogFilter;
use crate::message::FromWorker;
use crate::random::Random;
use crate::record::Record;
use crate::snapshot::{AccessLog, Listener, SinkId};

/// Lines that wait for company.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    pub(crate) sinks: Vec<Vec<u8>>,
    pub(crate) waiting: bool,
}

/// How much a write left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
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
    pub(crate) fn write(
        &mut self,
        logs: &[AccessLog],
        facts: &Facts<'_>,
        random: &mut Random,
    ) -> Fill {
        let mut fill = Fill::Nothing;
        for log in logs {
            let passes = |filter: &LogFilter| filter.matches(facts, random.next());
            if !log.filter.as_ref().is_none_or(passes) {
                continue;
            }
            let Some(lines) = self.sinks.get_mut(log.sink.0 as usize) else { continue };
            log.format.write(lines, facts);
            fill = fill.max(if lines.len() >= HAND_OVER { Fill::Enough } else { Fill::Some });
        }
        fill
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
            let full = self.logs.write(&listener.access_logs, &facts, &mut self.random);
            self.after_lines(full, now);
        }
    }

    pub(crate) fn after_lines(&mut self, full: Fill, now: Instant) {
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
