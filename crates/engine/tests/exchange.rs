//! Requests through a worker in virtual time: each one ends once, with its own answer, and nothing is left over.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use scene::client::{Ask, Ending, Endings, asks, client};
use scene::origin::{Habits, Log, origin};
use scene::{
    HTTP, Plan, RETRY_BUFFER_LIMIT, add_worker, address, drain_and_check, origin_address, retries,
};
use towpath_engine::message::Message;
use towpath_engine::snapshot::cluster::Limits;
use towpath_engine::snapshot::route::RetryOn;
use towpath_sim::{Faults, Random, World, for_each_seed};

struct Outcome {
    endings: BTreeMap<String, Vec<Ending>>,
    asked: Vec<Ask>,
    log: Log,
}

/// Runs clients against origins through one worker and drains it.
fn run(
    seed: u64,
    faults: Faults,
    plan: Plan,
    habits: Habits,
    clients: usize,
    each: usize,
) -> Outcome {
    let mut random = Random::new(seed ^ 0x5eed);
    // Most scenes are small, so that there can be many; some have bodies beyond every watermark.
    let largest = if seed.is_multiple_of(16) { 40_000 } else { 2_000 };
    let lists = (0..clients).map(|number| asks(&mut random, number, each, largest)).collect();
    run_lists(seed, faults, plan, habits, lists)
}

/// The same with one client for each list of requests.
fn run_lists(
    seed: u64,
    faults: Faults,
    plan: Plan,
    habits: Habits,
    lists: Vec<Vec<Ask>>,
) -> Outcome {
    let origins = u8::try_from(plan.cluster.endpoints.len()).unwrap();
    let mut world: World<Message> = World::new(seed);
    let log = Log::default();
    for number in 1..=origins {
        world.set_faults_to(origin_address(number), faults.clone());
        world.add(origin(origin_address(number), Rc::clone(&log), habits));
    }
    world.set_faults(faults);
    let worker = add_worker(&mut world, seed, plan);
    world.run_for(Duration::from_millis(1));
    let endings = Endings::default();
    let mut asked = Vec::new();
    for list in lists {
        asked.extend(list.clone());
        world.add(client(address(HTTP), list, Rc::clone(&endings)));
    }
    world.run_for(Duration::from_secs(3000));
    drain_and_check(&mut world, worker);
    Outcome {
        endings: Rc::try_unwrap(endings)
            .map_or_else(|shared| shared.borrow().clone(), std::cell::RefCell::into_inner),
        asked,
        log,
    }
}

fn check_once(outcome: &Outcome) {
    for ask in &outcome.asked {
        let endings = outcome.endings.get(&ask.id).map_or(0, Vec::len);
        assert_eq!(endings, 1, "{} ends once", ask.id);
    }
    assert_eq!(outcome.log.borrow().wrong_bodies, 0, "origins get what was sent");
}

#[test]
fn everything_is_answered_when_nothing_breaks() {
    for_each_seed(150, |seed| {
        let outcome = run(seed, Faults::none(), Plan::new(2), Habits::default(), 4, 6);
        check_once(&outcome);
        for ask in &outcome.asked {
            let ending = outcome.endings[&ask.id][0];
            assert_eq!(ending, Ending::Answered { status: 200, from_origin: true }, "{ask:?}");
            assert_eq!(outcome.log.borrow().times[&ask.id], 1);
        }
    });
}

#[test]
fn an_origin_that_drops_idle_connections_costs_no_error() {
    for_each_seed(150, |seed| {
        let habits = Habits { idle_close: Some(Duration::from_millis(15)), ..Habits::default() };
        let outcome = run(seed, Faults::none(), Plan::new(2), habits, 4, 8);
        check_once(&outcome);
        for ask in outcome.asked.iter().filter(|ask| !matches!(ask.method, "POST")) {
            let ending = outcome.endings[&ask.id][0];
            assert_eq!(ending, Ending::Answered { status: 200, from_origin: true }, "{ask:?}");
        }
    });
}

#[test]
fn an_origin_that_closes_after_any_answer_costs_no_error() {
    for_each_seed(150, |seed| {
        let after = u32::try_from(seed % 4).unwrap() + 1;
        let habits = Habits { close_after: Some(after), ..Habits::default() };
        let outcome = run(seed, Faults::none(), Plan::new(1), habits, 8, 6);
        check_once(&outcome);
        for ask in outcome.asked.iter().filter(|ask| !matches!(ask.method, "POST")) {
            let ending = outcome.endings[&ask.id][0];
            assert_eq!(ending, Ending::Answered { status: 200, from_origin: true }, "{ask:?}");
        }
    });
}

#[test]
fn nothing_is_sent_twice_that_must_not_be() {
    for_each_seed(300, |seed| {
        let habits = Habits {
            close_after: Some(3),
            idle_close: Some(Duration::from_millis(30)),
            ..Habits::default()
        };
        let faults = if seed % 2 == 0 { Faults::lively() } else { Faults::harsh() };
        let outcome = run(seed, faults, Plan::new(3), habits, 3, 5);
        check_once(&outcome);
        let log = outcome.log.borrow();
        for ask in &outcome.asked {
            let times = log.times.get(&ask.id).copied().unwrap_or(0);
            let most = if ask.method == "POST" { 1 } else { 2 };
            assert!(times <= most, "{} {} arrived {times} times", ask.method, ask.id);
        }
    });
}

#[test]
fn a_retry_policy_hides_failing_origins() {
    let policy = |forward: &mut towpath_engine::snapshot::route::Forward| {
        forward.retry = Some(retries(RetryOn::STATUS_5XX, 5).into());
    };
    for_each_seed(100, |seed| {
        let mut plan = Plan::new(2);
        plan.adjust_forward = policy;
        plan.cluster.limits.retries = 1000;
        let habits = Habits { fail_every: Some(3), ..Habits::default() };
        let outcome = run(seed, Faults::none(), plan, habits, 3, 6);
        check_once(&outcome);
        for ask in outcome.asked.iter().filter(|ask| ask.body < 10_000) {
            let ending = outcome.endings[&ask.id][0];
            assert_eq!(ending, Ending::Answered { status: 200, from_origin: true }, "{ask:?}");
        }
    });
}

#[test]
fn a_body_is_kept_for_retries_up_to_the_limit() {
    for (body, status) in [(RETRY_BUFFER_LIMIT, 200), (RETRY_BUFFER_LIMIT + 1, 503)] {
        for_each_seed(4, |seed| {
            let mut plan = Plan::new(1);
            plan.adjust_forward = |forward| {
                forward.retry = Some(retries(RetryOn::STATUS_5XX, 1).into());
            };
            let habits = Habits { busy: Some((1, None)), ..Habits::default() };
            let ask = Ask {
                id: "large".into(),
                method: "POST",
                body,
                chunked: seed % 2 == 0,
                answer: 10,
                answer_chunked: false,
                pause: Duration::ZERO,
            };
            let outcome = run_lists(seed, Faults::none(), plan, habits, vec![vec![ask]]);
            check_once(&outcome);
            let ending = Ending::Answered { status, from_origin: true };
            assert_eq!(outcome.endings["large"], [ending], "{body} bytes");
        });
    }
}

#[test]
fn circuit_breakers_refuse_and_never_hang() {
    let (served, refused) = (Cell::new(0), Cell::new(0));
    for_each_seed(100, |seed| {
        let mut plan = Plan::new(1);
        plan.cluster.limits =
            Limits { connections: 2, pending: 1, requests: 3, ..Limits::default() };
        let outcome = run(seed, Faults::none(), plan, Habits::default(), 8, 4);
        check_once(&outcome);
        for ask in &outcome.asked {
            let count = match outcome.endings[&ask.id][0] {
                Ending::Answered { status: 200, from_origin: true } => &served,
                Ending::Answered { status: 503, from_origin: false } => &refused,
                // A refused request's connection closes before its body was read.
                Ending::Broken if ask.body > 0 => continue,
                other => panic!("{ask:?} ended as {other:?}"),
            };
            count.set(count.get() + 1);
        }
    });
    let (served, refused) = (served.get(), refused.get());
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}

#[test]
fn no_more_requests_are_under_way_than_allowed() {
    for_each_seed(50, |seed| {
        let mut plan = Plan::new(1);
        plan.cluster.limits = Limits { requests: 2, ..Limits::default() };
        let habits = Habits { silent: true, ..Habits::default() };
        let outcome = run(seed, Faults::none(), plan, habits, 8, 1);
        check_once(&outcome);
        // All ask at once, and wait for connections at once.
        let reached = outcome.log.borrow().times.len();
        assert_eq!(reached, 2, "requests that reached an origin that answers none");
    });
}

#[test]
fn a_silent_origin_is_answered_for_by_the_route_timeout() {
    for_each_seed(50, |seed| {
        let habits = Habits { silent: true, ..Habits::default() };
        let outcome = run(seed, Faults::none(), Plan::new(1), habits, 2, 2);
        check_once(&outcome);
        for ask in &outcome.asked {
            let ending = outcome.endings[&ask.id][0];
            assert_eq!(ending, Ending::Answered { status: 504, from_origin: false });
        }
    });
}
