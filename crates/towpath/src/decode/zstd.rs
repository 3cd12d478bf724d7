//! zstd (RFC 8878), by the reference library. Its window is 8 MiB at most, as RFC 9659 has it.

use bytes::{Buf, Bytes};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::{Coding, Damaged, PIECE_BYTES};

pub(super) struct Zstandard {
    decoder: Decoder<'static>,
    /// Everything was taken, and a frame has ended with it.
    ended: bool,
}

impl Zstandard {
    /// None without memory.
    pub(super) fn new() -> Option<Self> {
        let mut decoder = Decoder::new().ok()?;
        decoder.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW_LOG)).ok()?;
        Some(Self { decoder, ended: false })
    }
}

impl Coding for Zstandard {
    fn decode(&mut self, raw: &mut Bytes, plain: &mut Vec<u8>) -> Result<(), Damaged> {
        if raw.is_empty() && self.ended {
            return Ok(());
        }
        plain.resize(PIECE_BYTES, 0);
        let mut from = InBuffer::around(raw);
        let mut to = OutBuffer::around(plain.as_mut_slice());
        let hint = self.decoder.run(&mut from, &mut to).map_err(|_| Damaged)?;
        let (taken, put) = (from.pos(), to.pos());
        raw.advance(taken);
        plain.truncate(put);
        self.ended = hint == 0;
        Ok(())
    }

    fn finish(&mut self, _plain: &mut Vec<u8>) -> Result<(), Damaged> {
        if self.ended { Ok(()) } else { Err(Damaged) }
    }
}

/// Of 8 MiB.
const LARGEST_WINDOW_LOG: u32 = 23;

#[cfg(test)]
pub(super) mod tests {
    use super::super::Decoder;

    pub(in super::super) fn encode(plain: &[u8]) -> Vec<u8> {
        zstd::bulk::compress(plain, 3).unwrap()
    }

    #[test]
    fn a_window_that_takes_too_much_memory_is_refused() {
        // A frame of unknown size whose window is 1 GiB (RFC 8878 §3.1.1.1.2): exponent 20, mantissa 0.
        let mut decoder = Decoder::of("zstd").unwrap();
        decoder.feed(vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 0x01, 0, 0].into());
        assert!(decoder.next().is_err());
        // 8 MiB are allowed.
        let mut decoder = Decoder::of("zstd").unwrap();
        decoder.feed(vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3, 0x01, 0, 0].into());
        assert_eq!((decoder.next(), decoder.finish()), (Ok(None), Ok(None)));
    }
}
