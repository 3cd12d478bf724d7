//! A response that broke off goes on where it stopped, or fails as if it had not been tried.

use super::*;
use crate::scene::origin::Ranges;

const SIZE: usize = 60_000;

fn ranges(etag: &'static str, cut: (u32, usize)) -> Habits {
    Habits { ranges: Some(Ranges { etag, cut }), ..Habits::default() }
}

fn fetch(seed: u64, habits: Habits, options: Options) -> (Call, u32) {
    let mut app = App::new(seed, Settings::default());
    let log = app.serve(ORIGIN, habits);
    let call = app.get(SIZE, options);
    app.run_until_ended(call, Duration::from_secs(70));
    assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    let state = app.calls.remove(&call).unwrap();
    let times = log.borrow().times[&state.id];
    (state, times)
}

#[test]
fn a_body_that_is_cut_twice_comes_whole() {
    for_each_seed(100, |seed| {
        let cut = 1 + seed as usize * 250;
        let (state, times) = fetch(seed, ranges("\"v1\"", (2, cut)), Options::default());
        assert_eq!(state.outcome(), Outcome::Complete, "{:?}", state.report());
        assert_eq!(state.head.as_ref().unwrap().status(), 200);
        assert_eq!(state.received, pattern(&state.id, SIZE));
        let report = state.report();
        let from: Vec<u64> = report.resumed.iter().map(|resumed| resumed.from).collect();
        assert_eq!(from, [cut as u64, 2 * cut as u64]);
        assert_eq!((times, report.retries, report.record.status), (3, 2, 200));
        assert_eq!(report.record.bytes_sent, SIZE as u64);
    });
}

#[test]
fn what_cannot_go_on_fails_after_what_came() {
    for_each_seed(20, |seed| {
        let fails = |habits, options, times| {
            let (state, asked) = fetch(seed, habits, options);
            let outcome = state.outcome();
            assert_eq!(outcome, Outcome::Failed(Error::Protocol), "{:?}", state.report());
            assert_eq!(state.received, pattern(&state.id, 5_000));
            assert_eq!((asked, state.report().resumed.len()), (times, 0));
        };
        fails(ranges("W/\"weak\"", (1, 5_000)), Options::default(), 1);
        let never = Options { repeat: Repeat::Never, ..Options::default() };
        fails(ranges("\"v1\"", (1, 5_000)), never, 1);
        fails(ranges("\"v1\"", (1, 5_000)), Options { resumes: false, ..Options::default() }, 1);
        fails(ranges("\"v1\"", (1, 5_000)), Options { retries: 0, ..Options::default() }, 1);
        // It has changed meanwhile: all of it would come again.
        fails(ranges("\"#\"", (1, 5_000)), Options::default(), 2);
    });
}

#[test]
fn a_body_that_breaks_off_too_often_fails() {
    for_each_seed(20, |seed| {
        let (state, times) = fetch(seed, ranges("\"v1\"", (9, 5_000)), Options::default());
        assert_eq!(state.outcome(), Outcome::Failed(Error::Protocol));
        assert_eq!(state.received, pattern(&state.id, 15_000));
        assert_eq!((times, state.report().resumed.len()), (3, 2));
    });
}

#[test]
fn an_outage_in_the_middle_costs_less_than_a_second_and_a_half_after_it() {
    for_each_seed(30, |seed| {
        let mut random = Random::new(seed);
        let settings = Settings { window_bytes: 4 * 1024, ..Settings::default() };
        let mut app = App::new(seed, settings);
        app.serve(ORIGIN, ranges("\"v1\"", (0, 0)));
        let call = app.get(400_000, Options::default());
        while app.calls[&call].received.len() < 10_000 {
            app.run(Duration::from_millis(1));
        }
        assert!(app.calls[&call].ends.is_empty());
        app.lose_network();
        app.run(Duration::from_millis(4_000 + random.below(30_000)));
        assert!(app.calls[&call].ends.is_empty(), "{:?}", app.calls[&call].report());
        app.restore_network();
        let back = app.world.now();
        app.run_until_ended(call, Duration::from_secs(30));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete, "{:?}", state.report());
        assert_eq!(state.received, pattern(&state.id, 400_000));
        let begins = state.report().resumed[0].at - back;
        assert!(begins < Duration::from_millis(1_500), "{begins:?} {:?}", state.report());
    });
}

#[test]
fn whatever_breaks_what_is_whole_is_right_and_each_ends_once() {
    for_each_seed(200, |seed| {
        let mut app = App::new(seed, Settings { max_repetitions: 100, ..Settings::default() });
        app.world.set_faults(if seed % 2 == 0 { Faults::lively() } else { Faults::harsh() });
        app.serve(ORIGIN, ranges("\"v1\"", (seed as u32 % 7, 700)));
        let mut random = Random::new(seed);
        let mut calls = Vec::new();
        for _ in 0..6 {
            let size = 1_000 + random.below(20_000) as usize;
            let total = Some(Duration::from_secs(60));
            calls.push((app.get(size, Options { retries: 6, total, ..Options::default() }), size));
            app.run(Duration::from_millis(random.below(200)));
        }
        app.run(Duration::from_secs(70));
        for (call, size) in calls {
            let state = &app.calls[&call];
            let whole = pattern(&state.id, size);
            if state.outcome() == Outcome::Complete {
                assert_eq!(state.received, whole, "{:?}", state.report());
            } else {
                assert!(whole.starts_with(&state.received));
            }
        }
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn an_app_that_takes_its_time_loses_nothing() {
    for_each_seed(10, |seed| {
        let settings = Settings { window_bytes: 4 * 1024, ..Settings::default() };
        let mut app = App::new(seed, settings);
        app.serve(ORIGIN, ranges("\"v1\"", (0, 0)));
        let call = app.get(200_000, Options::default());
        while app.calls[&call].held == 0 {
            app.world.run_for(Duration::from_millis(5));
            for (at, message) in app.world.take_messages(app.worker) {
                if let Message::From(FromWorker::Local(event)) = message {
                    app.on_event(event, at);
                }
            }
        }
        // It has something, and asks for no more.
        app.world.run_for(Duration::from_secs(30));
        app.run_until_ended(call, Duration::from_secs(20));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete, "{:?}", state.report());
        assert_eq!((state.report().tries.len(), state.received.len()), (1, 200_000));
    });
}
