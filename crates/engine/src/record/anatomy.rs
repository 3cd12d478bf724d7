//! Where the time of a stream went.

use towpath_proto::Instant;

use super::Record;

/// A part of a stream's life. Parts overlap where a body streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// From the first byte of the request to its last.
    Request,
    /// From the first byte of the request until it began to leave for upstream: parsing, filters, routing, queueing.
    Queue,
    /// The connect that the stream waited for.
    Connect,
    /// From the first byte sent upstream to the last.
    UpstreamSend,
    /// From the last byte sent upstream to the first that came back: the upstream's own time.
    UpstreamWait,
    /// From the first byte from upstream to the last.
    UpstreamReceive,
    /// From the first byte of the response to the stream's end.
    Response,
}

impl Phase {
    /// Its name in traces.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Queue => "queue",
            Self::Connect => "connect",
            Self::UpstreamSend => "upstream send",
            Self::UpstreamWait => "upstream wait",
            Self::UpstreamReceive => "upstream receive",
            Self::Response => "response",
        }
    }
}

/// One phase with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which.
    pub phase: Phase,
    /// When it began.
    pub start: Instant,
    /// When it ended; never before `start`.
    pub end: Instant,
}

/// The phases of one stream that both began and ended, in the order of [`Phase`]. Lives on the stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anatomy {
    spans: [Option<Span>; 7],
}

impl Anatomy {
    pub(super) fn of(record: &Record) -> Self {
        let start = Some(record.start);
        let (connect_start, connect_end) = record.connect.unzip();
        // An upstream may answer before the request is sent whole; then it was not waited for.
        let asked = record.upstream_last_sent.min(record.upstream_first_received);
        let span = |phase, start: Option<Instant>, end: Option<Instant>| {
            let (start, end) = start.zip(end)?;
            Some(Span { phase, start, end: end.max(start) })
        };
        Self {
            spans: [
                span(Phase::Request, start, record.request_end),
                span(Phase::Queue, start, record.upstream_first_sent),
                span(Phase::Connect, connect_start, connect_end),
                span(Phase::UpstreamSend, record.upstream_first_sent, record.upstream_last_sent),
                span(Phase::UpstreamWait, asked, record.upstream_first_received),
                span(
                    Phase::UpstreamReceive,
                    record.upstream_first_received,
                    record.upstream_last_received,
                ),
                span(Phase::Response, record.response_start, record.end),
            ],
        }
    }

    /// The phases.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.spans.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Option<Instant> {
        Some(Instant::from_nanos(ns))
    }

    #[test]
    fn only_phases_that_ended_are_listed() {
        let mut record = Record { start: Instant::from_nanos(10), ..Record::default() };
        assert_eq!(record.anatomy().iter().count(), 0);
        record.request_end = at(12);
        record.upstream_first_sent = at(15);
        let phases: Vec<_> = record.anatomy().iter().map(|span| span.phase).collect();
        assert_eq!(phases, [Phase::Request, Phase::Queue]);
    }

    #[test]
    fn an_early_answer_is_not_waited_for() {
        let record = Record {
            upstream_first_sent: at(1),
            upstream_last_sent: at(9),
            upstream_first_received: at(5),
            ..Record::default()
        };
        let wait = record.anatomy().iter().find(|span| span.phase == Phase::UpstreamWait).unwrap();
        assert_eq!((wait.start, wait.end), (Instant::from_nanos(5), Instant::from_nanos(5)));
        assert!(record.anatomy().iter().all(|span| span.start <= span.end));
    }
}
