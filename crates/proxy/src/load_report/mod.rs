//! Load reports (LRS): a server is told, as often as it wants, what became of the requests to the clusters that it
//! names. Envoy `load_stats_config`.
//!
//! Runs on the control thread; what hosts count, workers are asked for as for `/clusters`, once for each report.

pub(crate) mod message;
mod tally;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::sync::mpsc;
use towpath_config::Grpc;
use towpath_engine::stats::{ClusterStats, LoadReporterStats, Scope};

use crate::control::Control;
use crate::discovery::grpc::{self, Link, News};
use crate::log;
use crate::serve::sleep_until;
use crate::server_stats::CONTROL;
use message::{LoadStatsRequest, LoadStatsResponse};
use tally::{Load, Tracked};

/// The servers that are told, and the call that tells them.
#[derive(Debug)]
pub(crate) struct LoadReports {
    server: Arc<Grpc>,
    /// A `Node`, encoded.
    node: Bytes,
}

impl LoadReports {
    pub(crate) fn new(server: Arc<Grpc>, node: &Bytes) -> Self {
        let mut with_feature = BytesMut::from(&node[..]);
        // `Node.client_features`, whose key and length are a byte each.
        with_feature.put_u8(10 << 3 | 2);
        with_feature.put_u8(ALL_CLUSTERS.len() as u8);
        with_feature.put_slice(ALL_CLUSTERS.as_bytes());
        Self { server, node: with_feature.freeze() }
    }
}

/// Reports until the process ends.
pub(crate) async fn run(control: Rc<Control>, reports: LoadReports) {
    control.is_live().await;
    let stats = control.registry.set(CONTROL, Scope::LoadReporter);
    let mut reporter = Reporter {
        control,
        reports,
        stats,
        asked: None,
        tracked: BTreeMap::new(),
        due: None,
        last: Bytes::from_static(b""),
    };
    loop {
        let peer = Arc::clone(&reporter.reports.server.cluster);
        let why = reporter.serve().await;
        log!(Upstream, Warning, "load reports to '{peer}' ended: {why}");
        reporter.stats.errors.inc();
        tokio::time::sleep(RETRY).await;
        reporter.stats.retries.inc();
    }
}

struct Reporter {
    control: Rc<Control>,
    reports: LoadReports,
    stats: Arc<LoadReporterStats>,
    /// What the server wants to know.
    asked: Option<LoadStatsResponse>,
    tracked: BTreeMap<String, Tracked>,
    /// When the next report is.
    due: Option<tokio::time::Instant>,
    /// The last report.
    last: Bytes,
}

impl Reporter {
    /// One stream, from its first message to its last. Says why it ended.
    async fn serve(&mut self) -> String {
        self.due = None;
        let target = match grpc::reach(&self.control, &self.reports.server, METHOD) {
            Ok(target) => target,
            Err(why) => return why.to_owned(),
        };
        let Link { outgoing, mut news } = grpc::open(target, 1);
        loop {
            let due = sleep_until(self.due);
            let heard = tokio::select! {
                heard = news.recv() => heard,
                () = due => {
                    self.report(&outgoing).await;
                    self.begin_period().await;
                    continue;
                }
            };
            match heard {
                // Envoy counts what it sends as responses, and what it is sent as requests.
                Some(News::Connected) => self.report(&outgoing).await,
                Some(News::Message(message)) => match LoadStatsResponse::decode(message) {
                    Ok(asked) => {
                        self.stats.requests.inc();
                        self.asked = Some(asked);
                        self.begin_period().await;
                    }
                    Err(error) => return error.to_string(),
                },
                Some(News::Ended(why)) => return why,
                None => return "its task ended".to_owned(),
            }
        }
    }

    /// Tells what happened since the last time, unless that has not left yet: then it is told with the next.
    async fn report(&mut self, outgoing: &mpsc::UnboundedSender<Bytes>) {
        if !self.last.is_empty() && !self.last.is_unique() {
            return;
        }
        let each_host = self.asked.as_ref().is_some_and(|asked| asked.report_endpoint_granularity);
        let loads = if self.tracked.is_empty() { HashMap::new() } else { self.loads().await };
        let now = Instant::now();
        let told = self.tracked.iter_mut();
        let told = told.filter_map(|(name, tracked)| {
            Some(tracked.report(name, loads.get(&**name)?, each_host, now))
        });
        let request =
            LoadStatsRequest { node: self.reports.node.clone(), cluster_stats: told.collect() };
        self.last = request.encode_to_vec().into();
        // Where its task has ended, that is told next.
        let _ = outgoing.send(self.last.clone());
        self.stats.responses.inc();
    }

    /// Tracks what the server wants from here on. What was tracked before goes on.
    async fn begin_period(&mut self) {
        let Some(asked) = &self.asked else { return };
        let interval = asked.load_reporting_interval.map_or(Duration::ZERO, |it| it.duration());
        let names: BTreeSet<String> = if asked.send_all_clusters {
            let snapshot = self.control.snapshot.borrow();
            snapshot.shown_clusters().map(|cluster| cluster.name.to_string()).collect()
        } else {
            asked.clusters.iter().take(MOST_CLUSTERS).cloned().collect()
        };
        self.tracked.retain(|name, _| names.contains(name));
        let new: Vec<String> =
            names.into_iter().filter(|name| !self.tracked.contains_key(name)).collect();
        if !new.is_empty() {
            let (loads, services) = (self.loads().await, self.services());
            let now = Instant::now();
            for name in new {
                let service = services.get(&name).cloned().unwrap_or_default();
                let nothing = Load::default();
                let load = loads.get(&*name).unwrap_or(&nothing);
                self.tracked.insert(name, Tracked::new(load, service, now));
            }
        }
        self.due = Some(tokio::time::Instant::now() + interval.max(SHORTEST));
    }

    /// All clusters as they are, over all workers.
    async fn loads(&self) -> HashMap<Arc<str>, Load> {
        let descriptions = self.control.describe().await;
        let workers = self.control.workers.borrow().count();
        let snapshot = self.control.snapshot.borrow().clone();
        let mut loads: HashMap<Arc<str>, Load> = HashMap::new();
        for cluster in snapshot.shown_clusters() {
            let dropped = |worker: usize| {
                let worker = u32::try_from(worker).unwrap_or(u32::MAX);
                let scope = Scope::Cluster(Arc::clone(&cluster.stat_name));
                let stats: Arc<ClusterStats> = self.control.registry.set(worker, scope);
                stats.upstream_rq_pending_overflow.value()
                    + stats.upstream_rq_active_overflow.value()
            };
            let dropped = (0..workers).map(dropped).sum();
            let category = cluster.drops.as_ref().map(|drops| Arc::clone(&drops.category));
            let load = Load { category, dropped, ..Load::default() };
            loads.insert(Arc::clone(&cluster.name), load);
        }
        for cluster in descriptions.into_iter().flatten() {
            let Some(load) = loads.get_mut(&cluster.name) else { continue };
            load.dropped += cluster.dropped;
            load.overload += cluster.dropped;
            let mut places: HashMap<_, usize> = (0..)
                .zip(&load.hosts)
                .map(|(index, (host, _))| (host.address.clone(), index))
                .collect();
            for host in cluster.hosts {
                match places.get(&host.endpoint.address) {
                    Some(index) => load.hosts[*index].1 += host.counts,
                    None => {
                        places.insert(host.endpoint.address.clone(), load.hosts.len());
                        load.hosts.push((host.endpoint, host.counts));
                    }
                }
            }
        }
        loads
    }

    /// By which names clusters ask for their endpoints, where they say so.
    fn services(&self) -> HashMap<String, String> {
        let bootstrap = self.control.boot.borrow().bootstrap();
        let statics = bootstrap["static_resources"]["clusters"].as_array().into_iter().flatten();
        let shown = self.control.shown.borrow();
        let service = |cluster: &serde_json::Value| {
            let name = cluster["name"].as_str()?.to_owned();
            Some((name, cluster["eds_cluster_config"]["service_name"].as_str()?.to_owned()))
        };
        statics.filter_map(service).chain(shown.clusters().filter_map(|it| service(&it))).collect()
    }
}

const METHOD: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
/// What clients say that know `send_all_clusters`.
const ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";
/// Envoy's.
const RETRY: Duration = Duration::from_secs(5);
/// No server is told more often.
const SHORTEST: Duration = Duration::from_millis(10);
/// No server may name more.
const MOST_CLUSTERS: usize = 200_000;
