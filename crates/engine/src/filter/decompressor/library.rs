//! What decompresses: gzip, Brotli and Zstandard.
//!
//! Arrives: a piece of coded content. Leaves: all that it stands for, as far as a multiple of its length; that, and the
//! coding's window, is the memory that it takes.

use std::io;

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::Damage;
use crate::filter::coding::Coding;

/// A decompressor as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Envoy `compression.gzip.decompressor.v3.Gzip`.
    Gzip {
        /// `window_bits`: 9 to 15.
        window_bits: u8,
        /// `max_inflate_ratio`: how many times as long a piece may become.
        most_times: u32,
    },
    /// Envoy `compression.brotli.decompressor.v3.Brotli`.
    Brotli,
    /// Envoy `compression.zstd.decompressor.v3.Zstd`.
    Zstd,
}

impl Library {
    /// What it undoes.
    #[must_use]
    pub const fn coding(self) -> Coding {
        match self {
            Self::Gzip { .. } => Coding::Gzip,
            Self::Brotli => Coding::Brotli,
            Self::Zstd => Coding::Zstd,
        }
    }

    /// One message's; none without memory.
    pub(super) fn decoder(self) -> Option<Decoder> {
        let (coding, most_times) = match self {
            Self::Gzip { window_bits, most_times } => {
                let inflate = Inflate::new(true, window_bits + WITH_GZIP_HEADER);
                (Undone::Gzip(Box::new(inflate)), most_times)
            }
            Self::Brotli => {
                let alloc = StandardAlloc::default;
                let state = BrotliState::new(alloc(), alloc(), alloc());
                (Undone::Brotli(Box::new(state)), MOST_TIMES)
            }
            Self::Zstd => {
                let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
                decoder.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW_LOG)).ok()?;
                (Undone::Zstd(Box::new(decoder)), MOST_TIMES)
            }
        };
        let least = if self == Self::Zstd { ZSTD_BLOCK_BYTES } else { 0 };
        Some(Decoder { coding, most_times: most_times.into(), least, ended: false })
    }
}

/// What decompresses one message.
pub(super) struct Decoder {
    coding: Undone,
    /// How many times as long a piece may become.
    most_times: u64,
    /// What any piece may become: it may be the last of a block that comes out as a whole.
    least: u64,
    /// It has ended, or is damaged: what comes behind is dropped.
    ended: bool,
}

enum Undone {
    Gzip(Box<Inflate>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(Box<zstd::stream::raw::Decoder<'static>>),
}

/// What one step came to.
enum Step {
    /// There is more where it took anything or the room is full.
    GoesOn,
    Ended,
}

impl Decoder {
    /// Appends what a piece stands for.
    pub(super) fn decode(&mut self, mut coded: &[u8], plain: &mut Vec<u8>) -> Result<(), Damage> {
        let limit = self.most_times.saturating_mul(coded.len() as u64).max(self.least);
        let mut room = [0; ROOM_BYTES];
        while !self.ended {
            let (step, taken, put) = self.coding.step(coded, &mut room);
            coded = &coded[taken..];
            plain.extend_from_slice(&room[..put]);
            self.ended = !matches!(step, Ok(Step::GoesOn));
            step?;
            if plain.len() as u64 > limit {
                self.ended = true;
                return Err(Damage::Content);
            }
            if put < room.len() && (coded.is_empty() || taken == 0) {
                break;
            }
        }
        Ok(())
    }
}

impl Undone {
    /// What happened, how much it took and how much it put.
    fn step(&mut self, coded: &[u8], room: &mut [u8]) -> (Result<Step, Damage>, usize, usize) {
        match self {
            Self::Gzip(inflate) => {
                let before = (inflate.total_in(), inflate.total_out());
                let status = inflate.decompress(coded, room, InflateFlush::NoFlush);
                let taken = usize::try_from(inflate.total_in() - before.0);
                let put = usize::try_from(inflate.total_out() - before.1);
                let step = match status {
                    Ok(Status::StreamEnd) => Ok(Step::Ended),
                    Ok(Status::Ok | Status::BufError) => Ok(Step::GoesOn),
                    Err(InflateError::MemError) => Err(Damage::Memory),
                    Err(_) => Err(Damage::Content),
                };
                (step, taken.unwrap_or(coded.len()), put.unwrap_or(0))
            }
            Self::Brotli(state) => {
                let (mut left, mut taken, mut put, mut total) = (coded.len(), 0, 0, 0);
                let mut space = room.len();
                let result = BrotliDecompressStream(
                    &mut left, &mut taken, coded, &mut space, &mut put, room, &mut total, state,
                );
                let step = match result {
                    BrotliResult::ResultSuccess => Ok(Step::Ended),
                    BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {
                        Ok(Step::GoesOn)
                    }
                    BrotliResult::ResultFailure => Err(Damage::Content),
                };
                (step, taken, put)
            }
            Self::Zstd(decoder) => {
                let mut from = InBuffer::around(coded);
                let mut to = OutBuffer::around(room);
                // Frames may follow each other.
                let step = match decoder.run(&mut from, &mut to) {
                    Ok(_) => Ok(Step::GoesOn),
                    Err(error) => Err(damage(&error)),
                };
                (step, from.pos(), to.pos())
            }
        }
    }
}

/// By the texts of the reference library.
fn damage(error: &io::Error) -> Damage {
    let text = error.to_string();
    let is = |part| text.contains(part);
    if is("checksum") {
        Damage::Checksum
    } else if is("Dictionary") {
        Damage::Dictionary
    } else if is("Allocation") {
        Damage::Memory
    } else {
        Damage::Content
    }
}

/// What zlib takes for gzip's format.
const WITH_GZIP_HEADER: u8 = 16;
/// Envoy's bound where none is configured.
const MOST_TIMES: u32 = 100;
/// Of 8 MiB (RFC 9659).
const LARGEST_WINDOW_LOG: u32 = 23;
/// RFC 8878 §3.1.1.2.4.
const ZSTD_BLOCK_BYTES: u64 = 128 * 1024;
const ROOM_BYTES: usize = 4096;
