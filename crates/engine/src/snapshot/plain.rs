//! Which routes are ordinary: settled when a filter chain is made, so that no request asks again.

use super::http::{Http, HttpChain};
use super::route::{
    Action, ClusterChoice, Forward, GrpcTimeout, HashPolicy, HashSource, HeaderOps, HostRewrite,
    PathRewrite, RedirectPath, Route, RouteTable, VirtualHost, request_ops, response_ops,
};
use towpath_proto::PreparedFields;

use crate::filter::ChainFilter;
use crate::header_ops::prepared;
use crate::matcher::tree::Tree;

/// The answers for each route of a table, by the numbers of its host and of itself.
#[derive(Debug)]
pub(crate) struct PlainRoutes(Box<[Box<[OfRoute]>]>);

#[derive(Debug)]
struct OfRoute {
    plain: Plain,
    added: Option<Box<Added>>,
}

/// The same fields for all requests and responses of a route.
#[derive(Debug, Default)]
pub(crate) struct Added {
    pub(crate) to_requests: PreparedFields,
    pub(crate) to_responses: PreparedFields,
}

/// What is so of a route.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plain {
    /// It sends requests on as they are or with fields that are the same for all, to one cluster, and bounds their time
    /// by timeouts alone.
    pub(crate) forwards: bool,
    /// It sends responses back as they are, or with fields that are the same for all.
    pub(crate) answers: bool,
    /// There are such fields.
    pub(crate) adds: bool,
    /// Its requests say which attempt they are.
    pub(crate) names_attempt: bool,
}

impl PlainRoutes {
    pub(crate) fn new(http: &Http) -> Self {
        // Upgrades are not ordinary.
        let (table, router) = (&http.routes, &http.chain.router);
        let of_route = |host: &VirtualHost, route: &Route| {
            let (plain, added) = Plain::of(table, host, route);
            let as_it_is = !http.scheme_of_upstream
                && router.strict_headers.is_empty()
                && router.attempt_logs.is_empty()
                && router.upstream_filters.is_empty();
            let plain = Plain { forwards: plain.forwards && as_it_is, ..plain };
            OfRoute { plain, added }
        };
        let of_host = |host: &VirtualHost| -> Box<[OfRoute]> {
            host.routes.iter().map(|route| of_route(host, route)).collect()
        };
        Self(table.hosts.iter().map(of_host).collect())
    }

    /// Nothing is so of a route that is not there.
    #[inline]
    pub(crate) fn get(&self, host: u32, route: u32) -> Plain {
        self.of(host, route).map(|route| route.plain).unwrap_or_default()
    }

    /// What [`Plain::adds`] is about.
    pub(crate) fn added(&self, host: u32, route: u32) -> Option<&Added> {
        self.of(host, route)?.added.as_deref()
    }

    #[inline(always)]
    fn of(&self, host: u32, route: u32) -> Option<&OfRoute> {
        self.0.get(host as usize)?.get(route as usize)
    }
}

impl Plain {
    fn of(table: &RouteTable, host: &VirtualHost, route: &Route) -> (Self, Option<Box<Added>>) {
        let Action::Forward(forward) = &route.action else { return Default::default() };
        let ClusterChoice::One(_) = forward.cluster else { return Default::default() };
        let gives_cookies = gives_cookies(forward);
        let to_requests = prepared(&request_ops(table, host, route, None));
        let to_responses = prepared(&response_ops(table, host, route, None));
        let mut plain = Self {
            adds: false,
            forwards: to_requests.is_some()
                && is_unlimited(forward)
                && !forward.hedges
                && !gives_cookies
                && host.virtual_clusters.is_empty()
                && route.stat_prefix.is_none()
                && forward.bridge.is_none()
                && forward.internal_redirects.is_none()
                && forward.mirrors.is_empty()
                && forward.connect().is_none()
                && matches!(forward.path, PathRewrite::Keep)
                // The host's own name is not known yet.
                && matches!(forward.host, HostRewrite::Keep),
            answers: to_responses.is_some() && !gives_cookies && !host.attempt_count_in_response,
            names_attempt: host.attempt_count_in_request,
        };
        let added = Added {
            to_requests: to_requests.unwrap_or_default(),
            to_responses: to_responses.unwrap_or_default(),
        };
        plain.adds = !(added.to_requests.is_empty() && added.to_responses.is_empty());
        (plain, plain.adds.then(|| Box::new(added)))
    }
}

/// Whether a route has no limit on time but `timeout` and `per_try_timeout`.
fn is_unlimited(forward: &Forward) -> bool {
    forward.idle_timeout.is_none()
        && forward.max_stream_duration.is_none()
        && forward.grpc_timeout == GrpcTimeout::Ignored
        && forward.retry.as_deref().is_none_or(|retry| retry.per_try_idle_timeout.is_none())
}

/// Whether clients are given cookies that lead their requests.
fn gives_cookies(forward: &Forward) -> bool {
    let gives =
        |policy: &HashPolicy| matches!(policy.source, HashSource::Cookie { given: Some(_), .. });
    forward.hash.iter().any(gives)
}

/// Whether a configuration has a place from which a format may ask about a stream: a log, an answer of our own that is
/// worded, or an operation on heads.
pub(crate) fn is_recorded(http: &Http) -> bool {
    let asks = |filter: &ChainFilter| filter.config.reads_record();
    !http.access_logs.is_empty()
        || http.tracing.is_some()
        || http.proxy_status.is_some()
        || http.local_reply.is_some()
        || !http.early_mutations.is_empty()
        || http.chains().any(|chain| {
            let HttpChain { filters, router } = chain;
            !router.attempt_logs.is_empty()
                || filters.iter().chain(&router.upstream_filters).any(asks)
        })
        || changes_heads(&http.routes)
        || http.routes.overrides().filter_map(|it| it.config.as_ref()).any(|it| it.reads_record())
        || http.routes.hosts.iter().any(asks_record)
}

/// Whether the choice of a route of a host, or what becomes of a request there, asks for what is only known of recorded
/// streams.
fn asks_record(host: &VirtualHost) -> bool {
    host.matcher.as_ref().is_some_and(Tree::reads_record)
        || host.routes.iter().any(|route| route_asks_record(route))
}

fn route_asks_record(route: &Route) -> bool {
    route.rare.as_ref().is_some_and(|rare| rare.read_record())
        || match &route.action {
            Action::Forward(forward) => {
                matches!(forward.path, PathRewrite::Format(_))
                    || matches!(forward.host, HostRewrite::Format(_))
                    || forward.hash.iter().any(HashPolicy::reads_record)
                    || matches!(&forward.cluster, ClusterChoice::Specified(it) if it.reads_record())
            }
            Action::Redirect(redirect) => matches!(redirect.path, RedirectPath::Format(_)),
            Action::Direct { format, .. } => format.is_some(),
        }
}

/// Whether what some operation on heads sets depends on the stream.
fn changes_heads(table: &RouteTable) -> bool {
    let of_route = |table, host, route: &Route| {
        let changes = |weighted| {
            let requests = request_ops(table, host, route, weighted);
            requests.iter().chain(&response_ops(table, host, route, weighted)).any(|ops| asks(ops))
        };
        changes(None) || route.weighted_clusters().iter().any(|weighted| changes(Some(weighted)))
    };
    table.hosts.iter().any(|host| host.routes.iter().any(|route| of_route(table, host, route)))
}

fn asks(ops: &HeaderOps) -> bool {
    ops.add.iter().any(|op| op.value.constant().is_none())
}
