//! The end of a stream: our own replies, resets, and what is left to do when all is said.
//!
//! Arrives: a stream that is complete, or that cannot be completed. Leaves: its record in counters and logs, its
//! upstream connection in the pool or closed, its downstream connection ready for the next request or closed.

use std::time::Duration;

use bytes::Bytes;
use towpath_proto::head::{Head, Version};
use towpath_proto::name::Name;
use towpath_proto::{Close, Instant};

use crate::conn::Connection;
use crate::conn::mux::Released;
use crate::conn::spans::Phase;
use crate::env::TimerSlot;
use crate::env::log::TCP_CONNECTION_END;
use crate::exchange::Exchange;
use crate::exchange::forward::Item;
use crate::exchange::log::Setting;
use crate::exchange::recorder::Recording;
use crate::exchange::stream::{Progress, Stream, Streams, Upgrade, UpstreamState};
use crate::exchange::timers::HttpTimer;
use crate::exchange::tracing::TryEnd;
use crate::filter::Failed;
use crate::grpc;
use crate::header_ops::Subject;
use crate::ids::{Closer, Kind, Leg, ResetReason, StreamIndex};
use crate::record::{Flags, close, details};
use crate::stats::{ClusterStats, Counter};
use crate::upstream::passive_health::HostOutcome;

impl Exchange {
    /// Answers a request ourselves.
    pub(crate) fn local_reply(
        &mut self,
        index: StreamIndex,
        status: u16,
        body: &[u8],
        details: &'static str,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if !stream.is_unanswered() {
            self.abandon(index, details, now);
            return;
        }
        let mut head = self.env.heads.take();
        head.set_status(status);
        self.answer(index, head, body.to_vec(), details, now);
    }

    /// Sends an answer of our own, changed as its route says, worded as the listener wants it (`local_reply_config`)
    /// and as the client can read it.
    pub(crate) fn answer(
        &mut self,
        index: StreamIndex,
        head: Head,
        body: Vec<u8>,
        details: &'static str,
        now: Instant,
    ) {
        self.answer_as(index, head, body, None, details, now);
    }

    /// The same with content of a type that neither a route nor a word of the listener's has a say in.
    pub(crate) fn answer_as(
        &mut self,
        index: StreamIndex,
        head: Head,
        mut body: Vec<u8>,
        content_type: Option<&str>,
        details: &'static str,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if let Kind::Rpc(_) = stream.kind {
            self.answer_call(index, head.status(), details, now);
            self.env.heads.give(head);
            return;
        }
        stream.recorder.note(|record| record.details = details);
        stream.local_reply = true;
        stream.status = head.status();
        stream.response.put(head, &mut self.env.heads);
        self.change_reply(index, now);
        if let Some(content_type) = content_type
            && let Some(stream) = self.streams.get_mut(index)
        {
            stream.response.set(Name::ContentType, content_type.as_bytes());
        }
        self.map_local_reply(index, &mut body, now);
        if let Some(stream) = self.streams.get_mut(index) {
            if body.is_empty() {
                stream.response.remove(Name::ContentType);
            }
            if stream.came_as_grpc() {
                word_for_grpc(&mut stream.response, &mut body);
            }
        }
        self.reply(index, Bytes::from(body), now);
    }

    /// Sends `stream.response` with a whole body.
    pub(crate) fn reply(&mut self, index: StreamIndex, body: Bytes, now: Instant) {
        self.detach(index, Close::Abort, now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.trace_phase(Phase::Reply);
        if !body.is_empty() {
            if stream.response.get(Name::ContentType).is_none() {
                stream.response.set(Name::ContentType, b"text/plain");
            }
            stream.response.set_number(Name::ContentLength, body.len() as u64);
        }
        let silent = body.is_empty() || stream.head_only;
        stream.recorder.note(|record| record.upstream_last_received = None);
        let serial = stream.serial;
        let http = stream.context.http();
        if !body.is_empty() && http.is_some_and(|it| it.chain(stream.chain).filters_responses) {
            stream.filters_or_none().reply = body.clone();
        }
        let is_past = stream.filters.as_deref().is_none_or(|filters| filters.is_past);
        if !is_past && !silent {
            stream.response_end = Progress::Streaming;
            self.send_response_head(index, false, now);
            if self.is_past_filters(index, serial) {
                return;
            }
            if let Some(stream) = self.streams.get_mut(index) {
                stream.recorder.note(|record| record.bytes_sent += body.len() as u64);
            }
            self.filter_response_item(index, Item::Data(body), now);
            return self.filter_response_item(index, Item::End, now);
        }
        let was_past = stream.filters.as_deref().is_some_and(|filters| filters.is_past);
        stream.response_end = Progress::Ended;
        self.send_response_head(index, silent, now);
        if !was_past && self.is_past_filters(index, serial) {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        if silent && stream.is_unanswered() {
            // A filter holds it.
            return;
        }
        let downstream = stream.downstream;
        if !silent {
            stream.recorder.note(|record| record.bytes_sent += body.len() as u64);
            if matches!(stream.kind, Kind::Callout(_)) {
                self.receive_callout(index, Item::Data(body), now);
            } else {
                self.write(downstream, Item::Data(body), now);
                self.write(downstream, Item::End, now);
            }
        }
        self.on_response_ended(index, now);
    }

    /// The client cannot be told properly any more: its connection ends.
    pub(crate) fn reset_downstream(
        &mut self,
        index: StreamIndex,
        reason: ResetReason,
        upstream_ended: bool,
        now: Instant,
    ) {
        let details = reason.reset().after_response();
        self.streams.count_tx_reset(index);
        self.count_reset_call(index);
        // The client sees the end that the upstream made. An end without a reset must not make it look complete.
        let is_delimited = self.streams.get(index).is_some_and(|stream| {
            stream.upgrade == Upgrade::No
                && (stream.request.version() != Version::Http10
                    || stream.response.get(Name::ContentLength).is_some())
        });
        let how = if upstream_ended && is_delimited { Close::Flush } else { Close::FlushReset };
        self.abandon_with(index, details, how, now);
    }

    /// Counts a response that broke off; as in Envoy, of calls by gRPC alone, which a filter may have made of them.
    pub(crate) fn count_reset_call(&mut self, index: StreamIndex) {
        let Some(stream) = self.streams.get(index) else { return };
        if !(stream.came_as_grpc() || grpc::is_grpc(&stream.request)) {
            return;
        }
        if let Some(http) = stream.context.http() {
            http.stats.rq_reset_after_downstream_response_started.inc();
        } else if matches!(stream.kind, Kind::Callout(_)) {
            let stats = self.callouts.stats(&self.env);
            stats.rq_reset_after_downstream_response_started.inc();
        }
    }

    /// Ends a stream in the middle, by our own decision.
    pub(crate) fn abandon(&mut self, index: StreamIndex, details: &'static str, now: Instant) {
        self.abandon_with(index, details, Close::Abort, now);
    }

    /// Ends a stream in the middle; `how` is for a client that has a part of its response.
    fn abandon_with(
        &mut self,
        index: StreamIndex,
        details: &'static str,
        how: Close,
        now: Instant,
    ) {
        self.weigh(index);
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.recorder.note(|record| record.details = details);
        if matches!(stream.kind, Kind::Callout(_)) {
            return self.fail_callout(index, Failed::Reset, now);
        }
        let downstream = stream.downstream;
        let connection = self.conns.table.get(downstream.connection);
        if connection.is_some_and(|connection| !connection.mux.is_alone()) {
            // The client's other streams go on.
            self.conns.encode_for(downstream.connection, &mut self.env);
            if let Some(connection) = self.conns.table.get_mut(downstream.connection) {
                connection.mux.reset(downstream.number, &mut self.conns.out);
            }
            self.finish(index, now);
            return;
        }
        let Some(stream) = self.streams.get(index) else { return };
        let how = if stream.response_end == Progress::Streaming { how } else { Close::Flush };
        self.detach(index, Close::Abort, now);
        let mut closer = Closer::Local(close::DRAINED);
        let Leg { connection: downstream, number } = downstream;
        if let Some(connection) = self.conns.table.get_mut(downstream) {
            connection.release(number);
            if connection.is_ended_by_peer() {
                closer = Closer::Remote;
            }
        }
        self.close_record(index, now);
        let Self { listeners, conns, env, .. } = self;
        if how == Close::Flush {
            return listeners.close_client(downstream, closer, conns, env, now);
        }
        listeners.count_downstream_close(downstream, closer, conns, env, now);
        conns.end_connection(downstream, how, env);
        listeners.check_drained(env);
    }

    /// Both directions are through, or as far as they will ever be.
    pub(crate) fn finish(&mut self, index: StreamIndex, now: Instant) {
        if self.finish_plain(index, now) {
            return;
        }
        if self.streams.get(index).is_some_and(Stream::keeps_request_end) {
            // It has come in whole, and goes no further.
            self.detach(index, Close::Abort, now);
            if let Some(stream) = self.streams.get_mut(index) {
                stream.request_end = Progress::Ended;
            }
        }
        self.weigh(index);
        let Some(stream) = self.streams.get(index) else { return };
        let (downstream, upstream) = (stream.downstream, stream.upstream);
        let complete = stream.is_complete();
        let unchanged = stream.upgrade == Upgrade::No;
        let is_tcp = matches!(stream.kind, Kind::Tcp(_));
        let opaque = stream.upgrade == Upgrade::Done || is_tcp;
        match upstream {
            UpstreamState::Active(leg) if complete && is_tcp && unchanged => {
                self.sever(index, leg, Close::Flush, now);
            }
            UpstreamState::Active(leg) if complete => {
                self.leave_upstream(index, leg, true, Close::Flush, now);
            }
            UpstreamState::Active(_) | UpstreamState::Pending(_) | UpstreamState::BackingOff => {
                self.detach(index, Close::Abort, now);
            }
            UpstreamState::None => {}
        }
        if !matches!(upstream, UpstreamState::Active(_)) {
            self.end_waiting(index);
        }
        let Leg { connection: downstream, number } = downstream;
        let released = self.conns.table.get_mut(downstream).map(|it| it.release(number));
        if released == Some(Released::GoesOn) {
            self.bound_flush(index, now);
        }
        self.close_record(index, now);
        if released == Some(Released::GoesOn) {
            self.after_call(downstream, now);
            return;
        }
        let Some(connection) = self.conns.table.get_mut(downstream) else { return };
        if !(complete && unchanged)
            && let Some(http) =
                connection.downstream().and_then(|downstream| downstream.context.http())
        {
            http.stats.downstream_rq_response_before_rq_complete.inc();
        }
        if opaque {
            self.close_downstream(downstream, now);
            return;
        }
        if complete && released == Some(Released::KeepAlive) {
            self.rest_downstream(downstream, now);
        } else {
            self.close_downstream(downstream, now);
        }
    }

    /// What of an answer has not left its connection, which goes on, has a time to leave.
    pub(crate) fn bound_flush(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let Leg { connection, number } = stream.downstream;
        if let (Some(whole), Some(connection)) =
            (flush_timeout(stream), self.conns.table.get_mut(connection))
        {
            connection.mux.flush_within(number, whole, now);
        }
    }

    /// Fills in what a stream weighed on its client's wire, if a log may ask for it.
    pub(crate) fn weigh(&mut self, index: StreamIndex) {
        let Some(stream) = self.streams.get(index) else { return };
        if let Kind::Rpc(_) = stream.kind {
            return;
        }
        let id = stream.downstream.connection;
        // What is encoded and not yet handed to the driver counts too.
        let waiting = self.conns.waiting_for(id);
        if let (Some(stream), Some(connection)) =
            (self.streams.get_mut(index), self.conns.table.get_mut(id))
        {
            connection.weigh(stream, waiting);
        }
    }

    /// Counts and logs a stream, and forgets it.
    pub(crate) fn close_record(&mut self, index: StreamIndex, now: Instant) {
        self.release_retry(index);
        let Some(stream) = self.streams.get(index) else { return };
        if stream.kind == Kind::App {
            self.withdraw_standby(index);
        } else if stream.retries.is_hedged() {
            self.give_up_beside(index, now);
        }
        let Some(mut stream) = self.streams.close(index) else { return };
        self.env.timers.clear(TimerSlot::Stream(index.0).number());
        stream.trace_phase(Phase::Record);
        let ends_with_client = matches!(stream.kind, Kind::Tcp(_))
            || stream.flags.has(Flags::DOWNSTREAM_CONNECTION_TERMINATION);
        stream.recorder.note(|record| {
            record.end = Some(now);
            record.client.closed = ends_with_client.then_some(now);
        });
        let mut is_redirected = false;
        if stream.knows_redirects() {
            is_redirected = stream.is_redirected();
            self.show_redirect(&mut stream);
        }
        stream.complete_record();
        if stream.recorder.has_attempt() {
            stream.end_measuring(TryEnd::Answered, now);
        }
        if stream.recorder.logs_attempt() {
            self.log_attempt(&mut stream, TryEnd::Answered, now);
        }
        if let Some(http) = stream.context.http() {
            let stats = &http.stats;
            stats.downstream_rq_active.dec();
            if (!stream.is_complete() || stream.upgrade != Upgrade::No) && !is_redirected {
                stats.downstream_rq_rx_reset.inc();
            }
            if stream.upgrade == Upgrade::Done {
                stats.downstream_cx_upgrades_active.dec();
            }
            if !is_redirected {
                stats.downstream_rq_time.record(now.millis_since(stream.times.start));
            }
            if stream.is_health_check {
                http.tracing_stats.health_check.inc();
            } else if !is_redirected {
                // Of such a one no answer went down.
                stats.count_response(stream.status);
                http.listener_stats.count_response(stream.status);
            }
            self.log(&stream, crate::exchange::log::DOWNSTREAM_END, now);
            if http.chain(stream.chain).tells_ends {
                self.tell_end(&stream, http, now);
            }
            if http.config.tracing.is_some() {
                self.end_tracing(&mut stream, now);
            }
        } else {
            self.log(&stream, TCP_CONNECTION_END, now);
            self.log_for_listener(&stream, now);
            self.tell_tcp(&mut stream, true, now);
        }
        self.env.end_spans(&stream, now);
        match stream.kind {
            Kind::App => self.end_call(&mut stream, now),
            Kind::Callout(_) => self.end_callout(&mut stream, now),
            Kind::Http(_) | Kind::Rpc(_) | Kind::Tcp(_) => {
                if stream.filters.is_some() {
                    self.end_asking(&stream, now);
                }
            }
        }
        self.streams.recycle(stream, &mut self.env.heads);
    }

    /// A deadline of a client's request has passed.
    pub(crate) fn on_http_deadline(&mut self, index: StreamIndex, timer: HttpTimer, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        let unanswered = stream.is_unanswered();
        let (upstream, tried) = (stream.upstream, stream.retries.pool_key);
        match timer {
            HttpTimer::Response => {
                stream.flags.set(Flags::UPSTREAM_REQUEST_TIMEOUT);
                let (is_hedged, is_late) = (stream.retries.is_hedged(), stream.retries.is_late());
                // A wait before a retry is no host's.
                let is_under_way = upstream != UpstreamState::BackingOff
                    && !(is_hedged && upstream == UpstreamState::None);
                if is_hedged {
                    self.time_out_beside(index, now);
                }
                if is_under_way {
                    self.count_timeout(index, |stats| &stats.upstream_rq_timeout);
                }
                self.measure_timeout(index, now);
                let late = self.streams.get(index).map(Stream::late_reply);
                let Some((status, text)) = late else { return };
                if let (UpstreamState::Active(_), Some(pool_key), false) =
                    (upstream, tried, is_late)
                {
                    self.upstreams.note(pool_key, HostOutcome::Late(status), &mut self.env);
                }
                if unanswered && is_under_way {
                    self.charge(index, status);
                }
                self.reply_or_abandon(index, status, text, details::RESPONSE_TIMEOUT, now);
            }
            HttpTimer::PerTry => self.end_late_attempt(index, now),
            HttpTimer::PerTryIdle if stream.hedges() => {
                self.outlast(index, ResetReason::PerTryIdleTimeout, now);
            }
            HttpTimer::PerTryIdle if unanswered => {
                self.count_timeout(index, |stats| &stats.upstream_rq_per_try_idle_timeout);
                self.reset_upstream(index, ResetReason::PerTryIdleTimeout, now);
            }
            HttpTimer::PerTryIdle => {
                stream.flags.set(Flags::UPSTREAM_REQUEST_TIMEOUT);
                let (status, _) = stream.late_reply();
                self.count_timeout(index, |stats| &stats.upstream_rq_per_try_idle_timeout);
                if let Some(pool_key) = tried {
                    self.upstreams.note(pool_key, HostOutcome::Late(status), &mut self.env);
                }
                self.measure_spent(index, now);
                let text = b"upstream request timeout";
                self.reply_or_abandon(
                    index,
                    504,
                    text,
                    details::UPSTREAM_PER_TRY_IDLE_TIMEOUT,
                    now,
                );
            }
            HttpTimer::Idle => {
                http.stats.downstream_rq_idle_timeout.inc();
                stream.flags.set(Flags::STREAM_IDLE_TIMEOUT);
                let status = if stream.is_all_here() { 504 } else { 408 };
                let text = b"stream timeout";
                self.reply_or_abandon(index, status, text, details::STREAM_IDLE_TIMEOUT, now);
            }
            HttpTimer::MaxDuration => {
                http.stats.downstream_rq_max_duration_reached.inc();
                let status = if stream.is_all_here() { 504 } else { 408 };
                if !unanswered {
                    self.streams.count_tx_reset(index);
                    return self.abandon(index, details::MAX_DURATION_TIMEOUT, now);
                }
                let mut head = self.env.heads.take();
                head.set_status(status);
                if stream.came_as_grpc() {
                    head.set_number(Name::GrpcStatus, grpc::DEADLINE_EXCEEDED.into());
                }
                let text = b"downstream duration timeout".to_vec();
                self.answer(index, head, text, details::MAX_DURATION_TIMEOUT, now);
            }
            HttpTimer::Request => {
                http.stats.downstream_rq_timeout.inc();
                let text = b"request timeout";
                self.reply_or_abandon(index, 408, text, details::REQUEST_OVERALL_TIMEOUT, now);
            }
            HttpTimer::LogFlush => {
                self.log_under_way(index, crate::exchange::log::DOWNSTREAM_PERIODIC, now);
                if let Some(interval) = http.config.log_flush_interval {
                    self.set_timer(index, HttpTimer::LogFlush, now + interval);
                }
            }
            HttpTimer::Attempt => self.end_long_attempt(index, now),
            HttpTimer::BackOff if self.go_on_waited(index, now) => {}
            HttpTimer::BackOff => self.end_back_off(index, now),
        }
    }

    /// Ends an attempt without an answer whose time is over.
    pub(crate) fn end_late_attempt(&mut self, index: StreamIndex, now: Instant) {
        if self.streams.get(index).is_some_and(Stream::hedges) {
            return self.outlast(index, ResetReason::PerTryTimeout, now);
        }
        if self.streams.get(index).is_some_and(Stream::is_unanswered) {
            self.count_timeout(index, |stats| &stats.upstream_rq_per_try_timeout);
            self.reset_upstream(index, ResetReason::PerTryTimeout, now);
        }
    }

    /// Ends an attempt that takes longer than its cluster allows, and with it a response that has begun.
    pub(crate) fn end_long_attempt(&mut self, index: StreamIndex, now: Instant) {
        if self.end_long_beside(index, now) {
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        if !matches!(stream.upstream, UpstreamState::Active(_)) {
            return;
        }
        if let Some(cluster) = self.upstreams.clusters.get(stream.cluster) {
            cluster.stats.upstream_rq_max_duration_reached.inc();
        }
        if stream.is_unanswered() {
            return self.reset_upstream(index, ResetReason::MaxStreamDuration, now);
        }
        if matches!(stream.kind, Kind::Callout(_)) {
            return self.fail_callout(index, Failed::Reset, now);
        }
        stream.flags.set(Flags::UPSTREAM_MAX_STREAM_DURATION);
        self.streams.count_tx_reset(index);
        self.abandon(index, details::UPSTREAM_MAX_STREAM_DURATION, now);
    }

    pub(crate) fn reply_or_abandon(
        &mut self,
        index: StreamIndex,
        status: u16,
        body: &[u8],
        details: &'static str,
        now: Instant,
    ) {
        if self.streams.get(index).is_some_and(Stream::is_unanswered) {
            self.local_reply(index, status, body, details, now);
        } else {
            self.streams.count_tx_reset(index);
            self.abandon(index, details, now);
        }
    }

    pub(crate) fn count_timeout(
        &mut self,
        index: StreamIndex,
        counter: fn(&ClusterStats) -> &Counter,
    ) {
        let Some(stream) = self.streams.get(index) else { return };
        let Some(pool_key) = stream.retries.pool_key else { return };
        let clusters = &mut self.upstreams.clusters;
        let Some(cluster) = clusters.get(stream.cluster) else { return };
        counter(&cluster.stats).inc();
        stream.count(|stats| stats.upstream_rq_timeout.inc());
        if let Some(pool) = clusters.pool_mut(pool_key) {
            pool.counts.requests_timeout += 1;
            pool.show();
        }
    }

    /// Applies `local_reply_config` to `stream.response` and its text.
    pub(crate) fn map_local_reply(&mut self, index: StreamIndex, text: &mut Vec<u8>, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let Some(config) = context.http().and_then(|http| http.config.local_reply.as_ref()) else {
            return;
        };
        let random = self.env.random.next();
        let mut response = stream.response.take();
        stream.status = response.status();
        let before = response.clone();
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let mut facts = crate::exchange::log::facts(stream, Some(&before), setting, now);
        let mapper = config.mappers.iter().find(|mapper| mapper.filter.matches(&facts, random));
        if let Some(mapper) = mapper {
            if let Some(body) = &mapper.body {
                text.clear();
                text.extend_from_slice(body.as_bytes());
                response.set(Name::ContentType, b"text/plain");
            }
            // What is added sees the answer as it was.
            facts.local_reply_body = text;
            mapper.headers.apply(&mut response, Subject::Response, &facts, &mut self.env.scratch);
            if let Some(status) = mapper.status {
                response.set_status(status);
                stream.status = status;
            }
        }
        let format = mapper.and_then(|mapper| mapper.format.as_ref()).or(config.body.as_ref());
        if let Some(format) = format {
            stream.complete_record();
            let mut facts = crate::exchange::log::facts(stream, Some(&response), setting, now);
            facts.local_reply_body = text;
            let mut made = Vec::new();
            format.format.write(&mut made, &facts);
            if !made.is_empty() {
                let content_type = format.content_type.as_deref().unwrap_or("text/plain");
                response.set(Name::ContentType, content_type.as_bytes());
            }
            *text = made;
        }
        if let Some(stream) = self.streams.get_mut(index) {
            stream.response.put(response, &mut self.env.heads);
        }
    }
}

impl Connection {
    /// Fills in what a stream weighed on it, its client's wire. So much is `waiting` to be handed to the driver.
    pub(crate) fn weigh(&mut self, stream: &mut Stream, waiting: u64) {
        if !self.mux.is_alone() {
            // What of the frames of many is this stream's is not told apart: its content counts.
            stream.recorder.note(|record| {
                record.wire_received = record.bytes_received;
                record.wire_sent = record.bytes_sent;
            });
            return;
        }
        self.accounted = self.bytes_received - self.mux.buffered() as u64;
        if let Some(Recording { record, wire, .. }) = stream.recorder.recording_mut() {
            record.wire_received = self.accounted - wire.downstream_received;
            record.wire_sent = self.encoded + waiting - wire.downstream_sent;
        }
    }
}

impl Streams {
    pub(crate) fn count_tx_reset(&self, index: StreamIndex) {
        if let Some(http) = self.get(index).and_then(|stream| stream.context.http()) {
            http.stats.downstream_rq_tx_reset.inc();
        }
    }
}

/// What gRPC clients read: the status and the text in their own fields, and no body.
pub(crate) fn word_for_grpc(response: &mut Head, body: &mut Vec<u8>) {
    let status = grpc::of_http(response.status());
    response.set_status(200);
    response.set(Name::ContentType, b"application/grpc");
    if response.get(Name::GrpcStatus).is_none() {
        response.set_number(Name::GrpcStatus, status.into());
    }
    if !body.is_empty() && response.get(Name::GrpcMessage).is_none() {
        let mut message = Vec::with_capacity(body.len());
        grpc::encode_message(body, &mut message);
        response.set(Name::GrpcMessage, &message);
    }
    body.clear();
}

/// How long what is left of an answer may take to leave: as its route says, else its listener; where neither does, so
/// long as a stream of its listener may be idle. Envoy 1.40 too asks no route for that.
fn flush_timeout(stream: &Stream) -> Option<Duration> {
    let http = stream.context.http()?;
    let of_route = stream.routed().and_then(|routed| routed.forward()?.flush_timeout);
    let said = of_route.or(http.config.stream_flush_timeout);
    said.unwrap_or(http.config.stream_idle_timeout)
}
