//! The end of a downstream connection, counted and logged once.

use std::time::Duration;

use towpath_proto::{Close, ConnectionId, Instant, Output, ReadInterest};

use crate::conn::carried::Carried;
use crate::conn::mux::Mux;
use crate::conn::{Closing, ConnectionTimer, Connections, Reading, Role};
use crate::deadlines::Deadlines;
use crate::downstream::listener::{Listeners, connection_record};
use crate::env::Env;
use crate::env::log::{ConnectionLine, TCP_CONNECTION_END};
use crate::ids::Closer;
use crate::record::{CloseType, Flags, close};

impl Listeners {
    /// Closes a downstream connection that carries nothing.
    pub(crate) fn close_client(
        &mut self,
        id: ConnectionId,
        closer: Closer,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let connection = conns.table.get(id);
        let Some(downstream) = connection.and_then(|connection| connection.downstream()) else {
            return;
        };
        let http = downstream.context.http();
        let wait = http.map_or(CLOSE_DELAY, |http| http.config.delayed_close_timeout);
        self.close_within(id, wait, closer, conns, env, now);
    }

    /// Ends a connection behind what is written for it: our FIN first, the rest when the peer has seen it or `wait` is
    /// over. What the peer sends is no reason to wait longer; what it takes is (Envoy's `delayed_close_timeout`).
    pub(crate) fn close_within(
        &mut self,
        id: ConnectionId,
        wait: Duration,
        closer: Closer,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        conns.take_leave(id, env);
        if conns.out_for == Some(id) {
            conns.flush_out(env);
        }
        let Some(connection) = conns.table.get(id) else { return };
        if wait.is_zero() || (connection.ended && connection.outstanding == 0) {
            self.count_downstream_close(id, closer, conns, env, now);
            conns.end_connection(id, Close::Flush, env);
            self.check_drained(env);
            return;
        }
        conns.send_close_notify(id, env);
        conns.push(Output::Close { connection: id, how: Close::Half }, env);
        self.begin_closing(id, Hold { wait, closer, refused: false }, conns, env, now);
        self.check_drained(env);
    }

    /// From here on a client's connection only waits for its end.
    pub(crate) fn begin_closing(
        &mut self,
        id: ConnectionId,
        hold: Hold,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(mut connection) = conns.table.remove(id) else { return };
        let Hold { wait, closer, refused } = hold;
        if let Role::Downstream(downstream) = connection.role {
            self.closing += 1;
            let takes = if downstream.broken { BROKEN_BYTES } else { LATE_BYTES };
            let closing = Closing { downstream, closer, wait, refused, takes };
            connection.role = Role::Closing(Box::new(closing));
        }
        connection.streams = Carried::default();
        connection.deadlines = Deadlines::new();
        let reading = std::mem::replace(&mut connection.reading, Reading::On);
        conns.table.insert(*connection);
        if reading != Reading::On {
            let interest = ReadInterest::On;
            conns.push(Output::ReadInterest { connection: id, interest }, env);
        }
        conns.set_connection_timer(id, ConnectionTimer::DelayedClose, now + wait, env);
    }

    /// The peer goes on sending. Reading it costs time that others have a better claim to; not reading it at all would
    /// make a client wait that sends the rest of its request before it looks at the response.
    pub(crate) fn on_closing_received(
        id: ConnectionId,
        bytes: usize,
        conns: &mut Connections,
        env: &mut Env,
    ) {
        let Some(connection) = conns.table.get_mut(id) else { return };
        let Role::Closing(closing) = &mut connection.role else { return };
        closing.takes = closing.takes.saturating_sub(bytes);
        if closing.takes == 0 && connection.reading == Reading::On {
            connection.reading = Reading::Off;
            let interest = ReadInterest::Off;
            conns.push(Output::ReadInterest { connection: id, interest }, env);
        }
    }

    /// The kernel took some of the last bytes.
    pub(crate) fn on_closing_sent(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(connection) = conns.table.get(id) else { return };
        let Role::Closing(closing) = &connection.role else { return };
        if connection.outstanding == 0 {
            if connection.ended {
                return self.end_closing(id, Close::Flush, conns, env, now);
            }
            // As in Envoy. The driver would wait for such a one, in no limit's count.
            if connection.mux.sends_no_more() {
                return self.end_closing(id, Close::Now, conns, env, now);
            }
        }
        let at = now + closing.wait;
        conns.set_connection_timer(id, ConnectionTimer::DelayedClose, at, env);
    }

    /// The peer had its time.
    pub(crate) fn on_closing_deadline(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(connection) = conns.table.get_mut(id) else { return };
        if let Role::Closing(closing) = &mut connection.role
            && let Some(http) = closing.downstream.context.http()
            && !closing.refused
        {
            http.stats.downstream_cx_delayed_close_timeout.inc();
            if let Closer::Local(reason) = &mut closing.closer {
                *reason = close::LATE;
            }
        }
        self.end_closing(id, Close::Now, conns, env, now);
    }

    /// A closing connection is over.
    pub(crate) fn end_closing(
        &mut self,
        id: ConnectionId,
        how: Close,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        self.count_closing(id, conns, env, now);
        conns.end_connection(id, how, env);
        self.check_drained(env);
    }

    /// Counts the end of a closing connection.
    pub(crate) fn count_closing(
        &mut self,
        id: ConnectionId,
        conns: &mut Connections,
        env: &mut Env,
        now: Instant,
    ) {
        let Some(connection) = conns.table.get(id) else { return };
        if let Role::Closing(closing) = &connection.role {
            let closer = closing.closer;
            self.count_downstream_close(id, closer, conns, env, now);
        }
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
        let Some(connection) = conns.table.get_mut(id) else { return };
        let is_logged = connection.client().is_some_and(|it| {
            !it.context.listener.access_logs.is_empty() || (!it.ready && it.context.is_recorded)
        });
        let tls = if is_logged { connection.downstream_tls() } else { None };
        let Some(downstream) = connection.client() else { return };
        let closing = match &connection.role {
            Role::Closing(closing) => Some(closing.refused),
            Role::Arriving(_) | Role::Downstream(_) | Role::Upstream(_) => None,
        };
        connection.trace_closed();
        let context = &downstream.context;
        let age_ms = u64::try_from((now - connection.opened).as_millis()).unwrap_or(u64::MAX);
        let listener = &context.stats;
        listener.downstream_cx_active.dec();
        context.worker_stats.downstream_cx_active.dec();
        listener.downstream_cx_destroy.inc();
        listener.downstream_cx_length_ms.record(age_ms);
        if let Some(http) = context.http() {
            let stats = &http.stats;
            stats.downstream_cx_active.dec();
            if connection.mux.is_http2() {
                stats.downstream_cx_http2_active.dec();
            } else if downstream.ready
                && context.bolt().is_none()
                && !matches!(connection.mux, Mux::Undecided(_))
            {
                stats.downstream_cx_http1_active.dec();
            }
            if context.tls.is_some() {
                stats.downstream_cx_ssl_active.dec();
            }
            stats.downstream_cx_destroy.inc();
            match closer {
                Closer::Local(_) => stats.downstream_cx_destroy_local.inc(),
                Closer::Remote | Closer::RemoteReset => stats.downstream_cx_destroy_remote.inc(),
            }
            stats.downstream_cx_length_ms.record(age_ms);
            stats.downstream_cx_rx_bytes_total.add(connection.bytes_received);
            stats.downstream_cx_tx_bytes_total.add(connection.bytes_sent);
            stats.downstream_cx_tx_bytes_buffered.sub(connection.shown_buffered.into());
        } else if let Some(tcp) = context.tcp() {
            tcp.stats.downstream_cx_rx_bytes_total.add(connection.bytes_received);
            tcp.stats.downstream_cx_tx_bytes_total.add(connection.bytes_sent);
            tcp.stats.downstream_cx_tx_bytes_buffered.sub(connection.shown_buffered.into());
        }
        self.release(context, closing);
        // Of opaque bytes their stream tells, also where its client was turned away. Where a handshake came to nothing
        // there is none, and the TCP proxy's lines are written here too.
        let of_tcp = match context.tcp() {
            Some(_) if downstream.ready || downstream.requests != 0 => return,
            Some(tcp) => &tcp.config.access_logs[..],
            None => &[],
        };
        if context.listener.access_logs.is_empty() && of_tcp.is_empty() {
            return;
        }
        let mut record =
            connection_record(connection.local.clone(), connection.peer.clone(), connection.opened);
        record.connection = downstream.serial;
        record.downstream_tls = tls;
        record.client = connection.told();
        // What becomes of a connection of HTTP is told of its streams alone.
        record.client.closed = context.tcp().map(|_| now);
        record.proxied = downstream.proxied().cloned();
        let mut state = &[][..];
        if let Some(particulars) = &downstream.particulars {
            if particulars.over_rate {
                record.flags.set(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
            }
            record.downstream_direct_remote = Some(connection.direct_peer().clone());
            record.server_name = particulars.server_name.clone();
            record.fingerprints = particulars.fingerprints.clone();
            record.termination = particulars.termination;
            record.connection_metadata = particulars.metadata.clone();
            state = &particulars.state;
        }
        if downstream.ready || context.tls.is_none() {
            record.bytes_received = connection.bytes_received;
            record.bytes_sent = connection.bytes_sent;
        }
        if downstream.broken {
            record.flags.set(Flags::DOWNSTREAM_PROTOCOL_ERROR);
        }
        match closer {
            Closer::Local(close::DRAINED) if downstream.broken => {
                record.local_close = close::CODEC_ERROR;
            }
            Closer::Local(reason) => record.local_close = reason,
            Closer::Remote => {}
            Closer::RemoteReset => record.close_type = CloseType::RemoteReset,
        }
        record.end = Some(now);
        let (listener, chain) = (&context.listener, Some(&*context.chain));
        let line = ConnectionLine { listener, chain, state, kind: None };
        env.log_connection(&listener.access_logs, &line, &record, now);
        let line = ConnectionLine { kind: Some(TCP_CONNECTION_END), ..line };
        env.log_connection(of_tcp, &line, &record, now);
    }
}

/// How a closing connection is held.
pub(crate) struct Hold {
    pub(crate) wait: Duration,
    pub(crate) closer: Closer,
    pub(crate) refused: bool,
}

/// What a client may send behind a request that was answered early.
const LATE_BYTES: usize = 64 * 1024 * 1024;
/// The same, behind what is not HTTP.
const BROKEN_BYTES: usize = 64 * 1024;

/// Envoy's default of `delayed_close_timeout`, for connections without one.
const CLOSE_DELAY: Duration = Duration::from_secs(1);
