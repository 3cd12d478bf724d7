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
    /// As [`Limit::Rate`].
    fastest: (f64, f64),
    /// Average power of paging while idle.
    idle: f64,
}

/// Traffic that the radio could not have carried. Its packets would have come at other times, so that what they would
/// have cost is not known: the model's line, drawn on, gives tens of watts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// For how many seconds.
    pub seconds: f64,
    /// In the worst of them, megabits per second.
    pub up: f64,
    /// The other way.
    pub down: f64,
    /// What is exceeded there.
    pub limit: Limit,
}

/// What traffic may not exceed for the model to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Megabits per second, up and down, that the radio's class can carry at best.
    Rate(f64, f64),
    /// The line would have the radio draw so many watts, which no handset has for it.
    Watts(f64),
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
    // Category 3 (TS 36.306, table 4.1-1 and 4.1-2).
    fastest: (51.0, 102.0),
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
    // HSUPA category 6 and HSDPA category 10 (TS 25.306, tables 5.1g and 5.1a).
    fastest: (5.7, 14.0),
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
    // One stream of 20 MHz (IEEE 802.11n, MCS 7).
    fastest: (72.2, 72.2),
    idle: 77.2 * 7.6 / 308.2,
};

/// A stretch of time in one state.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    state: State,
    /// Seconds.
    from: f64,
    to: f64,
    milliwatts: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Promotion,
    Active,
    Tail,
}

/// How far a reading of the model deviates from the published parameters.
#[derive(Clone, Copy)]
struct Scales {
    tail: f64,
    active: f64,
}

impl Beyond {
    /// In words, after the radio's name.
    pub fn sentence(&self) -> String {
        let why = match self.limit {
            Limit::Rate(up, down) => format!("its class carries {up} up and {down} down at best"),
            Limit::Watts(watts) => format!(
                "the model would have it draw {watts:.0} W, and a handset has {:.0} for it",
                HANDSET_MILLIWATTS / 1e3
            ),
        };
        format!(
            "no figures, because packets came faster than it could have carried them for {:.1} s, at {} Mbit/s up and \
             {} down: {why}",
            self.seconds,
            digits(self.up),
            digits(self.down)
        )
    }
}

/// Two digits or more.
fn digits(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

impl Radio {
    /// What `packets` would have cost within `duration`.
    ///
    /// # Errors
    /// They came faster than this radio could have carried them.
    pub fn model(&self, packets: &[Record], duration: Duration) -> Result<Energy, Beyond> {
        if let Some(beyond) = self.beyond(packets, duration) {
            return Err(beyond);
        }
        // The tail is an operator's setting: 2 to 12 s are in use.
        let own_tail = self.tail.iter().map(|(_, length)| length.as_secs_f64()).sum::<f64>();
        let (shortest, longest) =
            if own_tail > 2.0 { (2.0 / own_tail, (12.0 / own_tail).max(1.0)) } else { (1.0, 1.0) };
        let joules = |tail, active| self.joules(packets, duration, Scales { tail, active });
        let phases = self.phases(packets, duration, Scales::PUBLISHED);
        let awake = phases.iter().filter(|phase| phase.state != State::Idle);
        let seconds = duration.as_secs_f64().max(1e-9);
        let spent = joules(1.0, 1.0);
        Ok(Energy {
            joules: spent,
            low_joules: joules(shortest, 0.7),
            high_joules: joules(longest, 1.3),
            mean_milliwatts: spent / seconds * 1e3,
            promotions: phases.iter().filter(|phase| phase.state == State::Promotion).count()
                as u64,
            awake: awake.map(|phase| phase.to - phase.from).sum::<f64>() / seconds,
            battery_percent_per_minute: percent_per_minute(spent, seconds),
        })
    }

    /// Mean power in milliwatts over `steps` equal parts of `duration`, each at its middle in seconds. A burst that a
    /// handset has no power for is sent as fast as it has.
    pub fn power(&self, packets: &[Record], duration: Duration, steps: usize) -> Vec<(f64, f64)> {
        let width = duration.as_secs_f64().max(1e-9) / steps.max(1) as f64;
        let mut millijoules = vec![0.0; steps];
        for phase in self.phases(packets, duration, Scales::PUBLISHED) {
            for (step, spent) in
                millijoules.iter_mut().enumerate().skip((phase.from / width) as usize)
            {
                let (begin, end) = (step as f64 * width, (step + 1) as f64 * width);
                if begin >= phase.to {
                    break;
                }
                *spent += phase.milliwatts * (phase.to.min(end) - phase.from.max(begin)).max(0.0);
            }
        }
        for (at, direction, size) in transfers(packets) {
            if let Some(spent) = millijoules.get_mut((at / width) as usize) {
                *spent += self.for_bytes(direction, size);
            }
        }
        let mut waiting = 0.0;
        let point = |(step, spent): (usize, f64)| {
            let sent = (spent + waiting).min(HANDSET_MILLIWATTS * width);
            waiting += spent - sent;
            ((step as f64 + 0.5) * width, sent / width)
        };
        millijoules.into_iter().enumerate().map(point).collect()
    }

    fn joules(&self, packets: &[Record], duration: Duration, scales: Scales) -> f64 {
        let phases = self.phases(packets, duration, scales);
        let in_phases: f64 =
            phases.iter().map(|phase| phase.milliwatts * (phase.to - phase.from)).sum();
        let end_s = duration.as_secs_f64();
        let for_bytes: f64 = transfers(packets)
            .iter()
            .take_while(|(at, _, _)| *at < end_s)
            .map(|(_, direction, size)| self.for_bytes(*direction, *size))
            .sum();
        (in_phases + for_bytes * scales.active) / 1e3
    }

    /// Where packets come faster than the radio could carry them, if they do. What comes in a burst is sent within the
    /// second at the same price for each bit, so a second is what is looked at.
    fn beyond(&self, packets: &[Record], duration: Duration) -> Option<Beyond> {
        let end_s = duration.as_secs_f64().max(1e-9);
        let count = (end_s as usize).max(1);
        let length = end_s / count as f64;
        let mut rates = vec![(0.0_f64, 0.0_f64); count];
        for (at, direction, size) in transfers(packets) {
            let Some((up, down)) = rates.get_mut((at / length) as usize) else { break };
            let rate = if direction == Direction::Up { up } else { down };
            *rate += f64::from(size) * 8e-6 / length;
        }
        let beyond = rates.into_iter().filter_map(|(up, down)| {
            let (fastest_up, fastest_down) = self.fastest;
            let watts =
                (self.active + up * self.up_per_megabit + down * self.down_per_megabit) / 1e3;
            let of_rate = (up / fastest_up).max(down / fastest_down);
            let of_power = watts * 1e3 / HANDSET_MILLIWATTS;
            let limit = if of_power >= of_rate {
                Limit::Watts(watts)
            } else {
                Limit::Rate(fastest_up, fastest_down)
            };
            let share = of_rate.max(of_power);
            (share > 1.0).then_some((share, Beyond { seconds: length, up, down, limit }))
        });
        let worst = beyond.reduce(|(one, a), (other, b)| {
            let seconds = a.seconds + b.seconds;
            let (share, worse) = if one >= other { (one, a) } else { (other, b) };
            (share, Beyond { seconds, ..worse })
        });
        worst.map(|(_, beyond)| beyond)
    }

    /// Millijoules for the bytes themselves, beside the time they keep the radio active.
    fn for_bytes(&self, direction: Direction, size: u32) -> f64 {
        let per_megabit = match direction {
            Direction::Up => self.up_per_megabit,
            Direction::Down => self.down_per_megabit,
        };
        f64::from(size) * 8e-6 * per_megabit
    }

    /// The states in order, without gaps, from the beginning to the end.
    fn phases(&self, packets: &[Record], duration: Duration, scales: Scales) -> Vec<Phase> {
        let mut phases =
            Phases { radio: *self, scales, end_s: duration.as_secs_f64(), list: Vec::new() };
        // Until when the radio is active; `None` before the first packet.
        let mut active_until: Option<f64> = None;
        for (at, _, _) in transfers(packets) {
            if at >= phases.end_s {
                break;
            }
            let is_idle = phases.rest(active_until, at);
            let mut cursor = at.max(active_until.unwrap_or(0.0));
            if is_idle {
                cursor = phases.push(State::Promotion, cursor, self.promotion.1, self.promotion.0);
            }
            cursor = phases.push(State::Active, cursor, BURST, self.active * scales.active);
            active_until = Some(cursor);
        }
        phases.rest(active_until, duration.as_secs_f64());
        phases.list
    }
}

/// Phases up to the end of what is watched.
struct Phases {
    radio: Radio,
    scales: Scales,
    end_s: f64,
    list: Vec<Phase>,
}

impl Phases {
    /// Adds a phase and gives its end.
    fn push(&mut self, state: State, from: f64, length: Duration, milliwatts: f64) -> f64 {
        let end = from + length.as_secs_f64();
        let to = end.min(self.end_s);
        if to > from {
            self.list.push(Phase { state, from, to, milliwatts });
        }
        end
    }

    /// Nothing is sent until `to`: the tail, then silence. Says whether the radio is idle by then.
    fn rest(&mut self, active_until: Option<f64>, to: f64) -> bool {
        let Some(mut cursor) = active_until else {
            self.push(State::Idle, 0.0, Duration::from_secs_f64(to), self.radio.idle);
            return true;
        };
        for (milliwatts, length) in self.radio.tail {
            let left = Duration::from_secs_f64((to - cursor).max(0.0));
            let length = length.mul_f64(self.scales.tail).min(left);
            cursor = self.push(State::Tail, cursor, length, milliwatts);
        }
        let left = to - cursor;
        if left <= 1e-9 {
            return false;
        }
        self.push(State::Idle, cursor, Duration::from_secs_f64(left), self.radio.idle);
        true
    }
}

impl Scales {
    const PUBLISHED: Self = Self { tail: 1.0, active: 1.0 };
}

/// What the radio sent or received, in order: when, which way, how much. What went up was sent even if it
/// was lost on the way; what did not come down cost nothing.
fn transfers(packets: &[Record]) -> Vec<(f64, Direction, u32)> {
    let transfer = |packet: &Record| {
        let at = match (packet.direction, packet.fate) {
            (Direction::Up, _) => packet.at,
            (Direction::Down, Fate::Delivered(at)) => at,
            (Direction::Down, Fate::Lost | Fate::QueueFull | Fate::Managed | Fate::Outage) => {
                return None;
            }
        };
        Some((at.as_nanos() as f64 / 1e9, packet.direction, packet.size))
    };
    let mut transfers: Vec<(f64, Direction, u32)> = packets.iter().filter_map(transfer).collect();
    transfers.sort_by(|a, b| a.0.total_cmp(&b.0));
    transfers
}

/// What a use of energy means for a cell of 3000 mAh.
fn percent_per_minute(joules: f64, seconds: f64) -> f64 {
    joules / seconds * 60.0 / CELL_JOULES * 100.0
}

/// How long one packet keeps the radio active.
const BURST: Duration = Duration::from_millis(1);
/// What a handset can spend on its radio for longer than a moment: its cell would be empty in two hours. The paper's
/// power is linear in the rate, and its handsets were measured at 6 Mbit/s up and 13 down in the median.
const HANDSET_MILLIWATTS: f64 = 5000.0;
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
        let steady = LTE.model(&pattern(0.2, 1), ten_minutes).unwrap();
        let batched = LTE.model(&pattern(60.0, 300), ten_minutes).unwrap();
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
    fn power_over_time_adds_up_to_the_energy() {
        let (packets, duration) = (pattern(20.0, 2), Duration::from_secs(600));
        let power = LTE.power(&packets, duration, 300);
        assert_eq!(power.len(), 300);
        let joules = power.iter().map(|(_, milliwatts)| milliwatts * 2.0 / 1e3).sum::<f64>();
        let modelled = LTE.model(&packets, duration).unwrap().joules;
        assert!((joules / modelled - 1.0).abs() < 1e-6, "{joules} {modelled}");
        // Just after a request the tail, ten seconds before the next one silence.
        assert!(power[1].1 > 1000.0 && power[9].1 < 30.0, "{:?}", &power[..10]);
    }

    /// One direction at a steady rate for two seconds.
    fn stream(direction: Direction, megabits: f64) -> Vec<Record> {
        let count = (megabits * 2e6 / 8.0 / 1500.0) as u64;
        let at = |number: u64| Instant::from_nanos(number * 2_000_000_000 / count);
        let record = |at| Record { at, direction, size: 1500, fate: Fate::Delivered(at) };
        (0..count).map(at).map(record).collect()
    }

    #[test]
    fn the_band_moves_what_bytes_cost() {
        let energy = WIFI.model(&stream(Direction::Down, 30.0), Duration::from_secs(2)).unwrap();
        // Nearly all of it is for bytes and activity, both known to 30 %.
        assert!((0.69..0.72).contains(&(energy.low_joules / energy.joules)), "{energy:?}");
        assert!((1.28..1.31).contains(&(energy.high_joules / energy.joules)), "{energy:?}");
    }

    #[test]
    fn traffic_beyond_the_radio_has_no_figures() {
        let two_seconds = Duration::from_secs(2);
        for (radio, direction, holds, breaks, is_power) in [
            (LTE, Direction::Down, 70.0, 73.0, true),
            (LTE, Direction::Up, 8.3, 8.8, true),
            (UMTS, Direction::Down, 13.0, 15.0, false),
            (UMTS, Direction::Up, 4.6, 5.0, true),
            (WIFI, Direction::Down, 34.0, 37.0, true),
        ] {
            let within = radio.model(&stream(direction, holds), two_seconds);
            assert!(within.is_ok(), "{} at {holds}: {within:?}", radio.name);
            let beyond = radio.model(&stream(direction, breaks), two_seconds).unwrap_err();
            let rate = if direction == Direction::Up { beyond.up } else { beyond.down };
            assert!((rate / breaks - 1.0).abs() < 0.05, "{}: {beyond:?}", radio.name);
            assert!((beyond.seconds - 2.0).abs() < 1e-9, "{}: {beyond:?}", radio.name);
            assert_eq!(matches!(beyond.limit, Limit::Watts(_)), is_power, "{}", radio.name);
        }
        let both = [stream(Direction::Up, 6.0), stream(Direction::Down, 40.0)].concat();
        assert!(LTE.model(&both, two_seconds).is_err(), "each would do, both are too much");
        let sentence =
            LTE.model(&stream(Direction::Up, 200.0), two_seconds).unwrap_err().sentence();
        assert_eq!(
            sentence,
            "no figures, because packets came faster than it could have carried them for 2.0 s, at 200 Mbit/s up and \
             0.0 down: the model would have it draw 89 W, and a handset has 5 for it"
        );
        let sentence =
            UMTS.model(&stream(Direction::Down, 15.0), two_seconds).unwrap_err().sentence();
        assert!(sentence.ends_with("its class carries 5.7 up and 14 down at best"), "{sentence}");
    }

    #[test]
    fn a_burst_is_sent_within_the_second_and_no_faster_than_a_handset_can() {
        // 6 Mbit in the first tenth of a second, which is 60 Mbit/s.
        let mut burst = stream(Direction::Up, 60.0);
        burst.retain(|packet| packet.at < Instant::from_nanos(100_000_000));
        let duration = Duration::from_secs(30);
        let energy = LTE.model(&burst, duration).unwrap();
        let power = LTE.power(&burst, duration, 400);
        let most = power.iter().map(|(_, milliwatts)| *milliwatts).fold(0.0, f64::max);
        assert!((4500.0..=HANDSET_MILLIWATTS).contains(&most), "{most}");
        let joules =
            power.iter().map(|(_, milliwatts)| milliwatts * 30.0 / 400.0 / 1e3).sum::<f64>();
        assert!((joules / energy.joules - 1.0).abs() < 1e-6, "{joules} {energy:?}");
        // A run that ends with the burst had no second for it.
        assert!(LTE.model(&burst, Duration::from_millis(100)).is_err());
    }

    #[test]
    fn what_never_came_down_wakes_no_radio() {
        let lost = Record {
            at: Instant::from_nanos(1_000_000_000),
            direction: Direction::Down,
            size: 1500,
            fate: Fate::Outage,
        };
        let duration = Duration::from_secs(10);
        assert_eq!(LTE.model(&[lost], duration), LTE.model(&[], duration));
        let sent = Record { direction: Direction::Up, ..lost };
        assert_eq!(LTE.model(&[sent], duration).unwrap().promotions, 1);
    }

    #[test]
    fn silence_costs_paging_and_nothing_else() {
        for radio in [LTE, UMTS, WIFI] {
            let energy = radio.model(&[], Duration::from_secs(100)).unwrap();
            assert!((energy.mean_milliwatts - radio.idle).abs() < 1e-9, "{}", radio.name);
            assert_eq!((energy.promotions, energy.awake), (0, 0.0));
        }
    }
}
