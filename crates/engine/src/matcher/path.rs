//! Paths of requests.

use std::sync::Arc;

use towpath_proto::Method;

use crate::expression::Regex;

/// How a path is matched.
#[derive(Debug)]
pub enum PathMatch {
    /// `prefix`.
    Prefix(Text),
    /// `path`: the whole path without its query.
    Exact(Text),
    /// `path_separated_prefix`: the prefix alone, or followed by `/`.
    SeparatedPrefix(Text),
    /// `safe_regex`: the whole path without its query.
    Regex(Regex),
    /// `connect_matcher`: CONNECT requests.
    Connect,
    /// `path_match_policy` with a template: the whole path without its query.
    Template(PathTemplate),
}

/// Envoy `UriTemplateMatchConfig`: a path in which some parts may be others.
#[derive(Clone, Debug)]
pub struct PathTemplate {
    /// What it comes to: the whole path, with a group for each variable.
    pub regex: Regex,
    /// The names of the variables, in the order of the groups.
    pub variables: Box<[Box<str>]>,
}

/// Bytes compared with or without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The bytes; lower case when case does not count.
    pub bytes: Arc<[u8]>,
    /// `case_sensitive`.
    pub case_sensitive: bool,
}

impl PathMatch {
    /// Whether a request has this path, which is without its query, and empty for CONNECT.
    #[must_use]
    #[inline(always)]
    pub fn matches(&self, method: Method, path: &[u8]) -> bool {
        if let Self::Connect = self {
            return method == Method::Connect;
        }
        // Only a route for CONNECT takes a request without a path.
        if path.is_empty() {
            return false;
        }
        match self {
            Self::Prefix(prefix) => prefix.starts(path),
            Self::Exact(exact) => exact.bytes.len() == path.len() && exact.starts(path),
            Self::SeparatedPrefix(prefix) => {
                prefix.starts(path) && matches!(path.get(prefix.bytes.len()), None | Some(b'/'))
            }
            Self::Regex(regex) => regex.is_match(path),
            Self::Template(template) => template.regex.is_match(path),
            Self::Connect => false,
        }
    }
}

impl Text {
    /// Compiles `text`.
    #[must_use]
    pub fn new(text: &str, case_sensitive: bool) -> Self {
        let text = if case_sensitive { text.to_owned() } else { text.to_ascii_lowercase() };
        Self { bytes: text.into_bytes().into(), case_sensitive }
    }

    /// Whether `value` begins with this text.
    #[must_use]
    #[inline(always)]
    pub fn starts(&self, value: &[u8]) -> bool {
        let Some(start) = value.get(..self.bytes.len()) else { return false };
        if self.case_sensitive {
            *start == *self.bytes
        } else {
            start.eq_ignore_ascii_case(&self.bytes)
        }
    }
}
