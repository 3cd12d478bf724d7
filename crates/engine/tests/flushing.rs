//! What is left of an answer when its stream is over otherwise has a time to leave.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "http2/raw.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of another test")]
mod raw;
mod scene;

use std::sync::Arc;
use std::time::Duration;

use raw::opening;
use scene::Plan;
use scene::bench::Bench;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::overload::{Action as Deed, Floor, Overload, ScaledTime, Trigger};
use towpath_engine::snapshot::route::Action;
use towpath_engine::snapshot::{ClusterId, Http2, Snapshot};
use towpath_proto::Input;

/// What is said of an answer's time, at four places.
#[derive(Clone, Copy, Default)]
struct Times {
    idle: Option<Duration>,
    of_listener: Option<Option<Duration>>,
    idle_of_route: Option<Option<Duration>>,
    of_route: Option<Option<Duration>>,
}

fn snapshot(times: Times) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    let listener = Arc::get_mut(&mut snapshot.listeners[0]).unwrap();
    let chain = Arc::get_mut(&mut listener.chains[0]).unwrap();
    let Terminal::Http(http) = &mut chain.terminal else { panic!("it speaks HTTP") };
    let http = Arc::get_mut(http).unwrap();
    let options = Arc::default();
    http.http2 = Some(Arc::new(Http2 { options, choice: Choice::Always, keepalive: None }));
    (http.stream_idle_timeout, http.stream_flush_timeout) = (times.idle, times.of_listener);
    let mut forward = scene::forward(ClusterId(0));
    (forward.idle_timeout, forward.flush_timeout) = (times.idle_of_route, times.of_route);
    let route = scene::route("/", Action::Forward(Box::new(forward)));
    http.routes = Arc::new(scene::table(vec![route]));
    snapshot
}

/// A client has a byte of an answer, of four.
fn answered(snapshot: Snapshot) -> Bench {
    let (opening, request) = opening(1);
    let mut bench = Bench::of(snapshot);
    bench.ask(&[opening, request].concat());
    bench.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd");
    bench
}

fn given_up(bench: &Bench) -> u64 {
    bench.number("http2.tx_flush_timeout")
}

/// Times say when it is given up, if it is: the time runs from when the answer was over for us, however much of it
/// leaves meanwhile.
#[test]
fn it_is_as_long_as_the_route_says_or_the_listener() {
    let seconds = Duration::from_secs;
    let (idle, five) = (Some(seconds(10)), Some(Some(seconds(5))));
    let (short, long) = (Some(Some(seconds(3))), Some(Some(seconds(7))));
    let cases = [
        (Times { idle, ..Times::default() }, Some(10)),
        (Times { idle, idle_of_route: short, ..Times::default() }, Some(10)),
        (Times { idle, of_listener: five, ..Times::default() }, Some(5)),
        (Times { idle, of_listener: five, idle_of_route: short, of_route: None }, Some(5)),
        (Times { idle, of_listener: Some(None), ..Times::default() }, None),
        (Times { idle, of_listener: five, of_route: long, ..Times::default() }, Some(7)),
        (Times { idle, of_listener: five, of_route: Some(None), ..Times::default() }, None),
        (Times { idle, idle_of_route: short, of_route: long, of_listener: None }, Some(7)),
    ];
    for (place, (times, end)) in cases.into_iter().enumerate() {
        let mut bench = answered(snapshot(times));
        bench.wait(1_900);
        let sent = bench.ask(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(sent.last(), Some(&b'b'), "{place}");
        bench.wait(end.map_or(60_000, |end| end * 1000 - 1_950));
        assert_eq!(given_up(&bench), 0, "{place}");
        let sent = bench.wait(100);
        assert_eq!(given_up(&bench), u64::from(end.is_some()), "{place}");
        let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1];
        assert_eq!(sent.windows(9).any(|frame| frame == reset), end.is_some(), "{place}");
        assert_eq!(bench.number("http.in.downstream_cx_http2_active"), 1, "{place}");
    }
}

#[test]
fn what_has_left_in_time_is_not_given_up() {
    let times = Times { of_listener: Some(Some(Duration::from_secs(5))), ..Times::default() };
    let mut bench = answered(snapshot(times));
    bench.wait(4_900);
    let sent = bench.ask(&[0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 9]);
    assert!(sent.ends_with(b"bcd"));
    assert_eq!((bench.wait(10_000), given_up(&bench)), (Vec::new(), 0));
}

#[test]
fn an_answer_that_is_not_over_is_not_concerned() {
    let times = Times { of_listener: Some(Some(Duration::from_secs(5))), ..Times::default() };
    let (opening, request) = opening(1);
    let mut bench = Bench::of(snapshot(times));
    bench.ask(&[opening, request].concat());
    bench.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabc");
    bench.wait(10_000);
    bench.answer(b"d");
    bench.wait(4_900);
    assert_eq!(given_up(&bench), 0);
    bench.wait(200);
    assert_eq!(given_up(&bench), 1);
}

#[test]
fn it_is_reduced_when_the_process_has_too_much_to_do() {
    let times = Times { of_listener: Some(Some(Duration::from_secs(100))), ..Times::default() };
    let mut snapshot = snapshot(times);
    let trigger = Trigger { monitor: 0, from: 0.0, full: 1.0 };
    let mut overload =
        Overload { actions: vec![(Deed::ReduceTimeouts, vec![trigger])], ..Overload::default() };
    overload.floors[ScaledTime::StreamFlush as usize] = Some(Floor::Time(Duration::from_secs(20)));
    snapshot.overload = Some(Arc::new(overload.clone()));
    let mut bench = answered(snapshot);
    let load = |bench: &mut Bench, pressure| {
        let levels = overload.levels(&[Some(pressure)]);
        bench.give(Input::Message(Message::To(ToWorker::Overload(levels))));
        bench.sent();
    };
    load(&mut bench, 1.0);
    bench.wait(19_000);
    // Less to do: it has more time again.
    load(&mut bench, 0.5);
    bench.wait(40_000);
    assert_eq!(given_up(&bench), 0);
    bench.wait(2_000);
    assert_eq!(given_up(&bench), 1);
}
