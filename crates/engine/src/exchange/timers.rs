//! Deadlines of streams: each kind of stream has its own, behind one slot of the worker's timers.
//!
//! Arrives: "this timer, then", and the slot's number when one has passed. Leaves: the timer's name, to the file of
//! its kind (`finish.rs`, `tcp.rs`, `app/limits.rs`).

use std::time::Duration;

use towpath_proto::{Instant, Timers};

use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::exchange::stream::{Stream, Upgrade};
use crate::ids::{Kind, StreamIndex};

/// The deadlines of one kind of stream.
pub(crate) trait StreamTimer: Copy + 'static {
    /// In the order in which they are heard when several have passed.
    const ALL: &[Self];

    /// Its place among the stream's deadlines.
    fn place(self) -> usize;

    /// Whether it is one of such a stream's.
    fn is_of(kind: Kind) -> bool;
}

/// Deadlines of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum HttpTimer {
    /// The route's `timeout`.
    Response = 0,
    /// `per_try_timeout`.
    PerTry = 2,
    /// `per_try_idle_timeout`.
    PerTryIdle = 3,
    /// `stream_idle_timeout`, `idle_timeout` of a route.
    Idle = IDLE,
    /// `max_stream_duration`.
    MaxDuration = 4,
    /// `request_timeout`.
    Request = 5,
    /// The next attempt; or the first one, of a request that a filter lets wait.
    BackOff = 6,
    /// `access_log_flush_interval`.
    LogFlush = 7,
    /// `max_stream_duration` of the cluster: one attempt with its response.
    Attempt = 8,
}

/// Deadlines of the lines for attempts of a client's request, beside its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum AttemptTimer {
    /// `upstream_log_flush_interval`.
    LogFlush = 9,
}

/// Deadlines of a client's opaque bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum TcpTimer {
    /// `idle_timeout` of the TCP proxy.
    Idle = IDLE,
    /// `max_downstream_connection_duration`.
    MaxDuration = 4,
    /// A mesh is told of it.
    Report = 5,
    /// The next connect.
    BackOff = 6,
    /// `access_log_flush_interval`.
    LogFlush = 7,
}

/// Deadlines of an app's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum AppTimer {
    /// One attempt, whole.
    Attempt = 0,
    /// The first byte of an attempt's response.
    FirstByte = 2,
    /// The connection of the attempt is looked at.
    Look = 3,
    /// Between two pieces of the response.
    Gap = IDLE,
    /// The request as a whole, or its answer, or its connection.
    Whole = 4,
    /// A second attempt beside the first.
    Hedge = 5,
    /// The next attempt.
    BackOff = 6,
}

impl StreamTimer for HttpTimer {
    const ALL: &[Self] = &[
        Self::Response,
        Self::PerTry,
        Self::PerTryIdle,
        Self::Idle,
        Self::MaxDuration,
        Self::Request,
        Self::BackOff,
        Self::LogFlush,
        Self::Attempt,
    ];

    fn place(self) -> usize {
        self as usize
    }

    fn is_of(kind: Kind) -> bool {
        matches!(kind, Kind::Http(_) | Kind::Rpc(_) | Kind::Callout(_))
    }
}

impl StreamTimer for AttemptTimer {
    const ALL: &[Self] = &[Self::LogFlush];

    fn place(self) -> usize {
        self as usize
    }

    fn is_of(kind: Kind) -> bool {
        HttpTimer::is_of(kind)
    }
}

impl StreamTimer for TcpTimer {
    const ALL: &[Self] =
        &[Self::Idle, Self::MaxDuration, Self::Report, Self::BackOff, Self::LogFlush];

    fn place(self) -> usize {
        self as usize
    }

    fn is_of(kind: Kind) -> bool {
        matches!(kind, Kind::Tcp(_))
    }
}

impl StreamTimer for AppTimer {
    const ALL: &[Self] = &[
        Self::Attempt,
        Self::FirstByte,
        Self::Look,
        Self::Gap,
        Self::Whole,
        Self::Hedge,
        Self::BackOff,
    ];

    fn place(self) -> usize {
        self as usize
    }

    fn is_of(kind: Kind) -> bool {
        kind == Kind::App
    }
}

impl Exchange {
    /// The slot of a stream's deadlines has come up.
    pub(crate) fn on_stream_slot(&mut self, index: StreamIndex, slot: u32, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let kind = stream.kind;
        let passed = Passed {
            index,
            serial: stream.serial,
            places: stream.deadlines.take_expired(now, slot, &mut self.env.timers),
        };
        match kind {
            Kind::Http(_) | Kind::Rpc(_) => {
                self.tell_each(&passed, Self::on_http_deadline, now);
                self.tell_each(&passed, Self::on_attempt_deadline, now);
            }
            Kind::Tcp(_) => self.tell_each(&passed, Self::on_tcp_deadline, now),
            Kind::App => self.tell_each(&passed, Self::on_call_deadline, now),
            Kind::Callout(_) => self.tell_each(&passed, Self::on_callout_deadline, now),
        }
    }

    /// Tells of each, as long as the stream that it was set for lives.
    fn tell_each<T: StreamTimer>(
        &mut self,
        passed: &Passed,
        tell: fn(&mut Self, StreamIndex, T, Instant),
        now: Instant,
    ) {
        let Passed { index, serial, places } = *passed;
        for timer in T::ALL.iter().filter(|timer| places[timer.place()]) {
            if self.streams.get(index).is_some_and(|stream| stream.serial == serial) {
                tell(self, index, *timer, now);
            }
        }
    }
}

/// What has passed of a stream's deadlines.
struct Passed {
    index: StreamIndex,
    serial: u64,
    places: [bool; COUNT],
}

impl Stream {
    pub(crate) fn set_timer(
        &mut self,
        index: StreamIndex,
        timer: impl StreamTimer,
        at: Instant,
        timers: &mut Timers,
    ) {
        debug_assert!(is_of(timer, self.kind), "a timer of another kind of stream");
        self.deadlines.set(timer.place(), at, TimerSlot::Stream(index.0).number(), timers);
    }

    pub(crate) fn clear_timer(&mut self, timer: impl StreamTimer) {
        debug_assert!(is_of(timer, self.kind), "a timer of another kind of stream");
        self.deadlines.clear(timer.place());
    }

    /// The attempt under way is answered: only the time between two pieces is bounded.
    pub(crate) fn clear_timers_of_answered(&mut self) {
        match self.kind {
            Kind::Http(_) | Kind::Rpc(_) | Kind::Callout(_) => self.clear_timer(HttpTimer::PerTry),
            Kind::App | Kind::Tcp(_) => self.clear_attempt_timers(),
        }
    }

    /// The attempt under way is given up: nothing bounds it any more.
    pub(crate) fn clear_attempt_timers(&mut self) {
        match self.kind {
            Kind::Http(_) | Kind::Rpc(_) => {
                self.clear_timer(HttpTimer::PerTry);
                self.clear_timer(HttpTimer::PerTryIdle);
                self.clear_timer(HttpTimer::BackOff);
                self.clear_timer(HttpTimer::Attempt);
            }
            Kind::App => {
                self.clear_timer(AppTimer::FirstByte);
                self.clear_timer(AppTimer::Look);
                self.clear_timer(AppTimer::BackOff);
            }
            Kind::Callout(_) => {
                self.clear_timer(HttpTimer::PerTry);
                self.clear_timer(HttpTimer::BackOff);
                self.clear_timer(HttpTimer::Attempt);
            }
            Kind::Tcp(_) => self.clear_timer(TcpTimer::BackOff),
        }
    }

    /// An attempt begins that its cluster lets take so long.
    #[inline]
    pub(crate) fn bound_attempt(
        &mut self,
        index: StreamIndex,
        limit: Option<Duration>,
        now: Instant,
        timers: &mut Timers,
    ) {
        if let Some(limit) = limit {
            self.end_attempt_at(index, now + limit, timers);
        }
    }

    #[cold]
    fn end_attempt_at(&mut self, index: StreamIndex, at: Instant, timers: &mut Timers) {
        if HttpTimer::is_of(self.kind) {
            let at = self.retries.first_end().map_or(at, |first| first.min(at));
            self.set_timer(index, HttpTimer::Attempt, at, timers);
        }
    }

    /// Sets (or, with `None`, takes away) the idle timeout.
    pub(crate) fn set_idle(
        &mut self,
        index: StreamIndex,
        idle: Option<Duration>,
        now: Instant,
        timers: &mut Timers,
    ) {
        self.idle_ns = idle.map_or(0, |idle| u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        self.deadlines.clear(IDLE);
        self.touch(index, now, timers);
    }

    /// The route's `per_try_idle_timeout`.
    pub(crate) fn per_try_idle_timeout(&self) -> Option<Duration> {
        self.routed()?.forward()?.retry.as_deref()?.per_try_idle_timeout
    }

    /// A piece of the response came: what bounds the time between two of them starts again.
    #[inline]
    pub(crate) fn touch_try(&mut self, index: StreamIndex, now: Instant, timers: &mut Timers) {
        if self.deadlines.is_set(HttpTimer::PerTryIdle.place())
            && HttpTimer::is_of(self.kind)
            && let Some(idle) = self.per_try_idle_timeout()
        {
            self.set_timer(index, HttpTimer::PerTryIdle, now + idle, timers);
        }
    }

    /// Something moved: the idle timer starts again.
    #[inline]
    pub(crate) fn touch(&mut self, index: StreamIndex, now: Instant, timers: &mut Timers) {
        if self.idle_ns > 0 {
            let at = now + Duration::from_nanos(self.idle_ns);
            self.deadlines.set(IDLE, at, TimerSlot::Stream(index.0).number(), timers);
        }
    }
}

impl Exchange {
    /// The same as [`Stream::set_timer`], if the stream is there.
    pub(crate) fn set_timer(&mut self, index: StreamIndex, timer: impl StreamTimer, at: Instant) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.set_timer(index, timer, at, &mut self.env.timers);
        }
    }

    /// The same as [`Stream::set_idle`], if the stream is there.
    pub(crate) fn set_idle(&mut self, index: StreamIndex, idle: Option<Duration>, now: Instant) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.set_idle(index, idle, now, &mut self.env.timers);
        }
    }

    /// Looks at the connection of an app's request at that time, as long as it waits for an answer.
    pub(crate) fn watch_at(&mut self, index: StreamIndex, at: Instant) {
        self.set_timer(index, AppTimer::Look, at);
    }

    /// Starts the route's timeout: it runs from the end of the request, and bounds the answer to one for WebSocket.
    pub(crate) fn start_response_timer(&mut self, index: StreamIndex, now: Instant) {
        let is_bounded =
            |stream: &&Stream| stream.upgrade == Upgrade::No || stream.asks_for_websocket();
        let stream = self.streams.get(index).filter(is_bounded);
        if let Some(timeout) = stream.and_then(|stream| stream.response_timeout.get()) {
            self.set_timer(index, HttpTimer::Response, now + timeout);
        }
    }
}

fn is_of<T: StreamTimer>(_timer: T, kind: Kind) -> bool {
    T::is_of(kind)
}

/// How many deadlines a stream of any kind has.
pub(crate) const COUNT: usize = 10;

/// Where every kind has what begins anew with each piece that moves.
const IDLE: usize = 1;
