//! The local interface: requests that come from this process, not from a listener.
//!
//! Arrives: an app's [`Command`]s. Leaves: a stream as any other, whose downstream side is not a socket but the app; and
//! [`Event`]s, of which exactly one ends each request.
//!
//! The app's side of a stream is a `Connection` without a socket: it has the same watermark, congestion and
//! reading as one that has, so that the forwarding loop treats it alike. What it is "sent" leaves as events, and
//! counts as outstanding until the app has used it.

mod avalanche;
mod finder;
mod flow;
mod hedge;
mod limits;
pub mod message;
mod origin;
mod queue;
mod redo;
pub mod report;
mod rest;
mod resume;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::{Head, Method};
use towpath_proto::tls::ClientTemplate;
use towpath_proto::{Address, Close, ConnectionId, Instant, QueryId};

use crate::client::answers::Answers;
use crate::client::avalanche::{Flow, Identical};
use crate::client::budget::{Budget, Rate};
use crate::client::memory::Memory;
use crate::client::timeouts::Network;
use crate::connection::Connections;
use crate::connection::{Codec, Connection, Downstream, Reading, Role};
use crate::env::Env;
use crate::exchange::Exchange;
use crate::forward::Item;
use crate::ids::{NO_CLUSTER, Side, StreamIndex};
use crate::listener::{ChainContext, ChainKind};
use crate::message::FromWorker;
use crate::retry::is_repeatable;
use crate::snapshot::ClusterId;
use crate::snapshot::TcpProxy;
use crate::snapshot::listener::{ChainMatch, Direction as Way, FilterChain, Listener, Terminal};
use crate::snapshot::route::ClusterChoice;
use crate::spans::Part;
use crate::stats::Scope;
use crate::stream::{Direction, Stream, StreamTimer};

use message::{
    CallId, Command, Error, Event, Open, Options, Outcome, Remembered, Repeat, Settings, Transport,
};
use origin::OriginState;
use report::Report;
use resume::Resume;

/// What a worker keeps for its app.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) settings: Settings,
    tls: Option<ClientTemplate>,
    context: Option<Rc<ChainContext>>,
    calls: HashMap<CallId, ConnectionId>,
    names: HashMap<message::Origin, ClusterId>,
    pub(crate) origins: HashMap<ClusterId, OriginState>,
    queries: HashMap<QueryId, ClusterId>,
    finds: HashMap<QueryId, message::Find>,
    next_query: u64,
    pub(crate) memory: Memory,
    answers: Answers,
    pub(crate) probes: Rate,
    pub(crate) budget: Budget,
    identical: Identical,
    flow: Flow,
    kind: Network,
    online: bool,
    spares_loopback: bool,
}

impl Default for Local {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            tls: None,
            context: None,
            calls: HashMap::new(),
            names: HashMap::new(),
            origins: HashMap::new(),
            queries: HashMap::new(),
            finds: HashMap::new(),
            next_query: 0,
            memory: Memory::new(),
            answers: Answers::default(),
            probes: Rate::new(settings.probes_per_second, settings.probes_per_second * 2),
            budget: Budget::new(20, settings.max_repetitions),
            identical: Identical::new(settings.max_identical, settings.identical_window),
            flow: Flow::new(settings.max_flow_bytes, settings.flow_window),
            kind: Network::Fixed,
            online: true,
            spares_loopback: false,
            settings,
        }
    }
}

impl Local {
    /// Whether an app has ever made a request.
    pub(crate) fn is_used(&self) -> bool {
        self.context.is_some()
    }

    /// Whether there is a way to an origin, as far as the platform says.
    fn reaches(&self, origin: &message::Origin) -> bool {
        self.online || self.spares(origin)
    }

    /// Whether what the platform says of the network does not concern an origin.
    fn spares(&self, origin: &message::Origin) -> bool {
        self.spares_loopback && origin.is_loopback()
    }
}

/// The app's side of a stream: its codec's place in the [`Connection`].
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) options: Options,
    pub(crate) report: Report,
    /// Why it failed, once it has.
    pub(crate) error: Option<Error>,
    /// When it began, and until when it last waited for a connection.
    pub(crate) began: Instant,
    pub(crate) waited_until: Option<Instant>,
    /// It waits for a spare connection while it is on another.
    pub(crate) spare: Option<Spare>,
    /// It has asked for one to see whether the network is there.
    pub(crate) silent_asked: bool,
    /// The one beside it, with the same number.
    pub(crate) twin: Option<ConnectionId>,
    /// The app hears nothing of it: its twin is the request, or was.
    pub(crate) mute: bool,
    /// Its response can go on on another connection.
    pub(crate) resume: Option<Box<Resume>>,
    /// Bytes of its body that count to the limit already.
    counted: u64,
    /// Bytes that were taken from the app while the stream was held back.
    untaken: usize,
}

impl Call {
    fn new(id: CallId, options: Options, report: Report, began: Instant) -> Self {
        Self {
            id,
            counted: options.body_bytes,
            options,
            report,
            error: None,
            began,
            waited_until: None,
            spare: None,
            silent_asked: false,
            twin: None,
            mute: false,
            resume: None,
            untaken: 0,
        }
    }
}

/// A wish for a connection beside the one that a request is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) pool_key: crate::ids::PoolKey,
    pub(crate) since: Instant,
    pub(crate) reason: SpareReason,
}

/// What is held against the connection that a request is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpareReason {
    /// What was sent is not acknowledged.
    Stuck,
    /// Nothing comes; whether the network or the server is to blame shows when the spare connects.
    Silent,
}

impl Exchange {
    /// The app wants something.
    pub(crate) fn on_command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Settings(settings) => self.upstreams.app.take_settings(*settings),
            Command::Tls(template) => self.upstreams.app.tls = Some(template),
            Command::Open(open) => self.open_call(*open, now),
            Command::Data { call, chunk } => self.on_call_data(call, chunk, now),
            Command::End { call } => {
                if let Some((_, index)) = self.streaming_call(call) {
                    self.forward(index, Side::Request, Item::End, now);
                    self.arm_hedge(index, now);
                }
            }
            Command::Consumed { call, bytes } => {
                if let Some(id) = self.upstreams.app.calls.get(&call).copied() {
                    self.on_sent(id, bytes, now);
                }
            }
            Command::Cancel { call } => {
                if let Some(index) = self.upstreams.app.stream_of(call, &self.conns) {
                    self.fail_call(index, Error::Cancelled, now);
                }
            }
            Command::Network(change) => self.on_network_change(change, now),
            Command::Resolved { query, outcome } => self.on_resolved(query, outcome, now),
            Command::Find(find) => {
                self.upstreams.app.find(find, &mut self.conns, &mut self.env, now)
            }
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

    fn open_call(&mut self, open: Open, now: Instant) {
        let full = self.upstreams.app.calls.len() >= self.upstreams.app.settings.max_calls;
        let known = self.upstreams.app.calls.contains_key(&open.call);
        let refused = if full || known {
            Some(Error::Overflow)
        } else if !self.upstreams.app.reaches(&open.origin) && !open.options.waits {
            Some(Error::Offline)
        } else if open.origin.transport == Transport::Tls && self.upstreams.app.tls.is_none() {
            Some(Error::NoTls)
        } else {
            self.upstreams.app.limit_on(&open, now).map(Error::Limited)
        };
        if let Some(error) = refused {
            return self.env.refuse_call(open.call, error, now);
        }
        let Some(cluster) = self.origin(&open.origin, now) else {
            return self.env.refuse_call(open.call, Error::Overflow, now);
        };
        let report = Report {
            priority: open.options.priority,
            network: Arc::clone(self.upstreams.app.memory.network()),
            ..Report::default()
        };
        let call = Call::new(open.call, open.options, report, now);
        let (number, total) = (call.id, call.options.total);
        let Some(index) = self.open_local_stream(call, now) else { return };
        let Some(stream) = self.streams.get_mut(index) else { return };
        self.upstreams.app.calls.insert(number, stream.downstream);
        let unused = std::mem::replace(&mut stream.request, open.request);
        self.env.heads.give(unused);
        stream.trace_begin(Part::Route);
        stream.head_only = stream.request.method() == Method::Head;
        stream.request_end = if open.end { Direction::Ended } else { Direction::Streaming };
        stream.record.protocol = Some(stream.request.version());
        if open.end {
            stream.record.request_end = Some(now);
        }
        stream.cluster = cluster;
        self.prepare_retries(index);
        self.upstreams.app.budget.earn();
        if let Some(total) = total {
            self.streams.set_stream_timer(
                index,
                StreamTimer::MaxDuration,
                now + total,
                &mut self.env,
            );
        }
        self.place_call(index, now);
    }

    /// The stream, with the app as its downstream side.
    fn open_local_stream(&mut self, call: Call, now: Instant) -> Option<StreamIndex> {
        let context = self.upstreams.app.app_context(&mut self.env);
        let serial = self.env.serial.next_connection();
        let window = self.upstreams.app.settings.window_bytes;
        let role = Role::Downstream(Downstream { context, requests: 1, closing: false, serial });
        let nowhere = Address::unspecified;
        let codec = Codec::Local(Box::new(call));
        let id = self
            .conns
            .table
            .insert_local(|id| Connection::new(id, codec, role, nowhere(), nowhere(), window, now));
        self.open_stream(id, now).map(|(index, _)| index)
    }

    fn prepare_retries(&mut self, index: StreamIndex) {
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

    fn on_call_data(&mut self, call: CallId, chunk: Bytes, now: Instant) {
        let Some((id, index)) = self.streaming_call(call) else { return };
        let bytes = chunk.len();
        if bytes == 0 || !self.count_piece(index, bytes, now) {
            return;
        }
        self.forward(index, Side::Request, Item::Data(chunk), now);
        self.restart_first_byte(index, now);
        self.extend_body(index, bytes, now);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let held_back = connection.reading == Reading::Off;
        let Codec::Local(call) = &mut connection.codec else { return };
        if held_back {
            call.untaken += bytes;
        } else {
            let call = call.id;
            self.env.tell_app(Event::Room { call, bytes });
        }
    }

    /// Hands a piece of the response to the app.
    pub(crate) fn deliver(&mut self, id: ConnectionId, item: Item, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let Codec::Local(state) = &connection.codec else { return };
        let call = state.id;
        match item {
            Item::Data(chunk) => {
                connection.outstanding += chunk.len();
                connection.encoded += chunk.len() as u64;
                let backs_up = connection.backs_up();
                let (bytes, stream) = (chunk.len(), connection.stream);
                self.env.tell_app(Event::Data { call, chunk });
                self.receive_piece(stream, bytes, now);
                if backs_up && let Some(source) = self.other_side(id) {
                    self.update_reading(source);
                }
            }
            Item::Trailers(trailers) => self.env.tell_app(Event::Trailers { call, trailers }),
            Item::End => {}
        }
    }

    /// Hands the head of the response to the app.
    pub(crate) fn deliver_head(&mut self, index: StreamIndex, now: Instant) {
        self.withdraw_spare(index);
        self.note_answer(index);
        if !self.settle_hedge(index, now) {
            return;
        }
        if self.join_rest(index, now) {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.record.status = stream.response.status();
        stream.record.response_start = Some(now);
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
        let id = stream.downstream;
        let Some(mut connection) = self.conns.table.remove(id) else { return };
        let Codec::Local(call) = &mut connection.codec else { return };
        if call.mute {
            return self.end_mute(call);
        }
        self.upstreams.app.calls.remove(&call.id);
        let outcome = match call.error {
            None if stream.response_end == Direction::Ended => Outcome::Complete,
            error => Outcome::Failed(error.unwrap_or(Error::Disconnected)),
        };
        if self.hand_over(call, outcome, stream.retries.remaining, now) {
            return;
        }
        let mut report = std::mem::take(&mut call.report);
        self.upstreams.app.complete_report(&mut report, call, stream.cluster, now);
        report.record = std::mem::take(&mut stream.record);
        self.upstreams.app.learn_from(&report, outcome, stream.cluster);
        let (call, report) = (call.id, Box::new(report));
        self.env.tell_app(Event::Ended { call, outcome, report });
    }

    /// The app's side of a stream, if it is the app's.
    pub(crate) fn call(&self, index: StreamIndex) -> Option<&Call> {
        let downstream = self.streams.get(index)?.downstream;
        let Codec::Local(call) = &self.conns.table.get(downstream)?.codec else { return None };
        Some(call)
    }

    pub(crate) fn call_mut(&mut self, index: StreamIndex) -> Option<&mut Call> {
        let downstream = self.streams.get(index)?.downstream;
        let Codec::Local(call) = &mut self.conns.table.get_mut(downstream)?.codec else {
            return None;
        };
        Some(call)
    }

    /// A request whose body is under way.
    fn streaming_call(&self, call: CallId) -> Option<(ConnectionId, StreamIndex)> {
        let id = *self.upstreams.app.calls.get(&call)?;
        let index = self.conns.table.get(id)?.stream?;
        let streams = self.streams.get(index)?.request_end == Direction::Streaming;
        streams.then_some((id, index))
    }

    /// Whether an app's body is more than a new connection takes at once. The head travels in a packet of its own then: its
    /// acknowledgement is the only one that measures the path without the body's own queue, and by that measure the kernel
    /// ends slow start before the queue overflows (RFC 9406, HyStart).
    pub(crate) fn is_large_upload(&self, index: StreamIndex) -> bool {
        self.call(index).is_some_and(|call| call.options.body_bytes > INITIAL_WINDOW_BYTES)
    }
}

impl Local {
    fn take_settings(&mut self, settings: Settings) {
        self.probes =
            Rate::new(settings.probes_per_second, settings.probes_per_second.saturating_mul(2));
        self.budget = Budget::new(20, settings.max_repetitions);
        self.identical = Identical::new(settings.max_identical, settings.identical_window);
        self.flow = Flow::new(settings.max_flow_bytes, settings.flow_window);
        self.settings = settings;
    }

    fn stream_of(&self, call: CallId, conns: &Connections) -> Option<StreamIndex> {
        conns.table.get(*self.calls.get(&call)?)?.stream
    }

    /// Requests of the app that are under way.
    pub(crate) fn calls_in_flight(&self) -> u32 {
        u32::try_from(self.calls.len()).unwrap_or(u32::MAX)
    }

    fn app_context(&mut self, env: &mut Env) -> Rc<ChainContext> {
        if let Some(context) = &self.context {
            return Rc::clone(context);
        }
        let stats = env.registry.set(env.index, Scope::Listener(Arc::from("local")));
        let context = Rc::new(ChainContext::local(stats));
        self.context = Some(Rc::clone(&context));
        context
    }
}

impl Connections {
    /// The app's side of a stream is read again, or not: what was held back is taken.
    pub(crate) fn on_local_reading(&mut self, id: ConnectionId, env: &mut Env) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.reading == Reading::Off {
            return;
        }
        let Codec::Local(call) = &mut connection.codec else { return };
        let (bytes, call) = (std::mem::take(&mut call.untaken), call.id);
        if bytes > 0 {
            env.tell_app(Event::Room { call, bytes });
        }
    }
}

impl Env {
    /// Ends a request that does not begin.
    fn refuse_call(&mut self, call: CallId, error: Error, now: Instant) {
        let mut report = Box::new(Report::default());
        (report.record.start, report.record.end) = (now, Some(now));
        self.tell_app(Event::Ended { call, outcome: Outcome::Failed(error), report });
    }

    pub(crate) fn tell_app(&mut self, event: Event) {
        self.tell(FromWorker::Local(event));
    }
}

impl Stream {
    /// Whether its request comes from the app in this process.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.context.kind, ChainKind::Local)
    }
}

/// What a kernel sends on a new connection before anything is acknowledged: ten segments (RFC 6928).
const INITIAL_WINDOW_BYTES: u64 = 14_600;

/// What stands for a listener where there is none.
pub(crate) fn no_listener() -> (Listener, FilterChain) {
    let listener = Listener {
        name: "local".into(),
        stat_prefix: "local".into(),
        addresses: Vec::new(),
        bind: false,
        options: Arc::default(),
        chains: Vec::new(),
        default_chain: None,
        buffer_limit: 0,
        max_connections: None,
        // It is none of those that the limit counts.
        ignore_global_limit: true,
        direction: Way::Unspecified,
        modify_only: false,
        access_logs: Vec::new(),
    };
    let nothing = TcpProxy {
        stat_prefix: "local".into(),
        cluster: ClusterChoice::One(NO_CLUSTER),
        idle_timeout: None,
        max_duration: None,
        max_connect_attempts: 1,
        access_logs: Vec::new(),
    };
    let chain = FilterChain {
        name: "".into(),
        matches: ChainMatch::default(),
        filters: Vec::new(),
        // The kind says what takes its streams: a chain of the app's has no configuration.
        terminal: Terminal::Tcp(Arc::new(nothing)),
        transport_timeout: None,
    };
    (listener, chain)
}
