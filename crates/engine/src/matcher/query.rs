//! Envoy `config.route.v3.QueryParameterMatcher`.

use super::StringMatcher;
use crate::uri::query;

/// Compares a parameter of the query string with a pattern.
#[derive(Clone, Debug)]
pub struct QueryMatcher {
    name: Box<[u8]>,
    test: QueryTest,
}

/// What is asked of the parameter.
#[derive(Clone, Debug)]
pub enum QueryTest {
    /// `present_match`: there, or not there.
    Present(bool),
    /// `string_match`, on the first value, without percent-decoding.
    Text(StringMatcher),
}

impl QueryMatcher {
    /// A matcher of the parameter `name`.
    #[must_use]
    pub fn new(name: &str, test: QueryTest) -> Self {
        Self { name: name.as_bytes().into(), test }
    }

    /// Whether the query of `target` (a path with or without `?`) matches.
    #[must_use]
    pub fn matches(&self, target: &[u8]) -> bool {
        let value = query::first(target, &self.name);
        match &self.test {
            QueryTest::Present(present) => value.is_some() == *present,
            QueryTest::Text(text) => value.is_some_and(|value| text.matches(value)),
        }
    }
}
