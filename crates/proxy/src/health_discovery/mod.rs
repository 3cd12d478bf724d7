//! Health discovery (HDS): a server says which hosts are to be checked and how, and is told how they are, as often as
//! it wants. Envoy `hds_config`.
//!
//! Runs on the control thread, with a monitor of hosts of its own, which is made of the engine's checker and has its
//! own thread. What it finds out is told to the server alone; clusters that requests go to know nothing of it.

mod message;
mod tally;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::sync::mpsc;
use towpath_config::{CheckPlan, Grpc, Options, check_plan};
use towpath_engine::message::ToMonitor;
use towpath_engine::snapshot::Snapshot;
use towpath_engine::stats::{HealthDiscoveryStats, Scope};
use towpath_xds::Backoff;

use crate::control::Control;
use crate::discovery::grpc::{self, Link, News};
use crate::log;
use crate::monitor::{self, MonitorThread};
use crate::serve::sleep_until;
use crate::server_stats::CONTROL;
use message::{Capability, HealthCheckRequest, Protocol, ToServer};
use tally::Tally;

/// The server that says what to check, and who it is told asks.
#[derive(Debug)]
pub(crate) struct HealthDiscovery {
    pub(crate) server: Arc<Grpc>,
    /// A `Node`, encoded.
    pub(crate) node: Bytes,
    /// How what it sends is read.
    pub(crate) options: Options,
}

/// Checks and reports until the process ends.
pub(crate) async fn run(control: Rc<Control>, discovery: HealthDiscovery) {
    control.is_live().await;
    let stats = control.registry.set(CONTROL, Scope::HealthDiscovery);
    let (sender, found) = mpsc::unbounded_channel();
    let mut delegate = Delegate {
        control,
        discovery,
        stats,
        monitor: None,
        sender,
        found,
        tally: Tally::default(),
        snapshot: Arc::default(),
        specifier: None,
        interval: None,
        due: None,
        last: Bytes::new(),
        has_heard: false,
        epoch_unix_ns: 0,
    };
    let mut backoff = Backoff::new(RETRY_BASE, RETRY_MOST, crate::random());
    loop {
        let peer = Arc::clone(&delegate.discovery.server.cluster);
        let why = delegate.serve().await;
        log!(Upstream, Warning, "health discovery of '{peer}' ended: {why}");
        delegate.stats.errors.inc();
        if std::mem::take(&mut delegate.has_heard) {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

/// What there is to do. Envoy's `HdsDelegate`.
struct Delegate {
    control: Rc<Control>,
    discovery: HealthDiscovery,
    stats: Arc<HealthDiscoveryStats>,
    /// What checks, once there is something to check.
    monitor: Option<MonitorThread>,
    sender: mpsc::UnboundedSender<monitor::News>,
    found: mpsc::UnboundedReceiver<monitor::News>,
    tally: Tally,
    /// What the last good specifier came to.
    snapshot: Arc<Snapshot>,
    /// It, on this stream.
    specifier: Option<Bytes>,
    interval: Option<Duration>,
    /// When the next report is.
    due: Option<tokio::time::Instant>,
    /// The last report.
    last: Bytes,
    /// The server has sent something since the last failure.
    has_heard: bool,
    /// What the monitor was told of the time.
    epoch_unix_ns: u64,
}

/// What ended a wait.
enum Wake {
    Heard(Option<News>),
    Found(Option<monitor::News>),
    Due,
}

impl Delegate {
    /// One stream, from its first message to its last. Says why it ended. What was to be checked is checked on.
    async fn serve(&mut self) -> String {
        (self.specifier, self.interval, self.due) = (None, None, None);
        let target = match grpc::reach(&self.control, &self.discovery.server, METHOD) {
            Ok(target) => target,
            Err(why) => return why.to_owned(),
        };
        let Link { outgoing, mut news } = grpc::open(target, 1);
        loop {
            let due = sleep_until(self.due);
            let wake = tokio::select! {
                heard = news.recv() => Wake::Heard(heard),
                found = self.found.recv() => Wake::Found(found),
                () = due => Wake::Due,
            };
            match wake {
                // Envoy counts what it sends as responses, and what it is sent as requests.
                Wake::Heard(Some(News::Connected)) => {
                    let _ = outgoing.send(self.request());
                    self.stats.responses.inc();
                }
                Wake::Heard(Some(News::Message(specifier))) => {
                    self.stats.requests.inc();
                    self.has_heard = true;
                    if let Err(why) = self.take(specifier).await {
                        self.stats.errors.inc();
                        log!(Upstream, Warning, "a health check specifier was not taken: {why}");
                    }
                }
                Wake::Heard(Some(News::Ended(why))) => return why,
                Wake::Heard(None) => return "its task ended".to_owned(),
                Wake::Found(Some(found)) => self.hear(found),
                // There is always a sender.
                Wake::Found(None) => {}
                Wake::Due => self.report(&outgoing),
            }
        }
    }

    /// The first message of a stream.
    fn request(&self) -> Bytes {
        let protocols = vec![Protocol::Http.into(), Protocol::Tcp.into()];
        let request = HealthCheckRequest {
            node: self.discovery.node.clone(),
            capability: Some(Capability { health_check_protocols: protocols }),
        };
        let message = ToServer { health_check_request: Some(request), ..ToServer::default() };
        message.encode_to_vec().into()
    }

    /// Takes what is to be checked. Where it is not good, what was taken before stays.
    async fn take(&mut self, specifier: Bytes) -> Result<(), String> {
        if self.specifier.as_ref() == Some(&specifier) {
            return Ok(());
        }
        let (message, before) = (specifier.clone(), Arc::clone(&self.snapshot));
        let options = self.discovery.options.clone();
        // Others are served meanwhile.
        let plan = tokio::task::spawn_blocking(move || check_plan(message, &before, &options));
        let plan = plan.await.map_err(|error| error.to_string())??;
        self.follow(plan)?;
        self.specifier = Some(specifier);
        self.stats.updates.inc();
        Ok(())
    }

    fn follow(&mut self, plan: CheckPlan) -> Result<(), String> {
        if self.monitor.is_none() {
            let (registry, started) = (self.control.registry.clone(), self.control.started);
            let monitor =
                MonitorThread::start_telling_answers(registry, started, self.sender.clone());
            let monitor = monitor.map_err(|error| format!("no thread for its checks: {error}"))?;
            self.monitor = Some(monitor);
        }
        let interval = plan.interval.max(SHORTEST);
        self.snapshot = Arc::clone(&plan.snapshot);
        self.tell_time();
        for message in self.tally.follow(plan) {
            self.tell(message);
        }
        if self.interval.replace(interval) != Some(interval) {
            self.due = Some(tokio::time::Instant::now() + interval);
        }
        Ok(())
    }

    fn tell(&self, message: ToMonitor) {
        if let Some(monitor) = &self.monitor {
            monitor.tell(message);
        }
    }

    /// Tells the monitor the wall clock, where it was set.
    fn tell_time(&mut self) {
        let epoch_unix_ns = self.control.epoch_unix_ns();
        if std::mem::replace(&mut self.epoch_unix_ns, epoch_unix_ns) != epoch_unix_ns {
            self.tell(ToMonitor::WallClock { epoch_unix_ns });
        }
    }

    /// Tells how all hosts are, unless the report before has not left yet.
    fn report(&mut self, outgoing: &mpsc::UnboundedSender<Bytes>) {
        self.due = self.interval.map(|interval| tokio::time::Instant::now() + interval);
        self.tell_time();
        if !self.last.is_empty() && !self.last.is_unique() {
            return;
        }
        while let Ok(found) = self.found.try_recv() {
            self.hear(found);
        }
        let response = Some(self.tally.report());
        let message = ToServer { endpoint_health_response: response, ..ToServer::default() };
        self.last = message.encode_to_vec().into();
        // Where its task has ended, that is told next.
        let _ = outgoing.send(self.last.clone());
        self.stats.responses.inc();
    }

    /// The monitor has said something. Where it ended nothing checks any more; the next specifier begins anew.
    fn hear(&mut self, news: monitor::News) {
        let outcome = match news {
            monitor::News::Said(said) => return self.tally.hear(said),
            monitor::News::Ended(outcome) => outcome,
        };
        let why = outcome.err().map_or_else(|| "unasked".to_owned(), |error| error.to_string());
        log!(Upstream, Error, "the checks for health discovery ended: {why}");
        self.stats.errors.inc();
        (self.monitor, self.specifier, self.epoch_unix_ns) = (None, None, 0);
        self.tally = Tally::default();
    }
}

const METHOD: &str = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck";
/// Envoy's `RetryInitialDelayMilliseconds` and `RetryMaxDelayMilliseconds`.
const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// No server is told more often.
const SHORTEST: Duration = Duration::from_millis(10);
