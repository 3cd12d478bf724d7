//! One request through two sidecars, and what all that saw it hold of its trace.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use towpath_trace::file::{self, Span};
use towpath_trace::{Category, Options, TraceContext, span};

#[test]
fn the_trace_of_one_request_is_collected_from_the_sidecars_it_went_through() {
    let folder = scratch();
    let last = Sidecar::start(&folder, "last", origin(), true);
    let first = Sidecar::start(&folder, "first", last.ingress, true);
    let (app, context) = (folder.join("app.pftrace"), TraceContext::new());
    call(first.ingress, &context, &app);

    let of_it = format!("/trace?trace_id={}", context.trace_id());
    for sidecar in [&first, &last] {
        until("the request is recorded", || sidecar.post(&of_it).0 == 200);
        assert_eq!(sidecar.post(&format!("/trace?trace_id={}", "5".repeat(32))).0, 404);
        for wrong in ["", "5", "4BF92F3577B34DA6A3CE929D0E0E4736", &"x".repeat(32)] {
            assert_eq!(sidecar.post(&format!("/trace?trace_id={wrong}")).0, 400, "{wrong}");
        }
        assert_eq!(ask(sidecar.admin, "GET", &of_it).0, 405, "as all that changes something");
    }
    let without = Sidecar::start(&folder, "without", origin(), false);
    let (status, why) = without.post(&of_it);
    assert_eq!(status, 409, "there is no flight recorder");
    assert!(String::from_utf8_lossy(&why).contains("--trace-slow"));

    let whole = folder.join("whole.pftrace");
    let output = Command::new(env!("CARGO_BIN_EXE_towpath"))
        .args(["trace", "collect", "--trace-id", &context.trace_id(), app.to_str().unwrap()])
        .args([first.admin.to_string(), last.admin.to_string()])
        .args(["-o", whole.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("3 of 3 sources"), "{said}");

    let spans = file::spans(&whole).unwrap();
    let spans: Vec<Span> = spans.iter().unwrap().map(Result::unwrap).collect();
    let mut requests = processes_of(&spans, "request", &context);
    requests.sort_unstable();
    let mut wanted = [u64::from(first.child.id()), u64::from(last.child.id())];
    wanted.sort_unstable();
    assert_eq!(requests, wanted, "each sidecar's own");
    let own = u64::from(std::process::id());
    assert_eq!(processes_of(&spans, "call", &context), [own]);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The processes that have spans of this name in this trace.
fn processes_of(spans: &[Span], name: &str, context: &TraceContext) -> Vec<u64> {
    let id = context.trace_id();
    let is_of_it = |it: &&Span| it.name == name && it.text("trace_id") == Some(id.as_str());
    spans.iter().filter(is_of_it).map(|it| it.process.1).collect()
}

/// An application that traces its request and writes a file of it.
fn call(sidecar: SocketAddr, context: &TraceContext, file: &Path) {
    let recording = Options::new().start().unwrap();
    {
        let _span = span!(
            Category::REQUEST,
            "call",
            trace_id = context.trace_id().as_str(),
            span_id = context.span_id().as_str()
        );
        let traceparent = format!("traceparent: {context}\r\n");
        assert_eq!(exchange(sidecar, "GET", "/", &traceparent), (200, b"hello".to_vec()));
    }
    let file = std::fs::File::create(file).unwrap();
    recording.stop().write_perfetto(file).unwrap();
}

/// `towpath proxy` in front of an upstream.
struct Sidecar {
    child: Child,
    admin: SocketAddr,
    ingress: SocketAddr,
}

impl Sidecar {
    fn start(folder: &Path, name: &str, upstream: SocketAddr, has_recorder: bool) -> Self {
        let path = |extension: &str| folder.join(format!("{name}.{extension}"));
        std::fs::write(path("yaml"), bootstrap(upstream)).unwrap();
        let slow = format!("60s={}", path("slow").display());
        let child = Command::new(env!("CARGO_BIN_EXE_towpath"))
            .args(["proxy", "--concurrency", "1", "-l", "warning", "-c"])
            .arg(path("yaml"))
            .arg("--admin-address-path")
            .arg(path("admin"))
            .args(has_recorder.then_some(["--trace-slow", &slow]).into_iter().flatten())
            .spawn()
            .unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut sidecar = Self { child, admin: any, ingress: any };
        until("the admin endpoint is bound", || {
            let text = std::fs::read_to_string(path("admin")).unwrap_or_default();
            text.parse().is_ok_and(|admin| {
                sidecar.admin = admin;
                true
            })
        });
        until("it is ready", || ask(sidecar.admin, "GET", "/ready").1 == b"LIVE\n");
        let (_, listeners) = ask(sidecar.admin, "GET", "/listeners");
        let text = String::from_utf8(listeners).unwrap();
        let ingress = text.lines().find_map(|line| line.strip_prefix("ingress::"));
        sidecar.ingress = ingress.unwrap().parse().unwrap();
        sidecar
    }

    fn post(&self, path: &str) -> (u16, Vec<u8>) {
        ask(self.admin, "POST", path)
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bootstrap(upstream: SocketAddr) -> String {
    format!(
        r#"
node: {{ id: test, cluster: tests }}
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
static_resources:
  listeners:
  - name: ingress
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [ {{ match: {{ prefix: "/" }}, route: {{ cluster: upstream }} }} ]
          http_filters:
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
  - name: upstream
    connect_timeout: 5s
    type: STATIC
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }}
"#,
        upstream.ip(),
        upstream.port()
    )
}

/// Answers every request with `hello`.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let heads = BufReader::new(stream.try_clone().unwrap()).lines();
                for _blank in heads.map_while(Result::ok).filter(String::is_empty) {
                    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, Vec<u8>) {
    exchange(address, method, path, "")
}

/// One request on a connection of its own: the status and the body, which ends with the connection.
fn exchange(address: SocketAddr, method: &str, path: &str, fields: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 0\r\n{fields}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    let is_chunked = head.contains("transfer-encoding: chunked");
    let body = answer.split_off(end);
    (status, if is_chunked { unchunked(&body) } else { body })
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[(end + 4 + size).min(body.len())..];
    }
    whole
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn scratch() -> PathBuf {
    let name = format!("collect-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);
