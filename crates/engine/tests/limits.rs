//! Limits hold for the process, whichever of its workers a connection falls to.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use scene::client::{Ask, Ending, Endings, client};
use scene::origin::{Habits, Log, origin};
use scene::{HTTP, Plan, address, origin_address};
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::network_filter::connection_limit::ConnectionLimit;
use towpath_engine::snapshot::cluster::Limits;
use towpath_engine::snapshot::listener::Listener;
use towpath_engine::snapshot::{ClusterId, FilterChain, Snapshot};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::ListenOptions;
use towpath_sim::{Faults, World, for_each_seed};

const WORKERS: [u32; 3] = [1, 2, 4];

/// What became of the requests, and what the process showed while they were under way.
struct Outcome {
    ok: usize,
    refused: usize,
    broken: usize,
    /// How many had ended after 5 seconds.
    early: usize,
    /// How many requests came to the origin.
    reached: usize,
    /// `cluster.app.circuit_breakers.default.rq_open` and `remaining_rq`.
    shown: (Option<u64>, Option<u64>),
}

/// So many clients ask at once, each on its own connection, `each` times.
fn run(
    seed: u64,
    workers: u32,
    snapshot: Snapshot,
    clients: usize,
    each: usize,
    habits: Habits,
) -> Outcome {
    run_with(seed, workers, snapshot, clients, each, habits, Faults::none())
}

/// The same, on such a path to the origin.
fn run_with(
    seed: u64,
    workers: u32,
    mut snapshot: Snapshot,
    clients: usize,
    each: usize,
    habits: Habits,
    faults: Faults,
) -> Outcome {
    let mut world: World<Message> = World::new(seed);
    world.set_faults_to(origin_address(1), faults);
    let (log, registry) = (Log::default(), Arc::new(Registry::default()));
    world.add(origin(origin_address(1), Rc::clone(&log), habits));
    for listener in &mut snapshot.listeners {
        let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        Arc::get_mut(listener).unwrap().options = Arc::new(options);
    }
    let snapshot = Arc::new(snapshot);
    for index in 0..workers {
        let registry = Arc::clone(&registry);
        let options = WorkerOptions { index, workers, seed, registry, hostname: "here".into() };
        let worker = world.add(Worker::new(options));
        world.send(worker, Message::To(ToWorker::Snapshot(Arc::clone(&snapshot))));
    }
    world.run_for(Duration::from_millis(1));
    let endings = Endings::default();
    for number in 0..clients {
        let ask = |turn| Ask {
            id: format!("c{number}r{turn}"),
            method: "GET",
            body: 0,
            chunked: false,
            answer: 100,
            answer_chunked: false,
            pause: Duration::ZERO,
        };
        world.add(client(address(HTTP), (0..each).map(ask).collect(), Rc::clone(&endings)));
    }
    world.run_for(Duration::from_secs(5));
    let breaker = |name: &str| {
        registry.read().number(&format!("cluster.app.circuit_breakers.default.{name}"))
    };
    let early = endings.borrow().len();
    let shown = (breaker("rq_open"), breaker("remaining_rq"));
    world.run_for(Duration::from_secs(60));
    let endings = endings.borrow();
    let count =
        |wanted: fn(&Ending) -> bool| endings.values().flatten().filter(|end| wanted(end)).count();
    let cluster = snapshot.cluster(ClusterId(0)).unwrap();
    assert_eq!(cluster.in_use[0].requests.value(), 0, "what is taken is given back");
    assert_eq!(cluster.in_use[0].pending.value(), 0, "what is taken is given back");
    Outcome {
        ok: count(|end| matches!(end, Ending::Answered { status: 200, from_origin: true })),
        refused: count(|end| matches!(end, Ending::Answered { status: 503, from_origin: false })),
        broken: count(|end| matches!(end, Ending::Broken)),
        early,
        reached: log.borrow().times.len(),
        shown,
    }
}

#[test]
fn as_many_clients_as_requests_are_allowed_are_all_served() {
    for workers in WORKERS {
        for_each_seed(20, |seed| {
            let mut plan = Plan::new(1);
            plan.cluster.limits = Limits { requests: 8, ..Limits::default() };
            let outcome = run(seed, workers, plan.snapshot(), 8, 10, Habits::default());
            assert_eq!((outcome.ok, outcome.refused), (80, 0), "{workers} workers");
        });
    }
}

#[test]
fn of_more_requests_than_allowed_exactly_the_limit_is_let_through() {
    for workers in WORKERS {
        for_each_seed(20, |seed| {
            let mut plan = Plan::new(1);
            plan.cluster.limits =
                Limits { requests: 5, track_remaining: true, ..Limits::default() };
            let habits = Habits { silent: true, ..Habits::default() };
            let outcome = run(seed, workers, plan.snapshot(), 16, 1, habits);
            assert_eq!((outcome.reached, outcome.refused), (5, 11), "{workers} workers");
            assert_eq!(outcome.shown, (Some(1), Some(0)), "{workers} workers");
        });
    }
}

#[test]
fn requests_that_wait_are_counted_together() {
    for workers in WORKERS {
        for_each_seed(20, |seed| {
            let mut plan = Plan::new(1);
            plan.cluster.limits = Limits { pending: 6, ..Limits::default() };
            plan.cluster.connect_timeout = Duration::from_secs(20);
            let habits = Habits::default();
            let hangs = Faults { hang_permille: 1000, ..Faults::none() };
            let outcome = run_with(seed, workers, plan.snapshot(), 10, 1, habits, hangs);
            assert_eq!((outcome.early, outcome.refused), (4, 4), "{workers} workers");
        });
    }
}

/// The snapshot with something changed in its HTTP listener.
fn with_listener(change: impl FnOnce(&mut Listener)) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    change(Arc::get_mut(&mut snapshot.listeners[0]).unwrap());
    snapshot
}

#[test]
fn connection_limits_let_exactly_so_many_in() {
    let silent = Habits { silent: true, ..Habits::default() };
    for workers in WORKERS {
        for_each_seed(20, |seed| {
            let of_listener = with_listener(|listener| listener.max_connections = Some(5));
            let mut of_process = Plan::new(1).snapshot();
            of_process.max_connections = Some(5);
            let of_filter = with_listener(|listener| {
                let chain: &mut FilterChain = Arc::get_mut(&mut listener.chains[0]).unwrap();
                chain.filters.list.push(Arc::new(ConnectionLimit {
                    stat_prefix: "few".into(),
                    max_connections: 5,
                    open: Default::default(),
                    delay: Duration::ZERO,
                }));
            });
            for snapshot in [of_listener, of_process, of_filter] {
                let outcome = run(seed, workers, snapshot, 12, 1, silent);
                assert_eq!(outcome.reached, 5, "{workers} workers");
                assert!(outcome.broken >= 7, "{workers} workers");
            }
        });
    }
}
