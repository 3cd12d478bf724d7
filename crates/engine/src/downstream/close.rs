//! The end of a downstream connection, counted and logged once.

use towpath_proto::{Close, ConnectionId, Instant};

use crate::conn::Connections;
use crate::downstream::listener::{Listeners, connection_record};
use crate::env::Env;
use crate::ids::Closer;

impl Listeners {
    /// Closes a downstream connection that carries nothing.
    pub(crate) fn close_downstream(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        self.count_downstream_close(id, Closer::Local, conns, env, now);
        conns.end_connection(id, Close::Flush, env);
        self.check_drained(env);
    }

    /// Counts the end of a downstream connection, once.
    pub(crate) fn count_downstream_close(
        &mut self,
        id: ConnectionId,
        closer: Closer,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(connection) = conns.table.get(id) else { return };
        let Some(downstream) = connection.downstream() else { return };
        connection.trace_closed();
        let context = &downstream.context;
        let age_ms = u64::try_from((now - connection.opened).as_millis()).unwrap_or(u64::MAX);
        let listener = &context.stats;
        listener.downstream_cx_active.dec();
        listener.downstream_cx_destroy.inc();
        listener.downstream_cx_length_ms.record(age_ms);
        if let Some(http) = context.http() {
            let stats = &http.stats;
            stats.downstream_cx_active.dec();
            if context.bolt().is_none() {
                stats.downstream_cx_http1_active.dec();
            }
            stats.downstream_cx_destroy.inc();
            match closer {
                Closer::Local => stats.downstream_cx_destroy_local.inc(),
                Closer::Remote => stats.downstream_cx_destroy_remote.inc(),
            }
            stats.downstream_cx_length_ms.record(age_ms);
            stats.downstream_cx_rx_bytes_total.add(connection.bytes_received);
            stats.downstream_cx_tx_bytes_total.add(connection.bytes_sent);
        } else if let Some(tcp) = context.tcp() {
            tcp.stats.downstream_cx_rx_bytes_total.add(connection.bytes_received);
            tcp.stats.downstream_cx_tx_bytes_total.add(connection.bytes_sent);
        }
        self.release(context);
        if !context.listener.access_logs.is_empty() {
            let mut record = connection_record(
                connection.local.clone(),
                connection.peer.clone(),
                connection.opened,
            );
            record.connection = downstream.serial;
            record.bytes_received = connection.bytes_received;
            record.bytes_sent = connection.bytes_sent;
            record.end = Some(now);
            let context = context.clone();
            env.log_connection(&context.listener, &context.chain.name, &record, now);
        }
    }
}
