//! Clients that an authorization server knows.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::oauth2::{
    AfterSignOut, AuthType, Authorization, Cookie, CookieSecret, CookieSet, Encryption, OAuth2,
    RouteOAuth2, SharedOAuth2, TokenEndpoint,
};
use towpath_engine::format::Format;
use towpath_engine::matcher::StringMatcher;
use towpath_proto::{HeaderName, Name};

use super::Known;
use crate::convert::Converter;
use crate::convert::retry::ON_ANY_FAILURE;
use crate::message::Message;
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.oauth2.v3.OAuth2";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.oauth2.v3.OAuth2PerRoute";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| {
        let own = match config.message("config") {
            Some(own) => Some(Arc::new(converter.oauth2(own)?)),
            None => None,
        };
        Some(Arc::new(SharedOAuth2(own)))
    },
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    let config = converter.oauth2(config.message("config")?)?;
    Some(Arc::new(RouteOAuth2(Arc::new(config))))
}

impl Converter<'_> {
    fn oauth2(&mut self, config: &Message) -> Option<OAuth2> {
        let credentials = config.message("credentials")?;
        let auth = self.auth_type(config)?;
        let client_secret = match credentials.message("token_secret") {
            _ if auth == AuthType::TlsClientAuth => Some(Vec::new()),
            Some(named) => self.generic_secret(named, MOST_SECRET_BYTES),
            None => {
                let text = "token_secret is required when auth_type is not TLS_CLIENT_AUTH";
                self.report.problem(&credentials.at, text);
                None
            }
        };
        // Both are asked for, whichever is there.
        let secret = self.generic_secret(credentials.message("hmac_secret")?, MOST_SECRET_BYTES);
        let id_header = self.id_token_header(config)?;
        self.check_authorization_header(config, id_header.as_ref());
        let end_session = config.text("end_session_endpoint");
        if !end_session.is_empty()
            && !config.texts("auth_scopes").any(|(scope, _)| scope == "openid")
        {
            let text = "OAuth2 filter: end session endpoint is only supported for OpenID Connect.";
            self.report.problem(config.at("end_session_endpoint"), text);
        }
        let seconds = |name, default| config.duration(name).map_or(default, |it| it.as_secs());
        let encryption = Encryption {
            writes_gcm: self.runtime.feature(USES_GCM, false),
            reads_cbc: self.runtime.feature(READS_CBC, true),
        };
        let client_id = credentials.text("client_id");
        Some(OAuth2 {
            token: self.token_endpoint(config)?,
            authorization: self.authorization(config, client_id)?,
            client_id: client_id.into(),
            client_secret: client_secret?.into(),
            secret: CookieSecret::new(&secret?, encryption),
            auth,
            redirect_uri: self.uri_format(config, "redirect_uri")?,
            redirect_path: self.path_of(config, "redirect_path_matcher")?,
            sign_out_path: self.path_of(config, "signout_path")?,
            original_uri: match config.text("original_request_uri") {
                "" => None,
                _ => Some(self.uri_format(config, "original_request_uri")?),
            },
            domains: texts(config, "allowed_redirect_domains"),
            end_session: end_session.into(),
            after_sign_out: self.after_sign_out(config)?,
            forwards_access: config.flag("forward_bearer_token"),
            id_header,
            keeps_authorization: config.flag("preserve_authorization_header"),
            pass_through: self.header_matchers(config, "pass_through_matcher"),
            deny_redirect: self.header_matchers(config, "deny_redirect_matcher"),
            allow_failed: self.header_matchers(config, "allow_failed_matcher"),
            refreshes: config.wrapped_flag("use_refresh_token").unwrap_or(true),
            expires_in: seconds("default_expires_in", 0),
            refresh_expires_in: seconds("default_refresh_token_expires_in", A_WEEK),
            nonce_expires_in: seconds("csrf_token_expires_in", TEN_MINUTES),
            verifier_expires_in: seconds("code_verifier_token_expires_in", TEN_MINUTES),
            id_expires_with_access: config.flag("use_access_token_expiry_for_id_token_cookie"),
            keeps_access: !config.flag("disable_access_token_set_cookie"),
            keeps_id: !config.flag("disable_id_token_set_cookie"),
            keeps_refresh: !config.flag("disable_refresh_token_set_cookie"),
            encrypts: !config.flag("disable_token_encryption"),
            cookie_domain: credentials.text("cookie_domain").into(),
            cookies: cookies(config, credentials.message("cookie_names")),
            stat_prefix: config.text("stat_prefix").trim_end_matches('.').into(),
        })
    }

    fn auth_type(&mut self, config: &Message) -> Option<AuthType> {
        match config.choice("auth_type").as_str() {
            "BASIC_AUTH" => Some(AuthType::BasicAuth),
            "TLS_CLIENT_AUTH" => Some(AuthType::TlsClientAuth),
            "PRIVATE_KEY_JWT" => {
                let text = "PRIVATE_KEY_JWT is not there; there are URL_ENCODED_BODY, BASIC_AUTH and TLS_CLIENT_AUTH";
                self.report.unsupported(config.at("auth_type"), text);
                None
            }
            _ => Some(AuthType::UrlEncodedBody),
        }
    }

    fn token_endpoint(&mut self, config: &Message) -> Option<TokenEndpoint> {
        let Some(uri) = config.message("token_endpoint") else {
            let text = "needs a `token_endpoint`: without one no user could sign in";
            self.report.unsupported(&config.at, text);
            return None;
        };
        let text = uri.text("uri");
        let rest = text.split_once("//").map_or(text, |(_, rest)| rest);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.report.unsupported(uri.at("uri"), "is no URL of HTTP that can be asked");
            return None;
        }
        Some(TokenEndpoint {
            cluster: uri.text("cluster").into(),
            authority: authority.into(),
            path: if path.is_empty() { "/" } else { path }.into(),
            timeout: self.whole_timeout(uri)?.unwrap_or_default(),
            retry: self.core_retry_policy(config, "retry_policy", Some(ON_ANY_FAILURE)),
        })
    }

    fn authorization(&mut self, config: &Message, client_id: &str) -> Option<Authorization> {
        let all = |name| config.texts(name).map(|(text, _)| text).collect::<Vec<&str>>();
        let (mut scopes, resources) = (all("auth_scopes"), all("resources"));
        if scopes.is_empty() {
            scopes.push("user");
        }
        if !client_id.bytes().all(|byte| byte >= b' ' && byte != 0x7f) {
            let text = "stands in URLs as it is, and must be plain text";
            self.report.unsupported(&config.at, format!("the `client_id` {text}"));
            return None;
        }
        let url = config.text("authorization_endpoint");
        if url.contains('#') {
            let text = "must have no fragment (RFC 6749 §3.1): what clients are sent with would be lost behind it";
            self.report.unsupported(config.at("authorization_endpoint"), text);
            return None;
        }
        let read = Authorization::new(url, client_id, &scopes, &resources);
        if read.is_none() {
            let text =
                format!("OAuth2 filter: invalid authorization endpoint URL '{url}' in config.");
            self.report.problem(config.at("authorization_endpoint"), text);
        }
        read
    }

    /// The field that hosts see the ID token in. Clients cannot have one that decides whether they are looked at.
    #[expect(
        clippy::option_option,
        reason = "outer: whether it can be read; inner: whether there is one"
    )]
    fn id_token_header(&mut self, config: &Message) -> Option<Option<HeaderName>> {
        let Some(forwarding) = config.message("forward_id_token") else { return Some(None) };
        let text = forwarding.text("header");
        if text.starts_with(':') || text.eq_ignore_ascii_case("host") {
            let text = format!(
                "invalid forward_id_token configuration: header '{text}' can not be used to forward the ID token"
            );
            self.report.problem(forwarding.at("header"), text);
            return None;
        }
        let same = |matcher: &Message| matcher.text("name").eq_ignore_ascii_case(text);
        if config.messages("pass_through_matcher").any(same) {
            let text =
                "invalid forward_id_token configuration: pass_through_matcher can not match on it";
            self.report.problem(forwarding.at("header"), text);
        }
        Some(Some(self.header_name(text, forwarding.at("header"))?))
    }

    /// One thing alone says what stands in `authorization`.
    fn check_authorization_header(&mut self, config: &Message, id: Option<&HeaderName>) {
        let of_id = id.is_some_and(|name| name.name() == Name::Authorization);
        let keeps = config.flag("preserve_authorization_header");
        let uses = [config.flag("forward_bearer_token"), keeps, of_id];
        if uses.into_iter().filter(|used| *used).count() > 1 {
            let text = "invalid OAuth2 configuration: at most one of forward_bearer_token, \
                        preserve_authorization_header, or forward_id_token (when forwarding the ID token on the \
                        Authorization header) may be set, as they all use the Authorization header";
            self.report.problem(&config.at, text);
        }
    }

    fn after_sign_out(&mut self, config: &Message) -> Option<AfterSignOut> {
        match config.message("post_logout_redirect_uri") {
            None => Some(AfterSignOut::Home),
            Some(after) if after.flag("disabled") => Some(AfterSignOut::Nowhere),
            Some(after) => Some(AfterSignOut::Url(self.uri_format(after, "uri")?)),
        }
    }

    fn uri_format(&mut self, holder: &Message, name: &str) -> Option<Format> {
        self.format(holder.text(name), false, holder.at(name))
    }

    /// A `PathMatcher`.
    fn path_of(&mut self, config: &Message, name: &str) -> Option<StringMatcher> {
        self.string_matcher(config.message(name)?.message("path")?)
    }
}

fn texts(config: &Message, name: &str) -> Vec<Box<str>> {
    config.texts(name).map(|(text, _)| text.into()).collect()
}

fn cookies(config: &Message, names: Option<&Message>) -> CookieSet {
    let configs = config.message("cookie_configs");
    let cookie = |field: &str, default: &str, own: &str| {
        let name = names.map_or("", |names| names.text(field));
        let own = configs.and_then(|configs| configs.message(own));
        let path = own.map_or("", |own| own.text("path"));
        Cookie {
            name: if name.is_empty() { default } else { name }.into(),
            path: if path.is_empty() { "/" } else { path }.into(),
            same_site: own.and_then(|own| match own.choice("same_site").as_str() {
                "STRICT" => Some("Strict"),
                "LAX" => Some("Lax"),
                "NONE" => Some("None"),
                _ => None,
            }),
            partitioned: own.is_some_and(|own| own.flag("partitioned")),
        }
    };
    CookieSet {
        hmac: cookie("oauth_hmac", "OauthHMAC", "oauth_hmac_cookie_config"),
        expires: cookie("oauth_expires", "OauthExpires", "oauth_expires_cookie_config"),
        access: cookie("bearer_token", "BearerToken", "bearer_token_cookie_config"),
        id: cookie("id_token", "IdToken", "id_token_cookie_config"),
        refresh: cookie("refresh_token", "RefreshToken", "refresh_token_cookie_config"),
        nonce: cookie("oauth_nonce", "OauthNonce", "oauth_nonce_cookie_config"),
        verifier: cookie("code_verifier", "CodeVerifier", "code_verifier_cookie_config"),
    }
}

const MOST_SECRET_BYTES: usize = 64 << 10;
/// In seconds.
const A_WEEK: u64 = 604_800;
/// In seconds.
const TEN_MINUTES: u64 = 600;
const USES_GCM: &str = "envoy.reloadable_features.oauth2_use_gcm_encryption";
const READS_CBC: &str = "envoy.reloadable_features.oauth2_legacy_cbc_decrypt_compat";

const SUPPORT: &[Entry] = &[
    Entry { message: FILTER_TYPE, honoured: &["config"], harmless: &[], changes: &[] },
    Entry { message: ROUTE_TYPE, honoured: &["config"], harmless: &[], changes: &[] },
    Entry {
        message: "envoy.extensions.filters.http.oauth2.v3.OAuth2Config",
        honoured: &[
            "token_endpoint",
            "authorization_endpoint",
            "end_session_endpoint",
            "post_logout_redirect_uri",
            "credentials",
            "redirect_uri",
            "redirect_path_matcher",
            "signout_path",
            "forward_bearer_token",
            "forward_id_token",
            "preserve_authorization_header",
            "pass_through_matcher",
            "auth_scopes",
            "resources",
            "auth_type",
            "use_refresh_token",
            "default_expires_in",
            "deny_redirect_matcher",
            "default_refresh_token_expires_in",
            "disable_id_token_set_cookie",
            "disable_access_token_set_cookie",
            "disable_refresh_token_set_cookie",
            "cookie_configs",
            "stat_prefix",
            "csrf_token_expires_in",
            "code_verifier_token_expires_in",
            "disable_token_encryption",
            "allow_failed_matcher",
            "original_request_uri",
            "allowed_redirect_domains",
            "use_access_token_expiry_for_id_token_cookie",
            "retry_policy",
        ],
        harmless: &[("private_key_jwt_config", "only PRIVATE_KEY_JWT reads it")],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.oauth2.v3.OAuth2Credentials",
        honoured: &["client_id", "token_secret", "hmac_secret", "cookie_names", "cookie_domain"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.oauth2.v3.OAuth2Credentials.CookieNames",
        honoured: &[
            "bearer_token",
            "oauth_hmac",
            "oauth_expires",
            "id_token",
            "refresh_token",
            "oauth_nonce",
            "code_verifier",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.oauth2.v3.CookieConfigs",
        honoured: &[
            "bearer_token_cookie_config",
            "oauth_hmac_cookie_config",
            "oauth_expires_cookie_config",
            "id_token_cookie_config",
            "refresh_token_cookie_config",
            "oauth_nonce_cookie_config",
            "code_verifier_cookie_config",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.oauth2.v3.CookieConfig",
        honoured: &["same_site", "path", "partitioned"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.oauth2.v3.OAuth2TokenForwarding",
        honoured: &["header"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.oauth2.v3.PostLogoutRedirectUri",
        honoured: &["disabled", "uri"],
        harmless: &[],
        changes: &[],
    },
];
