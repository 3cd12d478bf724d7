//! Parameters of a path's query that are added and taken away.
//!
//! As in Envoy, the query is read with its escapes decoded, sorted by names, and written as it is by then: what an
//! escape stood for stands for itself. Only blanks, control characters and what is no ASCII is written as an escape
//! again, for it would end the line in which the path stands.

use towpath_proto::Head;

use crate::format::{Facts, Format};
use crate::header_ops::HeaderAction;
use crate::uri::query::{Parameters, decoded, escape};

/// Envoy `KeyValueMutation`.
#[derive(Clone, Debug)]
pub enum QueryMutation {
    /// `remove`.
    Remove(Box<[u8]>),
    /// `append`.
    Set {
        /// `record.key`.
        name: Box<[u8]>,
        /// `record.value`, which is written with escapes.
        value: Format,
        /// `action`.
        action: HeaderAction,
    },
}

/// Changes the query of a request's path by these, one after the other.
pub(super) fn apply(mutations: &[QueryMutation], head: &mut Head, facts: &Facts<'_>) {
    if mutations.is_empty() || head.path().is_empty() {
        return;
    }
    let mut parameters = Parameters::of(head.path(), |text| decoded(text).collect());
    let facts = Facts { request: Some(&*head), ..*facts };
    mutations.iter().for_each(|mutation| mutation.apply(&mut parameters, &facts));
    let path = parameters.in_path(head.path());
    head.set_path(&path);
}

impl QueryMutation {
    fn apply(&self, parameters: &mut Parameters, facts: &Facts<'_>) {
        let (name, value, action) = match self {
            Self::Remove(name) => {
                parameters.0.remove(&**name);
                return;
            }
            Self::Set { name, value, action } => (name, value, action),
        };
        let is_there = parameters.0.contains_key(&**name);
        let (is_set, replaces) = match action {
            HeaderAction::Append => (true, false),
            HeaderAction::AddIfAbsent => (!is_there, false),
            HeaderAction::Overwrite => (true, true),
            HeaderAction::OverwriteIfExists => (is_there, true),
        };
        if !is_set {
            return;
        }
        let mut plain = Vec::new();
        value.write(&mut plain, facts);
        let mut text = Vec::with_capacity(plain.len());
        plain.iter().for_each(|byte| escape(*byte, is_unreserved, &mut text));
        let values = parameters.0.entry(name.to_vec()).or_default();
        if replaces {
            values.clear();
        }
        values.push(text);
    }
}

/// What stands for itself in a value: letters, digits and `*-._`.
const fn is_unreserved(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'*' | b'-' | b'.' | b'_')
}

#[cfg(test)]
mod tests {
    use towpath_proto::Instant;

    use super::*;
    use crate::format::FormatOptions;
    use crate::record::Record;

    fn changed(path: &str, mutations: &[QueryMutation]) -> String {
        let mut head = Head::request(b"GET", b"http", b"h", path.as_bytes());
        let record = Record::default();
        apply(mutations, &mut head, &Facts::new(&record, Instant::ZERO));
        String::from_utf8(head.path().to_vec()).unwrap()
    }

    fn set(name: &str, value: &str, action: HeaderAction) -> QueryMutation {
        let value = Format::header(value, &FormatOptions::default()).unwrap();
        QueryMutation::Set { name: name.as_bytes().into(), value, action }
    }

    #[test]
    fn parameters_are_added_replaced_and_taken_out() {
        use HeaderAction::{AddIfAbsent, Append, Overwrite, OverwriteIfExists};
        let one = |path, mutation| changed(path, &[mutation]);
        assert_eq!(one("/p", set("a", "1", Append)), "/p?a=1");
        assert_eq!(one("/p?b=2&a=0&b=1", set("a", "1", Append)), "/p?a=0&a=1&b=2&b=1");
        assert_eq!(one("/p?a=0", set("a", "1", AddIfAbsent)), "/p?a=0");
        assert_eq!(one("/p?b", set("a", "1", AddIfAbsent)), "/p?a=1&b=");
        assert_eq!(one("/p?a=0&a=2", set("a", "1", Overwrite)), "/p?a=1");
        assert_eq!(one("/p?b=0", set("a", "1", OverwriteIfExists)), "/p?b=0");
        assert_eq!(one("/p?a=0", set("a", "x y&z", OverwriteIfExists)), "/p?a=x%20y%26z");
        assert_eq!(one("/p?a=0&b=1&a", QueryMutation::Remove(b"a"[..].into())), "/p?b=1");
        assert_eq!(one("/p?a=0", QueryMutation::Remove(b"a"[..].into())), "/p");
    }

    #[test]
    fn what_would_end_the_line_stays_an_escape() {
        let none = [QueryMutation::Remove(b"none"[..].into())];
        assert_eq!(changed("/p?a=%0d%0aX%20y%26z%ff&%zz", &none), "/p?%zz=&a=%0D%0AX%20y&z%FF");
        assert_eq!(changed("/p?", &none), "/p");
        assert_eq!(changed("/p?&&a&", &none), "/p?=&=&a=");
    }
}
