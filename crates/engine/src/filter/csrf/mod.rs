//! `envoy.filters.http.csrf`: requests that change something must come from pages of the same host.

mod stats;

use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::head::Method;
use towpath_proto::{Head, Name};

use self::stats::CsrfStats;
use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, RouteConfig};
use crate::fraction::Fraction;
use crate::matcher::StringMatcher;

/// Envoy `CsrfPolicy`, of a chain or of a route.
#[derive(Clone, Debug)]
pub struct CsrfPolicy {
    /// `filter_enabled`.
    pub enabled: Fraction,
    /// `shadow_enabled`: only counted.
    pub shadow: Option<Fraction>,
    /// `additional_origins`: hosts that are as good as the request's own.
    pub origins: Vec<StringMatcher>,
}

impl RouteConfig for CsrfPolicy {}

impl FilterConfig for CsrfPolicy {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { policy: self.clone(), stats: scope.stats("http_csrf") })
    }
}

#[derive(Debug)]
struct Instance {
    policy: CsrfPolicy,
    stats: Arc<CsrfStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let policy = request.route.first().unwrap_or(&self.policy);
        let enabled = policy.enabled.takes(request.random);
        let shadowed = || policy.shadow.is_some_and(|share| share.takes(request.random));
        let changes = matches!(
            request.head.method(),
            Method::Post | Method::Put | Method::Delete | Method::Patch
        );
        if !changes || (!enabled && !shadowed()) {
            return OnRequest::Pass;
        }
        if self.is_valid(policy, request.head) || !enabled {
            return OnRequest::Pass;
        }
        OnRequest::Answer(Reply::new(403, b"Invalid origin", "csrf_origin_mismatch"))
    }
}

impl Instance {
    fn is_valid(&self, policy: &CsrfPolicy, head: &Head) -> bool {
        let from = |name| head.get(name).map(authority).filter(|source| !source.is_empty());
        let source = from(Name::Origin).or_else(|| from(Name::Referer)).unwrap_or_default();
        // An opaque origin is none (RFC 6454 §6.1).
        let source = if source == b"null" { &[][..] } else { source };
        if source.is_empty() {
            self.stats.missing_source_origin.inc();
            return false;
        }
        let is_known = source == head.authority()
            || policy.origins.iter().any(|origin| origin.matches(source));
        let counter =
            if is_known { &self.stats.request_valid } else { &self.stats.request_invalid };
        counter.inc();
        is_known
    }
}

/// Host and port of a URL; what is none stands for itself.
fn authority(url: &[u8]) -> &[u8] {
    let Some(scheme) = memchr::memmem::find(url, b"://") else { return url };
    if scheme == 0 || !url[..scheme].iter().all(u8::is_ascii_alphabetic) {
        return url;
    }
    let behind = &url[scheme + 3..];
    let end = behind.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(behind.len());
    let authority = &behind[..end];
    let host = authority.iter().rposition(|&byte| byte == b'@').map_or(0, |at| at + 1);
    if authority[host..].is_empty() { url } else { &authority[host..] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_host_and_a_port() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"http://a.test", b"a.test"),
            (b"https://a.test:81/b?c#d", b"a.test:81"),
            (b"http://[::1]:80", b"[::1]:80"),
            (b"http://me@a.test?x", b"a.test"),
            (b"null", b"null"),
            (b"a.test", b"a.test"),
            (b"http://", b"http://"),
            (b"://a", b"://a"),
        ];
        for (url, wanted) in cases {
            assert_eq!(authority(url), wanted, "{}", url.escape_ascii());
        }
    }
}
