//! An origin that answers 503 is left alone for as long as it asks, by requests that are new, wait or are repeated.

use super::*;

const BUSY: Habits = Habits {
    busy: Some((1, Some("8"))),
    close_after: None,
    fail_every: None,
    ranges: None,
    forgets: None,
    silent: false,
    idle_close: None,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_request_that_may_be_repeated_is_sent_again_when_the_rest_is_over() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, BUSY);
        let call = app.get(100, Options::default());
        app.run_until_ended(call, seconds(30));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete);
        assert_eq!(state.head.as_ref().unwrap().status(), 200);
        let report = state.report();
        assert_eq!((report.retries, report.tries.len(), report.rests.len()), (1, 2, 1));
        assert_eq!(report.tries[0].reset_reason, "the server has too much to do");
        let rest = report.rests[0];
        assert_eq!((rest.asked, rest.status), (true, Some(503)));
        let wait = rest.until - rest.began;
        assert!(wait >= seconds(8) && wait <= seconds(10), "jitter of a quarter: {wait:?}");
        assert!(report.tries[1].began >= rest.until);
        assert_eq!(log.borrow().times[&state.id], 2);
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn what_must_not_be_repeated_gets_the_answer_and_others_wait_for_the_end_of_the_rest() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, BUSY);
        let first = app.get(5, Options { repeat: Repeat::Never, ..Options::default() });
        app.run_until_ended(first, seconds(5));
        assert_eq!(app.calls[&first].outcome(), Outcome::Complete);
        assert_eq!(app.calls[&first].head.as_ref().unwrap().status(), 503);
        let answered = app.world.now();
        let late: Vec<CallId> = (0..20).map(|_| app.get(5, Options::default())).collect();
        let fails = app.get(5, Options { fails_at_rest: true, ..Options::default() });
        let short = app.get(5, Options { total: Some(seconds(3)), ..Options::default() });
        app.run(seconds(7));
        for call in [fails, short] {
            let outcome = app.calls[&call].outcome();
            assert!(matches!(outcome, Outcome::Failed(Error::Resting(_))), "{outcome:?}");
            assert!(app.calls[&call].ended_at() - answered < Duration::from_millis(10));
        }
        assert_eq!(log.borrow().times.len(), 1, "no other request was sent during the back-off");
        app.run(seconds(20));
        let mut begins: Vec<Instant> = Vec::new();
        for call in late {
            let report = app.calls[&call].report();
            assert_eq!(app.calls[&call].outcome(), Outcome::Complete);
            assert_eq!((report.rests.len(), report.rests[0].status), (1, None));
            begins.push(report.tries[0].began);
        }
        begins.sort_unstable();
        let spread = *begins.last().unwrap() - begins[0];
        assert!(spread > Duration::from_millis(700), "they do not come together: {spread:?}");
    });
}

#[test]
fn another_target_of_the_same_origin_is_not_held_up() {
    let mut app = App::new(1, Settings::default());
    app.serve(ORIGIN, BUSY);
    let once = || Options { repeat: Repeat::Never, ..Options::default() };
    let first = app.get(5, once());
    app.run_until_ended(first, seconds(5));
    assert_eq!(app.calls[&first].head.as_ref().unwrap().status(), 503);
    // The same path by another method.
    let ask = Ask {
        id: "p".to_owned(),
        method: "POST",
        body: 10,
        chunked: false,
        answer: 5,
        answer_chunked: false,
        pause: Duration::ZERO,
    };
    let other = app.ask(&ask, "10.0.1.1", once());
    let same = app.get(5, once());
    app.run(seconds(1));
    assert_eq!(app.calls[&other].head.as_ref().unwrap().status(), 200);
    assert!(app.calls[&other].report().rests.is_empty());
    assert!(app.calls[&same].ends.is_empty(), "it waits");
}

#[test]
fn those_that_wait_for_a_connection_wait_for_the_rest_as_well() {
    for_each_seed(100, |seed| {
        let settings = Settings { max_connections: 1, ..Settings::default() };
        let mut app = App::new(seed, settings);
        let log = app.serve(ORIGIN, BUSY);
        let calls: Vec<CallId> = (0..4).map(|_| app.get(5, Options::default())).collect();
        app.run(seconds(7));
        assert_eq!(log.borrow().times.len(), 1, "one was answered, three wait");
        app.run(seconds(20));
        for call in calls {
            assert_eq!(app.calls[&call].head.as_ref().unwrap().status(), 200);
        }
    });
}

#[test]
fn without_a_word_from_the_server_the_waits_grow_and_the_last_answer_is_given() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let log = app.serve(ORIGIN, Habits { busy: Some((u32::MAX, None)), ..Habits::default() });
        let call = app.get(5, Options { retries: 4, ..Options::default() });
        app.run_until_ended(call, seconds(60));
        let state = &app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Complete);
        assert_eq!(state.head.as_ref().unwrap().status(), 503);
        assert_eq!((state.report().retries, state.report().rests.len()), (4, 4));
        assert_eq!(log.borrow().times[&state.id], 5);
        for (number, rest) in state.report().rests.iter().enumerate() {
            let bound = Duration::from_millis(500 << number);
            let most = bound + (bound / 4).max(Duration::from_millis(50));
            assert!(!rest.asked && rest.until - rest.began <= most, "{rest:?}");
        }
    });
}

#[test]
fn the_longest_rest_is_a_setting_and_none_is_one_too() {
    for_each_seed(50, |seed| {
        let ask = |max_rest, habits, retries| {
            let mut app = App::new(seed, Settings { max_rest, ..Settings::default() });
            app.serve(ORIGIN, habits);
            let call = app.get(5, Options { retries, ..Options::default() });
            app.run_until_ended(call, seconds(60));
            app.calls.remove(&call).unwrap()
        };
        let forever = Habits { busy: Some((1, Some("4000000000"))), ..Habits::default() };
        let capped = ask(seconds(2), forever, 2);
        assert_eq!(capped.head.as_ref().unwrap().status(), 200);
        assert!(capped.report().rests[0].until - capped.report().rests[0].began >= seconds(2));
        let off = ask(Duration::ZERO, forever, 2);
        assert_eq!(off.head.as_ref().unwrap().status(), 503);
        assert_eq!((off.report().rests.len(), off.report().tries.len()), (0, 1));
        let too_long = ask(seconds(300), forever, 2);
        assert_eq!(too_long.head.as_ref().unwrap().status(), 503, "it would be too late");
        assert_eq!(too_long.report().tries.len(), 1);
    });
}

#[test]
fn a_request_that_is_taken_back_while_it_rests_ends_at_once() {
    for_each_seed(20, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.serve(ORIGIN, BUSY);
        let call = app.get(100, Options::default());
        app.run(seconds(3));
        assert!(app.calls[&call].ends.is_empty());
        app.command(Command::Cancel { call });
        app.run(Duration::from_millis(10));
        assert_eq!(app.calls[&call].outcome(), Outcome::Failed(Error::Cancelled));
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn an_app_that_repeats_itself_is_let_through_again_when_its_window_has_passed() {
    let mut settings = Settings { max_identical: 3, ..Settings::default() };
    settings.identical_window = seconds(80);
    let mut app = App::new(1, settings);
    let log = app.serve(ORIGIN, Habits::default());
    let ask = |path: &'static str| Ask {
        id: path.to_owned(),
        method: "GET",
        body: 0,
        chunked: false,
        answer: 5,
        answer_chunked: false,
        pause: Duration::ZERO,
    };
    let mut refused = 0;
    for _ in 0..200 {
        let call = app.ask(&ask("same"), "10.0.1.1", Options::default());
        app.run(seconds(1));
        match app.calls[&call].outcome() {
            Outcome::Complete => {}
            Outcome::Failed(error) => {
                assert_eq!(error, Error::Limited(Limit::Identical));
                refused += 1;
            }
        }
    }
    let served = log.borrow().times["same"];
    assert_eq!(served + refused, 200);
    assert!((7..=9).contains(&served), "three in any 80 s: {served}");
}
