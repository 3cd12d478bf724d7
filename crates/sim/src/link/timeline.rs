//! What changes while a link is in use.

use std::time::Duration;

use towpath_proto::time::Instant;

use super::{Conditions, Direction};

/// Outages and changes of conditions, counted from the start of the link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    outages: Vec<(Instant, Instant)>,
    changes: Vec<Change>,
}

/// From an instant on, both directions are under other conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// From when.
    pub at: Instant,
    /// What the far end's packets meet.
    pub down: Conditions,
    /// What the near end's packets meet.
    pub up: Conditions,
}

impl Timeline {
    /// Nothing changes.
    pub const fn new() -> Self {
        Self { outages: Vec::new(), changes: Vec::new() }
    }

    /// Adds an outage: packets sent within it are gone. Outages may overlap.
    #[must_use]
    pub fn with_outage(mut self, start: Duration, length: Duration) -> Self {
        let start = Instant::ZERO + start;
        self.outages.push((start, start + length));
        self
    }

    /// Adds a change.
    #[must_use]
    pub fn with_change(mut self, change: Change) -> Self {
        let place = self.changes.partition_point(|other| other.at <= change.at);
        self.changes.insert(place, change);
        self
    }

    /// Whether there is no link at `now`.
    pub fn is_out(&self, now: Instant) -> bool {
        self.outages.iter().any(|(start, end)| (*start..*end).contains(&now))
    }

    /// When the outages begin and end.
    pub fn outages(&self) -> impl Iterator<Item = (Instant, Instant)> + '_ {
        self.outages.iter().copied()
    }

    pub(super) fn change(&self, index: usize) -> Option<&Change> {
        self.changes.get(index)
    }
}

impl Change {
    pub(super) fn conditions(&self, direction: Direction) -> &Conditions {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}
