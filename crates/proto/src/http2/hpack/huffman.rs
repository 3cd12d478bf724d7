//! The Huffman code of RFC 7541 Appendix B, both ways.
//!
//! The code is canonical: its lengths say all, codes are computed from them when this is compiled. Decoding looks at
//! eight bits at a time, which is a whole code for every letter and digit; longer ones are found by comparison.

use super::error::Error;

/// How much room [`decode`] wants for so many bytes.
#[inline]
pub(super) const fn decoded_bound(length: usize) -> usize {
    // The shortest code has five bits; a group is written as a whole.
    length.saturating_mul(8) / 5 + GROUP
}

/// Decodes a whole string into the start of `room`, which is as large as [`decoded_bound`] says; answers how many
/// bytes it is.
pub(super) fn decode(bytes: &[u8], room: &mut [u8]) -> Result<usize, Error> {
    let mut window = Window { bits: 0, count: 0, source: bytes };
    let mut at = 0;
    while window.refill() {
        let group = room.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
        at += window.group(group.ok_or(Error::InvalidHuffman)?)?;
    }
    while !window.is_padding() {
        let symbol = window.symbol()?;
        *room.get_mut(at).ok_or(Error::InvalidHuffman)? = symbol;
        at += 1;
    }
    Ok(at)
}

/// Encodes into `room` if that is shorter than the bytes; answers how long it is.
pub(super) fn encode(bytes: &[u8], room: &mut [u8]) -> Option<usize> {
    let room = room.get_mut(..bytes.len().checked_sub(1)?)?;
    let (mut window, mut count, mut at) = (0_u64, 0, 0);
    for &byte in bytes {
        let (code, length) = CODES[byte as usize];
        window = window << length | u64::from(code);
        count += u32::from(length);
        if count >= 32 {
            count -= 32;
            *room.get_mut(at..)?.first_chunk_mut()? = ((window >> count) as u32).to_be_bytes();
            at += 4;
        }
    }
    let last = (window << (32 - count)) as u32 | u32::MAX.unbounded_shr(count);
    let octets = count.div_ceil(8) as usize;
    room.get_mut(at..at + octets)?.copy_from_slice(&last.to_be_bytes()[..octets]);
    Some(at + octets)
}

/// The next bits of a string, the first at the top. Behind `count` bits are those that follow, or zeros.
struct Window<'a> {
    bits: u64,
    count: u32,
    source: &'a [u8],
}

impl Window<'_> {
    /// Brings the window to 56 bits or more; false when the source is almost at its end.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let Some(next) = self.source.first_chunk() else { return false };
        self.bits |= u64::from_be_bytes(*next).unbounded_shr(self.count);
        let octets = (63 - self.count) / 8;
        self.source = &self.source[octets as usize..];
        self.count += octets * 8;
        true
    }

    /// Symbols until a long one, which is the last; answers how many. The window is full.
    #[inline(always)]
    fn group(&mut self, room: &mut [u8; GROUP]) -> Result<usize, Error> {
        for (at, place) in room.iter_mut().enumerate() {
            let (symbol, length) = SHORT[(self.bits >> 56) as usize];
            if length == 0 {
                *place = self.long()?;
                return Ok(at + 1);
            }
            *place = symbol;
            self.skip(length.into());
        }
        Ok(GROUP)
    }

    /// The next symbol, which may need more bits than there are.
    fn symbol(&mut self) -> Result<u8, Error> {
        let (symbol, length) = SHORT[(self.bits >> 56) as usize];
        if length == 0 || u32::from(length) > self.count {
            return self.long();
        }
        self.skip(length.into());
        Ok(symbol)
    }

    /// The next symbol, whose code has more than eight bits, or which is not whole.
    #[cold]
    fn long(&mut self) -> Result<u8, Error> {
        self.fill();
        let window = (self.padded() >> 32) as u32;
        let (length, symbols) = (FIRST_LONG..)
            .zip(&LONG)
            .find(|(_, symbols)| u64::from(window) < symbols.limit)
            .ok_or(Error::InvalidHuffman)?;
        let above = window.checked_sub(symbols.first).ok_or(Error::InvalidHuffman)?;
        if length > self.count {
            return Err(Error::InvalidHuffman);
        }
        self.skip(length);
        let index = symbols.index + (above >> (32 - length)) as usize;
        // The last one is the end of a string, which no string may contain.
        SORTED.get(index).copied().ok_or(Error::InvalidHuffman)
    }

    /// Takes what is left of the source, as far as there is room.
    fn fill(&mut self) {
        while self.count <= 56
            && let Some((octet, behind)) = self.source.split_first()
        {
            self.bits |= u64::from(*octet) << (56 - self.count);
            self.count += 8;
            self.source = behind;
        }
    }

    #[inline(always)]
    fn skip(&mut self, length: u32) {
        self.bits <<= length;
        self.count -= length;
    }

    /// Whether nothing is left but the beginning of the code for the end, shorter than an octet (RFC 7541 §5.2).
    fn is_padding(&mut self) -> bool {
        self.fill();
        self.count < 8 && self.padded() == u64::MAX
    }

    /// The bits of the window with ones behind them.
    fn padded(&self) -> u64 {
        self.bits | u64::MAX.unbounded_shr(self.count)
    }
}

/// Codes of one length, the first at the top of 32 bits.
#[derive(Clone, Copy)]
struct Codes {
    first: u32,
    /// Below it are the codes of this length and all shorter ones.
    limit: u64,
    /// Where its symbols begin in [`SORTED`].
    index: usize,
}

/// How many symbols of eight bits or fewer a full window holds for sure.
const GROUP: usize = 7;
const FIRST_LONG: u32 = 9;
const LAST_LONG: u32 = 30;

/// The code of each octet, its last bit lowest, and its length.
static CODES: [(u32, u8); 256] = {
    let (mut codes, mut code, mut length) = ([(0, 0); 256], 0, 5);
    while length <= LAST_LONG {
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as u32 == length {
                codes[symbol] = (code, length as u8);
                code += 1;
            }
            symbol += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
};

/// For the next eight bits: the symbol whose code they begin with and its length, or zero for a longer one.
static SHORT: [(u8, u8); 256] = {
    let (mut table, mut symbol) = ([(0, 0); 256], 0);
    while symbol < 256 {
        let (code, length) = CODES[symbol];
        let mut variant = 0;
        while length <= 8 && variant < 1 << (8 - length) {
            table[(code as usize) << (8 - length) | variant] = (symbol as u8, length);
            variant += 1;
        }
        symbol += 1;
    }
    table
};

/// The octets by the length of their codes and then by themselves, which is the order of the codes.
static SORTED: [u8; 256] = {
    let (mut sorted, mut at, mut length) = ([0; 256], 0, 0);
    while length <= LAST_LONG {
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as u32 == length {
                sorted[at] = symbol as u8;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    sorted
};

/// The codes of each length from [`FIRST_LONG`] on; the last one, 30 ones, is that of the end.
static LONG: [Codes; (LAST_LONG - FIRST_LONG + 1) as usize] = {
    let mut long = [Codes { first: 0, limit: 0, index: 0 }; _];
    let (mut length, mut code, mut index) = (5, 0_u64, 0);
    while length <= LAST_LONG {
        let count = codes_of(length);
        if length >= FIRST_LONG {
            let top = 32 - length;
            long[(length - FIRST_LONG) as usize] =
                Codes { first: (code << top) as u32, limit: (code + count) << top, index };
        }
        index += count as usize;
        code = (code + count) << 1;
        length += 1;
    }
    long
};

/// How many octets have a code of that length.
const fn codes_of(length: u32) -> u64 {
    let (mut count, mut symbol) = (0, 0);
    while symbol < 256 {
        count += (LENGTHS[symbol] as u32 == length) as u64;
        symbol += 1;
    }
    count
}

/// RFC 7541 Appendix B: how many bits the code of each octet has.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let mut room = vec![0xaa; decoded_bound(bytes.len())];
        let length = decode(bytes, &mut room)?;
        room.truncate(length);
        Ok(room)
    }

    fn encoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut room = vec![0xaa; bytes.len()];
        let length = encode(bytes, &mut room)?;
        room.truncate(length);
        Some(room)
    }

    /// The bits of these codes, ones behind them up to `octets`, written one by one.
    fn bits(codes: impl IntoIterator<Item = (u32, u8)>) -> Vec<u8> {
        let bits = codes
            .into_iter()
            .flat_map(|(code, length)| (0..length).rev().map(move |bit| code >> bit & 1));
        let bits: Vec<u32> = bits.collect();
        let octet =
            |octet: &[u32]| (0..8).fold(0, |sum, at| sum << 1 | *octet.get(at).unwrap_or(&1) as u8);
        bits.chunks(8).map(octet).collect()
    }

    const END: (u32, u8) = (0x3fff_ffff, 30);

    #[test]
    fn codes_are_those_of_the_rfc() {
        let some = [
            (0, 0x1ff8, 13),
            (9, 0x00ff_ffea, 24),
            (10, 0x3fff_fffc, 30),
            (13, 0x3fff_fffd, 30),
            (22, 0x3fff_fffe, 30),
            (b' ', 0x14, 6),
            (b'!', 0x3f8, 10),
            (b'0', 0, 5),
            (b'a', 3, 5),
            (b'z', 0x7b, 7),
            (b'Z', 0xfd, 8),
            (b'\\', 0x7fff0, 19),
            (127, 0x0fff_fffc, 28),
            (128, 0xfffe6, 20),
            (200, 0x03ff_ffe2, 26),
            (254, 0x07ff_fff0, 27),
            (255, 0x03ff_ffee, 26),
        ];
        for (octet, code, length) in some {
            assert_eq!(CODES[octet as usize], (code, length), "{octet}");
        }
    }

    /// RFC 7541 §C.4 and §C.6 have more, in whole blocks.
    #[test]
    fn texts_of_the_rfc() {
        let coded = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(encoded(b"www.example.com").unwrap(), coded);
        assert_eq!(decoded(&coded).unwrap(), b"www.example.com");
    }

    #[test]
    fn each_octet_is_decoded_at_each_place() {
        for octet in 0..=u8::MAX {
            for before in 0..24 {
                for behind in 0..12 {
                    let text = [&vec![b'Z'; before][..], &[octet], &vec![b'a'; behind]].concat();
                    let coded = bits(text.iter().map(|&octet| CODES[octet as usize]));
                    assert_eq!(decoded(&coded).as_deref(), Ok(&text[..]), "{octet}");
                    let shorter = (coded.len() < text.len()).then_some(coded);
                    assert_eq!(encoded(&text), shorter, "{octet}");
                }
            }
        }
    }

    #[test]
    fn the_end_is_refused_wherever_it_stands() {
        for before in 0..24 {
            let text = vec![CODES[b'0' as usize]; before];
            for behind in 0..12 {
                let coded =
                    text.iter().copied().chain([END]).chain(vec![CODES[b'a' as usize]; behind]);
                assert_eq!(decoded(&bits(coded)), Err(Error::InvalidHuffman), "{before}, {behind}");
            }
        }
    }

    #[test]
    fn padding_is_shorter_than_an_octet_and_all_ones() {
        for before in 0..24 {
            let text = vec![CODES[b'0' as usize]; before];
            for ones in 0..30 {
                let padded = text.iter().copied().chain([((1 << ones) - 1, ones)]);
                let coded = bits(padded);
                let padding = coded.len() * 8 - before * 5;
                assert_eq!(decoded(&coded).is_ok(), padding < 8, "{before}, {ones}");
            }
        }
    }

    #[test]
    fn any_octets_are_decoded_as_bit_by_bit() {
        let mut random = 1_u64;
        for length in (0..40_000).map(|round| round % 40) {
            let mut octets = vec![0; length];
            for octet in &mut octets {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Long codes begin with ones: half of the strings are full of them.
                *octet =
                    (random >> 56) as u8 | if length % 2 == 0 { 0 } else { (random >> 48) as u8 };
            }
            assert_eq!(decoded(&octets).ok(), bit_by_bit(&octets), "{octets:x?}");
        }
    }

    fn bit_by_bit(octets: &[u8]) -> Option<Vec<u8>> {
        let codes: HashMap<(u32, u8), u8> = CODES.iter().copied().zip(0..=u8::MAX).collect();
        let (mut text, mut code) = (Vec::new(), (0, 0));
        for bit in octets.iter().flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1)) {
            code = (code.0 << 1 | u32::from(bit), code.1 + 1);
            if let Some(octet) = codes.get(&code) {
                text.push(*octet);
                code = (0, 0);
            }
            if code == END {
                return None;
            }
        }
        (code.1 < 8 && code.0 == (1 << code.1) - 1).then_some(text)
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(decoded(b"").as_deref(), Ok(&b""[..]));
        assert_eq!(encoded(b""), None);
    }
}
