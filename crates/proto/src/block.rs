//! Sixteen bytes looked at as one: a mask with a bit for each byte, the first byte's lowest.
//!
//! On x86-64 each look is one or two instructions of SSE2, which every such processor has; elsewhere it is done in two
//! words of eight. Both are compiled for tests and held against each other.

#[cfg(target_arch = "x86_64")]
pub(crate) use self::sse2::{
    colons_and_controls, line_breaks, lowercase, outside_target, plain, same_name,
};
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use self::words::{
    colons_and_controls, line_breaks, lowercase, outside_target, plain, same_name,
};

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use safe_arch::{
        add_i8_m128i, bitand_m128i, bitandnot_m128i, bitor_m128i, cmp_eq_mask_i8_m128i,
        load_unaligned_m128i, m128i, min_u8_m128i, move_mask_i8_m128i, set_splat_i8_m128i,
        shr_imm_u16_m128i,
    };

    /// Where colons stand, and where control characters other than tabs do.
    #[inline(always)]
    pub(crate) fn colons_and_controls(bytes: &[u8; 16]) -> (u32, u32) {
        let bytes = load_unaligned_m128i(bytes);
        let others = bitor_m128i(at_most(bytes, 0x1f), equal(bytes, 0x7f));
        (mask(equal(bytes, b':')), mask(bitandnot_m128i(equal(bytes, b'\t'), others)))
    }

    /// Where a byte stands that no request target has: all but visible ASCII, and `#`.
    #[inline(always)]
    pub(crate) fn outside_target(bytes: &[u8; 16]) -> u32 {
        let bytes = load_unaligned_m128i(bytes);
        mask(bitor_m128i(equal(bytes, b'#'), bitnot(between(bytes, b'!', b'~'))))
    }

    /// Where letters, digits, `-`, `.` and `_` stand.
    #[inline(always)]
    pub(crate) fn plain(bytes: &[u8; 16]) -> u32 {
        let bytes = load_unaligned_m128i(bytes);
        let letters = between(bitor_m128i(bytes, splat(0x20)), b'a', b'z');
        let digits = between(bytes, b'0', b'9');
        let marks = bitor_m128i(between(bytes, b'-', b'.'), equal(bytes, b'_'));
        mask(bitor_m128i(bitor_m128i(letters, digits), marks))
    }

    /// Where `bytes` are those of `name` in any case. A name has lower-case letters, digits and hyphens: letters are
    /// what has 0x40 set.
    #[inline(always)]
    pub(crate) fn same_name(bytes: &[u8; 16], name: &[u8; 16]) -> u32 {
        let (bytes, name) = (load_unaligned_m128i(bytes), load_unaligned_m128i(name));
        let letters = shr_imm_u16_m128i::<1>(bitand_m128i(name, splat(0x40)));
        mask(cmp_eq_mask_i8_m128i(bitor_m128i(bytes, letters), name))
    }

    /// Where CR, LF and NUL stand.
    #[inline(always)]
    pub(crate) fn line_breaks(bytes: &[u8; 16]) -> u32 {
        let bytes = load_unaligned_m128i(bytes);
        let ends = bitor_m128i(equal(bytes, b'\r'), equal(bytes, b'\n'));
        mask(bitor_m128i(ends, equal(bytes, 0)))
    }

    /// With the letters of the first `length` bytes in lower case.
    #[inline(always)]
    pub(crate) fn lowercase(bytes: &[u8; 16], length: usize) -> [u8; 16] {
        let first = super::FIRST[16 - length.min(16)..].first_chunk().unwrap_or(&[0; 16]);
        let bytes = load_unaligned_m128i(bytes);
        let small = bitand_m128i(between(bytes, b'A', b'Z'), load_unaligned_m128i(first));
        bitor_m128i(bytes, small).into()
    }

    #[inline(always)]
    fn equal(bytes: m128i, byte: u8) -> m128i {
        cmp_eq_mask_i8_m128i(bytes, splat(byte))
    }

    #[inline(always)]
    fn at_most(bytes: m128i, byte: u8) -> m128i {
        cmp_eq_mask_i8_m128i(min_u8_m128i(bytes, splat(byte)), bytes)
    }

    #[inline(always)]
    fn between(bytes: m128i, first: u8, last: u8) -> m128i {
        at_most(add_i8_m128i(bytes, splat(first.wrapping_neg())), last - first)
    }

    #[inline(always)]
    fn bitnot(bytes: m128i) -> m128i {
        bitandnot_m128i(bytes, splat(0xff))
    }

    #[inline(always)]
    fn splat(byte: u8) -> m128i {
        set_splat_i8_m128i(byte.cast_signed())
    }

    #[inline(always)]
    fn mask(bytes: m128i) -> u32 {
        move_mask_i8_m128i(bytes).cast_unsigned()
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod words {
    /// As SSE2's.
    #[inline(always)]
    pub(crate) fn colons_and_controls(bytes: &[u8; 16]) -> (u32, u32) {
        let colons = each(bytes, |word| equal(word, b':'));
        let controls = each(bytes, |word| {
            (zeros(word & (ONES * 0xe0)) & !equal(word, b'\t')) | equal(word, 0x7f)
        });
        (colons, controls)
    }

    /// As SSE2's.
    #[inline(always)]
    pub(crate) fn outside_target(bytes: &[u8; 16]) -> u32 {
        each(bytes, |word| (TOPS & !between(word, b'!', b'~')) | equal(word, b'#'))
    }

    /// As SSE2's.
    #[inline(always)]
    pub(crate) fn plain(bytes: &[u8; 16]) -> u32 {
        each(bytes, |word| {
            let letters = between(word | (ONES * 0x20), b'a', b'z');
            let marks = between(word, b'-', b'.') | equal(word, b'_');
            letters | between(word, b'0', b'9') | marks
        })
    }

    /// As SSE2's.
    #[inline(always)]
    pub(crate) fn same_name(bytes: &[u8; 16], name: &[u8; 16]) -> u32 {
        let letters = u128::from_le_bytes(*name) >> 1 & u128::from_le_bytes([0x20; 16]);
        let small = u128::from_le_bytes(*bytes) | letters;
        each(&(small ^ u128::from_le_bytes(*name)).to_le_bytes(), zeros)
    }

    /// As SSE2's.
    #[inline(always)]
    pub(crate) fn line_breaks(bytes: &[u8; 16]) -> u32 {
        each(bytes, |word| equal(word, b'\r') | equal(word, b'\n') | zeros(word))
    }

    /// As SSE2's.
    #[inline(always)]
    pub(crate) fn lowercase(bytes: &[u8; 16], length: usize) -> [u8; 16] {
        let first = super::FIRST[16 - length.min(16)..].first_chunk().unwrap_or(&[0; 16]);
        let both = u128::from_le_bytes(*bytes);
        let capitals = |word: u64| u128::from(between(word, b'A', b'Z') >> 2);
        let small = capitals(both as u64) | capitals((both >> 64) as u64) << 64;
        (both | small & u128::from_le_bytes(*first)).to_le_bytes()
    }

    /// The bits of two words whose bytes `look` marks in their tops.
    #[inline(always)]
    fn each(bytes: &[u8; 16], look: impl Fn(u64) -> u64) -> u32 {
        let both = u128::from_le_bytes(*bytes);
        mask(look(both as u64)) | mask(look((both >> 64) as u64)) << 8
    }

    /// No sum leaves its byte, because neither is above 0xff.
    #[inline(always)]
    const fn between(word: u64, first: u8, last: u8) -> u64 {
        let seven = word & !TOPS;
        let from_first = seven + ONES * (0x80 - first as u64);
        let beyond_last = seven + ONES * (0x7f - last as u64);
        from_first & !beyond_last & !word & TOPS
    }

    #[inline(always)]
    const fn equal(word: u64, byte: u8) -> u64 {
        zeros(word ^ (ONES * byte as u64))
    }

    /// The top bit of each byte that is zero. Exact: no sum leaves its byte.
    #[inline(always)]
    const fn zeros(word: u64) -> u64 {
        !(((word & !TOPS) + !TOPS) | word) & TOPS
    }

    /// Gathers top bits: each is moved by its own distance into the top byte of the product.
    #[inline(always)]
    const fn mask(tops: u64) -> u32 {
        ((tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    }

    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = ONES << 7;
}

/// Copies what is most often a few bytes to the start of `room`: a call of `memcpy` costs more than they do.
#[inline(always)]
pub(crate) fn copy_few(room: &mut [u8], bytes: &[u8]) {
    let room = &mut room[..bytes.len()];
    match bytes.len() {
        0..=3 => room.iter_mut().zip(bytes).for_each(|(room, byte)| *room = *byte),
        4..=8 => copy_ends::<4>(room, bytes),
        9..=16 => copy_ends::<8>(room, bytes),
        17..=32 => copy_ends::<16>(room, bytes),
        _ => room.copy_from_slice(bytes),
    }
}

/// Whether two texts of eight bytes or more are the same; shorter ones are not looked at and count as different. Most
/// are short: a call of `memcmp` costs more than they do.
#[inline(always)]
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    match one.len() {
        0..=7 => false,
        8..=16 => same_ends::<8>(one, other),
        17..=32 => same_ends::<16>(one, other),
        33..=64 => same_ends::<32>(one, other),
        _ => one == other,
    }
}

/// Whether the first and the last `N` bytes are the same.
#[inline(always)]
fn same_ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
    (one.first_chunk::<N>() == other.first_chunk()) & (one.last_chunk::<N>() == other.last_chunk())
}

/// Copies the first and the last `N` of as many bytes as `room` has.
#[inline(always)]
fn copy_ends<const N: usize>(room: &mut [u8], bytes: &[u8]) {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        if let Some(room) = room.first_chunk_mut::<N>() {
            *room = *first;
        }
        if let Some(room) = room.last_chunk_mut::<N>() {
            *room = *last;
        }
    }
}

/// From `16 - n` on: `n` bytes of what makes a letter lower-case, then none.
const FIRST: [u8; 32] = {
    let mut first = [0; 32];
    let mut at = 0;
    while at < 16 {
        first[at] = 0x20;
        at += 1;
    }
    first
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place_is_seen_by_both() {
        for byte in 0..=u8::MAX {
            for place in 0..16 {
                for around in [b'a', 0, b'\t', b':', 0x7f, 0xff, 0x80, 0x1f, b'!', b'~', b'@'] {
                    let mut bytes = [around; 16];
                    bytes[place] = byte;
                    let bits = |wanted: fn(u8) -> bool| {
                        (0..16).fold(0, |mask, at| mask | u32::from(wanted(bytes[at])) << at)
                    };
                    let control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
                    let marks = (bits(|byte| byte == b':'), bits(control));
                    assert_eq!(colons_and_controls(&bytes), marks, "{bytes:?}");
                    assert_eq!(words::colons_and_controls(&bytes), marks, "{bytes:?}");
                    let outside = bits(|byte| !byte.is_ascii_graphic() || byte == b'#');
                    assert_eq!(outside_target(&bytes), outside, "{bytes:?}");
                    assert_eq!(words::outside_target(&bytes), outside, "{bytes:?}");
                    let plain_bytes = bits(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it));
                    assert_eq!(plain(&bytes), plain_bytes, "{bytes:?}");
                    assert_eq!(words::plain(&bytes), plain_bytes, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn line_breaks_are_seen_and_letters_made_small_by_both() {
        for byte in 0..=u8::MAX {
            for place in 0..16 {
                let mut bytes = *b"aZ@[`{-09\x7f\xc1\xffQqA_";
                bytes[place] = byte;
                let breaks = u32::from(b"\r\n\0".contains(&byte)) << place;
                assert_eq!([line_breaks(&bytes), words::line_breaks(&bytes)], [breaks; 2]);
                for length in 0..=16 {
                    let mut small = bytes;
                    small[..length].make_ascii_lowercase();
                    assert_eq!(lowercase(&bytes, length), small, "{bytes:?}, {length}");
                    assert_eq!(words::lowercase(&bytes, length), small, "{bytes:?}, {length}");
                }
            }
        }
    }

    #[test]
    fn a_few_bytes_of_every_length_are_copied_and_no_more() {
        let bytes: Vec<u8> = (1..100).collect();
        for length in 0..bytes.len() {
            let mut room = [0; 110];
            copy_few(&mut room, &bytes[..length]);
            assert_eq!(room[..length], bytes[..length]);
            assert_eq!(room[length..], [0; 110][length..]);
        }
    }

    #[test]
    fn names_are_compared_alike_by_both() {
        let name = b"x-envoy-a0z9---b";
        for place in 0..16 {
            for byte in 0..=u8::MAX {
                for upper in [false, true] {
                    let mut bytes =
                        if upper { name.map(|it| it.to_ascii_uppercase()) } else { *name };
                    bytes[place] = byte;
                    let same = (0..16).fold(0, |mask, at| {
                        mask | u32::from(bytes[at].eq_ignore_ascii_case(&name[at])) << at
                    });
                    assert_eq!(same_name(&bytes, name), same, "{byte:#x} at {place}");
                    assert_eq!(words::same_name(&bytes, name), same, "{byte:#x} at {place}");
                }
            }
        }
    }
}
