//! What is spoken on a connection: bytes in and events out, parts of messages in and bytes out.
//!
//! A mux carries one stream or many. It knows each by a small number of its own, which [`Mux::poll`] reports with what
//! arrives for the stream and [`Mux::open`] gives to one that begins here; HTTP/1, opaque bytes and the app have
//! number 0 alone. Which stream has which number is the connection's to know ([`Carried`](super::carried::Carried)).

pub(crate) mod bolt_client;
pub(crate) mod bolt_server;
pub(crate) mod greeting;
pub(crate) mod http2;
mod liveness;
pub(crate) mod numbers;
mod raw;
pub(crate) mod reply;
pub(crate) mod slots;
#[cfg(test)]
pub(crate) mod toy;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_proto::bolt::{self, Frame, Message};
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::{Event, Instant, Next, Out, http1};
use towpath_trace::Track;

use crate::conn::mux::greeting::Heard;
pub(crate) use crate::conn::mux::raw::Raw;
use crate::conn::mux::reply::Reply;
use crate::local::Call;
use crate::serving::{OfHttp2, Serving};

/// What a connection speaks.
#[derive(Debug)]
pub(crate) enum Mux {
    /// HTTP/1 towards a client.
    Http1Server(Serving<http1::Server>),
    /// HTTP/1 towards a server.
    Http1Client(http1::Client),
    /// Bytes as they are.
    Raw(Raw),
    /// No socket: the app in this process.
    App(Box<Call>),
    /// Bolt towards a client.
    BoltServer(Serving<Box<bolt_server::Server>>),
    /// Bolt towards a server.
    BoltClient(Serving<Box<bolt_client::Client>>),
    /// HTTP/2 towards either.
    Http2(OfHttp2<Box<http2::Http2>>),
    /// A client's, which says with its first bytes what it speaks.
    Undecided(Serving<Box<BytesMut>>),
    /// A toy protocol of many streams, towards either.
    #[cfg(test)]
    Toy(Box<toy::Toy>),
}

/// What arrived for a stream.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A part of a message.
    Part(Event),
    /// A message of a protocol that knows no parts.
    Whole(Frame),
    /// The peer gives the stream up, with `no_error` where it wants no more of it, and the connection goes on.
    Reset { no_error: bool },
    /// The peer has done nothing for a stream of ours, and never will.
    Refused,
    /// A request was refused while its head was read: no stream begins, and the number means nothing.
    Unread(towpath_proto::http2::Unread),
}

/// What leaves for a stream.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    /// A head; `true` if nothing follows.
    Head(&'a Head, bool),
    /// An interim response.
    Interim(&'a Head),
    /// A piece of a body.
    Data(Bytes),
    /// The trailer section, which ends the message.
    Trailers(&'a Head),
    /// The end of the message.
    End,
}

/// What becomes of a connection that a stream has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Its other streams go on, and others may begin.
    GoesOn,
    /// It is ready for another stream.
    KeepAlive,
    /// It must be closed.
    Close,
}

/// What a peer's end means for the streams on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The mux tells them, by [`Mux::poll`].
    Told,
    /// Those that have begun go on.
    Waits,
    /// They cannot be completed.
    Over,
}

/// What a look at a quiet connection comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    Alive,
    /// To be asked; the last question was perhaps not answered.
    Ask {
        missed: bool,
    },
    Dead,
}

/// What arrived is not the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    Http1(http1::Error),
    Bolt(bolt::Error),
    Http2(towpath_proto::http2::Error),
    #[cfg(test)]
    Toy(toy::Malformed),
}

impl Mux {
    /// Takes what arrived.
    pub(crate) fn receive(&mut self, chunk: Bytes) {
        match self {
            Self::Http1Server(server) => server.receive(chunk),
            Self::Http1Client(client) => client.receive(chunk),
            Self::Raw(raw) => raw.receive(chunk),
            Self::App(_) => {}
            Self::BoltServer(server) => server.receive(chunk),
            Self::BoltClient(client) => client.receive(chunk),
            Self::Http2(http2) => http2.receive(chunk),
            Self::Undecided(first) => first.extend_from_slice(&chunk),
            #[cfg(test)]
            Self::Toy(toy) => toy.receive(&chunk),
        }
    }

    /// The peer will send nothing more.
    pub(crate) fn ended(&mut self) {
        match self {
            Self::Http1Server(server) => server.ended(),
            Self::Http1Client(client) => client.ended(),
            Self::Raw(raw) => {
                raw.ended();
            }
            Self::App(_) => {}
            Self::BoltServer(_) | Self::BoltClient(_) => {}
            Self::Http2(_) | Self::Undecided(_) => {}
            #[cfg(test)]
            Self::Toy(_) => {}
        }
    }

    /// What arrived next, and for the stream of which number.
    ///
    /// # Errors
    /// When what arrived is not the protocol.
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        heads: &mut HeadPool,
    ) -> Result<Option<(u32, Arrival)>, Violation> {
        let part = match self {
            Self::Http1Server(server) => server.poll(heads).map_err(Violation::Http1)?,
            Self::Http1Client(client) => client.poll(heads).map_err(Violation::Http1)?,
            Self::Raw(raw) => raw.poll(),
            Self::App(_) => None,
            Self::BoltServer(server) => return whole(server.poll()),
            Self::BoltClient(client) => return whole(client.poll()),
            Self::Http2(http2) => return http2.poll(heads).map_err(Violation::Http2),
            Self::Undecided(_) => None,
            #[cfg(test)]
            Self::Toy(toy) => return toy.poll().map_err(Violation::Toy),
        };
        Ok(part.map(|part| (ONLY, Arrival::Part(part))))
    }

    /// After a piece of a body: whether it was the last, so that no end follows.
    pub(crate) fn take_end(&mut self) -> bool {
        match self {
            Self::Http1Server(server) => server.take_end(),
            Self::Http1Client(client) => client.take_end(),
            Self::Http2(http2) => http2.take_end(),
            Self::Raw(_) | Self::App(_) | Self::BoltServer(_) | Self::BoltClient(_) => false,
            Self::Undecided(_) => false,
            #[cfg(test)]
            Self::Toy(_) => false,
        }
    }

    /// The head of a request that was refused while it was read.
    pub(crate) fn refused(&mut self) -> Option<Head> {
        match self {
            Self::Http1Server(server) => server.refused(),
            Self::Http1Client(_)
            | Self::Raw(_)
            | Self::App(_)
            | Self::BoltServer(_)
            | Self::BoltClient(_)
            | Self::Http2(_)
            | Self::Undecided(_) => None,
            #[cfg(test)]
            Self::Toy(_) => None,
        }
    }

    /// Encodes a part of a stream's message.
    pub(crate) fn send(&mut self, number: u32, part: Part<'_>, out: &mut Out) {
        match self {
            Self::Http1Server(server) => match part {
                Part::Head(head, end) => server.encode_head(head, end, out),
                Part::Interim(head) => server.encode_informational(head, out),
                Part::Data(data) => server.encode_data(data, out),
                Part::Trailers(trailers) => server.encode_trailers(trailers, out),
                Part::End => server.encode_end(out),
            },
            Self::Http1Client(client) => match part {
                Part::Head(head, end) => client.encode_head(head, end, out),
                Part::Interim(_) => {}
                Part::Data(data) => client.encode_data(data, out),
                Part::Trailers(trailers) => client.encode_trailers(trailers, out),
                Part::End => client.encode_end(out),
            },
            Self::Raw(_) => {
                if let Part::Data(data) = part {
                    out.push(data);
                }
            }
            // Their messages are written whole.
            Self::App(_) | Self::BoltServer(_) | Self::BoltClient(_) => {}
            Self::Http2(http2) => http2.send(number, part, out),
            Self::Undecided(_) => {}
            #[cfg(test)]
            Self::Toy(toy) => {
                match part {
                    Part::Head(head, end) => {
                        toy.send_head(number, head);
                        if end {
                            toy.send_end(number);
                        }
                    }
                    Part::Data(data) => toy.send_data(number, data),
                    Part::Trailers(_) | Part::End => toy.send_end(number),
                    Part::Interim(_) => {}
                }
                toy.flush(out);
            }
        }
    }

    /// Encodes a message that came, under what this peer knows the stream by.
    pub(crate) fn send_whole(&mut self, number: u32, frame: &Frame, out: &mut Out) {
        match self {
            Self::BoltServer(server) => server.send_frame(number, frame, out),
            Self::BoltClient(client) => client.send_frame(number, frame, out),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => {}
            Self::Http2(_) | Self::Undecided(_) => {}
            #[cfg(test)]
            Self::Toy(_) => {}
        }
    }

    /// Encodes an answer of our own.
    ///
    /// # Errors
    /// When a part of it is too long.
    pub(crate) fn send_answer(
        &mut self,
        number: u32,
        answer: Message,
        out: &mut Out,
    ) -> Result<(), bolt::Error> {
        match self {
            Self::BoltServer(server) => server.send_message(number, answer, out),
            Self::Http1Server(_)
            | Self::Http1Client(_)
            | Self::Raw(_)
            | Self::App(_)
            | Self::BoltClient(_)
            | Self::Http2(_)
            | Self::Undecided(_) => Ok(()),
            #[cfg(test)]
            Self::Toy(_) => Ok(()),
        }
    }

    /// A number for a stream that begins here; none if the connection has no room for it.
    pub(crate) fn open(&mut self) -> Option<u32> {
        match self {
            Self::Http1Client(_) | Self::Raw(_) => Some(ONLY),
            Self::BoltClient(client) => client.open(),
            Self::Http2(http2) => http2.open(),
            Self::Http1Server(_) | Self::App(_) | Self::BoltServer(_) => None,
            Self::Undecided(_) => None,
            #[cfg(test)]
            Self::Toy(toy) => toy.open(),
        }
    }

    /// How many streams may still begin here.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Http1Client(client) => u32::from(client.exchange_complete() && client.reusable()),
            Self::BoltClient(client) => client.capacity(),
            Self::Http2(http2) => http2.capacity(),
            Self::Http1Server(_) | Self::Raw(_) | Self::App(_) | Self::BoltServer(_) => 0,
            Self::Undecided(_) => 0,
            #[cfg(test)]
            Self::Toy(toy) => toy.capacity(),
        }
    }

    /// How many streams were reset by us since frames were last handed out.
    pub(crate) fn resets_sent(&self) -> u32 {
        if let Self::Http2(http2) = self { http2.resets_sent() } else { 0 }
    }

    /// A stream is over for us, complete or not; its number is free.
    pub(crate) fn release(&mut self, number: u32) -> Released {
        match self {
            Self::Http1Server(server) => match server.next() {
                Next::KeepAlive => Released::KeepAlive,
                Next::Close => Released::Close,
            },
            Self::Http1Client(client) if client.exchange_complete() && client.reusable() => {
                Released::KeepAlive
            }
            Self::Http1Client(_) | Self::Raw(_) | Self::App(_) | Self::Undecided(_) => {
                Released::Close
            }
            Self::Http2(http2) => {
                http2.release(number);
                Released::GoesOn
            }
            Self::BoltServer(server) => {
                server.release(number);
                Released::GoesOn
            }
            Self::BoltClient(client) => {
                client.release(number);
                Released::GoesOn
            }
            #[cfg(test)]
            Self::Toy(toy) => {
                toy.release(number);
                Released::GoesOn
            }
        }
    }

    /// How many bytes the frames were of the head that was read last, where heads are framed, and its fields before
    /// they were compressed.
    pub(crate) fn framed_head_read(&self) -> Option<(usize, usize)> {
        if let Self::Http2(http2) = self { Some(http2.head_read()) } else { None }
    }

    /// How many bytes the frames were of the head that was written last, where heads are framed.
    pub(crate) fn framed_head(&self) -> Option<usize> {
        if let Self::Http2(http2) = self { Some(http2.head_written()) } else { None }
    }

    /// How often a server has said that it takes no further requests: `Connection: close`, or GOAWAY frames.
    pub(crate) fn close_notices(&self) -> u32 {
        match self {
            Self::Http1Client(client) => client.was_told_to_close().into(),
            Self::Http2(http2) => http2.goaways_received(),
            Self::Http1Server(_) | Self::Raw(_) | Self::App(_) | Self::Undecided(_) => 0,
            Self::BoltServer(_) | Self::BoltClient(_) => 0,
            #[cfg(test)]
            Self::Toy(_) => 0,
        }
    }

    /// Bytes from a client that were received and not parsed: further requests, or a part of one.
    pub(crate) fn buffered(&self) -> usize {
        match self {
            Self::Http1Server(server) => server.buffered(),
            Self::Http1Client(_) | Self::App(_) | Self::BoltClient(_) => 0,
            Self::BoltServer(server) => server.buffered(),
            Self::Raw(raw) => raw.buffered(),
            Self::Http2(http2) => http2.buffered(),
            Self::Undecided(first) => first.len(),
            #[cfg(test)]
            Self::Toy(toy) => toy.buffered(),
        }
    }

    /// What there is to be done now that the peer sends nothing more.
    pub(crate) fn at_end(&self) -> AtEnd {
        match self {
            Self::Raw(_) => AtEnd::Told,
            Self::Http1Client(client) if client.response_started() => AtEnd::Told,
            Self::BoltServer(_) => AtEnd::Waits,
            Self::Http1Server(_) | Self::Http1Client(_) | Self::App(_) | Self::BoltClient(_) => {
                AtEnd::Over
            }
            Self::Http2(_) | Self::Undecided(_) => AtEnd::Over,
            #[cfg(test)]
            Self::Toy(_) => AtEnd::Over,
        }
    }

    /// What was asked of us and needs no stream, to be answered.
    pub(crate) fn take_replies(&mut self) -> Vec<Reply> {
        match self {
            Self::BoltServer(server) => server.take_beats(),
            Self::BoltClient(client) => client.take_replies(),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => Vec::new(),
            Self::Http2(_) | Self::Undecided(_) => Vec::new(),
            #[cfg(test)]
            Self::Toy(_) => Vec::new(),
        }
    }
}

/// Windows of streams, beside the connection's watermark.
impl Mux {
    /// Bytes that a stream's own window still takes; without windows the connection's watermark alone counts.
    pub(crate) fn writable(&self, number: u32) -> usize {
        match self {
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => usize::MAX,
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Undecided(_) => usize::MAX,
            Self::Http2(http2) => http2.writable(number),
            #[cfg(test)]
            Self::Toy(toy) => toy.writable(number),
        }
    }

    /// What was received for a stream has a place: its peer may send as much again.
    #[cfg_attr(not(test), expect(unused_variables, reason = "HTTP/2 writes it when it is flushed"))]
    pub(crate) fn consumed(&mut self, number: u32, out: &mut Out) {
        match self {
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => {}
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Undecided(_) => {}
            Self::Http2(http2) => http2.consumed(number),
            #[cfg(test)]
            Self::Toy(toy) => {
                toy.consumed(number);
                toy.flush(out);
            }
        }
    }

    /// Ends a stream in the middle, where that is not the connection's end; a protocol that sends messages whole has
    /// nothing to say then.
    #[cfg_attr(not(test), expect(unused_variables, reason = "HTTP/2 writes it when it is flushed"))]
    pub(crate) fn reset(&mut self, number: u32, out: &mut Out) {
        match self {
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => {}
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Undecided(_) => {}
            Self::Http2(http2) => http2.reset(number),
            #[cfg(test)]
            Self::Toy(toy) => {
                toy.reset(number);
                toy.flush(out);
            }
        }
    }

    /// Whether [`Mux::flush`] has nothing to do.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => true,
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Undecided(_) => true,
            Self::Http2(http2) => http2.is_quiet(),
            #[cfg(test)]
            Self::Toy(_) => false,
        }
    }

    /// Writes what can go out by itself, and names the streams that have room again.
    pub(crate) fn flush(&mut self, out: &mut Out) -> Vec<u32> {
        match self {
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => Vec::new(),
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Undecided(_) => Vec::new(),
            Self::Http2(http2) => {
                http2.flush(out);
                http2.take_opened()
            }
            #[cfg(test)]
            Self::Toy(toy) => {
                toy.flush(out);
                toy.take_opened()
            }
        }
    }

    /// Shows what passes on a track, while a recording wants that.
    pub(crate) fn show_on(&mut self, track: Track, number: u64) {
        if let Self::Http2(http2) = self {
            http2.show_on(track, number);
        }
    }

    /// Gives back memory that only traffic needs; where there is little of it, nothing.
    pub(crate) fn rest(&mut self) {
        if let Self::Http2(http2) = self {
            http2.rest();
        }
    }

    /// A request that was refused while its head was read, on a connection that is over.
    pub(crate) fn take_unread(&mut self) -> Option<towpath_proto::http2::Unread> {
        let Self::Http2(http2) = self else { return None };
        http2.take_unread()
    }

    /// Writes what was kept so that parts of many streams leave together.
    #[inline]
    pub(crate) fn put_kept(&mut self, out: &mut Out) {
        if let Self::Http2(http2) = self {
            http2.flush(out);
        }
    }

    /// All that was written but so many bytes has left.
    pub(crate) fn sent(&mut self, outstanding: usize) {
        if let Self::Http2(http2) = self {
            http2.sent(outstanding);
        }
    }

    /// Whether something waits to leave whose stream is over otherwise.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, Self::Http2(http2) if http2.has_unsent())
    }

    /// What of a stream has not left yet, which is over otherwise, is to leave within so long.
    pub(crate) fn flush_within(&mut self, number: u32, whole: Duration, now: Instant) {
        if let Self::Http2(http2) = self {
            http2.flush_within(number, whole, now);
        }
    }

    /// When the first of what waits so is given up, after what `left` leaves of its time.
    pub(crate) fn flush_due(&self, left: impl Fn(Duration) -> Duration) -> Option<Instant> {
        match self {
            Self::Http2(http2) => http2.flush_due(left),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => None,
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Undecided(_) => None,
            #[cfg(test)]
            Self::Toy(_) => None,
        }
    }

    /// Gives up what has waited so for its time.
    pub(crate) fn reset_overdue(
        &mut self,
        left: impl Fn(Duration) -> Duration,
        now: Instant,
        out: &mut Out,
    ) {
        if let Self::Http2(http2) = self {
            http2.reset_overdue(left, now, out);
        }
    }

    /// Whether each stream has a window of its own.
    pub(crate) const fn has_windows(&self) -> bool {
        match self {
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => false,
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Undecided(_) => false,
            Self::Http2(_) => true,
            #[cfg(test)]
            Self::Toy(_) => true,
        }
    }
}

/// What the muxes differ in.
impl Mux {
    /// Whether a stream has its connection for itself.
    pub(crate) const fn is_alone(&self) -> bool {
        match self {
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => true,
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Http2(_) | Self::Undecided(_) => {
                false
            }
            #[cfg(test)]
            Self::Toy(_) => false,
        }
    }

    pub(crate) const fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    pub(crate) const fn is_opaque(&self) -> bool {
        matches!(self, Self::Raw(_))
    }

    pub(crate) const fn is_app(&self) -> bool {
        matches!(self, Self::App(_))
    }

    /// Whether messages leave whole, by [`Mux::send_whole`].
    pub(crate) const fn sends_whole(&self) -> bool {
        matches!(self, Self::BoltServer(_) | Self::BoltClient(_))
    }

    /// Whether no further request is to be taken now.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::BoltServer(server) if server.is_full())
    }

    /// Whether no stream will begin here again, though others may go on.
    pub(crate) fn is_exhausted(&self) -> bool {
        match self {
            Self::BoltClient(client) => client.is_exhausted(),
            Self::Http2(http2) => http2.is_exhausted(),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => false,
            Self::BoltServer(_) | Self::Undecided(_) => false,
            #[cfg(test)]
            Self::Toy(toy) => toy.is_exhausted(),
        }
    }

    /// Whether the peer takes extended CONNECT (RFC 8441 §3); none as long as it has not said so.
    pub(crate) fn takes_upgrades(&self) -> Option<bool> {
        match self {
            Self::Http2(http2) => http2.takes_upgrades(),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => {
                Some(false)
            }
            Self::BoltServer(_) | Self::BoltClient(_) | Self::Undecided(_) => Some(false),
            #[cfg(test)]
            Self::Toy(_) => Some(false),
        }
    }

    /// Whether the head of a request has begun to arrive.
    pub(crate) fn has_part_of_head(&self) -> bool {
        matches!(self, Self::Http1Server(server) if server.is_amid_head())
    }

    /// Whether the head of a request has come in part, of one that others stand beside.
    pub(crate) fn is_amid_block(&self) -> bool {
        matches!(self, Self::Http2(http2) if http2.is_amid_head())
    }

    /// Whether a byte of the answer to the request under way has arrived.
    pub(crate) fn has_begun_answer(&self) -> bool {
        matches!(self, Self::Http1Client(client) if client.response_started())
    }

    /// Whether a client that expects `100 Continue` waits for it.
    pub(crate) fn wants_continue(&self) -> bool {
        match self {
            Self::Http1Server(server) => server.wants_continue(),
            // A client that says that it expects it waits for it.
            Self::Http2(_) => true,
            Self::Http1Client(_) | Self::Raw(_) | Self::App(_) | Self::Undecided(_) => false,
            Self::BoltServer(_) | Self::BoltClient(_) => false,
            #[cfg(test)]
            Self::Toy(_) => false,
        }
    }

    /// The response that is written next is to be the last; false if a client cannot be told that with a response.
    pub(crate) fn close_after_response(&mut self) -> bool {
        let Self::Http1Server(server) = self else { return false };
        server.close_after_response();
        true
    }

    /// Whether the client has asked that the connection end with its response, and has sent all of its request.
    pub(crate) fn sends_no_more(&self) -> bool {
        let Self::Http1Server(server) = self else { return false };
        server.asked_to_close() && server.request_complete()
    }

    /// Remembers that input was left unread because the mux is full.
    pub(crate) fn hold_back(&mut self) {
        if let Self::BoltServer(server) = self {
            server.hold_back();
        }
    }

    /// Whether input that was left unread can be read now; asked once.
    pub(crate) fn may_resume(&mut self) -> bool {
        let Self::BoltServer(server) = self else { return false };
        server.may_resume()
    }

    /// A stream begins to wait for an upstream connection, or ceases to.
    pub(crate) fn set_waiting(&mut self, number: u32, waits: bool) {
        if let Self::BoltServer(server) = self {
            server.set_waiting(number, waits);
        }
    }

    /// Counts a part of a body that is collected for a stream; false if that is more than may be held.
    pub(crate) fn collect(&mut self, number: u32, len: usize) -> bool {
        let Self::BoltServer(server) = self else { return false };
        server.collect(number, len)
    }

    /// Bytes that may wait for a client to read them; more than that, and it is cut off.
    pub(crate) fn max_unread(&self) -> usize {
        let Self::BoltServer(server) = self else { return usize::MAX };
        server.max_unread()
    }

    /// Tells a client to send further requests elsewhere, if it understands that and has not been told; whether it is.
    pub(crate) fn go_away(&mut self, now: Instant, out: &mut Out) -> bool {
        match self {
            Self::BoltServer(server) => server.go_away(now, out),
            Self::Http2(http2) => http2.go_away(now, out),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => false,
            Self::BoltClient(_) | Self::Undecided(_) => false,
            #[cfg(test)]
            Self::Toy(_) => false,
        }
    }

    /// Says that no further stream is taken, where that can be said: the connection ends.
    pub(crate) fn leave(&mut self, out: &mut Out) {
        if let Self::Http2(http2) = self {
            http2.leave(out);
        }
    }

    /// Whether a client has had the time to go elsewhere by itself.
    pub(crate) fn had_notice(&self, now: Instant) -> bool {
        match self {
            Self::BoltServer(server) => server.had_notice(now),
            Self::Http2(http2) => http2.had_notice(now),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => false,
            Self::BoltClient(_) | Self::Undecided(_) => false,
            #[cfg(test)]
            Self::Toy(_) => false,
        }
    }

    /// A stream's message is kept until so many bytes of the connection are sent.
    pub(crate) fn await_sent(&mut self, number: u32, end: u64) {
        if let Self::BoltClient(client) = self {
            client.await_sent(number, end);
        }
    }

    /// The next stream whose message is sent, now that so many bytes are.
    pub(crate) fn next_sent(&mut self, sent: u64) -> Option<u32> {
        let Self::BoltClient(client) = self else { return None };
        client.next_sent(sent)
    }

    /// The connection is lost: nothing more comes for its streams.
    pub(crate) fn lose(&mut self) {
        match self {
            Self::BoltClient(client) => client.lose(),
            Self::Http2(http2) => http2.lose(),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => {}
            Self::BoltServer(_) | Self::Undecided(_) => {}
            #[cfg(test)]
            Self::Toy(_) => {}
        }
    }
}

impl Mux {
    /// What the peer has said of itself, once.
    #[inline]
    pub(crate) fn take_heard(&mut self) -> Option<Heard> {
        let Self::Raw(raw) = self else { return None };
        raw.take_heard()
    }

    /// From here on bytes are opaque.
    pub(crate) fn upgrade(&mut self) {
        let leftover = match self {
            Self::Http1Server(server) => server.upgraded(),
            Self::Http1Client(client) => client.upgraded(),
            Self::Raw(_) | Self::App(_) | Self::BoltServer(_) | Self::BoltClient(_) => return,
            Self::Http2(_) | Self::Undecided(_) => return,
            #[cfg(test)]
            Self::Toy(_) => return,
        };
        *self = Self::Raw(Raw::after(leftover));
    }
}

/// The number of a stream that has its connection for itself.
pub(crate) const ONLY: u32 = 0;

fn whole(
    polled: Result<Option<(u32, Frame)>, bolt::Error>,
) -> Result<Option<(u32, Arrival)>, Violation> {
    let arrived = polled.map_err(Violation::Bolt)?;
    Ok(arrived.map(|(number, frame)| (number, Arrival::Whole(frame))))
}
