//! Where tokens stand in a request, and how they are taken out.

use towpath_proto::{Head, HeaderName, Name};

use super::Provider;
use crate::cookie::cookie;
use crate::uri::query::{decoded, first_decoded, without};

/// Where the tokens of one or several providers stand.
#[derive(Debug, Default)]
pub(super) struct Locations {
    headers: Vec<(HeaderName, Box<[u8]>, Issuers)>,
    parameters: Vec<(Box<[u8]>, Issuers)>,
    cookies: Vec<(Box<[u8]>, Issuers)>,
}

/// The issuers whose tokens may stand at a place; an empty name stands for all.
#[derive(Debug, Default)]
struct Issuers(Vec<Box<str>>);

impl Issuers {
    fn add(&mut self, issuer: &str) {
        self.0.push(issuer.into());
    }

    fn has(&self, issuer: &str) -> bool {
        self.0.iter().any(|one| one.is_empty() || **one == *issuer)
    }
}

/// A token that stands in a request.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) text: Vec<u8>,
    pub(super) at: Place,
}

/// Where; a place is numbered as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Header(usize),
    Parameter(usize),
    Cookie(usize),
}

impl Locations {
    pub(super) fn of<'a>(providers: impl IntoIterator<Item = &'a Provider>) -> Self {
        let mut locations = Self::default();
        for provider in providers {
            locations.add(provider);
        }
        // In Envoy's order, which decides what is read first.
        let key = |it: &(HeaderName, Box<[u8]>, Issuers)| [it.0.as_bytes(), &it.1].concat();
        locations.headers.sort_by_key(key);
        locations.parameters.sort_by(|one, other| one.0.cmp(&other.0));
        locations.cookies.sort_by(|one, other| one.0.cmp(&other.0));
        locations
    }

    fn add(&mut self, provider: &Provider) {
        for (name, prefix) in &provider.headers {
            let known = self.headers.iter_mut().find(|it| it.0 == *name && it.1 == *prefix);
            match known {
                Some((_, _, issuers)) => issuers.add(&provider.issuer),
                None => {
                    let mut issuers = Issuers::default();
                    issuers.add(&provider.issuer);
                    self.headers.push((name.clone(), prefix.clone(), issuers));
                }
            }
        }
        for name in &provider.parameters {
            add_named(&mut self.parameters, name, &provider.issuer);
        }
        for name in &provider.cookies {
            add_named(&mut self.cookies, name, &provider.issuer);
        }
    }

    /// All tokens of a request.
    pub(super) fn find(&self, head: &Head) -> Vec<Found> {
        let mut found = Vec::new();
        for (number, (name, prefix, _)) in self.headers.iter().enumerate() {
            let at = Place::Header(number);
            let tokens = values(head, name);
            let tokens = tokens.iter().filter_map(|value| behind(value, prefix));
            found.extend(tokens.map(|text| Found { text: text.to_vec(), at }));
        }
        for (number, (name, _)) in self.parameters.iter().enumerate() {
            let value = first_decoded(head.path(), name);
            let at = Place::Parameter(number);
            found.extend(value.map(|text| Found { text: decoded(text).collect(), at }));
        }
        for (number, (name, _)) in self.cookies.iter().enumerate() {
            let at = Place::Cookie(number);
            found.extend(cookie(head, name).map(|text| Found { text: text.to_vec(), at }));
        }
        found
    }

    /// Whether an issuer's tokens may stand there.
    pub(super) fn allows(&self, at: Place, issuer: &str) -> bool {
        let issuers = match at {
            Place::Header(number) => self.headers.get(number).map(|it| &it.2),
            Place::Parameter(number) => self.parameters.get(number).map(|it| &it.1),
            Place::Cookie(number) => self.cookies.get(number).map(|it| &it.1),
        };
        issuers.is_some_and(|issuers| issuers.has(issuer))
    }

    /// Takes away what stands there. Cookies stay, as in Envoy.
    pub(super) fn remove(&self, at: Place, head: &mut Head) {
        match at {
            Place::Header(number) => {
                if let Some((name, ..)) = self.headers.get(number) {
                    head.remove_named(name);
                }
            }
            Place::Parameter(number) => {
                if let Some((name, _)) = self.parameters.get(number) {
                    let path = without(head.path(), name);
                    head.set_path(&path);
                }
            }
            Place::Cookie(_) => {}
        }
    }
}

fn add_named(list: &mut Vec<(Box<[u8]>, Issuers)>, name: &[u8], issuer: &str) {
    match list.iter_mut().find(|(known, _)| **known == *name) {
        Some((_, issuers)) => issuers.add(issuer),
        None => {
            let mut issuers = Issuers::default();
            issuers.add(issuer);
            list.push((name.into(), issuers));
        }
    }
}

/// The values of a header. Several of `authorization` count as one, as in Envoy, so that none is overlooked.
fn values(head: &Head, name: &HeaderName) -> Vec<Vec<u8>> {
    let values = head.get_all(name);
    if name.name() != Name::Authorization {
        return values.map(<[u8]>::to_vec).collect();
    }
    let all: Vec<_> = values.collect();
    if all.is_empty() { Vec::new() } else { vec![all.join(&b',')] }
}

/// What stands behind a prefix, from the first byte on that a token can begin with; where none can, all.
fn behind<'a>(value: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    if prefix.is_empty() {
        return Some(value);
    }
    let start = memchr::memmem::find(value, prefix)? + prefix.len();
    let begins = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    match value[start..].iter().position(begins) {
        Some(at) => Some(&value[start + at..]),
        None => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_begins_behind_its_prefix() {
        let cases: [(&str, &str, Option<&str>); 8] = [
            ("Bearer a.b", "Bearer ", Some("a.b")),
            ("Bearer   a.b c", "Bearer ", Some("a.b c")),
            ("x Bearer a", "Bearer ", Some("a")),
            ("bearer a", "Bearer ", None),
            ("Bearer ", "Bearer ", Some("Bearer ")),
            ("Bearer ?\"-a", "Bearer ", Some("-a")),
            ("a", "", Some("a")),
            ("", "Bearer ", None),
        ];
        for (value, prefix, wanted) in cases {
            let found = behind(value.as_bytes(), prefix.as_bytes());
            assert_eq!(found, wanted.map(str::as_bytes), "{value}");
        }
    }
}
