//! Istio's `stats`: its standard metrics of requests, and of messages of gRPC. Those of opaque bytes are counted with
//! the same by the connection's stream.

mod labels;
mod metrics;

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use self::labels::Ends;
pub(crate) use self::metrics::Metrics;
use self::metrics::is_call;
use super::calls::Frames;
use super::{
    Ended, FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, StreamFilter,
};
use crate::format::Facts;
use crate::grpc;
use crate::mesh::{Reporter, Telemetry};

/// Istio `stats.PluginConfig`, of HTTP.
#[derive(Debug)]
pub struct IstioStats(pub Arc<Telemetry>);

impl FilterConfig for IstioStats {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let registry = Arc::clone(&scope.registry);
        Rc::new(Instance(Rc::new(Metrics::new(Arc::clone(&self.0), registry, scope.worker))))
    }

    fn reads_record(&self) -> bool {
        true
    }

    fn sees_ends(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance(Rc<Metrics>);

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if !grpc::is_grpc(request.head) {
            return OnRequest::Pass;
        }
        let (request, response) = (Frames::default(), Frames::default());
        let untold = Untold::default();
        OnRequest::Watch(Box::new(Call { metrics: Rc::clone(&self.0), request, response, untold }))
    }

    fn on_end(&self, ended: &Ended<'_>) {
        let watched = ended.watcher.and_then(StreamFilter::shared);
        if let Some(untold) = watched.and_then(|shared| shared.downcast_ref::<Untold>()) {
            untold.tell(&self.0, ended.facts);
        }
        self.0.count_request(Ends::of(ended.facts), is_call(ended.facts));
    }
}

/// Messages that are not counted yet.
#[derive(Debug, Default)]
struct Untold {
    request: Cell<u64>,
    response: Cell<u64>,
}

impl Untold {
    fn tell(&self, metrics: &Metrics, facts: &Facts<'_>) {
        let (request, response) = (self.request.take(), self.response.take());
        if request + response > 0 {
            metrics.count_messages(Ends::of(facts), request, response);
        }
    }
}

/// A call by gRPC whose messages are counted. They are told once it is known who is at the other end: a client learns
/// that with the response.
#[derive(Debug)]
struct Call {
    metrics: Rc<Metrics>,
    request: Frames,
    response: Frames,
    untold: Untold,
}

impl Call {
    fn tell(&self, facts: &Facts<'_>, has_answer: bool) {
        if has_answer || self.metrics.reporter() != Reporter::Client {
            self.untold.tell(&self.metrics, facts);
        }
    }
}

impl StreamFilter for Call {
    fn on_request_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        let count = self.request.count(data);
        self.untold.request.set(self.untold.request.get() + count);
        self.tell(facts, facts.record.upstream_first_received.is_some());
        Ok(())
    }

    fn on_response_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        let count = self.response.count(data);
        self.untold.response.set(self.untold.response.get() + count);
        self.tell(facts, true);
        Ok(())
    }

    fn shared(&self) -> Option<&dyn Any> {
        Some(&self.untold)
    }
}
