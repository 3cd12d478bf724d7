//! `envoy.filters.http.api_key_auth`: requests must show a key of a client.

mod stats;

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::{Head, HeaderName, Name};

use self::stats::ApiKeyAuthStats;
use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, RouteConfig};
use crate::cookie::cookie;
use crate::uri::query::{decoded, first_decoded, without};

/// Envoy `ApiKeyAuth`.
#[derive(Clone, Debug)]
pub struct ApiKeyAuth {
    /// `credentials`.
    pub clients: Arc<Clients>,
    /// `key_sources`: the first that has a key counts.
    pub sources: Vec<Source>,
    /// `forwarding`.
    pub forwarding: Forwarding,
}

/// Envoy `ApiKeyAuthPerRoute`.
#[derive(Debug)]
pub struct RouteApiKeyAuth {
    /// `credentials`; none means the filter's.
    pub clients: Option<Arc<Clients>>,
    /// `key_sources`; none means the filter's.
    pub sources: Vec<Source>,
    /// `forwarding`, in place of the filter's.
    pub forwarding: Forwarding,
    /// `allowed_clients`; none means all.
    pub allowed: Vec<Box<str>>,
}

impl RouteConfig for RouteApiKeyAuth {}

/// Keys, and whose they are.
#[derive(Default)]
pub struct Clients(HashMap<Box<[u8]>, Box<str>>);

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clients({} keys)", self.0.len())
    }
}

impl Clients {
    /// Adds a key; false if it is there already.
    pub fn add(&mut self, key: &str, client: &str) -> bool {
        self.0.insert(key.as_bytes().into(), client.into()).is_none()
    }

    fn of(&self, key: &[u8]) -> Option<&str> {
        self.0.get(key).map(|client| &**client)
    }
}

/// Envoy `KeySource`.
#[derive(Clone, Debug)]
pub enum Source {
    /// `header`: with or without `Bearer ` before the key.
    Header(HeaderName),
    /// `query`.
    Query(Box<[u8]>),
    /// `cookie`.
    Cookie(Box<[u8]>),
}

/// Envoy `Forwarding`.
#[derive(Clone, Debug, Default)]
pub struct Forwarding {
    /// `header`: says whose the key was.
    pub header: Option<HeaderName>,
    /// `hide_credentials`: the key is taken out.
    pub hides: bool,
}

impl Source {
    fn key(&self, head: &Head) -> Option<Vec<u8>> {
        let key = match self {
            Self::Header(name) => {
                let value = head.get_named(name)?;
                value.strip_prefix(b"Bearer ").unwrap_or(value).to_vec()
            }
            Self::Query(name) => decoded(first_decoded(head.path(), name)?).collect(),
            Self::Cookie(name) => cookie(head, name)?.to_vec(),
        };
        Some(key).filter(|key| !key.is_empty())
    }

    fn remove(&self, head: &mut Head) {
        match self {
            Self::Header(name) => {
                head.remove_named(name);
            }
            Self::Query(name) => {
                let path = without(head.path(), name);
                head.set_path(&path);
            }
            Self::Cookie(name) => remove_cookie(head, name),
        }
    }
}

/// Takes every cookie of a name out; what is left stands in one field.
fn remove_cookie(head: &mut Head, name: &[u8]) {
    let pairs = head.values(Name::Cookie).flat_map(|field| field.split(|byte| *byte == b';'));
    let is_other = |pair: &&[u8]| pair.split(|byte| *byte == b'=').next() != Some(name);
    let kept: Vec<&[u8]> =
        pairs.map(<[u8]>::trim_ascii).filter(|it| !it.is_empty()).filter(is_other).collect();
    let kept = kept.join(&b"; "[..]);
    head.remove(Name::Cookie);
    if !kept.is_empty() {
        head.set(Name::Cookie, &kept);
    }
}

impl FilterConfig for ApiKeyAuth {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { config: self.clone(), stats: scope.stats("http_api_key_auth") })
    }
}

#[derive(Debug)]
struct Instance {
    config: ApiKeyAuth,
    stats: Arc<ApiKeyAuthStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let config = &self.config;
        let route = request.route.first::<RouteApiKeyAuth>();
        let clients = route.and_then(|it| it.clients.as_ref()).unwrap_or(&config.clients);
        let own = route.map(|it| &it.sources).filter(|sources| !sources.is_empty());
        let sources = own.unwrap_or(&config.sources);
        let forwarding = route.map_or(&config.forwarding, |it| &it.forwarding);
        let Some(key) = sources.iter().find_map(|source| source.key(request.head)) else {
            self.stats.unauthorized.inc();
            let text = b"Client authentication failed.";
            return OnRequest::Answer(Reply::new(401, text, "missing_api_key"));
        };
        let Some(client) = clients.of(&key) else {
            self.stats.unauthorized.inc();
            let text = b"Client authentication failed.";
            return OnRequest::Answer(Reply::new(401, text, "unknown_api_key"));
        };
        let allowed = route.map(|it| &it.allowed[..]).unwrap_or_default();
        if !(allowed.is_empty() || allowed.iter().any(|one| **one == *client)) {
            self.stats.forbidden.inc();
            let text = b"Client is forbidden.";
            return OnRequest::Answer(Reply::new(403, text, "client_not_allowed"));
        }
        self.stats.allowed.inc();
        if let Some(header) = &forwarding.header {
            request.head.set_named(header, client.as_bytes());
        }
        if forwarding.hides {
            sources.iter().for_each(|source| source.remove(request.head));
        }
        OnRequest::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(path: &str, fields: &[(&str, &str)]) -> Head {
        let mut head = Head::request(b"GET", b"http", b"h", path.as_bytes());
        for (name, value) in fields {
            head.append_bytes(name.as_bytes(), value.as_bytes());
        }
        head
    }

    fn header(name: &str) -> Source {
        Source::Header(HeaderName::new(name).unwrap())
    }

    #[test]
    fn a_key_is_all_of_a_value_but_its_scheme() {
        let key = |value: &str| {
            let key = header("x-key").key(&head("/", &[("x-key", value)]));
            key.map(|key| String::from_utf8(key).unwrap())
        };
        assert_eq!(key("a"), Some("a".into()));
        assert_eq!(key("Bearer a"), Some("a".into()));
        assert_eq!(key("bearer a"), Some("bearer a".into()));
        assert_eq!([key(""), key("Bearer ")], [None, Some("Bearer".into())]);
    }

    #[test]
    fn keys_are_taken_out_wherever_they_stand() {
        let fields =
            [("x-key", "1"), ("x-key", "2"), ("cookie", "a=1; k=2;b=3"), ("cookie", "k=4")];
        let mut head = head("/p?a=1&k=2&%6b=3", &fields);
        for source in
            [header("x-key"), Source::Query(b"k"[..].into()), Source::Cookie(b"k"[..].into())]
        {
            assert!(source.key(&head).is_some(), "{source:?}");
            source.remove(&mut head);
            assert!(source.key(&head).is_none(), "{source:?}");
        }
        assert_eq!(head.path(), b"/p?a=1");
        assert_eq!(head.get(Name::Cookie), Some(&b"a=1; b=3"[..]));
        Source::Cookie(b"a"[..].into()).remove(&mut head);
        Source::Cookie(b"b"[..].into()).remove(&mut head);
        assert_eq!(head.get(Name::Cookie), None);
    }

    #[test]
    fn a_key_is_one_clients() {
        let mut clients = Clients::default();
        assert!(clients.add("k", "a") && clients.add("l", "a") && !clients.add("k", "b"));
        assert_eq!(clients.of(b"l"), Some("a"));
        assert_eq!(clients.of(b""), None);
        assert_eq!(format!("{clients:?}"), "Clients(2 keys)");
    }
}
