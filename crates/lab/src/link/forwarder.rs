//! One direction of the emulator: a thread that moves packets from one device to the other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant as Clock};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use towpath_proto::time::Instant;
use towpath_sim::link::{Conditions, Direction, Path, Verdict};

use super::device::Device;
use super::packet::{Packet, mark};
use super::report::{Fate, Record, Traffic};
use crate::meter;

/// A running direction.
pub(super) struct Forwarder {
    commands: mpsc::Sender<Command>,
    wake: Arc<OwnedFd>,
    direction: Direction,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Whether the thread runs before all ordinary ones.
    pub(super) is_realtime: bool,
}

/// A path and the instant it counts from.
pub(super) struct Route {
    pub(super) path: Path,
    pub(super) epoch: Clock,
    pub(super) is_logged: bool,
}

enum Command {
    /// Forget everything and follow another route.
    Follow(Box<Route>),
    /// Go on under other conditions.
    Change(Box<Conditions>),
    /// No link for so long.
    BreakOff(Duration),
    /// Tell what happened since.
    Tell(mpsc::Sender<Traffic>),
    Stop,
}

impl Forwarder {
    pub(super) fn start(
        from: Arc<Device>,
        to: Arc<Device>,
        direction: Direction,
        route: Route,
    ) -> std::io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (ready, is_ready) = mpsc::channel();
        let bell = Arc::clone(&wake);
        let thread = std::thread::Builder::new().name("forwarder".to_owned()).spawn(move || {
            // Otherwise neighbours on the CPU delay packets by milliseconds, with it by tens of microseconds.
            let _ = ready.send(towpath_io::thread::become_realtime(PRIORITY).is_ok());
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            Worker::new(from, to, direction, route).run(&inbox, &bell);
        })?;
        let is_realtime = is_ready.recv().unwrap_or(false);
        Ok(Self { commands, wake, direction, thread: Some(thread), is_realtime })
    }

    pub(super) fn follow(&self, route: Route) {
        self.send(Command::Follow(Box::new(route)));
    }

    pub(super) fn change(&self, conditions: &Conditions) {
        self.send(Command::Change(Box::new(conditions.clone())));
    }

    pub(super) fn break_off(&self, length: Duration) {
        self.send(Command::BreakOff(length));
    }

    pub(super) fn traffic(&self) -> Traffic {
        let (tell, told) = mpsc::channel();
        self.send(Command::Tell(tell));
        told.recv().unwrap_or_else(|_| Traffic::new(self.direction))
    }

    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    from: Arc<Device>,
    to: Arc<Device>,
    direction: Direction,
    route: Route,
    /// Packets on their way, soonest first.
    travelling: BinaryHeap<Reverse<Travelling>>,
    travelling_bytes: usize,
    sequence: u64,
    traffic: Traffic,
    cpu_base_ns: u64,
}

/// A packet on its way; those of one instant keep their order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Travelling {
    at: Instant,
    sequence: u64,
    bytes: Vec<u8>,
}

impl Worker {
    fn new(from: Arc<Device>, to: Arc<Device>, direction: Direction, route: Route) -> Self {
        Self {
            from,
            to,
            direction,
            route,
            travelling: BinaryHeap::new(),
            travelling_bytes: 0,
            sequence: 0,
            traffic: Traffic::new(direction),
            cpu_base_ns: meter::thread_cpu_ns(),
        }
    }

    fn run(&mut self, inbox: &mpsc::Receiver<Command>, bell: &OwnedFd) {
        let mut buffer = vec![0; 80 * 1024];
        loop {
            let timeout =
                self.travelling.peek().map(|Reverse(next)| timespec(next.at.since(self.now())));
            let device = Arc::clone(&self.from);
            let mut watched =
                [PollFd::new(&device, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
            let _ = poll(&mut watched, timeout.as_ref());
            if !watched[1].revents().is_empty() {
                let _ = rustix::io::read(bell, &mut [0; 8]);
                if !self.obey(inbox) {
                    return;
                }
            }
            // A bounded number, so that what is due is not kept waiting.
            for _ in 0..64 {
                let Ok(length) = self.from.read(&mut buffer) else { break };
                self.take(&buffer[..length]);
            }
            self.release();
        }
    }

    fn obey(&mut self, inbox: &mpsc::Receiver<Command>) -> bool {
        for command in inbox.try_iter() {
            match command {
                Command::Stop => return false,
                Command::Tell(told) => {
                    let mut traffic = self.traffic.clone();
                    traffic.cpu_ns = meter::thread_cpu_ns() - self.cpu_base_ns;
                    let _ = told.send(traffic);
                }
                Command::Change(conditions) => self.route.path.change(*conditions),
                Command::BreakOff(length) => {
                    let now = self.now();
                    self.route.path.break_off(now, length);
                }
                Command::Follow(route) => {
                    self.route = *route;
                    self.travelling.clear();
                    self.travelling_bytes = 0;
                    self.traffic = Traffic::new(self.direction);
                    self.cpu_base_ns = meter::thread_cpu_ns();
                }
            }
        }
        true
    }

    /// Decides about every segment of a packet, and sends survivors that travel together as one.
    fn take(&mut self, bytes: &[u8]) {
        let Some(packet) = Packet::parse(bytes) else {
            self.traffic.ignored += 1;
            return;
        };
        let now = self.now();
        let is_ect = packet.is_ect();
        let mut run: Option<Run> = None;
        for index in 0..packet.segments() {
            let size = packet.segment_size(index);
            let verdict = self.route.path.send_packet(size as u64, is_ect, now);
            self.count(size, now, verdict);
            let delivered = match verdict {
                Verdict::Deliver { at, again, is_marked } => {
                    if let Some(again) = again {
                        self.send(cut(&packet, index..index + 1, is_marked), again, now);
                    }
                    Some((at, is_marked))
                }
                Verdict::Lost | Verdict::QueueFull | Verdict::Managed | Verdict::Outage => None,
            };
            run = match (run, delivered) {
                (Some(run), Some((at, is_marked)))
                    if is_marked == run.is_marked
                        && at >= run.last
                        && at.since(run.first) <= TOGETHER =>
                {
                    Some(Run { last: at, ..run })
                }
                (before, next) => {
                    if let Some(run) = before {
                        self.send(cut(&packet, run.start..index, run.is_marked), run.last, now);
                    }
                    next.map(|(at, is_marked)| Run { start: index, first: at, last: at, is_marked })
                }
            };
        }
        if let Some(run) = run {
            let is_whole = run.start == 0 && !run.is_marked;
            if is_whole && run.last <= now && self.travelling.is_empty() {
                // Nothing to wait for and nothing to cut: no copy either.
                self.write(bytes, run.last);
            } else {
                let rest = run.start..packet.segments();
                self.send(cut(&packet, rest, run.is_marked), run.last, now);
            }
        }
    }

    fn send(&mut self, bytes: Vec<u8>, at: Instant, now: Instant) {
        if at <= now && self.travelling.is_empty() {
            self.write(&bytes, at);
            return;
        }
        if self.travelling_bytes + bytes.len() > TRAVELLING_LIMIT {
            self.traffic.overflowed += 1;
            return;
        }
        self.travelling_bytes += bytes.len();
        self.sequence += 1;
        self.travelling.push(Reverse(Travelling { at, sequence: self.sequence, bytes }));
    }

    fn release(&mut self) {
        let mut now = self.now();
        while self.travelling.peek().is_some_and(|Reverse(next)| next.at <= now) {
            let Some(Reverse(next)) = self.travelling.pop() else { return };
            self.travelling_bytes -= next.bytes.len();
            self.write(&next.bytes, next.at);
            now = self.now();
        }
    }

    fn write(&mut self, bytes: &[u8], at: Instant) {
        if self.to.write(bytes, self.direction == Direction::Down).is_err() {
            self.traffic.unwritable += 1;
        }
        self.traffic.lateness.record(self.now().since(at).as_nanos() as u64);
    }

    fn count(&mut self, size: usize, now: Instant, verdict: Verdict) {
        let traffic = &mut self.traffic;
        traffic.packets += 1;
        traffic.bytes += size as u64;
        let fate = match verdict {
            Verdict::Deliver { at, again, is_marked } => {
                traffic.delivered += 1;
                traffic.marked += u64::from(is_marked);
                traffic.delivered_bytes += size as u64;
                traffic.duplicated += u64::from(again.is_some());
                Fate::Delivered(at)
            }
            Verdict::Lost => {
                traffic.lost += 1;
                Fate::Lost
            }
            Verdict::QueueFull => {
                traffic.queue_full += 1;
                Fate::QueueFull
            }
            Verdict::Managed => {
                traffic.managed += 1;
                Fate::Managed
            }
            Verdict::Outage => {
                traffic.outage += 1;
                Fate::Outage
            }
        };
        if self.route.is_logged {
            if traffic.log.len() < LOG_LIMIT {
                traffic.log.push(Record {
                    at: now,
                    direction: self.direction,
                    size: size as u32,
                    fate,
                });
            } else {
                traffic.unlogged += 1;
            }
        }
        traffic.most_queued_bytes =
            traffic.most_queued_bytes.max(self.route.path.queued_bytes(now));
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.route.epoch.elapsed().as_nanos() as u64)
    }
}

/// Segments of one super-packet that travel together.
struct Run {
    start: usize,
    first: Instant,
    last: Instant,
    is_marked: bool,
}

fn cut(packet: &Packet<'_>, segments: std::ops::Range<usize>, is_marked: bool) -> Vec<u8> {
    let mut bytes = packet.slice(segments);
    if is_marked {
        mark(&mut bytes);
    }
    bytes
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().min(3600) as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Above all ordinary threads, and below those of the kernel that serve interrupts (50).
const PRIORITY: i32 = 10;
/// Segments of one super-packet that are due within this time stay together.
const TOGETHER: Duration = Duration::from_micros(20);
/// Bytes on their way in one direction; what is more is dropped and counted.
const TRAVELLING_LIMIT: usize = 256 << 20;
/// Packets logged in one direction.
const LOG_LIMIT: usize = 4 << 20;
