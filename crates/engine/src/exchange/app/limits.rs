//! Limits on the time of an app's request, layer by layer.
//!
//! Arrives: the moments of a request's life. Leaves: deadlines, and what follows when one passes: another attempt where
//! that is allowed, or the end of the request with the layer's name.

use std::time::Duration;

use towpath_proto::head::Version;
use towpath_proto::{Close, ConnectionId, Failure, Instant, PathFacts};

use crate::client::timeouts::{Layers, Size};
use crate::conn::spans::Phase;
use crate::exchange::Exchange;
use crate::exchange::app::retry::AGAIN;
use crate::exchange::stream::UpstreamState;
use crate::exchange::timers::AppTimer;
use crate::ids::{Leg, ResetReason, StreamIndex};
use crate::local::message::{Error, Layer};
use crate::local::report::Try;
use crate::upstream::pool::PROVEN_ALIVE;

impl Exchange {
    /// A request was given to a connection.
    pub(crate) fn begin_try(&mut self, index: StreamIndex, now: Instant) {
        let layers = self.layers(index);
        let Some(stream) = self.streams.get(index) else { return };
        let UpstreamState::Active(Leg { connection: id, .. }) = stream.upstream else { return };
        let reused = stream.reused;
        self.check_contact(index, id, PROVEN_ALIVE, now);
        let Some(stream) = self.streams.get(index) else { return };
        let Some(connection) = self.conns.table.get(id) else { return };
        let opened = connection.opened;
        let shared = self.shared_with(index, id);
        let hedge = self.call(index).is_some_and(|call| call.secondary);
        let began = Try {
            hedge,
            began: now,
            peer: connection.peer.clone(),
            connection: stream.recorder.record().upstream_connection,
            version: if connection.mux.is_http2() { Version::Http2 } else { Version::Http11 },
            reused,
            shared,
            reset_reason: "",
        };
        let Some(call) = self.call_mut(index) else { return };
        if opened >= call.began {
            call.waited_until = Some(now);
        }
        call.report.tries.push(began);
        call.report.layers = layers;
        if call.options.connect.take().is_some() {
            self.clear_answer(index);
            self.limit_answer(index, now);
        }
        self.count_repetition(index, now);
        let Some(layers) = layers else { return };
        self.set_timer(index, AppTimer::FirstByte, now + layers.first_byte);
        self.set_timer(index, AppTimer::Attempt, now + layers.attempt);
        let first_look = self.begin_body(index, now).map_or(WATCH, |look| look.min(WATCH));
        self.watch_at(index, now + first_look);
        self.arm_hedge(index, now);
    }

    /// The request's body goes on: the time for the first byte begins anew.
    pub(crate) fn restart_first_byte(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let waits = matches!(stream.upstream, UpstreamState::Active(_)) && stream.is_unanswered();
        let Some(layers) = self.call(index).and_then(|call| call.report.layers) else { return };
        if waits {
            self.set_timer(index, AppTimer::FirstByte, now + layers.first_byte);
            self.set_timer(index, AppTimer::Attempt, now + layers.attempt);
        }
    }

    /// The limits on time of a request with a body count from when the peer's kernel last took some of it, or, where
    /// ours does not say, from when ours did.
    pub(crate) fn follow_upload(
        &mut self,
        index: StreamIndex,
        id: ConnectionId,
        facts: Option<&PathFacts>,
        now: Instant,
    ) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let gone = facts.map_or(connection.bytes_sent, |facts| facts.acknowledged);
        let since = facts.map_or(Duration::ZERO, |facts| facts.since_ack);
        let moved = Instant::ZERO + (now - Instant::ZERO).saturating_sub(since);
        let Some(call) = self.call_mut(index) else { return };
        let Some(began) = call.report.tries.last().map(|last| last.began) else { return };
        if call.gone.replace(gone) == Some(gone) || moved <= began {
            return;
        }
        self.restart_first_byte(index, moved);
        self.limit_answer(index, moved);
    }

    /// The request must be answered within its time from then on.
    pub(crate) fn limit_answer(&mut self, index: StreamIndex, from: Instant) {
        let Some(call) = self.call(index) else { return };
        let (began, options) = (call.began, &call.options);
        let total = options.total.map(|total| began + total);
        let answer = options.answer.filter(|_| options.connect.is_none());
        let answer = answer.map(|answer| from + answer);
        let connect = options.connect.map(|connect| began + connect);
        if let Some(at) = total.into_iter().chain(answer).chain(connect).min() {
            self.set_timer(index, AppTimer::Whole, at);
        }
    }

    fn clear_answer(&mut self, index: StreamIndex) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.clear_timer(AppTimer::Whole);
        }
    }

    /// The response begins: from here on gaps count.
    pub(crate) fn begin_response_timers(&mut self, index: StreamIndex, now: Instant) {
        let gap = self.call(index).and_then(|call| call.report.layers).map(|layers| layers.gap);
        if let Some(stream) = self.streams.get_mut(index) {
            stream.clear_timer(AppTimer::Look);
            stream.clear_timer(AppTimer::Attempt);
            stream.clear_timer(AppTimer::Whole);
        }
        let ends = self.call(index).and_then(|call| Some(call.began + call.options.total?));
        if let Some(at) = ends {
            self.set_timer(index, AppTimer::Whole, at);
        }
        if let Some(gap) = gap {
            self.set_idle(index, Some(gap), now);
            self.watch_pauses(index, gap, now);
        }
    }

    pub(crate) fn layers(&self, index: StreamIndex) -> Option<Layers> {
        let call = self.call(index)?;
        let options = &call.options;
        let stream = self.streams.get(index)?;
        let bytes = options.body_bytes.max(stream.recorder.record().bytes_received);
        let in_flight = self.upstreams.app.calls_in_flight().saturating_sub(1);
        let size = Size { bytes, in_flight, retries: options.retries };
        let origin = self.upstreams.app.origins.get(&stream.cluster);
        let measured = origin.map(|origin| origin.measured(bytes));
        let mut layers = Layers::new(self.upstreams.app.kind, size, measured);
        layers.connect = self.upstreams.app.settings.race.attempt_timeout;
        layers.first_byte = options.first_byte.unwrap_or(layers.first_byte);
        layers.gap = options.gap.unwrap_or(layers.gap);
        layers.attempt = options.attempt.unwrap_or(layers.attempt);
        layers.total = options.total.or(options.answer).unwrap_or(layers.total);
        Some(layers)
    }

    /// A deadline of an app's request has passed.
    pub(crate) fn on_call_deadline(&mut self, index: StreamIndex, timer: AppTimer, now: Instant) {
        match timer {
            AppTimer::FirstByte => self.time_out_try(index, timer, Layer::FirstByte, now),
            AppTimer::Attempt => self.time_out_try(index, timer, Layer::Attempt, now),
            AppTimer::Gap => self.time_out(index, Layer::Gap, now),
            AppTimer::Whole if self.is_unconnected(index, now) => {
                self.fail_unconnected(index, now);
            }
            AppTimer::Whole => self.time_out(index, Layer::Total, now),
            AppTimer::Look => self.watch(index, now),
            AppTimer::BackOff => {
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.upstream = UpstreamState::None;
                    stream.trace_phase(Phase::PoolWait);
                }
                self.place_call(index, now);
            }
            AppTimer::Hedge => self.hedge(index, now),
        }
    }

    pub(crate) fn fail_unconnected(&mut self, index: StreamIndex, now: Instant) {
        self.fail_call(index, Error::Connect(Failure::TimedOut), now);
    }

    /// It has been given to no connection within its time for that.
    pub(crate) fn is_unconnected(&self, index: StreamIndex, now: Instant) -> bool {
        let limit = self.call(index).and_then(|call| Some(call.began + call.options.connect?));
        limit.is_some_and(|limit| limit <= now)
    }

    pub(crate) fn time_out_try(
        &mut self,
        index: StreamIndex,
        timer: AppTimer,
        layer: Layer,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get(index) else { return };
        let is_on = matches!(stream.upstream, UpstreamState::Active(_));
        if !is_on || !stream.is_unanswered() {
            return;
        }
        if self.finds_no_network(index, now) {
            // Nothing better is to be had, and its answer may be the first that comes through.
            return self.set_timer(index, timer, now + AGAIN);
        }
        if let Some(call) = self.call_mut(index) {
            call.report.fired = Some(layer);
        }
        self.reset_upstream(index, ResetReason::PerTryTimeout, now);
    }

    pub(crate) fn time_out(&mut self, index: StreamIndex, layer: Layer, now: Instant) {
        if layer == Layer::Gap && self.is_app_slow(index) {
            // The window is closed.
            let gap = self.call(index).and_then(|call| call.report.layers).map(|all| all.gap);
            return self.set_idle(index, gap, now);
        }
        let resumes = layer == Layer::Gap && self.may_resume(index);
        let Some(call) = self.call_mut(index) else { return };
        call.report.fired = Some(layer);
        if resumes {
            return self.reset_upstream(index, ResetReason::PerTryTimeout, now);
        }
        self.detach(index, Close::Abort, now);
        self.fail_call(index, Error::TimedOut(layer), now);
    }
}

/// When an attempt is looked at for the first time.
pub(crate) const WATCH: Duration = Duration::from_secs(1);
