//! What a client does to all its requests, and hears of all their answers.
//!
//! Arrives: each request before it is sent, and each response's head, those on the way of redirects included. Leaves:
//! the request with what was added.

use std::sync::Arc;

use crate::auth::{Authenticator, ProxyAuthenticator};
#[cfg(feature = "interceptors")]
use crate::intercept::Chain;
use crate::url::Url;
use crate::{HttpVersions, Proxies, Request, Response};

/// A client's own wishes.
#[derive(Clone, Default)]
pub(crate) struct Defaults {
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) http: HttpVersions,
    pub(crate) proxies: Option<Arc<Proxies>>,
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    pub(crate) proxy_authenticator: Option<Arc<ProxyAuthenticator>>,
    #[cfg(feature = "cookies")]
    pub(crate) cookies: Option<crate::cookies::Jar>,
    #[cfg(feature = "cache")]
    pub(crate) cache: Option<crate::Cache>,
    #[cfg(feature = "interceptors")]
    pub(crate) interceptors: Chain,
    #[cfg(feature = "interceptors")]
    pub(crate) network_interceptors: Chain,
    #[cfg(feature = "hsts")]
    pub(crate) hsts: Option<crate::hsts::Hosts>,
}

impl Defaults {
    /// Adds what the request has not said itself.
    pub(crate) fn complete(&self, request: &mut Request) {
        self.add_fields(request);
        #[cfg(feature = "cookies")]
        if let (Some(jar), Ok(url), false) = (&self.cookies, &request.url, request.has("cookie"))
            && let Some(cookies) = jar.field(url)
        {
            request.fields.push(("cookie".to_owned(), cookies));
        }
    }

    /// The client's own fields, where the request has none of the name.
    pub(crate) fn add_fields(&self, request: &mut Request) {
        let wanted = self.fields.iter().filter(|(name, _)| !request.has(name));
        let wanted: Vec<(String, String)> = wanted.cloned().collect();
        request.fields.extend(wanted);
    }

    /// What a request of this method got from this place.
    #[cfg_attr(
        not(all(feature = "cache", feature = "cookies", feature = "hsts")),
        allow(unused_variables, reason = "what the features add hears")
    )]
    pub(crate) fn hear(&self, method: &str, url: &Url, response: &Response) {
        #[cfg(feature = "cache")]
        if let Some(cache) = &self.cache {
            cache.hear(method, url, response);
        }
        #[cfg(feature = "hsts")]
        if let (Some(hosts), Some(field)) =
            (&self.hsts, response.header("strict-transport-security"))
        {
            hosts.hear(url, field);
        }
        #[cfg(feature = "cookies")]
        if let Some(jar) = &self.cookies {
            for (name, value) in response.headers() {
                if name.eq_ignore_ascii_case(b"set-cookie")
                    && let Ok(value) = std::str::from_utf8(value)
                {
                    jar.hear(url, value);
                }
            }
        }
    }
}
