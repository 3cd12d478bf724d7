//! What a radio would have spent, by model, from the times and sizes of packets.
//!
//! A state machine over packet times: a packet wakes the radio (promotion), keeps it active while it is
//! sent, and leaves it in a tail for seconds. Parameters: Huang et al., "A close examination of performance
//! and power characteristics of 4G LTE networks" (MobiSys 2012), which measured a handset of that year.
//! Every figure is *modelled*, never measured, and comes with a band.

use std::time::Duration;

use serde::Serialize;

use crate::link::{Fate, Record};
use towpath_sim::link::Direction;

/// The parameters of one kind of radio. Powers in milliwatts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Radio {
    /// Its name.
    pub name: &'static str,
    promotion: (f64, Duration),
    active: f64,
    /// Power and length of each part of the tail.
    tail: [(f64, Duration); 2],
    up_per_megabit: f64,
    down_per_megabit: f64,
    /// Average power of paging while idle.
    idle: f64,
}

/// What a radio spent, by model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Energy {
    /// Joules altogether.
    pub joules: f64,
    /// Joules with a short tail and 30 % less active power.
    pub low_joules: f64,
    /// Joules with a long tail and 30 % more active power.
    pub high_joules: f64,
    /// Mean power in milliwatts.
    pub mean_milliwatts: f64,
    /// How often the radio woke up.
    pub promotions: u64,
    /// Share of the time in which the radio was not idle.
    pub awake: f64,
    /// Percent per minute of a 3000 mAh cell at 3.85 V.
    pub battery_percent_per_minute: f64,
}

/// The long-term evolution of a 2012 handset.
pub const LTE: Radio = Radio {
    name: "LTE",
    promotion: (1210.7, Duration::from_millis(260)),
    active: 1288.04,
    tail: [(1060.0, Duration::from_millis(11_576)), (0.0, Duration::ZERO)],
    up_per_megabit: 438.39,
    down_per_megabit: 51.97,
    // 594 mW for 43 ms every 1.28 s.
    idle: 594.3 * 43.2 / 1280.0,
};

/// Third generation of the same handset: a dedicated channel's tail, then a shared one's.
pub const UMTS: Radio = Radio {
    name: "3G",
    promotion: (659.4, Duration::from_millis(582)),
    active: 817.88,
    tail: [(803.9, Duration::from_millis(8_088)), (601.3, Duration::from_millis(824))],
    up_per_megabit: 868.98,
    down_per_megabit: 122.12,
    idle: 374.2 * 55.4 / 5112.0,
};

/// Wi-Fi of the same handset.
pub const WIFI: Radio = Radio {
    name: "Wi-Fi",
    promotion: (124.4, Duration::from_millis(79)),
    active: 132.86,
    tail: [(119.3, Duration::from_millis(238)), (0.0, Duration::ZERO)],
    up_per_megabit: 283.17,
    down_per_megabit: 137.01,
    idle: 77.2 * 7.6 / 308.2,
};

impl Radio {
    /// What `packets`, in order of time, would have cost within `duration`.
    pub fn model(&self, packets: &[Record], duration: Duration) -> Energy {
        let (joules, promotions, awake_s) = self.spend(packets, duration, 1.0, 1.0);
        // The tail is an operator's setting: 2 to 12 s are in use.
        let own_tail = self.tail.iter().map(|(_, length)| length.as_secs_f64()).sum::<f64>();
        let (shortest, longest) =
            if own_tail > 2.0 { (2.0 / own_tail, (12.0 / own_tail).max(1.0)) } else { (1.0, 1.0) };
        let seconds = duration.as_secs_f64().max(1e-9);
        Energy {
            joules,
            low_joules: self.spend(packets, duration, shortest, 0.7).0,
            high_joules: self.spend(packets, duration, longest, 1.3).0,
            mean_milliwatts: joules / seconds * 1e3,
            promotions,
            awake: awake_s / seconds,
            battery_percent_per_minute: joules / seconds * 60.0 / CELL_JOULES * 100.0,
        }
    }

    /// Joules, promotions and seconds awake, with the tail's length and the active power scaled.
    fn spend(
        &self,
        packets: &[Record],
        duration: Duration,
        tail_scale: f64,
        active_scale: f64,
    ) -> (f64, u64, f64) {
        let end_s = duration.as_secs_f64();
        let tail: [(f64, f64); 2] =
            self.tail.map(|(power, length)| (power, length.as_secs_f64() * tail_scale));
        let (mut millijoules, mut promotions, mut awake_s) = (0.0, 0, 0.0);
        // Until when the radio is active; None while idle.
        let mut active_until: Option<f64> = None;
        let mut clock = 0.0;
        let rest = |from: f64, to: f64| -> (f64, f64, bool) {
            // Power spent between two instants after activity ended, seconds awake, and whether it is idle by then.
            let (mut spent, mut awake, mut left) = (0.0, 0.0, to - from);
            for (power, length) in tail {
                let part = left.min(length);
                (spent, awake, left) = (spent + power * part, awake + part, left - part);
            }
            (spent + self.idle * left, awake, left > 0.0)
        };
        for packet in packets {
            let at = packet.at.as_nanos() as f64 / 1e9;
            if at >= end_s {
                break;
            }
            let is_idle = match active_until {
                None => {
                    millijoules += self.idle * (at - clock);
                    true
                }
                Some(until) if at > until => {
                    let (spent, awake, is_idle) = rest(until, at);
                    millijoules += spent;
                    awake_s += awake;
                    is_idle
                }
                Some(_) => false,
            };
            let mut begins = at.max(active_until.unwrap_or(0.0));
            if is_idle {
                promotions += 1;
                millijoules += self.promotion.0 * self.promotion.1.as_secs_f64();
                awake_s += self.promotion.1.as_secs_f64();
                begins += self.promotion.1.as_secs_f64();
            }
            let megabits = f64::from(packet.size) * 8e-6;
            let per_megabit = match packet.direction {
                Direction::Up => self.up_per_megabit,
                Direction::Down => self.down_per_megabit,
            };
            millijoules += megabits * per_megabit;
            // What did not arrive was sent all the same; what comes down only costs when it arrives.
            if packet.direction == Direction::Up || matches!(packet.fate, Fate::Delivered(_)) {
                millijoules += self.active * active_scale * BURST_S;
                awake_s += BURST_S;
                begins += BURST_S;
            }
            active_until = Some(begins);
            clock = begins;
        }
        match active_until {
            None => millijoules += self.idle * end_s,
            Some(until) if end_s > until => {
                let (spent, awake, _) = rest(until, end_s);
                millijoules += spent;
                awake_s += awake;
            }
            Some(_) => {}
        }
        (millijoules / 1e3, promotions, awake_s.min(end_s))
    }
}

/// How long one packet keeps the radio active.
const BURST_S: f64 = 0.001;
/// 3000 mAh at 3.85 V.
const CELL_JOULES: f64 = 3.0 * 3600.0 * 3.85;

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_proto::time::Instant;

    /// Requests of `batch` exchanges every `period` seconds for ten minutes.
    fn pattern(period: f64, batch: u32) -> Vec<Record> {
        let mut records = Vec::new();
        for number in 0..(600.0 / period) as u32 {
            for exchange in 0..batch {
                let at = Instant::from_nanos(
                    ((f64::from(number) * period + f64::from(exchange) * 0.01) * 1e9) as u64,
                );
                records.push(Record {
                    at,
                    direction: Direction::Up,
                    size: 500,
                    fate: Fate::Delivered(at),
                });
                records.push(Record {
                    at,
                    direction: Direction::Down,
                    size: 1000,
                    fate: Fate::Delivered(at),
                });
            }
        }
        records
    }

    #[test]
    fn a_steady_trickle_keeps_the_radio_awake_and_batches_let_it_sleep() {
        let ten_minutes = Duration::from_secs(600);
        let steady = LTE.model(&pattern(0.2, 1), ten_minutes);
        let batched = LTE.model(&pattern(60.0, 300), ten_minutes);
        // About 0.15 to 0.17 percent per minute, as the published model has it.
        assert!((0.14..0.18).contains(&steady.battery_percent_per_minute), "{steady:?}");
        assert!(batched.joules * 3.0 < steady.joules, "{batched:?}");
        assert_eq!((steady.promotions, batched.promotions), (1, 10));
        assert!(steady.awake > 0.99 && batched.awake < 0.35, "{batched:?}");
        for energy in [steady, batched] {
            assert!(
                energy.low_joules <= energy.joules && energy.joules <= energy.high_joules,
                "{energy:?}"
            );
        }
    }

    #[test]
    fn silence_costs_paging_and_nothing_else() {
        for radio in [LTE, UMTS, WIFI] {
            let energy = radio.model(&[], Duration::from_secs(100));
            assert!((energy.mean_milliwatts - radio.idle).abs() < 1e-9, "{}", radio.name);
            assert_eq!((energy.promotions, energy.awake), (0, 0.0));
        }
    }
}
