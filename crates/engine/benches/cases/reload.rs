//! One of 5,000 clusters changes: what a worker does for the snapshot that says so.

use std::sync::Arc;

use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::{Cluster, Snapshot};
use towpath_engine::worker::Worker;
use towpath_proto::{Input, Instant, Machine, Output};

use super::scene;

/// A worker with all the clusters, and two configurations that differ in one.
pub(crate) struct Reload {
    worker: Worker,
    snapshots: [Arc<Snapshot>; 2],
    turn: usize,
}

impl Reload {
    pub(crate) fn new() -> Self {
        let one = snapshot(None);
        let clusters = one.clusters.clone();
        let mut reload = Self {
            worker: super::worker(),
            snapshots: [Arc::new(one), Arc::new(snapshot(Some(clusters)))],
            turn: 0,
        };
        reload.replace();
        reload
    }

    /// The other configuration.
    pub(crate) fn replace(&mut self) {
        let snapshot = Arc::clone(&self.snapshots[self.turn]);
        self.turn = 1 - self.turn;
        let now = Instant::from_nanos(1_000_000);
        self.worker.handle(Input::Message(Message::To(ToWorker::Snapshot(snapshot))), now);
        while !matches!(self.worker.poll(now), Output::Wait(_) | Output::Idle) {}
    }
}

/// New clusters, or the same but for the first.
fn snapshot(same: Option<Vec<Option<Arc<Cluster>>>>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for number in 0..CLUSTERS {
        snapshot.intern(&format!("c{number}"));
    }
    let cluster = |number: usize| Some(Arc::new(scene::cluster(&format!("c{number}"), 2)));
    snapshot.clusters = same.unwrap_or_else(|| (0..CLUSTERS).map(cluster).collect());
    snapshot.clusters[0] = cluster(0);
    snapshot
}

const CLUSTERS: usize = 5000;
