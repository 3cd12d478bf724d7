//! Names of the form `xdstp://AUTHORITY/TYPE/ID?NAME=VALUE&…`, and of collections, whose `ID` ends with `*`
//! (xRFC TP1).
//!
//! Arrives: a name as a file or a control plane writes it. Leaves: the one way in which it is written to control
//! planes and compared, with its parameters sorted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A name of that form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    authority: Vec<u8>,
    kind: String,
    id: Vec<u8>,
    parameters: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Name {
    /// Reads one.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = text.strip_prefix("xdstp://").ok_or("does not begin with xdstp://")?;
        if rest.contains('#') {
            return Err("has directives behind a #, which are not read");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (kind, id) = path.split_once('/').unwrap_or((path, ""));
        if kind.is_empty() {
            return Err("names no type of resource");
        }
        let mut parameters = BTreeMap::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            // The first counts.
            parameters.entry(decoded(name)).or_insert_with(|| decoded(value));
        }
        Ok(Self {
            authority: decoded(authority),
            kind: kind.to_owned(),
            id: decoded(id),
            parameters,
        })
    }

    /// The type of the resource, `envoy.config.cluster.v3.Cluster`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether it is that of a collection: `…/*`.
    #[must_use]
    pub fn is_collection(&self) -> bool {
        self.id.rsplit(|byte| *byte == b'/').next() == Some(b"*")
    }

    /// Adds a parameter, unless it has one of that name.
    pub fn add(&mut self, name: &str, value: &str) {
        self.parameters.entry(name.into()).or_insert_with(|| value.into());
    }

    /// The collection that it is of: the last part of its id is the star.
    #[must_use]
    pub fn collection(mut self) -> Self {
        let folder = self.id.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        self.id.truncate(folder);
        self.id.push(b'*');
        self
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = encoded(&self.authority, b"%/?#");
        write!(f, "xdstp://{authority}/{}", self.kind)?;
        if !self.id.is_empty() {
            write!(f, "/{}", encoded(&self.id, b"%?#[]"))?;
        }
        let pair = |(name, value): (&Vec<u8>, &Vec<u8>)| {
            format!("{}={}", encoded(name, b"%#[]&="), encoded(value, b"%#[]&="))
        };
        let mut pairs: Vec<String> = self.parameters.iter().map(pair).collect();
        pairs.sort();
        for (place, pair) in pairs.iter().enumerate() {
            write!(f, "{}{pair}", if place == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// A name as it is compared. One that is not of that form is what it is.
pub(crate) fn canonical(name: &str) -> Cow<'_, str> {
    if !name.starts_with("xdstp:") {
        return Cow::Borrowed(name);
    }
    Name::parse(name).map_or(Cow::Borrowed(name), |name| name.to_string().into())
}

/// Whether a resource of this name is in a collection.
pub(crate) fn is_within(name: &str, collection: &str) -> bool {
    Name::parse(name).is_ok_and(|name| name.collection().to_string() == collection)
}

fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let escape = after.first_chunk::<2>().filter(|_| *byte == b'%');
        let value = escape.and_then(|[high, low]| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
        });
        bytes.push(value.unwrap_or(*byte));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    bytes
}

/// With an escape for each of these, for what is no ASCII, and for controls, as Envoy writes it.
fn encoded(bytes: &[u8], reserved: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if (b' '..b'~').contains(byte) && !reserved.contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_in_one_way() {
        for (text, wanted) in [
            ("xdstp://a/t.T/x", "xdstp://a/t.T/x"),
            ("xdstp://a/t.T/x?b=2&a=1", "xdstp://a/t.T/x?a=1&b=2"),
            ("xdstp:///t.T/x/y?a=1&a=2&&c", "xdstp:///t.T/x/y?a=1&c="),
            ("xdstp://a%2fb/t.T/%78%2F%3f?%26=%3D", "xdstp://a%2Fb/t.T/x/%3F?%26=%3D"),
            ("xdstp://a/t.T", "xdstp://a/t.T"),
            ("xdstp://a/t.T/é~ %zz", "xdstp://a/t.T/%C3%A9%7E %25zz"),
        ] {
            assert_eq!(canonical(text), wanted);
            assert_eq!(canonical(wanted), wanted, "again");
        }
        for other in ["a", "", "http://a/t.T/x", "xdstp:a", "xdstp://a", "xdstp://a//x"] {
            assert_eq!(canonical(other), other);
        }
    }

    #[test]
    fn a_collection_has_what_is_in_its_folder_with_its_parameters() {
        let collection = canonical("xdstp://a/t.T/x/*?b=2&a=1");
        assert!(Name::parse(&collection).unwrap().is_collection());
        for (name, is_in) in [
            ("xdstp://a/t.T/x/y?a=1&b=2", true),
            ("xdstp://a/t.T/x/y?b=2&a=1", true),
            ("xdstp://a/t.T/x/y?a=1", false),
            ("xdstp://a/t.T/x/y/z?a=1&b=2", false),
            ("xdstp://a/t.T/y?a=1&b=2", false),
            ("xdstp://b/t.T/x/y?a=1&b=2", false),
            ("xdstp://a/t.U/x/y?a=1&b=2", false),
            ("y", false),
        ] {
            assert_eq!(is_within(name, &collection), is_in, "{name}");
        }
        assert!(is_within("xdstp://a/t.T/y", "xdstp://a/t.T/*"));
        assert!(!Name::parse("xdstp://a/t.T/x*").unwrap().is_collection());
    }

    #[test]
    fn parameters_of_the_name_come_before_others() {
        let mut name = Name::parse("xdstp://a/t.T/*?a=1").unwrap();
        name.add("a", "2");
        name.add("xds.node.id", "n&1");
        assert_eq!(name.to_string(), "xdstp://a/t.T/*?a=1&xds.node.id=n%261");
        assert_eq!(
            Name::parse("xdstp://a/t.T/*#alt=x"),
            Err("has directives behind a #, which are not read")
        );
    }
}
