//! Health discovery, of this program and of Envoy, with one server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::sync::{oneshot, watch};
use towpath_config::{Source, encoded};

use super::beside::{Start, envoy, towpath};
use super::common::{Proxy, until};
use super::tcp;

const METHOD: &str = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck";
const SPECIFIER: &str = "envoy.service.health.v3.HealthCheckSpecifier";

/// What a test reads of what the server is sent.
#[derive(Clone, PartialEq, prost::Message)]
struct Said {
    #[prost(message, optional, tag = "1")]
    request: Option<Request>,
    #[prost(message, optional, tag = "2")]
    report: Option<Report>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(bytes = "vec", tag = "1")]
    node: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    capability: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Report {
    #[prost(message, repeated, tag = "1")]
    flat: Vec<Health>,
    #[prost(message, repeated, tag = "2")]
    clusters: Vec<Cluster>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Cluster {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    localities: Vec<Locality>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Locality {
    #[prost(bytes = "vec", tag = "1")]
    locality: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    hosts: Vec<Health>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Health {
    #[prost(bytes = "vec", tag = "1")]
    endpoint: Vec<u8>,
    #[prost(int32, tag = "2")]
    status: i32,
    #[prost(bytes = "vec", tag = "3")]
    metadata: Vec<u8>,
}

const HEALTHY: i32 = 1;
const UNHEALTHY: i32 = 2;
const TIMEOUT: i32 = 4;

/// A server that sends each stream the newest of what it wants, and keeps what it is told.
struct Server {
    address: SocketAddr,
    wants: watch::Sender<Bytes>,
    told: Arc<Mutex<Vec<Said>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(wants: &str) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap(), wants)
    }

    fn at(listener: TcpListener, wants: &str) -> Self {
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (wants, wanted) = watch::channel(specifier(wants));
        let (stop, stopped) = oneshot::channel::<()>();
        let kept = told.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let accept = async {
                    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                    while let Ok((socket, _)) = listener.accept().await {
                        tokio::task::spawn_local(serve(socket, wanted.clone(), kept.clone()));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, wants, told, stop: Some(stop), thread: Some(thread) }
    }

    fn want(&self, wants: &str) {
        self.wants.send(specifier(wants)).unwrap();
    }

    fn told(&self) -> Vec<Said> {
        self.told.lock().unwrap().clone()
    }

    /// By cluster, locality and host in each report, the statuses.
    fn reports(&self) -> Vec<BTreeMap<String, i32>> {
        self.told().iter().filter_map(|said| said.report.as_ref()).map(statuses).collect()
    }

    /// Waits for a report that comes to this after all that were told so far.
    fn until_told(&self, wanted: &[(String, i32)]) {
        let wanted: BTreeMap<_, _> = wanted.iter().cloned().collect();
        let before = self.reports().len();
        let mut last = None;
        for _ in 0..600 {
            last = self.reports().get(before..).and_then(|new| new.last().cloned());
            if last.as_ref() == Some(&wanted) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{wanted:?}, not {last:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn specifier(text: &str) -> Bytes {
    match text {
        "" => Bytes::from_static(b"\x0a\xff"),
        text => encoded(&Source::yaml("wants", text), SPECIFIER).unwrap(),
    }
}

async fn serve(
    socket: tokio::net::TcpStream,
    wanted: watch::Receiver<Bytes>,
    told: Arc<Mutex<Vec<Said>>>,
) {
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.uri().path(), METHOD);
        let (mut wanted, told) = (wanted.clone(), told.clone());
        tokio::task::spawn_local(async move {
            let head = http::Response::builder().header("content-type", "application/grpc");
            let mut sender = respond.send_response(head.body(()).unwrap(), false).unwrap();
            let (mut body, mut buffer) = (request.into_body(), BytesMut::new());
            wanted.mark_changed();
            loop {
                let data = tokio::select! {
                    data = body.data() => data,
                    Ok(()) = wanted.changed() => {
                        let wants = wanted.borrow_and_update().clone();
                        let mut frame = BytesMut::new();
                        frame.put_u8(0);
                        frame.put_u32(u32::try_from(wants.len()).unwrap());
                        frame.extend_from_slice(&wants);
                        sender.send_data(frame.freeze(), false).unwrap();
                        continue;
                    }
                };
                let Some(Ok(data)) = data else { break };
                let _ = body.flow_control().release_capacity(data.len());
                buffer.extend_from_slice(&data);
                while buffer.len() >= 5 {
                    let length = u32::from_be_bytes(buffer[1..5].try_into().unwrap()) as usize;
                    if buffer.len() < 5 + length {
                        break;
                    }
                    buffer.advance(5);
                    let message = buffer.split_to(length).freeze();
                    told.lock().unwrap().push(Said::decode(message).unwrap());
                }
            }
        });
    }
}

/// The port that an `Endpoint` ends with.
fn port(endpoint: &[u8]) -> u16 {
    let (mut port, mut at) = (0_u16, endpoint.len());
    let first = endpoint.iter().rposition(|byte| *byte == 0x18).unwrap();
    while at > first + 1 {
        at -= 1;
        port = (port << 7) | u16::from(endpoint[at] & 0x7f);
    }
    port
}

fn key(cluster: &str, zone: &str, at: SocketAddr) -> String {
    format!("{cluster} {zone} {}", at.port())
}

fn statuses(report: &Report) -> BTreeMap<String, i32> {
    let mut all = BTreeMap::new();
    let mut flat = Vec::new();
    for cluster in &report.clusters {
        for locality in &cluster.localities {
            // `Locality.zone` alone.
            let zone = String::from_utf8_lossy(locality.locality.get(2..).unwrap_or_default());
            for host in &locality.hosts {
                let key = format!("{} {zone} {}", cluster.name, port(&host.endpoint));
                all.insert(key, host.status);
                flat.push(host.clone());
            }
        }
    }
    assert_eq!(report.flat, flat, "the old form says the same");
    all
}

/// A host that answers every request with a status, or not at all where that is 0.
struct Host {
    address: SocketAddr,
    status: Arc<AtomicU16>,
}

impl Host {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let status = Arc::new(AtomicU16::new(status));
        let says = status.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (Ok(mut socket), says) = (socket, says.clone()) else { return };
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while socket.read(&mut buffer).is_ok_and(|length| length > 0) {
                        let status = says.load(Ordering::Relaxed);
                        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                        if status != 0 && socket.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, status }
    }

    fn say(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }
}

/// An address at which nothing listens.
fn dead() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn bootstrap(server: SocketAddr) -> String {
    format!(
        r#"
node: {{ id: me, cluster: here }}
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
hds_config:
  api_type: GRPC
  transport_api_version: V3
  grpc_services: [ {{ envoy_grpc: {{ cluster_name: hds }} }} ]
static_resources:
  clusters:
  - name: hds
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment: {{ cluster_name: hds, endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {} }} }} ] }} ] }}
"#,
        tcp(server)
    )
}

const PAUSES: &str = "timeout: 0.3s, interval: 0.1s, no_traffic_interval: 0.1s, \
unhealthy_threshold: 1, healthy_threshold: 1";

/// A cluster whose hosts are each in a zone.
fn cluster(name: &str, check: &str, hosts: &[(&str, SocketAddr)]) -> String {
    let localities = hosts.iter().map(|(zone, at)| {
        format!("{{ locality: {{ zone: {zone} }}, endpoints: [ {{ address: {} }} ] }}", tcp(*at))
    });
    let localities: Vec<_> = localities.collect();
    format!(
        "{{ cluster_name: {name}, health_checks: [ {{ {PAUSES}, {check} }} ], locality_endpoints: [ {} ] }}",
        localities.join(", ")
    )
}

fn wants(clusters: &[String]) -> String {
    format!("interval: 0.1s\ncluster_health_checks: [ {} ]", clusters.join(", "))
}

const HTTP: &str = "http_health_check: { path: /well }";
const TCP: &str = "tcp_health_check: {}";

/// What a story came to.
#[derive(Debug, PartialEq)]
struct Outcome {
    capability: Vec<u8>,
    counters: Vec<Option<u64>>,
    answers: BTreeSet<(i32, Vec<u8>)>,
}

/// Hosts that are well, fail, are silent and are not there; one changes; others come and go; what is wrong is not
/// taken. Says what the first message told, and the counters.
fn story(start: Start) -> Outcome {
    let (good, bad, silent) = (Host::start(200), Host::start(503), Host::start(0));
    let (gone, late) = (dead(), Host::start(200));
    let web = [("a", good.address), ("b", bad.address), ("c", silent.address), ("d", gone)];
    let raw = [("a", silent.address), ("b", gone)];
    let server = Server::start(&wants(&[cluster("web", HTTP, &web), cluster("raw", TCP, &raw)]));
    let proxy = start(&bootstrap(server.address));
    let of = |good, bad| {
        vec![
            (key("web", "a", web[0].1), good),
            (key("web", "b", web[1].1), bad),
            (key("web", "c", silent.address), TIMEOUT),
            (key("web", "d", gone), UNHEALTHY),
            (key("raw", "a", silent.address), HEALTHY),
            (key("raw", "b", gone), UNHEALTHY),
        ]
    };
    server.until_told(&of(HEALTHY, UNHEALTHY));
    good.say(500);
    bad.say(200);
    server.until_told(&of(UNHEALTHY, HEALTHY));
    // Who stays is not asked anew.
    let told = server.told().len();
    let next = [("b", bad.address), ("d", late.address)];
    let next_wants = wants(&[cluster("web", HTTP, &next)]);
    server.want(&next_wants);
    let after = [(key("web", "b", bad.address), HEALTHY), (key("web", "d", late.address), HEALTHY)];
    server.until_told(&after);
    let seen = server.told()[told..].to_vec();
    for report in seen.iter().filter_map(|said| said.report.as_ref()).map(statuses) {
        assert_eq!(report[&after[0].0], HEALTHY, "{report:?}");
    }
    assert_eq!((stat(&proxy, "updates"), stat(&proxy, "errors")), (Some(2), Some(0)));
    // Without an interval it is none.
    server.want(&next_wants.replace("interval: 0.1s, no_traffic", "no_traffic"));
    until("the error", || stat(&proxy, "errors") == Some(1));
    server.until_told(&after);
    let first = server.told()[0].request.clone().expect("it asks first");
    let node = String::from_utf8_lossy(&first.node).into_owned();
    assert!(node.contains("me") && node.contains("here"), "{node}");
    let requests = server.told().iter().filter(|said| said.request.is_some()).count();
    assert_eq!(requests, 1);
    let counters = ["requests", "updates", "errors"].map(|name| stat(&proxy, name)).into();
    Outcome { capability: first.capability, counters, answers: answers(&server) }
}

/// What statuses hosts were told with, and by which status they had answered then.
fn answers(server: &Server) -> BTreeSet<(i32, Vec<u8>)> {
    let told = server.told();
    let reports = told.iter().filter_map(|said| said.report.as_ref());
    reports
        .flat_map(|report| &report.flat)
        .map(|host| (host.status, host.metadata.clone()))
        .collect()
}

fn stat(proxy: &Proxy, name: &str) -> Option<u64> {
    proxy.stat(&format!("hds_delegate.{name}"))
}

#[test]
fn what_a_server_wants_checked_is_checked_and_told() {
    let outcome = story(towpath);
    // HTTP and TCP.
    assert_eq!(outcome.capability, [0x0a, 2, 0, 1]);
    assert_eq!(outcome.counters, [Some(3), Some(2), Some(1)]);
}

#[test]
fn the_status_of_an_answer_is_told() {
    let host = Host::start(503);
    let server = Server::start(&wants(&[cluster("web", HTTP, &[("a", host.address)])]));
    let _proxy = towpath(&bootstrap(server.address));
    server.until_told(&[(key("web", "a", host.address), UNHEALTHY)]);
    let status = |wanted: f64| {
        let number = [&[0x11][..], &wanted.to_le_bytes()].concat();
        until("the status is told", || {
            let told = server.told();
            let last = told.iter().rev().find_map(|said| said.report.clone()).unwrap();
            let metadata = &last.flat[0].metadata;
            metadata.windows(number.len()).any(|window| window == number)
        });
    };
    status(503.0);
    host.say(200);
    status(200.0);
    host.say(0);
    server.until_told(&[(key("web", "a", host.address), TIMEOUT)]);
    assert_eq!(server.told().last().unwrap().report.as_ref().unwrap().flat[0].metadata, b"");
}

#[test]
fn a_host_is_well_when_all_its_checks_say_so() {
    let host = Host::start(503);
    let one = cluster("web", HTTP, &[("a", host.address)]);
    let both =
        one.replace("health_checks: [ ", &format!("health_checks: [ {{ {PAUSES}, {TCP} }}, "));
    let server = Server::start(&wants(&[both]));
    let _proxy = towpath(&bootstrap(server.address));
    server.until_told(&[(key("web", "a", host.address), UNHEALTHY)]);
    host.say(200);
    server.until_told(&[(key("web", "a", host.address), HEALTHY)]);
}

#[test]
fn a_server_that_went_is_asked_again_when_it_is_back() {
    let host = Host::start(200);
    let wanted = wants(&[cluster("web", HTTP, &[("a", host.address)])]);
    let told = [(key("web", "a", host.address), HEALTHY)];
    let server = Server::start(&wanted);
    let (proxy, address) = (towpath(&bootstrap(server.address)), server.address);
    server.until_told(&told);
    drop(server);
    until("its end is noticed", || stat(&proxy, "errors").is_some_and(|errors| errors > 1));
    host.say(503);
    let server = Server::at(TcpListener::bind(address).unwrap(), &wanted);
    // What was checked was checked on.
    until("it is told again", || !server.reports().is_empty());
    assert_eq!(server.reports()[0], [(told[0].0.clone(), UNHEALTHY)].into());
    assert!(server.told()[0].request.is_some());
}

#[test]
fn what_is_no_specifier_changes_nothing() {
    let host = Host::start(200);
    let wanted = wants(&[cluster("web", HTTP, &[("a", host.address)])]);
    let told = [(key("web", "a", host.address), HEALTHY)];
    let server = Server::start(&wanted);
    let proxy = towpath(&bootstrap(server.address));
    server.until_told(&told);
    let bad = [
        String::new(),
        wanted.replace("127.0.0.1", "localhost"),
        wanted.replace("timeout: 0.3s", "event_log_path: /tmp/hds.log, timeout: 0.3s"),
    ];
    for (count, bad) in (1..).zip(bad) {
        server.want(&bad);
        until("the error", || stat(&proxy, "errors") == Some(count));
        server.until_told(&told);
    }
    assert_eq!(stat(&proxy, "updates"), Some(1));
    // Nothing is to be checked any more.
    server.want("interval: 0.1s");
    server.until_told(&[]);
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn health_is_discovered_as_by_envoy() {
    assert_eq!(story(towpath), story(envoy));
}
