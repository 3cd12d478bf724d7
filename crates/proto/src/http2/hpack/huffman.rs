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
    let mut window = Window { bits: 0, count: 0, next: 0 };
    let mut at = 0;
    loop {
        window.refill(bytes);
        let group = room.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
        let taken = window.group(group.ok_or(Error::InvalidHuffman)?);
        at += taken;
        if taken == GROUP {
            continue;
        }
        let left = (bytes.len() * 8).checked_sub(window.taken()).ok_or(Error::InvalidHuffman)?;
        if left < 8 {
            return if window.is_padding() { Ok(at) } else { Err(Error::InvalidHuffman) };
        }
        window.refill(bytes);
        let symbol = window.long(left)?;
        *room.get_mut(at).ok_or(Error::InvalidHuffman)? = symbol;
        at += 1;
    }
}

/// How much room [`encode`] wants for so many bytes.
#[inline]
pub(super) const fn encoded_room(length: usize) -> usize {
    // A whole register is written, however many of its octets are.
    length + 8
}

/// Encodes into the start of `room` if that is shorter than the bytes; answers how long it is.
pub(super) fn encode(bytes: &[u8], room: &mut [u8]) -> Option<usize> {
    let (mut bits, mut at) = (Bits { bits: 0, count: 0 }, 0);
    let (groups, last) = bytes.as_chunks::<6>();
    for group in groups {
        let before = bits;
        group.iter().for_each(|byte| bits.push(*byte));
        if bits.count <= MOST_AT_ONCE {
            at += bits.flush(room.get_mut(at..)?)?;
            continue;
        }
        bits = before;
        for byte in group {
            bits.push(*byte);
            at += bits.flush(room.get_mut(at..)?)?;
        }
    }
    for byte in last {
        bits.push(*byte);
        at += bits.flush(room.get_mut(at..)?)?;
    }
    if bits.count > 0 {
        // RFC 7541 §5.2: ones behind the last bit.
        *room.get_mut(at)? |= 0xff >> bits.count;
        at += 1;
    }
    (at < bytes.len()).then_some(at)
}

/// Bits on their way into octets, the first at the top.
#[derive(Clone, Copy)]
struct Bits {
    bits: u64,
    count: u64,
}

impl Bits {
    /// Adds a code. With more than [`MOST_AT_ONCE`] bits, of which `count` tells, they are of no use.
    #[inline(always)]
    const fn push(&mut self, byte: u8) {
        let code = ENCODED[byte as usize];
        // The length at its bottom gets no higher than it is, which is below [`MOST_AT_ONCE`] bits.
        self.bits |= code >> (self.count & 63);
        self.count += code & 0xff;
    }

    /// Writes the bits, and keeps those that are no whole octet; answers how many octets the others are.
    #[inline(always)]
    fn flush(&mut self, room: &mut [u8]) -> Option<usize> {
        let place = room.first_chunk_mut()?;
        // Lengths that came in below the codes leave.
        let bits = self.bits & !0xff;
        *place = bits.to_be_bytes();
        let octets = self.count / 8;
        self.bits = bits << ((octets * 8) & 63);
        self.count %= 8;
        Some(octets as usize)
    }
}

/// The next bits of a string, the first at the top. Behind the string's end are ones, which begin no short code.
struct Window {
    bits: u64,
    /// How many bits are there. Behind them are those that follow, or zeros.
    count: u32,
    /// The octet that follows.
    next: usize,
}

impl Window {
    /// Brings the window to 56 bits or more.
    #[inline(always)]
    fn refill(&mut self, bytes: &[u8]) {
        let next = match bytes.get(self.next..).and_then(<[u8]>::first_chunk) {
            Some(next) => u64::from_be_bytes(*next),
            None => end_of(bytes, self.next),
        };
        self.bits |= next >> (self.count & 63);
        let octets = (63 - self.count) / 8;
        self.next += octets as usize;
        self.count += octets * 8;
    }

    /// Symbols until a long code, which stays; answers how many. The window is full.
    ///
    /// The length of a long code is none: it is looked up again and again until the group ends.
    #[inline(always)]
    fn group(&mut self, room: &mut [u8; GROUP]) -> usize {
        let (mut bits, mut sum) = (self.bits, 0);
        for place in room {
            let found = SHORT[(bits >> 56) as usize];
            *place = (found >> 8) as u8;
            bits <<= found & 63;
            sum += found;
        }
        self.bits = bits;
        self.count -= sum & 0xff;
        (sum >> 24) as usize
    }

    /// The next symbol, whose code has more than eight bits. The window is full, and `left` of the string.
    #[cold]
    fn long(&mut self, left: usize) -> Result<u8, Error> {
        let window = (self.bits >> 32) as u32;
        let (length, symbols) = (FIRST_LONG..)
            .zip(&LONG)
            .find(|(_, symbols)| u64::from(window) < symbols.limit)
            .ok_or(Error::InvalidHuffman)?;
        let above = window.checked_sub(symbols.first).ok_or(Error::InvalidHuffman)?;
        if length as usize > left {
            return Err(Error::InvalidHuffman);
        }
        self.bits <<= length;
        self.count -= length;
        let index = symbols.index + (above >> (32 - length)) as usize;
        // The last one is the end of a string, which no string may contain.
        SORTED.get(index).copied().ok_or(Error::InvalidHuffman)
    }

    /// How many bits were taken out.
    const fn taken(&self) -> usize {
        self.next * 8 - self.count as usize
    }

    /// Whether the next octet is all ones. Of fewer bits than eight that is the beginning of the code for the end, as
    /// it should be (RFC 7541 §5.2).
    const fn is_padding(&self) -> bool {
        self.bits >> 56 == 0xff
    }
}

/// The last few octets, from `at` on, and ones behind them.
#[inline(never)]
fn end_of(bytes: &[u8], at: usize) -> u64 {
    let left = bytes.get(at..).unwrap_or_default();
    left.iter().rev().fold(u64::MAX, |end, octet| end >> 8 | u64::from(*octet) << 56)
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

/// Bits that fit into a register with a length below them.
const MOST_AT_ONCE: u64 = 56;
/// How many symbols of eight bits or fewer a full window holds for sure.
const GROUP: usize = 7;
const FIRST_LONG: u32 = 9;
const LAST_LONG: u32 = 30;

/// The code of each octet, its last bit lowest, and its length.
const CODES: [(u32, u8); 256] = {
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

/// The code of each octet at the top, and its length at the bottom.
static ENCODED: [u64; 256] = {
    let (mut table, mut symbol) = ([0; 256], 0);
    while symbol < 256 {
        let (code, length) = CODES[symbol];
        table[symbol] = (code as u64) << (64 - length) | length as u64;
        symbol += 1;
    }
    table
};

/// For the next eight bits: how long the code is that they begin with, the symbol in the second octet, one in the
/// fourth; nothing for a longer code.
static SHORT: [u32; 256] = {
    let (mut table, mut symbol) = ([0; 256], 0);
    while symbol < 256 {
        let (code, length) = CODES[symbol];
        let mut variant = 0;
        while length <= 8 && variant < 1 << (8 - length) {
            let index = (code as usize) << (8 - length) | variant;
            table[index] = length as u32 | (symbol as u32) << 8 | 1 << 24;
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
        let mut room = vec![0xaa; encoded_room(bytes.len())];
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
