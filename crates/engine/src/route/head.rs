//! The rules about paths and authorities, applied to a request's head.

use regex::bytes::Regex;
use towpath_proto::Head;

use super::path::{PathRules, Sanitized, path_end};
use super::rewrite::without_trailing_dot;
use crate::snapshot::http::{EscapedSlashes, StripPort};
use crate::snapshot::route::{PathMatch, PathRewrite, Redirect};

/// What became of a head whose path was made canonical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalization {
    /// Its path is canonical.
    Done,
    /// Its path cannot be made canonical: 400.
    Refused,
    /// Its path is canonical, and the client is to be sent there: 307.
    Redirect,
}

/// Makes the path canonical by `normalize_path`, `merge_slashes` and `path_with_escaped_slashes_action`.
pub fn normalize(
    head: &mut Head,
    normalize: bool,
    merge_slashes: bool,
    escaped_slashes: EscapedSlashes,
) -> Normalization {
    let rules = PathRules { normalize, merge_slashes, escaped_slashes };
    let mut path = Vec::new();
    let sanitized = rules.sanitize(head.path(), &mut path);
    match sanitized {
        Sanitized::Unchanged => Normalization::Done,
        Sanitized::Rejected => Normalization::Refused,
        Sanitized::Changed | Sanitized::Redirect => {
            head.set_path(&path);
            if sanitized == Sanitized::Redirect {
                Normalization::Redirect
            } else {
                Normalization::Done
            }
        }
    }
}

/// Cuts the authority's port: any, or only this one.
pub fn strip_port(head: &mut Head, port: Option<u16>) {
    let rule = if port.is_some() { StripPort::Matching } else { StripPort::Any };
    if let Some(name) = rule.apply(head.authority(), port) {
        let name = name.to_vec();
        head.set_authority(&name);
    }
}

/// Cuts the dot that ends the authority's name.
pub fn strip_trailing_dot(head: &mut Head) {
    let mut authority = Vec::new();
    if without_trailing_dot(head.authority(), &mut authority) {
        head.set_authority(&authority);
    }
}

/// The path of a target.
#[must_use]
pub fn without_query(target: &[u8]) -> &[u8] {
    &target[..path_end(target)]
}

/// The value with every match of the pattern replaced.
#[must_use]
pub fn substitute(pattern: &Regex, substitution: &[u8], value: &[u8]) -> Vec<u8> {
    pattern.replace_all(value, substitution).into_owned()
}

/// The target as a route rewrites it.
#[must_use]
pub fn rewrite(rewrite: &PathRewrite, matched: &PathMatch, target: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if rewrite.apply(matched, target, &mut out) { out } else { target.to_vec() }
}

/// Where a redirect points to.
#[must_use]
pub fn redirect_location(redirect: &Redirect, matched: &PathMatch, head: &Head) -> Vec<u8> {
    let mut out = Vec::new();
    redirect.location(matched, head, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_changed_in_place() {
        let mut head = Head::request(b"GET", b"http", b"a.com.:80", b"/x/../%2Fy?q=..");
        strip_trailing_dot(&mut head);
        assert_eq!(head.authority(), b"a.com:80");
        strip_port(&mut head, Some(81));
        assert_eq!(head.authority(), b"a.com:80");
        strip_port(&mut head, None);
        assert_eq!(head.authority(), b"a.com");
        let keep = EscapedSlashes::Keep;
        assert_eq!(normalize(&mut head, true, false, keep), Normalization::Done);
        assert_eq!(head.path(), b"/%2Fy?q=..");
        let redirect = EscapedSlashes::UnescapeAndRedirect;
        assert_eq!(normalize(&mut head, true, true, redirect), Normalization::Redirect);
        assert_eq!(head.path(), b"/y?q=..");
        head.set_path(b"/%00");
        assert_eq!(normalize(&mut head, true, true, keep), Normalization::Refused);
        assert_eq!(without_query(b"/a?b"), b"/a");
    }
}
