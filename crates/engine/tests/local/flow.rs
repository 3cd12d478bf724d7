//! A connection over a long path has little under way at first, in either direction.

use towpath_proto::{FlowLimit, PathFacts};

use super::*;

const HELD: FlowLimit = FlowLimit::Receive(Some(32 << 10));
const FREE: FlowLimit = FlowLimit::Receive(None);

fn long_way() -> Faults {
    let latency = Duration::from_millis(60)..=Duration::from_millis(65);
    Faults { latency, buffer_bytes: 262_144..=262_144, ..path() }
}

fn limits(app: &App, call: CallId) -> Vec<FlowLimit> {
    app.calls[&call].report().limits.iter().map(|note| note.limit).collect()
}

#[test]
fn a_long_way_gets_a_small_window_until_it_shows_that_it_bears_more() {
    for_each_seed(20, |seed| {
        // At the second request the server knows the path.
        let small_first = [(500, &[HELD][..]), (500, &[FREE]), (100_000, &[])];
        let large_first = [(100_000, &[HELD, FREE][..]), (100_000, &[])];
        for sizes in [&small_first[..], &large_first] {
            let mut app = App::new(seed, Settings::default());
            let _log = app.serve(ORIGIN, Habits::default());
            app.world.set_faults(long_way());
            for (size, expected) in sizes {
                let call = app.get(*size, Options::default());
                app.run_until_ended(call, Duration::from_secs(10));
                assert_eq!(app.calls[&call].outcome(), Outcome::Complete);
                assert_eq!(limits(&app, call), *expected, "{size}");
            }
        }
    });
}

#[test]
fn a_connection_that_lost_its_race_has_a_small_window_for_its_first_request() {
    let settings = Settings { requests_per_connection: 1, ..Settings::default() };
    let mut app = App::new(1, settings);
    let _log = app.serve(ORIGIN, Habits::default());
    let latency = Duration::from_millis(150)..=Duration::from_millis(150);
    app.world.set_faults(Faults { latency, ..long_way() });
    // The second connection is there before the first answer.
    for tries in [2, 0] {
        let call = app.get(500, Options::default());
        app.run_until_ended(call, Duration::from_secs(10));
        assert_eq!(app.calls[&call].report().attempts.len(), tries);
        assert_eq!(limits(&app, call), [HELD]);
    }
}

#[test]
fn a_short_way_is_let_alone() {
    let mut app = App::new(1, Settings::default());
    let _log = app.serve(ORIGIN, Habits::default());
    let call = app.get(100_000, Options::default());
    app.run_until_ended(call, Duration::from_secs(10));
    assert_eq!(limits(&app, call), []);
}

/// Tells the engine of a path on which a queue stands for so many looks, and writes down what it bounds and when it
/// looks.
struct Queued {
    worker: Worker,
    until: u64,
    looks: Rc<RefCell<Vec<Instant>>>,
    seen: Rc<RefCell<Vec<FlowLimit>>>,
}

impl Machine for Queued {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        let input = match input {
            Input::Inspected { connection, .. } => {
                let look = self.looks.borrow().len() as u64;
                self.looks.borrow_mut().push(now);
                let least_round_trip = Duration::from_millis(120);
                let facts = PathFacts {
                    round_trip: least_round_trip * if look < self.until { 2 } else { 1 },
                    least_round_trip,
                    unacknowledged: 20,
                    acknowledged: look * 6_000,
                    delivery_rate: 90_000,
                    ..PathFacts::default()
                };
                Input::Inspected { connection, facts: Some(facts) }
            }
            other => other,
        };
        self.worker.handle(input, now);
    }

    fn poll(&mut self, now: Instant) -> Output<Message> {
        let output = self.worker.poll(now);
        if let Output::LimitFlow { limit, .. } = output {
            self.seen.borrow_mut().push(limit);
        }
        output
    }
}

/// What is bounded, what the report says of it, and the looks, for an upload that is never answered.
fn upload(body: usize, chunked: bool) -> (Vec<FlowLimit>, Vec<FlowLimit>, Vec<Duration>) {
    let (looks, seen) = (Rc::default(), Rc::default());
    let mut app = App::with(1, Settings::default(), |worker| Queued {
        worker,
        until: 8,
        looks: Rc::clone(&looks),
        seen: Rc::clone(&seen),
    });
    let _log = app.serve(ORIGIN, Habits { silent: true, ..Habits::default() });
    app.world.set_faults(long_way());
    let ask = Ask {
        id: "u".to_owned(),
        method: "POST",
        body,
        chunked,
        answer: 10,
        answer_chunked: false,
        pause: Duration::ZERO,
    };
    let body_bytes = if chunked { 0 } else { body as u64 };
    let total = Some(Duration::from_secs(5));
    let call = app.ask(&ask, "10.0.1.1", Options { body_bytes, total, ..Options::default() });
    app.run_until_ended(call, Duration::from_secs(10));
    let gaps = looks.borrow().windows(2).map(|pair: &[Instant]| pair[1] - pair[0]).collect();
    (seen.take(), limits(&app, call), gaps)
}

#[test]
fn a_large_upload_is_paced_as_long_as_a_queue_stands() {
    for chunked in [false, true] {
        let (seen, told, gaps) = upload(100_000, chunked);
        let paced = FlowLimit::Send(Some(90_000));
        assert_eq!(seen, [HELD, paced, FlowLimit::Send(None)], "chunked: {chunked}");
        assert_eq!(told, seen);
        let quarter = Duration::from_millis(30)..Duration::from_millis(33);
        assert!(gaps[..8].iter().all(|gap| quarter.contains(gap)), "{gaps:?}");
        // 256 KiB are acknowledged.
        assert!(gaps.iter().filter(|gap| quarter.contains(*gap)).count() < 45, "{gaps:?}");
    }
}

#[test]
fn a_small_upload_is_looked_at_no_more_often_than_any_request() {
    let (seen, _, gaps) = upload(14_000, false);
    assert_eq!(seen, [HELD]);
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(100)), "{gaps:?}");
}

/// Says that a peer's kernel takes a body, until some time; its server never answers.
struct Taken {
    worker: Worker,
    until: Instant,
}

impl Machine for Taken {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        let input = match input {
            Input::Inspected { connection, .. } => {
                let facts = PathFacts {
                    round_trip: Duration::from_millis(200),
                    unacknowledged: u32::from(now < self.until),
                    acknowledged: now.min(self.until).as_nanos() / 100_000,
                    since_ack: now.since(self.until),
                    ..PathFacts::default()
                };
                Input::Inspected { connection, facts: Some(facts) }
            }
            other => other,
        };
        self.worker.handle(input, now);
    }

    fn poll(&mut self, now: Instant) -> Output<Message> {
        self.worker.poll(now)
    }
}

/// When an upload that is taken for so long, and never answered, ends, and by which limit.
fn slow_upload(seconds: u64, options: Options) -> (Duration, Layer) {
    let until = Instant::ZERO + Duration::from_secs(seconds);
    let mut app = App::with(1, Settings::default(), |worker| Taken { worker, until });
    let _log = app.serve(ORIGIN, Habits { silent: true, ..Habits::default() });
    let ask = Ask {
        id: "u".to_owned(),
        method: "POST",
        body: 150_000,
        chunked: false,
        answer: 10,
        answer_chunked: false,
        pause: Duration::ZERO,
    };
    let call = app.ask(&ask, "10.0.1.1", Options { body_bytes: 150_000, ..options });
    app.run_until_ended(call, Duration::from_secs(300));
    let Outcome::Failed(Error::TimedOut(layer)) = app.calls[&call].outcome() else {
        panic!("{:?}", app.calls[&call].outcome());
    };
    (app.calls[&call].ended_at() - Instant::ZERO, layer)
}

#[test]
fn an_upload_may_take_as_long_as_it_moves() {
    // From its last byte 22 s, whenever that was.
    for seconds in [1, 40, 200] {
        let (ended, layer) = slow_upload(seconds, Options::default());
        let bound = Duration::from_secs(seconds + 22);
        assert_eq!(layer, Layer::FirstByte, "{seconds} s");
        assert!(ended >= bound && ended < bound + Duration::from_secs(2), "{seconds} s: {ended:?}");
    }
}

#[test]
fn an_upload_that_moves_is_ended_by_a_limit_on_everything() {
    let total = Some(Duration::from_secs(30));
    let (ended, layer) = slow_upload(40, Options { total, ..Options::default() });
    assert_eq!((ended.as_secs(), layer), (30, Layer::Total));
    let answer = Some(Duration::from_secs(10));
    let (ended, layer) = slow_upload(40, Options { answer, ..Options::default() });
    assert_eq!((ended.as_secs(), layer), (50, Layer::Total), "10 s after it last moved");
}
