//! Frames out of chunks.
//!
//! Bodies are passed on as slices of the chunks that they came in, as far as they have come. Of any other frame nothing
//! is looked at before it is whole; one that lies in two chunks is copied together, and is never longer than a frame
//! may be.

use bytes::{Buf, Bytes, BytesMut};

use super::error::Error;
use super::frame::{FrameHeader, HEADER, Kind, PADDED};

/// What was received and not understood yet.
#[derive(Debug, Default)]
pub(super) struct Input {
    chunk: Bytes,
    /// The beginning of a frame whose end has not come.
    partial: BytesMut,
    data: Option<Body>,
}

/// A DATA frame that is being received.
#[derive(Clone, Copy, Debug)]
struct Body {
    content: usize,
    padding: usize,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole frame of any type but DATA.
    Frame(FrameHeader, Bytes),
    /// A whole DATA frame without padding; its content is not empty.
    WholeData(FrameHeader, Bytes),
    /// A DATA frame with so many bytes of content begins.
    DataBegins(FrameHeader, usize),
    /// Content of it; never empty.
    Data(Bytes),
    /// It is over.
    DataEnds,
}

impl Input {
    pub(super) fn receive(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
            return;
        }
        let mut joined = BytesMut::with_capacity(self.chunk.len() + chunk.len());
        joined.extend_from_slice(&self.chunk);
        joined.extend_from_slice(&chunk);
        self.chunk = joined.freeze();
    }

    /// Bytes that were received and not understood.
    pub(super) fn buffered(&self) -> usize {
        self.chunk.len() + self.partial.len()
    }

    /// Whether HEADERS or CONTINUATION has come in part.
    pub(super) fn is_amid_headers(&self) -> bool {
        let header = self.partial.first_chunk().map(FrameHeader::read);
        header.is_some_and(|header| matches!(header.kind, Kind::Headers | Kind::Continuation))
    }

    /// Forgets what was received: nothing after an error means anything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What a client says first; false if more must come.
    ///
    /// # Errors
    /// When it says something else.
    pub(super) fn preface(&mut self, preface: &[u8; 24]) -> Result<bool, Error> {
        self.fill(preface.len());
        let wanted = preface.get(..self.partial.len()).unwrap_or_default();
        if self.partial != wanted {
            return Err(Error::BadPreface);
        }
        let whole = self.partial.len() == preface.len();
        if whole {
            self.partial = BytesMut::new();
        }
        Ok(whole)
    }

    /// What comes next, if it has come.
    ///
    /// # Errors
    /// When a frame is larger than `max_frame`, or its padding than itself.
    pub(super) fn next(&mut self, max_frame: usize) -> Result<Option<Piece>, Error> {
        if self.data.is_some() {
            return Ok(self.next_data());
        }
        let header = match self.chunk.first_chunk::<HEADER>() {
            Some(header) if self.partial.is_empty() => FrameHeader::read(header),
            Some(_) | None => {
                self.fill(HEADER);
                let Some(header) = self.partial.first_chunk() else { return Ok(None) };
                FrameHeader::read(header)
            }
        };
        if header.length > max_frame {
            return Err(Error::FrameTooLarge);
        }
        if header.kind == Kind::Data {
            return self.begin_data(header);
        }
        let whole = HEADER + header.length;
        if self.partial.is_empty() && self.chunk.len() >= whole {
            self.chunk.advance(HEADER);
            return Ok(Some(Piece::Frame(header, self.chunk.split_to(header.length))));
        }
        self.fill(whole);
        if self.partial.len() < whole {
            return Ok(None);
        }
        let mut frame = std::mem::take(&mut self.partial).freeze();
        frame.advance(HEADER);
        Ok(Some(Piece::Frame(header, frame)))
    }

    fn begin_data(&mut self, header: FrameHeader) -> Result<Option<Piece>, Error> {
        let padded = usize::from(header.has(PADDED));
        let is_whole = self.partial.is_empty() && self.chunk.len() >= HEADER + header.length;
        if is_whole && padded == 0 && header.length > 0 {
            self.chunk.advance(HEADER);
            return Ok(Some(Piece::WholeData(header, self.chunk.split_to(header.length))));
        }
        if header.length < padded {
            return Err(Error::BadFrameSize);
        }
        let start = HEADER + padded;
        let padding = if self.partial.is_empty() && self.chunk.len() >= start {
            let padding = self.chunk.get(HEADER).copied();
            self.chunk.advance(start);
            padding
        } else {
            self.fill(start);
            if self.partial.len() < start {
                return Ok(None);
            }
            std::mem::take(&mut self.partial).get(HEADER).copied()
        };
        let padding = usize::from(padding.filter(|_| padded == 1).unwrap_or(0));
        let content = header.length - padded;
        let content = content.checked_sub(padding).ok_or(Error::BadPadding)?;
        self.data = Some(Body { content, padding });
        Ok(Some(Piece::DataBegins(header, content)))
    }

    fn next_data(&mut self) -> Option<Piece> {
        let body = self.data.as_mut()?;
        if body.content > 0 {
            if self.chunk.is_empty() {
                return None;
            }
            let piece = self.chunk.split_to(body.content.min(self.chunk.len()));
            body.content -= piece.len();
            return Some(Piece::Data(piece));
        }
        let skipped = body.padding.min(self.chunk.len());
        self.chunk.advance(skipped);
        body.padding -= skipped;
        if body.padding > 0 {
            return None;
        }
        self.data = None;
        Some(Piece::DataEnds)
    }

    /// Makes the beginning of a frame as long as that, as far as it has come.
    fn fill(&mut self, length: usize) {
        let missing = length.saturating_sub(self.partial.len()).min(self.chunk.len());
        self.partial.extend_from_slice(&self.chunk.split_to(missing));
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::put_header;
    use super::*;

    fn all(chunks: &[&[u8]]) -> Result<(Vec<Piece>, usize), Error> {
        let mut input = Input::default();
        let mut pieces: Vec<Piece> = Vec::new();
        for chunk in chunks {
            input.receive(Bytes::copy_from_slice(chunk));
            while let Some(piece) = input.next(16_384)? {
                // Content that came in parts is put together to be compared, a whole frame is taken apart.
                match (pieces.last_mut(), piece) {
                    (Some(Piece::Data(before)), Piece::Data(more)) => {
                        *before = [&before[..], &more[..]].concat().into();
                    }
                    (_, Piece::WholeData(header, data)) => {
                        let begins = Piece::DataBegins(header, data.len());
                        pieces.extend([begins, Piece::Data(data), Piece::DataEnds]);
                    }
                    (_, piece) => pieces.push(piece),
                }
            }
        }
        Ok((pieces, input.buffered()))
    }

    #[test]
    fn frames_are_found_wherever_they_are_cut() {
        let mut bytes = BytesMut::new();
        put_header(&mut bytes, 8, Kind::Ping, 0, 0);
        bytes.extend_from_slice(b"12345678");
        put_header(&mut bytes, 10, Kind::Data, PADDED, 3);
        bytes.extend_from_slice(b"\x04hello\0\0\0\0");
        put_header(&mut bytes, 0, Kind::Data, 1, 5);
        put_header(&mut bytes, 3, Kind::Data, 1, 5);
        bytes.extend_from_slice(b"abc");
        put_header(&mut bytes, 3, Kind::Unknown, 0xff, 7);
        bytes.extend_from_slice(b"abc");
        let (whole, left) = all(&[&bytes]).unwrap();
        assert_eq!(left, 0);
        assert_eq!(whole.len(), 10, "{whole:?}");
        assert_eq!(whole[2], Piece::Data(Bytes::from_static(b"hello")));
        for at in 0..bytes.len() {
            for next in at..bytes.len() {
                let pieces = [&bytes[..at], &bytes[at..next], &bytes[next..]];
                assert_eq!(all(&pieces).unwrap(), (pieces_of(&whole), 0), "{at} {next}");
            }
        }
    }

    fn pieces_of(pieces: &[Piece]) -> Vec<Piece> {
        let copy = |piece: &Piece| match piece {
            Piece::Frame(header, payload) => Piece::Frame(*header, payload.clone()),
            Piece::WholeData(header, data) => Piece::WholeData(*header, data.clone()),
            Piece::DataBegins(header, content) => Piece::DataBegins(*header, *content),
            Piece::Data(data) => Piece::Data(data.clone()),
            Piece::DataEnds => Piece::DataEnds,
        };
        pieces.iter().map(copy).collect()
    }

    #[test]
    fn sizes_and_padding_are_checked_as_soon_as_they_are_known() {
        let frame = |length, kind, flags, payload: &[u8]| {
            let mut bytes = BytesMut::new();
            put_header(&mut bytes, length, kind, flags, 1);
            bytes.extend_from_slice(payload);
            bytes
        };
        let large = frame(16_385, Kind::Settings, 0, b"");
        assert_eq!(all(&[&large]), Err(Error::FrameTooLarge));
        let none = frame(0, Kind::Data, PADDED, b"");
        assert_eq!(all(&[&none]), Err(Error::BadFrameSize));
        let long = frame(5, Kind::Data, PADDED, b"\x05");
        assert_eq!(all(&[&long]), Err(Error::BadPadding));
        let only = frame(5, Kind::Data, PADDED, b"\x04\0\0\0\0");
        assert_eq!(all(&[&only]).unwrap().0.len(), 2, "padding alone has no content");
    }
}
