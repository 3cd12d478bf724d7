//! HTTP/2 with the clients and servers of others, whole bodies both ways, trailers, resets of either side, and many
//! streams at once.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

mod common;
#[path = "smuggling/origins.rs"]
#[allow(dead_code, reason = "the servers here are others")]
mod origins;
#[path = "http2_peers/server.rs"]
mod server;

use std::path::PathBuf;
use std::process::Command;

use common::{OVER_HTTP2, Proxy, Scratch, bootstrap, until};
use origins::{peer, tool};
use server::Server;

const STORIES: [&str; 7] =
    ["downloads", "uploads", "to_and_fro", "trailers", "resets", "gives_up", "many_at_once"];

#[test]
#[ignore = "needs Go's peers, Node, Java and OkHttp, .NET, and Python's httpx"]
fn clients_of_others_are_served_over_http2() {
    let Some(go) = peer("go-peers") else { return };
    let origin = Server::start(Command::new(&go).args(["serve", "http2"]));
    for speaks in [OVER_HTTP2, HTTP1] {
        let scratch = Scratch::new();
        let text = bootstrap(origin.address).replacen("    load_assignment:", speaks, 1);
        let clear = Proxy::start(&text, &[]);
        let secure = Proxy::start(&common::secured(&text, &scratch), &[]);
        let (to_clear, to_secure) = (clear.listener("ingress"), secure.listener("ingress"));
        // Go's server of HTTP/1.1 reads a request to its end before it answers.
        let not = if speaks == HTTP1 { &["to_and_fro"][..] } else { &[] };
        told("Go", Command::new(&go).args(["call", "http2", &to_clear]).args(not), not);
        if let Some(node) = tool("node") {
            let not = ["to_and_fro"];
            told(
                "Node",
                Command::new(node).arg(script("node.mjs")).args(["call", &to_clear]),
                &not,
            );
        }
        if let Some(python) = peer("python") {
            let not = ["to_and_fro", "trailers", "gives_up"];
            let mut httpx = Command::new(python);
            told("httpx", httpx.arg(script("python.py")).args(["call", &to_clear]), &not);
        }
        if let Some(okhttp) = peer("okhttp") {
            let not = ["to_and_fro"];
            told("OkHttp", Command::new(okhttp).arg(script("OkHttp.java")).arg(&to_clear), &not);
        }
        if let Some(java) = tool("java") {
            let not = ["to_and_fro", "trailers"];
            told("the JDK", Command::new(java).arg(script("Jdk.java")).arg(&to_secure), &not);
        }
        if let Some(dotnet) = peer("dotnet") {
            let not = ["to_and_fro"];
            told(".NET", Command::new(dotnet).arg(script("dotnet.py")).arg(&to_clear), &not);
        }
        for proxy in [&clear, &secure] {
            until("no request is left", || {
                proxy.stat("http.ingress.downstream_rq_active") == Some(0)
                    && proxy.stat("cluster.origin.upstream_rq_active") == Some(0)
            });
            assert_eq!(proxy.stat("http.ingress.downstream_rq_http1_total"), Some(0));
        }
    }
}

#[test]
#[ignore = "needs Go's peers, curl and nghttp"]
fn curl_and_nghttp_are_served_over_http2() {
    let (Some(go), Some(curl), Some(nghttp)) = (peer("go-peers"), tool("curl"), peer("nghttp"))
    else {
        return;
    };
    let origin = Server::start(Command::new(&go).args(["serve", "http2"]));
    let scratch = Scratch::new();
    let text = bootstrap(origin.address).replacen("    load_assignment:", OVER_HTTP2, 1);
    let clear = Proxy::start(&text, &[]);
    let secure = Proxy::start(&common::secured(&text, &scratch), &[]);
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let upload = scratch.path("upload");
    std::fs::write(&upload, &content).unwrap();
    let urls = [
        format!("http://{}", clear.listener("ingress")),
        format!("https://{}", secure.listener("ingress")),
    ];
    for url in urls {
        let is_secure = url.starts_with("https:");
        let how = if is_secure { "--http2" } else { "--http2-prior-knowledge" };
        let run = |words: &[&str]| {
            let mut command = Command::new(&curl);
            command.args(["-sSk", how, "--max-time", "20", "--noproxy", "*"]);
            command.args(words).output().unwrap()
        };
        let download = run(&[&format!("{url}/download/3000000")]);
        assert!(download.stdout == content, "{}", download.stdout.len());
        let at = format!("@{}", upload.display());
        let upload = run(&["--data-binary", &at, &format!("{url}/upload")]);
        assert_eq!(upload.stdout, b"3000000");
        // One after the other over one connection. In clear text curl 7.88 ends one by itself, with any server.
        if is_secure {
            let version = ["-w", "%{http_version} %{num_connects} ", "-o", "/dev/null"];
            let small = format!("{url}/download/[1-3]");
            assert_eq!(run(&[&version[..], &[&small]].concat()).stdout, b"2 1 2 0 2 0 ");
        }
        // "HTTP/2 stream error".
        assert_eq!(run(&[&format!("{url}/reset")]).status.code(), Some(92));
        let mut many = Command::new(&nghttp);
        many.args(["--no-verify-peer", "--no-push", "--stat", "--multiply=50", "--null-out"]);
        let said = many.arg(format!("{url}/download/20000")).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(said.matches(" 200 ").count(), 50, "{said}");
        // curl forgets trailers.
        let mut trailers = Command::new(&nghttp);
        trailers.args(["--no-verify-peer", "--no-push", "--verbose"]);
        let said = trailers.arg(format!("{url}/trailers")).output().unwrap().stdout;
        assert!(String::from_utf8_lossy(&said).contains("x-sum: 4"));
    }
}

#[test]
#[ignore = "needs Go's peers, Node, Python's hypercorn, Jetty, HAProxy, Envoy and nginx"]
fn servers_of_others_are_asked_over_http2() {
    let Some(go) = peer("go-peers") else { return };
    let check = |name: &str, server: &Server, not: &[&str]| {
        let text = bootstrap(server.address).replacen("    load_assignment:", OVER_HTTP2, 1);
        let proxy = Proxy::start(&text, &[]);
        let mut call = Command::new(&go);
        told(name, call.args(["call", "http2", &proxy.listener("ingress")]).args(not), not);
        until("no request is left", || proxy.stat("cluster.origin.upstream_rq_active") == Some(0));
        assert_eq!(proxy.stat("cluster.origin.upstream_cx_http1_total"), Some(0));
        assert_eq!(proxy.stat("cluster.origin.upstream_cx_protocol_error"), Some(0), "{name}");
    };
    let last = Server::start(Command::new(&go).args(["serve", "http2"]));
    check("Go", &last, &[]);
    if let Some(node) = tool("node") {
        let server = Server::start(Command::new(node).arg(script("node.mjs")).arg("serve"));
        check("Node", &server, &[]);
    }
    if let Some(python) = peer("python") {
        let server = Server::start(Command::new(python).arg(script("python.py")).arg("serve"));
        check("hypercorn", &server, &["trailers", "resets"]);
    }
    if let Some(jetty) = peer("jetty") {
        let server = Server::start(Command::new(jetty).arg(script("Jetty.java")));
        check("Jetty", &server, &[]);
    }
    // These have Go's server behind them, nginx over HTTP/1.1. HAProxy ends in good order what its server resets.
    for (name, words, config, not) in [
        ("haproxy", &["-f", "CONFIG"][..], HAPROXY, &["resets"][..]),
        ("envoy", &["-c", "CONFIG", "--use-dynamic-base-id", "-l", "off"], ENVOY, &[]),
        ("nginx", &["-p", "SCRATCH", "-c", "CONFIG"], NGINX, &["to_and_fro", "trailers"]),
    ] {
        if let Some(server) = Server::between(name, words, config, last.address) {
            check(name, &server, not);
        }
    }
}

/// Runs a client, which tells all stories but these.
fn told(name: &str, command: &mut Command, not: &[&str]) {
    let output = command.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), output.stderr);
    let wanted: Vec<&str> = STORIES.into_iter().filter(|story| !not.contains(story)).collect();
    let errors = String::from_utf8_lossy(&errors);
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted, "{name}: {errors}");
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/http2_peers").join(name)
}

const HTTP1: &str = r#"    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http_protocol_options: { enable_trailers: true } }
    load_assignment:"#;

const HAPROXY: &str = "\
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend front
  bind 127.0.0.1:FRONT proto h2
  default_backend behind
backend behind
  server one 127.0.0.1:BEHIND proto h2
";

const NGINX: &str = "\
daemon off;
master_process off;
pid SCRATCH/pid;
error_log SCRATCH/error.log crit;
events { worker_connections 1024; }
http {
  access_log off;
  client_max_body_size 0;
  client_body_temp_path SCRATCH/b; proxy_temp_path SCRATCH/p; fastcgi_temp_path SCRATCH/f; uwsgi_temp_path SCRATCH/u;
  scgi_temp_path SCRATCH/s;
  server {
    listen 127.0.0.1:FRONT http2;
    location / {
      proxy_pass http://127.0.0.1:BEHIND;
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_request_buffering off;
    }
  }
}
";

const ENVOY: &str = r#"
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: FRONT } }
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          codec_type: HTTP2
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [ { match: { prefix: "/" }, route: { cluster: behind } } ] }
          http_filters:
          - name: router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: behind
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment:
      cluster_name: behind
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: BEHIND } } }
"#;
