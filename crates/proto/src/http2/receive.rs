//! What arrives: frames in, [`Arrival`]s out.

use std::mem;

use bytes::{Bytes, BytesMut};

use super::Arrival;
use super::connection::is_of_stream;
use super::connection::{
    Block, Body, Connection, GRACEFUL, Going, LIVENESS, Opening, Ping, Side, Unread,
};
use super::error::{Code, Error};
use super::frame::{self, ACK, END_HEADERS, END_STREAM, FrameHeader, Kind, PADDED, PRIORITY};
use super::head::{Builder, Built, Section};
use super::hpack::{self, Limits};
use super::input::Piece;
use super::stream::{Gone, Progress};
use crate::event::Event;
use crate::head::{HeadPool, Method};

impl Connection {
    /// What arrived next, and for the stream of which number.
    ///
    /// # Errors
    /// When what arrived is not the protocol, or more work than a peer may make: the connection is over. The peer is
    /// told by what [`Connection::flush`] writes.
    pub fn poll(&mut self, heads: &mut HeadPool) -> Result<Option<(u32, Arrival)>, Error> {
        loop {
            if let Some(arrived) = self.events.pop_front() {
                return Ok(Some(arrived));
            }
            if let Some(error) = self.failed {
                return Err(error);
            }
            match self.step(heads) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// After a piece of a body: whether it was the last, so that no end is reported.
    pub fn take_end(&mut self) -> bool {
        // Nothing else comes with a piece of a body.
        let ends = matches!(self.events.front(), Some((_, Arrival::Part(Event::End))));
        if ends {
            self.events.pop_front();
        }
        ends
    }

    /// Takes one piece of what was received; false if there is none.
    fn step(&mut self, heads: &mut HeadPool) -> Result<bool, Error> {
        if self.opening == Opening::Preface {
            if !self.input.preface(frame::PREFACE)? {
                return Ok(false);
            }
            self.opening = Opening::Settings;
        }
        let Some(piece) = self.input.next(self.options.max_frame_size as usize)? else {
            return Ok(false);
        };
        if let Piece::Frame(header, _)
        | Piece::WholeData(header, _)
        | Piece::DataBegins(header, _) = &piece
        {
            self.shown.received(*header);
        }
        match piece {
            Piece::Frame(header, payload) => self.on_frame(header, payload, heads)?,
            Piece::WholeData(header, data) => self.on_whole_data(header, data)?,
            Piece::DataBegins(header, content) => {
                self.body = Some(Body { id: header.stream, end_stream: header.has(END_STREAM) });
                self.on_data_begins(header, content)?;
            }
            Piece::Data(data) => {
                let number = self.body.and_then(|body| self.streams.number_of(body.id));
                self.on_data(number, data);
            }
            Piece::DataEnds => {
                let Some(body) = self.body.take() else { return Ok(true) };
                self.on_data_ends(self.streams.number_of(body.id), body.end_stream)?;
            }
        }
        self.budget.check_waiting(&self.options)?;
        Ok(true)
    }

    fn check_order(&mut self, header: FrameHeader) -> Result<(), Error> {
        if self.opening == Opening::Settings {
            if header.kind != Kind::Settings || header.has(ACK) {
                return Err(Error::MissingSettings);
            }
            self.opening = Opening::Done;
        }
        // RFC 9113 §4.3: the frames of a header block stand side by side.
        match &self.block {
            Some(block) if header.kind != Kind::Continuation || header.stream != block.stream => {
                return Err(Error::BlockInterrupted);
            }
            None if header.kind == Kind::Continuation => return Err(Error::UnexpectedContinuation),
            Some(_) | None => {}
        }
        if is_of_stream(header.kind) && header.stream == 0 {
            return Err(Error::NoStream);
        }
        let of_connection = matches!(header.kind, Kind::Settings | Kind::Ping | Kind::GoAway);
        if of_connection && header.stream != 0 {
            return Err(Error::UnexpectedStream);
        }
        Ok(())
    }

    fn on_frame(
        &mut self,
        header: FrameHeader,
        payload: Bytes,
        heads: &mut HeadPool,
    ) -> Result<(), Error> {
        self.check_order(header)?;
        match header.kind {
            Kind::Headers => self.on_headers(header, payload, heads),
            Kind::Continuation => self.on_continuation(header, &payload, heads),
            Kind::Priority => self.on_priority(header, &payload),
            Kind::Reset => self.on_reset(header, &payload),
            Kind::Settings => self.on_settings(header, &payload),
            Kind::Push => Err(Error::UnexpectedPush),
            Kind::Ping => self.on_ping(header, &payload),
            Kind::GoAway => self.on_go_away(&payload),
            Kind::WindowUpdate => self.on_window_update(header, &payload),
            Kind::Data | Kind::Unknown => Ok(()),
        }
    }
}

/// HEADERS and CONTINUATION (RFC 9113 §6.2, §6.10).
impl Connection {
    fn on_headers(
        &mut self,
        header: FrameHeader,
        payload: Bytes,
        heads: &mut HeadPool,
    ) -> Result<(), Error> {
        let block = block_of(header, payload)?;
        self.block_frames = 1;
        let (id, end_stream) = (header.stream, header.has(END_STREAM));
        if header.has(END_HEADERS) {
            self.budget.content(block.is_empty() && !end_stream, &self.options)?;
            return self.on_block(id, end_stream, &block, heads);
        }
        self.budget.content(block.is_empty(), &self.options)?;
        self.check_block(block.len(), 1)?;
        let bytes = BytesMut::from(&block[..]);
        self.block = Some(Box::new(Block { stream: id, end_stream, bytes, frames: 1 }));
        Ok(())
    }

    fn on_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        heads: &mut HeadPool,
    ) -> Result<(), Error> {
        let ends = header.has(END_HEADERS);
        self.budget.content(payload.is_empty() && !ends, &self.options)?;
        let Some(block) = &mut self.block else { return Err(Error::UnexpectedContinuation) };
        block.bytes.extend_from_slice(payload);
        block.frames += 1;
        let (length, frames) = (block.bytes.len(), block.frames);
        self.block_frames = frames;
        self.check_block(length, frames)?;
        if !ends {
            return Ok(());
        }
        let Some(block) = self.block.take() else { return Ok(()) };
        self.on_block(block.stream, block.end_stream, &block.bytes, heads)
    }

    /// A block may be larger than a head may: it has to be read to its end. But not much, nor in many small frames.
    fn check_block(&self, length: usize, frames: u32) -> Result<(), Error> {
        let most = self.options.max_head_bytes as usize;
        let most_frames = 8 + self.options.max_head_bytes / 4096;
        if length > 2 * most + 16_384 || frames > most_frames {
            return Err(Error::BlockTooLarge);
        }
        Ok(())
    }

    /// A whole header block.
    fn on_block(
        &mut self,
        id: u32,
        end_stream: bool,
        block: &[u8],
        heads: &mut HeadPool,
    ) -> Result<(), Error> {
        if id.is_multiple_of(2) {
            return Err(Error::BadStream);
        }
        if let Some(number) = self.streams.number_of(id) {
            return self.on_later_block(number, end_stream, block, heads);
        }
        match self.side {
            Side::Client if id > self.last_id => Err(Error::IdleStream),
            Side::Server if id > self.last_id => self.on_request(id, end_stream, block, heads),
            Side::Client | Side::Server => {
                match self.streams.gone(id) {
                    Gone::Closed => return Err(Error::StreamClosed),
                    Gone::Skipped => return Err(Error::BadStream),
                    Gone::ResetByUs | Gone::Forgotten => {}
                }
                self.skip_block(block)
            }
        }
    }

    /// Reads a block that nothing comes of, for the table.
    fn skip_block(&mut self, block: &[u8]) -> Result<(), Error> {
        let read = self.decoder.decode(block, &limits(&self.options), &mut |_| {});
        check_decoded(read).map(|_| ())
    }

    fn on_request(
        &mut self,
        id: u32,
        end_stream: bool,
        block: &[u8],
        heads: &mut HeadPool,
    ) -> Result<(), Error> {
        self.last_id = id;
        if matches!(self.going, Going::Last(_)) {
            // RFC 9113 §6.8: what follows of it is ignored as well.
            self.streams.remember(id, Gone::ResetByUs);
            return self.skip_block(block);
        }
        if self.streams.len() >= self.options.max_concurrent_streams as usize {
            self.skip_block(block)?;
            self.counts.refused += 1;
            return self.refuse(id, Code::REFUSED_STREAM);
        }
        let built = match self.build(Section::Request, block, heads)? {
            Ok(built) => built,
            Err(code) => return self.refuse(id, code),
        };
        let receiving = if end_stream { Progress::Ended } else { Progress::Body };
        let expected = built.content_length.filter(|_| built.head.method() != Method::Connect);
        if end_stream && expected.is_some_and(|length| length > 0) {
            heads.give(built.head);
            self.unread[Unread::Malformed as usize] += 1;
            self.check_malformed()?;
            return self.refuse(id, Code::PROTOCOL_ERROR);
        }
        let number = self.begin(id, receiving);
        if let Some(stream) = self.streams.get_mut(number) {
            stream.bodiless = built.head.method() == Method::Head;
            stream.upgrade = built.upgrade;
            stream.tunnel = built.upgrade || built.head.method() == Method::Connect;
            stream.expected = expected;
        }
        self.report(number, Event::Head { head: built.head, end: end_stream });
        Ok(())
    }

    /// A stream that is over before it begins.
    fn refuse(&mut self, id: u32, code: Code) -> Result<(), Error> {
        self.put_reset(id, code);
        self.budget.early_reset(&self.options)
    }

    /// The head of an answer, or trailers.
    fn on_later_block(
        &mut self,
        number: u32,
        end_stream: bool,
        block: &[u8],
        heads: &mut HeadPool,
    ) -> Result<(), Error> {
        let Some(stream) = self.streams.get(number) else { return Ok(()) };
        let progress = stream.receiving;
        if progress == Progress::Ended && !stream.reset {
            self.skip_block(block)?;
            return self.stream_error(number, Code::STREAM_CLOSED);
        }
        if stream.reset || stream.released {
            self.skip_block(block)?;
            return self.end_if(number, end_stream);
        }
        if progress == Progress::Head {
            return self.on_response(number, end_stream, block, heads);
        }
        let built = match self.build(Section::Trailers, block, heads)? {
            Ok(built) => built,
            Err(code) => return self.stream_error(number, code),
        };
        let Some(stream) = self.streams.get(number) else { return Ok(()) };
        // RFC 9113 §8.1: trailers end the message, which has come as long as it said.
        if !end_stream || stream.expected.is_some_and(|left| left > 0) {
            heads.give(built.head);
            self.check_malformed()?;
            return self.stream_error(number, Code::PROTOCOL_ERROR);
        }
        self.counts.trailers += u32::from(self.side == Side::Server);
        if built.head.is_empty() {
            heads.give(built.head);
            return self.end_if(number, true);
        }
        self.mark_ended(number);
        self.report(number, Event::Trailers(built.head));
        Ok(())
    }

    fn on_response(
        &mut self,
        number: u32,
        end_stream: bool,
        block: &[u8],
        heads: &mut HeadPool,
    ) -> Result<(), Error> {
        let built = match self.build(Section::Response, block, heads)? {
            Ok(built) => built,
            Err(code) => return self.stream_error(number, code),
        };
        let Some(stream) = self.streams.get_mut(number) else { return Ok(()) };
        let mut head = built.head;
        let status = head.status();
        if status < 200 {
            if end_stream {
                heads.give(head);
                self.check_malformed()?;
                return self.stream_error(number, Code::PROTOCOL_ERROR);
            }
            self.report_arrival(number, Arrival::Part(Event::Informational(head)));
            return Ok(());
        }
        // RFC 9110 §6.4.1: these have no content whatever their fields say.
        let bodiless = stream.bodiless || status == 204 || status == 304;
        // RFC 9110 §9.3.6: what opens a tunnel has no content, and what follows is of any length.
        let opens = stream.tunnel && (200..300).contains(&status);
        stream.expected = match (opens, bodiless) {
            (true, _) => None,
            (false, true) => Some(0),
            (false, false) => built.content_length,
        };
        if end_stream && stream.expected.is_some_and(|length| length > 0) {
            heads.give(head);
            self.check_malformed()?;
            return self.stream_error(number, Code::PROTOCOL_ERROR);
        }
        if stream.upgrade && (200..300).contains(&status) {
            // RFC 8441 §5: what HTTP/1 says by 101.
            head.set_status(101);
        }
        stream.receiving = if end_stream { Progress::Ended } else { Progress::Body };
        self.report(number, Event::Head { head, end: end_stream });
        Ok(())
    }

    /// Reads a block into a head; the inner error is that of its stream.
    fn build(
        &mut self,
        section: Section,
        block: &[u8],
        heads: &mut HeadPool,
    ) -> Result<Result<Built, Code>, Error> {
        let wire = block.len() + frame::HEADER * self.block_frames as usize;
        let known = &mut self.known[usize::from(section == Section::Trailers)];
        if let Some((built, decoded)) = known.find(block, &self.decoder, heads) {
            self.block_read = (wire, decoded);
            return Ok(Ok(built));
        }
        let changes = self.decoder.changes();
        let underscored = heads.underscored;
        let mut builder = Builder::new(section, &self.options, heads);
        let read =
            self.decoder.decode(block, &limits(&self.options), &mut |field| builder.add(&field));
        let is_request = u32::from(section == Section::Request);
        match check_decoded(read) {
            Err(error) => {
                builder.discard();
                if error == Error::BlockTooLarge {
                    self.unread[Unread::TooLarge as usize] += is_request;
                }
                Err(error)
            }
            Ok(Some(why)) => {
                builder.discard();
                let count = match why {
                    Unread::TooLarge => &mut self.counts.heads_too_large,
                    Unread::TooManyFields | Unread::Malformed | Unread::Underscore => {
                        &mut self.counts.header_overflows
                    }
                };
                *count += 1;
                self.unread[why as usize] += is_request;
                Ok(Err(Code::ENHANCE_YOUR_CALM))
            }
            Ok(None) => match builder.finish() {
                Ok(built) => {
                    // What is dropped of it is counted each time.
                    if self.decoder.changes() == changes && heads.underscored == underscored {
                        known.keep(block, &self.decoder, &built);
                    }
                    self.block_read = (wire, self.decoder.decoded_bytes());
                    Ok(Ok(built))
                }
                // As in Envoy no reason to end the connection.
                Err(_) if heads.underscored.rejected != underscored.rejected => {
                    self.unread[Unread::Underscore as usize] += is_request;
                    Ok(Err(Code::INTERNAL_ERROR))
                }
                Err(_) => {
                    self.unread[Unread::Malformed as usize] += is_request;
                    self.check_malformed()?;
                    Ok(Err(Code::PROTOCOL_ERROR))
                }
            },
        }
    }

    /// A message is malformed: its stream is over, or the connection.
    fn check_malformed(&mut self) -> Result<(), Error> {
        self.counts.malformed += 1;
        if self.options.stream_error_on_malformed { Ok(()) } else { Err(Error::Malformed) }
    }
}

/// DATA (RFC 9113 §6.1).
impl Connection {
    fn on_whole_data(&mut self, header: FrameHeader, data: Bytes) -> Result<(), Error> {
        let number = self.on_data_begins(header, data.len())?;
        self.on_data(number, data);
        self.on_data_ends(number, header.has(END_STREAM))
    }

    /// Answers which stream's it is. What follows for one that is over is dropped.
    fn on_data_begins(
        &mut self,
        header: FrameHeader,
        content: usize,
    ) -> Result<Option<u32>, Error> {
        self.check_order(header)?;
        let (id, end_stream) = (header.stream, header.has(END_STREAM));
        if !self.receive_window.receive(header.length) {
            return Err(Error::WindowExceeded);
        }
        // Padding is of no use to a stream.
        if header.length > content {
            self.give_back((header.length - content) as u32);
        }
        self.budget.content(content == 0 && !end_stream, &self.options)?;
        let number = self.streams.number_of(id);
        let stream = number.and_then(|number| self.streams.get_mut(number));
        let (Some(number), Some(stream)) = (number, stream) else {
            self.on_stray_data(id)?;
            return Ok(None);
        };
        if stream.reset {
            return Ok(Some(number));
        }
        let refused = match stream.receiving {
            Progress::Body => stream.admit(header.length, content),
            Progress::Ended => Some(Code::STREAM_CLOSED),
            // RFC 9113 §8.1: a response begins with its head.
            Progress::Head => Some(Code::PROTOCOL_ERROR),
        };
        if let Some(code) = refused {
            if code == Code::PROTOCOL_ERROR {
                self.check_malformed()?;
            }
            self.stream_error(number, code)?;
        }
        Ok(Some(number))
    }

    /// DATA for a stream that is not there.
    fn on_stray_data(&mut self, id: u32) -> Result<(), Error> {
        if id > self.last_id || id.is_multiple_of(2) {
            return Err(Error::IdleStream);
        }
        match self.streams.gone(id) {
            Gone::ResetByUs | Gone::Forgotten => Ok(()),
            Gone::Skipped => Err(Error::IdleStream),
            // RFC 9113 §5.1 allows it: a server that goes on behind the end of an answer is not to be trusted with
            // others.
            Gone::Closed if self.side == Side::Client => Err(Error::StreamClosed),
            Gone::Closed => {
                self.put_reset(id, Code::STREAM_CLOSED);
                self.budget.early_reset(&self.options)
            }
        }
    }

    fn on_data(&mut self, number: Option<u32>, data: Bytes) {
        let stream = number.and_then(|number| self.streams.get_mut(number));
        match (number, stream) {
            (Some(number), Some(stream)) if !stream.reset && !stream.released => {
                self.events.push_back((number, Arrival::Part(Event::Data(data))));
            }
            (_, stream) => {
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                if let Some(stream) = stream.filter(|stream| !stream.reset) {
                    stream.receive_window.release(length);
                }
                self.give_back(length);
            }
        }
    }

    fn on_data_ends(&mut self, number: Option<u32>, end_stream: bool) -> Result<(), Error> {
        let Some(number) = number.filter(|_| end_stream) else { return Ok(()) };
        let Some(stream) = self.streams.get(number).filter(|stream| !stream.reset) else {
            return Ok(());
        };
        if stream.expected.is_some_and(|left| left > 0) {
            self.check_malformed()?;
            return self.stream_error(number, Code::PROTOCOL_ERROR);
        }
        self.end_if(number, true)
    }
}

/// All other frames.
impl Connection {
    /// RFC 9113 §5.3.2: checked, and of no effect.
    fn on_priority(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Error> {
        self.budget.priority_frame(&self.options)?;
        if payload.len() != 5 {
            return Err(Error::BadFrameSize);
        }
        if frame::number(payload).is_some_and(|parent| parent & frame::MASK == header.stream) {
            return Err(Error::BadStream);
        }
        Ok(())
    }

    fn on_reset(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Error> {
        let (Some(code), 4) = (frame::number(payload).map(Code), payload.len()) else {
            return Err(Error::BadFrameSize);
        };
        let id = header.stream;
        let Some(number) = self.streams.number_of(id) else {
            return self.check_not_idle(id);
        };
        self.counts.resets_received += 1;
        let Some(stream) = self.streams.get_mut(number).filter(|stream| !stream.reset) else {
            return Ok(());
        };
        let is_early = self.side == Side::Server && stream.sending == Progress::Head;
        // RFC 9113 §8.1: a server that has answered may do without the remainder of the request.
        let is_answered = self.side == Side::Client && stream.receiving == Progress::Ended;
        let released = stream.released;
        stream.cut();
        self.streams.remember(id, Gone::Closed);
        if released {
            self.remove_if_over(number);
        } else if !is_answered {
            let refused = self.side == Side::Client && code == Code::REFUSED_STREAM;
            let arrival = if refused { Arrival::Refused } else { Arrival::Reset(code) };
            self.report_arrival(number, arrival);
        }
        if is_early { self.budget.early_reset(&self.options) } else { Ok(()) }
    }

    fn check_not_idle(&self, id: u32) -> Result<(), Error> {
        if id > self.last_id || id.is_multiple_of(2) {
            return Err(Error::IdleStream);
        }
        Ok(())
    }

    fn on_settings(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Error> {
        if header.has(ACK) {
            if !payload.is_empty() {
                return Err(Error::BadFrameSize);
            }
            self.decoder.set_max_size(self.options.header_table_size);
            return Ok(());
        }
        let before = self.peer;
        let least_table = self.peer.update(payload, self.side == Side::Server)?;
        if before.initial_window != self.peer.initial_window {
            self.check_windows()?;
            self.open_all();
        }
        if before.header_table_size != least_table {
            self.encoder.set_max_size(least_table);
        }
        if least_table != self.peer.header_table_size {
            self.encoder.set_max_size(self.peer.header_table_size);
        }
        frame::put_header(&mut self.control, 0, Kind::Settings, ACK, 0);
        self.budget.answer();
        Ok(())
    }

    fn on_ping(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Error> {
        let (Some(opaque), 8) = (payload.first_chunk::<8>(), payload.len()) else {
            return Err(Error::BadFrameSize);
        };
        if !header.has(ACK) {
            frame::put_ping(&mut self.control, ACK, *opaque);
            self.budget.answer();
        } else if *opaque == LIVENESS {
            self.ping = Ping::None;
        } else if *opaque == GRACEFUL && self.going == Going::Soon {
            self.go_away(Code::NO_ERROR);
        }
        Ok(())
    }

    fn on_go_away(&mut self, payload: &[u8]) -> Result<(), Error> {
        let (Some(last), true) = (frame::number(payload), payload.len() >= 8) else {
            return Err(Error::BadFrameSize);
        };
        self.peer_left = frame::number(&payload[4..]).map(Code);
        self.goaways_received = self.goaways_received.saturating_add(1);
        if self.side == Side::Server {
            return Ok(());
        }
        let last = last & frame::MASK;
        self.going = Going::Last(last);
        let beyond: Vec<u32> = self
            .streams
            .iter_mut()
            .filter(|(_, stream)| stream.id > last && !stream.reset)
            .map(|(number, stream)| {
                stream.cut();
                number
            })
            .collect();
        for number in beyond {
            self.report_arrival(number, Arrival::Refused);
            self.remove_if_over(number);
        }
        Ok(())
    }

    fn on_window_update(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), Error> {
        let (Some(more), 4) = (frame::number(payload), payload.len()) else {
            return Err(Error::BadFrameSize);
        };
        self.budget.window_update(&self.options)?;
        let (more, id) = (more & frame::MASK, header.stream);
        if id == 0 {
            if more == 0 {
                return Err(Error::EmptyWindowUpdate);
            }
            let was_closed = self.send_window.available() == 0;
            if !self.send_window.grow(more) {
                return Err(Error::WindowOverflow);
            }
            if was_closed {
                self.open_all();
            }
            return Ok(());
        }
        let Some(number) = self.streams.number_of(id) else { return self.check_not_idle(id) };
        let Some(stream) = self.streams.get_mut(number).filter(|stream| !stream.reset) else {
            return Ok(());
        };
        if more == 0 {
            return self.stream_error(number, Code::PROTOCOL_ERROR);
        }
        if !stream.send_window.grow(more, self.peer.initial_window) {
            return self.stream_error(number, Code::FLOW_CONTROL_ERROR);
        }
        self.widest = self.widest.max(stream.send_window);
        self.opened.push(number);
        self.make_ready(number);
        Ok(())
    }

    /// RFC 9113 §6.9.2: no window may be beyond 2³¹ - 1. All are looked at when one was wide enough, perhaps of a
    /// stream that is over.
    fn check_windows(&mut self) -> Result<(), Error> {
        if !self.widest.exceeds(self.peer.initial_window) {
            return Ok(());
        }
        let windows = self.streams.iter().map(|stream| stream.send_window);
        self.widest = windows.max().unwrap_or_default();
        let is_beyond = self.widest.exceeds(self.peer.initial_window);
        if is_beyond { Err(Error::BadWindowSetting) } else { Ok(()) }
    }

    /// All streams may have room again: they are looked at once, however often that is said.
    fn open_all(&mut self) {
        (self.all_opened, self.all_ready) = (true, true);
    }
}

/// What becomes of streams.
impl Connection {
    fn report(&mut self, number: u32, event: Event) {
        self.report_arrival(number, Arrival::Part(event));
    }

    fn report_arrival(&mut self, number: u32, arrival: Arrival) {
        if self.streams.get(number).is_some_and(|stream| !stream.released) {
            self.events.push_back((number, arrival));
        }
    }

    fn mark_ended(&mut self, number: u32) {
        if let Some(stream) = self.streams.get_mut(number) {
            stream.receiving = Progress::Ended;
        }
    }

    /// The peer has ended its direction of a stream, if so.
    fn end_if(&mut self, number: u32, end_stream: bool) -> Result<(), Error> {
        if end_stream {
            self.mark_ended(number);
            self.report(number, Event::End);
        }
        Ok(())
    }

    /// A stream is over by a mistake of the peer's.
    fn stream_error(&mut self, number: u32, code: Code) -> Result<(), Error> {
        let Some(stream) = self.streams.get_mut(number) else { return Ok(()) };
        let (id, was_reset) = (stream.id, mem::replace(&mut stream.reset, true));
        stream.cut();
        self.put_reset(id, code);
        if !was_reset {
            self.report_arrival(number, Arrival::Reset(code));
        }
        self.remove_if_over(number);
        self.budget.early_reset(&self.options)
    }
}

/// The header block in HEADERS, without padding and priority.
fn block_of(header: FrameHeader, mut payload: Bytes) -> Result<Bytes, Error> {
    let mut padding = 0;
    if header.has(PADDED) {
        padding = usize::from(*payload.first().ok_or(Error::BadFrameSize)?);
        payload = payload.slice(1..);
    }
    if header.has(PRIORITY) {
        let parent = frame::number(&payload).filter(|_| payload.len() >= 5);
        // RFC 9113 §5.3.1 leaves of priorities only that they are well formed.
        if parent.ok_or(Error::BadFrameSize)? & frame::MASK == header.stream {
            return Err(Error::BadStream);
        }
        payload = payload.slice(5..);
    }
    let length = payload.len().checked_sub(padding).ok_or(Error::BadPadding)?;
    payload.truncate(length);
    Ok(payload)
}

fn limits(options: &super::Options) -> Limits {
    Limits {
        max_list_size: options.max_head_bytes as usize,
        max_fields: options.max_fields as usize,
    }
}

/// What was read is larger than allowed, perhaps.
fn check_decoded(read: Result<(), hpack::Error>) -> Result<Option<Unread>, Error> {
    match read {
        Ok(()) => Ok(None),
        Err(hpack::Error::TooLarge) => Ok(Some(Unread::TooLarge)),
        Err(hpack::Error::TooManyFields) => Ok(Some(Unread::TooManyFields)),
        Err(hpack::Error::FarTooLarge) => Err(Error::BlockTooLarge),
        Err(_) => Err(Error::BadBlock),
    }
}
