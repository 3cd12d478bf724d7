//! One origin of the app: its addresses, the race for connections to it, and the network it is reached through.
//!
//! Arrives: streams that wait in the origin's pool, answers of the resolver, what became of attempts, the platform's
//! word on the network. Leaves: questions and connects for the driver; a usable connection goes to its pool, which
//! knows who is next.
//!
//! An origin is a cluster with one pool, whose connections may go to any of the origin's addresses.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::proxy::{self, Refusal};
use towpath_proto::tls::{self, ServerName};
use towpath_proto::{Address, AttemptId, ConnectionId, Instant, QueryId, http1, http2};

use crate::client::back_off::BackOffs;
use crate::client::progress::connect_options;
use crate::client::race::Race;
use crate::client::timeouts::{Quantiles, SIZE_CLASSES, size_class};
use crate::client::window::Window;
use crate::env::{Env, TimerSlot};
use crate::local::message::{
    HttpVersions, Origin, Outcome, Proxy, ProxyProtocol, Settings, Transport,
};
use crate::local::report::{Answerer, Attempt, AttemptOutcome, Lookup, Report};
use crate::local::{Call, Local};
use crate::serving::HTTP2;
use crate::snapshot::cluster::{Balancer, Balancing, Cluster, Endpoint, Limits};
use crate::snapshot::http2::{Choice, Http2};
use crate::snapshot::tls::{AskedName, Certificates, UpstreamTls};
use crate::snapshot::{BufferLimit, ClusterId};

/// What is known of an origin beside its cluster.
#[derive(Debug)]
pub(crate) struct OriginState {
    /// Where its connections go: to the origin itself, or to its proxy.
    pub(crate) key: Origin,
    /// How the proxy is asked, where it is reached through one.
    pub(crate) tunnel: Option<Box<Tunnel>>,
    pub(crate) names: Names,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) race: Race,
    /// The latest attempts, by number.
    pub(crate) attempts: VecDeque<(u64, Attempt)>,
    /// The latest questions.
    pub(crate) lookups: VecDeque<Lookup>,
    /// How long the first byte took, by the size of the request.
    pub(crate) first_byte: [Quantiles; SIZE_CLASSES],
    pub(crate) back_offs: BackOffs,
    /// What those that wait wait for, where no other connection is begun.
    pub(crate) held: Option<Hold>,
    /// Names on whose connections a server did not want to be asked for this one.
    pub(crate) apart: Vec<Arc<str>>,
}

/// How an origin is reached through a proxy.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) proxy: Arc<Proxy>,
    /// Where to.
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// How the proxy is spoken to under TLS, and its name.
    pub(crate) tls: Option<(tls::Client, ServerName)>,
    /// Why the attempt that is just ending got none.
    pub(crate) refused: Option<Refusal>,
    /// What it said last of credentials that it wants.
    pub(crate) challenges: Vec<String>,
}

impl Tunnel {
    /// What is said to the proxy.
    pub(crate) fn handshake(&self) -> Result<proxy::Handshake, Refusal> {
        let who = self.proxy.credentials.as_ref();
        match self.proxy.protocol {
            ProxyProtocol::Socks5 => proxy::Handshake::socks5(&self.host, self.port, who),
            ProxyProtocol::Connect | ProxyProtocol::Forward => {
                let brackets = if self.host.contains(':') { ["[", "]"] } else { ["", ""] };
                let authority =
                    format!("{}{}{}:{}", brackets[0], self.host, brackets[1], self.port);
                Ok(proxy::Handshake::connect(&authority, &self.proxy.fields, who))
            }
        }
    }
}

/// The peer of a connection was asked whether it is there, before it gets what must not be sent twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) by: ConnectionId,
    pub(crate) until: Instant,
}

/// Where an origin's addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Its host is an address.
    Literal,
    /// Its host is a name.
    Name {
        /// Until when the answer is fresh that is in use; `None` when it must be asked for again.
        fresh: Option<Instant>,
        asking: Option<QueryId>,
        /// Not before.
        again: Instant,
        /// Until then there is no such name (RFC 2308).
        is_denied: bool,
    },
}

impl Names {
    pub(crate) const UNASKED: Self =
        Self::Name { fresh: None, asking: None, again: Instant::ZERO, is_denied: false };
}

impl OriginState {
    pub(crate) fn new(key: &Origin, race: Race) -> Self {
        let literal: Option<IpAddr> = key.host.parse().ok();
        let names = match literal {
            Some(_) => Names::Literal,
            None => Names::UNASKED,
        };
        Self {
            key: key.clone(),
            tunnel: None,
            names,
            addresses: literal.map(|ip| SocketAddr::new(ip, key.port)).into_iter().collect(),
            race,
            attempts: VecDeque::new(),
            lookups: VecDeque::new(),
            first_byte: Default::default(),
            back_offs: BackOffs::default(),
            held: None,
            apart: Vec::new(),
        }
    }

    /// A server on a connection of that name does not answer for this one.
    pub(crate) fn keep_apart(&mut self, name: Arc<str>) {
        if self.apart.len() < MOST_APART && !self.apart.contains(&name) {
            self.apart.push(name);
        }
    }

    /// Whether connections of that name may be asked. One that was refused too often has its own for good.
    pub(crate) fn may_share_with(&self, name: &Arc<str>) -> bool {
        self.apart.len() < MOST_APART && !self.apart.contains(name)
    }

    pub(crate) fn take_addresses(&mut self, found: &[IpAddr]) {
        let port = self.key.port;
        self.addresses = found.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    }

    pub(crate) fn measured(&self, bytes: u64) -> &Quantiles {
        &self.first_byte[size_class(bytes)]
    }

    pub(crate) fn note(&mut self, number: u64, attempt: Attempt) {
        if self.attempts.len() >= MOST_NOTES {
            self.attempts.pop_front();
        }
        self.attempts.push_back((number, attempt));
    }

    /// How long an attempt took that has ended.
    pub(crate) fn took(&self, number: u64) -> Option<Duration> {
        let (_, attempt) = self.attempts.iter().find(|(other, _)| *other == number)?;
        Some(attempt.ended? - attempt.started)
    }

    pub(crate) fn note_end(&mut self, number: u64, outcome: AttemptOutcome, now: Instant) {
        let noted = self.attempts.iter_mut().find(|(other, _)| *other == number);
        if let Some((_, attempt)) = noted {
            (attempt.ended, attempt.outcome) = (Some(now), Some(outcome));
        }
    }
}

impl Settings {
    fn first_stream_window(&self) -> u32 {
        window(self.window_bytes)
    }

    /// The window of each stream on a connection that took so long to make.
    pub(crate) fn stream_window(&self, round_trip: Duration, now: Instant) -> Window {
        let first = self.first_stream_window();
        Window::new(first, window(self.max_stream_window).max(first), round_trip, now)
    }
}

/// A window within what the protocol and the connection's own allow.
fn window(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(LEAST_WINDOW, LARGEST_WINDOW)
}

impl Local {
    /// Begins with what the name was answered with on this network, as long as there is no newer answer.
    pub(crate) fn recall_addresses(&mut self, id: ClusterId, now: Instant) {
        let Self { origins, answers, memory, .. } = self;
        let Some(origin) = origins.get_mut(&id) else { return };
        let recalled = answers.addresses(memory.network(), &origin.key.host, now);
        if !recalled.is_empty() && matches!(origin.names, Names::Name { .. }) {
            origin.take_addresses(recalled);
        }
    }

    pub(crate) fn origin_cluster(&self, key: &Origin, http: HttpVersions) -> Arc<Cluster> {
        let settings = &self.settings;
        let name: Arc<str> = format!("{}:{}", key.host, key.port).into();
        let many = u32::try_from(settings.max_calls).unwrap_or(u32::MAX).saturating_add(1);
        let limits = Limits {
            connections: u32::MAX,
            pending: many.saturating_mul(2),
            requests: many,
            retries: many,
            ..Limits::default()
        };
        // Each connection has its own address: the host stands for all of them.
        let hostname = Arc::clone(&key.host);
        let endpoint = Endpoint { hostname, ..Endpoint::new(Address::unspecified()) };
        Arc::new(Cluster {
            balancing: Balancing { panic_threshold: 0, ..Balancing::new(Balancer::RoundRobin) },
            connect_timeout: settings.race.attempt_timeout,
            connect: Arc::new(connect_options()),
            buffer_limit: BufferLimit::strict(settings.window_bytes),
            limits,
            high_limits: limits,
            idle_timeout: Some(settings.idle_timeout),
            max_requests_per_connection: settings.requests_per_connection,
            http1: Arc::new(http1::Options {
                enable_trailers: true,
                max_head_bytes: settings.max_head_bytes,
                max_fields: settings.max_fields,
                ..http1::Options::default()
            }),
            http2: self.origin_http2(key, http),
            tls: self.origin_tls(key).map(Box::new),
            ..Cluster::new(name, Arc::from([endpoint]))
        })
    }

    /// How HTTP/2 is spoken to an origin, where it may be.
    fn origin_http2(&self, key: &Origin, http: HttpVersions) -> Option<Arc<Http2>> {
        let choice = match (http, key.transport) {
            _ if !HTTP2 => return None,
            (HttpVersions::Http1, _) | (HttpVersions::Negotiated, Transport::Plain) => return None,
            (HttpVersions::Negotiated, Transport::Tls) => Choice::Negotiated,
            (HttpVersions::Http2, _) => Choice::Always,
        };
        let options = http2::Options {
            stream_window: self.settings.first_stream_window(),
            // What the app does not read of some responses does not hold up the others.
            connection_window: LARGEST_WINDOW,
            stream_error_on_malformed: true,
            max_head_bytes: self.settings.max_head_bytes,
            max_fields: self.settings.max_fields,
            ..http2::Options::default()
        };
        Some(Arc::new(Http2 { options: Arc::new(options), choice, keepalive: None }))
    }

    /// How an origin is reached through a proxy. `None` where TLS to it is not set up.
    pub(crate) fn tunnel(
        &self,
        key: &Origin,
        proxy: &Arc<Proxy>,
        clock: &tls::Clock,
    ) -> Option<Tunnel> {
        let tls = match proxy.transport {
            Transport::Plain => None,
            Transport::Tls => {
                let name = ServerName::new(&proxy.host).unwrap_or_else(|_| ServerName::unnamed());
                Some((self.tls.as_ref()?.client(clock), name))
            }
        };
        let (proxy, host) = (Arc::clone(proxy), Arc::clone(&key.host));
        Some(Tunnel { proxy, host, port: key.port, tls, refused: None, challenges: Vec::new() })
    }

    pub(crate) fn origin_tls(&self, key: &Origin) -> Option<UpstreamTls> {
        let template = match key.transport {
            Transport::Plain => return None,
            Transport::Tls => self.tls.clone()?,
        };
        let name = AskedName::OfHost(ServerName::unnamed());
        Some(UpstreamTls {
            template: Some(template),
            shape: None,
            name,
            certificates: Certificates::default(),
        })
    }

    pub(crate) fn arm_origin(&mut self, id: ClusterId, wanted: usize, env: &mut Env, now: Instant) {
        let Some(origin) = self.origins.get(&id) else { return };
        let race = origin.race.deadline(wanted, &self.probes, now);
        let question = match origin.names {
            Names::Name { fresh: None, asking: None, again, .. } if wanted > 0 => Some(again),
            Names::Name { .. } | Names::Literal => None,
        };
        let slot = TimerSlot::Cluster(id.0).number();
        let held = origin.held.map(|held| held.until).filter(|until| *until > now);
        match race.into_iter().chain(question).chain(held).min() {
            Some(at) => env.timers.set(slot, at.max(now)),
            None => env.timers.clear(slot),
        }
    }

    /// An attempt has a connection, and its handshake begins: the network is there.
    pub(crate) fn on_race_moved(&mut self, id: ClusterId, env: &mut Env, now: Instant) {
        if let Some(origin) = self.origins.get_mut(&id) {
            origin.race.moved(now);
            self.on_answer(id, env, now);
        }
    }

    /// An attempt was answered: after a time in which none was, every origin that waits begins one at once.
    fn on_answer(&mut self, id: ClusterId, env: &mut Env, now: Instant) {
        if self.origins.get(&id).is_none_or(|origin| origin.key.is_loopback()) {
            return;
        }
        let before = std::mem::replace(&mut self.answered, now);
        if now - before < QUIET {
            return;
        }
        for (other, origin) in &mut self.origins {
            if *other != id && origin.race.hear_of_network() {
                env.timers.set(TimerSlot::Cluster(other.0).number(), now);
            }
        }
    }

    /// An attempt came to a usable connection.
    pub(crate) fn on_race_won(
        &mut self,
        id: ClusterId,
        attempt: AttemptId,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(origin) = self.origins.get_mut(&id) else { return };
        origin.note_end(attempt.0, AttemptOutcome::Usable, now);
        if let Some((address, took)) = origin.race.succeeded(attempt.0, now) {
            self.memory.succeeded(address, took, now);
            self.on_answer(id, env, now);
        }
    }

    /// Whether its name was denied lately, and had no addresses before.
    pub(crate) fn is_denied(&self, id: ClusterId, now: Instant) -> bool {
        self.origins.get(&id).is_some_and(|origin| match origin.names {
            Names::Name { again, is_denied, .. } => {
                is_denied && now < again && origin.addresses.is_empty()
            }
            Names::Literal => false,
        })
    }

    pub(crate) fn ask_for_addresses(&mut self, id: ClusterId, env: &mut Env, now: Instant) {
        let Some(origin) = self.origins.get(&id) else { return };
        let reached = self.reaches(&origin.key);
        let Some(origin) = self.origins.get_mut(&id) else { return };
        let Names::Name { fresh, asking, again, .. } = &origin.names else {
            if origin.race.candidates().is_empty() {
                self.order_candidates(id, now);
            }
            return;
        };
        let is_fresh = fresh.is_some_and(|until| now < until);
        if is_fresh || asking.is_some() || now < *again || !reached {
            return;
        }
        if origin.lookups.len() >= MOST_NOTES {
            origin.lookups.pop_front();
        }
        let by = Answerer::default();
        origin.lookups.push_back(Lookup { asked: now, answered: None, outcome: None, by });
        let name = Arc::clone(&origin.key.host);
        let query = self.ask_resolver(name, env);
        self.queries.insert(query, id);
        if let Some(origin) = self.origins.get_mut(&id)
            && let Names::Name { asking, .. } = &mut origin.names
        {
            *asking = Some(query);
        }
    }

    pub(crate) fn order_candidates(&mut self, id: ClusterId, now: Instant) {
        let Some(origin) = self.origins.get_mut(&id) else { return };
        let order = self.memory.order(&origin.addresses, now);
        if let Some(stagger) = self.memory.stagger(&order, now) {
            origin.race.set_stagger(stagger);
        }
        origin.race.set_candidates(order);
    }

    /// Adds what the origin knows of a request's wait.
    pub(crate) fn complete_report(&self, call: &mut Call, cluster: ClusterId, now: Instant) {
        let Some(origin) = self.origins.get(&cluster) else { return };
        let report = &mut call.report;
        let still_waits = report.tries.is_empty().then_some(now);
        let Some(until) = call.waited_until.or(still_waits) else { return };
        let from = call.began;
        let overlaps = |began: Instant, ended: Option<Instant>| {
            began <= until && ended.is_none_or(|ended| ended >= from)
        };
        if let Some(tunnel) = &origin.tunnel {
            report.proxy_challenges.clone_from(&tunnel.challenges);
        }
        report.attempts = origin
            .attempts
            .iter()
            .filter(|(_, attempt)| overlaps(attempt.started, attempt.ended))
            .map(|(_, attempt)| attempt.clone())
            .collect();
        report.lookups = origin
            .lookups
            .iter()
            .filter(|lookup| overlaps(lookup.asked, lookup.answered))
            .cloned()
            .collect();
    }

    /// Takes the time of the first byte into the origin's history.
    pub(crate) fn learn_from(&mut self, report: &Report, outcome: Outcome, cluster: ClusterId) {
        let record = &report.record;
        // What the app waited, not what the second one took: else ever quicker answers would be thought slow.
        let first = report.tries.first().filter(|_| report.hedges > 0).map(|first| first.began);
        let sent = first.or(record.upstream_first_sent);
        let (Some(sent), Some(received)) = (sent, record.upstream_first_received) else {
            return;
        };
        // An answer that an outage held up tells how long the outage was.
        let last = report.tries.last();
        let was_held_up = report.redone > 0 && last.is_some_and(|last| last.began > sent);
        if outcome == Outcome::Complete
            && !was_held_up
            && let Some(origin) = self.origins.get_mut(&cluster)
        {
            origin.first_byte[size_class(record.bytes_received)].record(received - sent);
        }
    }
}

/// An answer that may not be kept is used for the attempts that it was asked for.
pub(crate) const LEAST_FRESH: Duration = Duration::from_secs(1);
pub(crate) const MOST_FRESH: Duration = Duration::from_secs(86_400);
/// What a network denies that has a portal before it may be there a moment later.
pub(crate) const LONGEST_DENIAL: Duration = Duration::from_secs(300);
/// No attempt was answered for so long: the next answer says that the network is back.
const QUIET: Duration = Duration::from_secs(1);

/// A window that RFC 9113 §6.9.2 begins with.
const LEAST_WINDOW: u32 = 65_535;

/// What all streams of a connection may have under way to the app.
const LARGEST_WINDOW: u32 = 16 << 20;

/// Origins that are known at the same time.
pub(crate) const MOST_ORIGINS: usize = 1024;

/// Attempts and questions that are remembered for reports, for each origin.
pub(crate) const MOST_NOTES: usize = 128;

/// Names whose connections refused requests to another, for each origin.
const MOST_APART: usize = 16;

/// Addresses of one name that are used.
pub(crate) const MOST_ADDRESSES: usize = 32;

/// From a question that came to nothing to the next.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(500);
