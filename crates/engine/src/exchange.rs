//! The life of streams, from head to record, with all that it needs beside it.
//!
//! Arrives: events of connections, and timers. Leaves: what the owners below make of it. This is the top of the worker: it
//! may use every owner, and none of them knows of it.

use std::sync::Arc;

use crate::connection::Connections;
use crate::env::Env;
use crate::listener::Listeners;
use crate::snapshot::Snapshot;
use crate::stream::Streams;
use crate::upstream::Upstreams;

/// The streams of a worker, and the owners of what they run on.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) streams: Streams,
    pub(crate) conns: Connections,
    pub(crate) upstreams: Upstreams,
    pub(crate) listeners: Listeners,
    pub(crate) env: Env,
}

impl Exchange {
    /// One that waits for its first snapshot.
    pub(crate) fn new(env: Env) -> Self {
        Self {
            snapshot: Arc::default(),
            streams: Streams::default(),
            conns: Connections::default(),
            upstreams: Upstreams::default(),
            listeners: Listeners::default(),
            env,
        }
    }
}
