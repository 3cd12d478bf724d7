//! One request and its response (or one TCP connection's two directions), whatever the protocol.
//!
//! Arrives: heads, data and ends of either side, through `forward.rs`. Leaves: a [`Record`] when
//! it ends.
//!
//! ```text
//!   open ──▶ route ──▶ pick ──▶ lease ──▶ streaming ──▶ finished
//!     │         │        │    ▲    │          │             ▲
//!     └─────────┴────────┴────┼────┴──────────┴─ local reply┘
//!                             └── retry (until the first byte of a response went down)
//! ```

use std::num::NonZeroU8;
use std::rc::Rc;

use bytes::Bytes;
use towpath_proto::Instant;
use towpath_proto::bolt::Frame;
use towpath_proto::head::{Head, HeadPool, Version};

use crate::conn::Connection;
use crate::conn::context::ChainContext;
use crate::deadlines::{Deadlines, Limit};
use crate::env::Env;
use crate::exchange::filters::Filters;
use crate::exchange::lazy_head::LazyHead;
use crate::exchange::recorder::Recorder;
use crate::exchange::retry::Retries;
use crate::exchange::rpc::Bridging;
use crate::exchange::timers;
use crate::grpc;
use crate::ids::{Kind, Leg, NO_CLUSTER, PoolKey, Priority, ResetReason, StreamIndex};
use crate::record::{Flags, Record};
use crate::route::Picked;
use crate::snapshot::http::Router;
use crate::snapshot::plain::Plain;
use crate::snapshot::route::{
    Action, ClusterChoice, Forward, RetryOn, RetryPolicy, Route, VirtualCluster, VirtualHost,
    WeightedCluster,
};
use crate::snapshot::{ClusterId, RouteTable};
use crate::stats::RequestStats;
use crate::upstream::cluster::RequestOutcome;

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) kind: Kind,
    pub(crate) downstream: Leg,
    pub(crate) context: Rc<ChainContext>,
    pub(crate) upstream: UpstreamState,
    pub(crate) request: LazyHead,
    pub(crate) response: LazyHead,
    pub(crate) route: Option<RouteRef>,
    pub(crate) request_end: Progress,
    pub(crate) response_end: Progress,
    /// Request body that has not gone upstream, or that a retry would need again.
    pub(crate) body: Body,
    pub(crate) retries: Retries,
    /// Where the request goes; [`NO_CLUSTER`] until that is known.
    pub(crate) cluster: ClusterId,
    pub(crate) priority: Priority,
    /// The route's `timeout`, or the request's own.
    pub(crate) response_timeout: Limit,
    pub(crate) per_try_timeout: Limit,
    /// What the client asked to change to, if anything.
    pub(crate) upgrade: Upgrade,
    /// Which chain of filters it passes, where its upgrade has one of its own.
    pub(crate) chain: Option<NonZeroU8>,
    pub(crate) deadlines: Deadlines<{ timers::COUNT }>,
    /// `stream_idle_timeout` or the route's own, in ns; 0 means none.
    pub(crate) idle_ns: u64,
    pub(crate) times: Times,
    /// The status that went downstream; 0 when none did.
    pub(crate) status: u16,
    /// What Bolt's answer says, in HTTP's terms, where it has no head.
    pub(crate) answer_status: u16,
    pub(crate) flags: Flags,
    /// How often the request was sent upstream.
    pub(crate) attempts: u32,
    /// Counts streams of this worker.
    pub(crate) serial: u64,
    pub(crate) recorder: Recorder,
    /// Bolt's request, as long as another attempt may have to send it again.
    pub(crate) frame: Option<Frame>,
    /// How the content of Bolt's request is serialised.
    pub(crate) codec: u8,
    /// Bolt's that wants no answer.
    pub(crate) is_oneway: bool,
    pub(crate) bridging: Bridging,
    /// The HTTP filters that go with it.
    pub(crate) filters: Option<Box<Filters>>,
    /// The request is HEAD.
    pub(crate) head_only: bool,
    /// The response was made by us.
    pub(crate) local_reply: bool,
    /// The `grpc-status` of the response's trailers, which may be its head.
    pub(crate) trailers_status: Option<u8>,
    /// It is a health check of this proxy.
    pub(crate) is_health_check: bool,
    /// It came as a call by gRPC, and its heads were given back.
    pub(crate) was_grpc: bool,
    /// The attempt under way is on a connection that its peer may have been closing.
    pub(crate) reused: bool,
    /// Its content goes to the host as the bytes of a TCP connection, whose own are that of the response.
    pub(crate) posts_bytes: bool,
}

/// When a stream came to where it is; see [`Record`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) start: Instant,
    pub(crate) request_end: Option<Instant>,
    pub(crate) upstream_first_sent: Option<Instant>,
    pub(crate) upstream_first_received: Option<Instant>,
}

/// How far the upstream side of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamState {
    /// Not wanted yet, or over.
    None,
    /// In a pool's queue.
    Pending(PoolKey),
    /// On a connection.
    Active(Leg),
    /// Waits for its next attempt.
    BackingOff,
}

/// How far one direction of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// No head yet.
    AwaitingHead,
    /// The head is through, the body is under way.
    Streaming,
    /// All of it is through.
    Ended,
}

/// How often a request has come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// From its client.
    First,
    /// It was answered with a redirect that is followed here.
    Redirected,
}

/// What a stream changes into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Upgrade {
    #[default]
    No,
    /// `Upgrade:` to something that is let through.
    Requested,
    /// CONNECT that is let through.
    Connect,
    /// CONNECT that ends here: the host is given the tunnel's bytes and sees no request.
    ConnectHere,
    /// POST whose content, and that of its response, are the bytes of a TCP connection.
    Post,
    /// Bytes are opaque in both directions.
    Done,
}

/// The request's body as far as it is kept.
#[derive(Debug)]
pub(crate) struct Body {
    kept: Option<Box<Kept>>,
    /// Everything from the first byte is still here.
    pub(crate) whole: bool,
}

/// What is kept of a body; most requests have none.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In order.
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) trailers: Option<Head>,
    len: usize,
}

impl Default for Body {
    fn default() -> Self {
        Self { kept: None, whole: true }
    }
}

impl Body {
    pub(crate) fn reset(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.chunks.clear();
            (kept.trailers, kept.len) = (None, 0);
        }
        self.whole = true;
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        let kept = self.kept.get_or_insert_default();
        kept.len += chunk.len();
        kept.chunks.push(chunk);
    }

    pub(crate) fn set_trailers(&mut self, trailers: Head) {
        self.kept.get_or_insert_default().trailers = Some(trailers);
    }

    /// Lets go of what is kept: it cannot be sent again.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.chunks.clear();
            kept.len = 0;
        }
        self.whole = false;
    }

    /// Takes out what is kept, to be sent; [`Body::put_back`] undoes it.
    pub(crate) fn take_kept(&mut self) -> Option<Box<Kept>> {
        self.kept.take()
    }

    /// Puts back what was taken out, changed or not.
    pub(crate) fn restore(&mut self, mut kept: Box<Kept>) {
        kept.len = kept.chunks.iter().map(Bytes::len).sum();
        if kept.len > 0 || kept.trailers.is_some() {
            self.kept = Some(kept);
        }
    }

    /// Puts back what was taken out; what another attempt could send, if that is to be `kept_on`.
    pub(crate) fn put_back(&mut self, mut kept: Box<Kept>, kept_on: bool) {
        if !kept_on {
            kept.chunks.clear();
            kept.len = 0;
        }
        self.kept = Some(kept);
    }

    /// Bytes that are kept.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.len)
    }

    pub(crate) fn chunks(&self) -> &[Bytes] {
        self.kept.as_ref().map_or(&[], |kept| &kept.chunks)
    }

    pub(crate) fn chunks_mut(&mut self) -> &mut [Bytes] {
        self.kept.as_mut().map_or(&mut [], |kept| &mut kept.chunks)
    }

    /// All of it in one piece.
    pub(crate) fn joined(&self) -> Bytes {
        match self.chunks() {
            [] => Bytes::new(),
            [one] => one.clone(),
            chunks => chunks.concat().into(),
        }
    }

    /// Takes them out.
    pub(crate) fn take_trailers(&mut self) -> Option<Head> {
        self.kept.as_mut()?.trailers.take()
    }

    pub(crate) fn trailers(&self) -> Option<&Head> {
        self.kept.as_ref()?.trailers.as_ref()
    }
}

/// Which route a stream took, in its chain's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteRef {
    pub(crate) host: u32,
    pub(crate) route: u32,
    /// Which of the weighted clusters.
    pub(crate) weighted: Option<u16>,
    /// Which of the virtual clusters counts it.
    pub(crate) virtual_cluster: Option<u16>,
}

impl RouteRef {
    pub(crate) const fn new(host: u32, route: u32) -> Self {
        Self { host, route, weighted: None, virtual_cluster: None }
    }

    /// The route that was found, if one was.
    #[inline]
    pub(crate) fn picked(picked: &Picked<'_>) -> Option<Self> {
        let Picked::Route { host_index, route_index, .. } = picked else { return None };
        #[expect(clippy::cast_possible_truncation, reason = "tables have fewer than 2^32 entries")]
        Some(Self::new(*host_index as u32, *route_index as u32))
    }
}

/// A [`RouteRef`], looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed<'a> {
    pub(crate) table: &'a RouteTable,
    pub(crate) host: &'a VirtualHost,
    pub(crate) route: &'a Route,
    pub(crate) weighted: Option<&'a WeightedCluster>,
    pub(crate) virtual_cluster: Option<&'a VirtualCluster>,
}

impl<'a> Routed<'a> {
    #[inline(always)]
    pub(crate) fn of(context: &'a ChainContext, chosen: RouteRef) -> Option<Self> {
        Self::in_table(&context.http()?.config.routes, chosen)
    }

    #[inline(always)]
    pub(crate) fn in_table(table: &'a RouteTable, chosen: RouteRef) -> Option<Self> {
        let host = table.hosts.get(chosen.host as usize)?;
        let route = &**host.routes.get(chosen.route as usize)?;
        let weighted = match (&route.action, chosen.weighted) {
            (Action::Forward(forward), Some(index)) => match &forward.cluster {
                ClusterChoice::Weighted { clusters, .. } => clusters.get(index as usize),
                ClusterChoice::One(_) | ClusterChoice::Header(_) | ClusterChoice::Specified(_) => {
                    None
                }
            },
            (Action::Forward(_) | Action::Redirect(_) | Action::Direct { .. }, _) => None,
        };
        let counted = chosen.virtual_cluster.map(usize::from);
        let virtual_cluster = counted.and_then(|at| host.virtual_clusters.get(at));
        Some(Self { table, host, route, weighted, virtual_cluster })
    }

    pub(crate) fn retry_policy(&self) -> Option<&'a RetryPolicy> {
        self.forward()?.retry.as_deref()
    }

    pub(crate) fn forward(&self) -> Option<&'a Forward> {
        match &self.route.action {
            Action::Forward(forward) => Some(forward),
            Action::Redirect(_) | Action::Direct { .. } => None,
        }
    }
}

/// All streams of a worker; a slot is used again when its stream is over.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) slots: Vec<Option<Box<Stream>>>,
    pub(crate) free: Vec<u32>,
    /// Boxes of streams that are over.
    #[expect(clippy::vec_box, reason = "the boxes are what is kept: a stream never moves")]
    pub(crate) unused: Vec<Box<Stream>>,
    /// Bolt's answer that is being passed on to its stream.
    pub(crate) answer: Option<Frame>,
}

impl Streams {
    /// Makes a stream, in the memory of an earlier one when there is some.
    #[inline(always)]
    pub(crate) fn open(
        &mut self,
        downstream: Leg,
        context: Rc<ChainContext>,
        now: Instant,
    ) -> (StreamIndex, &mut Stream) {
        let stream = match self.unused.pop() {
            Some(mut stream) => {
                stream.renew(downstream, context, now);
                stream
            }
            None => Box::new(Stream::new(downstream, context, now)),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        (StreamIndex(index), self.slots[index as usize].insert(stream))
    }

    /// Makes a stream on a connection, on which so much is `waiting` to be handed to the driver, with what its record
    /// knows from the start.
    pub(crate) fn open_on(
        &mut self,
        connection: &mut Connection,
        number: u32,
        waiting: u64,
        env: &mut Env,
        now: Instant,
    ) -> Option<(StreamIndex, &mut Stream)> {
        let downstream = connection.downstream()?;
        let (context, serial) = (downstream.context.clone(), downstream.serial);
        let leg = Leg { connection: connection.id, number };
        let (index, stream) = self.open(leg, context, now);
        connection.streams.bind(number, index);
        let serial_of_stream = env.serial.next_stream();
        stream.serial = serial_of_stream;
        let span = connection.open_span(serial_of_stream);
        let wanted = stream.context.is_recorded || span.is_some() || env.reads_records;
        if let Some(recording) = stream.recorder.begin(wanted) {
            recording.span = span;
            recording.wire.downstream_received = connection.accounted;
            recording.wire.downstream_sent = connection.encoded + waiting;
            let record = &mut recording.record;
            record.connection = serial;
            note_client(record, connection);
            record.downstream_tls = connection.downstream_tls();
            let downstream = connection.downstream();
            record.server_name =
                downstream.and_then(|downstream| downstream.server_name().cloned());
            let particulars = downstream.and_then(|downstream| downstream.particulars.as_ref());
            record.fingerprints = particulars.and_then(|it| it.fingerprints.clone());
            record.proxied = particulars.and_then(|it| it.proxied.clone());
            if let Some(proxied) = &record.proxied {
                proxied.note(&recording.info, stream.context.http().is_none());
            }
            if let Some(particulars) = particulars {
                record.connection_metadata = particulars.metadata.clone();
                particulars.note(&recording.info, stream.context.http().is_some());
            }
        }
        Some((index, stream))
    }

    pub(crate) fn get(&self, index: StreamIndex) -> Option<&Stream> {
        self.slots.get(index.0 as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, index: StreamIndex) -> Option<&mut Stream> {
        self.slots.get_mut(index.0 as usize)?.as_deref_mut()
    }

    /// Takes a stream out; give it back with [`Streams::recycle`].
    pub(crate) fn close(&mut self, index: StreamIndex) -> Option<Box<Stream>> {
        let stream = self.slots.get_mut(index.0 as usize)?.take()?;
        self.free.push(index.0);
        Some(stream)
    }

    /// Undoes [`Streams::close`], right after it.
    pub(crate) fn put_back(&mut self, index: StreamIndex, stream: Box<Stream>) {
        self.free.retain(|free| *free != index.0);
        if let Some(slot) = self.slots.get_mut(index.0 as usize) {
            *slot = Some(stream);
        }
    }

    /// Lets go of what streams that are over still know: a configuration that is gone, say.
    pub(crate) fn forget_unused(&mut self) {
        self.unused.clear();
    }

    /// Keeps the memory of a stream that is over, and lets go of what it held.
    pub(crate) fn recycle(&mut self, mut stream: Box<Stream>, heads: &mut HeadPool) {
        stream.retries = Retries::default();
        stream.body.reset();
        stream.request.clear(heads);
        stream.response.clear(heads);
        stream.frame = None;
        stream.recorder.drop_contents();
        stream.filters = None;
        if self.unused.len() < UNUSED_STREAMS {
            self.unused.push(stream);
        }
    }

    /// All that are under way.
    pub(crate) fn indices(&self) -> impl Iterator<Item = StreamIndex> {
        let used = self.slots.iter().zip(0..).filter(|(slot, _)| slot.is_some());
        used.map(|(_, index)| StreamIndex(index))
    }

    /// The one of this number. Looks at all of them.
    #[cold]
    pub(crate) fn with_serial(&self, serial: u64) -> Option<StreamIndex> {
        self.indices().find(|index| self.get(*index).is_some_and(|it| it.serial == serial))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives back the heads of a stream whose response has begun and is not over, where nothing will look at them: they
    /// are half of its memory, and such a response may last for hours.
    pub(crate) fn give_heads_back(&mut self, index: StreamIndex, heads: &mut HeadPool) {
        let Some(stream) = self.get_mut(index) else { return };
        if stream.request.present().is_some() && stream.is_done_with_heads() {
            stream.was_grpc = grpc::is_grpc(&stream.request);
            stream.answer_status = stream.response_status();
            stream.request.clear(heads);
            stream.response.clear(heads);
        }
    }
}

/// As many as are under way at once on busy connections that carry many.
pub(crate) const UNUSED_STREAMS: usize = 4096;

impl Stream {
    pub(crate) fn new(downstream: Leg, context: Rc<ChainContext>, now: Instant) -> Self {
        Self {
            kind: context.stream_kind(),
            downstream,
            context,
            upstream: UpstreamState::None,
            request: LazyHead::default(),
            response: LazyHead::default(),
            route: None,
            request_end: Progress::AwaitingHead,
            response_end: Progress::AwaitingHead,
            body: Body::default(),
            retries: Retries::default(),
            cluster: NO_CLUSTER,
            priority: Priority::Default,
            response_timeout: Limit::NONE,
            per_try_timeout: Limit::NONE,
            upgrade: Upgrade::No,
            chain: None,
            deadlines: Deadlines::new(),
            idle_ns: 0,
            times: Times { start: now, ..Times::default() },
            status: 0,
            answer_status: 0,
            flags: Flags::default(),
            attempts: 0,
            serial: 0,
            recorder: Recorder::default(),
            frame: None,
            codec: 0,
            is_oneway: false,
            bridging: Bridging::None,
            filters: None,
            head_only: false,
            local_reply: false,
            trailers_status: None,
            is_health_check: false,
            was_grpc: false,
            reused: false,
            posts_bytes: false,
        }
    }

    pub(crate) fn renew(&mut self, downstream: Leg, context: Rc<ChainContext>, now: Instant) {
        self.kind = context.stream_kind();
        self.downstream = downstream;
        self.context = context;
        self.upstream = UpstreamState::None;
        self.route = None;
        self.request_end = Progress::AwaitingHead;
        self.response_end = Progress::AwaitingHead;
        self.cluster = NO_CLUSTER;
        self.response_timeout = Limit::NONE;
        self.per_try_timeout = Limit::NONE;
        (self.upgrade, self.chain) = (Upgrade::No, None);
        self.deadlines.clear_all();
        self.idle_ns = 0;
        self.times = Times { start: now, ..Times::default() };
        (self.status, self.answer_status, self.attempts) = (0, 0, 0);
        self.flags = Flags::default();
        self.head_only = false;
        self.local_reply = false;
        self.trailers_status = None;
        (self.is_health_check, self.was_grpc, self.reused) = (false, false, false);
        self.posts_bytes = false;
        (self.is_oneway, self.bridging) = (false, Bridging::None);
    }

    /// The route that was taken, looked up.
    pub(crate) fn routed(&self) -> Option<Routed<'_>> {
        Routed::of(&self.context, self.route?)
    }

    /// The router at the end of its chain of filters.
    pub(crate) fn router(&self) -> Option<&Router> {
        Some(&self.context.http()?.config.chain(self.chain).router)
    }

    /// What speaks against passing a response on, beyond its status.
    pub(crate) fn objection(&self) -> Option<ResetReason> {
        if self.retries.on == RetryOn::default() {
            return None;
        }
        self.retries.objection(self.retry_policy(), &self.response)
    }

    /// What is so of the route that was taken.
    #[inline(always)]
    pub(crate) fn plain(&self) -> Plain {
        let (Some(http), Some(route)) = (self.context.http(), self.route) else {
            return Plain::default();
        };
        http.plain.get(route.host, route.route)
    }

    /// Whether it is a TCP connection whose bytes go on as they are, not as a tunnel through a proxy.
    pub(crate) const fn is_plain_tcp(&self) -> bool {
        matches!((self.kind, self.upgrade), (Kind::Tcp(_), Upgrade::No))
    }

    /// Whether nothing of a response went downstream.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.response_end == Progress::AwaitingHead
    }

    /// What the response, or Bolt's answer, says.
    pub(crate) fn response_status(&self) -> u16 {
        self.response.present().map_or(self.answer_status, Head::status)
    }

    /// What `/clusters` counts of it for its host.
    pub(crate) fn outcome(&self) -> RequestOutcome {
        let gone = self.flags.has(Flags::DOWNSTREAM_CONNECTION_TERMINATION);
        match self.is_unanswered() {
            true if gone || self.is_redirected() || self.is_given_up() => RequestOutcome::Cancelled,
            true => RequestOutcome::Error,
            false if self.response_status() >= 500 || self.is_failed_call() => {
                RequestOutcome::Error
            }
            false => RequestOutcome::Success,
        }
    }

    /// Whether what it leaves was not needed, since another attempt is answered.
    fn is_given_up(&self) -> bool {
        self.retries.tried.as_deref().is_some_and(|tried| tried.is_given_up)
    }

    /// Whether it is a call by gRPC whose status is none, or stands for one of 500 or more.
    fn is_failed_call(&self) -> bool {
        (self.was_grpc || self.request.present().is_some_and(grpc::is_grpc))
            && self.trailers_status.is_none_or(|said| grpc::http_status(said) >= 500)
    }

    /// Counts it where requests are counted beside their cluster.
    #[inline]
    pub(crate) fn count(&self, count: impl Fn(&RequestStats)) {
        if let (Some(http), Some(route)) = (self.context.http(), self.route)
            && !http.counted.is_empty()
        {
            http.counted.each(route.host, route.route, route.virtual_cluster).for_each(count);
        }
    }

    /// Whether both directions are through.
    pub(crate) fn is_complete(&self) -> bool {
        self.request_end == Progress::Ended && self.response_end == Progress::Ended
    }

    /// Whether what its heads still say is its status, and whether it is a call: none waits for the request's end, no
    /// log, filter or tunnel asks for more, and how a response to HTTP/1.0 ends is not decided by them.
    fn is_done_with_heads(&self) -> bool {
        self.response_end == Progress::Streaming
            && matches!(self.kind, Kind::Http(_))
            && (self.request_end == Progress::Ended || self.plain().forwards)
            && (self.upgrade, self.bridging) == (Upgrade::No, Bridging::None)
            && self.filters.is_none()
            && self.recorder.is_off()
            && self.request.version() != Version::Http10
    }
}

/// Notes whose connection a stream came on.
pub(super) fn note_client(record: &mut Record, connection: &Connection) {
    record.client = connection.told();
    record.downstream_local = Some(connection.local.clone());
    record.downstream_remote = Some(connection.peer.clone());
    record.downstream_direct_remote = Some(connection.direct_peer().clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_small() {
        assert!(size_of::<Stream>() <= 344, "{}", size_of::<Stream>());
    }
}
