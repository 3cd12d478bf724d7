//! Which hosts of a cluster are well: a [`Monitor`] asks each of them on its own, as Envoy's health checkers do.
//!
//! Arrives: the clusters and their endpoints, time, and what hosts answer. Leaves: the [`ClusterHealth`] of a cluster's
//! hosts, whole, whenever one of them changes.
//!
//! A monitor is a [`Machine`] of its own, beside the workers: one check of a host serves all of them, a busy worker
//! makes no host look slow, and a slow host costs no worker a wake-up. Workers learn of health as they learn of DNS: by
//! a finished list ([`ToWorker::Health`](crate::message::ToWorker::Health)).

mod check_event;
mod degradation;
mod event;
mod grpc;
mod outlier;
mod probe;
mod session;
mod sessions;
mod status;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Out;
use towpath_proto::head::HeadPool;
use towpath_proto::tls::Offer;
use towpath_proto::{
    Address, AttemptId, Close, ConnectionId, Input, Instant, Machine, Output, Timers, tls,
};

use self::check_event::Concluded;
use self::outlier::Detector;
use self::probe::{Dialogue, Outcome};
use self::session::{Checks, Line, Session, Stage, answered, socket, statuses, target};
use self::sessions::Sessions;
use self::status::{HostStatus, below};
use crate::message::{FromMonitor, Message, ToMonitor};
use crate::random::Random;
use crate::snapshot::cluster::Endpoint;
use crate::snapshot::health::{ClusterHealth, HealthFlags, Probe, Run};
use crate::snapshot::{Cluster, ClusterId, SinkId, Snapshot, UpstreamTls};
use crate::stats::{OutlierStats, Registry, Scope, SocketMatchStats};
use crate::wall_clock::WallClock;

/// Watches the hosts of all clusters that want it.
#[derive(Debug)]
pub struct Monitor {
    index: u32,
    registry: Arc<Registry>,
    watched: BTreeMap<ClusterId, Watched>,
    sessions: Sessions,
    timers: Timers,
    random: Random,
    clock: WallClock,
    tls_clock: tls::Clock,
    heads: HeadPool,
    out: Out,
    outputs: VecDeque<Output<Message>>,
    /// Where it is told which hosts are left out.
    outlier_log: Option<SinkId>,
    /// Lines of checks that are to be handed on.
    check_lines: BTreeMap<SinkId, Vec<u8>>,
    /// Whether it was told of its clusters, and has said that each host was checked.
    warmth: Warmth,
    /// Whether it tells by which status hosts answer, too.
    tells_answers: bool,
}

/// How far the first round of checks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warmth {
    /// Nothing is known of any cluster.
    Cold,
    Warming,
    Warm,
}

/// A cluster under watch.
#[derive(Debug)]
struct Watched {
    config: Arc<Cluster>,
    /// How its hosts are asked, if they are.
    checks: Option<Arc<Checks>>,
    /// Which hosts are ejected for their answers, if any is.
    outliers: Option<(Detector, Arc<OutlierStats>)>,
    tls: Sockets,
    /// The sessions of those of its hosts that are asked.
    hosts: HashMap<Address, u32>,
    /// A worker has connected to it.
    has_traffic: bool,
    /// What workers know is out of date.
    is_stale: bool,
}

/// How the hosts of a cluster are spoken to under TLS; `None` is plain text.
#[derive(Debug)]
struct Sockets {
    all: Option<tls::Client>,
    /// Those of hosts that differ.
    some: Vec<Option<tls::Client>>,
}

impl Machine for Monitor {
    type Message = Message;

    fn handle(&mut self, input: Input<Message>, now: Instant) {
        match input {
            Input::Message(Message::ToMonitor(message)) => self.on_message(message, now),
            Input::Connected { attempt, connection, local } => {
                self.on_connected(attempt, connection, &local, now);
            }
            Input::ConnectFailed { attempt, .. } => {
                if let Some(number) = self.sessions.of_attempt(attempt) {
                    self.sessions.set_resting(number);
                    self.conclude(number, Outcome::Broken, now);
                }
            }
            Input::Received { connection, chunk } => self.on_received(connection, chunk, now),
            Input::Ended { connection } => self.on_ended(connection, now),
            Input::Closed { connection, .. } => {
                if let Some(number) = self.sessions.lines.remove(&connection) {
                    self.on_lost(number, Outcome::Broken, now);
                }
            }
            Input::Timeout => {
                while let Some(slot) = self.timers.expired(now) {
                    match TimerSlot::from_number(slot) {
                        TimerSlot::Session(number) => self.on_timer(number, now),
                        TimerSlot::Sweep(cluster) => self.sweep(cluster, now),
                    }
                }
            }
            Input::Message(Message::To(_) | Message::From(_) | Message::FromMonitor(_))
            | Input::Sent { .. }
            | Input::Accepted { .. }
            | Input::Listening { .. }
            | Input::Resolved { .. }
            | Input::Inspected { .. } => {}
        }
    }

    fn poll(&mut self, _now: Instant) -> Output<Message> {
        if self.outputs.is_empty() {
            self.publish();
        }
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        self.timers.next().map_or(Output::Idle, Output::Wait)
    }
}

impl Monitor {
    /// One that waits to be told of clusters. `index` is the owner of its counters in the registry.
    #[must_use]
    pub fn new(index: u32, seed: u64, registry: Arc<Registry>) -> Self {
        Self {
            index,
            registry,
            watched: BTreeMap::new(),
            sessions: Sessions::default(),
            timers: Timers::new(),
            random: Random::new(seed),
            clock: WallClock::new(Arc::from("")),
            tls_clock: tls::Clock::default(),
            heads: HeadPool::default(),
            out: Out::new(),
            outputs: VecDeque::new(),
            outlier_log: None,
            check_lines: BTreeMap::new(),
            warmth: Warmth::Cold,
            tells_answers: false,
        }
    }

    /// The same, which also tells by which status hosts answer (`answers` of [`FromMonitor::Health`]).
    #[must_use]
    pub fn telling_answers(self) -> Self {
        Self { tells_answers: true, ..self }
    }

    /// Whether a monitor has anything to do for these clusters.
    #[must_use]
    pub fn is_wanted(snapshot: &Snapshot) -> bool {
        snapshot.clusters.iter().flatten().any(|cluster| is_watched(cluster))
    }

    fn on_message(&mut self, message: ToMonitor, now: Instant) {
        match message {
            ToMonitor::Snapshot(snapshot) => self.on_snapshot(&snapshot, now),
            ToMonitor::Hosts { cluster, endpoints } => self.on_hosts(cluster, &endpoints, now),
            ToMonitor::WallClock { epoch_unix_ns } => self.clock.set(epoch_unix_ns),
            ToMonitor::ErrorStreak { cluster, host, run } => {
                self.on_error_streak(cluster, &host, run, now)
            }
            ToMonitor::Degraded { cluster, host } => self.on_degraded(cluster, &host, now),
            ToMonitor::Traffic { cluster } => {
                if let Some(watched) = self.watched.get_mut(&cluster) {
                    watched.has_traffic = true;
                }
            }
        }
    }

    /// Begins to watch what a snapshot has. Clusters that did not change keep everything.
    fn on_snapshot(&mut self, snapshot: &Snapshot, now: Instant) {
        self.outlier_log = snapshot.outlier_log;
        let gone: Vec<ClusterId> = self
            .watched
            .iter()
            .filter(|(id, watched)| {
                snapshot.cluster(**id).is_none_or(|config| !Arc::ptr_eq(config, &watched.config))
            })
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.on_hosts(id, &[], now);
            self.timers.clear(TimerSlot::Sweep(id).number());
            self.watched.remove(&id);
        }
        for (id, config) in (0..).map(ClusterId).zip(&snapshot.clusters) {
            let Some(config) = config.as_ref().filter(|config| is_watched(config)) else {
                continue;
            };
            if self.watched.contains_key(&id) {
                continue;
            }
            let checks = config.health_check.as_ref().map(|check| {
                let scope = Scope::ClusterHealthCheck(Arc::clone(&config.stat_name));
                let stats = self.registry.set(self.index, scope);
                Arc::new(Checks { config: Arc::clone(check), stats })
            });
            let outliers = config.outliers.as_deref().copied().map(|outliers| {
                let scope = Scope::ClusterOutliers(Arc::clone(&config.stat_name));
                let slot = TimerSlot::Sweep(id).number();
                self.timers.set(slot, now + outliers.interval);
                (Detector::new(outliers), self.registry.set(self.index, scope))
            });
            let watched = Watched {
                config: Arc::clone(config),
                checks,
                outliers,
                tls: Sockets::of(config, &self.tls_clock),
                hosts: HashMap::new(),
                has_traffic: false,
                is_stale: true,
            };
            self.watched.insert(id, watched);
            self.on_hosts(id, &config.endpoints, now);
        }
        if self.warmth == Warmth::Cold {
            self.warmth = Warmth::Warming;
        }
    }

    /// Watches these hosts of a cluster, and no others.
    fn on_hosts(&mut self, id: ClusterId, endpoints: &[Endpoint], now: Instant) {
        let Some(watched) = self.watched.get_mut(&id) else { return };
        if let Some((detector, stats)) = &mut watched.outliers {
            detector.set_hosts(endpoints.iter().map(|endpoint| &endpoint.address));
            stats.active.set(detector.active() as u64);
        }
        let mut gone = std::mem::take(&mut watched.hosts);
        for endpoint in endpoints {
            let Some(checks) = watched.checks.as_ref().filter(|_| !endpoint.is_unchecked()) else {
                continue;
            };
            if watched.hosts.contains_key(&endpoint.address) {
                continue;
            }
            let number = gone.remove(&endpoint.address).unwrap_or_else(|| {
                let number = self.sessions.add(Session {
                    cluster: id,
                    checks: Arc::clone(checks),
                    host: endpoint.address.clone(),
                    target: target(endpoint),
                    hostname: Arc::clone(&endpoint.hostname),
                    socket: socket(endpoint),
                    matched: watched.match_stats(endpoint, &self.registry, self.index),
                    authority: watched.authority(endpoint),
                    locality: Arc::clone(&endpoint.locality),
                    filter_metadata: endpoint.filter_metadata.clone(),
                    status: HostStatus::new(checks.config.ignores_new),
                    stage: Stage::Resting(None),
                    answered: 0,
                });
                let jitter = below(checks.config.initial_jitter, &mut self.random);
                self.timers.set(TimerSlot::Session(number).number(), now + jitter);
                number
            });
            if let Some(session) = self.sessions.get_mut(number) {
                session.locality = Arc::clone(&endpoint.locality);
                session.filter_metadata.clone_from(&endpoint.filter_metadata);
            }
            watched.hosts.insert(endpoint.address.clone(), number);
        }
        watched.is_stale = true;
        for number in gone.into_values() {
            self.hang_up(number, Close::Abort);
            self.timers.clear(TimerSlot::Session(number).number());
            self.sessions.remove(number);
        }
    }

    /// A pause or a check's time is over.
    fn on_timer(&mut self, number: u32, now: Instant) {
        let Some(session) = self.sessions.get(number) else { return };
        match session.stage {
            Stage::Resting(_) => self.begin(number, now),
            Stage::Connecting(_) | Stage::Securing(_) | Stage::Asking(_) => {
                self.conclude(number, Outcome::TimedOut, now);
            }
        }
    }

    /// Begins a check.
    fn begin(&mut self, number: u32, now: Instant) {
        let attempt = self.sessions.next_attempt(number);
        let Some(session) = self.sessions.get_mut(number) else { return };
        let Some(watched) = self.watched.get(&session.cluster) else { return };
        session.checks.stats.attempt.inc();
        let slot = TimerSlot::Session(number).number();
        self.timers.set(slot, now + session.checks.config.timeout);
        match std::mem::replace(&mut session.stage, Stage::Resting(None)) {
            Stage::Resting(Some(line)) => {
                session.stage = Stage::Asking(line);
                self.ask(number, now);
            }
            Stage::Resting(None) | Stage::Connecting(_) | Stage::Securing(_) | Stage::Asking(_) => {
                session.stage = Stage::Connecting(attempt);
                let (address, options) = (session.target.clone(), watched.config.connect.clone());
                self.outputs.push_back(Output::Connect { attempt, address, options });
            }
        }
    }

    fn on_connected(
        &mut self,
        attempt: AttemptId,
        connection: ConnectionId,
        local: &Address,
        now: Instant,
    ) {
        let Some(number) = self.sessions.of_attempt(attempt) else {
            self.outputs.push_back(Output::Close { connection, how: Close::Abort });
            return;
        };
        let Some(Some(session)) = self.sessions.slots.get_mut(number as usize) else { return };
        let Some(watched) = self.watched.get(&session.cluster) else { return };
        self.sessions.lines.insert(connection, number);
        let headers = watched.config.proxy_headers.as_ref();
        if let Some(header) = headers.and_then(|headers| headers.of(session.socket)) {
            // A check is no client's.
            let (header, _) = header.write(None, (&[], &[]), local, &session.target);
            self.outputs.push_back(Output::Send { connection, chunk: header.into() });
        }
        let ends = (local, &session.target);
        let dialogue = Dialogue::new(&session.checks.config, &watched.config, ends);
        let mut line = Line { id: connection, tls: None, dialogue };
        if let Some(stats) = &session.matched {
            stats.total_match_count.inc();
        }
        let Some((client, config)) = watched.tls_of(session) else {
            session.stage = Stage::Asking(line);
            return self.ask(number, now);
        };
        self.tls_clock.set(self.clock.since_1970(now));
        // Without its secrets none can be made.
        let alpn = &session.checks.config.alpn;
        let offer = match alpn.is_empty() {
            true => Offer::Otherwise(&[]),
            false => Offer::Instead(alpn),
        };
        let name = config.name.of(&session.hostname);
        let client = client.map(|client| client.between(local, &session.target));
        let layer = client.map(|client| client.connect_offering(offer, &name));
        match layer {
            Some(Ok(layer)) => {
                line.tls = Some(Box::new(layer));
                session.stage = Stage::Securing(line);
                self.flush(number);
            }
            Some(Err(_)) | None => {
                session.stage = Stage::Securing(line);
                self.conclude(number, Outcome::Broken, now);
            }
        }
    }

    /// Asks on the session's connection.
    fn ask(&mut self, number: u32, now: Instant) {
        let Some(Some(session)) = self.sessions.slots.get_mut(number as usize) else { return };
        let checks = Arc::clone(&session.checks);
        if let Some(line) = session.stage.line_mut() {
            let scheme: &[u8] = if line.tls.is_some() { b"https" } else { b"http" };
            let target = (scheme, &*session.authority);
            line.dialogue.ask(&checks.config, target, now, &mut self.out);
        }
        self.flush(number);
        if checks.config.wants_no_answer() {
            self.conclude(number, Outcome::Success { degraded: false }, now);
        }
    }

    fn on_received(&mut self, connection: ConnectionId, chunk: Bytes, now: Instant) {
        let Some(&number) = self.sessions.lines.get(&connection) else { return };
        let Some(Some(session)) = self.sessions.slots.get_mut(number as usize) else { return };
        self.tls_clock.set(self.clock.since_1970(now));
        let Some(line) = session.stage.line_mut() else { return };
        let (plain, opened) = line.open(chunk);
        let (established, over) = match &line.tls {
            None => (true, false),
            Some(layer) => (layer.is_established(), layer.is_ended()),
        };
        if matches!(session.stage, Stage::Securing(_))
            && established
            && let Stage::Securing(line) =
                std::mem::replace(&mut session.stage, Stage::Resting(None))
        {
            session.stage = Stage::Asking(line);
            self.ask(number, now);
        } else {
            self.flush(number);
        }
        if !plain.is_empty() {
            self.on_plain(number, plain, now);
        }
        if opened.is_err() {
            self.on_lost(number, Outcome::Broken, now);
        } else if over {
            self.on_ended(connection, now);
        }
    }

    /// The host has said something.
    fn on_plain(&mut self, number: u32, plain: Bytes, now: Instant) {
        let Some(Some(session)) = self.sessions.slots.get_mut(number as usize) else { return };
        match &mut session.stage {
            Stage::Asking(line) => {
                let check = &session.checks.config;
                let outcome = line.dialogue.receive(plain, check, &mut self.heads, &mut self.out);
                self.flush(number);
                if let Some(outcome) = outcome {
                    self.conclude(number, outcome, now);
                }
            }
            Stage::Resting(Some(line)) => {
                let (heads, out) = (&mut self.heads, &mut self.out);
                let stays = line.dialogue.receive_unasked(plain, heads, out);
                self.flush(number);
                if !stays {
                    self.hang_up(number, Close::Abort);
                }
            }
            Stage::Resting(None) => self.hang_up(number, Close::Abort),
            Stage::Connecting(_) | Stage::Securing(_) => {}
        }
    }

    /// The host sends nothing more.
    fn on_ended(&mut self, connection: ConnectionId, now: Instant) {
        let Some(&number) = self.sessions.lines.get(&connection) else { return };
        let Some(Some(session)) = self.sessions.slots.get_mut(number as usize) else { return };
        let outcome = match &mut session.stage {
            // Without `close_notify` an attacker on the way may have cut it off (RFC 8446 §6.1).
            Stage::Asking(line) if line.tls.as_ref().is_none_or(|layer| layer.is_ended()) => {
                line.dialogue.ended(&session.checks.config, &mut self.heads)
            }
            Stage::Asking(_) | Stage::Resting(_) | Stage::Connecting(_) | Stage::Securing(_) => {
                Outcome::Broken
            }
        };
        self.on_lost(number, outcome, now);
    }

    /// A connection is of no more use: a check under way ends with `outcome`.
    fn on_lost(&mut self, number: u32, outcome: Outcome, now: Instant) {
        let Some(session) = self.sessions.get(number) else { return };
        match session.stage {
            Stage::Resting(_) => self.hang_up(number, Close::Flush),
            Stage::Connecting(_) | Stage::Securing(_) | Stage::Asking(_) => {
                self.hang_up(number, Close::Flush);
                self.conclude(number, outcome, now);
            }
        }
    }

    /// A check has ended.
    fn conclude(&mut self, number: u32, outcome: Outcome, now: Instant) {
        let Some(Some(session)) = self.sessions.slots.get_mut(number as usize) else { return };
        let Some(watched) = self.watched.get_mut(&session.cluster) else { return };
        let Checks { config: check, stats } = &*session.checks;
        match outcome {
            Outcome::Success { .. } => stats.success.inc(),
            Outcome::Refused | Outcome::Retriable => stats.failure.inc(),
            Outcome::Broken | Outcome::TimedOut => {
                stats.failure.inc();
                stats.network_failure.inc();
            }
        }
        if matches!(session.stage.line(), Some(line) if line.dialogue.has_compared()) {
            stats.verify_cluster.inc();
        }
        let before = session.status.health_flags();
        let first = !session.status.is_checked();
        let pause = session.status.conclude(outcome, check, watched.has_traffic, &mut self.random);
        let after = session.status.health_flags();
        watched.is_stale |= first || before != after;
        let status = answered(&session.stage, outcome);
        let changed = std::mem::replace(&mut session.answered, status) != status;
        watched.is_stale |= self.tells_answers && changed;
        if let Some(log) = &check.log {
            let http_status = session.stage.line().map_or(0, |line| line.dialogue.http_status());
            let concluded = Concluded { outcome, http_status, first, before, after };
            let mut lines = Vec::new();
            let at = (now, &self.clock);
            concluded.write(session, &watched.config.name, log, at, &mut lines);
            for sink in &log.sinks {
                self.check_lines.entry(*sink).or_default().extend_from_slice(&lines);
            }
        }
        if let (Outcome::Success { .. }, Some((detector, stats))) = (outcome, &mut watched.outliers)
            && !after.failed_check
        {
            watched.is_stale |= detector.uneject_checked(&session.host, stats, now);
        }
        let keeps = check.reuse_connection
            && !check.wants_no_answer()
            && match outcome {
                Outcome::Success { .. } | Outcome::Refused | Outcome::Retriable => true,
                Outcome::Broken | Outcome::TimedOut => false,
            };
        self.timers.set(TimerSlot::Session(number).number(), now + pause);
        self.rest(number, keeps, outcome);
    }

    /// A worker saw a host's errors in a row reach a threshold.
    fn on_error_streak(&mut self, cluster: ClusterId, host: &Address, run: Run, now: Instant) {
        let Some(watched) = self.watched.get_mut(&cluster) else { return };
        let Some((detector, stats)) = &mut watched.outliers else { return };
        watched.is_stale |= detector.note_streak(host, run, stats, &mut self.random, now);
    }

    /// A worker saw an answer that says that others would serve better.
    fn on_degraded(&mut self, cluster: ClusterId, host: &Address, now: Instant) {
        let Some(watched) = self.watched.get_mut(&cluster) else { return };
        let Some((detector, stats)) = &mut watched.outliers else { return };
        watched.is_stale |= detector.degrade(host, stats, &mut self.random, now);
    }

    /// Lets hosts come back whose time is over, and compares the others.
    fn sweep(&mut self, cluster: ClusterId, now: Instant) {
        let Some(watched) = self.watched.get_mut(&cluster) else { return };
        let Some((detector, stats)) = &mut watched.outliers else { return };
        watched.is_stale |= detector.sweep(stats, now);
        let tallies = &watched.config.tallies;
        let (out, rates) = detector.compare(&tallies.take(), stats, &mut self.random, now);
        watched.is_stale |= out;
        tallies.set_rates(rates);
        self.timers.set(TimerSlot::Sweep(cluster).number(), now + detector.interval());
    }

    /// Waits for the next check, with the connection if it can be kept.
    fn rest(&mut self, number: u32, keeps: bool, outcome: Outcome) {
        let Some(session) = self.sessions.get_mut(number) else { return };
        let reusable =
            keeps && session.stage.line().is_some_and(|line| line.dialogue.is_reusable());
        if !reusable {
            let how = if outcome == Outcome::TimedOut { Close::Abort } else { Close::Flush };
            return self.hang_up(number, how);
        }
        if let Stage::Asking(line) = std::mem::replace(&mut session.stage, Stage::Resting(None)) {
            session.stage = Stage::Resting(Some(line));
        }
    }

    /// Gives up a session's connection, or the attempt at one.
    fn hang_up(&mut self, number: u32, how: Close) {
        let Some(session) = self.sessions.get_mut(number) else { return };
        match std::mem::replace(&mut session.stage, Stage::Resting(None)) {
            Stage::Resting(None) => {}
            Stage::Connecting(attempt) => {
                self.outputs.push_back(Output::CancelConnect { attempt });
            }
            Stage::Resting(Some(mut line))
            | Stage::Securing(mut line)
            | Stage::Asking(mut line) => {
                if self.sessions.lines.remove(&line.id).is_none() {
                    return;
                }
                let mut close_notify = bytes::BytesMut::new();
                if let Some(layer) = line.tls.as_mut().filter(|_| how == Close::Flush) {
                    close_notify.extend_from_slice(&layer.take_output());
                    layer.send_close_notify(&mut close_notify);
                }
                if !close_notify.is_empty() {
                    let chunk = close_notify.freeze();
                    self.outputs.push_back(Output::Send { connection: line.id, chunk });
                }
                self.outputs.push_back(Output::Close { connection: line.id, how });
            }
        }
    }

    /// Sends what was encoded for a session's connection.
    fn flush(&mut self, number: u32) {
        let Some(session) = self.sessions.get_mut(number) else { return };
        let Some(line) = session.stage.line_mut() else { return };
        let connection = line.id;
        for chunk in line.seal(&mut self.out) {
            self.outputs.push_back(Output::Send { connection, chunk });
        }
    }

    /// Tells of every cluster whose health changed, what is logged of it, and once when all hosts were checked.
    fn publish(&mut self) {
        let mut lines = Vec::new();
        for (cluster, watched) in &mut self.watched {
            let events = watched.outliers.as_mut().map(|(detector, _)| detector.take_events());
            if self.outlier_log.is_some() {
                for event in events.iter().flatten() {
                    event.write(&watched.config.name, &self.clock, &mut lines);
                }
            }
            if !std::mem::take(&mut watched.is_stale) {
                continue;
            }
            let sessions = watched.hosts.values().filter_map(|number| self.sessions.get(*number));
            let mut hosts: ClusterHealth = sessions
                .clone()
                .map(|session| (session.host.clone(), session.status.health_flags()))
                .collect();
            let count = |holds: fn(&HealthFlags) -> bool| {
                hosts.values().filter(|health_flags| holds(health_flags)).count() as u64
            };
            if let Some(checks) = &watched.checks {
                checks.stats.healthy.set(count(|health_flags| !health_flags.failed_check));
                checks.stats.degraded.set(count(|health_flags| health_flags.degraded));
            }
            for host in watched.outliers.iter().flat_map(|(detector, _)| detector.ejected()) {
                hosts.entry(host.clone()).or_insert(HealthFlags::WELL).ejected = true;
            }
            for host in watched.outliers.iter().flat_map(|(detector, _)| detector.degraded()) {
                let health_flags = hosts.entry(host.clone()).or_insert(HealthFlags::WELL);
                health_flags.degraded_by_answers = true;
            }
            let answers = self.tells_answers.then(|| statuses(sessions));
            let hosts = Arc::new(hosts);
            let message = FromMonitor::Health { cluster: *cluster, hosts, answers };
            self.outputs.push_back(Output::Message(Message::FromMonitor(message)));
        }
        if let Some(sink) = self.outlier_log {
            self.check_lines.entry(sink).or_default().extend_from_slice(&lines);
        }
        for (sink, lines) in std::mem::take(&mut self.check_lines) {
            if lines.is_empty() {
                continue;
            }
            let message = FromMonitor::Log { sink, lines: lines.into() };
            self.outputs.push_back(Output::Message(Message::FromMonitor(message)));
        }
        let checked = || self.sessions.iter().all(|session| session.status.is_checked());
        if self.warmth == Warmth::Warming && checked() {
            self.warmth = Warmth::Warm;
            self.outputs.push_back(Output::Message(Message::FromMonitor(FromMonitor::Warm)));
        }
    }
}

/// Whether there is anything to find out about a cluster's hosts.
const fn is_watched(cluster: &Cluster) -> bool {
    cluster.health_check.is_some() || cluster.outliers.is_some()
}

/// A slot of the timers.
#[derive(Clone, Copy, Debug)]
enum TimerSlot {
    /// The pause or the check of a session.
    Session(u32),
    /// The next look at who may come back.
    Sweep(ClusterId),
}

impl TimerSlot {
    const fn number(self) -> u32 {
        match self {
            Self::Session(number) => number * 2,
            Self::Sweep(cluster) => cluster.0 * 2 + 1,
        }
    }

    const fn from_number(slot: u32) -> Self {
        if slot.is_multiple_of(2) {
            Self::Session(slot / 2)
        } else {
            Self::Sweep(ClusterId(slot / 2))
        }
    }
}

impl Sockets {
    fn of(config: &Cluster, clock: &tls::Clock) -> Self {
        let client = |tls: &Option<Box<UpstreamTls>>| {
            let template = tls.as_ref().and_then(|tls| tls.template.as_ref());
            template.map(|template| template.client(clock))
        };
        Self { all: client(&config.tls), some: config.sockets.iter().map(client).collect() }
    }
}

impl Watched {
    /// How the host of a session is spoken to, if not in plain text.
    fn tls_of(&self, session: &Session) -> Option<(Option<&tls::Client>, &UpstreamTls)> {
        let (client, config) = match session.socket {
            Some(socket) => {
                let at = usize::from(socket);
                (self.tls.some.get(at)?, self.config.sockets.get(at)?)
            }
            None => (&self.tls.all, &self.config.tls),
        };
        Some((client.as_ref(), config.as_ref()?))
    }

    /// Where it is counted by which socket a host is asked, if that is chosen for checks alone.
    fn match_stats(
        &self,
        endpoint: &Endpoint,
        registry: &Registry,
        index: u32,
    ) -> Option<Arc<SocketMatchStats>> {
        let socket = endpoint.check.as_ref()?.socket?;
        let named = |socket| self.config.socket_names.get(usize::from(socket)).cloned();
        let name = socket.and_then(named).unwrap_or_else(|| Arc::from("default"));
        let cluster = Arc::clone(&self.config.stat_name);
        Some(registry.set(index, Scope::ClusterPart { cluster, name }))
    }

    /// What HTTP checks of an endpoint name as its host.
    fn authority(&self, endpoint: &Endpoint) -> Arc<str> {
        let own = endpoint.check.as_ref().map(|check| &check.hostname);
        let of_check = match self.checks.as_ref().map(|checks| &checks.config.probe) {
            Some(Probe::Http(probe)) => Some(&probe.host),
            Some(Probe::Grpc(probe)) => Some(&probe.authority),
            Some(Probe::Tcp(_) | Probe::Bolt(_)) | None => None,
        };
        let given = [own, of_check].into_iter().flatten().find(|name| !name.is_empty());
        Arc::clone(given.unwrap_or(&self.config.name))
    }
}
