//! Requests that wait for the keys of an issuer: they are asked for once, and whatever becomes of the server or of a
//! client, the others go on and nothing is left.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::filters::{add_asked_cluster, add_filter};
use scene::origin::{Habits, Log, origin};
use scene::{HTTP, Plan, add_worker_for, address, drain_and_check, origin_address};
use towpath_engine::filter::jwt_authn::{
    FetchAhead, Heard, JwtAuthn, KeySource, Provider, RemoteKeys, SharedJwtAuthn,
};
use towpath_engine::message::Message;
use towpath_engine::snapshot::Snapshot;
use towpath_engine::stats::Registry;
use towpath_engine::worker::Worker;
use towpath_proto::{Close, ConnectionId, HeaderName, Input, Instant};
use towpath_sim::{NodeId, Orders, Script, World, for_each_seed};

/// Signed with the key in [`KEYS`].
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.eyJpc3MiOiJmYXIifQ.\
                     gkihH4JGXgwlnO749XiyKGYmLqZybBxFsJdJ_h-m4-o";
const KEYS: &str =
    r#"{"keys":[{"kty":"oct","kid":"k1","k":"c2VjcmV0LW9mLTMyLWJ5dGVzLWZvci10ZXN0aW5nLTE"}]}"#;

fn provider(timeout: Duration, cache_duration: Duration) -> Provider {
    provider_of(timeout, cache_duration, None)
}

/// Keys that are fetched before requests need them.
fn ahead(cache_duration: Duration, fast_listener: bool) -> Provider {
    let ahead = FetchAhead {
        fast_listener,
        failed_refetch: SECOND,
        stat_prefix: "".into(),
        heard: Heard::default(),
    };
    provider_of(2 * SECOND, cache_duration, Some(ahead))
}

fn provider_of(timeout: Duration, cache_duration: Duration, ahead: Option<FetchAhead>) -> Provider {
    let keys = RemoteKeys {
        cluster: "keys".into(),
        authority: "keys.test".into(),
        path: "/".into(),
        timeout,
        cache_duration,
        retry: None,
        ahead,
    };
    let mut provider = Provider::new("far", KeySource::Remote(Arc::new(keys)));
    provider.headers = vec![(HeaderName::new("x-token").unwrap(), [].into())];
    provider
}

/// A filter that asks the server at `origin_address(9)`, before a route to that at `origin_address(1)`.
fn snapshot(provider: Provider) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    add_asked_cluster(&mut snapshot, "keys");
    let config = JwtAuthn::of_provider(provider);
    add_filter(&mut snapshot, "jwt", SharedJwtAuthn::new(config));
    snapshot
}

/// What a server of keys does with a question.
#[derive(Clone, Copy)]
enum Server {
    /// Answers after so long.
    Answers(Duration),
    /// Never answers.
    Hangs,
    /// Closes the connection.
    Dies,
}

/// A server of keys, and how often it was asked.
fn key_server(
    server: Server,
    asked: Rc<RefCell<u32>>,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let (mut waiting, mut heads) = (Vec::new(), HashMap::<ConnectionId, Vec<u8>>::new());
    Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(9)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Received { connection, chunk } => {
                let head = heads.entry(connection).or_default();
                head.extend_from_slice(&chunk);
                if !head.ends_with(b"\r\n\r\n") {
                    return;
                }
                head.clear();
                *asked.borrow_mut() += 1;
                match server {
                    Server::Answers(after) => {
                        waiting.push(connection);
                        orders.wake_at(now + after);
                    }
                    Server::Hangs => {}
                    Server::Dies => orders.close(connection, Close::Abort),
                }
            }
            Input::Timeout => {
                for connection in waiting.drain(..) {
                    let length = KEYS.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{KEYS}");
                    orders.send(connection, answer);
                }
            }
            Input::Ended { connection } => orders.close(connection, Close::Flush),
            _ => {}
        },
    )
}

type Statuses = Rc<RefCell<Vec<String>>>;

/// A client that asks once, so long after the start, and may leave after so long.
fn client(
    start: Duration,
    leaves: Option<Duration>,
    statuses: Statuses,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let (mut connection, mut answer) = (None, Vec::new());
    Script::new(
        move |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000) + start),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Timeout if connection.is_none() => {
                orders.connect(address(HTTP));
            }
            Input::Connected { connection: id, .. } => {
                connection = Some(id);
                let head = "GET /x HTTP/1.1\r\nhost: a\r\nx-size: 0\r\nx-body: 0\r\n";
                orders.send(id, Bytes::from(format!("{head}x-token: {TOKEN}\r\n\r\n")));
                if let Some(leaves) = leaves {
                    orders.wake_at(now + leaves);
                }
            }
            Input::Received { chunk, .. } => {
                let is_told = answer.len() >= STATUS.end;
                answer.extend_from_slice(&chunk);
                if let (false, Some(status)) = (is_told, answer.get(STATUS)) {
                    statuses.borrow_mut().push(String::from_utf8_lossy(status).into_owned());
                }
            }
            Input::Timeout => orders.close(connection.unwrap(), Close::Abort),
            _ => {}
        },
    )
}

/// Where the status of a response stands.
const STATUS: Range<usize> = 9..12;

struct Scene {
    world: World<Message>,
    worker: NodeId,
    registry: Arc<Registry>,
    asked: Rc<RefCell<u32>>,
    statuses: Statuses,
}

impl Scene {
    fn new(seed: u64, server: Server, provider: Provider) -> Self {
        let mut world: World<Message> = World::new(seed);
        world.add(origin(origin_address(1), Log::default(), Habits::default()));
        let asked = Rc::default();
        world.add(key_server(server, Rc::clone(&asked)));
        let registry = Arc::new(Registry::default());
        let snapshot = Arc::new(snapshot(provider));
        let worker = add_worker_for(&mut world, seed, snapshot, &registry);
        Self { world, worker, registry, asked, statuses: Rc::default() }
    }

    fn clients(&mut self, count: usize, start: Duration, leaves: Option<Duration>) {
        for _ in 0..count {
            self.world.add(client(start, leaves, Rc::clone(&self.statuses)));
        }
    }

    /// How often the server was asked, what the clients heard, and how many fetches went well and did not.
    fn end(mut self, time: Duration) -> (u32, Vec<String>, [u64; 2]) {
        self.world.run_for(time);
        assert_eq!(self.world.machine::<Worker>(self.worker).streams(), 0);
        let number = |name: &str| self.registry.read().number(name).unwrap_or(0);
        assert_eq!(number("cluster.keys.upstream_rq_active"), 0);
        let fetches =
            ["success", "failed"].map(|it| number(&format!("http.in.jwt_authn.jwks_fetch_{it}")));
        drain_and_check(&mut self.world, self.worker);
        let asked = *self.asked.borrow();
        (asked, self.statuses.take(), fetches)
    }
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn all(status: &str, count: usize) -> Vec<String> {
    vec![status.to_owned(); count]
}

#[test]
fn many_requests_ask_for_keys_once() {
    for_each_seed(10, |seed| {
        let server = Server::Answers(SECOND);
        let mut scene = Scene::new(seed, server, provider(5 * SECOND, HOUR));
        scene.clients(20, Duration::ZERO, None);
        scene.clients(5, SECOND / 2, None);
        scene.clients(5, 3 * SECOND, None);
        assert_eq!(scene.end(10 * SECOND), (1, all("200", 30), [1, 0]));
    });
}

#[test]
fn keys_that_are_old_are_asked_for_again() {
    for_each_seed(10, |seed| {
        let server = Server::Answers(SECOND / 10);
        let mut scene = Scene::new(seed, server, provider(5 * SECOND, 3 * SECOND));
        for second in 0..8 {
            scene.clients(2, second * SECOND, None);
        }
        let (asked, statuses, fetches) = scene.end(20 * SECOND);
        assert_eq!((statuses, fetches), (all("200", 16), [u64::from(asked), 0]));
        assert!((2..=3).contains(&asked), "{asked}");
    });
}

#[test]
fn a_server_that_hangs_or_dies_refuses_all_that_wait_and_the_next_request_asks_again() {
    for server in [Server::Hangs, Server::Dies] {
        for_each_seed(10, |seed| {
            let mut scene = Scene::new(seed, server, provider(2 * SECOND, HOUR));
            scene.clients(1, Duration::ZERO, None);
            scene.clients(1, 5 * SECOND, None);
            let (asked, statuses, fetches) = scene.end(20 * SECOND);
            assert_eq!((asked, statuses, fetches), (2, all("401", 2), [0, 2]));
        });
    }
    for_each_seed(10, |seed| {
        let mut scene = Scene::new(seed, Server::Hangs, provider(2 * SECOND, HOUR));
        scene.clients(20, Duration::ZERO, None);
        assert_eq!(scene.end(20 * SECOND), (1, all("401", 20), [0, 1]));
    });
}

#[test]
fn keys_that_are_fetched_ahead_are_there_for_the_first_request() {
    for fast_listener in [false, true] {
        for_each_seed(10, |seed| {
            let server = Server::Answers(SECOND / 10);
            let mut scene = Scene::new(seed, server, ahead(15 * SECOND, fast_listener));
            scene.clients(5, 5 * SECOND, None);
            // Asked at the start and every 10 seconds: five before they would be too old.
            let (asked, statuses, fetches) = scene.end(35 * SECOND);
            assert_eq!((asked, statuses, fetches), (4, all("200", 5), [4, 0]));
        });
    }
}

#[test]
fn a_listener_waits_for_keys_unless_it_is_fast() {
    for_each_seed(10, |seed| {
        let server = Server::Answers(SECOND);
        let mut scene = Scene::new(seed, server, ahead(HOUR, false));
        scene.clients(3, SECOND / 2, None);
        let (asked, statuses, _) = scene.end(10 * SECOND);
        assert_eq!((asked, statuses), (1, Vec::new()));
        // What comes before the answer asks as well, once.
        let mut scene = Scene::new(seed, server, ahead(HOUR, true));
        scene.clients(3, SECOND / 2, None);
        assert_eq!(scene.end(10 * SECOND), (2, all("200", 3), [2, 0]));
    });
}

#[test]
fn keys_that_do_not_come_are_asked_for_again_and_the_listener_opens() {
    for_each_seed(10, |seed| {
        let mut scene = Scene::new(seed, Server::Dies, ahead(HOUR, false));
        scene.clients(1, 5 * SECOND + SECOND / 2, None);
        let (asked, statuses, [good, failed]) = scene.end(10 * SECOND);
        assert_eq!((statuses, good), (all("401", 1), 0));
        // One of them is the request's own.
        assert!((9..=11).contains(&asked), "{asked}");
        assert!(failed.abs_diff(asked.into()) <= 1, "the last is under way: {failed} of {asked}");
    });
}

#[test]
fn a_client_that_leaves_takes_nothing_from_the_others() {
    for_each_seed(10, |seed| {
        let server = Server::Answers(2 * SECOND);
        let mut scene = Scene::new(seed, server, provider(5 * SECOND, HOUR));
        // It has asked, the others have joined.
        scene.clients(1, Duration::ZERO, Some(SECOND));
        scene.clients(3, SECOND / 2, None);
        scene.clients(1, SECOND / 2, Some(SECOND / 4));
        assert_eq!(scene.end(10 * SECOND), (1, all("200", 3), [1, 0]));
    });
}

#[test]
fn with_the_last_client_its_question_ends() {
    for_each_seed(10, |seed| {
        let mut scene = Scene::new(seed, Server::Hangs, provider(1000 * SECOND, HOUR));
        scene.clients(3, Duration::ZERO, Some(SECOND));
        scene.world.run_for(SECOND / 2);
        assert_eq!(scene.world.machine::<Worker>(scene.worker).streams(), 4);
        assert_eq!(scene.end(10 * SECOND), (1, Vec::new(), [0, 0]));
    });
}
