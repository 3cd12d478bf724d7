//! Timers, lent threads, stopping.

use std::sync::mpsc::channel;
use std::time::Duration;

use towpath_io::SendError;
use towpath_proto::{Input, Instant, Machine, Output};

use super::scene::{PATIENCE, Scene};
use super::{Runner, Settings};

/// Asks for one deadline after another and says how late each was.
struct Ticker {
    wished: Option<Instant>,
    count: u64,
    said: Option<Duration>,
}

impl Machine for Ticker {
    type Message = Duration;

    fn handle(&mut self, input: Input<Duration>, now: Instant) {
        if let Input::Timeout = input {
            let wished = self.wished.take().expect("a deadline was wished");
            assert!(now >= wished, "early by {:?}", wished - now);
            self.said = Some(now - wished);
        }
    }

    fn poll(&mut self, now: Instant) -> Output<Duration> {
        if let Some(late) = self.said.take() {
            return Output::Message(late);
        }
        if self.wished.is_none() {
            self.count += 1;
            // A little above a whole millisecond: rounded down it would be early, rounded up late by nearly one.
            self.wished = Some(now + Duration::from_micros(1_001 + self.count % 4 * 1_087));
        }
        self.wished.map_or(Output::Idle, Output::Wait)
    }
}

pub fn timers_are_never_early_and_hardly_late<R: Runner>() {
    let (sender, receiver) = channel();
    let ticker = || Ticker { wished: None, count: 0, said: None };
    let running = R::start(ticker, Settings::default(), move |late| sender.send(late).unwrap());
    let (begun, mut best) = (std::time::Instant::now(), Duration::MAX);
    for number in 1.. {
        best = best.min(receiver.recv_timeout(PATIENCE).unwrap());
        // However busy the machine is, one of them is as punctual as the driver can be.
        if number >= 60 && best < Duration::from_micros(500) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "by {best:?} at least");
    }
    drop(running);
}

pub fn a_deadline_in_the_past_fires_at_once_and_once<R: Runner>() {
    let scene = Scene::new::<R>();
    scene.order(Output::Wait(Instant::ZERO));
    assert!(matches!(scene.told(), Input::Timeout));
    scene.quiet();
    scene.order(Output::Wait(Instant::FAR_FUTURE));
    scene.quiet();
}

pub fn a_later_wait_replaces_an_earlier_one<R: Runner>() {
    let scene = Scene::new::<R>();
    scene.order(Output::Wait(Instant::ZERO));
    let (told, now) = scene.strings.told_at();
    assert!(matches!(told, Input::Timeout));
    scene.order(Output::Wait(now + Duration::from_millis(50)));
    scene.order(Output::Wait(now + Duration::from_secs(100)));
    scene.quiet();
    scene.order(Output::Wait(now + Duration::from_millis(1)));
    let (told, at) = scene.strings.told_at();
    assert!(matches!(told, Input::Timeout) && at >= now + Duration::from_millis(1));
    scene.order(Output::Wait(at + Duration::from_millis(50)));
    scene.order(Output::Idle);
    scene.quiet();
}

/// Counts messages from several threads and reports each.
struct Counting {
    seen: std::collections::VecDeque<(u8, u32)>,
}

impl Machine for Counting {
    type Message = (u8, u32);

    fn handle(&mut self, input: Input<(u8, u32)>, _now: Instant) {
        if let Input::Message(message) = input {
            self.seen.push_back(message);
        }
    }

    fn poll(&mut self, _now: Instant) -> Output<(u8, u32)> {
        self.seen.pop_front().map_or(Output::Idle, Output::Message)
    }
}

pub fn a_flood_of_messages_arrives_whole_and_in_order<R: Runner>() {
    const EACH: u32 = 50_000;
    let (sender, receiver) = channel();
    let counting = || Counting { seen: std::collections::VecDeque::new() };
    let settings = Settings { max_messages: Some(1000), ..Settings::default() };
    let running = R::start(counting, settings, move |message| sender.send(message).unwrap());
    let senders: Vec<_> = (0..4_u8)
        .map(|thread| {
            let handle = running.handle.clone();
            std::thread::spawn(move || {
                let mut refused = 0_u64;
                for n in 0..EACH {
                    let mut message = (thread, n);
                    while let Err(SendError::Full(back)) = handle.send(message) {
                        message = back;
                        refused += 1;
                        std::thread::yield_now();
                    }
                }
                refused
            })
        })
        .collect();
    let mut next = [0; 4];
    for _ in 0..4 * EACH {
        let (thread, n) = receiver.recv_timeout(PATIENCE).unwrap();
        assert_eq!(n, next[usize::from(thread)]);
        next[usize::from(thread)] += 1;
    }
    for sender in senders {
        sender.join().unwrap();
    }
    assert_eq!(running.handle.counters().messages.value(), u64::from(4 * EACH));
}

pub fn messages_beyond_the_limit_and_after_the_end_come_back<R: Runner>() {
    let (sender, receiver) = channel();
    let (gate, closed) = channel::<()>();
    let counting = || Counting { seen: std::collections::VecDeque::new() };
    let settings = Settings { max_messages: Some(3), ..Settings::default() };
    let running = R::start(counting, settings, move |message| {
        sender.send(message).unwrap();
        // Holds the driver's thread until the test has filled the queue.
        let _ = closed.recv_timeout(PATIENCE);
    });
    running.handle.send((0, 0)).unwrap();
    assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), (0, 0));
    for n in 1..=3 {
        running.handle.send((0, n)).unwrap();
    }
    assert_eq!(running.handle.send((0, 4)), Err(SendError::Full((0, 4))));
    drop(gate);
    for n in 1..=3 {
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), (0, n));
    }
    let handle = running.handle.clone();
    drop(running);
    assert_eq!(handle.send((9, 9)), Err(SendError::Gone((9, 9))));
}
