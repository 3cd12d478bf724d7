//! TCP through an HTTP proxy: a connection's bytes as the content of a request of our own. Envoy: `tunneling_config`.
//!
//! Arrives: a TCP stream with its host. Leaves: CONNECT (or POST) to that host, and when it lets us through, a stream
//! whose bytes go through the one forwarding loop. What a client sends before that is kept, up to its connection's
//! limit.

use towpath_proto::head::{Head, Version};
use towpath_proto::{Close, Instant};

use crate::conn::spans::Phase;
use crate::env::Work;
use crate::exchange::Exchange;
use crate::exchange::log::{Setting, facts};
use crate::exchange::stream::{Progress, Stream, Upgrade, UpstreamState};
use crate::header_ops::Subject;
use crate::ids::{Leg, PoolKey, ResetReason, StreamIndex};
use crate::snapshot::listener::{TunnelId, Tunneling};
use crate::stream_info::{StateObject, Value};
use crate::upstream::pool::{Lease, Wish};

impl Exchange {
    /// Asks the pool of a host for a connection on which a tunnel can be asked for.
    pub(crate) fn place_tunneled(
        &mut self,
        index: StreamIndex,
        pool_key: PoolKey,
        tunneling: &Tunneling,
        now: Instant,
    ) {
        self.word_tunnel_request(index, pool_key, tunneling, now);
        let wish =
            Wish { stream: index, reuses: true, opened_after: None, repeatable: false, turn: None };
        match self.upstreams.lease(wish, pool_key, &mut self.conns, &mut self.env, now) {
            Lease::Ready(connection) => self.attach(index, connection, now),
            Lease::Pending => {
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.upstream = UpstreamState::Pending(pool_key);
                }
            }
            Lease::Overflow | Lease::QueueFull | Lease::NoPool => {
                if let Some(stream) = self.streams.get_mut(index) {
                    // It would not be otherwise at once.
                    stream.retries.remaining = 0;
                }
                self.retry_tcp(index, ResetReason::Overflow, now);
            }
        }
    }

    /// Makes the request of a stream.
    fn word_tunnel_request(
        &mut self,
        index: StreamIndex,
        pool_key: PoolKey,
        tunneling: &Tunneling,
        now: Instant,
    ) {
        let Self { streams, upstreams, env, .. } = self;
        let Some(stream) = streams.get_mut(index) else { return };
        let clusters = &upstreams.clusters;
        let host = clusters.pool(pool_key).map(|pool| pool.address.clone());
        stream.recorder.note(|record| record.upstream_host = host);
        let mut head = env.heads.take();
        // The stream's own content is the tunnel's, as in HTTP/2 (RFC 9113 §8.5), whatever the host speaks.
        head.set_version(Version::Http2);
        let facts = facts(stream, None, Setting { clusters, clock: &env.clock }, now);
        let mut authority = Vec::new();
        tunneling.hostname.write(&mut authority, &facts);
        head.set_authority(&authority);
        match &tunneling.post_path {
            Some(path) => {
                let cluster = clusters.get(pool_key.cluster);
                let is_secure = cluster.is_some_and(|it| it.tls_of(pool_key).is_some());
                head.set_method(b"POST");
                head.set_scheme(if is_secure { b"https" } else { b"http" });
                head.set_path(path);
            }
            None => {
                head.set_method(b"CONNECT");
            }
        }
        if let Some(id) = &tunneling.request_id {
            let text = env.random.uuid();
            head.set_named(&id.header, &text);
            tell_id(stream, id, &text);
        }
        tunneling.headers.apply(&mut head, Subject::Request, &facts, &mut env.scratch);
        stream.request.put(head, &mut env.heads);
        stream.upgrade =
            if tunneling.post_path.is_some() { Upgrade::Post } else { Upgrade::Connect };
    }

    /// The host has answered: the tunnel is open, or another host is tried.
    pub(crate) fn on_tunnel_answered(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        end: bool,
        now: Instant,
    ) {
        let (Some(stream), Some(connection)) =
            (self.streams.get_mut(index), self.conns.table.get_mut(leg.connection))
        else {
            return;
        };
        let is_message = connection.mux.is_http2() || stream.upgrade == Upgrade::Post;
        let status = stream.response.present().map_or(0, Head::status);
        if let Some(head) = stream.response.present() {
            keep_answer(stream, head);
        }
        // As Envoy: any success by HTTP/1.1, else 200 alone, and there must be content to come.
        let is_open = match connection.mux.is_http2() {
            true => status == 200,
            false => (200..300).contains(&status),
        };
        if !is_open || (end && is_message) {
            stream.recorder.note(|record| record.tunnel_status = status);
            self.detach(index, Close::Abort, now);
            return self.retry_tcp(index, ResetReason::Status(status), now);
        }
        if stream.upgrade == Upgrade::Connect {
            connection.mux.upgrade();
        }
        stream.upgrade = Upgrade::Done;
        stream.response_end = Progress::Streaming;
        stream.trace_phase(Phase::Tunnel);
        self.log_connected(index, now);
        self.env.work.push_back(Work::Read(leg.connection));
        self.replay(index, leg, now);
        self.update_source(index, true);
    }
}

/// Leaves the id of a tunnel's request for logs.
fn tell_id(stream: &Stream, id: &TunnelId, text: &[u8]) {
    let entries = [(id.key.clone(), Value::text(text))].into_iter().collect();
    if let Some(info) = stream.recorder.info() {
        // What is too much for one stream is left out.
        let _ = info.add_metadata(NAMESPACE, entries);
    }
}

/// Leaves the head of a proxy's answer, where it is to be kept.
fn keep_answer(stream: &Stream, head: &Head) {
    if tunneling_of(stream).is_some_and(|tunneling| tunneling.keeps_head) {
        let status = head.status().to_string();
        let first = header_of(b":status", status.as_bytes());
        keep_fields(stream, "envoy.tcp_proxy.propagate_response_headers", Some(first), head);
    }
}

/// The same of its trailers.
#[cold]
pub(crate) fn keep_trailers(stream: &Stream, trailers: &Head) {
    if tunneling_of(stream).is_some_and(|tunneling| tunneling.keeps_trailers) {
        keep_fields(stream, "envoy.tcp_proxy.propagate_response_trailers", None, trailers);
    }
}

fn tunneling_of(stream: &Stream) -> Option<&Tunneling> {
    stream.context.tcp()?.config.tunneling.as_deref()
}

/// Sets an object of the filter state: Envoy `config.core.v3.HeaderMap`.
fn keep_fields(stream: &Stream, name: &str, first: Option<Value>, head: &Head) {
    let Some(info) = stream.recorder.info() else { return };
    let fields =
        head.iter().map(|field| header_of(&field.name_bytes.to_ascii_lowercase(), field.value));
    let headers = Value::List(first.into_iter().chain(fields).collect());
    let fields = [("headers".into(), headers)].into_iter().collect();
    let object = StateObject { fields: Some(fields), ..StateObject::default() };
    // What is too much for one stream is left out.
    let _ = info.set_state(name, object);
}

fn header_of(name: &[u8], value: &[u8]) -> Value {
    let entries = [("key".into(), Value::text(name)), ("value".into(), Value::text(value))];
    Value::Struct(entries.into_iter().collect())
}

const NAMESPACE: &str = "envoy.filters.network.tcp_proxy";
