//! The one forwarding loop: from a connection's codec to the codec at the stream's other side.
//!
//! Arrives: a connection that has received something. Leaves: the same heads, data and ends, encoded for the other
//! connection, and the decision whether both are read on.
//!
//! Every protocol and both directions go through [`Exchange::pump`] and [`Exchange::forward`]. Only heads take a detour
//! (routing in one direction, response handling in the other). Bodies never wait here except where there is
//! nowhere to go yet: they are bounded by not reading the connection that they come from.

use std::time::Duration;

use bytes::Bytes;
use towpath_proto::head::Head;
use towpath_proto::{Close, ConnectionId, Event, Instant, Output};

use crate::conn::mux::{Codec, CodecError};
use crate::conn::{Connection, Reading, Role};
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::exchange::rpc::Crossing;
use crate::exchange::stream::{Direction, Stream, StreamTimer, Upgrade, UpstreamState};
use crate::ids::{Side, StreamIndex};
use crate::upstream::Congestion;

/// What goes from one side to the other after the head.
#[derive(Debug)]
pub(crate) enum Item {
    Data(Bytes),
    Trailers(Head),
    End,
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
                Role::Closing(_) => return,
            };
            if side == Side::Request && connection.stream.is_none() {
                if connection.is_full() {
                    connection.hold_back();
                    break;
                }
                connection.trace_head();
            }
            let polled = connection.codec.poll(&mut self.env.heads);
            let ends = matches!(polled, Ok(Some(Event::Data(_)))) && connection.codec.take_end();
            let stream = connection.current();
            match (polled, stream) {
                (Ok(None), _) => break,
                (Ok(Some(Event::Head { head, end })), stream) => match (side, stream) {
                    (Side::Request, _) if connection.carries_many() => self.on_call(id, head, now),
                    (Side::Request, _) => self.on_request_head(id, head, end, now),
                    (Side::Response, Some(stream)) => self.on_response_head(stream, head, end, now),
                    (Side::Response, None) => {
                        self.upstreams.on_unasked(id, &mut self.conns, &mut self.env, now)
                    }
                },
                (Ok(Some(Event::Informational(head))), Some(stream)) => {
                    self.on_informational(stream, head, now)
                }
                (Ok(Some(Event::Data(chunk))), Some(stream)) => {
                    self.forward(stream, side, Item::Data(chunk), now);
                    let goes_on = |it: &Connection| ends && it.current() == Some(stream);
                    if self.conns.table.get(id).is_some_and(goes_on) {
                        self.forward(stream, side, Item::End, now);
                    }
                }
                (Ok(Some(Event::Trailers(head))), Some(stream)) => {
                    self.forward(stream, side, Item::Trailers(head), now);
                }
                (Ok(Some(Event::End)), Some(stream)) => self.forward(stream, side, Item::End, now),
                (Ok(Some(_)), None) => {}
                (Err(error), stream) => {
                    match (side, error) {
                        (Side::Request, CodecError::Http1(error)) => {
                            self.on_request_error(id, stream, error, now)
                        }
                        (Side::Response, CodecError::Http1(error)) => {
                            self.on_response_error(id, stream, error, now)
                        }
                        (Side::Request, CodecError::Bolt(error)) => {
                            self.on_frame_error(id, error, now)
                        }
                        (Side::Response, CodecError::Bolt(error)) => {
                            self.on_answer_error(id, error, now)
                        }
                    }
                    return;
                }
            }
        }
        self.conns.answer_at_once(id, &mut self.env);
        self.end_if_through(id, now);
        self.conns.await_rest_of_head(id, &mut self.env, now);
        self.update_reading(id);
    }

    /// Goes on with the connections that had more events than their share.
    pub(crate) fn go_on(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.env.put_off) {
            if let Some(connection) = self.conns.table.get_mut(id) {
                connection.put_off = false;
                self.pump(id, now);
            }
        }
    }

    /// Passes one piece of a stream to its other side.
    pub(crate) fn forward(&mut self, index: StreamIndex, side: Side, item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        touch(stream, index, now, &mut self.env.timers);
        account(stream, side, &item, now);
        if stream.call.crossing != Crossing::None {
            return self.cross(index, side, item, now);
        }
        self.pass(index, side, item, now);
    }

    /// Passes one piece on as it is.
    pub(crate) fn pass(&mut self, index: StreamIndex, side: Side, item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let target = match (side, stream.upstream) {
            (Side::Response, _) => Some(stream.downstream),
            (Side::Request, UpstreamState::Active(id)) => Some(id),
            (
                Side::Request,
                UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff,
            ) => None,
        };
        let ends = !matches!(item, Item::Data(_));
        match side {
            Side::Request => {
                if ends {
                    stream.request_end = Direction::Ended;
                }
                keep(stream, &item, target.is_none());
            }
            Side::Response if ends => {
                stream.response_end = Direction::Ended;
                if let Item::Trailers(trailers) = &item
                    && !stream.context.access_logs().is_empty()
                {
                    stream.trailers = Some(trailers.clone());
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
        }
    }

    /// Encodes one piece for a connection.
    pub(crate) fn write(&mut self, id: ConnectionId, item: Item, now: Instant) {
        self.conns.encode_for(id, &mut self.env);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if matches!(connection.codec, Codec::Local(_)) {
            return self.deliver(id, item, now);
        }
        match item {
            Item::Data(chunk) => connection.codec.encode_data(chunk, &mut self.conns.out),
            Item::Trailers(head) => {
                connection.codec.encode_trailers(&head, &mut self.conns.out);
                self.env.heads.give(head);
            }
            Item::End => {
                connection.codec.encode_end(&mut self.conns.out);
                if matches!(connection.codec, Codec::Raw(_)) {
                    connection.ended_last = connection.ended;
                    self.conns.say_goodbye(id, &mut self.env);
                    self.conns
                        .push(Output::Close { connection: id, how: Close::Half }, &mut self.env);
                }
            }
        }
    }

    /// More waits to leave a connection than its watermark: its other side is not read.
    pub(crate) fn on_backed_up(&mut self, id: ConnectionId) {
        self.upstreams.count_congestion(id, Congestion::BackedUp, &mut self.conns);
        if let Some(source) = self.other_side(id) {
            self.update_reading(source);
        }
    }

    /// A connection that was congested has room again.
    pub(crate) fn on_room(&mut self, id: ConnectionId, now: Instant) {
        if self.conns.is_shared(id) {
            self.offer_shared(id, now);
            return;
        }
        if let Some(source) = self.other_side(id) {
            self.update_reading(source);
        }
        let held_back =
            self.conns.table.get(id).is_some_and(|connection| connection.stream.is_none());
        if held_back {
            self.pump(id, now);
        }
    }

    /// Whether a connection should be read, and tells the driver when that changes.
    pub(crate) fn update_reading(&mut self, id: ConnectionId) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let wanted = if self.may_read(connection) { Reading::On } else { Reading::Off };
        if wanted == connection.reading {
            return;
        }
        let interest = match wanted {
            Reading::On => towpath_proto::ReadInterest::On,
            Reading::Off => towpath_proto::ReadInterest::Off,
        };
        if let Some(connection) = self.conns.table.get_mut(id) {
            connection.reading = wanted;
        }
        self.upstreams.count_congestion(
            id,
            if wanted == Reading::On { Congestion::Resumed } else { Congestion::Paused },
            &mut self.conns,
        );
        if self.conns.table.get(id).is_some_and(|one| matches!(one.codec, Codec::Local(_))) {
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
        let Some(stream) = connection.stream.and_then(|index| self.streams.get(index)) else {
            let takes = !connection.is_full() && !connection.is_leaving();
            return takes || matches!(connection.codec, Codec::BoltClient(_));
        };
        match &connection.role {
            Role::Downstream(_) if stream.request_end == Direction::Ended => {
                connection.codec.buffered() < connection.high_watermark
            }
            Role::Downstream(_) => match stream.upstream {
                UpstreamState::Active(upstream) => !self.conns.is_congested(upstream),
                UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff => {
                    // What is collected has its own limit.
                    stream.body.len < connection.high_watermark
                        || stream.call.crossing == Crossing::Collecting
                }
            },
            Role::Upstream(_) => {
                stream.call.crossing == Crossing::ToHttp
                    || !self.conns.is_congested(stream.downstream)
            }
            Role::Closing(_) => true,
        }
    }

    /// The connection at the other side of a connection's stream.
    pub(crate) fn other_side(&self, id: ConnectionId) -> Option<ConnectionId> {
        let connection = self.conns.table.get(id)?;
        let stream = self.streams.get(connection.stream?)?;
        match (&connection.role, stream.upstream) {
            (Role::Upstream(_), _) => Some(stream.downstream),
            (Role::Downstream(_), UpstreamState::Active(upstream)) => Some(upstream),
            (Role::Downstream(_) | Role::Closing(_), _) => None,
        }
    }

    /// The request comes faster than there is somewhere to send it.
    pub(crate) fn hold_back(&mut self, index: StreamIndex) {
        if let Some(downstream) = self.streams.get(index).map(|stream| stream.downstream) {
            self.update_reading(downstream);
        }
    }

    /// Sends what a stream has kept to the connection that it just got.
    pub(crate) fn replay(&mut self, index: StreamIndex, upstream: ConnectionId, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let mut chunks = std::mem::take(&mut stream.body.chunks);
        let ended = stream.request_end == Direction::Ended;
        let keeps =
            stream.retries.is_possible() && stream.upgrade == Upgrade::No && stream.body.whole;
        if keeps {
            for chunk in &chunks {
                self.write(upstream, Item::Data(chunk.clone()), now);
            }
        } else {
            for chunk in chunks.drain(..) {
                self.write(upstream, Item::Data(chunk), now);
            }
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.record.upstream_bytes_sent += stream.body.len as u64;
        stream.body.chunks = chunks;
        if !keeps {
            stream.body.forget();
        }
        let trailers =
            if keeps { stream.body.trailers.clone() } else { stream.body.trailers.take() };
        match trailers {
            Some(trailers) => self.write(upstream, Item::Trailers(trailers), now),
            None if ended => self.write(upstream, Item::End, now),
            None => {}
        }
    }
}

/// Something moved: the idle timer starts again.
pub(crate) fn touch(
    stream: &mut Stream,
    index: StreamIndex,
    now: Instant,
    timers: &mut towpath_proto::Timers,
) {
    if stream.idle_ns > 0 {
        let slot = TimerSlot::Stream(index.0).number();
        stream.deadlines.set(
            StreamTimer::Idle as usize,
            now + Duration::from_nanos(stream.idle_ns),
            slot,
            timers,
        );
    }
}

/// Fills the record.
pub(crate) fn account(stream: &mut Stream, side: Side, item: &Item, now: Instant) {
    let (len, ends) = match item {
        Item::Data(chunk) => (chunk.len() as u64, false),
        Item::Trailers(_) | Item::End => (0, true),
    };
    let active = matches!(stream.upstream, UpstreamState::Active(_));
    let record = &mut stream.record;
    match side {
        Side::Request => {
            record.bytes_received += len;
            if active {
                record.upstream_bytes_sent += len;
            }
            if ends {
                record.request_end = Some(now);
                if active {
                    record.upstream_last_sent = Some(now);
                }
            }
        }
        Side::Response => {
            record.bytes_sent += len;
            record.upstream_bytes_received += len;
            if ends {
                record.upstream_last_received = Some(now);
            }
        }
    }
}

/// Keeps a piece of the request that has nowhere to go yet, or that a retry would need.
pub(crate) fn keep(stream: &mut Stream, item: &Item, waiting: bool) {
    let repeatable =
        stream.retries.is_possible() && stream.upgrade == Upgrade::No && stream.is_unanswered();
    match item {
        Item::Data(chunk) if waiting || (repeatable && stream.body.whole) => {
            if waiting || stream.body.len + chunk.len() <= stream.retries.buffer_limit {
                stream.body.push(chunk.clone());
            } else {
                stream.body.forget();
            }
        }
        Item::Trailers(head) if waiting || (repeatable && stream.body.whole) => {
            stream.body.trailers = Some(head.clone());
        }
        Item::Data(_) => stream.body.whole = false,
        Item::Trailers(_) => stream.body.whole = false,
        Item::End => {}
    }
}
