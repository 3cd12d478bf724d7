//! Connections of TCP proxies whose clients are gone: what is queued for their servers still goes out, and is counted.
//! Envoy: `TcpProxy::Drainer`.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{ConnectionId, Instant};

use crate::conn::context::TcpContext;
use crate::conn::{ConnectionTimer, Connections};
use crate::env::Env;
use crate::stats::TcpStats;
use crate::upstream::Upstreams;

/// The connections of a worker that are flushed.
#[derive(Debug, Default)]
pub(crate) struct Flushes(Vec<Flush>);

#[derive(Debug)]
struct Flush {
    connection: ConnectionId,
    stats: Arc<TcpStats>,
    /// How long the server may take nothing; Envoy's `idle_timeout`.
    idle: Option<Duration>,
}

impl Flushes {
    fn get(&self, id: ConnectionId) -> Option<&Flush> {
        self.0.iter().find(|flush| flush.connection == id)
    }

    /// The connection is gone.
    pub(crate) fn end(&mut self, id: ConnectionId) {
        if let Some(at) = self.0.iter().position(|flush| flush.connection == id) {
            self.0.swap_remove(at).stats.upstream_flush_active.dec();
        }
    }
}

impl Upstreams {
    /// Keeps a connection that carries no stream any more until what is queued for it has gone out; false if nothing
    /// is. The server has been told that nothing follows.
    pub(crate) fn begin_flush(
        &mut self,
        id: ConnectionId,
        tcp: &TcpContext,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) -> bool {
        if conns.out_for == Some(id) {
            conns.flush_out(env);
        }
        let Some(connection) = conns.table.get_mut(id) else { return false };
        if connection.gone || connection.outstanding == 0 {
            return false;
        }
        let Some(upstream) = connection.upstream_mut() else { return false };
        upstream.retired = true;
        connection.await_flush();
        tcp.stats.upstream_flush_total.inc();
        tcp.stats.upstream_flush_active.inc();
        let (stats, idle) = (Arc::clone(&tcp.stats), tcp.config.idle_timeout);
        self.flushes.0.push(Flush { connection: id, stats, idle });
        self.on_flushed_some(id, conns, env, now);
        true
    }

    /// Whether a connection is kept for this alone.
    pub(crate) fn is_flushed(&self, id: ConnectionId) -> bool {
        self.flushes.get(id).is_some()
    }

    /// The server has taken some of it: its time begins anew.
    pub(crate) fn on_flushed_some(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        if let Some(idle) = self.flushes.get(id).and_then(|flush| flush.idle) {
            conns.set_connection_timer(id, ConnectionTimer::Flush, now + idle, env);
        }
    }

    /// The server has taken nothing for too long.
    pub(crate) fn count_stalled_flush(&self, id: ConnectionId) -> bool {
        let flush = self.flushes.get(id);
        flush.inspect(|flush| flush.stats.idle_timeout.inc()).is_some()
    }
}
