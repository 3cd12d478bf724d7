//! Envoy `type.matcher.v3.MetadataMatcher`, `ValueMatcher` and `FilterStateMatcher`.

use std::net::IpAddr;

use super::StringMatcher;
use crate::cidr::Prefix;
use crate::stream_info::{StreamInfo, Struct, Value, value_at};

/// Compares what stands at a path in metadata.
#[derive(Clone, Debug)]
pub struct MetadataMatcher {
    /// `filter`: the namespace.
    pub namespace: Box<str>,
    /// `path`, one key after another.
    pub path: Vec<Box<str>>,
    /// `value`.
    pub value: ValueMatcher,
    /// `invert`.
    pub invert: bool,
}

/// Compares a value, which may be missing.
#[derive(Clone, Debug)]
pub enum ValueMatcher {
    /// `null_match`.
    Null,
    /// `double_match.exact`.
    Number(f64),
    /// `double_match.range`: its end is not in it.
    Range(f64, f64),
    /// `string_match`.
    Text(StringMatcher),
    /// `bool_match`.
    Bool(bool),
    /// `present_match`.
    Present(bool),
    /// `list_match.one_of`: an item of a list.
    OneOf(Box<Self>),
    /// `or_match`.
    AnyOf(Vec<Self>),
}

/// Compares an object of the filter state.
#[derive(Clone, Debug)]
pub struct FilterStateMatcher {
    /// `key`.
    pub name: Box<str>,
    /// What is wanted of it.
    pub test: StateTest,
}

/// What a filter state's object is compared with.
#[derive(Clone, Debug)]
pub enum StateTest {
    /// `string_match`.
    Text(StringMatcher),
    /// `address_match`: an address in one of these, or in none of them.
    Address {
        /// `ranges`.
        ranges: Vec<Prefix>,
        /// `invert_match`.
        outside: bool,
    },
}

impl MetadataMatcher {
    /// Whether a stream's dynamic metadata match; without any they are empty.
    #[must_use]
    pub fn matches(&self, info: Option<&StreamInfo>) -> bool {
        let found = match info {
            Some(info) => {
                info.read_metadata(&self.namespace, &self.path, |it| self.value.takes(it))
            }
            None => self.value.takes(None),
        };
        found != self.invert
    }

    /// Whether metadata of the configuration match.
    pub(crate) fn matches_told(&self, told: Option<&Struct>) -> bool {
        let value = told.and_then(|told| told.get(&*self.namespace));
        self.value.takes(value.and_then(|all| all.at(&self.path))) != self.invert
    }

    /// Whether the value there matches, if there is one; how `invert` is set does not count.
    #[must_use]
    pub fn finds(&self, info: Option<&StreamInfo>) -> Option<bool> {
        info?.read_metadata(&self.namespace, &self.path, |found| {
            found.is_some().then(|| self.value.takes(found))
        })
    }

    /// Whether metadata of a configuration match.
    #[must_use]
    pub fn matches_metadata(&self, metadata: &Struct) -> bool {
        let found = metadata.get(&self.namespace).and_then(|all| all.at(&self.path));
        self.value.takes(found) != self.invert
    }

    /// Whether one namespace's metadata match.
    #[must_use]
    pub fn matches_struct(&self, entries: &Struct) -> bool {
        self.value.takes(value_at(entries, &self.path)) != self.invert
    }
}

impl ValueMatcher {
    /// Whether a value matches.
    #[must_use]
    pub fn takes(&self, value: Option<&Value>) -> bool {
        match self {
            Self::Null => value == Some(&Value::Null),
            Self::Number(wanted) => {
                matches!(value, Some(Value::Number(number)) if number.total_cmp(wanted).is_eq())
            }
            Self::Range(start, end) => {
                matches!(value, Some(Value::Number(number)) if (*start..*end).contains(number))
            }
            Self::Text(wanted) => {
                matches!(value, Some(Value::String(text)) if wanted.matches(text.as_bytes()))
            }
            Self::Bool(wanted) => matches!(value, Some(Value::Bool(flag)) if flag == wanted),
            Self::Present(wanted) => value.is_some() && *wanted,
            Self::OneOf(wanted) => {
                let Some(Value::List(items)) = value else { return false };
                items.iter().any(|item| wanted.takes(Some(item)))
            }
            Self::AnyOf(any) => any.iter().any(|one| one.takes(value)),
        }
    }
}

impl FilterStateMatcher {
    /// Whether a stream's filter state matches.
    #[must_use]
    pub fn matches(&self, info: Option<&StreamInfo>) -> bool {
        let Some(info) = info else { return false };
        info.read_state(&self.name, |object| {
            let Some(object) = object else { return false };
            match &self.test {
                StateTest::Text(wanted) => wanted.matches(&object.value),
                StateTest::Address { ranges, outside } => {
                    let text = std::str::from_utf8(&object.value).ok();
                    let address = text.and_then(|text| text.parse::<IpAddr>().ok());
                    let Some(address) = address else { return false };
                    ranges.iter().any(|range| range.contains(address)) != *outside
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_looks_at_its_own_kind() {
        let text = |text| ValueMatcher::Text(StringMatcher::exact(text, false));
        let list = Value::List(vec![Value::Number(1.0), Value::text(b"a")]);
        for (matcher, value, takes) in [
            (ValueMatcher::Null, Some(Value::Null), true),
            (ValueMatcher::Null, None, false),
            (ValueMatcher::Number(1.0), Some(Value::Number(1.0)), true),
            (ValueMatcher::Number(1.0), Some(Value::text(b"1")), false),
            (ValueMatcher::Range(1.0, 2.0), Some(Value::Number(1.0)), true),
            (ValueMatcher::Range(1.0, 2.0), Some(Value::Number(2.0)), false),
            (text("a"), Some(Value::text(b"a")), true),
            (text("a"), Some(Value::Bool(true)), false),
            (ValueMatcher::Bool(false), Some(Value::Bool(false)), true),
            (ValueMatcher::Bool(false), Some(Value::Null), false),
            (ValueMatcher::Present(true), Some(Value::Struct(Struct::new())), true),
            (ValueMatcher::Present(true), None, false),
            (ValueMatcher::Present(false), None, false),
            (ValueMatcher::OneOf(Box::new(text("a"))), Some(list.clone()), true),
            (ValueMatcher::OneOf(Box::new(text("b"))), Some(list), false),
            (ValueMatcher::OneOf(Box::new(text("a"))), Some(Value::text(b"a")), false),
            (ValueMatcher::AnyOf(vec![text("b"), ValueMatcher::Null]), Some(Value::Null), true),
        ] {
            assert_eq!(matcher.takes(value.as_ref()), takes, "{matcher:?} {value:?}");
        }
    }

    #[test]
    fn what_is_missing_matches_where_it_is_inverted() {
        let matcher = |invert| MetadataMatcher {
            namespace: "n".into(),
            path: vec!["a".into()],
            value: ValueMatcher::Present(true),
            invert,
        };
        assert!(!matcher(false).matches(None) && matcher(true).matches(None));
        let info = StreamInfo::default();
        info.add_metadata("n", [("a".into(), Value::Null)].into_iter().collect()).unwrap();
        assert!(matcher(false).matches(Some(&info)) && !matcher(true).matches(Some(&info)));
    }
}
