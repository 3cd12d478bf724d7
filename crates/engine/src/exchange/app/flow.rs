//! What an app's connection over a long path has under way: little at first.
//!
//! Arrives: a connection that took long to make, pieces of responses, looks at bodies on their way. Leaves: bounds for
//! the driver, as [`SlowStart`] wants them, each with a note in the report.

use std::time::Duration;

use towpath_proto::{ConnectionId, FlowLimit, Instant, Output, PathFacts};

use crate::client::slow_start::{SlowStart, WINDOW};
use crate::conn::mux::Mux;
use crate::conn::{Connections, Upstream};
use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::stream::UpstreamState;
use crate::ids::{Leg, StreamIndex};
use crate::local::INITIAL_WINDOW_BYTES;
use crate::local::report::{Limited, Widened};

impl Exchange {
    /// A request was given to a connection: when to look at its body, if that is to be looked after.
    pub(crate) fn begin_body(&mut self, index: StreamIndex, now: Instant) -> Option<Duration> {
        let (id, upstream) = self.upstream_of(index)?;
        let requests = upstream.requests;
        // One that lost its race has waited, and has had none; one that many share may be amid its first.
        let is_first = requests == 1 || self.conns.table.get(id)?.streams.len() > 1;
        let (_, upstream) = self.upstream_of(index)?;
        let state = upstream.slow_start()?;
        let was_paced = state.begin_body();
        // What the server has learned of the path in slow start it knows at the second response.
        let (is_held, is_released) = (state.is_held(), !is_first && state.release());
        let round_trip = state.round_trip();
        if was_paced {
            self.limit_flow(index, id, FlowLimit::Send(None), now);
        }
        if is_released {
            self.limit_flow(index, id, FlowLimit::Receive(None), now);
        } else if is_held {
            self.note_limit(index, FlowLimit::Receive(Some(WINDOW)), now);
        }
        self.is_large_upload(index).then_some(round_trip)
    }

    /// A piece of a body of unknown length was sent: whether it is to be looked after begins to matter.
    pub(crate) fn extend_body(&mut self, index: StreamIndex, bytes: usize, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let so_far = stream.recorder.record().bytes_received;
        let before = so_far.saturating_sub(bytes as u64);
        let crosses = before <= INITIAL_WINDOW_BYTES && so_far > INITIAL_WINDOW_BYTES;
        if !crosses || self.is_large_upload(index) {
            return;
        }
        if let Some((_, state)) = self.slow_start(index) {
            let first_look = now + state.round_trip();
            self.watch_at(index, first_look);
        }
    }

    /// A piece of a response has come for the app.
    pub(crate) fn receive_piece(&mut self, index: Option<StreamIndex>, bytes: usize, now: Instant) {
        let upstream = index.and_then(|index| self.streams.get(index)).map(|it| it.upstream);
        let Some(UpstreamState::Active(Leg { connection: id, .. })) = upstream else { return };
        self.widen(index, id, bytes, now);
        // What is in a record comes when the whole record is there: its bytes are counted before that.
        if self.conns.table.get(id).is_some_and(|connection| connection.tls.is_none()) {
            self.receive_slowly(id, bytes, now);
        }
    }

    /// A piece has come over a connection that many share: whether its windows hold the path up.
    fn widen(&mut self, index: Option<StreamIndex>, id: ConnectionId, bytes: usize, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let wider = connection.contact_mut().and_then(|it| it.window.receive(bytes, now));
        let (Some(bytes), Mux::Http2(http2)) = (wider, &mut connection.mux) else { return };
        http2.widen(bytes);
        if let Some(call) = index.and_then(|index| self.call_mut(index))
            && call.report.widened.len() < MOST_NOTES
        {
            call.report.widened.push(Widened { at: now, bytes });
        }
    }

    /// Bytes have come over a connection.
    pub(crate) fn receive_slowly(&mut self, id: ConnectionId, bytes: usize, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let index = connection.streams.only();
        let state = connection.upstream_mut().and_then(|upstream| upstream.slow_start());
        if !state.is_some_and(|state| state.receive(bytes, now)) {
            return;
        }
        let limit = FlowLimit::Receive(None);
        self.conns.push(Output::LimitFlow { connection: id, limit }, &mut self.env);
        if let Some(index) = index {
            self.note_limit(index, limit, now);
        }
    }

    /// What the kernel says of a connection on which a request is; answers when to look again, where that is sooner
    /// than otherwise.
    pub(crate) fn pace(
        &mut self,
        index: StreamIndex,
        facts: &PathFacts,
        now: Instant,
    ) -> Option<Duration> {
        let is_large = self
            .streams
            .get(index)
            .is_some_and(|stream| stream.recorder.record().bytes_received > INITIAL_WINDOW_BYTES);
        let (id, state) = self.slow_start(index)?;
        let limit = if is_large { state.judge(facts) } else { None };
        let soon = state.look_after(facts).filter(|_| is_large);
        if let Some(limit) = limit {
            self.limit_flow(index, id, limit, now);
        }
        soon
    }

    pub(crate) fn limit_flow(
        &mut self,
        index: StreamIndex,
        id: ConnectionId,
        limit: FlowLimit,
        now: Instant,
    ) {
        self.conns.push(Output::LimitFlow { connection: id, limit }, &mut self.env);
        self.note_limit(index, limit, now);
    }

    pub(crate) fn note_limit(&mut self, index: StreamIndex, limit: FlowLimit, at: Instant) {
        let Some(call) = self.call_mut(index) else { return };
        let notes = &mut call.report.limits;
        // A pace follows what the path delivers: the first says enough.
        let repeats = matches!(
            (notes.last().map(|note: &Limited| note.limit), limit),
            (Some(FlowLimit::Send(Some(_))), FlowLimit::Send(Some(_)))
        );
        if !repeats && notes.len() < MOST_NOTES {
            notes.push(Limited { at, limit });
        }
    }

    pub(crate) fn slow_start(
        &mut self,
        index: StreamIndex,
    ) -> Option<(ConnectionId, &mut SlowStart)> {
        let (id, upstream) = self.upstream_of(index)?;
        Some((id, upstream.slow_start()?))
    }

    pub(crate) fn upstream_of(
        &mut self,
        index: StreamIndex,
    ) -> Option<(ConnectionId, &mut Upstream)> {
        let UpstreamState::Active(leg) = self.streams.get(index)?.upstream else { return None };
        let id = leg.connection;
        Some((id, self.conns.table.get_mut(id)?.upstream_mut()?))
    }
}

impl Connections {
    /// A connection to an origin took so long to make.
    pub(crate) fn begin_slowly(
        &mut self,
        id: ConnectionId,
        took: Duration,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(state) = SlowStart::new(took, now) else { return };
        let upstream = self.table.get_mut(id).and_then(|it| it.upstream_mut());
        let Some(upstream) = upstream else { return };
        upstream.app.get_or_insert_default().slow_start = Some(state);
        let limit = FlowLimit::Receive(Some(WINDOW));
        self.push(Output::LimitFlow { connection: id, limit }, env);
    }
}

/// Bounds that are remembered for a report.
pub(crate) const MOST_NOTES: usize = 32;
