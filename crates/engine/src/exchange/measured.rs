//! How large attempts are and which part of their time they take, for clusters that count it (Envoy
//! `track_cluster_stats`).
//!
//! Arrives: attempts that begin, the heads of their answers, their ends. Leaves: values of histograms.

use std::rc::Rc;
use std::time::Duration;

use towpath_proto::Instant;
use towpath_proto::head::Head;

use crate::exchange::Exchange;
use crate::exchange::recorder::Recorder;
use crate::exchange::stream::Stream;
use crate::exchange::tracing::TryEnd;
use crate::ids::StreamIndex;
use crate::upstream::tracked::Tracked;

/// An attempt under way that is measured.
#[derive(Debug)]
pub(crate) struct Measured {
    tracked: Rc<Tracked>,
    start: Instant,
    /// What the record has of attempts before it.
    sent_before: u64,
    received_before: u64,
    /// Bytes and fields of the heads of its answer, as Envoy counts them.
    heads: Option<(u64, u64)>,
    /// The time of its request is over, which says nothing of its own.
    outlasted: bool,
}

impl Recorder {
    /// Counts a head of the answer to the attempt under way.
    #[inline]
    pub(crate) fn measure_answer(&mut self, head: &Head) {
        if let Some(measured) = self.measured_mut() {
            let (bytes, fields) = measured.heads.unwrap_or_default();
            let (more_bytes, more_fields) = size_of_response(head);
            measured.heads = Some((bytes + more_bytes, fields + more_fields));
        }
    }

    fn measured_mut(&mut self) -> Option<&mut Measured> {
        self.recording_mut()?.measured.as_deref_mut()
    }
}

impl Exchange {
    /// An attempt begins, which its cluster may measure.
    #[inline]
    pub(super) fn measure_attempt(&mut self, index: StreamIndex, now: Instant) {
        let cluster = self.streams.get(index).map(|stream| stream.cluster);
        let cluster = cluster.and_then(|cluster| self.upstreams.clusters.get(cluster));
        let tracked = cluster.and_then(|cluster| cluster.tracked.as_ref());
        if let Some(tracked) = tracked.filter(|tracked| tracked.measures()).map(Rc::clone) {
            self.begin_measuring(index, tracked, now);
        }
    }

    #[cold]
    fn begin_measuring(&mut self, index: StreamIndex, tracked: Rc<Tracked>, now: Instant) {
        self.record_late(index);
        let stream = self.streams.get_mut(index);
        let Some(recording) = stream.and_then(|it| it.recorder.recording_mut()) else { return };
        recording.measured = Some(Box::new(Measured {
            tracked,
            start: now,
            sent_before: recording.record.upstream_bytes_sent,
            received_before: recording.record.upstream_bytes_received,
            heads: None,
            outlasted: false,
        }));
    }

    /// The time of a request is over, and with it that of its attempt.
    pub(super) fn measure_timeout(&mut self, index: StreamIndex, now: Instant) {
        self.outlast_measured(index);
        self.measure_spent(index, now);
    }

    /// The time of a request is over before that of its attempt, if this one waits for an answer.
    pub(super) fn outlast_measured(&mut self, index: StreamIndex) {
        if let Some(stream) = self.streams.get_mut(index)
            && stream.is_unanswered()
            && let Some(measured) = stream.recorder.measured_mut()
        {
            measured.outlasted = true;
        }
    }

    /// A request ends for want of time.
    pub(super) fn measure_spent(&self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let cluster = self.upstreams.clusters.get(stream.cluster);
        let tracked = cluster.and_then(|cluster| cluster.tracked.as_ref());
        if let Some(tracked) = tracked {
            stream.measure_budget(tracked, now);
        }
    }
}

impl Stream {
    /// An attempt is over, if it is measured.
    pub(super) fn end_measuring(&mut self, end: TryEnd, now: Instant) {
        let Some(measured) = self.take_measured() else { return };
        let size = self.request.present().map(size_of_request);
        self.measure(&measured, size, end, now);
    }

    /// The same of one whose answer leads elsewhere: to Envoy its request is what goes there.
    pub(super) fn end_measuring_redirected(&mut self, head: &Head, now: Instant) {
        let Some(measured) = self.take_measured() else { return };
        self.measure(&measured, Some(size_of_request(head)), TryEnd::Given, now);
    }

    fn take_measured(&mut self) -> Option<Box<Measured>> {
        self.recorder.recording_mut()?.measured.take()
    }

    fn measure(&self, measured: &Measured, size: Option<(u64, u64)>, end: TryEnd, now: Instant) {
        let record = self.recorder.record();
        let sent = record.upstream_bytes_sent.saturating_sub(measured.sent_before);
        let received = record.upstream_bytes_received.saturating_sub(measured.received_before);
        let until = match end {
            TryEnd::Answered => record.upstream_last_received.unwrap_or(now),
            TryEnd::Given | TryEnd::Reset(_) => now,
        };
        let Tracked { budgets, sizes, .. } = &*measured.tracked;
        if let (Some(budgets), false) = (budgets, measured.outlasted) {
            let used = percent(until - measured.start, self.per_try_timeout.get());
            budgets.upstream_rq_timeout_budget_per_try_percent_used.record(used);
        }
        if let (Some(sizes), Some((bytes, fields))) = (sizes, size) {
            sizes.upstream_rq_headers_size.record(bytes);
            sizes.upstream_rq_headers_count.record(fields);
            sizes.upstream_rq_body_size.record(sent);
            if let Some((bytes, fields)) = measured.heads {
                sizes.upstream_rs_headers_size.record(bytes);
                sizes.upstream_rs_headers_count.record(fields);
                sizes.upstream_rs_body_size.record(received);
            }
        }
        if end == TryEnd::Answered && self.is_complete() && !self.local_reply {
            self.measure_budget(&measured.tracked, until);
        }
    }

    /// Counts which part of its time a request has taken, once it has come.
    fn measure_budget(&self, tracked: &Tracked, until: Instant) {
        if let (Some(budgets), Some(since)) = (&tracked.budgets, self.times.request_end)
            && since <= until
        {
            let used = percent(until - since, self.response_timeout.get());
            budgets.upstream_rq_timeout_budget_percent_used.record(used);
        }
    }
}

/// Which part of a limit a duration is, both in whole milliseconds; of none it is nothing.
fn percent(took: Duration, limit: Option<Duration>) -> u64 {
    let limit = limit.map_or(0, |limit| limit.as_millis());
    let used = (took.as_millis() * 100).checked_div(limit).unwrap_or_default();
    u64::try_from(used).unwrap_or(u64::MAX)
}

/// Bytes and fields of a request as Envoy counts them: with pseudo-fields.
fn size_of_request(head: &Head) -> (u64, u64) {
    let pseudo = [head.scheme(), head.authority(), head.path()];
    let pseudo = 1 + pseudo.iter().filter(|value| !value.is_empty()).count();
    (head.byte_size() as u64, (pseudo + head.len()) as u64)
}

/// The same of a response, whose fields all count, as they came.
fn size_of_response(head: &Head) -> (u64, u64) {
    let add = |(bytes, fields), (name, value): (&[u8], &[u8])| {
        (bytes + (name.len() + value.len()) as u64, fields + 1)
    };
    let status = (":status200".len() as u64, 1);
    match head.received().fold(status, add) {
        (_, 1) => (head.byte_size() as u64, 1 + head.len() as u64),
        all => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_time_are_whole_percents() {
        let ms = Duration::from_millis;
        assert_eq!(percent(ms(0), Some(ms(300))), 0);
        assert_eq!(percent(ms(299), Some(ms(300))), 99);
        assert_eq!(percent(ms(450), Some(ms(300))), 150);
        assert_eq!(percent(ms(450), None), 0, "of no limit nothing is used");
        assert_eq!(percent(ms(450), Some(Duration::from_micros(999))), 0);
    }

    #[test]
    fn heads_have_their_pseudo_fields() {
        let mut head = Head::request(b"GET", b"http", b"a.test", b"/");
        head.append_bytes(b"x", b"yy");
        assert_eq!(size_of_request(&head), (7 + 3 + 7 + 4 + 10 + 6 + 5 + 1 + 3, 5));
        let mut head = Head::response(503);
        head.append_bytes(b"x", b"yy");
        assert_eq!(size_of_response(&head), (10 + 3, 2));
    }
}
