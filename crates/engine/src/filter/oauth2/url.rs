//! URLs: where a client is sent and comes back to, and what stands in them.

use std::collections::BTreeMap;

use crate::uri;

/// An absolute URL in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Url<'a> {
    pub(super) scheme: &'a [u8],
    pub(super) authority: &'a [u8],
    /// From the path on, without a fragment; it may be empty.
    pub(super) target: &'a [u8],
}

impl<'a> Url<'a> {
    /// Takes one apart. What could not stand in a head is none.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let (scheme, authority, rest) = uri::absolute(text)?;
        let target = uri::without_fragment(rest);
        is_authority(authority).then_some(Self { scheme, authority, target })
    }

    /// Its host, without the brackets of an address.
    pub(super) fn host(&self) -> &'a [u8] {
        let host = uri::without_port(self.authority);
        let inner = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]"));
        inner.unwrap_or(host)
    }

    /// Whether its host is one of these: itself in any case, or one below `*.`.
    pub(super) fn is_in(&self, domains: &[Box<str>]) -> bool {
        let host = self.host();
        domains.iter().any(|domain| match domain.strip_prefix('*') {
            Some(suffix) if suffix.starts_with('.') => {
                host.len() > suffix.len() && host.ends_with(suffix.as_bytes())
            }
            Some(_) | None => host.eq_ignore_ascii_case(domain.as_bytes()),
        })
    }
}

/// `[user@]host[:port]`, as far as no reader could take it for something else.
fn is_authority(authority: &[u8]) -> bool {
    let host = authority.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
    let name = uri::without_port(host);
    let inside = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]"));
    let port = host.get(name.len() + 1..).unwrap_or_default();
    let has_port = host.len() > name.len();
    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse::<u16>().ok());
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let is_host = match inside {
        Some(inside) => {
            !inside.is_empty()
                && inside.iter().all(|byte| byte.is_ascii_hexdigit() || b":.%".contains(byte))
        }
        None => !name.is_empty() && name.iter().all(is_name),
    };
    is_host && (!has_port || port.is_some())
}

/// `authorization_endpoint` with what every client is sent with.
#[derive(Debug)]
pub struct Authorization {
    /// Up to the query.
    base: Vec<u8>,
    /// By their names, as they are written.
    parameters: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// `resources`, behind all others.
    resources: String,
}

impl Authorization {
    /// `None` where the endpoint is no URL.
    #[must_use]
    pub fn new(url: &str, client_id: &str, scopes: &[&str], resources: &[&str]) -> Option<Self> {
        let parts = Url::parse(url.as_bytes())?;
        let (path, query) = match parts.target.iter().position(|byte| *byte == b'?') {
            Some(at) => (&parts.target[..at], &parts.target[at + 1..]),
            None => (parts.target, &b""[..]),
        };
        let path = if path.is_empty() { b"/" } else { path };
        let mut parameters: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for part in query.split(|byte| *byte == b'&').filter(|part| !part.is_empty()) {
            let at = part.iter().position(|byte| *byte == b'=');
            let (name, value) = at.map_or((part, &b""[..]), |at| (&part[..at], &part[at + 1..]));
            parameters.entry(name.to_vec()).or_default().push(value.to_vec());
        }
        let scopes = encoded(scopes.join(" ").as_bytes());
        for (name, value) in
            [("client_id", client_id), ("response_type", "code"), ("scope", &scopes)]
        {
            parameters.insert(name.into(), vec![value.into()]);
        }
        let resources = resources.iter();
        Some(Self {
            base: [parts.scheme, b"://", parts.authority, path].concat(),
            parameters,
            resources: resources
                .map(|resource| format!("&resource={}", encoded(resource.as_bytes())))
                .collect(),
        })
    }

    /// The URL with what one client is sent with, which is written as it is.
    pub(super) fn with(&self, own: &[(&str, &str)]) -> Vec<u8> {
        let mut all: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for (name, values) in &self.parameters {
            all.insert(name, values.iter().map(Vec::as_slice).collect());
        }
        for (name, value) in own {
            all.insert(name.as_bytes(), vec![value.as_bytes()]);
        }
        let mut url = self.base.clone();
        let pairs = all.iter().flat_map(|(name, values)| values.iter().map(move |it| (name, it)));
        for (at, (name, value)) in pairs.enumerate() {
            url.push(if at == 0 { b'?' } else { b'&' });
            url.extend_from_slice(name);
            url.push(b'=');
            url.extend_from_slice(value);
        }
        url.extend_from_slice(self.resources.as_bytes());
        url
    }
}

/// A text as a part of a query: all but letters, digits and `-._~` as `%XX`.
pub(super) fn encoded(text: &[u8]) -> String {
    escaped(text, |byte| !(byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)))
}

/// A text as Envoy writes it in a form, where it leaves blanks and `%` as they are.
pub(super) fn form_encoded(text: &[u8]) -> String {
    escaped(text, |byte| !(b' '..b'~').contains(&byte) || b":/=&?+".contains(&byte))
}

fn escaped(text: &[u8], escapes: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match escapes(*byte) {
            true => out.push_str(&format!("%{byte:02X}")),
            false => out.push(char::from(*byte)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_absolute_and_plain() {
        for (text, wanted) in [
            ("http://a.test/b?c#d", Some(("http", "a.test", "/b?c"))),
            ("https://me@a.test:80", Some(("https", "me@a.test:80", ""))),
            ("HTTP://[::1]:8?a", Some(("HTTP", "[::1]:8", "?a"))),
            ("a.test/b", None),
            ("/b", None),
            ("://a", None),
            ("http://", None),
            ("http:///b", None),
            ("http://a b/", None),
            ("http://a/\r\nb", None),
            ("http://a/\u{7f}", None),
            ("http://a:/", None),
            ("http://a:99999/", None),
            ("http://a\\b/", None),
            ("http://[/", None),
            ("ht1p://a/", None),
        ] {
            let wanted = wanted.map(|(scheme, authority, target)| Url {
                scheme: scheme.as_bytes(),
                authority: authority.as_bytes(),
                target: target.as_bytes(),
            });
            assert_eq!(Url::parse(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn domains_are_whole_names_or_all_below_one() {
        let domains = ["one.test".into(), "*.two.test".into(), "::1".into()];
        for (url, wanted) in [
            ("http://one.test:80/", true),
            ("http://ONE.test/", true),
            ("http://xone.test/", false),
            ("http://a.two.test/", true),
            ("http://two.test/", false),
            ("http://.two.test/", false),
            ("http://[::1]:8/", true),
        ] {
            assert_eq!(Url::parse(url.as_bytes()).unwrap().is_in(&domains), wanted, "{url}");
        }
    }

    #[test]
    fn a_client_is_sent_with_sorted_parameters() {
        let endpoint = Authorization::new(
            "https://a.test?z=1&client_id=x&z=2&f",
            "me",
            &["a", "b c"],
            &["r/"],
        );
        let url = endpoint.unwrap().with(&[("state", "s"), ("f", "g")]);
        let wanted = "https://a.test/?client_id=me&f=g&response_type=code&scope=a%20b%20c&state=s&z=1\
            &z=2&resource=r%2F";
        assert_eq!(String::from_utf8_lossy(&url), wanted);
    }

    #[test]
    fn each_place_has_its_escapes() {
        let text = "a b+c%d&e~/é".as_bytes();
        assert_eq!(encoded(text), "a%20b%2Bc%25d%26e~%2F%C3%A9");
        assert_eq!(form_encoded(text), "a b%2Bc%d%26e%7E%2F%C3%A9");
    }
}
