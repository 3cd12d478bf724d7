//! A request's hash, by which balancers and weighted clusters choose. Envoy: `RouteAction.HashPolicy`.

use std::net::IpAddr;

use towpath_proto::Head;

use crate::balancer::hash::xx_hash;
use crate::cookie::cookie;
use crate::number::AddressText;
use crate::snapshot::route::{HashPolicy, HashSource};
use crate::uri::query;

/// The hash that policies make of a request together; `None` where none of them finds anything.
#[must_use]
pub fn request_hash(policies: &[HashPolicy], head: &Head, client: Option<IpAddr>) -> Option<u64> {
    let mut hash = None;
    for HashPolicy { source, is_terminal } in policies {
        if let Some(found) = source.hash(head, client) {
            // Turned first, so that the same thing twice is not nothing.
            hash = Some(hash.map_or(0, |before: u64| before.rotate_left(1)) ^ found);
        }
        if *is_terminal && hash.is_some() {
            break;
        }
    }
    hash
}

/// The hash of a client's address, as TCP proxies make it.
#[must_use]
pub(crate) fn address_hash(client: IpAddr) -> u64 {
    xx_hash(AddressText::of(client).as_bytes(), 0)
}

impl HashSource {
    fn hash(&self, head: &Head, client: Option<IpAddr>) -> Option<u64> {
        match self {
            Self::Header(field, rewrite) => {
                let mut values = Vec::new();
                field.each(head, |value| values.push(value.to_vec()));
                values.sort_unstable();
                if let Some((pattern, substitution)) = rewrite {
                    for value in &mut values {
                        *value = pattern.replace_all(value, &**substitution).into_owned();
                    }
                }
                let chain = |seed, value: &Vec<u8>| xx_hash(value, seed);
                (!values.is_empty()).then(|| values.iter().fold(0, chain))
            }
            Self::Cookie(name) => cookie(head, name).map(|value| xx_hash(value, 0)),
            Self::SourceAddress => client.map(address_hash),
            Self::QueryParameter(name) => {
                query::first(head.path(), name).map(|value| xx_hash(value, 0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use regex::bytes::Regex;

    use super::*;
    use crate::field::Field;

    #[test]
    fn policies_are_joined_until_a_terminal_one() {
        let mut head = Head::request(b"GET", b"http", b"h", b"/a?k=v&k=w");
        head.append_bytes(b"x-user", b"b");
        head.append_bytes(b"x-user", b"a1");
        head.append_bytes(b"cookie", b"other=1; id=\"7\"; id=8; none=");
        let client = "10.0.0.1".parse().ok();
        let header = |name| HashSource::Header(Field::parse(name).unwrap(), None);
        let hash = |sources: Vec<(HashSource, bool)>| {
            let policy = |(source, is_terminal)| HashPolicy { source, is_terminal };
            let policies: Vec<_> = sources.into_iter().map(policy).collect();
            request_hash(&policies, &head, client)
        };
        let xx = |text: &str| xx_hash(text.as_bytes(), 0);
        let cookie = |name: &str| HashSource::Cookie(name.as_bytes().into());
        let parameter = |name: &str| HashSource::QueryParameter(name.as_bytes().into());
        assert_eq!(hash(Vec::new()), None);
        assert_eq!(hash(vec![(header("x-none"), true), (cookie("none"), true)]), None);
        assert_eq!(hash(vec![(header("x-user"), false)]), Some(xx_hash(b"b", xx("a1"))));
        assert_eq!(hash(vec![(cookie("id"), false)]), Some(xx("7")));
        assert_eq!(hash(vec![(HashSource::SourceAddress, false)]), Some(xx("10.0.0.1")));
        assert_eq!(hash(vec![(header(":path"), false)]), Some(xx("/a?k=v&k=w")));
        let rewrite = Some((Regex::new("[0-9]").unwrap(), b"".as_slice().into()));
        let rewritten = HashSource::Header(Field::parse("x-user").unwrap(), rewrite);
        assert_eq!(hash(vec![(rewritten, false)]), Some(xx_hash(b"b", xx("a"))));
        let both = |is_terminal| vec![(parameter("k"), is_terminal), (cookie("id"), false)];
        assert_eq!(hash(both(true)), Some(xx("v")));
        assert_eq!(hash(both(false)), Some(xx("v").rotate_left(1) ^ xx("7")));
        assert_eq!(hash(vec![(parameter("z"), true), (cookie("id"), false)]), Some(xx("7")));
    }
}
