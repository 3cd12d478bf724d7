//! The programs that recipes compare: where they are, and their configuration for a plain forwarding job.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::experiment::Program;

/// Where the programs are.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    /// Towpath's own command.
    pub towpath: PathBuf,
    /// Envoy.
    pub envoy: Option<PathBuf>,
    /// nginx.
    pub nginx: Option<PathBuf>,
    /// HAProxy.
    pub haproxy: Option<PathBuf>,
    /// curl.
    pub curl: Option<PathBuf>,
    /// The class path of OkHttp and what it needs.
    pub okhttp: Option<String>,
    /// A long-running client, its words separated by spaces, with `{url}`, `{count}` and `{interval_ms}`.
    pub variant: Option<String>,
}

/// A proxy that can be put between two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    Towpath,
    Envoy,
    Nginx,
    Haproxy,
}

/// What a proxy is to forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Http,
    Tcp,
    /// Only Towpath routes it.
    Bolt,
}

/// One listener and where it forwards to.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub(super) listen: SocketAddr,
    pub(super) targets: Vec<SocketAddr>,
    /// How clients speak HTTP.
    pub(super) clients: Wire,
    /// And servers.
    pub(super) servers: Wire,
}

/// How HTTP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Http1,
    Http2,
    /// HTTP/2 under TLS.
    Secure,
    /// The same, and either shows a certificate.
    Mutual,
}

impl Forward {
    /// HTTP/1.1 in clear text, if it is HTTP.
    pub(super) const fn new(listen: SocketAddr, targets: Vec<SocketAddr>) -> Self {
        Self { listen, targets, clients: Wire::Http1, servers: Wire::Http1 }
    }

    /// Whether a proxy other than Envoy and Towpath is configured for it here.
    fn is_simple(&self) -> bool {
        matches!(self.clients, Wire::Http1 | Wire::Http2)
            && matches!(self.servers, Wire::Http1 | Wire::Http2)
    }
}

/// A certificate that is its own root, for all ends of a replay.
struct Certificate {
    chain: String,
    key: String,
}

impl Certificate {
    /// The same for the whole process; none if there is no randomness for a key.
    fn get() -> Option<&'static Self> {
        static MADE: OnceLock<Option<Certificate>> = OnceLock::new();
        let make = || {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).ok()?;
            Some(Self { chain: made.cert.pem(), key: made.signing_key.serialize_pem() })
        };
        MADE.get_or_init(make).as_ref()
    }
}

impl Peers {
    /// Looks in the environment (`TOWPATH_ENVOY` and so on), then below `target/peers` (see `cargo xtask peers`), then
    /// in the search path.
    pub fn find() -> Self {
        let look = |variable: &str, name: &str| {
            std::env::var_os(variable).map(PathBuf::from).or_else(|| find(name))
        };
        Self {
            towpath: std::env::current_exe().unwrap_or_else(|_| "towpath".into()),
            envoy: look("TOWPATH_ENVOY", "envoy"),
            nginx: look("TOWPATH_NGINX", "nginx"),
            haproxy: look("TOWPATH_HAPROXY", "haproxy"),
            curl: look("TOWPATH_CURL", "curl"),
            variant: None,
            okhttp: std::env::var("TOWPATH_OKHTTP")
                .ok()
                .or_else(|| class_path(Path::new("target/peers"))),
        }
    }
}

impl Proxy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Towpath => "towpath",
            Self::Envoy => "envoy",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        }
    }

    /// The program that forwards each of `forwards` with one worker; an error says what is missing.
    pub(super) fn program(
        self,
        peers: &Peers,
        layer: Layer,
        forwards: &[Forward],
    ) -> Result<Program, String> {
        let path = match self {
            Self::Towpath => Some(&peers.towpath),
            Self::Envoy => peers.envoy.as_ref(),
            Self::Nginx => peers.nginx.as_ref(),
            Self::Haproxy => peers.haproxy.as_ref(),
        };
        let variable = self.name().to_uppercase();
        let path = path.ok_or_else(|| {
            format!("{} was not found; set TOWPATH_{variable} to its path", self.name())
        })?;
        if layer == Layer::Bolt && self != Self::Towpath {
            return Err(format!("{} does not route Bolt", self.name()));
        }
        let is_possible = |forward: &Forward| match self {
            Self::Towpath | Self::Envoy => true,
            Self::Nginx => forward.is_simple() && forward.servers == Wire::Http1,
            Self::Haproxy => forward.is_simple(),
        };
        if layer == Layer::Http && !forwards.iter().all(is_possible) {
            return Err(format!("{} is not configured for HTTP/2 so here", self.name()));
        }
        let is_secure = |it: &Forward| it.clients.is_secure() || it.servers.is_secure();
        if forwards.iter().any(is_secure) && Certificate::get().is_none() {
            return Err("no certificate could be made".to_owned());
        }
        let executable = path.display().to_string();
        let (arguments, config): (&[&str], String) = match self {
            Self::Towpath => {
                (&["proxy", "-c", "{config}", "--concurrency", "1"], envoy(layer, forwards))
            }
            Self::Envoy => (
                &["-c", "{config}", "--concurrency", "1", "-l", "error", "--disable-hot-restart"],
                envoy(layer, forwards),
            ),
            Self::Nginx => (&["-p", "{dir}", "-c", "{config}"], nginx(path, layer, forwards)),
            Self::Haproxy => (&["-db", "-f", "{config}"], haproxy(layer, forwards)),
        };
        Ok(Program {
            name: self.name().to_owned(),
            role: "proxy".to_owned(),
            command: std::iter::once(executable)
                .chain(arguments.iter().map(|&word| word.to_owned()))
                .collect(),
            config: Some(config),
            listens: forwards.iter().map(|forward| forward.listen).collect(),
        })
    }
}

/// An Envoy bootstrap, which Towpath reads too.
fn envoy(layer: Layer, forwards: &[Forward]) -> String {
    let socket = |address: &SocketAddr| {
        format!(
            "{{socket_address: {{address: \"{}\", port_value: {}}}}}",
            address.ip(),
            address.port()
        )
    };
    let (mut listeners, mut clusters) = (String::new(), String::new());
    for (at, Forward { listen, targets, clients, servers }) in forwards.iter().enumerate() {
        let codec = if *clients == Wire::Http1 { "HTTP1" } else { "HTTP2" };
        let filter = match layer {
            Layer::Tcp => format!(
                "      - name: envoy.filters.network.tcp_proxy\n        typed_config:\n          \
                 \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\n          \
                 stat_prefix: f{at}\n          cluster: c{at}\n"
            ),
            Layer::Bolt => format!(
                "      - name: towpath.filters.network.bolt_proxy\n        typed_config:\n          \
                 \"@type\": type.googleapis.com/xds.type.v3.TypedStruct\n          \
                 type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltProxy\n          \
                 value: {{stat_prefix: f{at}, routes: [{{match: {{service: {{exact: \"{SERVICE}\"}}}}, \
                 route: {{cluster: c{at}}}}}]}}\n"
            ),
            Layer::Http => format!(
                "      - name: envoy.filters.network.http_connection_manager\n        typed_config:\n          \
                 \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
                 HttpConnectionManager\n          \
                 stat_prefix: f{at}\n          codec_type: {codec}\n          route_config:\n            \
                 virtual_hosts:\n            \
                 - name: v\n              domains: [\"*\"]\n              routes:\n              - match: \
                 {{prefix: \"/\"}}\n                \
                 route: {{cluster: c{at}}}\n          http_filters:\n          - name: \
                 envoy.filters.http.router\n            typed_config:\n              \
                 \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router\n"
            ),
        };
        let _ = write!(
            listeners,
            "  - name: f{at}\n    address: {}\n    filter_chains:\n    - filters:\n{filter}{}",
            socket(listen),
            tls(*clients, "Downstream"),
        );
        let endpoints: String = targets
            .iter()
            .map(|target| format!("        - endpoint: {{address: {}}}\n", socket(target)))
            .collect();
        let options = match layer {
            Layer::Bolt => BOLT_CLUSTER.to_owned(),
            Layer::Http if *servers != Wire::Http1 => {
                format!("{HTTP2_CLUSTER}{}", tls(*servers, "Upstream"))
            }
            Layer::Http | Layer::Tcp => String::new(),
        };
        let _ = write!(
            clusters,
            "  - name: c{at}\n    type: STATIC\n    connect_timeout: 1s\n    lb_policy: \
            ROUND_ROBIN\n{BREAKERS}{options}    \
             load_assignment:\n      \
             cluster_name: c{at}\n      endpoints:\n      - lb_endpoints:\n{endpoints}"
        );
    }
    format!("static_resources:\n  listeners:\n{listeners}  clusters:\n{clusters}")
}

/// A transport socket of Envoy's, indented as a filter chain's; a cluster's is less.
fn tls(wire: Wire, side: &str) -> String {
    let Some(Certificate { chain, key }) = Certificate::get().filter(|_| wire.is_secure()) else {
        return String::new();
    };
    let mutual = wire == Wire::Mutual;
    let (indent, demand) = match side {
        "Downstream" if mutual => ("      ", "require_client_certificate: true, "),
        "Downstream" => ("      ", ""),
        _ => ("    ", ""),
    };
    // A text in quotes is written alike in Rust and in YAML.
    let own = format!(
        "tls_certificates: [{{certificate_chain: {{inline_string: {chain:?}}}, \
         private_key: {{inline_string: {key:?}}}}}], "
    );
    let trusts = format!("validation_context: {{trusted_ca: {{inline_string: {chain:?}}}}}, ");
    let is_client = side == "Upstream";
    let own = if mutual || !is_client { own } else { String::new() };
    let trusts = if mutual || is_client { trusts } else { String::new() };
    format!(
        "{indent}transport_socket:\n{indent}  name: tls\n{indent}  typed_config: {{\"@type\": \
         type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.{side}TlsContext, {demand}\
         common_tls_context: {{{own}{trusts}alpn_protocols: [h2]}}}}\n"
    )
}

impl Wire {
    const fn is_secure(self) -> bool {
        matches!(self, Self::Secure | Self::Mutual)
    }
}

/// What the calls of a replay name.
pub(super) const SERVICE: &str = "com.example.Echo:1.0";

/// What is under way at once is the plan's to say.
const BREAKERS: &str = "    circuit_breakers: {thresholds: [{max_connections: 100000, max_requests: 100000, \
                        max_pending_requests: 100000}]}\n";

const BOLT_CLUSTER: &str = "    typed_extension_protocol_options:
      towpath.extensions.bolt.v1.BoltProtocolOptions:
        \"@type\": type.googleapis.com/xds.type.v3.TypedStruct
        type_url: type.googleapis.com/towpath.extensions.bolt.v1.BoltProtocolOptions
        value: {connections_per_host: 4}
";

const HTTP2_CLUSTER: &str = "    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
";

fn nginx(path: &Path, layer: Layer, forwards: &[Forward]) -> String {
    // Distributions build the stream module apart: beside the program's own libraries, or where
    // `cargo xtask peers` unpacked it.
    let prefix = path.parent().and_then(Path::parent);
    let places = ["lib/nginx/modules", "debian/nginx/usr/lib/nginx/modules"];
    let module = prefix
        .into_iter()
        .flat_map(|prefix| places.map(|place| prefix.join(place).join("ngx_stream_module.so")))
        .find(|module| layer == Layer::Tcp && module.exists());
    let load =
        module.map(|module| format!("load_module {};\n", module.display())).unwrap_or_default();
    let block: String = forwards
        .iter()
        .enumerate()
        .map(|(at, Forward { listen, targets, clients, .. })| {
            let http2 = if *clients == Wire::Http2 { " http2" } else { "" };
            let servers: String =
                targets.iter().map(|target| format!("server {target}; ")).collect();
            match layer {
                Layer::Tcp | Layer::Bolt => format!(
                    "  upstream u{at} {{ {servers}}}\n  server \
                    {{ listen {listen}; proxy_pass u{at}; }}\n"
                ),
                Layer::Http => format!(
                    "  upstream u{at} {{ {servers}keepalive 512; }}\n  server \
                     {{ listen {listen}{http2}; location / {{ proxy_pass http://u{at}; \
                     proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}\n"
                ),
            }
        })
        .collect();
    let (name, common) = match layer {
        Layer::Tcp | Layer::Bolt => ("stream", ""),
        Layer::Http => (
            "http",
            "  access_log off;\n  keepalive_requests 100000000;\n  client_body_temp_path {dir}/b;\n  proxy_temp_path \
             {dir}/p;\n  \
             fastcgi_temp_path {dir}/f;\n  uwsgi_temp_path {dir}/u;\n  scgi_temp_path {dir}/s;\n",
        ),
    };
    format!(
        "{load}daemon off;\nworker_processes 1;\npid {{dir}}/pid;\nerror_log {{dir}}/error.log crit;\n\
         events {{ worker_connections 8192; }}\n{name} {{\n{common}{block}}}\n"
    )
}

fn haproxy(layer: Layer, forwards: &[Forward]) -> String {
    let mode = match layer {
        Layer::Tcp | Layer::Bolt => "tcp",
        Layer::Http => "http",
    };
    let mut text = format!(
        "global\n  nbthread 1\n  maxconn 8192\ndefaults\n  mode {mode}\n  timeout connect 5s\n  timeout client 60s\n  \
         timeout server 60s\n"
    );
    let proto = |wire: Wire| if wire == Wire::Http2 { " proto h2" } else { "" };
    for (at, Forward { listen, targets, clients, servers }) in forwards.iter().enumerate() {
        let (clients, servers) = (proto(*clients), proto(*servers));
        let _ = writeln!(text, "listen f{at}\n  bind {listen}{clients}\n  balance roundrobin");
        for (number, target) in targets.iter().enumerate() {
            let _ = writeln!(text, "  server s{number} {target}{servers}");
        }
    }
    text
}

/// A program below `target/peers`, or in the search path.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    wrapper(name).or_else(|| below(Path::new("target/peers"), name, 8)).or_else(|| in_path(name))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    places.map(|place| place.join(name)).find(|file| is_executable(file))
}

/// The wrapper that `cargo xtask peers` makes.
fn wrapper(name: &str) -> Option<PathBuf> {
    Path::new("target/peers/bin").join(name).canonicalize().ok()
}

/// The first executable of that name below `directory`.
fn below(directory: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let mut directories = Vec::new();
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            directories.push(path);
        } else if path.file_name().is_some_and(|file| file == name)
            && (is_executable(&path) || name.ends_with(".so"))
        {
            return path.canonicalize().ok();
        }
    }
    directories.sort();
    directories.iter().filter(|_| depth > 0).find_map(|directory| below(directory, name, depth - 1))
}

fn class_path(directory: &Path) -> Option<String> {
    let jars = |directory: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "jar"))
            .collect()
    };
    let places = std::iter::once(directory.to_owned())
        .chain(std::fs::read_dir(directory).into_iter().flatten().flatten().map(|it| it.path()));
    let jars = places
        .map(|place| jars(&place))
        .find(|jars| jars.iter().any(|jar| jar.to_string_lossy().contains("okhttp")))?;
    let jars: Vec<String> = jars
        .iter()
        .filter_map(|jar| Some(jar.canonicalize().ok()?.display().to_string()))
        .collect();
    Some(jars.join(":"))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests;
