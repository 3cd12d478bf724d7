//! Spans of callouts, below that of the request for whose sake they are sent; as Envoy's clients of HTTP and of gRPC
//! have them.
//!
//! Arrives: a [`Callout`] of a request that has a span, and what comes of it. Leaves: fields that tell its server who
//! it is, and a span for the request's collector.

use std::borrow::Cow;
use std::rc::Rc;

use bytes::Bytes;
use towpath_proto::{Head, Instant};

use crate::conn::context::ChainContext;
use crate::exchange::Exchange;
use crate::exchange::log::{Setting, facts};
use crate::exchange::stream::Stream;
use crate::exchange::talk::end_of;
use crate::exchange::tracing::since_1970;
use crate::filter::{Answer, Callout, CalloutSpan, Failed, SpanName};
use crate::ids::StreamIndex;
use crate::record::Flags;
use crate::tracer::{CallEnd, Finished, Span, grpc_tags, http_tags};

/// The span of a callout under way, of a trace that is sampled.
#[derive(Debug)]
pub(crate) struct CalloutTrace {
    span: Span,
    start: Instant,
    /// What the request came by, which says where its spans go.
    context: Rc<ChainContext>,
    kind: CalloutSpan,
    authority: Box<[u8]>,
}

impl Exchange {
    /// Begins the span of a callout for the sake of the request `of`, if that has one: the server is told.
    pub(crate) fn begin_callout_span(
        &mut self,
        of: StreamIndex,
        callout: &mut Callout,
        now: Instant,
    ) -> Option<Box<CalloutTrace>> {
        let kind = callout.span?;
        let stream = self.streams.get(of)?;
        let parent = stream.recorder.request_span()?;
        let http = stream.context.http()?;
        let provider = http.config.tracing.as_ref()?.provider.as_ref()?;
        let mut span = parent.child(Cow::Borrowed(&[]), &mut self.env.random);
        span.sampled = kind.sampled.unwrap_or(span.sampled);
        span.inject(&provider.dialect, &mut callout.head);
        if !span.sampled {
            return None;
        }
        span.name = match kind.name {
            SpanName::Cluster => format!("async {} egress", callout.cluster).into_bytes().into(),
            SpanName::Fixed(name) => name.as_bytes().into(),
            SpanName::Method | SpanName::Stream => {
                let path = callout.head.path();
                let mut name = path.strip_prefix(b"/").unwrap_or(path).to_vec();
                name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'.');
                [b"async ", &name[..], b" egress"].concat().into()
            }
        };
        let context = stream.context.clone();
        let authority = callout.head.authority().into();
        Some(Box::new(CalloutTrace { span, start: now, context, kind, authority }))
    }

    /// A callout is over, with its answer; with none, if it was given up here.
    pub(crate) fn end_callout_span(
        &mut self,
        trace: CalloutTrace,
        stream: &mut Stream,
        answer: Option<&Answer>,
        now: Instant,
    ) {
        let CalloutTrace { span, start, context, kind, authority } = trace;
        let Some(http) = context.http() else { return };
        // As Envoy has it, a router has answered in place of a server that is late.
        let late =
            Answer::Response { head: Head::response(504), body: Bytes::new(), trailers: None };
        let is_late = matches!(answer, Some(Answer::Failed(Failed::TimedOut)));
        let answer = if is_late { Some(&late) } else { answer };
        if is_late {
            stream.flags.set(Flags::UPSTREAM_REQUEST_TIMEOUT);
        }
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let mut tags = match kind.name {
            name @ (SpanName::Method | SpanName::Stream) => {
                let end = answer.map(|answer| match end_of(answer, "").0 {
                    0 if name == SpanName::Method && is_empty(answer) => CallEnd::Nothing,
                    status => CallEnd::Status(status),
                });
                grpc_tags(&facts, &authority, end)
            }
            SpanName::Cluster | SpanName::Fixed(_) => {
                let status = match answer {
                    Some(Answer::Response { head, .. }) => head.status(),
                    Some(Answer::Failed(_)) | None => stream.response_status(),
                };
                http_tags(&facts, status, answer)
            }
        };
        if let Some(answer) = answer {
            (kind.tags)(answer).into_iter().for_each(|(name, value)| tags.add(name, value));
        }
        let (start_ns, end_ns) = (since_1970(&facts, start), since_1970(&facts, now));
        self.report(http, Finished { span, start_ns, end_ns, tags, events: Vec::new() }, now);
    }
}

/// Whether an answer has no message.
fn is_empty(answer: &Answer) -> bool {
    matches!(answer, Answer::Response { body, .. } if body.is_empty())
}
