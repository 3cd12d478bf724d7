//! The receiving half that both sides share: chunks in, a head and the pieces of its body out.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

use super::body::{Body, Piece};
use super::error::Error;
use super::facts::Facts;
use super::options::{Kept, Options};
use super::parse::{Cursor, Opening, Progress};
use crate::chars::is_authority;
use crate::event::Event;
use crate::head::{Head, HeadPool};
use crate::name::Name;

/// What has arrived and how far it is understood.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) options: Arc<Options>,
    input: Bytes,
    /// Chunks behind `input`.
    more: VecDeque<Bytes>,
    /// A head or trailer section of which only a part has come.
    partial: Option<Box<Partial>>,
    pub(super) stage: Stage,
    pub(super) body: Body,
    pub(super) ended: bool,
}

/// Where in its message the receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    AwaitingHead,
    AwaitingBody,
    /// After the last chunk.
    AwaitingTrailers,
    Complete,
    /// The head said that what follows is not HTTP; it waits for `switch_to_raw`.
    Switching,
    /// Not HTTP any more: bytes are passed as they come.
    Raw,
    /// An error was reported; nothing that follows means anything.
    Failed(Error),
}

/// A section of which only a part has come.
#[derive(Debug)]
struct Partial {
    bytes: BytesMut,
    cursor: Cursor,
    head: Head,
    facts: Facts,
}

impl Receiver {
    pub(super) fn new(options: Arc<Options>) -> Self {
        Self {
            options,
            input: Bytes::new(),
            more: VecDeque::new(),
            partial: None,
            stage: Stage::AwaitingHead,
            body: Body::Empty,
            ended: false,
        }
    }

    #[inline]
    pub(super) fn receive(&mut self, chunk: Bytes) {
        if self.input.is_empty() {
            self.input = chunk;
        } else if !chunk.is_empty() {
            self.more.push_back(chunk);
        }
    }

    /// The next head, with its facts in `facts`, which come in fresh. Its bytes are attached; nothing in
    /// it is interpreted yet.
    #[inline]
    pub(super) fn poll_head(
        &mut self,
        opening: Opening,
        facts: &mut Facts,
        pool: &mut HeadPool,
    ) -> Result<Option<Head>, Error> {
        if self.partial.is_none() {
            if self.input.is_empty() {
                return Ok(None);
            }
            let mut head = pool.take();
            let mut cursor = Cursor::new(opening);
            match cursor.advance(&self.input, &mut head, facts, &self.options, pool) {
                Ok(Progress::Whole(length)) => {
                    head.attach(self.input.split_to(length));
                    pool.underscored.dropped += facts.underscored;
                    if let Some(kept) = self.options.keeps {
                        keep(&mut head, opening, kept);
                    }
                    self.refill();
                    return Ok(Some(head));
                }
                Ok(Progress::Partial) => {
                    let bytes = BytesMut::from(&self.input[..]);
                    self.input = Bytes::new();
                    let facts = std::mem::take(facts);
                    self.partial = Some(Box::new(Partial { bytes, cursor, head, facts }));
                }
                Err(error) => {
                    let input = std::mem::take(&mut self.input);
                    self.refuse_line(&input, head, error, pool);
                    return Err(error);
                }
            }
            self.refill();
        }
        self.continue_head(opening, facts, pool)
    }

    /// Goes on with a section that came in pieces.
    #[cold]
    fn continue_head(
        &mut self,
        opening: Opening,
        found: &mut Facts,
        pool: &mut HeadPool,
    ) -> Result<Option<Head>, Error> {
        let Some(mut partial) = self.partial.take() else { return Ok(None) };
        while !self.input.is_empty() {
            let seen = partial.bytes.len();
            partial.bytes.extend_from_slice(&self.input);
            let Partial { bytes, cursor, head, facts } = &mut *partial;
            match cursor.advance(bytes, head, facts, &self.options, pool) {
                Ok(Progress::Whole(length)) => {
                    self.input.advance(length - seen);
                    self.refill();
                    bytes.truncate(length);
                    let Partial { bytes, mut head, facts, .. } = *partial;
                    head.attach(bytes.freeze());
                    if let Some(kept) = self.options.keeps {
                        keep(&mut head, opening, kept);
                    }
                    pool.underscored.dropped += facts.underscored;
                    *found = facts;
                    return Ok(Some(head));
                }
                Ok(Progress::Partial) => {
                    self.input = Bytes::new();
                    self.refill();
                }
                Err(error) => {
                    let Partial { bytes, head, .. } = *partial;
                    self.refuse_line(&bytes, head, error, pool);
                    return Err(error);
                }
            }
        }
        self.partial = Some(partial);
        Ok(None)
    }

    /// The next piece of the body of the current message.
    pub(super) fn poll_body(&mut self, pool: &mut HeadPool) -> Result<Option<Event>, Error> {
        if self.stage == Stage::AwaitingTrailers {
            return self.poll_trailers(pool);
        }
        match &mut self.body {
            Body::Empty => {
                self.stage = Stage::Complete;
                Ok(Some(Event::End))
            }
            Body::Length(left) => {
                if self.input.is_empty() {
                    return Ok(None);
                }
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(self.input.len());
                *left -= take as u64;
                if *left == 0 {
                    self.body = Body::Empty;
                }
                Ok(Some(Event::Data(self.take(take))))
            }
            Body::Chunked(chunked) => loop {
                match chunked.advance(&self.input, self.options.max_chunk_extension_bytes)? {
                    Piece::Content { skip, take } => {
                        self.input.advance(skip);
                        return Ok(Some(Event::Data(self.take(take))));
                    }
                    Piece::Last { skip } => {
                        self.take(skip);
                        self.stage = Stage::AwaitingTrailers;
                        return self.poll_trailers(pool);
                    }
                    Piece::Partial => {
                        self.input = self.more.pop_front().unwrap_or_default();
                        if self.input.is_empty() {
                            return Ok(None);
                        }
                    }
                }
            },
            Body::UntilClose => {
                if !self.input.is_empty() {
                    return Ok(Some(Event::Data(self.take(self.input.len()))));
                }
                if !self.ended {
                    return Ok(None);
                }
                self.stage = Stage::Complete;
                Ok(Some(Event::End))
            }
        }
    }

    fn poll_trailers(&mut self, pool: &mut HeadPool) -> Result<Option<Event>, Error> {
        if self.partial.is_none() && self.input.starts_with(b"\r\n") {
            self.take(2);
            self.stage = Stage::Complete;
            return Ok(Some(Event::End));
        }
        let mut facts = Facts { trailers: true, ..Facts::default() };
        let Some(mut trailers) = self.poll_head(Opening::Nothing, &mut facts, pool)? else {
            return Ok(None);
        };
        self.stage = Stage::Complete;
        trailers.retain(|field| may_trail(field.name));
        if trailers.is_empty() || !self.options.enable_trailers {
            pool.give(trailers);
            return Ok(Some(Event::End));
        }
        Ok(Some(Event::Trailers(trailers)))
    }

    /// The next bytes of a connection that does not speak HTTP any more.
    pub(super) fn poll_raw(&mut self) -> Option<Event> {
        if !self.input.is_empty() {
            return Some(Event::Data(self.take(self.input.len())));
        }
        if self.ended {
            self.stage = Stage::Complete;
            return Some(Event::End);
        }
        None
    }

    /// A head was refused for its opening line, or for a field.
    #[cold]
    fn refuse_line(&mut self, bytes: &[u8], mut head: Head, error: Error, pool: &mut HeadPool) {
        pool.underscored.rejected += u32::from(error == Error::Underscore);
        if error == Error::FragmentInTarget && !self.read_with_fragment(bytes, &mut head, pool) {
            return pool.give(head);
        }
        self.refuse(head, error, pool);
    }

    /// Reads a head of which nothing is wrong but the fragment in its target: all of it if it is there, else its
    /// request line. Answers whether there is nothing else wrong.
    fn read_with_fragment(&self, mut bytes: &[u8], head: &mut Head, pool: &mut HeadPool) -> bool {
        while let Some(behind) = bytes.strip_prefix(b"\r\n") {
            bytes = behind;
        }
        let find = |wanted: &[u8]| bytes.windows(wanted.len()).position(|it| it == wanted);
        let Some(line) = find(b"\r\n") else { return false };
        let mut whole = match find(b"\r\n\r\n") {
            Some(at) => bytes[..at + 4].to_vec(),
            None => [&bytes[..line], b"\r\n\r\n"].concat(),
        };
        let marks: Vec<usize> = (0..line).filter(|&at| whole[at] == b'#').collect();
        marks.iter().for_each(|&at| whole[at] = b'_');
        let (mut facts, mut cursor) = (Facts::default(), Cursor::new(Opening::RequestLine));
        head.reset();
        if !matches!(
            cursor.advance(&whole, head, &mut facts, &self.options, pool),
            Ok(Progress::Whole(_))
        ) {
            return false;
        }
        marks.iter().for_each(|&at| whole[at] = b'#');
        head.attach(whole.into());
        if let Some(host) = facts.host.filter(|host| is_authority(&head.raw()[host.raw_range()])) {
            head.set_authority_span(host);
        }
        true
    }

    /// Keeps the head of a message that is well-formed and refused all the same.
    #[cold]
    pub(super) fn refuse(&mut self, head: Head, error: Error, pool: &mut HeadPool) {
        if !error.is_formed() {
            return pool.give(head);
        }
        let (bytes, cursor) = (BytesMut::new(), Cursor::new(Opening::Nothing));
        self.partial = Some(Box::new(Partial { bytes, cursor, head, facts: Facts::default() }));
    }

    /// That head, once.
    pub(super) fn take_refused(&mut self) -> Option<Head> {
        let is_refused = matches!(self.stage, Stage::Failed(error) if error.is_formed());
        self.partial.take_if(|_| is_refused).map(|partial| partial.head)
    }

    /// Notes an error, so that every further call repeats it, and lets go of everything but a head that was refused.
    #[cold]
    pub(super) fn fail(&mut self, error: Error) -> Error {
        self.stage = Stage::Failed(error);
        self.input = Bytes::new();
        self.more = VecDeque::new();
        if !error.is_formed() {
            self.partial = None;
        }
        error
    }

    /// Switches to raw bytes; answers those that have come already.
    pub(super) fn switch_to_raw(&mut self) -> Bytes {
        self.stage = Stage::Raw;
        self.partial = None;
        let first = std::mem::take(&mut self.input);
        if self.more.is_empty() {
            return first;
        }
        let mut all = BytesMut::from(&first[..]);
        for chunk in std::mem::take(&mut self.more) {
            all.extend_from_slice(&chunk);
        }
        all.freeze()
    }

    /// Whether no byte of the next message has come.
    pub(super) fn is_between_messages(&self) -> bool {
        self.stage == Stage::AwaitingHead
            && self.input.is_empty()
            && self.partial.as_ref().is_none_or(|partial| partial.cursor.is_fresh(&partial.bytes))
    }

    /// Whether the piece of a body that was just given was the last of a message without trailers.
    #[inline]
    pub(super) fn take_end(&mut self) -> bool {
        let ends = self.stage == Stage::AwaitingBody && self.body == Body::Empty;
        if ends {
            self.stage = Stage::Complete;
        }
        ends
    }

    pub(super) fn buffered(&self) -> usize {
        self.input.len()
            + self.more.iter().map(Bytes::len).sum::<usize>()
            + self.partial.as_ref().map_or(0, |partial| partial.bytes.len())
    }

    /// Takes bytes off the front of `input`, which has that many.
    #[inline]
    fn take(&mut self, length: usize) -> Bytes {
        let bytes = self.input.split_to(length);
        self.refill();
        bytes
    }

    /// Brings the next chunk to the front when the current one is used up.
    #[inline]
    fn refill(&mut self) {
        if self.input.is_empty() {
            self.input = self.more.pop_front().unwrap_or_default();
        }
    }
}

/// RFC 9110 §6.5.1: what frames, routes, authenticates or describes the content comes before it or not
/// at all. Framing names never come here.
fn may_trail(name: Name) -> bool {
    !matches!(
        name,
        Name::Authorization
            | Name::ProxyAuthenticate
            | Name::ProxyAuthorization
            | Name::CacheControl
            | Name::ContentEncoding
            | Name::ContentType
            | Name::Cookie
            | Name::SetCookie
            | Name::Date
            | Name::Expires
            | Name::Forwarded
            | Name::IfModifiedSince
            | Name::IfNoneMatch
            | Name::Location
            | Name::Range
            | Name::RetryAfter
            | Name::Vary
            | Name::XForwardedFor
            | Name::XForwardedHost
            | Name::XForwardedPort
            | Name::XForwardedProto
            | Name::XForwardedClientCert
    )
}

/// Has a head leave as it came, so far. Trailers are written as ours are.
#[cold]
fn keep(head: &mut Head, opening: Opening, kept: Kept) {
    match opening {
        Opening::RequestLine | Opening::StatusLine => head.set_kept(kept),
        Opening::Nothing => {}
    }
}
