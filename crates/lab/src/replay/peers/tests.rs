use std::time::Duration;

use super::*;
use crate::address::Address;
use crate::experiment::{Running, free_addresses};
use crate::load::tls::{Tls, Trusted};
use crate::load::{Arrivals, Plan, Protocol, Request, run};
use crate::origin::{Origin, spawn};

fn installed() -> Peers {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    let peer = |name| Some(Path::new(&folder).join(name));
    Peers {
        envoy: peer("envoy"),
        nginx: peer("nginx"),
        haproxy: peer("haproxy"),
        ..Peers::default()
    }
}

/// Each of two origins gets its share of what is sent to the proxy.
fn forwards(proxy: Proxy, further: &[(Wire, Wire)]) {
    let peers = installed();
    let plain = (Wire::Http1, Wire::Http1);
    let http = [plain].into_iter().chain(further.iter().copied());
    let all = http.map(|wires| (Layer::Http, wires)).chain([(Layer::Tcp, plain)]);
    for (layer, (clients, servers)) in all {
        let origins =
            [0, 1].map(|_| spawn(&Origin::http("127.0.0.1:0".parse().unwrap(), 1024)).unwrap());
        let targets = origins.iter().map(|origin| match origin.address() {
            Address::Tcp(address) => *address,
            Address::Unix(_) => unreachable!("they listen on TCP"),
        });
        let entry = free_addresses("127.0.0.1", 1).unwrap()[0];
        let forward = Forward { clients, servers, ..Forward::new(entry, targets.collect()) };
        let program = proxy.program(&peers, layer, &[forward]).unwrap();
        let running = Running::launch(&[program], None).unwrap();
        let mut plan = Plan::new(Address::Tcp(entry).into());
        plan.request = Request::with_body(1024);
        plan.duration = Duration::from_millis(500);
        plan.connections = 8;
        // Each connection does its part, however the processors are shared: TCP is balanced by connection.
        plan.arrivals = Arrivals::PerConnection { per_connection_rate: 100.0 };
        if clients != Wire::Http1 {
            plan.protocol = Protocol::Http2;
        }
        if clients.is_secure() {
            plan.tls = Some(Tls::new("localhost", &Trusted::All, false, plan.protocol).unwrap());
        }
        plan.pids = running.pids("proxy");
        let outcome = run(&plan).unwrap();
        let served = origins.each_ref().map(crate::origin::Running::served);
        assert_eq!(outcome.errors.total(), 0, "{proxy:?} {layer:?}: {:?}", outcome.errors);
        assert!(outcome.answered > 100, "{proxy:?} {layer:?}: {}", outcome.answered);
        assert_eq!(served[0] + served[1], outcome.sent, "{proxy:?} {layer:?}");
        assert!(
            served.iter().all(|count| *count * 4 > outcome.sent),
            "{proxy:?} {layer:?} {served:?}"
        );
        assert!(outcome.target.unwrap().cost.cpu_ns > 0);
    }
}

#[test]
#[ignore = "needs Envoy"]
fn envoy_forwards_both_layers() {
    forwards(Proxy::Envoy, &[(Wire::Http2, Wire::Http2), (Wire::Secure, Wire::Http1)]);
}

#[test]
#[ignore = "needs nginx"]
fn nginx_forwards_both_layers() {
    forwards(Proxy::Nginx, &[(Wire::Http2, Wire::Http1)]);
}

#[test]
#[ignore = "needs HAProxy"]
fn haproxy_forwards_both_layers() {
    forwards(Proxy::Haproxy, &[(Wire::Http2, Wire::Http2)]);
}

#[test]
fn who_is_missing_is_named() {
    for proxy in [Proxy::Envoy, Proxy::Nginx, Proxy::Haproxy] {
        let error = proxy.program(&Peers::default(), Layer::Tcp, &[]).unwrap_err();
        assert!(error.starts_with(proxy.name()) && error.contains("set TOWPATH_"), "{error}");
    }
}
