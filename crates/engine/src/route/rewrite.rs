//! Paths and authorities as a route and a listener have them.

use std::borrow::Cow;

use crate::snapshot::http::StripPort;
use crate::snapshot::route::{PathMatch, PathRewrite};
use crate::uri::{path_end, port_start};

impl PathRewrite {
    /// The target with its path as the route has it. The query is kept.
    /// (Envoy puts the old one into `x-envoy-original-path`, which is the caller's business.)
    pub fn apply<'a>(&self, matched: &PathMatch, target: &'a [u8]) -> Cow<'a, [u8]> {
        let end = path_end(target);
        match self {
            Self::Keep => target.into(),
            Self::Prefix(prefix) => {
                let length = match matched {
                    PathMatch::Prefix(text) | PathMatch::SeparatedPrefix(text) => {
                        text.bytes.len().min(end)
                    }
                    PathMatch::Exact(_) | PathMatch::Regex(_) | PathMatch::Template(_) => end,
                    PathMatch::Connect => return target.into(),
                };
                [prefix, &target[length..]].concat().into()
            }
            Self::Regex { pattern, substitution } => {
                let path = pattern.replace_all(&target[..end], &substitution[..]);
                [&path, &target[end..]].concat().into()
            }
            Self::Template { pattern, substitution } => {
                match pattern.replace_all(&target[..end], &substitution[..]) {
                    Cow::Owned(path) => [&path, &target[end..]].concat().into(),
                    Cow::Borrowed(_) => target.into(),
                }
            }
            // What it says depends on more than the target: see `with_path`.
            Self::Format(_) => target.into(),
        }
    }
}

/// The target with another path; the query is kept. Nothing where the path is empty, or has bytes in it that no
/// request line may have.
pub(crate) fn with_path(target: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    is_printable(path).then(|| [path, &target[path_end(target)..]].concat())
}

/// Whether a text that a format made may stand in a request line or an authority.
pub(crate) fn is_printable(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

impl StripPort {
    /// The authority without the port that is to be cut; nothing when it stays.
    #[must_use]
    pub fn apply(self, authority: &[u8], listener_port: Option<u16>) -> Option<&[u8]> {
        let colon = port_start(authority)?;
        let port = std::str::from_utf8(&authority[colon + 1..]).ok()?;
        let port: u32 = port.parse().ok()?;
        let cut = match self {
            Self::No => false,
            Self::Matching => listener_port.is_some_and(|listener| port == u32::from(listener)),
            Self::Any => true,
        };
        cut.then_some(&authority[..colon])
    }
}

/// Writes the authority without the dot that ends its name (`a.com.` or `a.com.:80`) to `out`, which is emptied;
/// false when there is no such dot.
pub(crate) fn without_trailing_dot(authority: &[u8], out: &mut Vec<u8>) -> bool {
    let (name, port) = authority.split_at(port_start(authority).unwrap_or(authority.len()));
    let Some(name) = name.strip_suffix(b".") else { return false };
    out.clear();
    out.extend_from_slice(name);
    out.extend_from_slice(port);
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::matcher::{full_regex, search_regex, substitution};
    use crate::snapshot::route::Text;

    fn rewritten(rewrite: &PathRewrite, matched: &PathMatch, target: &str) -> String {
        String::from_utf8(rewrite.apply(matched, target.as_bytes()).into_owned()).unwrap()
    }

    fn regex(pattern: &str, text: &str) -> PathRewrite {
        let pattern = search_regex(pattern).unwrap();
        let substitution = substitution(text, &pattern).unwrap().into();
        PathRewrite::Regex { pattern, substitution }
    }

    #[test]
    fn the_matched_part_is_replaced() {
        let to = PathRewrite::Prefix(Arc::from(&b"/new"[..]));
        let prefix = PathMatch::Prefix(Text::new("/api", true));
        assert_eq!(rewritten(&to, &prefix, "/api/x?q=/api"), "/new/x?q=/api");
        assert_eq!(rewritten(&to, &prefix, "/api?q"), "/new?q");
        let exact = PathMatch::Exact(Text::new("/API", false));
        assert_eq!(rewritten(&to, &exact, "/api?q=1"), "/new?q=1");
        let any = PathMatch::Regex(full_regex("/.*").unwrap());
        assert_eq!(rewritten(&to, &any, "/a/b?q"), "/new?q");
        assert_eq!(rewritten(&to, &PathMatch::Connect, ""), "");
        assert_eq!(rewritten(&PathRewrite::Keep, &prefix, "/api"), "/api");
    }

    #[test]
    fn groups_are_put_in_and_the_query_is_kept() {
        let prefix = PathMatch::Prefix(Text::new("/", true));
        let swap = regex("/([^/]+)/([^/]+)", r"/\2/\1");
        assert_eq!(rewritten(&swap, &prefix, "/a/b/c/d?x=/e/f"), "/b/a/d/c?x=/e/f");
        assert_eq!(rewritten(&regex("b", "$1"), &prefix, "/abc"), "/a$1c");
    }

    #[test]
    fn ports_and_dots_are_cut() {
        assert_eq!(StripPort::Any.apply(b"a:80", None), Some(&b"a"[..]));
        assert_eq!(StripPort::Any.apply(b"[::1]:80", None), Some(&b"[::1]"[..]));
        assert_eq!(StripPort::Any.apply(b"[::1]", None), None);
        assert_eq!(StripPort::Any.apply(b"a:", None), None);
        assert_eq!(StripPort::Matching.apply(b"a:80", Some(80)), Some(&b"a"[..]));
        assert_eq!(StripPort::Matching.apply(b"a:80", Some(81)), None);
        assert_eq!(StripPort::No.apply(b"a:80", Some(80)), None);
        let mut out = Vec::new();
        assert!(without_trailing_dot(b"a.com.:80", &mut out));
        assert_eq!(out, b"a.com:80");
        assert!(without_trailing_dot(b"a.", &mut out));
        assert!(!without_trailing_dot(b"a", &mut out));
        assert!(!without_trailing_dot(b"", &mut out));
    }
}
