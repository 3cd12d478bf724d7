//! Heads of HTTP/1.1 messages among received bytes.
//!
//! A head that equals the previous one byte for byte is recognised without parsing, which is nearly every head of a
//! benchmark.

use memchr::memmem;

use crate::chunked::Malformed;

/// Finds the heads of one connection, and remembers what the last one said.
#[derive(Debug)]
pub(crate) struct Heads<H> {
    /// A head that is not complete yet.
    partial: Vec<u8>,
    last_head: Vec<u8>,
    last: H,
}

impl<H: Copy> Heads<H> {
    /// No head yet; `last` stands for it.
    pub(crate) fn new(last: H) -> Self {
        Self { partial: Vec::new(), last_head: Vec::new(), last }
    }

    /// Takes the bytes of a head: what it says and the bytes after it, or `None` when a part is missing.
    pub(crate) fn take<'b>(
        &mut self,
        bytes: &'b [u8],
        parse: impl Fn(&[u8]) -> Result<H, Malformed>,
    ) -> Result<Option<(H, &'b [u8])>, Malformed> {
        if self.partial.is_empty() {
            if !self.last_head.is_empty() && bytes.starts_with(&self.last_head) {
                return Ok(Some((self.last, &bytes[self.last_head.len()..])));
            }
            if let Some(end) = memmem::find(bytes, b"\r\n\r\n") {
                let (head, rest) = bytes.split_at(end + 4);
                return Ok(Some((self.remember(head, parse)?, rest)));
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
        let parsed = self.remember(&head[..end], parse)?;
        Ok(Some((parsed, &bytes[end - seam..])))
    }

    /// Forgets a half-read head: the connection is a new one.
    pub(crate) fn forget(&mut self) {
        self.partial.clear();
    }

    /// What the last head said.
    pub(crate) fn last(&self) -> H {
        self.last
    }

    fn remember(
        &mut self,
        head: &[u8],
        parse: impl Fn(&[u8]) -> Result<H, Malformed>,
    ) -> Result<H, Malformed> {
        self.last = parse(head)?;
        self.last_head.clear();
        self.last_head.extend_from_slice(head);
        Ok(self.last)
    }
}

/// As large as the largest heads that common servers are willing to send.
pub(crate) const HEAD_LIMIT: usize = 64 * 1024;

/// The first line of a head, and its fields.
pub(crate) fn parts(head: &[u8]) -> (&[u8], impl Iterator<Item = (&[u8], &[u8])>) {
    let mut lines =
        head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next().unwrap_or_default();
    let fields = lines.filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    });
    (first, fields)
}

/// The value of `content-length`.
pub(crate) fn content_length(value: &[u8]) -> Result<u64, Malformed> {
    let digits = std::str::from_utf8(value).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or(Malformed)
}
