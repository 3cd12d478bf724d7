//! Envoy `type.matcher.v3.StringMatcher`.

use super::MatcherError;
#[cfg(feature = "serving")]
use super::full_regex;
use crate::expression::Regex;

/// Compares bytes with a pattern.
#[derive(Clone, Debug)]
pub struct StringMatcher {
    kind: Kind,
    ignore_case: bool,
}

/// The pattern; in lower case when case does not count.
#[derive(Clone, Debug)]
enum Kind {
    Exact(Box<[u8]>),
    Prefix(Box<[u8]>),
    Suffix(Box<[u8]>),
    Contains(Box<[u8]>),
    #[cfg_attr(not(feature = "serving"), expect(dead_code, reason = "none can be made"))]
    Regex(Box<Regex>),
}

impl StringMatcher {
    /// `exact`.
    #[must_use]
    pub fn exact(text: &str, ignore_case: bool) -> Self {
        Self { kind: Kind::Exact(pattern(text, ignore_case)), ignore_case }
    }

    /// `prefix`.
    ///
    /// # Errors
    /// When the prefix is empty.
    pub fn prefix(text: &str, ignore_case: bool) -> Result<Self, MatcherError> {
        let text = not_empty(text, "prefix")?;
        Ok(Self { kind: Kind::Prefix(pattern(text, ignore_case)), ignore_case })
    }

    /// `suffix`.
    ///
    /// # Errors
    /// When the suffix is empty.
    pub fn suffix(text: &str, ignore_case: bool) -> Result<Self, MatcherError> {
        let text = not_empty(text, "suffix")?;
        Ok(Self { kind: Kind::Suffix(pattern(text, ignore_case)), ignore_case })
    }

    /// `contains`.
    ///
    /// # Errors
    /// When there is nothing to look for.
    pub fn contains(text: &str, ignore_case: bool) -> Result<Self, MatcherError> {
        let text = not_empty(text, "substring")?;
        Ok(Self { kind: Kind::Contains(pattern(text, ignore_case)), ignore_case })
    }

    /// `safe_regex`: the whole value must match.
    ///
    /// # Errors
    /// When the expression does not compile.
    #[cfg(feature = "serving")]
    pub fn regex(text: &str) -> Result<Self, MatcherError> {
        Ok(Self { kind: Kind::Regex(Box::new(full_regex(text)?)), ignore_case: false })
    }

    /// Whether `value` matches.
    #[must_use]
    pub fn matches(&self, value: &[u8]) -> bool {
        match &self.kind {
            Kind::Exact(text) => self.same(value, text),
            Kind::Prefix(text) => {
                value.get(..text.len()).is_some_and(|start| self.same(start, text))
            }
            Kind::Suffix(text) => value
                .len()
                .checked_sub(text.len())
                .is_some_and(|start| self.same(&value[start..], text)),
            Kind::Contains(text) => value.windows(text.len()).any(|part| self.same(part, text)),
            Kind::Regex(regex) => regex.is_match(value),
        }
    }

    fn same(&self, value: &[u8], text: &[u8]) -> bool {
        if self.ignore_case { value.eq_ignore_ascii_case(text) } else { value == text }
    }
}

fn pattern(text: &str, ignore_case: bool) -> Box<[u8]> {
    let text = if ignore_case { text.to_ascii_lowercase() } else { text.to_owned() };
    text.into_bytes().into_boxed_slice()
}

fn not_empty<'a>(text: &'a str, kind: &'static str) -> Result<&'a str, MatcherError> {
    if text.is_empty() { Err(MatcherError::Empty { kind }) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_compares_its_end() {
        let cases: [(StringMatcher, &[&str], &[&str]); 5] = [
            (StringMatcher::exact("Ab", false), &["Ab"], &["ab", "A", "Abc", ""]),
            (StringMatcher::prefix("Ab", false).unwrap(), &["Ab", "Abc"], &["A", "aAb", ""]),
            (StringMatcher::suffix("Ab", false).unwrap(), &["Ab", "cAb"], &["b", "Abc", ""]),
            (StringMatcher::contains("Ab", false).unwrap(), &["Ab", "cAbc"], &["A", "ab", ""]),
            (StringMatcher::regex("a|ab").unwrap(), &["a", "ab"], &["abc", "ca", ""]),
        ];
        for (matcher, yes, no) in cases {
            for value in yes {
                assert!(matcher.matches(value.as_bytes()), "{matcher:?} {value}");
            }
            for value in no {
                assert!(!matcher.matches(value.as_bytes()), "{matcher:?} {value}");
            }
        }
    }

    #[test]
    fn case_does_not_count_when_told() {
        for matcher in [
            StringMatcher::exact("aB", true),
            StringMatcher::prefix("aB", true).unwrap(),
            StringMatcher::suffix("aB", true).unwrap(),
            StringMatcher::contains("aB", true).unwrap(),
        ] {
            assert!(matcher.matches(b"AB"), "{matcher:?}");
            assert!(matcher.matches(b"ab"), "{matcher:?}");
            assert!(!matcher.matches(b"b"), "{matcher:?}");
        }
    }

    #[test]
    fn empty_patterns_are_refused_except_exact() {
        assert!(StringMatcher::prefix("", false).is_err());
        assert!(StringMatcher::suffix("", false).is_err());
        assert!(StringMatcher::contains("", false).is_err());
        assert!(StringMatcher::exact("", false).matches(b""));
    }
}
