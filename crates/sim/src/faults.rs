//! What may go wrong between two machines, and how often.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::random::Random;

/// The habits of a network path. Every connection draws its own character from these ranges.
#[derive(Clone, Debug)]
pub struct Faults {
    /// One-way delay of a segment. The connection draws its base, each segment a little on top.
    pub latency: RangeInclusive<Duration>,
    /// How large a segment may be: the connection draws its limit, each segment a size below it.
    pub segment_bytes: RangeInclusive<usize>,
    /// How much one read hands over; drawn in the same way. Larger than a segment coalesces.
    pub read_bytes: RangeInclusive<usize>,
    /// The kernel's send and receive buffers, drawn for each end.
    pub buffer_bytes: RangeInclusive<usize>,
    /// How long a node takes to wake after something arrived; what comes meanwhile joins it.
    pub wake: RangeInclusive<Duration>,
    /// In a thousand writes: the kernel takes only a part, and the rest later.
    pub partial_permille: u32,
    /// In a thousand segments: it is held up for [`Faults::stall`], and all behind it.
    pub stall_permille: u32,
    /// How long a stall lasts.
    pub stall: RangeInclusive<Duration>,
    /// In a thousand connections: reset at some point, for both ends.
    pub reset_permille: u32,
    /// In a thousand connections: from some point on nothing arrives any more, and neither side is told.
    pub vanish_permille: u32,
    /// Resets and vanishing happen after at most this many bytes.
    pub cut_bytes: u64,
    /// A translator on the path forgets a connection that nothing has gone over for so long: from then on nothing
    /// arrives, and neither side is told.
    pub forgets_after: Option<Duration>,
    /// In a thousand connects: refused though a machine listens.
    pub refuse_permille: u32,
    /// In a thousand connects: no answer, until the kernel gives up after one to two minutes.
    pub hang_permille: u32,
}

impl Faults {
    /// A fast path on which nothing breaks. Bytes are still split and joined in all ways.
    #[must_use]
    pub fn none() -> Self {
        Self {
            latency: micros(10)..=micros(300),
            segment_bytes: 1..=65_536,
            read_bytes: 1..=65_536,
            buffer_bytes: 1024..=262_144,
            wake: micros(0)..=micros(50),
            partial_permille: 100,
            stall_permille: 0,
            stall: Duration::ZERO..=Duration::ZERO,
            reset_permille: 0,
            vanish_permille: 0,
            cut_bytes: 20_000,
            forgets_after: None,
            refuse_permille: 0,
            hang_permille: 0,
        }
    }

    /// An ordinary bad day: stalls, some resets, some connects that fail.
    #[must_use]
    pub fn lively() -> Self {
        Self {
            latency: micros(10)..=Duration::from_millis(40),
            stall_permille: 20,
            stall: Duration::from_millis(1)..=Duration::from_millis(800),
            reset_permille: 100,
            refuse_permille: 50,
            hang_permille: 20,
            ..Self::none()
        }
    }

    /// Everything at once: tiny buffers, long stalls, connections that vanish.
    #[must_use]
    pub fn harsh() -> Self {
        Self {
            latency: micros(10)..=Duration::from_millis(400),
            segment_bytes: 1..=1500,
            buffer_bytes: 64..=16_384,
            partial_permille: 500,
            stall_permille: 50,
            stall: Duration::from_millis(1)..=Duration::from_secs(20),
            reset_permille: 300,
            vanish_permille: 100,
            refuse_permille: 200,
            hang_permille: 100,
            ..Self::none()
        }
    }

    pub(crate) fn path(&self, random: &mut Random) -> Path {
        let cut = |random: &mut Random, permille| {
            random.chance(permille).then(|| random.below(self.cut_bytes.saturating_add(1)))
        };
        Path {
            latency: random.duration(&self.latency),
            segment_bytes: random.size(&self.segment_bytes),
            read_bytes: random.size(&self.read_bytes),
            partial_permille: self.partial_permille,
            stall_permille: self.stall_permille,
            stall: self.stall.clone(),
            reset_after: cut(random, self.reset_permille),
            vanish_after: cut(random, self.vanish_permille),
            forgets_after: self.forgets_after,
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

/// One connection's character.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) latency: Duration,
    pub(crate) segment_bytes: usize,
    pub(crate) read_bytes: usize,
    pub(crate) partial_permille: u32,
    stall_permille: u32,
    stall: RangeInclusive<Duration>,
    pub(crate) reset_after: Option<u64>,
    pub(crate) vanish_after: Option<u64>,
    pub(crate) forgets_after: Option<Duration>,
}

impl Path {
    /// How long the next segment is on its way.
    pub(crate) fn delay(&self, random: &mut Random) -> Duration {
        let jitter = random.duration(&(Duration::ZERO..=self.latency / 4));
        let stall = if random.chance(self.stall_permille) {
            random.duration(&self.stall)
        } else {
            Duration::ZERO
        };
        self.latency + jitter + stall
    }
}

const fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}
