//! Parameters of a path's query that are added and taken away.
//!
//! As in Envoy, the query is read with its escapes decoded, sorted by names, and written as it is by then: what an
//! escape stood for stands for itself. Only blanks, control characters and what is no ASCII is written as an escape
//! again, for it would end the line in which the path stands.

use std::collections::BTreeMap;

use towpath_proto::Head;

use crate::format::{Facts, Format};
use crate::header_ops::HeaderAction;
use crate::uri::query::decoded;

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

type Parameters = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// Changes the query of a request's path by these, one after the other.
pub(super) fn apply(mutations: &[QueryMutation], head: &mut Head, facts: &Facts<'_>) {
    if mutations.is_empty() || head.path().is_empty() {
        return;
    }
    let start = head.path().iter().position(|byte| *byte == b'?');
    let query = start.map_or(&[][..], |start| &head.path()[start + 1..]);
    let mut parameters = parse(query);
    let facts = Facts { request: Some(&*head), ..*facts };
    mutations.iter().for_each(|mutation| mutation.apply(&mut parameters, &facts));
    let mut path = head.path()[..start.unwrap_or_else(|| head.path().len())].to_vec();
    write(&parameters, &mut path);
    head.set_path(&path);
}

impl QueryMutation {
    fn apply(&self, parameters: &mut Parameters, facts: &Facts<'_>) {
        let (name, value, action) = match self {
            Self::Remove(name) => {
                parameters.remove(&**name);
                return;
            }
            Self::Set { name, value, action } => (name, value, action),
        };
        let is_there = parameters.contains_key(&**name);
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
        let values = parameters.entry(name.to_vec()).or_default();
        if replaces {
            values.clear();
        }
        values.push(text);
    }
}

/// `&` alone separates; a parameter without `=` has an empty value, and nothing between two of them is one too.
fn parse(query: &[u8]) -> Parameters {
    let mut parameters = Parameters::new();
    if query.is_empty() {
        return parameters;
    }
    // What follows the last `&` is one only if it is something.
    let query = query.strip_suffix(b"&").unwrap_or(query);
    for part in query.split(|byte| *byte == b'&') {
        let equals = part.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(equals) => (&part[..equals], &part[equals + 1..]),
            None => (part, &[][..]),
        };
        parameters.entry(decoded(name).collect()).or_default().push(decoded(value).collect());
    }
    parameters
}

fn write(parameters: &Parameters, path: &mut Vec<u8>) {
    let mut delimiter = b'?';
    for (name, values) in parameters {
        for value in values {
            path.push(std::mem::replace(&mut delimiter, b'&'));
            name.iter().for_each(|byte| escape(*byte, u8::is_ascii_graphic, path));
            path.push(b'=');
            value.iter().for_each(|byte| escape(*byte, u8::is_ascii_graphic, path));
        }
    }
}

/// What stands for itself in a value: letters, digits and `*-._`.
const fn is_unreserved(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'*' | b'-' | b'.' | b'_')
}

fn escape(byte: u8, is_plain: fn(&u8) -> bool, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if is_plain(&byte) {
        out.push(byte);
    } else {
        out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
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
