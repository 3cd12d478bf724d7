//! A request that is late is sent a second time; the first answer counts, and there is one end.

use super::*;

fn hedged() -> Options {
    Options { hedges: true, ..Options::default() }
}

/// An app that knows how long its origin takes.
fn app(seed: u64, habits: Habits) -> (App, Log) {
    let mut app = App::new(seed, Settings::default());
    let log = app.serve(ORIGIN, habits);
    for _ in 0..20 {
        let call = app.get(10, Options::default());
        app.run_until_ended(call, Duration::from_secs(1));
        assert_eq!(app.calls[&call].outcome(), Outcome::Complete);
    }
    (app, log)
}

#[test]
fn the_second_answer_counts_where_the_first_does_not_come() {
    for_each_seed(100, |seed| {
        let (mut app, log) = app(seed, Habits { forgets: Some(21), ..Habits::default() });
        let call = app.get(500, hedged());
        app.run_until_ended(call, Duration::from_secs(5));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete, "{:?}", state.report());
        assert_eq!(state.received, pattern(&state.id, 500));
        let report = state.report();
        assert_eq!((report.hedges, report.retries, report.tries.len()), (1, 0, 2), "{report:?}");
        assert_eq!(report.tries[0].reset_reason, "another attempt answered first");
        assert!(report.tries[1].hedge && report.tries[1].reset_reason.is_empty());
        let waited = report.tries[1].began - report.tries[0].began;
        assert!(waited >= Duration::from_millis(50), "{waited:?}");
        assert!(state.ended_at() - report.record.start < Duration::from_millis(500), "{report:?}");
        assert_eq!(log.borrow().times[&state.id], 2);
        app.run(Duration::from_secs(1));
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
        // The next one finds everything in order.
        let next = app.get(10, hedged());
        app.run_until_ended(next, Duration::from_secs(1));
        assert_eq!(app.calls[&next].outcome(), Outcome::Complete);
        assert_eq!(app.calls[&next].report().hedges, 0);
    });
}

#[test]
fn what_must_not_be_repeated_or_did_not_ask_for_it_is_sent_once() {
    for_each_seed(30, |seed| {
        for options in [
            Options { hedges: false, retries: 0, ..Options::default() },
            Options { repeat: Repeat::Never, retries: 0, ..hedged() },
        ] {
            let (mut app, log) = app(seed, Habits { forgets: Some(21), ..Habits::default() });
            let call = app.get(10, options);
            app.run_until_ended(call, Duration::from_secs(20));
            let state = &app.calls[&call];
            assert_eq!(state.outcome(), Outcome::Failed(Error::TimedOut(Layer::FirstByte)));
            assert_eq!((log.borrow().times[&state.id], state.report().hedges), (1, 0));
        }
    });
}

#[test]
fn nothing_is_hedged_before_enough_is_known() {
    for_each_seed(20, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, Habits { silent: true, ..Habits::default() });
        let call = app.get(10, Options { retries: 0, ..hedged() });
        app.run(Duration::from_secs(10));
        assert_eq!(log.borrow().times[&app.calls[&call].id], 1);
    });
}

#[test]
fn a_second_one_that_answers_with_an_error_does_not_win() {
    for_each_seed(30, |seed| {
        let habits = Habits { forgets: Some(21), fail_every: Some(22), ..Habits::default() };
        let (mut app, _) = app(seed, habits);
        let call = app.get(10, Options { retries: 0, ..hedged() });
        app.run_until_ended(call, Duration::from_secs(20));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Failed(Error::TimedOut(Layer::FirstByte)));
        assert!(state.head.is_none());
        let reset_reasons: Vec<&str> =
            state.report().tries.iter().map(|each| each.reset_reason).collect();
        assert!(reset_reasons.contains(&"the answer was an error"), "{reset_reasons:?}");
    });
}

#[test]
fn the_budget_bounds_what_is_sent_twice() {
    for_each_seed(10, |seed| {
        let (mut app, _) = app(seed, Habits::default());
        // From here on everything is late.
        app.world.set_faults(Faults {
            latency: Duration::from_millis(300)..=Duration::from_millis(310),
            ..path()
        });
        let calls: Vec<CallId> = (0..100).map(|_| app.get(10, hedged())).collect();
        app.run(Duration::from_secs(30));
        for call in &calls {
            assert_eq!(app.calls[call].outcome(), Outcome::Complete);
        }
        let hedges: u32 = calls.iter().map(|call| app.calls[call].report().hedges).sum();
        // Ten saved up, a fifth of one earned by each of a hundred.
        assert!((10..=30).contains(&hedges), "{hedges}");
    });
}

#[test]
fn whatever_breaks_there_is_one_end_and_no_answer_is_mixed() {
    for_each_seed(80, |seed| {
        let habits = Habits {
            forgets: Some(7),
            close_after: (seed % 3 == 0).then_some(3),
            fail_every: (seed % 4 == 0).then_some(5),
            ..Habits::default()
        };
        let mut app = App::new(seed, Settings { max_repetitions: 100, ..Settings::default() });
        app.serve(ORIGIN, habits);
        let mut random = Random::new(seed);
        let mut calls = Vec::new();
        for number in 0..40 {
            if number == 20 {
                app.world.set_faults(if seed % 2 == 0 {
                    Faults::lively()
                } else {
                    Faults::harsh()
                });
            }
            let size = random.below(3_000) as usize;
            calls.push((app.get(size, hedged()), size));
            app.run(Duration::from_millis(random.below(120)));
            if random.below(10) == 0 {
                let (call, _) = calls[random.below(calls.len() as u64) as usize];
                app.command(Command::Cancel { call });
            }
        }
        app.run(Duration::from_secs(70));
        for (call, size) in calls {
            let state = &app.calls[&call];
            let status = state.head.as_ref().map(Head::status);
            if state.outcome() == Outcome::Complete && status == Some(200) {
                assert_eq!(state.received, pattern(&state.id, size), "{:?}", state.report());
            }
        }
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}
