//! The readiness loop.
//!
//! Per request: one `send`, one `recv`, two clock reads, two histogram counts and a share of a wait.
//! Nothing is queued: an arrival that finds no free connection simply stays due in its schedule, and its
//! latency grows.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::connection::{Connection, Event, Failure, InFlight};
use super::mix::{Encoded, Messages};
use super::outcome::{Outcome, Progress};
use super::response::{Answer, Expect};
use super::run::{Driver, Run, drive};
use super::schedule::Schedule;
use super::side_by_side::{self, Meeting};
use super::tls::Dialler;
use super::websocket::Handshake;
use super::{Arrivals, LoadError, Plan, Protocol, bolt, http2, multiplex};
use crate::meter::{Meter, SyscallMeter};
use crate::poller::{Interest, Ready};

/// Carries out a plan, on the calling thread unless it asks for several.
pub fn run(plan: &Plan) -> Result<Outcome, LoadError> {
    run_observed(plan, None)
}

/// As [`run`], with a glimpse twice a second.
pub fn run_observed(
    plan: &Plan,
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    plan.check()?;
    make_room(plan)?;
    let mut outcome = match plan.threads {
        1 => generate(plan, observer)?,
        count => side_by_side::run(plan, &Meeting::of(count, None), observer)?,
    };
    outcome.judge(plan);
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

/// Lets this process have a file open for each connection, where the system allows it.
fn make_room(plan: &Plan) -> Result<(), LoadError> {
    let limit = getrlimit(Resource::Nofile);
    if let Some(wanted) = raised(plan, limit)? {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
            .map_err(std::io::Error::from)?;
    }
    Ok(())
}

/// What the limit has to become, unless it is high enough.
fn raised(plan: &Plan, limit: Rlimit) -> Result<Option<u64>, LoadError> {
    // Each thread has a poller; the rest is standard input and output, and what is read of processes.
    let wanted = (plan.connections + 2 * plan.threads + 8) as u64;
    match limit {
        Rlimit { current: None, .. } => Ok(None),
        Rlimit { current: Some(current), .. } if current >= wanted => Ok(None),
        Rlimit { maximum: Some(limit), .. } if limit < wanted => {
            Err(LoadError::Files { connections: plan.connections, limit })
        }
        Rlimit { .. } => Ok(Some(wanted)),
    }
}

/// Carries out a plan, or its part, on the calling thread.
pub(super) fn generate(
    plan: &Plan,
    observer: Option<&mut dyn FnMut(&Progress)>,
) -> Result<Outcome, LoadError> {
    match plan.protocol {
        Protocol::Http1 | Protocol::Tcp | Protocol::WebSocket => {
            drive(Generator::new(plan, observer)?)
        }
        Protocol::Http2 => {
            multiplex::run::<http2::Line>(plan, http2::Template::new(plan)?, observer)
        }
        Protocol::Bolt => multiplex::run::<bolt::Line>(plan, bolt::Template::new(plan)?, observer),
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
    run: Run<'p, 'o>,
    messages: Messages<Encoded>,
    expect: Expect,
    tls: Option<Dialler>,
    handshake: Option<Handshake>,
    scratch: Vec<u8>,
    connections: Vec<Connection>,
    /// Schedules of their own, for arrivals that are per connection.
    schedules: Vec<Option<Schedule>>,
    /// Free connections, for arrivals that take any.
    free: VecDeque<u32>,
    /// Connections of a closed loop whose answers came with the latest wait.
    answered: Vec<u32>,
    /// Those whose answers came with the wait before, and whose turn it is. wrk reads what one wait brings and sends
    /// with the next: the server sees bunches, and wakes the generator half as often as when each answer is followed
    /// by a request at once, which it pays for.
    turns: Vec<u32>,
}

impl<'p, 'o> Generator<'p, 'o> {
    fn new(
        plan: &'p Plan,
        observer: Option<&'o mut dyn FnMut(&Progress)>,
    ) -> Result<Self, LoadError> {
        let expect = match plan.protocol {
            Protocol::Tcp | Protocol::Bolt => Expect::Bytes(plan.request.body.len() as u64),
            Protocol::Http1 | Protocol::Http2 | Protocol::WebSocket => Expect::Http,
        };
        let count = plan.connections;
        let total = plan.share.all_connections.unwrap_or(count);
        Ok(Self {
            run: Run::new(plan, observer)?,
            messages: Messages::new(plan)?,
            expect,
            tls: plan.tls.as_ref().map(|tls| tls.dialler()),
            handshake: (plan.protocol == Protocol::WebSocket).then(|| Handshake::new(plan)),
            scratch: vec![0; SCRATCH],
            connections: (0..count).map(|_| Connection::new(expect)).collect(),
            schedules: (0..count)
                .map(|index| {
                    let number = plan.share.number(index);
                    Schedule::of_connection(&plan.arrivals, plan.rate_ramp, number, total)
                })
                .collect(),
            free: VecDeque::new(),
            answered: Vec::new(),
            turns: Vec::new(),
        })
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
        let now = self.run.now();
        let connection = &mut self.connections[index as usize];
        let Some(request) = connection.request.take() else { return };
        let check = self.messages.check(request.entry);
        let problem = check.problem(answer.status, &connection.body());
        connection.freed_ns = now;
        if !answer.reusable || !self.run.plan.keep_alive {
            connection.close();
        }
        self.run.count_answer(request.intended_ns, now);
        match problem {
            Some(kind) => self.run.count_error(kind, request.intended_ns),
            None => self.run.count_latency(request.intended_ns, request.started_ns, now),
        }
        self.run.count_entry(&request, problem.is_none(), now);
        self.on_free(index, now);
    }

    fn on_failure(&mut self, index: u32, failure: Failure) {
        let connection = &mut self.connections[index as usize];
        connection.close();
        let kind = self.run.name(failure);
        if let Some(request) = connection.request.take() {
            self.run.count_error(kind, request.intended_ns);
            connection.freed_ns = self.run.back_off(index);
        }
    }

    /// A connection may carry its next request: at once, at its own time, or when any arrival wants it.
    fn on_free(&mut self, index: u32, now: u64) {
        match &self.run.plan.arrivals {
            Arrivals::Closed => self.answered.push(index),
            Arrivals::ClosedCapped { .. } | Arrivals::PerConnection { .. } => {
                self.on_schedule(index, now)
            }
            Arrivals::Paced { .. }
            | Arrivals::Poisson { .. }
            | Arrivals::Bunched { .. }
            | Arrivals::Ticked { .. }
            | Arrivals::Recorded { .. } => self.free.push_back(index),
        }
    }

    /// A cap counts from now, a schedule from when it wanted the request.
    fn on_schedule(&mut self, index: u32, now: u64) {
        let is_open = self.run.plan.arrivals.is_open();
        let Some(schedule) = &mut self.schedules[index as usize] else { return };
        if !is_open {
            schedule.forget_before(now);
        }
        match schedule.next_ns() {
            Some(due) if due <= now => {
                schedule.advance();
                self.start(index, if is_open { due } else { now }, now);
            }
            Some(due) => self.run.waiting.push(Reverse((due, index))),
            None => {}
        }
    }

    fn start(&mut self, index: u32, intended_ns: u64, now: u64) {
        if intended_ns >= self.run.measured.end {
            return;
        }
        let connection = &mut self.connections[index as usize];
        let possible_ns = intended_ns.max(connection.freed_ns);
        if self.run.measured.contains(&intended_ns) {
            self.run.tally.sent += 1;
            self.run.tally.waited += u64::from(possible_ns > intended_ns);
            if self.run.plan.arrivals.is_open() {
                self.run.tally.lateness.record(now.saturating_sub(possible_ns));
            }
        }
        let (entry, message) = self.messages.next();
        let bytes = message.bytes();
        let expect = if self.messages.is_head(entry) { Expect::HttpHead } else { self.expect };
        let is_body_wanted = self.messages.check(entry).contains.is_some();
        let request = InFlight { intended_ns, started_ns: now, entry };
        let started = connection.start(request, bytes, expect, is_body_wanted);
        if let Event::Failed(_) = started {
            self.on_event(index, started);
        } else if connection.socket().is_none() {
            self.run.tally.reconnects +=
                u64::from(connection.generation > 0 && self.run.plan.keep_alive);
            self.open(index);
        } else if connection.is_connected() {
            let event = connection.write();
            self.on_event(index, event);
        }
        self.run.work();
    }

    fn watch(&mut self, index: u32, interest: Interest) {
        let connection = &self.connections[index as usize];
        let number = u64::from(connection.generation) << 32 | u64::from(index);
        let Some(socket) = connection.socket() else { return };
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
        let connection = &mut self.connections[index as usize];
        let web = self.handshake.as_mut().map(Handshake::begin);
        let address = self.run.plan.address(index as usize);
        let result = connection.open(address, self.tls.as_ref(), web);
        let number = u64::from(connection.generation) << 32 | u64::from(index);
        match result {
            Ok(()) => {
                let Some(socket) = connection.socket() else { return };
                if let Err(error) = self.run.poller.add(socket, number, Interest::Write) {
                    self.on_failure(index, Failure::Connect(error));
                }
            }
            Err(failure) => self.on_failure(index, failure),
        }
    }

    fn is_connected(&self, index: usize) -> bool {
        self.connections[index].is_connected()
    }

    fn is_closed(&self, index: usize) -> bool {
        self.connections[index].socket().is_none()
    }

    fn is_answer_due(&self) -> bool {
        self.connections.iter().any(|it| it.request.is_some())
    }

    fn is_arrival_due(&self) -> bool {
        let end = self.run.measured.end;
        let of_connections =
            self.schedules.iter().flatten().filter_map(Schedule::next_ns).any(|due| due < end);
        self.run.next_arrival().is_some() || (self.run.plan.arrivals.is_open() && of_connections)
    }

    fn next_start(&self) -> Option<u64> {
        if !self.turns.is_empty() {
            return Some(0);
        }
        self.free.front().and_then(|_| self.run.next_arrival())
    }

    fn begin(&mut self) {
        if !self.run.plan.keep_alive {
            self.connections[0].close();
        }
        let ramp_ns = self.run.plan.connection_ramp.as_nanos() as u64;
        let count = self.connections.len() as u64;
        for index in 0..count {
            self.run.waiting.push(Reverse((ramp_ns * index / count, index as u32)));
        }
    }

    fn dispatch(&mut self) {
        let now = self.run.now();
        while let Some(index) = self.run.take_waiting(now) {
            self.on_free(index, now);
        }
        for at in 0..self.turns.len() {
            let now = self.run.now();
            self.start(self.turns[at], now, now);
        }
        self.turns.clear();
        std::mem::swap(&mut self.turns, &mut self.answered);
        while let Some(due) = self.run.next_arrival() {
            let now = self.run.now();
            if due > now {
                break;
            }
            let Some(index) = self.free.pop_front() else { break };
            if let Some(schedule) = &mut self.run.arrivals {
                schedule.advance();
            }
            self.start(index, due, now);
        }
    }

    fn handle(&mut self, ready: Ready) {
        let index = ready.number as u32;
        let connection = &mut self.connections[index as usize];
        if connection.generation != (ready.number >> 32) as u32 || connection.socket().is_none() {
            return;
        }
        if ready.writable {
            let event = connection.on_writable();
            if event == Event::Nothing {
                self.watch(index, Interest::Read);
            }
            self.on_event(index, event);
        }
        let connection = &mut self.connections[index as usize];
        if ready.readable && connection.socket().is_some() {
            let event = connection.on_readable(&mut self.scratch);
            self.on_event(index, event);
        }
    }

    fn expire(&mut self, now: u64, timeout_ns: u64) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            let is_late = |request: &InFlight| now - request.started_ns.min(now) >= timeout_ns;
            let Some(request) = connection.request.take_if(|request| is_late(request)) else {
                continue;
            };
            connection.close();
            connection.freed_ns = now;
            self.run.count_error("timeout", request.intended_ns);
            self.on_free(index as u32, now);
        }
    }

    fn abandon(&mut self) -> Vec<u64> {
        let requests = self.connections.iter_mut().filter_map(|it| it.request.take());
        requests.map(|request| request.intended_ns).collect()
    }

    fn count_unsent(&mut self) -> u64 {
        if !self.run.plan.arrivals.is_open() {
            return 0;
        }
        let measured = &self.run.measured;
        let schedules = self.schedules.iter_mut().flatten().chain(self.run.arrivals.as_mut());
        schedules.map(|schedule| schedule.count_rest(measured)).sum()
    }
}

const SCRATCH: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_for_each_connection_or_the_plan_is_refused() {
        let mut plan = Plan::new("127.0.0.1:1".parse().unwrap());
        plan.connections = 1000;
        let raised = |current, maximum| raised(&plan, Rlimit { current, maximum });
        assert_eq!(raised(Some(1010), Some(1010)).unwrap(), None);
        assert_eq!(raised(Some(1009), Some(4096)).unwrap(), Some(1010));
        assert_eq!(raised(Some(256), None).unwrap(), Some(1010));
        assert_eq!(raised(None, None).unwrap(), None);
        let refused = raised(Some(256), Some(512)).unwrap_err();
        assert!(matches!(refused, LoadError::Files { connections: 1000, limit: 512 }), "{refused}");
    }
}
