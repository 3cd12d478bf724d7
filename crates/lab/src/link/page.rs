//! A link's packets as a page: what went over the wire, and what a radio would have spent on it.

use std::time::Duration;

use towpath_sim::link::Direction;

use super::{Fate, Record, Report};
use crate::energy::{LTE, UMTS, WIFI};
use crate::report::{Axis, Bars, Curves, Page, Scale, Series, Table, Timeline, Track};

/// What a page about a link tells beside its packets.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// How long the link was watched.
    pub duration: Duration,
    /// Outages and changes: from, to, and what they are.
    pub spans: Vec<(Duration, Duration, String)>,
    /// The conditions, in words.
    pub conditions: String,
    /// The command that repeats the run.
    pub command: String,
}

impl Report {
    /// The report as a page. Without a packet log it has counts only.
    pub fn to_page(&self, it: &Circumstances) -> Page {
        let sent = self.up.packets + self.down.packets;
        let lost = sent
            - self.up.delivered.min(self.up.packets)
            - self.down.delivered.min(self.down.packets);
        let verdict = format!(
            "{sent} packets in {:.1} s, {lost} of them did not arrive",
            it.duration.as_secs_f64()
        );
        let mut page = Page::new("Link", verdict);
        for warning in self.warnings() {
            page.text(format!("Warning: {warning}."));
        }
        let packets = self.packets();
        if !packets.is_empty() {
            page.heading("Wire");
            add_wire(&mut page, &[("", &packets)], it);
            page.heading("Radio energy, modelled");
            add_energy(&mut page, &[("", &packets)], it.duration);
        }
        page.heading("Counts");
        page.table(self.counts());
        page.heading("Conditions");
        page.text(&it.conditions);
        if let Some(calibration) = &self.calibration {
            page.text(format!(
                "The emulator by itself adds {} µs to a round trip (p50); its delay is off by {} µs (p90).",
                calibration.null_rtt_ns.p50 / 1000,
                calibration.delay_error_ns.p90 / 1000
            ));
        }
        page.text(crate::about::Machine::here().sentence());
        page.code(&it.command);
        page
    }

    fn counts(&self) -> Table {
        let mut table = Table::new(&[
            "direction",
            "packets",
            "bytes",
            "delivered",
            "lost",
            "queue full",
            "managed",
            "marked",
            "outage",
            "late by (p99, µs)",
        ]);
        for (name, it) in [("up", &self.up), ("down", &self.down)] {
            let counts = [
                it.packets,
                it.bytes,
                it.delivered,
                it.lost,
                it.queue_full,
                it.managed,
                it.marked,
                it.outage,
            ];
            let lateness = it.lateness.quantile(0.99) / 1000;
            let cells = counts.into_iter().chain([lateness]).map(|count| count.to_string());
            table.row(std::iter::once(name.to_owned()).chain(cells));
        }
        table
    }
}

/// Draws when packets were sent and lost, and how long each took; one group of tracks for each arm.
pub(crate) fn add_wire(page: &mut Page, arms: &[(&str, &[Record])], it: &Circumstances) {
    let seconds = it.duration.as_secs_f64();
    let mut timeline = Timeline {
        seconds,
        tracks: Vec::new(),
        spans: it
            .spans
            .iter()
            .map(|(from, to, name)| (from.as_secs_f64(), to.as_secs_f64(), name.clone()))
            .collect(),
    };
    for (arm, packets) in arms {
        for (name, chosen) in TRACKS {
            let at = packets.iter().filter(|packet| chosen(packet)).map(seconds_of);
            timeline.tracks.push(Track { name: label(arm, name), dots: at.collect() });
        }
    }
    page.timeline(
        "When packets were sent, and which of them did not arrive; the taller a mark, the more at once. Shaded: \
         outages and changes.",
        &timeline,
    );
    let series: Vec<Series> = arms
        .iter()
        .flat_map(|(arm, packets)| {
            [(Direction::Up, "up"), (Direction::Down, "down")].map(|(direction, name)| Series {
                name: label(arm, name),
                points: transit(packets, direction, seconds),
                is_dotted: true,
            })
        })
        .collect();
    page.curves(
        "How long packets were on their way: the slowest of each moment.",
        &Curves {
            x: Axis::seconds(seconds),
            y: Axis::new("milliseconds", Scale::Linear),
            series,
            marks: Vec::new(),
        },
    );
}

/// Draws what radios would have spent, with the band, and one radio's power over time.
pub(crate) fn add_energy(page: &mut Page, arms: &[(&str, &[Record])], duration: Duration) {
    let mut bars =
        Bars { unit: "J".to_owned(), parts: vec!["modelled".to_owned()], ..Bars::default() };
    let mut table = Table::new(&[
        "radio",
        "joules",
        "band",
        "mean (mW)",
        "wake-ups",
        "awake",
        "battery, % per minute",
    ]);
    let mut left_out = Vec::new();
    for radio in [LTE, UMTS, WIFI] {
        for (arm, packets) in arms {
            let name = label(arm, radio.name);
            let energy = match radio.model(packets, duration) {
                Ok(energy) => energy,
                Err(beyond) => {
                    left_out.push(format!("{name} has {}.", beyond.sentence()));
                    table.row([name].into_iter().chain(vec!["–".to_owned(); 6]));
                    continue;
                }
            };
            bars.bars.push((name.clone(), vec![energy.joules]));
            bars.bands.push((energy.low_joules, energy.high_joules));
            table.row([
                name,
                format!("{:.2}", energy.joules),
                // On a telephone the interval takes two lines, not three.
                format!("{:.2}\u{a0}– {:.2}", energy.low_joules, energy.high_joules),
                format!("{:.0}", energy.mean_milliwatts),
                energy.promotions.to_string(),
                format!("{:.0} %", energy.awake * 100.0),
                format!("{:.3}", energy.battery_percent_per_minute),
            ]);
        }
    }
    if !bars.bars.is_empty() {
        page.bars(
            "Modelled, never measured: a 2012 handset's radio, from the packets' times and sizes. Whiskers: tail of \
             2 to 12 s, power while active and for each bit ± 30 %.",
            &bars,
        );
    }
    page.table(table);
    let is_whole = left_out.is_empty();
    for sentence in left_out {
        page.text(sentence);
    }
    if !is_whole {
        page.text("Figures need packets that a radio could have carried: --rate or --profile gives the link such a \
        rate.");
    }
    let series: Vec<Series> = arms
        .iter()
        .filter(|(_, packets)| LTE.model(packets, duration).is_ok())
        .map(|(arm, packets)| Series {
            name: label(arm, LTE.name),
            points: LTE.power(packets, duration, POINTS),
            is_dotted: false,
        })
        .collect();
    if !series.is_empty() {
        page.curves(
            "Modelled power of the LTE radio: promotion, activity, tail, idle.",
            &Curves {
                x: Axis::seconds(duration.as_secs_f64()),
                y: Axis::new("milliwatts", Scale::Linear),
                series,
                marks: Vec::new(),
            },
        );
    }
}

/// The slowest delivery of each part of the time, in milliseconds.
fn transit(packets: &[Record], direction: Direction, seconds: f64) -> Vec<(f64, f64)> {
    let width = seconds.max(1e-3) / POINTS as f64;
    let mut slowest = vec![None; POINTS];
    for packet in packets.iter().filter(|packet| packet.direction == direction) {
        let Fate::Delivered(at) = packet.fate else { continue };
        let taken = (at.as_nanos() - packet.at.as_nanos()) as f64 / 1e6;
        if let Some(place) = slowest.get_mut((seconds_of(packet) / width) as usize) {
            *place = Some(place.map_or(taken, |before: f64| before.max(taken)));
        }
    }
    let point = |(at, taken): (usize, &Option<f64>)| Some(((at as f64 + 0.5) * width, (*taken)?));
    slowest.iter().enumerate().filter_map(point).collect()
}

fn seconds_of(packet: &Record) -> f64 {
    packet.at.as_nanos() as f64 / 1e9
}

fn label(arm: &str, name: &str) -> String {
    if arm.is_empty() { name.to_owned() } else { format!("{arm}: {name}") }
}

type Choice = fn(&Record) -> bool;

const TRACKS: [(&str, Choice); 4] = [
    ("up", |packet| packet.direction == Direction::Up),
    ("up, lost", |packet| packet.direction == Direction::Up && is_lost(packet)),
    ("down", |packet| packet.direction == Direction::Down),
    ("down, lost", |packet| packet.direction == Direction::Down && is_lost(packet)),
];

fn is_lost(packet: &Record) -> bool {
    !matches!(packet.fate, Fate::Delivered(_))
}

/// Points of a curve: a page must not grow with the number of packets.
const POINTS: usize = 400;
