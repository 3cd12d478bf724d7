//! Connects to a host that has several addresses: one address is tried after the other, without waiting for long, and
//! the first connection that can be spoken on is it (RFC 8305 §5).
//!
//! Arrives: an attempt of a pool, and what becomes of it. Leaves: attempts at the host's other addresses. On the books
//! a round is one connection, and `connect_timeout` is the time that it has.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Address, AttemptId, Instant, Output};

use crate::conn::Connections;
use crate::env::{Env, TimerSlot};
use crate::free_slot;
use crate::upstream::Upstreams;
use crate::upstream::connect::{Attempt, Attempts};

/// The place of a round, and of an address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundNumber {
    place: usize,
    address: usize,
}

/// All rounds of a worker.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Vec<Option<Round>>);

/// The connects for one connection.
#[derive(Debug)]
struct Round {
    /// In the order in which they are tried.
    addresses: Arc<[Address]>,
    /// How many were tried.
    tried: usize,
    /// Attempts under way, the latest last; at most one for each address.
    running: Vec<AttemptId>,
    /// Until when one must have come about.
    ends: Instant,
}

impl Rounds {
    fn get(&self, number: RoundNumber) -> Option<&Round> {
        self.0.get(number.place)?.as_ref()
    }

    fn get_mut(&mut self, number: RoundNumber) -> Option<&mut Round> {
        self.0.get_mut(number.place)?.as_mut()
    }
}

impl Attempts {
    /// Where an attempt goes, if not to its pool's address.
    pub(crate) fn address(&self, id: AttemptId) -> Option<Address> {
        let attempt = self.get(id)?;
        if let Some(target) = attempt.target {
            return Some(Address::Ip(target));
        }
        let number = attempt.round?;
        self.rounds.get(number)?.addresses.get(number.address).cloned()
    }

    /// The round of an attempt.
    fn round_of(&self, id: AttemptId) -> Option<RoundNumber> {
        self.get(id)?.round
    }
}

impl Upstreams {
    /// An attempt is the first of a round, which has time until `ends`.
    pub(crate) fn begin_round(
        &mut self,
        id: AttemptId,
        addresses: Arc<[Address]>,
        ends: Instant,
        env: &mut Env,
        now: Instant,
    ) {
        let round = Round { addresses, tried: 0, running: vec![id], ends };
        let place = free_slot::put(&mut self.attempts.rounds.0, round);
        self.connect_in_round(id, RoundNumber { place, address: 0 }, env, now);
    }

    /// Sends an attempt to the round's next address.
    fn connect_in_round(
        &mut self,
        id: AttemptId,
        mut number: RoundNumber,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(round) = self.attempts.rounds.get_mut(number) else { return };
        number.address = round.tried;
        round.tried += 1;
        let Some(address) = round.addresses.get(number.address).cloned() else { return };
        let Some(attempt) = self.attempts.get_mut(id) else { return };
        attempt.round = Some(number);
        let pool_key = attempt.pool_key;
        let Some(cluster) = self.clusters.get(pool_key.cluster) else { return };
        let options = cluster.connect_options(pool_key);
        env.outputs.push_back(Output::Connect { attempt: id, address, options });
        self.arm_round(number, env, now);
    }

    /// The latest attempt's timer is the round's.
    fn arm_round(&mut self, number: RoundNumber, env: &mut Env, now: Instant) {
        let Some(round) = self.attempts.rounds.get(number) else { return };
        for id in &round.running {
            env.timers.clear(timer_of(*id));
        }
        let is_last = round.tried == round.addresses.len();
        let due = if is_last { round.ends } else { round.ends.min(now + ATTEMPT_DELAY) };
        if let Some(latest) = round.running.last() {
            env.timers.set(timer_of(*latest), due);
        }
    }

    /// Tries the round's next address, if there is one; whether it does.
    fn try_next(&mut self, number: RoundNumber, of: Attempt, env: &mut Env, now: Instant) -> bool {
        let Some(round) = self.attempts.rounds.get(number) else { return false };
        if round.tried == round.addresses.len() {
            return false;
        }
        let Some(cluster) = self.clusters.get_mut(of.pool_key.cluster) else { return false };
        cluster.stats.upstream_cx_total.inc();
        if let Some(pool) = cluster.pool_mut(of.pool_key) {
            pool.counts.connections_total += 1;
            pool.show();
        }
        let id = self.attempts.put(Attempt { securing: None, ..of });
        if let Some(round) = self.attempts.rounds.get_mut(number) {
            round.running.push(id);
        }
        self.connect_in_round(id, number, env, now);
        true
    }

    /// An attempt came to nothing: whether its round goes on without it.
    pub(crate) fn goes_on(&mut self, id: AttemptId, env: &mut Env, now: Instant) -> bool {
        let Some(attempt) = self.attempts.get(id).copied() else { return false };
        let Some(number) = attempt.round else { return false };
        self.try_next(number, attempt, env, now);
        let Some(round) = self.attempts.rounds.get_mut(number) else { return false };
        if round.running.len() < 2 {
            self.attempts.rounds.0[number.place] = None;
            return false;
        }
        round.running.retain(|other| *other != id);
        env.timers.clear(timer_of(id));
        self.attempts.close(id);
        self.arm_round_on(number, env, now);
        true
    }

    /// One attempt of a round is gone; the others go on as they did.
    fn arm_round_on(&mut self, number: RoundNumber, env: &mut Env, now: Instant) {
        let is_last = self
            .attempts
            .rounds
            .get(number)
            .is_some_and(|round| round.tried == round.addresses.len());
        // Otherwise another one has just begun.
        if is_last {
            self.arm_round(number, env, now);
        }
    }

    /// A round's time is over, for its next address or for all: whether it goes on.
    pub(crate) fn is_round_due(&mut self, id: AttemptId, env: &mut Env, now: Instant) -> bool {
        let Some(attempt) = self.attempts.get(id).copied() else { return false };
        let Some(number) = attempt.round else { return false };
        let is_over = self.attempts.rounds.get(number).is_none_or(|round| now >= round.ends);
        !is_over && self.try_next(number, attempt, env, now)
    }

    /// Gives up the other attempts of a round: one came about, or none is wanted any more.
    pub(crate) fn end_round(&mut self, id: AttemptId, conns: &mut Connections, env: &mut Env) {
        let Some(number) = self.attempts.round_of(id) else { return };
        let round = self.attempts.rounds.0.get_mut(number.place).and_then(Option::take);
        for other in round.into_iter().flat_map(|round| round.running) {
            if other != id {
                self.cancel_connect(other, conns, env);
                env.timers.clear(timer_of(other));
                self.attempts.close(other);
            }
        }
    }
}

fn timer_of(id: AttemptId) -> u32 {
    TimerSlot::Attempt(Attempts::slot(id)).number()
}

/// How long an address has before the next is tried as well (RFC 8305 §5 advises 250 ms; Envoy waits so long).
const ATTEMPT_DELAY: Duration = Duration::from_millis(300);
