//! Requests of filters to clusters, and the streams that wait for what comes of them; and reports of spans.
//!
//! Arrives: a [`Callout`] of a filter that looked at a request. Leaves: its [`Answer`], back to that filter.
//!
//! A callout is a stream without a client: from its cluster on it is as any other. What it leads to is done as
//! [`Work`], so that no filter is called by the end of a stream.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustc_hash::FxHashMap;
use towpath_proto::name::Name;
use towpath_proto::{Close, ConnectionId, Head, Instant};

use crate::conn::context::ChainContext;
use crate::env::{Env, Work};
use crate::exchange::Exchange;
use crate::exchange::callout_spans::CalloutTrace;
use crate::exchange::forward::{Item, keep};
use crate::exchange::recorder::Recorder;
use crate::exchange::retry::is_repeatable;
use crate::exchange::stream::{Progress, Stream, UpstreamState};
use crate::exchange::talk::{FRAME_START, INTERNAL, REQUEST_TIMER, end_of, first_message};
use crate::exchange::timers::HttpTimer;
use crate::filter::{Answer, Callout, Failed, Joint, Said};
use crate::ids::{Kind, Leg, StreamIndex};
use crate::logger;
use crate::message::FromWorker;
use crate::serving::Serving;
use crate::snapshot::route::Mirror;
use crate::snapshot::subset::Criteria;
use crate::stats::{AsyncClientStats, Scope};
use crate::tracer::report::Load;
use crate::upstream::passive_health::HostOutcome;

/// The callouts of a worker, by the serial numbers of their streams.
#[derive(Debug, Default)]
pub(crate) struct Callouts {
    running: FxHashMap<u64, Running>,
    /// Those that others may join.
    joint: Vec<(Joint, u64)>,
    /// The chain of their streams, once there are any.
    context: Option<Rc<ChainContext>>,
    stats: Option<Arc<AsyncClientStats>>,
}

#[derive(Debug)]
struct Running {
    /// Its own stream.
    index: StreamIndex,
    /// All that wait for it.
    askers: Vec<Asker>,
    joint: Option<Joint>,
    body: BytesMut,
    trailers: Option<Head>,
    max_bytes: usize,
    /// The content of the response is read.
    is_heard: bool,
    failed: Option<Failed>,
    answer: Option<Answer>,
    /// The details of its response.
    details: &'static str,
    trace: Option<Box<CalloutTrace>>,
    /// How many requests led to it, the client's first.
    depth: u8,
}

/// What an answer is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// A filter of a stream.
    Filter(FilterOf),
    /// Nothing: the request is a copy, whose answer is dropped.
    Dropped,
    /// The same of a stream whose request has not ended.
    Copy(FilterOf),
    /// Spans that have left.
    Reporter {
        /// The place of what has sent them.
        at: usize,
        load: Load,
    },
    /// The control thread's messages for a server.
    Exporter {
        /// The place of what has sent them.
        at: usize,
        /// How long the request is; 0 of a call that goes on.
        bytes: usize,
    },
    /// A filter that talks, by a call that goes on.
    Talker(FilterOf),
    /// A filter that talks, by a request.
    Waiter(FilterOf),
    /// A call that entries leave by: the place of the log.
    Entries(usize),
    /// Entries of a log that have left.
    Log {
        /// The place of what has sent them.
        at: usize,
        load: logger::Load,
    },
    /// What requests will need: its place.
    Ahead(usize),
}

/// A filter of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterOf {
    pub(crate) stream: StreamIndex,
    /// Of that stream: another may have taken its slot.
    pub(crate) serial: u64,
    /// The filter's place in its chain.
    pub(crate) place: usize,
}

impl Asker {
    /// The stream that it is of.
    const fn stream(&self) -> Option<StreamIndex> {
        match self {
            Self::Filter(filter)
            | Self::Talker(filter)
            | Self::Waiter(filter)
            | Self::Copy(filter) => Some(filter.stream),
            Self::Dropped
            | Self::Reporter { .. }
            | Self::Exporter { .. }
            | Self::Entries(_)
            | Self::Log { .. }
            | Self::Ahead(_) => None,
        }
    }
}

impl Callouts {
    fn context(&mut self) -> Rc<ChainContext> {
        let fresh = || Rc::new(ChainContext::local(Arc::default()));
        Rc::clone(self.context.get_or_insert_with(fresh))
    }

    pub(super) fn stats(&mut self, env: &Env) -> &AsyncClientStats {
        let scope = || Scope::Http(Arc::from("async-client"));
        self.stats.get_or_insert_with(|| env.registry.set(env.index, scope()))
    }

    /// Has one more wait for a callout that asks the same, if one runs; answers its serial number.
    fn join(&mut self, asker: Asker, joint: Option<&Joint>) -> Option<u64> {
        let (_, serial) = self.joint.iter().find(|(known, _)| Some(known) == joint)?;
        let running = self.running.get_mut(serial).filter(|running| running.answer.is_none())?;
        running.askers.push(asker);
        Some(*serial)
    }

    /// The stream of a callout that runs.
    pub(crate) fn stream_of(&self, serial: u64) -> Option<StreamIndex> {
        Some(self.running.get(&serial).filter(|running| running.answer.is_none())?.index)
    }

    /// The filter that talks by a call.
    pub(crate) fn talker(&self, serial: u64) -> Option<FilterOf> {
        match self.running.get(&serial)?.askers.first()? {
            Asker::Talker(filter) => Some(*filter),
            Asker::Filter(_)
            | Asker::Waiter(_)
            | Asker::Copy(_)
            | Asker::Dropped
            | Asker::Reporter { .. }
            | Asker::Exporter { .. }
            | Asker::Entries(_)
            | Asker::Log { .. }
            | Asker::Ahead(_) => None,
        }
    }

    /// What a call or a copy is told by.
    pub(crate) fn teller(&self, serial: u64) -> Option<FilterOf> {
        match self.running.get(&serial)?.askers.first()? {
            Asker::Talker(filter) | Asker::Copy(filter) => Some(*filter),
            Asker::Filter(_)
            | Asker::Waiter(_)
            | Asker::Dropped
            | Asker::Reporter { .. }
            | Asker::Exporter { .. }
            | Asker::Entries(_)
            | Asker::Log { .. }
            | Asker::Ahead(_) => None,
        }
    }

    /// The streams of calls that tell servers something and have no answer yet, and whether each is one that goes on.
    pub(crate) fn reports(&self) -> impl Iterator<Item = (StreamIndex, bool)> {
        self.running.values().filter(|running| running.answer.is_none()).filter_map(|running| {
            let goes_on = running.askers.iter().find_map(|asker| match asker {
                Asker::Filter(_)
                | Asker::Talker(_)
                | Asker::Waiter(_)
                | Asker::Copy(_)
                | Asker::Dropped
                | Asker::Ahead(_) => None,
                Asker::Reporter { .. } | Asker::Log { .. } => Some(false),
                Asker::Exporter { bytes, .. } => Some(*bytes == 0),
                Asker::Entries(_) => Some(true),
            })?;
            Some((running.index, goes_on))
        })
    }

    /// Takes a callout out.
    fn remove(&mut self, serial: u64) -> Option<Running> {
        let running = self.running.remove(&serial)?;
        if running.joint.is_some() {
            self.joint.retain(|(_, one)| *one != serial);
        }
        Some(running)
    }
}

impl Exchange {
    /// Sends a callout; answers the serial number of its stream.
    pub(crate) fn call_out(&mut self, asker: Asker, callout: Callout, now: Instant) -> u64 {
        if let Some(serial) = self.callouts.join(asker, callout.joint.as_ref()) {
            return serial;
        }
        self.begin_callout((asker, asker.stream()), callout, None, Progress::Ended, now)
    }

    /// Sends a callout whose answer is not waited for, to the subset of its cluster's hosts that is asked for.
    pub(crate) fn call_out_to(
        &mut self,
        of: Option<StreamIndex>,
        callout: Callout,
        criteria: Option<Arc<Criteria>>,
        now: Instant,
    ) {
        self.begin_callout((Asker::Dropped, of), callout, criteria, Progress::Ended, now);
    }

    /// Tells what scripts have to say, and sends requests of theirs whose answers are not waited for. Whether there was
    /// anything to do.
    #[cold]
    pub(crate) fn tell_notes(&mut self, now: Instant) -> bool {
        let (notes, calls) = self.env.notes.take();
        for note in notes {
            self.env.tell(FromWorker::Note(note));
        }
        let sends = !calls.is_empty();
        for (callout, serial) in calls {
            let of = serial.and_then(|serial| self.streams.with_serial(serial));
            self.call_out_to(of, callout, None, now);
        }
        sends
    }

    /// Begins a call whose messages come one after the other, the first of them with it; what is answered is not looked
    /// at until it is over. Answers the serial number of its stream.
    pub(crate) fn begin_call(&mut self, asker: Asker, callout: Callout, now: Instant) -> u64 {
        self.begin_callout((asker, None), callout, None, Progress::Streaming, now)
    }

    /// Begins a call of a filter that talks: each message of its answer is told as it comes.
    pub(crate) fn begin_talk(&mut self, filter: FilterOf, callout: Callout, now: Instant) -> u64 {
        let asker = (Asker::Talker(filter), Some(filter.stream));
        self.begin_callout(asker, callout, None, Progress::Streaming, now)
    }

    /// Begins a copy of the request of a stream, for one `of` that has not ended. Answers the serial number of its
    /// stream.
    pub(crate) fn begin_copy(
        &mut self,
        of: FilterOf,
        index: StreamIndex,
        callout: Callout,
        criteria: Option<Arc<Criteria>>,
        now: Instant,
    ) -> u64 {
        let timeout = callout.timeout;
        let asker = (Asker::Copy(of), Some(index));
        let serial = self.begin_callout(asker, callout, criteria, Progress::Streaming, now);
        let copy = self.callouts.stream_of(serial).and_then(|copy| self.streams.get_mut(copy));
        if let Some(copy) = copy {
            copy.response_timeout = Some(timeout).into();
        }
        serial
    }

    /// The request of a copy is complete.
    pub(crate) fn end_request_of_copy(
        &mut self,
        serial: u64,
        trailers: Option<&Head>,
        now: Instant,
    ) {
        let Some(running) = self.callouts.running.get_mut(&serial) else { return };
        let index = running.index;
        running.askers = vec![Asker::Dropped];
        if running.answer.is_some() {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.request_end = Progress::Ended;
        stream.times.request_end = Some(now);
        let item = trailers.map_or(Item::End, |trailers| Item::Trailers(trailers.clone()));
        let upstream = stream.upstream;
        keep(stream, &item, !matches!(upstream, UpstreamState::Active(_)));
        if let UpstreamState::Active(leg) = upstream {
            self.write(leg, item, now);
        }
        self.start_response_timer(index, now);
        self.start_try_timers(index, now);
    }

    /// The mirrors of a cluster.
    pub(super) fn mirrors_of(&self, cluster: &str) -> Option<Arc<[Mirror]>> {
        let id = self.snapshot.cluster_id(cluster)?;
        self.upstreams.clusters.get(id)?.config.mirrors.clone()
    }

    /// Whether a callout is copied: one that leads to another without end is cut short.
    pub(super) fn may_be_copied(&self, index: StreamIndex) -> bool {
        self.running(index).is_some_and(|running| running.depth < DEEPEST)
    }

    fn begin_callout(
        &mut self,
        (asker, of): (Asker, Option<StreamIndex>),
        mut callout: Callout,
        criteria: Option<Arc<Criteria>>,
        end: Progress,
        now: Instant,
    ) -> u64 {
        let trace = of.and_then(|of| self.begin_callout_span(of, &mut callout, now));
        let depth = of.map_or(0, |of| self.depth(of));
        let context = self.callouts.context();
        let (index, stream) = self.streams.open(NOWHERE, context, now);
        stream.kind = Kind::Callout(Serving::new(()));
        let serial = self.env.serial.next_stream();
        stream.serial = serial;
        let Callout { cluster, mut head, body, timeout, max_bytes, joint, retry, .. } = callout;
        self.callouts.joint.extend(joint.clone().map(|joint| (joint, serial)));
        if end == Progress::Ended && head.get(Name::ContentLength).is_some() {
            head.set_number(Name::ContentLength, body.len() as u64);
        }
        // A filter that talks is told why a call has failed, and a span tells of its host.
        if matches!(asker, Asker::Talker(_)) || trace.is_some() {
            stream.recorder = Recorder::recording();
        }
        stream.retries.repeatable = is_repeatable(head.method());
        stream.retries.buffer_limit = body.len();
        let id = self.snapshot.cluster_id(&cluster);
        let known = id.and_then(|id| self.upstreams.clusters.get(id));
        let per_try = retry.as_ref().and_then(|policy| policy.per_try_timeout);
        // As in Envoy, its cluster's comes first.
        if let Some(policy) = known.and_then(|it| it.config.retry.clone()).or(retry) {
            let timeout = Some(timeout).filter(|_| end == Progress::Ended);
            stream.follow(policy, per_try, &mut head, timeout);
        }
        let mirrors = known.and_then(|it| it.config.mirrors.clone());
        if criteria.is_some() {
            stream.retries.tried.get_or_insert_default().criteria = criteria;
        }
        let is_known = known.is_some();
        match known.map(|known| (&known.google_stats, known)) {
            Some((Some(stats), cluster)) => {
                stats.streams_total.inc();
                if cluster.tls.is_some() {
                    // It is one.
                    let _ = head.set_scheme(b"https");
                }
            }
            Some((None, _)) => self.callouts.stats(&self.env).rq_total.inc(),
            None => {}
        }
        stream.request.put(head, &mut self.env.heads);
        stream.request_end = end;
        if end == Progress::Ended {
            stream.times.request_end = Some(now);
        }
        if !body.is_empty() {
            stream.body.push(body);
        }
        let running = Running {
            index,
            askers: vec![asker],
            joint,
            body: BytesMut::new(),
            trailers: None,
            max_bytes,
            is_heard: end == Progress::Ended && !matches!(asker, Asker::Dropped),
            failed: None,
            answer: None,
            details: "",
            trace,
            depth,
        };
        self.callouts.running.insert(serial, running);
        match id {
            Some(id) if is_known => {
                stream.cluster = id;
                if self.drop_overload(index, now) {
                    return serial;
                }
                if end == Progress::Ended {
                    self.set_timer(index, HttpTimer::Response, now + timeout);
                    if let Some(mirrors) = mirrors.filter(|_| self.may_be_copied(index)) {
                        self.begin_mirrors(index, &mirrors, Some(timeout), now);
                    }
                }
                self.place_stream(index, now);
            }
            Some(_) | None => self.fail_callout(index, Failed::NoCluster, now),
        }
        serial
    }

    /// How many requests lead to one that a stream asks for.
    fn depth(&self, of: StreamIndex) -> u8 {
        self.running(of).map_or(1, |running| running.depth.saturating_add(1))
    }

    fn running(&self, index: StreamIndex) -> Option<&Running> {
        self.callouts.running.get(&self.streams.get(index)?.serial)
    }

    /// A piece of a callout's response.
    pub(crate) fn receive_callout(&mut self, index: StreamIndex, item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(running) = self.callouts.running.get_mut(&stream.serial) else { return };
        match item {
            Item::Data(chunk) if matches!(running.askers[..], [Asker::Talker(_)]) => {
                if stream.response_status() != 200 {
                    // It is no call's answer, and its end says so.
                    return;
                }
                running.body.extend_from_slice(&chunk);
                self.env.work.push_back(Work::Told(stream.serial));
            }
            Item::Data(_) if !running.is_heard => {}
            Item::Data(chunk) if running.body.len() + chunk.len() > running.max_bytes => {
                self.fail_callout(index, Failed::TooLong, now);
            }
            Item::Data(chunk) => running.body.extend_from_slice(&chunk),
            Item::Trailers(trailers) => {
                running.trailers = Some(trailers);
                stream.response_end = Progress::Ended;
                self.on_response_ended(index, now);
            }
            Item::End => {
                stream.response_end = Progress::Ended;
                self.on_response_ended(index, now);
            }
        }
    }

    /// A deadline of a callout has passed.
    pub(crate) fn on_callout_deadline(
        &mut self,
        index: StreamIndex,
        timer: HttpTimer,
        now: Instant,
    ) {
        match timer {
            HttpTimer::Response => {
                // A wait before a retry is no host's.
                let Some(stream) = self.streams.get(index) else { return };
                let (upstream, tried) = (stream.upstream, stream.retries.pool_key);
                if let (UpstreamState::Active(_), Some(pool_key)) = (upstream, tried)
                    && stream.is_unanswered()
                {
                    self.upstreams.note(pool_key, HostOutcome::Late(504), &mut self.env);
                }
                if upstream != UpstreamState::BackingOff {
                    self.count_timeout(index, |stats| &stats.upstream_rq_timeout);
                    self.charge(index, 504);
                }
                self.measure_timeout(index, now);
                self.fail_callout(index, Failed::TimedOut, now);
            }
            HttpTimer::Attempt => self.end_long_attempt(index, now),
            HttpTimer::PerTry => self.end_late_attempt(index, now),
            HttpTimer::BackOff => self.end_back_off(index, now),
            HttpTimer::PerTryIdle
            | HttpTimer::Idle
            | HttpTimer::MaxDuration
            | HttpTimer::Request
            | HttpTimer::LogFlush => self.tell_late(index, timer, now),
        }
    }

    /// Tells a filter the messages that its call has brought.
    pub(crate) fn tell_messages(&mut self, serial: u64, now: Instant) {
        loop {
            let Some(running) = self.callouts.running.get_mut(&serial) else { return };
            let (index, is_over) = (running.index, running.answer.is_some());
            let [Asker::Talker(filter)] = running.askers[..] else { return };
            match first_message(&running.body) {
                Ok(Some(length)) => {
                    let mut frame = running.body.split_to(FRAME_START + length);
                    let message = frame.split_off(FRAME_START).freeze();
                    self.tell_talk(filter, Said::Message(message), now);
                }
                Ok(None) => return,
                Err(_) if is_over => return,
                Err(failed) => return self.fail_callout(index, failed, now),
            }
        }
    }

    /// The stream of a filter that talks is over: its call goes on so long.
    pub(crate) fn linger(&mut self, serial: u64, time: Duration, now: Instant) {
        let Some(running) = self.callouts.running.get_mut(&serial) else { return };
        running.askers = vec![Asker::Dropped];
        running.body.clear();
        if running.answer.is_none() {
            let (index, trace) = (running.index, running.trace.take());
            self.set_timer(index, REQUEST_TIMER, now + time);
            self.end_canceled_span(trace, index, now);
        }
    }

    /// Ends a callout without a response.
    pub(crate) fn fail_callout(&mut self, index: StreamIndex, failed: Failed, now: Instant) {
        let serial = self.streams.get(index).map(|stream| stream.serial);
        if let Some(running) = serial.and_then(|serial| self.callouts.running.get_mut(&serial)) {
            running.failed.get_or_insert(failed);
        }
        self.detach(index, Close::Abort, now);
        self.close_record(index, now);
    }

    /// A callout's stream is over.
    pub(crate) fn end_callout(&mut self, stream: &mut Stream, now: Instant) {
        let Some(running) = self.callouts.running.get_mut(&stream.serial) else { return };
        let is_whole = stream.response_end == Progress::Ended;
        if let (Some(asked), Some(received), false) =
            (stream.times.request_end, stream.times.upstream_first_received, stream.local_reply)
        {
            let elapsed = received.millis_since(asked);
            stream.response.set_number(Name::XEnvoyUpstreamServiceTime, elapsed);
        }
        running.details = stream.recorder.record().details;
        let failed = running.failed.or_else(|| (!is_whole).then_some(Failed::Reset));
        let answer = match failed {
            Some(failed) => Answer::Failed(failed),
            None => Answer::Response {
                head: stream.response.take(),
                body: std::mem::take(&mut running.body).freeze(),
                trailers: running.trailers.take(),
            },
        };
        let cluster = self.upstreams.clusters.get(stream.cluster);
        if let Some(stats) = cluster.and_then(|cluster| cluster.google_stats.as_ref()) {
            // What never reached the server has gone wrong in here, as gRPC has it.
            let status = if stream.local_reply { INTERNAL } else { end_of(&answer, "").0 };
            stats.closed(status).inc();
        }
        let traced = running.trace.take().map(|trace| (trace, answer.clone()));
        running.answer = Some(answer);
        self.env.work.push_back(Work::Answer(stream.serial));
        if let Some((trace, answer)) = traced {
            self.end_callout_span(*trace, stream, Some(&answer), now);
        }
    }

    /// A callout is given up.
    fn end_canceled_span(
        &mut self,
        trace: Option<Box<CalloutTrace>>,
        of: StreamIndex,
        now: Instant,
    ) {
        if let Some(trace) = trace
            && let Some(mut stream) = self.streams.close(of)
        {
            self.end_callout_span(*trace, &mut stream, None, now);
            self.streams.put_back(of, stream);
        }
    }

    /// Hands a callout's answer to those that wait for it.
    pub(crate) fn answer_callout(&mut self, serial: u64, now: Instant) {
        let Some(mut running) = self.callouts.remove(serial) else { return };
        let (Some(answer), Some(last)) = (running.answer, running.askers.pop()) else { return };
        if let Asker::Talker(filter) = last {
            let (status, message) = end_of(&answer, running.details);
            return self.tell_talk(filter, Said::Over(status, message), now);
        }
        for asker in running.askers.into_iter().chain([last]) {
            self.tell_asker(asker, &answer, now);
        }
        if let Answer::Response { head, trailers, .. } = answer {
            self.env.heads.give(head);
            trailers.into_iter().for_each(|trailers| self.env.heads.give(trailers));
        }
    }

    fn tell_asker(&mut self, asker: Asker, answer: &Answer, now: Instant) {
        match asker {
            Asker::Filter(filter) => self.go_on_answered(filter, answer, now),
            Asker::Waiter(filter) => self.tell_talk(filter, Said::Answer(answer.clone()), now),
            Asker::Reporter { at, load } => self.end_report(at, load, answer),
            Asker::Exporter { at, bytes } => self.end_export(at, bytes, answer),
            Asker::Entries(at) => self.end_entries(at),
            Asker::Log { at, load } => self.env.logs.loggers.end(at, load, answer),
            Asker::Ahead(at) => self.hear_ahead(at, answer, now),
            // What it held up goes on.
            Asker::Copy(of) => {
                if self.streams.get(of.stream).is_some_and(|stream| stream.serial == of.serial) {
                    self.update_own_source(of.stream, true);
                }
            }
            Asker::Talker(_) | Asker::Dropped => {}
        }
    }

    /// The stream with the serial number `of` that waited for it is over.
    pub(crate) fn cancel_callout(&mut self, serial: u64, of: u64, now: Instant) {
        let Some(running) = self.callouts.running.get_mut(&serial) else { return };
        let is_of = |asker: &Asker| match asker {
            Asker::Filter(it) | Asker::Talker(it) | Asker::Waiter(it) | Asker::Copy(it) => {
                it.serial == of
            }
            Asker::Dropped
            | Asker::Reporter { .. }
            | Asker::Exporter { .. }
            | Asker::Entries(_)
            | Asker::Log { .. }
            | Asker::Ahead(_) => false,
        };
        running.askers.retain(|asker| !is_of(asker));
        if !running.askers.is_empty() {
            return;
        }
        let Some(running) = self.callouts.remove(serial) else { return };
        if running.answer.is_none() {
            self.end_canceled_span(running.trace, running.index, now);
            self.detach(running.index, Close::Abort, now);
            self.close_record(running.index, now);
        }
    }
}

/// Requests that lead to so many more are not copied: clusters may mirror to each other.
const DEEPEST: u8 = 8;

/// The client's side of a stream that has none.
const NOWHERE: Leg = Leg { connection: ConnectionId::new(u32::MAX, u32::MAX), number: 0 };
