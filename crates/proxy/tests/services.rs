//! What stands around filters in real deployments: the rate-limit service of Envoy's project, a check by
//! go-control-plane's messages, a browser that asks before it asks, grpc-web's client in it, and Jaeger, which takes
//! spans.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;
#[path = "smuggling/origins.rs"]
#[allow(dead_code, reason = "the servers here are others")]
mod origins;
#[path = "http2_peers/server.rs"]
#[allow(dead_code, reason = "nothing stands between here")]
mod server;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{PATIENCE, Proxy, Scratch, exchange, origin, until};
use serde_json::Value;
use server::Server;

const ROUTER: &str = "- { name: router, typed_config: { \"@type\": \
                      type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } }";

/// An HTTP listener on a free port.
fn listener(name: &str, filters: &str, hosts: &str, more: &str) -> String {
    let filters = format!("{filters}\n{ROUTER}");
    format!(
        r#"
  - name: {name}
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: {name}
          {more}
          route_config:
            name: {name}
            max_direct_response_body_size_bytes: 1000000
            virtual_hosts:
            - name: all
              domains: ["*"]{}
          http_filters:{}
"#,
        hosts.replace('\n', "\n              "),
        filters.replace('\n', "\n          ")
    )
}

/// A cluster with one endpoint.
fn cluster(name: &str, address: &str, http2: bool) -> String {
    let protocol = if http2 {
        "\n    typed_extension_protocol_options: { envoy.extensions.upstreams.http.v3.HttpProtocolOptions: { \
         \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, \
         explicit_http_config: { http2_protocol_options: {} } } }"
    } else {
        ""
    };
    format!(
        r"
  - name: {name}
    connect_timeout: 1s{protocol}
    load_assignment:
      cluster_name: {name}
      endpoints: [ {{ lb_endpoints: [ {{ endpoint: {{ address: {address} }} }} ] }} ]"
    )
}

/// What a connection manager says of a log of such lines.
fn access_log(path: &Path, line: &str) -> String {
    format!(
        "access_log: [ {{ name: file, typed_config: {{ \"@type\": \
         type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: {}, log_format: {{ \
         text_format_source: {{ inline_string: \"{line}\\n\" }} }} }} }} ]",
        path.display()
    )
}

fn at(address: SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!("{{ socket_address: {{ address: {ip}, port_value: {port} }} }}")
}

fn bootstrap(listeners: &[String], clusters: &[String]) -> String {
    format!(
        "node: {{ id: test, cluster: tests }}\nadmin: {{ address: {{ socket_address: {{ address: \
         127.0.0.1, port_value: 0 }} }} }}\nstatic_resources:\n  listeners:{}\n  clusters:{}\n",
        listeners.concat(),
        clusters.concat()
    )
}

/// One request on a connection of its own, with these fields: its status and the answer's head and content.
fn ask(address: &str, request: &str, fields: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let fields = fields.replace('\n', "\r\n");
    write!(stream, "{request} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n{fields}\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let lines = answer.split("\r\n\r\n").next()?.lines();
    lines.filter_map(|line| line.split_once(": ")).find(|(key, _)| *key == name).map(|it| it.1)
}

/// The service of <https://github.com/envoyproxy/ratelimit>, at a unix socket.
struct Limiter {
    process: Child,
    scratch: Scratch,
}

impl Limiter {
    fn start(limits: &str) -> Option<Self> {
        let program = origins::peer("services")?;
        let scratch = Scratch::new();
        let folder = scratch.path("ratelimit/config");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("limits.yaml"), limits).unwrap();
        let process = Command::new(program)
            .arg("ratelimit")
            .args([scratch.path(""), scratch.path("socket")])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let limiter = Self { process, scratch };
        let socket = limiter.scratch.path("socket");
        until("it listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        Some(limiter)
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A year is the unit, so that no window ends meanwhile.
const LIMITS: &str = r"
domain: edge
descriptors:
- { key: plan, value: free, rate_limit: { unit: year, requests_per_unit: 3 } }
- { key: plan, value: paid, rate_limit: { unlimited: true } }
- { key: plan, value: tried, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
- key: plan
  value: shared
  descriptors: [ { key: user, rate_limit: { unit: year, requests_per_unit: 2 } } ]
";

#[test]
#[ignore = "needs Envoy's rate-limit service"]
fn the_rate_limit_service_of_envoys_project_counts() {
    let Some(mut limiter) = Limiter::start(LIMITS) else { return };
    let limit = |mode: &str| {
        format!(
            r#"
- name: limit
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
    domain: edge
    timeout: 5s
    {mode}
    enable_x_ratelimit_headers: DRAFT_VERSION_03
    rate_limit_service: {{ transport_api_version: V3, grpc_service: {{ envoy_grpc: {{ cluster_name: limiter }} }} }}"#
        )
    };
    let hosts = r"
rate_limits:
- actions: [ { request_headers: { header_name: x-plan, descriptor_key: plan } } ]
- actions:
  - { request_headers: { header_name: x-plan, descriptor_key: plan } }
  - { request_headers: { header_name: x-user, descriptor_key: user } }
routes: [ { match: { prefix: / }, route: { cluster: app } } ]";
    let pipe = format!("{{ pipe: {{ path: {} }} }}", limiter.scratch.path("socket").display());
    let text = bootstrap(
        &[
            listener("open", &limit("failure_mode_deny: false"), hosts, ""),
            listener("strict", &limit("failure_mode_deny: true"), hosts, ""),
        ],
        &[cluster("app", &at(origin(Duration::ZERO)), false), cluster("limiter", &pipe, true)],
    );
    let proxy = Proxy::start(&text, &[]);
    let open = proxy.listener("open");
    let statuses = |fields: &str, count: usize| -> Vec<u16> {
        (0..count).map(|_| ask(&open, "GET /", fields).0).collect()
    };
    let (status, first) = ask(&open, "GET /", "x-plan: free");
    assert_eq!(status, 200, "{first}");
    assert_eq!(field(&first, "x-ratelimit-remaining"), Some("2"), "{first}");
    assert!(field(&first, "x-ratelimit-limit").unwrap().starts_with("3, 3;w="), "{first}");
    assert_eq!(statuses("x-plan: free", 2), [200, 200]);
    let (status, over) = ask(&open, "GET /", "x-plan: free");
    assert_eq!((status, field(&over, "x-envoy-ratelimited")), (429, Some("true")), "{over}");
    assert_eq!(field(&over, "x-ratelimit-remaining"), Some("0"), "{over}");
    assert_eq!(statuses("x-plan: paid", 5), [200; 5]);
    assert_eq!(statuses("x-plan: tried", 3), [200; 3], "a shadow limits no request");
    assert_eq!(statuses("x-plan: unheard-of", 3), [200; 3]);
    // Each user has a window of its own.
    assert_eq!(statuses("x-plan: shared\nx-user: ann", 3), [200, 200, 429]);
    assert_eq!(statuses("x-plan: shared\nx-user: bob", 3), [200, 200, 429]);
    // Without a plan there is nothing to ask about.
    assert_eq!(statuses("x-user: ann", 3), [200; 3]);
    assert_eq!(proxy.stat("cluster.app.ratelimit.over_limit"), Some(3));
    assert_eq!(proxy.stat("cluster.app.ratelimit.ok"), Some(18));
    assert_eq!(proxy.stat("cluster.app.ratelimit.error"), Some(0));
    assert_eq!(proxy.stat("cluster.limiter.upstream_cx_http2_total").map(|it| it > 0), Some(true));
    limiter.stop();
    assert_eq!(statuses("x-plan: free", 1), [200]);
    assert_eq!(ask(&proxy.listener("strict"), "GET /", "x-plan: free").0, 500);
    assert_eq!(proxy.stat("cluster.app.ratelimit.error"), Some(2));
    assert_eq!(proxy.stat("cluster.app.ratelimit.failure_mode_allowed"), Some(1));
}

#[test]
#[ignore = "needs go-control-plane's messages"]
fn a_check_made_with_go_control_plane_decides() {
    let Some(program) = origins::peer("services") else { return };
    let server = Server::start(Command::new(program).arg("authz"));
    let scratch = Scratch::new();
    let log = scratch.path("log");
    let authz = r#"
- name: authz
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
    transport_api_version: V3
    with_request_body: { max_request_bytes: 1000 }
    grpc_service: { envoy_grpc: { cluster_name: authz }, timeout: 5s }"#;
    let more = access_log(
        &log,
        "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS% %REQ(X-KNOWN-AS)% %REQ(X-USER)% \
         %DYNAMIC_METADATA(envoy.filters.http.ext_authz:user)% \
         %DYNAMIC_METADATA(envoy.filters.http.ext_authz:length)%",
    );
    let hosts = "\nroutes: [ { match: { prefix: / }, route: { cluster: app } } ]";
    let text = bootstrap(
        &[listener("main", authz, hosts, &more)],
        &[
            cluster("app", &at(origin(Duration::ZERO)), false),
            cluster("authz", &at(server.address), true),
        ],
    );
    let proxy = Proxy::start(&text, &[]);
    let main = proxy.listener("main");
    let (status, who) = ask(&main, "GET /a?b=c", "");
    assert_eq!((status, field(&who, "www-authenticate")), (401, Some("User")), "{who}");
    assert!(who.ends_with("\r\n\r\nwho are you?"), "{who}");
    let (status, eve) = ask(&main, "GET /a", "x-user: eve");
    assert!(status == 403 && eve.ends_with("\r\n\r\nnot you"), "{eve}");
    let (status, ann) = ask(&main, "GET /a?b=c", "x-user: ann");
    assert_eq!((status, field(&ann, "x-checked")), (200, Some("GET /a?b=c")), "{ann}");
    let bob = ask(&main, "POST /p", "x-user: bob\ncontent-length: 5\n\nthing").0;
    assert_eq!(bob, 200);
    let lines = [
        "200 via_upstream ANN - ann 0",
        "200 via_upstream BOB - bob 5",
        "401 ext_authz_denied - - - -",
        "403 ext_authz_denied - eve - -",
    ];
    until("the lines are written", || {
        std::fs::read_to_string(&log).unwrap_or_default().lines().count() == lines.len()
    });
    let written = std::fs::read_to_string(&log).unwrap();
    let mut written: Vec<_> = written.lines().collect();
    // Two workers write them.
    written.sort_unstable();
    assert_eq!(written, lines);
    assert_eq!(proxy.stat("cluster.app.ext_authz.ok"), Some(2));
    assert_eq!(proxy.stat("cluster.app.ext_authz.denied"), Some(2));
}

/// Jaeger with its spans in memory.
struct Jaeger {
    process: Child,
    otlp_grpc: SocketAddr,
    otlp_http: SocketAddr,
    zipkin: SocketAddr,
    query: SocketAddr,
}

impl Jaeger {
    fn start() -> Option<Self> {
        let program = origins::peer("jaeger")?;
        // It does not tell which port it has, so it is given free ones.
        let held: Vec<_> =
            (0..8).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let free: Vec<_> = held.iter().map(|it| it.local_addr().unwrap()).collect();
        drop(held);
        let places = [
            "collector.otlp.grpc.host-port",
            "collector.otlp.http.host-port",
            "collector.zipkin.host-port",
            "query.http-server.host-port",
            "query.grpc-server.host-port",
            "collector.grpc-server.host-port",
            "collector.http-server.host-port",
            "admin.http.host-port",
        ];
        let flags = places.iter().zip(&free).map(|(place, address)| format!("--{place}={address}"));
        let process =
            Command::new(program).args(flags).stderr(Stdio::null()).stdout(Stdio::null()).spawn();
        let jaeger = Self {
            process: process.unwrap(),
            otlp_grpc: free[0],
            otlp_http: free[1],
            zipkin: free[2],
            query: free[3],
        };
        until("it serves", || free.iter().all(|address| TcpStream::connect(address).is_ok()));
        Some(jaeger)
    }

    /// The spans that it has of a trace once there are so many, by their kind, each with its service.
    fn spans(&self, trace: &str, count: usize) -> BTreeMap<String, (String, Value)> {
        let mut found = Value::Null;
        until(&format!("{count} spans of {trace} are there"), || {
            let path = format!("/api/traces/{trace}");
            let answer = exchange(&self.query.to_string(), "GET", &path);
            let answer = answer.map(|(_, text)| text).unwrap_or_default();
            found = serde_json::from_str(&answer).unwrap_or_default();
            found["data"][0]["spans"].as_array().is_some_and(|spans| spans.len() == count)
        });
        let trace = &found["data"][0];
        let spans = trace["spans"].as_array().unwrap().iter().map(|span| {
            let process = &trace["processes"][span["processID"].as_str().unwrap()];
            let service = process["serviceName"].as_str().unwrap().to_owned();
            (tag(span, "span.kind").as_str().unwrap().to_owned(), (service, span.clone()))
        });
        spans.collect()
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn tag<'a>(span: &'a Value, name: &str) -> &'a Value {
    let tags = span["tags"].as_array().unwrap();
    tags.iter().find(|tag| tag["key"] == name).map_or(&Value::Null, |tag| &tag["value"])
}

/// Jaeger has, of each way to send spans, those of a request and of its attempt below what the client has named.
#[test]
#[ignore = "needs Jaeger"]
fn jaeger_shows_the_spans_of_requests() {
    let Some(jaeger) = Jaeger::start() else { return };
    let tracing = |name: &str, config: &str| {
        format!(
            "tracing: {{ spawn_upstream_span: true, provider: {{ name: envoy.tracers.{name}, typed_config: {{ \
             {config} }} }} }}"
        )
    };
    let otlp = |service: &str| {
        let of = "\"@type\": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig";
        tracing("opentelemetry", &format!("{of}, service_name: edge, {service}"))
    };
    let hosts = "\nroutes:\n- { match: { prefix: /gone }, route: { cluster: gone } }\n- { match: { prefix: / }, \
                 route: { cluster: app } }";
    let by_grpc = otlp("grpc_service: { envoy_grpc: { cluster_name: otlp_grpc } }");
    let by_http = otlp(
        "http_service: { http_uri: { uri: \"http://jaeger/v1/traces\", cluster: otlp_http, timeout: 5s } }",
    );
    let zipkin = tracing(
        "zipkin",
        "\"@type\": type.googleapis.com/envoy.config.trace.v3.ZipkinConfig, collector_cluster: zipkin, \
         collector_endpoint: /api/v2/spans, collector_endpoint_version: HTTP_JSON, trace_id_128bit: true",
    );
    let ways = [("by_grpc", by_grpc), ("by_http", by_http), ("zipkin", zipkin)];
    let listeners: Vec<_> =
        ways.iter().map(|(name, more)| listener(name, "", hosts, more)).collect();
    let text = bootstrap(
        &listeners,
        &[
            cluster("app", &at(origin(Duration::ZERO)), false),
            cluster("gone", &at(([127, 0, 0, 1], 1).into()), false),
            cluster("otlp_grpc", &at(jaeger.otlp_grpc), true),
            cluster("otlp_http", &at(jaeger.otlp_http), false),
            cluster("zipkin", &at(jaeger.zipkin), false),
        ],
    );
    let at_once = "layered_runtime: { layers: [ { name: now, static_layer: { tracing.zipkin.min_flush_spans: 1, \
                   tracing.opentelemetry.min_flush_spans: 1 } } ] }\n";
    let proxy = Proxy::start(&(text + at_once), &[]);
    for (number, (way, _)) in ways.iter().enumerate() {
        let at = proxy.listener(way);
        for (path, status) in [("/", 200), ("/gone", 503)] {
            let trace = format!("{:032x}", 0xabc0_0000_u64 + (number as u64) * 1000 + status);
            let parent = "00f067aa0ba902b7";
            let fields = match *way {
                "zipkin" => {
                    format!("x-b3-traceid: {trace}\nx-b3-spanid: {parent}\nx-b3-sampled: 1")
                }
                _ => format!("traceparent: 00-{trace}-{parent}-01"),
            };
            let (got, answer) = ask(&at, &format!("GET {path}"), &fields);
            assert_eq!(u64::from(got), status, "{answer}");
            let spans = jaeger.spans(&trace, 2);
            let ((service, request), (_, attempt)) = (&spans["server"], &spans["client"]);
            assert_eq!(service, if *way == "zipkin" { "tests" } else { "edge" });
            // Of Zipkin's both ends of a request share a span.
            let told = if *way == "zipkin" {
                &request["spanID"]
            } else {
                &request["references"][0]["spanID"]
            };
            assert_eq!(told, parent, "{way}: {request}");
            assert_eq!(attempt["references"][0]["spanID"], request["spanID"], "{way}: {attempt}");
            // The attempt has none: it reached no server.
            let of_attempt = if status == 503 { 0 } else { status };
            for (span, status) in [(request, status), (attempt, of_attempt)] {
                assert_eq!(tag(span, "component"), "proxy", "{way}: {span}");
                assert_eq!(tag(span, "http.status_code"), &status.to_string(), "{way}: {span}");
                let is_error = tag(span, "error") != &Value::Null;
                assert_eq!(is_error, status != 200, "{way}: {span}");
            }
            assert_eq!(tag(request, "http.url"), &format!("http://a.test{path}"), "{way}");
            assert_eq!(
                tag(attempt, "upstream_cluster"),
                if status == 503 { "gone" } else { "app" }
            );
        }
    }
}

/// A page in Chromium asks another origin by `fetch` and by grpc-web's own client: the browser sends the preflights,
/// and hides what the filter does not expose.
#[test]
#[ignore = "needs Chromium, grpc-web of npm and Go's peers"]
fn a_browser_may_do_what_the_cors_filter_says() {
    let (Some(chromium), Some(web), Some(go)) =
        (origins::peer("chromium"), origins::peer("grpc-web"), origins::peer("go-peers"))
    else {
        return;
    };
    let server = Server::start(Command::new(go).args(["serve", "grpc"]));
    let web = Command::new(web).output().unwrap().stdout;
    let client = Path::new(String::from_utf8(web).unwrap().trim()).join("index.js");
    let scratch = Scratch::new();
    let page = scratch.path("page.html");
    let file = |path: &Path, kind: &str| {
        let path = path.display();
        format!(
            "direct_response: {{ status: 200, body: {{ filename: {path} }} }}, response_headers_to_add: [ {{ \
             header: {{ key: content-type, value: {kind} }} }} ] }}"
        )
    };
    // Its text names the ports of the others, so its listener is of a proxy that starts after theirs.
    let pages = format!(
        "\nroutes:\n- {{ match: {{ path: /page }}, {}\n- {{ match: {{ path: /grpc-web.js }}, {}",
        file(&page, "text/html"),
        file(&client, "text/javascript")
    );
    let cors = "\n- { name: web, typed_config: { \"@type\": \
                type.googleapis.com/envoy.extensions.filters.http.grpc_web.v3.GrpcWeb } }\n- { name: cors, \
                typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors } }";
    let hosts = |origins: &str| {
        format!(
            r#"
typed_per_filter_config:
  cors:
    "@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy
    allow_origin_string_match: [ {{ prefix: "{origins}" }} ]
    allow_methods: PUT, POST
    allow_headers: x-custom, content-type, x-grpc-web, x-user-agent, grpc-timeout
    expose_headers: x-said, grpc-status, grpc-message
    max_age: "600"
response_headers_to_add:
- {{ header: {{ key: x-said, value: something }} }}
- {{ header: {{ key: x-kept, value: back }} }}
routes:
- {{ match: {{ prefix: /grpc.testing. }}, route: {{ cluster: calls }} }}
- {{ match: {{ prefix: / }}, route: {{ cluster: app }} }}"#
        )
    };
    let text = bootstrap(
        &[
            listener("api", cors, &hosts("http://127.0.0.1"), ""),
            listener("closed", cors, &hosts("http://elsewhere"), ""),
        ],
        &[
            cluster("app", &at(origin(Duration::ZERO)), false),
            cluster("calls", &at(server.address), true),
        ],
    );
    let proxy = Proxy::start(&text, &[]);
    let text = include_str!("services/page.html")
        .replace("API", &proxy.listener("api"))
        .replace("CLOSED", &proxy.listener("closed"));
    std::fs::write(&page, text).unwrap();
    let log = scratch.path("log");
    let more = access_log(&log, "%REQ(:PATH)%");
    let front = Proxy::start(&bootstrap(&[listener("pages", "", &pages, &more)], &[]), &[]);
    // A browser without a page to print goes on until it is told to end.
    let mut browser = Command::new("timeout")
        .arg("60")
        .arg(chromium)
        .args(["--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .arg("--remote-debugging-port=0")
        .arg(format!("--user-data-dir={}", scratch.path("browser").display()))
        .arg(format!("http://{}/page", front.listener("pages")))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = String::new();
    until("the page has told", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("/told?"));
        told = line.unwrap_or_default().replace("%7C", "\n").replace("%20", " ");
        !told.is_empty()
    });
    let told = told.replace("%3A", ":").replace("%2C", ",");
    let _ = Command::new("kill").arg(browser.id().to_string()).status();
    let _ = browser.wait();
    let lines = [
        "put: 200 hello something null",
        "method: TypeError",
        "field: TypeError",
        "origin: TypeError",
        "plain: 200 hello something null",
        "text, unary: 14 bytes",
        "text, fields: 14 bytes",
        "text, status: 5 no",
        "text, stream: 7,54 then the end",
        "binary, unary: 14 bytes",
        "binary, fields: 14 bytes",
        "binary, status: 5 no",
        "binary, stream: 7,54 then the end",
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), lines);
    // Each preflight was answered here; those that were refused went no further.
    assert_eq!(proxy.stat("http.closed.cors.origin_invalid"), Some(1));
    assert!(proxy.stat("http.api.cors.origin_valid").is_some_and(|count| count > 10));
}
