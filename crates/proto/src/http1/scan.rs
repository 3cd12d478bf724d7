//! Searches over bytes, sixteen at a time where a compiler can, in safe code.
//!
//! Whether a block of sixteen has a hit is a plain loop over its bytes, which compiles to vector
//! instructions. Where the hit is, is found in words of eight: a test answers a word whose set top bits
//! mark hits. It may mark a byte wrongly, but only one behind a true hit (a borrow or a carry runs from
//! there), so that the first mark is always true.

/// The first colon at or after `from`.
#[inline(always)]
pub(super) fn colon(bytes: &[u8], from: usize) -> Option<usize> {
    find(bytes, from, |word| equal(word, b':'), |byte| byte == b':')
}

/// The first control character at or after `from`; a tab is none.
#[inline(always)]
pub(super) fn control(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let at = find(bytes, from, controls, |byte| (byte < 0x20) | (byte == 0x7f))?;
        if bytes[at] != b'\t' {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The first byte at or after `from` that cannot stand in a request target: all but visible ASCII, and `#`.
#[inline(always)]
pub(super) fn target_end(bytes: &[u8], from: usize) -> Option<usize> {
    find(bytes, from, not_target, |byte| !byte.is_ascii_graphic() | (byte == b'#'))
}

/// Looks at whole blocks, then at whole words, then at what is left.
#[inline(always)]
fn find(
    bytes: &[u8],
    from: usize,
    word: impl Fn(u64) -> u64,
    single: impl Fn(u8) -> bool,
) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let (blocks, tail) = rest.as_chunks::<16>();
    let mut at = from;
    for block in blocks {
        if block.iter().fold(false, |any, &byte| any | single(byte)) {
            let both = u128::from_le_bytes(*block);
            let (low, high) = (word(both as u64), word((both >> 64) as u64));
            return Some(at + if low != 0 { first(low) } else { 8 + first(high) });
        }
        at += 16;
    }
    let (words, tail) = tail.as_chunks::<8>();
    for chunk in words {
        let hits = word(u64::from_le_bytes(*chunk));
        if hits != 0 {
            return Some(at + first(hits));
        }
        at += 8;
    }
    for &byte in tail {
        if single(byte) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[inline(always)]
const fn first(hits: u64) -> usize {
    (hits.trailing_zeros() / 8) as usize
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = ONES << 7;

#[inline(always)]
const fn controls(word: u64) -> u64 {
    (below(word, 0x20) | (word & !TOPS).wrapping_add(ONES)) & !word & TOPS
}

#[inline(always)]
const fn not_target(word: u64) -> u64 {
    ((below(word, 0x21) | word.wrapping_add(ONES) | word) & TOPS) | equal(word, b'#')
}

/// Bytes below `limit`; those of 0x80 and above may be marked too and are the caller's to clear.
#[inline(always)]
const fn below(word: u64, limit: u64) -> u64 {
    word.wrapping_sub(ONES * limit)
}

#[inline(always)]
const fn equal(word: u64, byte: u8) -> u64 {
    let other = word ^ (ONES * byte as u64);
    other.wrapping_sub(ONES) & !other & TOPS
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

    fn is_control(byte: u8) -> bool {
        byte.is_ascii_control() && byte != b'\t'
    }
}
