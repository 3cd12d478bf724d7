//! The same job in each proxy's own words: one worker, one route, keep-alive on both sides; no access log and no field
//! of its own but what [`Extras`] asks for.

use std::path::{Path, PathBuf};

use super::contender;
use super::filters::Parts;

/// What a proxy looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Http,
    Tcp,
    /// HTTP/2 by prior knowledge from clients, HTTP/1.1 to the origin.
    H2ToH1,
    /// HTTP/2 on both sides.
    H2ToH2,
    /// HTTP/1.1 over TLS 1.3 from clients, HTTP/1.1 to the origin.
    Tls,
    /// HTTP/2 over TLS from clients, HTTP/1.1 to the origin.
    TlsH2ToH1,
    /// As [`Kind::H2ToH2`], for calls of gRPC.
    Grpc,
    /// As [`Kind::Http`], and a server is asked about each request (`ext_authz` by gRPC).
    Asked,
}

/// What HTTP proxies do beside passing on.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    /// X-Forwarded-For, X-Forwarded-Proto and a request id are added to each request.
    pub(super) edge: bool,
    /// Each request is logged in the proxy's default format.
    pub(super) log: Option<Log>,
    /// What Towpath and Envoy do besides.
    pub(super) parts: Parts,
}

#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) file: PathBuf,
    /// HAProxy writes no files: a UDP port of 127.0.0.1.
    pub(super) port: u16,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::H2ToH1 => "h2-to-h1",
            Self::H2ToH2 => "h2-to-h2",
            Self::Tls => "tls",
            Self::TlsH2ToH1 => "tls-h2-to-h1",
            Self::Grpc => "grpc",
            Self::Asked => "ext-authz",
        }
    }

    /// Whether clients speak HTTP/2.
    pub(super) const fn is_h2(self) -> bool {
        !matches!(self, Self::Http | Self::Tcp | Self::Tls | Self::Asked)
    }

    /// Whether clients speak TLS.
    pub(super) const fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::TlsH2ToH1)
    }

    /// Whether the origin is spoken to over HTTP/2.
    pub(super) const fn has_h2_origin(self) -> bool {
        matches!(self, Self::H2ToH2 | Self::Grpc)
    }

    /// Whether this proxy can do it, with [`Extras::parts`] or without: the floor has neither HTTP/2 nor TLS, nginx
    /// speaks HTTP/2 to origins of gRPC alone, and a server that is asked by gRPC is Envoy's way.
    pub(super) fn suits(self, contender: &str, has_parts: bool) -> bool {
        match contender {
            "towpath" | contender::BEFORE | "envoy" => true,
            _ if has_parts || self == Self::Asked => false,
            "floor" => !self.is_h2() && !self.is_tls(),
            "nginx" => self != Self::H2ToH2,
            "nghttpx" => self != Self::Tcp,
            _ => true,
        }
    }
}

/// The origin: small files, large files; over HTTP/2 on a port of its own.
pub(super) fn origin(folder: &Path, port: u16, h2_port: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off; worker_processes 1; pid {folder}/origin.pid; error_log {folder}/origin.log crit;
worker_rlimit_nofile 30000;
events {{ worker_connections 25000; }}
http {{
  access_log off; sendfile on; keepalive_requests 1000000000; keepalive_timeout 3600s;
  open_file_cache max=100; root {folder}/files;
{}
  http2_max_concurrent_streams 1024;
  server {{ listen 127.0.0.1:{port} backlog=4096; listen 127.0.0.1:{h2_port} http2 backlog=4096; location / {{ }} }}
}}
",
        nginx_folders(&folder.to_string())
    )
}

pub(super) fn nginx(
    kind: Kind,
    extras: &Extras,
    folder: &Path,
    module: &Path,
    listen: u16,
    upstream: u16,
) -> String {
    let folder = folder.display();
    let start = format!(
        "daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log crit;
worker_rlimit_nofile 30000;
events {{ worker_connections 25000; }}
"
    );
    let log =
        extras.log.as_ref().map_or_else(|| "off".into(), |log| log.file.display().to_string());
    let edge = if extras.edge {
        " proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Request-Id $request_id;"
    } else {
        ""
    };
    let (listen_as, pass) = match kind {
        Kind::Tls => ("ssl", "proxy"),
        Kind::TlsH2ToH1 => ("ssl http2", "proxy"),
        Kind::Grpc => ("http2", "grpc"),
        Kind::H2ToH1 | Kind::H2ToH2 => ("http2", "proxy"),
        Kind::Http | Kind::Tcp | Kind::Asked => ("", "proxy"),
    };
    let certificate = if kind.is_tls() {
        format!(
            "ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate {folder}/../chain.pem; ssl_certificate_key {folder}/../key.pem;"
        )
    } else {
        String::new()
    };
    let location = if pass == "grpc" {
        "grpc_pass grpc://origin;".to_owned()
    } else {
        format!(
            "proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";{edge}"
        )
    };
    if kind == Kind::Tcp {
        format!(
            "load_module {};
{start}stream {{
  server {{ listen 127.0.0.1:{listen} backlog=4096; proxy_pass 127.0.0.1:{upstream}; }}
}}
",
            module.display()
        )
    } else {
        format!(
            "{start}http {{
  access_log {log}; keepalive_requests 1000000000; keepalive_timeout 3600s;
{}
  upstream origin {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{listen} {listen_as} backlog=4096; http2_max_concurrent_streams 1024;
    {certificate}
    location / {{ {location} }}
  }}
}}
",
            nginx_folders(&folder.to_string())
        )
    }
}

/// HAProxy refuses to start when its connections could need more descriptors than it may have.
pub(super) fn haproxy(
    kind: Kind,
    extras: &Extras,
    descriptors: usize,
    folder: &Path,
    listen: u16,
    upstream: u16,
) -> String {
    let connections = (descriptors / 2).saturating_sub(100).min(12_000);
    let (mode, mut more) = if kind == Kind::Tcp {
        ("tcp", String::new())
    } else {
        ("http", "  option http-keep-alive\n  http-reuse always\n".to_owned())
    };
    let bind = match kind {
        Kind::Tls => format!(" ssl crt {}/both.pem alpn http/1.1", folder.display()),
        Kind::TlsH2ToH1 => format!(" ssl crt {}/both.pem alpn h2", folder.display()),
        Kind::H2ToH1 | Kind::H2ToH2 | Kind::Grpc => " proto h2".to_owned(),
        Kind::Http | Kind::Tcp | Kind::Asked => String::new(),
    };
    let server = if kind.has_h2_origin() { " proto h2" } else { "" };
    if let Some(log) = &extras.log {
        more += &format!("  log 127.0.0.1:{} local0\n  option httplog\n", log.port);
    }
    let edge = if extras.edge {
        "  option forwardfor
  http-request set-header X-Forwarded-Proto http
  http-request set-header X-Request-Id %[uuid()]
"
    } else {
        ""
    };
    format!(
        "global
  nbthread 1
  maxconn {connections}
  tune.h2.max-concurrent-streams 1024
defaults
  mode {mode}
  timeout connect 5s
  timeout client 3600s
  timeout server 3600s
{more}
frontend in
  bind 127.0.0.1:{listen} backlog 4096{bind}
{edge}  default_backend origin
backend origin
  server origin 127.0.0.1:{upstream}{server}
"
    )
}

/// nghttpx speaks HTTP/2 to clients that begin with it.
pub(super) fn nghttpx(kind: Kind, folder: &Path, listen: u16, upstream: u16) -> String {
    let folder = folder.display();
    let front = if kind.is_tls() { "" } else { ";no-tls" };
    let back = if kind.has_h2_origin() { ";;proto=h2" } else { "" };
    format!(
        "frontend=127.0.0.1,{listen}{front}
backend=127.0.0.1,{upstream}{back}
private-key-file={folder}/key.pem
certificate-file={folder}/chain.pem
no-ocsp=yes
workers=1
single-process=yes
accesslog-file=/dev/null
errorlog-file=/dev/null
backlog=4096
frontend-http2-max-concurrent-streams=1024
backend-http2-max-concurrent-streams=1024
frontend-http2-read-timeout=1h
backend-read-timeout=1h
"
    )
}

/// Envoy's bootstrap; ours too. As its FAQ on benchmarking asks: no request id where none is wanted, no dynamic
/// statistics. Under callgrind on a busy machine an answer may take longer than the 15 s that are the default.
pub(super) fn envoy(
    kind: Kind,
    extras: &Extras,
    folder: &Path,
    listen: u16,
    upstream: u16,
) -> String {
    let folder = folder.display();
    let secure = if kind.is_tls() {
        format!(
            "
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2, http/1.1]
            tls_certificates:
            - certificate_chain: {{ filename: {folder}/chain.pem }}
              private_key: {{ filename: {folder}/key.pem }}"
        )
    } else {
        String::new()
    };
    let options = if kind.has_h2_origin() {
        "
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }"
    } else {
        ""
    };
    // Streams that are held are not to be answered.
    let timeout = if kind.is_h2() { "3600s" } else { "120s" };
    let edge = extras.edge;
    let Parts { manager, host, routes, filters, clusters } = &extras.parts;
    let log = extras.log.as_ref().map_or_else(String::new, |log| {
        format!(
            "
          access_log:
          - name: envoy.access_loggers.file
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: {}",
            log.file.display()
        )
    });
    let filter = if kind == Kind::Tcp {
        "
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: in
          cluster: origin"
            .to_owned()
    } else {
        format!(
            "
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
          HttpConnectionManager
          stat_prefix: in
          use_remote_address: {edge}
          generate_request_id: {edge}{log}{manager}
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]{host}
              routes:{routes}
              - match: {{ prefix: / }}
                route: {{ cluster: origin, timeout: {timeout} }}
          http_filters:{filters}
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
              dynamic_stats: false"
        )
    };
    format!(
        "static_resources:
  listeners:
  - name: in
    address:
      socket_address: {{ address: 127.0.0.1, port_value: {listen} }}
    filter_chains:
    - filters:{filter}{secure}
  clusters:
  - name: origin
    type: STATIC
    connect_timeout: 5s{options}
    circuit_breakers:
      thresholds:
      - {{ max_connections: 20000, max_pending_requests: 200000, max_requests: 200000 }}
    load_assignment:
      cluster_name: origin
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address: {{ address: 127.0.0.1, port_value: {upstream} }}{clusters}
"
    )
}

/// nginx wants folders for bodies even when it never uses them.
fn nginx_folders(folder: &str) -> String {
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {folder}/{name};\n"))
        .concat()
}
