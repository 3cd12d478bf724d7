//! The one forwarding loop: from a connection's mux to the mux at the stream's other side.
//!
//! Arrives: a connection that has received something. Leaves: the same heads, data and ends, encoded for the other
//! connection, and the decision whether both are read on.
//!
//! Every protocol and both directions go through [`Exchange::pump`] and [`Exchange::forward`]. Only heads take a detour
//! (routing in one direction, response handling in the other). Bodies never wait here except where there is
//! nowhere to go yet: they are bounded by not reading the connection that they come from.

use bytes::Bytes;
use towpath_proto::head::{Head, Underscored};
use towpath_proto::{Close, ConnectionId, Event, Instant, Output};

use crate::conn::mux::{Arrival, Mux, Part, Violation};
use crate::conn::{Connection, ConnectionTimer, Reading, Role};
use crate::exchange::Exchange;
use crate::exchange::load::note_load;
use crate::exchange::rpc::Bridging;
use crate::exchange::stream::{Progress, Stream, Upgrade, UpstreamState};
use crate::exchange::tunneling::keep_trailers;
use crate::filter::Direction;
use crate::grpc;
use crate::ids::{Kind, Leg, ResetReason, Side, StreamIndex};
use crate::record::{Flags, details};
use crate::upstream::Congestion;

/// What goes from one side to the other after the head.
#[derive(Debug)]
pub(crate) enum Item {
    Data(Bytes),
    Trailers(Head),
    End,
}

/// Counts fields with an underscore in their names.
#[cold]
fn count_underscored(connection: &Connection, underscored: Underscored) {
    let http = connection.downstream().and_then(|downstream| downstream.context.http());
    let Some(http) = http else { return };
    let Underscored { dropped, rejected } = underscored;
    let (all_dropped, all_rejected) = match (&http.http1_stats, &http.http2_stats) {
        (_, Some(stats)) if connection.mux.is_http2() => (
            &stats.dropped_headers_with_underscores,
            &stats.requests_rejected_with_underscores_in_headers,
        ),
        (Some(stats), _) => (
            &stats.dropped_headers_with_underscores,
            &stats.requests_rejected_with_underscores_in_headers,
        ),
        (None, _) => return,
    };
    all_dropped.add(dropped.into());
    all_rejected.add(rejected.into());
}

impl Exchange {
    /// Parses what a connection has received and forwards it.
    pub(crate) fn pump(&mut self, id: ConnectionId, now: Instant) {
        loop {
            let Some(connection) = self.conns.table.get_mut(id) else { return };
            if !connection.has_share(self.env.round) {
                if !std::mem::replace(&mut connection.put_off, true) {
                    self.env.put_off.push(id);
                }
                break;
            }
            let side = match &connection.role {
                Role::Downstream(_) => Side::Request,
                Role::Upstream(_) => Side::Response,
                Role::Arriving(_) | Role::Closing(_) => return,
            };
            if side == Side::Request && connection.may_begin() {
                if connection.is_full() {
                    connection.mux.hold_back();
                    break;
                }
                connection.trace_head();
            }
            let polled = connection.mux.poll(&mut self.env.heads);
            if let Some(underscored) = self.env.heads.take_underscored() {
                count_underscored(connection, underscored);
            }
            let (number, arrival) = match polled {
                Ok(Some(arrived)) => arrived,
                Ok(None) => break,
                Err(violation) => return self.on_violation(id, side, violation, now),
            };
            let leg = Leg { connection: id, number };
            let stream = connection.streams.get(number);
            match arrival {
                Arrival::Part(Event::Head { head, end }) => {
                    // Where it is the whole message, nothing else comes before what it leads to.
                    let is_last = end && connection.mux.is_alone();
                    match (side, stream) {
                        (Side::Request, _) => self.on_request_head(leg, head, end, now),
                        (Side::Response, Some(stream)) => {
                            self.on_response_head(stream, leg, head, end, now)
                        }
                        // It was not asked for.
                        (Side::Response, None) => self.close_upstream(id, Close::Abort, now),
                    }
                    if is_last {
                        break;
                    }
                }
                Arrival::Whole(frame) => match (side, stream) {
                    (Side::Request, _) => self.on_call(leg, frame, now),
                    (Side::Response, Some(stream)) => self.on_answer(stream, frame, now),
                    (Side::Response, None) => {}
                },
                Arrival::Part(Event::Data(chunk)) => {
                    let Some(stream) = stream else {
                        self.answer_bytes(id, chunk, now);
                        continue;
                    };
                    let has_windows = connection.mux.has_windows();
                    let (is_last, is_alone) =
                        (connection.mux.take_end(), connection.mux.is_alone());
                    if is_last {
                        self.forward_last(stream, side, chunk, leg, now);
                    } else {
                        self.forward(stream, side, Item::Data(chunk), now);
                        if side == Side::Response {
                            self.streams.give_heads_back(stream, &mut self.env.heads);
                        }
                    }
                    if has_windows {
                        self.take_more(stream, leg);
                    }
                    if is_last && is_alone {
                        break;
                    }
                }
                Arrival::Part(Event::End) => {
                    let Some(stream) = stream else {
                        self.end_answered(id, now);
                        continue;
                    };
                    self.forward(stream, side, Item::End, now);
                }
                Arrival::Part(Event::Trailers(head)) => {
                    let Some(stream) = stream else { continue };
                    self.forward(stream, side, Item::Trailers(head), now);
                }
                Arrival::Part(Event::Informational(head)) => {
                    let Some(stream) = stream else { continue };
                    self.on_informational(stream, leg, head, now);
                }
                Arrival::Reset { no_error } => {
                    let Some(stream) = stream else { continue };
                    self.on_reset(stream, leg, (side, no_error), now);
                }
                Arrival::Refused => {
                    let Some(stream) = stream else { continue };
                    self.reset_leg(stream, leg, ResetReason::Refused, now);
                }
                Arrival::Unread(why) => self.on_unread(id, why, now),
            }
        }
        self.after_events(id, now);
    }

    /// A connection brings nothing more for now.
    #[inline]
    fn after_events(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        if connection.mux.is_alone() {
            let is_amid_head = !connection.is_busy() && connection.mux.buffered() > 0;
            let other = self.other_reading(connection);
            if is_amid_head {
                self.conns.await_rest_of_head(id, &mut self.env, now);
            }
            if let Some(other) = other {
                self.change_reading(id, other);
            }
            return;
        }
        if matches!(connection.mux, Mux::Undecided(_)) {
            return self.decide_protocol(id, now);
        }
        self.conns.answer_at_once(id, &mut self.env);
        self.open_windows(id);
        self.end_if_through(id, now);
        self.conns.await_rest_of_head(id, &mut self.env, now);
        self.update_reading(id);
    }

    /// What arrived is not the protocol.
    #[cold]
    fn on_violation(&mut self, id: ConnectionId, side: Side, violation: Violation, now: Instant) {
        match (side, violation) {
            (Side::Response, violation) => self.on_response_error(id, &violation, now),
            (Side::Request, Violation::Http1(error)) => self.on_request_error(id, error, now),
            (Side::Request, Violation::Bolt(error)) => self.on_frame_error(id, error, now),
            (Side::Request, Violation::Http2(error)) => self.on_http2_error(id, error, now),
            #[cfg(test)]
            (Side::Request, Violation::Toy(_)) => self.cut_off(id, "toy.codec_error", now),
        }
    }

    /// Goes on with the connections that had more events than their share, and with handshakes that were put off.
    pub(crate) fn go_on(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.env.put_off) {
            let Some(connection) = self.conns.table.get_mut(id) else { continue };
            connection.put_off = false;
            self.pump(id, now);
        }
        self.go_on_with_handshakes(now);
    }

    /// Passes one piece of a stream to its other side.
    pub(crate) fn forward(&mut self, index: StreamIndex, side: Side, item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.touch(index, now, &mut self.env.timers);
        if side == Side::Response {
            stream.touch_try(index, now, &mut self.env.timers);
        }
        account(stream, side, &item, now);
        // What a tunnel carries is bytes (RFC 9113 §8.5).
        let mut item = match item {
            Item::Trailers(trailers) if stream.upgrade == Upgrade::Done => {
                keep_trailers(stream, &trailers);
                self.env.heads.give(trailers);
                Item::End
            }
            Item::Data(_) | Item::Trailers(_) | Item::End => item,
        };
        let stream = match &item {
            Item::Trailers(_) if side == Side::Response && stream.retries.is_filtered() => {
                self.filter_trailers_of_attempt(index, Direction::Response, &mut item, now);
                let Some(stream) = self.streams.get_mut(index) else { return };
                stream
            }
            Item::Data(_) | Item::Trailers(_) | Item::End => stream,
        };
        if stream.bridging != Bridging::None {
            return self.cross(index, side, item, now);
        }
        if stream.filters.is_some() {
            return self.filter_item(index, side, item, now);
        }
        self.pass(index, side, item, now);
    }

    /// Passes the last piece of a stream's body, and its end.
    #[inline(always)]
    fn forward_last(
        &mut self,
        index: StreamIndex,
        side: Side,
        chunk: Bytes,
        from: Leg,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let leaves_as_it_is = stream.bridging == Bridging::None
            && !matches!(stream.kind, Kind::App | Kind::Callout(_))
            && stream.upgrade != Upgrade::Done
            && stream.filters.is_none();
        if side == Side::Response && leaves_as_it_is {
            return self.end_response(index, chunk, now);
        }
        self.forward(index, side, Item::Data(chunk), now);
        let goes_on = |it: &Connection| it.streams.get(from.number) == Some(index);
        if self.conns.table.get(from.connection).is_some_and(goes_on) {
            self.forward(index, side, Item::End, now);
        }
    }

    /// The same of a response, which leaves as it came.
    fn end_response(&mut self, index: StreamIndex, chunk: Bytes, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let length = chunk.len() as u64;
        stream.recorder.note(|record| {
            record.bytes_sent += length;
            record.upstream_bytes_received += length;
            record.upstream_content_start.get_or_insert(now);
            record.upstream_last_received = Some(now);
        });
        stream.response_end = Progress::Ended;
        let Leg { connection: id, number } = stream.downstream;
        self.conns.encode_for(id, &mut self.env);
        if let Some(connection) = self.conns.table.get_mut(id) {
            connection.mux.send(number, Part::Data(chunk), &mut self.conns.out);
            connection.mux.send(number, Part::End, &mut self.conns.out);
        }
        self.on_response_ended(index, now);
    }

    /// Passes one piece on as it is.
    pub(crate) fn pass(&mut self, index: StreamIndex, side: Side, mut item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if matches!(stream.kind, Kind::Callout(_)) {
            return self.receive_callout(index, item, now);
        }
        let target = match (side, stream.upstream) {
            (Side::Response, _) => Some(stream.downstream),
            (Side::Request, UpstreamState::Active(leg)) if !stream.awaits_tunnel() => Some(leg),
            (
                Side::Request,
                UpstreamState::None
                | UpstreamState::Pending(_)
                | UpstreamState::BackingOff
                | UpstreamState::Active(_),
            ) => None,
        };
        let ends = !matches!(item, Item::Data(_));
        let is_shown = side == Side::Request && ends && target.is_some();
        let stream = if is_shown && stream.retries.is_filtered() {
            self.filter_trailers_of_attempt(index, Direction::Request, &mut item, now);
            let Some(stream) = self.streams.get_mut(index) else { return };
            stream
        } else {
            stream
        };
        match side {
            Side::Request => {
                if ends {
                    stream.request_end = Progress::Ended;
                }
                keep(stream, &item, target.is_none());
            }
            Side::Response if ends => {
                stream.response_end = Progress::Ended;
                if let Item::Trailers(trailers) = &item {
                    stream.trailers_status = grpc::status_of(trailers);
                    let tried = stream.retries.pool_key;
                    let clusters = &self.upstreams.clusters;
                    if let Some(tried) = tried.filter(|tried| clusters.reads_load(*tried)) {
                        note_load(stream, clusters, tried, Some(trailers), now);
                    }
                    if let Some(recording) = stream.recorder.recording_mut() {
                        recording.trailers = Some(trailers.clone());
                    }
                }
            }
            Side::Response => {}
        }
        if side == Side::Request && ends && target.is_some() {
            stream.trace_sent();
        }
        if let Some(target) = target {
            self.write(target, item, now);
        }
        if ends {
            match side {
                Side::Request => self.on_request_ended(index, now),
                Side::Response => self.on_response_ended(index, now),
            }
        } else if side == Side::Request && target.is_none() {
            self.hold_back(index);
            self.connect_on_data(index, now);
        }
    }

    /// Encodes one piece for a stream's end.
    pub(crate) fn write(&mut self, leg: Leg, item: Item, now: Instant) {
        let Leg { connection: id, number } = leg;
        self.conns.encode_for(id, &mut self.env);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if connection.mux.is_app() {
            return self.deliver(id, item, now);
        }
        let out = &mut self.conns.out;
        match item {
            Item::Data(chunk) => connection.mux.send(number, Part::Data(chunk), out),
            // Opaque bytes have none.
            Item::Trailers(head) if connection.mux.is_opaque() => {
                self.env.heads.give(head);
                self.write(leg, Item::End, now);
            }
            Item::Trailers(head) => {
                connection.mux.send(number, Part::Trailers(&head), out);
                self.env.heads.give(head);
            }
            Item::End => {
                connection.mux.send(number, Part::End, out);
                if connection.mux.is_opaque() {
                    connection.ended_last = connection.ended;
                    self.conns.send_close_notify(id, &mut self.env);
                    self.conns
                        .push(Output::Close { connection: id, how: Close::Half }, &mut self.env);
                }
            }
        }
    }

    /// More waits to leave a connection than its watermark: its other side is not read.
    pub(crate) fn on_backed_up(&mut self, id: ConnectionId) {
        self.upstreams.show_buffered(id, &mut self.conns);
        self.upstreams.count_congestion(id, Congestion::BackedUp, &mut self.conns);
        self.update_sources(id);
        self.pause_answered(id);
    }

    /// What is read for the streams of a connection goes on, or waits.
    pub(crate) fn update_sources(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let is_upstream = connection.upstream().is_some();
        let (only, others) = match connection.streams.len() {
            0 | 1 => (connection.streams.iter().next(), Vec::new()),
            _ => (None, connection.streams.all()),
        };
        for stream in only.into_iter().chain(others) {
            self.update_source(stream, is_upstream);
        }
    }

    /// What is read for one stream goes on, or waits, as its upstream or its downstream side has room.
    pub(crate) fn update_source(&mut self, index: StreamIndex, is_upstream: bool) {
        let Some(stream) = self.streams.get(index) else { return };
        if stream.filters.is_some() || matches!(stream.kind, Kind::Callout(_)) {
            self.update_talks(index, is_upstream);
            return self.update_own_source(index, is_upstream);
        }
        if let Some(source) = source_of(stream, is_upstream) {
            self.update_leg(index, source);
        }
    }

    /// The same without what filters of the stream talk by.
    pub(crate) fn update_own_source(&mut self, index: StreamIndex, is_upstream: bool) {
        let source = self.streams.get(index).and_then(|stream| source_of(stream, is_upstream));
        if let Some(source) = source {
            self.update_leg(index, source);
        }
    }

    fn update_leg(&mut self, index: StreamIndex, source: Leg) {
        if self.conns.table.get(source.connection).is_some_and(|it| it.mux.is_http2()) {
            self.conns.encode_for(source.connection, &mut self.env);
        }
        self.take_more(index, source);
        self.update_reading(source.connection);
    }

    /// Lets the peer of a stream that has a window of its own send more, if there is room for it.
    fn take_more(&mut self, index: StreamIndex, source: Leg) {
        let Some(connection) = self.conns.table.get(source.connection) else { return };
        if !connection.mux.has_windows() || connection.streams.get(source.number) != Some(index) {
            return;
        }
        let Some(stream) = self.streams.get(index) else { return };
        if !self.has_room(stream, connection) {
            return;
        }
        // HTTP/2 keeps what it has to say until it is flushed: what is encoded for the other side goes on.
        if !connection.mux.is_http2() {
            self.conns.encode_for(source.connection, &mut self.env);
        }
        if let Some(connection) = self.conns.table.get_mut(source.connection) {
            connection.mux.consumed(source.number, &mut self.conns.out);
        }
    }

    /// A peer has opened windows, or a stream has left: what waited goes out, and more is read for it. A server may
    /// take more streams than before, or none any more.
    pub(crate) fn open_windows(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if !connection.mux.has_windows() || connection.gone {
            return;
        }
        let listed = connection.upstream().map(|upstream| upstream.listed);
        let settings = ConnectionTimer::RequestHead as usize;
        if listed.is_some()
            && connection.deadlines.is_set(settings)
            && connection.mux.takes_upgrades().is_some()
        {
            connection.deadlines.clear(settings);
            self.env.offer_soon(id);
        }
        if listed.is_some_and(|listed| listed != (connection.capacity() > 0)) {
            self.env.offer_soon(id);
        }
        // What is being encoded for another connection goes on.
        if connection.mux.is_quiet() {
            return;
        }
        self.conns.encode_for(id, &mut self.env);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let is_upstream = connection.upstream().is_some();
        for number in connection.mux.flush(&mut self.conns.out) {
            let stream = self.conns.table.get(id).and_then(|it| it.streams.get(number));
            if let Some(stream) = stream {
                self.update_source(stream, is_upstream);
            }
        }
    }

    /// A peer has given a stream up.
    fn on_reset(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        (side, no_error): (Side, bool),
        now: Instant,
    ) {
        match side {
            Side::Request => {
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.flags.set(Flags::DOWNSTREAM_REMOTE_RESET);
                    stream.recorder.note(|record| record.details = details::HTTP2_REMOTE_RESET);
                }
                self.finish(index, now);
            }
            Side::Response => {
                let cluster = self.streams.get(index).map(|stream| stream.cluster);
                if let Some(cluster) = cluster.and_then(|id| self.upstreams.clusters.get(id)) {
                    cluster.stats.upstream_rq_rx_reset.inc();
                    if no_error {
                        cluster.stats.upstream_rq_rx_reset_no_error.inc();
                    }
                }
                self.reset_leg(index, leg, ResetReason::StreamReset, now);
            }
        }
    }

    /// A connection that was congested has room again.
    pub(crate) fn on_room(&mut self, id: ConnectionId, now: Instant) {
        self.update_sources(id);
        let Some(connection) = self.conns.table.get(id) else { return };
        let may_offer = connection.upstream().is_some() && connection.capacity() > 0;
        if connection.may_begin() {
            self.pump(id, now);
        }
        if may_offer {
            self.offer(id, now);
        }
    }

    /// Whether a connection should be read, and tells the driver when that changes.
    pub(crate) fn update_reading(&mut self, id: ConnectionId) {
        let wanted = self.conns.table.get(id).and_then(|it| self.other_reading(it));
        if let Some(wanted) = wanted {
            self.change_reading(id, wanted);
        }
    }

    /// What the reading of a connection changes to, if it does.
    #[inline]
    fn other_reading(&self, connection: &Connection) -> Option<Reading> {
        let wanted = match connection.reading {
            _ if self.may_read(connection) => Reading::On,
            Reading::On | Reading::PutOff if connection.put_off => Reading::PutOff,
            Reading::On | Reading::PutOff | Reading::Off => Reading::Off,
        };
        (wanted != connection.reading).then_some(wanted)
    }

    #[cold]
    fn change_reading(&mut self, id: ConnectionId, wanted: Reading) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let before = std::mem::replace(&mut connection.reading, wanted);
        match (before, wanted) {
            (_, Reading::Off) => {
                self.upstreams.count_congestion(id, Congestion::Paused, &mut self.conns);
            }
            (Reading::Off, Reading::On | Reading::PutOff) => {
                self.upstreams.count_congestion(id, Congestion::Resumed, &mut self.conns);
            }
            (Reading::On | Reading::PutOff, Reading::On | Reading::PutOff) => {}
        }
        let interest = match (before, wanted) {
            (_, Reading::On) => towpath_proto::ReadInterest::On,
            (Reading::On, Reading::Off | Reading::PutOff) => towpath_proto::ReadInterest::Off,
            (Reading::Off | Reading::PutOff, Reading::Off | Reading::PutOff) => return,
        };
        if self.conns.table.get(id).is_some_and(|connection| connection.mux.is_app()) {
            return self.conns.on_local_reading(id, &mut self.env);
        }
        self.conns.push(Output::ReadInterest { connection: id, interest }, &mut self.env);
    }

    pub(crate) fn may_read(&self, connection: &Connection) -> bool {
        if let Role::Closing(_) = connection.role {
            return connection.reading == Reading::On;
        }
        if connection.put_off {
            return false;
        }
        if !connection.mux.is_alone() {
            return connection.takes_input();
        }
        let Some(stream) = connection.streams.only().and_then(|index| self.streams.get(index))
        else {
            return !connection.is_full();
        };
        self.has_room(stream, connection)
    }

    /// Whether what a connection brings for a stream has somewhere to go.
    fn has_room(&self, stream: &Stream, connection: &Connection) -> bool {
        if (stream.filters.is_some() || matches!(stream.kind, Kind::Callout(_)))
            && !self.talks_have_room(stream, way_of(&connection.role))
        {
            return false;
        }
        match &connection.role {
            Role::Downstream(_)
                if stream.request_end == Progress::Ended || stream.keeps_request_end() =>
            {
                connection.mux.buffered() < connection.high_watermark()
            }
            Role::Downstream(_) => match stream.upstream {
                UpstreamState::Active(upstream) if !stream.awaits_tunnel() => {
                    self.conns.has_room(upstream)
                }
                UpstreamState::None
                | UpstreamState::Pending(_)
                | UpstreamState::BackingOff
                | UpstreamState::Active(_) => {
                    // What is collected has its own limit.
                    stream.body.len() < most_early(stream, connection.high_watermark())
                        || stream.bridging == Bridging::Collecting
                        || stream.is_collected()
                }
            },
            Role::Upstream(_) => {
                stream.bridging == Bridging::ToHttp
                    || self.conns.has_room(stream.downstream)
                    || self.awaits_head(stream)
            }
            Role::Arriving(_) | Role::Closing(_) => true,
        }
    }

    /// Whether the head of a response can still come, and leave: it needs no window (RFC 9113 §5.2.1).
    #[cold]
    fn awaits_head(&self, stream: &Stream) -> bool {
        let client = self.conns.table.get(stream.downstream.connection);
        matches!(stream.kind, Kind::Http(_))
            && stream.is_unanswered()
            && client.is_none_or(|client| !client.congested)
    }

    /// The request comes faster than there is somewhere to send it.
    pub(crate) fn hold_back(&mut self, index: StreamIndex) {
        self.update_source(index, true);
    }

    /// Sends what a stream has kept to the connection that it just got.
    pub(crate) fn replay(&mut self, index: StreamIndex, upstream: Leg, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.retries.is_filtered()
            && let Some(trailers) = stream.body.take_trailers()
        {
            let mut item = Item::Trailers(trailers);
            self.filter_trailers_of_attempt(index, Direction::Request, &mut item, now);
            if let (Some(stream), Item::Trailers(trailers)) = (self.streams.get_mut(index), item) {
                stream.body.set_trailers(trailers);
            }
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        let ended = stream.request_end == Progress::Ended;
        let keeps =
            stream.retries.is_possible() && stream.upgrade == Upgrade::No && stream.body.whole;
        let length = stream.body.len() as u64;
        stream.recorder.note(|record| record.upstream_bytes_sent += length);
        let mut kept = stream.body.take_kept();
        if !keeps {
            stream.body.forget();
        }
        let mut trailers = None;
        if let Some(kept) = &mut kept {
            for chunk in &mut kept.chunks {
                let chunk = if keeps { chunk.clone() } else { std::mem::take(chunk) };
                self.write(upstream, Item::Data(chunk), now);
            }
            trailers = if keeps { kept.trailers.clone() } else { kept.trailers.take() };
        }
        if let (Some(stream), Some(kept)) = (self.streams.get_mut(index), kept) {
            stream.body.put_back(kept, keeps);
        }
        match trailers {
            Some(trailers) => self.write(upstream, Item::Trailers(trailers), now),
            None if ended => self.write(upstream, Item::End, now),
            None => {}
        }
    }
}

/// Where the other side of a stream is read.
const fn source_of(stream: &Stream, is_upstream: bool) -> Option<Leg> {
    match (is_upstream, stream.upstream) {
        (true, _) => Some(stream.downstream),
        (false, UpstreamState::Active(leg)) => Some(leg),
        (false, UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff) => {
            None
        }
    }
}

/// Which direction a connection brings.
const fn way_of(role: &Role) -> Direction {
    match role {
        Role::Upstream(_) => Direction::Response,
        Role::Downstream(_) | Role::Arriving(_) | Role::Closing(_) => Direction::Request,
    }
}

/// Fills the record.
pub(crate) fn account(stream: &mut Stream, side: Side, item: &Item, now: Instant) {
    let (len, ends) = match item {
        Item::Data(chunk) => (chunk.len() as u64, false),
        Item::Trailers(_) | Item::End => (0, true),
    };
    let active = matches!(stream.upstream, UpstreamState::Active(_)) && !stream.awaits_tunnel();
    let is_opaque = matches!(stream.kind, Kind::Tcp(_));
    if side == Side::Request && ends {
        stream.times.request_end = Some(now);
    }
    stream.recorder.note(|record| match side {
        Side::Request => {
            record.bytes_received += len;
            if active {
                record.upstream_bytes_sent += len;
            }
            if active && ends {
                record.upstream_last_sent = Some(now);
            }
        }
        Side::Response => {
            record.bytes_sent += len;
            record.upstream_bytes_received += len;
            if len > 0 && !is_opaque {
                record.upstream_content_start.get_or_insert(now);
            }
            if ends {
                record.upstream_last_received = Some(now);
            }
        }
    });
}

/// How much of a request is kept before it has somewhere to go, of a connection with this limit.
fn most_early(stream: &Stream, limit: usize) -> usize {
    let early = stream.context.tcp().and_then(|tcp| tcp.config.connects.early_data);
    early.map_or(limit, |early| early.clamp(1, limit.max(1)))
}

/// Keeps a piece of the request that has nowhere to go yet, or that a retry would need.
pub(crate) fn keep(stream: &mut Stream, item: &Item, waiting: bool) {
    let repeatable =
        stream.retries.is_possible() && stream.upgrade == Upgrade::No && stream.is_unanswered();
    match item {
        Item::Data(chunk) if waiting || (repeatable && stream.body.whole) => {
            if waiting || stream.body.len() + chunk.len() <= stream.retries.buffer_limit {
                stream.body.push(chunk.clone());
            } else {
                stream.body.forget();
            }
        }
        Item::Trailers(head) if waiting || (repeatable && stream.body.whole) => {
            stream.body.set_trailers(head.clone());
        }
        Item::Data(_) => stream.body.whole = false,
        Item::Trailers(_) => stream.body.whole = false,
        Item::End => {}
    }
}
