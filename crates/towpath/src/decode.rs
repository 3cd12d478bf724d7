//! Bodies that come compressed are handed out as they were (RFC 9110 §8.4.1).
//!
//! What comes is decoded a piece at a time, so that no piece that is handed out is larger than a limit of its coding
//! (64 KiB; gzip 264 KiB): a few bytes that stand for gigabytes cost the app the pieces that it takes, and
//! no more memory than one of them and the coding's window.

#[cfg(feature = "brotli")]
mod brotli;
#[cfg(feature = "gzip")]
mod deflate;
#[cfg(feature = "zstd")]
mod zstd;

use std::fmt;

use bytes::Bytes;

use crate::Error;

/// A body on its way out of its coding.
pub(crate) struct Decoder {
    coding: Box<dyn Coding>,
    /// What has come and is not decoded.
    raw: Bytes,
    /// Anything has come at all: responses to HEAD, and 304, have the coding and no body.
    begun: bool,
}

/// How one coding is undone.
trait Coding: Send + Sync {
    /// Takes bytes from the front of what has come, and puts what they become behind `plain`, which is empty: no more
    /// than a piece. Without anything to take it puts what it could not put before.
    fn decode(&mut self, raw: &mut Bytes, plain: &mut Vec<u8>) -> Result<(), Damaged>;

    /// The body has ended, and everything was taken of it. What is left goes behind `plain`.
    fn finish(&mut self, plain: &mut Vec<u8>) -> Result<(), Damaged>;
}

/// It is not in its coding, or not whole.
#[derive(Debug)]
struct Damaged;

/// What to ask for: what can be decoded, the best first; nothing where that is nothing.
pub(crate) fn accepted() -> Option<String> {
    let codings = [
        cfg!(feature = "zstd").then_some("zstd"),
        cfg!(feature = "brotli").then_some("br"),
        cfg!(feature = "gzip").then_some("gzip, deflate"),
    ];
    let names: Vec<&str> = codings.into_iter().flatten().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

impl Decoder {
    /// For a `content-encoding`; none for one that cannot be decoded, or is several.
    pub(crate) fn of(coding: &str) -> Option<Self> {
        let coding: Option<Box<dyn Coding>> = match coding.trim().to_ascii_lowercase().as_str() {
            #[cfg(feature = "gzip")]
            "gzip" | "x-gzip" => Some(Box::new(deflate::Gzip::new())),
            #[cfg(feature = "gzip")]
            "deflate" => Some(Box::new(deflate::Deflate::default())),
            #[cfg(feature = "brotli")]
            "br" => Some(Box::new(brotli::Brotli::new())),
            #[cfg(feature = "zstd")]
            "zstd" => Some(Box::new(zstd::Zstandard::new()?)),
            _ => None,
        };
        Some(Self { coding: coding?, raw: Bytes::new(), begun: false })
    }

    /// Takes what has come, once [`Decoder::next`] has nothing more to give.
    pub(crate) fn feed(&mut self, raw: Bytes) {
        self.begun |= !raw.is_empty();
        self.raw = raw;
    }

    /// The next piece of what has come.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.begun {
            return Ok(None);
        }
        loop {
            let (before, mut plain) = (self.raw.len(), Vec::new());
            self.coding.decode(&mut self.raw, &mut plain).map_err(|_| DAMAGED)?;
            if !plain.is_empty() {
                return Ok(Some(plain.into()));
            }
            match self.raw.len() {
                0 => return Ok(None),
                // It wants nothing of what comes behind its end.
                left if left == before => return Err(DAMAGED),
                _ => {}
            }
        }
    }

    /// What is left when the body has ended.
    pub(crate) fn finish(&mut self) -> Result<Option<Bytes>, Error> {
        let mut plain = Vec::new();
        if self.begun {
            self.coding.finish(&mut plain).map_err(|_| DAMAGED)?;
        }
        Ok((!plain.is_empty()).then(|| plain.into()))
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

const DAMAGED: Error = Error::Decoding("it is not in the coding that it names, or not whole");
/// What is put at a time, where the coding lets us choose.
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
const PIECE_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"something that is said, and said, and said again";

    type Encode = fn(&[u8]) -> Vec<u8>;

    /// Every coding that this build knows, and how to make it.
    fn codings() -> Vec<(&'static str, Encode)> {
        vec![
            #[cfg(feature = "gzip")]
            ("gzip", deflate::tests::gzip),
            #[cfg(feature = "gzip")]
            ("deflate", deflate::tests::zlib),
            #[cfg(feature = "gzip")]
            ("deflate", deflate::tests::raw),
            #[cfg(feature = "brotli")]
            ("br", brotli::tests::encode),
            #[cfg(feature = "zstd")]
            ("zstd", zstd::tests::encode),
        ]
    }

    /// What comes of a body in pieces, and the largest piece.
    fn decode(coding: &str, pieces: &[&[u8]]) -> Result<(Vec<u8>, usize), Error> {
        let mut decoder = Decoder::of(coding).unwrap();
        let (mut all, mut largest) = (Vec::new(), 0);
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
        for (coding, encode) in codings() {
            let coded = encode(PLAIN);
            for at in 0..=coded.len() {
                let (all, _) = decode(coding, &[&coded[..at], &coded[at..]]).unwrap();
                assert_eq!(all, PLAIN, "{coding} {at}");
            }
            assert_eq!(decode(coding, &[]).unwrap().0, b"", "no body at all");
            let noise: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
            assert_eq!(decode(coding, &[&encode(&noise)]).expect(coding).0, noise, "{coding}");
        }
    }

    #[test]
    fn what_is_cut_or_damaged_or_goes_on_is_an_error() {
        for (coding, encode) in codings() {
            let coded = encode(&[7; 5000]);
            for cut in 1..coded.len() {
                assert_eq!(decode(coding, &[&coded[..cut]]), Err(DAMAGED), "{coding} {cut}");
            }
            assert_eq!(decode(coding, &[b"<html> plain text"]), Err(DAMAGED), "{coding}");
            let more = [&coded[..], b"more"].concat();
            assert_eq!(decode(coding, &[&more]), Err(DAMAGED), "{coding}");
            assert_eq!(decode(coding, &[&coded, b"more"]), Err(DAMAGED), "{coding}");
        }
    }

    #[test]
    fn a_bomb_comes_in_pieces_of_bounded_size() {
        let plain = vec![0; 50 << 20];
        for (coding, encode) in codings() {
            let coded = encode(&plain);
            assert!(coded.len() < 60_000);
            let (all, largest) = decode(coding, &[&coded]).expect(coding);
            assert_eq!(all.len(), plain.len());
            assert!(largest <= 512 * 1024, "{coding} {largest}");
        }
    }

    #[test]
    fn what_is_asked_for_can_be_decoded_and_nothing_else_is_touched() {
        for coding in accepted().iter().flat_map(|names| names.split(", ")) {
            assert!(Decoder::of(coding).is_some(), "{coding}");
        }
        for coding in ["identity", "compress", "gzip, br", "dcb", ""] {
            assert!(Decoder::of(coding).is_none(), "{coding}");
        }
    }
}
