//! `envoy.filters.http.ext_authz`: another server is asked whether a request may go on, by HTTP or by gRPC.

mod check;
mod grpc;
mod http;
mod shadow;
mod stats;
mod wire;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use towpath_proto::head::HeaderName;

use self::check::Check;
use self::stats::ExtAuthzStats;
pub use super::grpc_service::GrpcService;
pub use super::mutation_rules::MutationRules;
use super::{
    CLUSTER, FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, RouteConfig,
};
use crate::fraction::Fraction;
use crate::header_ops::HeaderOps;
use crate::matcher::{MetadataMatcher, StringMatcher};
use crate::record::Flags;
use crate::retry_policy::RetryPolicy;
use crate::stats::{ClusterStats, FilterNames, Scope};

/// Envoy `ExtAuthz`.
#[derive(Debug)]
pub struct ExtAuthz {
    /// The server that is asked, if the route names none.
    pub server: Arc<Server>,
    /// `failure_mode_allow`: without an answer the request goes on.
    pub failure_mode_allow: bool,
    /// `failure_mode_allow_header_add`: and says so.
    pub tells_failure: bool,
    /// `status_on_error`: what is answered without an answer otherwise. Default 403.
    pub status_on_error: u16,
    /// `with_request_body`.
    pub body: Option<Body>,
    /// `clear_route_cache`: a request that an answer has changed is routed anew.
    pub clears_route: bool,
    /// `filter_enabled`: which requests are asked about. Default all.
    pub enabled: Option<Fraction>,
    /// `filter_enabled_metadata`: requests whose dynamic metadata do not match are not asked about either.
    pub enabled_by: Option<MetadataMatcher>,
    /// `deny_at_disable`: the others are refused.
    pub denies_disabled: bool,
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `allowed_headers`: those that the server sees. Without it all.
    pub allowed: Option<Vec<StringMatcher>>,
    /// `disallowed_headers`: those that it does not see even so.
    pub disallowed: Vec<StringMatcher>,
    /// `encode_raw_headers`: it sees each by itself and byte for byte; else those of one name are joined, as text.
    pub raw_headers: bool,
    /// `include_peer_certificate`.
    pub tells_certificate: bool,
    /// `include_tls_session`.
    pub tells_server_name: bool,
    /// `metadata_context_namespaces`.
    pub namespaces: Vec<Box<str>>,
    /// `route_metadata_context_namespaces`.
    pub route_namespaces: Vec<Box<str>>,
    /// `charge_cluster_response_stats`: a refusal counts among the responses of the route's cluster.
    pub charges_cluster: bool,
    /// `emit_client_span`: the question has a span below that of its request. Default true.
    pub has_span: bool,
    /// `max_denied_response_body_bytes`: a refusal's content is cut here. 0 means no limit.
    pub most_refusal: usize,
    /// `enable_dynamic_metadata_ingestion`: what an answer says is kept. Default true.
    pub keeps_metadata: bool,
    /// `validate_mutations`: an answer with what cannot stand in a head is one of an error (500).
    pub validates: bool,
    /// `decoder_header_mutation_rules`: what an answer may change of a request. Without it, all.
    pub rules: Option<MutationRules>,
    /// What `bootstrap_metadata_labels_key` names of the node's metadata: the server is told.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// `shadow_mode`: what is decided is written down, and the request goes on.
    pub shadow: bool,
}

impl ExtAuthz {
    /// One that asks this server as Envoy does where nothing else is said.
    #[must_use]
    pub const fn new(server: Arc<Server>, stat_prefix: Arc<str>) -> Self {
        Self {
            server,
            failure_mode_allow: false,
            tells_failure: false,
            status_on_error: 403,
            body: None,
            clears_route: false,
            enabled: None,
            enabled_by: None,
            denies_disabled: false,
            stat_prefix,
            allowed: None,
            disallowed: Vec::new(),
            raw_headers: false,
            tells_certificate: false,
            tells_server_name: false,
            namespaces: Vec::new(),
            route_namespaces: Vec::new(),
            charges_cluster: true,
            has_span: true,
            most_refusal: 0,
            keeps_metadata: true,
            validates: false,
            rules: None,
            labels: Vec::new(),
            shadow: false,
        }
    }

    /// Whether the span of a question is sampled, whatever its request is.
    fn sampled(&self, request: &RequestView<'_>) -> Option<bool> {
        let of_route = match request.route.first() {
            Some(RouteExtAuthz::Check { has_span, .. }) => *has_span,
            Some(RouteExtAuthz::Disabled) | None => None,
        };
        (!of_route.unwrap_or(self.has_span)).then_some(false)
    }
}

/// The server that is asked.
#[derive(Debug)]
pub struct Server {
    /// How it is asked.
    pub service: Service,
    /// How long, from the question to the end of the answer.
    pub timeout: Duration,
}

/// How a server is asked.
#[derive(Debug)]
pub enum Service {
    /// `grpc_service`.
    Grpc(GrpcService),
    /// `http_service`.
    Http(Box<HttpService>),
}

/// Envoy `ext_authz.v3.HttpService`.
#[derive(Debug)]
pub struct HttpService {
    /// `server_uri.cluster`.
    pub cluster: Arc<str>,
    /// `path_prefix`: before the request's own path.
    pub path_prefix: Box<str>,
    /// `path_override`: in its place.
    pub path: Box<str>,
    /// `authorization_request.headers_to_add`.
    pub headers: HeaderOps,
    /// `allowed_upstream_headers`: what of the answer the request gets.
    pub upstream: Vec<StringMatcher>,
    /// `allowed_upstream_headers_to_append`: what of the answer is added to the request.
    pub appended: Vec<StringMatcher>,
    /// `allowed_client_headers`: what of a refusal the client gets. Without any, all.
    pub client: Vec<StringMatcher>,
    /// `allowed_client_headers_on_success`: what of an answer its response gets.
    pub client_on_success: Vec<StringMatcher>,
    /// `dynamic_metadata_from_headers`.
    pub metadata: Vec<StringMatcher>,
    /// `retry_policy`.
    pub retry: Option<Arc<RetryPolicy>>,
}

/// Envoy `BufferSettings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// `max_request_bytes`: at least 1.
    pub limit: usize,
    /// `allow_partial_message`: the first so many bytes; otherwise what is longer is answered with 413.
    pub partial: bool,
    /// `pack_as_bytes`: by gRPC it goes as bytes; otherwise as text.
    pub as_bytes: bool,
}

/// Envoy `ExtAuthzPerRoute`.
#[derive(Debug)]
pub enum RouteExtAuthz {
    /// `disabled`.
    Disabled,
    /// `check_settings`.
    Check {
        /// `context_extensions`. Those of several levels come together; the most specific counts.
        extensions: Vec<(String, String)>,
        /// `disable_request_body_buffering`: no body; else `with_request_body`, where it is set.
        body: RouteBody,
        /// `emit_client_span`, in place of the filter's.
        has_span: Option<bool>,
        /// `grpc_service` or `http_service`, in place of the filter's. That of the most specific level counts.
        server: Option<Arc<Server>>,
    },
}

/// What a route says of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteBody {
    /// Nothing.
    AsFilter,
    /// They are not sent.
    None,
    /// They are sent.
    Sent(Body),
}

impl RouteConfig for RouteExtAuthz {}

/// The configuration, shared by all workers.
#[derive(Clone, Debug)]
pub struct SharedExtAuthz(pub Arc<ExtAuthz>);

impl FilterConfig for SharedExtAuthz {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let config = Arc::clone(&self.0);
        let names = scope.names("http_ext_authz").part(PREFIX_LABEL, &config.stat_prefix);
        let stats = scope.named(names);
        let (scope, clusters) = (scope.clone(), RefCell::default());
        Rc::new(Instance(Rc::new(Shared { config, stats, scope, clusters })))
    }

    fn reads_record(&self) -> bool {
        true
    }
}

/// What the checks of one worker's chain share.
#[derive(Debug)]
struct Shared {
    config: Arc<ExtAuthz>,
    stats: Arc<ExtAuthzStats>,
    scope: FilterScope,
    /// Those of the clusters of routes.
    clusters: RefCell<FxHashMap<Arc<str>, Arc<ExtAuthzStats>>>,
}

impl Shared {
    /// The answer to a request about which the server has said what cannot be done.
    fn refuse_answer(&self, cluster: &str) -> Reply {
        self.count(cluster, |stats| stats.invalid.inc());
        let mut reply = Reply::new(500, b"", "ext_authz_invalid");
        reply.flags.set(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
        reply
    }

    /// Counts a response that was not sent among those of the route's cluster.
    fn charge(&self, cluster: &str, status: u16) {
        if !cluster.is_empty() {
            let stats: Arc<ClusterStats> = self.scope.set(Scope::Cluster(cluster.into()));
            stats.count_response(status, true);
        }
    }

    /// Counts for the filter, and for the route's cluster.
    fn count(&self, cluster: &str, count: impl Fn(&ExtAuthzStats)) {
        count(&self.stats);
        if cluster.is_empty() {
            return;
        }
        // The registry has a lock: each cluster's counters are looked up once.
        let mut known = self.clusters.borrow_mut();
        if let Some(stats) = known.get(cluster) {
            return count(stats);
        }
        let name: Arc<str> = Arc::from(cluster);
        let names = FilterNames::new("cluster_ext_authz", format!("cluster.{name}.ext_authz"));
        let names = names.label(CLUSTER, &name).part(PREFIX_LABEL, &self.config.stat_prefix);
        count(known.entry(name).or_insert_with(|| self.scope.named(names)));
    }
}

#[derive(Debug)]
struct Instance(Rc<Shared>);

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let Shared { config, stats, .. } = &*self.0;
        if !request.is_routed {
            return OnRequest::Pass;
        }
        // As in Envoy, the most specific level counts; of less specific ones only `context_extensions`.
        let of_route = match request.route.first() {
            Some(RouteExtAuthz::Disabled) => return OnRequest::Pass,
            Some(RouteExtAuthz::Check { body, .. }) => *body,
            None => RouteBody::AsFilter,
        };
        let taken = config.enabled.is_none_or(|enabled| enabled.takes(request.random));
        let matched = config.enabled_by.as_ref().is_none_or(|it| it.matches(request.facts.info));
        if !(taken && matched) {
            stats.disabled.inc();
            if !config.denies_disabled {
                return OnRequest::Pass;
            }
            if config.shadow {
                stats.shadow_denied.inc();
                shadow::note(request, shadow::DENIED, config.status_on_error, &[]);
                return OnRequest::Pass;
            }
            let mut reply = Reply::new(config.status_on_error, b"", "ext_authz_error");
            reply.flags.set(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
            return OnRequest::Answer(reply);
        }
        let body = match of_route {
            RouteBody::None => None,
            RouteBody::Sent(body) => Some(body),
            RouteBody::AsFilter => config.body,
        };
        let body = body.filter(|_| !request.ends);
        let mut check = Box::new(Check::new(Rc::clone(&self.0), request, body));
        match body {
            Some(Body { limit, partial: true, .. }) => OnRequest::CollectSome(check, limit),
            Some(Body { limit, partial: false, .. }) => OnRequest::Collect(check, limit),
            None => {
                let callout = check.ask(request);
                OnRequest::Ask(check, callout)
            }
        }
    }
}

/// What a server has decided.
#[derive(Debug, Default)]
struct Decision {
    kind: CheckStatus,
    /// To be set in the refusal.
    set: Fields,
    /// To be added to the refusal.
    append: Fields,
    /// What becomes of a request that goes on.
    changes: Vec<Change>,
    /// For the response of a request that goes on.
    response: Vec<(ResponseAction, HeaderName, Vec<u8>)>,
    /// Parameters of the request's query to be set, as they are written.
    set_query: Vec<(Vec<u8>, Vec<u8>)>,
    /// Parameters to be taken out of it.
    remove_query: Vec<Vec<u8>>,
    metadata: crate::stream_info::Struct,
    /// Something of it cannot stand in a head.
    is_invalid: bool,
}

type Fields = Vec<(HeaderName, Vec<u8>)>;

/// A change of the request's head, which may be one that cannot be made.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    how: How,
    /// In small letters.
    name: String,
    value: Vec<u8>,
}

/// How a field is changed, in the order in which an answer's changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Set,
    Add,
    /// To the values that the request has of such a name; where there are none, nothing.
    Append,
    Remove,
}

impl Change {
    fn new(how: How, name: &[u8], value: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        Self { how, name, value: value.to_vec() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseAction {
    Add,
    Set,
    AddIfAbsent,
    SetIfPresent,
}

#[derive(Debug, Default)]
enum CheckStatus {
    Allowed,
    Denied {
        status: u16,
        body: Vec<u8>,
    },
    /// The server has not decided.
    #[default]
    Error,
    /// The same, in words of its own (`error_response`).
    Failed {
        /// 0 where it does not say.
        status: u16,
        body: Vec<u8>,
    },
}

impl ExtAuthz {
    /// Whether the server sees fields of this name.
    fn shows(&self, name: &[u8]) -> bool {
        if self.allowed.is_none() && self.disallowed.is_empty() {
            return !name.eq_ignore_ascii_case(check::PARTIAL);
        }
        let name = &*name.to_ascii_lowercase();
        let allowed = self.allowed.as_deref().is_none_or(|allowed| any(allowed, name));
        allowed && !any(&self.disallowed, name) && name != check::PARTIAL
    }
}

/// Whether one of these matches a field's name.
fn any(matchers: &[StringMatcher], name: &[u8]) -> bool {
    matchers.iter().any(|matcher| matcher.matches(name))
}

/// A name, as far as headers from outside may change it.
fn changeable(name: &[u8]) -> Option<HeaderName> {
    let name = std::str::from_utf8(name).ok().filter(|name| !name.starts_with(':'))?;
    HeaderName::new(name).ok()
}

/// A value that can stand in a head.
fn is_value(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// The label with the filter's stat prefix.
const PREFIX_LABEL: &str = "envoy_ext_authz_prefix";
