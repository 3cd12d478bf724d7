//! Finds the end of a chunked body (RFC 9112 §7.1) without keeping any of it.

/// Walks one chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunks(State);

/// Bytes that break the framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size {
        size: u64,
        digits: u8,
        in_extension: bool,
    },
    /// A chunk's bytes and the line end after them.
    Bytes(u64),
    Trailers {
        line_is_empty: bool,
    },
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self(State::Size { size: 0, digits: 0, in_extension: false })
    }

    /// Takes bytes; the index after the body's last byte when it ends here.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            self.0 = match self.0 {
                State::Size { size, digits, in_extension } => {
                    at += 1;
                    match (byte, in_extension) {
                        (b'\n', _) if digits == 0 => return Err(Malformed),
                        (b'\n', _) if size == 0 => State::Trailers { line_is_empty: true },
                        (b'\n', _) => State::Bytes(size + 2),
                        (b'\r', _) | (_, true) => State::Size { size, digits, in_extension },
                        (b';' | b' ' | b'\t', false) => {
                            State::Size { size, digits, in_extension: true }
                        }
                        (_, false) => {
                            let digit = (byte as char).to_digit(16).ok_or(Malformed)?;
                            if digits == 15 {
                                return Err(Malformed);
                            }
                            State::Size {
                                size: size << 4 | u64::from(digit),
                                digits: digits + 1,
                                in_extension,
                            }
                        }
                    }
                }
                State::Bytes(left) => {
                    let taken = left.min((bytes.len() - at) as u64);
                    at += taken as usize;
                    if taken == left { Self::new().0 } else { State::Bytes(left - taken) }
                }
                State::Trailers { line_is_empty } => {
                    at += 1;
                    match byte {
                        b'\n' if line_is_empty => return Ok(Some(at)),
                        b'\n' => State::Trailers { line_is_empty: true },
                        b'\r' => State::Trailers { line_is_empty },
                        _ => State::Trailers { line_is_empty: false },
                    }
                }
            };
        }
        Ok(None)
    }
}

/// The content of chunks that were read whole, or from the beginning.
pub(crate) fn content(mut framed: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = memchr::memchr(b'\n', framed) {
        let (line, rest) = (&framed[..end], &framed[end + 1..]);
        let digits: String =
            line.iter().map(|byte| char::from(*byte)).take_while(char::is_ascii_hexdigit).collect();
        let size = usize::from_str_radix(&digits, 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        content.extend_from_slice(&rest[..size.min(rest.len())]);
        framed = rest.get(size.saturating_add(2)..).unwrap_or_default();
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_end_at_every_split() {
        let body = b"3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: a\r\n\r\n";
        for split in 0..body.len() {
            let mut chunks = Chunks::new();
            assert_eq!(chunks.receive(&body[..split]), Ok(None));
            assert_eq!(
                chunks.receive(&body[split..]),
                Ok(Some(body.len() - split)),
                "split at {split}"
            );
        }
        assert_eq!(Chunks::new().receive(b"0\r\n\r\nnext"), Ok(Some(5)));
    }

    #[test]
    fn the_content_is_what_stands_between_the_framing() {
        let body = b"3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: a\r\n\r\n";
        assert_eq!(content(body), b"abc0123456789");
        for cut in 0..body.len() {
            assert!(b"abc0123456789".starts_with(&content(&body[..cut])), "cut at {cut}");
        }
        assert_eq!(content(b"ffffffffffffffff\r\nab"), b"ab");
    }

    #[test]
    fn refuses_sizes_that_are_none() {
        for body in ["\r\n", "xyz\r\n", "-1\r\n", "ffffffffffffffff\r\n", "1 2\r\n"] {
            let result = Chunks::new().receive(body.as_bytes());
            assert_eq!(result.is_err(), body != "1 2\r\n", "{body:?}");
        }
    }
}
