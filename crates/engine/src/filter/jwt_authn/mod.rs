//! `envoy.filters.http.jwt_authn`: requests must show JSON Web Tokens of certain issuers.
//!
//! Arrives: a request. Leaves: the same, with what its tokens say in headers and metadata; or a refusal. Keys that a
//! server has are asked for once by all requests that wait for them, and kept by each worker.

mod ahead;
mod keys;
mod locations;
mod requirement;
mod state;
mod stats;
mod status;
mod token;
mod walk;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Head, HeaderName, Method, Name};

pub use self::ahead::{FetchAhead, Heard};
pub use self::keys::Keys;
pub use self::requirement::{Audiences, Lenience, Requirement, Tokens};
use self::state::Shared;
use self::walk::Walk;
use super::ahead::Ahead;
use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, RouteConfig};
use crate::matcher::{HeaderMatcher, PathMatch, QueryMatcher, StringMatcher, Text};
use crate::record::details::worded;
use crate::retry_policy::RetryPolicy;
use crate::uri::without_query;

/// When a token ends, in seconds since 1970, if it is one and says so. Its signature is not looked at.
pub(super) fn expiry_of(text: &[u8]) -> Option<u64> {
    token::Token::parse(text).ok()?.expires()
}

/// Envoy `JwtAuthentication`.
#[derive(Debug)]
pub struct JwtAuthn {
    /// `providers`.
    pub providers: Vec<Provider>,
    /// `rules`: the first that matches counts.
    pub rules: Vec<Rule>,
    /// `filter_state_rules`: counts where no rule matches.
    pub state_rules: Option<StateRules>,
    /// `requirement_map`, in the order of its names.
    pub named: Vec<(Box<str>, Arc<Requirement>)>,
    /// `bypass_cors_preflight`.
    pub bypasses_preflight: bool,
    /// `strip_failure_response`: a refusal does not say why.
    pub silent: bool,
    /// `stat_prefix`; it may be empty.
    pub stat_prefix: Arc<str>,
}

/// Envoy `JwtProvider`.
#[derive(Debug)]
pub struct Provider {
    /// `issuer`; empty means any.
    pub issuer: Box<str>,
    /// `audiences`: one of them; without any, all.
    pub audiences: Audiences,
    /// `subjects`.
    pub subjects: Option<StringMatcher>,
    /// `require_expiration`, `max_lifetime`.
    pub lifetime: Lifetime,
    /// `local_jwks`, `remote_jwks`.
    pub keys: KeySource,
    /// `forward`: the token stays in the request.
    pub forwards: bool,
    /// `from_headers`: names, and what stands before the token.
    pub headers: Vec<(HeaderName, Box<[u8]>)>,
    /// `from_params`.
    pub parameters: Vec<Box<[u8]>>,
    /// `from_cookies`.
    pub cookies: Vec<Box<[u8]>>,
    /// `forward_payload_header`.
    pub payload_header: Option<HeaderName>,
    /// `pad_forward_payload_header`.
    pub pads_payload: bool,
    /// `payload_in_metadata`; empty means that it is not kept.
    pub payload_key: Box<str>,
    /// `header_in_metadata`, in the same way.
    pub header_key: Box<str>,
    /// `failed_status_in_metadata`, in the same way.
    pub failure_key: Box<str>,
    /// `normalize_payload_in_metadata.space_delimited_claims`.
    pub divided_claims: Vec<Box<str>>,
    /// `clock_skew_seconds`. Default 60.
    pub clock_skew_seconds: u64,
    /// `jwt_cache_config`.
    pub cache: Option<CacheLimits>,
    /// `claim_to_headers`.
    pub claims: Vec<ClaimHeader>,
    /// `clear_route_cache`: a request that gets such headers or metadata is routed anew.
    pub clears_route: bool,
}

impl Provider {
    /// `clock_skew_seconds` where nothing is said.
    pub const CLOCK_SKEW_SECONDS: u64 = 60;

    /// For tokens of all audiences, however long they are valid, of which nothing is kept. Where they stand is still to
    /// be said.
    #[must_use]
    pub fn new(issuer: &str, keys: KeySource) -> Self {
        Self {
            issuer: issuer.into(),
            audiences: Audiences::default(),
            subjects: None,
            lifetime: Lifetime::Any,
            keys,
            forwards: false,
            headers: Vec::new(),
            parameters: Vec::new(),
            cookies: Vec::new(),
            payload_header: None,
            pads_payload: false,
            payload_key: "".into(),
            header_key: "".into(),
            failure_key: "".into(),
            divided_claims: Vec::new(),
            clock_skew_seconds: Self::CLOCK_SKEW_SECONDS,
            cache: None,
            claims: Vec::new(),
            clears_route: false,
        }
    }
}

/// How long tokens of a provider may still be valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// For ever.
    Any,
    /// They have an end.
    Ends,
    /// For less than this.
    Below(Duration),
}

/// Where a provider's keys come from.
#[derive(Debug)]
pub enum KeySource {
    /// `local_jwks`.
    Local(Arc<Keys>),
    /// `remote_jwks`.
    Remote(Arc<RemoteKeys>),
}

/// Envoy `RemoteJwks`.
#[derive(Debug)]
pub struct RemoteKeys {
    /// `http_uri.cluster`.
    pub cluster: Arc<str>,
    /// The authority of `http_uri.uri`.
    pub authority: Box<str>,
    /// Its path and query.
    pub path: Box<str>,
    /// `http_uri.timeout`.
    pub timeout: Duration,
    /// `cache_duration`. Default 10 minutes.
    pub cache_duration: Duration,
    /// `retry_policy`.
    pub retry: Option<Arc<RetryPolicy>>,
    /// `async_fetch`: they are fetched before requests need them.
    pub ahead: Option<FetchAhead>,
}

/// Envoy `JwtCacheConfig`: good tokens that are not verified again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// `jwt_cache_size`: so many tokens. Default 100.
    pub tokens: usize,
    /// `jwt_max_token_size`: longer ones are not kept. Default 4096.
    pub token_bytes: usize,
}

/// Envoy `JwtClaimToHeader`.
#[derive(Debug)]
pub struct ClaimHeader {
    /// `header_name`.
    pub header: HeaderName,
    /// `claim_path`, or the parts of `claim_name`.
    pub path: Vec<Box<str>>,
}

/// Envoy `RequirementRule`.
#[derive(Debug)]
pub struct Rule {
    /// The path of `match`.
    pub path: PathMatch,
    /// The headers of `match`.
    pub headers: Vec<HeaderMatcher>,
    /// The query parameters of `match`.
    pub query: Vec<QueryMatcher>,
    /// `requires`, or what `requirement_name` stands for; none means that nothing is required.
    pub requirement: Option<Arc<Requirement>>,
}

impl Rule {
    fn matches(&self, head: &Head) -> bool {
        let path = without_query(head.path());
        self.path.matches(head.method(), path)
            && self.headers.iter().all(|header| header.matches(head))
            && self.query.iter().all(|query| query.matches(head.path()))
    }
}

/// Envoy `FilterStateRule`.
#[derive(Debug)]
pub struct StateRules {
    /// Which object.
    pub name: Box<str>,
    /// `requires`, by what the object says.
    pub requires: Vec<(Box<str>, Arc<Requirement>)>,
}

/// Envoy `PerRouteConfig`.
#[derive(Debug)]
pub enum RouteJwtAuthn {
    /// `disabled`.
    Disabled,
    /// `requirement_name`.
    Required(Box<str>),
}

impl RouteConfig for RouteJwtAuthn {}

/// A configuration for all workers.
#[derive(Debug)]
pub struct SharedJwtAuthn {
    config: Arc<JwtAuthn>,
    ahead: Vec<Arc<dyn Ahead>>,
}

impl SharedJwtAuthn {
    /// The filter.
    #[must_use]
    pub fn new(config: JwtAuthn) -> Self {
        let remote = config.providers.iter().filter_map(|provider| match &provider.keys {
            KeySource::Remote(remote) if remote.ahead.is_some() => Some(remote),
            KeySource::Remote(_) | KeySource::Local(_) => None,
        });
        let ahead = remote.map(|remote| Arc::clone(remote) as Arc<dyn Ahead>).collect();
        Self { config: Arc::new(config), ahead }
    }
}

impl FilterConfig for SharedJwtAuthn {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance(Rc::new(Shared::new(Arc::clone(&self.config), scope))))
    }

    fn reads_record(&self) -> bool {
        let keeps = |provider: &Provider| {
            let keys = [&provider.payload_key, &provider.header_key, &provider.failure_key];
            keys.into_iter().any(|key| !key.is_empty())
        };
        self.config.state_rules.is_some() || self.config.providers.iter().any(keeps)
    }

    fn asked_ahead(&self) -> &[Arc<dyn Ahead>] {
        &self.ahead
    }
}

#[derive(Debug)]
struct Instance(Rc<Shared>);

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let Shared { config, stats, .. } = &*self.0;
        config.sanitize(request.head);
        if config.bypasses_preflight && is_preflight(request.head) {
            stats.cors_preflight_bypassed.inc();
            stats.allowed.inc();
            return OnRequest::Pass;
        }
        match config.requirement(request) {
            Ok(None) => {
                stats.allowed.inc();
                OnRequest::Pass
            }
            Ok(Some(requirement)) => {
                Walk::new(Rc::clone(&self.0), Arc::clone(requirement), request).begin(request)
            }
            Err(name) => {
                stats.denied.inc();
                OnRequest::Answer(config.unknown_requirement(name))
            }
        }
    }
}

impl JwtAuthn {
    /// All requests must show a token of this provider.
    #[must_use]
    pub fn of_provider(provider: Provider) -> Self {
        let providers = vec![provider];
        let rule = Rule {
            path: PathMatch::Prefix(Text::new("/", true)),
            headers: Vec::new(),
            query: Vec::new(),
            requirement: Some(Arc::new(Requirement::of_provider(&providers, 0, None))),
        };
        Self {
            providers,
            rules: vec![rule],
            state_rules: None,
            named: Vec::new(),
            bypasses_preflight: false,
            silent: false,
            stat_prefix: "".into(),
        }
    }

    /// Takes away what only the filter itself may say.
    fn sanitize(&self, head: &mut Head) {
        for provider in &self.providers {
            let claims = provider.claims.iter().map(|claim| &claim.header);
            for name in provider.payload_header.iter().chain(claims) {
                head.remove_named(name);
            }
        }
    }

    /// What is required of a request; or the name of a requirement that is not there.
    fn requirement<'a>(
        &'a self,
        request: &RequestView<'a>,
    ) -> Result<Option<&'a Arc<Requirement>>, &'a str> {
        match request.route.first::<RouteJwtAuthn>() {
            Some(RouteJwtAuthn::Disabled) => return Ok(None),
            Some(RouteJwtAuthn::Required(name)) => {
                let named = self.named.iter().find(|(known, _)| known == name);
                return named.map(|(_, requirement)| Some(requirement)).ok_or(&**name);
            }
            None => {}
        }
        if let Some(rule) = self.rules.iter().find(|rule| rule.matches(request.head)) {
            return Ok(rule.requirement.as_ref());
        }
        let Some((rules, info)) = self.state_rules.as_ref().zip(request.facts.info) else {
            return Ok(None);
        };
        Ok(info.read_state(&rules.name, |object| {
            let value = &object?.value;
            let found = rules.requires.iter().find(|(known, _)| known.as_bytes() == &**value);
            found.map(|(_, requirement)| requirement)
        }))
    }

    fn unknown_requirement(&self, name: &str) -> Reply {
        let names: Vec<&str> = self.named.iter().map(|(name, _)| &**name).collect();
        let names = names.join(",");
        let text = format!("Wrong requirement_name: {name}. It should be one of [{names}]");
        let details = format!("jwt_authn_access_denied{{{}}}", text.replace(' ', "_"));
        let body =
            if self.silent { String::new() } else { format!("Failed JWT authentication: {text}") };
        Reply::new(403, body.as_bytes(), worded(&details))
    }
}

/// Whether a browser asks what it may ask for (Fetch, CORS-preflight request).
fn is_preflight(head: &Head) -> bool {
    let has = |value: Option<&[u8]>| value.is_some_and(|value| !value.is_empty());
    head.method() == Method::Options
        && has(head.get(Name::Origin))
        && has(head.get_bytes(b"access-control-request-method"))
}

#[cfg(test)]
mod tests;
