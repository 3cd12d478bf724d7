//! Virtual hosts, routes and what they do. Envoy's `RouteConfiguration`, compiled.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::head::{Head, HeaderName};

pub use super::expressions::Expressions;
use super::http::ConnectConfig;
use super::specifier::Specifier;
use super::subset::Criteria;
use super::tracing::RouteTracing;
use super::{ClusterId, HostIndex};
use crate::expression::Regex;
use crate::field::Field;
use crate::filter::FilterOverride;
use crate::format::Format;
pub use crate::fraction::Fraction;
use crate::header_ops::HeaderMutations;
pub use crate::header_ops::{HeaderAction, HeaderOp, HeaderOps};
use crate::matcher::tree::Tree;
use crate::matcher::{HeaderMatcher, QueryMatcher, RareTests};
pub use crate::matcher::{PathMatch, PathTemplate, Text};
pub use crate::retry_policy::{
    OmittedHosts, RateLimitedBackOff, ResetHeader, RetryOn, RetryPolicy,
};
use crate::stream_info::FilterMetadata;

/// Envoy `config.route.v3.RouteConfiguration`.
#[derive(Debug, Default)]
pub struct RouteTable {
    /// Its name.
    pub name: Arc<str>,
    /// Virtual hosts in the order of the file.
    pub hosts: Vec<VirtualHost>,
    /// Finds the virtual host of an authority.
    pub index: HostIndex,
    /// Applied last (or first, see `most_specific_last`).
    pub request_headers: HeaderOps,
    /// The same for responses.
    pub response_headers: HeaderOps,
    /// `typed_per_filter_config`.
    pub filters: Vec<FilterOverride>,
    /// `most_specific_header_mutations_wins`: the table's operations first, the route's last.
    pub most_specific_last: bool,
    /// `ignore_port_in_host_matching`.
    pub ignore_port: bool,
    /// `ignore_path_parameters_in_path_matching`.
    pub ignore_path_parameters: bool,
    /// `internal_only_headers`: only requests from inside may have them.
    pub internal_only: Vec<HeaderName>,
    /// `max_direct_response_body_size_bytes`; checked by the loader.
    pub max_direct_response_body: usize,
}

/// Envoy `config.route.v3.VirtualHost`.
#[derive(Debug)]
pub struct VirtualHost {
    /// Its name.
    pub name: Arc<str>,
    /// Domains in lower case: exact, `*.suffix`, `prefix.*` or `*`.
    pub domains: Vec<Arc<str>>,
    /// Routes, the first match wins.
    pub routes: Vec<Arc<Route>>,
    /// Those of them that go by regular expressions, as one.
    pub expressions: Expressions,
    /// `matcher`: leads to the routes that are asked, by their places among all; without it all are.
    pub matcher: Option<Tree<Range<usize>>>,
    /// `virtual_clusters`: the first that matches counts a request.
    pub virtual_clusters: Vec<VirtualCluster>,
    /// `require_tls`.
    pub require_tls: RequireTls,
    /// Header operations.
    pub request_headers: HeaderOps,
    /// The same for responses.
    pub response_headers: HeaderOps,
    /// `include_request_attempt_count`: `x-envoy-attempt-count` upstream.
    pub attempt_count_in_request: bool,
    /// `include_attempt_count_in_response`.
    pub attempt_count_in_response: bool,
    /// `include_is_timeout_retry_header`: retries say in `x-envoy-is-timeout-retry` whether it was the time of an
    /// attempt that was over.
    pub timeout_retry_in_request: bool,
    /// `typed_per_filter_config`.
    pub filters: Vec<FilterOverride>,
    /// `metadata.filter_metadata`, for `%METADATA%`.
    pub filter_metadata: FilterMetadata,
}

/// Envoy `config.route.v3.VirtualCluster`: requests that are counted together.
#[derive(Debug)]
pub struct VirtualCluster {
    /// Its name.
    pub name: Arc<str>,
    /// All must match.
    pub headers: Vec<HeaderMatcher>,
}

impl VirtualCluster {
    /// Whether a request is one of them.
    #[must_use]
    pub fn matches(&self, request: &Head) -> bool {
        self.headers.iter().all(|header| header.matches(request))
    }

    /// Its name for logs: what no other takes has none.
    pub(crate) fn shown_name(&self) -> &str {
        if self.headers.is_empty() { "" } else { &self.name }
    }
}

impl VirtualHost {
    /// The place of the virtual cluster of a request.
    pub(crate) fn virtual_cluster(&self, request: &Head) -> Option<u16> {
        let found = self.virtual_clusters.iter().position(|one| one.matches(request))?;
        u16::try_from(found).ok()
    }

    /// Whether requests are counted beside their cluster.
    pub(crate) fn is_counted(&self) -> bool {
        !self.virtual_clusters.is_empty()
            || self.routes.iter().any(|route| route.stat_prefix.is_some())
    }
}

/// Envoy `VirtualHost.TlsRequirementType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequireTls {
    /// Plain text is fine.
    #[default]
    None,
    /// External requests are redirected to https.
    ExternalOnly,
    /// All are.
    All,
}

/// Envoy `config.route.v3.Route`.
#[derive(Debug)]
pub struct Route {
    /// `name`, for `%ROUTE_NAME%`.
    pub name: Arc<str>,
    /// `stat_prefix`: its requests are counted under this name.
    pub stat_prefix: Option<Arc<str>>,
    /// Which paths.
    pub path: PathMatch,
    /// All must match.
    pub headers: Vec<HeaderMatcher>,
    /// All must match.
    pub query: Vec<QueryMatcher>,
    /// `cookies`, `tls_context`, `dynamic_metadata` and `filter_state`, where there are some.
    pub rare: Option<Box<RareTests>>,
    /// `runtime_fraction`: the share of requests that this route takes.
    pub fraction: Option<Fraction>,
    /// `grpc`: only requests with a gRPC content type.
    pub grpc_only: bool,
    /// What becomes of the request.
    pub action: Action,
    /// Header operations.
    pub request_headers: HeaderOps,
    /// The same for responses.
    pub response_headers: HeaderOps,
    /// `typed_per_filter_config`.
    pub filters: Vec<FilterOverride>,
    /// `per_request_buffer_limit_bytes`: how much of a body is kept for a retry.
    pub retry_buffer_limit: Option<usize>,
    /// `tracing` and `decorator`.
    pub tracing: Option<Box<RouteTracing>>,
    /// `metadata.filter_metadata`, for `%METADATA%`.
    pub filter_metadata: FilterMetadata,
}

/// What a route does.
#[derive(Debug)]
pub enum Action {
    /// `route`.
    Forward(Box<Forward>),
    /// `redirect`.
    Redirect(Box<Redirect>),
    /// `direct_response`.
    Direct {
        /// 200 to 599.
        status: u16,
        /// `body`: the content, or what the format has as `%LOCAL_REPLY_BODY%`.
        body: Arc<[u8]>,
        /// `body_format`.
        format: Option<Box<BodyFormat>>,
    },
}

/// Envoy `RouteAction`.
#[derive(Debug)]
pub struct Forward {
    /// Where to.
    pub cluster: ClusterChoice,
    /// `cluster_not_found_response_code`: 503 by default.
    pub not_found_status: u16,
    /// How the path is changed.
    pub path: PathRewrite,
    /// How the authority is changed.
    pub host: HostRewrite,
    /// `append_x_forwarded_host`.
    pub append_forwarded_host: bool,
    /// `timeout`: from the end of the request to the end of the response. Default 15 s; `None` never.
    pub timeout: Option<Duration>,
    /// `idle_timeout` instead of the listener's `stream_idle_timeout`: `Some(None)` never.
    pub idle_timeout: Option<Option<Duration>>,
    /// `flush_timeout` instead of the listener's `stream_flush_timeout`: `Some(None)` never.
    pub flush_timeout: Option<Option<Duration>>,
    /// `max_stream_duration.max_stream_duration` instead of the listener's: `Some(None)` never.
    pub max_stream_duration: Option<Option<Duration>>,
    /// What becomes of the time that a caller gives its call.
    pub grpc_timeout: GrpcTimeout,
    /// `retry_policy` (of the route, else of the virtual host).
    pub retry: Option<Arc<RetryPolicy>>,
    /// `hedge_policy.hedge_on_per_try_timeout` (of the route, else of the virtual host): an attempt whose time is over
    /// goes on beside the next one.
    pub hedges: bool,
    /// `upgrade_configs` of the route: they win over the listener's.
    pub upgrades: Vec<super::http::Upgrade>,
    /// `priority: HIGH`.
    pub high_priority: bool,
    /// `hash_policy`: what a request's hash is made of, where the cluster's balancer goes by that.
    pub hash: Vec<HashPolicy>,
    /// `metadata_match`: which subset of the cluster's hosts takes them.
    pub criteria: Option<Arc<Criteria>>,
    /// `request_mirror_policies` (of the route, else of the virtual host, else of the table).
    pub mirrors: Arc<[Mirror]>,
    /// `internal_redirect_policy`: which redirects of the server are followed here; none where there is none.
    pub internal_redirects: Option<Box<InternalRedirects>>,
    /// What is spoken to the cluster is not what came in.
    pub bridge: Option<super::bolt::Bridge>,
}

/// Envoy `InternalRedirectPolicy`.
#[derive(Debug)]
pub struct InternalRedirects {
    /// `max_internal_redirects`: one that had so many is answered with the next. Default 1.
    pub most: u32,
    /// `redirect_response_codes`: of 301, 302, 303, 307 and 308. Default 302.
    pub statuses: Vec<u16>,
    /// `predicates`: each must be true.
    pub predicates: Vec<RedirectPredicate>,
    /// `allow_cross_scheme_redirect`: from http to https, and back.
    pub crosses_schemes: bool,
    /// `response_headers_to_copy`: what the request says of these is what the redirect says.
    pub copied: Vec<HeaderName>,
}

/// What must be so of a redirect that is followed.
#[derive(Debug)]
pub enum RedirectPredicate {
    /// `allow_listed_routes`: it leads to a route with one of these names.
    Routes(Vec<Box<str>>),
    /// `previous_routes`: it leads to a route to which none from this route led before.
    NewRoute,
    /// `safe_cross_scheme`: it does not lead from http to https.
    Safe,
}

/// Envoy `RouteAction.RequestMirrorPolicy`.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// Where to.
    pub cluster: MirrorCluster,
    /// `runtime_fraction`: how many requests; all when it is not there.
    pub share: Option<Fraction>,
    /// `-shadow` is added to the host.
    pub marks_host: bool,
    /// `host_rewrite_literal`.
    pub host: Option<Arc<[u8]>>,
    /// `request_headers_mutations`.
    pub ops: HeaderMutations,
    /// `trace_sampled`: whether the span of a copy is sampled; as that of its request where it is not said.
    pub is_sampled: Option<bool>,
}

/// The cluster of copies.
#[derive(Clone, Debug)]
pub enum MirrorCluster {
    /// `cluster`.
    Named(Arc<str>),
    /// `cluster_header`: where it says none that is there, there is no copy.
    Header(HeaderName),
}

impl Forward {
    /// How CONNECT ends here, if it does.
    pub(crate) fn connect(&self) -> Option<&ConnectConfig> {
        let mut upgrades = self.upgrades.iter();
        upgrades.find(|upgrade| &*upgrade.kind == "connect")?.connect.as_deref()
    }
}

impl RouteTable {
    /// What is said to filters, at any level.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = &FilterOverride> {
        self.filters.iter().chain(self.hosts.iter().flat_map(VirtualHost::overrides))
    }
}

impl VirtualHost {
    fn overrides(&self) -> impl Iterator<Item = &FilterOverride> {
        let of_routes = self.routes.iter().flat_map(|route| route.overrides());
        self.filters.iter().chain(of_routes)
    }
}

impl Route {
    fn overrides(&self) -> impl Iterator<Item = &FilterOverride> {
        let of_clusters = self.weighted_clusters().iter().flat_map(|it| &it.filters);
        self.filters.iter().chain(of_clusters)
    }

    /// The clusters among which its requests are divided.
    pub(crate) fn weighted_clusters(&self) -> &[WeightedCluster] {
        match &self.action {
            Action::Forward(forward) => match &forward.cluster {
                ClusterChoice::Weighted { clusters, .. } => clusters,
                ClusterChoice::One(_) | ClusterChoice::Header(_) | ClusterChoice::Specified(_) => {
                    &[]
                }
            },
            Action::Redirect(_) | Action::Direct { .. } => &[],
        }
    }
}

/// Envoy `RouteAction.HashPolicy`.
#[derive(Clone, Debug)]
pub struct HashPolicy {
    /// What is hashed.
    pub source: HashSource,
    /// `terminal`: what comes after it counts only where there is no hash yet.
    pub is_terminal: bool,
}

impl HashPolicy {
    /// Whether what is hashed is only known of recorded streams.
    #[must_use]
    pub const fn reads_record(&self) -> bool {
        match self.source {
            HashSource::SourceAddress | HashSource::FilterState(_) => true,
            HashSource::Header(..) | HashSource::Cookie { .. } | HashSource::QueryParameter(_) => {
                false
            }
        }
    }
}

/// What of a request is hashed.
#[derive(Clone, Debug)]
pub enum HashSource {
    /// `header`: all its values, each with what `regex_rewrite` looks for replaced.
    Header(Field, Option<(Regex, Arc<[u8]>)>),
    /// `cookie`.
    Cookie {
        /// `name`.
        name: Box<[u8]>,
        /// `ttl`: clients that have none are given one. What follows its value in `set-cookie`.
        given: Option<Box<[u8]>>,
    },
    /// `filter_state`: an object that can be hashed.
    FilterState(Box<str>),
    /// `connection_properties.source_ip`: the client's address.
    SourceAddress,
    /// `query_parameter`: its first value.
    QueryParameter(Box<[u8]>),
}

/// What a route makes of `grpc-timeout`. Zero is no limit where a limit is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrpcTimeout {
    /// It passes as it came.
    #[default]
    Ignored,
    /// A route with a `max_stream_duration`: gRPC servers are told of what bounds the stream.
    Stream {
        /// `grpc_timeout_header_max`: the caller's time bounds the stream, up to this. `None`: it does not.
        max: Option<Duration>,
        /// `grpc_timeout_header_offset`: the stream is given so much less than the caller waits.
        offset: Duration,
    },
    /// `max_grpc_timeout`: the caller's time, up to this, stands for the route's `timeout`.
    Response {
        /// The limit.
        max: Duration,
        /// `grpc_timeout_offset`: so much less than the caller waits, if it waits longer than that.
        offset: Duration,
    },
}

/// Which cluster.
#[derive(Debug)]
pub enum ClusterChoice {
    /// `cluster`.
    One(ClusterId),
    /// `cluster_header`: the name is in the request.
    Header(HeaderName),
    /// `cluster_specifier_plugin`, `inline_cluster_specifier_plugin`: what finds the name.
    Specified(Arc<Specifier>),
    /// `weighted_clusters`.
    Weighted {
        /// The choices.
        clusters: Vec<WeightedCluster>,
        /// The sum of their weights, never 0.
        total: u64,
        /// `use_hash_policy`: the request's hash chooses, where it has one.
        by_hash: bool,
        /// `header_name`: the number in this header chooses before that, where there is one such header.
        number: Option<HeaderName>,
    },
}

/// One of `weighted_clusters`.
#[derive(Debug)]
pub struct WeightedCluster {
    /// Which.
    pub cluster: WeightedTarget,
    /// Its share of the total.
    pub weight: u32,
    /// Header operations for requests that go there.
    pub request_headers: HeaderOps,
    /// The same for responses.
    pub response_headers: HeaderOps,
    /// `host_rewrite_literal`.
    pub host_rewrite: Option<Arc<[u8]>>,
    /// `metadata_match`, on top of the route's.
    pub criteria: Option<Arc<Criteria>>,
    /// `typed_per_filter_config`.
    pub filters: Vec<FilterOverride>,
}

/// Where one of `weighted_clusters` leads.
#[derive(Clone, Debug)]
pub enum WeightedTarget {
    /// `name`.
    Named(ClusterId),
    /// `cluster_header`: the name is in the request.
    Header(HeaderName),
}

impl WeightedCluster {
    /// One that only has its share.
    #[must_use]
    pub fn new(cluster: ClusterId, weight: u32) -> Self {
        Self {
            cluster: WeightedTarget::Named(cluster),
            weight,
            request_headers: HeaderOps::default(),
            response_headers: HeaderOps::default(),
            host_rewrite: None,
            criteria: None,
            filters: Vec::new(),
        }
    }

    /// The cluster, if the file names it.
    #[must_use]
    pub const fn named(&self) -> Option<ClusterId> {
        match &self.cluster {
            WeightedTarget::Named(id) => Some(*id),
            WeightedTarget::Header(_) => None,
        }
    }
}

/// How a route changes the path.
#[derive(Debug, Default)]
pub enum PathRewrite {
    /// Not at all.
    #[default]
    Keep,
    /// `prefix_rewrite`: what matched is replaced.
    Prefix(Arc<[u8]>),
    /// `regex_rewrite`, on the path without its query.
    Regex {
        /// What is looked for.
        pattern: Regex,
        /// What it becomes, with `${1}` groups (converted from Envoy's `\1`).
        substitution: Arc<[u8]>,
    },
    /// `path_rewrite_policy` with a template, of a path that the route's own template matched.
    Template {
        /// The route's template: the whole path.
        pattern: Regex,
        /// What it becomes, with `${1}` groups.
        substitution: Arc<[u8]>,
    },
    /// `path_rewrite`: the path without its query.
    Format(Format),
}

/// How a route changes the authority.
#[derive(Debug, Default)]
pub enum HostRewrite {
    /// Not at all.
    #[default]
    Keep,
    /// `host_rewrite_literal`.
    Literal(Arc<[u8]>),
    /// `auto_host_rewrite`: the name of the chosen endpoint.
    Auto,
    /// `host_rewrite_header`.
    Header(HeaderName),
    /// `host_rewrite`.
    Format(Format),
    /// `host_rewrite_path_regex`.
    PathRegex {
        /// What is looked for.
        pattern: Regex,
        /// What it becomes.
        substitution: Arc<[u8]>,
    },
}

/// Envoy `RedirectAction`.
#[derive(Debug)]
pub struct Redirect {
    /// `https_redirect` or `scheme_redirect`.
    pub scheme: Option<Arc<str>>,
    /// `host_redirect`.
    pub host: Option<Arc<[u8]>>,
    /// `port_redirect`.
    pub port: Option<u16>,
    /// `path_redirect`, `prefix_rewrite` or `regex_rewrite`.
    pub path: RedirectPath,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `strip_query`.
    pub strip_query: bool,
}

/// What a redirect does to the path.
#[derive(Debug, Default)]
pub enum RedirectPath {
    /// Nothing.
    #[default]
    Keep,
    /// `path_redirect`: with its own query if it has one.
    Replace(Arc<[u8]>),
    /// As a route's rewrite.
    Rewrite(PathRewrite),
    /// `path_rewrite`: what it says stands for `path_redirect`; nothing, if it says nothing.
    Format(Format),
}

/// A body made from a format. Envoy `SubstitutionFormatString`.
#[derive(Clone, Debug)]
pub struct BodyFormat {
    /// The body.
    pub format: Format,
    /// Its `content-type`, where it says one or is JSON.
    pub content_type: Option<Arc<str>>,
}

/// The operations on a request, in the order in which they apply.
#[must_use]
pub fn request_ops<'a>(
    table: &'a RouteTable,
    host: &'a VirtualHost,
    route: &'a Route,
    weighted: Option<&'a WeightedCluster>,
) -> [&'a HeaderOps; 4] {
    let weighted = weighted.map_or(&NOTHING, |cluster| &cluster.request_headers);
    ordered(table, weighted, &route.request_headers, &host.request_headers, &table.request_headers)
}

/// The operations on a response, in the order in which they apply.
#[must_use]
pub fn response_ops<'a>(
    table: &'a RouteTable,
    host: &'a VirtualHost,
    route: &'a Route,
    weighted: Option<&'a WeightedCluster>,
) -> [&'a HeaderOps; 4] {
    let weighted = weighted.map_or(&NOTHING, |cluster| &cluster.response_headers);
    let table_ops = &table.response_headers;
    ordered(table, weighted, &route.response_headers, &host.response_headers, table_ops)
}

/// The weighted cluster's come first in any case.
fn ordered<'a>(
    table: &RouteTable,
    weighted: &'a HeaderOps,
    route: &'a HeaderOps,
    host: &'a HeaderOps,
    table_ops: &'a HeaderOps,
) -> [&'a HeaderOps; 4] {
    if table.most_specific_last {
        [weighted, table_ops, host, route]
    } else {
        [weighted, route, host, table_ops]
    }
}

static NOTHING: HeaderOps = HeaderOps { remove: Vec::new(), add: Vec::new() };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_comes_first_unless_it_shall_win() {
        let mut table = RouteTable::default();
        let host = VirtualHost {
            name: "".into(),
            domains: Vec::new(),
            routes: Vec::new(),
            expressions: Expressions::default(),
            matcher: None,
            virtual_clusters: Vec::new(),
            require_tls: RequireTls::None,
            request_headers: HeaderOps::default(),
            response_headers: HeaderOps::default(),
            attempt_count_in_request: false,
            attempt_count_in_response: false,
            timeout_retry_in_request: false,
            filters: Vec::new(),
            filter_metadata: None,
        };
        let (weighted, route) = (HeaderOps::default(), HeaderOps::default());
        let place = |table: &RouteTable| {
            let ops =
                ordered(table, &weighted, &route, &host.request_headers, &table.request_headers);
            ops.iter().position(|ops| std::ptr::eq(*ops, &raw const route)).unwrap()
        };
        assert_eq!(place(&table), 1);
        table.most_specific_last = true;
        assert_eq!(place(&table), 3);
    }
}
