//! The client's race for a connection in virtual time: over thousands of seeds and outages, a connection is usable
//! within the objective after the network is back.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::client::budget::Rate;
use towpath_engine::client::memory::Memory;
use towpath_engine::client::race::{Options, Order, Outlook, Race, Why};
use towpath_proto::{Address, AttemptId, ConnectOptions, Failure, Input, Instant, Machine, Output};
use towpath_sim::{Faults, Random, Script, World, for_each_seed};

/// One request's need for a connection, as a machine.
struct Racer {
    race: Race,
    probes: Rate,
    random: Random,
    memory: Memory,
    wanted: usize,
    next: u64,
    outputs: VecDeque<Output<()>>,
    found: Rc<RefCell<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    usable: Option<(Instant, SocketAddr)>,
    refused: bool,
    attempts: Vec<(Instant, SocketAddr, Why)>,
    most: usize,
    late: u32,
}

impl Racer {
    fn new(seed: u64, candidates: &[SocketAddr], found: Rc<RefCell<Found>>) -> Self {
        let mut race = Race::new(Options::default());
        let memory = Memory::new();
        race.set_candidates(memory.order(candidates, Instant::ZERO));
        Self {
            race,
            probes: Rate::new(8, 16),
            random: Random::new(seed ^ 0xace),
            memory,
            wanted: 1,
            next: 0,
            outputs: VecDeque::new(),
            found,
        }
    }

    fn advance(&mut self, now: Instant) {
        while let Some(order) =
            self.race.poll(self.wanted, self.random.bits(), &mut self.probes, now)
        {
            match order {
                Order::Start { address, why } => {
                    self.race.started(self.next, address, now);
                    self.outputs.push_back(Output::Connect {
                        attempt: AttemptId(self.next),
                        address: Address::Ip(address),
                        options: Arc::new(ConnectOptions::default()),
                    });
                    self.next += 1;
                    self.found.borrow_mut().attempts.push((now, address, why));
                }
                Order::Cancel(number) => {
                    self.outputs.push_back(Output::CancelConnect { attempt: AttemptId(number) });
                }
            }
            let mut found = self.found.borrow_mut();
            found.most = found.most.max(self.race.running());
        }
    }
}

impl Machine for Racer {
    type Message = ();

    fn handle(&mut self, input: Input<()>, now: Instant) {
        match input {
            Input::Connected { attempt, .. } => {
                if let Some((address, took)) = self.race.succeeded(attempt.0, now) {
                    self.memory.succeeded(address, took, now);
                    self.wanted = 0;
                    let mut found = self.found.borrow_mut();
                    if found.usable.is_none() {
                        found.usable = Some((now, address));
                    } else {
                        found.late += 1;
                    }
                }
            }
            Input::ConnectFailed { attempt, failure } => {
                if let Some(address) = self.race.failed(attempt.0, failure, now) {
                    self.memory.failed(address, now);
                }
                if self.race.outlook() == Outlook::Refused(Failure::Refused) {
                    self.wanted = 0;
                    self.found.borrow_mut().refused = true;
                }
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Output<()> {
        self.advance(now);
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        self.race.deadline(self.wanted, &self.probes, now).map_or(Output::Idle, Output::Wait)
    }
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 9, 9, number], 80))
}

fn listener(at: SocketAddr) -> impl Machine<Message = ()> {
    Script::new(move |orders| orders.listen(Address::Ip(at)), |_, _, _| {})
}

/// A path that swallows every attempt.
fn silence() -> Faults {
    Faults { hang_permille: 1000, ..Faults::none() }
}

fn path(latency: Duration) -> Faults {
    Faults { latency: latency..=latency + Duration::from_millis(5), ..Faults::none() }
}

/// Runs a racer through an outage of `length`; what it found and how long after the return.
fn through_outage(
    seed: u64,
    candidates: &[SocketAddr],
    latency: Duration,
    length: Duration,
) -> (Found, Duration) {
    let mut world: World<()> = World::new(seed);
    for &candidate in candidates {
        world.add(listener(candidate));
    }
    world.set_faults(silence());
    let found = Rc::new(RefCell::new(Found::default()));
    world.add(Racer::new(seed, candidates, Rc::clone(&found)));
    world.run_for(length);
    world.set_faults(path(latency));
    world.run_for(Duration::from_secs(15));
    drop(world);
    let found = Rc::try_unwrap(found).unwrap().into_inner();
    let usable = found.usable.expect("a connection came of it").0;
    let after = usable - (Instant::ZERO + length);
    (found, after)
}

#[test]
fn a_connection_is_usable_within_a_second_of_the_return_whatever_the_outage() {
    let mut worst = Duration::ZERO;
    for_each_seed(2000, |seed| {
        let mut random = Random::new(seed ^ 0x0u64.wrapping_sub(7));
        let length = Duration::from_millis(100 + random.below(40_000));
        let count = 1 + u8::try_from(random.below(4)).unwrap();
        let candidates: Vec<SocketAddr> = (1..=count).map(address).collect();
        let (found, after) = through_outage(seed, &candidates, Duration::from_millis(20), length);
        worst = worst.max(after);
        // The step, both ways of the handshake, and a little for waking late.
        assert!(after <= Duration::from_millis(350), "{after:?} after {length:?}: {found:?}");
        assert!(found.most <= 6, "few attempts at a time: {found:?}");
        let per_s = found.attempts.len() as f64 / (length.as_secs_f64() + 1.0);
        assert!(per_s <= 5.5, "{per_s} attempts a second: {found:?}");
    });
    println!("worst after the return: {worst:?}");
}

#[test]
fn mars_s_schedule_is_never_better() {
    // Fresh sockets 2.5 s apart, ten seconds each, three at a time, and the same once more (its published constants).
    let mars: Vec<f64> =
        vec![0.0, 2.5, 5.0, 10.0, 12.5, 15.0, 20.0, 22.5, 25.0, 30.0, 32.5, 35.0, 40.0];
    for_each_seed(700, |seed| {
        let length = Duration::from_millis(5_000 + seed * 50);
        let (_, after) = through_outage(seed, &[address(1)], Duration::from_millis(20), length);
        let theirs = mars.iter().find(|at| **at >= length.as_secs_f64()).unwrap();
        let theirs = theirs - length.as_secs_f64();
        // Where their attempt happens to leave as the network returns, ours follows within a step.
        assert!(after.as_secs_f64() <= theirs + 0.6, "{after:?}, theirs {theirs}");
    });
}

#[test]
fn a_path_as_slow_as_any_still_connects() {
    for_each_seed(200, |seed| {
        let latency = Duration::from_millis(500 + seed * 5);
        let (found, after) = through_outage(seed, &[address(1)], latency, Duration::from_millis(1));
        // The first attempt was lost. One that is as old as a round trip, or twice that, is always under way.
        let limit = latency * 4 + Duration::from_secs(1);
        assert!(after <= limit, "{after:?} with {latency:?} one way: {found:?}");
    });
}

#[test]
fn a_family_that_is_broken_costs_one_stagger() {
    for_each_seed(500, |seed| {
        let broken = SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], 80));
        let mut world: World<()> = World::new(seed);
        world.add(listener(address(1)));
        world.set_faults(path(Duration::from_millis(20)));
        world.set_faults_to(broken, silence());
        let found = Rc::new(RefCell::new(Found::default()));
        world.add(Racer::new(seed, &[broken, address(1)], Rc::clone(&found)));
        world.run_for(Duration::from_secs(5));
        let found = found.borrow();
        let (at, winner) = found.usable.unwrap();
        assert_eq!(winner, address(1));
        assert!(at <= Instant::ZERO + Duration::from_millis(320), "{at:?}");
    });
}

#[test]
fn without_a_listener_it_ends_at_once() {
    for_each_seed(300, |seed| {
        let mut world: World<()> = World::new(seed);
        world.set_faults(path(Duration::from_millis(20)));
        let found = Rc::new(RefCell::new(Found::default()));
        world.add(Racer::new(seed, &[address(1), address(2)], Rc::clone(&found)));
        world.run_for(Duration::from_secs(5));
        let found = found.borrow();
        assert!(found.refused && found.usable.is_none());
        assert_eq!(found.attempts.len(), 2, "{found:?}");
    });
}

#[test]
fn losers_finish_and_are_kept() {
    for_each_seed(300, |seed| {
        let mut world: World<()> = World::new(seed);
        world.add(listener(address(1)));
        world.add(listener(address(2)));
        world.set_faults_to(address(1), path(Duration::from_millis(200)));
        world.set_faults_to(address(2), path(Duration::from_millis(10)));
        let found = Rc::new(RefCell::new(Found::default()));
        world.add(Racer::new(seed, &[address(1), address(2)], Rc::clone(&found)));
        world.run_for(Duration::from_secs(5));
        let found = found.borrow();
        assert_eq!(found.usable.unwrap().1, address(2));
        assert_eq!(found.late, 1, "{found:?}");
    });
}
