//! What a route does to the path and the authority of a request that it forwards.

use regex::bytes::Regex;
use towpath_proto::Head;

use super::index::port_start;
use super::path::path_end;
use crate::snapshot::http::StripPort;
use crate::snapshot::route::{Forward, HostRewrite, PathMatch, PathRewrite, WeightedCluster};

impl PathRewrite {
    /// Writes the new target to `out`, which is emptied; false when it stays as it is. The query is kept.
    /// (Envoy puts the old one into `x-envoy-original-path`, which is the caller's business.)
    pub fn apply(&self, matched: &PathMatch, target: &[u8], out: &mut Vec<u8>) -> bool {
        let end = path_end(target);
        out.clear();
        match self {
            Self::Keep => return false,
            Self::Prefix(prefix) => {
                let length = match matched {
                    PathMatch::Prefix(text) | PathMatch::SeparatedPrefix(text) => {
                        text.bytes.len().min(end)
                    }
                    PathMatch::Exact(_) | PathMatch::Regex(_) => end,
                    PathMatch::Connect => return false,
                };
                out.extend_from_slice(prefix);
                out.extend_from_slice(&target[length..]);
            }
            Self::Regex { pattern, substitution } => {
                out.extend_from_slice(&pattern.replace_all(&target[..end], &substitution[..]));
                out.extend_from_slice(&target[end..]);
            }
        }
        true
    }
}

impl Forward {
    /// Writes the new authority to `out`, which is emptied; false when it stays as it is. `upstream` is the name
    /// of the host that was picked, for `auto_host_rewrite`.
    pub fn rewrite_host(
        &self,
        head: &Head,
        weighted: Option<&WeightedCluster>,
        upstream: &str,
        out: &mut Vec<u8>,
    ) -> bool {
        out.clear();
        match &self.host {
            HostRewrite::Keep => {}
            HostRewrite::Literal(host) => out.extend_from_slice(host),
            HostRewrite::Auto => out.extend_from_slice(upstream.as_bytes()),
            HostRewrite::Header(name) => {
                out.extend_from_slice(head.get_named(name).unwrap_or_default());
            }
            HostRewrite::PathRegex { pattern, substitution } => {
                rewrite_by_path(head, pattern, substitution, out);
            }
        }
        // The route's own rewrite wins over the weighted cluster's.
        if out.is_empty()
            && let Some(host) = weighted.and_then(|cluster| cluster.host_rewrite.as_ref())
        {
            out.extend_from_slice(host);
        }
        !out.is_empty()
    }
}

fn rewrite_by_path(head: &Head, pattern: &Regex, substitution: &[u8], out: &mut Vec<u8>) {
    let path = head.path();
    out.extend_from_slice(&pattern.replace_all(&path[..path_end(path)], substitution));
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
pub fn without_trailing_dot(authority: &[u8], out: &mut Vec<u8>) -> bool {
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
        let mut out = b"old".to_vec();
        if !rewrite.apply(matched, target.as_bytes(), &mut out) {
            return target.to_owned();
        }
        String::from_utf8(out).unwrap()
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
