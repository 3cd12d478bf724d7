//! Connections that carry several requests at once, whatever the protocol on them.
//!
//! All that one wait brought is answered by one write for each connection.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::connection::{Failure, InFlight};
use super::outcome::{Outcome, Progress};
use super::run::{Driver, Run, drive};
use super::{Arrivals, LoadError, Plan};
use crate::address::Address;
use crate::poller::{Interest, Ready};

/// A connection.
pub(super) trait Line {
    /// The request, encoded once, and what else all connections share.
    type Template;

    /// The connection of this number, not open yet.
    fn new(index: u32) -> Self;
    /// Starts to connect; the socket becomes writable when it is done.
    fn open(&mut self, address: &Address, template: &Self::Template) -> Result<(), Failure>;
    /// Ends the connection; answers what was in flight.
    fn close(&mut self) -> Vec<InFlight>;
    /// Waits for nothing any more; answers what was in flight.
    fn abandon(&mut self) -> Vec<InFlight>;
    /// Gives up what was started before `limit_ns`.
    fn expire(&mut self, limit_ns: u64) -> Vec<InFlight>;
    /// Begins a request; [`Line::flush`] writes it. Only where there is [capacity](Line::capacity).
    fn start(&mut self, request: InFlight, template: &Self::Template);
    /// Writes what there is.
    fn flush(&mut self) -> Event;
    /// The socket became writable: finishes connecting, then writes.
    fn on_writable(&mut self) -> Event;
    /// The socket became readable: one read, and a verdict on each answer.
    fn on_readable(
        &mut self,
        scratch: &mut [u8],
        template: &Self::Template,
        verdicts: &mut Vec<Verdict>,
    ) -> Event;
    /// Whether there is something for [`Line::flush`].
    fn has_unsent(&self) -> bool;
    fn socket(&self) -> Option<&OwnedFd>;
    /// Distinguishes this socket's events from those of an earlier one.
    fn generation(&self) -> u32;
    /// Whether requests can be sent.
    fn is_connected(&self) -> bool;
    /// How many requests more the server takes on it.
    fn capacity(&self) -> usize;
    fn in_flight(&self) -> usize;
}

/// What became of a request, or of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// Answered as it should be.
    Right(InFlight),
    /// Answered with the content of another.
    Crossed(InFlight),
    /// Answered, but not with success: the word for it in the counts.
    Wrong(&'static str, InFlight),
    /// Ended without an answer, on a connection that goes on.
    Lost(&'static str, InFlight),
    /// An answer to a request that was given up.
    Late,
    /// An answer to nothing.
    Unasked,
}

/// What came of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Fine,
    /// Not all could be written: wait until the socket is writable.
    Blocked,
    /// The server wants no more on this connection, and nothing is in flight.
    Over,
    Failed(Failure),
}

/// Whether arrivals can be spread over connections that carry several requests at once.
pub(super) fn check(plan: &Plan) -> Result<(), LoadError> {
    if plan.in_flight == 0 || plan.in_flight > IN_FLIGHT_LIMIT {
        return Err(LoadError::Plan("a connection has between 1 and 1024 requests in flight"));
    }
    if !plan.keep_alive {
        return Err(LoadError::Plan(
            "HTTP/2 and Bolt keep their connections: a call is not worth one",
        ));
    }
    match plan.arrivals {
        Arrivals::Closed
        | Arrivals::Paced { .. }
        | Arrivals::Poisson { .. }
        | Arrivals::Bunched { .. }
        | Arrivals::Recorded { .. } => Ok(()),
        Arrivals::ClosedCapped { .. } | Arrivals::PerConnection { .. } => Err(LoadError::Plan(
            "HTTP/2 and Bolt have no schedules for single connections: use a closed loop or a common rate",
        )),
    }
}

/// Carries out a plan.
pub(super) fn run<L: Line>(
    plan: &Plan,
    template: L::Template,
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    drive(Generator::<L>::new(plan, template, observer)?)
}

struct Generator<'p, 'o, L: Line> {
    run: Run<'p, 'o>,
    template: L::Template,
    scratch: Vec<u8>,
    lines: Vec<L>,
    /// Places for one request more, with the generation of their connection.
    free: VecDeque<(u32, u32)>,
    /// Lines with something to write.
    dirty: Vec<u32>,
    verdicts: Vec<Verdict>,
}

impl<'p, 'o, L: Line> Generator<'p, 'o, L> {
    fn new(
        plan: &'p Plan,
        template: L::Template,
        observer: Option<&'o mut dyn FnMut(&Progress)>,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            run: Run::new(plan, observer)?,
            template,
            scratch: vec![0; SCRATCH],
            lines: (0..plan.connections).map(|index| L::new(index as u32)).collect(),
            free: VecDeque::new(),
            dirty: Vec::new(),
            verdicts: Vec::new(),
        })
    }

    fn on_verdicts(&mut self, index: u32) {
        let now = self.run.now();
        let generation = self.lines[index as usize].generation();
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
                Verdict::Wrong(kind, request) => {
                    self.run.count_error(kind, request.intended_ns);
                    request
                }
                Verdict::Lost(kind, request) => {
                    self.run.count_error(kind, request.intended_ns);
                    self.free.push_back((index, generation));
                    continue;
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

    /// The server wants no more on this connection, and has answered what was asked.
    fn on_over(&mut self, index: u32) {
        self.lines[index as usize].close();
        let now = self.run.now();
        self.run.waiting.push(Reverse((now, index)));
    }

    /// A connection that has just come up takes requests.
    fn offer(&mut self, index: u32) {
        let line = &self.lines[index as usize];
        if line.is_connected() {
            let places = line.capacity().min(self.run.plan.in_flight);
            self.free.extend(std::iter::repeat_n((index, line.generation()), places));
        }
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
                Event::Fine | Event::Over => {}
                Event::Blocked => self.watch(index, Interest::ReadWrite),
                Event::Failed(failure) => self.on_failure(index, failure),
            }
        }
    }

    fn watch(&mut self, index: u32, interest: Interest) {
        let line = &self.lines[index as usize];
        let number = u64::from(line.generation()) << 32 | u64::from(index);
        let Some(socket) = line.socket() else { return };
        if self.run.poller.modify(socket, number, interest).is_err() {
            self.on_failure(index, Failure::Reset);
        }
    }
}

impl<'p, 'o, L: Line> Driver<'p, 'o> for Generator<'p, 'o, L> {
    fn run(&mut self) -> &mut Run<'p, 'o> {
        &mut self.run
    }

    fn open(&mut self, index: u32) {
        let address = self.run.plan.address(index as usize);
        let line = &mut self.lines[index as usize];
        let opened = line.open(address, &self.template);
        let number = u64::from(line.generation()) << 32 | u64::from(index);
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
                self.run.tally.reconnects += u64::from(line.generation() > 0);
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
            let line = &self.lines[index as usize];
            if line.generation() == generation && line.capacity() > 0 {
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
        if line.generation() != (ready.number >> 32) as u32 || line.socket().is_none() {
            return;
        }
        if ready.writable {
            let was_connected = line.is_connected();
            match line.on_writable() {
                Event::Fine | Event::Over => {
                    if !was_connected {
                        self.offer(index);
                    }
                    self.watch(index, Interest::Read);
                }
                Event::Blocked => {}
                Event::Failed(failure) => return self.on_failure(index, failure),
            }
        }
        let line = &mut self.lines[index as usize];
        if ready.readable && line.socket().is_some() {
            let was_connected = line.is_connected();
            let event = line.on_readable(&mut self.scratch, &self.template, &mut self.verdicts);
            self.on_verdicts(index);
            match event {
                Event::Failed(failure) => self.on_failure(index, failure),
                Event::Over => self.on_over(index),
                Event::Fine | Event::Blocked => {
                    if !was_connected {
                        self.offer(index);
                    }
                    if self.lines[index as usize].has_unsent() {
                        self.dirty.push(index);
                    }
                }
            }
        }
    }

    fn expire(&mut self, now: u64, timeout_ns: u64) {
        for index in 0..self.lines.len() {
            let generation = self.lines[index].generation();
            for request in self.lines[index].expire(now.saturating_sub(timeout_ns)) {
                self.run.count_error("timeout", request.intended_ns);
                self.free.push_back((index as u32, generation));
            }
            if self.lines[index].has_unsent() {
                self.dirty.push(index as u32);
            }
        }
    }

    fn abandon(&mut self) -> Vec<u64> {
        let requests = self.lines.iter_mut().flat_map(L::abandon);
        requests.map(|request| request.intended_ns).collect()
    }

    fn count_unsent(&mut self) -> u64 {
        let measured = &self.run.measured;
        self.run.arrivals.as_mut().map_or(0, |schedule| schedule.count_rest(measured))
    }
}

const IN_FLIGHT_LIMIT: usize = 1024;
const SCRATCH: usize = 256 * 1024;
