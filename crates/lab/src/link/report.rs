//! What happened on a link.

use std::fmt::Write as _;

use serde_json::{Value, json};
use towpath_proto::time::Instant;
use towpath_sim::link::Direction;

use super::calibration::Calibration;
use crate::histogram::Nanoseconds;

/// What happened on a link.
#[derive(Clone, Debug)]
pub struct Report {
    /// To the far end.
    pub up: Traffic,
    /// To the near end.
    pub down: Traffic,
    /// What the link can do, measured before use.
    pub calibration: Option<Calibration>,
    /// Packets that the kernel dropped beside the link's own decisions; other than zero spoils the run.
    pub hidden_drops: u64,
    /// Whether forwarding ran with real-time priority.
    pub is_realtime: bool,
    /// How packets are taken from the kernel.
    pub backend: &'static str,
}

/// What happened in one direction.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Which one.
    pub direction: Direction,
    /// Packets sent, counted as on a wire.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that came through.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that came through twice.
    pub duplicated: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets that met a full queue.
    pub queue_full: u64,
    /// Packets that the queue's management dropped.
    pub managed: u64,
    /// Packets that it marked instead.
    pub marked: u64,
    /// Packets sent during an outage.
    pub outage: u64,
    /// Packets without one receiver, which are left out.
    pub ignored: u64,
    /// Packets that the emulator had no memory for.
    pub overflowed: u64,
    /// Packets that the receiving device refused.
    pub unwritable: u64,
    /// The fullest the queue was, when packets were logged.
    pub most_queued_bytes: u64,
    /// How late packets were released.
    pub lateness: Nanoseconds,
    /// CPU time of the forwarding thread.
    pub cpu_ns: u64,
    /// Every packet, when that was asked for.
    pub log: Vec<Record>,
    /// Packets beyond what the log holds.
    pub unlogged: u64,
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was sent.
    pub at: Instant,
    /// Which way.
    pub direction: Direction,
    /// Its bytes.
    pub size: u32,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrived then.
    Delivered(Instant),
    /// Lost by chance.
    Lost,
    /// Met a full queue.
    QueueFull,
    /// Dropped by the queue's management.
    Managed,
    /// Sent during an outage.
    Outage,
}

impl Traffic {
    /// No traffic.
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            packets: 0,
            bytes: 0,
            delivered: 0,
            delivered_bytes: 0,
            duplicated: 0,
            lost: 0,
            queue_full: 0,
            managed: 0,
            marked: 0,
            outage: 0,
            ignored: 0,
            overflowed: 0,
            unwritable: 0,
            most_queued_bytes: 0,
            lateness: Nanoseconds::new(),
            cpu_ns: 0,
            log: Vec::new(),
            unlogged: 0,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "packets": self.packets,
            "bytes": self.bytes,
            "delivered": self.delivered,
            "delivered_bytes": self.delivered_bytes,
            "duplicated": self.duplicated,
            "lost": self.lost,
            "queue_full": self.queue_full,
            "managed": self.managed,
            "marked": self.marked,
            "outage": self.outage,
            "ignored": self.ignored,
            "overflowed": self.overflowed,
            "unwritable": self.unwritable,
            "most_queued_bytes": self.most_queued_bytes,
            "lateness_ns": self.lateness.percentiles(),
            "cpu_ns": self.cpu_ns,
        })
    }
}

impl Report {
    /// The report with schema 1, without the packets.
    pub fn to_json(&self) -> Value {
        json!({
            "schema": 1,
            "backend": self.backend,
            "realtime": self.is_realtime,
            "calibration": self.calibration,
            "hidden_drops": self.hidden_drops,
            "up": self.up.to_json(),
            "down": self.down.to_json(),
            "warnings": self.warnings(),
        })
    }

    /// All packets of both directions in the order they were sent.
    pub fn packets(&self) -> Vec<Record> {
        let mut records: Vec<Record> = self.up.log.iter().chain(&self.down.log).copied().collect();
        records.sort_by_key(|record| record.at);
        records
    }

    /// The packets as CSV: `time_ns,direction,size,verdict,delivered_ns`.
    pub fn packets_csv(&self) -> String {
        let mut text = "time_ns,direction,size,verdict,delivered_ns\n".to_owned();
        for record in self.packets() {
            let direction = match record.direction {
                Direction::Up => "up",
                Direction::Down => "down",
            };
            let (verdict, delivered) = match record.fate {
                Fate::Delivered(at) => ("delivered", at.as_nanos().to_string()),
                Fate::Lost => ("lost", String::new()),
                Fate::QueueFull => ("queue_full", String::new()),
                Fate::Managed => ("managed", String::new()),
                Fate::Outage => ("outage", String::new()),
            };
            let _ = writeln!(
                text,
                "{},{direction},{},{verdict},{delivered}",
                record.at.as_nanos(),
                record.size
            );
        }
        text
    }

    /// Reasons to doubt a run over this link.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.hidden_drops > 0 {
            warnings.push(format!(
                "the kernel dropped {} packets that the link did not mean to lose",
                self.hidden_drops
            ));
        }
        for traffic in [&self.up, &self.down] {
            let lateness = traffic.lateness.quantile(0.99);
            if lateness > 1_000_000 && traffic.lateness.count() > 100 {
                warnings.push(format!(
                    "1 % of packets {:?} were released {:.1} ms late or more",
                    traffic.direction,
                    lateness as f64 / 1e6
                ));
            }
            if traffic.overflowed + traffic.unwritable > 0 {
                let count = traffic.overflowed + traffic.unwritable;
                warnings.push(format!(
                    "the emulator dropped {count} packets {:?} for want of room",
                    traffic.direction
                ));
            }
            if traffic.unlogged > 0 {
                warnings.push(format!(
                    "{} packets {:?} are not in the log",
                    traffic.unlogged, traffic.direction
                ));
            }
        }
        if !self.is_realtime {
            warnings.push(
                "forwarding has no real-time priority: expect jitter when the machine is busy"
                    .to_owned(),
            );
        }
        warnings.extend(self.calibration.iter().flat_map(|calibration| calibration.complaints()));
        warnings
    }
}
