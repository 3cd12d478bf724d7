//! Earliest deadline first: each host comes again after 1/weight, so that unequal weights mix smoothly.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Hosts by when it is their turn.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    turns: BinaryHeap<Turn>,
    /// Counts turns, so that hosts that are due together keep their order.
    order: u64,
}

#[derive(Debug)]
struct Turn {
    deadline: f64,
    order: u64,
    host: u32,
}

impl Schedule {
    /// Adds a host that has had no turn.
    pub(super) fn add(&mut self, host: u32, weight: f64) {
        self.turns.push(Turn { deadline: 1.0 / weight, order: self.order, host });
        self.order += 1;
    }

    /// The next host; it comes again by the weight that it has then.
    pub(super) fn next(&mut self, weight: impl FnOnce(u32) -> f64) -> Option<u32> {
        let mut turn = self.turns.peek_mut()?;
        let host = turn.host;
        turn.deadline += 1.0 / weight(host);
        turn.order = self.order;
        self.order += 1;
        // Dropping the guard moves the turn to its new place.
        drop(turn);
        Some(host)
    }
}

impl Ord for Turn {
    /// The heap gives the greatest first: that is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.deadline.total_cmp(&self.deadline).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}
