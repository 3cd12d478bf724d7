//! A request's hash, by which balancers and weighted clusters choose. Envoy: `RouteAction.HashPolicy`.

use std::io::Write as _;
use std::net::IpAddr;

use towpath_proto::{Address, Head};

use crate::balancer::hash::xx_hash;
use crate::cookie::cookie;
use crate::format::address_text;
use crate::number::AddressText;
use crate::snapshot::route::{HashPolicy, HashSource};
use crate::stream_info::{StateObject, StreamInfo};
use crate::uri::query;

/// What is hashed of a request.
#[derive(Clone, Copy, Debug)]
pub struct Hashed<'a> {
    /// Its head.
    pub head: &'a Head,
    /// Its client's address.
    pub client: Option<IpAddr>,
    /// What filters have left.
    pub info: Option<&'a StreamInfo>,
}

/// The hash that policies make of a request together; `None` where none of them finds anything. `give` makes the value
/// of a cookie with this name, and with what follows the value, for a client that has none, if it is to have one.
#[must_use]
pub fn request_hash(
    policies: &[HashPolicy],
    of: Hashed<'_>,
    mut give: impl FnMut(&[u8], &[u8]) -> Option<[u8; 16]>,
) -> Option<u64> {
    let mut hash = None;
    for HashPolicy { source, is_terminal } in policies {
        if let Some(found) = source.hash(of, &mut give) {
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

/// The hash of an object of the filter state that can be hashed.
#[must_use]
pub(crate) fn state_hash(object: &StateObject) -> Option<u64> {
    object.is_hashable.then(|| xx_hash(&object.value, 0))
}

/// The value of the cookie that a connection between these two is given: that of all its requests.
#[must_use]
pub(crate) fn cookie_value(remote: &Address, local: &Address) -> [u8; 16] {
    let ends = [address_text(remote), address_text(local)].concat();
    let mut value = [0; 16];
    // Sixteen digits are what 64 bits have.
    let _ = write!(&mut value[..], "{:016x}", xx_hash(&ends, 0));
    value
}

impl HashSource {
    fn hash(
        &self,
        of: Hashed<'_>,
        give: &mut impl FnMut(&[u8], &[u8]) -> Option<[u8; 16]>,
    ) -> Option<u64> {
        let Hashed { head, client, info } = of;
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
            Self::Cookie { name, given } => match (cookie(head, name), given) {
                (Some(value), _) => Some(xx_hash(value, 0)),
                (None, Some(given)) => give(name, given).map(|value| xx_hash(&value, 0)),
                (None, None) => None,
            },
            Self::FilterState(name) => info?.read_state(name, |object| state_hash(object?)),
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
            request_hash(&policies, Hashed { head: &head, client, info: None }, |_, _| None)
        };
        let xx = |text: &str| xx_hash(text.as_bytes(), 0);
        let cookie = |name: &str| HashSource::Cookie { name: name.as_bytes().into(), given: None };
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

    #[test]
    fn a_client_without_a_cookie_is_given_one() {
        let client = Address::Ip("10.0.0.1:4000".parse().unwrap());
        let server = Address::Ip("[::1]:80".parse().unwrap());
        let value = cookie_value(&client, &server);
        let wanted = format!("{:016x}", xx_hash(b"10.0.0.1:4000[::1]:80", 0));
        assert_eq!(value.as_slice(), wanted.as_bytes());
        let given = Some((*b"; HttpOnly").into());
        let source = HashSource::Cookie { name: (*b"id").into(), given };
        let policies = [HashPolicy { source, is_terminal: false }];
        let mut head = Head::request(b"GET", b"http", b"h", b"/");
        let mut made = Vec::new();
        let hashed = Hashed { head: &head, client: None, info: None };
        let hash = request_hash(&policies, hashed, |name, rest| {
            made.push((name.to_vec(), rest.to_vec()));
            Some(value)
        });
        assert_eq!(hash, Some(xx_hash(&value, 0)));
        assert_eq!(made, [(b"id".to_vec(), b"; HttpOnly".to_vec())]);
        // The next request brings it, and goes to the same host.
        head.append_bytes(b"cookie", &[b"id=", &value[..]].concat());
        let hashed = Hashed { head: &head, client: None, info: None };
        assert_eq!(request_hash(&policies, hashed, |_, _| None), hash);
    }

    #[test]
    fn only_what_can_be_hashed_is() {
        let info = StreamInfo::default();
        for (name, is_hashable) in [("a", true), ("b", false)] {
            let object =
                StateObject { value: (*b"v").into(), is_hashable, ..StateObject::default() };
            info.set_state(name, object).unwrap();
        }
        let head = Head::request(b"GET", b"http", b"h", b"/");
        let hash = |name: &str| {
            let source = HashSource::FilterState(name.into());
            let of = Hashed { head: &head, client: None, info: Some(&info) };
            request_hash(&[HashPolicy { source, is_terminal: false }], of, |_, _| None)
        };
        assert_eq!((hash("a"), hash("b"), hash("c")), (Some(xx_hash(b"v", 0)), None, None));
    }
}
