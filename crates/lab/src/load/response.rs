//! Bytes from the server in, the end of each answer out.
//!
//! Only framing (RFC 9112 §6): the generator wants to know where an answer ends, whether it succeeded
//! and whether the connection may be used again. A head that equals the previous one byte for byte is
//! recognised without parsing, which is nearly every head of a benchmark.

use memchr::memmem;

use crate::chunked::{Chunks, Malformed};

/// Reads the answers of one connection.
#[derive(Debug)]
pub(crate) struct Reader {
    expect: Expect,
    state: State,
    /// A head that is not complete yet.
    partial: Vec<u8>,
    last_head: Vec<u8>,
    last: Head,
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
        let mut reader =
            Self { expect, state: State::Head, partial: Vec::new(), last_head: Vec::new(), last };
        reader.reset();
        reader
    }

    /// Forgets a half-read answer: the connection is a new one.
    pub(crate) fn reset(&mut self) {
        self.partial.clear();
        self.state = match self.expect {
            Expect::Http | Expect::HttpHead => State::Head,
            Expect::Bytes(count) => State::Fixed(count),
        };
    }

    /// Takes received bytes; an answer ends with its last byte, and bytes after it are [`Malformed`],
    /// because nothing was asked that they could answer.
    pub(crate) fn receive(&mut self, mut bytes: &[u8]) -> Result<Option<Answer>, Malformed> {
        loop {
            match self.state {
                State::Head => {
                    let Some((head, rest)) = self.take_head(bytes)? else { return Ok(None) };
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
                    self.state = State::Fixed(left - taken);
                    if taken == left {
                        return self.finish(&bytes[taken as usize..]);
                    }
                    return Ok(None);
                }
                State::Chunked(mut chunks) => {
                    let end = chunks.receive(bytes)?;
                    self.state = State::Chunked(chunks);
                    let Some(end) = end else { return Ok(None) };
                    return self.finish(&bytes[end..]);
                }
                State::UntilClose => return Ok(None),
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
        complete.then_some(Answer { status: self.last.status, reusable: false })
    }

    fn finish(&mut self, rest: &[u8]) -> Result<Option<Answer>, Malformed> {
        self.reset();
        if !rest.is_empty() {
            return Err(Malformed);
        }
        Ok(Some(match self.expect {
            Expect::Bytes(_) => Answer { status: 200, reusable: true },
            Expect::Http | Expect::HttpHead => {
                Answer { status: self.last.status, reusable: self.last.reusable }
            }
        }))
    }

    fn take_head<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<(Head, &'b [u8])>, Malformed> {
        if self.partial.is_empty() {
            if !self.last_head.is_empty() && bytes.starts_with(&self.last_head) {
                return Ok(Some((self.last, &bytes[self.last_head.len()..])));
            }
            if let Some(end) = memmem::find(bytes, b"\r\n\r\n") {
                let (head, rest) = bytes.split_at(end + 4);
                return Ok(Some((self.remember(head)?, rest)));
            }
        }
        // The end may straddle two reads: search again from three bytes before the seam.
        let seam = self.partial.len();
        let room = HEAD_LIMIT.saturating_sub(seam).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..room]);
        let from = seam.saturating_sub(3);
        let Some(end) = memmem::find(&self.partial[from..], b"\r\n\r\n").map(|at| from + at + 4)
        else {
            return if self.partial.len() < HEAD_LIMIT { Ok(None) } else { Err(Malformed) };
        };
        let head = std::mem::take(&mut self.partial);
        let parsed = self.remember(&head[..end])?;
        Ok(Some((parsed, &bytes[end - seam..])))
    }

    fn remember(&mut self, head: &[u8]) -> Result<Head, Malformed> {
        self.last = parse_head(head)?;
        self.last_head.clear();
        self.last_head.extend_from_slice(head);
        Ok(self.last)
    }
}

fn parse_head(head: &[u8]) -> Result<Head, Malformed> {
    let mut lines =
        head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let (minor, status) = parse_status_line(lines.next().unwrap_or_default())?;
    let mut length = None;
    let mut chunked = false;
    let mut reusable = minor == b'1';
    for line in lines {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let value = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
                .ok_or(Malformed)?;
            length = Some(value);
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

/// As large as the largest heads that common servers are willing to send.
const HEAD_LIMIT: usize = 64 * 1024;

#[cfg(test)]
mod tests;
