//! `envoy.filters.http.header_mutation`: headers that a chain adds and takes away.

use std::rc::Rc;

use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, ResponseView, RouteConfig,
    RouteConfigs,
};
use crate::header_ops::{HeaderMutations, Subject};

/// Envoy `HeaderMutation`.
#[derive(Clone, Debug)]
pub struct HeaderMutation {
    /// `mutations`: before those of routes.
    pub own: Mutations,
    /// `most_specific_header_mutations_wins`: those of the route come last; otherwise those of the table do.
    pub route_is_last: bool,
}

/// Envoy `Mutations`, of a chain, or (`HeaderMutationPerRoute`) of a route, its host or its table.
#[derive(Clone, Debug)]
pub struct Mutations {
    /// On the request's way in.
    pub request: HeaderMutations,
    /// On the response's way out.
    pub response: HeaderMutations,
}

impl RouteConfig for Mutations {}

impl FilterConfig for HeaderMutation {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(self.clone())
    }

    fn reads_record(&self) -> bool {
        true
    }
}

impl HttpFilter for HeaderMutation {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let route = request.route;
        self.each(route, |mutations| {
            mutations.request.apply(request.head, Subject::Request, request.facts, request.scratch);
        });
        OnRequest::Pass
    }

    fn on_response(&self, response: &mut ResponseView<'_>) {
        let route = response.route;
        self.each(route, |mutations| {
            if !mutations.response.is_empty() {
                mutations.response.apply(
                    response.head,
                    Subject::Response,
                    response.facts,
                    response.scratch,
                );
            }
        });
    }
}

impl HeaderMutation {
    /// Its own mutations, and then those of all levels of a route.
    fn each(&self, route: RouteConfigs<'_>, mut apply: impl FnMut(&Mutations)) {
        apply(&self.own);
        if self.route_is_last {
            let all: Vec<&Mutations> = route.all().collect();
            all.into_iter().rev().for_each(apply);
        } else {
            route.all().for_each(apply);
        }
    }
}
