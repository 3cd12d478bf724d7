//! Where connections come in, and what becomes of them.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Address, HeaderName, Instant, ListenOptions};

use super::log::AccessLog;
use super::original_src::Source;
use super::route::{ClusterChoice, HeaderOps};
use super::subset::Criteria;
use super::{BoltProxy, BufferLimit, DownstreamTls, Http};
use crate::added_tlvs::OwnTlvs;
pub use crate::cidr::Prefix;
use crate::filter::ahead::Ahead;
use crate::format::Format;
use crate::matcher::Subject;
pub use crate::matcher::Transport;
use crate::matcher::tree::Tree;
use crate::mesh::{Greetings, Telemetry};
use crate::network_filter::NetworkFilterConfig;
use crate::proxied::Proxied;
pub use crate::record::Fingerprints;
use crate::stats::Registry;
use crate::stream_info::{FilterMetadata, StateObject, Struct, Value};
use crate::total::Total;

/// A listener. Envoy `config.listener.v3.Listener`.
#[derive(Debug)]
pub struct Listener {
    /// Its name; Envoy makes one up when it is empty, and so does the loader.
    pub name: Arc<str>,
    /// `stat_prefix`, or the address as Envoy writes it in `listener.<address>.…` (`0.0.0.0_10000`).
    pub stat_prefix: Arc<str>,
    /// The address and the additional addresses.
    pub addresses: Vec<Address>,
    /// Whether the addresses are bound. Connections reach an unbound listener from others only.
    pub bind: bool,
    /// Socket options.
    pub options: Arc<ListenOptions>,
    /// Those of additional addresses that have their own.
    pub other_options: Vec<(Address, Arc<ListenOptions>)>,
    /// `listener_filters`: what looks at a connection before its filter chain is chosen.
    pub filters: ListenerFilters,
    /// Filter chains in the order of the file.
    pub chains: Vec<Arc<FilterChain>>,
    /// `filter_chain_matcher`: leads to the name of a chain, in place of what the chains themselves match.
    pub matcher: Option<Tree<Arc<str>>>,
    /// What takes connections that match no chain.
    pub default_chain: Option<Arc<FilterChain>>,
    /// `per_connection_buffer_limit_bytes`: above it, the other side is not read.
    pub buffer_limit: BufferLimit,
    /// How much of a body is kept for the retries that were asked for: the same, but 1 MiB (as in Envoy) where the
    /// file sets no limit.
    pub retry_buffer_limit: usize,
    /// Connections that this listener may have. Runtime key `envoy.resource_limits.listener.<name>.connection_limit`.
    pub max_connections: Option<u64>,
    /// Those that all workers have on it.
    pub open: Arc<Total>,
    /// `ignore_global_conn_limit`.
    pub ignore_global_limit: bool,
    /// `bypass_overload_manager`.
    pub bypasses_overload: bool,
    /// `traffic_direction`.
    pub direction: Direction,
    /// `drain_type: MODIFY_ONLY`: not drained by a health-check failure or `/drain_listeners`.
    pub modify_only: bool,
    /// `access_log` of the listener: one line for each connection that no filter chain took.
    pub access_logs: Vec<AccessLog>,
    /// `metadata.filter_metadata`, for `%METADATA%`.
    pub filter_metadata: FilterMetadata,
}

impl Listener {
    /// The socket options of one of its addresses.
    #[must_use]
    pub fn options_of(&self, address: &Address) -> &Arc<ListenOptions> {
        let own = self.other_options.iter().find(|(known, _)| known == address);
        own.map_or(&self.options, |(_, options)| options)
    }

    /// All socket options that it has, those of the first address first.
    pub fn all_options(&self) -> impl Iterator<Item = &ListenOptions> {
        std::iter::once(&*self.options).chain(self.other_options.iter().map(|(_, it)| &**it))
    }

    /// Whether a filter chain of it speaks TLS.
    #[must_use]
    pub fn is_under_tls(&self) -> bool {
        self.chains.iter().chain(&self.default_chain).any(|chain| chain.tls.is_some())
    }

    /// What its filters ask servers before requests need it, each with the `stat_prefix` of its connection manager.
    pub(crate) fn asked_ahead(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<dyn Ahead>)> {
        let chains = self.chains.iter().chain(&self.default_chain);
        let http = chains.filter_map(|chain| match &chain.terminal {
            Terminal::Http(http) => Some(http),
            Terminal::Tcp(_) | Terminal::Bolt(_) | Terminal::Answer(_) => None,
        });
        http.flat_map(|http| {
            let filters = http.chains().flat_map(|chain| &chain.filters);
            filters.flat_map(|filter| filter.config.asked_ahead()).map(|it| (&http.stat_prefix, it))
        })
    }

    /// Whether a chain of it ends in a connection manager.
    #[must_use]
    pub fn has_routes(&self) -> bool {
        let mut chains = self.chains.iter().chain(&self.default_chain);
        chains.any(|chain| matches!(chain.terminal, Terminal::Http(_)))
    }
}

/// What looks at a connection's first bytes before its filter chain is chosen.
#[derive(Debug)]
pub struct ListenerFilters {
    /// The filters, in order.
    pub list: Vec<Arc<dyn ListenerFilterConfig>>,
    /// `listener_filters_timeout`: how long all of them may take; default 15 s, `None` for no limit.
    pub timeout: Option<Duration>,
    /// `continue_on_listener_filters_timeout`: then the chain is chosen by what is known. Otherwise the connection
    /// ends.
    pub continues_on_timeout: bool,
    /// `use_original_dst`: a connection whose original destination is known goes to the listener with that address, if
    /// there is one.
    pub hands_over: bool,
    /// One of them is `original_src`.
    pub binds_source: bool,
    /// One of them keeps what says which hosts are asked for: dynamic metadata of `envoy.lb`.
    pub steers: bool,
}

impl Default for ListenerFilters {
    fn default() -> Self {
        let timeout = Some(Duration::from_secs(15));
        Self {
            list: Vec::new(),
            timeout,
            continues_on_timeout: false,
            hands_over: false,
            binds_source: false,
            steers: false,
        }
    }
}

/// What a configuration says of a listener filter.
pub trait ListenerFilterConfig: std::fmt::Debug + Send + Sync {
    /// The filter as one worker has it.
    fn start(&self, registry: &Registry, worker: u32) -> Box<dyn ListenerFilter>;
}

/// A filter that counts nothing is the same in all workers.
impl<F: ListenerFilter + Clone + Send + Sync + 'static> ListenerFilterConfig for F {
    fn start(&self, _registry: &Registry, _worker: u32) -> Box<dyn ListenerFilter> {
        Box::new(self.clone())
    }
}

/// A listener filter of one worker. Of a connection it has no state: it is shown all that has come so far.
pub trait ListenerFilter: std::fmt::Debug {
    /// How many bytes of a connection are kept for it at most. One that wants still more then ends the connection.
    fn most_bytes(&self) -> usize;

    /// Looks at a connection's first bytes, those that filters before it took left out, and tells what they say.
    fn look(&self, bytes: &[u8], arrival: &mut Arrival, now: Instant) -> Look;
}

/// What is known of a connection whose filter chain is not chosen yet; filters may know better.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// The address that the connection was accepted on; where a filter knows better, where the client wanted to go.
    pub local: Address,
    /// The peer of the socket.
    pub peer: Address,
    /// Where it comes from: the socket's peer, or who a proxy says its client is.
    pub client: Address,
    /// Where it was going to before it was redirected, as far as the kernel says.
    pub original: Option<SocketAddr>,
    /// A filter has made that `local`.
    pub restored: bool,
    /// The transport, as far as a filter looked; plain text where none did.
    pub transport: Transport,
    /// The name of the server that the client asks for, in lower case.
    pub server_name: Option<Box<str>>,
    /// The protocols that the client offers, its favourite first.
    pub protocols: Vec<Box<[u8]>>,
    /// How the client's TLS differs from others', where that is asked for.
    pub fingerprints: Fingerprints,
    /// What the header of the PROXY protocol says beside addresses, as far as it is kept.
    pub proxied: Option<Arc<Proxied>>,
    /// Where connections to hosts come from, if not from us.
    pub source: Option<Source>,
    /// What came along from this process itself.
    pub passed: Option<Box<PassthroughState>>,
}

/// What a connection from this process to a listener of its own begins with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassthroughState {
    /// Dynamic metadata, by namespace.
    pub metadata: Struct,
    /// Objects of the filter state.
    pub state: Vec<(Box<str>, StateObject)>,
}

impl PassthroughState {
    /// Where it says that the client wanted to go.
    fn destination(&self) -> Option<SocketAddr> {
        self.state_address("envoy.filters.listener.original_dst.local_ip").or_else(|| {
            let Value::Struct(entries) = self.metadata.get(ORIGINAL_DST)? else { return None };
            let Value::String(text) = entries.get("local")? else { return None };
            text.parse().ok()
        })
    }

    /// Who it says that the client is.
    fn client(&self) -> Option<SocketAddr> {
        self.state_address("envoy.filters.listener.original_dst.remote_ip")
    }

    fn state_address(&self, name: &str) -> Option<SocketAddr> {
        let (_, object) = self.state.iter().find(|(known, _)| &**known == name)?;
        str::from_utf8(&object.value).ok()?.parse().ok()
    }
}

/// What Envoy's filter `original_dst` reads of a connection from the process itself.
const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";

impl Arrival {
    /// What is known before any filter has looked.
    #[must_use]
    pub fn new(local: Address, peer: Address) -> Self {
        Self {
            local,
            client: peer.clone(),
            peer,
            original: None,
            restored: false,
            transport: Transport::RawBuffer,
            server_name: None,
            protocols: Vec::new(),
            fingerprints: Fingerprints::default(),
            proxied: None,
            source: None,
            passed: None,
        }
    }

    /// What matchers look at.
    #[must_use]
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            local: Some(&self.local),
            direct: Some(&self.peer),
            remote: Some(&self.client),
            server_name: self.server_name.as_deref().unwrap_or_default(),
            transport: Some(self.transport),
            protocols: &self.protocols,
            ..Subject::default()
        }
    }
}

/// Envoy `envoy.extensions.filters.listener.original_dst.v3.OriginalDst`: a redirected connection is one to where its
/// client wanted to go. Its listener asks the kernel for that ([`ListenOptions::original_destination`]).
#[derive(Clone, Copy, Debug)]
pub struct OriginalDst;

impl ListenerFilter for OriginalDst {
    fn most_bytes(&self) -> usize {
        0
    }

    fn look(&self, _bytes: &[u8], arrival: &mut Arrival, _now: Instant) -> Look {
        let passed = arrival.passed.as_deref();
        let client = passed.and_then(PassthroughState::client);
        let passed = passed.and_then(PassthroughState::destination);
        let original = arrival.original.or(passed);
        if let Some(client) = client {
            arrival.client = Address::Ip(client);
        }
        if let Some(original) = original {
            (arrival.local, arrival.restored) = (Address::Ip(original), true);
        }
        Look::Done { takes: 0 }
    }
}

/// Stands in the place of all filters where a control plane was asked for one of them and did not give it.
#[derive(Clone, Copy, Debug)]
pub struct Missing;

impl ListenerFilter for Missing {
    fn most_bytes(&self) -> usize {
        0
    }

    fn look(&self, _bytes: &[u8], _arrival: &mut Arrival, _now: Instant) -> Look {
        Look::Unconfigured
    }
}

/// A filter that some connections pass unseen. Envoy `ListenerFilter.filter_disabled`.
#[derive(Debug)]
pub struct Disabled {
    /// Which.
    pub by: Destination,
    /// What looks at the others.
    pub filter: Arc<dyn ListenerFilterConfig>,
}

impl ListenerFilterConfig for Disabled {
    fn start(&self, registry: &Registry, worker: u32) -> Box<dyn ListenerFilter> {
        Box::new(Passed { by: self.by.clone(), filter: self.filter.start(registry, worker) })
    }
}

#[derive(Debug)]
struct Passed {
    by: Destination,
    filter: Box<dyn ListenerFilter>,
}

impl ListenerFilter for Passed {
    fn most_bytes(&self) -> usize {
        self.filter.most_bytes()
    }

    fn look(&self, bytes: &[u8], arrival: &mut Arrival, now: Instant) -> Look {
        if self.by.matches(&arrival.local) {
            return Look::Done { takes: 0 };
        }
        self.filter.look(bytes, arrival, now)
    }
}

/// Where a connection goes to. Envoy `ListenerFilterChainMatchPredicate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Anywhere.
    Any,
    /// To a port of these.
    Ports(Range<u32>),
    /// Not there.
    Not(Box<Self>),
    /// To all of these.
    All(Vec<Self>),
    /// To one of these.
    OneOf(Vec<Self>),
}

impl Destination {
    fn matches(&self, local: &Address) -> bool {
        match self {
            Self::Any => true,
            Self::Ports(range) => {
                local.ip().is_some_and(|ip| range.contains(&u32::from(ip.port())))
            }
            Self::Not(inner) => !inner.matches(local),
            Self::All(rules) => rules.iter().all(|rule| rule.matches(local)),
            Self::OneOf(rules) => rules.iter().any(|rule| rule.matches(local)),
        }
    }
}

/// What a listener filter has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It needs more bytes.
    More,
    /// It has seen enough. So many of the bytes were for it alone, and nothing behind it sees them.
    Done {
        /// At most as many as it was shown.
        takes: usize,
    },
    /// The connection ends.
    Refused,
    /// The same, because nothing is known of what the filter is to do.
    Unconfigured,
}

/// Which way a listener's traffic goes. Envoy `core.v3.TrafficDirection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Not said.
    #[default]
    Unspecified,
    /// Into the local application.
    Inbound,
    /// Out of it.
    Outbound,
}

/// A filter chain. Envoy `config.listener.v3.FilterChain`.
#[derive(Debug)]
pub struct FilterChain {
    /// Its name, possibly empty.
    pub name: Arc<str>,
    /// Which connections it takes.
    pub matches: ChainMatch,
    /// Network filters before the last.
    pub filters: NetworkFilters,
    /// The last network filter.
    pub terminal: Terminal,
    /// How clients are spoken to under TLS; `None` is plain text. Envoy `transport_socket`.
    pub tls: Option<DownstreamTls>,
    /// `transport_socket_connect_timeout`: for the handshake of a secured transport.
    pub transport_timeout: Option<Duration>,
    /// `metadata.filter_metadata`, for `%METADATA%`.
    pub filter_metadata: FilterMetadata,
}

/// Which connections a chain takes; an empty list or `None` takes all. Envoy `FilterChainMatch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainMatch {
    /// `destination_port`.
    pub destination_port: Option<u16>,
    /// `prefix_ranges`, on the address that the connection was accepted on.
    pub destination: Vec<Prefix>,
    /// `server_names`, in lower case: whole names, or `.example.com` for `*.example.com`.
    pub server_names: Vec<Box<str>>,
    /// `transport_protocol`.
    pub transport: Option<Transport>,
    /// `application_protocols`.
    pub protocols: Vec<Box<[u8]>>,
    /// `direct_source_prefix_ranges`, on the peer of the socket.
    pub direct_source: Vec<Prefix>,
    /// `source_type`.
    pub source_type: SourceType,
    /// `source_prefix_ranges`.
    pub source: Vec<Prefix>,
    /// `source_ports`.
    pub source_ports: Vec<u16>,
}

/// Envoy `FilterChainMatch.ConnectionSourceType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceType {
    /// All.
    #[default]
    Any,
    /// From this host.
    SameIpOrLoopback,
    /// From elsewhere.
    External,
}

/// The network filters before the last one.
#[derive(Debug, Default)]
pub struct NetworkFilters {
    /// In order.
    pub list: Vec<Arc<dyn NetworkFilterConfig>>,
    /// Istio's `metadata_exchange`.
    pub greetings: Option<Arc<Greetings>>,
    /// Istio's `stats`, of opaque bytes.
    pub telemetry: Option<Arc<Telemetry>>,
    /// One that a control plane was asked for and did not give: connections are closed.
    pub is_missing: bool,
}

/// The filter that ends a chain.
#[derive(Clone, Debug)]
pub enum Terminal {
    /// `envoy.filters.network.http_connection_manager`.
    Http(Arc<Http>),
    /// `envoy.filters.network.tcp_proxy`.
    Tcp(Arc<TcpProxy>),
    /// `towpath.filters.network.bolt_proxy`.
    Bolt(Arc<BoltProxy>),
    /// None is connected to.
    Answer(Answer),
}

/// What a chain answers by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `envoy.filters.network.echo`: all that comes, until its end.
    Echo,
    /// `envoy.filters.network.direct_response`: this, and the end.
    Fixed(Bytes),
}

/// Envoy `extensions.filters.network.tcp_proxy.v3.TcpProxy`.
#[derive(Debug)]
pub struct TcpProxy {
    /// Prefix of `tcp.<stat_prefix>.…`.
    pub stat_prefix: Arc<str>,
    /// Where the bytes go.
    pub cluster: ClusterChoice,
    /// No byte in either direction for this long ends the connection. Default 1 h; `None` never.
    pub idle_timeout: Option<Duration>,
    /// `max_downstream_connection_duration`.
    pub max_duration: Option<Duration>,
    /// `max_downstream_connection_duration_jitter_percentage`: it lasts up to so much of it longer; 1 is twice as long.
    pub duration_jitter: f64,
    /// `hash_policy`: by what the cluster's balancer goes, where it goes by a hash.
    pub hash: Option<TcpHash>,
    /// Upstream connections tried before giving up; at least 1.
    pub max_connect_attempts: u32,
    /// When they are.
    pub connects: TcpConnects,
    /// `metadata_match`: which subset of the cluster's hosts takes the connections.
    pub criteria: Option<Arc<Criteria>>,
    /// `tunneling_config`: the bytes are carried by an HTTP request to the upstream.
    pub tunneling: Option<Box<Tunneling>>,
    /// `proxy_protocol_tlvs`: what clusters that are told for whom a connection is are told beside that.
    pub tlvs: Option<Box<OwnTlvs>>,
    /// One line for each connection.
    pub access_logs: Vec<AccessLog>,
    /// `access_log_options`: when there are further lines.
    pub log_options: TcpLogOptions,
}

/// When a TCP proxy connects its upstream.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnects {
    /// `backoff_options`: the wait before another attempt is drawn below the first of these, doubled each time up to
    /// the second. Without it there is none.
    pub back_off: Option<(Duration, Duration)>,
    /// `upstream_connect_mode: ON_DOWNSTREAM_DATA`: with the client's first bytes.
    pub on_data: bool,
    /// `max_early_data_bytes`: nothing more is read of a client that has sent so many before it is connected. What its
    /// connection may hold bounds them as well.
    pub early_data: Option<usize>,
}

/// What a TCP proxy's `hash_policy` makes a hash of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpHash {
    /// `source_ip`: the client's address.
    Source,
    /// `filter_state`: this object of the connection, if it can be hashed.
    State(Box<str>),
}

/// Envoy `TcpProxy.TunnelingConfig`.
#[derive(Debug)]
pub struct Tunneling {
    /// `hostname`: the authority that is asked for.
    pub hostname: Format,
    /// `use_post` and `post_path`: POST to this path. Without it CONNECT.
    pub post_path: Option<Arc<[u8]>>,
    /// `headers_to_add`.
    pub headers: HeaderOps,
    /// `propagate_response_headers`: the head of the answer is an object of the filter state.
    pub keeps_head: bool,
    /// `propagate_response_trailers`: so are its trailers.
    pub keeps_trailers: bool,
    /// `request_id_extension`.
    pub request_id: Option<TunnelId>,
}

/// The id of a tunnel's request, which is in the dynamic metadata as well.
#[derive(Debug)]
pub struct TunnelId {
    /// `request_id_header`. Default `x-request-id`.
    pub header: HeaderName,
    /// `request_id_metadata_key`. Default `tunnel_request_id`.
    pub key: Box<str>,
}

/// Envoy `TcpProxy.TcpAccessLogOptions`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpLogOptions {
    /// `access_log_flush_interval`: a line each time, at least 1 ms.
    pub interval: Option<Duration>,
    /// `flush_access_log_on_connected`: one when the upstream is connected.
    pub on_connected: bool,
    /// `flush_access_log_on_start`: one when the client is accepted.
    pub on_start: bool,
}
