//! The same job in each proxy's own words: one worker, one route, keep-alive on both sides; no access log and no field
//! of its own but what [`Extras`] asks for.

use std::path::{Path, PathBuf};

/// What a proxy looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Http,
    Tcp,
}

/// What HTTP proxies do beside passing on.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    /// X-Forwarded-For, X-Forwarded-Proto and a request id are added to each request.
    pub(super) edge: bool,
    /// Each request is logged in the proxy's default format.
    pub(super) log: Option<Log>,
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
        }
    }
}

/// The origin: small files, large files.
pub(super) fn origin(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off; worker_processes 1; pid {folder}/origin.pid; error_log {folder}/origin.log crit;
worker_rlimit_nofile 30000;
events {{ worker_connections 25000; }}
http {{
  access_log off; sendfile on; keepalive_requests 1000000000; keepalive_timeout 3600s;
  open_file_cache max=100; root {folder}/files;
{}
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ }} }}
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
    match kind {
        Kind::Http => format!(
            "{start}http {{
  access_log {log}; keepalive_requests 1000000000; keepalive_timeout 3600s;
{}
  upstream origin {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{listen} backlog=4096;
    location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";{edge} }}
  }}
}}
",
            nginx_folders(&folder.to_string())
        ),
        Kind::Tcp => format!(
            "load_module {};
{start}stream {{
  server {{ listen 127.0.0.1:{listen} backlog=4096; proxy_pass 127.0.0.1:{upstream}; }}
}}
",
            module.display()
        ),
    }
}

/// HAProxy refuses to start when its connections could need more descriptors than it may have.
pub(super) fn haproxy(
    kind: Kind,
    extras: &Extras,
    descriptors: usize,
    listen: u16,
    upstream: u16,
) -> String {
    let connections = (descriptors / 2).saturating_sub(100).min(12_000);
    let mode = kind.name();
    let mut more = match kind {
        Kind::Http => "  option http-keep-alive\n  http-reuse always\n".to_owned(),
        Kind::Tcp => String::new(),
    };
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
defaults
  mode {mode}
  timeout connect 5s
  timeout client 3600s
  timeout server 3600s
{more}
frontend in
  bind 127.0.0.1:{listen} backlog 4096
{edge}  default_backend origin
backend origin
  server origin 127.0.0.1:{upstream}
"
    )
}

/// Envoy's bootstrap; ours too. As its FAQ on benchmarking asks: no request id where none is wanted, no dynamic
/// statistics. Under callgrind on a busy machine an answer may take longer than the 15 s that are the default.
pub(super) fn envoy(kind: Kind, extras: &Extras, listen: u16, upstream: u16) -> String {
    let edge = extras.edge;
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
    let filter = match kind {
        Kind::Http => format!(
            "
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          use_remote_address: {edge}
          generate_request_id: {edge}{log}
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes:
              - match: {{ prefix: / }}
                route: {{ cluster: origin, timeout: 120s }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
              dynamic_stats: false"
        ),
        Kind::Tcp => "
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: in
          cluster: origin"
            .to_owned(),
    };
    format!(
        "static_resources:
  listeners:
  - name: in
    address:
      socket_address: {{ address: 127.0.0.1, port_value: {listen} }}
    filter_chains:
    - filters:{filter}
  clusters:
  - name: origin
    type: STATIC
    connect_timeout: 5s
    circuit_breakers:
      thresholds:
      - {{ max_connections: 20000, max_pending_requests: 20000, max_requests: 20000 }}
    load_assignment:
      cluster_name: origin
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address: {{ address: 127.0.0.1, port_value: {upstream} }}
"
    )
}

/// nginx wants folders for bodies even when it never uses them.
fn nginx_folders(folder: &str) -> String {
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {folder}/{name};\n"))
        .concat()
}
