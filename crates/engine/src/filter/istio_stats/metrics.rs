//! What is counted, of HTTP and of opaque bytes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::labels::{Ends, Parties};
use crate::format::Facts;
use crate::grpc;
use crate::mesh::{IstioMetric, Reporter, Telemetry, Told};
use crate::record::Flags;
use crate::stats::{IstioCounter, IstioGauge, IstioHistogram, Labels, Registry, Scope, StatSet};

/// What one worker counts of one configuration.
#[derive(Debug)]
pub(crate) struct Metrics {
    config: Arc<Telemetry>,
    registry: Arc<Registry>,
    worker: u32,
    http: RefCell<Known<Requests>>,
    calls: RefCell<Known<Messages>>,
    tcp: RefCell<Known<Bytes>>,
    _build: Option<Arc<IstioGauge>>,
}

/// Series by what tells them apart, and memory for the next such key.
#[derive(Debug)]
struct Known<T> {
    series: HashMap<Box<[u8]>, Rc<T>>,
    key: Vec<u8>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { series: HashMap::new(), key: Vec::new() }
    }
}

/// The metrics of requests with the same labels; what is left out is none.
#[derive(Debug)]
struct Requests {
    total: Option<Arc<IstioCounter>>,
    duration: Option<Arc<IstioHistogram>>,
    request_bytes: Option<Arc<IstioHistogram>>,
    response_bytes: Option<Arc<IstioHistogram>>,
}

/// Those of calls by gRPC.
#[derive(Debug)]
struct Messages {
    request: Option<Arc<IstioCounter>>,
    response: Option<Arc<IstioCounter>>,
}

/// Those of connections.
#[derive(Debug)]
struct Bytes {
    opened: Option<Arc<IstioCounter>>,
    closed: Option<Arc<IstioCounter>>,
    sent: Option<Arc<IstioCounter>>,
    received: Option<Arc<IstioCounter>>,
}

impl Metrics {
    pub(crate) fn new(config: Arc<Telemetry>, registry: Arc<Registry>, worker: u32) -> Self {
        let version = match &*config.version {
            "" => Arc::from("unknown"),
            _ => Arc::clone(&config.version),
        };
        let labels = Arc::from([("component", Arc::from("proxy")), ("tag", version)]);
        let metric = IstioMetric::Build;
        // One worker tells it: readers add up.
        let build = (worker == 0).then(|| {
            let build: Arc<IstioGauge> = registry.set(worker, Scope::Istio { metric, labels });
            build.0.set(1);
            build
        });
        Self {
            config,
            registry,
            worker,
            http: RefCell::default(),
            calls: RefCell::default(),
            tcp: RefCell::default(),
            _build: build,
        }
    }

    /// How often connections are told that go on.
    pub(crate) fn interval(&self) -> Option<Duration> {
        Some(self.config.interval).filter(|interval| !interval.is_zero())
    }

    pub(super) fn reporter(&self) -> Reporter {
        self.config.reporter
    }

    /// Counts a request that is over.
    pub(crate) fn count_request(&self, ends: Ends<'_>, is_grpc: bool) {
        let (facts, record) = (ends.facts, ends.facts.record);
        let parties = self.parties(ends);
        let status = facts.grpc_status().filter(|_| is_grpc);
        let mut known = self.http.borrow_mut();
        let series = known.get(
            |key| {
                parties.write_key(key);
                key.extend_from_slice(&record.status.to_le_bytes());
                key.extend_from_slice(&record.flags.0.to_le_bytes());
                key.extend_from_slice(&status.unwrap_or(-1).to_le_bytes());
                key.extend([u8::from(is_grpc), u8::from(status.is_some())]);
            },
            || {
                let mut labels = parties.labels(&self.config.own);
                let grpc_status = status.map(|status| status.to_string()).unwrap_or_default();
                labels.extend([
                    ("request_protocol", Arc::from(if is_grpc { "grpc" } else { "http" })),
                    ("response_code", Arc::from(record.status.to_string())),
                    ("grpc_response_status", Arc::from(grpc_status)),
                ]);
                add_last(&mut labels, record.flags, &parties);
                Requests {
                    total: self.set(IstioMetric::Requests, &labels),
                    duration: self.set(IstioMetric::RequestDuration, &labels),
                    request_bytes: self.set(IstioMetric::RequestBytes, &labels),
                    response_bytes: self.set(IstioMetric::ResponseBytes, &labels),
                }
            },
        );
        add(series.total.as_deref(), 1);
        let duration = record.duration().unwrap_or_default();
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        record_in(series.duration.as_deref(), millis);
        record_in(series.request_bytes.as_deref(), record.wire_received);
        record_in(series.response_bytes.as_deref(), record.wire_sent);
    }

    /// Counts messages of a call by gRPC.
    pub(crate) fn count_messages(&self, ends: Ends<'_>, request: u64, response: u64) {
        let parties = self.parties(ends);
        let mut known = self.calls.borrow_mut();
        let series = known.get(
            |key| parties.write_key(key),
            || {
                let labels = parties.labels(&self.config.own);
                Messages {
                    request: self.set(IstioMetric::RequestMessages, &labels),
                    response: self.set(IstioMetric::ResponseMessages, &labels),
                }
            },
        );
        add(series.request.as_deref(), request);
        add(series.response.as_deref(), response);
    }

    /// Counts what a connection of opaque bytes has carried since it was last told.
    pub(crate) fn count_connection(&self, ends: Ends<'_>, told: &mut Told, ends_now: bool) {
        let record = ends.facts.record;
        let parties = self.parties(ends);
        // They are those of the moment at which it was first told.
        let flags = if told.is_opened { Flags::NONE } else { record.flags };
        let mut known = self.tcp.borrow_mut();
        let series = known.get(
            |key| {
                parties.write_key(key);
                key.extend_from_slice(&flags.0.to_le_bytes());
            },
            || {
                let mut labels = parties.labels(&self.config.own);
                labels.push(("request_protocol", Arc::from("tcp")));
                add_last(&mut labels, flags, &parties);
                Bytes {
                    opened: self.set(IstioMetric::ConnectionsOpened, &labels),
                    closed: self.set(IstioMetric::ConnectionsClosed, &labels),
                    sent: self.set(IstioMetric::SentBytes, &labels),
                    received: self.set(IstioMetric::ReceivedBytes, &labels),
                }
            },
        );
        if !std::mem::replace(&mut told.is_opened, true) {
            add(series.opened.as_deref(), 1);
        }
        let (sent, received) = (record.bytes_sent, record.bytes_received);
        add(series.sent.as_deref(), sent.saturating_sub(told.sent));
        add(series.received.as_deref(), received.saturating_sub(told.received));
        (told.sent, told.received) = (sent, received);
        if ends_now {
            add(series.closed.as_deref(), 1);
        }
    }

    fn parties<'a>(&self, ends: Ends<'a>) -> Parties<'a> {
        Parties::of(self.config.reporter, ends, self.config.falls_back_to_host)
    }

    /// The set of a metric with these labels, unless it is left out or there are too many already.
    fn set<S: StatSet + Default>(
        &self,
        metric: IstioMetric,
        labels: &[(&'static str, Arc<str>)],
    ) -> Option<Arc<S>> {
        if self.config.dropped.contains(&metric) {
            return None;
        }
        let stays = |name: &str| {
            !self
                .config
                .removed
                .iter()
                .any(|(of, removed)| &**removed == name && of.is_none_or(|of| of == metric))
        };
        let labels: Labels = labels.iter().filter(|(name, _)| stays(name)).cloned().collect();
        let found = self.registry.lasting(self.worker, Scope::Istio { metric, labels });
        if found.is_none() {
            let (metric, labels) = (IstioMetric::Uncounted, Arc::from([]));
            let lost = self.registry.lasting(self.worker, Scope::Istio { metric, labels });
            add(lost.as_deref(), 1);
        }
        found
    }
}

impl<T> Known<T> {
    /// The series of a key, which is made if it is new.
    fn get(&mut self, write: impl FnOnce(&mut Vec<u8>), make: impl FnOnce() -> T) -> Rc<T> {
        self.key.clear();
        write(&mut self.key);
        if let Some(known) = self.series.get(&*self.key) {
            return Rc::clone(known);
        }
        let made = Rc::new(make());
        // Those that are forgotten here are found again in the registry.
        if self.series.len() >= MOST_KNOWN {
            self.series.clear();
        }
        self.series.insert(self.key.as_slice().into(), Rc::clone(&made));
        made
    }
}

fn add(counter: Option<&IstioCounter>, amount: u64) {
    if let Some(counter) = counter {
        counter.0.add(amount);
    }
}

fn record_in(histogram: Option<&IstioHistogram>, value: u64) {
    if let Some(histogram) = histogram {
        histogram.0.record(value);
    }
}

/// The labels that stand last.
fn add_last(labels: &mut Vec<(&'static str, Arc<str>)>, flags: Flags, parties: &Parties<'_>) {
    let mut names = String::new();
    for name in flags.short_names() {
        let comma = if names.is_empty() { "" } else { "," };
        let _ = write!(names, "{comma}{name}");
    }
    let flags = if names.is_empty() { "-" } else { &names };
    let security = match parties.is_mutual {
        Some(true) => "mutual_tls",
        Some(false) => "none",
        None => "unknown",
    };
    labels.extend([
        ("response_flags", Arc::from(flags)),
        ("connection_security_policy", Arc::from(security)),
    ]);
}

/// How many combinations a worker has at hand.
const MOST_KNOWN: usize = 4096;

/// Whether a request came as a call by gRPC.
pub(super) fn is_call(facts: &Facts<'_>) -> bool {
    facts.request.is_some_and(grpc::is_grpc)
}
