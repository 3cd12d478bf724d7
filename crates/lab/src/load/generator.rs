//! The readiness loop.
//!
//! Per request: one `send`, one `recv`, two clock reads, two histogram counts and a share of a wait.
//! Nothing is queued: an arrival that finds no free connection simply stays due in its schedule, and its
//! latency grows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use super::account::{Account, Tally};
use super::connection::{Connection, Event, Failure, InFlight};
use super::glimpse::Glimpse;
use super::outcome::{Outcome, Progress};
use super::response::{Answer, Expect};
use super::schedule::Schedule;
use super::{Arrivals, LoadError, Plan, Protocol, request};
use crate::meter::{Meter, SyscallMeter};
use crate::poller::{Interest, Poller, Ready};

/// Carries out a plan on the calling thread.
pub fn run(plan: &Plan) -> Result<Outcome, LoadError> {
    run_observed(plan, None)
}

/// As [`run`], with a glimpse twice a second.
pub fn run_observed(
    plan: &Plan,
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    plan.check()?;
    let mut outcome = generate(plan, observer)?;
    if plan.count_syscalls {
        match count_syscalls(plan) {
            Ok(count) => {
                if let Some(target) = &mut outcome.target {
                    target.syscalls_per_request = Some(count);
                }
            }
            Err(error) => {
                outcome.warnings.push(format!("system calls could not be counted: {error}"))
            }
        }
    }
    Ok(outcome)
}

fn generate(
    plan: &Plan,
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    match plan.protocol {
        Protocol::Http1 | Protocol::Tcp => Generator::new(plan, observer)?.run(),
        Protocol::Bolt => super::bolt::run(plan, observer),
    }
}

/// A short run of the same plan, in which only system calls are counted.
fn count_syscalls(plan: &Plan) -> Result<f64, LoadError> {
    let short = Plan {
        duration: plan.duration.min(Duration::from_secs(1)),
        warmup: Duration::ZERO,
        ..plan.clone()
    };
    let family = Meter::begin(&plan.pids)?.family();
    let mut meter = SyscallMeter::begin(&family)?;
    let outcome = generate(&short, None)?;
    Ok(meter.count()? as f64 / outcome.answered.max(1) as f64)
}

struct Generator<'p, 'o> {
    plan: &'p Plan,
    bytes: Vec<u8>,
    poller: Poller,
    scratch: Vec<u8>,
    connections: Vec<Connection>,
    /// Schedules of their own, for arrivals that are per connection.
    schedules: Vec<Option<Schedule>>,
    shared: Option<Schedule>,
    /// Free connections, for arrivals that take any.
    free: VecDeque<u32>,
    /// Connections that do something at an instant.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    epoch: Instant,
    measured: std::ops::Range<u64>,
    next_scan_ns: u64,
    last_connect_error: Option<io::Error>,
    tally: Tally,
    account: Account<'p>,
    observer: Option<Glimpse<'o>>,
}

impl<'p, 'o> Generator<'p, 'o> {
    fn new(
        plan: &'p Plan,
        observer: Option<&'o mut dyn FnMut(&Progress)>,
    ) -> Result<Self, LoadError> {
        let expect = match plan.protocol {
            Protocol::Tcp | Protocol::Bolt => Expect::Bytes(plan.request.body.len() as u64),
            Protocol::Http1 if plan.request.is_head() => Expect::HttpHead,
            Protocol::Http1 => Expect::Http,
        };
        let count = plan.connections;
        let warmup_ns = plan.warmup.as_nanos() as u64;
        Ok(Self {
            plan,
            bytes: request::encode(plan),
            poller: Poller::new().map_err(io::Error::from)?,
            scratch: vec![0; SCRATCH],
            connections: (0..count).map(|_| Connection::new(expect)).collect(),
            schedules: (0..count)
                .map(|index| Schedule::of_connection(&plan.arrivals, plan.rate_ramp, index, count))
                .collect(),
            shared: Schedule::global(&plan.arrivals, plan.rate_ramp, plan.seed),
            free: VecDeque::new(),
            waiting: BinaryHeap::new(),
            epoch: Instant::now(),
            measured: warmup_ns..warmup_ns + plan.duration.as_nanos() as u64,
            next_scan_ns: 0,
            last_connect_error: None,
            tally: Tally::default(),
            account: Account::new(plan),
            observer: observer.map(Glimpse::new),
        })
    }

    fn run(mut self) -> Result<Outcome, LoadError> {
        self.connect_all()?;
        self.measure()?;
        self.drain()?;
        Ok(self.account.finish(self.tally))
    }

    /// Opens every connection before the clock starts, a few at a time so that the server's accept queue
    /// does not overflow. With a connection ramp, or without keep-alive, connections open as they are used.
    fn connect_all(&mut self) -> Result<(), LoadError> {
        let up_front = self.plan.keep_alive && self.plan.connection_ramp.is_zero();
        let count = if up_front { self.connections.len() } else { 1 };
        let deadline = Instant::now() + self.plan.timeout;
        let mut opened = 0;
        let mut settled = 0;
        while settled < count && Instant::now() < deadline {
            while opened < count && opened - settled < CONNECT_AT_ONCE {
                self.open(opened as u32);
                opened += 1;
            }
            self.poller.wait(Some(Duration::from_millis(50))).map_err(io::Error::from)?;
            self.handle_events();
            settled = self.connections[..opened]
                .iter()
                .filter(|it| it.is_connected() || it.socket().is_none())
                .count();
        }
        if !self.connections.iter().any(Connection::is_connected) {
            let error =
                self.last_connect_error.take().unwrap_or_else(|| io::ErrorKind::TimedOut.into());
            return Err(LoadError::Connect { target: self.plan.target.to_string(), error });
        }
        if !self.plan.keep_alive {
            self.connections[0].close();
        }
        self.tally = Tally::default();
        Ok(())
    }

    fn measure(&mut self) -> Result<(), LoadError> {
        self.epoch = Instant::now();
        let ramp_ns = self.plan.connection_ramp.as_nanos() as u64;
        let count = self.connections.len() as u64;
        for index in 0..count {
            self.waiting.push(Reverse((ramp_ns * index / count, index as u32)));
        }
        loop {
            let now = self.now();
            if !self.account.has_begun() && now >= self.measured.start {
                self.account.begin()?;
            }
            if now >= self.measured.end {
                let connected = self.connections.iter().filter(|it| it.is_connected()).count();
                self.account.end(self.tally.answered, connected);
                return Ok(());
            }
            let boundary =
                if self.account.has_begun() { self.measured.end } else { self.measured.start };
            self.turn(boundary)?;
        }
    }

    /// Waits for the answers to what was sent, and sends what was still due, for a while.
    fn drain(&mut self) -> Result<(), LoadError> {
        let patience = self.plan.timeout.min(DRAIN_AT_MOST).as_nanos() as u64;
        let deadline = self.measured.end + patience;
        while self.now() < deadline
            && (self.has_due() || self.connections.iter().any(|it| it.request.is_some()))
        {
            self.turn(deadline)?;
        }
        for index in 0..self.connections.len() {
            if let Some(request) = self.connections[index].request.take() {
                self.count_error("timeout", request.intended_ns);
            }
        }
        let unsent = self.count_unsent();
        self.tally.errors.add("unsent", unsent);
        Ok(())
    }

    /// One wait and what it brought.
    fn turn(&mut self, boundary: u64) -> Result<(), LoadError> {
        self.dispatch();
        let now = self.now();
        let wake = self.next_wake().min(boundary);
        let timeout = Duration::from_nanos(wake.saturating_sub(now));
        self.poller.wait(Some(timeout)).map_err(io::Error::from)?;
        self.handle_events();
        let now = self.now();
        if now >= self.next_scan_ns {
            self.expire(now);
        }
        if let Some(glimpse) = &mut self.observer {
            glimpse.show(&self.measured, self.tally.errors.total(), now);
        }
        Ok(())
    }

    fn next_wake(&self) -> u64 {
        let mut wake = self.next_scan_ns;
        if let Some(Reverse((due, _))) = self.waiting.peek() {
            wake = wake.min(*due);
        }
        if !self.free.is_empty()
            && let Some(due) = self.shared_due()
        {
            wake = wake.min(due);
        }
        wake
    }

    fn handle_events(&mut self) {
        let mut at = 0;
        while let Some(ready) = self.poller.event(at) {
            at += 1;
            self.handle(ready);
        }
    }

    fn handle(&mut self, ready: Ready) {
        let index = ready.number as u32;
        let connection = &mut self.connections[index as usize];
        if connection.generation != (ready.number >> 32) as u32 || connection.socket().is_none() {
            return;
        }
        if ready.writable {
            let event = connection.on_writable(&self.bytes);
            if event == Event::Nothing {
                self.watch(index, Interest::Read);
            }
            self.on_event(index, event);
        }
        let connection = &mut self.connections[index as usize];
        if ready.readable && connection.is_connected() {
            let event = connection.on_readable(&mut self.scratch);
            self.on_event(index, event);
        }
    }

    fn on_event(&mut self, index: u32, event: Event) {
        match event {
            Event::Nothing => {}
            Event::Blocked => self.watch(index, Interest::ReadWrite),
            Event::Answered(answer) => self.on_answer(index, answer),
            Event::ClosedIdle => self.connections[index as usize].close(),
            Event::Failed(failure) => self.on_failure(index, failure),
        }
    }

    fn on_answer(&mut self, index: u32, answer: Answer) {
        let now = self.now();
        let connection = &mut self.connections[index as usize];
        let Some(request) = connection.request.take() else { return };
        connection.freed_ns = now;
        if !answer.reusable || !self.plan.keep_alive {
            connection.close();
        }
        if self.measured.contains(&now) {
            self.tally.answered += 1;
        }
        if answer.status >= 400 {
            self.count_error("status", request.intended_ns);
        } else if self.measured.contains(&request.intended_ns) {
            self.tally.latency.record(now - request.intended_ns);
            self.tally.service.record(now - request.started_ns);
        }
        if let Some(glimpse) = &mut self.observer {
            glimpse.record(now - request.intended_ns);
        }
        self.on_free(index, now);
    }

    fn on_failure(&mut self, index: u32, failure: Failure) {
        let connection = &mut self.connections[index as usize];
        connection.close();
        let kind = match failure {
            Failure::Connect(error) => {
                self.last_connect_error = Some(error.into());
                "connect"
            }
            Failure::Reset => "reset",
            Failure::Closed => "closed",
            Failure::Malformed => "malformed",
        };
        if let Some(request) = connection.request.take() {
            self.count_error(kind, request.intended_ns);
            // A server that refuses everybody is not to be asked in a busy loop.
            let again = self.now() + RETRY_NS;
            self.connections[index as usize].freed_ns = again;
            self.waiting.push(Reverse((again, index)));
        }
    }

    fn count_error(&mut self, kind: &'static str, intended_ns: u64) {
        if self.measured.contains(&intended_ns) {
            self.tally.errors.add(kind, 1);
        }
    }

    /// A connection may carry its next request: at once, at its own time, or when any arrival wants it.
    fn on_free(&mut self, index: u32, now: u64) {
        match &self.plan.arrivals {
            Arrivals::Closed => self.start(index, now, now),
            Arrivals::ClosedCapped { .. } => {
                let Some(schedule) = &mut self.schedules[index as usize] else { return };
                schedule.forget_before(now);
                match schedule.next_ns() {
                    Some(due) if due <= now => {
                        schedule.advance();
                        self.start(index, now, now);
                    }
                    Some(due) => self.waiting.push(Reverse((due, index))),
                    None => {}
                }
            }
            Arrivals::PerConnection { .. } => {
                let Some(schedule) = &mut self.schedules[index as usize] else { return };
                match schedule.next_ns() {
                    Some(due) if due <= now => {
                        schedule.advance();
                        self.start(index, due, now);
                    }
                    Some(due) => self.waiting.push(Reverse((due, index))),
                    None => {}
                }
            }
            Arrivals::Paced { .. } | Arrivals::Poisson { .. } | Arrivals::Recorded { .. } => {
                self.free.push_back(index)
            }
        }
    }

    /// Starts everything that is due.
    fn dispatch(&mut self) {
        let now = self.now();
        while let Some(Reverse((due, index))) = self.waiting.peek().copied() {
            if due > now {
                break;
            }
            self.waiting.pop();
            self.on_free(index, now);
        }
        while let Some(due) = self.shared_due() {
            let now = self.now();
            if due > now {
                break;
            }
            let Some(index) = self.free.pop_front() else { break };
            if let Some(schedule) = &mut self.shared {
                schedule.advance();
            }
            self.start(index, due, now);
        }
    }

    /// The next shared arrival, as long as it is meant for before the end.
    fn shared_due(&self) -> Option<u64> {
        self.shared.as_ref()?.next_ns().filter(|due| *due < self.measured.end)
    }

    fn start(&mut self, index: u32, intended_ns: u64, now: u64) {
        if intended_ns >= self.measured.end {
            return;
        }
        let connection = &mut self.connections[index as usize];
        let possible_ns = intended_ns.max(connection.freed_ns);
        if self.measured.contains(&intended_ns) {
            self.tally.sent += 1;
            self.tally.waited += u64::from(possible_ns > intended_ns);
            if self.plan.arrivals.is_open() {
                self.tally.lateness.record(now.saturating_sub(possible_ns));
            }
        }
        connection.start(InFlight { intended_ns, started_ns: now });
        if connection.socket().is_none() {
            self.tally.reconnects += u64::from(connection.generation > 0 && self.plan.keep_alive);
            self.open(index);
        } else if connection.is_connected() {
            let event = connection.write(&self.bytes);
            self.on_event(index, event);
        }
    }

    fn open(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        let result = connection.open(self.plan.address(index as usize)).map(|_| ());
        let number = u64::from(connection.generation) << 32 | u64::from(index);
        match result {
            Ok(()) => {
                let Some(socket) = connection.socket() else { return };
                if let Err(error) = self.poller.add(socket, number, Interest::Write) {
                    self.on_failure(index, Failure::Connect(error));
                }
            }
            Err(failure) => self.on_failure(index, failure),
        }
    }

    fn watch(&mut self, index: u32, interest: Interest) {
        let connection = &self.connections[index as usize];
        let number = u64::from(connection.generation) << 32 | u64::from(index);
        let Some(socket) = connection.socket() else { return };
        if self.poller.modify(socket, number, interest).is_err() {
            self.on_failure(index, Failure::Reset);
        }
    }

    fn expire(&mut self, now: u64) {
        let timeout = self.plan.timeout.as_nanos() as u64;
        self.next_scan_ns = now + (timeout / 50).clamp(1_000_000, 200_000_000);
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            let Some(request) =
                connection.request.filter(|request| now - request.started_ns.min(now) >= timeout)
            else {
                continue;
            };
            connection.request = None;
            connection.close();
            connection.freed_ns = now;
            self.count_error("timeout", request.intended_ns);
            self.on_free(index as u32, now);
        }
    }

    fn has_due(&self) -> bool {
        let end = self.measured.end;
        let of_connections =
            self.schedules.iter().flatten().filter_map(Schedule::next_ns).any(|due| due < end);
        self.shared_due().is_some() || (self.plan.arrivals.is_open() && of_connections)
    }

    fn count_unsent(&mut self) -> u64 {
        if !self.plan.arrivals.is_open() {
            return 0;
        }
        let measured = self.measured.clone();
        let mut unsent = 0;
        for schedule in self.schedules.iter_mut().flatten().chain(self.shared.as_mut()) {
            while let Some(due) = schedule.next_ns().filter(|due| *due < measured.end) {
                unsent += u64::from(measured.contains(&due));
                schedule.advance();
            }
        }
        unsent
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

const SCRATCH: usize = 64 * 1024;
const CONNECT_AT_ONCE: usize = 128;
/// How long a connection rests after a failure.
const RETRY_NS: u64 = 10_000_000;
const DRAIN_AT_MOST: Duration = Duration::from_secs(5);
