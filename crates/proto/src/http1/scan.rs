//! Searches over bytes, sixteen at a time.

use crate::block::{self, colons_and_controls, outside_target};

/// The first colon at or after `from`.
#[inline(always)]
pub(super) fn colon(bytes: &[u8], from: usize) -> Option<usize> {
    find(bytes, from, |block| colons_and_controls(block).0)
}

/// The first control character at or after `from`; a tab is none.
#[inline(always)]
pub(super) fn control(bytes: &[u8], from: usize) -> Option<usize> {
    find(bytes, from, |block| colons_and_controls(block).1)
}

/// The first byte at or after `from` that cannot stand in a request target: all but visible ASCII, and `#`.
#[inline(always)]
pub(super) fn target_end(bytes: &[u8], from: usize) -> Option<usize> {
    find(bytes, from, outside_target)
}

/// The first bytes of a line, and where colons and control characters (but for tabs) stand among them.
pub(super) struct Window {
    pub(super) bytes: [u8; Self::LENGTH],
    pub(super) colons: u32,
    pub(super) controls: u32,
}

impl Window {
    pub(super) const LENGTH: usize = 32;

    /// A shorter line has letters behind it.
    #[inline(always)]
    pub(super) fn new(line: &[u8]) -> Self {
        let bytes = match line.first_chunk() {
            Some(bytes) => *bytes,
            None => padded(line),
        };
        let (mut colons, mut controls) = (0, 0);
        for (at, block) in bytes.as_chunks::<16>().0.iter().enumerate() {
            let (colon, control) = colons_and_controls(block);
            colons |= colon << (16 * at);
            controls |= control << (16 * at);
        }
        Self { bytes, colons, controls }
    }
}

/// Looks at whole blocks, then at what is left.
#[inline(always)]
fn find(bytes: &[u8], from: usize, marks: impl Fn(&[u8; 16]) -> u32) -> Option<usize> {
    let (blocks, rest) = bytes.get(from..)?.as_chunks::<16>();
    let mut at = from;
    for block in blocks {
        let hits = marks(block);
        if hits != 0 {
            return Some(at + hits.trailing_zeros() as usize);
        }
        at += 16;
    }
    // The last block again, without what was looked at before.
    let hits = match bytes.last_chunk() {
        Some(last) => marks(last) >> (16 - rest.len()),
        None => marks(&padded(rest)),
    };
    (hits != 0).then(|| at + hits.trailing_zeros() as usize)
}

/// Followed by what no search is for.
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut room = [b'a'; N];
    block::copy_few(&mut room, bytes);
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place_is_judged_alike() {
        for byte in 0..=u8::MAX {
            for place in 0..40 {
                for length in place + 1..42 {
                    let mut bytes = vec![b'a'; length];
                    bytes[place] = byte;
                    let hit = |yes: bool| yes.then_some(place);
                    assert_eq!(colon(&bytes, 0), hit(byte == b':'));
                    assert_eq!(control(&bytes, 0), hit(is_control(byte)), "{byte:#x} at {place}");
                    assert_eq!(
                        target_end(&bytes, 0),
                        hit(!byte.is_ascii_graphic() || byte == b'#')
                    );
                    assert_eq!(control(&bytes, place + 1), None);
                }
            }
        }
    }

    #[test]
    fn the_first_hit_is_found_whatever_surrounds_it() {
        // Bytes at the borders of what is searched, where carries and borrows could mislead.
        let border =
            [0, 0x08, 0x09, 0x0a, 0x1f, 0x20, 0x21, b'#', b':', 0x39, 0x3b, 0x7e, 0x7f, 0x80, 0xff];
        let mut state = 7_u64;
        for _ in 0..200_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let mut bytes = [0; 11];
            for (index, byte) in bytes.iter_mut().enumerate() {
                let pick = (state >> (index * 5)) as usize % 32;
                *byte = border.get(pick).copied().unwrap_or(b'x');
            }
            let first = |wanted: fn(&u8) -> bool| bytes.iter().position(wanted);
            assert_eq!(colon(&bytes, 0), first(|&byte| byte == b':'), "{bytes:?}");
            assert_eq!(control(&bytes, 0), first(|&byte| is_control(byte)), "{bytes:?}");
            let outside = |byte: &u8| !byte.is_ascii_graphic() || *byte == b'#';
            assert_eq!(target_end(&bytes, 0), first(outside), "{bytes:?}");
        }
    }

    #[test]
    fn a_window_shows_what_searches_find() {
        for length in 0..48 {
            for place in 0..length {
                for byte in [b':', b'\t', b'\r', 0x7f, b'b', 0xff] {
                    let mut bytes = vec![b'a'; length];
                    bytes[place] = byte;
                    let window = Window::new(&bytes);
                    let bit = |at: Option<usize>| at.filter(|at| *at < 32).map_or(0, |at| 1 << at);
                    assert_eq!(window.colons, bit(colon(&bytes, 0)));
                    assert_eq!(window.controls, bit(control(&bytes, 0)));
                }
            }
        }
    }

    fn is_control(byte: u8) -> bool {
        byte.is_ascii_control() && byte != b'\t'
    }
}
