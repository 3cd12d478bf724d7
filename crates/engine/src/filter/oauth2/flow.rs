//! What becomes of a request: it goes on, its tokens are asked for, its client is sent away, or it is refused.

use std::sync::Arc;

use towpath_proto::{Head, Name};

use super::cookies::Cookies;
use super::grant::Exchange;
use super::seal::{challenge, is_same, random};
use super::tokens::{Grant, is_plain, question};
use super::url::{Url, encoded};
use super::{AfterSignOut, AuthType, OAuth2, REASON, STATUS};
use crate::filter::oauth2::stats::OAuth2Stats;
use crate::filter::{OnRequest, Reply, RequestView};
use crate::format::{Facts, Format};
use crate::json::json_string;
use crate::matcher::{HeaderMatcher, StringMatcher};
use crate::random::hex;
use crate::record::Flags;
use crate::stream_info::{Struct, Value, read_json};
use crate::uri;
use crate::uri::query::first;

/// The configuration that a request goes by, and where it counts.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) config: Arc<OAuth2>,
    pub(super) stats: Arc<OAuth2Stats>,
}

/// A client that comes back from the authorization server.
#[derive(Debug, Default)]
struct Return {
    /// Which of its flows it is, once that is known.
    flow: String,
    code: Vec<u8>,
    /// Where it wanted to go.
    url: Vec<u8>,
}

/// A client that does not, or brings what is not ours: which of its flows it is, and details.
type Wrong = (String, &'static str);

impl Flow {
    pub(super) fn on_request(self, request: &mut RequestView<'_>) -> OnRequest {
        let config = &*self.config;
        if let Some(name) = &config.id_header
            && name.name() != Name::Authorization
        {
            request.head.remove_named(name);
        }
        if any(&config.pass_through, request.head) {
            self.stats.oauth_passthrough.inc();
            return OnRequest::Pass;
        }
        let lacks_secret =
            config.auth != AuthType::TlsClientAuth && config.client_secret.is_empty();
        if config.secret.is_empty() || lacks_secret {
            self.stats.oauth_failure.inc();
            let details = "OAuth2_secrets_are_not_ready";
            return OnRequest::Answer(Reply::new(503, b"Service Unavailable", details));
        }
        self.open_cookies(request.head);
        if !config.keeps_authorization {
            request.head.remove(Name::Authorization);
        }
        if request.head.path().is_empty() {
            return OnRequest::Answer(Reply::new(400, b"", "oauth_missing_path"));
        }
        let returns = is_at(&config.redirect_path, request.head.path());
        if is_at(&config.sign_out_path, request.head.path()) {
            return OnRequest::Answer(self.sign_out(request));
        }
        let cookies = Cookies::of(request.head);
        if self.is_signed_in(request, &cookies) {
            return self.signed_in(request, &cookies, returns);
        }
        if returns {
            return self.returned(request, &cookies);
        }
        if let Some(token) = cookies.get(&config.cookies.refresh.name).filter(|_| config.refreshes)
        {
            let callout = question(config, Grant::Refresh(token));
            return OnRequest::Ask(Box::new(Exchange::refresh(self)), callout);
        }
        let reason = Reason::Missing;
        self.not_signed_in(request, reason).map_or(OnRequest::Pass, OnRequest::Answer)
    }

    /// Puts what encrypted cookies say in their place. What cannot be read stays, and is not signed.
    fn open_cookies(&self, head: &mut Head) {
        let config = &*self.config;
        if !config.encrypts {
            return;
        }
        let mut cookies = Cookies::of(head);
        let mut has_any = false;
        for cookie in [&config.cookies.access, &config.cookies.id, &config.cookies.refresh] {
            let Some(value) = cookies.get(&cookie.name) else { continue };
            has_any = true;
            let opened = config.secret.open(value);
            let Some(opened) = opened.filter(|opened| opened.text.iter().copied().all(is_plain))
            else {
                continue;
            };
            if opened.is_cbc {
                self.stats.oauth_legacy_cbc_decrypt.inc();
            }
            cookies.set(&cookie.name, &opened.text);
        }
        if has_any {
            cookies.write(head);
        }
    }

    /// Whether the cookies are signed and hold still.
    fn is_signed_in(&self, request: &RequestView<'_>, cookies: &Cookies) -> bool {
        let (config, names) = (&*self.config, &self.config.cookies);
        let expires = cookies.value(&names.expires.name);
        let lines = [
            self.domain(request.head),
            expires,
            cookies.value(&names.access.name),
            cookies.value(&names.id.name),
            cookies.value(&names.refresh.name),
        ];
        let expires = std::str::from_utf8(expires).ok().and_then(|text| text.trim().parse().ok());
        config.secret.has_signed(&lines, cookies.value(&names.hmac.name))
            && expires.is_some_and(|expires: u64| expires > unix_seconds(request.facts))
    }

    /// What is signed with the cookies, so that they are no other host's.
    pub(super) fn domain<'a>(&'a self, head: &'a Head) -> &'a [u8] {
        match &*self.config.cookie_domain {
            "" => head.authority(),
            domain => domain.as_bytes(),
        }
    }

    fn signed_in(
        &self,
        request: &mut RequestView<'_>,
        cookies: &Cookies,
        returns: bool,
    ) -> OnRequest {
        let names = &self.config.cookies;
        self.stats.oauth_success.inc();
        self.forward(
            request.head,
            cookies.value(&names.access.name),
            cookies.value(&names.id.name),
        );
        if !returns {
            self.remove_flow_cookies(request.head);
            return OnRequest::Pass;
        }
        // It was signed in by another request of it meanwhile: it goes where it wanted to.
        let back = match self.read_return(request.head, cookies) {
            Ok(back) => back,
            Err((flow, details)) => return OnRequest::Answer(self.refuse(details, &flow)),
        };
        let target = Url::parse(&back.url).map_or(&b""[..], |url| url.target);
        if is_at(&self.config.redirect_path, target) {
            let details = "State_url_query_params_matches_the_redirect_path_matcher";
            return OnRequest::Answer(self.refuse(details, &back.flow));
        }
        let mut reply = found(&back.url, "oauth.race_redirect");
        self.delete_flow_cookies(&mut reply.head, &back.flow);
        OnRequest::Answer(reply)
    }

    /// Tells the host what the tokens are.
    pub(super) fn forward(&self, head: &mut Head, access: &[u8], id: &[u8]) {
        if self.config.forwards_access && !access.is_empty() {
            head.set(Name::Authorization, &[b"Bearer ", access].concat());
        }
        match &self.config.id_header {
            Some(name) if !id.is_empty() && name.name() == Name::Authorization => {
                head.set(Name::Authorization, &[b"Bearer ", id].concat());
            }
            Some(name) if !id.is_empty() => head.set_named(name, id),
            Some(_) | None => {}
        }
    }

    /// The host does not see what is for the filter alone.
    pub(super) fn remove_flow_cookies(&self, head: &mut Head) {
        let (mut cookies, names) = (Cookies::of(head), &self.config.cookies);
        if cookies.is_empty() {
            return;
        }
        for cookie in [&names.hmac, &names.expires, &names.refresh] {
            cookies.remove(&cookie.name);
        }
        for cookie in [&names.nonce, &names.verifier] {
            cookies.remove_of_flows(&cookie.name);
        }
        cookies.write(head);
    }

    /// A client with a code, which is exchanged for tokens.
    fn returned(self, request: &mut RequestView<'_>, cookies: &Cookies) -> OnRequest {
        let config = &*self.config;
        let back = match self.read_return(request.head, cookies) {
            Ok(back) => back,
            Err((flow, details)) => return OnRequest::Answer(self.refuse(details, &flow)),
        };
        let Some(sealed) = of_flow(cookies, &config.cookies.verifier.name, &back.flow) else {
            let details = "Code_verifier_cookie_is_missing_in_the_request";
            return OnRequest::Answer(self.refuse(details, &back.flow));
        };
        let opened = config.secret.open(sealed).filter(|opened| {
            // It is one of ours: these have only such characters.
            opened.text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
        });
        let Some(opened) = opened else {
            let details = "Failed_to_decrypt_code_verifier";
            return OnRequest::Answer(self.refuse(details, &back.flow));
        };
        if opened.is_cbc {
            self.stats.oauth_legacy_cbc_decrypt.inc();
        }
        let redirect_uri = written(&config.redirect_uri, request);
        let grant =
            Grant::Code { code: &back.code, verifier: &opened.text, redirect_uri: &redirect_uri };
        let callout = question(config, grant);
        OnRequest::Ask(Box::new(Exchange::code(self, back.flow, back.url)), callout)
    }

    fn read_return(&self, head: &Head, cookies: &Cookies) -> Result<Return, Wrong> {
        let path = head.path();
        let (code, state) = (first(path, b"code"), first(path, b"state"));
        if first(path, b"error").is_some() {
            let back = state.map(|state| self.read_state(state, cookies));
            let flow = match back {
                Some(Ok(back)) => back.flow,
                Some(Err((flow, _))) => flow,
                None => String::new(),
            };
            return Err((flow, "OAuth_server_returned_an_error"));
        }
        let (Some(code), Some(state)) = (code, state) else {
            return Err((String::new(), "Code_or_state_query_param_does_not_exist"));
        };
        let back = self.read_state(state, cookies)?;
        Ok(Return { code: code.to_vec(), ..back })
    }

    /// What a client was sent away with: where it wanted to go, and that it is the same client.
    fn read_state(&self, state: &[u8], cookies: &Cookies) -> Result<Return, Wrong> {
        use base64::Engine as _;
        let unknown = |details| (String::new(), details);
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(state);
        let fields = bytes.ok().and_then(|bytes| read_json(&bytes));
        let fields = fields.ok_or_else(|| unknown("State_query_param_is_not_a_valid_JSON"))?;
        if !fields.contains_key("url") || !fields.contains_key("csrf_token") {
            return Err(unknown("State_query_param_does_not_contain_url_or_CSRF_token"));
        }
        let token = text(&fields, "csrf_token").as_bytes();
        let flow = text(&fields, "flow_id");
        let kept = of_flow(cookies, &self.config.cookies.nonce.name, flow);
        let is_own =
            kept.is_some_and(|kept| is_same(kept, token) && self.config.secret.is_nonce(token));
        // Where a flow ends, cookies are deleted by its name.
        if !is_own || !flow.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(unknown("CSRF_token_validation_failed"));
        }
        let url = text(&fields, "url").as_bytes();
        let Some(parts) = Url::parse(url) else {
            return Err((flow.to_owned(), "State_url_can_not_be_initialized"));
        };
        if !self.allows(&parts) {
            return Err((flow.to_owned(), "State_url_host_is_not_in_the_allowed_redirect_domains"));
        }
        Ok(Return { flow: flow.to_owned(), code: Vec::new(), url: url.to_vec() })
    }

    /// Clients may be sent there.
    fn allows(&self, url: &Url<'_>) -> bool {
        self.config.domains.is_empty() || url.is_in(&self.config.domains)
    }

    /// The request of a client that is not signed in: nothing where it goes on even so.
    pub(super) fn not_signed_in(
        &self,
        request: &mut RequestView<'_>,
        reason: Reason,
    ) -> Option<Reply> {
        if self.lets_on(request.head, &reason) {
            return None;
        }
        if any(&self.config.deny_redirect, request.head) {
            return Some(self.refuse(reason.denied(), ""));
        }
        Some(self.send_away(request))
    }

    /// Marks a request that goes on although its client is not signed in.
    pub(super) fn lets_on(&self, head: &mut Head, reason: &Reason) -> bool {
        let config = &*self.config;
        if is_at(&config.redirect_path, head.path()) || !any(&config.allow_failed, head) {
            return false;
        }
        let (mut cookies, names) = (Cookies::of(head), &config.cookies);
        if !cookies.is_empty() {
            for cookie in [&names.access, &names.id, &names.hmac, &names.expires, &names.refresh] {
                cookies.remove(&cookie.name);
            }
            cookies.write(head);
            self.remove_flow_cookies(head);
        }
        let words = reason.allowed(head);
        head.set_bytes(STATUS, b"failed");
        head.set_bytes(REASON, &words);
        self.stats.oauth_allow_failed_passthrough.inc();
        true
    }

    /// Sends a client to the authorization server.
    fn send_away(&self, request: &mut RequestView<'_>) -> Reply {
        let config = &*self.config;
        let scheme = scheme(request.head);
        let is_plain = scheme.eq_ignore_ascii_case(b"http");
        let base = match &config.original_uri {
            Some(format) => written(format, request),
            None => {
                let scheme: &[u8] = if is_plain { b"http" } else { b"https" };
                [scheme, b"://", request.head.authority()].concat()
            }
        };
        let is_allowed = |url: &[u8]| {
            config.domains.is_empty() || Url::parse(url).is_some_and(|url| self.allows(&url))
        };
        if !is_allowed(&base) {
            let details = "authority_or_original_request_uri_failed_domain_allow-list_validation";
            return self.refuse(details, "");
        }
        let redirect_uri = written(&config.redirect_uri, request);
        if !is_allowed(&redirect_uri) {
            return self.refuse("redirect_uri_failed_domain_allow-list_validation", "");
        }
        let url = [&*base, request.head.path()].concat();
        let reply = self.redirect(&url, &redirect_uri);
        let Some(reply) = reply else {
            return self.refuse("OAuth2_random_numbers_are_missing", "");
        };
        self.stats.oauth_unauthorized_rq.inc();
        reply
    }

    fn redirect(&self, url: &[u8], redirect_uri: &[u8]) -> Option<Reply> {
        use base64::Engine as _;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let config = &*self.config;
        let digits = hex(u64::from_ne_bytes(random()?));
        let flow = std::str::from_utf8(&digits).ok()?;
        let nonce = config.secret.nonce(flow);
        let verifier = URL_SAFE_NO_PAD.encode(random::<32>()?);
        let sealed = config.secret.seal(verifier.as_bytes())?;
        let state = URL_SAFE_NO_PAD.encode(state(url, &nonce, flow));
        let location = config.authorization.with(&[
            ("state", &state),
            ("redirect_uri", &encoded(redirect_uri)),
            ("code_challenge", &challenge(&verifier)),
            ("code_challenge_method", "S256"),
        ]);
        let mut reply = found(&location, "oauth.missing_credentials");
        let names = &config.cookies;
        for (cookie, value, seconds) in [
            (&names.nonce, &nonce, config.nonce_expires_in),
            (&names.verifier, &sealed, config.verifier_expires_in),
        ] {
            for name in [&*cookie.of_flow(flow), &*cookie.name] {
                let field = cookie.set(name, value.as_bytes(), &config.cookie_domain, seconds);
                reply.head.append(Name::SetCookie, &field);
            }
        }
        Some(reply)
    }

    fn sign_out(&self, request: &mut RequestView<'_>) -> Reply {
        let (config, names) = (&*self.config, &self.config.cookies);
        let cookies = Cookies::of(request.head);
        let home = [scheme(request.head), b"://", request.head.authority(), b"/"].concat();
        let location = match &*config.end_session {
            "" => home,
            endpoint => {
                let token = cookies.value(&names.id.name);
                let client = config.client_id.as_bytes();
                let to = [endpoint.as_bytes(), b"?id_token_hint=", token, b"&client_id=", client];
                let after = match &config.after_sign_out {
                    AfterSignOut::Home => Some(home),
                    AfterSignOut::Nowhere => None,
                    AfterSignOut::Url(format) => Some(written(format, request)),
                };
                let after = after.map_or_else(String::new, |after| {
                    format!("&post_logout_redirect_uri={}", encoded(&after))
                });
                [&to.concat()[..], after.as_bytes()].concat()
            }
        };
        let mut reply = found(&location, "oauth.sign_out");
        let mut delete = |cookie: &super::Cookie, name: &[u8]| {
            reply.head.append(Name::SetCookie, &cookie.delete(name, &config.cookie_domain));
        };
        for cookie in [&names.hmac, &names.access, &names.id, &names.refresh, &names.expires] {
            delete(cookie, cookie.name.as_bytes());
        }
        for cookie in [&names.nonce, &names.verifier] {
            for name in cookies.names_of_flows(&cookie.name) {
                delete(cookie, name);
            }
        }
        reply
    }

    /// Refuses a request, and deletes the cookies of its flow.
    pub(super) fn refuse(&self, details: &'static str, flow: &str) -> Reply {
        self.stats.oauth_failure.inc();
        let mut reply = Reply::new(401, b"OAuth flow failed.", details);
        if !flow.is_empty() {
            self.delete_flow_cookies(&mut reply.head, flow);
        }
        reply
    }

    /// A flow is over: its cookies are needed no more.
    pub(super) fn delete_flow_cookies(&self, head: &mut Head, flow: &str) {
        let names = &self.config.cookies;
        for cookie in [&names.nonce, &names.verifier] {
            let mut delete = |name: &str| {
                let field = cookie.delete(name.as_bytes(), &self.config.cookie_domain);
                head.append(Name::SetCookie, &field);
            };
            if !flow.is_empty() {
                delete(&cookie.of_flow(flow));
            }
            delete(&cookie.name);
        }
    }
}

/// Why nothing shows who a client is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// It has no cookies that hold.
    Missing,
    /// Its token does not hold any more.
    NotRefreshed,
    /// In other words.
    Other(&'static str),
}

impl Reason {
    /// What the host is told, in Envoy's words.
    fn allowed(self, head: &Head) -> Vec<u8> {
        match self {
            Self::Missing => [
                b"Unauthorized, and forwarding as unauthorized because OAuth failure is allowed: ",
                head.path(),
            ]
            .concat(),
            Self::NotRefreshed => {
                b"Failed to refresh the access token, and forwarding as unauthorized because OAuth failure is allowed"
                    .to_vec()
            }
            Self::Other(words) => words.into(),
        }
    }

    /// Details of a refusal. Envoy's have the path, too.
    const fn denied(self) -> &'static str {
        match self {
            Self::Missing => "Unauthorized,_and_redirecting_to_OAuth_server_is_not_allowed",
            Self::NotRefreshed => {
                "Failed_to_refresh_the_access_token,_and_redirecting_to_OAuth_server_is_not_allowed"
            }
            Self::Other(details) => details,
        }
    }
}

/// 302, with nothing that `local_reply_config` changes.
pub(super) fn found(location: &[u8], details: &'static str) -> Reply {
    let mut reply = Reply::new(302, b"", details);
    reply.head.set(Name::Location, location);
    reply.is_final = true;
    reply.flags = Flags::default();
    reply
}

/// What the authorization server gives back as it is.
fn state(url: &[u8], nonce: &str, flow: &str) -> Vec<u8> {
    let mut json = Vec::new();
    for (name, value) in [
        (&b"{\"url\":"[..], url),
        (b",\"csrf_token\":", nonce.as_bytes()),
        (b",\"flow_id\":", flow.as_bytes()),
    ] {
        json.extend_from_slice(name);
        json_string(&mut json, value);
    }
    json.push(b'}');
    json
}

/// The cookie of a flow, or the one of its name alone.
fn of_flow<'a>(cookies: &'a Cookies, name: &str, flow: &str) -> Option<&'a [u8]> {
    cookies.get(&format!("{name}.{flow}")).or_else(|| cookies.get(name))
}

fn text<'a>(fields: &'a Struct, name: &str) -> &'a str {
    match fields.get(name) {
        Some(Value::String(text)) => text,
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Struct(_),
        )
        | None => "",
    }
}

fn written(format: &Format, request: &RequestView<'_>) -> Vec<u8> {
    let mut facts = *request.facts;
    facts.request = Some(request.head);
    let mut out = Vec::new();
    format.write(&mut out, &facts);
    out
}

/// How the client speaks, as far as is known.
fn scheme(head: &Head) -> &[u8] {
    head.get(Name::XForwardedProto).unwrap_or_else(|| head.scheme())
}

fn any(matchers: &[HeaderMatcher], head: &Head) -> bool {
    matchers.iter().any(|matcher| matcher.matches(head))
}

/// Whether a target's path matches.
fn is_at(matcher: &StringMatcher, target: &[u8]) -> bool {
    matcher.matches(uri::without_query(target))
}

pub(super) fn unix_seconds(facts: &Facts<'_>) -> u64 {
    facts.epoch_unix_ns.saturating_add(facts.now.as_nanos()) / 1_000_000_000
}
