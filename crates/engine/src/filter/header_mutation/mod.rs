//! `envoy.filters.http.header_mutation`: headers, parameters and trailers that a chain adds and takes away.

mod query;
mod trailers;

use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::Head;

pub use self::query::QueryMutation;
use self::trailers::Trailing;
use super::{
    Direction, FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, ResponseFilter,
    ResponseView, RouteConfig, RouteConfigs, TrailersView,
};
use crate::format::Facts;
use crate::header_ops::{HeaderMutations, Scratch, Subject};

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
    /// `query_parameter_mutations`: of its path, when its headers are done.
    pub query: Vec<QueryMutation>,
    /// On the response's way out.
    pub response: HeaderMutations,
    /// Of trailers, if there are any.
    pub trailers: Option<Arc<TrailerMutations>>,
}

/// What is changed of trailers that come.
#[derive(Clone, Debug, Default)]
pub struct TrailerMutations {
    /// `request_trailers_mutations`.
    pub request: HeaderMutations,
    /// `response_trailers_mutations`.
    pub response: HeaderMutations,
}

impl RouteConfig for Mutations {}

impl FilterConfig for HeaderMutation {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { config: Rc::new(self.clone()) })
    }

    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance {
    config: Rc<HeaderMutation>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let mut trailers = Vec::new();
        let route = request.route;
        self.config.each(route, |mutations| {
            mutations.request.apply(request.head, Subject::Request, request.facts, request.scratch);
            query::apply(&mutations.query, request.head, request.facts);
            trailers.extend(mutations.trailers.clone());
        });
        match trailers.is_empty() {
            true => OnRequest::Pass,
            false => OnRequest::Watch(Box::new(Trailing::new(&self.config, trailers))),
        }
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }

    fn on_trailers(&self, view: &mut TrailersView<'_>) {
        let route = view.route;
        self.config.each(route, |mutations| {
            if let Some(mutations) = &mutations.trailers {
                mutations.apply(view.trailers, view.way, view.facts, view.scratch);
            }
        });
    }
}

impl ResponseFilter for Instance {
    fn on_response(&self, response: &mut ResponseView<'_>) {
        self.config.change_response(response);
    }
}

impl TrailerMutations {
    fn apply(&self, trailers: &mut Head, way: Direction, facts: &Facts<'_>, scratch: &mut Scratch) {
        let (mutations, subject) = match way {
            Direction::Request => (&self.request, Subject::RequestTrailers),
            Direction::Response => (&self.response, Subject::ResponseTrailers),
        };
        mutations.apply(trailers, subject, facts, scratch);
    }
}

impl HeaderMutation {
    fn change_response(&self, response: &mut ResponseView<'_>) {
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
