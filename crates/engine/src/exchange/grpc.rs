//! How long a caller of gRPC waits, and what its server is told of that. Envoy's `refreshDurationTimeout` and
//! `FilterUtility::finalTimeout`.
//!
//! Arrives: a request with its route. Leaves: the stream's limits on time, and `grpc-timeout` as it goes on.

use std::time::Duration;

use towpath_proto::Instant;
use towpath_proto::head::Head;
use towpath_proto::name::Name;

use crate::exchange::Exchange;
use crate::exchange::timers::HttpTimer;
use crate::grpc;
use crate::ids::StreamIndex;
use crate::snapshot::Http;
use crate::snapshot::route::{Forward, GrpcTimeout};

impl Exchange {
    /// Bounds a stream's life as its route says: from its start on.
    pub(crate) fn limit_duration(&mut self, index: StreamIndex, forward: &Forward, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        if forward.max_stream_duration.is_none() && forward.grpc_timeout == GrpcTimeout::Ignored {
            return;
        }
        let limit = stream_limit(forward, &http.config, &stream.request);
        if matches!(forward.grpc_timeout, GrpcTimeout::Stream { .. }) && stream.came_as_grpc() {
            tell(&mut stream.request, limit, &http.config);
        }
        match limit {
            Some(limit) => {
                let at = (stream.times.start + limit).max(now);
                stream.set_timer(index, HttpTimer::MaxDuration, at, &mut self.env.timers);
            }
            None => stream.clear_timer(HttpTimer::MaxDuration),
        }
    }
}

/// The route's `timeout`, or the caller's own where the route takes it.
pub(crate) fn response_timeout(forward: &Forward, request: &Head) -> Option<Duration> {
    let GrpcTimeout::Response { max, offset } = forward.grpc_timeout else {
        return forward.timeout;
    };
    if !grpc::is_grpc(request) {
        return forward.timeout;
    }
    let asked = grpc::timeout(request).unwrap_or_default();
    let asked = if offset < asked { asked - offset } else { asked };
    let is_too_long = !max.is_zero() && (asked.is_zero() || asked > max);
    let timeout = if is_too_long { max } else { asked };
    (!timeout.is_zero()).then_some(timeout)
}

/// What bounds a stream. Less than nothing is left of a time that is shorter than the offset: it is over at once.
fn stream_limit(forward: &Forward, config: &Http, request: &Head) -> Option<Duration> {
    if let GrpcTimeout::Stream { max: Some(max), offset } = forward.grpc_timeout
        && let Some(asked) = grpc::timeout(request)
    {
        let capped = if max.is_zero() { asked } else { asked.min(max) };
        return Some(capped.saturating_sub(offset));
    }
    forward.max_stream_duration.unwrap_or(config.max_stream_duration)
}

/// A server hears of the limit that its caller has. Where a route lifts the listener's, of none.
fn tell(request: &mut Head, limit: Option<Duration>, config: &Http) {
    match limit {
        Some(limit) => grpc::set_timeout(request, limit),
        None if config.max_stream_duration.is_some() => {
            request.remove(Name::GrpcTimeout);
        }
        None => {}
    }
}
