use towpath_config::{Options, Source, Sources};

use super::*;

/// A configuration with one cluster, and the place of it.
fn snapshot(settings: &str) -> (Snapshot, ClusterId) {
    let text = format!(
        r#"
        static_resources:
          clusters:
          - name: d
            lb_policy: CLUSTER_PROVIDED
            cluster_type:
              name: envoy.clusters.dynamic_forward_proxy
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig
                sub_clusters_config: {{ {settings} }}
        "#
    );
    let sources = Sources::file(Source::yaml("t", &text));
    let loaded = towpath_config::load(&sources, &Options::default()).unwrap();
    let id = loaded.snapshot.cluster_id("d").unwrap();
    (loaded.snapshot, id)
}

struct Bench {
    subs: SubClusters,
    parent: ClusterId,
    snapshot: Snapshot,
    now: Instant,
}

impl Bench {
    fn new(settings: &str) -> Self {
        let (snapshot, parent) = snapshot(settings);
        let (mut subs, now) = (SubClusters::default(), Instant::now());
        assert!(subs.follow(&snapshot, now).is_empty());
        Self { subs, parent, snapshot, now }
    }

    fn ask(&mut self, host: &str, unix_ms: u64) -> Asked {
        let question = SubQuestion { parent: self.parent, host: host.into(), port: 80 };
        self.subs.ask(&question, unix_ms)
    }

    fn made(&mut self, host: &str, unix_ms: u64) -> DnsCluster {
        let Asked::New(followed) = self.ask(host, unix_ms) else { panic!("{host} is not new") };
        followed
    }
}

#[test]
fn each_name_is_followed_once() {
    let mut bench = Bench::new("");
    let followed = bench.made("a.test", 0);
    assert_eq!(&*followed.name, "DFPCluster:a.test:80");
    assert_eq!(&*followed.stat_name, "DFPCluster_a.test_80");
    assert!(matches!(bench.ask("a.test", 1), Asked::Nothing));
    assert!(bench.made("b.test", 1).id != followed.id);
    assert_eq!((bench.subs.followed().count(), bench.subs.ready().count()), (2, 0));
    // Workers are told once that it is there, and of other hosts as of any cluster.
    let news = bench.subs.resolved(followed.id, &Arc::from([])).unwrap();
    assert!(matches!(news.event, SubEvent::Ready(ready) if ready.id == followed.id));
    assert!(bench.subs.resolved(followed.id, &Arc::from([])).is_none());
    assert_eq!(bench.subs.ready().count(), 1);
}

#[test]
fn there_are_so_many_and_no_more() {
    let mut bench = Bench::new("max_sub_clusters: 2, sub_cluster_ttl: 1s");
    bench.made("a.test", 0);
    bench.made("b.test", 1_500);
    let Asked::Full(news) = bench.ask("c.test", 1_500) else { panic!("there is no room") };
    assert!(matches!(news.event, SubEvent::Full));
    assert_eq!(&*news.name, "DFPCluster:c.test:80");
    assert!(matches!(bench.ask("a.test", 0), Asked::Nothing), "it is there");
    // One that was not used makes room.
    let later = bench.now + Duration::from_secs(2);
    let gone = bench.subs.expire(later, 2_000);
    let names: Vec<_> = gone.iter().map(|(_, news)| &*news.name).collect();
    assert_eq!(names, ["DFPCluster:a.test:80"]);
    bench.made("c.test", 2_000);
}

#[test]
fn it_is_looked_for_unused_ones_once_in_their_time() {
    let mut bench = Bench::new("sub_cluster_ttl: 10s");
    assert_eq!(bench.subs.next(), Some(bench.now + Duration::from_secs(10)));
    bench.made("a.test", 1);
    assert!(bench.subs.expire(bench.now + Duration::from_secs(9), 20_000).is_empty());
    assert!(bench.subs.expire(bench.now + Duration::from_secs(10), 10_001).is_empty());
    assert_eq!(bench.subs.next(), Some(bench.now + Duration::from_secs(20)));
    assert_eq!(bench.subs.expire(bench.now + Duration::from_secs(20), 10_002).len(), 1);
}

#[test]
fn they_end_with_the_cluster_that_has_them() {
    let mut bench = Bench::new("");
    bench.made("a.test", 0);
    let same = bench.snapshot.clone();
    assert!(bench.subs.follow(&same, bench.now).is_empty());
    let (other, _) = snapshot("max_sub_clusters: 5");
    assert_eq!(bench.subs.follow(&other, bench.now).len(), 1);
    bench.made("a.test", 0);
    assert_eq!(bench.subs.follow(&Snapshot::default(), bench.now).len(), 1);
    assert_eq!(bench.subs.next(), None);
    assert!(matches!(bench.ask("a.test", 0), Asked::Nothing), "no cluster has them");
}
