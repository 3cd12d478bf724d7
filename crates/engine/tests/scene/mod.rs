//! A scene for the simulator: one worker between clients and origins, built by hand.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of the scene")]

pub mod bench;
pub mod client;
pub mod filters;
pub mod origin;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::message::{Drain, FromWorker, Message, ToWorker};
use towpath_engine::snapshot::HostIndex;
use towpath_engine::snapshot::cluster::{Cluster, Endpoint};
use towpath_engine::snapshot::http::{Codec, Http, HttpChain};
use towpath_engine::snapshot::listener::{
    ChainMatch, Direction, FilterChain, Listener, ListenerFilters, NetworkFilters, TcpConnects,
    TcpLogOptions, TcpProxy, Terminal,
};
use towpath_engine::snapshot::route::{
    Action, ClusterChoice, Expressions, Forward, GrpcTimeout, HeaderOps, HostRewrite, PathMatch,
    PathRewrite, RequireTls, RetryOn, RetryPolicy, Route, RouteTable, Text, VirtualHost,
};
use towpath_engine::snapshot::{BufferLimit, ClusterId, DownstreamTls, Snapshot};
use towpath_engine::stats::Registry;
use towpath_engine::worker::{Worker, WorkerOptions};
use towpath_proto::{Address, Name, PreparedField};
use towpath_sim::{NodeId, World};

/// Where the worker listens for HTTP.
pub const HTTP: ([u8; 4], u16) = ([10, 0, 0, 1], 80);
/// Where the worker listens for TCP.
pub const TCP: ([u8; 4], u16) = ([10, 0, 0, 1], 7000);

pub fn address(at: ([u8; 4], u16)) -> Address {
    Address::Ip(SocketAddr::from(at))
}

pub fn origin_address(number: u8) -> Address {
    address(([10, 0, 1, number], 8080))
}

pub fn endpoint(address: Address) -> Endpoint {
    Endpoint::new(address)
}

pub fn cluster(name: &str, origins: u8) -> Cluster {
    let endpoints: Vec<Endpoint> =
        (1..=origins).map(|number| endpoint(origin_address(number))).collect();
    Cluster {
        connect_timeout: Duration::from_secs(2),
        buffer_limit: BufferLimit::strict(16 * 1024),
        idle_timeout: Some(Duration::from_secs(60)),
        ..Cluster::new(name.into(), endpoints.into())
    }
}

pub fn forward(cluster: ClusterId) -> Forward {
    Forward {
        cluster: ClusterChoice::One(cluster),
        not_found_status: 503,
        path: PathRewrite::Keep,
        host: HostRewrite::Keep,
        append_forwarded_host: false,
        timeout: Some(Duration::from_secs(15)),
        idle_timeout: None,
        flush_timeout: None,
        max_stream_duration: None,
        grpc_timeout: GrpcTimeout::default(),
        retry: None,
        hedges: false,
        upgrades: Vec::new(),
        high_priority: false,
        hash: Vec::new(),
        criteria: None,
        mirrors: Arc::default(),
        internal_redirects: None,
        bridge: None,
    }
}

pub fn route(path: &str, action: Action) -> Route {
    Route {
        name: "".into(),
        stat_prefix: None,
        path: PathMatch::Prefix(Text { bytes: path.as_bytes().into(), case_sensitive: true }),
        headers: Vec::new(),
        query: Vec::new(),
        rare: None,
        fraction: None,
        grpc_only: false,
        action,
        request_headers: HeaderOps::default(),
        response_headers: HeaderOps::default(),
        retry_buffer_limit: None,
        tracing: None,
        filters: Vec::new(),
        filter_metadata: None,
    }
}

pub fn table(routes: Vec<Route>) -> RouteTable {
    RouteTable {
        hosts: vec![everything(routes.into_iter().map(Arc::new).collect())],
        index: HostIndex::new([("*", 0)]).unwrap(),
        ..RouteTable::default()
    }
}

/// The virtual host of every domain.
pub fn everything(routes: Vec<Arc<Route>>) -> VirtualHost {
    VirtualHost {
        name: "all".into(),
        domains: vec!["*".into()],
        expressions: Expressions::of(&routes),
        routes,
        matcher: None,
        virtual_clusters: Vec::new(),
        require_tls: RequireTls::None,
        request_headers: HeaderOps::default(),
        response_headers: HeaderOps::default(),
        attempt_count_in_request: true,
        attempt_count_in_response: false,
        timeout_retry_in_request: false,
        filters: Vec::new(),
        filter_metadata: None,
    }
}

pub fn http(routes: RouteTable) -> Http {
    Http {
        stat_prefix: "in".into(),
        codec: Codec::Auto,
        http1: Arc::default(),
        http2: None,
        routes: Arc::new(routes),
        chain: HttpChain::default(),
        upgraded: Vec::new(),
        server_name: PreparedField::new(Name::Server, b"towpath"),
        server_header: towpath_engine::snapshot::http::ServerHeader::default(),
        idle_timeout: Some(Duration::from_secs(120)),
        max_connection_duration: None,
        max_stream_duration: None,
        max_requests_per_connection: 0,
        stream_idle_timeout: Some(Duration::from_secs(300)),
        stream_flush_timeout: None,
        request_timeout: None,
        request_headers_timeout: None,
        delayed_close_timeout: Duration::from_secs(1),
        access_logs: Vec::new(),
        log_flush_interval: None,
        log_on_new_request: false,
        log_on_tunnel: false,
        client_certificate: Default::default(),
        client_certificate_matcher: None,
        tells_overload: false,
        use_remote_address: false,
        xff_trusted_hops: 0,
        skip_xff_append: false,
        ignored_upgrades: Vec::new(),
        detections: Vec::new(),
        early_mutations: Default::default(),
        internal_addresses: towpath_engine::snapshot::http::InternalAddresses::default(),
        via: "".into(),
        proxy_status: None,
        told: None,
        generate_request_id: true,
        preserve_external_request_id: false,
        request_id_in_response: false,
        ipv4_mapped: false,
        append_forwarded_port: false,
        proxy_100_continue: false,
        normalize_path: false,
        merge_slashes: false,
        escaped_slashes: towpath_engine::snapshot::http::EscapedSlashes::default(),
        strip_port: towpath_engine::snapshot::http::StripPort::default(),
        strip_trailing_dot: false,
        scheme_of_upstream: false,
        scheme: None,
        upgrades: Vec::new(),
        local_reply: None,
        tracing: None,
    }
}

/// Beyond what waits for a connection at most: the listener's own limit and one read.
pub const RETRY_BUFFER_LIMIT: usize = 36 * 1024;

pub fn listener(at: ([u8; 4], u16), terminal: Terminal) -> Listener {
    let chain = FilterChain {
        name: "".into(),
        matches: ChainMatch::default(),
        filters: NetworkFilters::default(),
        terminal,
        tls: None,
        transport_timeout: None,
        filter_metadata: None,
    };
    Listener {
        name: format!("in-{}", at.1).into(),
        stat_prefix: "in".into(),
        addresses: vec![address(at)],
        bind: true,
        options: Arc::default(),
        other_options: Vec::new(),
        filters: ListenerFilters::default(),
        chains: vec![Arc::new(chain)],
        matcher: None,
        default_chain: None,
        buffer_limit: BufferLimit::strict(16 * 1024),
        retry_buffer_limit: RETRY_BUFFER_LIMIT,
        max_connections: None,
        open: Arc::default(),
        ignore_global_limit: false,
        bypasses_overload: false,
        direction: Direction::Inbound,
        modify_only: false,
        access_logs: Vec::new(),
        filter_metadata: None,
    }
}

/// How long a client's handshake may take.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// A snapshot with one cluster behind an HTTP and a TCP listener.
pub struct Plan {
    pub cluster: Cluster,
    /// What the one route matches instead of every path.
    pub path: Option<PathMatch>,
    pub adjust_forward: fn(&mut Forward),
    pub adjust_http: fn(&mut Http),
    /// Clients are spoken to under TLS, on both listeners.
    pub tls: Option<DownstreamTls>,
}

impl Plan {
    pub fn new(origins: u8) -> Self {
        Self {
            cluster: cluster("app", origins),
            path: None,
            adjust_forward: |_| {},
            adjust_http: |_| {},
            tls: None,
        }
    }

    pub fn snapshot(self) -> Snapshot {
        let mut snapshot = Snapshot { generation: 1, ..Snapshot::default() };
        let id = snapshot.intern("app");
        snapshot.clusters[id.0 as usize] = Some(Arc::new(self.cluster));
        let mut action = forward(id);
        (self.adjust_forward)(&mut action);
        let mut route = route("/", Action::Forward(Box::new(action)));
        route.path = self.path.unwrap_or(route.path);
        let mut http = http(table(vec![route]));
        (self.adjust_http)(&mut http);
        let secured = |mut listener: Listener| {
            let chain = Arc::get_mut(&mut listener.chains[0]).unwrap();
            chain.tls = self.tls.clone();
            chain.transport_timeout = Some(HANDSHAKE_TIME);
            Arc::new(listener)
        };
        snapshot.listeners.push(secured(listener(HTTP, Terminal::Http(Arc::new(http)))));
        let tcp = TcpProxy {
            stat_prefix: "tcp".into(),
            cluster: ClusterChoice::One(id),
            idle_timeout: Some(Duration::from_secs(600)),
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
        snapshot.listeners.push(secured(listener(TCP, Terminal::Tcp(Arc::new(tcp)))));
        snapshot
    }
}

/// Adds a worker that obeys a plan.
pub fn add_worker(world: &mut World<Message>, seed: u64, plan: Plan) -> NodeId {
    add_counted_worker(world, seed, plan, &Arc::default())
}

/// The same, with its counters in this registry.
pub fn add_counted_worker(
    world: &mut World<Message>,
    seed: u64,
    plan: Plan,
    registry: &Arc<Registry>,
) -> NodeId {
    add_worker_for(world, seed, Arc::new(plan.snapshot()), registry)
}

/// The same, with a snapshot that others have too.
pub fn add_worker_for(
    world: &mut World<Message>,
    seed: u64,
    snapshot: Arc<Snapshot>,
    registry: &Arc<Registry>,
) -> NodeId {
    let registry = Arc::clone(registry);
    let worker = world.add(Worker::new(WorkerOptions {
        index: 0,
        workers: 1,
        seed,
        registry,
        hostname: "here".into(),
    }));
    world.send(
        worker,
        Message::To(ToWorker::WallClock { epoch_unix_ns: 1_700_000_000_000_000_000 }),
    );
    world.send(worker, Message::To(ToWorker::Snapshot(snapshot)));
    worker
}

/// A policy that tries again so many times, soon and anywhere.
pub fn retries(on: RetryOn, retries: u32) -> RetryPolicy {
    RetryPolicy {
        on,
        retries,
        per_try_timeout: None,
        per_try_idle_timeout: None,
        statuses: Vec::new(),
        base_interval: Duration::from_millis(25),
        max_interval: Duration::from_millis(250),
        avoid_previous_hosts: false,
        omitted: None,
        host_attempts: 1,
        headers: Vec::new(),
        request_headers: Vec::new(),
        rate_limited: None,
        previous_priorities: None,
    }
}

/// Drains the worker and checks that nothing is left of it.
pub fn drain_and_check(world: &mut World<Message>, worker: NodeId) {
    let drain = Drain::at_once(Some(Duration::from_secs(900)));
    world.send(worker, Message::To(ToWorker::Drain(drain)));
    world.run_for(Duration::from_secs(1000));
    let messages = world.take_messages(worker);
    let drained =
        messages.iter().any(|(_, message)| matches!(message, Message::From(FromWorker::Drained)));
    assert!(drained, "a drain ends");
    let machine = world.machine::<Worker>(worker);
    assert_eq!(machine.streams(), 0, "no stream outlives its connections");
    world.run_for(Duration::from_secs(200));
    let machine = world.machine::<Worker>(worker);
    assert_eq!(machine.connections(), 0, "pools are empty once their idle timeout has passed");
}
