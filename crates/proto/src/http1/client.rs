//! The side towards servers: requests out, responses in.

use std::sync::Arc;

use bytes::Bytes;

use super::body::Body;
use super::encode::Framing;
use super::error::Error;
use super::facts::Facts;
use super::options::Options;
use super::parse::Opening;
use super::receive::{Receiver, Stage};
use super::response::{Asked, Response};
use super::send::{Sending, promised_length};
use super::spelling::{case_of, spell_as_received};
use super::{encode, response};
use crate::event::Event;
use crate::head::{Head, HeadPool, Method};
use crate::name::Name;
use crate::out::Out;

/// One connection to a server, with one exchange at a time: [`Client::encode_head`] begins the next.
#[derive(Debug)]
pub struct Client {
    receiver: Receiver,
    sending: Sending,
    asked: Asked,
    keep_alive: bool,
    /// A response has said that the server closes.
    told_to_close: bool,
    started: bool,
}

impl Client {
    /// A fresh connection.
    #[must_use]
    pub fn new(options: Arc<Options>) -> Self {
        let mut receiver = Receiver::new(options);
        receiver.stage = Stage::Complete;
        Self {
            receiver,
            sending: Sending::Complete,
            asked: Asked::default(),
            keep_alive: true,
            told_to_close: false,
            started: false,
        }
    }

    /// Begins an exchange: writes the head of a request and chooses how its body is framed (RFC 9112 §6).
    pub fn encode_head(&mut self, head: &Head, end: bool, out: &mut Out) {
        let method = head.method();
        let length = promised_length(head);
        let connect = method == Method::Connect;
        let upgrade = head.get(Name::Upgrade).is_some();
        let chunked = !end && length.is_none() && !connect;
        self.begin(Asked { method, upgrade });
        self.sending = match length {
            _ if connect => Sending::Bodiless,
            Some(length) => Sending::Length(length),
            None if end => Sending::Bodiless,
            None => Sending::Chunked,
        };

        let kept = Framing::default()
            .with(Name::ContentLength, length.is_some() && !connect)
            .with(Name::Trailer, chunked)
            .with(Name::Te, true)
            .with(Name::Upgrade, true)
            .with(Name::Expect, true);
        let case = case_of(head, self.receiver.options.name_case);
        let target: &[u8] = match head.path() {
            _ if connect => head.authority(),
            b"" => b"/",
            path => path,
        };
        let whole = (self.receiver.options.absolute_form && !connect)
            .then(|| [head.scheme(), b"://", head.authority(), target].concat());
        let target = whole.as_deref().unwrap_or(target);
        out.head(|lines| {
            let start = lines.len();
            encode::request_line(lines, head.method_bytes(), target);
            encode::host(lines, head.authority(), case);
            encode::fields(lines, head, case, kept);
            if chunked {
                encode::field(lines, Name::TransferEncoding, b"chunked", case);
            } else if end
                && length.is_none()
                && !matches!(
                    method,
                    Method::Get | Method::Head | Method::Delete | Method::Trace | Method::Connect
                )
            {
                // RFC 9110 §8.6: a method that may have content says so when it has none. Envoy leaves out the same.
                encode::field(lines, Name::ContentLength, b"0", case);
            }
            if upgrade {
                encode::field(lines, Name::Connection, b"upgrade", case);
            }
            lines.put_array(b"\r\n");
            spell_as_received(lines, start, head);
        });
        if end {
            self.encode_end(out);
        }
    }

    /// Writes a piece of the body.
    pub fn encode_data(&mut self, data: Bytes, out: &mut Out) {
        self.sending.data(data, out);
    }

    /// Writes the trailers, which end the request.
    pub fn encode_trailers(&mut self, trailers: &Head, out: &mut Out) {
        if !self.receiver.options.enable_trailers {
            self.sending.end(out);
            return;
        }
        self.sending.trailers(trailers, self.receiver.options.name_case, out);
    }

    /// Ends the request.
    pub fn encode_end(&mut self, out: &mut Out) {
        self.sending.end(out);
    }

    /// Takes what arrived.
    #[inline]
    pub fn receive(&mut self, chunk: Bytes) {
        self.receiver.receive(chunk);
    }

    /// The server will send nothing more.
    pub fn ended(&mut self) {
        self.receiver.ended = true;
    }

    /// What arrived next; `None` when more bytes are needed or the response is complete.
    #[inline(always)]
    pub fn poll(&mut self, pool: &mut HeadPool) -> Result<Option<Event>, Error> {
        let event = match self.receiver.stage {
            Stage::AwaitingHead => self.poll_head(pool),
            Stage::AwaitingBody | Stage::AwaitingTrailers => self.receiver.poll_body(pool),
            Stage::Raw => return Ok(self.receiver.poll_raw()),
            Stage::Switching => return Ok(None),
            Stage::Complete if self.idle_bytes() == 0 => return Ok(None),
            // RFC 9112 §9.2: what comes unasked cannot be matched to a request.
            Stage::Complete => Err(Error::UnexpectedBytes),
            Stage::Failed(error) => return Err(error),
        };
        match &event {
            Ok(None) if self.receiver.ended => {
                let untouched = self.receiver.is_between_messages() && !self.started;
                let error = if untouched { Error::ClosedBeforeResponse } else { Error::Truncated };
                Err(self.fail(error))
            }
            Err(error) => Err(self.fail(*error)),
            Ok(_) => event,
        }
    }

    /// After a piece of the body: whether it was the last. If so, `poll` gives no [`Event::End`] for this message.
    #[inline]
    pub fn take_end(&mut self) -> bool {
        self.receiver.take_end()
    }

    /// Leaves HTTP after a 101 or a 2xx to CONNECT arrived. Answers what the server sent ahead; `poll` then
    /// gives what comes as it is, and [`Client::encode_data`] writes as it is.
    pub fn upgraded(&mut self) -> Bytes {
        self.sending = Sending::Raw;
        self.keep_alive = false;
        self.receiver.switch_to_raw()
    }

    /// Whether the request was written and the response reported, both to their ends.
    #[must_use]
    pub fn exchange_complete(&self) -> bool {
        self.receiver.stage == Stage::Complete && self.sending.is_complete()
    }

    /// Whether another exchange may begin.
    #[must_use]
    pub fn reusable(&self) -> bool {
        self.keep_alive
            && self.receiver.stage == Stage::Complete
            && self.sending == Sending::Complete
            && !self.receiver.ended
            && self.receiver.buffered() == 0
    }

    /// Whether a response has said that the server closes the connection (RFC 9112 §9.6), or did so by its version.
    #[must_use]
    pub const fn was_told_to_close(&self) -> bool {
        self.told_to_close
    }

    /// Whether a byte of the response to the current request arrived.
    #[must_use]
    pub fn response_started(&self) -> bool {
        self.started || !self.receiver.is_between_messages()
    }

    /// Bytes that arrived though no response is awaited; any make the connection useless.
    #[must_use]
    pub fn idle_bytes(&self) -> usize {
        if self.receiver.stage == Stage::Complete { self.receiver.buffered() } else { 0 }
    }

    fn begin(&mut self, asked: Asked) {
        self.asked = asked;
        self.started = false;
        self.receiver.stage = Stage::AwaitingHead;
        self.receiver.body = Body::Empty;
    }

    #[inline]
    fn poll_head(&mut self, pool: &mut HeadPool) -> Result<Option<Event>, Error> {
        let mut facts = Facts { is_response: true, ..Facts::default() };
        let Some(mut head) = self.receiver.poll_head(Opening::StatusLine, &mut facts, pool)? else {
            return Ok(None);
        };
        self.started = true;
        match response::finish(&mut head, &facts, self.asked, &self.receiver.options) {
            Ok(Response::Informational) => Ok(Some(Event::Informational(head))),
            Ok(Response::Switched) => {
                self.keep_alive = false;
                self.receiver.stage = Stage::Switching;
                Ok(Some(Event::Head { head, end: true }))
            }
            Ok(Response::Final { body, keep_alive }) => {
                if !keep_alive {
                    self.keep_alive = false;
                    self.told_to_close |= facts.closes(head.version());
                }
                self.receiver.body = body;
                let end = body == Body::Empty;
                self.receiver.stage = if end { Stage::Complete } else { Stage::AwaitingBody };
                Ok(Some(Event::Head { head, end }))
            }
            Err(error) => {
                pool.give(head);
                Err(error)
            }
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.keep_alive = false;
        self.receiver.fail(error)
    }
}
