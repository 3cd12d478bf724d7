//! Finds the route of a request.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use towpath_proto::{Head, Name};

use super::path::without_parameters;
use crate::grpc::is_grpc;
use crate::matcher::{Known, Subject};
use crate::snapshot::expressions::Looked;
use crate::snapshot::route::{
    ClusterChoice, PathMatch, RequireTls, Route, RouteTable, VirtualHost, WeightedCluster,
};
use crate::uri::path_end;

/// What a table says of a request.
#[derive(Clone, Copy, Debug)]
pub enum Picked<'a> {
    /// No virtual host has this authority.
    NoHost,
    /// The virtual host has no route for it.
    NoRoute {
        /// Which virtual host.
        host: &'a VirtualHost,
        /// Its place in the table.
        host_index: usize,
    },
    /// The virtual host wants https, and this is not: 301 to the same URL with `https`.
    TlsRequired {
        /// Which virtual host.
        host: &'a VirtualHost,
        /// Its place in the table.
        host_index: usize,
    },
    /// The first route that matches.
    Route {
        /// Which virtual host.
        host: &'a VirtualHost,
        /// Its place in the table.
        host_index: usize,
        /// Which route.
        route: &'a Arc<Route>,
        /// Its place in the virtual host.
        route_index: usize,
    },
}

impl RouteTable {
    /// Finds the virtual host and the route of a request, of which more may be known. `random` decides
    /// `runtime_fraction`s.
    ///
    /// Allocates nothing, except when path parameters are ignored and there are some.
    #[must_use]
    pub fn pick(&self, head: &Head, known: Known<'_>, random: u64) -> Picked<'_> {
        let authority = head.authority();
        let Some(host_index) = self.index.find(authority, self.ignore_port) else {
            return Picked::NoHost;
        };
        let Some(host) = self.hosts.get(host_index) else { return Picked::NoHost };
        if host.require_tls != RequireTls::None && host.wants_tls(head) {
            return Picked::TlsRequired { host, host_index };
        }
        let request = Request::new(head, known, self.ignore_path_parameters, random);
        let Some(asked) = host.asked(head, known) else {
            return Picked::NoRoute { host, host_index };
        };
        let found = match host.expressions.look() {
            Some(looked) => request.first_of(host, asked, looked),
            None => {
                let mut routes = host.routes[asked.clone()].iter();
                let found = routes.position(|route| request.matches(route));
                found.map(|place| asked.start + place)
            }
        };
        match found {
            Some(route_index) => {
                Picked::Route { host, host_index, route: &host.routes[route_index], route_index }
            }
            None => Picked::NoRoute { host, host_index },
        }
    }
}

impl VirtualHost {
    /// The places of the routes that may take a request.
    fn asked(&self, head: &Head, known: Known<'_>) -> Option<Range<usize>> {
        let all = 0..self.routes.len();
        let Some(matcher) = &self.matcher else { return Some(all) };
        let found = matcher.find(&Subject {
            request: Some(head),
            info: known.info,
            ..Subject::default()
        })?;
        Some(found.start.min(all.end)..found.end.min(all.end))
    }

    fn wants_tls(&self, head: &Head) -> bool {
        let secured = head.get(Name::XForwardedProto).unwrap_or_else(|| head.scheme()) == b"https";
        let internal = || head.get(Name::XEnvoyInternal) == Some(b"true");
        match self.require_tls {
            RequireTls::None => false,
            RequireTls::ExternalOnly => !secured && !internal(),
            RequireTls::All => !secured,
        }
    }
}

/// What routes ask of a request, taken apart once.
struct Request<'a> {
    head: &'a Head,
    known: Known<'a>,
    target: &'a [u8],
    /// Without its query; empty for CONNECT.
    path: Cow<'a, [u8]>,
    random: u64,
}

impl<'a> Request<'a> {
    fn new(head: &'a Head, known: Known<'a>, ignore_parameters: bool, random: u64) -> Self {
        let target = head.path();
        let path = &target[..path_end(target)];
        let path = if ignore_parameters && path.contains(&b';') {
            Cow::Owned(without_parameters(path))
        } else {
            Cow::Borrowed(path)
        };
        Self { head, known, target, path, random }
    }

    #[inline(always)]
    fn matches(&self, route: &Route) -> bool {
        self.matches_path(&route.path) && self.passes(route)
    }

    /// The first of some routes, many of which go by expressions, that takes it.
    #[inline(never)]
    fn first_of(
        &self,
        host: &VirtualHost,
        mut asked: Range<usize>,
        mut looked: Looked<'_>,
    ) -> Option<usize> {
        asked.find(|place| {
            let route = &host.routes[*place];
            let at_once = matches!(route.path, PathMatch::Regex(_)) && !self.path.is_empty();
            let takes = at_once.then(|| looked.matches(*place, &self.path)).flatten();
            takes.unwrap_or_else(|| self.matches_path(&route.path)) && self.passes(route)
        })
    }

    /// Whether it is as a route wants it beside the path.
    #[inline(always)]
    fn passes(&self, route: &Route) -> bool {
        route.fraction.is_none_or(|fraction| fraction.takes(self.random))
            && (!route.grpc_only || is_grpc(self.head))
            && route.headers.iter().all(|header| header.matches(self.head))
            && route.query.iter().all(|query| query.matches(self.target))
            && route.rare.as_ref().is_none_or(|rare| rare.pass(self.head, self.known))
    }

    #[inline(always)]
    fn matches_path(&self, wanted: &PathMatch) -> bool {
        match wanted {
            // Parameters are a part of what a template looks at, whatever the table says.
            PathMatch::Template(_) => {
                let path = &self.target[..path_end(self.target)];
                wanted.matches(self.head.method(), path)
            }
            PathMatch::Prefix(_)
            | PathMatch::Exact(_)
            | PathMatch::SeparatedPrefix(_)
            | PathMatch::Regex(_)
            | PathMatch::Connect => wanted.matches(self.head.method(), &self.path),
        }
    }
}

impl ClusterChoice {
    /// Of weighted clusters, the one that `random` falls on.
    #[must_use]
    pub fn weighted(&self, random: u64) -> Option<&WeightedCluster> {
        let Self::Weighted { clusters, total, .. } = self else { return None };
        let mut left = random.checked_rem(*total)?;
        clusters.iter().find(|cluster| match left.checked_sub(u64::from(cluster.weight)) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
    }
}

#[cfg(test)]
mod tests;
