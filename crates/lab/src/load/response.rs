//! Bytes from the server in, the end of each answer out.
//!
//! Only framing (RFC 9112 §6): the generator wants to know where an answer ends, whether it succeeded
//! and whether the connection may be used again.

use std::borrow::Cow;

use crate::chunked::{self, Chunks, Malformed};
use crate::head::{self, Heads};

/// Reads the answers of one connection.
#[derive(Debug)]
pub(crate) struct Reader {
    expect: Expect,
    state: State,
    heads: Heads<Head>,
    /// The answer's body as it came, if it is wanted.
    body: Option<Vec<u8>>,
}

/// What answers look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// HTTP/1.1 answers.
    Http,
    /// HTTP/1.1 answers to HEAD, which have no body whatever they announce.
    HttpHead,
    /// This many bytes, whatever they are.
    Bytes(u64),
}

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status code; 200 where the protocol has none.
    pub(crate) status: u16,
    /// Whether the connection may carry another request.
    pub(crate) reusable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Fixed(u64),
    Chunked(Chunks),
    UntilClose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    body: Body,
    reusable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Fixed(u64),
    Chunked,
    UntilClose,
}

impl Reader {
    pub(crate) fn new(expect: Expect) -> Self {
        let last = Head { status: 0, body: Body::Fixed(0), reusable: false };
        let mut reader = Self { expect, state: State::Head, heads: Heads::new(last), body: None };
        reader.reset();
        reader
    }

    /// Forgets a half-read answer: the connection is a new one.
    pub(crate) fn reset(&mut self) {
        self.heads.forget();
        self.state = match self.expect {
            Expect::Http | Expect::HttpHead => State::Head,
            Expect::Bytes(count) => State::Fixed(count),
        };
    }

    /// What the next answer looks like, and whether its body is to be kept.
    pub(crate) fn expect(&mut self, expect: Expect, is_body_wanted: bool) {
        self.expect = expect;
        self.reset();
        self.body = is_body_wanted.then(Vec::new);
    }

    /// The first MiB of the last answer's body, without the framing of chunks; nothing when it was not wanted.
    pub(crate) fn body(&self) -> Cow<'_, [u8]> {
        let Some(body) = &self.body else { return Cow::Borrowed(&[]) };
        if self.heads.last().body == Body::Chunked {
            Cow::Owned(chunked::content(body))
        } else {
            Cow::Borrowed(body)
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if let Some(body) = &mut self.body {
            body.extend_from_slice(
                &bytes[..bytes.len().min(BODY_LIMIT.saturating_sub(body.len()))],
            );
        }
    }

    /// Takes received bytes; an answer ends with its last byte, and bytes after it are [`Malformed`],
    /// because nothing was asked that they could answer.
    pub(crate) fn receive(&mut self, mut bytes: &[u8]) -> Result<Option<Answer>, Malformed> {
        loop {
            match self.state {
                State::Head => {
                    let Some((head, rest)) = self.heads.take(bytes, parse_head)? else {
                        return Ok(None);
                    };
                    bytes = rest;
                    if head.status < 200 {
                        continue;
                    }
                    self.state = match (self.expect, head.body) {
                        (Expect::HttpHead, _) => State::Fixed(0),
                        (Expect::Http | Expect::Bytes(_), Body::Fixed(length)) => {
                            State::Fixed(length)
                        }
                        (Expect::Http | Expect::Bytes(_), Body::Chunked) => {
                            State::Chunked(Chunks::new())
                        }
                        (Expect::Http | Expect::Bytes(_), Body::UntilClose) => State::UntilClose,
                    };
                    if self.state == State::Fixed(0) {
                        return self.finish(bytes);
                    }
                }
                State::Fixed(left) => {
                    let taken = left.min(bytes.len() as u64);
                    self.keep(&bytes[..taken as usize]);
                    self.state = State::Fixed(left - taken);
                    if taken == left {
                        return self.finish(&bytes[taken as usize..]);
                    }
                    return Ok(None);
                }
                State::Chunked(mut chunks) => {
                    let end = chunks.receive(bytes)?;
                    self.state = State::Chunked(chunks);
                    self.keep(&bytes[..end.unwrap_or(bytes.len())]);
                    let Some(end) = end else { return Ok(None) };
                    return self.finish(&bytes[end..]);
                }
                State::UntilClose => {
                    self.keep(bytes);
                    return Ok(None);
                }
            }
            if bytes.is_empty() {
                return Ok(None);
            }
        }
    }

    /// The server closed: an answer delimited by that is complete, anything else is not.
    pub(crate) fn close(&mut self) -> Option<Answer> {
        let complete = self.state == State::UntilClose;
        self.reset();
        complete.then_some(Answer { status: self.heads.last().status, reusable: false })
    }

    fn finish(&mut self, rest: &[u8]) -> Result<Option<Answer>, Malformed> {
        self.reset();
        if !rest.is_empty() {
            return Err(Malformed);
        }
        Ok(Some(match self.expect {
            Expect::Bytes(_) => Answer { status: 200, reusable: true },
            Expect::Http | Expect::HttpHead => {
                let last = self.heads.last();
                Answer { status: last.status, reusable: last.reusable }
            }
        }))
    }
}

fn parse_head(head: &[u8]) -> Result<Head, Malformed> {
    let (line, fields) = head::parts(head);
    let (minor, status) = parse_status_line(line)?;
    let mut length = None;
    let mut chunked = false;
    let mut reusable = minor == b'1';
    for (name, value) in fields {
        if name.eq_ignore_ascii_case(b"content-length") {
            length = Some(head::content_length(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            chunked = value.to_ascii_lowercase().ends_with(b"chunked");
        } else if name.eq_ignore_ascii_case(b"connection") {
            reusable = match value.to_ascii_lowercase().as_slice() {
                b"close" => false,
                b"keep-alive" => true,
                _ => reusable,
            };
        }
    }
    // RFC 9112 §6.3: these statuses have no body; chunked wins over a length; neither means until close.
    let body = match (status, chunked, length) {
        (100..=199 | 204 | 304, _, _) => Body::Fixed(0),
        (_, true, _) => Body::Chunked,
        (_, false, Some(length)) => Body::Fixed(length),
        (_, false, None) => Body::UntilClose,
    };
    Ok(Head { status, body, reusable: reusable && body != Body::UntilClose })
}

fn parse_status_line(line: &[u8]) -> Result<(u8, u16), Malformed> {
    let rest = line.strip_prefix(b"HTTP/1.").ok_or(Malformed)?;
    let [minor, b' ', hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9', ..] = rest
    else {
        return Err(Malformed);
    };
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok((*minor, digit(hundreds) * 100 + digit(tens) * 10 + digit(ones)))
}

/// What is kept of a body.
const BODY_LIMIT: usize = 1 << 20;

#[cfg(test)]
mod tests;
