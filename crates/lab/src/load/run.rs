//! One run of a plan, whatever the protocol: connect, measure between two instants, wait for what is still out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath_proto::tls::Fault;

use super::account::{Account, Tally};
use super::connection::{Failure, InFlight};
use super::glimpse::Glimpse;
use super::http2::reasons;
use super::outcome::{Outcome, Progress};
use super::schedule::Schedule;
use super::side_by_side::Arrival;
use super::{LoadError, Plan, Protocol, series};
use crate::poller::{Poller, Ready};

/// Connections of one protocol.
pub(super) trait Driver<'p, 'o> {
    fn run(&mut self) -> &mut Run<'p, 'o>;
    fn open(&mut self, index: u32);
    fn is_connected(&self, index: usize) -> bool;
    /// No socket, because it failed or was never asked for.
    fn is_closed(&self, index: usize) -> bool;
    fn is_answer_due(&self) -> bool;
    /// An arrival of an open loop that is meant for before the end has not been sent.
    fn is_arrival_due(&self) -> bool;
    /// When the next free connection has something to send.
    fn next_start(&self) -> Option<u64>;
    /// Everything is ready for the clock to start.
    fn begin(&mut self) {}
    /// Starts what is due.
    fn dispatch(&mut self);
    fn handle(&mut self, ready: Ready);
    /// Gives up what was sent `timeout_ns` ago.
    fn expire(&mut self, now: u64, timeout_ns: u64);
    /// Gives up every request; when each was meant for.
    fn abandon(&mut self) -> Vec<u64>;
    /// Arrivals within the measured time that were never sent.
    fn count_unsent(&mut self) -> u64;
}

/// What drivers have in common.
pub(super) struct Run<'p, 'o> {
    pub(super) plan: &'p Plan,
    pub(super) poller: Poller,
    pub(super) measured: Range<u64>,
    pub(super) tally: Tally,
    /// Arrivals that any connection may take.
    pub(super) arrivals: Option<Schedule>,
    /// Connections that do something at an instant.
    pub(super) waiting: BinaryHeap<Reverse<(u64, u32)>>,
    epoch: Instant,
    arrival: Arrival,
    next_scan_ns: u64,
    last_connect_error: Option<io::Error>,
    account: Account<'p>,
    observer: Option<Glimpse<'o>>,
}

impl<'p, 'o> Run<'p, 'o> {
    pub(super) fn new(
        plan: &'p Plan,
        observer: Option<&'o mut dyn FnMut(&Progress)>,
    ) -> Result<Self, LoadError> {
        // First of all: what fails from here on tells the threads that wait.
        let arrival = Arrival::at(plan.share.meeting.as_ref());
        let warmup_ns = plan.warmup.as_nanos() as u64;
        Ok(Self {
            plan,
            poller: Poller::new().map_err(io::Error::from)?,
            measured: warmup_ns..warmup_ns + plan.duration.as_nanos() as u64,
            tally: Tally::new(plan),
            arrivals: Schedule::global(&plan.arrivals, plan.rate_ramp, plan.seed, &plan.share),
            waiting: BinaryHeap::new(),
            epoch: Instant::now(),
            arrival,
            next_scan_ns: 0,
            last_connect_error: None,
            account: Account::new(plan),
            observer: observer.map(Glimpse::new),
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Does half of the work that a slower generator would have with a request.
    pub(super) fn work(&self) {
        if self.plan.busy.is_zero() {
            return;
        }
        let done = self.now() + self.plan.busy.as_nanos() as u64 / 2;
        while self.now() < done {
            std::hint::spin_loop();
        }
    }

    /// The next arrival that any connection may take, as long as it is meant for before the end.
    pub(super) fn next_arrival(&self) -> Option<u64> {
        self.arrivals.as_ref()?.next_ns().filter(|due| *due < self.measured.end)
    }

    /// The connection whose instant has come.
    pub(super) fn take_waiting(&mut self, now: u64) -> Option<u32> {
        let Reverse((due, index)) = *self.waiting.peek()?;
        (due <= now).then(|| self.waiting.pop())?;
        Some(index)
    }

    /// A server that refuses connections is not asked again in a busy loop: when the connection may go on.
    pub(super) fn back_off(&mut self, index: u32) -> u64 {
        let again = self.now() + RETRY_NS;
        self.waiting.push(Reverse((again, index)));
        again
    }

    pub(super) fn count_error(&mut self, kind: &'static str, intended_ns: u64) {
        if let Some(meeting) = &self.plan.share.meeting {
            meeting.count_error();
        }
        if self.measured.contains(&intended_ns) {
            self.tally.errors.add(kind, 1);
            if let Some(at) = series::within(&self.measured, self.now()) {
                self.tally.series.count_error(at);
            }
        }
    }

    /// The word for it in the counts.
    pub(super) fn name(&mut self, failure: Failure) -> &'static str {
        match failure {
            Failure::Connect(error) => {
                self.last_connect_error = Some(error.into());
                "connect"
            }
            Failure::Reset => {
                self.last_connect_error = Some(io::ErrorKind::ConnectionReset.into());
                "reset"
            }
            Failure::Closed => {
                let why = "the server closed the connection";
                self.last_connect_error = Some(io::Error::other(why));
                "closed"
            }
            Failure::Malformed => {
                let why = if self.plan.protocol == Protocol::Http2 {
                    "the server does not speak HTTP/2"
                } else {
                    "the server's answer cannot be read"
                };
                self.last_connect_error = Some(io::Error::other(why));
                "malformed"
            }
            Failure::Upgrade(status) => {
                let why = match status {
                    0 => "the server's answer is no WebSocket handshake".to_owned(),
                    _ => format!("the server does not switch to WebSocket: it answers {status}"),
                };
                self.last_connect_error = Some(io::Error::other(why));
                "upgrade"
            }
            Failure::Alpn => {
                let why = "the server does not offer h2 by ALPN";
                self.last_connect_error = Some(io::Error::other(why));
                "alpn"
            }
            Failure::GoneAway(code) => {
                let word = reasons::go_away(code);
                self.last_connect_error = Some(io::Error::other(word));
                word
            }
            Failure::Tls(fault) => {
                self.last_connect_error = Some(io::Error::other(tls_words(fault)));
                "tls"
            }
        }
    }

    /// An answer came, right or not.
    pub(super) fn count_answer(&mut self, intended_ns: u64, now: u64) {
        if self.measured.contains(&now) {
            self.tally.answered += 1;
        }
        if let Some(meeting) = &self.plan.share.meeting {
            meeting.count_answer();
        }
        if let Some(glimpse) = &mut self.observer {
            glimpse.record(now - intended_ns);
        }
        self.work();
    }

    /// One of several requests was answered, rightly or not.
    pub(super) fn count_entry(&mut self, request: &InFlight, is_right: bool, now: u64) {
        if self.plan.mix.is_empty() || !self.measured.contains(&request.intended_ns) {
            return;
        }
        let Some(entry) = self.tally.entries.get_mut(request.entry) else { return };
        if is_right {
            entry.latency.record(now - request.intended_ns);
        } else {
            entry.errors += 1;
        }
    }

    /// The answer was the right one.
    pub(super) fn count_latency(&mut self, intended_ns: u64, started_ns: u64, now: u64) {
        if self.measured.contains(&intended_ns) {
            self.tally.latency.record(now - intended_ns);
            self.tally.service.record(now - started_ns);
            if let Some(at) = series::within(&self.measured, now) {
                self.tally.series.record(at, now - intended_ns);
            }
        }
    }
}

/// Carries out the plan.
pub(super) fn drive<'p, 'o>(mut driver: impl Driver<'p, 'o>) -> Result<Outcome, LoadError> {
    let connected = connect_all(&mut driver);
    let epoch = driver.run().arrival.start(connected.is_ok());
    connected?;
    driver.run().epoch = epoch.ok_or(LoadError::Aside)?;
    measure(&mut driver)?;
    drain(&mut driver)?;
    let run = driver.run();
    let account = std::mem::replace(&mut run.account, Account::new(run.plan));
    Ok(account.finish(std::mem::take(&mut run.tally)))
}

/// Opens every connection before the clock starts, a few at a time so that the server's accept queue does not
/// overflow. With a connection ramp, or without keep-alive, connections open as they are used, and one shows that
/// the server listens.
fn connect_all<'p, 'o>(driver: &mut impl Driver<'p, 'o>) -> Result<(), LoadError> {
    let plan = driver.run().plan;
    let up_front = plan.keep_alive && plan.connection_ramp.is_zero();
    let count = if up_front { plan.connections } else { 1 };
    let deadline = Instant::now() + plan.timeout;
    let (mut opened, mut settled) = (0, 0);
    while settled < count && Instant::now() < deadline {
        while opened < count && opened - settled < CONNECT_AT_ONCE {
            driver.open(opened as u32);
            opened += 1;
        }
        driver.run().poller.wait(Some(Duration::from_millis(50))).map_err(io::Error::from)?;
        handle_events(driver);
        let is_settled = |at: &usize| driver.is_connected(*at) || driver.is_closed(*at);
        settled = (0..opened).filter(is_settled).count();
    }
    if !(0..count).any(|at| driver.is_connected(at)) {
        let error = driver.run().last_connect_error.take();
        let error = error.unwrap_or_else(|| io::ErrorKind::TimedOut.into());
        return Err(LoadError::Connect { target: plan.target.to_string(), error });
    }
    driver.begin();
    driver.run().tally = Tally::new(plan);
    Ok(())
}

fn measure<'p, 'o>(driver: &mut impl Driver<'p, 'o>) -> Result<(), LoadError> {
    loop {
        let run = driver.run();
        let (now, measured) = (run.now(), run.measured.clone());
        if !run.account.has_begun() && now >= measured.start {
            run.account.begin()?;
        }
        let has_begun = run.account.has_begun();
        if now >= measured.end {
            let count = run.plan.connections;
            let connected = (0..count).filter(|at| driver.is_connected(*at)).count();
            let run = driver.run();
            run.account.end(run.tally.answered, connected);
            return Ok(());
        }
        turn(driver, if has_begun { measured.end } else { measured.start })?;
    }
}

/// Waits for the answers to what was sent, and sends what was still due, for a while.
fn drain<'p, 'o>(driver: &mut impl Driver<'p, 'o>) -> Result<(), LoadError> {
    let run = driver.run();
    let patience = run.plan.timeout.min(DRAIN_AT_MOST).as_nanos() as u64;
    let deadline = run.measured.end + patience;
    while driver.run().now() < deadline && (driver.is_arrival_due() || driver.is_answer_due()) {
        turn(driver, deadline)?;
    }
    for intended_ns in driver.abandon() {
        driver.run().count_error("timeout", intended_ns);
    }
    let unsent = driver.count_unsent();
    driver.run().tally.errors.add("unsent", unsent);
    Ok(())
}

/// One wait and what it brought.
fn turn<'p, 'o>(driver: &mut impl Driver<'p, 'o>, boundary: u64) -> Result<(), LoadError> {
    let meeting = &driver.run().plan.share.meeting;
    if meeting.as_ref().is_some_and(|it| it.is_stopped()) {
        return Err(LoadError::Aside);
    }
    driver.dispatch();
    let next_start = driver.next_start();
    let run = driver.run();
    let waiting = run.waiting.peek().map(|Reverse((due, _))| *due);
    let awake_ns = run.plan.awake.as_nanos() as u64;
    let next_start = next_start.map(|at| at.saturating_sub(awake_ns));
    let wake = [waiting, next_start, Some(run.next_scan_ns)].into_iter().flatten();
    let wake = wake.fold(boundary, u64::min);
    let timeout = Duration::from_nanos(wake.saturating_sub(run.now()));
    run.poller.wait(Some(timeout)).map_err(io::Error::from)?;
    handle_events(driver);
    let run = driver.run();
    let now = run.now();
    if now >= run.next_scan_ns {
        let timeout_ns = run.plan.timeout.as_nanos() as u64;
        run.next_scan_ns = now + (timeout_ns / 50).clamp(1_000_000, 200_000_000);
        driver.expire(now, timeout_ns);
    }
    let run = driver.run();
    if let Some(glimpse) = &mut run.observer {
        let of_all = run
            .plan
            .share
            .meeting
            .as_ref()
            .map(|it| (it.answers.load(Ordering::Relaxed), it.errors.load(Ordering::Relaxed)));
        glimpse.show(&run.measured, run.tally.errors.total(), of_all, now);
    }
    Ok(())
}

/// Why there is no TLS, and what can be done about a certificate.
fn tls_words(fault: Option<Fault>) -> String {
    match fault {
        Some(fault @ Fault::Certificate(_)) => {
            format!("{fault} (--ca names roots to trust, --insecure trusts any)")
        }
        Some(fault) => format!("the TLS handshake failed: {fault}"),
        None => "the TLS handshake failed".to_owned(),
    }
}

fn handle_events<'p, 'o>(driver: &mut impl Driver<'p, 'o>) {
    let mut at = 0;
    while let Some(ready) = driver.run().poller.event(at) {
        at += 1;
        driver.handle(ready);
    }
}

const CONNECT_AT_ONCE: usize = 128;
/// How long a connection backs off after a failure.
const RETRY_NS: u64 = 10_000_000;
pub(super) const DRAIN_AT_MOST: Duration = Duration::from_secs(5);
