//! What is known of addresses, network by network: how often connecting worked lately, and how long it took.
//!
//! Arrives: the outcome of each attempt, with the label of the network that it was made on. Leaves: candidates in
//! order, the best first, and the stagger for their race.
//!
//! Counts decay with a half-life, so that yesterday's outage does not weigh on today. An address that failed
//! [`TRIP`] times in a row is not banned: it goes to the end of the list, and comes to the front of it for one
//! attempt (half-open) after a while that doubles with each further failure. So a bad address costs little, and a good
//! one that was away is found again by itself.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Instant;

use super::race::interleave;

/// What an engine remembers of addresses.
#[derive(Debug)]
pub struct Memory {
    network: Arc<str>,
    facts: HashMap<(Arc<str>, SocketAddr), Facts>,
}

/// What is known of one address on one network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Attempts that came to a usable connection, decayed.
    pub successes: f64,
    /// Attempts that did not, decayed.
    pub failures: f64,
    /// Failures since the last success.
    pub in_row: u32,
    /// How long a connect takes where nothing is lost, smoothed; zero when none succeeded.
    pub connect: Duration,
    /// When it was last used.
    pub updated: Instant,
}

/// Whether an address is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// As any other.
    Closed,
    /// Failed often; not before others until then.
    Open(Instant),
    /// Failed often; due for one attempt.
    HalfOpen,
}

/// One address of a saved memory: what [`Memory::save`] gives and [`Memory::restore`] takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The network's label.
    pub network: Arc<str>,
    /// The address.
    pub address: SocketAddr,
    /// What is known; its `updated` is not saved, as instants mean nothing to another process.
    pub facts: Facts,
    /// How long ago it was last used.
    pub age: Duration,
}

impl Memory {
    /// A memory that knows nothing, on a network without a name.
    #[must_use]
    pub fn new() -> Self {
        Self { network: Arc::from(""), facts: HashMap::new() }
    }

    /// From here on attempts are made on the network of this name (an SSID's hash, a carrier: at the platform's
    /// choice).
    pub fn set_network(&mut self, label: &str) {
        if *self.network != *label {
            self.network = Arc::from(label);
        }
    }

    /// The present network's label.
    #[must_use]
    pub fn network(&self) -> &Arc<str> {
        &self.network
    }

    /// An attempt came to a usable connection.
    pub fn succeeded(&mut self, address: SocketAddr, connect: Duration, now: Instant) {
        let facts = self.entry(address, now);
        facts.successes += 1.0;
        facts.in_row = 0;
        // A lost packet costs a second or more, and says nothing of how long the way takes: what is longer counts for
        // little, what is shorter for half.
        let usual = facts.connect;
        facts.connect = match () {
            () if usual.is_zero() => connect,
            () if connect < usual => (usual + connect) / 2,
            () => (usual * 7 + connect.min(usual * 2)) / 8,
        };
    }

    /// An attempt failed, or was overtaken by one that began after it.
    pub fn failed(&mut self, address: SocketAddr, now: Instant) {
        let facts = self.entry(address, now);
        facts.failures += 1.0;
        facts.in_row = facts.in_row.saturating_add(1);
    }

    /// The platform says that the network changed in a way that its label does not tell: no address is distrusted for
    /// what happened before.
    pub fn forgive(&mut self) {
        let network = Arc::clone(&self.network);
        for ((label, _), facts) in &mut self.facts {
            if *label == network {
                facts.in_row = 0;
            }
        }
    }

    /// Candidates in the order in which to try them: by expected cost, families in turns, each address once.
    /// `given` is the resolver's order, which decides where nothing is known.
    #[must_use]
    pub fn order(&self, given: &[SocketAddr], now: Instant) -> Vec<SocketAddr> {
        let mut known: Vec<(f64, SocketAddr)> = Vec::with_capacity(given.len());
        for address in given {
            if known.iter().all(|(_, other)| other != address) {
                known.push((self.cost(*address, now), *address));
            }
        }
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (trusted, tripped): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|(cost, _)| *cost < TRIPPED);
        let addresses =
            |list: Vec<(f64, SocketAddr)>| list.into_iter().map(|one| one.1).collect::<Vec<_>>();
        let mut order = interleave(&addresses(trusted));
        order.extend(interleave(&addresses(tripped)));
        order
    }

    /// How long to wait for the first of the candidates before the second is tried: twice its usual time, if that
    /// is known.
    #[must_use]
    pub fn stagger(&self, candidates: &[SocketAddr], now: Instant) -> Option<Duration> {
        let first = candidates.first()?;
        let facts = self.facts(*first, now).filter(|facts| !facts.connect.is_zero())?;
        Some(facts.connect * 2)
    }

    /// What is known of an address on the present network, as of `now`.
    #[must_use]
    pub fn facts(&self, address: SocketAddr, now: Instant) -> Option<Facts> {
        let facts = self.facts.get(&(Arc::clone(&self.network), address))?;
        Some(facts.decayed(now))
    }

    /// Whether an address is trusted.
    #[must_use]
    pub fn circuit(&self, address: SocketAddr, now: Instant) -> CircuitState {
        self.facts(address, now).map_or(CircuitState::Closed, |facts| facts.circuit(now))
    }

    /// Everything, for a file.
    #[must_use]
    pub fn save(&self, now: Instant) -> Vec<Saved> {
        let all = self.facts.iter().map(|((network, address), facts)| Saved {
            network: Arc::clone(network),
            address: *address,
            facts: *facts,
            age: now - facts.updated,
        });
        let mut all: Vec<Saved> = all.collect();
        all.sort_by(|a, b| (&a.network, a.address).cmp(&(&b.network, b.address)));
        all
    }

    /// Takes what was saved; what is known already stays.
    pub fn restore(&mut self, saved: impl IntoIterator<Item = Saved>, now: Instant) {
        for one in saved {
            if self.facts.len() >= MOST_ADDRESSES {
                return;
            }
            let mut facts = one.facts;
            let left = HALF_LIFE_S.recip() * one.age.as_secs_f64();
            let factor = (-left).exp2();
            facts.successes *= factor;
            facts.failures *= factor;
            facts.updated = now;
            self.facts.entry((one.network, one.address)).or_insert(facts);
        }
    }

    /// Addresses that are known, of all networks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Expected milliseconds until a usable connection, where a failure costs its stagger; what is tripped
    /// comes after everything else.
    fn cost(&self, address: SocketAddr, now: Instant) -> f64 {
        let Some(facts) = self.facts(address, now) else { return UNKNOWN_MS };
        let attempts = facts.successes + facts.failures;
        // One success and one failure in eight are assumed of each, so that little is concluded from little.
        let worked = (facts.successes + 0.875) / (attempts + 1.0);
        let connect =
            if facts.connect.is_zero() { UNKNOWN_MS } else { facts.connect.as_secs_f64() * 1e3 };
        let cost = connect + FAILURE_MS * (1.0 - worked) / worked.max(0.01);
        match facts.circuit(now) {
            CircuitState::Closed | CircuitState::HalfOpen => cost.min(TRIPPED - 1.0),
            CircuitState::Open(_) => TRIPPED + cost,
        }
    }

    fn entry(&mut self, address: SocketAddr, now: Instant) -> &mut Facts {
        let key = (Arc::clone(&self.network), address);
        if !self.facts.contains_key(&key) && self.facts.len() >= MOST_ADDRESSES {
            self.forget_oldest();
        }
        let facts = self.facts.entry(key).or_insert(Facts {
            successes: 0.0,
            failures: 0.0,
            in_row: 0,
            connect: Duration::ZERO,
            updated: now,
        });
        *facts = facts.decayed(now);
        facts.updated = now;
        facts
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .facts
            .iter()
            .min_by(|a, b| (a.1.updated, &a.0).cmp(&(b.1.updated, &b.0)))
            .map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.facts.remove(&key);
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Facts {
    fn decayed(mut self, now: Instant) -> Self {
        let factor = (-((now - self.updated).as_secs_f64() / HALF_LIFE_S)).exp2();
        self.successes *= factor;
        self.failures *= factor;
        self
    }

    fn circuit(&self, now: Instant) -> CircuitState {
        if self.in_row < TRIP {
            return CircuitState::Closed;
        }
        let doublings = (self.in_row - TRIP).min(10);
        let until = self.updated + (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE);
        if now >= until { CircuitState::HalfOpen } else { CircuitState::Open(until) }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} of {:.1} attempts worked",
            self.successes,
            self.successes + self.failures
        )?;
        if !self.connect.is_zero() {
            write!(f, ", connects in {:.1} ms", self.connect.as_secs_f64() * 1e3)?;
        }
        if self.in_row > 0 {
            write!(f, ", {} failed in a row", self.in_row)?;
        }
        Ok(())
    }
}

/// Failures in a row that put an address behind the others.
pub const TRIP: u32 = 3;
/// Addresses that are remembered, of all networks: the least lately used gives way.
pub const MOST_ADDRESSES: usize = 1024;
const HALF_LIFE_S: f64 = 600.0;
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// What an address of which nothing is known is taken to cost: an ordinary one of a mobile network.
const UNKNOWN_MS: f64 = 100.0;
/// What a failure costs: the default stagger.
const FAILURE_MS: f64 = 250.0;
/// Costs from here on are those of addresses behind all others.
const TRIPPED: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 80))
    }

    const QUICK: Duration = Duration::from_millis(20);

    #[test]
    fn the_resolver_s_order_stands_where_nothing_is_known() {
        let memory = Memory::new();
        let given = [address(3), address(1), address(3), address(2)];
        assert_eq!(memory.order(&given, at(0)), [address(3), address(1), address(2)]);
        assert_eq!(memory.order(&[], at(0)), []);
        assert_eq!(memory.stagger(&given, at(0)), None);
    }

    #[test]
    fn a_quick_address_comes_first_and_sets_the_stagger() {
        let mut memory = Memory::new();
        memory.succeeded(address(2), QUICK, at(0));
        memory.succeeded(address(1), QUICK * 20, at(0));
        let order = memory.order(&[address(1), address(2), address(3)], at(1));
        assert_eq!(order, [address(2), address(3), address(1)]);
        assert_eq!(memory.stagger(&order, at(1)), Some(QUICK * 2));
    }

    #[test]
    fn three_failures_in_a_row_put_it_last_until_it_is_due() {
        let mut memory = Memory::new();
        let given = [address(1), address(2)];
        for _ in 0..TRIP {
            assert_eq!(memory.circuit(address(1), at(0)), CircuitState::Closed);
            memory.failed(address(1), at(0));
        }
        assert_eq!(memory.circuit(address(1), at(0)), CircuitState::Open(at(5)));
        assert_eq!(memory.order(&given, at(0)), [address(2), address(1)], "last, not left out");
        assert_eq!(memory.circuit(address(1), at(5)), CircuitState::HalfOpen);
        memory.failed(address(1), at(5));
        assert_eq!(
            memory.circuit(address(1), at(5)),
            CircuitState::Open(at(15)),
            "the pause doubles"
        );
        memory.succeeded(address(1), QUICK, at(20));
        assert_eq!(memory.circuit(address(1), at(20)), CircuitState::Closed);
        assert_eq!(memory.order(&given, at(20))[0], address(2));
    }

    #[test]
    fn the_pause_has_a_limit() {
        let mut memory = Memory::new();
        (0..100).for_each(|_| memory.failed(address(1), at(0)));
        assert_eq!(memory.circuit(address(1), at(300)), CircuitState::HalfOpen);
    }

    #[test]
    fn what_happened_long_ago_weighs_little() {
        let mut memory = Memory::new();
        (0..8).for_each(|_| memory.succeeded(address(1), QUICK, at(0)));
        let facts = memory.facts(address(1), at(600)).unwrap();
        assert!((facts.successes - 4.0).abs() < 1e-9);
        assert!(memory.facts(address(1), at(6_000)).unwrap().successes < 0.01);
    }

    #[test]
    fn networks_do_not_mix() {
        let mut memory = Memory::new();
        memory.set_network("home");
        (0..5).for_each(|_| memory.failed(address(1), at(0)));
        memory.set_network("train");
        assert_eq!(memory.circuit(address(1), at(0)), CircuitState::Closed);
        memory.set_network("home");
        assert_ne!(memory.circuit(address(1), at(0)), CircuitState::Closed);
        memory.forgive();
        assert_eq!(memory.circuit(address(1), at(0)), CircuitState::Closed);
    }

    #[test]
    fn both_families_stay_in_turns() {
        let six = |number: u16| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, number], 80));
        let mut memory = Memory::new();
        memory.succeeded(address(1), QUICK, at(0));
        let given = [six(1), six(2), address(1), address(2)];
        assert_eq!(memory.order(&given, at(0)), [address(1), six(1), address(2), six(2)]);
    }

    #[test]
    fn the_least_lately_used_is_forgotten_at_the_limit() {
        let mut memory = Memory::new();
        let many = |number: usize| {
            SocketAddr::from(([10, 1, (number / 256) as u8, (number % 256) as u8], 80))
        };
        for number in 0..=MOST_ADDRESSES {
            memory.succeeded(many(number), QUICK, at(number as u64));
        }
        assert_eq!(memory.len(), MOST_ADDRESSES);
        let later = at(MOST_ADDRESSES as u64);
        assert_eq!(memory.facts(many(0), later), None);
        assert!(memory.facts(many(1), later).is_some());
    }

    #[test]
    fn what_was_saved_comes_back_older() {
        let mut memory = Memory::new();
        memory.set_network("home");
        memory.succeeded(address(1), QUICK, at(100));
        memory.failed(address(2), at(700));
        let saved = memory.save(at(700));
        assert_eq!(saved.len(), 2);
        let mut other = Memory::new();
        other.restore(saved, at(3));
        other.set_network("home");
        let facts = other.facts(address(1), at(3)).unwrap();
        assert!((facts.successes - 0.5).abs() < 1e-9, "a half-life has passed: {facts}");
        assert_eq!(facts.connect, QUICK);
        assert_eq!(other.facts(address(2), at(3)).unwrap().in_row, 1);
    }

    #[test]
    fn connects_that_had_to_repeat_a_packet_do_not_change_what_is_usual() {
        let mut memory = Memory::new();
        for round in 0..200 {
            let is_lossy = round % 4 == 0;
            let took = Duration::from_millis(if is_lossy { 1040 } else { 40 });
            memory.succeeded(address(1), took, at(round));
        }
        let usual = memory.facts(address(1), at(200)).unwrap().connect;
        assert!(usual < Duration::from_millis(50), "{usual:?}");
        // A path that has become longer is learned all the same.
        (200..230).for_each(|s| memory.succeeded(address(1), Duration::from_millis(400), at(s)));
        let usual = memory.facts(address(1), at(230)).unwrap().connect;
        assert!(usual > Duration::from_millis(350), "{usual:?}");
    }
}
