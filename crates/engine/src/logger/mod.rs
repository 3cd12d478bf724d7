//! Servers that are told of streams: entries of access logs leave together, and what a slow server holds up is limited.
//!
//! Arrives: what is known of a stream that is over, and what came of calls. Leaves: [`Callout`]s. No stream waits for
//! what comes of them.

mod als;
pub(crate) mod entries;
mod otlp;
mod slots;

use std::sync::Arc;

use towpath_proto::Instant;

use crate::filter::{Answer, Callout};
use crate::format::Facts;
use crate::header_ops::Scratch;
use crate::snapshot::log::LogService;
use crate::stats::{LogServiceStats, Registry, Scope};
use crate::tracer::report::{is_taken, request};
use slots::{Batch, Slots};

/// The services of a worker, each in its place for as long as anything is on its way.
#[derive(Debug, Default)]
pub(crate) struct Loggers(Slots<Logger>);

/// Entries of one worker for one server.
#[derive(Debug)]
struct Logger {
    service: Arc<LogService>,
    stats: Arc<LogServiceStats>,
    /// Log records, each as a field of the message.
    waiting: Vec<u8>,
    count: u64,
    /// Bytes that wait or are on their way.
    held: usize,
    /// When what waits leaves at the latest.
    due: Option<Instant>,
}

/// What a call tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    count: u64,
    bytes: usize,
}

/// Who the span of a stream is: trace and span.
pub(crate) type SpanIds = (u128, u64);

impl Loggers {
    /// Adds what is known of a stream. Answers the place of a logger whose entries are to leave.
    #[cold]
    pub(crate) fn add(
        &mut self,
        service: &Arc<LogService>,
        facts: &Facts<'_>,
        span: Option<SpanIds>,
        (registry, worker): (&Registry, u32),
    ) -> Option<usize> {
        let at = self.place(service, registry, worker);
        let logger = self.0.get_mut(at)?;
        let before = logger.waiting.len();
        if logger.held >= MOST_BYTES {
            logger.stats.logs_dropped.inc();
            return None;
        }
        otlp::write_record(&mut logger.waiting, service, facts, span);
        logger.held += logger.waiting.len() - before;
        logger.count += 1;
        if logger.waiting.len() >= service.batch_bytes {
            return Some(at);
        }
        logger.due.get_or_insert(facts.now + service.interval);
        None
    }

    /// When entries leave next.
    #[inline]
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.due()
    }

    /// The places of loggers whose entries wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.0.waiting()
    }

    /// The place of a logger whose entries have waited long enough.
    pub(crate) fn overdue(&self, now: Instant) -> Option<usize> {
        self.0.overdue(now)
    }

    /// What waits, as a call.
    pub(crate) fn take(&mut self, at: usize, scratch: &mut Scratch) -> Option<(Callout, Load)> {
        let logger = self.0.get_mut(at)?;
        logger.due = None;
        if logger.waiting.is_empty() {
            return None;
        }
        let records = std::mem::take(&mut logger.waiting);
        let load = Load { count: std::mem::take(&mut logger.count), bytes: records.len() };
        let body = otlp::request(&logger.service.resource, &records);
        let kind = b"application/x-protobuf";
        Some((request(&logger.service.collector, kind, body, scratch), load))
    }

    /// A call is over.
    pub(crate) fn end(&mut self, at: usize, load: Load, answer: &Answer) {
        let Some(logger) = self.0.get_mut(at) else { return };
        logger.held = logger.held.saturating_sub(load.bytes);
        let counter = if is_taken(answer, logger.service.collector.is_grpc) {
            &logger.stats.logs_written
        } else {
            &logger.stats.logs_dropped
        };
        counter.add(load.count);
    }

    /// The place of a service's logger. Those of configurations that are gone are let go of.
    fn place(&mut self, service: &Arc<LogService>, registry: &Registry, worker: u32) -> usize {
        let is_of = |logger: &Logger| Arc::ptr_eq(&logger.service, service);
        self.0.place(is_of, || Logger {
            service: Arc::clone(service),
            stats: registry.set(worker, Scope::LogService(Arc::clone(&service.stat_prefix))),
            waiting: Vec::new(),
            count: 0,
            held: 0,
            due: None,
        })
    }
}

impl Batch for Logger {
    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn is_unused(&self) -> bool {
        self.held == 0 && Arc::strong_count(&self.service) == 1
    }
}

/// Bytes of entries that wait or are on their way; what comes then is dropped, and counted.
const MOST_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests;
