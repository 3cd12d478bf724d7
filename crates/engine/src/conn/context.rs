//! What a connection keeps of the filter chain that took it.

use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::conn::counted::CountedRoutes;
use crate::conn::tls::ChainTls;
use crate::filter::istio_stats::Metrics;
#[cfg(feature = "lua")]
use crate::filter::lua::Specifiers;
use crate::filter::{ChainFilter, FilterScope, HttpFilter};
use crate::ids::{Kind, NO_CLUSTER};
use crate::network_filter::RunningFilters;
use crate::serving::Serving;
use crate::snapshot::http::HttpChain;
use crate::snapshot::listener::{
    Answer, ChainMatch, Direction as Way, FilterChain, Listener, ListenerFilters, NetworkFilters,
    TcpConnects, TcpLogOptions, Terminal,
};
use crate::snapshot::plain::PlainRoutes;
use crate::snapshot::route::{ClusterChoice, RouteTable};
use crate::snapshot::{AccessLog, BoltProxy, BufferLimit, Http, TcpProxy};
use crate::stats::{
    BoltStats, GreetingStats, Http1Stats, Http2Stats, HttpStats, ListenerHttpStats, ListenerStats,
    ListenerWorkerStats, TcpStats, TracingStats,
};
use crate::tracer;

/// What a downstream connection keeps of its listener: the chain that took it and everything on the way.
///
/// Each worker has its own, and a stream takes hold of it often: hence `Rc`, whose count needs no locked instruction.
#[derive(Debug)]
pub(crate) struct ChainContext {
    pub(crate) listener: Arc<Listener>,
    pub(crate) chain: Arc<FilterChain>,
    pub(crate) stats: Arc<ListenerStats>,
    /// How many of the listener's connections are this worker's.
    pub(crate) worker_stats: Arc<ListenerWorkerStats>,
    pub(crate) kind: ChainKind,
    /// How its clients are spoken to; plain text without.
    pub(crate) tls: Option<ChainTls>,
    /// Its filters before the last.
    pub(crate) filters: RunningFilters,
    /// The counters of what its clients say of themselves.
    pub(crate) greeting_stats: Option<Arc<GreetingStats>>,
    /// Logs or formats of its configuration may ask what became of a stream.
    pub(crate) is_recorded: bool,
    /// Index into the worker's listeners.
    pub(crate) slot: usize,
    /// It is the listener's default chain.
    pub(crate) is_default: bool,
}

/// What takes the streams of a chain's connections.
#[derive(Debug)]
pub(crate) enum ChainKind {
    Http(Serving<HttpContext>),
    Tcp(Serving<TcpContext>),
    /// What comes is answered here.
    Answer(Serving<Answer>),
    /// The app in this process.
    Local,
}

impl ChainKind {
    /// Whether two chains of the same kind have the same counters.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Http(one), Self::Http(other)) => {
                Arc::ptr_eq(&one.stats, &other.stats) && one.bolt.is_some() == other.bolt.is_some()
            }
            (Self::Tcp(one), Self::Tcp(other)) => Arc::ptr_eq(&one.stats, &other.stats),
            (Self::Answer(_), Self::Answer(_)) => true,
            (Self::Http(_) | Self::Tcp(_) | Self::Answer(_) | Self::Local, _) => false,
        }
    }
}

/// An HTTP chain.
#[derive(Debug)]
pub(crate) struct HttpContext {
    pub(crate) config: Arc<Http>,
    /// Of the configuration's routes.
    pub(crate) plain: PlainRoutes,
    /// What counts their requests beside clusters.
    pub(crate) counted: CountedRoutes,
    /// What its streams pass, and upgrades that have filters of their own, as in the configuration.
    pub(crate) chain: PlacedChain,
    pub(crate) upgraded: Box<[PlacedChain]>,
    pub(crate) stats: Arc<HttpStats>,
    pub(crate) listener_stats: Arc<ListenerHttpStats>,
    /// Bolt is what comes in.
    pub(crate) bolt: Option<BoltContext>,
    /// What is counted of tracing, whether requests are traced or not.
    pub(crate) tracing_stats: Arc<TracingStats>,
    /// Those of the tracer, if there is one.
    pub(crate) tracer_stats: Option<tracer::report::Stats>,
    /// Where fields with an underscore in their names are left out, or their messages refused.
    pub(crate) http1_stats: Option<Arc<Http1Stats>>,
    /// Where HTTP/2 may come in.
    pub(crate) http2_stats: Option<Arc<Http2Stats>>,
    /// Scripts that find the clusters of its requests.
    #[cfg(feature = "lua")]
    pub(crate) specifiers: Specifiers,
}

impl HttpContext {
    /// The filters of a stream, whose upgrade may have its own.
    #[inline(always)]
    pub(crate) fn chain(&self, upgraded: Option<NonZeroU8>) -> &PlacedChain {
        upgraded.and_then(|at| self.upgraded.get(usize::from(at.get()) - 1)).unwrap_or(&self.chain)
    }
}

/// A chain of HTTP filters.
#[derive(Debug)]
pub(crate) struct PlacedChain {
    /// Before the router, in order.
    pub(crate) filters: Rc<[PlacedFilter]>,
    /// What each attempt passes before its host, unless its cluster has some.
    pub(crate) upstream_filters: Rc<[PlacedFilter]>,
    /// A filter is told of the ends of streams.
    pub(crate) tells_ends: bool,
    /// A filter does something with responses of any stream.
    pub(crate) filters_responses: bool,
}

impl PlacedChain {
    /// A chain as one worker has it, to which these routes speak.
    pub(crate) fn start(chain: &HttpChain, scope: &FilterScope, routes: &RouteTable) -> Self {
        let filters = PlacedFilter::start(&chain.filters, scope, Some(routes));
        let upstream_filters = &chain.router.upstream_filters;
        Self {
            tells_ends: filters.iter().any(|filter| filter.sees_ends),
            filters_responses: filters.iter().any(|it| it.filter.response_filter().is_some()),
            filters,
            upstream_filters: PlacedFilter::start(upstream_filters, scope, Some(routes)),
        }
    }
}

/// An HTTP filter in its chain.
#[derive(Debug)]
pub(crate) struct PlacedFilter {
    pub(crate) name: Arc<str>,
    /// Only routes that say so have it.
    pub(crate) disabled: bool,
    pub(crate) filter: Rc<dyn HttpFilter>,
    /// It is told of the ends of streams.
    pub(crate) sees_ends: bool,
    /// Some route says something to it, or may.
    pub(crate) is_named: bool,
}

impl PlacedFilter {
    /// Filters as one worker has them, to which these routes speak, if they are known.
    pub(crate) fn start(
        filters: &[ChainFilter],
        scope: &FilterScope,
        routes: Option<&RouteTable>,
    ) -> Rc<[Self]> {
        let named: Option<BTreeSet<&str>> =
            routes.map(|routes| routes.overrides().map(|it| &*it.filter).collect());
        // What has no name is said to any filter.
        let is_named = |filter: &ChainFilter| {
            named.as_ref().is_none_or(|it| it.contains(&*filter.name) || it.contains(""))
        };
        let placed = |filter: &ChainFilter| Self {
            is_named: is_named(filter),
            name: Arc::clone(&filter.name),
            disabled: filter.disabled,
            filter: filter.config.start(scope),
            sees_ends: filter.config.sees_ends(),
        };
        filters.iter().map(placed).collect()
    }
}

/// What a chain has besides when Bolt comes in.
#[derive(Debug)]
pub(crate) struct BoltContext {
    pub(crate) config: Arc<BoltProxy>,
    pub(crate) stats: Arc<BoltStats>,
}

/// A TCP chain.
#[derive(Debug)]
pub(crate) struct TcpContext {
    pub(crate) config: Arc<TcpProxy>,
    pub(crate) stats: Arc<TcpStats>,
    /// What tells a mesh of it.
    pub(crate) metrics: Option<Rc<Metrics>>,
}

impl ChainContext {
    /// The app's, which no listener has.
    pub(crate) fn local(stats: Arc<ListenerStats>) -> Self {
        let (listener, chain) = no_listener();
        Self {
            listener: Arc::new(listener),
            chain: Arc::new(chain),
            stats,
            worker_stats: Arc::default(),
            kind: ChainKind::Local,
            tls: None,
            filters: RunningFilters::default(),
            greeting_stats: None,
            is_recorded: true,
            slot: usize::MAX,
            is_default: false,
        }
    }

    /// A connection begins, or `is_new` is false and it has been moved from the chain's configuration before. Answers
    /// how long a filter that has no room for it has it held.
    pub(crate) fn enter(&self, is_new: bool) -> Option<Duration> {
        self.listener.open.add(1);
        self.filters.enter(is_new)
    }

    /// What its connections are answered, where they go no further.
    pub(crate) fn answer(&self) -> Option<&Answer> {
        match &self.kind {
            ChainKind::Answer(answer) => Some(answer),
            ChainKind::Http(_) | ChainKind::Tcp(_) | ChainKind::Local => None,
        }
    }

    /// What the streams of its connections are.
    pub(crate) fn stream_kind(&self) -> Kind {
        match &self.kind {
            ChainKind::Http(http) if http.bolt.is_some() => Kind::Rpc(Serving::new(())),
            ChainKind::Http(_) => Kind::Http(Serving::new(())),
            ChainKind::Tcp(_) | ChainKind::Answer(_) => Kind::Tcp(Serving::new(())),
            ChainKind::Local => Kind::App,
        }
    }

    pub(crate) fn http(&self) -> Option<&HttpContext> {
        match &self.kind {
            ChainKind::Http(http) => Some(http),
            ChainKind::Tcp(_) | ChainKind::Answer(_) | ChainKind::Local => None,
        }
    }

    pub(crate) fn bolt(&self) -> Option<&BoltContext> {
        self.http()?.bolt.as_ref()
    }

    /// What is written when a stream ends.
    pub(crate) fn access_logs(&self) -> &[AccessLog] {
        match &self.kind {
            ChainKind::Http(http) => &http.config.access_logs,
            ChainKind::Tcp(tcp) => &tcp.config.access_logs,
            ChainKind::Answer(_) | ChainKind::Local => &[],
        }
    }

    pub(crate) fn tcp(&self) -> Option<&TcpContext> {
        match &self.kind {
            ChainKind::Http(_) | ChainKind::Answer(_) | ChainKind::Local => None,
            ChainKind::Tcp(tcp) => Some(tcp),
        }
    }
}

/// What stands for a listener where there is none.
fn no_listener() -> (Listener, FilterChain) {
    let listener = Listener {
        name: "local".into(),
        stat_prefix: "local".into(),
        addresses: Vec::new(),
        bind: false,
        options: Arc::default(),
        other_options: Vec::new(),
        filters: ListenerFilters::default(),
        chains: Vec::new(),
        matcher: None,
        default_chain: None,
        buffer_limit: BufferLimit::strict(0),
        retry_buffer_limit: 0,
        max_connections: None,
        open: Arc::default(),
        // It is none of those that the limit counts.
        ignore_global_limit: true,
        bypasses_overload: true,
        direction: Way::Unspecified,
        modify_only: false,
        access_logs: Vec::new(),
        filter_metadata: None,
    };
    let nothing = TcpProxy {
        stat_prefix: "local".into(),
        cluster: ClusterChoice::One(NO_CLUSTER),
        idle_timeout: None,
        hash: None,
        max_duration: None,
        duration_jitter: 0.0,
        max_connect_attempts: 1,
        connects: TcpConnects::default(),
        criteria: None,
        tlvs: None,
        tunneling: None,
        access_logs: Vec::new(),
        log_options: TcpLogOptions::default(),
    };
    let chain = FilterChain {
        name: "".into(),
        matches: ChainMatch::default(),
        filters: NetworkFilters::default(),
        // The kind says what takes its streams: a chain of the app's has no configuration.
        terminal: Terminal::Tcp(Arc::new(nothing)),
        tls: None,
        transport_timeout: None,
        filter_metadata: None,
    };
    (listener, chain)
}
