use std::net::IpAddr;

use super::*;
use crate::snapshot::dns::DnsOptions;

/// A cache in virtual time, and a resolver that is told what to say.
struct Bench {
    cache: Cache,
    registry: Registry,
    now: Instant,
    queries: Vec<(u64, Arc<str>)>,
    news: Vec<NameNews>,
}

const UNIX: u64 = 1_700_000_000_000;

impl Bench {
    fn new(change: impl FnOnce(&mut DnsCache)) -> Self {
        let mut config = config();
        change(&mut config);
        let registry = Registry::default();
        let cache = Cache::new(Arc::new(config), &registry, 7, Instant::ZERO, UNIX);
        let mut bench =
            Self { cache, registry, now: Instant::ZERO, queries: Vec::new(), news: Vec::new() };
        bench.take();
        bench
    }

    fn unix_ms(&self) -> u64 {
        UNIX + u64::try_from((self.now - Instant::ZERO).as_millis()).unwrap()
    }

    fn want(&mut self, host: &str) {
        self.cache.want(&Arc::from(host), self.now, self.unix_ms());
        self.take();
    }

    fn answer(&mut self, query: u64, host: &str, answer: Answer) {
        self.cache.answer(&Arc::from(host), query, answer, self.now, self.unix_ms(), 0);
        self.take();
    }

    /// Lets time pass, and the cache do what is due at its time.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.cache.next().filter(|due| *due <= until) {
            self.now = due;
            self.cache.advance(self.now, self.unix_ms(), 0);
            self.take();
        }
        self.now = until;
    }

    fn take(&mut self) {
        while let Some(act) = self.cache.take_act() {
            match act {
                Act::Query { query, host, .. } => self.queries.push((query, host)),
                Act::Tell(news) => self.news.push(news),
            }
        }
    }

    fn counted(&self, name: &str) -> u64 {
        self.registry.read().number(&format!("dns_cache.k.{name}")).unwrap()
    }

    /// What workers were told of a name last.
    fn told(&self, host: &str) -> Option<&NameEvent> {
        self.news.iter().rev().find(|news| *news.host == *host).map(|news| &news.event)
    }

    fn address(&self, host: &str) -> Option<String> {
        match self.told(host)? {
            NameEvent::Resolved(resolved) => resolved.address.ok().map(|it| it.to_string()),
            NameEvent::Gone | NameEvent::Full => None,
        }
    }

    fn touch(&self, host: &str) {
        let Some(NameEvent::Resolved(resolved)) = self.told(host) else { panic!("it is known") };
        resolved.touch(self.unix_ms());
    }
}

fn config() -> DnsCache {
    DnsCache {
        name: "k".into(),
        family: Family::V4Only,
        refresh: Duration::from_secs(60),
        least_refresh: Duration::from_secs(5),
        failure_refresh: None,
        host_ttl: Duration::from_secs(300),
        max_hosts: 1024,
        max_pending: 1024,
        query_timeout: Some(Duration::from_secs(5)),
        preresolved: Vec::new(),
        resolver: DnsOptions::default(),
    }
}

fn found(last: u8, ttl: u64) -> Answer {
    let addresses = vec![IpAddr::from([10, 0, 0, last])];
    Answer::Found { addresses, ttl: Some(Duration::from_secs(ttl)) }
}

#[test]
fn a_flood_of_names_is_bounded_and_room_comes_back() {
    let mut bench = Bench::new(|config| {
        config.max_hosts = 100;
        config.host_ttl = Duration::from_secs(10);
    });
    for number in 0..10_000 {
        bench.want(&format!("n{number}.test:80"));
    }
    assert_eq!((bench.cache.len(), bench.queries.len()), (100, 100));
    assert_eq!((bench.counted("num_hosts"), bench.counted("host_overflow")), (100, 9900));
    assert!(matches!(bench.told("n9999.test:80"), Some(NameEvent::Full)));
    // None is answered, and no request comes back for one of them.
    bench.pass(Duration::from_secs(30));
    assert!(bench.cache.is_empty() && bench.cache.next().is_none());
    assert_eq!((bench.counted("num_hosts"), bench.counted("host_removed")), (0, 100));
    bench.want("n9999.test:80");
    assert_eq!(bench.cache.len(), 1);
}

#[test]
fn a_name_goes_when_it_was_not_used_for_its_time() {
    let mut bench = Bench::new(|config| config.host_ttl = Duration::from_secs(20));
    for (host, last) in [("a.test:80", 1), ("b.test:80", 2)] {
        bench.want(host);
        let (query, _) = *bench.queries.last().unwrap();
        bench.answer(query, host, found(last, 15));
    }
    assert_eq!(bench.address("a.test:80").as_deref(), Some("10.0.0.1:80"));
    bench.pass(Duration::from_secs(14));
    bench.touch("b.test:80");
    // At 15 s both are asked for again; at 30 s the one has not been used for 30 s, the other for 16 s.
    bench.pass(Duration::from_secs(2));
    let again: Vec<_> = bench.queries.iter().skip(2).cloned().collect();
    assert_eq!(again.len(), 2);
    for (query, host) in again {
        bench.answer(query, &host, found(if *host == *"a.test:80" { 1 } else { 2 }, 15));
    }
    bench.pass(Duration::from_secs(15));
    assert!(matches!(bench.told("a.test:80"), Some(NameEvent::Gone)));
    assert_eq!(bench.address("b.test:80").as_deref(), Some("10.0.0.2:80"));
    assert_eq!((bench.counted("host_removed"), bench.counted("num_hosts")), (1, 1));
}

#[test]
fn a_resolver_that_never_answers_is_not_waited_for() {
    let mut bench = Bench::new(|config| {
        config.failure_refresh = Some((Duration::from_secs(1), Duration::from_secs(8)));
    });
    bench.want("slow.test:80");
    bench.pass(Duration::from_millis(4999));
    assert!(bench.told("slow.test:80").is_none());
    bench.pass(Duration::from_millis(1));
    let Some(NameEvent::Resolved(resolved)) = bench.told("slow.test:80") else {
        panic!("it has failed")
    };
    assert_eq!(resolved.address, Err(NameFault::TimedOut));
    assert_eq!((bench.counted("dns_query_timeout"), bench.counted("dns_query_failure")), (1, 1));
    // The pauses between questions grow: 0.5 s, 1 s, 2 s, 4 s, and no more.
    let before = bench.queries.len();
    bench.pass(Duration::from_secs(40));
    assert_eq!(bench.queries.len() - before, 5);
    // An answer to the first question comes too late.
    let told = bench.news.len();
    bench.answer(1, "slow.test:80", found(1, 60));
    assert_eq!(bench.news.len(), told);
}

#[test]
fn an_address_stays_until_there_is_another() {
    let mut bench = Bench::new(|config| config.refresh = Duration::from_secs(7));
    bench.want("a.test:8080");
    bench.answer(1, "a.test:8080", found(1, 0));
    // What holds for no time holds for the least time.
    bench.pass(Duration::from_millis(4999));
    assert_eq!(bench.queries.len(), 1);
    bench.pass(Duration::from_millis(1));
    bench.answer(2, "a.test:8080", Answer::Fault(NameFault::NoSuchName));
    assert_eq!(bench.address("a.test:8080").as_deref(), Some("10.0.0.1:8080"));
    bench.pass(Duration::from_secs(7));
    bench.answer(3, "a.test:8080", found(2, 60));
    assert_eq!(bench.address("a.test:8080").as_deref(), Some("10.0.0.2:8080"));
    assert_eq!(bench.news.len(), 2, "what did not change was not told");
    assert_eq!(bench.counted("host_address_changed"), 2);
    // Another worker asks, and is told what is known.
    bench.want("a.test:8080");
    assert_eq!((bench.news.len(), bench.queries.len()), (3, 3));
}

#[test]
fn what_cannot_be_a_name_is_not_asked_for() {
    let mut bench = Bench::new(|config| config.preresolved = vec!["early.test:80".into()]);
    assert_eq!(bench.queries.len(), 1);
    for host in ["a..b:80", "a~b:80", "localhost::80", "[::1]:80"] {
        bench.want(host);
        let Some(NameEvent::Resolved(resolved)) = bench.told(host) else { panic!("{host}") };
        assert_eq!(resolved.address, Err(NameFault::Malformed), "{host}");
    }
    bench.want("127.0.0.1:81");
    assert_eq!(bench.address("127.0.0.1:81").as_deref(), Some("127.0.0.1:81"));
    assert_eq!(bench.queries.len(), 1);
}
