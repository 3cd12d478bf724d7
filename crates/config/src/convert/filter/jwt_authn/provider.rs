//! Who issues tokens, where they stand, and what becomes of what they say.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::jwt_authn::{
    Audiences, CacheLimits, ClaimHeader, FetchAhead, Heard, KeySource, Keys, Lifetime, Provider,
    RemoteKeys,
};
use towpath_proto::HeaderName;

use crate::convert::Converter;
use crate::convert::retry::ON_ANY_FAILURE;
use crate::message::Message;
use crate::support::Entry;

impl Converter<'_> {
    /// A `JwtProvider`.
    pub(super) fn jwt_provider(
        &mut self,
        name: &str,
        message: &Message,
        stat_prefix: &Arc<str>,
    ) -> Option<Provider> {
        let skew = message.number("clock_skew_seconds").filter(|seconds| *seconds > 0);
        let lifetime = match message.duration("max_lifetime") {
            Some(most) => Lifetime::Below(most),
            None if message.flag("require_expiration") => Lifetime::Ends,
            None => Lifetime::Any,
        };
        let subjects = match message.message("subjects") {
            Some(subjects) => Some(self.string_matcher(subjects)?),
            None => None,
        };
        let payload_header = match message.text("forward_payload_header") {
            "" => None,
            name => Some(self.header_name(name, message.at("forward_payload_header"))?),
        };
        let normalize = message.message("normalize_payload_in_metadata");
        let divided = normalize.into_iter().flat_map(|it| it.texts("space_delimited_claims"));
        let mut provider = Provider {
            issuer: message.text("issuer").into(),
            audiences: Audiences::new(message.texts("audiences").map(|(text, _)| text)),
            subjects,
            lifetime,
            keys: self.key_source(name, message, stat_prefix)?,
            forwards: message.flag("forward"),
            headers: self.token_headers(message)?,
            parameters: names(message, "from_params"),
            cookies: names(message, "from_cookies"),
            payload_header,
            pads_payload: message.flag("pad_forward_payload_header"),
            payload_key: message.text("payload_in_metadata").into(),
            header_key: message.text("header_in_metadata").into(),
            failure_key: message.text("failed_status_in_metadata").into(),
            divided_claims: divided.map(|(text, _)| text.into()).collect(),
            clock_skew_seconds: skew.unwrap_or(Provider::CLOCK_SKEW_SECONDS),
            cache: message.message("jwt_cache_config").map(cache_limits),
            claims: self.claims(message)?,
            clears_route: message.flag("clear_route_cache"),
        };
        let places = [provider.parameters.len(), provider.cookies.len(), provider.headers.len()];
        if places == [0; 3] {
            let name = HeaderName::new("authorization").ok()?;
            provider.headers.push((name, b"Bearer "[..].into()));
            provider.parameters.push(b"access_token"[..].into());
        }
        Some(provider)
    }

    fn key_source(
        &mut self,
        name: &str,
        message: &Message,
        stat_prefix: &Arc<str>,
    ) -> Option<KeySource> {
        if let Some(remote) = message.message("remote_jwks") {
            let mut keys = self.remote_keys(name, remote)?;
            keys.ahead = remote.message("async_fetch").map(|fetch| FetchAhead {
                fast_listener: fetch.flag("fast_listener"),
                failed_refetch: fetch.duration("failed_refetch_duration").unwrap_or(AFTER_FAILURE),
                stat_prefix: Arc::clone(stat_prefix),
                heard: Heard::default(),
            });
            return Some(KeySource::Remote(Arc::new(keys)));
        }
        let source = message.message("local_jwks")?;
        let text = self.data(source, MOST_JWKS_BYTES)?;
        // As in Envoy, no text at all is a set without keys, which verifies nothing.
        let keys = if text.is_empty() { Ok(Keys::default()) } else { Keys::parse(&text) };
        match keys {
            Ok(keys) => Some(KeySource::Local(Arc::new(keys))),
            Err(why) => {
                let text =
                    format!("Provider '{name}' in jwt_authn config has invalid local jwks: {why}");
                self.report.problem(&source.at, text);
                None
            }
        }
    }

    fn remote_keys(&mut self, name: &str, remote: &Message) -> Option<RemoteKeys> {
        let uri = remote.message("http_uri")?;
        let text = uri.text("uri");
        // No host that Envoy takes has an underscore.
        let parts = taken_apart(text).filter(|(authority, _)| !authority.contains('_'));
        let Some((authority, path)) = parts else {
            let text = format!("Provider '{name}' has an invalid URI: '{text}'");
            self.report.problem(uri.at("uri"), text);
            return None;
        };
        let duration = remote.duration("cache_duration");
        Some(RemoteKeys {
            cluster: Arc::from(uri.text("cluster")),
            authority: authority.into(),
            path: path.into(),
            timeout: self.whole_timeout(uri)?.unwrap_or_default(),
            // As in Envoy, whole seconds.
            cache_duration: duration
                .map_or(DEFAULT_CACHE, |duration| Duration::from_secs(duration.as_secs())),
            retry: self.core_retry_policy(remote, "retry_policy", Some(ON_ANY_FAILURE)),
            ahead: None,
        })
    }

    fn token_headers(&mut self, message: &Message) -> Option<Vec<(HeaderName, Box<[u8]>)>> {
        let headers: Vec<_> = message.messages("from_headers").collect();
        let read = |header: &Message| {
            let name = self.header_name(header.text("name"), header.at("name"))?;
            Some((name, header.text("value_prefix").as_bytes().into()))
        };
        headers.into_iter().map(read).collect()
    }

    fn claims(&mut self, message: &Message) -> Option<Vec<ClaimHeader>> {
        let claims: Vec<_> = message.messages("claim_to_headers").collect();
        let read = |claim: &Message| {
            let header = self.header_name(claim.text("header_name"), claim.at("header_name"))?;
            let keys = claim.messages("claim_path").map(|segment| segment.text("key").into());
            let keys: Vec<Box<str>> = keys.collect();
            let name = claim.text("claim_name");
            match (keys.is_empty(), name.is_empty()) {
                (true, true) | (false, false) => {
                    let text = "needs one of `claim_name` and `claim_path`";
                    self.report.problem(&claim.at, text);
                    None
                }
                (false, true) => Some(ClaimHeader { header, path: keys }),
                (true, false) => {
                    Some(ClaimHeader { header, path: name.split('.').map(Into::into).collect() })
                }
            }
        };
        claims.into_iter().map(read).collect()
    }
}

fn names(message: &Message, field: &str) -> Vec<Box<[u8]>> {
    message.texts(field).map(|(text, _)| text.as_bytes().into()).collect()
}

fn cache_limits(config: &Message) -> CacheLimits {
    let or = |name, default| {
        let number = config.number(name).filter(|number| *number > 0).unwrap_or(default);
        usize::try_from(number).unwrap_or(usize::MAX)
    };
    CacheLimits { tokens: or("jwt_cache_size", 100), token_bytes: or("jwt_max_token_size", 4096) }
}

/// Authority and path of an absolute URL of HTTP.
fn taken_apart(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    let path = path.split('#').next().unwrap_or_default();
    match path {
        _ if authority.is_empty() || !is_plain || path.starts_with('?') => None,
        "" => Some((authority, "/")),
        path => Some((authority, path)),
    }
}

/// Until keys are asked for again that did not come.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
const DEFAULT_CACHE: Duration = Duration::from_secs(600);
const MOST_JWKS_BYTES: usize = 1 << 20;

pub(super) const PROVIDER: Entry = Entry {
    message: "envoy.extensions.filters.http.jwt_authn.v3.JwtProvider",
    honoured: &[
        "issuer",
        "audiences",
        "subjects",
        "require_expiration",
        "max_lifetime",
        "remote_jwks",
        "local_jwks",
        "forward",
        "from_headers",
        "from_params",
        "from_cookies",
        "forward_payload_header",
        "pad_forward_payload_header",
        "payload_in_metadata",
        "normalize_payload_in_metadata",
        "header_in_metadata",
        "failed_status_in_metadata",
        "clock_skew_seconds",
        "jwt_cache_config",
        "claim_to_headers",
        "clear_route_cache",
    ],
    harmless: &[],
    changes: &[],
};

pub(super) const NORMALIZE: Entry = Entry {
    message: "envoy.extensions.filters.http.jwt_authn.v3.JwtProvider.NormalizePayload",
    honoured: &["space_delimited_claims"],
    harmless: &[],
    changes: &[],
};

pub(super) const CACHE: Entry = Entry {
    message: "envoy.extensions.filters.http.jwt_authn.v3.JwtCacheConfig",
    honoured: &["jwt_cache_size", "jwt_max_token_size"],
    harmless: &[],
    changes: &[],
};

pub(super) const REMOTE: Entry = Entry {
    message: "envoy.extensions.filters.http.jwt_authn.v3.RemoteJwks",
    honoured: &["http_uri", "cache_duration", "async_fetch", "retry_policy"],
    harmless: &[],
    changes: &[],
};

pub(super) const AHEAD: Entry = Entry {
    message: "envoy.extensions.filters.http.jwt_authn.v3.JwksAsyncFetch",
    honoured: &["fast_listener", "failed_refetch_duration"],
    harmless: &[],
    changes: &[],
};

pub(super) const HEADER: Entry = Entry {
    message: "envoy.extensions.filters.http.jwt_authn.v3.JwtHeader",
    honoured: &["name", "value_prefix"],
    harmless: &[],
    changes: &[],
};

pub(super) const CLAIM: Entry = Entry {
    message: "envoy.extensions.filters.http.jwt_authn.v3.JwtClaimToHeader",
    honoured: &["header_name", "claim_name", "claim_path"],
    harmless: &[],
    changes: &[],
};

pub(super) const SEGMENT: Entry = Entry {
    message: "envoy.extensions.filters.http.jwt_authn.v3.JwtClaimToHeader.PathSegment",
    honoured: &["key"],
    harmless: &[],
    changes: &[],
};

#[cfg(test)]
mod tests {
    use super::taken_apart;

    #[test]
    fn a_url_is_an_authority_and_a_path() {
        for (url, wanted) in [
            ("http://a.test/b?c=d", Some(("a.test", "/b?c=d"))),
            ("https://a.test:443", Some(("a.test:443", "/"))),
            ("https://[::1]:80/#a", Some(("[::1]:80", "/"))),
            ("http://", None),
            ("http:///a", None),
            ("http://a?b", None),
            ("http://a/ b", None),
            ("http://a/\r\nb: c", None),
            ("a.test/b", None),
            ("ftp://a/b", None),
            ("", None),
        ] {
            assert_eq!(taken_apart(url), wanted, "{url}");
        }
    }
}
