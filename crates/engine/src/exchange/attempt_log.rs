//! Lines for each attempt of a request: Envoy's `upstream_log` of the router.
//!
//! Arrives: attempts that begin, have their connection, are answered, last and end. Leaves: lines, which know of one
//! attempt alone: when it began, what it carried, and what came of it.

use std::time::Duration;

use towpath_proto::Instant;
use towpath_proto::head::Head;

use crate::env::log::Means;
use crate::exchange::Exchange;
use crate::exchange::log::{Setting, facts};
use crate::exchange::recorder::Recorder;
use crate::exchange::retry::flag_of;
use crate::exchange::stream::Stream;
use crate::exchange::timers::{AttemptTimer, StreamTimer};
use crate::exchange::tracing::TryEnd;
use crate::ids::{ResetReason, StreamIndex};
use crate::record::{Flags, Record};

/// What is known of an attempt under way that is to be logged.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    start: Instant,
    /// What the record has of attempts before it.
    sent_before: u64,
    received_before: u64,
    connected: bool,
    /// When there is a line that it still lasts, if ever.
    due: Instant,
    /// It goes on although its time is over.
    late: Flags,
    /// The head of its answer, as it came.
    head: Option<Head>,
}

impl Recorder {
    /// Whether an attempt under way is to be logged.
    #[inline]
    pub(crate) fn logs_attempt(&self) -> bool {
        self.attempt_log().is_some()
    }

    /// An attempt goes on whose time is over.
    pub(crate) fn note_late_attempt(&mut self, reason: ResetReason) {
        if let Some(log) = self.recording_mut().and_then(|it| it.attempt_log.as_mut()) {
            log.late.set(flags_of(Some(TryEnd::Reset(reason))));
        }
    }

    /// Keeps the head of an attempt's answer for its lines.
    #[inline]
    pub(crate) fn keep_answer(&mut self, head: &Head) {
        if let Some(log) = self.recording_mut().and_then(|it| it.attempt_log.as_mut()) {
            log.head = Some(head.clone());
        }
    }
}

impl Exchange {
    /// An attempt of a recorded request begins.
    #[cold]
    pub(crate) fn begin_attempt_log(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let router = stream.router().filter(|router| !router.attempt_logs.is_empty());
        let Some(interval) = router.map(|router| router.attempt_log_interval) else { return };
        let due = interval.map_or(Instant::FAR_FUTURE, |interval| now + interval);
        let Some(recording) = stream.recorder.recording_mut() else { return };
        recording.attempt_log = Some(Box::new(AttemptLog {
            start: now,
            sent_before: recording.record.upstream_bytes_sent,
            received_before: recording.record.upstream_bytes_received,
            connected: false,
            due,
            late: Flags::NONE,
            head: None,
        }));
        if interval.is_some() && AttemptTimer::is_of(stream.kind) {
            // Attempts before it may have lines too.
            let first = stream.deadlines.get(AttemptTimer::LogFlush.place());
            let at = first.map_or(due, |first| first.min(due));
            stream.set_timer(index, AttemptTimer::LogFlush, at, &mut self.env.timers);
        }
    }

    /// Attempts of a client's request may have lasted so long that there is a line.
    pub(crate) fn on_attempt_deadline(
        &mut self,
        index: StreamIndex,
        timer: AttemptTimer,
        now: Instant,
    ) {
        match timer {
            AttemptTimer::LogFlush => self.log_lasting(index, now),
        }
    }

    #[cold]
    fn log_lasting(&mut self, index: StreamIndex, now: Instant) {
        let Some(mut stream) = self.streams.close(index) else { return };
        let interval = stream.router().and_then(|router| router.attempt_log_interval);
        if let Some(interval) = interval {
            let mut next = self.log_one_lasting(&mut stream, interval, now);
            for earlier in 0.. {
                let looked_at = stream.with_beside(earlier, |stream| {
                    next = next.min(self.log_one_lasting(stream, interval, now));
                });
                if !looked_at {
                    break;
                }
            }
            if next != Instant::FAR_FUTURE {
                stream.set_timer(index, AttemptTimer::LogFlush, next, &mut self.env.timers);
            }
        }
        self.streams.put_back(index, stream);
    }

    /// Writes a line of the latest attempt, if one is due. Answers when the next one is.
    fn log_one_lasting(
        &mut self,
        stream: &mut Stream,
        interval: Duration,
        now: Instant,
    ) -> Instant {
        let Some(log) = stream.recorder.attempt_log() else { return Instant::FAR_FUTURE };
        if log.due > now {
            return log.due;
        }
        self.write_attempt(stream, None, "UpstreamPeriodic", now);
        let due = now + interval;
        if let Some(log) = stream.recorder.recording_mut().and_then(|it| it.attempt_log.as_mut()) {
            log.due = due;
        }
        due
    }

    /// An attempt has its connection.
    #[cold]
    pub(crate) fn log_attempt_start(&mut self, index: StreamIndex, now: Instant) {
        let Some(mut stream) = self.streams.close(index) else { return };
        if let Some(log) = stream.recorder.recording_mut().and_then(|it| it.attempt_log.as_mut()) {
            log.connected = true;
        }
        let on_start = stream.router().is_some_and(|router| router.log_attempt_start);
        if on_start {
            self.write_attempt(&mut stream, None, "UpstreamPoolReady", now);
        }
        self.streams.put_back(index, stream);
    }

    /// An attempt is over, if it is to be logged.
    pub(crate) fn log_attempt(&mut self, stream: &mut Stream, end: TryEnd, now: Instant) {
        if stream.recorder.logs_attempt() {
            self.write_attempt(stream, Some(end), "UpstreamEnd", now);
            if let Some(recording) = stream.recorder.recording_mut() {
                recording.attempt_log = None;
            }
        }
    }

    fn write_attempt(
        &mut self,
        stream: &mut Stream,
        end: Option<TryEnd>,
        kind: &'static str,
        now: Instant,
    ) {
        stream.complete_record();
        let stream = &*stream;
        let Some(log) = stream.recorder.attempt_log() else { return };
        let Some(router) = stream.router() else { return };
        let record = log.record(stream.recorder.record(), end, now);
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let mut facts = facts(stream, log.head.as_ref(), setting, now);
        facts.record = &record;
        facts.log_type = kind;
        // What filters of the request have left is not the attempt's.
        facts.info = None;
        let means = Means {
            random: &mut self.env.random,
            registry: &self.env.registry,
            worker: self.env.index,
            work: &mut self.env.work,
        };
        let span = stream.recorder.trace();
        let full = self.env.logs.write(&router.attempt_logs, &facts, span, means);
        self.env.after_lines(full, now);
    }
}

impl AttemptLog {
    /// What is known of this attempt, of all that is known of its request.
    fn record(&self, whole: &Record, end: Option<TryEnd>, now: Instant) -> Record {
        let mut record = whole.clone();
        record.start = self.start;
        record.end = end.map(|_| now);
        (record.request_end, record.response_start, record.response_end) = (None, None, None);
        record.bytes_sent = record.upstream_bytes_sent.saturating_sub(self.sent_before);
        record.bytes_received = record.upstream_bytes_received.saturating_sub(self.received_before);
        record.status = self.head.as_ref().map_or(0, Head::status);
        record.protocol = record.upstream_protocol.filter(|_| self.connected);
        record.flags = flags_of(end);
        if let Some(TryEnd::Reset(reason)) = end.filter(|_| !record.flags.is_empty()) {
            record.transport_failure = reason.reset().transport_failure();
        }
        record.flags.set(self.late);
        (record.details, record.termination) = ("", "");
        record.attempts = 0;
        record
    }
}

/// The flags of an attempt that ends so.
fn flags_of(end: Option<TryEnd>) -> Flags {
    match end {
        None | Some(TryEnd::Answered | TryEnd::Given) => Flags::NONE,
        Some(TryEnd::Reset(ResetReason::PerTryIdleTimeout)) => Flags::STREAM_IDLE_TIMEOUT,
        Some(TryEnd::Reset(reason)) => flag_of(reason).unwrap_or(Flags::NONE),
    }
}
