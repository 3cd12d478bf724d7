//! Random decisions that depend on nothing but the packet's number.

use super::Direction;

/// The random numbers of one packet.
pub(super) struct Draw(u64);

/// What a number is for: one packet's decisions are independent of each other.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Loss = 1,
    State = 2,
    Jitter = 3,
    Reorder = 4,
    Duplicate = 5,
    Aqm = 6,
}

impl Draw {
    pub(super) fn new(seed: u64, direction: Direction, number: u64) -> Self {
        let way = match direction {
            Direction::Up => 0x5555_5555_5555_5555,
            Direction::Down => 0xAAAA_AAAA_AAAA_AAAA,
        };
        Self(mix(mix(seed ^ way).wrapping_add(number)))
    }

    /// Even in [0, 1).
    pub(super) fn share(&self, purpose: Purpose) -> f64 {
        (mix(self.0.wrapping_add(purpose as u64)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// SplitMix64's finaliser after its increment.
pub(super) fn mix(value: u64) -> u64 {
    let mut value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
