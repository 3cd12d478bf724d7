//! How the attempts on hosts ended, for comparing hosts with each other.
//!
//! Each worker counts for itself, in a `Tally` for each of its pools; the monitor takes what all of them counted, once
//! in an interval, and leaves what came of the comparison for `/clusters`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use towpath_proto::Address;

use crate::stats::Counter;

/// Where what a host is judged by comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The server's answers.
    External,
    /// Connections that were made, failed or were lost; told apart with `split_external_local_origin_errors` only.
    Local,
}

impl Origin {
    /// Both, in the order of arrays by origin.
    pub const ALL: [Self; 2] = [Self::External, Self::Local];
}

/// What one worker counted for one host, by origin.
#[derive(Debug, Default)]
pub(crate) struct Tally([Tries; 2]);

#[derive(Debug, Default)]
struct Tries {
    all: Counter,
    good: Counter,
}

impl Tally {
    pub(crate) fn count(&self, origin: Origin, is_good: bool) {
        let tries = &self.0[origin as usize];
        tries.all.inc();
        if is_good {
            tries.good.inc();
        }
    }

    fn read(&self) -> [Counts; 2] {
        let read = |tries: &Tries| {
            // The good ones first: an attempt that ends between the two reads is then no good one too many.
            let good = tries.good.value();
            Counts { all: tries.all.value(), good }
        };
        [read(&self.0[0]), read(&self.0[1])]
    }
}

/// How many attempts there were, and how many of them were no failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) all: u64,
    pub(crate) good: u64,
}

/// What all workers counted for the hosts of a cluster: not configuration, but it ends with it.
#[derive(Debug, Default)]
pub struct Tallies {
    open: Mutex<Vec<Open>>,
    /// Nothing before the first.
    rates: Mutex<Option<Arc<Rates>>>,
}

#[derive(Debug)]
struct Open {
    host: Address,
    tally: Weak<Tally>,
    /// What the monitor has taken of it.
    taken: [Counts; 2],
}

/// What came of the last comparison, in percent of good attempts; `None` where too few were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Of each host, by origin.
    pub hosts: HashMap<Address, [Option<f64>; 2]>,
    /// The mean over hosts, by origin.
    pub averages: [Option<f64>; 2],
    /// Below it a host is left out, by origin.
    pub thresholds: [Option<f64>; 2],
}

impl Tallies {
    /// A tally for a worker's attempts on a host; it ends when the worker drops it.
    pub(crate) fn open(&self, host: &Address) -> Arc<Tally> {
        let tally = Arc::new(Tally::default());
        let open =
            Open { host: host.clone(), tally: Arc::downgrade(&tally), taken: Default::default() };
        lock(&self.open).push(open);
        tally
    }

    /// What was counted since the last time, by host and origin.
    pub(crate) fn take(&self) -> HashMap<Address, [Counts; 2]> {
        let mut sums: HashMap<Address, [Counts; 2]> = HashMap::new();
        lock(&self.open).retain_mut(|open| {
            let Some(tally) = open.tally.upgrade() else { return false };
            let now = tally.read();
            let before = std::mem::replace(&mut open.taken, now);
            let sum = sums.entry(open.host.clone()).or_default();
            for (sum, (now, before)) in sum.iter_mut().zip(now.iter().zip(before)) {
                sum.all += now.all - before.all;
                sum.good += now.good - before.good;
            }
            true
        });
        sums
    }

    pub(crate) fn set_rates(&self, rates: Rates) {
        *lock(&self.rates) = Some(Arc::new(rates));
    }

    /// What came of the last comparison.
    #[must_use]
    pub fn rates(&self) -> Arc<Rates> {
        lock(&self.rates).clone().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_workers_count_is_taken_once() {
        let (tallies, host) = (Tallies::default(), Address::unspecified());
        let (one, other) = (tallies.open(&host), tallies.open(&host));
        one.count(Origin::External, true);
        one.count(Origin::External, false);
        other.count(Origin::Local, true);
        let wanted = [Counts { all: 2, good: 1 }, Counts { all: 1, good: 1 }];
        assert_eq!(tallies.take(), HashMap::from([(host.clone(), wanted)]));
        other.count(Origin::Local, false);
        drop(one);
        let wanted = [Counts::default(), Counts { all: 1, good: 0 }];
        assert_eq!(tallies.take(), HashMap::from([(host, wanted)]));
        drop(other);
        assert_eq!(tallies.take(), HashMap::new());
        assert!(lock(&tallies.open).is_empty(), "nothing is kept of a tally that ended");
    }
}
