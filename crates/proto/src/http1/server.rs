//! The side towards clients: requests in, responses out.

use std::sync::Arc;

use bytes::Bytes;

use super::body::Body;
use super::encode::Framing;
use super::error::Error;
use super::facts::Facts;
use super::options::Options;
use super::parse::Opening;
use super::receive::{Receiver, Stage};
use super::response::is_bodiless;
use super::send::{Sending, promised_length};
use super::spelling::{case_of, spell_as_received, status_line};
use super::{encode, request};
use crate::event::{Event, Next};
use crate::head::{Head, HeadPool, Method, Version};
use crate::name::Name;
use crate::out::Out;

/// One connection from a client.
///
/// Requests are reported one at a time: after a request is complete, `poll` answers `None` until its
/// response is complete and [`Server::next`] was called. Pipelined bytes wait meanwhile.
#[derive(Debug)]
pub struct Server {
    receiver: Receiver,
    sending: Sending,
    method: Method,
    version: Version,
    keep_alive: bool,
    /// The request asked that the connection end with its response.
    asked_to_close: bool,
    /// The request asked for another protocol.
    upgrade: bool,
    expects_continue: bool,
}

impl Server {
    /// A fresh connection.
    #[must_use]
    pub fn new(options: Arc<Options>) -> Self {
        Self {
            receiver: Receiver::new(options),
            sending: Sending::AwaitingHead,
            method: Method::Get,
            version: Version::Http11,
            keep_alive: true,
            asked_to_close: false,
            upgrade: false,
            expects_continue: false,
        }
    }

    /// Takes what arrived.
    #[inline]
    pub fn receive(&mut self, chunk: Bytes) {
        self.receiver.receive(chunk);
    }

    /// The client will send nothing more.
    pub fn ended(&mut self) {
        self.receiver.ended = true;
    }

    /// What arrived next; `None` when more bytes are needed, or when the request is complete and its
    /// response is not.
    ///
    /// After an error the connection only serves to write one response, which will say `close`.
    #[inline(always)]
    pub fn poll(&mut self, pool: &mut HeadPool) -> Result<Option<Event>, Error> {
        let event = match self.receiver.stage {
            Stage::AwaitingHead => self.poll_head(pool),
            Stage::AwaitingBody | Stage::AwaitingTrailers => self.receiver.poll_body(pool),
            Stage::Raw => return Ok(self.receiver.poll_raw()),
            Stage::Complete | Stage::Switching => return Ok(None),
            Stage::Failed(error) => return Err(error),
        };
        match &event {
            Ok(None) if self.receiver.ended && !self.receiver.is_between_messages() => {
                Err(self.fail(Error::Truncated))
            }
            Err(error) => Err(self.fail(*error)),
            Ok(Some(Event::Head { .. }) | None) => event,
            Ok(Some(_)) => {
                self.expects_continue = false;
                event
            }
        }
    }

    /// After a piece of the body: whether it was the last. If so, `poll` gives no [`Event::End`] for this message.
    #[inline]
    pub fn take_end(&mut self) -> bool {
        self.receiver.take_end()
    }

    /// Writes an interim response. One that a client of HTTP/1.0 could not understand is left out (RFC 9110 §15.2).
    pub fn encode_informational(&mut self, head: &Head, out: &mut Out) {
        if self.version == Version::Http10 || self.sending != Sending::AwaitingHead {
            return;
        }
        self.expects_continue &= head.status() != 100;
        out.head(|lines| {
            let start = lines.len();
            status_line(lines, Version::Http11, head);
            let case = case_of(head, self.receiver.options.name_case);
            encode::fields(lines, head, case, Framing::default());
            lines.put_array(b"\r\n");
            spell_as_received(lines, start, head);
        });
    }

    /// Writes the head of the response and chooses how its body is framed (RFC 9112 §6).
    pub fn encode_head(&mut self, head: &Head, end: bool, out: &mut Out) {
        let status = head.status();
        self.expects_continue = false;
        let tunnel =
            status == 101 || (self.method == Method::Connect && (200..300).contains(&status));
        let bodiless = is_bodiless(status, self.method) || tunnel;
        let length = promised_length(head);
        // A length may stand where there is no body only to tell what GET would have had.
        let keep_length = length.is_some() && status >= 200 && status != 204 && !tunnel;
        let chunked = !bodiless && !end && length.is_none() && self.version != Version::Http10;
        self.sending = match length {
            _ if bodiless => Sending::Bodiless,
            Some(length) => Sending::Length(length),
            None if end => Sending::Bodiless,
            None if chunked => Sending::Chunked,
            None => Sending::UntilClose,
        };
        self.keep_alive &= self.sending != Sending::UntilClose;

        let kept = Framing::default()
            .with(Name::ContentLength, keep_length)
            .with(Name::Trailer, chunked)
            .with(Name::Upgrade, status == 101 || status == 426);
        let case = case_of(head, self.receiver.options.name_case);
        // Whose version is not served is told so in ours.
        let version =
            if self.receiver.options.accept_http10 { self.version } else { Version::Http11 };
        out.head(|lines| {
            let start = lines.len();
            status_line(lines, version, head);
            encode::fields(lines, head, case, kept);
            if chunked {
                encode::field(lines, Name::TransferEncoding, b"chunked", case);
            } else if end && !bodiless && length.is_none() {
                encode::field(lines, Name::ContentLength, b"0", case);
            }
            if status == 101 {
                encode::field(lines, Name::Connection, b"upgrade", case);
            } else if tunnel {
                // A tunnel is not a message that could close.
            } else if !self.keep_alive {
                encode::field(lines, Name::Connection, b"close", case);
            } else if self.version == Version::Http10 {
                encode::field(lines, Name::Connection, b"keep-alive", case);
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

    /// Writes the trailers, which end the response; the end alone where they do not pass
    /// ([`enable_trailers`](Options::enable_trailers)).
    pub fn encode_trailers(&mut self, trailers: &Head, out: &mut Out) {
        if !self.receiver.options.enable_trailers {
            self.sending.end(out);
            return;
        }
        self.sending.trailers(trailers, self.receiver.options.name_case, out);
    }

    /// Ends the response.
    pub fn encode_end(&mut self, out: &mut Out) {
        self.sending.end(out);
    }

    /// The response that is written next will say `close`, and the connection ends with it.
    pub fn close_after_response(&mut self) {
        self.keep_alive = false;
    }

    /// Gets ready for the next request once request and response are complete. [`Next::Close`] too when
    /// they are not: then only closing ends them.
    #[expect(
        clippy::should_implement_trait,
        reason = "requests of a connection are no sequence to iterate over"
    )]
    pub fn next(&mut self) -> Next {
        if !self.keep_alive || !self.request_complete() || self.sending != Sending::Complete {
            return Next::Close;
        }
        self.receiver.stage = Stage::AwaitingHead;
        self.receiver.body = Body::Empty;
        self.sending = Sending::AwaitingHead;
        self.method = Method::Get;
        self.version = Version::Http11;
        self.upgrade = false;
        Next::KeepAlive
    }

    /// Leaves HTTP after a 101 or a 2xx to CONNECT was written. Answers what the client sent ahead;
    /// `poll` then gives what comes as it is, and [`Server::encode_data`] writes as it is.
    pub fn upgraded(&mut self) -> Bytes {
        self.sending = Sending::Raw;
        self.keep_alive = false;
        self.receiver.switch_to_raw()
    }

    /// Bytes held that are not understood yet: pipelined requests, or an incomplete head.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.receiver.buffered()
    }

    /// The head of the request that was refused, where the request was HTTP all the same ([`Error::is_formed`]): its
    /// method, its target and what was read of its fields. It is given once.
    pub fn refused(&mut self) -> Option<Head> {
        self.receiver.take_refused()
    }

    /// Whether a part of a request's head has come and no more; empty lines before it are none.
    #[must_use]
    pub fn is_amid_head(&self) -> bool {
        self.receiver.stage == Stage::AwaitingHead && !self.receiver.is_between_messages()
    }

    /// Whether the whole request was reported.
    #[must_use]
    pub fn request_complete(&self) -> bool {
        self.receiver.stage == Stage::Complete
    }

    /// Whether the client has asked that the connection end with the response (RFC 9112 §9.6): it sends no other
    /// request.
    #[must_use]
    pub const fn asked_to_close(&self) -> bool {
        self.asked_to_close
    }

    /// Whether the whole response was written.
    #[must_use]
    pub fn response_complete(&self) -> bool {
        self.sending.is_complete()
    }

    /// Whether the client waits for `100 Continue` before it sends its body (RFC 9110 §10.1.1).
    #[must_use]
    pub fn wants_continue(&self) -> bool {
        self.expects_continue
    }

    /// Whether the request asked for another protocol, so that 101 may be answered.
    #[must_use]
    pub fn wants_upgrade(&self) -> bool {
        self.upgrade
    }

    #[inline]
    fn poll_head(&mut self, pool: &mut HeadPool) -> Result<Option<Event>, Error> {
        let mut facts = Facts::default();
        let Some(mut head) = self.receiver.poll_head(Opening::RequestLine, &mut facts, pool)?
        else {
            return Ok(None);
        };
        self.method = head.method();
        self.version = head.version();
        let request = match request::finish(&mut head, &facts, &self.receiver.options, pool) {
            Ok(request) => request,
            Err(error) => {
                self.receiver.refuse(head, error, pool);
                return Err(error);
            }
        };
        self.keep_alive &= request.keep_alive;
        self.asked_to_close = !request.keep_alive;
        self.upgrade = request.upgrade;
        self.expects_continue = request.expects_continue;
        self.receiver.body = request.body;
        let end = request.body == Body::Empty;
        self.receiver.stage = if end { Stage::Complete } else { Stage::AwaitingBody };
        Ok(Some(Event::Head { head, end }))
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.keep_alive = false;
        self.expects_continue = false;
        self.receiver.fail(error)
    }
}
