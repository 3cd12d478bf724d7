//! Which address of a name is tried first (RFC 6724 §6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Those first that can be reached, of those the ones of our own kind, of those by precedence (RFC 6724 §6, rules 1, 5
/// and 6). Otherwise as the servers had them.
pub fn sort(addresses: &mut [IpAddr]) {
    let rank = |to: IpAddr| {
        let from = source(to);
        let (precedence, label) = policy(to);
        let same = from.is_some_and(|from| policy(from).1 == label);
        (from.is_none(), !same, u8::MAX - precedence)
    };
    let mut ranks: Vec<_> = addresses.iter().map(|to| rank(*to)).collect();
    // They are few: the standard library's sort would be 5 KB of code.
    for new in 1..addresses.len() {
        let at = ranks[..new].partition_point(|rank| *rank <= ranks[new]);
        ranks[at..=new].rotate_right(1);
        addresses[at..=new].rotate_right(1);
    }
}

/// The address that a connection there would have on this machine. Nothing is sent.
fn source(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 53)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Precedence and label of the default policy (RFC 6724 §2.1).
const fn policy(address: IpAddr) -> (u8, u8) {
    let IpAddr::V6(six) = address else { return (35, 4) };
    match six.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => (50, 0),
        [0, 0, 0, 0, 0, 0xffff, _, _] => (35, 4),
        [0, 0, 0, 0, 0, 0, _, _] => (1, 3),
        [0x2001, 0, ..] => (5, 5),
        [0x2002, ..] => (30, 2),
        [0x3ffe, ..] => (1, 12),
        [first, ..] if first & 0xfe00 == 0xfc00 => (3, 13),
        [first, ..] if first & 0xffc0 == 0xfec0 => (1, 11),
        _ => (40, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sorted_as_rfc_6724_has_it() {
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        let order = ["::1", "2001:db8::1", "192.0.2.1", "2002::1", "2001::1", "fd00::1"];
        let mut policies: Vec<IpAddr> = order.iter().map(|text| parse(text)).collect();
        policies.sort_by_key(|address| u8::MAX - policy(*address).0);
        assert_eq!(policies, order.map(parse));
        // The documentation's prefix leads nowhere from here, unless there is a default route.
        let mut both = [parse("127.0.0.1"), parse("::1")];
        sort(&mut both);
        let has_six = source(parse("::1")).is_some();
        assert_eq!(both[0], if has_six { parse("::1") } else { parse("127.0.0.1") });
    }
}
