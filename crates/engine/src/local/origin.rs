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

use towpath_proto::tls::ServerName;
use towpath_proto::{Address, AttemptId, Close, Failure, Instant, QueryId, http1};

use super::message::{Error, NetworkChange, Origin, Outcome, Transport};
use super::report::{Attempt, AttemptOutcome, Lookup, Report};
use super::{Call, Local, SpareReason};
use crate::client::progress::connect_options;
use crate::client::race::{Order, Outlook, Race, Why};
use crate::client::rest::Rest;
use crate::client::timeouts::{Quantiles, SIZE_CLASSES, size_class};
use crate::connection::Connections;
use crate::env::Env;
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::ids::{PoolKey, Protocol, ResetReason, StreamIndex};
use crate::snapshot::ClusterId;
use crate::snapshot::cluster::{Balancer, Cluster, Discovery, Endpoint, Health, Limits};
use crate::snapshot::tls::{AskedName, UpstreamTls};
use crate::stream::UpstreamState;
use crate::upstream::Upstreams;

/// What is known of an origin beside its cluster.
#[derive(Debug)]
pub(crate) struct OriginState {
    pub(super) key: Origin,
    names: Names,
    addresses: Vec<SocketAddr>,
    race: Race,
    /// The latest attempts, by number.
    attempts: VecDeque<(u64, Attempt)>,
    /// The latest questions.
    lookups: VecDeque<Lookup>,
    /// How long the first byte took, by the size of the request.
    first_byte: [Quantiles; SIZE_CLASSES],
    pub(super) rest: Rest,
}

/// Where an origin's addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// Its host is an address.
    Literal,
    /// Its host is a name.
    Name {
        /// When the answer came that is in use; `None` when it must be asked for again.
        answered: Option<Instant>,
        asking: Option<QueryId>,
        /// Not before.
        again: Instant,
    },
}

impl OriginState {
    fn new(key: &Origin, race: Race) -> Self {
        let literal: Option<IpAddr> = key.host.parse().ok();
        let names = match literal {
            Some(_) => Names::Literal,
            None => Names::Name { answered: None, asking: None, again: Instant::ZERO },
        };
        Self {
            key: key.clone(),
            names,
            addresses: literal.map(|ip| SocketAddr::new(ip, key.port)).into_iter().collect(),
            race,
            attempts: VecDeque::new(),
            lookups: VecDeque::new(),
            first_byte: Default::default(),
            rest: Rest::default(),
        }
    }

    fn take_addresses(&mut self, found: &[IpAddr]) {
        let port = self.key.port;
        self.addresses = found.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    }

    pub(super) fn measured(&self, bytes: u64) -> &Quantiles {
        &self.first_byte[size_class(bytes)]
    }

    fn note(&mut self, number: u64, attempt: Attempt) {
        if self.attempts.len() >= MOST_NOTES {
            self.attempts.pop_front();
        }
        self.attempts.push_back((number, attempt));
    }

    fn note_end(&mut self, number: u64, outcome: AttemptOutcome, now: Instant) {
        let noted = self.attempts.iter_mut().find(|(other, _)| *other == number);
        if let Some((_, attempt)) = noted {
            (attempt.ended, attempt.outcome) = (Some(now), Some(outcome));
        }
    }
}

impl Exchange {
    /// The cluster of an origin, made if need be; `None` when there are too many that are in use.
    pub(super) fn origin(&mut self, key: &Origin, now: Instant) -> Option<ClusterId> {
        if let Some(id) = self.upstreams.app.names.get(key) {
            return Some(*id);
        }
        if self.upstreams.app.origins.len() >= MOST_ORIGINS && !self.forget_origin(now) {
            return None;
        }
        let id = self.upstreams.add_cluster(
            self.upstreams.app.origin_cluster(key),
            &mut self.conns,
            &mut self.env,
        );
        let mut race = Race::new(self.upstreams.app.settings.race);
        race.set_online(self.upstreams.app.reaches(key));
        self.upstreams.app.names.insert(key.clone(), id);
        self.upstreams.app.origins.insert(id, OriginState::new(key, race));
        self.upstreams.app.recall_addresses(id, now);
        Some(id)
    }

    /// Makes room for an origin: one that nothing hangs on is forgotten.
    fn forget_origin(&mut self, now: Instant) -> bool {
        let unused = self.upstreams.app.origins.iter().find(|(id, origin)| {
            let pool = self.upstreams.clusters.pool(PoolKey { cluster: **id, pool: 0 });
            let is_free = pool.is_none_or(|pool| pool.connections == 0 && pool.pending.is_empty());
            is_free && origin.race.running() == 0
        });
        let Some((id, key)) = unused.map(|(id, origin)| (*id, origin.key.clone())) else {
            return false;
        };
        self.upstreams.app.names.remove(&key);
        self.upstreams.app.origins.remove(&id);
        self.upstreams.app.queries.retain(|_, asked| *asked != id);
        self.env.timers.clear(TimerSlot::Origin(id.0).number());
        self.retire_cluster(id, now);
        true
    }

    /// An attempt came to nothing.
    pub(crate) fn on_race_lost(
        &mut self,
        id: ClusterId,
        attempt: AttemptId,
        reason: ResetReason,
        now: Instant,
    ) {
        let Some(origin) = self.upstreams.app.origins.get_mut(&id) else { return };
        // A handshake that fails is an answer: the same peer will answer the same.
        let (failure, outcome, error) = if let ResetReason::Tls(fault) = reason {
            (Failure::Denied, AttemptOutcome::Tls(fault), Some(Error::Tls(fault)))
        } else {
            let failure = reason.failure();
            (failure, AttemptOutcome::Failed(failure), None)
        };
        origin.note_end(attempt.0, outcome, now);
        if let Some(address) = origin.race.failed(attempt.0, failure, now) {
            self.upstreams.app.memory.failed(address, now);
        }
        self.fail_if_refused(id, error, now);
        self.upstreams.advance_origin(id, &mut self.conns, &mut self.env, now);
    }

    /// Ends the wait where all addresses have refused, unless others may be on their way: old answers are not the last word.
    fn fail_if_refused(&mut self, id: ClusterId, error: Option<Error>, now: Instant) {
        let Some(origin) = self.upstreams.app.origins.get(&id) else { return };
        let asks = match origin.names {
            Names::Name { asking, .. } => asking.is_some(),
            Names::Literal => false,
        };
        match origin.race.outlook() {
            Outlook::Refused(failure) if !asks => {
                let error = error.unwrap_or(Error::Connect(failure));
                self.fail_waiting_calls(id, error, now);
            }
            Outlook::Refused(_) | Outlook::Open => {}
        }
    }

    /// Nobody who waits for this origin can be helped.
    fn fail_waiting_calls(&mut self, id: ClusterId, error: Error, now: Instant) {
        for index in self.upstreams.waiting_for(id) {
            match self.streams.get(index).map(|stream| stream.upstream) {
                // It is on a connection that may still answer.
                Some(UpstreamState::Active(_)) => self.withdraw_spare(index),
                Some(UpstreamState::Pending(_)) => self.fail_call(index, error, now),
                Some(UpstreamState::None | UpstreamState::BackingOff) | None => {}
            }
        }
    }

    /// The resolver answered.
    pub(crate) fn on_resolved(
        &mut self,
        query: QueryId,
        outcome: Result<Vec<IpAddr>, Failure>,
        now: Instant,
    ) {
        if self.upstreams.app.on_find_resolved(query, &outcome, &mut self.env, now) {
            return;
        }
        let Some(id) = self.upstreams.app.queries.remove(&query) else { return };
        let Some(origin) = self.upstreams.app.origins.get_mut(&id) else { return };
        let outcome = match outcome {
            Ok(found) if found.is_empty() => Err(Failure::NoSuchName),
            Ok(mut found) => {
                found.truncate(MOST_ADDRESSES);
                Ok(found)
            }
            Err(failure) => Err(failure),
        };
        if let Some(lookup) = origin.lookups.back_mut() {
            lookup.answered = Some(now);
            lookup.outcome = Some(outcome.as_ref().map(Vec::len).map_err(|failure| *failure));
        }
        match outcome {
            Ok(found) => {
                origin.take_addresses(&found);
                let network = self.upstreams.app.memory.network();
                self.upstreams.app.answers.learn(network, &origin.key.host, &found, now);
                origin.names =
                    Names::Name { answered: Some(now), asking: None, again: Instant::ZERO };
                self.upstreams.app.order_candidates(id, now);
            }
            Err(failure) => {
                let unknown = origin.addresses.is_empty();
                origin.names = Names::Name { answered: None, asking: None, again: now + ASK_AGAIN };
                // A name that does not exist is an answer; a resolver that cannot be reached may be later.
                if unknown && failure == Failure::NoSuchName {
                    self.fail_waiting_calls(id, Error::Resolve(failure), now);
                }
            }
        }
        self.fail_if_refused(id, None, now);
        self.upstreams.advance_origin(id, &mut self.conns, &mut self.env, now);
    }

    /// The platform says what has become of the network.
    pub(super) fn on_network_change(&mut self, change: NetworkChange, now: Instant) {
        let same = **self.upstreams.app.memory.network() == *change.label;
        if same {
            self.upstreams.app.memory.forgive();
        } else {
            self.upstreams.app.memory.set_network(&change.label);
        }
        self.upstreams.app.kind = change.kind;
        self.upstreams.app.online = change.online;
        self.upstreams.app.spares_loopback = change.spares_loopback;
        let mut ids: Vec<ClusterId> = self.upstreams.app.origins.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if self.upstreams.spare_origin(id, &mut self.conns, &mut self.env, now) {
                continue;
            }
            if let Some(origin) = self.upstreams.app.origins.get_mut(&id) {
                origin.race.set_online(change.online);
                if let Names::Name { answered, again, .. } = &mut origin.names {
                    (*answered, *again) = (None, Instant::ZERO);
                }
            }
            self.upstreams.app.recall_addresses(id, now);
            if !change.online {
                self.fail_calls_that_do_not_wait(id, now);
            }
            self.drain_origin(id, now);
            self.upstreams.app.order_candidates(id, now);
            self.upstreams.advance_origin(id, &mut self.conns, &mut self.env, now);
        }
    }

    fn fail_calls_that_do_not_wait(&mut self, id: ClusterId, now: Instant) {
        for index in self.upstreams.waiting_for(id) {
            let waits = self.call(index).is_some_and(|call| call.options.waits);
            let is_pending = self
                .streams
                .get(index)
                .is_some_and(|stream| matches!(stream.upstream, UpstreamState::Pending(_)));
            if is_pending && !waits {
                self.fail_call(index, Error::Offline, now);
            }
        }
    }

    /// Connections of the network before are not used for anything new; what is on them may finish, or move to a
    /// connection of the new one, whichever is first.
    fn drain_origin(&mut self, id: ClusterId, now: Instant) {
        for connection in self.conns.table.ids() {
            let Some(state) = self.conns.table.get_mut(connection) else { continue };
            let stream = state.stream;
            let Some(upstream) = state.upstream_mut() else { continue };
            if upstream.pool_key.cluster != id {
                continue;
            }
            upstream.retired = true;
            match stream {
                None => self.upstreams.close_upstream(
                    connection,
                    Close::Flush,
                    &mut self.conns,
                    &mut self.env,
                    now,
                ),
                Some(index) => self.want_spare(index, SpareReason::Stuck, now),
            }
        }
    }
}

impl Upstreams {
    /// A stream began to wait for a connection to an origin.
    pub(crate) fn race_for(
        &mut self,
        id: ClusterId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let waiting = self.clusters.pool(PoolKey { cluster: id, pool: 0 });
        let first = waiting.is_some_and(|pool| pool.pending.len() == 1);
        if let Some(origin) = self.app.origins.get_mut(&id)
            && first
        {
            origin.race.renew(now);
            self.app.order_candidates(id, now);
        }
        self.advance_origin(id, conns, env, now);
    }

    /// Begins and gives up attempts as the race has it, and asks for addresses where they are missing or old.
    pub(crate) fn advance_origin(
        &mut self,
        id: ClusterId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let wanted = self.connections_wanted(id);
        if wanted > 0 {
            self.app.ask_for_addresses(id, conns, env, now);
        }
        loop {
            let random = env.random.next();
            let local = &mut *self.app;
            let Some(origin) = local.origins.get_mut(&id) else { return };
            match origin.race.poll(wanted, random, &mut local.probes, now) {
                Some(Order::Start { address, why }) => {
                    self.start_attempt(id, address, why, env, now)
                }
                Some(Order::Cancel(number)) => {
                    self.cancel_attempt(AttemptId(number), conns, env, now);
                    if let Some(origin) = self.app.origins.get_mut(&id) {
                        origin.note_end(number, AttemptOutcome::GivenUp, now);
                    }
                }
                None => break,
            }
        }
        self.app.arm_origin(id, wanted, env, now);
    }

    fn connections_wanted(&self, id: ClusterId) -> usize {
        let Some(pool) = self.clusters.pool(PoolKey { cluster: id, pool: 0 }) else { return 0 };
        let open = (pool.connections - pool.connecting) as usize;
        pool.pending.len().min(self.app.settings.max_connections.saturating_sub(open))
    }

    fn start_attempt(
        &mut self,
        id: ClusterId,
        address: SocketAddr,
        why: Why,
        env: &mut Env,
        now: Instant,
    ) {
        let pool_key = PoolKey { cluster: id, pool: 0 };
        let known = self.app.memory.facts(address, now);
        let Some(attempt) =
            self.begin_connect(pool_key, Protocol::Http1, None, Some(address), env, now)
        else {
            return;
        };
        let Some(origin) = self.app.origins.get_mut(&id) else { return };
        origin.race.started(attempt.0, address, now);
        let known = known.map(|facts| facts.to_string()).unwrap_or_default();
        origin.note(
            attempt.0,
            Attempt { address, why, known, started: now, ended: None, outcome: None },
        );
    }

    /// Those who wait for a connection to an origin, with or without one beside it.
    pub(super) fn waiting_for(&self, id: ClusterId) -> Vec<StreamIndex> {
        let pool = self.clusters.pool(PoolKey { cluster: id, pool: 0 });
        pool.map(|pool| pool.pending.iter().copied().collect()).unwrap_or_default()
    }

    /// Whether an origin is not concerned by what becomes of the network; it is reached then.
    fn spare_origin(
        &mut self,
        id: ClusterId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> bool {
        let key = self.app.origins.get(&id).map(|origin| &origin.key);
        if !key.is_some_and(|key| self.app.spares(key)) {
            return false;
        }
        if let Some(origin) = self.app.origins.get_mut(&id) {
            origin.race.set_online(true);
        }
        self.advance_origin(id, conns, env, now);
        true
    }
}

impl Local {
    /// Begins with what the name was answered with on this network, as long as there is no newer answer.
    fn recall_addresses(&mut self, id: ClusterId, now: Instant) {
        let Self { origins, answers, memory, .. } = self;
        let Some(origin) = origins.get_mut(&id) else { return };
        let recalled = answers.addresses(memory.network(), &origin.key.host, now);
        if !recalled.is_empty() && matches!(origin.names, Names::Name { .. }) {
            origin.take_addresses(recalled);
        }
    }

    fn origin_cluster(&self, key: &Origin) -> Arc<Cluster> {
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
        let endpoint = Endpoint {
            address: Address::unspecified(),
            hostname: Arc::clone(&key.host),
            weight: 1,
            priority: 0,
            health: Health::Healthy,
            locality: Arc::from(""),
            check: None,
        };
        Arc::new(Cluster {
            name: Arc::clone(&name),
            stat_name: name,
            discovery: Discovery::Static,
            endpoints: Arc::from([endpoint]),
            balancer: Balancer::RoundRobin,
            connect_timeout: settings.race.attempt_timeout,
            connect: Arc::new(connect_options()),
            buffer_limit: settings.window_bytes,
            limits,
            high_limits: limits,
            idle_timeout: Some(settings.idle_timeout),
            max_connection_duration: None,
            max_requests_per_connection: settings.requests_per_connection,
            http1: Arc::new(http1::Options { enable_trailers: true, ..http1::Options::default() }),
            bolt: None,
            panic_threshold: 0,
            health_check: None,
            outliers: None,
            tls: self.origin_tls(key),
        })
    }

    fn origin_tls(&self, key: &Origin) -> Option<UpstreamTls> {
        let template = match key.transport {
            Transport::Plain => return None,
            Transport::Tls => self.tls.clone()?,
        };
        Some(UpstreamTls { template, name: AskedName::OfHost(ServerName::unnamed()) })
    }

    fn arm_origin(&mut self, id: ClusterId, wanted: usize, env: &mut Env, now: Instant) {
        let Some(origin) = self.origins.get(&id) else { return };
        let race = origin.race.deadline(wanted, &self.probes, now);
        let question = match origin.names {
            Names::Name { answered: None, asking: None, again } if wanted > 0 => Some(again),
            Names::Name { .. } | Names::Literal => None,
        };
        let slot = TimerSlot::Origin(id.0).number();
        match race.into_iter().chain(question).min() {
            Some(at) => env.timers.set(slot, at.max(now)),
            None => env.timers.clear(slot),
        }
    }

    /// An attempt has a connection, and its handshake begins: the network is there.
    pub(crate) fn on_race_moved(&mut self, id: ClusterId, now: Instant) {
        if let Some(origin) = self.origins.get_mut(&id) {
            origin.race.moved(now);
        }
    }

    /// An attempt came to a usable connection.
    pub(crate) fn on_race_won(&mut self, id: ClusterId, attempt: AttemptId, now: Instant) {
        let Some(origin) = self.origins.get_mut(&id) else { return };
        origin.note_end(attempt.0, AttemptOutcome::Usable, now);
        if let Some((address, took)) = origin.race.succeeded(attempt.0, now) {
            self.memory.succeeded(address, took, now);
        }
    }

    fn ask_for_addresses(
        &mut self,
        id: ClusterId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let fresh_for = self.settings.fresh_for;
        let Some(origin) = self.origins.get(&id) else { return };
        let reached = self.reaches(&origin.key);
        let Some(origin) = self.origins.get_mut(&id) else { return };
        let Names::Name { answered, asking, again } = &origin.names else {
            if origin.race.candidates().is_empty() {
                self.order_candidates(id, now);
            }
            return;
        };
        let fresh = answered.is_some_and(|at| now < at + fresh_for);
        if fresh || asking.is_some() || now < *again || !reached {
            return;
        }
        if origin.lookups.len() >= MOST_NOTES {
            origin.lookups.pop_front();
        }
        origin.lookups.push_back(Lookup { asked: now, answered: None, outcome: None });
        let name = Arc::clone(&origin.key.host);
        let query = self.ask_resolver(name, conns, env);
        self.queries.insert(query, id);
        if let Some(origin) = self.origins.get_mut(&id)
            && let Names::Name { asking, .. } = &mut origin.names
        {
            *asking = Some(query);
        }
    }

    fn order_candidates(&mut self, id: ClusterId, now: Instant) {
        let Some(origin) = self.origins.get_mut(&id) else { return };
        let order = self.memory.order(&origin.addresses, now);
        if let Some(stagger) = self.memory.stagger(&order, now) {
            origin.race.set_stagger(stagger);
        }
        origin.race.set_candidates(order);
    }

    /// Adds what the origin knows of a request's wait.
    pub(super) fn complete_report(
        &self,
        report: &mut Report,
        call: &Call,
        cluster: ClusterId,
        now: Instant,
    ) {
        let Some(origin) = self.origins.get(&cluster) else { return };
        let still_waits = report.tries.is_empty().then_some(now);
        let Some(until) = call.waited_until.or(still_waits) else { return };
        let from = call.began;
        let overlaps = |began: Instant, ended: Option<Instant>| {
            began <= until && ended.is_none_or(|ended| ended >= from)
        };
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
    pub(super) fn learn_from(&mut self, report: &Report, outcome: Outcome, cluster: ClusterId) {
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

/// Origins that are known at the same time.
const MOST_ORIGINS: usize = 1024;
/// Attempts and questions that are remembered for reports, for each origin.
const MOST_NOTES: usize = 128;
/// Addresses of one name that are used.
const MOST_ADDRESSES: usize = 32;
/// From a question that came to nothing to the next.
const ASK_AGAIN: Duration = Duration::from_millis(500);
