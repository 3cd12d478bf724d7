//! A second attempt beside the first, where the first takes longer than its origin usually does.
//!
//! Arrives: a request that has no answer yet when 95 of 100 have one. Leaves: its duplicate, a stream of its own that
//! is secondary: the app hears nothing of it until its answer comes first, or the first one fails. From then on it is
//! the request.
//!
//! One of the two is always the request (`Local::calls` knows which), and only that one tells the app anything, so that
//! there is one end. The other is given up, and what it went through is told in the report of the one that stays.

use std::time::Duration;

use towpath_proto::Instant;

use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::stream::{Progress, Streams, UpstreamState};
use crate::exchange::timers::AppTimer;
use crate::ids::StreamIndex;
use crate::local::Call;
use crate::local::message::{Error, Layer, Options, Outcome};
use crate::local::report::{OTHER_FIRST, Report};

impl Exchange {
    /// A request is out: when it will have taken too long.
    pub(crate) fn arm_hedge(&mut self, index: StreamIndex, now: Instant) {
        if !self.may_hedge(index) {
            return;
        }
        let (Some(stream), Some(call)) = (self.streams.get(index), self.call(index)) else {
            return;
        };
        let bytes = call.options.body_bytes.max(stream.recorder.record().bytes_received);
        let origin = self.upstreams.app.origins.get(&stream.cluster);
        if let Some(usual) = origin.and_then(|origin| origin.measured(bytes).hedge()) {
            self.set_timer(index, AppTimer::Hedge, now + usual);
        }
    }

    pub(crate) fn may_hedge(&self, index: StreamIndex) -> bool {
        let (Some(stream), Some(call)) = (self.streams.get(index), self.call(index)) else {
            return false;
        };
        call.options.hedges
            && call.report.hedges == 0
            && matches!(stream.upstream, UpstreamState::Active(_))
            && self.may_have_duplicate(index)
    }

    pub(crate) fn may_have_duplicate(&self, index: StreamIndex) -> bool {
        let (Some(stream), Some(call)) = (self.streams.get(index), self.call(index)) else {
            return false;
        };
        !call.secondary
            && call.duplicate.is_none()
            && call.resume.is_none()
            && stream.request_end == Progress::Ended
            && stream.is_unanswered()
            && stream.body.whole
            && stream.retries.repeatable
    }

    /// It has taken too long.
    pub(crate) fn hedge(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let begun = self.conns.response_has_begun(stream);
        let rests = self.is_resting(index, now);
        if !self.may_hedge(index) || begun || rests || !self.upstreams.app.budget.spend() {
            return;
        }
        let Some(second) = self.open_duplicate(index, now) else { return };
        if let Some(call) = self.call_mut(index) {
            call.report.hedges += 1;
        }
        self.place_stream(second, now);
    }

    /// The network was away, and is back: the request begins anew, and the one that is out is its secondary duplicate
    /// from here on. The server may have had that one, and its kernel may be about to repeat the answer.
    pub(crate) fn begin_beside(&mut self, index: StreamIndex, now: Instant) -> Option<StreamIndex> {
        if !self.may_have_duplicate(index) {
            return None;
        }
        let second = self.open_duplicate(index, now)?;
        let retries = std::mem::take(&mut self.streams.get_mut(index)?.retries.remaining);
        if let Some(layers) = self.call(index)?.report.layers {
            // It has as long as the new one has, and is out of the way when that one is tried again.
            let before = |limit: Duration| now + limit.saturating_sub(Duration::from_millis(1));
            self.set_timer(index, AppTimer::FirstByte, before(layers.first_byte));
            self.set_timer(index, AppTimer::Attempt, before(layers.attempt));
        }
        let stream = self.streams.get_mut(second)?;
        stream.retries.remaining = retries;
        let downstream = stream.downstream.connection;
        let first = self.call_mut(index)?;
        // Should the new one fail, the old one may find out once more that there is no network.
        (first.secondary, first.silent_asked) = (true, false);
        let waited = first.waited_until;
        let mut report = std::mem::take(&mut first.report);
        let (id, network) = (first.id, std::sync::Arc::clone(&report.network));
        (first.report.priority, first.report.network) = (report.priority, network);
        // What becomes of the last attempt is the old one's to tell.
        first.report.tries.extend(report.tries.pop());
        let call = self.call_mut(second)?;
        (call.secondary, call.report, call.waited_until) = (false, report, waited);
        self.upstreams.app.calls.insert(id, downstream);
        Some(second)
    }

    pub(crate) fn open_duplicate(
        &mut self,
        index: StreamIndex,
        now: Instant,
    ) -> Option<StreamIndex> {
        let call = self.call(index)?;
        let mut report = Box::<Report>::default();
        report.priority = call.report.priority;
        report.network = std::sync::Arc::clone(&call.report.network);
        // The first was given to a connection in time.
        let options = Options { connect: None, ..call.options.clone() };
        let (id, began) = (call.id, call.began);
        let first = self.streams.get(index)?.downstream.connection;
        let mut duplicate = Call::new(id, options, report, began);
        (duplicate.secondary, duplicate.duplicate) = (true, Some(first));
        duplicate.fresh_after = now;
        let second = self.open_local_stream(duplicate, now)?;
        self.streams.copy_request(index, second, &mut self.env);
        self.prepare_retries(second);
        let stream = self.streams.get_mut(second)?;
        // Whatever holds the first up, the second is not to share.
        stream.retries.wants_fresh = true;
        stream.retries.remaining = 0;
        let downstream = stream.downstream.connection;
        if let Some(call) = self.call_mut(index) {
            call.duplicate = Some(downstream);
        }
        self.limit_answer(second, began);
        Some(second)
    }

    /// An answer begins: false if it is not wanted, and its stream has ended.
    pub(crate) fn settle_hedge(&mut self, index: StreamIndex, now: Instant) -> bool {
        let (Some(stream), Some(call)) = (self.streams.get(index), self.call(index)) else {
            return true;
        };
        if call.duplicate.is_none() {
            return true;
        }
        let (status, downstream, secondary, id) =
            (stream.response.status(), stream.downstream.connection, call.secondary, call.id);
        if secondary && (status >= 500 || status == 429) {
            // The first may still do better, and if not its own answer is as good.
            self.blame_last_try(index, "the answer was an error");
            self.fail_call(index, Error::Disconnected, now);
            return false;
        }
        self.drop_duplicate(index, now);
        if secondary {
            self.upstreams.app.calls.insert(id, downstream);
            if let Some(call) = self.call_mut(index) {
                call.secondary = false;
            }
        }
        true
    }

    /// The duplicate is of no use any more.
    pub(crate) fn drop_duplicate(&mut self, index: StreamIndex, now: Instant) {
        let Some(duplicate) = self.call_mut(index).and_then(|call| call.duplicate.take()) else {
            return;
        };
        let Some(other) =
            self.conns.table.get(duplicate).and_then(|duplicate| duplicate.streams.only())
        else {
            return;
        };
        self.blame_last_try(other, OTHER_FIRST);
        let Some(call) = self.call_mut(other) else { return };
        (call.duplicate, call.secondary) = (None, true);
        let (report, waited) = (std::mem::take(&mut call.report), call.waited_until);
        if let Some(call) = self.call_mut(index) {
            call.merge(report, waited);
        }
        self.fail_call(other, Error::Cancelled, now);
    }

    /// A secondary request is over: the one that is left knows of it.
    pub(crate) fn end_mute(&mut self, call: &mut Call) {
        let Some(first) = call.duplicate.take() else { return };
        let report = std::mem::take(&mut call.report);
        let Some(index) = self.conns.table.get(first).and_then(|first| first.streams.only()) else {
            return;
        };
        if let Some(first) = self.call_mut(index) {
            first.duplicate = None;
            first.merge(report, call.waited_until);
        }
    }

    /// A request has come to an end: true if its duplicate goes on in its place, and the app hears of nothing.
    pub(crate) fn hand_over(
        &mut self,
        call: &mut Call,
        outcome: Outcome,
        retries: u32,
        now: Instant,
    ) -> bool {
        let Some(duplicate) = call.duplicate.take() else { return false };
        let Some(index) =
            self.conns.table.get(duplicate).and_then(|duplicate| duplicate.streams.only())
        else {
            return false;
        };
        let Some(other) = self.call_mut(index) else { return false };
        other.duplicate = None;
        if !may_go_on(outcome) {
            call.merge(std::mem::take(&mut other.report), other.waited_until);
            self.fail_call(index, Error::Cancelled, now);
            return false;
        }
        other.secondary = false;
        other.merge(std::mem::take(&mut call.report), call.waited_until);
        if let Some(stream) = self.streams.get_mut(index) {
            stream.retries.remaining = retries;
        }
        self.upstreams.app.calls.insert(call.id, duplicate);
        true
    }

    pub(crate) fn blame_last_try(&mut self, index: StreamIndex, why: &'static str) {
        let last = self.call_mut(index).and_then(|call| call.report.tries.last_mut());
        if let Some(last) = last.filter(|last| last.reset_reason.is_empty()) {
            last.reset_reason = why;
        }
    }
}

impl Streams {
    pub(crate) fn copy_request(&mut self, from: StreamIndex, to: StreamIndex, env: &mut Env) {
        let Some(first) = self.get(from) else { return };
        let request = first.request.clone();
        let (chunks, trailers) = (first.body.chunks().to_vec(), first.body.trailers().cloned());
        let (cluster, head_only) = (first.cluster, first.head_only);
        let (start, ended) = (first.times.start, first.times.request_end);
        let (protocol, bytes) =
            (first.recorder.record().protocol, first.recorder.record().bytes_received);
        let Some(second) = self.get_mut(to) else { return };
        second.request.put(request, &mut env.heads);
        chunks.into_iter().for_each(|chunk| second.body.push(chunk));
        if let Some(trailers) = trailers {
            second.body.set_trailers(trailers);
        }
        second.request_end = Progress::Ended;
        (second.cluster, second.head_only) = (cluster, head_only);
        (second.times.start, second.times.request_end) = (start, ended);
        second.recorder.note(|record| (record.protocol, record.bytes_received) = (protocol, bytes));
    }
}

impl Call {
    /// Takes the attempts of the duplicate into its own report.
    pub(crate) fn merge(&mut self, other: Box<Report>, waited_until: Option<Instant>) {
        let own = &mut self.report;
        own.tries.extend(other.tries);
        own.tries.sort_by_key(|each| each.began);
        own.rests.extend(other.rests);
        own.retries += other.retries;
        own.redone += other.redone;
        own.hedges += other.hedges;
        self.waited_until = self.waited_until.max(waited_until);
    }
}

/// Whether an end of one leaves the other something to hope for.
pub(crate) const fn may_go_on(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Complete
        | Outcome::Failed(Error::Cancelled | Error::Offline | Error::TimedOut(Layer::Total)) => {
            false
        }
        Outcome::Failed(_) => true,
    }
}
