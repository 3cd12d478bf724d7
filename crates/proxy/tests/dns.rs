//! A cluster whose name is resolved by a name server of its own.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Proxy, Scratch, bootstrap, exchange, origin, until};

#[test]
fn requests_go_where_the_name_points() {
    let origin = origin(Duration::ZERO);
    let server = NameServer::start(Some([127, 0, 0, 1]));
    let proxy = Proxy::start(&dns_bootstrap(origin, server.address), &[]);
    let listener = proxy.listener("ingress");
    assert_eq!(exchange(&listener, "GET", "/").unwrap(), (200, "hello".into()));
    assert!(proxy.get("/clusters").1.contains("::hostname::origin.example\n"));

    server.point_to(None);
    until("the hosts are gone", || exchange(&listener, "GET", "/").unwrap().0 == 503);
    server.point_to(Some([127, 0, 0, 1]));
    until("they are back", || exchange(&listener, "GET", "/").unwrap().0 == 200);
    let attempts = proxy.stat("cluster.origin.update_attempt").unwrap();
    let successes = proxy.stat("cluster.origin.update_success").unwrap();
    assert!(successes > 2 && attempts >= successes, "{attempts} {successes}");
}

#[test]
fn listeners_wait_for_the_first_answer() {
    let server = NameServer::start(None);
    server.silent(true);
    let proxy =
        Proxy::launch(Scratch::new(), &dns_bootstrap(origin(Duration::ZERO), server.address), &[]);
    assert_eq!(proxy.get("/ready"), (503, "PRE_INITIALIZING\n".into()));
    assert_eq!(proxy.get("/listeners").1, "");
    assert!(proxy.get("/init_dump").1.contains("origin.example"));
    server.point_to(Some([127, 0, 0, 1]));
    server.silent(false);
    until("ready", || proxy.get("/ready").0 == 200);
    assert_eq!(exchange(&proxy.listener("ingress"), "GET", "/").unwrap().0, 200);
}

fn dns_bootstrap(origin: SocketAddr, server: SocketAddr) -> String {
    let strict = format!(
        r#"type: STRICT_DNS
    dns_lookup_family: V4_ONLY
    dns_refresh_rate: 0.05s
    typed_dns_resolver_config:
      name: envoy.network.dns_resolver.cares
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
        resolvers: [ {{ socket_address: {{ address: {}, port_value: {} }} }} ]"#,
        server.ip(),
        server.port()
    );
    let name = format!("address: origin.example, port_value: {}", origin.port());
    bootstrap(origin)
        .replace("type: STATIC", &strict)
        .replace(&format!("address: 127.0.0.1, port_value: {}", origin.port()), &name)
}

/// A name server that knows one address, for every name.
struct NameServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    points_to: Option<[u8; 4]>,
    silent: bool,
}

impl NameServer {
    fn start(points_to: Option<[u8; 4]>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { points_to, silent: false }));
        let shared = state.clone();
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut query) {
                let State { points_to, silent } = *shared.lock().unwrap();
                if !silent {
                    socket.send_to(&answer(&query[..length], points_to), peer).unwrap();
                }
            }
        });
        Self { address, state }
    }

    fn point_to(&self, address: Option<[u8; 4]>) {
        self.state.lock().unwrap().points_to = address;
    }

    fn silent(&self, silent: bool) {
        self.state.lock().unwrap().silent = silent;
    }
}

/// RFC 1035 §4: the question again, and one A record or NXDOMAIN.
fn answer(query: &[u8], points_to: Option<[u8; 4]>) -> Vec<u8> {
    let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let code = if points_to.is_some() { 0 } else { 3 };
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(points_to.is_some()), 0, 0, 0, 0]);
    answer.extend(&query[12..end]);
    if let Some(address) = points_to {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4]);
        answer.extend(address);
    }
    answer
}
