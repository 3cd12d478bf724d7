//! Requests of a filter's own, to a cluster, while the request that it looks at waits.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::Head;
#[cfg(feature = "serving")]
use towpath_proto::Name;

use super::Reply;
use crate::retry_policy::RetryPolicy;

/// A request to a cluster. It is sent as any other: by the cluster's balancer, pools, limits and health.
#[derive(Debug)]
pub struct Callout {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// Its head.
    pub head: Head,
    /// Its content.
    pub body: Bytes,
    /// From its beginning to the end of its response.
    pub timeout: Duration,
    /// Content of the response that is taken; a response with more fails.
    pub max_bytes: usize,
    /// Of callouts with the same of these only the first is sent, while it runs; the others have its answer too.
    pub joint: Option<Joint>,
    /// When it is sent again.
    pub retry: Option<Arc<RetryPolicy>>,
    /// The span that it has below that of its request, where that is traced.
    pub span: Option<CalloutSpan>,
}

/// The span of a callout.
#[derive(Clone, Copy, Debug)]
pub struct CalloutSpan {
    pub(crate) name: SpanName,
    /// Whether it is sampled, whatever its request is.
    pub(crate) sampled: Option<bool>,
    /// What its filter says of the answer: names and values.
    pub(crate) tags: fn(&Answer) -> Vec<(&'static str, &'static str)>,
}

/// What a callout's span is called, and with it which of Envoy's clients is followed in what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanName {
    /// A request by HTTP: `async CLUSTER egress`.
    #[cfg_attr(not(feature = "serving"), expect(dead_code, reason = "none can be made"))]
    Cluster,
    /// A request by HTTP, by this name.
    Fixed(&'static str),
    /// A call by gRPC: `async SERVICE.METHOD egress`.
    Method,
    /// The same, of one that goes on.
    #[cfg_attr(not(feature = "serving"), expect(dead_code, reason = "none can be made"))]
    Stream,
}

impl CalloutSpan {
    /// Sampled as its request is.
    pub(crate) const fn new(name: SpanName) -> Self {
        Self { name, sampled: None, tags: |_| Vec::new() }
    }
}

/// What all callouts share that ask the same. Every one made anew is another.
#[derive(Clone, Debug, Default)]
pub struct Joint(Rc<()>);

impl PartialEq for Joint {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// Says what a request of the proxy's own says of itself, as in Envoy. Without a limit it says nothing of that.
#[cfg(feature = "serving")]
pub(super) fn mark(head: &mut Head, timeout: impl Into<Option<Duration>>) {
    head.set(Name::XEnvoyInternal, b"true");
    if let Some(timeout) = timeout.into() {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        head.set_number(Name::XEnvoyExpectedRqTimeoutMs, ms);
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A whole response. Where no host could be asked, the proxy's own in its stead (503, or its `grpc-status`).
    Response {
        /// Its head.
        head: Head,
        /// Its content.
        body: Bytes,
        /// Its trailers.
        trailers: Option<Head>,
    },
    /// None.
    Failed(Failed),
}

/// Why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// There is no such cluster.
    NoCluster,
    /// Its time was over.
    TimedOut,
    /// It broke off.
    Reset,
    /// It is longer than the limit.
    TooLong,
}

/// What becomes of the request that waited.
#[derive(Debug)]
pub enum OnAnswer {
    /// It goes on.
    GoOn,
    /// It goes on, and the filter has nothing more to do with it.
    Done,
    /// Another server is asked first.
    Ask(Box<Callout>),
    /// It goes on once all of it is here, of at most so many bytes.
    Collect(usize),
    /// It is answered here.
    Reply(Reply),
}
