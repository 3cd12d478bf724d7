//! Requests of filters to clusters, and the streams that wait for what comes of them; and reports of spans.
//!
//! Arrives: a [`Callout`] of a filter that looked at a request. Leaves: its [`Answer`], back to that filter.
//!
//! A callout is a stream without a client: from its cluster on it is as any other. What it leads to is done as
//! [`Work`], so that no filter is called by the end of a stream.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::BytesMut;
use towpath_proto::name::Name;
use towpath_proto::{Close, ConnectionId, Head, Instant};

use crate::conn::context::ChainContext;
use crate::env::Work;
use crate::exchange::Exchange;
use crate::exchange::forward::Item;
use crate::exchange::retry::is_repeatable;
use crate::exchange::stream::{Direction, Stream};
use crate::exchange::timers::HttpTimer;
use crate::filter::{Answer, Callout, Failed};
use crate::ids::{Kind, Leg, StreamIndex};
use crate::serving::Serving;
use crate::tracer::report::Load;

/// The callouts of a worker, by the serial numbers of their streams.
#[derive(Debug, Default)]
pub(crate) struct Callouts {
    running: HashMap<u64, Running>,
    /// The chain of their streams, once there are any.
    context: Option<Rc<ChainContext>>,
}

#[derive(Debug)]
struct Running {
    /// Its own stream.
    index: StreamIndex,
    asker: Asker,
    body: BytesMut,
    trailers: Option<Head>,
    max_bytes: usize,
    failed: Option<Failed>,
    answer: Option<Answer>,
}

/// Whom an answer is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// A filter of a stream.
    Filter(FilterOf),
    /// Nobody: a copy of a request.
    Nobody,
    /// Spans that have left.
    Reporter {
        /// The place of what has sent them.
        at: usize,
        load: Load,
    },
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

impl Callouts {
    fn context(&mut self) -> Rc<ChainContext> {
        let fresh = || Rc::new(ChainContext::local(Arc::default()));
        Rc::clone(self.context.get_or_insert_with(fresh))
    }
}

impl Exchange {
    /// Sends a callout; answers the serial number of its stream.
    pub(crate) fn call_out(&mut self, asker: Asker, callout: Callout, now: Instant) -> u64 {
        let context = self.callouts.context();
        let (index, stream) = self.streams.open(NOWHERE, context, now);
        stream.kind = Kind::Callout(Serving::new(()));
        let serial = self.env.serial.next_stream();
        stream.serial = serial;
        let Callout { cluster, mut head, body, timeout, max_bytes } = callout;
        if head.get(Name::ContentLength).is_some() {
            head.set_number(Name::ContentLength, body.len() as u64);
        }
        stream.retries.repeatable = is_repeatable(head.method());
        stream.retries.buffer_limit = body.len();
        stream.request.put(head, &mut self.env.heads);
        stream.request_end = Direction::Ended;
        stream.times.request_end = Some(now);
        if !body.is_empty() {
            stream.body.push(body);
        }
        let running = Running {
            index,
            asker,
            body: BytesMut::new(),
            trailers: None,
            max_bytes,
            failed: None,
            answer: None,
        };
        self.callouts.running.insert(serial, running);
        match self.snapshot.cluster_id(&cluster) {
            Some(id) if self.upstreams.clusters.get(id).is_some() => {
                stream.cluster = id;
                self.set_timer(index, HttpTimer::Response, now + timeout);
                self.place_stream(index, now);
            }
            Some(_) | None => self.fail_callout(index, Failed::NoCluster, now),
        }
        serial
    }

    /// A piece of a callout's response.
    pub(crate) fn receive_callout(&mut self, index: StreamIndex, item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(running) = self.callouts.running.get_mut(&stream.serial) else { return };
        match item {
            Item::Data(_) if matches!(running.asker, Asker::Nobody) => {}
            Item::Data(chunk) if running.body.len() + chunk.len() > running.max_bytes => {
                self.fail_callout(index, Failed::TooLong, now);
            }
            Item::Data(chunk) => running.body.extend_from_slice(&chunk),
            Item::Trailers(trailers) => {
                running.trailers = Some(trailers);
                stream.response_end = Direction::Ended;
                self.on_response_ended(index, now);
            }
            Item::End => {
                stream.response_end = Direction::Ended;
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
        if timer == HttpTimer::Response {
            self.count_timeout(index, |stats| &stats.upstream_rq_timeout);
            self.charge(index, 504);
            self.fail_callout(index, Failed::TimedOut, now);
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
    pub(crate) fn end_callout(&mut self, stream: &mut Stream) {
        let Some(running) = self.callouts.running.get_mut(&stream.serial) else { return };
        let is_whole = stream.response_end == Direction::Ended;
        if let (Some(asked), Some(received), false) =
            (stream.times.request_end, stream.times.upstream_first_received, stream.local)
        {
            let elapsed = received.millis_since(asked);
            stream.response.set_number(Name::XEnvoyUpstreamServiceTime, elapsed);
        }
        let failed = running.failed.or_else(|| (!is_whole).then_some(Failed::Reset));
        running.answer = Some(match failed {
            Some(failed) => Answer::Failed(failed),
            None => Answer::Response {
                head: stream.response.take(),
                body: std::mem::take(&mut running.body).freeze(),
                trailers: running.trailers.take(),
            },
        });
        self.env.work.push_back(Work::Answer(stream.serial));
    }

    /// Hands a callout's answer to the filter that waits for it.
    pub(crate) fn answer_callout(&mut self, serial: u64, now: Instant) {
        let Some(running) = self.callouts.running.remove(&serial) else { return };
        let Some(answer) = running.answer else { return };
        match running.asker {
            Asker::Filter(filter) => self.go_on_answered(filter, answer, now),
            Asker::Reporter { at, load } => self.end_report(at, load, &answer),
            Asker::Nobody => {}
        }
    }

    /// The stream that waited for it is over.
    pub(crate) fn cancel_callout(&mut self, serial: u64, now: Instant) {
        let Some(running) = self.callouts.running.remove(&serial) else { return };
        if running.answer.is_none() {
            self.detach(running.index, Close::Abort, now);
            self.close_record(running.index, now);
        }
    }
}

/// The client's side of a stream that has none.
const NOWHERE: Leg = Leg { connection: ConnectionId::new(u32::MAX, u32::MAX), number: 0 };
