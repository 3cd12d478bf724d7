//! One request that a server is asked about.

use std::rc::Rc;

use towpath_proto::head::HeaderName;
use towpath_proto::{Head, Name};

use super::headers;
use super::wire::{Descriptor, OVER_LIMIT, RateLimitRequest, RateLimitResponse};
use super::{OfCluster, RouteRateLimit, Shared};
use crate::filter::grpc_service::message_of;
use crate::filter::rate_limits::Described;
use crate::filter::{
    Answer, Callout, CalloutSpan, OnAnswer, Release, Reply, RequestView, ResponseView, SpanName,
    StreamFilter,
};
use crate::grpc;
use crate::header_ops::Subject;
use crate::protobuf::HeaderValue;
use crate::record::Flags;

#[derive(Debug)]
pub(super) struct Call {
    shared: Rc<Shared>,
    /// What the descriptors say of telling clients.
    tells: Vec<Option<bool>>,
    /// Fields of the response.
    response: Head,
}

impl Call {
    pub(super) fn new(shared: Rc<Shared>, descriptors: &[Described]) -> Self {
        let tells = descriptors.iter().map(|it| it.tells).collect();
        Self { shared, tells, response: Head::default() }
    }

    /// The question.
    pub(super) fn ask(
        &self,
        descriptors: &[Described],
        request: &mut RequestView<'_>,
    ) -> Box<Callout> {
        let config = &self.shared.config;
        let of_route = request.route.first::<RouteRateLimit>().map(|route| &route.domain);
        let domain = of_route.filter(|domain| !domain.is_empty()).unwrap_or(&config.domain);
        let hits = request.facts.info.map_or(0, |info| {
            info.read_state(HITS, |object| {
                let text = object.and_then(|object| std::str::from_utf8(&object.value).ok());
                text.and_then(|text| text.parse().ok()).unwrap_or(0)
            })
        });
        let message = RateLimitRequest {
            domain: domain.to_string(),
            descriptors: descriptors.iter().map(Descriptor::of).collect(),
            hits_addend: hits,
        };
        let mut callout = config.service.call(METHOD, &message, config.timeout, request);
        callout.span = Some(CalloutSpan { tags, ..CalloutSpan::new(SpanName::Method) });
        callout
    }

    fn on_response(
        &mut self,
        response: RateLimitResponse,
        stats: &OfCluster,
        request: &mut RequestView<'_>,
    ) -> OnAnswer {
        let config = &self.shared.config;
        if let Some(metadata) = response.dynamic_metadata.filter(|it| !it.fields.is_empty())
            && let Some(info) = request.facts.info
        {
            // What is too much for one stream is left out, as a whole.
            let _ = info.add_metadata(&config.namespace, metadata.into_values());
        }
        add(&mut self.response, &response.response_headers_to_add);
        let is_over = response.overall_code == OVER_LIMIT;
        if is_over {
            stats.limits.over_limit.inc();
            stats.all.count_response(config.status, true);
            if config.tells_refusal {
                self.response.set(Name::XEnvoyRateLimited, b"true");
            }
        } else {
            stats.limits.ok.inc();
        }
        let tells = |index| self.tells.get(index).copied().flatten().unwrap_or(config.tells);
        headers::add(&mut self.response, &response.statuses, tells);
        if is_over && config.enforced.takes(request.random.rotate_left(32)) {
            if config.tells_when && config.status == 429 {
                headers::add_retry_after(&mut self.response, &response.statuses);
            }
            return OnAnswer::Reply(self.refusal(&response.raw_body, request));
        }
        add(request.head, &response.request_headers_to_add);
        OnAnswer::GoOn
    }

    fn refusal(&mut self, body: &[u8], request: &mut RequestView<'_>) -> Reply {
        let config = &self.shared.config;
        let mut reply = Reply::new(config.status, body, "request_rate_limited");
        reply.flags.set(Flags::RATE_LIMITED);
        append_all(&mut reply.head, &std::mem::take(&mut self.response));
        config.response.apply(&mut reply.head, Subject::Response, request.facts, request.scratch);
        if config.as_exhausted && grpc::is_grpc(request.head) {
            reply.head.set_number(Name::GrpcStatus, grpc::RESOURCE_EXHAUSTED.into());
        }
        reply
    }

    /// The server has not answered.
    fn on_failure(&self, stats: &OfCluster, request: &RequestView<'_>) -> OnAnswer {
        let config = &self.shared.config;
        stats.limits.error.inc();
        if !config.denies_failures.takes(request.random) {
            stats.limits.failure_mode_allowed.inc();
            return OnAnswer::GoOn;
        }
        let mut reply = Reply::new(config.status_on_error, b"", "rate_limiter_error");
        reply.flags.set(Flags::RATELIMIT_SERVICE_ERROR);
        OnAnswer::Reply(reply)
    }
}

impl StreamFilter for Call {
    fn on_answer(&mut self, answer: &Answer, request: &mut RequestView<'_>) -> OnAnswer {
        let stats = self.shared.stats(request.facts.cluster_stat_name);
        match message_of::<RateLimitResponse>(answer) {
            Some(response) => self.on_response(response, &stats, request),
            None => self.on_failure(&stats, request),
        }
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        append_all(response.head, &std::mem::take(&mut self.response));
        Release::Now
    }
}

/// What the span of a question says of its answer.
fn tags(answer: &Answer) -> Vec<(&'static str, &'static str)> {
    let response = message_of::<RateLimitResponse>(answer).into_iter();
    let status = |code| if code == OVER_LIMIT { "over_limit" } else { "ok" };
    response.map(|it| ("ratelimit_status", status(it.overall_code))).collect()
}

/// Adds the fields that a head can carry.
fn add(head: &mut Head, fields: &[HeaderValue]) {
    for field in fields {
        let name = Some(&field.key).filter(|name| !name.starts_with(':'));
        let name = name.and_then(|name| HeaderName::new(name).ok());
        if let Some(name) = name.filter(|_| headers::is_value(field.value.as_bytes())) {
            head.append_named(&name, field.value.as_bytes());
        }
    }
}

fn append_all(head: &mut Head, fields: &Head) {
    for field in fields.iter() {
        head.append_bytes(field.name_bytes, field.value);
    }
}

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Of the filter state: what a request counts.
const HITS: &str = "envoy.ratelimit.hits_addend";
