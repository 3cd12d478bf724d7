//! Whether an app's request is sent again, and where.
//!
//! Arrives: an attempt that failed, a connection that does not move, a standby one that is usable. Leaves: the stream
//! placed again, moved, or ended.
//!
//! Nothing whose bytes may have been processed is repeated, unless its method or its key allows it (RFC 9110 §9.2.2).
//! Every repetition but one spends a token of the engine's budget: the exception is a reused connection that its
//! server was closing as we used it.
//!
//! A connection is suspected on the kernel's evidence: bytes that are not acknowledged. Where all is acknowledged and
//! no answer comes, the server may be slow or its answer lost; a standby connection tells them apart. If it is usable
//! at once the network is well, and the request stays where it is; if it had to wait, so had everything else. Then it
//! is sent anew beside the one that is out, for the server's kernel may be about to repeat the answer: the first one
//! counts.

use std::time::Duration;

use towpath_proto::{ConnectionId, Instant, Output, PathFacts};

use crate::client::progress;
use crate::client::progress::Liveness;
use crate::conn::spans::Phase;
use crate::exchange::Exchange;
use crate::exchange::app::liveness::QUIET;
use crate::exchange::stream::UpstreamState;
use crate::exchange::timers::AppTimer;
use crate::ids::{Kind, Leg, PoolKey, ResetReason, StreamIndex};
use crate::local::message::{Error, Layer};
use crate::local::{Call, Standby, StandbyReason};

impl Exchange {
    /// The upstream side of an app's stream is over before its response was; the stream has left it.
    pub(crate) fn reset_call(
        &mut self,
        index: StreamIndex,
        reason: ResetReason,
        silent: bool,
        request_sent: bool,
        leaves: bool,
        now: Instant,
    ) {
        self.note_trouble(index, reason);
        let Some(stream) = self.streams.get(index) else { return };
        let (unanswered, whole) = (stream.is_unanswered(), stream.body.whole);
        // RFC 9113 §8.7: what is refused was not processed.
        let refused = reason == ResetReason::Refused;
        let may_repeat =
            unanswered && whole && (!request_sent || refused || stream.retries.repeatable);
        let standby = self.call_mut(index).and_then(|call| call.standby.take());
        if let Some(standby) = standby {
            if may_repeat {
                return self.wait_for_standby(index, standby, now);
            }
            self.upstreams.leave_queue(index, standby.pool_key);
        }
        if silent && (!refused || self.is_again_at_once(index, leaves)) {
            return self.place_again(index, !refused, now);
        }
        let error = self.error_of(index, reason);
        let left = self.streams.get(index).is_some_and(|stream| stream.retries.remaining > 0);
        if self.call(index).is_some_and(|call| call.duplicate.is_some()) {
            // The duplicate goes on.
            return self.fail_call(index, error, now);
        }
        let again = if unanswered { may_repeat && left } else { self.may_resume(index) };
        let worth = matches!(
            reason,
            ResetReason::Terminated
                | ResetReason::Reset
                | ResetReason::StreamReset
                | ResetReason::Refused
                | ResetReason::Protocol
                | ResetReason::PerTryTimeout
                | ResetReason::PerTryIdleTimeout
        );
        if !(again && worth && self.upstreams.app.budget.spend()) {
            return self.fail_call(index, error, now);
        }
        if !unanswered {
            self.ask_for_rest(index, error, now);
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.retries.remaining = stream.retries.remaining.saturating_sub(1);
        stream.retries.done += 1;
        stream.retries.wants_fresh |= !refused;
        stream.upstream = UpstreamState::BackingOff;
        stream.trace_phase(Phase::BackOff);
        let bound = FIRST_BACK_OFF.saturating_mul(1 << stream.retries.done.min(10)).min(LONGEST);
        if let Some(call) = self.call_mut(index) {
            call.report.retries += 1;
            call.report.fired = None;
        }
        let most = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        let wait = Duration::from_nanos(self.env.random.below(most));
        self.set_timer(index, AppTimer::BackOff, now + wait);
    }

    /// It was on its way to a standby connection already: it waits for that one alone.
    pub(crate) fn wait_for_standby(&mut self, index: StreamIndex, standby: Standby, now: Instant) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.upstream = UpstreamState::Pending(standby.pool_key);
            stream.retries.wants_fresh = true;
            stream.trace_phase(Phase::PoolWait);
        }
        if let Some(call) = self.call_mut(index) {
            call.report.redone += 1;
        }
        self.upstreams.advance_origin(
            standby.pool_key.cluster,
            &mut self.conns,
            &mut self.env,
            now,
        );
    }

    /// Whether what was refused is sent again at once: once where the server has too much to do, more often where it
    /// `leaves` its connection and another will take it.
    fn is_again_at_once(&mut self, index: StreamIndex, leaves: bool) -> bool {
        let Some(call) = self.call_mut(index) else { return false };
        call.refused += 1;
        call.refused <= if leaves { MOST_LEAVING } else { 1 }
    }

    /// Sends it at once, where its connection has failed it on a `fresh` one.
    pub(crate) fn place_again(&mut self, index: StreamIndex, fresh: bool, now: Instant) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.retries.wants_fresh |= fresh;
        }
        if let Some(call) = self.call_mut(index) {
            call.report.retries += 1;
        }
        self.place_call(index, now);
    }

    pub(crate) fn note_trouble(&mut self, index: StreamIndex, reason: ResetReason) {
        let Some(call) = self.call_mut(index) else { return };
        if let Some(last) = call.report.tries.last_mut().filter(|last| last.reset_reason.is_empty())
        {
            last.reset_reason = reason.reset().reason();
        }
    }

    pub(crate) fn error_of(&self, index: StreamIndex, reason: ResetReason) -> Error {
        match reason {
            ResetReason::Connect(failure) => Error::Connect(failure),
            ResetReason::ConnectTimeout => Error::Connect(towpath_proto::Failure::TimedOut),
            ResetReason::Tls(fault) => Error::Tls(fault),
            ResetReason::Terminated
            | ResetReason::Reset
            | ResetReason::StreamReset
            | ResetReason::Refused => Error::Disconnected,
            ResetReason::Protocol => Error::Protocol,
            ResetReason::PerTryTimeout | ResetReason::PerTryIdleTimeout => {
                let fired = self.call(index).and_then(|call| call.report.fired);
                Error::TimedOut(fired.unwrap_or(Layer::FirstByte))
            }
            ResetReason::MaxStreamDuration
            | ResetReason::Overflow
            | ResetReason::NoHost
            | ResetReason::ClusterGone
            | ResetReason::RateLimited
            | ResetReason::Headers
            | ResetReason::Status(_)
            | ResetReason::GrpcStatus(_) => Error::Overflow,
        }
    }

    pub(crate) fn watch(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let UpstreamState::Active(Leg { connection, .. }) = stream.upstream else { return };
        if stream.is_unanswered() {
            self.check_contact(index, connection, QUIET, now);
            self.inspect(connection);
        } else if self.call(index).is_some_and(|call| call.resume.is_some()) {
            self.watch_response(index, now);
        } else {
            self.keep_alive(index, connection, now);
        }
    }

    /// Asks the kernel what it knows of a connection: once for all that are on it.
    fn inspect(&mut self, id: ConnectionId) {
        let contact = self.conns.table.get_mut(id).and_then(|it| it.contact_mut());
        if contact.is_some_and(|contact| std::mem::replace(&mut contact.inspecting, true)) {
            return;
        }
        self.conns.push(Output::Inspect { connection: id }, &mut self.env);
    }

    /// What the kernel knows of a connection.
    pub(crate) fn on_inspected(
        &mut self,
        id: ConnectionId,
        facts: Option<PathFacts>,
        now: Instant,
    ) {
        if let Some(contact) = self.conns.table.get_mut(id).and_then(|it| it.contact_mut()) {
            contact.inspecting = false;
        }
        let on = self.conns.table.get(id).map(|connection| connection.streams.all());
        for index in on.unwrap_or_default() {
            self.judge_path(index, id, facts, now);
        }
    }

    /// What the kernel knows of the connection that a request is on.
    fn judge_path(
        &mut self,
        index: StreamIndex,
        id: ConnectionId,
        facts: Option<PathFacts>,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get(index) else { return };
        if stream.kind != Kind::App || !stream.is_unanswered() {
            return;
        }
        let began = stream.times.upstream_first_sent.unwrap_or(now);
        let uploads = stream.recorder.record().bytes_received > 0;
        if uploads {
            self.follow_upload(index, id, facts.as_ref(), now);
        }
        let soon = facts.and_then(|facts| self.pace(index, &facts, now));
        let liveness =
            facts.map_or(Liveness::Fine(now + AGAIN), |facts| progress::judge(&facts, began, now));
        match liveness {
            Liveness::Suspect(_) => {
                if let Some(upstream) =
                    self.conns.table.get_mut(id).and_then(|connection| connection.upstream_mut())
                {
                    upstream.retired = true;
                }
                self.move_streams(id, StandbyReason::Stuck, now);
                self.watch_at(index, now + AGAIN);
            }
            Liveness::Fine(again) => {
                // A PING tells more where there is one.
                let has_ping = self.conns.table.get(id).is_some_and(|it| it.contact().is_some());
                if !has_ping && now - began >= SILENT_AFTER {
                    self.want_standby(index, StandbyReason::Silent, now);
                }
                let again = if uploads { again.min(now + AGAIN) } else { again };
                let again = again.max(now + SOONEST);
                self.watch_at(index, soon.map_or(again, |soon| again.min(now + soon)));
            }
        }
    }

    /// Asks for a connection to move a request to, where it may be repeated.
    pub(crate) fn want_standby(&mut self, index: StreamIndex, reason: StandbyReason, now: Instant) {
        if self.may_have_standby(index, reason, now) && self.upstreams.app.budget.spend() {
            self.begin_standby(index, reason, now);
        }
    }

    /// Whether a request is to ask for one. One that has asked already has another reason.
    pub(crate) fn may_have_standby(
        &mut self,
        index: StreamIndex,
        reason: StandbyReason,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        let UpstreamState::Active(_) = stream.upstream else { return false };
        let repeats = stream.is_unanswered()
            && stream.body.whole
            && stream.retries.repeatable
            && !self.conns.response_has_begun(stream);
        let movable = repeats || self.may_resume(index);
        let Some(call) = self.call_mut(index) else { return false };
        if let Some(standby) = &mut call.standby {
            if reason == StandbyReason::Stuck {
                standby.reason = reason;
            }
            return false;
        }
        // One that is the secondary request has a better one beside it.
        let asked_before = (call.silent_asked || call.secondary) && reason == StandbyReason::Silent;
        movable && !asked_before && !self.is_resting(index, now)
    }

    pub(crate) fn begin_standby(
        &mut self,
        index: StreamIndex,
        reason: StandbyReason,
        now: Instant,
    ) {
        // Its own origin's, whosever connection it is on.
        let Some(cluster) = self.streams.get(index).map(|stream| stream.cluster) else { return };
        let pool_key = PoolKey { cluster, pool: 0 };
        if let Some(call) = self.call_mut(index) {
            call.standby = Some(Standby { pool_key, since: now, reason });
            call.silent_asked |= reason == StandbyReason::Silent;
        }
        let turn = self.place_in_queue(index, pool_key);
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else { return };
        cluster.joined_queue(pool_key);
        if let (Some(pool), Some(turn)) = (cluster.pool_mut(pool_key), turn) {
            pool.pending.insert(turn, index);
        }
        if let Some(stream) = self.streams.get_mut(index) {
            // Another that lies idle may be as dead as the one it is on.
            stream.retries.wants_fresh = true;
        }
        self.upstreams.race_for(pool_key.cluster, &mut self.conns, &mut self.env, now);
    }

    /// Whether a request waits where it is because no other connection can be had.
    pub(crate) fn finds_no_network(&self, index: StreamIndex, now: Instant) -> bool {
        let standby = self.call(index).and_then(|call| call.standby);
        standby.is_some_and(|it| it.reason != StandbyReason::Stuck && now - it.since >= OUT_AFTER)
    }

    /// A standby connection is usable: what goes there, the request that asked for it, its repetition, or nothing.
    pub(crate) fn takes_standby(
        &mut self,
        index: StreamIndex,
        now: Instant,
    ) -> Option<StreamIndex> {
        let is_on = self
            .streams
            .get(index)
            .is_some_and(|stream| matches!(stream.upstream, UpstreamState::Active(_)));
        if !is_on {
            return Some(index);
        }
        let has_moved = self.has_moved(index);
        let (resumes, unanswered) = (
            self.may_resume(index),
            self.streams.get(index).is_some_and(|stream| stream.is_unanswered()),
        );
        let Some(call) = self.call_mut(index) else { return Some(index) };
        let standby = call.standby.take()?;
        let moves = (unanswered || resumes)
            && match standby.reason {
                StandbyReason::Stuck | StandbyReason::Unanswered => true,
                StandbyReason::Silent => now - standby.since >= OUT_AFTER && !has_moved,
            };
        if !moves {
            return None;
        }
        call.report.redone += 1;
        call.waited_until = Some(now);
        if standby.reason == StandbyReason::Silent
            && let Some(again) = self.begin_beside(index, now)
        {
            return Some(again);
        }
        if let Some(last) = self.call_mut(index).and_then(|call| call.report.tries.last_mut()) {
            last.reset_reason = match standby.reason {
                StandbyReason::Stuck => "nothing was acknowledged",
                StandbyReason::Unanswered => "a PING was not answered",
                StandbyReason::Silent => "the network was away",
            };
        }
        if standby.reason == StandbyReason::Unanswered
            && let Some((_, upstream)) = self.upstream_of(index)
        {
            upstream.retired = true;
        }
        if !unanswered {
            self.ask_for_rest(index, Error::Disconnected, now);
        }
        Some(index)
    }

    /// The request needs no other connection any more.
    pub(crate) fn withdraw_standby(&mut self, index: StreamIndex) {
        let standby = self.call_mut(index).and_then(|call: &mut Call| call.standby.take());
        if let Some(standby) = standby {
            self.upstreams.leave_queue(index, standby.pool_key);
        }
    }
}

/// Servers that leave their connections one after the other, before a request has its retries for them.
const MOST_LEAVING: u32 = 8;

/// The first wait before another attempt, doubled for each; the wait is drawn below it.
pub(crate) const FIRST_BACK_OFF: Duration = Duration::from_millis(50);

pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// How long to let a suspected connection be before it is looked at again.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

pub(crate) const SOONEST: Duration = Duration::from_millis(100);

/// No answer for so long, though all is acknowledged: a standby is opened to see whether the network is there.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(2);

/// A standby that took so long to connect says that there was no network.
pub(crate) const OUT_AFTER: Duration = Duration::from_secs(1);
