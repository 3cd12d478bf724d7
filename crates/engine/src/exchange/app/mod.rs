//! Streams of the app in this process, from its commands to its events.

pub(crate) mod avalanche;
pub(crate) mod back_off;
pub(crate) mod coalesce;
pub(crate) mod flow;
pub(crate) mod hedge;
pub(crate) mod limits;
pub(crate) mod liveness;
pub(crate) mod origin;
pub(crate) mod proxy;
pub(crate) mod queue;
pub(crate) mod resume;
pub(crate) mod retry;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::{Head, Method};
use towpath_proto::{Address, Close, ConnectionId, Failure, Instant};

use crate::conn::context::ChainContext;
use crate::conn::mux::{Mux, ONLY};
use crate::conn::spans::Phase;
use crate::conn::{Connection, Downstream, Reading, Role};
use crate::exchange::Exchange;
use crate::exchange::forward::Item;
use crate::exchange::retry::is_repeatable;
use crate::exchange::stream::{Progress, Stream, Upgrade};
use crate::ids::{Leg, Side, StreamIndex};
use crate::local::message::{
    CallId, Command, Error, Event, HttpVersions, Open, Outcome, Remembered, Repeat, Transport,
};
use crate::local::report::Report;
use crate::local::{Call, INITIAL_WINDOW_BYTES};
use crate::serving::HTTP2;
use crate::stats::Scope;

impl Exchange {
    pub(crate) fn app_context(&mut self) -> Rc<ChainContext> {
        if let Some(context) = &self.app_context {
            return Rc::clone(context);
        }
        let stats = self.env.registry.set(self.env.index, Scope::Listener(Arc::from("local")));
        let context = Rc::new(ChainContext::local(stats));
        self.upstreams.app.is_used = true;
        self.app_context = Some(Rc::clone(&context));
        context
    }

    pub(crate) fn stream_of(&self, call: CallId) -> Option<StreamIndex> {
        self.conns.table.get(*self.upstreams.app.calls.get(&call)?)?.streams.only()
    }

    /// The app wants something.
    pub(crate) fn on_command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Settings(settings) => self.upstreams.app.take_settings(*settings),
            Command::Tls(template) => self.upstreams.app.tls = Some(template),
            Command::Open(open) => self.open_call(*open, now),
            Command::Data { call, chunk } => self.on_call_data(call, chunk, now),
            Command::End { call } => self.on_call_end(call, now),
            Command::Consumed { call, bytes } => {
                if let Some(id) = self.upstreams.app.calls.get(&call).copied() {
                    self.on_sent(id, bytes, now);
                }
            }
            Command::Cancel { call } => {
                if let Some(index) = self.stream_of(call) {
                    self.fail_call(index, Error::Cancelled, now);
                }
            }
            Command::Network(change) => self.on_network_change(change, now),
            Command::Resolved { query, outcome, lifetime, by } => {
                self.on_resolved(query, outcome, lifetime, by, now)
            }
            Command::Find(find) => self.upstreams.app.find(find, &mut self.env, now),
            Command::Attempted { address, took } => {
                self.upstreams.app.on_attempted(address, took, now)
            }
            Command::Restore(Remembered { addresses, answers }) => {
                self.upstreams.app.memory.restore(addresses, now);
                self.upstreams.app.answers.restore(answers, now);
            }
            Command::Save => {
                let addresses = self.upstreams.app.memory.save(now);
                let answers = self.upstreams.app.answers.save(now);
                self.env.tell_app(Event::Saved(Remembered { addresses, answers }));
            }
        }
    }

    pub(crate) fn open_call(&mut self, open: Open, now: Instant) {
        let full = self.upstreams.app.calls.len() >= self.upstreams.app.settings.max_calls;
        let known = self.upstreams.app.calls.contains_key(&open.call);
        let refused = if full || known {
            Some(Error::Overflow)
        } else if !self.upstreams.app.reaches(&open.dialled()) && !open.options.waits {
            Some(Error::Offline)
        } else if wants_tls(&open) && self.upstreams.app.tls.is_none() {
            Some(Error::NoTls)
        } else if open.options.http == HttpVersions::Http2 && !HTTP2 {
            Some(Error::NoHttp2)
        } else {
            self.upstreams.app.limit_on(&open, now).map(Error::Limited)
        };
        if let Some(error) = refused {
            return self.env.refuse_call(open.call, error, now);
        }
        let Some(cluster) = self.origin(&open.origin, &open.options, now) else {
            return self.env.refuse_call(open.call, Error::Overflow, now);
        };
        if self.upstreams.app.is_denied(cluster, now) {
            let error = Error::Resolve(Failure::NoSuchName);
            return self.env.refuse_call(open.call, error, now);
        }
        let mut report = Box::<Report>::default();
        report.priority = open.options.priority;
        report.network = Arc::clone(self.upstreams.app.memory.network());
        report.proxy = open.options.proxy.clone();
        let upgrades = open.options.upgrades;
        let call = Call::new(open.call, open.options, report, now);
        let number = call.id;
        let Some(index) = self.open_local_stream(call, now) else { return };
        let Some(stream) = self.streams.get_mut(index) else { return };
        self.upstreams.app.calls.insert(number, stream.downstream.connection);
        stream.request.put(open.request, &mut self.env.heads);
        stream.trace_begin(Phase::Route);
        stream.head_only = stream.request.method() == Method::Head;
        if upgrades {
            stream.upgrade = Upgrade::Requested;
        }
        let bodiless = open.end && open.body.is_empty();
        stream.request_end = if bodiless { Progress::Ended } else { Progress::Streaming };
        stream.recorder.note(|record| record.protocol = Some(stream.request.version()));
        if bodiless {
            stream.times.request_end = Some(now);
        }
        stream.cluster = cluster;
        self.prepare_retries(index);
        self.upstreams.app.budget.earn();
        self.limit_answer(index, now);
        self.place_call(index, now);
        if bodiless {
            return;
        }
        self.on_call_data(number, open.body, now);
        if open.end {
            self.on_call_end(number, now);
        }
    }

    /// The stream, with the app as its downstream side.
    pub(crate) fn open_local_stream(&mut self, call: Call, now: Instant) -> Option<StreamIndex> {
        let context = self.app_context();
        let serial = self.env.serial.next_connection();
        let window = self.upstreams.app.settings.window_bytes;
        let mut downstream = Downstream::new(context, serial);
        (downstream.requests, downstream.ready) = (1, true);
        let role = Role::Downstream(downstream);
        let nowhere = Address::unspecified;
        let mux = Mux::App(Box::new(call));
        let id = self
            .conns
            .table
            .insert_local(|id| Connection::new(id, mux, role, nowhere(), nowhere(), window, now));
        self.open_stream(Leg { connection: id, number: ONLY }, now).map(|(index, _)| index)
    }

    pub(crate) fn prepare_retries(&mut self, index: StreamIndex) {
        let replay = self.upstreams.app.settings.replay_bytes;
        let Some(call) = self.call(index) else { return };
        let (repeat, retries) = (call.options.repeat, call.options.retries);
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.retries.repeatable = match repeat {
            Repeat::ByMethod => is_repeatable(stream.request.method()),
            Repeat::Always => true,
            Repeat::Never => false,
        };
        stream.retries.remaining = retries;
        stream.retries.buffer_limit = replay;
    }

    pub(crate) fn on_call_data(&mut self, call: CallId, chunk: Bytes, now: Instant) {
        let Some((id, index)) = self.streaming_call(call) else { return };
        let bytes = chunk.len();
        if bytes == 0 || !self.count_piece(index, bytes, now) {
            return;
        }
        self.forward(index, Side::Request, Item::Data(chunk), now);
        self.restart_first_byte(index, now);
        self.extend_body(index, bytes, now);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let held_back = connection.reading != Reading::On;
        let Mux::App(call) = &mut connection.mux else { return };
        if held_back {
            call.untaken += bytes;
        } else {
            let call = call.id;
            self.env.tell_app(Event::Room { call, bytes });
        }
    }

    fn on_call_end(&mut self, call: CallId, now: Instant) {
        if let Some((_, index)) = self.streaming_call(call) {
            self.forward(index, Side::Request, Item::End, now);
            self.arm_hedge(index, now);
        }
    }

    /// Hands a piece of the response to the app.
    pub(crate) fn deliver(&mut self, id: ConnectionId, item: Item, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Mux::App(state) = &connection.mux else { return };
        let call = state.id;
        match item {
            Item::Data(chunk) => {
                connection.outstanding += chunk.len();
                connection.encoded += chunk.len() as u64;
                let backs_up = connection.backs_up();
                let (bytes, stream) = (chunk.len(), connection.streams.only());
                self.env.tell_app(Event::Data { call, chunk });
                self.receive_piece(stream, bytes, now);
                if backs_up {
                    self.update_sources(id);
                }
            }
            Item::Trailers(trailers) => self.env.tell_app(Event::Trailers { call, trailers }),
            Item::End => {}
        }
    }

    /// Hands the head of the response to the app.
    pub(crate) fn deliver_head(&mut self, index: StreamIndex, now: Instant) {
        self.withdraw_standby(index);
        self.note_answer(index);
        if !self.settle_hedge(index, now) {
            return;
        }
        if self.join_rest(index, now) {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.status = stream.response.status();
        stream.recorder.note(|record| record.response_start = Some(now));
        let head: Head = stream.response.clone();
        self.begin_response_timers(index, now);
        self.note_resumable(index, now);
        let Some(call) = self.call(index).map(|call| call.id) else { return };
        self.env.tell_app(Event::Head { call, head });
    }

    /// Ends a request that cannot be answered.
    pub(crate) fn fail_call(&mut self, index: StreamIndex, error: Error, now: Instant) {
        if let Some(call) = self.call_mut(index) {
            call.error.get_or_insert(error);
        }
        self.detach(index, Close::Abort, now);
        self.finish(index, now);
    }

    /// The last word on a request; its stream is over.
    pub(crate) fn end_call(&mut self, stream: &mut Stream, now: Instant) {
        let id = stream.downstream.connection;
        let Some(connection) = self.conns.table.remove(id) else { return };
        let Mux::App(mut call) = connection.mux else { return };
        if call.secondary {
            return self.end_mute(&mut call);
        }
        self.upstreams.app.calls.remove(&call.id);
        let outcome = match call.error {
            None if stream.response_end == Progress::Ended => Outcome::Complete,
            error => Outcome::Failed(error.unwrap_or(Error::Disconnected)),
        };
        if self.hand_over(&mut call, outcome, stream.retries.remaining, now) {
            return;
        }
        self.upstreams.app.complete_report(&mut call, stream.cluster, now);
        let mut report = call.report;
        stream.recorder.move_record(&mut report.record);
        self.upstreams.app.learn_from(&report, outcome, stream.cluster);
        self.env.tell_app(Event::Ended { call: call.id, outcome, report });
    }

    /// The app's side of a stream, if it is the app's.
    pub(crate) fn call(&self, index: StreamIndex) -> Option<&Call> {
        let downstream = self.streams.get(index)?.downstream.connection;
        let Mux::App(call) = &self.conns.table.get(downstream)?.mux else { return None };
        Some(call)
    }

    pub(crate) fn call_mut(&mut self, index: StreamIndex) -> Option<&mut Call> {
        let downstream = self.streams.get(index)?.downstream.connection;
        let Mux::App(call) = &mut self.conns.table.get_mut(downstream)?.mux else {
            return None;
        };
        Some(call)
    }

    /// A request whose body is under way.
    pub(crate) fn streaming_call(&self, call: CallId) -> Option<(ConnectionId, StreamIndex)> {
        let id = *self.upstreams.app.calls.get(&call)?;
        let index = self.conns.table.get(id)?.streams.only()?;
        let streams = self.streams.get(index)?.request_end == Progress::Streaming;
        streams.then_some((id, index))
    }

    /// Whether an app's body is more than a new connection takes at once. The head travels in a packet of its own then:
    /// its acknowledgement is the only one that measures the path without the body's own queue, and by that measure the
    /// kernel ends slow start before the queue overflows (RFC 9406, HyStart).
    pub(crate) fn is_large_upload(&self, index: StreamIndex) -> bool {
        self.call(index).is_some_and(|call| call.options.body_bytes > INITIAL_WINDOW_BYTES)
    }
}

/// Whether its origin, or the proxy on the way there, is spoken to under TLS.
fn wants_tls(open: &Open) -> bool {
    let proxy = open.options.proxy.as_ref().map(|proxy| proxy.transport);
    open.origin.transport == Transport::Tls || proxy == Some(Transport::Tls)
}
