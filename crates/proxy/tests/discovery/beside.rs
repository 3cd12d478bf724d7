//! The same control plane, once with this program and once with Envoy.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use towpath_xds::Type;

use super::common::{Proxy, Scratch, until};
use super::control_plane::ControlPlane;
use super::secrets::{Made, at, connect, secured, with_certificate};
use super::{ANY_PORT, FORMS, acked, ask, bootstrap, listener, nack, own_stream, routes, tcp};

/// How one of the two is started with a bootstrap.
pub(crate) type Start = fn(&str) -> Proxy;

pub(crate) fn towpath(bootstrap: &str) -> Proxy {
    Proxy::launch(Scratch::new(), bootstrap, &[])
}

pub(crate) fn envoy(bootstrap: &str) -> Proxy {
    let folder = std::env::var("TOWPATH_PEERS").expect("TOWPATH_PEERS names the folder of peers");
    let scratch = Scratch::new();
    let admin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = bootstrap.replacen("port_value: 0", &format!("port_value: {}", admin.port()), 1);
    let config = scratch.write("bootstrap.yaml", &text);
    let child = Command::new(format!("{folder}/envoy"))
        .args(["--use-dynamic-base-id", "--concurrency", "1", "-l", "critical", "-c"])
        .arg(config)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Proxy { child, admin: admin.to_string(), scratch }
}

/// What is compared: the order of first requests, that of first answers, and counters in the end.
type Seen = ([Vec<Type>; 2], Vec<(String, Option<u64>)>);

fn story(start: Start, form: &str, source: &str) -> Seen {
    let plane = ControlPlane::start();
    plane.set(Type::Cluster, "c1", &[]);
    plane.set(Type::Listener, "l1", &[("web", &secured("web", &with_certificate(source)))]);
    let proxy = start(&bootstrap(&tcp(plane.address), form));
    acked(&plane, Type::Listener, "l1");
    until("the secret is asked for", || plane.last(Type::Secret).is_some());
    until("it waits", || proxy.get("/ready").1 == "INITIALIZING\n");
    let (first, second) = (Made::new(), Made::new());
    plane.set(Type::Secret, "s1", &[("server", &first.certificate("server"))]);
    until("it is live", || proxy.get("/ready").1 == "LIVE\n");
    let at = at(&proxy, "web");
    connect(&at, &first).unwrap();
    let bad = second.certificate("server").replace("BEGIN CERTIFICATE", "BEGIN NOTHING");
    plane.set(Type::Secret, "s2", &[("server", &bad)]);
    nack(&plane, Type::Secret);
    connect(&at, &first).unwrap();
    plane.set(Type::Secret, "s3", &[("server", &second.certificate("server"))]);
    acked(&plane, Type::Secret, "s3");
    until("the new one", || connect(&at, &second).is_ok());
    // Envoy asks for listeners before it has answered about clusters.
    let order = [false, true].map(|is_answer| {
        let mut order = Vec::new();
        for said in plane.said().iter().filter(|said| said.is_answer == is_answer) {
            if !order.contains(&said.kind) {
                order.push(said.kind);
            }
        }
        order
    });
    let counters = [
        "cluster_manager.cds.update_success",
        "control_plane.connected_state",
        "listener.127.0.0.1_0.server_ssl_socket_factory.downstream_context_secrets_not_ready",
        "listener.127.0.0.1_0.server_ssl_socket_factory.ssl_context_update_by_sds",
        "listener_manager.lds.update_success",
        "sds.server.init_fetch_timeout",
        "sds.server.key_rotation_failed",
        "sds.server.update_rejected",
        "sds.server.update_success",
    ];
    (order, counters.map(|name| (name.to_owned(), proxy.stat(name))).into())
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn secrets_go_as_in_envoy() {
    let ads = "{ ads: {}, initial_fetch_timeout: 0s }".to_owned();
    for form in FORMS {
        for source in [ads.clone(), own_stream(form)] {
            let theirs = story(envoy, form, &source);
            assert_eq!(story(towpath, form, &source), theirs, "{form} {source}");
        }
    }
}

/// How often a control plane that ends every connection is connected to in two seconds.
fn connects(start: Start, policy: &str) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let service = format!("{{ cluster_name: xds{policy} }}");
    let bootstrap = bootstrap(&tcp(at), "GRPC").replace("{ cluster_name: xds }", &service);
    let proxy = start(&bootstrap);
    drop(listener.accept().unwrap());
    let since = Instant::now();
    listener.set_nonblocking(true).unwrap();
    let mut count = 0;
    while since.elapsed() < Duration::from_secs(2) {
        match listener.accept() {
            Ok(_) => count += 1,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    drop(proxy);
    count
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn streams_are_opened_again_after_the_waits_of_the_policy() {
    let often = ", retry_policy: { retry_back_off: { base_interval: 0.02s, max_interval: 0.05s } }";
    // Below 0.5 s, 1 s, and so on without a policy: none falls so low as to be taken for one of these.
    let waits = [("", 0..20), (often, 30..2000)];
    for (start, name) in [(envoy as Start, "Envoy"), (towpath, "Towpath")] {
        for (policy, wanted) in &waits {
            let count = connects(start, policy);
            assert!(wanted.contains(&count), "{name}: {count} with '{policy}'");
        }
    }
}

/// What the control plane is told of listeners whose addresses are in use: one that waits for its routes, and one that
/// does not. At the start, and when it serves.
fn taken(start: Start, form: &str) {
    let taken = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [at, other] = taken.each_ref().map(|it| tcp(it.local_addr().unwrap()));
    let complete = |name| {
        let other = listener(name, &other, "table");
        let (before, after) = other.split_once("      rds: ").unwrap();
        let (_, after) = after.split_once('\n').unwrap();
        format!("{before}      route_config: {{ name: own }}\n{after}")
    };
    let is_told = |plane: &ControlPlane, names: &[&str]| {
        let error = nack(plane, Type::Listener);
        for name in names {
            let is_named = error.contains(&format!("{name}: "));
            assert!(is_named && error.contains("cannot bind"), "{form}: {error}");
        }
    };
    let plane = ControlPlane::start();
    plane.set(Type::Cluster, "c1", &[]);
    let web = ("web", &*listener("web", ANY_PORT, "table"));
    let waits = ("waits", &*listener("waits", &at, "table"));
    plane.set(Type::Listener, "l1", &[web, waits, ("whole", &complete("whole"))]);
    let proxy = start(&bootstrap(&tcp(plane.address), form));
    is_told(&plane, &["waits", "whole"]);
    plane.set(
        Type::Routes,
        "r1",
        &[("table", &routes("table", "direct_response: { status: 418 }"))],
    );
    until("it is live", || proxy.get("/ready").1 == "LIVE\n");
    until("the good one", || ask(&proxy, "web").0 == 418);
    plane.set(Type::Listener, "l2", &[web]);
    acked(&plane, Type::Listener, "l2");
    let later = ("later", &*listener("later", &at, "another"));
    plane.set(Type::Listener, "l3", &[web, later, ("whole", &complete("whole"))]);
    is_told(&plane, &["later", "whole"]);
    assert_eq!(ask(&proxy, "web").0, 418);
    drop(taken);
    // With the next try it is good.
    plane.set(Type::Listener, "l4", &[web]);
    acked(&plane, Type::Listener, "l4");
    plane.set(Type::Listener, "l5", &[web, ("whole", &complete("whole"))]);
    acked(&plane, Type::Listener, "l5");
    until("it is open", || proxy.get("/listeners").1.contains("whole::"));
    assert_eq!(ask(&proxy, "whole").0, 404);
}

#[test]
fn an_address_that_is_in_use_is_told() {
    FORMS.iter().for_each(|form| taken(towpath, form));
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn an_address_that_is_in_use_is_told_as_by_envoy() {
    FORMS.iter().for_each(|form| taken(envoy, form));
}
