//! What compresses: gzip, Brotli and Zstandard, as the configuration tunes them.
//!
//! Arrives: a piece of content. Leaves: all that the coding makes of it, so that a client can read the piece before the
//! next one comes. Memory is what the coding's window takes.

use std::io::{self, Write};
use std::mem;

use brotli::enc::BrotliEncoderParams;
use brotli::enc::backward_references::BrotliEncoderMode;
use bytes::Bytes;
use zlib_rs::{DeflateConfig, DeflateFlush, Method, Status};
use zstd::zstd_safe::{CParameter, Strategy};

use crate::filter::coding::Coding;

/// A compressor as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Library {
    /// Envoy `compression.gzip.compressor.v3.Gzip`.
    Gzip(Gzip),
    /// Envoy `compression.brotli.compressor.v3.Brotli`.
    Brotli(Brotli),
    /// Envoy `compression.zstd.compressor.v3.Zstd`.
    Zstd(Zstd),
}

/// How gzip compresses (`deflateInit2` of zlib).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gzip {
    /// `compression_level`: 1 to 9; 0 for the default one.
    pub level: u8,
    /// `window_bits`: 9 to 15.
    pub window_bits: u8,
    /// `memory_level`: 1 to 9.
    pub memory_level: u8,
    /// `compression_strategy`.
    pub strategy: GzipStrategy,
}

/// Envoy `CompressionStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GzipStrategy {
    /// `DEFAULT_STRATEGY`.
    #[default]
    Default,
    /// `FILTERED`.
    Filtered,
    /// `HUFFMAN_ONLY`.
    HuffmanOnly,
    /// `RLE`.
    Rle,
    /// `FIXED`.
    Fixed,
}

/// How Brotli compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brotli {
    /// `quality`: 0 to 11.
    pub quality: u8,
    /// `window_bits`: 10 to 24.
    pub window_bits: u8,
    /// `input_block_bits`: 16 to 24.
    pub block_bits: u8,
    /// `encoder_mode`.
    pub mode: BrotliMode,
    /// `disable_literal_context_modeling`.
    pub without_contexts: bool,
}

/// Envoy `EncoderMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrotliMode {
    /// `DEFAULT` and `GENERIC`.
    #[default]
    Generic,
    /// `TEXT`.
    Text,
    /// `FONT`.
    Font,
}

/// How Zstandard compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zstd {
    /// `compression_level`.
    pub level: u32,
    /// `enable_checksum`.
    pub checksum: bool,
    /// `strategy`: 1 to 9; 0 for that of the level.
    pub strategy: u8,
}

impl Default for Gzip {
    fn default() -> Self {
        Self { level: 0, window_bits: 12, memory_level: 5, strategy: GzipStrategy::Default }
    }
}

impl Default for Brotli {
    fn default() -> Self {
        let mode = BrotliMode::Generic;
        Self { quality: 3, window_bits: 18, block_bits: 24, mode, without_contexts: false }
    }
}

impl Default for Zstd {
    fn default() -> Self {
        Self { level: 3, checksum: false, strategy: 0 }
    }
}

impl Library {
    /// What it makes.
    #[must_use]
    pub const fn coding(&self) -> Coding {
        match self {
            Self::Gzip(_) => Coding::Gzip,
            Self::Brotli(_) => Coding::Brotli,
            Self::Zstd(_) => Coding::Zstd,
        }
    }

    /// One message's; none without memory.
    pub(super) fn encoder(&self) -> Option<Encoder> {
        Some(match self {
            Self::Gzip(gzip) => Encoder::Gzip(Box::new(Deflate::new(*gzip))),
            Self::Brotli(brotli) => {
                let writer = brotli::CompressorWriter::with_params(
                    Vec::new(),
                    BUFFER_BYTES,
                    &brotli.parameters(),
                );
                Encoder::Brotli(Some(Box::new(writer)))
            }
            Self::Zstd(zstd) => Encoder::Zstd(Box::new(zstd.writer().ok()?)),
        })
    }
}

impl Brotli {
    fn parameters(self) -> BrotliEncoderParams {
        BrotliEncoderParams {
            quality: self.quality.into(),
            lgwin: self.window_bits.into(),
            lgblock: self.block_bits.into(),
            mode: match self.mode {
                BrotliMode::Generic => BrotliEncoderMode::BROTLI_MODE_GENERIC,
                BrotliMode::Text => BrotliEncoderMode::BROTLI_MODE_TEXT,
                BrotliMode::Font => BrotliEncoderMode::BROTLI_MODE_FONT,
            },
            disable_literal_context_modeling: self.without_contexts.into(),
            ..BrotliEncoderParams::default()
        }
    }
}

impl Zstd {
    fn writer(self) -> io::Result<zstd::stream::write::Encoder<'static, Vec<u8>>> {
        let level = i32::try_from(self.level).unwrap_or(i32::MAX);
        let mut writer = zstd::stream::write::Encoder::new(Vec::new(), level)?;
        writer.set_parameter(CParameter::ChecksumFlag(self.checksum))?;
        if let Some(strategy) = STRATEGIES.get(usize::from(self.strategy).wrapping_sub(1)) {
            writer.set_parameter(CParameter::Strategy(*strategy))?;
        }
        Ok(writer)
    }
}

/// What compresses one message.
pub(super) enum Encoder {
    Gzip(Box<Deflate>),
    /// None once it is finished.
    Brotli(Option<Box<brotli::CompressorWriter<Vec<u8>>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
}

impl Encoder {
    /// What becomes of a piece, to its last byte if it is to be flushed. Codings write to memory, which does not fail.
    pub(super) fn piece(&mut self, plain: &[u8], flushes: bool) -> io::Result<Bytes> {
        let coded = match self {
            Self::Gzip(deflate) if flushes => deflate.run(plain, DeflateFlush::SyncFlush)?,
            Self::Gzip(deflate) => deflate.run(plain, DeflateFlush::NoFlush)?,
            Self::Brotli(None) => Vec::new(),
            Self::Brotli(Some(writer)) => {
                writer.write_all(plain)?;
                if flushes {
                    writer.flush()?;
                }
                mem::take(writer.get_mut())
            }
            Self::Zstd(writer) => {
                writer.write_all(plain)?;
                if flushes {
                    writer.flush()?;
                }
                mem::take(writer.get_mut())
            }
        };
        Ok(coded.into())
    }

    /// What ends the message.
    pub(super) fn finish(&mut self) -> io::Result<Bytes> {
        let coded = match self {
            Self::Gzip(deflate) => deflate.run(&[], DeflateFlush::Finish)?,
            Self::Brotli(writer) => writer.take().map(|it| it.into_inner()).unwrap_or_default(),
            Self::Zstd(writer) => {
                writer.do_finish()?;
                mem::take(writer.get_mut())
            }
        };
        Ok(coded.into())
    }
}

/// gzip's.
pub(super) struct Deflate(zlib_rs::Deflate);

impl Deflate {
    fn new(gzip: Gzip) -> Self {
        Self(zlib_rs::Deflate::new_with_config(DeflateConfig {
            level: if gzip.level == 0 { DEFAULT_LEVEL } else { gzip.level.into() },
            method: Method::Deflated,
            window_bits: i32::from(gzip.window_bits) + WITH_GZIP_HEADER,
            mem_level: gzip.memory_level.into(),
            strategy: match gzip.strategy {
                GzipStrategy::Default => zlib_rs::Strategy::Default,
                GzipStrategy::Filtered => zlib_rs::Strategy::Filtered,
                GzipStrategy::HuffmanOnly => zlib_rs::Strategy::HuffmanOnly,
                GzipStrategy::Rle => zlib_rs::Strategy::Rle,
                GzipStrategy::Fixed => zlib_rs::Strategy::Fixed,
            },
        }))
    }

    /// Goes on until there is room left: then all is put that can be.
    fn run(&mut self, mut plain: &[u8], flush: DeflateFlush) -> io::Result<Vec<u8>> {
        let mut coded = Vec::new();
        loop {
            let mut room = [0; BUFFER_BYTES];
            let before = (self.0.total_in(), self.0.total_out());
            let status = self.0.compress(plain, &mut room, flush);
            let status = status.map_err(|error| io::Error::other(error.as_str()))?;
            let taken = usize::try_from(self.0.total_in() - before.0).unwrap_or(plain.len());
            let put = usize::try_from(self.0.total_out() - before.1).unwrap_or(room.len());
            plain = &plain[taken..];
            coded.extend_from_slice(&room[..put]);
            let is_full = put == room.len();
            match status {
                Status::StreamEnd | Status::BufError => return Ok(coded),
                Status::Ok if plain.is_empty() && !is_full => return Ok(coded),
                Status::Ok => {}
            }
        }
    }
}

/// In the order of their numbers, from 1.
const STRATEGIES: [Strategy; 9] = [
    Strategy::ZSTD_fast,
    Strategy::ZSTD_dfast,
    Strategy::ZSTD_greedy,
    Strategy::ZSTD_lazy,
    Strategy::ZSTD_lazy2,
    Strategy::ZSTD_btlazy2,
    Strategy::ZSTD_btopt,
    Strategy::ZSTD_btultra,
    Strategy::ZSTD_btultra2,
];
/// zlib's own choice.
const DEFAULT_LEVEL: i32 = 6;
/// What zlib takes for gzip's format.
const WITH_GZIP_HEADER: i32 = 16;
const BUFFER_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn libraries() -> [Library; 6] {
        [
            Library::Gzip(Gzip::default()),
            Library::Gzip(Gzip {
                level: 9,
                window_bits: 9,
                memory_level: 1,
                strategy: GzipStrategy::HuffmanOnly,
            }),
            Library::Brotli(Brotli::default()),
            Library::Brotli(Brotli { quality: 0, window_bits: 10, ..Brotli::default() }),
            Library::Zstd(Zstd::default()),
            Library::Zstd(Zstd { level: 1, checksum: true, strategy: 9 }),
        ]
    }

    /// By other code than ours.
    pub(in crate::filter) fn decoded(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(coded).read_to_end(&mut plain),
            Coding::Brotli => brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain),
            Coding::Zstd => {
                zstd::stream::read::Decoder::new(coded).unwrap().read_to_end(&mut plain)
            }
        }
        .unwrap();
        plain
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let mut noise = 1_u32;
        let mut random = || {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            noise.to_be_bytes()[0]
        };
        let plains: [Vec<u8>; 4] = [
            Vec::new(),
            b"a".to_vec(),
            vec![b'x'; 300_000],
            (0..100_000).map(|_| random()).collect(),
        ];
        let all = || libraries().into_iter().flat_map(|it| [(it.clone(), true), (it, false)]);
        for (library, flushes) in all() {
            for plain in &plains {
                let mut encoder = library.encoder().unwrap();
                let mut coded = Vec::new();
                for piece in plain.chunks(7777) {
                    coded.extend(encoder.piece(piece, flushes).unwrap());
                }
                coded.extend(encoder.finish().unwrap());
                assert!(decoded(library.coding(), &coded) == *plain, "{library:?}");
                assert!(coded.len() < plain.len() + plain.len() / 4 + 600, "{library:?}");
            }
        }
    }

    #[test]
    fn each_piece_can_be_read_before_the_next() {
        for library in libraries() {
            let mut encoder = library.encoder().unwrap();
            let mut decoder = super::super::super::decompressor::tests::decoder(library.coding());
            for piece in [&b"first "[..], b"second ", b"third"] {
                let coded = encoder.piece(piece, true).unwrap();
                let plain = decoder.decode(&coded);
                assert_eq!(plain, piece, "{library:?}");
            }
        }
    }
}
