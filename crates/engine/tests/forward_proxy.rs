//! Requests that go where they say: they wait for a name without holding anything up, and what clients can grow is
//! bounded.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use scene::bench::Bench;
use scene::{HTTP, Plan};
use towpath_engine::filter::ChainFilter;
use towpath_engine::filter::dynamic_forward_proxy::ForwardProxy;
use towpath_engine::message::{FromWorker, Message, ToWorker};
use towpath_engine::names::{Act, Answer, Cache, NameFault};
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::cluster::{Discovery, Family};
use towpath_engine::snapshot::dns::DnsOptions;
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::names::DnsCache;
use towpath_engine::stats::Registry;
use towpath_proto::{Failure, Input, Instant};

fn config() -> DnsCache {
    DnsCache {
        name: "k".into(),
        family: Family::V4Only,
        refresh: Duration::from_secs(60),
        least_refresh: Duration::from_secs(5),
        failure_refresh: None,
        host_ttl: Duration::from_secs(10),
        max_hosts: 8,
        max_pending: 5,
        query_timeout: Some(Duration::from_secs(5)),
        preresolved: Vec::new(),
        resolver: DnsOptions::default(),
    }
}

fn snapshot(config: &DnsCache, has_filter: bool) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    let mut cluster = Arc::try_unwrap(snapshot.clusters[0].take().unwrap()).unwrap();
    cluster.discovery = Discovery::Named("k".into());
    cluster.endpoints = Arc::from([]);
    snapshot.clusters[0] = Some(Arc::new(cluster));
    snapshot.dns_caches.push(Arc::new(config.clone()));
    if has_filter {
        let listener = Arc::get_mut(&mut snapshot.listeners[0]).unwrap();
        let chain = Arc::get_mut(&mut listener.chains[0]).unwrap();
        let Terminal::Http(http) = &mut chain.terminal else { panic!("it speaks HTTP") };
        let config = Arc::new(ForwardProxy {
            cache: "k".into(),
            by_state: false,
            within: Duration::from_secs(5),
        });
        let filter = ChainFilter { name: "dfp".into(), disabled: false, config };
        Arc::get_mut(http).unwrap().chain.filters.push(filter);
    }
    snapshot
}

/// A worker, and the control thread's cache beside it.
struct Scene {
    bench: Bench,
    cache: Cache,
    /// Questions that wait for an answer.
    queries: Vec<(u64, Arc<str>)>,
}

const UNIX: u64 = 1_700_000_000_000;

impl Scene {
    fn new(has_filter: bool) -> Self {
        let config = config();
        let bench = Bench::of(snapshot(&config, has_filter));
        let cache = Cache::new(Arc::new(config), &Registry::default(), 9, Instant::ZERO, UNIX);
        Self { bench, cache, queries: Vec::new() }
    }

    fn get(&mut self, host: &str) -> String {
        let sent = self.bench.ask(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        String::from_utf8(sent).unwrap()
    }

    /// Another client asks.
    fn another(&mut self, host: &str) -> String {
        self.bench.accept(HTTP);
        self.get(host)
    }

    fn leave(&mut self) {
        let connection = self.bench.client;
        self.bench.give(Input::Closed { connection, failure: Failure::Reset });
        self.bench.sent();
    }

    /// Hands on what the worker asks; how many questions there were.
    fn hand_on(&mut self) -> usize {
        let mut asked = 0;
        for told in std::mem::take(&mut self.bench.told) {
            if let FromWorker::Name(question) = told {
                asked += 1;
                self.cache.want(&question.host, Instant::ZERO, UNIX);
            }
        }
        asked
    }

    /// Hands back what the cache tells.
    fn hand_back(&mut self) -> String {
        while let Some(act) = self.cache.take_act() {
            match act {
                Act::Query { query, host, .. } => self.queries.push((query, host)),
                Act::Tell(news) => {
                    self.bench.give(Input::Message(Message::To(ToWorker::Name(news))));
                }
            }
        }
        String::from_utf8(self.bench.sent()).unwrap()
    }

    fn answer(&mut self, answer: &Answer) -> String {
        self.hand_back();
        for (query, host) in std::mem::take(&mut self.queries) {
            self.cache.answer(&host, query, answer.clone(), Instant::ZERO, UNIX, 0);
        }
        self.hand_back()
    }
}

fn found() -> Answer {
    Answer::Found { addresses: vec![IpAddr::from([10, 0, 1, 1])], ttl: None }
}

#[test]
fn requests_for_one_name_wait_for_one_question() {
    for has_filter in [true, false] {
        let mut scene = Scene::new(has_filter);
        assert_eq!(scene.get("a.test"), "");
        assert_eq!(scene.another("a.test"), "");
        assert_eq!(scene.hand_on(), 1);
        let sent = scene.answer(&found());
        assert_eq!(sent.matches("host: a.test").count(), 2, "{sent}");
        assert_eq!(scene.bench.number("cluster.app.membership_total"), 1);
        // From here on it is known.
        let sent = scene.another("a.test");
        assert!(sent.contains("host: a.test"), "{sent}");
        assert_eq!(scene.hand_on(), 0);
    }
}

#[test]
fn a_name_without_an_address_is_told_so() {
    for (has_filter, text) in [(true, "DNS resolution failure"), (false, "no healthy upstream")] {
        let mut scene = Scene::new(has_filter);
        scene.get("nx.test");
        scene.hand_on();
        let sent = scene.answer(&Answer::Fault(NameFault::NoSuchName));
        assert!(sent.starts_with("HTTP/1.1 503") && sent.ends_with(text), "{sent}");
        let sent = scene.another("nx.test");
        assert!(sent.starts_with("HTTP/1.1 503") && sent.ends_with(text), "{sent}");
    }
}

#[test]
fn so_many_requests_wait_and_no_more() {
    let mut scene = Scene::new(true);
    let overflow = "Dynamic forward proxy pending request overflow";
    for number in 0..5 {
        assert_eq!(scene.another(&format!("n{number}.test")), "");
    }
    assert!(scene.another("one-more.test").ends_with(overflow));
    assert_eq!(scene.bench.number("dns_cache.k.dns_rq_pending_overflow"), 1);
    assert_eq!(scene.bench.number("dns_cache.k.circuit_breakers.rq_pending_open"), 1);
    // Who leaves makes room.
    scene.bench.accept(HTTP);
    for _ in 0..3 {
        let sent = scene.another("late.test");
        assert!(sent.ends_with(overflow), "{sent}");
    }
    scene.hand_on();
    let sent = scene.answer(&found());
    assert_eq!(sent.matches("GET / HTTP/1.1").count(), 5, "{sent}");
    assert_eq!(scene.bench.number("dns_cache.k.circuit_breakers.rq_pending_remaining"), 5);
}

#[test]
fn who_leaves_gives_up_its_place() {
    for has_filter in [true, false] {
        let mut scene = Scene::new(has_filter);
        for _ in 0..1000 {
            assert_eq!(scene.another("slow.test"), "");
            scene.leave();
        }
        assert_eq!(scene.hand_on(), 1, "the name is asked for once");
        assert_eq!(scene.bench.number("dns_cache.k.circuit_breakers.rq_pending_remaining"), 5);
        assert_eq!(scene.answer(&found()), "");
        assert_eq!(scene.bench.number("cluster.app.upstream_rq_total"), 0);
    }
}

#[test]
fn a_flood_of_names_is_bounded() {
    for has_filter in [true, false] {
        let mut scene = Scene::new(has_filter);
        for number in 0..1000 {
            scene.another(&format!("n{number}.test"));
            scene.leave();
        }
        // The control thread has not heard of any yet.
        assert_eq!(scene.hand_on(), 8);
        assert_eq!(scene.bench.number("dns_cache.k.host_overflow"), 992);
        assert_eq!(scene.cache.len(), 8);
        scene.answer(&Answer::Fault(NameFault::TimedOut));
        // It has room for names in flight again; the control thread has none.
        assert_eq!(scene.another("more.test"), "");
        assert_eq!(scene.hand_on(), 1);
        let sent = scene.hand_back();
        assert!(sent.starts_with("HTTP/1.1 503"), "{sent}");
    }
}

#[test]
fn a_host_goes_with_its_name() {
    let mut scene = Scene::new(true);
    scene.get("a.test");
    scene.another("b.test:81");
    scene.hand_on();
    scene.answer(&found());
    assert_eq!(scene.bench.number("cluster.app.membership_total"), 2);
    let later = Instant::ZERO + Duration::from_secs(20);
    scene.cache.advance(later, UNIX + 60_000, 0);
    scene.hand_back();
    assert_eq!(scene.bench.number("cluster.app.membership_total"), 0);
    // It is asked for anew.
    assert_eq!(scene.another("b.test:81"), "");
    assert_eq!(scene.hand_on(), 1);
    let sent = scene.answer(&found());
    assert!(sent.contains("host: b.test:81"), "{sent}");
    assert_eq!(scene.bench.number("cluster.app.membership_total"), 1);
}
