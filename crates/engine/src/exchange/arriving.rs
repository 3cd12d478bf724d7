//! Connections whose filter chain is not chosen yet: their listener's filters look at the first bytes.
//!
//! Arrives: an accepted connection of a listener with filters, its bytes, its end, or the end of the time for them.
//! Leaves: a connection for a filter chain and what of its bytes was not for a filter; or its end. It counts in all
//! limits from its first moment on.

use bytes::Buf;
use towpath_proto::{Close, ConnectionId, Instant, Output};

use crate::conn::mux::{Mux, Raw};
use crate::conn::{Arriving, Connection, ConnectionTimer, Role};
use crate::downstream::listener::{ListenerPhase, connection_record};
use crate::env::TimerSlot;
use crate::env::log::ConnectionLine;
use crate::exchange::Exchange;
use crate::record::Record;
use crate::snapshot::listener::{Arrival, Look};

impl Exchange {
    /// A client connected to a listener with filters.
    pub(crate) fn begin_arriving(
        &mut self,
        slot: usize,
        id: ConnectionId,
        arrival: Arrival,
        now: Instant,
    ) {
        let (local, peer) = (arrival.local.clone(), arrival.peer.clone());
        let Some(arriving) = self.listeners.begin_arriving(slot, arrival) else { return };
        let (limit, timeout) = (arriving.config.buffer_limit, arriving.config.filters.timeout);
        let (mux, role) = (Mux::Raw(Raw::default()), Role::Arriving(Box::new(arriving)));
        let connection = Connection::new(id, mux, role, local, peer, limit.bytes, now);
        self.conns.table.insert(connection);
        self.conns.push(limit.of_reads(id), &mut self.env);
        if let Some(timeout) = timeout {
            let timer = ConnectionTimer::RequestHead;
            self.conns.set_connection_timer(id, timer, now + timeout, &mut self.env);
        }
        self.ask_filters(id, now);
    }

    pub(crate) fn on_arriving_received(&mut self, id: ConnectionId, chunk: &[u8], now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Role::Arriving(arriving) = &mut connection.role else { return };
        arriving.received.extend_from_slice(chunk);
        self.ask_filters(id, now);
    }

    /// Shows the filters what has come, until one needs more.
    fn ask_filters(&mut self, id: ConnectionId, now: Instant) {
        loop {
            let Some(connection) = self.conns.table.get_mut(id) else { return };
            let Role::Arriving(arriving) = &mut connection.role else { return };
            let Some(filter) = arriving.filters.get(arriving.passed) else {
                return self.admit_arrived(id, now);
            };
            // It sees no more than it may ask for, however much has come at once.
            let shown = arriving.received.len().min(filter.most_bytes());
            match filter.look(&arriving.received[..shown], &mut arriving.arrival, now) {
                Look::More if arriving.received.len() < filter.most_bytes() => return,
                // As in Envoy, whose kernel resets what has bytes that have not been read.
                Look::More | Look::Refused => {
                    let is_unread = arriving.received.is_empty();
                    let how = if is_unread { Close::Now } else { Close::Abort };
                    return self.end_arriving(id, Some(how), now);
                }
                Look::Unconfigured => {
                    arriving.stats.extension_config_missing.inc();
                    return self.end_arriving(id, Some(Close::Flush), now);
                }
                Look::Done { takes } => {
                    arriving.received.advance(takes.min(arriving.received.len()));
                    arriving.passed += 1;
                }
            }
        }
    }

    /// All filters have passed a connection, or their time is over: its filter chain gets what has come.
    fn admit_arrived(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.remove(id) else { return };
        self.env.timers.clear(TimerSlot::of_connection(id));
        let Role::Arriving(arriving) = connection.role else { return };
        let slot = arriving.slot;
        let is_open = self.listeners.end_arriving(&arriving) == ListenerPhase::Open;
        if !is_open {
            self.conns.push(Output::Close { connection: id, how: Close::Flush }, &mut self.env);
            return self.listeners.check_drained(&mut self.env);
        }
        let Arriving { config, mut arrival, received, .. } = *arriving;
        // Once: what it is handed to does not hand it on.
        let original = arrival.original.take().filter(|_| config.filters.hands_over);
        match original.and_then(|original| self.listeners.at(original)) {
            Some(other) if self.listeners.has_filters(other) => {
                self.begin_arriving(other, id, arrival, now);
            }
            Some(other) => self.admit(other, id, arrival, now),
            None => self.admit(slot, id, arrival, now),
        }
        if !received.is_empty() && self.conns.table.get(id).is_some() {
            self.on_received(id, received.freeze(), now);
        }
    }

    /// The filters have had their time.
    pub(crate) fn on_arriving_deadline(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let Role::Arriving(arriving) = &connection.role else { return };
        arriving.stats.downstream_pre_cx_timeout.inc();
        if arriving.config.filters.continues_on_timeout {
            self.admit_arrived(id, now);
        } else {
            self.end_arriving(id, Some(Close::Flush), now);
        }
    }

    /// A client sends nothing more while a filter wants more. What it has sent and no filter has taken is unread: to
    /// Envoy, which only peeks, it is the kernel's, and resets the connection.
    pub(crate) fn on_arriving_ended(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let Role::Arriving(arriving) = &connection.role else { return };
        arriving.stats.downstream_listener_filter_remote_close.inc();
        let how = if arriving.received.is_empty() { Close::Flush } else { Close::Abort };
        self.end_arriving(id, Some(how), now);
    }

    /// A connection is gone while a filter wants more. Envoy sees that only of one that has nothing unread, and holds
    /// any other until its time is over.
    pub(crate) fn on_arriving_closed(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        let Role::Arriving(arriving) = &connection.role else { return };
        arriving.stats.downstream_listener_filter_error.inc();
        self.end_arriving(id, None, now);
    }

    /// A connection ends before a filter chain has it; how, unless it is gone already.
    pub(crate) fn end_arriving(&mut self, id: ConnectionId, how: Option<Close>, now: Instant) {
        let Some(connection) = self.conns.table.remove(id) else { return };
        self.env.timers.clear(TimerSlot::of_connection(id));
        if let Some(how) = how {
            self.conns.push(Output::Close { connection: id, how }, &mut self.env);
        }
        let opened = connection.opened;
        let Role::Arriving(arriving) = connection.role else { return };
        self.listeners.end_arriving(&arriving);
        let Arrival { local, peer, proxied, .. } = arriving.arrival;
        let record = Record { proxied, ..connection_record(local, peer, opened) };
        let config = &arriving.config;
        let line = ConnectionLine { listener: config, chain: None, state: &[], kind: None };
        self.env.log_connection(&config.access_logs, &line, &record, now);
        self.listeners.check_drained(&mut self.env);
    }
}
