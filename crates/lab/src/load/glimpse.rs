//! Glimpses at a run while it goes on.

use std::ops::Range;
use std::time::Duration;

use super::outcome::Progress;
use crate::histogram::Nanoseconds;

/// Counts since the last glimpse, for the observer.
pub(super) struct Glimpse<'o> {
    observer: &'o mut dyn FnMut(&Progress),
    next_ns: u64,
    last_ns: u64,
    answers: u64,
    /// Answers of all generators at the last glimpse.
    before: u64,
    latency: Nanoseconds,
}

impl<'o> Glimpse<'o> {
    pub(super) fn new(observer: &'o mut dyn FnMut(&Progress)) -> Self {
        Self {
            observer,
            next_ns: EVERY_NS,
            last_ns: 0,
            answers: 0,
            before: 0,
            latency: Nanoseconds::new(),
        }
    }

    pub(super) fn record(&mut self, latency_ns: u64) {
        self.answers += 1;
        self.latency.record(latency_ns);
    }

    /// Shows a glimpse when one is due; with several generators, the answers and errors of all.
    pub(super) fn show(
        &mut self,
        measured: &Range<u64>,
        errors: u64,
        of_all: Option<(u64, u64)>,
        now: u64,
    ) {
        if now < self.next_ns {
            return;
        }
        let answers = of_all.map_or(self.answers, |(answers, _)| answers - self.before);
        self.before = of_all.map_or(0, |(answers, _)| answers);
        let seconds = (now - self.last_ns) as f64 / 1e9;
        (self.observer)(&Progress {
            elapsed: Duration::from_nanos(now),
            warmup: Duration::from_nanos(measured.start),
            total: Duration::from_nanos(measured.end),
            rps: answers as f64 / seconds,
            latency: self.latency.percentiles(),
            errors: of_all.map_or(errors, |(_, errors)| errors),
        });
        self.last_ns = now;
        self.next_ns = now + EVERY_NS;
        self.answers = 0;
        self.latency = Nanoseconds::new();
    }
}

const EVERY_NS: u64 = 500_000_000;
