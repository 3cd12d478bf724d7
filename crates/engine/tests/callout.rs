//! Requests that wait for what another server says: each is asked about once, and whatever becomes of the question or
//! of the client, nothing is left.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::client::{Ending, add_clients};
use scene::filters::{add_asked_cluster, add_filter};
use scene::origin::{Habits, Log, origin};
use scene::{HTTP, Plan, add_worker_for, address, drain_and_check, origin_address};
use towpath_engine::filter::ext_authz::{
    Body, ExtAuthz, HttpService, Server, Service, SharedExtAuthz,
};
use towpath_engine::matcher::StringMatcher;
use towpath_engine::message::Message;
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::route::HeaderOps;
use towpath_engine::stats::Registry;
use towpath_engine::worker::Worker;
use towpath_proto::{Close, Input, Instant};
use towpath_sim::{Orders, Script, World, for_each_seed};

fn authz(name: &str) -> ExtAuthz {
    asking(name, Duration::from_millis(500))
}

fn asking(name: &str, timeout: Duration) -> ExtAuthz {
    let service = HttpService {
        cluster: name.into(),
        path_prefix: "/check".into(),
        path: "".into(),
        headers: HeaderOps::default(),
        upstream: Vec::new(),
        appended: Vec::new(),
        client: Vec::new(),
        client_on_success: Vec::new(),
        metadata: Vec::new(),
        retry: None,
    };
    let server = Server { service: Service::Http(Box::new(service)), timeout };
    ExtAuthz {
        allowed: Some(vec![StringMatcher::prefix("x-", false).unwrap()]),
        ..ExtAuthz::new(Arc::new(server), "".into())
    }
}

/// A filter that asks the server at `origin_address(9)`, before a route to that at `origin_address(1)`.
fn snapshot(config: ExtAuthz) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    add_asked_cluster(&mut snapshot, "authz");
    add_filter(&mut snapshot, "authz", SharedExtAuthz(Arc::new(config)));
    snapshot
}

struct Outcome {
    endings: Vec<(String, Vec<Ending>)>,
    asked: Vec<u32>,
    served: usize,
    counters: [u64; 3],
    wrong_bodies: u32,
}

const CLIENTS: usize = 3;
const REQUESTS: usize = 8;

/// Clients that send requests of up to so many bytes past a server with these habits.
fn run(seed: u64, config: ExtAuthz, habits: Habits, largest: usize) -> Outcome {
    let mut world: World<Message> = World::new(seed);
    let (served, asked) = (Log::default(), Log::default());
    world.add(origin(origin_address(1), served.clone(), Habits::default()));
    world.add(origin(origin_address(9), asked.clone(), habits));
    let registry = Arc::new(Registry::default());
    let worker = add_worker_for(&mut world, seed, Arc::new(snapshot(config)), &registry);
    world.run_for(Duration::from_millis(1));
    let endings = add_clients(&mut world, seed, (CLIENTS, REQUESTS), largest);
    world.run_for(Duration::from_secs(60));
    let number = |name: &str| registry.read().number(name).unwrap_or(0);
    assert_eq!(number("cluster.authz.upstream_rq_active"), 0);
    let counters = ["ok", "denied", "error"].map(|it| number(&format!("http.in.ext_authz.{it}")));
    drain_and_check(&mut world, worker);
    Outcome {
        endings: endings.borrow().clone().into_iter().collect(),
        asked: asked.borrow().times.values().copied().collect(),
        served: served.borrow().times.len(),
        counters,
        wrong_bodies: served.borrow().wrong_bodies,
    }
}

const ALL: usize = CLIENTS * REQUESTS;
const SERVED: [Ending; 1] = [Ending::Answered { status: 200, from_origin: true }];
const REFUSED: [Ending; 1] = [Ending::Answered { status: 403, from_origin: false }];

#[test]
fn each_request_is_asked_about_once_and_goes_on() {
    for_each_seed(20, |seed| {
        let outcome = run(seed, authz("authz"), Habits::default(), 60_000);
        assert_eq!(outcome.counters, [ALL as u64, 0, 0]);
        assert_eq!((outcome.asked, outcome.served), (vec![1; ALL], ALL));
        assert_eq!(outcome.wrong_bodies, 0, "content that waited is whole and in order");
        for (id, endings) in outcome.endings {
            assert_eq!(endings, SERVED, "{id}");
        }
    });
}

#[test]
fn a_server_that_says_nothing_is_waited_for_as_long_as_its_time() {
    for_each_seed(20, |seed| {
        let silent = Habits { silent: true, ..Habits::default() };
        let outcome = run(seed, authz("authz"), silent, 60_000);
        assert_eq!((outcome.counters, outcome.served), ([0, 0, ALL as u64], 0));
        for (id, endings) in outcome.endings {
            assert_eq!(endings, REFUSED, "{id}");
        }
    });
}

#[test]
fn without_an_answer_requests_go_on_where_that_is_wanted() {
    for (name, habits) in [
        ("authz", Habits { fail_every: Some(1), ..Habits::default() }),
        ("authz", Habits { silent: true, ..Habits::default() }),
        ("none", Habits::default()),
    ] {
        for_each_seed(5, |seed| {
            let config = ExtAuthz { failure_mode_allow: true, ..authz(name) };
            let outcome = run(seed, config, habits, 20_000);
            assert_eq!((outcome.counters, outcome.served), ([0, 0, ALL as u64], ALL));
            assert_eq!(outcome.wrong_bodies, 0);
        });
    }
}

#[test]
fn what_a_closing_connection_swallows_is_an_error_and_no_second_question() {
    for_each_seed(20, |seed| {
        let closes = Habits { close_after: Some(2), ..Habits::default() };
        let outcome = run(seed, authz("authz"), closes, 20_000);
        assert!(outcome.asked.iter().all(|times| *times == 1), "{:?}", outcome.asked);
        let [ok, denied, error] = outcome.counters;
        assert_eq!((ok + error, denied), (ALL as u64, 0));
        assert_eq!(outcome.served as u64, ok);
    });
}

#[test]
fn content_that_is_sent_along_stays_whole() {
    for partial in [true, false] {
        for_each_seed(20, |seed| {
            let body = Some(Body { limit: 8_000, partial, as_bytes: false });
            let config = ExtAuthz { body, ..authz("authz") };
            let outcome =
                run(seed, config, Habits::default(), 7_999 + 20_000 * usize::from(partial));
            assert_eq!(outcome.counters, [ALL as u64, 0, 0]);
            assert_eq!((outcome.served, outcome.wrong_bodies), (ALL, 0));
        });
    }
}

#[test]
fn a_client_that_leaves_takes_its_question_along() {
    for_each_seed(20, |seed| {
        let mut world: World<Message> = World::new(seed);
        world.add(origin(origin_address(1), Log::default(), Habits::default()));
        let silent = Habits { silent: true, ..Habits::default() };
        world.add(origin(origin_address(9), Log::default(), silent));
        let registry = Arc::new(Registry::default());
        let config = asking("authz", Duration::from_secs(1000));
        let worker = add_worker_for(&mut world, seed, Arc::new(snapshot(config)), &registry);
        world.run_for(Duration::from_millis(1));
        world.add(leaving_client());
        world.run_for(Duration::from_millis(400));
        assert_eq!(world.machine::<Worker>(worker).streams(), 2, "a request and its question");
        world.run_for(Duration::from_secs(2));
        assert_eq!(world.machine::<Worker>(worker).streams(), 0);
        assert_eq!(registry.read().number("cluster.authz.upstream_rq_active"), Some(0));
        drain_and_check(&mut world, worker);
    });
}

/// One that closes its connection half a second after its request.
fn leaving_client() -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut connection = None;
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Timeout if connection.is_none() => {
                orders.connect(address(HTTP));
            }
            Input::Connected { connection: id, .. } => {
                connection = Some(id);
                orders.send(
                    id,
                    Bytes::from_static(
                        b"GET /x HTTP/1.1\r\nhost: a\r\nx-size: 0\r\nx-body: 0\r\n\r\n",
                    ),
                );
                orders.wake_at(now + Duration::from_millis(500));
            }
            Input::Timeout => orders.close(connection.unwrap(), Close::Abort),
            _ => {}
        },
    )
}
