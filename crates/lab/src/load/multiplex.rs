//! Connections that carry several requests at once, whatever the protocol on them.
//!
//! All that one wait brought is answered by one write for each connection.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::OwnedFd;

use super::connection::{Failure, InFlight};
use super::outcome::{Outcome, Progress};
use super::run::{Driver, Run, drive};
use super::schedule::Schedule;
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
    /// Begins a request, whichever the template says; [`Line::flush`] writes it. Only where there is
    /// [capacity](Line::capacity).
    fn start(&mut self, request: InFlight, template: &mut Self::Template);
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
    Ok(())
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
    /// Places for one request more, where arrivals take any connection.
    free: VecDeque<Place>,
    /// Schedules of their own, for arrivals that are per connection.
    own: Vec<Own>,
    /// When connections with such a schedule have the next request: each at most once.
    timed: BinaryHeap<Reverse<(u64, u32)>>,
    /// Those whose schedule is to be looked at.
    looked_at: Vec<u32>,
    /// Lines with something to write.
    dirty: Vec<u32>,
    /// Requests that the next flush sends.
    started: u32,
    verdicts: Vec<Verdict>,
}

/// Room for one request.
#[derive(Clone, Copy)]
struct Place {
    index: u32,
    /// That of its connection.
    generation: u32,
    since_ns: u64,
}

/// What a connection has where arrivals are per connection.
struct Own {
    schedule: Schedule,
    is_timed: bool,
    /// When there was room again.
    since_ns: u64,
}

impl<'p, 'o, L: Line> Generator<'p, 'o, L> {
    fn new(
        plan: &'p Plan,
        template: L::Template,
        observer: Option<&'o mut dyn FnMut(&Progress)>,
    ) -> Result<Self, LoadError> {
        let total = plan.share.all_connections.unwrap_or(plan.connections);
        let own = |index| {
            let number = plan.share.number(index);
            let schedule = Schedule::of_connection(&plan.arrivals, plan.rate_ramp, number, total)?;
            Some(Own { schedule, is_timed: false, since_ns: 0 })
        };
        Ok(Self {
            run: Run::new(plan, observer)?,
            template,
            scratch: vec![0; SCRATCH],
            lines: (0..plan.connections).map(|index| L::new(index as u32)).collect(),
            free: VecDeque::new(),
            own: (0..plan.connections).filter_map(own).collect(),
            timed: BinaryHeap::new(),
            looked_at: Vec::new(),
            dirty: Vec::new(),
            started: 0,
            verdicts: Vec::new(),
        })
    }

    fn on_verdicts(&mut self, index: u32) {
        let now = self.run.now();
        let mut verdicts = std::mem::take(&mut self.verdicts);
        for verdict in verdicts.drain(..) {
            match verdict {
                Verdict::Late => continue,
                Verdict::Unasked => {
                    self.run.tally.errors.add("unasked", 1);
                    continue;
                }
                Verdict::Lost(kind, request) => self.run.count_error(kind, request.intended_ns),
                Verdict::Right(request) => {
                    self.run.count_latency(request.intended_ns, request.started_ns, now);
                    self.run.count_entry(&request, true, now);
                    self.run.count_answer(request.intended_ns, now);
                }
                // That must never happen, measured time or not.
                Verdict::Crossed(request) => {
                    self.run.tally.errors.add("crossed", 1);
                    self.run.count_answer(request.intended_ns, now);
                }
                Verdict::Wrong(kind, request) => {
                    self.run.count_error(kind, request.intended_ns);
                    self.run.count_entry(&request, false, now);
                    self.run.count_answer(request.intended_ns, now);
                }
            }
            self.on_free(index, 1, now);
        }
        self.verdicts = verdicts;
    }

    /// A connection may carry so many requests more.
    fn on_free(&mut self, index: u32, count: usize, now: u64) {
        let generation = self.lines[index as usize].generation();
        match self.own.get_mut(index as usize) {
            None => {
                let place = Place { index, generation, since_ns: now };
                self.free.extend(std::iter::repeat_n(place, count));
            }
            // With a place left over the schedule has seen it already.
            Some(own) if own.is_timed => {}
            Some(own) => {
                own.since_ns = now;
                self.looked_at.push(index);
            }
        }
    }

    /// Starts what a connection's own schedule has due, as far as there is room: a cap counts from now, a schedule from
    /// when it wanted the request.
    fn on_schedule(&mut self, index: u32) {
        let is_open = self.run.plan.arrivals.is_open();
        loop {
            let line = &self.lines[index as usize];
            let has_room = line.is_connected()
                && line.capacity() > 0
                && line.in_flight() < self.run.plan.in_flight;
            let now = self.run.now();
            let own = &mut self.own[index as usize];
            if !has_room || own.is_timed {
                return;
            }
            if !is_open {
                own.schedule.forget_before(now);
            }
            let Some(due) = own.schedule.next_ns() else { return };
            if due > now {
                own.is_timed = true;
                self.timed.push(Reverse((due, index)));
                return;
            }
            if due >= self.run.measured.end {
                return;
            }
            own.schedule.advance();
            let possible_ns = own.since_ns.max(due);
            self.start(index, if is_open { due } else { now }, possible_ns, now);
        }
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
            let now = self.run.now();
            self.on_free(index, places, now);
        }
    }

    /// Starts a request that there was room for since `possible_ns`.
    fn start(&mut self, index: u32, intended_ns: u64, possible_ns: u64, now: u64) {
        if self.run.measured.contains(&intended_ns) {
            let tally = &mut self.run.tally;
            tally.sent += 1;
            if self.run.plan.arrivals.is_open() {
                tally.waited += u64::from(possible_ns > intended_ns);
                tally.lateness.record(now.saturating_sub(possible_ns));
            }
        }
        let line = &mut self.lines[index as usize];
        if !line.has_unsent() {
            self.dirty.push(index);
        }
        line.start(InFlight { intended_ns, started_ns: now, entry: 0 }, &mut self.template);
        self.started += 1;
    }

    /// Starts what is due on any connection, as far as there are places.
    fn start_due(&mut self) {
        let closed = self.run.plan.arrivals == Arrivals::Closed;
        while !self.free.is_empty() {
            let now = self.run.now();
            let due = if closed { now } else { self.run.next_arrival().unwrap_or(u64::MAX) };
            if due > now || due >= self.run.measured.end {
                break;
            }
            let Some(Place { index, generation, since_ns }) = self.free.pop_front() else { break };
            let line = &self.lines[index as usize];
            if line.generation() == generation && line.capacity() > 0 {
                if let Some(schedule) = &mut self.run.arrivals {
                    schedule.advance();
                }
                self.start(index, due, due.max(since_ns), now);
            }
        }
    }

    fn flush(&mut self) {
        while let Some(index) = self.dirty.pop() {
            match self.lines[index as usize].flush() {
                Event::Fine | Event::Over => {}
                Event::Blocked => self.watch(index, Interest::ReadWrite),
                Event::Failed(failure) => self.on_failure(index, failure),
            }
        }
        for _ in 0..std::mem::take(&mut self.started) {
            self.run.work();
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
        let end = self.run.measured.end;
        let is_due = |own: &Own| own.schedule.next_ns().is_some_and(|due| due < end);
        self.run.next_arrival().is_some()
            || (self.run.plan.arrivals.is_open() && self.own.iter().any(is_due))
    }

    fn next_start(&self) -> Option<u64> {
        let timed = self.timed.peek().map(|Reverse((due, _))| *due);
        let common = self.free.front().and_then(|_| self.run.next_arrival());
        timed.into_iter().chain(common).min()
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
        while let Some(&Reverse((due, index))) = self.timed.peek()
            && due <= now
        {
            self.timed.pop();
            self.own[index as usize].is_timed = false;
            self.looked_at.push(index);
        }
        while let Some(index) = self.looked_at.pop() {
            self.on_schedule(index);
        }
        self.start_due();
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
            for request in self.lines[index].expire(now.saturating_sub(timeout_ns)) {
                self.run.count_error("timeout", request.intended_ns);
                self.on_free(index as u32, 1, now);
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
        if !self.run.plan.arrivals.is_open() {
            return 0;
        }
        let measured = &self.run.measured;
        let own = self.own.iter_mut().map(|own| &mut own.schedule);
        own.chain(self.run.arrivals.as_mut()).map(|schedule| schedule.count_rest(measured)).sum()
    }
}

const IN_FLIGHT_LIMIT: usize = 1024;
const SCRATCH: usize = 256 * 1024;
