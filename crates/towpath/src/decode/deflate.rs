//! gzip (RFC 1952) and deflate: zlib's format (RFC 1950), or what some servers send under that name (RFC 1951).

use std::io::Write;
use std::mem;

use bytes::{Buf, Bytes};
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};

use super::{Coding, Damaged, PIECE_BYTES};

/// gzip, several of which may follow each other.
pub(super) struct Gzip(MultiGzDecoder<Vec<u8>>);

/// Which of the two formats it is shows with its first two bytes.
#[derive(Default)]
pub(super) enum Deflate {
    #[default]
    Unknown,
    First(u8),
    Known(Inflate),
}

pub(super) struct Inflate {
    state: Decompress,
    ended: bool,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self(MultiGzDecoder::new(Vec::new()))
    }
}

impl Coding for Gzip {
    fn decode(&mut self, raw: &mut Bytes, plain: &mut Vec<u8>) -> Result<(), Damaged> {
        let slice = raw.split_to(raw.len().min(SLICE_BYTES));
        self.0.write_all(&slice).map_err(|_| Damaged)?;
        if raw.is_empty() {
            // What it has decoded so far may be waited for: no more may come for a while.
            self.0.flush().map_err(|_| Damaged)?;
        }
        *plain = mem::take(self.0.get_mut());
        Ok(())
    }

    fn finish(&mut self, plain: &mut Vec<u8>) -> Result<(), Damaged> {
        self.0.try_finish().map_err(|_| Damaged)?;
        *plain = mem::take(self.0.get_mut());
        Ok(())
    }
}

impl Coding for Deflate {
    fn decode(&mut self, raw: &mut Bytes, plain: &mut Vec<u8>) -> Result<(), Damaged> {
        match self {
            Self::Known(inflate) => inflate.decode(raw, plain),
            Self::Unknown | Self::First(_) if raw.is_empty() => Ok(()),
            Self::Unknown => {
                *self = Self::First(raw.get_u8());
                Ok(())
            }
            Self::First(first) => {
                let first = *first;
                // RFC 1950 §2.2: the method is 8, and both bytes together a multiple of 31.
                let together = u16::from_be_bytes([first, raw[0]]);
                let is_zlib = first & 15 == 8 && together.is_multiple_of(31);
                let mut inflate = Inflate { state: Decompress::new(is_zlib), ended: false };
                inflate.decode(&mut Bytes::copy_from_slice(&[first]), plain)?;
                inflate.decode(raw, plain)?;
                *self = Self::Known(inflate);
                Ok(())
            }
        }
    }

    fn finish(&mut self, _plain: &mut Vec<u8>) -> Result<(), Damaged> {
        match self {
            Self::Known(Inflate { ended: true, .. }) => Ok(()),
            Self::Known(_) | Self::Unknown | Self::First(_) => Err(Damaged),
        }
    }
}

impl Inflate {
    fn decode(&mut self, raw: &mut Bytes, plain: &mut Vec<u8>) -> Result<(), Damaged> {
        if self.ended {
            return Ok(());
        }
        plain.reserve_exact(PIECE_BYTES);
        let before = self.state.total_in();
        let status = self.state.decompress_vec(raw, plain, FlushDecompress::None);
        let taken = usize::try_from(self.state.total_in() - before).map_err(|_| Damaged)?;
        raw.advance(taken);
        match status.map_err(|_| Damaged)? {
            Status::StreamEnd => self.ended = true,
            Status::Ok | Status::BufError => {}
        }
        Ok(())
    }
}

/// What is decoded of gzip at a time: that many bytes become at most 1032 times as many.
const SLICE_BYTES: usize = 256;

#[cfg(test)]
pub(super) mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::super::Decoder;
    use super::*;

    #[test]
    fn what_a_server_has_flushed_is_handed_out() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut decoder = Decoder::of("gzip").unwrap();
        for text in ["first", "second", "third"] {
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.flush().unwrap();
            decoder.feed(mem::take(encoder.get_mut()).into());
            assert_eq!(decoder.next().unwrap().unwrap(), text);
            assert_eq!(decoder.next().unwrap(), None);
        }
    }

    pub(in super::super) fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    pub(in super::super) fn zlib(plain: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    pub(in super::super) fn raw(plain: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_gzip_body_may_be_several_and_its_checksum_counts() {
        let mut decoder = Decoder::of("x-gzip").unwrap();
        decoder.feed([gzip(b"one, "), gzip(b"two")].concat().into());
        let mut all = Vec::new();
        while let Some(piece) = decoder.next().unwrap() {
            all.extend_from_slice(&piece);
        }
        all.extend_from_slice(&decoder.finish().unwrap().unwrap_or_default());
        assert_eq!(all, b"one, two");
        let mut damaged = gzip(&[7; 5000]);
        let sum = damaged.len() - 6;
        damaged[sum] ^= 1;
        let mut decoder = Decoder::of("gzip").unwrap();
        decoder.feed(damaged.into());
        while let Ok(Some(_)) = decoder.next() {}
        assert!(decoder.next().is_err() || decoder.finish().is_err());
    }
}
