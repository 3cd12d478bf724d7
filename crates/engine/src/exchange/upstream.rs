//! The server's side of a stream: a connection for it, the response in, the connection back to its pool.
//!
//! Arrives: a stream with a connection, response heads from `forward.rs`, ends and deadlines of upstream connections.
//! Leaves: response heads on their way down, connections offered to their pool or closed.

use towpath_proto::head::{Head, Method, Version};
use towpath_proto::name::Name;
use towpath_proto::{Close, ConnectionId, Failure, Instant, http1};

use crate::conn::ConnectionTimer;
use crate::conn::mux::{AtEnd, Part, Released, Violation};
use crate::conn::spans::Phase;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::charge::{Counted, count_answer, says_canary};
use crate::exchange::clients::client_of;
use crate::exchange::forward::Item;
use crate::exchange::hedging::Hedging;
use crate::exchange::load::note_load;
use crate::exchange::retry::parse_number;
use crate::exchange::rpc::Bridging;
use crate::exchange::stream::{Progress, Stream, Streams, Upgrade, UpstreamState};
use crate::exchange::tracing::TryEnd;
use crate::exchange::tunnel::Passage;
use crate::grpc;
use crate::ids::{Kind, Leg, PoolKey, ResetReason, StreamIndex};
use crate::local::message::Error;
use crate::record::{Heads, details};
use crate::upstream::Upstreams;
use crate::upstream::cluster::RequestOutcome;
use crate::upstream::passive_health::HostOutcome;

impl Exchange {
    /// Gives a stream its connection and sends what there is of the request.
    pub(crate) fn attach(&mut self, index: StreamIndex, id: ConnectionId, now: Instant) {
        let (Some(connection), Some(stream)) =
            (self.conns.table.get_mut(id), self.streams.get_mut(index))
        else {
            return;
        };
        if let UpstreamState::Active(before) = stream.upstream {
            // It moves to a standby connection.
            stream.upstream = UpstreamState::None;
            self.sever(index, before, Close::Abort, now);
            return self.attach(index, id, now);
        }
        match stream.passage(connection) {
            Passage::Free => {}
            Passage::Unknown => return self.await_settings(index, id, now),
            Passage::Closed => {
                stream.upstream = UpstreamState::None;
                self.env.offer_soon(id);
                if stream.kind == Kind::App {
                    return self.fail_call(index, Error::NoUpgrade, now);
                }
                return self.local_reply(index, 501, b"", details::HTTP2_UPGRADE, now);
            }
        }
        let connection = if connection.heard().is_none() {
            connection
        } else {
            self.upstreams.ask_ahead_of_stream(id, &mut self.conns, &mut self.env, now);
            let Some(connection) = self.conns.table.get_mut(id) else { return };
            connection
        };
        let Some(number) = connection.mux.open() else { return };
        let leg = Leg { connection: id, number };
        let tunnels = stream.is_plain_tcp();
        stream.trace_phase(if tunnels { Phase::Tunnel } else { Phase::Send });
        let sent_before = connection.bytes_sent;
        let waited = connection.opened < now;
        let Some(upstream) = connection.upstream_mut() else { return };
        let pool_key = upstream.pool_key;
        // One that was opened ahead of need has lain idle as well.
        stream.reused = upstream.requests > 0 || waited;
        stream.retries.sent_before = sent_before;
        upstream.requests += 1;
        let requests = upstream.requests;
        let has_waited = matches!(stream.upstream, UpstreamState::Pending(_));
        stream.upstream = UpstreamState::Active(leg);
        stream.begin_attempt(connection, now);
        connection.streams.bind(number, index);
        connection.deadlines.clear(ConnectionTimer::Idle as usize);
        if let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) {
            cluster.request_began(pool_key, now);
            cluster.show_pool(pool_key);
            stream.count(|stats| stats.upstream_rq_total.inc());
            let longest = stream.longest_attempt(cluster.config.max_stream_duration);
            stream.bound_attempt(index, longest, now, &mut self.env.timers);
            let limit = cluster.config.max_requests_per_connection;
            if limit > 0
                && requests >= limit
                && let Some(upstream) = connection.upstream_mut()
            {
                upstream.retired = true;
                cluster.stats.upstream_cx_max_requests.inc();
            }
        }
        let ends_here = stream.upgrade == Upgrade::ConnectHere || stream.posts_bytes;
        let whole = is_whole_request(stream);
        self.upstreams.note(
            pool_key,
            if tunnels { HostOutcome::Served } else { HostOutcome::Reached },
            &mut self.env,
        );
        self.upstreams.preconnect(pool_key, &mut self.conns, &mut self.env, now);
        if self.streams.get(index).is_some_and(|stream| stream.recorder.logs_attempt()) {
            self.log_attempt_start(index, now);
        }
        if tunnels {
            self.greet_server(id);
            self.log_connected(index, now);
            self.replay(index, leg, now);
        } else if ends_here {
            self.begin_bytes(index, leg, now);
        } else {
            self.send_request(index, leg, now);
        }
        if whole {
            // Of such a request nothing more is read, and its client has not been waiting for a place.
            return;
        }
        if has_waited {
            self.end_waiting(index);
        }
        self.update_source(index, true);
        self.end_oneway(index, now);
    }

    /// A host has its connection for a tunnel that ends here: it gets the bytes, and the client is told.
    #[cold]
    fn begin_bytes(&mut self, index: StreamIndex, leg: Leg, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let connect = stream.routed().and_then(|routed| routed.forward()?.connect());
        let header = connect.and_then(|connect| connect.header.as_ref());
        if let (Some(header), Some(host)) = (header, self.conns.table.get(leg.connection)) {
            let client = client_of(stream, &self.conns);
            let (bytes, _) = header.write(client.as_deref(), (&[], &[]), &host.local, &host.peer);
            self.write(leg, Item::Data(bytes.into()), now);
        }
        if self.streams.get(index).is_some_and(|stream| stream.posts_bytes) {
            self.replay(index, leg, now);
        }
        let mut head = self.env.heads.take();
        head.set_status(200);
        self.on_response_head(index, leg, head, false, now);
    }

    /// Encodes the request for its connection.
    pub(crate) fn send_request(&mut self, index: StreamIndex, leg: Leg, now: Instant) {
        let id = leg.connection;
        self.finish_request_head(index, now);
        self.conns.encode_for(id, &mut self.env);
        let (Some(stream), Some(connection)) =
            (self.streams.get_mut(index), self.conns.table.get_mut(id))
        else {
            return;
        };
        let is_http2 = connection.mux.is_http2();
        // Over HTTP/2 the stream's content is the tunnel's; over HTTP/1 the tunnel comes behind the message.
        let awaits_tunnel = stream.awaits_tunnel() || (is_http2 && stream.asks_for_tunnel());
        let end = if awaits_tunnel {
            !is_http2 && stream.upgrade != Upgrade::Post
        } else {
            stream.request_end == Progress::Ended
                && stream.body.len() == 0
                && stream.body.trailers().is_none()
        };
        if awaits_tunnel && !is_http2 {
            stream.complete_upgrade_request(&mut self.env.random);
        }
        let is_first = connection.encoded == 0 && connection.tls.is_none();
        let is_whole = stream.frame.is_some() && connection.mux.sends_whole();
        let before = stream.recorder.before_head(&self.conns.out);
        let head = Part::Head(&stream.request, end);
        connection.mux.send(leg.number, head, &mut self.conns.out);
        if let (Some(before), None) = (before, &stream.frame) {
            let (head, mux) = (&stream.request, &connection.mux);
            stream.recorder.count_sent(Heads::UpstreamSent, head, mux, before, &self.conns.out);
        }
        if is_first && self.is_large_upload(index) {
            self.conns.push(towpath_proto::Output::Push { connection: id }, &mut self.env);
            self.conns.encode_for(id, &mut self.env);
        }
        if is_whole {
            self.encode_call(index, leg);
        } else if !end && !awaits_tunnel {
            self.replay(index, leg, now);
        }
        if let Some(stream) = self.streams.get_mut(index)
            && stream.request_end == Progress::Ended
        {
            stream.trace_sent();
        }
        self.start_try_timers(index, now);
    }

    /// A response begins.
    pub(crate) fn on_response_head(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        head: Head,
        end: bool,
        now: Instant,
    ) {
        if let Some(stream) = self.streams.get_mut(index) {
            if stream.retries.is_hedged() && stream.upstream != UpstreamState::Active(leg) {
                return self.on_answer_beside(index, leg, head, end, now);
            }
            if head.version() == Version::Http2
                && let UpstreamState::Active(leg) = stream.upstream
                && let Some(connection) = self.conns.table.get(leg.connection)
            {
                stream.recorder.count_framed(Heads::UpstreamReceived, &connection.mux);
            }
            stream.recorder.keep_answer(&head);
            stream.recorder.measure_answer(&head);
            stream.response.put(head, &mut self.env.heads);
            self.begin_response(index, end, now);
        }
    }

    /// The same with the head in its place.
    pub(crate) fn begin_response(&mut self, index: StreamIndex, end: bool, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.trace_phase(Phase::Body);
        let has_content = self.streams.become_response(index, &mut self.env);
        let end = end && !has_content;
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.touch(index, now, &mut self.env.timers);
        stream.touch_try(index, now, &mut self.env.timers);
        stream.clear_timers_of_answered();
        if stream.retries.is_filtered() {
            self.filter_answer(index, end, now);
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.times.upstream_first_received.get_or_insert(now);
        if end {
            stream.recorder.note(|record| record.upstream_last_received = Some(now));
        }
        let status = stream.response_status();
        let UpstreamState::Active(leg) = stream.upstream else { return };
        if let Kind::Tcp(_) = stream.kind {
            return self.on_tunnel_answered(index, leg, end, now);
        }
        if status != 101
            && status < 400
            && stream.asks_for_websocket()
            && self.conns.table.get(leg.connection).is_some_and(|host| !host.mux.is_http2())
        {
            return self.end_websocket(index, now);
        }
        let id = leg.connection;
        let pool_key = self
            .conns
            .table
            .get(id)
            .and_then(|connection| connection.upstream())
            .map(|up| up.pool_key);
        let objection = stream.objection();
        let is_hedged = stream.retries.hedging == Hedging::Begins;
        if let Some(pool_key) = pool_key {
            note_answer(stream, pool_key, &mut self.upstreams, &mut self.env, now);
        }
        let is_judged = status >= 400 || objection.is_some();
        if is_judged && self.retry_status(index, leg, objection, status, now) {
            return;
        }
        if is_hedged {
            if self.leave_to_beside(index, leg, now) {
                return;
            }
            self.settle_hedged(index, is_judged);
        }
        self.settle_retry(index);
        let Some(mut stream) = self.streams.get_mut(index) else { return };
        if stream.retries.follows() {
            if self.follow_redirect(index, leg, end, now) {
                return;
            }
            let Some(same) = self.streams.get_mut(index) else { return };
            stream = same;
        }
        let clusters = &mut self.upstreams.clusters;
        if let Some(cluster) = clusters.get_mut(stream.cluster) {
            let took = stream.millis_to_answer(now);
            let says_canary = says_canary(&stream.response);
            let answer = Counted { pool_key, status, took, says_canary };
            count_answer(stream, cluster, &answer, &self.env);
        }
        let kept = stream.response.present().and_then(|head| head.get(Name::KeepAlive));
        let hint = kept.and_then(keep_alive_timeout);
        if kept.is_some() {
            stream.response.remove(Name::KeepAlive);
        }
        if let Some(hint) = hint
            && let Some(pool) = pool_key.and_then(|pool_key| clusters.pool_mut(pool_key))
        {
            pool.peer_idle = Some(hint);
        }
        stream.response_end = if end { Progress::Ended } else { Progress::Streaming };
        if end {
            stream.trailers_status = grpc::status_of(&stream.response);
        }
        stream.recorder.note(|record| record.details = details::VIA_UPSTREAM);
        stream.retries.remaining = 0;
        let switches = match stream.upgrade {
            Upgrade::No | Upgrade::Done => false,
            Upgrade::Requested => status == 101,
            Upgrade::Connect | Upgrade::ConnectHere | Upgrade::Post => (200..300).contains(&status),
        };
        let serial = stream.serial;
        if switches {
            let is_http2 = self.conns.table.get(id).is_some_and(|it| it.mux.is_http2());
            // An app sees what its server of HTTP/1 has said.
            if is_http2 || stream.kind != Kind::App {
                stream.complete_upgrade_response();
            }
            self.send_response_head(index, false, now);
            if self.is_past_filters(index, serial) {
                return;
            }
            return self.open_tunnel(index, leg, end && is_http2, now);
        }
        if stream.request_end == Progress::Ended {
            stream.body.forget();
        }
        let is_watched = stream.filters.is_some();
        self.send_response_head(index, end, now);
        if is_watched && self.is_past_filters(index, serial) {
            return;
        }
        if end
            && self.streams.get(index).is_some_and(|it| it.is_unanswered() && it.filters.is_some())
        {
            // A filter holds it.
            self.settle_upstream(index, now);
        } else if end {
            self.on_response_ended(index, now);
        } else if has_content {
            self.send_content(index, now);
        }
    }

    /// Whether a status is answered with another attempt instead.
    pub(crate) fn retry_status(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        objection: Option<ResetReason>,
        status: u16,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        if stream.kind == Kind::App {
            let misdirected = status == 421 && self.misdirected(index, leg, now);
            return misdirected || self.rest_after(index, leg, status, now);
        }
        let reason = objection.unwrap_or(ResetReason::Status(status));
        // A host that is overloaded is not asked again.
        if stream.response.get(Name::XEnvoyOverloaded).is_some()
            || !self.retry(index, reason, true, now)
        {
            return false;
        }
        let cluster = self.streams.get(index).map(|stream| stream.cluster);
        if let Some(cluster) = cluster.and_then(|id| self.upstreams.clusters.get(id)) {
            cluster.stats.retry_upstream_rq.count(status);
        }
        if let Some(stream) = self.streams.get_mut(index)
            && let Some(head) = stream.response.present()
        {
            stream.recorder.count_given_up(head);
        }
        self.leave_answer(index, leg, now);
        true
    }

    /// A stream that will be tried again leaves the connection on which an answer begins.
    pub(crate) fn leave_answer(&mut self, index: StreamIndex, leg: Leg, now: Instant) {
        self.end_try_span(index, TryEnd::Given, now);
        // What is still to come of the answer is not waited for.
        let connection = self.conns.table.get(leg.connection);
        let is_whole = connection.is_some_and(|it| it.mux.capacity() > 0 && !it.is_spent());
        self.leave_upstream(index, leg, is_whole, Close::Abort, now);
    }

    /// A 1xx other than 101.
    pub(crate) fn on_informational(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        head: Head,
        now: Instant,
    ) {
        if self.streams.get(index).is_some_and(|stream| stream.retries.is_hedged()) {
            self.prefer_for_interim(index, leg, now);
        }
        let Some(stream) = self.streams.get(index) else { return };
        if let Kind::Tcp(_) = stream.kind {
            return self.env.heads.give(head);
        }
        self.charge(index, head.status());
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.recorder.measure_answer(&head);
        let Leg { connection: downstream, number } = stream.downstream;
        let passes = stream.is_unanswered()
            && stream.request.version() != Version::Http10
            && (head.status() != 100
                || stream.context.http().is_some_and(|http| http.config.proxy_100_continue));
        if passes {
            self.conns.encode_for(downstream, &mut self.env);
            if let Some(connection) = self.conns.table.get_mut(downstream) {
                connection.mux.send(number, Part::Interim(&head), &mut self.conns.out);
            }
            self.streams.count_informational(index, head.status());
        }
        self.env.heads.give(head);
    }

    /// The whole response is out (or in the driver's hands).
    pub(crate) fn on_response_ended(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.recorder.note(|record| record.response_end = Some(now));
        // TCP and tunnels are half-closed. What a request was upgraded to is over when its server ends it, as in Envoy:
        // a client that does not answer the end would hold the stream.
        let halves = matches!(stream.kind, Kind::Tcp(_))
            || (stream.upgrade == Upgrade::Done && stream.request.method() == Method::Connect);
        if !halves || stream.is_complete() {
            self.finish(index, now);
        }
    }

    /// What came from the server is not the protocol.
    pub(crate) fn on_response_error(&mut self, id: ConnectionId, error: &Violation, now: Instant) {
        if *error == Violation::Http1(http1::Error::ClosedBeforeResponse) {
            return self.fail_upstream(id, ResetReason::Terminated, Close::Abort, now);
        }
        if let Some(cluster) = self.upstreams.cluster_of(id, &mut self.conns) {
            cluster.stats.upstream_cx_protocol_error.inc();
        }
        // A peer that can be told why is.
        let told = matches!(error, Violation::Http2(_));
        self.open_windows(id);
        let how = if told { Close::Flush } else { Close::Abort };
        self.fail_upstream(id, ResetReason::Protocol, how, now);
    }

    /// The server sent FIN.
    pub(crate) fn on_upstream_ended(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get(id) else { return };
        match &connection.tls {
            Some(layer) if !layer.is_ended() => self.on_cut(id, now),
            Some(_) | None => self.on_upstream_end(id, now),
        }
    }

    /// The server sends nothing more, and that was not made up by a third party.
    pub(crate) fn on_upstream_end(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        if !connection.is_busy() {
            self.fail_unsettled(id, ResetReason::Terminated, now);
            self.upstreams.learn_peer_idle(id, &mut self.conns, now);
            self.close_upstream(id, Close::Flush, now);
            return;
        }
        connection.mux.ended();
        match connection.mux.at_end() {
            AtEnd::Told => self.pump(id, now),
            AtEnd::Waits | AtEnd::Over => {
                self.fail_upstream(id, ResetReason::Terminated, Close::Flush, now);
            }
        }
    }

    /// An upstream connection is lost: each of its streams fails by itself, and it is closed.
    pub(crate) fn fail_upstream(
        &mut self,
        id: ConnectionId,
        reason: ResetReason,
        how: Close,
        now: Instant,
    ) {
        self.fail_unsettled(id, reason, now);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.mux.lose();
        let (by_peer, alone) = (connection.is_ended_by_peer(), connection.mux.is_alone());
        let streams = connection.streams.all();
        let Some(upstream) = connection.upstream_mut() else { return };
        upstream.retired = true;
        let cluster = upstream.pool_key.cluster;
        // A stream that has its connection for itself is counted as it leaves.
        if !streams.is_empty()
            && !alone
            && let Some(cluster) = self.upstreams.clusters.get_mut(cluster)
        {
            cluster.stats.count_cut(by_peer);
        }
        for index in streams {
            // One may have had several attempts here.
            self.reset_on(index, id, reason, now);
        }
        self.close_upstream(id, how, now);
    }

    /// The server's connection is gone.
    pub(crate) fn on_upstream_closed(&mut self, id: ConnectionId, failure: Failure, now: Instant) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.gone = true;
        let is_cut = connection.is_busy() && connection.mux.has_begun_answer();
        let stream = connection.streams.only().and_then(|index| self.streams.get(index));
        let is_tcp = stream.is_some_and(|stream| matches!(stream.kind, Kind::Tcp(_)));
        let reason = if is_cut {
            if let Some(cluster) = self.upstreams.cluster_of(id, &mut self.conns) {
                cluster.stats.upstream_cx_protocol_error.inc();
            }
            ResetReason::Protocol
        } else if is_tcp && failure == Failure::Reset {
            ResetReason::Reset
        } else {
            ResetReason::Terminated
        };
        if self.conns.table.get(id).is_some_and(|connection| !connection.is_busy()) {
            self.upstreams.learn_peer_idle(id, &mut self.conns, now);
        }
        self.fail_upstream(id, reason, Close::Abort, now);
    }

    pub(crate) fn on_upstream_deadline(
        &mut self,
        id: ConnectionId,
        timer: ConnectionTimer,
        now: Instant,
    ) {
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let busy = connection.is_busy();
        let Some(upstream) = connection.upstream_mut() else { return };
        let pool_key = upstream.pool_key;
        match timer {
            ConnectionTimer::Heartbeat if upstream.contact().is_some() => {
                self.on_unanswered(id, now)
            }
            ConnectionTimer::Heartbeat => self.on_heartbeat_deadline(id, now),
            ConnectionTimer::Idle if !busy => {
                let limit = self.upstreams.idle_limit(pool_key);
                if self.conns.settle(id, limit, &mut self.env, now) {
                    return;
                }
                if let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) {
                    cluster.stats.upstream_cx_idle_timeout.inc();
                }
                self.close_upstream(id, Close::Flush, now);
            }
            ConnectionTimer::MaxDuration => {
                upstream.retired = true;
                if let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) {
                    cluster.stats.upstream_cx_max_duration_reached.inc();
                }
                if !busy {
                    self.close_upstream(id, Close::Flush, now);
                }
            }
            ConnectionTimer::RequestHead => {
                self.fail_unsettled(id, ResetReason::ConnectTimeout, now);
            }
            ConnectionTimer::Flush => {
                if self.upstreams.count_stalled_flush(id) {
                    self.close_upstream(id, Close::Abort, now);
                }
            }
            ConnectionTimer::Idle | ConnectionTimer::DelayedClose => {}
        }
    }

    /// Separates a stream from its upstream side, whatever state that is in; its connection is of no more use.
    pub(crate) fn detach(&mut self, index: StreamIndex, how: Close, now: Instant) {
        if self.streams.get(index).is_some_and(|stream| stream.retries.is_hedged()) {
            self.give_up_beside(index, now);
        }
        self.detach_latest(index, how, now);
    }

    /// The same of its latest attempt alone.
    pub(crate) fn detach_latest(&mut self, index: StreamIndex, how: Close, now: Instant) {
        self.end_try_span(index, TryEnd::Given, now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        let state = std::mem::replace(&mut stream.upstream, UpstreamState::None);
        stream.clear_attempt_timers();
        match state {
            UpstreamState::Active(leg) => self.sever(index, leg, how, now),
            UpstreamState::Pending(pool_key) => {
                if let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) {
                    cluster.stats.upstream_rq_cancelled.inc();
                }
                if let Some(attempt) = self.upstreams.attempts.of_stream(index) {
                    self.upstreams.cancel_attempt(attempt, &mut self.conns, &mut self.env);
                } else {
                    self.upstreams.leave_queue(index, pool_key);
                }
            }
            UpstreamState::None | UpstreamState::BackingOff => {}
        }
    }

    /// Takes a stream off its upstream connection in the middle. One that the stream has for itself ends with it.
    pub(crate) fn sever(&mut self, index: StreamIndex, leg: Leg, how: Close, now: Instant) {
        self.leave_upstream(index, leg, false, how, now);
    }

    /// A stream is through with its connection, which goes back to its pool if the exchange was `complete` and it can
    /// carry another; one that other streams are on goes on in any case.
    pub(crate) fn leave_upstream(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        complete: bool,
        how: Close,
        now: Instant,
    ) {
        let id = leg.connection;
        self.weigh_attempt(index, id);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        let resets = connection.mux.resets_sent();
        let released = connection.release(leg.number);
        let was_reset = released == Released::GoesOn && connection.mux.resets_sent() != resets;
        connection.rested = now;
        let (by_peer, spent) = (connection.is_ended_by_peer(), connection.is_spent());
        let Some(pool_key) = connection.upstream().map(|upstream| upstream.pool_key) else {
            return;
        };
        let is_cut = !complete && released != Released::GoesOn;
        if is_cut && let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) {
            cluster.stats.count_cut(by_peer);
        }
        if was_reset && let Some(cluster) = self.upstreams.clusters.get(pool_key.cluster) {
            cluster.stats.upstream_rq_tx_reset.inc();
        }
        self.request_over(index, pool_key);
        match released {
            Released::GoesOn => {
                self.open_windows(id);
                self.env.offer_soon(id);
            }
            Released::KeepAlive if complete && !spent => {
                self.update_reading(id);
                self.env.offer_soon(id);
            }
            Released::KeepAlive | Released::Close => {
                if how != Close::Flush || !self.flush_upstream(index, id, now) {
                    self.close_upstream(id, how, now);
                }
            }
        }
    }

    /// Keeps the connection of a TCP stream whose client has ended it last until all is sent; false if that is so.
    fn flush_upstream(&mut self, index: StreamIndex, id: ConnectionId, now: Instant) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        let is_ended_by_client = stream.is_complete() && stream.times.request_end == Some(now);
        let context = stream.context.clone();
        match context.tcp() {
            Some(tcp) if is_ended_by_client => {
                self.upstreams.begin_flush(id, tcp, &mut self.conns, &mut self.env, now)
            }
            Some(_) | None => false,
        }
    }

    /// Adds what an attempt weighed on the wire. Of a connection that others share its frames tell.
    fn weigh_attempt(&mut self, index: StreamIndex, id: ConnectionId) {
        let (Some(stream), Some(connection)) =
            (self.streams.get_mut(index), self.conns.table.get(id))
        else {
            return;
        };
        if connection.mux.is_alone() {
            let sent = connection.encoded + self.conns.waiting_for(id);
            stream.weigh_attempt(connection.bytes_received, sent);
        }
    }

    /// Takes a request off its host's books.
    pub(crate) fn request_over(&mut self, index: StreamIndex, pool_key: PoolKey) {
        let Some(cluster) = self.upstreams.clusters.get_mut(pool_key.cluster) else { return };
        let stream = self.streams.get(index);
        let outcome = stream.map_or(RequestOutcome::Error, Stream::outcome);
        cluster.request_over(pool_key, outcome);
    }
}

/// Notes for its host what an answer says of it.
#[inline]
pub(super) fn note_answer(
    stream: &mut Stream,
    pool_key: PoolKey,
    upstreams: &mut Upstreams,
    env: &mut Env,
    now: Instant,
) {
    if !upstreams.clusters.watches_answers(pool_key) {
        return;
    }
    upstreams.note(pool_key, HostOutcome::Answered(status_for_host(stream)), env);
    if upstreams.clusters.detects_degraded(pool_key)
        && stream.response.present().is_some_and(|it| it.get(Name::XEnvoyDegraded).is_some())
    {
        upstreams.note_degraded(pool_key, stream.response_status(), env);
    }
    if upstreams.clusters.reads_load(pool_key) {
        note_load(stream, &upstreams.clusters, pool_key, None, now);
    }
}

/// What an answer says of its host: of gRPC, what its status there stands for, if it is in the head.
fn status_for_host(stream: &Stream) -> u16 {
    let status = stream.response_status();
    match stream.response.present().and_then(grpc::status_of) {
        Some(said) if grpc::is_grpc(&stream.request) => grpc::http_status(said),
        Some(_) | None => status,
    }
}

impl Stream {
    /// From when its request began to go to the host.
    fn millis_to_answer(&self, now: Instant) -> Option<u64> {
        self.times.upstream_first_sent.map(|began| now.millis_since(began))
    }
}

impl Streams {
    /// Counts a 1xx that went down.
    pub(crate) fn count_informational(&self, index: StreamIndex, status: u16) {
        if let Some(http) = self.get(index).and_then(|stream| stream.context.http()) {
            http.stats.count_response(status);
            http.listener_stats.count_response(status);
        }
    }
}

/// Whether the client's side is HTTP/1 and has nothing more to send.
fn is_whole_request(stream: &Stream) -> bool {
    stream.request_end == Progress::Ended
        && stream.upgrade == Upgrade::No
        && stream.bridging == Bridging::None
        && matches!(stream.kind, Kind::Http(_))
}

/// `timeout=5` of `Keep-Alive: timeout=5, max=100`.
pub(crate) fn keep_alive_timeout(value: &[u8]) -> Option<std::time::Duration> {
    let mut parameters = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let seconds = parameters.find_map(|parameter| parameter.strip_prefix(b"timeout="))?;
    Some(std::time::Duration::from_secs(parse_number::<u32>(seconds)?.into()))
}
