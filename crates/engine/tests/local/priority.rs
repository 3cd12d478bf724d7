//! Who waits for a connection gets it by urgency and age.

use towpath_engine::client::priority::Priority;

use super::*;

fn one_connection(seed: u64) -> App {
    let mut app = App::new(seed, Settings { max_connections: 1, ..Settings::default() });
    app.serve(ORIGIN, Habits::default());
    app
}

fn get(app: &mut App, priority: Priority) -> CallId {
    app.get(5, Options { priority, ..Options::default() })
}

#[test]
fn the_urgent_go_first_and_in_their_own_order() {
    for_each_seed(50, |seed| {
        let mut app = one_connection(seed);
        let mut random = Random::new(seed);
        let levels = [Priority::High, Priority::Normal, Priority::Low];
        let first = get(&mut app, Priority::Low);
        app.run(Duration::from_millis(300));
        let mut wanted: Vec<(Priority, CallId)> = (0..20)
            .map(|_| levels[random.below(3) as usize])
            .map(|level| (level, get(&mut app, level)))
            .collect();
        app.run(Duration::from_secs(10));
        assert_eq!(app.calls[&first].outcome(), Outcome::Complete);
        // The first of them took the connection that lay idle, whatever its level.
        wanted[1..].sort();
        let mut began: Vec<(Instant, CallId)> = wanted
            .iter()
            .map(|(_, call)| (app.calls[call].report().tries[0].began, *call))
            .collect();
        began.sort();
        assert_eq!(
            began.iter().map(|(_, call)| *call).collect::<Vec<_>>(),
            wanted.iter().map(|(_, call)| *call).collect::<Vec<_>>()
        );
        for (level, call) in &wanted {
            assert_eq!(app.calls[call].report().priority, *level);
        }
    });
}

#[test]
fn no_request_waits_for_ever_behind_a_stream_of_urgent_ones() {
    for_each_seed(2, |seed| {
        let mut app = one_connection(seed);
        get(&mut app, Priority::High);
        app.run(Duration::from_millis(60));
        let blocker = get(&mut app, Priority::High);
        let low = get(&mut app, Priority::Low);
        let began = app.world.now();
        let mut urgent = Vec::new();
        for _ in 0..800 {
            urgent.push((app.world.now(), get(&mut app, Priority::High)));
            app.run(Duration::from_millis(40));
        }
        app.run(Duration::from_secs(10));
        assert_eq!(app.calls[&blocker].outcome(), Outcome::Complete);
        let sent = |call: &CallId| app.calls[call].ends.first().map(|end| end.2.tries[0].began);
        let turn = sent(&low).unwrap();
        assert!(turn - began > Duration::from_secs(20), "it was held back: {turn:?}");
        // At the very moment either may come first.
        let handicap = Duration::from_secs(20);
        for (asked, call) in urgent.into_iter().filter(|(asked, _)| *asked - began != handicap) {
            let first = sent(&call).is_some_and(|at| at < turn);
            let has_precedence = asked - began < handicap;
            assert_eq!(first, has_precedence, "asked at {asked:?}, {turn:?}");
        }
    });
}
