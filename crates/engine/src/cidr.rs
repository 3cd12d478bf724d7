//! Address ranges.

use std::net::IpAddr;

/// An address range. Envoy `core.v3.CidrRange`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address, with the bits past the length cleared.
    pub address: IpAddr,
    /// How many leading bits count: 0 to 32, or 128.
    pub length: u8,
}

impl Prefix {
    /// The range of the addresses that begin with the first `length` bits of `address`.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Self {
        let address = match address {
            IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & mask(length.min(32), 32) as u32).into()),
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & mask(length.min(128), 128)).into()),
        };
        Self { address, length: length.min(if address.is_ipv4() { 32 } else { 128 }) }
    }

    /// Whether the range has this address. An IPv4 range has no IPv6 address, mapped or not.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(range), IpAddr::V4(address)) => {
                (range.to_bits() ^ address.to_bits()) & mask(self.length, 32) as u32 == 0
            }
            (IpAddr::V6(range), IpAddr::V6(address)) => {
                (range.to_bits() ^ address.to_bits()) & mask(self.length, 128) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The first `length` of `width` bits.
fn mask(length: u8, width: u8) -> u128 {
    let rest = u32::from(width.saturating_sub(length));
    u128::MAX.checked_shl(rest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(address: &str, length: u8) -> Prefix {
        Prefix::new(address.parse().unwrap(), length)
    }

    #[test]
    fn a_range_has_the_addresses_that_share_its_bits() {
        for (range, inside, outside) in [
            (prefix("10.1.2.3", 8), "10.255.0.1", "11.1.2.3"),
            (prefix("10.1.2.3", 32), "10.1.2.3", "10.1.2.2"),
            (prefix("128.0.0.0", 1), "255.1.1.1", "127.255.255.255"),
            (prefix("fd00::1", 8), "fdff::", "fe00::"),
            (prefix("::1", 128), "::1", "::2"),
            (prefix("0.0.0.0", 0), "1.2.3.4", "::ffff:1.2.3.4"),
            (prefix("::", 0), "fe80::1", "1.2.3.4"),
        ] {
            assert!(range.contains(inside.parse().unwrap()), "{range:?} {inside}");
            assert!(!range.contains(outside.parse().unwrap()), "{range:?} {outside}");
        }
        assert_eq!(prefix("10.1.2.3", 8).address, "10.0.0.0".parse::<IpAddr>().unwrap());
        assert_eq!(prefix("10.1.2.3", 99).length, 32);
    }
}
