//! Finds the virtual host of an authority.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::uri::without_port;

/// Domains of a route table, indexed: exact names first, then the longest `*suffix`, then the longest
/// `prefix*`, then `*`. Case does not count.
#[derive(Clone, Debug, Default)]
pub struct HostIndex {
    exact: HashMap<Box<[u8]>, u32, Fnv>,
    suffixes: Wildcards,
    prefixes: Wildcards,
    any: Option<u32>,
}

/// Two virtual hosts claim one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateDomain(pub String);

impl fmt::Display for DuplicateDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only unique values for domains are permitted: '{}' is there twice", self.0)
    }
}

impl std::error::Error for DuplicateDomain {}

impl HostIndex {
    /// Indexes pairs of a domain and the virtual host (its place in the table) that has it.
    ///
    /// # Errors
    /// When a domain is there twice.
    pub fn new<'a>(
        domains: impl IntoIterator<Item = (&'a str, usize)>,
    ) -> Result<Self, DuplicateDomain> {
        let mut index = Self::default();
        for (domain, host) in domains {
            let text = domain.to_ascii_lowercase().into_bytes();
            let host = u32::try_from(host).unwrap_or(u32::MAX);
            let taken = match text.as_slice() {
                b"*" => index.any.replace(host).is_some(),
                [b'*', suffix @ ..] => index.suffixes.insert(suffix, host),
                [prefix @ .., b'*'] => index.prefixes.insert(prefix, host),
                exact => index.exact.insert(exact.into(), host).is_some(),
            };
            if taken {
                return Err(DuplicateDomain(domain.to_owned()));
            }
        }
        index.suffixes.finish();
        index.prefixes.finish();
        Ok(index)
    }

    /// The virtual host of an authority, by its place in the table.
    #[must_use]
    #[inline]
    pub fn find(&self, authority: &[u8], ignore_port: bool) -> Option<usize> {
        let host = if self.only_any() { self.any } else { self.search(authority, ignore_port) };
        host.map(|host| host as usize)
    }

    fn only_any(&self) -> bool {
        self.exact.is_empty() && self.suffixes.is_empty() && self.prefixes.is_empty()
    }

    fn search(&self, authority: &[u8], ignore_port: bool) -> Option<u32> {
        let authority = if ignore_port { without_port(authority) } else { authority };
        let mut buffer = [0; LONGEST_HOST];
        let Some(lower) = buffer.get_mut(..authority.len()) else {
            // No DNS name is this long; only `*` can be meant.
            return self.any;
        };
        lower.copy_from_slice(authority);
        lower.make_ascii_lowercase();
        self.exact
            .get(&*lower)
            .copied()
            .or_else(|| self.suffixes.find(lower.len(), |length| &lower[lower.len() - length..]))
            .or_else(|| self.prefixes.find(lower.len(), |length| &lower[..length]))
            .or(self.any)
    }
}

/// Prefixes or suffixes by length, the longest first.
#[derive(Clone, Debug, Default)]
struct Wildcards {
    lengths: Vec<usize>,
    parts: HashMap<Box<[u8]>, u32, Fnv>,
}

impl Wildcards {
    fn insert(&mut self, part: &[u8], host: u32) -> bool {
        self.lengths.push(part.len());
        self.parts.insert(part.into(), host).is_some()
    }

    fn finish(&mut self) {
        self.lengths.sort_unstable_by(|a, b| b.cmp(a));
        self.lengths.dedup();
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The host of the longest part that is shorter than the name: a `*` stands for at least one byte.
    fn find<'a>(&self, name: usize, part: impl Fn(usize) -> &'a [u8]) -> Option<u32> {
        let shorter = self.lengths.iter().filter(|length| **length < name);
        shorter.into_iter().find_map(|length| self.parts.get(part(*length)).copied())
    }
}

/// FNV-1a: short names, no attacker (the keys are the operator's), no state.
#[derive(Clone, Copy)]
struct FnvHasher(u64);

type Fnv = BuildHasherDefault<FnvHasher>;

impl Default for FnvHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for FnvHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// An authority longer than this matches `*` alone (RFC 1035 allows 255, and a port).
const LONGEST_HOST: usize = 280;

#[cfg(test)]
mod tests {
    use super::*;

    fn find(index: &HostIndex, authority: &str) -> Option<usize> {
        index.find(authority.as_bytes(), false)
    }

    #[test]
    fn the_most_exact_domain_wins() {
        let domains = [
            "*",
            "www.a.com",
            "*.a.com",
            "*-x.a.com",
            "www.*",
            "www.a*",
            "a.com",
            "*.com",
            "A.Com:81",
        ];
        let index = HostIndex::new(domains.iter().copied().zip(0..)).unwrap();
        for (authority, host) in [
            ("www.a.com", 1),
            ("WWW.A.COM", 1),
            ("b.a.com", 2),
            ("b-x.a.com", 3),
            ("www.a.org", 5),
            ("www.b", 4),
            ("a.com", 6),
            ("a.com:81", 8),
            ("a.com:82", 0),
            ("b.com", 7),
            (".com", 0),
            ("", 0),
        ] {
            assert_eq!(find(&index, authority), Some(host), "{authority}");
        }
    }

    #[test]
    fn a_star_stands_for_at_least_one_byte() {
        let index = HostIndex::new([("*.a", 0), ("b.*", 1)]).unwrap();
        assert_eq!(find(&index, ".a"), None);
        assert_eq!(find(&index, "x.a"), Some(0));
        assert_eq!(find(&index, "b."), None);
        assert_eq!(find(&index, "b.x"), Some(1));
    }

    #[test]
    fn ports_are_ignored_when_told() {
        let index = HostIndex::new([("a.com", 0), ("[::1]", 1), ("::1", 2)]).unwrap();
        assert_eq!(index.find(b"a.com:80", true), Some(0));
        assert_eq!(index.find(b"a.com:80", false), None);
        assert_eq!(index.find(b"[::1]:80", true), Some(1));
        assert_eq!(index.find(b"[::1]", true), Some(1));
        assert_eq!(index.find(b"::1", true), Some(2));
    }

    #[test]
    fn a_domain_belongs_to_one_host() {
        assert_eq!(HostIndex::new([("a", 0), ("A", 1)]).unwrap_err(), DuplicateDomain("A".into()));
        assert!(HostIndex::new([("*", 0), ("*", 1)]).is_err());
        assert!(HostIndex::new([("*.a", 0), ("*.a", 1)]).is_err());
        assert!(HostIndex::new([("a*", 0), ("a*", 1)]).is_err());
    }

    #[test]
    fn an_endless_authority_is_any_host() {
        let index = HostIndex::new([("*", 0), ("*a", 1)]).unwrap();
        assert_eq!(index.find(&[b'a'; LONGEST_HOST], false), Some(1));
        assert_eq!(index.find(&[b'a'; LONGEST_HOST + 1], false), Some(0));
        assert_eq!(index.find(&[b'a'; 100_000], false), Some(0));
    }
}
