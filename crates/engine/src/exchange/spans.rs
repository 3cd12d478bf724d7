//! Where the time of a stream went, as spans on a track of its own, while a recording runs.
//!
//! Arrives: a stream at the moments when it passes from one [`Phase`] of its life to the next. Leaves: records in the
//! trace ring of the thread.
//!
//! Whether a stream is traced is decided when it opens; a place on the path of one that is not costs a test of its
//! `SpanState`. Stamps are read from the processor's counter, never handed to anything that decides: a simulated run
//! is the same with and without.

use towpath_proto::Instant;
use towpath_proto::tls::{CipherSuite, Layer, Version};
use towpath_trace::{Stamp, Value, emit};

use crate::conn::spans::{CONNECT, HANDSHAKE, Phase, REQUEST, SLOW, TCP, name_of};
use crate::env::Env;
use crate::exchange::stream::{Stream, Upgrade};
use crate::ids::Kind;
use crate::message::{FromWorker, SlowStream};

impl Stream {
    /// Begins the span of the whole stream; what it does next is `phase`.
    #[inline]
    pub(crate) fn trace_begin(&mut self, phase: Phase) {
        if let Some(span) = self.recorder.span_mut() {
            let site = if matches!(self.kind, Kind::Tcp(_)) { &TCP } else { &REQUEST };
            span.begin(site, &self.request, phase);
        }
    }

    /// From here on it does this.
    #[inline]
    pub(crate) fn trace_phase(&mut self, phase: Phase) {
        if let Some(span) = self.recorder.span_mut() {
            span.enter(phase);
        }
    }

    /// The request is with the driver, whole. If its response has begun already nothing is waited for.
    #[inline]
    pub(crate) fn trace_sent(&mut self) {
        if let Some(span) = self.recorder.span_mut().filter(|span| span.phase == Phase::Send) {
            span.enter(Phase::Wait);
        }
    }

    /// A connect that it waited for is over.
    pub(crate) fn trace_connect(
        &self,
        since: Option<Stamp>,
        upstream: &towpath_proto::Address,
        outcome: &str,
    ) {
        if let (Some(span), Some(since)) = (self.recorder.span(), since) {
            // It may have been begun for a stream before this one.
            let since = since.later(span.since);
            let upstream = upstream.to_string();
            let values = [Value::Text(&upstream), Value::Text(outcome)];
            if CONNECT.enabled() {
                emit::complete(&CONNECT, span.track, since, Stamp::now(), values);
            }
        }
    }

    /// A handshake that it waited for is over.
    pub(crate) fn trace_handshake(&self, since: Option<Stamp>, layer: &Layer) {
        if let (Some(span), Some(since)) = (self.recorder.span(), since) {
            let since = since.later(span.since);
            let version = layer.version().map(Version::name);
            let cipher = layer.cipher_suite().map(CipherSuite::name);
            if HANDSHAKE.enabled() {
                let values = [version.into(), cipher.into()];
                emit::complete(&HANDSHAKE, span.track, since, Stamp::now(), values);
            }
        }
    }

    /// It is over; when that was, if it was as slow as a recording asks for.
    #[inline]
    pub(crate) fn trace_end(&self, slow: bool) -> Option<(Stamp, Stamp)> {
        self.recorder.span().is_some().then(|| self.end_span(slow)).flatten()
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn end_span(&self, slow: bool) -> Option<(Stamp, Stamp)> {
        let span = self.recorder.span()?;
        let now = Stamp::now();
        span.leave(now);
        if slow && SLOW.enabled() {
            // Stands for the whole in a file whose ring did not keep the begin.
            let [method, path] = name_of(&self.request);
            let values = [method, path, self.status.into()];
            emit::complete(&SLOW, span.track, span.began, now, values);
        }
        let site = if matches!(self.kind, Kind::Tcp(_)) { &TCP } else { &REQUEST };
        span.end(site, self.recorder.record());
        slow.then_some((span.began, now))
    }
}

impl Env {
    /// Ends the spans of a stream, and tells of it if it took too long and was traced.
    pub(crate) fn end_spans(&mut self, stream: &Stream, now: Instant) {
        let duration = now.since(stream.times.start);
        let is_request = !matches!(stream.kind, Kind::Tcp(_)) && stream.upgrade != Upgrade::Done;
        let slow = is_request && duration >= self.slow_after;
        if let Some((from, until)) = stream.trace_end(slow) {
            self.tell(FromWorker::Slow(SlowStream { duration, from, until }));
        }
    }
}
