//! The integration test of go-control-plane with this program in the place of Envoy, and with Envoy.
//!
//! Its server changes every cluster, listener, route table and secret name by name, asks all listeners, and ends well
//! if after each change all of them answered at once.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use super::common::{Proxy, Scratch, origin};
use super::{beside, tcp};

type Start = fn(&str) -> Proxy;

/// The server's name of a mode, the API type, and whether one stream is for all kinds.
type Mode = (&'static str, &'static str, bool);

const MODES: [Mode; 4] = [
    ("ads", "GRPC", true),
    ("delta-ads", "DELTA_GRPC", true),
    ("xds", "GRPC", false),
    ("delta", "DELTA_GRPC", false),
];

const HTTP: u16 = 3;
const TCP: u16 = 2;

#[test]
#[ignore = "needs Go's server: cargo xtask peers go-control-plane, then TOWPATH_PEERS=target/peers/bin"]
fn each_mode_passes() {
    each_passes(towpath);
}

/// What fails here is the server's own limit.
#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn each_mode_passes_with_envoy() {
    each_passes(beside::envoy);
}

fn towpath(bootstrap: &str) -> Proxy {
    Proxy::launch(Scratch::new(), bootstrap, &["--drain-time-s", "1"])
}

fn each_passes(start: Start) {
    for mode in MODES {
        passes(start, mode, &[]);
        passes(start, mode, &["-tls"]);
        // With this its server panics when any client opens a delta stream.
        if mode.1 == "GRPC" {
            passes(start, mode, &["-mux", "-tls"]);
        }
    }
}

/// What is refused leaves the others, and the server, which answers each refusal with the same, is not kept busy.
#[test]
#[ignore = "needs Go's server: cargo xtask peers go-control-plane, then TOWPATH_PEERS=target/peers/bin"]
fn scoped_routes_are_refused_alone() {
    for mode in [MODES[2], MODES[3]] {
        let (_proxy, ended_well, said) = run(towpath, mode, &["-scopedhttp", "2"]);
        let [all, scoped] = [HTTP + TCP, 2];
        assert!(!ended_well && said.contains(&format!("ok {all}, failed {scoped}")), "{said}");
        let requests = said.rsplit("requests=").next().and_then(|rest| rest.split(' ').next());
        let requests: u32 = requests.unwrap().parse().unwrap();
        assert!(requests < 60, "{said}");
    }
}

fn passes(start: Start, mode: Mode, more: &[&str]) {
    let what = format!("{} {more:?}", mode.0);
    let (proxy, ended_well, said) = run(start, mode, more);
    assert!(ended_well, "{what}: {said}");
    assert!(said.contains(&format!("Test for {} passed!", mode.0)), "{what}: {said}");
    // Its access log is one of gRPC, of the server too.
    assert!(said.contains("[echo"), "{what}: {said}");
    let (_, rejected) = proxy.get("/stats?filter=update_rejected");
    assert!(rejected.contains("listener_manager.lds.update_rejected: 0"), "{what}: {rejected}");
    for line in rejected.lines() {
        assert!(line.ends_with(": 0"), "{what}: {rejected}");
    }
    assert_eq!(proxy.stat("runtime.num_layers"), Some(2), "{what}");
}

/// The proxy after the server's test, whether that ended well, and what it said.
fn run(start: Start, (mode, form, is_aggregated): Mode, more: &[&str]) -> (Proxy, bool, String) {
    let ports = Ports::find(3 + HTTP + TCP + 2);
    let [plane, gateway, logs, base] = [0, 1, 2, 3].map(|nth| ports.first + nth);
    let origin = origin(Duration::ZERO);
    let mut server = Server::start(
        &[
            ("-xds", mode),
            ("-nodeID", "test-id"),
            ("-port", &plane.to_string()),
            ("-gateway", &gateway.to_string()),
            ("-als", &logs.to_string()),
            ("-base", &base.to_string()),
            ("-upstream", &origin.port().to_string()),
            ("-message", "hello"),
            ("-http", &HTTP.to_string()),
            ("-tcp", &TCP.to_string()),
            // What this program refuses by name: SRDS and VHDS.
            ("-scopedhttp", "0"),
            ("-vhdshttp", "0"),
            ("-clusters", "3"),
            ("-runtimes", "2"),
            ("-extension", "2"),
            ("-u", "3"),
            ("-r", "6"),
            ("-delay", "200ms"),
        ],
        more,
    );
    let proxy = start(&bootstrap(form, is_aggregated, plane, logs));
    let (ended_well, said) = server.end();
    (proxy, ended_well, said)
}

fn bootstrap(form: &str, is_aggregated: bool, plane: u16, logs: u16) -> String {
    let service = format!(
        "{{ api_type: {form}, transport_api_version: V3, set_node_on_first_message_only: true, grpc_services: \
         [ {{ envoy_grpc: {{ cluster_name: xds_cluster }} }} ] }}"
    );
    let (source, ads) = if is_aggregated {
        ("ads: {}".to_owned(), format!("\n  ads_config: {service}"))
    } else {
        (format!("api_config_source: {service}"), String::new())
    };
    let source = format!("{{ resource_api_version: V3, {source} }}");
    let layers = ["runtime-0", "runtime-1"].map(|name| {
        format!("{{ name: {name}, rtds_layer: {{ name: {name}, rtds_config: {source} }} }}")
    });
    let clusters = [("xds_cluster", plane), ("als_cluster", logs)].map(|(name, port)| {
        format!(
            r#"
  - name: {name}
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: {name}
      endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {} }} }} ] }} ]"#,
            tcp(([127, 0, 0, 1], port).into())
        )
    });
    format!(
        r"
node: {{ id: test-id, cluster: tests }}
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
dynamic_resources:{ads}
  cds_config: {source}
  lds_config: {source}
layered_runtime: {{ layers: [ {} ] }}
static_resources:
  clusters:{}
",
        layers.join(", "),
        clusters.concat()
    )
}

/// Ports one after the other, as the server wants them.
struct Ports {
    first: u16,
}

impl Ports {
    /// Below those that the system gives to connections, where none of these is in use.
    fn find(count: u16) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        loop {
            let nth = NEXT.fetch_add(1, Ordering::Relaxed);
            let spread = u16::try_from(std::process::id() % 500).unwrap();
            let first = 20_000 + (spread * 20 + nth * count) % 10_000;
            let free: Vec<_> = (first..first + count)
                .map_while(|port| TcpListener::bind(("0.0.0.0", port)).ok())
                .collect();
            if free.len() == usize::from(count) {
                return Self { first };
            }
        }
    }
}

struct Server {
    process: Child,
    scratch: Scratch,
}

impl Server {
    fn start(named: &[(&str, &str)], more: &[&str]) -> Self {
        let folder =
            std::env::var("TOWPATH_PEERS").expect("TOWPATH_PEERS names the folder of peers");
        let scratch = Scratch::new();
        let log = std::fs::File::create(scratch.path("log")).unwrap();
        let process = Command::new(format!("{folder}/go-control-plane"))
            .arg("-debug")
            .args(named.iter().flat_map(|(name, value)| [name, value]))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process, scratch }
    }

    /// Whether it ended well, and all that it said.
    fn end(&mut self) -> (bool, String) {
        let start = Instant::now();
        let status = loop {
            match self.process.try_wait().unwrap() {
                None if start.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                status => break status,
            }
        };
        (status.is_some_and(|status| status.success()), self.scratch.read("log"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
