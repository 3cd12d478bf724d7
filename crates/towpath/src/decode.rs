//! Bodies that come compressed are handed out as they were (RFC 9110 §8.4.1.3, RFC 1952).
//!
//! What comes is decoded in slices, so that no piece that is handed out is larger than a slice can become: a few
//! bytes that stand for gigabytes cost the app the pieces that it takes, and no more memory than one of them.

use std::fmt;
use std::io::Write;
use std::mem;

use bytes::{Buf, Bytes};
use flate2::write::MultiGzDecoder;

use crate::Error;

/// A body on its way out of its coding.
pub(crate) struct Decoder {
    gzip: MultiGzDecoder<Vec<u8>>,
    /// What has come and is not decoded.
    raw: Bytes,
    /// Anything has come at all: responses to HEAD, and 304, have the coding and no body.
    begun: bool,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { gzip: MultiGzDecoder::new(Vec::new()), raw: Bytes::new(), begun: false }
    }

    /// Takes what has come, once [`Decoder::next`] has nothing more to give.
    pub(crate) fn feed(&mut self, raw: Bytes) {
        self.begun |= !raw.is_empty();
        self.raw = raw;
    }

    /// The next piece of what has come.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while !self.raw.is_empty() {
            let slice = self.raw.len().min(SLICE_BYTES);
            self.gzip.write_all(&self.raw[..slice]).map_err(|_| DAMAGED)?;
            self.raw.advance(slice);
            if let Some(piece) = self.take() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// What is left when the body has ended.
    pub(crate) fn finish(&mut self) -> Result<Option<Bytes>, Error> {
        if self.begun {
            self.gzip.try_finish().map_err(|_| DAMAGED)?;
        }
        Ok(self.take())
    }

    fn take(&mut self) -> Option<Bytes> {
        let piece = mem::take(self.gzip.get_mut());
        (!piece.is_empty()).then(|| piece.into())
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

/// What is decoded at a time. Deflate makes at most 1032 bytes of one.
const SLICE_BYTES: usize = 256;
const DAMAGED: Error = Error::Decoding("it is not gzip as it should be, or not whole");

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    /// What comes of a body in pieces, and the largest piece.
    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize), Error> {
        let (mut decoder, mut all, mut largest) = (Decoder::new(), Vec::new(), 0);
        let mut take = |piece: Bytes| {
            largest = largest.max(piece.len());
            all.extend_from_slice(&piece);
        };
        for piece in pieces {
            decoder.feed(Bytes::copy_from_slice(piece));
            while let Some(piece) = decoder.next()? {
                take(piece);
            }
        }
        decoder.finish()?.into_iter().for_each(take);
        Ok((all, largest))
    }

    #[test]
    fn every_split_of_a_body_gives_the_same() {
        let plain = b"something that is said, and said, and said again";
        let coded = gzip(plain);
        for at in 0..=coded.len() {
            assert_eq!(decode(&[&coded[..at], &coded[at..]]).unwrap().0, plain, "{at}");
        }
        let two = [gzip(b"one, "), gzip(b"two")].concat();
        assert_eq!(decode(&[&two]).unwrap().0, b"one, two");
        assert_eq!(decode(&[]).unwrap().0, b"", "no body at all");
    }

    #[test]
    fn what_is_cut_or_damaged_is_an_error() {
        let coded = gzip(&[7; 5000]);
        for cut in 1..coded.len() {
            assert_eq!(decode(&[&coded[..cut]]), Err(DAMAGED), "{cut}");
        }
        let mut damaged = coded.clone();
        let sum = coded.len() - 6;
        damaged[sum] ^= 1;
        assert_eq!(decode(&[&damaged]), Err(DAMAGED));
        assert_eq!(decode(&[b"plain text"]), Err(DAMAGED));
    }

    #[test]
    fn a_bomb_comes_in_pieces_of_bounded_size() {
        let plain = vec![0; 50 << 20];
        let coded = gzip(&plain);
        assert!(coded.len() < 60_000);
        let (all, largest) = decode(&[&coded]).unwrap();
        assert_eq!(all.len(), plain.len());
        assert!(largest <= 512 * 1024, "{largest}");
    }
}
