//! Requests to an origin that answered 429 or 503.

use towpath_proto::Instant;
use towpath_proto::name::Name;

use crate::client::back_off::BackOff;
use crate::client::retry_after;
use crate::conn::spans::Phase;
use crate::exchange::Exchange;
use crate::exchange::stream::UpstreamState;
use crate::exchange::timers::AppTimer;
use crate::ids::{Leg, PoolKey, StreamIndex};
use crate::local::back_off::target;
use crate::local::message::Error;
use crate::local::report::Rested;
use crate::snapshot::ClusterId;

impl Exchange {
    /// Looks for a connection, unless the origin rests or there is no network.
    pub(crate) fn place_call(&mut self, index: StreamIndex, now: Instant) {
        let Some(cluster) = self.streams.get(index).map(|stream| stream.cluster) else { return };
        let Some(call) = self.call(index) else { return };
        let origin = self.upstreams.app.origins.get(&cluster);
        let reached = origin.is_none_or(|origin| self.upstreams.app.reaches(&origin.key));
        if !reached && !call.options.waits {
            return self.fail_call(index, Error::Offline, now);
        }
        let fails = call.options.fails_at_rest;
        let Some((until, asked)) = self.end_of_back_off(index, now) else {
            return self.place_stream(index, now);
        };
        if fails || !self.is_in_time(index, until) {
            return self.fail_call(index, Error::Resting(until - now), now);
        }
        self.park(index, Rested { began: now, until, asked, status: None });
    }

    /// An answer of 400 or above begins: whether the request is sent again later in its place.
    pub(crate) fn rest_after(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        status: u16,
        now: Instant,
    ) -> bool {
        if !asks_for_back_off(status) || self.upstreams.app.settings.max_rest.is_zero() {
            return false;
        }
        self.begin_back_off(index, now);
        let Some(stream) = self.streams.get(index) else { return false };
        let (cluster, retries) = (stream.cluster, &stream.retries);
        let may_repeat = stream.body.whole && retries.repeatable && retries.remaining > 0;
        let fails = self.call(index).is_none_or(|call| call.options.fails_at_rest);
        let (until, asked) = self.end_of_back_off(index, now).unwrap_or((now, false));
        if !may_repeat
            || fails
            || !self.is_in_time(index, until)
            || !self.upstreams.app.budget.spend()
        {
            self.hold_waiting(cluster, now);
            return false;
        }
        self.withdraw_standby(index);
        if let Some(call) = self.call_mut(index) {
            call.report.retries += 1;
            if let Some(last) = call.report.tries.last_mut() {
                last.reset_reason = "the server has too much to do";
            }
        }
        if let Some(stream) = self.streams.get_mut(index) {
            stream.retries.remaining -= 1;
            stream.retries.done += 1;
            stream.times.upstream_first_received = None;
        }
        self.park(index, Rested { began: now, until, asked, status: Some(status) });
        self.leave_answer(index, leg, now);
        self.hold_waiting(cluster, now);
        true
    }

    pub(crate) fn begin_back_off(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let response = &stream.response;
        let unix_s = self.env.clock.since_1970(now).as_secs();
        let asked = response
            .get(Name::RetryAfter)
            .and_then(|value| retry_after::parse(value, response.get(Name::Date), unix_s));
        let sent = stream.times.upstream_first_sent.unwrap_or(now);
        let (most, random) = (self.upstreams.app.settings.max_rest, self.env.random.next());
        let target = target(&stream.request);
        if let Some(origin) = self.upstreams.app.origins.get_mut(&stream.cluster) {
            origin.back_offs.begin(target, sent, asked, most, random, now);
        }
    }

    /// An answer that the app gets: whether its origin is well again.
    pub(crate) fn note_answer(&mut self, index: StreamIndex) {
        let Some(stream) = self.streams.get(index) else { return };
        let (Some(sent), false) =
            (stream.times.upstream_first_sent, asks_for_back_off(stream.response.status()))
        else {
            return;
        };
        if let Some(origin) = self.upstreams.app.origins.get_mut(&stream.cluster)
            && !origin.back_offs.is_empty()
        {
            origin.back_offs.recovered(target(&stream.request), sent);
        }
    }

    /// Whether requests like this one are to be held back.
    pub(crate) fn is_resting(&self, index: StreamIndex, now: Instant) -> bool {
        self.back_off_of(index, now).is_some()
    }

    fn back_off_of(&self, index: StreamIndex, now: Instant) -> Option<BackOff> {
        let stream = self.streams.get(index)?;
        self.upstreams.app.back_off_of(stream.cluster, &stream.request, now)
    }

    /// When a request that is held back may begin, drawn for each, and whether the origin named the time.
    fn end_of_back_off(&mut self, index: StreamIndex, now: Instant) -> Option<(Instant, bool)> {
        let rest = self.back_off_of(index, now)?;
        Some((rest.wait(self.env.random.next(), now)?, rest.is_asked()))
    }

    /// Whether the time for everything goes on beyond a moment.
    pub(crate) fn is_in_time(&self, index: StreamIndex, moment: Instant) -> bool {
        let Some(call) = self.call(index) else { return false };
        let limits = call.options.total.into_iter().chain(call.options.answer);
        limits.min().is_none_or(|limit| moment < call.began + limit)
    }

    pub(crate) fn park(&mut self, index: StreamIndex, rest: Rested) {
        if let Some(call) = self.call_mut(index)
            && call.report.rests.len() < MOST_NOTES
        {
            call.report.rests.push(rest);
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.upstream = UpstreamState::BackingOff;
        stream.trace_phase(Phase::BackOff);
        for timer in [AppTimer::FirstByte, AppTimer::Look, AppTimer::Attempt] {
            stream.clear_timer(timer);
        }
        self.set_timer(index, AppTimer::BackOff, rest.until);
    }

    /// Requests that wait for a connection to an origin wait for its rest to be over first, or fail.
    pub(crate) fn hold_waiting(&mut self, cluster: ClusterId, now: Instant) {
        let pool_key = PoolKey { cluster, pool: 0 };
        for index in self.upstreams.waiting_for(cluster) {
            if !self.is_resting(index, now) {
                continue;
            }
            match self.streams.get(index).map(|stream| stream.upstream) {
                Some(UpstreamState::Active(_)) => self.withdraw_standby(index),
                Some(UpstreamState::Pending(_)) => {
                    self.upstreams.leave_queue(index, pool_key);
                    if let Some(stream) = self.streams.get_mut(index) {
                        stream.upstream = UpstreamState::None;
                    }
                    self.place_call(index, now);
                }
                Some(UpstreamState::None | UpstreamState::BackingOff) | None => {}
            }
        }
        self.upstreams.advance_origin(cluster, &mut self.conns, &mut self.env, now);
    }
}

pub(crate) const fn asks_for_back_off(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// Waits that are remembered for a report.
pub(crate) const MOST_NOTES: usize = 32;
