//! `envoy.filters.http.grpc_stats`: counts calls by gRPC and by Connect, and their messages, by cluster, service and
//! method.

mod connect;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::{Head, Name};

use self::connect::Streamed;
use super::calls::{CallStats, Calls, Frames, Method, method_of};
use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, Release, Reply, RequestView, ResponseView,
    StreamFilter,
};
use crate::format::Facts;
use crate::grpc;
use crate::stats::GrpcProtocol;
use crate::stream_info::{StateObject, Struct, Value};

/// Envoy `grpc_stats.v3.FilterConfig`.
#[derive(Clone, Debug)]
pub struct GrpcStatistics {
    /// Which methods are counted each for itself.
    pub methods: Methods,
    /// `enable_upstream_stats`: how long the host took.
    pub times: bool,
    /// `replace_dots_in_grpc_service_name`.
    pub without_dots: bool,
    /// `emit_filter_state`: the filter state has how many messages there were.
    pub emits_state: bool,
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
        self.times || self.emits_state
    }
}

#[derive(Debug)]
struct Instance {
    config: GrpcStatistics,
    calls: Rc<Calls>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let Some(protocol) = Protocol::of(request.head) else { return OnRequest::Pass };
        let named = method_of(request.head.path()).filter(|_| request.forwards);
        let emits_state = self.config.emits_state;
        if named.is_none() && !emits_state {
            return OnRequest::Pass;
        }
        let stats =
            named.map(|named| CallStats::new(Rc::clone(&self.calls), self.config.method(named)));
        OnRequest::Watch(Box::new(Call {
            stats,
            times: self.config.times,
            emits_state,
            protocol,
            request: Frames::default(),
            response: Answer::Other,
            messages: [0; 2],
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

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Grpc,
    /// Connect's with one message each way, which are the bodies.
    ConnectUnary,
    /// Connect's with messages in frames.
    ConnectStreaming,
}

impl Protocol {
    fn of(head: &Head) -> Option<Self> {
        let streams = |kind: &[u8]| kind.starts_with(b"application/connect+");
        if grpc::is_grpc(head) {
            Some(Self::Grpc)
        } else if head.get(Name::ContentType).is_some_and(streams) {
            Some(Self::ConnectStreaming)
        } else {
            head.get_bytes(b"connect-protocol-version").map(|_| Self::ConnectUnary)
        }
    }
}

/// A call that is counted.
#[derive(Debug)]
struct Call {
    /// Where it names a method of a cluster.
    stats: Option<CallStats>,
    times: bool,
    emits_state: bool,
    protocol: Protocol,
    request: Frames,
    response: Answer,
    /// So many messages have come, of the request and of the response.
    messages: [u64; 2],
}

/// What answers a call.
#[derive(Debug)]
enum Answer {
    Grpc(Frames),
    Streamed(Streamed),
    Unary,
    /// What has no messages.
    Other,
}

impl Call {
    fn count_time(&mut self, facts: &Facts<'_>) {
        let record = facts.record;
        if let (true, Some(sent), Some(received)) =
            (self.times, record.upstream_last_sent, record.upstream_last_received)
            && let Some(stats) = self.stats.as_mut().and_then(|stats| stats.of(facts))
        {
            stats.upstream_rq_time.record(received.millis_since(sent));
        }
    }

    fn count_outcome(&mut self, facts: &Facts<'_>, succeeds: bool) {
        if let Some(stats) = &mut self.stats {
            stats.count_outcome(facts, succeeds);
        }
    }

    /// Counts messages of the request, or of the response.
    fn count_messages(&mut self, way: usize, messages: u64, facts: &Facts<'_>) {
        if messages == 0 {
            return;
        }
        self.messages[way] += messages;
        if let Some(stats) = self.stats.as_mut().and_then(|stats| stats.of(facts)) {
            let counter = [&stats.request_message_count, &stats.response_message_count][way];
            counter.add(messages);
        }
        if let (true, Some(info)) = (self.emits_state, facts.info) {
            // What is too much for one stream is left out.
            let _ = info.set_state(STATE, state_of(self.messages));
        }
    }
}

impl StreamFilter for Call {
    fn on_request_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        if self.protocol != Protocol::ConnectUnary {
            let frames = self.request.count(data);
            self.count_messages(REQUEST, frames, facts);
        }
        Ok(())
    }

    fn on_request_end(&mut self, facts: &Facts<'_>) -> Result<Bytes, Reply> {
        if self.protocol == Protocol::ConnectUnary {
            self.count_messages(REQUEST, 1, facts);
        }
        Ok(Bytes::new())
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        let head = &*response.head;
        let is_call = !response.ends && head.status() == 200 && grpc::is_grpc(head);
        self.response = match self.protocol {
            _ if is_call => Answer::Grpc(Frames::default()),
            Protocol::Grpc => Answer::Other,
            Protocol::ConnectUnary => Answer::Unary,
            Protocol::ConnectStreaming => Answer::Streamed(Streamed::default()),
        };
        if self.protocol == Protocol::ConnectUnary {
            self.count_outcome(response.facts, head.status() == 200);
        } else if let Some(stats) = &mut self.stats {
            stats.count(response.facts, head);
        }
        if response.ends {
            self.count_time(response.facts);
        }
        Release::Now
    }

    fn on_response_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        let messages = match &mut self.response {
            Answer::Grpc(frames) => frames.count(data),
            Answer::Streamed(streamed) => streamed.count(data),
            Answer::Unary | Answer::Other => 0,
        };
        self.count_messages(RESPONSE, messages, facts);
        Ok(())
    }

    fn on_response_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> Bytes {
        match (trailers, &self.response) {
            (Some(trailers), _) if self.protocol == Protocol::Grpc => {
                if let Some(stats) = &mut self.stats {
                    stats.count(facts, trailers);
                }
                self.count_time(facts);
            }
            (None, Answer::Streamed(streamed)) => {
                let succeeds = streamed.succeeds();
                self.count_outcome(facts, succeeds);
                self.count_time(facts);
            }
            (None, Answer::Unary) => {
                self.count_messages(RESPONSE, 1, facts);
                self.count_time(facts);
            }
            (Some(_), _) | (None, Answer::Grpc(_) | Answer::Other) => {}
        }
        Bytes::new()
    }
}

/// What the filter state says of messages (Envoy `grpc_stats.v3.FilterObject`).
fn state_of(messages: [u64; 2]) -> StateObject {
    let [request, response] = messages;
    let named = [("requestMessageCount", request), ("responseMessageCount", response)];
    // As JSON has them, numbers of 64 bits are texts and those that are 0 are not there.
    let fields = named.into_iter().filter(|(_, count)| *count > 0);
    let fields: Struct = fields
        .map(|(name, count)| (name.into(), Value::text(count.to_string().as_bytes())))
        .collect();
    let value = format!("{request},{response}").into_bytes().into();
    StateObject { value, fields: Some(fields), ..StateObject::default() }
}

const STATE: &str = "envoy.filters.http.grpc_stats";
/// Places of what is counted for each direction.
const REQUEST: usize = 0;
const RESPONSE: usize = 1;
