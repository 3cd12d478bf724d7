//! `google_grpc`: a server by its address alone. It becomes a cluster of our own, which nothing else can name and which
//! is not shown; its calls are counted as `grpc.<stat prefix>.…`.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::format::Format;
use towpath_engine::snapshot::cluster::{
    Balancer, Balancing, Discovery, Dns, DnsName, Endpoint, Family, GOOGLE_GRPC, Limits,
};
use towpath_engine::snapshot::dns::DnsOptions;
use towpath_engine::snapshot::happy_eyeballs::HappyEyeballs;
use towpath_engine::snapshot::http2::{Choice, Http2Keepalive};
use towpath_engine::snapshot::route::{HeaderAction, HeaderOp};
use towpath_engine::snapshot::tls::{AskedName, Certificates};
use towpath_engine::snapshot::{BufferLimit, Cluster, Http2, UpstreamTls};
use towpath_proto::Address;
use towpath_proto::tls::{
    ClientSettings, ClientTemplate, Identity, Names, Roots, ServerName, Trust, Version,
};

use super::Converter;
use super::tls::MAX_PEM_BYTES;
use crate::base::carry;
use crate::dynamic::Kind;
use crate::error::Rank;
use crate::message::{At, Message, Value};

/// How such a server is called.
pub(super) struct Google {
    /// The cluster that it is.
    pub(super) cluster: Arc<str>,
    /// `:authority`.
    pub(super) authority: Arc<str>,
    /// What `call_credentials` add to each call.
    pub(super) authorization: Option<String>,
}

impl Google {
    /// `authorization` as a change of heads.
    pub(super) fn header(&self, converter: &mut Converter<'_>, at: &At) -> Option<HeaderOp> {
        let value = self.authorization.as_ref()?;
        Some(HeaderOp {
            name: converter.header_name("authorization", at)?,
            value: Format::literal(value.as_bytes()),
            action: HeaderAction::Append,
            keep_empty: false,
        })
    }
}

/// Where a server is.
#[derive(Debug, PartialEq)]
struct Target {
    place: Place,
    authority: String,
    /// What its certificate is to say.
    host: String,
}

#[derive(Debug, PartialEq)]
enum Place {
    Fixed(Vec<Address>),
    Name(String, u16),
}

/// What `channel_args` say.
#[derive(Default)]
struct Arguments {
    authority: Option<String>,
    name: Option<String>,
    ping_after: Option<Duration>,
    ping_timeout: Option<Duration>,
}

impl Converter<'_> {
    /// Makes the cluster of a `GoogleGrpc`, if there is none that is alike.
    pub(super) fn google_grpc(&mut self, google: &Message) -> Option<Google> {
        let prefix = google.text("stat_prefix");
        let uri = google.text("target_uri");
        let target = match Target::parse(uri) {
            Ok(target) => target,
            Err(why) => {
                self.report.unsupported(google.at("target_uri"), format!("`{uri}`: {why}"));
                return None;
            }
        };
        let arguments = self.channel_arguments(google)?;
        let files = std::mem::take(&mut self.files);
        let made = self.google_cluster(google, target, arguments);
        let print = self.own_print(google);
        self.files ^= files.rotate_left(1);
        let (cluster, authority, authorization) = made?;
        // Two that are written alike are one, and stay it when their files change.
        let name: Arc<str> = format!("{GOOGLE_GRPC}{uri}#{:016x}", print.own()).into();
        let stat_name = format!("{GOOGLE_GRPC}{prefix}").into();
        let cluster = Cluster { name: Arc::clone(&name), stat_name, ..cluster };
        let cluster = self.same_cluster(cluster, print);
        let id = self.intern(&name);
        if let Some(slot) = self.snapshot.clusters.get_mut(id.0 as usize) {
            *slot = Some(cluster);
        }
        self.own_clusters.insert(Arc::clone(&name));
        Some(Google { cluster: name, authority: authority.into(), authorization })
    }

    fn google_cluster(
        &mut self,
        google: &Message,
        target: Target,
        arguments: Arguments,
    ) -> Option<(Cluster, String, Option<String>)> {
        let Arguments { authority, name, ping_after, ping_timeout } = arguments;
        let authority = authority.or_else(|| name.clone()).unwrap_or(target.authority);
        let (tls, is_private) = self.channel_credentials(google, &target.place)?;
        let host = name.unwrap_or(target.host);
        let tls = match tls {
            None => None,
            Some(template) => {
                let Some(name) = ServerName::of_host(&host) else {
                    let text = format!("`{host}` is no name that a certificate can have");
                    self.report.unsupported(google.at("target_uri"), text);
                    return None;
                };
                Some(Box::new(UpstreamTls {
                    template: Some(template),
                    // Another certificate is another cluster.
                    shape: None,
                    name: AskedName::Fixed(name),
                    certificates: Certificates::default(),
                }))
            }
        };
        let authorization = self.call_credentials(google, is_private)?;
        let (discovery, endpoints) = hosts(target.place);
        let buffer = google.number("per_stream_buffer_limit_bytes").unwrap_or(DEFAULT_BUFFER);
        let mut http1 = self.http1_options(None, None);
        http1.max_head_bytes = MAX_HEAD_BYTES;
        let plain = self.http2(None, &http1, None, Choice::Always);
        let http2 = Http2 {
            keepalive: ping_after.map(|interval| Http2Keepalive {
                interval: Some(interval),
                jitter_percent: 0,
                timeout: ping_timeout.unwrap_or(DEFAULT_PING_TIMEOUT),
                idle: None,
            }),
            ..Http2::clone(&plain)
        };
        let limits = Limits {
            connections: u32::MAX,
            pending: u32::MAX,
            requests: u32::MAX,
            retries: u32::MAX,
            ..Limits::default()
        };
        let cluster = Cluster {
            discovery,
            balancing: Balancing { panic_threshold: 0, ..Balancing::new(Balancer::RoundRobin) },
            connect_timeout: CONNECT_TIMEOUT,
            buffer_limit: BufferLimit::strict(usize::try_from(buffer).unwrap_or(usize::MAX)),
            limits,
            high_limits: limits,
            idle_timeout: Some(IDLE_TIMEOUT),
            http1: Arc::new(http1),
            http2: Some(Arc::new(http2)),
            tls,
            ..Cluster::new(Arc::default(), endpoints)
        };
        Some((cluster, authority, authorization))
    }

    /// How its hosts are spoken to under TLS, if so; and whether calls may have credentials of their own.
    fn channel_credentials(
        &mut self,
        google: &Message,
        place: &Place,
    ) -> Option<(Option<ClientTemplate>, bool)> {
        let Some(credentials) = google.message("channel_credentials") else {
            return Some((None, false));
        };
        let chosen = credentials.oneof("credential_specifier")?;
        match chosen.descriptor.name() {
            "ssl_credentials" => {
                let ssl = credentials.message("ssl_credentials")?;
                self.ssl_credentials(ssl).map(|template| (Some(template), true))
            }
            "local_credentials" => {
                let local = matches!(place, Place::Fixed(at) if at.iter().all(is_unix));
                if !local {
                    let text = "are for `unix:` targets alone: gRPC connects to no other with them";
                    self.report.unsupported(&chosen.at, text);
                    return None;
                }
                Some((None, true))
            }
            // Reported by the table of support.
            _ => None,
        }
    }

    fn ssl_credentials(&mut self, ssl: &Message) -> Option<ClientTemplate> {
        let pem = match ssl.message("root_certs") {
            Some(source) => self.secret_data(source, MAX_PEM_BYTES)?,
            None => {
                let Some(path) = SYSTEM_ROOTS.iter().find(|path| Path::new(path).is_file()) else {
                    let text = "needs `root_certs`: there is no file with the system's";
                    self.report.unsupported(&ssl.at, text);
                    return None;
                };
                self.file_data(path, &ssl.at, MAX_PEM_BYTES)?
            }
        };
        let mut wrong = |why: String| self.report.problem(&ssl.at, why);
        let roots = Roots::from_pem(&pem).map_err(|error| wrong(error.to_string())).ok()?;
        let identity = match (ssl.message("cert_chain"), ssl.message("private_key")) {
            (None, None) => None,
            (Some(chain), Some(key)) => {
                let chain = self.secret_data(chain, MAX_PEM_BYTES)?;
                let key = self.secret_data(key, MAX_PEM_BYTES)?;
                let identity = Identity::from_pem(&chain, &key);
                let mut wrong = |why: String| self.report.problem(&ssl.at, why);
                Some(identity.map_err(|error| wrong(error.to_string())).ok()?)
            }
            (Some(_), None) | (None, Some(_)) => {
                let text = "needs both `cert_chain` and `private_key`, or none";
                self.report.problem(&ssl.at, text);
                return None;
            }
        };
        let settings = ClientSettings {
            versions: (Version::Tls12, Version::Tls13),
            cipher_suites: Vec::new(),
            groups: self.groups(None)?,
            signature_algorithms: Vec::new(),
            alpn: vec![b"h2".to_vec()],
            trust: Trust {
                roots: Some(roots),
                names: Names::Server,
                checks_key_usage: true,
                ..Trust::default()
            },
            identity,
            stored_sessions: 1,
            key_log: None,
        };
        settings.build().map_err(|error| self.unfit(&ssl.at, &error)).ok()
    }

    /// What is added to each call.
    fn call_credentials(&mut self, google: &Message, is_private: bool) -> Option<Option<String>> {
        let all: Vec<_> = google.messages("call_credentials").collect();
        let mut token = None;
        for credentials in all {
            let chosen = credentials.oneof("credential_specifier")?;
            if chosen.descriptor.name() != "access_token" {
                // Reported by the table of support.
                return None;
            }
            let text = format!("Bearer {}", credentials.text("access_token"));
            if !is_private {
                let text = "gRPC makes no calls with it in clear text; write `ssl_credentials`";
                self.report.unsupported(&chosen.at, text);
                return None;
            }
            if token.replace(text).is_some() {
                self.report.unsupported(&chosen.at, "one token is sent");
                return None;
            }
        }
        Some(token)
    }

    fn channel_arguments(&mut self, google: &Message) -> Option<Arguments> {
        let mut found = Arguments::default();
        let mut is_known = true;
        let Some(all) = google.message("channel_args") else { return Some(found) };
        for (name, item) in all.entries("args") {
            let Value::Message(value) = &item.value else { continue };
            let number = value.number("int_value");
            let text = Some(value.text("string_value")).filter(|text| !text.is_empty());
            let millis = || number.map(Duration::from_millis);
            match &**name {
                "grpc.default_authority" => found.authority = text.map(str::to_owned),
                "grpc.ssl_target_name_override" => found.name = text.map(str::to_owned),
                "grpc.keepalive_time_ms" => {
                    found.ping_after = millis().map(|time| time.max(LEAST_PING_AFTER));
                }
                "grpc.keepalive_timeout_ms" => {
                    found.ping_timeout = millis().filter(|time| !time.is_zero());
                }
                "grpc.lb_policy_name" if text == Some("pick_first") => {}
                name if OUR_OWN.contains(&name) => {
                    let text = format!("`{name}` has no meaning here: such limits are our own");
                    self.report.finding(&item.at, Rank::Harmless, text);
                }
                name => {
                    self.report.unsupported(&item.at, format!("`{name}` is not read"));
                    is_known = false;
                }
            }
        }
        is_known.then_some(found)
    }

    /// Another cluster or listener begins to be converted.
    pub(super) fn begin_own_clusters(&mut self) {
        self.own_clusters.clear();
    }

    /// Notes which clusters of our own the cluster or listener at hand calls. Says whether there are any.
    pub(super) fn note_own_clusters(&mut self, kind: Kind, name: &Arc<str>) -> bool {
        let own: Vec<_> = std::mem::take(&mut self.own_clusters).into_iter().collect();
        let any = !own.is_empty();
        if any {
            self.prints.own.insert((kind, Arc::clone(name)), own);
        }
        any
    }

    /// Keeps those that all listeners call that serve.
    pub(crate) fn keep_own_clusters(&mut self) {
        let base = self.base;
        for ((kind, name), _) in
            base.prints.own.iter().filter(|((kind, _), _)| *kind == Kind::Listener)
        {
            carry(&mut self.snapshot, &mut self.prints, base, (*kind, name));
        }
    }
}

impl Target {
    /// A name of gRPC's: `dns:`, `ipv4:`, `ipv6:`, `unix:`, or host and port.
    fn parse(uri: &str) -> Result<Self, &'static str> {
        let rest = |scheme: &str| uri.strip_prefix(scheme).and_then(|it| it.strip_prefix(':'));
        if let Some(rest) = rest("unix") {
            let path = match rest.strip_prefix("//") {
                Some(path) if !path.starts_with('/') => return Err("needs an absolute path"),
                Some(path) => path,
                None => rest,
            };
            return Self::unix(path.to_owned());
        }
        if let Some(name) = rest("unix-abstract") {
            return Self::unix(format!("@{name}"));
        }
        for (scheme, is_v4) in [("ipv4", true), ("ipv6", false)] {
            if let Some(rest) = rest(scheme) {
                return Self::addresses(rest.trim_start_matches('/'), is_v4);
            }
        }
        if ["xds", "google-c2p", "vsock"].iter().any(|scheme| rest(scheme).is_some()) {
            return Err("only `dns:`, `ipv4:`, `ipv6:`, `unix:`, and host and port are resolved");
        }
        let authority = match rest("dns") {
            Some(rest) => match rest.strip_prefix("//") {
                Some(rest) => rest.strip_prefix('/').ok_or("a DNS server is not asked by name")?,
                None => rest,
            },
            None => uri,
        };
        let (host, port) = split(authority)?;
        let place = match host.parse::<IpAddr>() {
            Ok(ip) => Place::Fixed(vec![Address::Ip(SocketAddr::new(ip, port))]),
            Err(_) => Place::Name(host.to_owned(), port),
        };
        Ok(Self { place, authority: authority.to_owned(), host: host.to_owned() })
    }

    fn unix(path: String) -> Result<Self, &'static str> {
        if path.len() < 2 {
            return Err("needs a path");
        }
        let place = Place::Fixed(vec![Address::Unix(Arc::from(Path::new(&path)))]);
        Ok(Self { place, authority: LOCALHOST.to_owned(), host: LOCALHOST.to_owned() })
    }

    /// Addresses, which are tried one after the other.
    fn addresses(text: &str, is_v4: bool) -> Result<Self, &'static str> {
        let mut addresses = Vec::new();
        for address in text.split(',') {
            let at: SocketAddr = address.parse().map_err(|_| "needs addresses with ports")?;
            if at.is_ipv4() != is_v4 {
                return Err("has an address of the other family");
            }
            addresses.push(Address::Ip(at));
        }
        let host = split(text.split(',').next().unwrap_or(text))?.0.to_owned();
        Ok(Self { place: Place::Fixed(addresses), authority: text.to_owned(), host })
    }
}

/// A host, and a port or that of HTTPS.
fn split(text: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("has a bracket that is not closed")?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("needs a host");
    }
    let port = port.map_or(Ok(HTTPS), str::parse).map_err(|_| "needs a port that is a number")?;
    Ok((host, port))
}

fn is_unix(address: &Address) -> bool {
    matches!(address, Address::Unix(_))
}

/// The hosts of a place: a name is one, of whose addresses the first serves that can be connected to.
fn hosts(place: Place) -> (Discovery, Arc<[Endpoint]>) {
    match place {
        Place::Fixed(addresses) => {
            let first = addresses.first().cloned().unwrap_or_else(Address::unspecified);
            let addresses = (addresses.len() > 1).then(|| Arc::from(addresses));
            (Discovery::Static, Arc::from([Endpoint { addresses, ..Endpoint::new(first) }]))
        }
        Place::Name(name, port) => {
            let hostname: Arc<str> = Arc::from(&*name);
            let template = Endpoint { hostname, ..Endpoint::new(Address::unspecified()) };
            let dns = Dns {
                logical: true,
                names: vec![DnsName { name: Arc::from(name), port, template }],
                refresh: DNS_REFRESH,
                failure_refresh: None,
                respect_ttl: false,
                jitter: Duration::ZERO,
                family: Family::All,
                eyeballs: HappyEyeballs::default(),
                least_refresh: Duration::ZERO,
                resolver: DnsOptions::default(),
            };
            (Discovery::Dns(Box::new(dns)), Arc::from([]))
        }
    }
}

/// Arguments that say what limits or pauses gRPC's own channels have.
const OUR_OWN: [&str; 9] = [
    "grpc.keepalive_permit_without_calls",
    "grpc.http2.max_pings_without_data",
    "grpc.max_receive_message_length",
    "grpc.max_send_message_length",
    "grpc.initial_reconnect_backoff_ms",
    "grpc.min_reconnect_backoff_ms",
    "grpc.max_reconnect_backoff_ms",
    "grpc.enable_retries",
    "grpc.use_local_subchannel_pool",
];
/// Where gRPC looks for trusted certificates.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];
/// What gRPC calls a server on a unix socket.
const LOCALHOST: &str = "localhost";
const HTTPS: u16 = 443;
/// Envoy's.
const DEFAULT_BUFFER: u64 = 1024 * 1024;
const MAX_HEAD_BYTES: u32 = 60 * 1024;
/// gRPC's: how long a connect may take, a connection be idle, and an answer to a PING take; how often names are asked
/// for at most; and after what time without data a PING is sent at least.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_TIMEOUT: Duration = Duration::from_secs(1800);
const DEFAULT_PING_TIMEOUT: Duration = Duration::from_secs(20);
const DNS_REFRESH: Duration = Duration::from_secs(30);
const LEAST_PING_AFTER: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    #[test]
    fn targets_are_read_as_in_grpc() {
        let fixed = |uri: &str, addresses: Vec<Address>, authority: &str, host: &str| {
            let (authority, host) = (authority.to_owned(), host.to_owned());
            let wanted = Target { place: Place::Fixed(addresses), authority, host };
            assert_eq!(Target::parse(uri), Ok(wanted), "{uri}");
        };
        let unix = |path: &str| vec![Address::Unix(Arc::from(Path::new(path)))];
        fixed("127.0.0.1:80", vec![ip("127.0.0.1:80")], "127.0.0.1:80", "127.0.0.1");
        fixed("dns:///[::1]:80", vec![ip("[::1]:80")], "[::1]:80", "::1");
        fixed("::1", vec![ip("[::1]:443")], "::1", "::1");
        let two = vec![ip("10.0.0.1:1"), ip("10.0.0.2:2")];
        fixed("ipv4:10.0.0.1:1,10.0.0.2:2", two, "10.0.0.1:1,10.0.0.2:2", "10.0.0.1");
        fixed("ipv6:[::1]:5", vec![ip("[::1]:5")], "[::1]:5", "::1");
        fixed("unix:/run/a", unix("/run/a"), "localhost", "localhost");
        fixed("unix:///run/a", unix("/run/a"), "localhost", "localhost");
        fixed("unix:a/b", unix("a/b"), "localhost", "localhost");
        fixed("unix-abstract:a", unix("@a"), "localhost", "localhost");
        for (uri, host, port) in [
            ("dns:///authz.test:50051", "authz.test", 50051),
            ("dns:authz.test", "authz.test", 443),
            ("authz.test:1", "authz.test", 1),
            ("localhost", "localhost", 443),
        ] {
            let target = Target::parse(uri).unwrap();
            assert_eq!(target.place, Place::Name(host.to_owned(), port), "{uri}");
        }
        for uri in [
            "unix:",
            "unix://a",
            "ipv4:a:1",
            "ipv4:[::1]:1",
            "ipv6:1.2.3.4:1",
            "xds:///a",
            "dns://8.8.8.8/a",
            "a:b",
            "[::1",
            ":1",
            "a:99999",
        ] {
            assert!(Target::parse(uri).is_err(), "{uri}");
        }
    }
}
