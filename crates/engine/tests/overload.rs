//! What a worker does about the process's load, as the control thread tells it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "http2/raw.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of another test")]
mod raw;
#[path = "scene/rig.rs"]
mod rig;
mod scene;
#[path = "../../../conformance/h1/wire.rs"]
mod wire;

use std::sync::Arc;
use std::time::Duration;

use rig::Rig;
use scene::Plan;
use scene::bench::Bench;
use scene::filters::add_filter;
use towpath_engine::filter::buffer::Buffer;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::http::Http;
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::snapshot::overload::{
    Action, Floor, Overload, Point, ScaledTime, Track, Trigger,
};
use towpath_engine::snapshot::{Http2, Snapshot};
use towpath_proto::Input;

/// One resource for each action and point, in their order.
fn overload() -> Overload {
    let trigger = |monitor| vec![Trigger { monitor, from: 0.5, full: 0.5 }];
    let points = Point::ALL.into_iter().zip(Action::ALL.len()..);
    Overload {
        actions: Action::ALL.into_iter().zip((0..).map(trigger)).collect(),
        points: points.map(|(point, monitor)| (point, trigger(monitor))).collect(),
        ..Overload::default()
    }
}

fn rig(adjust: impl FnOnce(&mut Snapshot)) -> Rig {
    let mut rig = Rig::new(Plan::new(1));
    let mut snapshot = Plan::new(1).snapshot();
    snapshot.generation = 2;
    snapshot.overload = Some(Arc::new(overload()));
    adjust(&mut snapshot);
    rig.configure(snapshot);
    rig
}

/// Has the resource with this place at its limit, and no other.
fn load(rig: &mut Rig, place: Option<usize>) {
    let pressures: Vec<_> =
        (0..RESOURCES).map(|at| Some(f64::from(u8::from(Some(at) == place)))).collect();
    rig.tell(ToWorker::Overload(overload().levels(&pressures)));
}

/// One for each action and point.
const RESOURCES: usize = Action::ALL.len() + Point::ALL.len();
const STOP_REQUESTS: usize = Action::StopRequests as usize;
const DISABLE_KEEP_ALIVE: usize = Action::DisableKeepAlive as usize;
const STOP_CONNECTIONS: usize = Action::StopConnections as usize;
const REJECT: usize = Action::RejectConnections as usize;
const ACCEPT: usize = Action::ALL.len() + Point::Accept as usize;
const NEW_CONNECTION: usize = Action::ALL.len() + Point::NewConnection as usize;
const CREATE_CODEC: usize = Action::ALL.len() + Point::CreateCodec as usize;
const DECODE_HEADERS: usize = Action::ALL.len() + Point::DecodeHeaders as usize;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn has(bytes: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(text)
}

#[test]
fn requests_are_refused_as_long_as_it_lasts() {
    for place in [STOP_REQUESTS, DECODE_HEADERS] {
        let mut rig = rig(|_| {});
        let client = rig.connect();
        assert!(has(&rig.ask(client, GET).received, "HTTP/1.1 200"));
        load(&mut rig, Some(place));
        let refused = rig.ask(client, GET);
        assert!(has(&refused.received, "HTTP/1.1 503"), "{refused:?}");
        assert!(has(&refused.received, "envoy overloaded"), "{refused:?}");
        assert!(refused.requests.is_empty() && !refused.ended, "{refused:?}");
        load(&mut rig, None);
        assert!(has(&rig.ask(client, GET).received, "HTTP/1.1 200"));
    }
}

#[test]
fn what_may_be_another_protocol_is_not_read_as_requests() {
    let mut rig = rig(|_| {});
    load(&mut rig, Some(STOP_REQUESTS));
    let client = rig.connect();
    let upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n\
        GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    let refused = rig.ask(client, upgrade);
    assert!(refused.ended && has(&refused.received, "connection: close"), "{refused:?}");
    assert_eq!(refused.answers(&[]).whole.len(), 1, "{refused:?}");
}

#[test]
fn connections_end_with_their_response() {
    let mut rig = rig(|_| {});
    let client = rig.connect();
    load(&mut rig, Some(DISABLE_KEEP_ALIVE));
    let last = rig.ask(client, GET);
    assert!(has(&last.received, "HTTP/1.1 200"), "{last:?}");
    assert!(!last.answers(&[]).whole[0].keeps_alive() && last.ended, "{last:?}");
}

#[test]
fn who_connects_is_turned_away_or_waits() {
    for place in [REJECT, ACCEPT] {
        let mut rig = rig(|_| {});
        load(&mut rig, Some(place));
        rig.connect();
        assert!(rig.take().ended, "{place}");
        load(&mut rig, None);
        let client = rig.connect();
        assert!(has(&rig.ask(client, GET).received, "HTTP/1.1 200"));
    }
    let mut rig = rig(|_| {});
    load(&mut rig, Some(STOP_CONNECTIONS));
    assert!(rig.is_held);
    load(&mut rig, None);
    assert!(!rig.is_held);
}

#[test]
fn listeners_that_go_past_it_serve() {
    // A pool is the cluster's, and knows of no listener.
    for place in (0..RESOURCES).filter(|&place| place != NEW_CONNECTION) {
        let mut rig = rig(|snapshot| {
            for listener in &mut snapshot.listeners {
                Arc::get_mut(listener).unwrap().bypasses_overload = true;
            }
        });
        load(&mut rig, Some(place));
        assert!(!rig.is_held);
        let client = rig.connect();
        let served = rig.ask(client, GET);
        assert!(has(&served.received, "HTTP/1.1 200") && !served.ended, "{place}: {served:?}");
    }
}

#[test]
fn a_configuration_without_it_lets_go() {
    let mut rig = rig(|_| {});
    load(&mut rig, Some(STOP_CONNECTIONS));
    assert!(rig.is_held);
    let mut snapshot = Plan::new(1).snapshot();
    snapshot.generation = 3;
    rig.configure(snapshot);
    assert!(!rig.is_held, "nothing would ever let them in");
}

const HELD: &str = "envoy.overload_actions.reset_high_memory_stream.held_bytes";
const RESET: &str = "envoy.overload_actions.reset_high_memory_stream.count";
/// What one client sends of a request that is collected.
const PART: usize = 40_000;

/// Clients that send parts of requests without end: a filter waits for the rest. Streams that hold 32 KiB are reset.
fn collecting() -> Bench {
    let mut snapshot = Plan::new(1).snapshot();
    add_filter(&mut snapshot, "buffer", Buffer { limit: 1 << 20 });
    snapshot.overload = Some(Arc::new(Overload { track: Track(16), ..overload() }));
    Bench::of(snapshot)
}

/// A client sends so much of its request, and waits.
fn send_part(bench: &mut Bench, length: usize) {
    bench.accept(scene::HTTP);
    bench.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n");
    bench.ask(&vec![b'x'; length]);
}

/// The control thread measures: pressure is what is held, of 1 MB.
fn measure(bench: &mut Bench) -> u64 {
    let pressure = bench.number(HELD) as f64 / 1e6;
    reset_at(bench, &overload(), pressure);
    bench.number(HELD)
}

/// The worker is told of a pressure on the resource that has streams reset.
fn reset_at(bench: &mut Bench, overload: &Overload, pressure: f64) {
    let mut pressures = vec![Some(0.0); RESOURCES];
    pressures[Action::ResetStreams as usize] = Some(pressure);
    let levels = overload.levels(&pressures);
    bench.give(Input::Message(Message::To(ToWorker::Overload(levels))));
    bench.sent();
}

#[test]
fn what_is_held_of_all_streams_has_a_bound() {
    let mut bench = collecting();
    let mut most = 0;
    for _ in 0..100 {
        send_part(&mut bench, PART);
        most = most.max(measure(&mut bench));
    }
    // Half of 1 MB is where it begins; what comes between two measurements is added.
    assert!(most <= 500_000 + 2 * PART as u64, "{most}");
    assert!(most >= 400_000, "what is kept was not counted: {most}");
    assert!(bench.number(RESET) >= 80, "{}", bench.number(RESET));
    assert_eq!(bench.closed.len() as u64, bench.number(RESET));
}

#[test]
fn streams_that_hold_little_are_left_alone() {
    let mut bench = collecting();
    for _ in 0..20 {
        send_part(&mut bench, 30_000);
        measure(&mut bench);
    }
    measure(&mut bench);
    assert_eq!((bench.number(HELD), bench.number(RESET)), (600_000, 0));
}

/// A client that asks over HTTP/2 for answers of these lengths, in order, and opens no window for them: of the streams
/// nothing else is left.
fn behind_a_closed_window(track: Track, lengths: &[usize]) -> Bench {
    let mut plan = Plan::new(1);
    plan.adjust_http = |http| {
        let options = Arc::default();
        http.http2 = Some(Arc::new(Http2 { options, choice: Choice::Always, keepalive: None }));
    };
    let mut snapshot = plan.snapshot();
    snapshot.overload = Some(Arc::new(Overload { track, ..overload() }));
    let mut bench = Bench::of(snapshot);
    bench.ask(&raw::opening(0).0);
    for (&length, id) in lengths.iter().zip((1..).step_by(2)) {
        assert!(has(&bench.ask(&raw::request_of(id, &[])), "GET / HTTP/1.1"));
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        bench.answer(&[head.into_bytes(), vec![b'x'; length]].concat());
    }
    bench
}

#[test]
fn small_answers_behind_a_closed_window_are_left_alone() {
    let lengths = [[30_000; 20].as_slice(), &[40_000; 13]].concat();
    let mut bench = behind_a_closed_window(Track(16), &lengths);
    assert_eq!((measure(&mut bench), bench.number(RESET)), (1_120_000, 0));
    assert_eq!((measure(&mut bench), bench.number(RESET)), (600_000, 13));
    // More is held than should be, and yet they wait on.
    assert_eq!((measure(&mut bench), bench.number(RESET)), (600_000, 13));
    // Their client may still have them: two frames.
    let window = [0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0x75, 0x30];
    assert_eq!(bench.ask(&window).len(), 9 + 9 + 30_000);
}

#[test]
fn the_level_says_which_answers_behind_a_closed_window_are_reset() {
    let scaled = Trigger { monitor: Action::ResetStreams as usize, from: 0.0, full: 1.0 };
    let overload = Overload { actions: vec![(Action::ResetStreams, vec![scaled])], ..overload() };
    // Classes begin at 512, 1024, 2048, 4096 bytes.
    let mut bench = behind_a_closed_window(Track(10), &[511, 512, 2047, 4095, 4096, 9000]);
    for (pressure, left) in [(0.5, 7165), (0.6, 7165), (0.7, 3070), (1.0, 511)] {
        reset_at(&mut bench, &overload, pressure);
        assert_eq!(bench.number(HELD), left, "{pressure}");
    }
    assert_eq!(bench.number(RESET), 5);
}

#[test]
fn connections_end_with_their_first_bytes() {
    let mut rig = rig(|_| {});
    let first = rig.connect();
    assert_eq!(rig.ask(first, GET).answers(&[]).whole[0].status, 200);
    load(&mut rig, Some(CREATE_CODEC));
    assert_eq!(rig.ask(first, GET).answers(&[]).whole[0].status, 200, "it has begun");
    rig.end(first);
    let second = rig.connect();
    assert_eq!(rig.ask(second, GET).received, b"");
    load(&mut rig, None);
    let third = rig.connect();
    assert_eq!(rig.ask(third, GET).answers(&[]).whole[0].status, 200);
}

/// A worker whose times of this kind are 1 s, and at least a tenth of that.
fn reducing(time: ScaledTime, adjust_http: fn(&mut Http)) -> Bench {
    let mut plan = Plan::new(1);
    plan.adjust_http = adjust_http;
    plan.adjust_forward = |forward| forward.timeout = None;
    let mut snapshot = plan.snapshot();
    let mut reduced = overload();
    reduced.floors[time as usize] = Some(Floor::Share(0.1));
    for (action, triggers) in &mut reduced.actions {
        if *action == Action::ReduceTimeouts {
            *triggers = vec![Trigger { monitor: REDUCE, from: 0.0, full: 1.0 }];
        }
    }
    snapshot.overload = Some(Arc::new(reduced));
    Bench::of(snapshot)
}

/// Has the pressure on times at this level.
fn reduce(bench: &mut Bench, level: f64) {
    let mut overload = overload();
    for (action, triggers) in &mut overload.actions {
        if *action == Action::ReduceTimeouts {
            *triggers = vec![Trigger { monitor: REDUCE, from: 0.0, full: 1.0 }];
        }
    }
    let pressures: Vec<_> =
        (0..RESOURCES).map(|at| Some(if at == REDUCE { level } else { 0.0 })).collect();
    let levels = overload.levels(&pressures);
    bench.give(Input::Message(Message::To(ToWorker::Overload(levels))));
    bench.sent();
}

const REDUCE: usize = Action::ReduceTimeouts as usize;
const SECOND: Option<Duration> = Some(Duration::from_secs(1));

#[test]
fn idle_requests_end_earlier_and_later_again() {
    let idle = || reducing(ScaledTime::StreamIdle, |http| http.stream_idle_timeout = SECOND);
    let ends = |bench: &mut Bench, ms| has(&bench.wait(ms), "HTTP/1.1 504");
    // Before the request came.
    let mut bench = idle();
    reduce(&mut bench, 1.0);
    bench.ask(GET);
    assert!(!ends(&mut bench, 99) && ends(&mut bench, 1));
    // Afterwards: of 1 s half of what is above 100 ms is left.
    let mut bench = idle();
    bench.ask(GET);
    assert!(!ends(&mut bench, 300));
    reduce(&mut bench, 0.5);
    assert!(!ends(&mut bench, 249) && ends(&mut bench, 1));
    // And back.
    let mut bench = idle();
    bench.ask(GET);
    reduce(&mut bench, 1.0);
    assert!(!ends(&mut bench, 50));
    reduce(&mut bench, 0.0);
    assert!(!ends(&mut bench, 949) && ends(&mut bench, 1));
    // It has been idle for longer already.
    let mut bench = idle();
    bench.ask(GET);
    assert!(!ends(&mut bench, 500));
    reduce(&mut bench, 1.0);
    assert!(ends(&mut bench, 0));
    // What moves begins it anew, as long as it is now.
    let mut bench = idle();
    bench.ask(GET);
    reduce(&mut bench, 1.0);
    bench.wait(90);
    bench.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
    bench.wait(90);
    assert!(bench.reset.is_empty() && bench.closed.is_empty());
    bench.wait(10);
    assert!(!bench.closed.is_empty());
}

#[test]
fn connections_last_less_long() {
    let mut bench =
        reducing(ScaledTime::ConnectionMax, |http| http.max_connection_duration = SECOND);
    bench.exchange(GET, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    bench.wait(50);
    reduce(&mut bench, 1.0);
    let client = bench.client;
    bench.wait(49);
    assert!(!bench.closed.contains(&client));
    bench.wait(1);
    assert!(bench.closed.contains(&client));
    assert_eq!(bench.number("http.in.downstream_cx_max_duration_reached"), 1);
    bench.accept(scene::HTTP);
    let next = bench.client;
    bench.wait(99);
    assert!(!bench.closed.contains(&next));
    bench.wait(1);
    assert!(bench.closed.contains(&next));
}
