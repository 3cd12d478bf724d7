//! Services that filters call by gRPC (Envoy `GrpcService`), each call with one message and one answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prost::Message;
use towpath_proto::{Head, Name};

use super::{Answer, Callout, CalloutSpan, RequestView, SpanName};
use crate::format::Facts;
use crate::grpc;
use crate::header_ops::{HeaderOps, Scratch, Subject};
use crate::protobuf::{framed, in_frame};
use crate::retry_policy::RetryPolicy;

/// A service by gRPC.
#[derive(Debug)]
pub struct GrpcService {
    /// `envoy_grpc.cluster_name`.
    pub cluster: Arc<str>,
    /// `envoy_grpc.authority`. Default: the cluster's name.
    pub authority: Arc<str>,
    /// `initial_metadata`.
    pub metadata: HeaderOps,
    /// `envoy_grpc.skip_envoy_headers`.
    pub skip_envoy_headers: bool,
    /// `retry_policy`.
    pub retry: Option<Arc<RetryPolicy>>,
    /// The head of its calls.
    pub head: CallHead,
}

/// The head of a service's calls, made with the first of them: where nothing of it depends on the request, all of one
/// method and timeout have the same.
#[derive(Debug, Default)]
pub struct CallHead(OnceLock<(Duration, Head)>);

impl GrpcService {
    /// By the servers of this cluster, which nothing else is said of.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.into(),
            authority: cluster.into(),
            metadata: HeaderOps::default(),
            skip_envoy_headers: false,
            retry: None,
            head: CallHead::default(),
        }
    }

    /// A call of a method (`/package.Service/Method`) with this message.
    pub(crate) fn call(
        &self,
        method: &str,
        message: &impl Message,
        timeout: Duration,
        request: &mut RequestView<'_>,
    ) -> Box<Callout> {
        Box::new(Callout { body: framed(message), ..self.call_without(method, timeout, request) })
    }

    /// The same, whose message follows.
    pub(crate) fn call_without(
        &self,
        method: &str,
        timeout: Duration,
        request: &mut RequestView<'_>,
    ) -> Callout {
        Callout {
            cluster: Arc::clone(&self.cluster),
            head: self.call_head(method, timeout, request),
            body: bytes::Bytes::new(),
            timeout,
            max_bytes: MOST_ANSWER,
            joint: None,
            retry: self.retry.clone(),
            span: Some(CalloutSpan::new(SpanName::Method)),
        }
    }
}

impl GrpcService {
    fn call_head(&self, method: &str, timeout: Duration, request: &mut RequestView<'_>) -> Head {
        if self.metadata.is_empty() {
            let fresh = || (timeout, self.make_head(method, timeout, None));
            let (of, known) = self.head.0.get_or_init(fresh);
            if *of == timeout && known.path() == method.as_bytes() {
                let mut head = request.heads.take();
                head.copy_from(known);
                return head;
            }
        }
        self.make_head(method, timeout, Some(request))
    }

    fn make_head(
        &self,
        method: &str,
        timeout: Duration,
        request: Option<&mut RequestView<'_>>,
    ) -> Head {
        let mut head = self.begin_head(method);
        grpc::set_timeout(&mut head, timeout);
        if let Some(request) = request {
            let facts = Facts { request: Some(request.head), ..*request.facts };
            self.metadata.apply(&mut head, Subject::Call, &facts, request.scratch);
        }
        if !self.skip_envoy_headers {
            super::callout::mark(&mut head, timeout);
        }
        head
    }

    fn begin_head(&self, method: &str) -> Head {
        let authority = self.authority.as_bytes();
        let mut head = Head::request(b"POST", b"http", authority, method.as_bytes());
        head.set(Name::Te, b"trailers");
        head.set(Name::ContentType, b"application/grpc");
        head
    }

    /// A call that goes on, about the stream of these `facts`. As Envoy has it, it says nothing of its time.
    pub(crate) fn talk(&self, method: &str, facts: &Facts<'_>, scratch: &mut Scratch) -> Callout {
        let mut head = self.begin_head(method);
        self.metadata.apply(&mut head, Subject::Call, facts, scratch);
        if !self.skip_envoy_headers {
            head.set(Name::XEnvoyInternal, b"true");
        }
        Callout {
            cluster: Arc::clone(&self.cluster),
            head,
            body: bytes::Bytes::new(),
            timeout: Duration::ZERO,
            max_bytes: MOST_ANSWER,
            joint: None,
            retry: self.retry.clone(),
            span: Some(CalloutSpan::new(SpanName::Stream)),
        }
    }
}

/// The message that a call was answered with; none where it has failed, whatever went wrong.
pub(crate) fn message_of<M: Message + Default>(answer: &Answer) -> Option<M> {
    let Answer::Response { head, body, trailers } = answer else { return None };
    let status = trailers.as_ref().and_then(grpc::status_of).or_else(|| grpc::status_of(head));
    if head.status() != 200 || status != Some(0) {
        return None;
    }
    M::decode(in_frame(body)?).ok()
}

/// What a service may answer.
const MOST_ANSWER: usize = 1 << 20;
