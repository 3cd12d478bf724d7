//! `envoy.filters.http.ext_proc`: another server sees heads, content and trailers of requests and responses as they
//! come by, and changes them.
//!
//! Arrives: the parts of a stream, and what the server says of them, by one call of
//! `envoy.service.ext_proc.v3.ExternalProcessor/Process` for each stream. Leaves: the parts as it wants them, or its
//! answer. What waits for it is bounded by the connection's buffer limit: what is longer is answered with 413 or 500
//! where it is wanted as a whole, and not read on otherwise.

mod attributes;
mod conversation;
mod flow;
mod mutation;
mod stats;
mod wire;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use self::conversation::Conversation;
use self::flow::Modes;
use self::stats::ExtProcStats;
pub use super::grpc_service::GrpcService;
pub use super::mutation_rules::MutationRules;
use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, ResponseFilter, ResponseView,
    RouteConfig, RouteConfigs, StreamFilter,
};
use crate::filter::head_limits::HeadLimits;
use crate::format::Facts;
use crate::format::cel::Expression;
use crate::header_ops::{HeaderOps, Scratch, Subject};
use crate::matcher::StringMatcher;

/// Envoy `ExternalProcessor`.
#[derive(Debug)]
pub struct ExtProc {
    /// `grpc_service`.
    pub service: Arc<GrpcService>,
    /// `processing_mode`.
    pub mode: ProcessingMode,
    /// `failure_mode_allow`: without the server the stream goes on as it is.
    pub failure_mode_allow: bool,
    /// `status_on_error`: what is answered otherwise. Default 500.
    pub status_on_error: u16,
    /// `message_timeout`: how long an answer may take. Default 200 ms.
    pub message_timeout: Duration,
    /// `max_message_timeout`: how long the server may make that. Default 0: not at all.
    pub max_message_timeout: Duration,
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `mutation_rules`.
    pub rules: MutationRules,
    /// `forward_rules.allowed_headers`: those that the server sees; all without any.
    pub allowed: Vec<StringMatcher>,
    /// `forward_rules.disallowed_headers`: those that it does not see even so.
    pub disallowed: Vec<StringMatcher>,
    /// `allow_mode_override`: the server may say what it wants to see.
    pub allow_mode_override: bool,
    /// `allowed_override_modes`: out of these; any without one.
    pub allowed_modes: Vec<ProcessingMode>,
    /// `disable_immediate_response`: it may not answer requests.
    pub disable_immediate_response: bool,
    /// `route_cache_action`.
    pub route_cache: RouteCache,
    /// `metadata_options`.
    pub namespaces: Namespaces,
    /// `send_body_without_waiting_for_header_response`.
    pub sends_body_early: bool,
    /// `observability_mode`: nothing is waited for; the call ends so long after the stream
    /// (`deferred_close_timeout`, default 5 s).
    pub watches: Option<Duration>,
    /// `request_attributes`, each with its name.
    pub request_attributes: Vec<Expression>,
    /// `response_attributes`.
    pub response_attributes: Vec<Expression>,
}

impl ExtProc {
    /// Default of `status_on_error`.
    pub const STATUS_ON_ERROR: u16 = 500;
    /// Default of `message_timeout`.
    pub const MESSAGE_TIMEOUT: Duration = Duration::from_millis(200);

    /// What is done where the configuration says nothing else.
    #[must_use]
    pub fn new(service: GrpcService) -> Self {
        Self {
            service: Arc::new(service),
            mode: ProcessingMode::default(),
            failure_mode_allow: false,
            status_on_error: Self::STATUS_ON_ERROR,
            message_timeout: Self::MESSAGE_TIMEOUT,
            max_message_timeout: Duration::ZERO,
            stat_prefix: "".into(),
            rules: MutationRules::default(),
            allowed: Vec::new(),
            disallowed: Vec::new(),
            allow_mode_override: false,
            allowed_modes: Vec::new(),
            disable_immediate_response: false,
            route_cache: RouteCache::Default,
            namespaces: Namespaces::default(),
            sends_body_early: false,
            watches: None,
            request_attributes: Vec::new(),
            response_attributes: Vec::new(),
        }
    }
}

/// Envoy `ProcessingMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessingMode {
    /// `request_header_mode`.
    pub request_headers: HeaderMode,
    /// `response_header_mode`.
    pub response_headers: HeaderMode,
    /// `request_body_mode`.
    pub request_body: BodyMode,
    /// `response_body_mode`.
    pub response_body: BodyMode,
    /// `request_trailer_mode`.
    pub request_trailers: HeaderMode,
    /// `response_trailer_mode`.
    pub response_trailers: HeaderMode,
}

/// Envoy `HeaderSendMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderMode {
    /// Heads are sent, trailers are not.
    #[default]
    Default,
    /// They are sent.
    Send,
    /// They are not sent.
    Skip,
}

/// Envoy `BodySendMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyMode {
    /// It is not sent.
    #[default]
    None,
    /// Each piece as it comes.
    Streamed,
    /// As a whole.
    Buffered,
    /// As a whole, or as much of it as may be held.
    BufferedPartial,
    /// Each piece as it comes; what the server sends goes on, whenever it does.
    FullDuplex,
}

/// Envoy `RouteCacheAction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteCache {
    /// A changed request is routed anew if the server says so.
    #[default]
    Default,
    /// In any case.
    Clear,
    /// In none.
    Retain,
}

/// Envoy `MetadataOptions`.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    /// `forwarding_namespaces.untyped`: dynamic metadata that the server sees.
    pub forwarded: Option<Vec<Box<str>>>,
    /// `receiving_namespaces.untyped`: that it may write.
    pub received: Option<Vec<Box<str>>>,
}

/// Envoy `ExtProcPerRoute`.
#[derive(Debug)]
pub enum RouteExtProc {
    /// `disabled`.
    Disabled,
    /// `overrides`.
    Overrides(Box<Overrides>),
}

/// Envoy `ExtProcOverrides`.
#[derive(Debug, Default)]
pub struct Overrides {
    /// `processing_mode`.
    pub mode: Option<ProcessingMode>,
    /// `grpc_service`.
    pub service: Option<Arc<GrpcService>>,
    /// `grpc_initial_metadata`.
    pub metadata: HeaderOps,
    /// `metadata_options`.
    pub namespaces: Namespaces,
    /// `failure_mode_allow`.
    pub failure_mode_allow: Option<bool>,
}

impl RouteConfig for RouteExtProc {}

impl ProcessingMode {
    const fn of_request(&self) -> Modes {
        Modes {
            headers: !matches!(self.request_headers, HeaderMode::Skip),
            body: self.request_body,
            trailers: matches!(self.request_trailers, HeaderMode::Send),
        }
    }

    const fn of_response(&self) -> Modes {
        Modes {
            headers: !matches!(self.response_headers, HeaderMode::Skip),
            body: self.response_body,
            trailers: matches!(self.response_trailers, HeaderMode::Send),
        }
    }
}

/// The configuration, shared by all workers.
#[derive(Clone, Debug)]
pub struct SharedExtProc(pub Arc<ExtProc>);

impl FilterConfig for SharedExtProc {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let config = Arc::clone(&self.0);
        let names = scope.names("http_ext_proc");
        let stats = scope.named(names.part("towpath_ext_proc_prefix", &config.stat_prefix));
        Rc::new(Instance(Rc::new(Shared { config, stats, limits: scope.limits })))
    }

    fn reads_record(&self) -> bool {
        true
    }
}

/// What the conversations of one worker's chain share.
#[derive(Debug)]
struct Shared {
    config: Arc<ExtProc>,
    stats: Arc<ExtProcStats>,
    limits: HeadLimits,
}

#[derive(Debug)]
struct Instance(Rc<Shared>);

/// What a route makes of the configuration.
#[derive(Debug)]
struct Merged<'a> {
    mode: ProcessingMode,
    service: &'a GrpcService,
    failure_mode_allow: bool,
    forwarded: &'a [Box<str>],
    received: &'a [Box<str>],
}

impl<'a> Merged<'a> {
    /// `None` where a route is without it. The most specific level counts.
    fn of(config: &'a ExtProc, route: RouteConfigs<'a>) -> Option<Self> {
        let first = route.first::<RouteExtProc>();
        if matches!(first, Some(RouteExtProc::Disabled)) {
            return None;
        }
        let levels = || {
            route.all::<RouteExtProc>().filter_map(|level| match level {
                RouteExtProc::Overrides(overrides) => Some(&**overrides),
                RouteExtProc::Disabled => None,
            })
        };
        let of_filter = &config.namespaces;
        let forwarded = levels().find_map(|level| level.namespaces.forwarded.as_deref());
        let received = levels().find_map(|level| level.namespaces.received.as_deref());
        Some(Self {
            mode: levels().find_map(|level| level.mode).unwrap_or(config.mode),
            service: levels().find_map(|level| level.service.as_deref()).unwrap_or(&config.service),
            failure_mode_allow: levels()
                .find_map(|level| level.failure_mode_allow)
                .unwrap_or(config.failure_mode_allow),
            forwarded: forwarded.or(of_filter.forwarded.as_deref()).unwrap_or_default(),
            received: received.or(of_filter.received.as_deref()).unwrap_or_default(),
        })
    }
}

impl Instance {
    /// What begins with a stream; none where nothing of it is shown.
    fn converse(
        &self,
        route: RouteConfigs<'_>,
        facts: &Facts<'_>,
        scratch: &mut Scratch,
    ) -> Option<Box<Conversation>> {
        let merged = Merged::of(&self.0.config, route)?;
        if merged.mode.of_request().is_nothing() && merged.mode.of_response().is_nothing() {
            return None;
        }
        let mut callout = merged.service.talk(METHOD, facts, scratch);
        let mut levels: Vec<&HeaderOps> = Vec::new();
        for level in route.all::<RouteExtProc>() {
            if let RouteExtProc::Overrides(overrides) = level {
                levels.push(&overrides.metadata);
            }
        }
        for metadata in levels.into_iter().rev() {
            metadata.apply(&mut callout.head, Subject::Call, facts, scratch);
        }
        Some(Box::new(Conversation::new(Rc::clone(&self.0), &merged, callout)))
    }
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let facts = Facts { request: Some(request.head), ..*request.facts };
        let Some(mut watcher) = self.converse(request.route, &facts, request.scratch) else {
            return OnRequest::Pass;
        };
        let waits = watcher.begin_request(request);
        OnRequest::Talk { watcher, waits }
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Instance {
    fn join(&self, response: &mut ResponseView<'_>) -> Option<Box<dyn StreamFilter>> {
        let mut watcher = self.converse(response.route, response.facts, response.scratch)?;
        watcher.begin_with_response();
        Some(watcher)
    }
}

const METHOD: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
