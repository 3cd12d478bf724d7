//! Message bodies: how long they are (RFC 9112 §6), and the chunked coding (§7).

use super::error::Error;

/// What is still to come of a message's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Body {
    /// Nothing.
    #[default]
    Empty,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunked),
    /// Everything until the peer ends the connection.
    UntilClose,
}

/// The chunked coding between its chunks and inside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunked {
    /// The size being read, then the bytes of the chunk that are still to come.
    left: u64,
    /// Bytes of extensions so far, in all chunks.
    extensions: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first digit of a size.
    SizeStart,
    /// After so many digits.
    Size(u8),
    Extension,
    /// After the CR of a size line.
    SizeLf,
    Data,
    /// After a chunk's data.
    DataCr,
    DataLf,
}

/// What the next bytes of a chunked body are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// So many bytes of content, after so many that are not.
    Content { skip: usize, take: usize },
    /// The last chunk's line ends after so many bytes: the trailer section follows.
    Last { skip: usize },
    /// All bytes belong to the coding and more are needed.
    Partial,
}

impl Chunked {
    pub(super) const fn new() -> Self {
        Self { left: 0, extensions: 0, state: State::SizeStart }
    }

    /// Reads up to the next content or to the end of the last chunk's line.
    pub(super) fn advance(&mut self, bytes: &[u8], max_extensions: u32) -> Result<Piece, Error> {
        let mut at = 0;
        while at < bytes.len() {
            if self.state == State::Data {
                let rest = bytes.len() - at;
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest);
                self.left -= take as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                return Ok(Piece::Content { skip: at, take });
            }
            let last = self.step(bytes[at], max_extensions)?;
            at += 1;
            if last {
                return Ok(Piece::Last { skip: at });
            }
        }
        Ok(Piece::Partial)
    }

    /// Takes one byte of the coding; answers whether it ended the last chunk's line.
    fn step(&mut self, byte: u8, max_extensions: u32) -> Result<bool, Error> {
        self.state = match (self.state, byte) {
            (State::SizeStart, _) => {
                self.left = hex_value(byte).ok_or(Error::BadChunkSize)?;
                State::Size(1)
            }
            (State::Size(_), b'\r') => State::SizeLf,
            (State::Size(_), b';') => self.extension(max_extensions)?,
            (State::Size(digits), _) => {
                let digit = hex_value(byte).ok_or(Error::BadChunkSize)?;
                if digits == MAX_SIZE_DIGITS || self.left >= 1 << 59 {
                    return Err(Error::ChunkTooLarge);
                }
                self.left = self.left << 4 | digit;
                State::Size(digits + 1)
            }
            (State::Extension, b'\r') => State::SizeLf,
            (State::Extension, b'\n') => return Err(Error::BareLf),
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.extension(max_extensions)?,
            (State::Extension, _) => return Err(Error::ControlCharacter),
            (State::SizeLf, b'\n') => {
                if self.left == 0 {
                    return Ok(true);
                }
                State::Data
            }
            (State::SizeLf, _) => return Err(Error::BareCr),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::SizeStart,
            (State::DataCr | State::DataLf | State::Data, _) => return Err(Error::BadChunkEnd),
        };
        Ok(false)
    }

    fn extension(&mut self, max_extensions: u32) -> Result<State, Error> {
        if self.extensions >= max_extensions {
            return Err(Error::ChunkExtensionTooLarge);
        }
        self.extensions += 1;
        Ok(State::Extension)
    }
}

fn hex_value(byte: u8) -> Option<u64> {
    (byte as char).to_digit(16).map(u64::from)
}

/// Enough for 64 bits; more would only be leading zeros.
const MAX_SIZE_DIGITS: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_below_two_to_the_sixty_third() {
        assert_eq!(content(b"7fffffffffffffff\r\nx"), Ok(Piece::Content { skip: 18, take: 1 }));
        assert_eq!(content(b"8000000000000000\r\nx"), Err(Error::ChunkTooLarge));
        assert_eq!(content(b"0000000000000001\r\nx"), Ok(Piece::Content { skip: 18, take: 1 }));
        assert_eq!(content(b"00000000000000001\r\nx"), Err(Error::ChunkTooLarge));
    }

    #[test]
    fn extensions_are_counted_over_all_chunks() {
        let mut chunked = Chunked::new();
        assert_eq!(chunked.advance(b"1;ab\r\nx", 4), Ok(Piece::Content { skip: 6, take: 1 }));
        assert_eq!(chunked.advance(b"\r\n1;\r\nx", 4), Ok(Piece::Content { skip: 6, take: 1 }));
        assert_eq!(chunked.advance(b"\r\n1;\r\nx", 4), Err(Error::ChunkExtensionTooLarge));
        assert_eq!(Chunked::new().advance(b"1\r\nx", 0), Ok(Piece::Content { skip: 3, take: 1 }));
        assert_eq!(Chunked::new().advance(b"1;\r\nx", 0), Err(Error::ChunkExtensionTooLarge));
    }

    #[test]
    fn nothing_but_digits_is_a_size() {
        for bad in [
            &b"\r\n"[..],
            b" 1\r\n",
            b"1 \r\n",
            b"+1\r\n",
            b"-1\r\n",
            b"0x1\r\n",
            b"g\r\n",
            b";\r\n",
            b"1\t;a\r\n",
        ] {
            assert_eq!(content(bad), Err(Error::BadChunkSize), "{bad:?}");
        }
        assert_eq!(content(b"1\n"), Err(Error::BadChunkSize));
        assert_eq!(content(b"1;a\nx"), Err(Error::BareLf));
        assert_eq!(content(b"1\rx"), Err(Error::BareCr));
        assert_eq!(content(b"1;\0"), Err(Error::ControlCharacter));
    }

    #[test]
    fn data_ends_in_crlf() {
        for bad in [&b"\n"[..], b"x", b"\rx", b"\r\r"] {
            let mut chunked = Chunked::new();
            assert_eq!(chunked.advance(b"1\r\nx", 0), Ok(Piece::Content { skip: 3, take: 1 }));
            assert_eq!(chunked.advance(bad, 0), Err(Error::BadChunkEnd), "{bad:?}");
        }
    }

    fn content(bytes: &[u8]) -> Result<Piece, Error> {
        Chunked::new().advance(bytes, 100)
    }
}
