//! Random numbers for balancing, back-off and request ids: fast, seeded, not for secrets.
//!
//! xoshiro256++ (Blackman and Vigna, 2019), seeded by splitmix64.

/// A generator.
#[derive(Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    pub(crate) fn new(mut seed: u64) -> Self {
        let mut split = || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = seed;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        Self { state: [split(), split(), split(), split()] }
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`, which is not 0. The bias is below 2⁻³² for the bounds in use.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// A version 4 UUID as text (RFC 9562 §5.4).
    pub(crate) fn uuid(&mut self) -> [u8; 36] {
        let (one, other) = (self.next(), self.next());
        // All bits are random, so that the order of the digits is free: each word has those of every second nibble.
        let third = (other & NIBBLES & !0xff) | (other & 0x3) | 0x8;
        let second = ((one >> 4) & NIBBLES & !(0xff << 32)) | (0x4 << 32);
        let [a, b, c, d] = [one & NIBBLES, second, third, (other >> 4) & NIBBLES]
            .map(|nibbles| digits(nibbles).to_le_bytes());
        let mut text = [b'-'; 36];
        text[..8].copy_from_slice(&a);
        text[9..13].copy_from_slice(&b[..4]);
        text[14..18].copy_from_slice(&b[4..]);
        text[19..23].copy_from_slice(&c[..4]);
        text[24..28].copy_from_slice(&c[4..]);
        text[28..].copy_from_slice(&d);
        text
    }
}

/// The lower half of each byte.
const NIBBLES: u64 = 0x0f0f_0f0f_0f0f_0f0f;

/// Sixteen lower-case hexadecimal digits, made eight at a time: each nibble moves to a byte of its own.
pub(crate) fn hex(word: u64) -> [u8; 16] {
    let spread = |half: u64| {
        let half = (half | half << 16) & 0x0000_ffff_0000_ffff;
        let half = (half | half << 8) & 0x00ff_00ff_00ff_00ff;
        (half | half << 4) & NIBBLES
    };
    let mut text = [0; 16];
    text[..8].copy_from_slice(&digits(spread(word >> 32)).to_be_bytes());
    text[8..].copy_from_slice(&digits(spread(word & 0xffff_ffff)).to_be_bytes());
    text
}

/// The digits of eight nibbles, each in a byte: those above 9 are lifted to the letters.
const fn digits(nibbles: u64) -> u64 {
    let letters = ((nibbles + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    nibbles + 0x3030_3030_3030_3030 + letters * (b'a' - b'9' - 1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_and_bounds_hold() {
        let (mut one, mut two, mut other) = (Random::new(7), Random::new(7), Random::new(8));
        assert!((0..100).all(|_| one.next() == two.next()));
        assert_ne!(one.next(), other.next());
        assert!((1..1000).all(|bound| one.below(bound) < bound));
    }

    #[test]
    fn hexadecimal_digits_are_those_that_format_writes() {
        let mut random = Random::new(3);
        for word in (0..1000).map(|_| random.next()).chain([0, u64::MAX, 0x0123_4567_89ab_cdef]) {
            assert_eq!(hex(word)[..], *format!("{word:016x}").as_bytes());
        }
    }

    #[test]
    fn a_uuid_has_its_version_and_variant_and_the_right_shape() {
        let mut random = Random::new(1);
        for _ in 0..100 {
            let uuid = random.uuid();
            let text = std::str::from_utf8(&uuid).unwrap();
            assert_eq!(text.len(), 36);
            assert_eq!(&text[14..15], "4");
            assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"));
            assert!(
                text.char_indices().all(|(at, c)| matches!(at, 8 | 13 | 18 | 23) == (c == '-'))
            );
        }
    }
}
