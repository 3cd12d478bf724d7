//! br (RFC 7932), by Brotli's reference decoder in Rust. Its window is 16 MiB at most.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf, Bytes};

use super::{Coding, Damaged, PIECE_BYTES};

pub(super) struct Brotli {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    ended: bool,
}

impl Brotli {
    pub(super) fn new() -> Self {
        let alloc = StandardAlloc::default;
        Self { state: Box::new(BrotliState::new(alloc(), alloc(), alloc())), ended: false }
    }
}

impl Coding for Brotli {
    fn decode(&mut self, raw: &mut Bytes, plain: &mut Vec<u8>) -> Result<(), Damaged> {
        if self.ended {
            return Ok(());
        }
        plain.resize(PIECE_BYTES, 0);
        let (mut left, mut taken, mut room, mut put, mut total) = (raw.len(), 0, plain.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut taken,
            raw,
            &mut room,
            &mut put,
            plain,
            &mut total,
            &mut self.state,
        );
        raw.advance(taken);
        plain.truncate(put);
        match result {
            BrotliResult::ResultSuccess => self.ended = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
            BrotliResult::ResultFailure => return Err(Damaged),
        }
        Ok(())
    }

    fn finish(&mut self, _plain: &mut Vec<u8>) -> Result<(), Damaged> {
        if self.ended { Ok(()) } else { Err(Damaged) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    pub(in super::super) fn encode(plain: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        let mut encoder = brotli::CompressorWriter::new(&mut coded, 4096, 5, 22);
        encoder.write_all(plain).unwrap();
        drop(encoder);
        coded
    }
}
