//! Distributed tracing: what a connection manager and its routes say of it, and where spans go.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::head::HeaderName;

use super::route::{Fraction, HeaderOps, RetryPolicy};
use crate::format::{Format, MetadataOf};

/// Envoy `HttpConnectionManager.Tracing`.
#[derive(Debug)]
pub struct Tracing {
    /// The shares of requests that are traced.
    pub sampling: Sampling,
    /// `verbose`: spans say when what came and went.
    pub verbose: bool,
    /// `max_path_tag_length`. Default 256.
    pub max_path: usize,
    /// `custom_tags`.
    pub tags: Vec<CustomTag>,
    /// `spawn_upstream_span`: the span of a request is a server's, and each attempt of it has a client's below it.
    pub spawns_upstream: bool,
    /// `operation`: the name of the span, before all else that names it.
    pub operation: Option<Format>,
    /// `upstream_operation`: the same for those of attempts.
    pub upstream_operation: Option<Format>,
    /// The runtime key `towpath.tracing.phase_spans`: the phases of requests and of their attempts have spans too.
    pub phases: bool,
    /// `no_context_propagation`: the server is told nothing.
    pub silent: bool,
    /// The listener's `traffic_direction` is `OUTBOUND`.
    pub is_egress: bool,
    /// `pack_trace_reason` of the request ids: the id says why its request is traced. Default true.
    pub packs_reason: bool,
    /// `use_request_id_for_trace_sampling` of the request ids: the share is drawn by the id. Default true; all are
    /// traced otherwise.
    pub draws_by_id: bool,
    /// `provider`, or `tracing.http` of the bootstrap. Nothing is told without.
    pub provider: Option<Arc<Provider>>,
}

/// The shares of requests that are traced.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// `client_sampling`: of those with `x-client-trace-id`.
    pub client: Fraction,
    /// `random_sampling`: of all.
    pub random: Fraction,
    /// `overall_sampling`: of those that would be traced.
    pub overall: Fraction,
}

/// Envoy `config.route.v3.Tracing` and `Decorator`.
#[derive(Debug, Default)]
pub struct RouteTracing {
    /// `decorator`.
    pub decorator: Option<Decorator>,
    /// In place of the connection manager's.
    pub sampling: Option<Sampling>,
    /// Beside the connection manager's; those of the same name in their place.
    pub tags: Vec<CustomTag>,
    /// `operation`, in place of the connection manager's.
    pub operation: Option<Format>,
    /// `upstream_operation`, in place of the connection manager's.
    pub upstream_operation: Option<Format>,
}

/// Envoy `config.route.v3.Decorator`.
#[derive(Debug)]
pub struct Decorator {
    /// The name of the span.
    pub operation: Arc<str>,
    /// `propagate`: the other side is told it. Default true.
    pub propagates: bool,
}

/// Envoy `type.tracing.v3.CustomTag`.
#[derive(Debug)]
pub struct CustomTag {
    /// Its name.
    pub name: Arc<str>,
    /// Where its value is from.
    pub source: TagSource,
}

/// Where the value of a tag is from.
#[derive(Debug)]
pub enum TagSource {
    /// `literal`, or `environment`, which is read when the file is.
    Literal(Box<str>),
    /// `request_header`.
    Header {
        /// Its name.
        name: HeaderName,
        /// The value of requests without it; empty means no tag.
        default: Box<str>,
    },
    /// `metadata`.
    Metadata {
        /// `kind`: the request's, that of its route, its cluster or its host.
        whose: MetadataOf,
        /// `metadata_key.key`.
        namespace: Box<str>,
        /// `metadata_key.path`.
        path: Vec<Box<str>>,
        /// The value of requests without it; empty means no tag.
        default: Box<str>,
    },
    /// `value`.
    Format(Format),
}

/// Where spans go, and how they are named on the way.
#[derive(Debug)]
pub struct Provider {
    /// What is spoken.
    pub dialect: Dialect,
    /// The collector that is told.
    pub collector: Collector,
    /// `tracing.<tracer>.min_flush_spans`: so many leave together. Default 5.
    pub batch: usize,
    /// `tracing.<tracer>.flush_interval_ms`: fewer leave after that time. Default 5 s.
    pub interval: Duration,
    /// How many may wait while the collector is slow; what comes then is dropped.
    pub most_waiting: usize,
}

/// What is spoken.
#[derive(Debug)]
pub enum Dialect {
    /// Envoy `ZipkinConfig`.
    Zipkin(Zipkin),
    /// Envoy `OpenTelemetryConfig`.
    OpenTelemetry(OpenTelemetry),
}

/// Envoy `ZipkinConfig`.
#[derive(Clone, Debug)]
pub struct Zipkin {
    /// `collector_endpoint_version: HTTP_PROTO`; else `HTTP_JSON`.
    pub is_binary: bool,
    /// `trace_id_128bit`.
    pub long_ids: bool,
    /// `shared_span_context`: a server's span is the one of its client. Default true.
    pub shares: bool,
    /// `trace_context_option: USE_B3_WITH_W3C_PROPAGATION`.
    pub with_w3c: bool,
}

/// Envoy `OpenTelemetryConfig`.
#[derive(Clone, Debug)]
pub struct OpenTelemetry {
    /// What is said of the proxy, by name.
    pub resource: Vec<(String, String)>,
    /// `set_instrumentation_scope`. Default true.
    pub tells_scope: bool,
    /// `sampler`.
    pub sampler: Option<Sampler>,
}

/// Envoy's samplers of OpenTelemetry, of requests that are traced by the shares.
#[derive(Clone, Debug)]
pub enum Sampler {
    /// `AlwaysOnSamplerConfig`.
    AlwaysOn,
    /// `TraceIdRatioBasedSamplerConfig`: by the first half of the trace's id.
    Ratio(Fraction),
    /// `ParentBasedSamplerConfig`: as the parent, or as this where there is none.
    Parent(Box<Self>),
}

/// The collector that is told.
#[derive(Debug)]
pub struct Collector {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// The request's host.
    pub authority: Arc<str>,
    /// The request's path.
    pub path: Box<str>,
    /// What is added to its head.
    pub headers: HeaderOps,
    /// How long it may take.
    pub timeout: Duration,
    /// It is a call by gRPC.
    pub is_grpc: bool,
    /// `skip_envoy_headers`.
    pub skip_envoy_headers: bool,
    /// `retry_policy`.
    pub retry: Option<Arc<RetryPolicy>>,
}
