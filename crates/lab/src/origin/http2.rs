//! HTTP/2 of the test server: a client's streams, each with the same answer.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::http2::{Arrival, Connection, Error, Options};
use towpath_proto::{Event, Head, HeadPool, Method, Name, Out};

use super::Origin;
use crate::load::http2::{grpc_message, is_grpc};

/// One client's streams.
#[derive(Debug)]
pub(super) struct Session {
    codec: Connection,
    heads: HeadPool,
    out: Out,
    /// By the codec's number.
    streams: Vec<Option<Stream>>,
    /// Streams with more to send than was given to the codec, in turn.
    sending: VecDeque<u32>,
    serial: u64,
}

/// A request, and what its answer still has to send.
#[derive(Debug)]
struct Stream {
    serial: u64,
    kind: Kind,
    left: Bytes,
    trailers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Without a body.
    Head,
    Grpc,
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    number: u32,
    serial: u64,
    is_failed: bool,
}

impl Asked {
    /// The service that was asked did not answer well.
    pub(super) fn into_failure(self) -> Self {
        Self { is_failed: true, ..self }
    }
}

/// The answers, made once.
#[derive(Debug)]
pub(super) struct Answers {
    head: Head,
    body: Bytes,
    failure: Head,
    grpc_head: Head,
    /// Nothing where the status is another than 0, which the head then says.
    grpc_body: Bytes,
    grpc_trailers: Head,
    options: Arc<Options>,
}

impl Answers {
    pub(super) fn new(origin: &Origin) -> Self {
        let length = |status, size: usize| {
            let mut head = Head::response(status);
            head.append(Name::ContentLength, size.to_string().as_bytes());
            head
        };
        let filler = super::filler(origin.size);
        let mut grpc_head = Head::response(origin.status);
        grpc_head.append(Name::ContentType, b"application/grpc");
        let mut grpc_trailers = Head::default();
        let (said_in, grpc_body) = match origin.grpc_status {
            0 => (&mut grpc_trailers, grpc_message(&message(origin.size))),
            _ => (&mut grpc_head, Vec::new()),
        };
        said_in.append_bytes(b"grpc-status", origin.grpc_status.to_string().as_bytes());
        Self {
            head: length(origin.status, origin.size),
            failure: length(502, 0),
            grpc_body: grpc_body.into(),
            body: filler.into(),
            grpc_head,
            grpc_trailers,
            options: Arc::new(Options {
                stream_window: WINDOW,
                connection_window: WINDOW,
                max_fields: 1000,
                ..Options::default()
            }),
        }
    }
}

/// A message of so many bytes as clients can read it, whatever the method: one field, number 1, of bytes (Protocol
/// Buffers' wire format). One byte is too few for that, and is sent as it is.
fn message(size: usize) -> Vec<u8> {
    // As many bytes for the length as leave no more content than they can count: at times one more than it needs.
    let fits = |&bytes: &usize| size > bytes && (size - 1 - bytes) >> (7 * bytes) == 0;
    let Some(bytes) = (1..=5).find(fits) else { return super::filler(size) };
    let length = size - 1 - bytes;
    let mut message = vec![LENGTH_DELIMITED_1];
    for at in 0..bytes {
        let more = if at + 1 < bytes { 0x80 } else { 0 };
        message.push((length >> (7 * at)) as u8 & 0x7f | more);
    }
    message.append(&mut super::filler(length));
    message
}

/// The tag of field 1 with a length before its content.
const LENGTH_DELIMITED_1: u8 = 1 << 3 | 2;

impl Session {
    pub(super) fn new(answers: &Answers) -> Self {
        Self {
            codec: Connection::server(Arc::clone(&answers.options)),
            heads: HeadPool::new(64),
            out: Out::new(),
            streams: Vec::new(),
            sending: VecDeque::new(),
            serial: 0,
        }
    }

    /// Takes what arrived; `each` hears of every request that is whole.
    ///
    /// # Errors
    /// When it is not HTTP/2; what the client is told of that is in the output.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Asked),
    ) -> Result<(), Error> {
        self.codec.receive(Bytes::copy_from_slice(bytes));
        while let Some((number, arrival)) = self.codec.poll(&mut self.heads)? {
            let is_whole = match arrival {
                Arrival::Part(Event::Head { head, end }) => {
                    self.begin(number, &head);
                    self.heads.give(head);
                    end
                }
                Arrival::Part(Event::Informational(head)) => {
                    self.heads.give(head);
                    false
                }
                Arrival::Part(Event::Data(_)) => {
                    self.codec.consumed(number);
                    false
                }
                Arrival::Part(Event::Trailers(head)) => {
                    self.heads.give(head);
                    true
                }
                Arrival::Part(Event::End) => true,
                Arrival::Reset(_) | Arrival::Refused => {
                    self.end(number);
                    false
                }
            };
            if let Some(Some(stream)) = self.streams.get(number as usize).filter(|_| is_whole) {
                each(Asked { number, serial: stream.serial, is_failed: false });
            }
        }
        for number in self.codec.take_opened() {
            self.resume(number);
        }
        Ok(())
    }

    /// Answers a request, unless its stream is over.
    pub(super) fn answer(&mut self, asked: Asked, answers: &Answers) {
        let Asked { number, serial, is_failed } = asked;
        let Some(Some(stream)) = self.streams.get_mut(number as usize) else { return };
        if stream.serial != serial {
            return;
        }
        let (head, body) = match stream.kind {
            _ if is_failed => (&answers.failure, Bytes::new()),
            Kind::Plain => (&answers.head, answers.body.clone()),
            Kind::Head => (&answers.head, Bytes::new()),
            Kind::Grpc => (&answers.grpc_head, answers.grpc_body.clone()),
        };
        stream.trailers = stream.kind == Kind::Grpc && !body.is_empty();
        let is_end = body.is_empty() && !stream.trailers;
        stream.left = body;
        self.codec.send_head(number, head, is_end, &mut self.out);
        if is_end {
            self.end(number);
        } else {
            self.send_some(number, answers);
        }
    }

    /// Adds what can leave to `unsent`, but not much more than the socket will soon take.
    pub(super) fn write(&mut self, unsent: &mut Vec<u8>, answers: &Answers) {
        for _ in 0..self.sending.len() {
            if unsent.len() + self.out.len() >= AT_ONCE {
                break;
            }
            let Some(number) = self.sending.pop_front() else { break };
            self.send_some(number, answers);
            self.codec.flush(&mut self.out);
        }
        self.codec.flush(&mut self.out);
        self.out.drain().for_each(|part| unsent.extend_from_slice(&part));
    }

    /// All but so many bytes of what was written has left.
    pub(super) fn sent(&mut self, outstanding: usize) {
        self.codec.sent(outstanding);
    }

    /// Whether more could be written at once.
    pub(super) fn has_more(&self) -> bool {
        !self.sending.is_empty()
    }

    fn begin(&mut self, number: u32, head: &Head) {
        self.serial += 1;
        let kind = match head.method() == Method::Head {
            true => Kind::Head,
            false if is_grpc(head) => Kind::Grpc,
            false => Kind::Plain,
        };
        let at = number as usize;
        if self.streams.len() <= at {
            self.streams.resize_with(at + 1, || None);
        }
        let stream = Stream { serial: self.serial, kind, left: Bytes::new(), trailers: false };
        self.streams[at] = Some(stream);
    }

    /// Gives the codec a piece of a body that its window has room for; a small body goes whole.
    fn send_some(&mut self, number: u32, answers: &Answers) {
        let Some(Some(stream)) = self.streams.get_mut(number as usize) else { return };
        let left = stream.left.len();
        let room = self.codec.writable(number).min(PIECE);
        let length = if left <= SMALL { left } else { left.min(room) };
        if length == 0 && left > 0 {
            return;
        }
        self.codec.send_data(number, stream.left.split_to(length));
        if !stream.left.is_empty() {
            self.sending.push_back(number);
            return;
        }
        if stream.trailers {
            self.codec.send_trailers(number, &answers.grpc_trailers);
        } else {
            self.codec.send_end(number);
        }
        self.end(number);
    }

    /// A stream has room again.
    fn resume(&mut self, number: u32) {
        let stream = self.streams.get(number as usize).and_then(Option::as_ref);
        if stream.is_some_and(|stream| !stream.left.is_empty()) && !self.sending.contains(&number) {
            self.sending.push_back(number);
        }
    }

    fn end(&mut self, number: u32) {
        if let Some(place) = self.streams.get_mut(number as usize) {
            *place = None;
        }
        self.codec.release(number);
    }
}

const WINDOW: u32 = 1 << 26;
/// Bodies up to here are given to the codec whole.
const SMALL: usize = 16 * 1024;
const PIECE: usize = 256 * 1024;
/// What may wait for a socket before more is written.
const AT_ONCE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_field_of_as_many_bytes_as_asked() {
        assert_eq!(message(0), b"");
        assert_eq!(message(1), b"a");
        assert_eq!(message(5), b"\x0a\x03abc");
        for size in (2..400).chain(16_000..17_000).chain([1 << 20, (1 << 21) + 4]) {
            let message = message(size);
            assert_eq!((message.len(), message[0]), (size, LENGTH_DELIMITED_1));
            let end = message[1..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
            let digits = message[1..=end].iter().rev();
            let length = digits.fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
            assert_eq!(length, size - 1 - end, "{size}");
        }
    }
}
