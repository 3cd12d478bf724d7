//! One request that waits for tokens, and what becomes of it with them or without.

use towpath_proto::{Head, Name};

use super::Cookie;
use super::cookies::Cookies;
use super::flow::{Flow, Reason, found, unix_seconds};
use super::tokens::{NoTokens, Tokens, read};
use crate::filter::jwt_authn::expiry_of;
use crate::filter::{Answer, OnAnswer, Release, Reply, RequestView, ResponseView, StreamFilter};

#[derive(Debug)]
pub(super) struct Exchange {
    flow: Flow,
    kind: Kind,
    /// Fields for the response of a request that goes on.
    cookies: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Kind {
    /// The client has come back in a flow, and goes on to a URL.
    Code { id: String, url: Vec<u8> },
    /// The request goes on.
    Refresh,
}

/// What a client keeps of its tokens.
#[derive(Debug)]
struct Kept {
    tokens: Tokens,
    /// In seconds since 1970.
    expires: String,
    id_expires_in: u64,
    refresh_expires_in: u64,
    signature: String,
}

impl Exchange {
    pub(super) const fn code(flow: Flow, id: String, url: Vec<u8>) -> Self {
        Self { flow, kind: Kind::Code { id, url }, cookies: Vec::new() }
    }

    pub(super) const fn refresh(flow: Flow) -> Self {
        Self { flow, kind: Kind::Refresh, cookies: Vec::new() }
    }

    /// What of the tokens the client keeps, and for how long.
    fn keep(&self, request: &RequestView<'_>, mut tokens: Tokens) -> Kept {
        let config = &*self.flow.config;
        let now = unix_seconds(request.facts);
        let left = |token: &[u8]| expiry_of(token).map(|expires| expires.saturating_sub(now));
        let expires_in = tokens.expires_in;
        let id = left(&tokens.id).filter(|_| !config.id_expires_with_access);
        let refresh = match config.refreshes {
            true => left(&tokens.refresh).unwrap_or(config.refresh_expires_in),
            false => expires_in,
        };
        for (token, is_kept) in [
            (&mut tokens.access, config.keeps_access),
            (&mut tokens.id, config.keeps_id),
            (&mut tokens.refresh, config.keeps_refresh && config.refreshes),
        ] {
            if !is_kept {
                token.clear();
            }
        }
        Kept {
            expires: now.saturating_add(expires_in).to_string(),
            id_expires_in: id.unwrap_or(expires_in),
            refresh_expires_in: refresh,
            signature: String::new(),
            tokens,
        }
    }

    fn sign(&self, head: &Head, kept: &mut Kept) {
        let tokens = &kept.tokens;
        let expires = kept.expires.as_bytes();
        let lines = [self.flow.domain(head), expires, &tokens.access, &tokens.id, &tokens.refresh];
        kept.signature = self.flow.config.secret.signature(&lines);
    }

    /// The fields that tell a client what to keep, and what not; none without random numbers.
    fn fields(&self, kept: &Kept, cookies: &Cookies) -> Option<Vec<Vec<u8>>> {
        let config = &*self.flow.config;
        let (names, tokens) = (&config.cookies, &kept.tokens);
        let domain = &*config.cookie_domain;
        let set = |cookie: &Cookie, value: &[u8], seconds| {
            cookie.set(&cookie.name, value, domain, seconds)
        };
        let mut fields = vec![
            set(&names.hmac, kept.signature.as_bytes(), tokens.expires_in),
            set(&names.expires, kept.expires.as_bytes(), tokens.expires_in),
        ];
        for (cookie, token, seconds) in [
            (&names.access, &tokens.access, tokens.expires_in),
            (&names.id, &tokens.id, kept.id_expires_in),
            (&names.refresh, &tokens.refresh, kept.refresh_expires_in),
        ] {
            if token.is_empty() {
                if cookies.has(&cookie.name) {
                    fields.push(cookie.forget(cookie.name.as_bytes(), domain));
                }
                continue;
            }
            fields.push(match config.encrypts {
                true => set(cookie, config.secret.seal(token)?.as_bytes(), seconds),
                false => set(cookie, token, seconds),
            });
        }
        Some(fields)
    }

    /// The client goes where it wanted to, signed in.
    fn signed_in(&self, request: &RequestView<'_>, tokens: Tokens) -> Option<Reply> {
        let Kind::Code { id, url } = &self.kind else { return None };
        let mut kept = self.keep(request, tokens);
        self.sign(request.head, &mut kept);
        let fields = self.fields(&kept, &Cookies::of(request.head))?;
        let mut reply = found(url, "oauth.logged_in");
        for field in &fields {
            reply.head.append(Name::SetCookie, field);
        }
        self.flow.delete_flow_cookies(&mut reply.head, id);
        self.flow.stats.oauth_success.inc();
        Some(reply)
    }

    /// The request goes on with tokens that hold.
    fn refreshed(&mut self, request: &mut RequestView<'_>, tokens: Tokens) -> Option<()> {
        let names = &self.flow.config.cookies;
        let mut kept = self.keep(request, tokens);
        let mut cookies = Cookies::of(request.head);
        cookies.set(&names.expires.name, kept.expires.as_bytes());
        for (cookie, token) in [(&names.access, &kept.tokens.access), (&names.id, &kept.tokens.id)]
        {
            if !token.is_empty() {
                cookies.set(&cookie.name, token);
            }
        }
        // A server may let a client keep the one that it has.
        if kept.tokens.refresh.is_empty() {
            kept.tokens.refresh = cookies.value(&names.refresh.name).to_vec();
        }
        self.sign(request.head, &mut kept);
        cookies.write(request.head);
        self.flow.forward(request.head, &kept.tokens.access, &kept.tokens.id);
        self.flow.remove_flow_cookies(request.head);
        self.cookies = self.fields(&kept, &Cookies::of(request.head))?;
        self.flow.stats.oauth_refreshtoken_success.inc();
        self.flow.stats.oauth_success.inc();
        Some(())
    }

    fn failed(&self, request: &mut RequestView<'_>, why: NoTokens) -> OnAnswer {
        let reply = match (&self.kind, why) {
            (Kind::Refresh, NoTokens::Failed | NoTokens::Status) => {
                self.flow.stats.oauth_refreshtoken_failure.inc();
                self.flow.not_signed_in(request, Reason::NotRefreshed)
            }
            (
                Kind::Refresh | Kind::Code { .. },
                NoTokens::NoCluster
                | NoTokens::Failed
                | NoTokens::Status
                | NoTokens::Unread
                | NoTokens::Missing
                | NoTokens::Endless,
            ) => {
                let goes_on = self.flow.lets_on(request.head, &Reason::Other(why.words()));
                (!goes_on).then(|| self.flow.refuse(why.details(), self.id()))
            }
        };
        reply.map_or(OnAnswer::GoOn, OnAnswer::Reply)
    }

    fn id(&self) -> &str {
        match &self.kind {
            Kind::Code { id, .. } => id,
            Kind::Refresh => "",
        }
    }
}

impl StreamFilter for Exchange {
    fn on_answer(&mut self, answer: &Answer, request: &mut RequestView<'_>) -> OnAnswer {
        let tokens = match read(answer, self.flow.config.expires_in) {
            Ok(tokens) => tokens,
            Err(why) => return self.failed(request, why),
        };
        let done = match &self.kind {
            Kind::Code { .. } => self.signed_in(request, tokens).map(OnAnswer::Reply),
            Kind::Refresh => self.refreshed(request, tokens).map(|()| OnAnswer::GoOn),
        };
        done.unwrap_or_else(|| {
            OnAnswer::Reply(self.flow.refuse("OAuth2_random_numbers_are_missing", self.id()))
        })
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        for field in std::mem::take(&mut self.cookies) {
            response.head.append(Name::SetCookie, &field);
        }
        Release::Now
    }
}
