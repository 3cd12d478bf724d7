//! A race of connection attempts to one origin, and the prober that goes on when nothing answers.
//!
//! Arrives: candidate addresses in order of preference, what became of each attempt, time. Leaves: the next
//! attempt to begin or to give up, and when to ask again.
//!
//! First round (RFC 8305 §5): one attempt after the other, [`Options::stagger`] apart; a failure starts the next
//! at once. Where nothing at all has come of them, the prober goes on: a fresh attempt every [`Options::step`], over
//! the same candidates again. The kernel repeats a lost SYN after 1, 2, 4, 8 … seconds, so that a network which
//! returns in between stays unused for as long; a fresh SYN every step finds it within one. Where it is known how
//! long a connect takes, the prober begins sooner: after the stagger, then twice that, and so on up to the step.
//!
//! An attempt that loses is left to finish: its connection serves the next request. That request does not wait for
//! it, if it should have answered by now.

use std::net::SocketAddr;
use std::time::Duration;

use towpath_proto::{Failure, Instant};

use super::budget::Rate;

/// How a race is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// From one attempt of the first round to the next: 100 ms to 2 s, default 250 ms (RFC 8305 §8).
    pub stagger: Duration,
    /// From one attempt to the next after the first round: 100 ms to 1 s, default 250 ms.
    pub step: Duration,
    /// How long one attempt may take: default 10 s.
    pub attempt_timeout: Duration,
    /// Attempts under way beyond those that are wanted: default 5, at least 1.
    pub extra_attempts: usize,
    /// Connections that are opened at the same time for as many waiting requests: default 6.
    pub parallel: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stagger: STAGGER,
            step: Duration::from_millis(250),
            attempt_timeout: Duration::from_secs(10),
            extra_attempts: 5,
            parallel: 6,
        }
    }
}

/// Why an attempt was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A request waits and nothing was under way for it.
    Wanted,
    /// The attempts before it had not answered within the stagger.
    Slow,
    /// The attempt before it failed.
    Failed,
    /// Nothing has answered yet: the network may be back.
    Probe,
    /// The platform says that there is a network again.
    Online,
}

impl Why {
    /// In a few words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Slow => "the one before is slow",
            Self::Failed => "the one before failed",
            Self::Probe => "no answer yet",
            Self::Online => "network is back",
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Begin an attempt; tell [`Race::started`] its number.
    Start {
        /// Where to.
        address: SocketAddr,
        /// Why.
        why: Why,
    },
    /// Give an attempt up: it is too old, or room is needed for a fresh one.
    Cancel(u64),
}

/// What is left to hope for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// An attempt is under way, or the next one has its time.
    Open,
    /// Every candidate has answered that it takes no connections: waiting mends nothing.
    Refused(Failure),
}

/// The race for connections to one origin.
#[derive(Debug)]
pub struct Race {
    options: Options,
    candidates: Vec<SocketAddr>,
    running: Vec<Running>,
    /// Place in `candidates` of the attempt that began last.
    at: usize,
    /// Attempts of this race so far; 0 after a connection came of it.
    begun: usize,
    last_start: Instant,
    /// Failures since the last attempt that was not one.
    failures: usize,
    last_failure: Option<(Failure, Instant)>,
    /// The candidate that failed last is left at once.
    leaves: bool,
    online: bool,
    came_online: bool,
    /// Bytes came on a connection that is not usable yet (a TLS handshake): no need to probe.
    moved: Instant,
    /// Drawn anew for each wait.
    wait: Duration,
    /// The stagger is from the history of connects.
    is_learned: bool,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    number: u64,
    address: SocketAddr,
    since: Instant,
    /// Of an earlier request's race, and overdue: no request waits for it.
    is_overdue: bool,
}

impl Race {
    /// A race without candidates.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            candidates: Vec::new(),
            running: Vec::new(),
            at: 0,
            begun: 0,
            last_start: Instant::ZERO,
            failures: 0,
            last_failure: None,
            leaves: false,
            online: true,
            came_online: false,
            moved: Instant::ZERO,
            wait: options.stagger,
            is_learned: false,
        }
    }

    /// Takes candidates, the best first. Those under way stay so, whether they are in the list or not.
    pub fn set_candidates(&mut self, candidates: Vec<SocketAddr>) {
        if candidates != self.candidates {
            self.candidates = candidates;
            self.at = 0;
            self.begun = 0;
            self.failures = 0;
        }
    }

    /// Takes another stagger, from the history of connects.
    pub fn set_stagger(&mut self, stagger: Duration) {
        self.options.stagger = stagger.clamp(SHORTEST_STAGGER, LONGEST_STAGGER);
        self.is_learned = true;
    }

    /// The platform's word on whether there is a network. Without one nothing is begun.
    pub fn set_online(&mut self, online: bool) {
        self.came_online = online && !self.online;
        self.online = online;
        if self.came_online {
            (self.at, self.begun, self.failures) = (0, 0, 0);
        }
    }

    /// Another origin was reached after a time in which nothing was: the network is back. Whether an attempt is begun
    /// at once, because those that are under way may have been lost.
    pub fn hear_of_network(&mut self) -> bool {
        self.came_online |= self.online && !self.in_first_round();
        self.came_online
    }

    /// A request waits again, after none did: what failed for others before is no news any more, and what has not
    /// answered them within the stagger is not waited for.
    pub fn renew(&mut self, now: Instant) {
        (self.begun, self.failures, self.last_failure) = (0, 0, None);
        self.leaves = false;
        for running in &mut self.running {
            running.is_overdue = now >= running.since + self.options.stagger;
        }
    }

    /// The next thing to do, while `wanted` requests wait for a connection. `random` is any number; `probes` is
    /// what all races of an engine share.
    pub fn poll(
        &mut self,
        wanted: usize,
        random: u64,
        probes: &mut Rate,
        now: Instant,
    ) -> Option<Order> {
        if let Some(old) = self.running.iter().find(|running| self.is_too_old(running, now)) {
            let number = old.number;
            self.running.retain(|running| running.number != number);
            return Some(Order::Cancel(number));
        }
        if wanted == 0 || !self.online || self.candidates.is_empty() {
            return None;
        }
        let why = self.reason(wanted, now)?;
        let is_probe = why == Why::Probe;
        if is_probe && probes.next(now) > now {
            return None;
        }
        if self.running.len()
            >= self.options.extra_attempts.max(1) + wanted.min(self.options.parallel)
        {
            return self.make_room(why, now);
        }
        if is_probe && !probes.take(now) {
            return None;
        }
        Some(self.begin(why, random, now))
    }

    /// An order to start was carried out under this number.
    pub fn started(&mut self, number: u64, address: SocketAddr, now: Instant) {
        self.running.push(Running { number, address, since: now, is_overdue: false });
    }

    /// An attempt failed; where to, if it was one of ours.
    pub fn failed(&mut self, number: u64, failure: Failure, now: Instant) -> Option<SocketAddr> {
        let address = self.remove(number)?;
        // What an older answer of the resolver led to says nothing of the addresses there are now.
        if self.candidates.contains(&address) {
            self.failures += 1;
            self.last_failure = Some((failure, now));
        }
        self.leaves = true;
        Some(address)
    }

    /// A connection is usable; where to and how long it took, if it was one of ours.
    pub fn succeeded(&mut self, number: u64, now: Instant) -> Option<(SocketAddr, Duration)> {
        let since = self.running.iter().find(|running| running.number == number)?.since;
        let address = self.remove(number)?;
        self.at = self.candidates.iter().position(|one| *one == address).unwrap_or(0);
        (self.begun, self.failures, self.last_failure) = (0, 0, None);
        self.leaves = false;
        Some((address, now - since))
    }

    /// Bytes came on a connection that is not usable yet.
    pub fn moved(&mut self, now: Instant) {
        self.moved = now;
    }

    /// When to poll again, if nothing else happens before.
    #[must_use]
    pub fn deadline(&self, wanted: usize, probes: &Rate, now: Instant) -> Option<Instant> {
        let oldest = self.running.iter().map(|running| running.since).min();
        let too_old = oldest.map(|since| since + self.options.attempt_timeout);
        let waits = wanted > 0 && self.online && !self.candidates.is_empty();
        let next = waits.then(|| self.next_start(wanted, now).max(self.rated(probes, now)));
        [too_old, next].into_iter().flatten().min()
    }

    /// Whether waiting can help.
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        let all = self.failures >= self.candidates.len().max(1) && self.running.is_empty();
        match self.last_failure {
            Some((failure, _)) if all && is_final(failure) => Outlook::Refused(failure),
            Some(_) | None => Outlook::Open,
        }
    }

    /// Attempts under way.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The candidates, the best first.
    #[must_use]
    pub fn candidates(&self) -> &[SocketAddr] {
        &self.candidates
    }

    fn reason(&mut self, wanted: usize, now: Instant) -> Option<Why> {
        if self.came_online {
            self.came_online = false;
            return Some(Why::Online);
        }
        let hopeless = self.failures >= self.candidates.len();
        if self.leaves && !hopeless {
            return Some(Why::Failed);
        }
        if self.is_short(wanted) && !hopeless {
            return Some(Why::Wanted);
        }
        if now < self.next_start(wanted, now) {
            return None;
        }
        Some(if self.in_first_round() { Why::Slow } else { Why::Probe })
    }

    fn begin(&mut self, why: Why, random: u64, now: Instant) -> Order {
        // One more connection of the same kind goes where the last one went; everything else moves on.
        let stays = why == Why::Wanted || why == Why::Online;
        if self.begun > 0 && !stays {
            self.at += 1;
        }
        self.at %= self.candidates.len();
        self.begun += 1;
        self.leaves = false;
        self.last_start = now;
        self.wait = if self.in_first_round() {
            self.options.stagger
        } else {
            // Between 80 % and all of the step, so that many clients do not call in step with each other.
            self.step().mul_f64(0.8 + 0.2 * unit(random))
        };
        Order::Start { address: self.candidates[self.at], why }
    }

    /// From the attempt that just began to the next, after the first round.
    fn step(&self) -> Duration {
        let repeats = self.begun.saturating_sub(self.candidates.len());
        match u32::try_from(repeats).ok().and_then(|repeats| 2u32.checked_pow(repeats)) {
            Some(factor) if self.is_learned => {
                self.options.stagger.saturating_mul(factor).min(self.options.step)
            }
            Some(_) | None => self.options.step,
        }
    }

    /// Fewer attempts are under way than requests that wait for one.
    fn is_short(&self, wanted: usize) -> bool {
        let hoped_for = self.running.iter().filter(|running| !running.is_overdue).count();
        hoped_for < wanted.min(self.options.parallel)
    }

    /// Gives up one of the attempts, so that the ages of those that stay grow by a factor rather than by a step:
    /// whatever a round trip takes, one that is about as old as that is still under way. Neither the oldest nor the
    /// newest goes.
    fn make_room(&mut self, why: Why, now: Instant) -> Option<Order> {
        let age = |at: usize| (now - self.running[at].since).as_secs_f64() + 1e-3;
        let inner = 1..self.running.len().saturating_sub(1);
        let crowded = inner.min_by(|&a, &b| {
            let spread = |at: usize| age(at - 1) / age(at + 1);
            spread(a).total_cmp(&spread(b))
        });
        let number = self.running.get(crowded.unwrap_or(0))?.number;
        self.remove(number)?;
        // The start that needed the room follows at the next poll.
        self.leaves |= why == Why::Failed;
        self.came_online |= why == Why::Online;
        self.last_start = Instant::ZERO;
        Some(Order::Cancel(number))
    }

    fn next_start(&self, wanted: usize, now: Instant) -> Instant {
        let hopeless = self.failures >= self.candidates.len();
        if self.came_online || ((self.is_short(wanted) || self.leaves) && !hopeless) {
            return now;
        }
        let since = self.last_start.max(self.moved);
        since + self.wait
    }

    /// When the shared rate of probes allows another.
    fn rated(&self, probes: &Rate, now: Instant) -> Instant {
        if self.in_first_round() { Instant::ZERO } else { probes.next(now) }
    }

    fn in_first_round(&self) -> bool {
        self.begun < self.candidates.len()
    }

    fn is_too_old(&self, running: &Running, now: Instant) -> bool {
        now >= running.since + self.options.attempt_timeout
    }

    fn remove(&mut self, number: u64) -> Option<SocketAddr> {
        let at = self.running.iter().position(|running| running.number == number)?;
        Some(self.running.remove(at).address)
    }
}

/// Whether a failure is an answer: the peer, or our own kernel, said no for good. A path that is missing or
/// silent may come back.
fn is_final(failure: Failure) -> bool {
    match failure {
        Failure::Refused
        | Failure::AddressNotAvailable
        | Failure::Denied
        | Failure::NoSuchName
        | Failure::Unsupported => true,
        Failure::Reset
        | Failure::TimedOut
        | Failure::Unreachable
        | Failure::AddressInUse
        | Failure::Exhausted
        | Failure::Os(_)
        | _ => false,
    }
}

/// A number from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits are as many as a fraction needs")]
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// Puts addresses of both families in turns, keeping the order within each; the family of the first one begins
/// (RFC 8305 §4).
#[must_use]
pub fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (mut ours, mut others): (Vec<_>, Vec<_>) =
        addresses.iter().copied().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut turns = Vec::with_capacity(addresses.len());
    ours.reverse();
    others.reverse();
    while !ours.is_empty() || !others.is_empty() {
        turns.extend(ours.pop());
        turns.extend(others.pop());
    }
    turns
}

/// RFC 8305 §8.
const STAGGER: Duration = Duration::from_millis(250);
const SHORTEST_STAGGER: Duration = Duration::from_millis(100);
const LONGEST_STAGGER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
