//! `envoy.filters.http.oauth2`: clients show by cookies that an authorization server knows them, or are sent there
//! (RFC 6749, RFC 7636).
//!
//! Arrives: requests with cookies, and clients that come back from the authorization server with a code. Leaves: those
//! that are signed in, with their tokens; redirects and refusals for all others; and questions for tokens.

mod cookies;
mod flow;
mod grant;
mod seal;
mod stats;
mod tokens;
mod url;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::HeaderName;

pub use self::cookies::Cookie;
use self::flow::Flow;
pub use self::seal::{CookieSecret, Encryption};
use self::stats::OAuth2Stats;
pub use self::url::Authorization;
use super::{
    ByPrefix, FilterConfig, FilterScope, HttpFilter, MANAGER, OnRequest, RequestView, RouteConfig,
};
use crate::format::Format;
use crate::matcher::{HeaderMatcher, StringMatcher};
use crate::retry_policy::RetryPolicy;
use crate::stats::FilterNames;

/// Envoy `OAuth2Config`.
#[derive(Debug)]
pub struct OAuth2 {
    /// `token_endpoint`.
    pub token: TokenEndpoint,
    /// `authorization_endpoint`, with `client_id`, `auth_scopes` and `resources`.
    pub authorization: Authorization,
    /// `credentials.client_id`.
    pub client_id: Box<str>,
    /// `credentials.token_secret`; empty with [`AuthType::TlsClientAuth`].
    pub client_secret: Box<[u8]>,
    /// `credentials.hmac_secret`.
    pub secret: CookieSecret,
    /// `auth_type`.
    pub auth: AuthType,
    /// `redirect_uri`.
    pub redirect_uri: Format,
    /// `redirect_path_matcher`: clients that come back.
    pub redirect_path: StringMatcher,
    /// `signout_path`.
    pub sign_out_path: StringMatcher,
    /// `original_request_uri`: where clients go on, up to the path. Default: where they were.
    pub original_uri: Option<Format>,
    /// `allowed_redirect_domains`; empty allows all.
    pub domains: Vec<Box<str>>,
    /// `end_session_endpoint`; empty means none.
    pub end_session: Box<str>,
    /// `post_logout_redirect_uri`.
    pub after_sign_out: AfterSignOut,
    /// `forward_bearer_token`.
    pub forwards_access: bool,
    /// `forward_id_token`: in which field.
    pub id_header: Option<HeaderName>,
    /// `preserve_authorization_header`.
    pub keeps_authorization: bool,
    /// `pass_through_matcher`: requests that are not looked at.
    pub pass_through: Vec<HeaderMatcher>,
    /// `deny_redirect_matcher`: requests that are refused, and not redirected.
    pub deny_redirect: Vec<HeaderMatcher>,
    /// `allow_failed_matcher`: requests that go on, and say so.
    pub allow_failed: Vec<HeaderMatcher>,
    /// `use_refresh_token`. Default true.
    pub refreshes: bool,
    /// `default_expires_in`, in seconds. 0 means that the server has to say it.
    pub expires_in: u64,
    /// `default_refresh_token_expires_in`, in seconds. Default 604,800.
    pub refresh_expires_in: u64,
    /// `csrf_token_expires_in`, in seconds. Default 600.
    pub nonce_expires_in: u64,
    /// `code_verifier_token_expires_in`, in seconds. Default 600.
    pub verifier_expires_in: u64,
    /// `use_access_token_expiry_for_id_token_cookie`.
    pub id_expires_with_access: bool,
    /// Not `disable_access_token_set_cookie`.
    pub keeps_access: bool,
    /// Not `disable_id_token_set_cookie`.
    pub keeps_id: bool,
    /// Not `disable_refresh_token_set_cookie`.
    pub keeps_refresh: bool,
    /// Not `disable_token_encryption`.
    pub encrypts: bool,
    /// `credentials.cookie_domain`; empty means none.
    pub cookie_domain: Box<str>,
    /// `credentials.cookie_names` and `cookie_configs`.
    pub cookies: CookieSet,
    /// `stat_prefix`, without a dot at its end.
    pub stat_prefix: Arc<str>,
}

/// Envoy `HttpUri` of the server that gives tokens.
#[derive(Debug)]
pub struct TokenEndpoint {
    /// `cluster`.
    pub cluster: Arc<str>,
    /// The host of `uri`.
    pub authority: Box<str>,
    /// The rest of it.
    pub path: Box<str>,
    /// `timeout`.
    pub timeout: Duration,
    /// `retry_policy`.
    pub retry: Option<Arc<RetryPolicy>>,
}

/// How the proxy shows the server who it is (RFC 6749 §2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthType {
    /// By the secret in the body.
    UrlEncodedBody,
    /// By the secret in a field.
    BasicAuth,
    /// By a certificate (RFC 8705).
    TlsClientAuth,
}

/// Where a client goes once the authorization server has signed it out.
#[derive(Debug)]
pub enum AfterSignOut {
    /// To the host where it was.
    Home,
    /// Where the server likes.
    Nowhere,
    /// To this URL.
    Url(Format),
}

/// The cookies of a client.
#[derive(Debug)]
pub struct CookieSet {
    /// `OauthHMAC`: a signature of the others.
    pub hmac: Cookie,
    /// `OauthExpires`: until when the access token holds, in seconds since 1970.
    pub expires: Cookie,
    /// `BearerToken`: the access token.
    pub access: Cookie,
    /// `IdToken`.
    pub id: Cookie,
    /// `RefreshToken`.
    pub refresh: Cookie,
    /// `OauthNonce`, while a client is at the authorization server.
    pub nonce: Cookie,
    /// `CodeVerifier`, while a client is at the authorization server.
    pub verifier: Cookie,
}

/// The filter as all workers have it; without a configuration only routes have one.
#[derive(Clone, Debug)]
pub struct SharedOAuth2(pub Option<Arc<OAuth2>>);

/// Envoy `OAuth2PerRoute`.
#[derive(Debug)]
pub struct RouteOAuth2(pub Arc<OAuth2>);

impl RouteConfig for RouteOAuth2 {}

impl FilterConfig for SharedOAuth2 {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let own = self.0.as_ref().map(|config| {
            let names = FilterNames::new("http", format!("http.{}", scope.prefix));
            let names = names.label(MANAGER, &scope.prefix).part(PREFIX_LABEL, &config.stat_prefix);
            (Arc::clone(config), scope.named(names))
        });
        let of_route = |prefix: &Arc<str>| {
            let names = FilterNames::new("http", Arc::clone(prefix));
            if prefix.is_empty() { names } else { names.label(PREFIX_LABEL, prefix) }
        };
        Rc::new(Instance { own, routes: ByPrefix::new(scope.clone(), of_route) })
    }

    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance {
    own: Option<(Arc<OAuth2>, Arc<OAuth2Stats>)>,
    routes: ByPrefix<OAuth2Stats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        // The filter alone may set these.
        request.head.remove_bytes(STATUS);
        request.head.remove_bytes(REASON);
        let route = request.route.first::<RouteOAuth2>();
        let of_route = route
            .map(|RouteOAuth2(config)| (Arc::clone(config), self.routes.of(&config.stat_prefix)));
        let Some((config, stats)) = of_route.or_else(|| self.own.clone()) else {
            return OnRequest::Pass;
        };
        Flow { config, stats }.on_request(request)
    }
}

/// A request goes on although nothing shows who its client is: `failed`.
const STATUS: &[u8] = b"x-envoy-oauth-status";
/// And why.
const REASON: &[u8] = b"x-envoy-oauth-failure-reason";
/// The label with the filter's stat prefix.
const PREFIX_LABEL: &str = "towpath_oauth2_prefix";
