//! Requests that go where they say, each name by a cluster of its own: what waits for one holds nothing up, its
//! addresses are all hosts, and it ends without those that are on their way.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use scene::bench::Bench;
use scene::{HTTP, Plan};
use towpath_engine::filter::ChainFilter;
use towpath_engine::filter::dynamic_forward_proxy::ForwardProxy;
use towpath_engine::message::{FromWorker, Message, ToWorker};
use towpath_engine::names::{SubCluster, SubEvent, SubNews, SubQuestion};
use towpath_engine::snapshot::cluster::{
    Balancer, Balancing, Discovery, Dns, Endpoint, Family, SubClusters,
};
use towpath_engine::snapshot::dns::DnsOptions;
use towpath_engine::snapshot::happy_eyeballs::HappyEyeballs;
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::{Cluster, ClusterId, Snapshot};
use towpath_proto::{Address, Failure, Input};

fn settings() -> SubClusters {
    SubClusters {
        most: 8,
        ttl: Duration::from_secs(300),
        balancing: Balancing::new(Balancer::RoundRobin),
        dns: Dns {
            logical: false,
            names: Vec::new(),
            refresh: Duration::from_secs(5),
            failure_refresh: None,
            respect_ttl: false,
            jitter: Duration::ZERO,
            family: Family::V4Only,
            eyeballs: HappyEyeballs::default(),
            least_refresh: Duration::ZERO,
            resolver: DnsOptions::default(),
        },
        stat_name: None,
    }
}

fn snapshot(has_filter: bool) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    let mut cluster = Arc::try_unwrap(snapshot.clusters[0].take().unwrap()).unwrap();
    cluster.discovery = Discovery::SubClusters(Box::new(settings()));
    cluster.endpoints = Arc::from([]);
    snapshot.clusters[0] = Some(Arc::new(cluster));
    if has_filter {
        let listener = Arc::get_mut(&mut snapshot.listeners[0]).unwrap();
        let chain = Arc::get_mut(&mut listener.chains[0]).unwrap();
        let Terminal::Http(http) = &mut chain.terminal else { panic!("it speaks HTTP") };
        let within = Duration::from_secs(5);
        let config = Arc::new(ForwardProxy { cache: "".into(), by_state: false, within });
        let filter = ChainFilter { name: "dfp".into(), disabled: false, config };
        Arc::get_mut(http).unwrap().chain.filters.push(filter);
    }
    snapshot
}

/// A worker, and what the control thread has beside it.
struct Scene {
    bench: Bench,
    parent: Arc<Cluster>,
    made: u32,
}

impl Scene {
    fn new(has_filter: bool) -> Self {
        let snapshot = snapshot(has_filter);
        let parent = Arc::clone(snapshot.clusters[0].as_ref().unwrap());
        Self { bench: Bench::of(snapshot), parent, made: 0 }
    }

    /// Another client asks.
    fn get(&mut self, host: &str) -> String {
        self.bench.accept(HTTP);
        let sent = self.bench.ask(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        String::from_utf8(sent).unwrap()
    }

    /// What the worker has asked for.
    fn asked(&mut self) -> Vec<SubQuestion> {
        let told = std::mem::take(&mut self.bench.told).into_iter();
        let questions = told.filter_map(|told| match told {
            FromWorker::Sub(question) => Some(question),
            _ => None,
        });
        questions.collect()
    }

    fn tell(&mut self, question: &SubQuestion, event: SubEvent) -> String {
        let (parent, name) = (question.parent, Arc::from(question.name()));
        let news = SubNews { parent, name, event };
        self.bench.give(Input::Message(Message::To(ToWorker::Sub(news))));
        String::from_utf8(self.bench.sent()).unwrap()
    }

    /// A cluster of hosts of these numbers is ready.
    fn make(&mut self, question: &SubQuestion, hosts: &[u8]) -> String {
        let name = Arc::from(question.name());
        let mut cluster = self.parent.sub_cluster(&name, &question.host, question.port).unwrap();
        cluster.endpoints = hosts.iter().map(|host| endpoint(*host)).collect();
        let id = ClusterId::of_sub(self.made);
        self.made += 1;
        let ready = SubCluster::new(id, Arc::new(cluster), Arc::new(AtomicU64::new(0)));
        self.tell(question, SubEvent::Ready(Arc::new(ready)))
    }

    fn of_sub(&self, name: &str) -> u64 {
        self.bench.number(&format!("cluster.DFPCluster_a.test_80.{name}"))
    }
}

fn endpoint(host: u8) -> Endpoint {
    Endpoint::new(Address::Ip(SocketAddr::from(([10, 0, 1, host], 80))))
}

#[test]
fn requests_for_one_name_wait_for_its_cluster_and_take_all_its_hosts() {
    let mut scene = Scene::new(true);
    assert_eq!(scene.get("a.test"), "");
    assert_eq!(scene.get("a.test"), "");
    let asked = scene.asked();
    let wanted = SubQuestion { parent: ClusterId(0), host: "a.test".into(), port: 80 };
    assert_eq!(asked, [wanted.clone(), wanted]);
    let sent = scene.make(&asked[0], &[1, 2]);
    assert_eq!(sent.matches("host: a.test").count(), 2, "{sent}");
    scene.bench.give(Input::Message(Message::To(ToWorker::Describe { token: 1 })));
    scene.bench.sent();
    let hosts = scene.bench.told.iter().find_map(|told| match told {
        FromWorker::Description { clusters, .. } => {
            clusters.iter().find(|it| &*it.name == "DFPCluster:a.test:80")
        }
        _ => None,
    });
    let counts: Vec<u64> =
        hosts.unwrap().hosts.iter().map(|host| host.counts.requests_total).collect();
    assert_eq!(counts, [1, 1], "each host has one of both");
    assert_eq!((scene.of_sub("upstream_rq_total"), scene.of_sub("membership_total")), (2, 2));
    // From here on it is known.
    scene.bench.told.clear();
    let sent = scene.get("a.test:80");
    assert!(sent.contains("host: a.test"), "{sent}");
    assert_eq!(scene.asked(), []);
}

#[test]
fn a_request_waits_so_long_and_no_longer() {
    let mut scene = Scene::new(true);
    assert_eq!(scene.get("a.test"), "");
    assert_eq!(scene.bench.wait(4_900), b"");
    let sent = String::from_utf8(scene.bench.wait(200)).unwrap();
    assert!(sent.starts_with("HTTP/1.1 503") && sent.ends_with("Sub cluster warming timeout"));
    let asked = scene.asked();
    assert_eq!(scene.make(&asked[0], &[1]), "", "no stream waits any more");
    assert!(scene.get("a.test").contains("host: a.test"));
    assert!(scene.bench.wait(10_000).is_empty(), "it waits for its answer alone");
}

#[test]
fn there_are_too_many() {
    let mut scene = Scene::new(true);
    scene.get("a.test");
    let asked = scene.asked();
    let sent = scene.tell(&asked[0], SubEvent::Full);
    assert!(sent.starts_with("HTTP/1.1 503") && sent.ends_with("Sub cluster overflow"), "{sent}");
    // The next one asks anew.
    assert_eq!(scene.get("a.test"), "");
    assert_eq!(scene.asked().len(), 1);
}

#[test]
fn a_name_without_an_address_has_a_cluster_without_hosts() {
    let mut scene = Scene::new(true);
    scene.get("a.test");
    let asked = scene.asked();
    let sent = scene.make(&asked[0], &[]);
    assert!(sent.starts_with("HTTP/1.1 503") && sent.ends_with("no healthy upstream"), "{sent}");
    assert_eq!(scene.bench.number("cluster.app.upstream_cx_none_healthy"), 1);
    assert_eq!(scene.of_sub("upstream_cx_none_healthy"), 0);
    // It has one later.
    let (cluster, endpoints) = (ClusterId::of_sub(0), Arc::from([endpoint(1)]));
    scene.bench.give(Input::Message(Message::To(ToWorker::Hosts { cluster, endpoints })));
    assert!(scene.get("a.test").contains("host: a.test"));
}

#[test]
fn one_ends_with_what_is_on_its_way() {
    let mut scene = Scene::new(true);
    scene.get("a.test");
    let asked = scene.asked();
    assert!(scene.make(&asked[0], &[1]).contains("host: a.test"));
    assert_eq!(scene.tell(&asked[0], SubEvent::Gone), "");
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let sent = String::from_utf8(scene.bench.answer(answer)).unwrap();
    assert!(sent.starts_with("HTTP/1.1 200"), "{sent}");
    assert_eq!(scene.of_sub("upstream_rq_total"), 0, "its statistics are gone with it");
    // Another takes its place.
    assert_eq!(scene.get("a.test"), "");
    assert_eq!(scene.asked().len(), 1);
    assert!(scene.make(&asked[0], &[1]).contains("host: a.test"));
    assert_eq!(scene.of_sub("upstream_rq_total"), 1);
}

#[test]
fn what_waits_goes_on_waiting_where_one_ends_before_it_was_there() {
    let mut scene = Scene::new(true);
    scene.get("a.test");
    let asked = scene.asked();
    assert_eq!(scene.tell(&asked[0], SubEvent::Gone), "");
    assert!(scene.make(&asked[0], &[1]).contains("host: a.test"));
}

#[test]
fn who_leaves_gives_up_its_place() {
    let mut scene = Scene::new(true);
    for _ in 0..1000 {
        assert_eq!(scene.get("a.test"), "");
        let connection = scene.bench.client;
        scene.bench.give(Input::Closed { connection, failure: Failure::Reset });
        scene.bench.sent();
    }
    let asked = scene.asked();
    assert_eq!(scene.make(&asked[0], &[1]), "");
    assert_eq!(scene.of_sub("upstream_rq_total"), 0);
}

#[test]
fn without_the_filter_none_is_made() {
    let mut scene = Scene::new(false);
    let sent = scene.get("a.test");
    assert!(sent.starts_with("HTTP/1.1 503") && sent.ends_with("no healthy upstream"), "{sent}");
    assert_eq!(scene.asked(), []);
}
