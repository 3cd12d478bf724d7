//! Envoy `config.route.v3.HeaderMatcher`.

use towpath_proto::Head;

use super::{MatcherError, StringMatcher};
use crate::field::Field;

/// Compares a header (or a pseudo header) with a pattern.
#[derive(Clone, Debug)]
pub struct HeaderMatcher {
    field: Field,
    test: HeaderTest,
    invert: bool,
    missing_as_empty: bool,
}

/// What is asked of the value.
#[derive(Clone, Debug)]
pub enum HeaderTest {
    /// `present_match`: there (or not there). What a matcher without a specifier means is `Present(true)`.
    Present(bool),
    /// `range_match`: a decimal number in the half-open range.
    Range {
        /// The first value.
        start: i64,
        /// The value after the last.
        end: i64,
    },
    /// `string_match`, and the older `exact_match`, `prefix_match`, `suffix_match`, `contains_match` and
    /// `safe_regex_match`.
    Text(StringMatcher),
}

impl HeaderMatcher {
    /// A matcher of the header (or of `:path`, `:method`, `:authority`, `:scheme`, `:status`) called `name`.
    ///
    /// # Errors
    /// When the name is not a header name.
    pub fn new(name: &str, test: HeaderTest) -> Result<Self, MatcherError> {
        let field = Field::parse(name).ok_or_else(|| MatcherError::Name(name.to_owned()))?;
        Ok(Self { field, test, invert: false, missing_as_empty: false })
    }

    /// With `invert_match`.
    #[must_use]
    pub fn inverted(mut self, invert: bool) -> Self {
        self.invert = invert;
        self
    }

    /// With `treat_missing_header_as_empty`.
    #[must_use]
    pub fn missing_as_empty(mut self, empty: bool) -> Self {
        self.missing_as_empty = empty;
        self
    }

    /// Whether the head matches. Of several fields of one name it is enough that one does (Envoy 1.40:
    /// `match_headers_individually`). A missing header matches nothing, inverted or not, unless it is presence
    /// that is asked for or missing means empty.
    #[must_use]
    pub fn matches(&self, head: &Head) -> bool {
        let (mut present, mut matched) = (false, false);
        self.field.each(head, |value| {
            present = true;
            matched |= self.test.holds(value);
        });
        self.decide(present, matched)
    }

    /// Whether a connection matches of which there is no head.
    #[must_use]
    pub fn matches_no_head(&self) -> bool {
        self.decide(false, false)
    }

    fn decide(&self, mut present: bool, mut matched: bool) -> bool {
        if !present && self.missing_as_empty {
            (present, matched) = (true, self.test.holds(b""));
        }
        match self.test {
            HeaderTest::Present(wanted) => (present == wanted) != self.invert,
            HeaderTest::Range { .. } | HeaderTest::Text(_) => present && matched != self.invert,
        }
    }
}

impl HeaderTest {
    fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Present(_) => true,
            Self::Range { start, end } => {
                integer(value).is_some_and(|number| (*start..*end).contains(&number))
            }
            Self::Text(text) => text.matches(value),
        }
    }
}

/// A decimal number with an optional sign.
fn integer(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.trim_ascii().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [(&str, &[&str]); 9] = [
        ("-", &[]),
        ("1", &["1"]),
        ("empty", &[""]),
        ("1 and 2", &["1", "2"]),
        ("-2", &["-2"]),
        ("10", &["10"]),
        ("+5", &["+5"]),
        ("5x", &["5x"]),
        ("xBcx", &["xBcx"]),
    ];

    /// Which of the values match.
    fn matching(matcher: &HeaderMatcher) -> Vec<&'static str> {
        let matches = |values: &[&str]| {
            let mut head = Head::request(b"GET", b"http", b"h", b"/x?q=1");
            for value in values {
                head.append_bytes(b"A", value.as_bytes());
            }
            matcher.matches(&head)
        };
        VALUES.iter().filter(|(_, values)| matches(values)).map(|(name, _)| *name).collect()
    }

    fn a(test: HeaderTest) -> HeaderMatcher {
        HeaderMatcher::new("a", test).unwrap()
    }

    /// Each line is what Envoy 1.40 answered to these requests.
    #[test]
    fn missing_inverted_and_several_values_are_envoys() {
        let exact = |text: &str| HeaderTest::Text(StringMatcher::exact(text, false));
        let range = || HeaderTest::Range { start: -2, end: 10 };
        let all = ["-", "1", "empty", "1 and 2", "-2", "10", "+5", "5x", "xBcx"];
        assert_eq!(matching(&a(HeaderTest::Present(true))), all[1..]);
        assert_eq!(matching(&a(HeaderTest::Present(false))), ["-"]);
        assert_eq!(matching(&a(HeaderTest::Present(true)).inverted(true)), ["-"]);
        assert_eq!(matching(&a(HeaderTest::Present(false)).inverted(true)), all[1..]);
        assert_eq!(matching(&a(HeaderTest::Present(true)).missing_as_empty(true)), all);
        assert!(matching(&a(HeaderTest::Present(false)).missing_as_empty(true)).is_empty());
        assert_eq!(matching(&a(exact("1"))), ["1", "1 and 2"]);
        assert_eq!(
            matching(&a(exact("1")).inverted(true)),
            ["empty", "-2", "10", "+5", "5x", "xBcx"]
        );
        assert_eq!(
            matching(&a(exact("1")).inverted(true).missing_as_empty(true)),
            ["-", "empty", "-2", "10", "+5", "5x", "xBcx"]
        );
        assert_eq!(matching(&a(exact("")).missing_as_empty(true)), ["-", "empty"]);
        assert!(matching(&a(exact("1,2"))).is_empty());
        assert_eq!(matching(&a(range())), ["1", "1 and 2", "-2", "+5"]);
        assert_eq!(matching(&a(range()).missing_as_empty(true)), ["1", "1 and 2", "-2", "+5"]);
        assert_eq!(matching(&a(range()).inverted(true)), ["empty", "10", "5x", "xBcx"]);
        let contains = StringMatcher::contains("bC", true).unwrap();
        assert_eq!(matching(&a(HeaderTest::Text(contains))), ["xBcx"]);
    }

    #[test]
    fn pseudo_headers_are_headers() {
        let head = Head::request(b"GET", b"http", b"h", b"/x?q=1");
        for (name, value) in [
            (":path", "/x?q=1"),
            (":method", "GET"),
            (":authority", "h"),
            ("Host", "h"),
            (":scheme", "http"),
        ] {
            let test = HeaderTest::Text(StringMatcher::exact(value, false));
            assert!(HeaderMatcher::new(name, test).unwrap().matches(&head), "{name}");
        }
        let status = HeaderTest::Range { start: 200, end: 300 };
        assert!(HeaderMatcher::new(":status", status).unwrap().matches(&Head::response(204)));
        assert!(HeaderMatcher::new("a b", HeaderTest::Present(true)).is_err());
    }
}
