//! Where a redirect points to, by Envoy's rules.

use towpath_proto::{Head, Name};

use crate::format::Format;
use crate::snapshot::route::{PathMatch, Redirect, RedirectPath};

impl Redirect {
    /// The `location` of a request's answer; `write` says what a format says of it.
    #[must_use]
    pub fn location(
        &self,
        matched: &PathMatch,
        head: &Head,
        write: impl FnOnce(&Format) -> Vec<u8>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let scheme = self.scheme.as_ref().map_or_else(|| head.scheme(), |scheme| scheme.as_bytes());
        out.extend_from_slice(scheme);
        out.extend_from_slice(b"://");
        match &self.host {
            Some(host) => out.extend_from_slice(host),
            None => out.extend_from_slice(request_host(head, scheme, self.port.is_some())),
        }
        if let Some(port) = self.port {
            out.push(b':');
            out.extend_from_slice(port.to_string().as_bytes());
        }
        match &self.path {
            RedirectPath::Format(format) => match write(format) {
                path if path.is_empty() => self.path(matched, head.path(), &mut out),
                path => self.replaced(&path, head.path(), &mut out),
            },
            RedirectPath::Keep | RedirectPath::Replace(_) | RedirectPath::Rewrite(_) => {
                self.path(matched, head.path(), &mut out);
            }
        }
        out
    }

    fn path(&self, matched: &PathMatch, target: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        match &self.path {
            RedirectPath::Keep | RedirectPath::Format(_) => out.extend_from_slice(target),
            RedirectPath::Replace(path) => return self.replaced(path, target, out),
            RedirectPath::Rewrite(rewrite) => {
                out.extend_from_slice(&rewrite.apply(matched, target));
            }
        }
        self.strip(start, out);
    }

    fn replaced(&self, path: &[u8], target: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(path);
        // A query in the file stays, and no other is added.
        if query_start(path).is_some() {
            return;
        }
        if let Some(at) = query_start(target) {
            out.extend_from_slice(&target[at..]);
        }
        self.strip(start, out);
    }

    fn strip(&self, start: usize, out: &mut Vec<u8>) {
        if self.strip_query
            && let Some(at) = query_start(&out[start..])
        {
            out.truncate(start + at);
        }
    }
}

fn query_start(target: &[u8]) -> Option<usize> {
    target.iter().position(|byte| *byte == b'?')
}

/// The request's authority. Its port goes when another is put there, or when it is the default one of a scheme
/// that changes.
fn request_host<'a>(head: &'a Head, new_scheme: &[u8], new_port: bool) -> &'a [u8] {
    let host = head.authority();
    let Some(colon) = host.iter().rposition(|byte| *byte == b':') else { return host };
    let (name, port) = host.split_at(colon);
    if host.first() == Some(&b'[') && name.last() != Some(&b']') {
        return host;
    }
    let scheme = head.get(Name::XForwardedProto).unwrap_or_else(|| head.scheme());
    let default = matches!((scheme, port), (b"https", b":443") | (b"http", b":80"));
    if new_port || (default && new_scheme != scheme) { name } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::route::{PathRewrite, Text};

    fn location(redirect: &Redirect, authority: &str, target: &str) -> String {
        let head = Head::request(b"GET", b"http", authority.as_bytes(), target.as_bytes());
        let prefix = PathMatch::Prefix(Text::new("/p", true));
        String::from_utf8(redirect.location(&prefix, &head, |_| Vec::new())).unwrap()
    }

    fn redirect() -> Redirect {
        Redirect {
            scheme: None,
            host: None,
            port: None,
            path: RedirectPath::Keep,
            status: 301,
            strip_query: false,
        }
    }

    #[test]
    fn schemes_take_their_default_ports_with_them() {
        let https = Redirect { scheme: Some("https".into()), ..redirect() };
        assert_eq!(location(&https, "a:80", "/p?q"), "https://a/p?q");
        assert_eq!(location(&https, "a:8080", "/p"), "https://a:8080/p");
        assert_eq!(location(&https, "[::1]:80", "/p"), "https://[::1]/p");
        assert_eq!(location(&https, "[::1]", "/p"), "https://[::1]/p");
        assert_eq!(location(&redirect(), "a:80", "/p"), "http://a:80/p");
        let port = Redirect { port: Some(8443), ..redirect() };
        assert_eq!(location(&port, "a:80", "/p"), "http://a:8443/p");
        let host = Redirect { host: Some((*b"b").into()), ..redirect() };
        assert_eq!(location(&host, "a:80", "/p"), "http://b/p");
    }

    #[test]
    fn paths_are_replaced_with_or_without_their_query() {
        let to = |path: &[u8], strip_query| Redirect {
            path: RedirectPath::Replace(path.into()),
            strip_query,
            ..redirect()
        };
        assert_eq!(location(&to(b"/n", false), "a", "/p/x?q=1"), "http://a/n?q=1");
        assert_eq!(location(&to(b"/n", true), "a", "/p?q=1"), "http://a/n");
        assert_eq!(location(&to(b"/n?z", true), "a", "/p?q=1"), "http://a/n?z");
        let strip = Redirect { strip_query: true, ..redirect() };
        assert_eq!(location(&strip, "a", "/p?q=1"), "http://a/p");
        let prefix = PathRewrite::Prefix((*b"/n").into());
        let prefix = Redirect { path: RedirectPath::Rewrite(prefix), ..redirect() };
        assert_eq!(location(&prefix, "a", "/p/x?q=1"), "http://a/n/x?q=1");
    }
}
