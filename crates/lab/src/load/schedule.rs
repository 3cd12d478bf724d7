//! When requests are meant to start.
//!
//! A schedule knows nothing of the server: it is a function from a seed to instants, in nanoseconds from
//! the start of the run. Requests that could not start on time stay due, so nothing needs to be queued.

use std::ops::Range;
use std::time::Duration;

use super::{Arrivals, Share};
use crate::random::Random;

/// The instants of one arrival process.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    process: Process,
    /// Arrivals per second once the ramp is over.
    rate: f64,
    ramp_s: f64,
    /// The expected number of arrivals up to the next one.
    position: f64,
    /// How many arrivals lie between one of this part and the next.
    step: f64,
    random: Random,
    next_ns: Option<u64>,
}

#[derive(Clone, Debug)]
enum Process {
    Paced,
    Poisson,
    Bunched(u32),
    /// Nanoseconds from one tick to the next.
    Ticked(u64),
    Recorded(std::vec::IntoIter<Duration>),
}

impl Schedule {
    /// The schedule that all connections share, if the arrivals have one.
    ///
    /// A part of a plan takes every so-manieth arrival, but of random ones a process of its own at its share of the
    /// rate: together such processes are the whole one.
    pub(crate) fn global(
        arrivals: &Arrivals,
        ramp: Duration,
        seed: u64,
        share: &Share,
    ) -> Option<Self> {
        let (first, of) = (share.index as f64, share.of as f64);
        let every = |schedule: Self| Self { step: of, ..schedule };
        match arrivals {
            Arrivals::Paced { rate } => {
                Some(every(Self::new(Process::Paced, *rate, ramp, first, seed)))
            }
            Arrivals::Poisson { rate } => {
                let seed = seed.wrapping_add((share.index as u64) << 32);
                Some(Self::new(Process::Poisson, *rate / of, ramp, 0.0, seed))
            }
            Arrivals::Bunched { rate, size } => {
                Some(every(Self::new(Process::Bunched(*size), *rate, ramp, first, seed)))
            }
            Arrivals::Ticked { rate, tick } => {
                let process = Process::Ticked(tick.as_nanos() as u64);
                Some(every(Self::new(process, *rate, ramp, first, seed)))
            }
            Arrivals::Recorded { starts } => {
                let starts = starts.iter().skip(share.index).step_by(share.of).copied();
                let starts: Vec<Duration> = starts.collect();
                Some(Self::new(Process::Recorded(starts.into_iter()), 0.0, ramp, 0.0, seed))
            }
            Arrivals::Closed | Arrivals::ClosedCapped { .. } | Arrivals::PerConnection { .. } => {
                None
            }
        }
    }

    /// The schedule of connection `index` of `count`: paced, and shifted so that connections do not march in step.
    pub(crate) fn of_connection(
        arrivals: &Arrivals,
        ramp: Duration,
        index: usize,
        count: usize,
    ) -> Option<Self> {
        match arrivals {
            Arrivals::ClosedCapped { per_connection_rate }
            | Arrivals::PerConnection { per_connection_rate } => {
                let shift = index as f64 / count as f64;
                Some(Self::new(Process::Paced, *per_connection_rate, ramp, shift, 0))
            }
            Arrivals::Closed
            | Arrivals::Paced { .. }
            | Arrivals::Poisson { .. }
            | Arrivals::Bunched { .. }
            | Arrivals::Ticked { .. }
            | Arrivals::Recorded { .. } => None,
        }
    }

    fn new(process: Process, rate: f64, ramp: Duration, position: f64, seed: u64) -> Self {
        let random = Random::new(seed);
        let mut schedule = Self {
            process,
            rate,
            ramp_s: ramp.as_secs_f64(),
            position,
            step: 1.0,
            random,
            next_ns: None,
        };
        schedule.next_ns = match schedule.process {
            // The first is at the shift itself, the next a whole gap later.
            Process::Paced | Process::Bunched(_) | Process::Ticked(_) => Some(schedule.instant()),
            Process::Poisson | Process::Recorded(_) => schedule.following(),
        };
        schedule
    }

    /// When the next request is meant to start; `None` when a recording has ended.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes the next instant.
    pub(crate) fn advance(&mut self) {
        self.next_ns = self.following();
    }

    /// Takes every instant up to `now_ns` but the last of them: a limiter that saves up one permit.
    pub(crate) fn forget_before(&mut self, now_ns: u64) {
        if self.rate <= 0.0 {
            return;
        }
        while self.next_ns.is_some_and(|next| next <= now_ns) {
            let mut ahead = self.clone();
            ahead.advance();
            if ahead.next_ns.is_none_or(|next| next > now_ns) {
                return;
            }
            *self = ahead;
        }
    }

    /// Takes every instant up to the end of a time, and counts those within it.
    pub(crate) fn count_rest(&mut self, within: &Range<u64>) -> u64 {
        let mut count = 0;
        while let Some(due) = self.next_ns.filter(|due| *due < within.end) {
            count += u64::from(within.contains(&due));
            self.advance();
        }
        count
    }

    fn following(&mut self) -> Option<u64> {
        match &mut self.process {
            Process::Paced | Process::Bunched(_) | Process::Ticked(_) => self.position += self.step,
            Process::Poisson => self.position += self.random.exponential(),
            Process::Recorded(starts) => return starts.next().map(|start| start.as_nanos() as u64),
        }
        Some(self.instant())
    }

    /// The instant at which `position` arrivals are expected to have happened: the inverse of the
    /// cumulative rate, which is quadratic while the rate climbs and linear after.
    fn instant(&self) -> u64 {
        let during_ramp = self.rate * self.ramp_s / 2.0;
        let position = match &self.process {
            // All of a bunch at its first one's instant.
            Process::Bunched(size) => (self.position / f64::from(*size)).floor() * f64::from(*size),
            Process::Paced | Process::Poisson | Process::Ticked(_) | Process::Recorded(_) => {
                self.position
            }
        };
        let seconds = if position < during_ramp {
            (2.0 * self.ramp_s * position / self.rate).sqrt()
        } else {
            self.ramp_s + (position - during_ramp) / self.rate
        };
        let due = (seconds * 1e9) as u64;
        match &self.process {
            Process::Ticked(tick) => due.div_ceil(*tick) * tick,
            Process::Paced | Process::Poisson | Process::Bunched(_) | Process::Recorded(_) => due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instants(arrivals: &Arrivals, ramp: Duration, until_s: f64) -> Vec<u64> {
        instants_of(arrivals, ramp, until_s, &Share::default())
    }

    fn instants_of(arrivals: &Arrivals, ramp: Duration, until_s: f64, share: &Share) -> Vec<u64> {
        let mut schedule = Schedule::global(arrivals, ramp, 7, share).unwrap();
        let mut all = Vec::new();
        while let Some(next) = schedule.next_ns().filter(|next| (*next as f64) < until_s * 1e9) {
            all.push(next);
            schedule.advance();
        }
        all
    }

    #[test]
    fn paced_arrivals_are_evenly_spaced() {
        let all = instants(&Arrivals::Paced { rate: 1000.0 }, Duration::ZERO, 1.0);
        assert_eq!(all.len(), 1000);
        assert!(all.windows(2).all(|pair| (999_998..=1_000_002).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn bunches_come_at_once_and_evenly() {
        let all = instants(&Arrivals::Bunched { rate: 1000.0, size: 20 }, Duration::ZERO, 1.0);
        assert_eq!(all.len(), 1000);
        for (number, bunch) in all.chunks(20).enumerate() {
            assert!(
                bunch.iter().all(|at| *at == number as u64 * 20_000_000),
                "{number}: {bunch:?}"
            );
        }
    }

    #[test]
    fn what_is_due_waits_for_the_next_tick() {
        let tick = Duration::from_micros(1250);
        let all = instants(&Arrivals::Ticked { rate: 2000.0, tick }, Duration::ZERO, 1.0);
        assert!((1995..=2000).contains(&all.len()), "{}", all.len());
        assert!(all.iter().all(|at| at % 1_250_000 == 0));
        let counts: Vec<usize> = all.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
        // 2.5 are due from tick to tick; the very first is due at once.
        assert_eq!(counts[..5], [1, 2, 3, 2, 3]);
    }

    #[test]
    fn parts_of_a_schedule_are_the_whole_one() {
        let starts = (0..100).map(Duration::from_millis).collect();
        let rate = 1000.0;
        let ramp = Duration::from_millis(100);
        for arrivals in [
            Arrivals::Paced { rate },
            Arrivals::Bunched { rate, size: 8 },
            Arrivals::Ticked { rate, tick: Duration::from_millis(7) },
            Arrivals::Recorded { starts },
        ] {
            let whole = instants(&arrivals, ramp, 1.0);
            let part = |index| instants_of(&arrivals, ramp, 1.0, &Share::new(index, 3));
            let mut parts = [part(0), part(1), part(2)].concat();
            parts.sort_unstable();
            assert_eq!(parts, whole, "{}", arrivals.name());
        }
        let random = Arrivals::Poisson { rate: 3000.0 };
        let parts =
            [0, 1, 2].map(|index| instants_of(&random, Duration::ZERO, 2.0, &Share::new(index, 3)));
        assert!(parts.iter().all(|part| (1800..2200).contains(&part.len())));
        assert!(parts[0] != parts[1] && parts[1] != parts[2], "each has its own chance");
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        let all = instants(&Arrivals::Poisson { rate: 10_000.0 }, Duration::ZERO, 10.0);
        let gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation =
            (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((mean / 100_000.0 - 1.0).abs() < 0.02, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.02, "{deviation}");
    }

    #[test]
    fn a_ramp_halves_the_arrivals_and_reaches_the_rate() {
        let all = instants(&Arrivals::Paced { rate: 1000.0 }, Duration::from_secs(1), 2.0);
        let during = all.iter().filter(|at| **at < 1_000_000_000).count();
        assert!((499..=501).contains(&during), "{during}");
        assert!((1499..=1501).contains(&all.len()), "{}", all.len());
    }

    #[test]
    fn a_recording_ends() {
        let starts = vec![Duration::ZERO, Duration::from_millis(3)];
        assert_eq!(instants(&Arrivals::Recorded { starts }, Duration::ZERO, 1.0), [0, 3_000_000]);
    }

    #[test]
    fn a_limiter_saves_up_one_permit() {
        let arrivals = Arrivals::ClosedCapped { per_connection_rate: 10.0 };
        let mut schedule = Schedule::of_connection(&arrivals, Duration::ZERO, 1, 4).unwrap();
        assert_eq!(schedule.next_ns(), Some(25_000_000));
        schedule.forget_before(460_000_000);
        assert_eq!(schedule.next_ns(), Some(425_000_000));
        schedule.advance();
        assert_eq!(schedule.next_ns(), Some(525_000_000));
    }
}
