//! `envoy.filters.http.credential_injector`: requests get what shows a server who this proxy is.

mod stats;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::HeaderName;

use self::stats::CredentialInjectorStats;
use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView};

/// Envoy `CredentialInjector`, with a credential of the kind `Generic`.
#[derive(Clone, Debug)]
pub struct CredentialInjector {
    /// `overwrite`: it takes the place of what a request has.
    pub overwrites: bool,
    /// `allow_request_without_credential`: requests go on without it where there is none.
    pub passes_without: bool,
    /// `header` of the credential.
    pub header: HeaderName,
    /// What stands there: `header_value_prefix`, and the secret.
    pub value: Credential,
}

/// A secret, which no log shows.
#[derive(Clone)]
pub struct Credential(Option<Arc<[u8]>>);

impl Credential {
    /// One with what stands before it; none where the secret is empty.
    #[must_use]
    pub fn new(prefix: &str, secret: &[u8]) -> Self {
        Self((!secret.is_empty()).then(|| [prefix.as_bytes(), secret].concat().into()))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Credential(…)" } else { "Credential(none)" })
    }
}

impl FilterConfig for CredentialInjector {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let family = if scope.is_of_cluster {
            "cluster_credential_injector"
        } else {
            "http_credential_injector"
        };
        Rc::new(Instance { config: self.clone(), stats: scope.stats(family) })
    }
}

#[derive(Debug)]
struct Instance {
    config: CredentialInjector,
    stats: Arc<CredentialInjectorStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let CredentialInjector { overwrites, passes_without, header, value } = &self.config;
        if !overwrites && request.head.get_named(header).is_some() {
            self.stats.already_exists.inc();
            return OnRequest::Pass;
        }
        if let Some(value) = &value.0 {
            request.head.set_named(header, value);
            self.stats.injected.inc();
            return OnRequest::Pass;
        }
        self.stats.failed.inc();
        if *passes_without {
            return OnRequest::Pass;
        }
        let text = b"Failed to inject credential.";
        OnRequest::Answer(Reply::new(401, text, "failed_to_inject_credential"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stream, scope};
    use super::*;

    /// What a request shows, or the status that it is answered with.
    fn shown(secret: &[u8], overwrites: bool, passes_without: bool, own: &str) -> (u16, String) {
        let header = HeaderName::new("authorization").unwrap();
        let value = Credential::new("Bearer ", secret);
        assert!(!format!("{value:?}").contains("secret"));
        let config =
            CredentialInjector { overwrites, passes_without, header: header.clone(), value };
        let filter = config.start(&scope());
        let fields = [("authorization", own)];
        let fields = if own.is_empty() { &[][..] } else { &fields };
        let mut stream = Stream::new(b"GET", fields);
        let outcome = stream.request(|view| filter.on_request(view));
        let status = if let OnRequest::Answer(reply) = outcome { reply.head.status() } else { 0 };
        let value = stream.head.get_named(&header).unwrap_or_default();
        (status, String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn a_credential_is_added_or_takes_the_place_of_another() {
        assert_eq!(shown(b"secret", false, false, ""), (0, "Bearer secret".into()));
        assert_eq!(shown(b"secret", false, false, "own"), (0, "own".into()));
        assert_eq!(shown(b"secret", true, false, "own"), (0, "Bearer secret".into()));
    }

    #[test]
    fn without_a_credential_requests_go_on_only_where_they_may() {
        assert_eq!(shown(b"", false, false, ""), (401, String::new()));
        assert_eq!(shown(b"", false, true, ""), (0, String::new()));
        assert_eq!(shown(b"", true, false, "own"), (401, "own".into()));
    }
}
