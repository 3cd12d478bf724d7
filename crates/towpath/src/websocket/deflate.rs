//! Compressed messages (permessage-deflate, RFC 7692): what is offered, what a server may answer, and the coding
//! itself.
//!
//! Both sides keep what messages before said (context takeover), unless the server wants it otherwise. Our own window
//! has 32 KiB: nothing is offered by which a server could ask for a smaller one.

#[cfg(feature = "gzip")]
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The server begins each message anew.
    pub(super) server_forgets: bool,
    /// We do.
    pub(super) client_forgets: bool,
}

/// Why a message cannot be had.
#[cfg(feature = "gzip")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    Damaged,
    TooLong,
}

/// What is offered, where it is built in.
pub(super) const OFFER: Option<&str> =
    if cfg!(feature = "gzip") { Some("permessage-deflate") } else { None };

impl Agreed {
    /// What a server's `sec-websocket-extensions` says; nothing where there is none.
    ///
    /// # Errors
    /// When it is not an answer to what was offered (RFC 6455 §9.1, RFC 7692 §5.1, §7.1).
    pub(super) fn parse(field: &str) -> Result<Self, &'static str> {
        let mut parts = field.split(';').map(str::trim);
        if !parts.next().is_some_and(|name| name.eq_ignore_ascii_case("permessage-deflate")) {
            return Err("the server has an extension that was not offered");
        }
        let (mut agreed, mut has_window) = (Self::default(), false);
        for parameter in parts {
            let (name, value) = match parameter.split_once('=') {
                Some((name, value)) => (name.trim_end(), Some(value.trim().trim_matches('"'))),
                None => (parameter, None),
            };
            let is_first = match (name, value) {
                ("server_no_context_takeover", None) => {
                    !std::mem::replace(&mut agreed.server_forgets, true)
                }
                ("client_no_context_takeover", None) => {
                    !std::mem::replace(&mut agreed.client_forgets, true)
                }
                // A smaller window is read like the largest.
                (
                    "server_max_window_bits",
                    Some("8" | "9" | "10" | "11" | "12" | "13" | "14" | "15"),
                ) => !std::mem::replace(&mut has_window, true),
                _ => return Err("the server's compression has a parameter that is not understood"),
            };
            if !is_first {
                return Err("the server's compression has a parameter twice");
            }
        }
        Ok(agreed)
    }
}

/// What comes.
#[cfg(feature = "gzip")]
pub(super) struct Inflater {
    state: Decompress,
    forgets: bool,
}

#[cfg(feature = "gzip")]
impl Inflater {
    pub(super) fn new(agreed: Agreed) -> Self {
        Self { state: Decompress::new(false), forgets: agreed.server_forgets }
    }

    /// Adds what a piece of a message becomes, which has at most `limit` bytes then.
    pub(super) fn feed(
        &mut self,
        mut raw: &[u8],
        plain: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), Undone> {
        loop {
            if plain.len() > limit {
                return Err(Undone::TooLong);
            }
            if plain.capacity() == plain.len() {
                plain.reserve(STEP.min(limit + 1 - plain.len()));
            }
            let (read, had) = (self.state.total_in(), plain.len());
            let status = self.state.decompress_vec(raw, plain, FlushDecompress::Sync);
            let status = status.map_err(|_| Undone::Damaged)?;
            let taken = (self.state.total_in() - read) as usize;
            raw = &raw[taken..];
            match status {
                // §7.2.3.4: a block may say that it is the last; what follows begins anew.
                Status::StreamEnd => self.state.reset(false),
                Status::Ok | Status::BufError => {
                    let is_full = plain.len() == plain.capacity();
                    if raw.is_empty() && !is_full {
                        return Ok(());
                    }
                    if taken == 0 && plain.len() == had && !is_full {
                        return Err(Undone::Damaged);
                    }
                }
            }
            if raw.is_empty() && matches!(status, Status::StreamEnd) {
                return Ok(());
            }
        }
    }

    /// The end of a message (§7.2.2).
    pub(super) fn end(&mut self, plain: &mut Vec<u8>, limit: usize) -> Result<(), Undone> {
        self.feed(TAIL, plain, limit)?;
        if plain.len() > limit {
            return Err(Undone::TooLong);
        }
        if self.forgets {
            self.state.reset(false);
        }
        Ok(())
    }
}

/// What leaves.
#[cfg(feature = "gzip")]
pub(super) struct Deflater {
    state: Compress,
    forgets: bool,
}

#[cfg(feature = "gzip")]
impl Deflater {
    pub(super) fn new(agreed: Agreed) -> Self {
        Self { state: Compress::new(Compression::fast(), false), forgets: agreed.client_forgets }
    }

    /// A message as it is sent (§7.2.1); nothing where the coder fails.
    pub(super) fn message(&mut self, mut plain: &[u8]) -> Option<Vec<u8>> {
        let mut raw = Vec::with_capacity(plain.len() / 2 + 64);
        loop {
            if raw.capacity() == raw.len() {
                raw.reserve(STEP);
            }
            let read = self.state.total_in();
            self.state.compress_vec(plain, &mut raw, FlushCompress::Sync).ok()?;
            plain = &plain[(self.state.total_in() - read) as usize..];
            // With room left all is flushed.
            if plain.is_empty() && raw.len() < raw.capacity() {
                break;
            }
        }
        if self.forgets {
            self.state.reset();
        }
        let length = raw.strip_suffix(TAIL)?.len();
        raw.truncate(length);
        Some(raw)
    }
}

/// The empty block with which a flush ends, and which is not sent.
#[cfg(feature = "gzip")]
const TAIL: &[u8] = &[0, 0, 0xff, 0xff];
#[cfg(feature = "gzip")]
const STEP: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_to_what_was_offered() {
        let agreed = |server_forgets, client_forgets| Agreed { server_forgets, client_forgets };
        for (field, expected) in [
            ("permessage-deflate", agreed(false, false)),
            ("Permessage-Deflate ; server_no_context_takeover", agreed(true, false)),
            ("permessage-deflate;client_no_context_takeover", agreed(false, true)),
            ("permessage-deflate; server_max_window_bits=9", agreed(false, false)),
            ("permessage-deflate; server_max_window_bits=\"15\"", agreed(false, false)),
        ] {
            assert_eq!(Agreed::parse(field), Ok(expected), "{field}");
        }
        for field in [
            "x-webkit-deflate-frame",
            "permessage-deflate, permessage-deflate",
            "permessage-deflate; client_max_window_bits=10",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=7",
            "permessage-deflate; server_max_window_bits=09",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; quick",
            "",
        ] {
            assert!(Agreed::parse(field).is_err(), "{field}");
        }
    }

    #[cfg(feature = "gzip")]
    fn inflated(inflater: &mut Inflater, raw: &[u8], step: usize) -> Result<Vec<u8>, Undone> {
        let mut plain = Vec::new();
        for piece in raw.chunks(step) {
            inflater.feed(piece, &mut plain, 1 << 20)?;
        }
        inflater.end(&mut plain, 1 << 20)?;
        Ok(plain)
    }

    /// RFC 7692 §7.2.3.
    #[test]
    #[cfg(feature = "gzip")]
    fn the_examples_of_the_rfc_are_read_however_they_are_cut() {
        let examples: [&[u8]; 4] = [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
            // Without compression, a block that says that it is the last, and two blocks.
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        ];
        for example in examples {
            for step in 1..=example.len() {
                let mut inflater = Inflater::new(Agreed::default());
                assert_eq!(inflated(&mut inflater, example, step), Ok(b"Hello".to_vec()));
            }
        }
        let mut inflater = Inflater::new(Agreed::default());
        let first = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        assert_eq!(inflated(&mut inflater, &first, 99), Ok(b"Hello".to_vec()));
        let again = [0xf2, 0x00, 0x11, 0x00, 0x00];
        assert_eq!(inflated(&mut inflater, &again, 99), Ok(b"Hello".to_vec()), "from the window");
        let mut inflater = Inflater::new(Agreed { server_forgets: true, ..Agreed::default() });
        assert_eq!(inflated(&mut inflater, &first, 99), Ok(b"Hello".to_vec()));
        assert_ne!(inflated(&mut inflater, &again, 99), Ok(b"Hello".to_vec()), "it was forgotten");
    }

    #[test]
    #[cfg(feature = "gzip")]
    fn what_is_written_is_read() {
        for forgets in [false, true] {
            let agreed = Agreed { server_forgets: forgets, client_forgets: forgets };
            let (mut deflater, mut inflater) = (Deflater::new(agreed), Inflater::new(agreed));
            let mut chance = 1_u32;
            for length in [1, 2, 100, 16_383, 16_384, 100_000, 300_000] {
                for is_noise in [false, true] {
                    let plain: Vec<u8> = (0..length)
                        .map(|at: usize| {
                            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                            if is_noise { (chance >> 24) as u8 } else { b"towpath "[at % 8] }
                        })
                        .collect();
                    let raw = deflater.message(&plain).unwrap();
                    assert!(!raw.is_empty());
                    assert_eq!(inflated(&mut inflater, &raw, 4096), Ok(plain), "{length}");
                }
            }
        }
    }

    #[test]
    #[cfg(feature = "gzip")]
    fn a_bomb_ends_at_the_limit_and_what_is_damaged_at_once() {
        let mut deflater = Deflater::new(Agreed::default());
        let raw = deflater.message(&vec![0; 1 << 20]).unwrap();
        assert!(raw.len() < 8192);
        for (limit, outcome) in [(1 << 20, Ok(())), ((1 << 20) - 1, Err(Undone::TooLong))] {
            let (mut inflater, mut plain) = (Inflater::new(Agreed::default()), Vec::new());
            let fed = inflater.feed(&raw, &mut plain, limit);
            let ended = fed.and_then(|()| inflater.end(&mut plain, limit));
            assert_eq!(ended, outcome);
            assert!(plain.capacity() <= 2 * (limit + STEP), "{}", plain.capacity());
        }
        let mut inflater = Inflater::new(Agreed::default());
        assert_eq!(inflated(&mut inflater, &[0xff; 100], 99), Err(Undone::Damaged));
    }
}
