//! Load reports, of this program and of Envoy, to one server.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::sync::oneshot;
use towpath_config::{Source, encoded};

use super::beside::{Start, envoy, towpath};
use super::common::{Proxy, exchange, origin, until};
use super::tcp;

const METHOD: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
const RESPONSE: &str = "envoy.service.load_stats.v3.LoadStatsResponse";

/// What a test reads of a report.
#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(bytes = "vec", tag = "1")]
    node: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    clusters: Vec<Cluster>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Cluster {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    localities: Vec<Locality>,
    #[prost(uint64, tag = "3")]
    dropped: u64,
    #[prost(bytes = "vec", tag = "4")]
    interval: Vec<u8>,
    #[prost(string, tag = "6")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Locality {
    #[prost(bytes = "vec", tag = "1")]
    locality: Vec<u8>,
    #[prost(uint64, tag = "2")]
    successful: u64,
    #[prost(uint64, tag = "3")]
    in_progress: u64,
    #[prost(uint64, tag = "4")]
    errors: u64,
    #[prost(uint32, tag = "6")]
    priority: u32,
    #[prost(message, repeated, tag = "7")]
    hosts: Vec<Host>,
    #[prost(uint64, tag = "8")]
    issued: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Host {
    #[prost(bytes = "vec", tag = "1")]
    address: Vec<u8>,
    #[prost(uint64, tag = "2")]
    successful: u64,
    #[prost(uint64, tag = "4")]
    errors: u64,
    #[prost(uint64, tag = "7")]
    issued: u64,
}

/// A server that answers the first message of a stream with what it wants, and keeps what it is told.
struct Server {
    address: SocketAddr,
    told: Arc<Mutex<Vec<Request>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(wants: &str) -> Self {
        Self::start_that(wants, true)
    }

    /// One that reads only until it has said what it wants, or all.
    fn start_that(wants: &str, reads_all: bool) -> Self {
        let wants = encoded(&Source::yaml("wants", wants), RESPONSE).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = oneshot::channel::<()>();
        let kept = told.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let accept = async {
                    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                    while let Ok((socket, _)) = listener.accept().await {
                        tokio::task::spawn_local(serve(
                            socket,
                            wants.clone(),
                            kept.clone(),
                            reads_all,
                        ));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, told, stop: Some(stop), thread: Some(thread) }
    }

    fn told(&self) -> Vec<Request> {
        self.told.lock().unwrap().clone()
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

async fn serve(
    socket: tokio::net::TcpStream,
    wants: Bytes,
    told: Arc<Mutex<Vec<Request>>>,
    reads_all: bool,
) {
    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.uri().path(), METHOD);
        let (wants, told) = (wants.clone(), told.clone());
        tokio::task::spawn_local(async move {
            let head = http::Response::builder().header("content-type", "application/grpc");
            let mut sender = respond.send_response(head.body(()).unwrap(), false).unwrap();
            let (mut body, mut buffer) = (request.into_body(), BytesMut::new());
            let mut is_first = true;
            while let Some(Ok(data)) = body.data().await {
                if reads_all {
                    let _ = body.flow_control().release_capacity(data.len());
                }
                buffer.extend_from_slice(&data);
                while buffer.len() >= 5 {
                    let length = u32::from_be_bytes(buffer[1..5].try_into().unwrap()) as usize;
                    if buffer.len() < 5 + length {
                        break;
                    }
                    buffer.advance(5);
                    let message = buffer.split_to(length).freeze();
                    told.lock().unwrap().push(Request::decode(message).unwrap());
                    if std::mem::take(&mut is_first) {
                        let mut frame = BytesMut::new();
                        frame.put_u8(0);
                        frame.put_u32(u32::try_from(wants.len()).unwrap());
                        frame.extend_from_slice(&wants);
                        sender.send_data(frame.freeze(), false).unwrap();
                    }
                }
            }
        });
    }
}

/// Hosts in two localities, one that answers 503 by itself, and a cluster whose breaker is open.
fn bootstrap(server: SocketAddr, good: [SocketAddr; 2], bad: SocketAddr) -> String {
    let host =
        |at: SocketAddr| format!("lb_endpoints: [ {{ endpoint: {{ address: {} }} }} ]", tcp(at));
    let at = |zone: &str, at| {
        format!("{{ locality: {{ region: r, zone: {zone}, sub_zone: s }}, {} }}", host(at))
    };
    let route = |path: &str, cluster: &str| {
        format!("{{ match: {{ path: /{path} }}, route: {{ cluster: {cluster} }} }}")
    };
    format!(
        r#"
node: {{ id: me, cluster: here }}
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
cluster_manager:
  load_stats_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services: [ {{ envoy_grpc: {{ cluster_name: lrs }} }} ]
static_resources:
  listeners:
  - name: web
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config: {{ virtual_hosts: [ {{ name: all, domains: ["*"], routes: [ {}, {}, {}, {} ] }} ] }}
          http_filters:
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
  - {{ name: app, type: STATIC, load_assignment: {{ cluster_name: app, endpoints: [ {}, {} ] }} }}
  - {{ name: dead, type: STATIC, load_assignment: {{ cluster_name: dead, endpoints: [ {{ {} }} ] }} }}
  - {{ name: full, type: STATIC, circuit_breakers: {{ thresholds: [ {{ max_pending_requests: 0 }} ] }},
       load_assignment: {{ cluster_name: full, endpoints: [ {{ {} }} ] }} }}
  - {{ name: quiet, type: STATIC, load_assignment: {{ cluster_name: quiet, endpoints: [ {{ {} }} ] }} }}
  - name: lrs
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment: {{ cluster_name: lrs, endpoints: [ {{ {} }} ] }}
"#,
        route("app", "app"),
        route("dead", "dead"),
        route("full", "full"),
        route("quiet", "quiet"),
        at("a", good[0]),
        at("b", good[1]),
        host(bad),
        host(good[0]),
        host(good[0]),
        host(server),
    )
}

/// What all reports together say: of each cluster by locality and host issued, successful and bad requests, and of each
/// cluster the dropped.
type Sums = BTreeMap<String, [u64; 3]>;

fn sums(told: &[Request]) -> (Sums, BTreeMap<String, u64>) {
    let (mut sums, mut dropped) = (Sums::new(), BTreeMap::new());
    let mut add = |key: String, counts: [u64; 3]| {
        let sum = sums.entry(key).or_default();
        for (sum, count) in sum.iter_mut().zip(counts) {
            *sum += count;
        }
    };
    for cluster in told.iter().flat_map(|request| &request.clusters) {
        assert!(!cluster.interval.is_empty(), "{cluster:?}");
        *dropped.entry(cluster.name.clone()).or_default() += cluster.dropped;
        for locality in &cluster.localities {
            let place = String::from_utf8_lossy(&locality.locality).escape_debug().to_string();
            let key = format!("{} {place} {}", cluster.name, locality.priority);
            add(key.clone(), [locality.issued, locality.successful, locality.errors]);
            for host in &locality.hosts {
                let counts = [host.issued, host.successful, host.errors];
                add(format!("{key} host"), counts);
            }
        }
    }
    (sums, dropped)
}

fn story(start: Start, wants: &str) -> (Sums, BTreeMap<String, u64>) {
    let server = Server::start(wants);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = silent.local_addr().unwrap();
    drop(silent);
    let good = [origin(Duration::ZERO), origin(Duration::ZERO)];
    let proxy = start(&bootstrap(server.address, good, dead));
    until("it is live", || proxy.get("/ready").1 == "LIVE\n");
    // What happened before anything was to be told is not told.
    until("the first report", || server.told().iter().any(|request| !request.clusters.is_empty()));
    let at = proxy.listener("web");
    let ask = |path: &str| exchange(&at, "GET", path).unwrap().0;
    for _ in 0..4 {
        assert_eq!(ask("/app"), 200);
    }
    assert_eq!((ask("/dead"), ask("/dead"), ask("/full")), (503, 503, 503));
    until("all is told", || {
        let (sums, dropped) = sums(&server.told());
        let of = |name: &str| -> u64 {
            let mine =
                sums.iter().filter(|(key, _)| key.starts_with(name) && !key.ends_with("host"));
            mine.map(|(_, counts)| counts[0]).sum()
        };
        of("app ") >= 4 && dropped.get("full").is_some_and(|count| *count > 0)
    });
    let count = server.told().len();
    until("two more", || server.told().len() > count + 1);
    let node = String::from_utf8_lossy(&server.told()[0].node).into_owned();
    for text in ["me", "here", "envoy.lrs.supports_send_all_clusters"] {
        assert!(node.contains(text), "{node}");
    }
    assert!(server.told()[0].clusters.is_empty(), "nothing is told before it is asked for");
    check_counters(&proxy, &server);
    sums(&server.told())
}

fn check_counters(proxy: &Proxy, server: &Server) {
    assert_eq!(proxy.stat("load_reporter.requests"), Some(1));
    assert_eq!(proxy.stat("load_reporter.errors"), Some(0));
    let sent = proxy.stat("load_reporter.responses").unwrap();
    assert!(sent >= 3 && sent <= server.told().len() as u64 + 2, "{sent}");
}

const SOME: &str = "{ clusters: [ app, dead, full, none ], load_reporting_interval: 0.1s, \
report_endpoint_granularity: true }";
const ALL: &str = "{ send_all_clusters: true, load_reporting_interval: 0.1s }";

#[test]
fn a_server_is_told_of_the_clusters_that_it_names() {
    let (sums, dropped) = story(towpath, SOME);
    assert_eq!(dropped.keys().collect::<Vec<_>>(), ["app", "dead", "full"]);
    assert_eq!(dropped["full"], 1);
    let hosts: Vec<_> = sums.iter().filter(|(key, _)| key.ends_with("host")).collect();
    assert_eq!(hosts.iter().map(|(_, counts)| counts[0]).sum::<u64>(), 4, "{sums:?}");
}

#[test]
fn a_server_is_told_of_all_clusters() {
    let (_, dropped) = story(towpath, ALL);
    assert_eq!(dropped.keys().collect::<Vec<_>>(), ["app", "dead", "full", "lrs", "quiet"]);
}

#[test]
fn a_server_that_went_is_told_again() {
    let server = Server::start(ALL);
    let good = origin(Duration::ZERO);
    let proxy = towpath(&bootstrap(server.address, [good, good], good));
    until("it is told", || !server.told().is_empty());
    drop(server);
    until("its end is noticed", || proxy.stat("load_reporter.errors") == Some(1));
    until("it is tried again", || {
        proxy.stat("load_reporter.retries").is_some_and(|count| count > 0)
    });
}

#[test]
fn for_a_server_that_does_not_read_nothing_piles_up() {
    let wants = ALL.replace("0.1s", "0.01s");
    let server = Server::start_that(&wants, false);
    let good = origin(Duration::ZERO);
    let proxy = towpath(&bootstrap(server.address, [good, good], good));
    let mut before = 0;
    until("it waits until the server reads", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = proxy.stat("load_reporter.responses").unwrap_or(0);
        std::mem::replace(&mut before, now) == now && now > 10
    });
    assert_eq!(proxy.stat("load_reporter.errors"), Some(0));
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn load_is_reported_as_by_envoy() {
    for wants in [SOME, ALL] {
        // Which host is first is by chance.
        let counted = |start| {
            let (sums, dropped) = story(start, wants);
            let mut by: BTreeMap<String, [u64; 3]> = BTreeMap::new();
            for (key, counts) in sums {
                let cluster = key.split(' ').next().unwrap_or_default().to_owned();
                let sum = by
                    .entry(cluster + if key.ends_with("host") { " host" } else { "" })
                    .or_default();
                sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            by.remove("lrs");
            (by, dropped)
        };
        assert_eq!(counted(towpath), counted(envoy), "{wants}");
    }
}
