//! Route tables and virtual hosts.

use std::ops::Range;
use std::sync::Arc;

use towpath_engine::matcher::Input;
use towpath_engine::matcher::tree::Tree;
use towpath_engine::snapshot::HostIndex;
use towpath_engine::snapshot::route::{
    Expressions, Mirror, RequireTls, RetryPolicy, Route, RouteTable, VirtualCluster, VirtualHost,
};

use towpath_proto::head::HeaderName;

use super::Converter;
use super::matcher_tree::{About, Place};
use super::metadata::filter_metadata;
use super::route_action::hedges;
use super::specifier::Specifiers;
use crate::message::Message;

/// What routes take from what surrounds them.
pub(super) struct Surroundings {
    /// `validate_clusters`.
    pub(super) validate_clusters: bool,
    /// `max_direct_response_body_size_bytes`.
    pub(super) max_body: usize,
    /// The virtual host's retry policy.
    pub(super) retry: Option<Arc<RetryPolicy>>,
    /// The virtual host's `request_mirror_policies`, else the table's.
    pub(super) mirrors: Arc<[Mirror]>,
    /// The virtual host's `request_body_buffer_limit`.
    pub(super) retry_buffer: Option<usize>,
    /// The virtual host's `hedge_policy`.
    pub(super) hedges: bool,
    /// The table's `cluster_specifier_plugins`.
    pub(super) specifiers: Arc<Specifiers>,
}

impl Converter<'_> {
    /// A `RouteConfiguration`. Its clusters must exist if it says so, or else if it is a part of the listener.
    pub(super) fn route_table(&mut self, message: &Message, is_inline: bool) -> RouteTable {
        let max_body = message.number("max_direct_response_body_size_bytes").unwrap_or(4096);
        let max_body = usize::try_from(max_body).unwrap_or(usize::MAX);
        // One that was taken before stays when its clusters go.
        let validate_clusters = message.wrapped_flag("validate_clusters").unwrap_or(is_inline)
            && self.discovered.is_judged(&message.at);
        let specifiers = Arc::new(self.specifiers(message));
        let all_mirrors: Arc<[_]> = self.mirrors(message, validate_clusters).into();
        let hosts: Vec<_> = message.messages("virtual_hosts").collect();
        let index = self.host_index(message, &hosts);
        let hosts = hosts
            .into_iter()
            .map(|host| {
                let retry =
                    host.message("retry_policy").and_then(|policy| self.retry_policy(policy));
                let retry_buffer = buffer_limit(host);
                let mirrors = match self.mirrors(host, validate_clusters) {
                    mirrors if mirrors.is_empty() => Arc::clone(&all_mirrors),
                    mirrors => mirrors.into(),
                };
                let around = Surroundings {
                    validate_clusters,
                    max_body,
                    retry,
                    mirrors,
                    retry_buffer,
                    hedges: host.message("hedge_policy").is_some_and(hedges),
                    specifiers: Arc::clone(&specifiers),
                };
                self.virtual_host(host, &around)
            })
            .collect();
        RouteTable {
            name: Arc::from(message.text("name")),
            hosts,
            index,
            request_headers: self.request_ops(message),
            response_headers: self.response_ops(message),
            filters: self.filter_overrides(message),
            most_specific_last: message.flag("most_specific_header_mutations_wins"),
            ignore_port: message.flag("ignore_port_in_host_matching"),
            ignore_path_parameters: message.flag("ignore_path_parameters_in_path_matching"),
            internal_only: self.internal_only(message),
            max_direct_response_body: max_body,
        }
    }

    fn internal_only(&mut self, table: &Message) -> Vec<HeaderName> {
        let names: Vec<_> = table.texts("internal_only_headers").collect();
        names.into_iter().filter_map(|(name, at)| self.header_name(name, at)).collect()
    }

    fn host_index(&mut self, table: &Message, hosts: &[&Message]) -> HostIndex {
        let domains = hosts
            .iter()
            .zip(0..)
            .flat_map(|(host, index)| host.texts("domains").map(move |(text, _)| (text, index)));
        HostIndex::new(domains).unwrap_or_else(|duplicate| {
            let all = || hosts.iter().flat_map(|host| host.texts("domains"));
            let second = all().filter(|(text, _)| text.eq_ignore_ascii_case(&duplicate.0)).nth(1);
            let at = second.map_or(&*table.at, |(_, at)| at);
            self.report.problem(at, format!("{duplicate} in route table `{}`", table.text("name")));
            HostIndex::default()
        })
    }

    /// A tree that leads to routes, which are put behind the others.
    fn route_matcher(
        &mut self,
        matcher: &Message,
        surroundings: &Surroundings,
        routes: &mut Vec<Arc<Route>>,
    ) -> Option<Tree<Range<usize>>> {
        let place = Place {
            name: "a matcher of routes",
            allows: |input| matches!(input, Input::RequestHeader(_) | Input::FilterState { .. }),
            about: About::Stream,
        };
        self.matcher_tree(matcher, place, &[ROUTE, ROUTE_LIST], &mut |converter, action| {
            let start = routes.len();
            let listed: Vec<_> = match action.descriptor.full_name() {
                ROUTE => vec![action],
                _ => action.messages("routes").collect(),
            };
            for route in listed {
                routes.push(Arc::new(converter.route(route, surroundings)?));
            }
            Some(start..routes.len())
        })
    }

    fn virtual_host(&mut self, host: &Message, surroundings: &Surroundings) -> VirtualHost {
        let require_tls = match host.choice("require_tls").as_str() {
            "EXTERNAL_ONLY" => RequireTls::ExternalOnly,
            "ALL" => RequireTls::All,
            _ => RequireTls::None,
        };
        let mut filters = self.filter_overrides(host);
        filters.extend(self.old_cors(host));
        filters.extend(self.old_rate_limits(host, true));
        let messages: Vec<_> = host.messages("routes").collect();
        let mut routes: Vec<_> = messages
            .into_iter()
            .filter_map(|route| self.route(route, surroundings).map(Arc::new))
            .collect();
        let matcher = host.message("matcher");
        if let Some(matcher) = matcher.filter(|_| host.has("routes")) {
            let text = "cannot set both `routes` and `matcher` on a virtual host";
            self.report.problem(&matcher.at, text);
        }
        let matcher =
            matcher.and_then(|matcher| self.route_matcher(matcher, surroundings, &mut routes));
        VirtualHost {
            name: Arc::from(host.text("name")),
            domains: host
                .texts("domains")
                .map(|(text, _)| Arc::from(text.to_ascii_lowercase()))
                .collect(),
            expressions: Expressions::of(&routes),
            routes,
            matcher,
            virtual_clusters: self.virtual_clusters(host),
            require_tls,
            request_headers: self.request_ops(host),
            response_headers: self.response_ops(host),
            attempt_count_in_request: host.flag("include_request_attempt_count"),
            attempt_count_in_response: host.flag("include_attempt_count_in_response"),
            timeout_retry_in_request: host.flag("include_is_timeout_retry_header"),
            filters,
            filter_metadata: filter_metadata(host),
        }
    }
}

impl Converter<'_> {
    /// Where there are some, those of which none takes a request have one more.
    fn virtual_clusters(&mut self, host: &Message) -> Vec<VirtualCluster> {
        let mut clusters = Vec::new();
        for cluster in host.messages("virtual_clusters") {
            let headers = self.header_matchers(cluster, "headers");
            if headers.is_empty() {
                let text = "virtual clusters must define 'headers'";
                self.report.problem(&cluster.at, text);
            }
            clusters.push(VirtualCluster { name: Arc::from(cluster.text("name")), headers });
        }
        if clusters.len() >= usize::from(u16::MAX) {
            self.report
                .unsupported(host.at("virtual_clusters"), "more than 65,534 virtual clusters");
        } else if !clusters.is_empty() {
            clusters.push(VirtualCluster { name: Arc::from("other"), headers: Vec::new() });
        }
        clusters
    }
}

const ROUTE: &str = "envoy.config.route.v3.Route";
const ROUTE_LIST: &str = "envoy.config.route.v3.RouteList";

/// `request_body_buffer_limit`, or its older name.
pub(super) fn buffer_limit(message: &Message) -> Option<usize> {
    let limit = message
        .number("request_body_buffer_limit")
        .or_else(|| message.number("per_request_buffer_limit_bytes"))?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}
