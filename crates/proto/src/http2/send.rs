//! What leaves: heads at once, bodies when [`Connection::flush`] is called, in turn and as far as windows are open.

use bytes::{Bytes, BytesMut};

use super::connection::{Connection, Side};
use super::frame::{self, END_HEADERS, END_STREAM, HEADER, Kind};
use super::head;
use super::stream::Progress;
use crate::head::{Head, Method};
use crate::name::Name;
use crate::out::Out;

impl Connection {
    /// Writes the head of a request or of a final response; `end` if nothing follows.
    pub fn send_head(&mut self, number: u32, head: &Head, end: bool, out: &mut Out) {
        self.put_control(out);
        let side = self.side;
        let Some(stream) = self.streams.get_mut(number) else { return };
        if stream.reset || stream.sending != Progress::Head {
            return;
        }
        let id = stream.id;
        stream.sending = if end { Progress::Ended } else { Progress::Body };
        stream.ending = end;
        let upgrade = match side {
            Side::Client => {
                stream.bodiless = head.method() == Method::Head;
                stream.upgrade = head.get(Name::Upgrade).is_some();
                stream.tunnel = stream.upgrade || head.method() == Method::Connect;
                stream.upgrade
            }
            Side::Server => stream.upgrade,
        };
        self.write_block(id, end, out, |connection, block| match side {
            Side::Client => head::put_request(&mut connection.encoder, head, upgrade, block),
            Side::Server => {
                // RFC 8441 §5: what 101 says in HTTP/1.
                let switches = upgrade && head.status() == 101;
                let status = if switches { 200 } else { head.status() };
                head::put_response(&mut connection.encoder, head, status, block);
            }
        });
        self.remove_if_over(number);
    }

    /// Writes an interim response.
    pub fn send_informational(&mut self, number: u32, head: &Head, out: &mut Out) {
        self.put_control(out);
        let Some(stream) = self.streams.get(number) else { return };
        if stream.reset || stream.sending != Progress::Head || self.side == Side::Client {
            return;
        }
        let id = stream.id;
        self.write_block(id, false, out, |connection, block| {
            head::put_response(&mut connection.encoder, head, head.status(), block);
        });
    }

    /// Takes a piece of a body.
    pub fn send_data(&mut self, number: u32, data: Bytes) {
        let Some(stream) = self.streams.get_mut(number) else { return };
        if stream.reset || stream.sending != Progress::Body || stream.ending || data.is_empty() {
            return;
        }
        stream.enqueue(data);
        self.make_ready(number);
    }

    /// Ends a message with trailers, which [`Connection::flush`] writes.
    pub fn send_trailers(&mut self, number: u32, trailers: &Head) {
        if let Some(stream) = self.streams.get_mut(number).filter(|stream| !stream.ending) {
            stream.keep_trailers(trailers.clone());
        }
        self.send_end(number);
    }

    /// As [`Connection::send_trailers`]; they are written at once, and not copied, where what waits before them has
    /// room in one frame.
    pub fn write_trailers(&mut self, number: u32, trailers: &Head, out: &mut Out) {
        let room = self.send_window.available().min(self.frame_room());
        let initial = self.peer.initial_window;
        let Some(stream) = self.streams.get_mut(number) else { return };
        let is_open = !stream.reset && !stream.ending && stream.sending == Progress::Body;
        if !is_open || stream.queued > room.min(stream.send_window.available(initial)) {
            return self.send_trailers(number, trailers);
        }
        let (id, waits) = (stream.id, stream.queued > 0);
        self.cut = self.cut.filter(|(cut, _)| *cut != number);
        self.put_control(out);
        if waits {
            self.write_turn(number, out);
        }
        if let Some(stream) = self.streams.get_mut(number) {
            (stream.ending, stream.sending) = (true, Progress::Ended);
        }
        self.write_block(id, true, out, |connection, block| {
            head::put_trailers(&mut connection.encoder, trailers, block);
        });
        self.remove_if_over(number);
    }

    /// Ends a message.
    pub fn send_end(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(number) else { return };
        if stream.reset || stream.sending != Progress::Body {
            return;
        }
        stream.ending = true;
        self.make_ready(number);
    }

    /// Writes everything that can leave.
    pub fn flush(&mut self, out: &mut Out) {
        self.put_control(out);
        if std::mem::take(&mut self.all_ready) {
            let numbers: Vec<u32> = self.streams.numbers().collect();
            numbers.into_iter().for_each(|number| self.make_ready(number));
        }
        let mut left = self.ready.len();
        while left > 0 {
            left -= 1;
            let Some(number) = self.ready.pop_front() else { break };
            match self.write_turn(number, out) {
                Turn::More => {
                    self.ready.push_back(number);
                    left += 1;
                }
                Turn::Waits => self.ready.push_back(number),
                Turn::Over => {
                    if let Some(stream) = self.streams.get_mut(number) {
                        stream.ready = false;
                    }
                    self.remove_if_over(number);
                }
            }
        }
        // A stream that was just forgotten may have left something to say.
        self.put_control(out);
        self.shown.windows(self.send_window, self.receive_window);
    }

    /// Whether a stream stands among those that have something to send, it does now if it has.
    pub(super) fn make_ready(&mut self, number: u32) {
        if let Some(stream) = self.streams.get_mut(number)
            && !stream.ready
            && stream.has_something_to_send(self.peer.initial_window)
        {
            stream.ready = true;
            self.ready.push_back(number);
        }
    }

    fn put_control(&mut self, out: &mut Out) {
        if self.control.is_empty() {
            return;
        }
        self.shown.sent(&self.control);
        out.buffer().extend_from_slice(&self.control);
        self.budget.wrote(self.control.len());
        self.control.clear();
        if self.control.capacity() > MAX_KEPT {
            self.control = BytesMut::new();
        }
    }

    /// Writes one frame of a stream.
    fn write_turn(&mut self, number: u32, out: &mut Out) -> Turn {
        let (initial, most) = (self.peer.initial_window, self.turn_room(number));
        let Some(stream) =
            self.streams.get_mut(number).filter(|it| it.has_something_to_send(initial))
        else {
            return Turn::Over;
        };
        let id = stream.id;
        if stream.queued > 0 {
            let wanted = stream.queued.min(stream.send_window.available(initial)).min(most);
            let length = wanted.min(self.send_window.available());
            if length == 0 {
                return Turn::Waits;
            }
            stream.send_window.take(length);
            self.send_window.take(length);
            let ends = stream.queued == length && stream.ending && !stream.has_trailers();
            let flags = if ends { END_STREAM } else { 0 };
            let header = frame::header(length, Kind::Data, flags, id);
            out.buffer().extend_from_slice(&header);
            self.shown.sent(&header);
            let mut left = length;
            while left > 0 && stream.queued > 0 {
                let piece = stream.dequeue(left);
                left -= piece.len();
                out.push(piece);
            }
            self.budget.data_frame_sent();
            self.budget.wrote(HEADER + length);
            if ends {
                stream.sending = Progress::Ended;
            }
            let left = most - length;
            if length < wanted && left >= WORTH_A_FRAME {
                // It goes on first once the window opens, or who comes before it could have it all.
                self.cut = u16::try_from(left).ok().map(|left| (number, left));
                return Turn::Waits;
            }
            return if stream.has_something_to_send(initial) { Turn::More } else { Turn::Over };
        }
        stream.sending = Progress::Ended;
        match stream.take_trailers() {
            Some(trailers) => self.write_block(id, true, out, |connection, block| {
                head::put_trailers(&mut connection.encoder, &trailers, block);
            }),
            None => {
                let header = frame::header(0, Kind::Data, END_STREAM, id);
                out.buffer().extend_from_slice(&header);
                self.shown.sent(&header);
                self.budget.data_frame_sent();
                self.budget.wrote(HEADER);
            }
        }
        Turn::Over
    }

    /// Bytes of content that a stream may send before it is another's turn.
    fn turn_room(&mut self, number: u32) -> usize {
        match self.cut {
            Some((cut, left)) if cut == number && self.send_window.available() > 0 => {
                self.cut = None;
                usize::from(left)
            }
            Some(_) | None => self.frame_room(),
        }
    }

    /// Bytes of content that a frame has at most.
    fn frame_room(&self) -> usize {
        self.peer.max_frame_size.min(LARGEST) as usize
    }

    /// Writes a header block as HEADERS, and CONTINUATION where it is too long for one frame.
    fn write_block(
        &mut self,
        id: u32,
        end: bool,
        out: &mut Out,
        put: impl FnOnce(&mut Self, &mut BytesMut),
    ) {
        let most = self.peer.max_frame_size as usize;
        let flags = if end { END_STREAM } else { 0 };
        let buffer = out.buffer();
        let start = buffer.len();
        frame::put_header(buffer, 0, Kind::Headers, flags | END_HEADERS, id);
        put(self, buffer);
        let length = buffer.len() - start - HEADER;
        let (first, flags) =
            if length > most { (most, flags) } else { (length, flags | END_HEADERS) };
        if let Some(header) = buffer.get_mut(start..start + HEADER) {
            header.copy_from_slice(&frame::header(first, Kind::Headers, flags, id));
        }
        self.budget.frame_sent();
        if length > most {
            let block = buffer.split_off(start + HEADER + most);
            let mut pieces = block.chunks(most).peekable();
            while let Some(piece) = pieces.next() {
                let flags = if pieces.peek().is_none() { END_HEADERS } else { 0 };
                frame::put_header(buffer, piece.len(), Kind::Continuation, flags, id);
                buffer.extend_from_slice(piece);
                self.budget.frame_sent();
            }
        }
        let written = buffer.len() - start;
        self.block_written = written;
        self.shown.sent(buffer.get(start..).unwrap_or_default());
        self.budget.wrote(written);
    }
}

/// What a stream's turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There is more to be sent.
    More,
    /// The connection's window is closed.
    Waits,
    /// Nothing more can leave now.
    Over,
}

/// What a turn that was cut short has left is worth as many bytes, at least.
const WORTH_A_FRAME: usize = 1024;
/// Larger frames would hold others up longer.
const LARGEST: u32 = 16_384;
/// Room for frames of the connection that is kept.
const MAX_KEPT: usize = 1024;
