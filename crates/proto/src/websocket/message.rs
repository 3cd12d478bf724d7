//! What messages and closes must be (RFC 6455 §5.5.1, §5.6, §7.4).

use super::Violation;

/// Checks that pieces of a text are UTF-8 together, as they come (§8.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Utf8 {
    /// The bytes of a character that is not complete.
    begun: [u8; 4],
    length: usize,
}

/// Why a peer closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'b> {
    /// The code; 1005 where it gave none (§7.1.5).
    pub code: u16,
    /// In words; mostly none.
    pub reason: &'b str,
}

impl Utf8 {
    /// Takes the next piece; whether all so far may be the beginning of a text.
    #[must_use]
    pub fn take(&mut self, mut piece: &[u8]) -> bool {
        while self.length > 0 {
            let Some((&byte, rest)) = piece.split_first() else { return true };
            piece = rest;
            self.begun[self.length] = byte;
            self.length += 1;
            match std::str::from_utf8(&self.begun[..self.length]) {
                Ok(_) => self.length = 0,
                // No character has more than four bytes: what is incomplete has at most three.
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        let Err(error) = std::str::from_utf8(piece) else { return true };
        let begun = &piece[error.valid_up_to()..];
        if error.error_len().is_some() {
            return false;
        }
        self.begun[..begun.len()].copy_from_slice(begun);
        self.length = begun.len();
        true
    }

    /// Whether a text may end here.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.length == 0
    }
}

impl<'b> Close<'b> {
    /// What a close frame says.
    ///
    /// # Errors
    /// [`Violation::Close`] for half a code, or one that is not to be sent. `None` for a reason that is not UTF-8: that
    /// is answered with 1007.
    pub fn parse(payload: &'b [u8]) -> Result<Option<Self>, Violation> {
        let (code, reason) = match payload {
            [] => return Ok(Some(Self { code: NO_CODE, reason: "" })),
            [_] => return Err(Violation::Close),
            [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        };
        if !is_close_code(code) {
            return Err(Violation::Close);
        }
        Ok(std::str::from_utf8(reason).ok().map(|reason| Self { code, reason }))
    }

    /// The payload of a close frame: a reason that is too long is cut.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        if self.code == NO_CODE {
            return Vec::new();
        }
        let mut end = self.reason.len().min(LONGEST_REASON);
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        [&self.code.to_be_bytes()[..], &self.reason.as_bytes()[..end]].concat()
    }
}

/// Whether a code may be in a close frame: those of §7.4.1 and of IANA's registry, and those of libraries and
/// applications (§7.4.2).
#[must_use]
pub const fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

const NO_CODE: u16 = 1005;
/// A control frame has 125 bytes at most, two of which are the code.
const LONGEST_REASON: usize = 123;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_judged_the_same_however_it_is_cut() {
        let texts: [&[u8]; 8] = [
            "κόσμε, 😀 and é".as_bytes(),
            b"\xf4\x8f\xbf\xbf",
            b"",
            b"\xf4\x90\x80\x80",
            b"a\xed\xa0\x80b",
            b"\xc0\xaf",
            b"good \xce\xbaedited",
            b"ends amid \xf0\x9f\x98",
        ];
        for text in texts {
            let expected = std::str::from_utf8(text).is_ok();
            for one in 0..=text.len() {
                for other in one..=text.len() {
                    let mut utf8 = Utf8::default();
                    let pieces = [&text[..one], &text[one..other], &text[other..]];
                    let fits = pieces.into_iter().all(|piece| utf8.take(piece));
                    assert_eq!(fits && utf8.is_whole(), expected, "{text:x?} {one} {other}");
                }
            }
        }
    }

    #[test]
    fn a_text_that_cannot_become_one_is_found_at_once() {
        let mut utf8 = Utf8::default();
        assert!(utf8.take(b"\xf4"));
        assert!(!utf8.take(b"\x90"), "beyond U+10FFFF, whatever follows");
    }

    #[test]
    fn a_close_says_why_or_nothing() {
        fn parsed(payload: &[u8]) -> Result<Option<(u16, &str)>, Violation> {
            Close::parse(payload).map(|it| it.map(|it| (it.code, it.reason)))
        }
        assert_eq!(parsed(b""), Ok(Some((1005, ""))));
        assert_eq!(parsed(b"\x03\xe8"), Ok(Some((1000, ""))));
        assert_eq!(parsed(b"\x03\xe9bye"), Ok(Some((1001, "bye"))));
        assert_eq!(parsed(b"\x03"), Err(Violation::Close));
        assert_eq!(parsed(b"\x03\xe8\xff"), Ok(None));
        for code in [0_u16, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] {
            assert_eq!(parsed(&code.to_be_bytes()), Err(Violation::Close), "{code}");
        }
        for code in [1000_u16, 1003, 1007, 1011, 1014, 3000, 3999, 4000, 4999] {
            let close = Close { code, reason: "r" };
            assert_eq!(parsed(&close.payload()), Ok(Some((code, "r"))));
        }
        assert_eq!(Close { code: 1005, reason: "" }.payload(), b"");
        let long = "é".repeat(100);
        assert_eq!(Close { code: 1000, reason: &long }.payload().len(), 2 + 122);
    }
}
