//! Load in Bolt: each connection keeps several requests in flight.
//!
//! Every request carries its connection and its number in the first sixteen bytes of its content, and the server gives
//! the content back: an answer counts only when it has the number *and* the content of a request that waits for it. All
//! that one wait brought is answered by one write for each connection.

mod line;

use std::cmp::Reverse;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use towpath_proto::bolt::Version;

use self::line::{Event, Line, Template, Verdict};
use super::connection::{Failure, InFlight};
use super::outcome::{Outcome, Progress};
use super::run::{Driver, Run, drive};
use super::{Arrivals, LoadError, Plan};
use crate::poller::{Interest, Ready};

/// What is particular to Bolt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bolt {
    /// The version of the frames.
    #[serde(with = "VersionName")]
    pub version: Version,
    /// Requests in flight on each connection: 1 to 1024.
    pub in_flight: usize,
    /// The name of the content's class.
    pub class: String,
    /// The codec's number: 1 is Hessian 2, which this generator does not write.
    pub codec: u8,
}

/// How [`Version`] is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Version")]
enum VersionName {
    V1,
    V2 { checksums: bool },
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
            | Arrivals::Bunched { .. }
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
    drive(Generator::new(plan, observer)?)
}

struct Generator<'p, 'o> {
    run: Run<'p, 'o>,
    template: Template,
    scratch: Vec<u8>,
    lines: Vec<Line>,
    /// Places for one request more, with the generation of their connection.
    free: VecDeque<(u32, u32)>,
    /// Lines with something to write.
    dirty: Vec<u32>,
    verdicts: Vec<Verdict>,
}

impl<'p, 'o> Generator<'p, 'o> {
    fn new(
        plan: &'p Plan,
        observer: Option<&'o mut dyn FnMut(&Progress)>,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            run: Run::new(plan, observer)?,
            template: Template::new(plan)?,
            scratch: vec![0; SCRATCH],
            lines: (0..plan.connections).map(|index| Line::new(index as u32)).collect(),
            free: VecDeque::new(),
            dirty: Vec::new(),
            verdicts: Vec::new(),
        })
    }

    fn on_verdicts(&mut self, index: u32) {
        let now = self.run.now();
        let generation = self.lines[index as usize].generation;
        let mut verdicts = std::mem::take(&mut self.verdicts);
        for verdict in verdicts.drain(..) {
            let request = match verdict {
                Verdict::Late => continue,
                Verdict::Unasked => {
                    self.run.tally.errors.add("unasked", 1);
                    continue;
                }
                Verdict::Right(request) => {
                    self.run.count_latency(request.intended_ns, request.started_ns, now);
                    request
                }
                // That must never happen, measured time or not.
                Verdict::Crossed(request) => {
                    self.run.tally.errors.add("crossed", 1);
                    request
                }
                Verdict::Refused(request) => {
                    self.run.count_error("status", request.intended_ns);
                    request
                }
            };
            self.run.count_answer(request.intended_ns, now);
            self.free.push_back((index, generation));
        }
        self.verdicts = verdicts;
    }

    fn on_failure(&mut self, index: u32, failure: Failure) {
        let kind = self.run.name(failure);
        for request in self.lines[index as usize].close() {
            self.run.count_error(kind, request.intended_ns);
        }
        self.run.back_off(index);
    }

    fn start(&mut self, index: u32, intended_ns: u64, now: u64) {
        if self.run.measured.contains(&intended_ns) {
            self.run.tally.sent += 1;
            if self.run.arrivals.is_some() {
                self.run.tally.lateness.record(now.saturating_sub(intended_ns));
            }
        }
        let line = &mut self.lines[index as usize];
        if !line.has_unsent() {
            self.dirty.push(index);
        }
        line.start(InFlight { intended_ns, started_ns: now, entry: 0 }, &self.template);
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

    fn watch(&mut self, index: u32, interest: Interest) {
        let line = &self.lines[index as usize];
        let number = u64::from(line.generation) << 32 | u64::from(index);
        let Some(socket) = line.socket() else { return };
        if self.run.poller.modify(socket, number, interest).is_err() {
            self.on_failure(index, Failure::Reset);
        }
    }
}

impl<'p, 'o> Driver<'p, 'o> for Generator<'p, 'o> {
    fn run(&mut self) -> &mut Run<'p, 'o> {
        &mut self.run
    }

    fn open(&mut self, index: u32) {
        let address = self.run.plan.address(index as usize);
        let line = &mut self.lines[index as usize];
        let opened = line.open(address);
        let number = u64::from(line.generation) << 32 | u64::from(index);
        let added = opened.and_then(|()| {
            let socket = line.socket().ok_or(Failure::Closed)?;
            self.run.poller.add(socket, number, Interest::Write).map_err(Failure::Connect)
        });
        if let Err(failure) = added {
            self.on_failure(index, failure);
        }
    }

    fn is_connected(&self, index: usize) -> bool {
        self.lines[index].is_connected()
    }

    fn is_closed(&self, index: usize) -> bool {
        self.lines[index].socket().is_none()
    }

    fn is_answer_due(&self) -> bool {
        self.lines.iter().any(|line| line.in_flight() > 0)
    }

    fn is_arrival_due(&self) -> bool {
        self.run.next_arrival().is_some()
    }

    fn next_start(&self) -> Option<u64> {
        self.free.front().and_then(|_| self.run.next_arrival())
    }

    fn begin(&mut self) {
        let ramp_ns = self.run.plan.connection_ramp.as_nanos() as u64;
        let count = self.lines.len() as u64;
        let is_closed = |index: &u64| self.lines[*index as usize].socket().is_none();
        for index in (0..count).filter(is_closed) {
            self.run.waiting.push(Reverse((ramp_ns * index / count, index as u32)));
        }
    }

    /// Opens what was closed, starts everything that is due, and writes it.
    fn dispatch(&mut self) {
        let now = self.run.now();
        while let Some(index) = self.run.take_waiting(now) {
            let line = &self.lines[index as usize];
            if line.socket().is_none() {
                self.run.tally.reconnects += u64::from(line.generation > 0);
                self.open(index);
            }
        }
        let closed = self.run.plan.arrivals == Arrivals::Closed;
        while !self.free.is_empty() {
            let now = self.run.now();
            let due = if closed { now } else { self.run.next_arrival().unwrap_or(u64::MAX) };
            if due > now || due >= self.run.measured.end {
                break;
            }
            let Some((index, generation)) = self.free.pop_front() else { break };
            if self.lines[index as usize].generation == generation {
                if let Some(schedule) = &mut self.run.arrivals {
                    schedule.advance();
                }
                self.start(index, due, now);
            }
        }
        self.flush();
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
                        self.free.extend(std::iter::repeat_n(token, self.run.plan.bolt.in_flight));
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

    fn expire(&mut self, now: u64, timeout_ns: u64) {
        for index in 0..self.lines.len() {
            let generation = self.lines[index].generation;
            for request in self.lines[index].expire(now.saturating_sub(timeout_ns)) {
                self.run.count_error("timeout", request.intended_ns);
                self.free.push_back((index as u32, generation));
            }
        }
    }

    fn abandon(&mut self) -> Vec<u64> {
        let requests = self.lines.iter_mut().flat_map(Line::abandon);
        requests.map(|request| request.intended_ns).collect()
    }

    fn count_unsent(&mut self) -> u64 {
        let measured = &self.run.measured;
        self.run.arrivals.as_mut().map_or(0, |schedule| schedule.count_rest(measured))
    }
}

/// The class and codec of contents that are bytes and nothing else; a Java server registers a serializer for them.
const CLASS: &str = "towpath.Bytes";
const CODEC: u8 = 11;
const IN_FLIGHT_LIMIT: usize = 1024;
const SCRATCH: usize = 256 * 1024;
