//! In which order the addresses of a host are connected to (RFC 8305 §4).

use std::collections::VecDeque;

use towpath_proto::Address;

/// Envoy `UpstreamConnectionOptions.HappyEyeballsConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HappyEyeballs {
    /// `first_address_family_version`: which kind comes first; without it that of the first address.
    pub first: Option<AddressKind>,
    /// `first_address_family_count`: how many of that kind come for each one of another. Default 1.
    pub count: u32,
}

/// What an address is of, for their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// A unix socket.
    Pipe,
    /// A listener inside the process.
    Internal,
}

impl Default for HappyEyeballs {
    fn default() -> Self {
        Self { first: None, count: 1 }
    }
}

impl HappyEyeballs {
    /// Addresses in the order in which they are connected to: kinds take turns, and each keeps its own order.
    #[must_use]
    pub fn order(&self, addresses: &[Address]) -> Vec<Address> {
        let first = self.first.or_else(|| addresses.first().map(AddressKind::of));
        let mut kinds: Vec<(AddressKind, VecDeque<&Address>)> = Vec::new();
        for address in addresses {
            let kind = AddressKind::of(address);
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, of_kind)) => of_kind.push_back(address),
                None if Some(kind) == first => kinds.insert(0, (kind, [address].into())),
                None => kinds.push((kind, [address].into())),
            }
        }
        let count = usize::try_from(self.count.max(1)).unwrap_or(usize::MAX);
        let mut ordered = Vec::with_capacity(addresses.len());
        while ordered.len() < addresses.len() {
            for (kind, of_kind) in &mut kinds {
                let most = if Some(*kind) == first { count } else { 1 };
                ordered.extend(of_kind.drain(..most.min(of_kind.len())).cloned());
            }
        }
        ordered
    }
}

impl AddressKind {
    const fn of(address: &Address) -> Self {
        match address {
            Address::Ip(ip) if ip.is_ipv4() => Self::V4,
            Address::Ip(_) => Self::V6,
            Address::Unix(_) => Self::Pipe,
            Address::Internal(_) => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;

    /// IPv4 for digits, IPv6 for small letters, a unix socket for capital ones.
    fn addresses(names: &str) -> Vec<Address> {
        let address = |name: char| match name {
            '0'..='9' => Address::Ip(format!("10.0.0.{name}:1").parse().unwrap()),
            'a'..='z' => Address::Ip(format!("[fd00::{name}]:1").parse().unwrap()),
            _ => Address::Unix(Arc::from(Path::new(&name.to_string()))),
        };
        names.chars().map(address).collect()
    }

    fn ordered(first: Option<AddressKind>, count: u32, names: &str) -> bool {
        let (given, wanted) = names.split_once(' ').unwrap();
        HappyEyeballs { first, count }.order(&addresses(given)) == addresses(wanted)
    }

    #[test]
    fn kinds_take_turns() {
        assert!(ordered(None, 1, "123abc 1a2b3c"));
        assert!(ordered(None, 1, "abc123 a1b2c3"));
        assert!(ordered(None, 1, "1 1") && ordered(None, 1, " "));
        assert!(ordered(None, 1, "1234a 1a234"));
        assert!(ordered(None, 1, "12aXb 1aX2b"));
    }

    #[test]
    fn one_kind_comes_first_and_oftener() {
        let (v4, v6) = (Some(AddressKind::V4), Some(AddressKind::V6));
        assert!(ordered(v6, 1, "123abc a1b2c3"));
        assert!(ordered(v6, 2, "123abc ab1c23"));
        assert!(ordered(v4, 3, "ab1234 123a4b"));
        assert!(ordered(None, 2, "a12bc ab1c2"));
        assert!(ordered(v6, 0, "1a a1"));
        // There is none of it: none comes oftener.
        assert!(ordered(v6, 5, "12X3 1X23"));
        assert!(ordered(Some(AddressKind::Internal), 1, "1a2 1a2"));
    }
}
