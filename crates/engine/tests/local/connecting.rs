//! The limit on the time until a request has a connection.

use super::*;

#[test]
fn the_limit_on_connecting_ends_when_there_is_a_connection() {
    for_each_seed(30, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, Habits { silent: true, ..Habits::default() });
        let options = Options {
            connect: Some(Duration::from_secs(1)),
            answer: None,
            first_byte: Some(Duration::from_secs(3)),
            retries: 0,
            ..Options::default()
        };
        app.lose_network();
        let unconnected = app.get(100, options.clone());
        app.run(Duration::from_millis(1_100));
        let state = &app.calls[&unconnected];
        assert_eq!(state.outcome(), Outcome::Failed(Error::Connect(Failure::TimedOut)));
        assert!(state.report().tries.is_empty(), "{:?}", state.report());
        app.restore_network();
        let connected = app.get(100, options);
        app.run(Duration::from_secs(4));
        let state = &app.calls[&connected];
        assert_eq!(state.outcome(), Outcome::Failed(Error::TimedOut(Layer::FirstByte)));
    });
}

/// A device that sleeps meanwhile hears of the connection and of the time that has passed at once.
#[test]
fn a_connection_that_comes_after_the_limit_is_too_late() {
    for_each_seed(30, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, Habits::default());
        let options =
            Options { connect: Some(Duration::from_millis(10)), retries: 0, ..Options::default() };
        let call = app.get(100, options);
        app.run(Duration::from_millis(1));
        app.world.freeze(app.worker, Duration::from_secs(1));
        app.run(Duration::from_secs(2));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Failed(Error::Connect(Failure::TimedOut)));
        assert!(state.report().tries.is_empty(), "{:?}", state.report());
        assert!(!log.borrow().times.contains_key(&state.id));
    });
}

#[test]
fn behind_a_limit_on_connecting_the_time_for_an_answer_begins_with_the_connection() {
    for_each_seed(30, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, Habits { silent: true, ..Habits::default() });
        let second = Duration::from_secs(1);
        let options = Options {
            connect: Some(5 * second),
            answer: Some(second),
            first_byte: Some(9 * second),
            ..Options::default()
        };
        app.lose_network();
        let call = app.get(100, options);
        app.run(2 * second);
        app.restore_network();
        app.run(2 * second);
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Failed(Error::TimedOut(Layer::Total)));
        let report = state.report();
        let waited = report.record.end.unwrap() - report.tries[0].began;
        assert!(waited >= second && waited < second + second / 10, "{waited:?}");
    });
}
