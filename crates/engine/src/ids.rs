//! The words that all parts of a worker use for streams, pools and ends. No behaviour.

use towpath_proto::tls::Fault;
use towpath_proto::{ConnectionId, Failure};

use crate::record::details::Reset;
use crate::serving::Serving;
use crate::snapshot::ClusterId;

/// Where a stream is in the worker's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamIndex(pub(crate) u32);

/// A stream's end on one of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) connection: ConnectionId,
    /// Under which the connection's mux knows the stream.
    pub(crate) number: u32,
}

/// Whose a stream is, and so where it begins and who is told of its response.
///
/// In an app's engine no other than the app's can be made, and what the others do is not compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A client's that speaks HTTP.
    Http(Serving<()>),
    /// A client's that speaks Bolt.
    Rpc(Serving<()>),
    /// A client's whose bytes are opaque.
    Tcp(Serving<()>),
    /// The app's in this process.
    App,
    /// A filter's own, to a cluster.
    Callout(Serving<()>),
}

/// Requests or responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Downstream to upstream.
    Request,
    /// Upstream to downstream.
    Response,
}

/// A host's pool in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) cluster: ClusterId,
    pub(crate) pool: u32,
}

/// Envoy's `RoutingPriority`: each has its own pools and circuit breakers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Priority {
    #[default]
    Default,
    High,
}

/// Which of a host's pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PoolClass {
    pub(crate) priority: Priority,
    /// HTTP/2 is spoken because its requests came in that way: [`Choice::AsDownstream`].
    ///
    /// [`Choice::AsDownstream`]: crate::snapshot::http2::Choice::AsDownstream
    pub(crate) http2: bool,
    /// What its requests asked of TLS, by its number in the cluster; 0 means nothing.
    pub(crate) wish: u16,
}

impl PoolClass {
    /// How many there are of those that asked nothing.
    pub(crate) const COUNT: usize = 4;

    pub(crate) const fn index(self) -> usize {
        self.priority as usize * 2 + self.http2 as usize
    }
}

/// What is spoken on an upstream connection; known when it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    Raw,
    Bolt,
    #[cfg(test)]
    Toy,
}

/// Why the upstream side of a stream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetReason {
    /// The connect failed.
    Connect(Failure),
    /// `connect_timeout`.
    ConnectTimeout,
    /// The connect succeeded and the TLS handshake failed.
    Tls(Fault),
    /// The connection ended.
    Terminated,
    /// A connection of opaque bytes was reset.
    Reset,
    /// The server gave the stream up, and its connection goes on.
    StreamReset,
    /// The server says that it has done nothing for the stream (RFC 9113 §8.7).
    Refused,
    /// What came was not the protocol.
    Protocol,
    /// `per_try_timeout`.
    PerTryTimeout,
    /// `per_try_idle_timeout`.
    PerTryIdleTimeout,
    /// The cluster's `max_stream_duration`.
    MaxStreamDuration,
    /// A circuit breaker is open.
    Overflow,
    /// No host to go to.
    NoHost,
    /// The cluster was taken away.
    ClusterGone,
    /// An answer with `x-envoy-ratelimited`.
    RateLimited,
    /// An answer with a header that the policy looks for.
    Headers,
    /// An answer with this status, which the policy may not want.
    Status(u16),
    /// An answer with this status of gRPC, which the policy does not want.
    GrpcStatus(u8),
}

impl ResetReason {
    /// Why a connect failed.
    pub(crate) const fn failure(self) -> Failure {
        match self {
            Self::Connect(failure) => failure,
            Self::ConnectTimeout => Failure::TimedOut,
            Self::Tls(_)
            | Self::Terminated
            | Self::Reset
            | Self::StreamReset
            | Self::Refused
            | Self::Protocol
            | Self::PerTryTimeout
            | Self::PerTryIdleTimeout
            | Self::MaxStreamDuration
            | Self::Overflow
            | Self::NoHost
            | Self::ClusterGone
            | Self::RateLimited
            | Self::Headers
            | Self::Status(_)
            | Self::GrpcStatus(_) => Failure::Reset,
        }
    }

    /// The same in Envoy's words.
    pub(crate) const fn reset(self) -> Reset {
        match self {
            Self::Connect(failure) => match failure {
                Failure::AddressNotAvailable | Failure::Denied | Failure::Exhausted => {
                    Reset::LocalConnectionFailure(failure)
                }
                Failure::Refused
                | Failure::Reset
                | Failure::TimedOut
                | Failure::Unreachable
                | Failure::AddressInUse
                | Failure::NoSuchName
                | Failure::Unsupported
                | Failure::Os(_)
                | _ => Reset::RemoteConnectionFailure(failure),
            },
            Self::ConnectTimeout => Reset::ConnectionTimeout,
            Self::Tls(fault) => Reset::Tls(fault),
            Self::Terminated | Self::Reset => Reset::ConnectionTermination,
            Self::StreamReset => Reset::RemoteReset,
            Self::Refused => Reset::RemoteRefused,
            Self::Protocol => Reset::ProtocolError,
            Self::Overflow => Reset::Overflow,
            Self::PerTryTimeout
            | Self::PerTryIdleTimeout
            | Self::MaxStreamDuration
            | Self::NoHost
            | Self::ClusterGone
            | Self::RateLimited
            | Self::Headers
            | Self::Status(_)
            | Self::GrpcStatus(_) => Reset::LocalReset,
        }
    }
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closer {
    /// We: why, in the words of Envoy's `%DOWNSTREAM_LOCAL_CLOSE_REASON%`, if there are any.
    Local(&'static str),
    /// The peer.
    Remote,
    /// The peer, by a reset.
    RemoteReset,
}

/// The cluster of streams that have none yet.
pub(crate) const NO_CLUSTER: ClusterId = ClusterId(u32::MAX);
