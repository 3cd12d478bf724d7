//! Attempts that go on beside a later one: Envoy's `hedge_policy`.
//!
//! Arrives: an attempt whose time is over, and what comes for one that is not the latest. Leaves: the first answer that
//! will do, as if there had been no other attempt; the others are reset.
//!
//! The latest attempt has the stream's own places. What is known of an earlier one alone stands beside it ([`Beside`]),
//! and changes places with the latest one's for as long as something is done about it. An earlier attempt has been sent
//! whole, is not tried again, and waits for the head of an answer.

use towpath_proto::head::Head;
use towpath_proto::name::Name;
use towpath_proto::{Close, ConnectionId, Instant};

use crate::exchange::Exchange;
use crate::exchange::recorder::AttemptRecord;
use crate::exchange::retry::{Retries, Tried, mark};
use crate::exchange::rpc::Bridging;
use crate::exchange::stream::{Stream, UpstreamState};
use crate::exchange::timers::HttpTimer;
use crate::exchange::tracing::TryEnd;
use crate::exchange::upstream::note_answer;
use crate::ids::{Kind, Leg, PoolKey, ResetReason, StreamIndex};
use crate::snapshot::route::RetryOn;

/// What becomes of an attempt whose time is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hedging {
    /// It is reset.
    #[default]
    Off,
    /// It goes on, and no other begins, for nothing is tried again.
    GoesOn,
    /// It goes on, and another one begins beside it.
    Begins,
}

/// What is known of one attempt alone.
#[derive(Debug)]
pub(crate) struct Beside {
    upstream: UpstreamState,
    pool_key: Option<PoolKey>,
    reused: bool,
    sent_before: u64,
    received_before: u64,
    first_sent: Option<Instant>,
    /// Its host has been told that it is late.
    is_late: bool,
    /// When its cluster ends it.
    ends: Option<Instant>,
    recorded: Option<Box<AttemptRecord>>,
}

impl Beside {
    fn is_on(&self, id: ConnectionId) -> bool {
        matches!(self.upstream, UpstreamState::Active(leg) if leg.connection == id)
    }
}

impl Retries {
    /// Notes whether the retry that begins is one because the time of an attempt was over.
    pub(super) fn note_cause(&mut self, reason: ResetReason) {
        let is_timeout =
            matches!(reason, ResetReason::PerTryTimeout | ResetReason::PerTryIdleTimeout);
        if is_timeout || self.tried.is_some() {
            self.tried.get_or_insert_default().follows_timeout = is_timeout;
        }
    }

    /// Whether the latest retry is one because the time of an attempt was over.
    pub(crate) fn follows_timeout(&self) -> bool {
        self.tried.as_ref().is_some_and(|tried| tried.follows_timeout)
    }

    /// Whether earlier attempts go on beside the latest one.
    #[inline]
    pub(crate) fn is_hedged(&self) -> bool {
        self.tried.as_deref().is_some_and(|tried| !tried.beside.is_empty())
    }

    /// When the first of them is ended by its cluster.
    pub(super) fn first_end(&self) -> Option<Instant> {
        self.tried.as_deref()?.beside.iter().filter_map(|beside| beside.ends).min()
    }

    /// Whether they go on where this has happened to the latest one. What concerns the request as a whole ends it.
    pub(super) fn outlives(&self, reason: ResetReason) -> bool {
        let is_of_all = matches!(
            reason,
            ResetReason::MaxStreamDuration | ResetReason::NoHost | ResetReason::ClusterGone
        );
        self.is_hedged() && !is_of_all
    }

    /// The latest attempt has been noted as late for its host.
    pub(super) fn is_late(&self) -> bool {
        self.tried.as_deref().is_some_and(|tried| tried.is_late)
    }

    /// An answer is on its way to the client: nothing is tried again.
    fn close(&mut self) {
        self.on = RetryOn::default();
        self.remaining = 0;
        if self.hedging == Hedging::Begins {
            self.hedging = Hedging::GoesOn;
        }
    }
}

impl Stream {
    /// Whether an attempt of it whose time is over goes on.
    pub(super) fn hedges(&self) -> bool {
        self.retries.hedging != Hedging::Off
            && matches!(self.kind, Kind::Http(_))
            && self.bridging == Bridging::None
    }

    /// Changes places with the latest attempt.
    fn swap(&mut self, beside: &mut Beside) {
        std::mem::swap(&mut self.upstream, &mut beside.upstream);
        std::mem::swap(&mut self.retries.pool_key, &mut beside.pool_key);
        std::mem::swap(&mut self.reused, &mut beside.reused);
        std::mem::swap(&mut self.retries.sent_before, &mut beside.sent_before);
        std::mem::swap(&mut self.retries.received_before, &mut beside.received_before);
        std::mem::swap(&mut self.times.upstream_first_sent, &mut beside.first_sent);
        if let Some(tried) = self.retries.tried.as_deref_mut() {
            std::mem::swap(&mut tried.is_late, &mut beside.is_late);
        }
        if let Some(recorded) = &mut beside.recorded {
            self.recorder.swap_attempt(recorded);
        }
    }

    /// Looks at an earlier attempt as if it were the latest; answers whether there are so many.
    pub(super) fn with_beside(&mut self, at: usize, look: impl FnOnce(&mut Self)) -> bool {
        let earlier = self.beside_mut().filter(|all| at < all.len());
        let Some(mut beside) = earlier.map(|all| all.remove(at)) else { return false };
        self.swap(&mut beside);
        look(self);
        self.swap(&mut beside);
        if let Some(all) = self.beside_mut() {
            all.insert(at.min(all.len()), beside);
        }
        true
    }

    fn beside_mut(&mut self) -> Option<&mut Vec<Beside>> {
        Some(&mut self.retries.tried.as_deref_mut()?.beside)
    }

    /// Takes out the earlier attempt of which this is true.
    fn take_beside(&mut self, is_it: impl Fn(&Beside) -> bool) -> Option<Beside> {
        let beside = self.beside_mut()?;
        let at = beside.iter().position(is_it)?;
        Some(beside.remove(at))
    }

    /// Where a retry of it is counted that is one of several attempts.
    pub(super) fn hedged_key(&self) -> Option<PoolKey> {
        let is_retry = self.retries.hedging == Hedging::Begins && self.retries.done > 0;
        let pool_key = self.retries.pool_key.filter(|_| is_retry)?;
        Some(PoolKey { cluster: self.cluster, ..pool_key })
    }

    /// Whether something else may still bring an answer, now that an earlier attempt was taken out.
    fn awaits_another(&self) -> bool {
        self.upstream != UpstreamState::None || self.retries.is_hedged()
    }
}

impl Exchange {
    /// The time of the latest attempt is over: it goes on, and if that is wanted and allowed another begins beside it.
    #[cold]
    pub(super) fn outlast(&mut self, index: StreamIndex, reason: ResetReason, now: Instant) {
        self.blame_host(index, reason);
        let Some(stream) = self.streams.get_mut(index) else { return };
        let UpstreamState::Active(_) = stream.upstream else { return };
        stream.retries.tried.get_or_insert_default().is_late = true;
        if reason == ResetReason::PerTryIdleTimeout || stream.is_unanswered() {
            stream.recorder.note_late_attempt(reason);
        }
        if !stream.is_unanswered() || stream.retries.hedging != Hedging::Begins {
            return;
        }
        let before = stream.upstream;
        if !self.retry(index, reason, true, now) {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        let limit = self.upstreams.clusters.get(stream.cluster);
        let limit = limit.and_then(|cluster| cluster.config.max_stream_duration);
        let limit = stream.longest_attempt(limit);
        let first_sent = stream.times.upstream_first_sent;
        let beside = Beside {
            upstream: before,
            pool_key: stream.retries.pool_key,
            reused: stream.reused,
            sent_before: stream.retries.sent_before,
            received_before: stream.retries.received_before,
            first_sent,
            is_late: true,
            ends: first_sent.zip(limit).map(|(began, limit)| began + limit),
            recorded: stream.recorder.keep_attempt(),
        };
        let tried: &mut Tried = stream.retries.tried.get_or_insert_default();
        tried.is_late = false;
        tried.beside.push(beside);
        self.watch_beside(index);
    }

    /// Sees to it that an earlier attempt ends when its cluster wants it to.
    pub(super) fn watch_beside(&mut self, index: StreamIndex) {
        let first = self.streams.get(index).and_then(|stream| stream.retries.first_end());
        if let Some(first) = first {
            self.set_timer(index, HttpTimer::Attempt, first);
        }
    }

    /// Whether an earlier attempt is over as its cluster wants it, and with it the request, as in Envoy.
    #[cold]
    pub(super) fn end_long_beside(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        if stream.retries.first_end().is_none_or(|end| end > now) {
            return false;
        }
        if let Some(cluster) = self.upstreams.clusters.get(stream.cluster) {
            cluster.stats.upstream_rq_max_duration_reached.inc();
        }
        mark(stream, ResetReason::MaxStreamDuration);
        self.reply_for(index, ResetReason::MaxStreamDuration, now);
        true
    }

    /// The head of an answer to an earlier attempt: it is passed on, unless it would be tried again and something else
    /// may still bring a better one.
    #[cold]
    pub(super) fn on_answer_beside(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        head: Head,
        end: bool,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(mut beside) = stream.take_beside(|it| it.upstream == UpstreamState::Active(leg))
        else {
            return self.env.heads.give(head);
        };
        stream.response.put(head, &mut self.env.heads);
        if stream.awaits_another() && stream.is_unwanted() {
            stream.swap(&mut beside);
            if let Some(pool_key) = stream.retries.pool_key {
                note_answer(stream, pool_key, &mut self.upstreams, &mut self.env, now);
            }
            self.give_up_answer(index, leg, now);
            if let Some(stream) = self.streams.get_mut(index) {
                stream.swap(&mut beside);
            }
            return self.watch_beside(index);
        }
        let head = stream.response.take();
        self.prefer(index, beside, now);
        self.on_response_head(index, leg, head, end, now);
    }

    /// Whether an answer to the latest attempt, which is not tried again, is given up for what earlier ones may bring.
    /// If not, those are reset.
    #[cold]
    pub(super) fn leave_to_beside(&mut self, index: StreamIndex, leg: Leg, now: Instant) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        if !stream.retries.is_hedged() {
            return false;
        }
        if !stream.is_unwanted() {
            self.give_up_beside(index, now);
            return false;
        }
        stream.upstream = UpstreamState::None;
        stream.times.upstream_first_received = None;
        stream.clear_attempt_timers();
        self.give_up_answer(index, leg, now);
        self.watch_beside(index);
        true
    }

    /// The latest attempt is answered well. Whether it is a retry counts, not whether it still counts as one: it may
    /// have been refused a further one since. Where the policy `is_judged` to want none, that is counted already.
    #[cold]
    pub(super) fn settle_hedged(&mut self, index: StreamIndex, is_judged: bool) {
        self.release_retry(index);
        let Some(stream) = self.streams.get(index).filter(|_| !is_judged) else { return };
        if let Some(pool_key) = stream.hedged_key() {
            stream.count(|stats| stats.upstream_rq_retry_success.inc());
            self.upstreams.count_retry_success(pool_key);
        }
    }

    /// Leaves an answer that is in its place.
    fn give_up_answer(&mut self, index: StreamIndex, leg: Leg, now: Instant) {
        if let Some(stream) = self.streams.get_mut(index)
            && let Some(head) = stream.response.present()
        {
            stream.recorder.count_given_up(head);
        }
        self.leave_answer(index, leg, now);
        if let Some(stream) = self.streams.get_mut(index) {
            stream.response.clear(&mut self.env.heads);
            stream.times.upstream_first_received = None;
        }
    }

    /// An interim response has come for an attempt: as in Envoy it is the one that is waited for.
    #[cold]
    pub(super) fn prefer_for_interim(&mut self, index: StreamIndex, leg: Leg, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        match stream.take_beside(|it| it.upstream == UpstreamState::Active(leg)) {
            Some(beside) => self.prefer(index, beside, now),
            None => self.give_up_beside(index, now),
        }
        self.release_retry(index);
        if let Some(stream) = self.streams.get_mut(index) {
            stream.retries.close();
        }
    }

    /// An attempt on a connection that is lost has failed, if the stream still has one there.
    pub(super) fn reset_on(
        &mut self,
        index: StreamIndex,
        id: ConnectionId,
        reason: ResetReason,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        match stream.take_beside(|it| it.is_on(id)) {
            Some(beside) => self.lose_beside(index, beside, reason, now),
            None => match stream.upstream {
                UpstreamState::Active(leg) if leg.connection == id => {
                    self.reset_upstream(index, reason, now);
                }
                UpstreamState::Active(_)
                | UpstreamState::None
                | UpstreamState::Pending(_)
                | UpstreamState::BackingOff => {}
            },
        }
    }

    /// The same of one that its server has reset.
    pub(super) fn reset_leg(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        reason: ResetReason,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        match stream.take_beside(|it| it.upstream == UpstreamState::Active(leg)) {
            Some(beside) => self.lose_beside(index, beside, reason, now),
            None => self.reset_upstream(index, reason, now),
        }
    }

    /// An earlier attempt has failed. If it was the last one that could be answered, so has the request.
    #[cold]
    fn lose_beside(
        &mut self,
        index: StreamIndex,
        mut beside: Beside,
        reason: ResetReason,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let goes_on = stream.awaits_another();
        stream.swap(&mut beside);
        self.blame_host(index, reason);
        self.end_try_span(index, TryEnd::Reset(reason), now);
        self.sever_latest(index, now);
        if goes_on {
            self.charge_reset(index, reason);
            if let Some(stream) = self.streams.get_mut(index) {
                stream.swap(&mut beside);
            }
            return self.watch_beside(index);
        }
        if let Some(stream) = self.streams.get_mut(index) {
            mark(stream, reason);
            self.reply_for(index, reason, now);
        }
    }

    /// Counts an attempt that failed where others go on.
    pub(super) fn charge_reset(&mut self, index: StreamIndex, reason: ResetReason) {
        self.charge(index, if reason == ResetReason::Protocol { 502 } else { 503 });
    }

    /// The route's time is over for the earlier attempts too.
    #[cold]
    pub(super) fn time_out_beside(&mut self, index: StreamIndex, now: Instant) {
        let Some((status, _)) = self.streams.get(index).map(Stream::late_reply) else { return };
        self.each_beside(index, now, |exchange| {
            exchange.count_timeout(index, |stats| &stats.upstream_rq_timeout);
            exchange.charge(index, status);
            exchange.outlast_measured(index);
        });
    }

    /// Resets the earlier attempts: another one is answered, or the request is over.
    #[cold]
    pub(super) fn give_up_beside(&mut self, index: StreamIndex, now: Instant) {
        self.give_up(index, true);
        self.each_beside(index, now, |_| {});
        self.give_up(index, false);
    }

    /// Takes each of the earlier attempts off its connection, after `tell`.
    fn each_beside(&mut self, index: StreamIndex, now: Instant, mut tell: impl FnMut(&mut Self)) {
        while let Some(stream) = self.streams.get_mut(index)
            && let Some(mut beside) = stream.take_beside(|_| true)
        {
            stream.swap(&mut beside);
            tell(self);
            self.end_try_span(index, TryEnd::Given, now);
            self.sever_latest(index, now);
            if let Some(stream) = self.streams.get_mut(index) {
                stream.swap(&mut beside);
            }
        }
    }

    /// Makes an earlier attempt the only one.
    fn prefer(&mut self, index: StreamIndex, mut beside: Beside, now: Instant) {
        self.end_waiting(index);
        self.give_up_beside(index, now);
        self.give_up(index, true);
        self.detach_latest(index, Close::Abort, now);
        self.give_up(index, false);
        self.release_retry(index);
        let Some(stream) = self.streams.get_mut(index) else { return };
        let ends = beside.ends;
        stream.swap(&mut beside);
        stream.recorder.exchange_attempted(beside.recorded.as_deref());
        stream.retries.close();
        if let Some(ends) = ends {
            self.set_timer(index, HttpTimer::Attempt, ends);
        }
    }

    fn sever_latest(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if let UpstreamState::Active(leg) =
            std::mem::replace(&mut stream.upstream, UpstreamState::None)
        {
            self.sever(index, leg, Close::Abort, now);
        }
    }

    /// Whether what is taken off its host from now on was not needed.
    fn give_up(&mut self, index: StreamIndex, is_given_up: bool) {
        let stream = self.streams.get_mut(index);
        if let Some(tried) = stream.and_then(|stream| stream.retries.tried.as_deref_mut()) {
            tried.is_given_up = is_given_up;
        }
    }
}

impl Stream {
    /// Whether the answer that is in its place is one that the policy tries again, if it may.
    fn is_unwanted(&self) -> bool {
        let (status, objection) = (self.response_status(), self.objection());
        let reason = objection.unwrap_or(ResetReason::Status(status));
        (status >= 400 || objection.is_some())
            && self.response.get(Name::XEnvoyOverloaded).is_none()
            && self.retries.wants(self.retry_policy(), reason, true)
    }
}
