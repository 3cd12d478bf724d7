//! Load in Bolt: each connection keeps several requests in flight.
//!
//! Every request carries its connection and its number in the first sixteen bytes of its content, and the server gives the
//! content back: an answer counts only when it has the number *and* the content of a request that waits for it. All
//! that one wait brought is answered by one write for each connection.

mod line;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use towpath_proto::bolt::Version;

use self::line::{Event, InFlight, Line, Template, Verdict};
use super::account::{Account, Tally};
use super::connection::Failure;
use super::glimpse::Glimpse;
use super::outcome::{Outcome, Progress};
use super::schedule::Schedule;
use super::{Arrivals, LoadError, Plan};
use crate::poller::{Interest, Poller, Ready};

/// What is particular to Bolt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bolt {
    /// The version of the frames.
    pub version: Version,
    /// Requests in flight on each connection: 1 to 1024.
    pub in_flight: usize,
    /// The name of the content's class.
    pub class: String,
    /// The codec's number: 1 is Hessian 2, which this generator does not write.
    pub codec: u8,
}

impl Default for Bolt {
    fn default() -> Self {
        Self { version: Version::V1, in_flight: 1, class: CLASS.to_owned(), codec: CODEC }
    }
}

impl Bolt {
    pub(super) fn check(&self, arrivals: &Arrivals) -> Result<(), LoadError> {
        if self.in_flight == 0 || self.in_flight > IN_FLIGHT_LIMIT {
            return Err(LoadError::Plan("a connection has between 1 and 1024 requests in flight"));
        }
        match arrivals {
            Arrivals::Closed
            | Arrivals::Paced { .. }
            | Arrivals::Poisson { .. }
            | Arrivals::Recorded { .. } => Ok(()),
            Arrivals::ClosedCapped { .. } | Arrivals::PerConnection { .. } => Err(LoadError::Plan(
                "Bolt has no schedules for single connections: use a closed loop or a common rate",
            )),
        }
    }
}

/// Carries out a plan.
pub(super) fn run(
    plan: &Plan,
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    Generator::new(plan, observer)?.run()
}

struct Generator<'p, 'o> {
    plan: &'p Plan,
    template: Template,
    poller: Poller,
    scratch: Vec<u8>,
    lines: Vec<Line>,
    schedule: Option<Schedule>,
    /// Places for one request more, with the generation of their connection.
    free: VecDeque<(u32, u32)>,
    /// Lines to be opened again.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    /// Lines with something to write.
    dirty: Vec<u32>,
    verdicts: Vec<Verdict>,
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
        let warmup_ns = plan.warmup.as_nanos() as u64;
        Ok(Self {
            plan,
            template: Template::new(plan)?,
            poller: Poller::new().map_err(io::Error::from)?,
            scratch: vec![0; SCRATCH],
            lines: (0..plan.connections).map(|index| Line::new(index as u32)).collect(),
            schedule: Schedule::global(&plan.arrivals, plan.rate_ramp, plan.seed),
            free: VecDeque::new(),
            waiting: BinaryHeap::new(),
            dirty: Vec::new(),
            verdicts: Vec::new(),
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

    /// Opens every connection before the clock starts, a few at a time.
    fn connect_all(&mut self) -> Result<(), LoadError> {
        let deadline = Instant::now() + self.plan.timeout;
        let (mut opened, mut settled) = (0, 0);
        while settled < self.lines.len() && Instant::now() < deadline {
            while opened < self.lines.len() && opened - settled < CONNECT_AT_ONCE {
                self.open(opened as u32);
                opened += 1;
            }
            self.poller.wait(Some(Duration::from_millis(50))).map_err(io::Error::from)?;
            self.handle_events();
            let is_settled = |line: &&Line| line.is_connected() || line.socket().is_none();
            settled = self.lines[..opened].iter().filter(is_settled).count();
        }
        if !self.lines.iter().any(Line::is_connected) {
            let error =
                self.last_connect_error.take().unwrap_or_else(|| io::ErrorKind::TimedOut.into());
            return Err(LoadError::Connect { target: self.plan.target.to_string(), error });
        }
        self.tally = Tally::default();
        Ok(())
    }

    fn measure(&mut self) -> Result<(), LoadError> {
        self.epoch = Instant::now();
        loop {
            let now = self.now();
            if !self.account.has_begun() && now >= self.measured.start {
                self.account.begin()?;
            }
            if now >= self.measured.end {
                let connected = self.lines.iter().filter(|line| line.is_connected()).count();
                self.account.end(self.tally.answered, connected);
                return Ok(());
            }
            let boundary =
                if self.account.has_begun() { self.measured.end } else { self.measured.start };
            self.turn(boundary)?;
        }
    }

    /// Waits for the answers to what was sent, for a while.
    fn drain(&mut self) -> Result<(), LoadError> {
        let patience = self.plan.timeout.min(DRAIN_AT_MOST).as_nanos() as u64;
        let deadline = self.measured.end + patience;
        while self.now() < deadline
            && (self.due().is_some() || self.lines.iter().any(|line| line.in_flight() > 0))
        {
            self.turn(deadline)?;
        }
        for index in 0..self.lines.len() {
            for request in self.lines[index].abandon() {
                self.count_error("timeout", request.intended_ns);
            }
        }
        let (measured, mut unsent) = (self.measured.clone(), 0);
        if let Some(schedule) = &mut self.schedule {
            while let Some(due) = schedule.next_ns().filter(|due| *due < measured.end) {
                unsent += u64::from(measured.contains(&due));
                schedule.advance();
            }
        }
        self.tally.errors.add("unsent", unsent);
        Ok(())
    }

    /// One wait and what it brought.
    fn turn(&mut self, boundary: u64) -> Result<(), LoadError> {
        self.dispatch();
        self.flush();
        let now = self.now();
        let mut wake = self.next_scan_ns.min(boundary);
        if let Some(Reverse((due, _))) = self.waiting.peek() {
            wake = wake.min(*due);
        }
        if !self.free.is_empty()
            && let Some(due) = self.due()
        {
            wake = wake.min(due);
        }
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

    fn handle_events(&mut self) {
        let mut at = 0;
        while let Some(ready) = self.poller.event(at) {
            at += 1;
            self.handle(ready);
        }
    }

    fn handle(&mut self, ready: Ready) {
        let index = ready.number as u32;
        let line = &mut self.lines[index as usize];
        if line.generation != (ready.number >> 32) as u32 || line.socket().is_none() {
            return;
        }
        if ready.writable {
            let was_connected = line.is_connected();
            match line.on_writable() {
                Event::Fine => {
                    if !was_connected {
                        let token = (index, line.generation);
                        self.free.extend(std::iter::repeat_n(token, self.plan.bolt.in_flight));
                    }
                    self.watch(index, Interest::Read);
                }
                Event::Blocked => {}
                Event::Failed(failure) => return self.on_failure(index, failure),
            }
        }
        let line = &mut self.lines[index as usize];
        if ready.readable && line.is_connected() {
            let event = line.on_readable(&mut self.scratch, &self.template, &mut self.verdicts);
            self.on_verdicts(index);
            match event {
                Event::Failed(failure) => self.on_failure(index, failure),
                Event::Fine | Event::Blocked => {
                    if self.lines[index as usize].has_unsent() {
                        self.dirty.push(index);
                    }
                }
            }
        }
    }

    fn on_verdicts(&mut self, index: u32) {
        let now = self.now();
        let generation = self.lines[index as usize].generation;
        let mut verdicts = std::mem::take(&mut self.verdicts);
        for verdict in verdicts.drain(..) {
            let request = match verdict {
                Verdict::Late => continue,
                Verdict::Unasked => {
                    self.tally.errors.add("unasked", 1);
                    continue;
                }
                Verdict::Right(request) => {
                    if self.measured.contains(&request.intended_ns) {
                        self.tally.latency.record(now - request.intended_ns);
                        self.tally.service.record(now - request.started_ns);
                    }
                    request
                }
                // That must never happen, measured time or not.
                Verdict::Crossed(request) => {
                    self.tally.errors.add("crossed", 1);
                    request
                }
                Verdict::Refused(request) => {
                    self.count_error("status", request.intended_ns);
                    request
                }
            };
            if self.measured.contains(&now) {
                self.tally.answered += 1;
            }
            if let Some(glimpse) = &mut self.observer {
                glimpse.record(now - request.intended_ns);
            }
            self.free.push_back((index, generation));
        }
        self.verdicts = verdicts;
    }

    fn on_failure(&mut self, index: u32, failure: Failure) {
        let kind = match failure {
            Failure::Connect(error) => {
                self.last_connect_error = Some(error.into());
                "connect"
            }
            Failure::Reset => "reset",
            Failure::Closed => "closed",
            Failure::Malformed => "malformed",
        };
        let again = self.now() + RETRY_NS;
        for request in self.lines[index as usize].close() {
            self.count_error(kind, request.intended_ns);
        }
        self.waiting.push(Reverse((again, index)));
    }

    fn count_error(&mut self, kind: &'static str, intended_ns: u64) {
        if self.measured.contains(&intended_ns) {
            self.tally.errors.add(kind, 1);
        }
    }

    /// Starts everything that is due, and opens what was closed.
    fn dispatch(&mut self) {
        let now = self.now();
        while let Some(Reverse((due, index))) = self.waiting.peek().copied() {
            if due > now {
                break;
            }
            self.waiting.pop();
            self.tally.reconnects += 1;
            self.open(index);
        }
        let closed = self.plan.arrivals == Arrivals::Closed;
        while !self.free.is_empty() {
            let now = self.now();
            let due = if closed { now } else { self.due().unwrap_or(u64::MAX) };
            if due > now || due >= self.measured.end {
                break;
            }
            let Some((index, generation)) = self.free.pop_front() else { break };
            if self.lines[index as usize].generation == generation {
                if let Some(schedule) = &mut self.schedule {
                    schedule.advance();
                }
                self.start(index, due, now);
            }
        }
    }

    /// The next arrival of an open loop, as long as it is meant for before the end.
    fn due(&self) -> Option<u64> {
        self.schedule.as_ref()?.next_ns().filter(|due| *due < self.measured.end)
    }

    fn start(&mut self, index: u32, intended_ns: u64, now: u64) {
        if self.measured.contains(&intended_ns) {
            self.tally.sent += 1;
            if self.schedule.is_some() {
                self.tally.lateness.record(now.saturating_sub(intended_ns));
            }
        }
        let line = &mut self.lines[index as usize];
        if !line.has_unsent() {
            self.dirty.push(index);
        }
        line.start(InFlight { intended_ns, started_ns: now }, &self.template);
    }

    fn flush(&mut self) {
        while let Some(index) = self.dirty.pop() {
            match self.lines[index as usize].flush() {
                Event::Fine => {}
                Event::Blocked => self.watch(index, Interest::ReadWrite),
                Event::Failed(failure) => self.on_failure(index, failure),
            }
        }
    }

    fn open(&mut self, index: u32) {
        let address = self.plan.address(index as usize);
        let line = &mut self.lines[index as usize];
        let opened = line.open(address);
        let number = u64::from(line.generation) << 32 | u64::from(index);
        let added = opened.and_then(|()| {
            let socket = line.socket().ok_or(Failure::Closed)?;
            self.poller.add(socket, number, Interest::Write).map_err(Failure::Connect)
        });
        if let Err(failure) = added {
            self.on_failure(index, failure);
        }
    }

    fn watch(&mut self, index: u32, interest: Interest) {
        let line = &self.lines[index as usize];
        let number = u64::from(line.generation) << 32 | u64::from(index);
        let Some(socket) = line.socket() else { return };
        if self.poller.modify(socket, number, interest).is_err() {
            self.on_failure(index, Failure::Reset);
        }
    }

    fn expire(&mut self, now: u64) {
        let timeout = self.plan.timeout.as_nanos() as u64;
        self.next_scan_ns = now + (timeout / 50).clamp(1_000_000, 200_000_000);
        for index in 0..self.lines.len() {
            let generation = self.lines[index].generation;
            for request in self.lines[index].expire(now.saturating_sub(timeout)) {
                self.count_error("timeout", request.intended_ns);
                self.free.push_back((index as u32, generation));
            }
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

/// The class and codec of contents that are bytes and nothing else; a Java server registers a serializer for them.
const CLASS: &str = "towpath.Bytes";
const CODEC: u8 = 11;
const IN_FLIGHT_LIMIT: usize = 1024;
const SCRATCH: usize = 256 * 1024;
const CONNECT_AT_ONCE: usize = 128;
/// How long a connection rests after a failure.
const RETRY_NS: u64 = 10_000_000;
const DRAIN_AT_MOST: Duration = Duration::from_secs(5);
