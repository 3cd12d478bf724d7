//! The spans of streams: whole, nested, and of no consequence for what the worker does.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use scene::client::{Ending, Endings, asks, client};
use scene::origin::{Habits, Log, origin};
use scene::{HTTP, Plan, add_worker, address, drain_and_check, origin_address, retries};
use towpath_engine::message::{FromWorker, Message, SlowStream, ToWorker};
use towpath_engine::snapshot::route::RetryOn;
use towpath_sim::{Faults, Random, World};
use towpath_trace::{Capture, Options, PlaceView, SpanView, Value};

const CLIENTS: usize = 3;
const EACH: usize = 6;
const SLOW: Duration = Duration::from_millis(20);

#[test]
fn every_stream_has_spans_that_nest_and_recording_changes_nothing() {
    let mut retried = 0;
    for seed in 0..24 {
        let faults = if seed % 2 == 0 { Faults::none() } else { Faults::lively() };
        let plain = run(seed, &faults);
        let recording = Options::new().ring_bytes(8 << 20).start().unwrap();
        let traced = run(seed, &faults);
        let capture = recording.stop();
        assert_eq!(plain.endings, traced.endings, "seed {seed}");
        assert!(plain.slow.is_empty(), "a stream that is not traced has no spans to look at");

        let account = capture.account();
        assert_eq!((account.lost, account.beginless, account.unfinished), (0, 0, 0), "seed {seed}");
        assert_eq!((account.aside, account.split), (0, 0), "seed {seed}");
        let spans = capture.spans();
        let requests = by_track(&spans);
        let answered =
            traced.endings.values().flatten().filter(|it| **it != Ending::Broken).count();
        assert!(requests.len() >= answered, "seed {seed}");
        for spans in requests.values() {
            retried += usize::from(check_request(spans, seed));
        }
        let told = traced.slow.len();
        let marked = spans.iter().filter(|span| span.name == "slow request").count();
        assert_eq!(told, marked, "seed {seed}");
        check_connections(&capture, seed);
    }
    assert!(retried > 0, "some streams were tried twice");
}

struct Outcome {
    endings: BTreeMap<String, Vec<Ending>>,
    slow: Vec<SlowStream>,
}

/// Clients that ask origins through one worker that tries failed answers again.
fn run(seed: u64, faults: &Faults) -> Outcome {
    let mut random = Random::new(seed ^ 0x7ace);
    let mut world: World<Message> = World::new(seed);
    let log = Log::default();
    for number in 1..=2 {
        world.set_faults_to(origin_address(number), faults.clone());
        let habits = Habits { fail_every: Some(5), ..Habits::default() };
        world.add(origin(origin_address(number), Rc::clone(&log), habits));
    }
    world.set_faults(faults.clone());
    let mut plan = Plan::new(2);
    if seed.is_multiple_of(3) {
        // The worker ends connections, and waits for the client to end them too.
        plan.adjust_http = |http| http.max_requests_per_connection = 3;
    }
    plan.adjust_forward = |forward| {
        forward.retry = Some(std::sync::Arc::new(retries(RetryOn::STATUS_5XX, 2)));
    };
    let worker = add_worker(&mut world, seed, plan);
    world.send(worker, Message::To(ToWorker::ReportSlow { after: SLOW }));
    world.run_for(Duration::from_millis(1));
    let endings = Endings::default();
    for number in 0..CLIENTS {
        let list = asks(&mut random, number, EACH, 2_000);
        world.add(client(address(HTTP), list, Rc::clone(&endings)));
    }
    world.run_for(Duration::from_secs(3000));
    let said = world.take_messages(worker);
    let slow = said.into_iter().filter_map(|(_, message)| match message {
        Message::From(FromWorker::Slow(slow)) => Some(slow),
        Message::From(_) | Message::To(_) | Message::ToMonitor(_) | Message::FromMonitor(_) => None,
    });
    let slow = slow.collect();
    drain_and_check(&mut world, worker);
    let endings = endings.borrow().clone();
    Outcome { endings, slow }
}

/// The spans of each stream.
fn by_track<'a>(spans: &'a [SpanView<'a>]) -> HashMap<u64, Vec<&'a SpanView<'a>>> {
    let mut tracks: HashMap<u64, Vec<_>> = HashMap::new();
    for span in spans {
        if let PlaceView::Track(id) = span.place {
            tracks.entry(id).or_default().push(span);
        }
    }
    tracks.retain(|_, spans| spans[0].name == "request");
    tracks
}

/// One stream's parts follow each other without a gap; true if there was more than one attempt.
fn check_request(spans: &[&SpanView<'_>], seed: u64) -> bool {
    let (root, rest) = spans.split_first().unwrap();
    assert_eq!(root.depth, 0, "seed {seed}");
    let value =
        |wanted| root.values.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    assert!(matches!(value("method"), Some(Value::Text(_))), "seed {seed}: {root:?}");
    assert!(
        matches!(value("details"), Some(Value::Text(details)) if !details.is_empty()),
        "{root:?}"
    );
    let parts: Vec<_> =
        rest.iter().filter(|span| !matches!(span.name, "connect" | "slow request")).collect();
    let names: Vec<&str> = parts.iter().map(|span| span.name).collect();
    assert_eq!(names[..2], ["parse", "filters"], "seed {seed}");
    assert_eq!(names.last(), Some(&"record"), "seed {seed}: {names:?}");
    assert_eq!(parts[0].begin_ns, root.begin_ns);
    assert!(
        parts.windows(2).all(|pair| pair[0].end_ns == pair[1].begin_ns),
        "seed {seed}: {names:?}"
    );
    for (name, before) in [("send", "pool wait"), ("wait for first byte", "send"), ("body", "")] {
        for at in names.iter().enumerate().filter(|(_, it)| **it == name).map(|(at, _)| at) {
            let known = before.is_empty() || names[at - 1] == before;
            assert!(known, "seed {seed}: {name} follows {} in {names:?}", names[at - 1]);
        }
    }
    for connect in rest.iter().filter(|span| span.name == "connect") {
        let around = parts.iter().find(|part| {
            part.name == "pool wait"
                && part.begin_ns <= connect.begin_ns
                && connect.end_ns <= part.end_ns
        });
        assert!(around.is_some(), "seed {seed}: {connect:?} in {names:?}");
    }
    assert!(parts.last().unwrap().end_ns <= root.end_ns);
    names.iter().filter(|name| **name == "pool wait").count() > 1
}

/// Each connection was accepted once, and its span holds that.
fn check_connections(capture: &Capture, seed: u64) {
    let spans = capture.spans();
    let on = |name| spans.iter().filter(move |span| span.name == name);
    assert!(on("connection").count() >= CLIENTS, "seed {seed}");
    for accept in on("accept") {
        let around = on("connection").find(|span| span.place == accept.place).unwrap();
        assert!(around.begin_ns <= accept.begin_ns && accept.end_ns <= around.end_ns);
    }
}
