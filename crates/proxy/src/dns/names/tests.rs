use std::net::UdpSocket;
use std::time::Duration;

use towpath_engine::names::NameEvent;
use towpath_engine::snapshot::cluster::Family;
use towpath_engine::snapshot::dns::DnsOptions;

use super::*;

fn config(name: &str, server: &UdpSocket) -> Arc<DnsCache> {
    Arc::new(DnsCache {
        name: name.into(),
        family: Family::V4Only,
        refresh: Duration::from_secs(60),
        least_refresh: Duration::from_secs(5),
        failure_refresh: None,
        host_ttl: Duration::from_secs(300),
        max_hosts: 3,
        max_pending: 1024,
        query_timeout: Some(Duration::from_millis(200)),
        preresolved: Vec::new(),
        resolver: DnsOptions::of(vec![server.local_addr().unwrap()]),
    })
}

fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn a_silent_server_holds_no_name_up_for_longer_than_configured() {
    run(async {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let registry = Arc::new(Registry::new());
        let (sender, mut news) = mpsc::unbounded_channel();
        let names = Names::new(registry.clone(), sender);
        names.update(&[config("k", &server)]);
        let ask = |host: &str| names.ask(NameQuestion { cache: "k".into(), host: host.into() });
        for number in 0..50 {
            ask(&format!("n{number}.test:80"));
        }
        let mut full = 0;
        let mut failed = 0;
        while full + failed < 50 {
            let told = tokio::time::timeout(Duration::from_secs(10), news.recv()).await;
            match told.expect("all are told").unwrap().event {
                NameEvent::Full => full += 1,
                NameEvent::Resolved(resolved) => {
                    assert_eq!(resolved.address, Err(NameFault::TimedOut));
                    failed += 1;
                }
                NameEvent::Gone => panic!("its time has not come"),
            }
        }
        assert_eq!((failed, full), (3, 47));
        // A configuration without it ends it, and what it held.
        names.update(&[]);
        tokio::task::yield_now().await;
        ask("late.test:80");
        assert!(tokio::time::timeout(Duration::from_millis(50), news.recv()).await.is_err());
    });
}
