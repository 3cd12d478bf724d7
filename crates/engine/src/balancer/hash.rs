//! Hash functions that place hosts and requests as Envoy's do: XXH64 (the xxHash specification, version 0.1.1) and
//! MurmurHash64A in the form of libstdc++. Neither is safe from inputs that are chosen to collide.

/// XXH64 of some bytes.
pub(crate) fn xx_hash(bytes: &[u8], seed: u64) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut hash = match blocks {
        [] => seed.wrapping_add(PRIMES[4]),
        blocks => striped(blocks, seed),
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(PRIMES[0]);
        hash = hash.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIMES[4]);
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 32)
}

/// The whole blocks of a text that has some.
fn striped(blocks: &[[u8; 32]], seed: u64) -> u64 {
    let mut lanes = [
        seed.wrapping_add(PRIMES[0]).wrapping_add(PRIMES[1]),
        seed.wrapping_add(PRIMES[1]),
        seed,
        seed.wrapping_sub(PRIMES[0]),
    ];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }
    let mut hash = [1, 7, 12, 18]
        .into_iter()
        .zip(lanes)
        .fold(0_u64, |hash, (bits, lane)| hash.wrapping_add(lane.rotate_left(bits)));
    for lane in lanes {
        hash = (hash ^ round(0, lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    }
    hash
}

const fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

/// MurmurHash64A of some bytes, with libstdc++'s seed.
pub(crate) fn murmur_hash(bytes: &[u8]) -> u64 {
    const fn mix(value: u64) -> u64 {
        value ^ (value >> 47)
    }
    let mut hash = MURMUR_SEED ^ (bytes.len() as u64).wrapping_mul(MURMUR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(MURMUR);
        hash = (hash ^ mix(word).wrapping_mul(MURMUR)).wrapping_mul(MURMUR);
    }
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = (hash ^ word).wrapping_mul(MURMUR);
    }
    mix(mix(hash).wrapping_mul(MURMUR))
}

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];
const MURMUR: u64 = 0xc6a4_a793_5bd1_e995;
const MURMUR_SEED: u64 = 0xc70f_6907;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_each_length_have_their_hash() {
        for (text, wanted) in [
            ("", 0xef46_db37_51d8_e999),
            ("a", 0xd24e_c4f1_a98c_6e5b),
            ("abc", 0x44bc_2cf5_ad77_0999),
            ("foo", 0x33bf_00a8_59c4_ba3f),
            ("bar", 5_234_164_152_756_840_025),
            ("foo\nbar", 8_917_841_378_505_826_757),
        ] {
            assert_eq!(xx_hash(text.as_bytes(), 0), wanted, "{text}");
        }
    }
}
