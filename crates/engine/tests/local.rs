//! An app's requests through the engine's local interface in virtual time: each ends once, with its own answer, and an
//! outage at any moment costs no more than the objective.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "local/back_off.rs"]
mod back_off;
#[path = "local/connecting.rs"]
mod connecting;
#[path = "local/flow.rs"]
mod flow;
#[path = "local/hedge.rs"]
mod hedge;
#[path = "local/http2.rs"]
mod http2;
#[path = "local/priority.rs"]
mod priority;
#[path = "local/proxy.rs"]
mod proxy;
#[path = "local/resume.rs"]
mod resume;
mod scene;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::client::{Ask, asks};
use scene::origin::{Habits, Log, origin, pattern, text};
use towpath_engine::client::timeouts::Network;
use towpath_engine::local::message::{
    CallId, Command, Error, Event, Layer, Limit, NetworkChange, Open, Options, Origin, Outcome,
    Repeat, Settings, Transport,
};
use towpath_engine::local::report::{AttemptOutcome, Report};
use towpath_engine::message::{FromWorker, Message, ToWorker};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::head::Head;
use towpath_proto::{Failure, Input, Instant, Machine, Output};
use towpath_sim::{Faults, NodeId, Random, World, for_each_seed};

const ORIGIN: ([u8; 4], u16) = ([10, 0, 1, 1], 8080);
const SECOND: ([u8; 4], u16) = ([10, 0, 1, 2], 8080);

/// An app with an engine in a world.
struct App {
    world: World<Message>,
    worker: NodeId,
    next: u64,
    calls: BTreeMap<CallId, Call>,
}

/// What the app knows of one of its requests.
#[derive(Default)]
struct Call {
    id: String,
    body: Bytes,
    sent: usize,
    room: usize,
    told_end: bool,
    head: Option<Head>,
    received: Vec<u8>,
    /// Bytes that were received and that the app has not said to have used.
    held: usize,
    most_held: usize,
    ends: Vec<(Instant, Outcome, Box<Report>)>,
}

impl Call {
    fn outcome(&self) -> Outcome {
        assert_eq!(self.ends.len(), 1, "{} ends once", self.id);
        self.ends[0].1
    }

    fn report(&self) -> &Report {
        &self.ends[0].2
    }

    fn ended_at(&self) -> Instant {
        self.ends[0].0
    }
}

impl App {
    fn new(seed: u64, settings: Settings) -> Self {
        Self::with(seed, settings, |worker| worker)
    }

    /// With something around the engine.
    fn with<M>(seed: u64, settings: Settings, wrap: impl FnOnce(Worker) -> M) -> Self
    where
        M: Machine<Message = Message> + 'static,
    {
        let mut world: World<Message> = World::new(seed);
        world.set_faults(path());
        let worker = world.add(wrap(Worker::new(WorkerOptions {
            index: 0,
            workers: 1,
            seed,
            registry: Arc::new(Registry::default()),
            hostname: "here".into(),
        })));
        let mut app = Self { world, worker, next: 0, calls: BTreeMap::new() };
        app.command(Command::Settings(Box::new(settings)));
        app
    }

    fn serve(&mut self, at: ([u8; 4], u16), habits: Habits) -> Log {
        let log = Log::default();
        self.world.add(origin(scene::address(at), Rc::clone(&log), habits));
        log
    }

    fn command(&mut self, command: Command) {
        self.world.send(self.worker, Message::To(ToWorker::Local(command)));
    }

    fn get(&mut self, size: usize, options: Options) -> CallId {
        let ask = Ask {
            id: format!("g{}", self.next),
            method: "GET",
            body: 0,
            chunked: false,
            answer: size,
            answer_chunked: false,
            pause: Duration::ZERO,
        };
        self.ask(&ask, "10.0.1.1", options)
    }

    fn get_from(&mut self, host: &str) -> CallId {
        let ask = Ask {
            id: format!("g{}", self.next),
            method: "GET",
            body: 0,
            chunked: false,
            answer: 10,
            answer_chunked: false,
            pause: Duration::ZERO,
        };
        self.ask(&ask, host, Options::default())
    }

    fn ask(&mut self, ask: &Ask, host: &str, options: Options) -> CallId {
        let call = CallId(self.next);
        self.next += 1;
        let mut request = Head::request(ask.method.as_bytes(), b"http", host.as_bytes(), b"/");
        request.append_bytes(b"x-id", ask.id.as_bytes());
        request.append_bytes(b"x-size", ask.answer.to_string().as_bytes());
        request.append_bytes(b"x-body", ask.body.to_string().as_bytes());
        request.append_bytes(b"x-chunked", if ask.answer_chunked { b"1" } else { b"0" });
        if !ask.chunked && ask.body > 0 {
            request.append_bytes(b"content-length", ask.body.to_string().as_bytes());
        }
        let body = pattern(&ask.id, ask.body);
        let state = Call { id: ask.id.clone(), body, room: 16 * 1024, ..Call::default() };
        self.calls.insert(call, state);
        let origin = Origin { host: host.into(), port: ORIGIN.1, transport: Transport::Plain };
        let end = ask.body == 0;
        let open = Open { call, request, body: Bytes::new(), end, origin, options };
        self.command(Command::Open(Box::new(open)));
        call
    }

    /// Lets the world go on, with the app answering.
    fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            let slice = Duration::from_millis(5).min(end - self.world.now());
            self.world.run_for(slice);
            self.serve_events();
        }
    }

    fn run_until_ended(&mut self, call: CallId, limit: Duration) {
        let end = self.world.now() + limit;
        while self.calls[&call].ends.is_empty() && self.world.now() < end {
            self.run(Duration::from_millis(5));
        }
    }

    fn serve_events(&mut self) {
        for (at, message) in self.world.take_messages(self.worker) {
            if let Message::From(FromWorker::Local(event)) = message {
                self.on_event(event, at);
            }
        }
        let mut commands = Vec::new();
        for (&call, state) in &mut self.calls {
            if !state.ends.is_empty() {
                continue;
            }
            let piece = state.room.min(state.body.len() - state.sent).min(3000);
            if piece > 0 {
                let chunk = state.body.slice(state.sent..state.sent + piece);
                state.sent += piece;
                state.room -= piece;
                commands.push(Command::Data { call, chunk });
            }
            if !state.body.is_empty() && state.sent == state.body.len() && !state.told_end {
                state.told_end = true;
                commands.push(Command::End { call });
            }
            if state.held > 0 {
                let bytes = std::mem::take(&mut state.held);
                commands.push(Command::Consumed { call, bytes });
            }
        }
        commands.into_iter().for_each(|command| self.command(command));
    }

    fn on_event(&mut self, event: Event, at: Instant) {
        match event {
            Event::Head { call, head } => {
                let call = self.calls.get_mut(&call).unwrap();
                assert!(call.head.is_none() && call.ends.is_empty());
                call.head = Some(head);
            }
            Event::Data { call, chunk } => {
                let call = self.calls.get_mut(&call).unwrap();
                assert!(call.head.is_some() && call.ends.is_empty() && !chunk.is_empty());
                call.received.extend_from_slice(&chunk);
                call.held += chunk.len();
                call.most_held = call.most_held.max(call.held);
            }
            Event::Room { call, bytes } => {
                self.calls.get_mut(&call).unwrap().room += bytes;
            }
            Event::Ended { call, outcome, report } => {
                let call = self.calls.get_mut(&call).unwrap();
                call.ends.push((at, outcome, report));
            }
            Event::Trailers { .. } => {}
            Event::Resolve { .. } | Event::Found(_) | Event::Saved(_) => panic!("it was not asked"),
        }
    }

    fn check_answered(&self, call: CallId, ask: &Ask) {
        let state = &self.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete, "{ask:?} {:?}", state.report());
        let head = state.head.as_ref().unwrap();
        assert_eq!(head.status(), 200);
        assert_eq!(text(head, b"x-id"), ask.id);
        let wanted = if ask.method == "HEAD" { 0 } else { ask.answer };
        assert_eq!(state.received, pattern(&ask.id, wanted), "{ask:?}");
    }

    /// The network swallows everything from here on.
    fn lose_network(&mut self) {
        self.world.vanish_connections();
        self.world.set_faults(Faults { hang_permille: 1000, ..path() });
    }

    fn restore_network(&mut self) {
        self.world.set_faults(path());
    }
}

fn path() -> Faults {
    let latency = Duration::from_millis(20)..=Duration::from_millis(25);
    Faults { latency, segment_bytes: 1400..=1400, ..Faults::none() }
}

/// Writes down what the engine sends and pushes.
struct Watched {
    worker: Worker,
    seen: Rc<RefCell<Vec<Wish>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wish {
    Send(usize),
    Push,
}

impl Machine for Watched {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        self.worker.handle(input, now);
    }

    fn poll(&mut self, now: Instant) -> Output<Message> {
        let output = self.worker.poll(now);
        match &output {
            Output::Send { chunk, .. } => self.seen.borrow_mut().push(Wish::Send(chunk.len())),
            Output::Push { .. } => self.seen.borrow_mut().push(Wish::Push),
            _ => {}
        }
        output
    }
}

/// What is sent for two uploads of a size, one after the other.
fn wishes_for(body: usize) -> Vec<Wish> {
    let seen = Rc::default();
    let mut app =
        App::with(1, Settings::default(), |worker| Watched { worker, seen: Rc::clone(&seen) });
    let _log = app.serve(ORIGIN, Habits::default());
    for number in 0..2 {
        let ask = Ask {
            id: format!("u{number}"),
            method: "POST",
            body,
            chunked: false,
            answer: 10,
            answer_chunked: false,
            pause: Duration::ZERO,
        };
        let options = Options { body_bytes: body as u64, ..Options::default() };
        let call = app.ask(&ask, "10.0.1.1", options);
        app.run_until_ended(call, Duration::from_secs(10));
        assert_eq!(app.calls[&call].outcome(), Outcome::Complete);
    }
    seen.take()
}

#[test]
fn the_head_of_a_large_upload_on_a_new_connection_goes_ahead() {
    let wishes = wishes_for(64 * 1024);
    let pushes = wishes.iter().filter(|wish| **wish == Wish::Push).count();
    assert_eq!(pushes, 1, "once for each connection: {wishes:?}");
    let [Wish::Send(head), Wish::Push, Wish::Send(_), ..] = wishes[..] else {
        panic!("head, push, body are wanted: {:?}", &wishes[..4]);
    };
    assert!(head < 500, "the head alone, not {head} bytes");
    // What the initial window holds needs nothing.
    assert!(!wishes_for(10 * 1024).contains(&Wish::Push));
}

#[test]
fn forty_origins_are_back_with_the_first_of_them() {
    for_each_seed(10, |seed| {
        let mut app = App::new(seed, Settings::default());
        let hosts: Vec<String> = (1..=40).map(|number| format!("10.0.1.{number}")).collect();
        (1..=40)
            .for_each(|number| drop(app.serve(([10, 0, 1, number], ORIGIN.1), Habits::default())));
        app.lose_network();
        let calls: Vec<CallId> = hosts.iter().map(|host| app.get_from(host)).collect();
        app.run(Duration::from_millis(13_700));
        app.restore_network();
        let back = app.world.now();
        app.run(Duration::from_secs(5));
        for call in calls {
            assert_eq!(app.calls[&call].outcome(), Outcome::Complete);
            let took = app.calls[&call].ended_at() - back;
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
    });
}

#[test]
fn idle_connections_to_all_origins_together_have_a_limit() {
    let mut app = App::new(1, Settings { max_idle: 5, ..Settings::default() });
    for number in 1..=20 {
        drop(app.serve(([10, 0, 1, number], ORIGIN.1), Habits::default()));
        let call = app.get_from(&format!("10.0.1.{number}"));
        app.run_until_ended(call, Duration::from_secs(5));
        assert_eq!(app.calls[&call].outcome(), Outcome::Complete);
        app.run(Duration::from_millis(500));
        let open = app.world.machine::<Worker>(app.worker).connections();
        assert_eq!(open, usize::from(number).min(5));
    }
    // Those that were used last are there yet.
    let again = app.get_from("10.0.1.20");
    app.run_until_ended(again, Duration::from_secs(5));
    assert!(app.calls[&again].report().tries[0].reused);
}

#[test]
fn everything_is_answered_when_nothing_breaks() {
    for_each_seed(25, |seed| {
        let mut app = App::new(seed, Settings { window_bytes: 8 * 1024, ..Settings::default() });
        let log = app.serve(ORIGIN, Habits::default());
        let mut random = Random::new(seed);
        let list = asks(&mut random, 0, 12, 40_000);
        let calls: Vec<CallId> =
            list.iter().map(|ask| app.ask(ask, "10.0.1.1", Options::default())).collect();
        app.run(Duration::from_secs(20));
        for (call, ask) in calls.iter().zip(&list) {
            app.check_answered(*call, ask);
            assert_eq!(log.borrow().times[&ask.id], 1);
            let most = app.calls[call].most_held;
            assert!(most <= 8 * 1024 + 66_000, "an app that is slow holds the answer up: {most}");
        }
        assert_eq!(log.borrow().wrong_bodies, 0);
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn whatever_breaks_each_request_ends_once_and_none_is_done_twice() {
    for_each_seed(300, |seed| {
        let mut app = App::new(seed, Settings::default());
        let faults = if seed % 2 == 0 { Faults::lively() } else { Faults::harsh() };
        app.world.set_faults(faults);
        let habits = Habits {
            close_after: (seed % 3 == 0).then_some(2),
            idle_close: (seed % 5 == 0).then_some(Duration::from_millis(15)),
            ..Habits::default()
        };
        let log = app.serve(ORIGIN, habits);
        let mut random = Random::new(seed);
        let list = asks(&mut random, 0, 10, 4_000);
        let mut calls = Vec::new();
        for ask in &list {
            calls.push(app.ask(ask, "10.0.1.1", Options::default()));
            app.run(Duration::from_millis(random.below(300)));
        }
        app.run(Duration::from_secs(70));
        for (call, ask) in calls.iter().zip(&list) {
            let outcome = app.calls[call].outcome();
            let times = log.borrow().times.get(&ask.id).copied().unwrap_or(0);
            if matches!(ask.method, "POST") {
                assert!(times <= 1, "{ask:?} was done {times} times");
            }
            if outcome == Outcome::Complete {
                app.check_answered(*call, ask);
            }
        }
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn an_outage_while_connecting_costs_less_than_a_second_after_it() {
    for_each_seed(300, |seed| {
        let mut random = Random::new(seed);
        let length = Duration::from_millis(1_000 + random.below(35_000));
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, Habits::default());
        app.lose_network();
        app.world.run_for(Duration::from_millis(1));
        let call = app.get(500, Options::default());
        app.run(length);
        app.restore_network();
        let back = app.world.now();
        app.run_until_ended(call, Duration::from_secs(20));
        assert_eq!(app.calls[&call].outcome(), Outcome::Complete);
        let after = app.calls[&call].ended_at() - back;
        assert!(after < Duration::from_millis(700), "{after:?} after {length:?}");
    });
}

#[test]
fn an_outage_on_an_idle_pooled_connection_costs_less_than_a_second_after_it() {
    for_each_seed(300, |seed| {
        let mut random = Random::new(seed);
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, Habits::default());
        let first = app.get(100, Options::default());
        app.run(Duration::from_secs(2));
        assert_eq!(app.calls[&first].outcome(), Outcome::Complete);
        app.lose_network();
        let call = app.get(100, Options::default());
        let length = Duration::from_millis(3_000 + random.below(33_000));
        app.run(length);
        app.restore_network();
        let back = app.world.now();
        app.run_until_ended(call, Duration::from_secs(20));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete, "{:?}", state.report());
        let after = state.ended_at() - back;
        assert!(after < Duration::from_millis(700), "{after:?} after {length:?}");
        assert_eq!(state.report().redone, 1, "{:?}", state.report());
        assert!(state.report().tries[0].reused);
        assert_eq!(log.borrow().times[&state.id], 1);
    });
}

#[test]
fn an_answer_that_an_outage_swallowed_is_asked_for_again_after_it() {
    for_each_seed(200, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, Habits::default());
        let call = app.get(100, Options::default());
        // The request is out and acknowledged, the answer under way.
        app.world.run_for(Duration::from_millis(80));
        app.lose_network();
        app.run(Duration::from_millis(8_000 + seed * 20));
        app.restore_network();
        let back = app.world.now();
        app.run_until_ended(call, Duration::from_secs(20));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete, "{:?}", state.report());
        assert_eq!(state.report().redone, 1);
        assert!(state.ended_at() - back < Duration::from_millis(900), "{:?}", state.report());
    });
}

#[test]
fn an_answer_that_comes_after_an_outage_counts_where_the_one_asked_anew_does_not() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = Log::default();
        // Of the two that reach it, the same request both, the second is never answered.
        let habits = Habits { forgets: Some(2), ..Habits::default() };
        let server = origin(scene::address(ORIGIN), Rc::clone(&log), habits);
        let server = app.world.add(server);
        let call = app.get(500, Options::default());
        app.world.run_for(Duration::from_millis(50));
        // What is connected stays so, nothing comes over it, and nothing else connects; for longer than an answer may
        // take where there is a network.
        let outage = Duration::from_millis(6_000 + seed * 150);
        app.world.freeze(server, outage + Duration::from_millis(600));
        app.world.set_faults(Faults { hang_permille: 1000, ..path() });
        app.run(outage);
        app.restore_network();
        let back = app.world.now();
        app.run_until_ended(call, Duration::from_secs(5));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete, "{:?}", state.report());
        assert!(state.ended_at() - back < Duration::from_millis(700), "{:?}", state.report());
        assert_eq!(state.received, pattern(&state.id, 500));
        let report = state.report();
        assert_eq!((report.redone, report.hedges, report.tries.len()), (1, 0, 2), "{report:?}");
        let reset_reasons: Vec<&str> = report.tries.iter().map(|each| each.reset_reason).collect();
        let late = "another attempt answered first";
        assert!(
            reset_reasons == ["", late] || reset_reasons == [late, ""],
            "{reset_reasons:?} {report:?}"
        );
        assert_eq!(log.borrow().times[&state.id], 2);
        app.run(Duration::from_secs(1));
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn an_old_answer_that_is_given_up_leaves_the_new_one_all_its_retries() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, Habits { forgets: Some(1), ..Habits::default() });
        drop(log);
        let call = app.get(500, Options::default());
        app.world.run_for(Duration::from_millis(80));
        app.world.set_faults(Faults { hang_permille: 1000, ..path() });
        app.run(Duration::from_millis(4_000 + seed * 10));
        app.restore_network();
        app.run_until_ended(call, Duration::from_secs(40));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Failed(Error::TimedOut(Layer::FirstByte)));
        let report = state.report();
        assert_eq!((report.redone, report.retries), (1, 2), "{report:?}");
    });
}

#[test]
fn what_must_not_be_repeated_is_not_moved() {
    for_each_seed(50, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, Habits::default());
        let options = Options {
            repeat: Repeat::Never,
            total: Some(Duration::from_secs(20)),
            ..Options::default()
        };
        let first = app.get(100, Options::default());
        app.run_until_ended(first, Duration::from_secs(2));
        let call = app.get(100, options);
        app.world.run_for(Duration::from_millis(30));
        app.lose_network();
        app.run(Duration::from_secs(5));
        app.restore_network();
        app.run(Duration::from_secs(30));
        let state = &app.calls[&call];
        let outcome = state.outcome();
        assert!(
            matches!(outcome, Outcome::Failed(Error::TimedOut(_))),
            "{outcome:?} {:?}",
            state.report()
        );
        assert!(log.borrow().times.get(&state.id).copied().unwrap_or(0) <= 1);
    });
}

#[test]
fn a_slow_server_is_not_asked_twice() {
    for_each_seed(30, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, Habits { silent: true, ..Habits::default() });
        let options =
            Options { first_byte: Some(Duration::from_secs(10)), retries: 0, ..Options::default() };
        let call = app.get(100, options);
        app.run(Duration::from_secs(15));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Failed(Error::TimedOut(Layer::FirstByte)));
        assert_eq!(state.report().fired, Some(Layer::FirstByte));
        assert_eq!(log.borrow().times[&state.id], 1, "{:?}", state.report());
    });
}

#[test]
fn without_a_listener_it_fails_at_once() {
    for_each_seed(50, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.world.set_faults(path());
        let call = app.get(100, Options::default());
        app.run(Duration::from_secs(1));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Failed(Error::Connect(Failure::Refused)));
        let attempts = &state.report().attempts;
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].outcome, Some(AttemptOutcome::Failed(Failure::Refused)));
        // The next one is tried as well, at once.
        let next = app.get(100, Options::default());
        app.run(Duration::from_secs(1));
        assert_eq!(app.calls[&next].report().attempts.len(), 1);
    });
}

#[test]
fn names_are_resolved_once_and_families_race() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, Habits::default());
        app.world.set_faults(path());
        let broken = scene::address(SECOND);
        app.world.set_faults_to(broken, Faults { hang_permille: 1000, ..path() });
        app.world.set_name("app.test", &[SECOND.0.into(), ORIGIN.0.into()]);
        let ask = |number: u32| Ask {
            id: format!("n{number}"),
            method: "GET",
            body: 0,
            chunked: false,
            answer: 10,
            answer_chunked: true,
            pause: Duration::ZERO,
        };
        let call = app.ask(&ask(0), "app.test", Options::default());
        app.run_until_ended(call, Duration::from_secs(5));
        app.check_answered(call, &ask(0));
        let report = app.calls[&call].report();
        assert_eq!(report.lookups.len(), 1);
        assert_eq!(report.lookups[0].outcome, Some(Ok(2)));
        assert_eq!(report.attempts.len(), 2, "{report:?}");
        assert!(app.calls[&call].ended_at() < Instant::ZERO + Duration::from_millis(500));
        let again = app.ask(&ask(1), "app.test", Options::default());
        app.run_until_ended(again, Duration::from_secs(5));
        assert_eq!(app.calls[&again].report().lookups, []);
        let missing = app.ask(&ask(2), "nowhere.test", Options::default());
        app.run_until_ended(missing, Duration::from_secs(5));
        let outcome = app.calls[&missing].outcome();
        assert_eq!(outcome, Outcome::Failed(Error::Resolve(Failure::NoSuchName)));
    });
}

#[test]
fn without_a_network_requests_wait_or_fail_as_asked() {
    for_each_seed(50, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, Habits::default());
        let network = |label: &str, online| {
            let change = NetworkChange {
                label: label.into(),
                kind: Network::Mobile,
                online,
                spares_loopback: false,
            };
            Command::Network(change)
        };
        app.command(network("", false));
        let fails = app.get(10, Options::default());
        let waits = app.get(10, Options { waits: true, ..Options::default() });
        app.run(Duration::from_secs(7));
        assert_eq!(app.calls[&fails].outcome(), Outcome::Failed(Error::Offline));
        assert!(app.calls[&waits].ends.is_empty());
        app.command(network("train", true));
        let back = app.world.now();
        app.run_until_ended(waits, Duration::from_secs(5));
        assert_eq!(app.calls[&waits].outcome(), Outcome::Complete);
        assert!(app.calls[&waits].ended_at() - back < Duration::from_millis(150));
    });
}

#[test]
fn a_request_moves_to_the_new_network() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, Habits::default());
        let first = app.get(10, Options::default());
        app.run_until_ended(first, Duration::from_secs(2));
        // The old network is gone, the platform knows, the new one is there.
        app.world.vanish_connections();
        let call = app.get(10, Options::default());
        app.run(Duration::from_millis(100));
        let change = NetworkChange {
            label: "other".into(),
            kind: Network::Fixed,
            online: true,
            spares_loopback: false,
        };
        app.command(Command::Network(change));
        let told = app.world.now();
        app.run_until_ended(call, Duration::from_secs(5));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete);
        assert!(state.ended_at() - told < Duration::from_millis(200), "{:?}", state.report());
        assert_eq!(state.report().redone, 1);
    });
}

#[test]
fn a_request_that_is_taken_back_ends_and_leaves_nothing() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, Habits::default());
        app.world.set_faults(path());
        let call = app.get(100_000, Options::default());
        app.run(Duration::from_millis(seed * 2));
        app.command(Command::Cancel { call });
        app.command(Command::Cancel { call });
        app.run(Duration::from_secs(1));
        let outcome = app.calls[&call].outcome();
        assert!(matches!(outcome, Outcome::Failed(Error::Cancelled) | Outcome::Complete));
        let worker = app.world.machine::<Worker>(app.worker);
        assert_eq!(worker.streams(), 0);
        app.run(Duration::from_secs(90));
        assert_eq!(app.world.machine::<Worker>(app.worker).connections(), 0);
    });
}

#[test]
fn nothing_wakes_an_idle_engine() {
    let mut app = App::new(1, Settings::default());
    app.serve(ORIGIN, Habits::default());
    let call = app.get(100, Options::default());
    app.run_until_ended(call, Duration::from_secs(2));
    app.run(Duration::from_secs(90));
    assert!(app.world.run_until_quiet(Duration::from_secs(1)), "no timer is left");
}

#[test]
fn limits_hold_at_the_limit_and_one_past() {
    let mut app = App::new(1, Settings { max_calls: 2, ..Settings::default() });
    app.serve(ORIGIN, Habits { silent: true, ..Habits::default() });
    let calls: Vec<CallId> = (0..3).map(|_| app.get(10, Options::default())).collect();
    app.run(Duration::from_secs(1));
    assert!(app.calls[&calls[0]].ends.is_empty() && app.calls[&calls[1]].ends.is_empty());
    assert_eq!(app.calls[&calls[2]].outcome(), Outcome::Failed(Error::Overflow));
}
