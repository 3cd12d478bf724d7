//! Bytes from the client in, one item per complete request out.

use crate::chunked::{Chunks, Malformed};
use crate::head::{self, Heads};

/// Reads the requests of one connection.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    heads: Heads<Head>,
}

/// How a complete request wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// Without a body.
    pub(super) is_head: bool,
    pub(super) persistence: Persistence,
    /// Without the first so many bytes of it, if the origin has ranges (RFC 9110 §14).
    pub(super) from: u64,
}

/// The entity tag of every answer that has one: they all begin alike.
pub(super) const ETAG: &str = "\"filler\"";

/// What becomes of the connection after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    /// It stays, as HTTP/1.1 takes for granted.
    Stay,
    /// It stays, and HTTP/1.0 must be told so.
    StaySaid,
    Close,
}

/// What the bytes brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The client waits for `100 Continue` before it sends the body.
    Continue,
    Request(Wish),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Fixed(u64),
    Chunked(Chunks),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    wish: Wish,
    body: State,
    expects_continue: bool,
}

impl Reader {
    pub(super) fn new() -> Self {
        let wish = Wish { is_head: false, persistence: Persistence::Close, from: 0 };
        let last = Head { wish, body: State::Head, expects_continue: false };
        Self { state: State::Head, heads: Heads::new(last) }
    }

    /// Takes received bytes.
    pub(super) fn receive(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Item),
    ) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            match self.state {
                State::Head => {
                    let Some((head, rest)) = self.heads.take(bytes, parse_head)? else {
                        return Ok(());
                    };
                    bytes = rest;
                    self.state = head.body;
                    if head.expects_continue && bytes.is_empty() {
                        each(Item::Continue);
                    }
                }
                State::Fixed(left) => {
                    let taken = left.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    self.state = State::Fixed(left - taken);
                }
                State::Chunked(mut chunks) => match chunks.receive(bytes)? {
                    Some(end) => {
                        bytes = &bytes[end..];
                        self.state = State::Fixed(0);
                    }
                    None => {
                        self.state = State::Chunked(chunks);
                        return Ok(());
                    }
                },
            }
            if self.state == State::Fixed(0) {
                self.state = State::Head;
                each(Item::Request(self.heads.last().wish));
            }
        }
        Ok(())
    }
}

fn parse_head(head: &[u8]) -> Result<Head, Malformed> {
    let (line, fields) = head::parts(head);
    let is_http_1_0 = match line {
        _ if line.ends_with(b" HTTP/1.1") => false,
        _ if line.ends_with(b" HTTP/1.0") => true,
        _ => return Err(Malformed),
    };
    let mut body = State::Fixed(0);
    let mut expects_continue = false;
    let mut connection = None;
    let (mut from, mut is_same) = (0, true);
    for (name, value) in fields {
        if name.eq_ignore_ascii_case(b"content-length") && !matches!(body, State::Chunked(_)) {
            body = State::Fixed(head::content_length(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            body = State::Chunked(Chunks::new());
        } else if name.eq_ignore_ascii_case(b"connection") {
            connection = Some(value.to_ascii_lowercase());
        } else if name.eq_ignore_ascii_case(b"expect") {
            expects_continue = value.eq_ignore_ascii_case(b"100-continue");
        } else if name.eq_ignore_ascii_case(b"range") {
            from = parse_range(value).unwrap_or(0);
        } else if name.eq_ignore_ascii_case(b"if-range") {
            is_same = value == ETAG.as_bytes();
        }
    }
    let persistence = match (connection.as_deref(), is_http_1_0) {
        (Some(b"close"), _) => Persistence::Close,
        (Some(b"keep-alive"), true) => Persistence::StaySaid,
        (_, true) => Persistence::Close,
        (_, false) => Persistence::Stay,
    };
    let from = if is_same && line.starts_with(b"GET ") { from } else { 0 };
    let wish = Wish { is_head: line.starts_with(b"HEAD "), persistence, from };
    Ok(Head { wish, body, expects_continue: expects_continue && body != State::Fixed(0) })
}

/// `bytes=N-`, the only form that is served.
fn parse_range(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok()?.strip_prefix("bytes=")?.strip_suffix('-')?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HEAD_LIMIT;

    #[test]
    fn requests_are_counted_the_same_at_every_split() {
        let bytes =
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
            POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n\
            HEAD / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.0\r\n\r\n";
        let wish = |is_head, persistence| Item::Request(Wish { is_head, persistence, from: 0 });
        let expected = [
            wish(false, Persistence::Stay),
            wish(false, Persistence::Stay),
            wish(false, Persistence::Stay),
            wish(true, Persistence::StaySaid),
            wish(false, Persistence::Close),
        ];
        for split in 0..bytes.len() {
            let mut items = Vec::new();
            let mut reader = Reader::new();
            reader.receive(&bytes[..split], |item| items.push(item)).unwrap();
            reader.receive(&bytes[split..], |item| items.push(item)).unwrap();
            assert_eq!(items, expected, "split at {split}");
        }
    }

    #[test]
    fn a_client_that_waits_before_its_body_is_told_to_go_on() {
        let mut items = Vec::new();
        let mut reader = Reader::new();
        let head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        reader.receive(head, |item| items.push(item)).unwrap();
        assert_eq!(items, [Item::Continue]);
        reader.receive(b"x", |item| items.push(item)).unwrap();
        assert_eq!(items.len(), 2);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for bytes in
            ["GET /\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "\x16\x03\x01\r\n\r\n"]
        {
            assert!(Reader::new().receive(bytes.as_bytes(), |_| ()).is_err(), "{bytes:?}");
        }
        assert!(Reader::new().receive(&[b'x'; HEAD_LIMIT - 1], |_| ()).is_ok());
        assert!(Reader::new().receive(&[b'x'; HEAD_LIMIT], |_| ()).is_err());
    }
}
