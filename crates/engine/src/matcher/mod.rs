//! Compiled matchers: strings, headers, query parameters and access-log filters, with Envoy's meaning.
//!
//! A loader builds them once; matching never allocates.

mod alternative_name;
mod header;
mod log;
mod metadata;
mod path;
mod query;
#[cfg(feature = "serving")]
mod re2;
mod request;
mod string;
mod subject;
pub mod tree;

use std::fmt;

pub use alternative_name::{AlternativeNameKind, AlternativeNameMatcher};
pub use header::{HeaderMatcher, HeaderTest};
pub use log::{Comparison, LogFilter, Operator};
pub use metadata::{FilterStateMatcher, MetadataMatcher, StateTest, ValueMatcher};
pub use path::{PathMatch, PathTemplate, Text};
pub use query::{QueryMatcher, QueryTest};
#[cfg(feature = "serving")]
pub use re2::{full_regex, search_regex, substitution};
pub use request::{CertificateMatch, CookieMatcher, Known, RareTests};
pub use string::StringMatcher;
#[cfg(feature = "lua")]
pub(crate) use subject::joined_values;
pub use subject::{HostSubject, Input, Subject, Transport, Whose};

/// Why a matcher cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatcherError {
    /// A prefix, suffix or substring to look for is empty.
    Empty {
        /// Which kind of matcher.
        kind: &'static str,
    },
    /// A regular expression does not compile.
    Regex {
        /// The expression.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A substitution names a group that the expression has not, or has a stray backslash.
    Substitution {
        /// The substitution.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What should be a header's name is none.
    Name(String),
}

impl fmt::Display for MatcherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { kind } => write!(f, "an empty {kind} matches nothing in particular"),
            Self::Regex { pattern, reason } => {
                write!(f, "invalid regular expression '{pattern}': {reason}")
            }
            Self::Substitution { text, reason } => {
                write!(f, "invalid substitution '{text}': {reason}")
            }
            Self::Name(name) => write!(f, "'{name}' is not a header name"),
        }
    }
}

impl std::error::Error for MatcherError {}
