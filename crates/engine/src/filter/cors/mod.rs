//! `envoy.filters.http.cors`: which pages of other origins may read a response (Fetch §3.3), as routes say it.
//!
//! A preflight is answered here. What a level leaves open, the less specific one decides.

mod stats;

use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::head::Method;
use towpath_proto::{Head, Name};

use self::stats::CorsStats;
use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, Release, Reply, RequestView, ResponseView,
    RouteConfig, StreamFilter,
};
use crate::fraction::Fraction;
use crate::matcher::StringMatcher;

/// Envoy `Cors`.
#[derive(Clone, Copy, Debug)]
pub struct Cors;

/// Envoy `CorsPolicy`.
#[derive(Debug, Default)]
pub struct CorsPolicy {
    /// `allow_origin_string_match`: one must match.
    pub origins: Vec<StringMatcher>,
    /// `allow_methods`; empty leaves it open, `*` is what was asked for.
    pub methods: Arc<str>,
    /// `allow_headers`, in the same way.
    pub headers: Arc<str>,
    /// `expose_headers`.
    pub exposed: Arc<str>,
    /// `max_age`, in seconds.
    pub max_age: Arc<str>,
    /// `allow_credentials`.
    pub credentials: Option<bool>,
    /// `allow_private_network_access`.
    pub private_network: Option<bool>,
    /// `forward_not_matching_preflights`: default true.
    pub forwards_others: Option<bool>,
    /// `filter_enabled`: default all.
    pub enabled: Option<Fraction>,
    /// `shadow_enabled`: only counted. Default none.
    pub shadow: Option<Fraction>,
}

impl RouteConfig for CorsPolicy {}

impl FilterConfig for Cors {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { stats: scope.stats("http_cors") })
    }
}

#[derive(Debug)]
struct Instance {
    stats: Arc<CorsStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let Some(origin) = request.head.get(Name::Origin).filter(|origin| !origin.is_empty())
        else {
            return OnRequest::Pass;
        };
        if !request.forwards {
            return OnRequest::Pass;
        }
        let mut policies: Vec<&CorsPolicy> = request.route.all().collect();
        if policies.is_empty() {
            policies.extend(request.route.unnamed().all::<CorsPolicy>());
        }
        let Some(nearest) = policies.first() else { return OnRequest::Pass };
        let enabled = nearest.enabled.is_none_or(|share| share.takes(request.random));
        let shadowed = || nearest.shadow.is_some_and(|share| share.takes(request.random));
        if !enabled && !shadowed() {
            return OnRequest::Pass;
        }
        let is_allowed = is_allowed(origin, &policies);
        let counter =
            if is_allowed { &self.stats.origin_valid } else { &self.stats.origin_invalid };
        counter.inc();
        if !enabled {
            return OnRequest::Pass;
        }
        let asks = request.head.get_bytes(REQUEST_METHOD).is_some_and(|it| !it.is_empty());
        let is_preflight = request.head.method() == Method::Options && asks;
        let forwards = pick(&policies, |policy| policy.forwards_others).unwrap_or(true);
        if is_preflight && (is_allowed || !forwards) {
            return OnRequest::Answer(preflight(request.head, &policies, is_allowed));
        }
        if !is_allowed {
            return OnRequest::Pass;
        }
        OnRequest::Watch(Box::new(Allowed {
            origin: origin.into(),
            credentials: pick(&policies, |policy| policy.credentials) == Some(true),
            exposed: text(&policies, |policy| &policy.exposed).clone(),
        }))
    }
}

/// What the response to a page of an allowed origin says.
#[derive(Debug)]
struct Allowed {
    origin: Box<[u8]>,
    credentials: bool,
    exposed: Arc<str>,
}

impl StreamFilter for Allowed {
    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        response.head.set(Name::AccessControlAllowOrigin, &self.origin);
        if self.credentials {
            response.head.set_bytes(ALLOW_CREDENTIALS, b"true");
        }
        if !self.exposed.is_empty() {
            response.head.set_bytes(EXPOSE_HEADERS, self.exposed.as_bytes());
        }
        Release::Now
    }
}

/// The answer to a preflight.
fn preflight(request: &Head, policies: &[&CorsPolicy], is_allowed: bool) -> Reply {
    let mut reply = Reply::new(200, b"", "cors_response");
    reply.is_final = true;
    let head = &mut reply.head;
    if is_allowed && let Some(origin) = request.get(Name::Origin) {
        head.set(Name::AccessControlAllowOrigin, origin);
        let exposed = text(policies, |policy| &policy.exposed);
        if !exposed.is_empty() {
            head.set_bytes(EXPOSE_HEADERS, exposed.as_bytes());
        }
    }
    if pick(policies, |policy| policy.credentials) == Some(true) {
        head.set_bytes(ALLOW_CREDENTIALS, b"true");
    }
    let asked = |name| request.get_bytes(name).unwrap_or_default();
    let mut allow = |name, allowed: &str, asked: &[u8]| match allowed {
        "" => {}
        "*" => {
            head.set_bytes(name, asked);
        }
        allowed => {
            head.set_bytes(name, allowed.as_bytes());
        }
    };
    allow(ALLOW_METHODS, text(policies, |policy| &policy.methods), asked(REQUEST_METHOD));
    allow(ALLOW_HEADERS, text(policies, |policy| &policy.headers), asked(REQUEST_HEADERS));
    allow(MAX_AGE, text(policies, |policy| &policy.max_age), b"");
    let private = pick(policies, |policy| policy.private_network) == Some(true);
    if private && asked(REQUEST_PRIVATE_NETWORK) == b"true" {
        allow(ALLOW_PRIVATE_NETWORK, "true", b"");
    }
    reply
}

/// Whether one of the origins matches; `*` stands for all, however it is compared.
fn is_allowed(origin: &[u8], policies: &[&CorsPolicy]) -> bool {
    let origins = policies.iter().map(|policy| &policy.origins).find(|all| !all.is_empty());
    origins.is_some_and(|all| all.iter().any(|one| one.matches(b"*") || one.matches(origin)))
}

/// What the most specific policy says that says anything.
fn pick<T>(policies: &[&CorsPolicy], said: impl Fn(&CorsPolicy) -> Option<T>) -> Option<T> {
    policies.iter().find_map(|policy| said(policy))
}

fn text<'a>(policies: &[&'a CorsPolicy], of: fn(&CorsPolicy) -> &Arc<str>) -> &'a Arc<str> {
    static NONE: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| Arc::from(""));
    policies.iter().map(|policy| of(policy)).find(|text| !text.is_empty()).unwrap_or(&NONE)
}

const ALLOW_CREDENTIALS: &[u8] = b"access-control-allow-credentials";
const ALLOW_HEADERS: &[u8] = b"access-control-allow-headers";
const ALLOW_METHODS: &[u8] = b"access-control-allow-methods";
const ALLOW_PRIVATE_NETWORK: &[u8] = b"access-control-allow-private-network";
const EXPOSE_HEADERS: &[u8] = b"access-control-expose-headers";
const MAX_AGE: &[u8] = b"access-control-max-age";
const REQUEST_HEADERS: &[u8] = b"access-control-request-headers";
const REQUEST_METHOD: &[u8] = b"access-control-request-method";
const REQUEST_PRIVATE_NETWORK: &[u8] = b"access-control-request-private-network";

#[cfg(test)]
mod tests {
    use super::super::testing::{Stream, scope};
    use super::*;

    const PREFLIGHT: [(&str, &str); 2] =
        [("origin", "http://a"), ("access-control-request-method", "PUT")];

    fn policy(origin: &str) -> CorsPolicy {
        CorsPolicy {
            origins: vec![StringMatcher::exact(origin, false)],
            methods: "*".into(),
            credentials: Some(true),
            ..CorsPolicy::default()
        }
    }

    fn asked(stream: &mut Stream) -> OnRequest {
        let filter = Cors.start(&scope());
        stream.request(|view| filter.on_request(view))
    }

    #[test]
    fn a_preflight_of_an_allowed_origin_is_answered_here() {
        let mut stream = Stream::new(b"OPTIONS", &PREFLIGHT).on_route(policy("http://a"));
        let OnRequest::Answer(reply) = asked(&mut stream) else { panic!("it is answered") };
        assert_eq!(reply.head.status(), 200);
        assert_eq!(reply.head.get(Name::AccessControlAllowOrigin), Some(&b"http://a"[..]));
        assert_eq!(reply.head.get_bytes(ALLOW_METHODS), Some(&b"PUT"[..]));
        stream.forwards = false;
        assert!(matches!(asked(&mut stream), OnRequest::Pass), "the route answers itself");
    }

    #[test]
    fn a_preflight_of_another_origin_is_allowed_nothing() {
        let mut stream = Stream::new(b"OPTIONS", &PREFLIGHT).on_route(policy("http://b"));
        assert!(matches!(asked(&mut stream), OnRequest::Pass));
        let kept = CorsPolicy { forwards_others: Some(false), ..policy("http://b") };
        let mut stream = Stream::new(b"OPTIONS", &PREFLIGHT).on_route(kept);
        let OnRequest::Answer(reply) = asked(&mut stream) else { panic!("it is answered") };
        assert_eq!(reply.head.get(Name::AccessControlAllowOrigin), None);
    }

    #[test]
    fn a_response_names_the_origin_only_where_it_is_allowed() {
        for (allowed, origin, goes_on) in [
            ("http://a", "http://a", true),
            ("*", "null", true),
            ("http://a", "http://a.test", false),
            ("http://a", "", false),
        ] {
            let mut stream = Stream::new(b"GET", &[("origin", origin)]).on_route(policy(allowed));
            let OnRequest::Watch(mut filter) = asked(&mut stream) else {
                assert!(!goes_on, "{allowed} {origin}");
                continue;
            };
            assert!(goes_on, "{allowed} {origin}");
            let head = stream.response(200, &mut *filter);
            assert_eq!(head.get(Name::AccessControlAllowOrigin), Some(origin.as_bytes()));
            assert_eq!(head.get_bytes(ALLOW_CREDENTIALS), Some(&b"true"[..]));
        }
    }

    #[test]
    fn what_is_only_counted_changes_nothing() {
        let share = |numerator| Some(Fraction { numerator, denominator: 100 });
        let shadowed = CorsPolicy { enabled: share(0), shadow: share(100), ..policy("http://a") };
        let mut stream = Stream::new(b"GET", &[("origin", "http://a")]).on_route(shadowed);
        let filter = Instance { stats: scope().stats("http_cors") };
        let passed = stream.request(|view| filter.on_request(view));
        assert!(matches!(passed, OnRequest::Pass));
        assert_eq!(filter.stats.origin_valid.value(), 1);
    }
}
