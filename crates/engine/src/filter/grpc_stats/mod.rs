//! `envoy.filters.http.grpc_stats`: counts calls, and their messages, by cluster, service and method.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Head;

use super::calls::{CallStats, Calls, Frames, Method, method_of};
use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, Release, Reply, RequestView, ResponseView,
    StreamFilter,
};
use crate::format::Facts;
use crate::grpc;
use crate::stats::GrpcProtocol;

/// Envoy `grpc_stats.v3.FilterConfig`.
#[derive(Clone, Debug)]
pub struct GrpcStatistics {
    /// Which methods are counted each for itself.
    pub methods: Methods,
    /// `enable_upstream_stats`: how long the host took.
    pub times: bool,
    /// `replace_dots_in_grpc_service_name`.
    pub without_dots: bool,
}

/// Which methods are counted each for itself; the others are counted together.
#[derive(Clone, Debug)]
pub enum Methods {
    /// `stats_for_all_methods`: all, up to a limit.
    All,
    /// `individual_method_stats_allowlist`: services and methods.
    Listed(Arc<[(Arc<str>, Arc<str>)]>),
}

impl FilterConfig for GrpcStatistics {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { config: self.clone(), calls: Calls::new(scope, GrpcProtocol::Grpc) })
    }

    fn reads_record(&self) -> bool {
        self.times
    }
}

#[derive(Debug)]
struct Instance {
    config: GrpcStatistics,
    calls: Rc<Calls>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if !grpc::is_grpc(request.head) || !request.forwards {
            return OnRequest::Pass;
        }
        let Some(named) = method_of(request.head.path()) else { return OnRequest::Pass };
        OnRequest::Watch(Box::new(Call {
            stats: CallStats::new(Rc::clone(&self.calls), self.config.method(named)),
            times: self.config.times,
            request: Frames::default(),
            response: None,
        }))
    }
}

impl GrpcStatistics {
    /// The method as it is counted.
    fn method(&self, (service, method): (&str, &str)) -> Option<Method> {
        match &self.methods {
            Methods::All if self.without_dots => {
                Some((service.replace('.', "_").into(), method.into()))
            }
            Methods::All => Some((service.into(), method.into())),
            Methods::Listed(listed) => {
                listed.iter().find(|(one, other)| (&**one, &**other) == (service, method)).cloned()
            }
        }
    }
}

/// A call that is counted.
#[derive(Debug)]
struct Call {
    stats: CallStats,
    times: bool,
    request: Frames,
    /// Where the response is one of gRPC.
    response: Option<Frames>,
}

impl Call {
    fn count_time(&mut self, facts: &Facts<'_>) {
        let record = facts.record;
        if let (true, Some(sent), Some(received)) =
            (self.times, record.upstream_last_sent, record.upstream_last_received)
            && let Some(stats) = self.stats.of(facts)
        {
            stats.upstream_rq_time.record(received.millis_since(sent));
        }
    }
}

impl StreamFilter for Call {
    fn on_request_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        let frames = self.request.count(data);
        if frames > 0
            && let Some(stats) = self.stats.of(facts)
        {
            stats.request_message_count.add(frames);
        }
        Ok(())
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        let head = &*response.head;
        let is_call = !response.ends && head.status() == 200 && grpc::is_grpc(head);
        self.response = is_call.then(Frames::default);
        self.stats.count(response.facts, head);
        if response.ends {
            self.count_time(response.facts);
        }
        Release::Now
    }

    fn on_response_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        let frames = self.response.as_mut().map_or(0, |counter| counter.count(data));
        if frames > 0
            && let Some(stats) = self.stats.of(facts)
        {
            stats.response_message_count.add(frames);
        }
        Ok(())
    }

    fn on_response_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> Bytes {
        if let Some(trailers) = trailers {
            self.stats.count(facts, trailers);
            self.count_time(facts);
        }
        Bytes::new()
    }
}
