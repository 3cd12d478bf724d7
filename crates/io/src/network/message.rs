//! The kernel's messages (rtnetlink(7)), as far as a picture of the network needs them. All numbers are of the
//! machine's own order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{DefaultRoute, Link, LinkAddress, Picture};

/// Whether more answers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    Done,
    /// The error's number.
    Failed(i32),
}

/// Asks for all of a kind.
pub(super) fn request(question: u16) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&question.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(REQUEST | DUMP).to_ne_bytes());
    bytes
}

/// Takes what one datagram says into the picture.
pub(super) fn read(datagram: &[u8], picture: &mut Picture) -> Progress {
    let mut rest = datagram;
    while let Some((kind, body, after)) = message(rest) {
        rest = after;
        match kind {
            DONE => return Progress::Done,
            ERROR => {
                return Progress::Failed(
                    number(body, 0, i32::from_ne_bytes).map_or(0, |code| -code),
                );
            }
            NEW_LINK => picture.links.extend(link(body)),
            NEW_ADDRESS => picture.addresses.extend(address(body)),
            NEW_ROUTE => picture.routes.extend(route(body)),
            _ => {}
        }
        picture.links.truncate(MOST);
        picture.addresses.truncate(MOST);
        picture.routes.truncate(MOST);
    }
    Progress::More
}

/// The first message: its kind, its body, and what follows.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = number(bytes, 0, u32::from_ne_bytes)? as usize;
    let kind = number(bytes, 4, u16::from_ne_bytes)?;
    let body = bytes.get(HEAD_BYTES..length)?;
    Some((kind, body, bytes.get(aligned(length)..).unwrap_or_default()))
}

/// `struct ifinfomsg`.
fn link(body: &[u8]) -> Option<Link> {
    let index = number(body, 4, u32::from_ne_bytes)?;
    let flags = number(body, 8, u32::from_ne_bytes)?;
    let name = attributes(body, 16).find(|(kind, _)| *kind == IFLA_IFNAME)?.1;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    let running = flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING;
    Some(Link { index, name, running, loopback: flags & IFF_LOOPBACK != 0 })
}

/// `struct ifaddrmsg`.
fn address(body: &[u8]) -> Option<LinkAddress> {
    let (mut flags, scope) = (u32::from(*body.get(2)?), *body.get(3)?);
    let link = number(body, 4, u32::from_ne_bytes)?;
    let (mut local, mut other) = (None, None);
    for (kind, value) in attributes(body, 8) {
        match kind {
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => other = ip(value),
            IFA_FLAGS => flags = number(value, 0, u32::from_ne_bytes)?,
            _ => {}
        }
    }
    // On a link between two, `IFA_ADDRESS` is the other end's.
    let ip = local.or(other)?;
    let usable = scope < SCOPE_LINK && flags & (TENTATIVE | DAD_FAILED) == 0;
    (usable && !ip.is_loopback()).then_some(LinkAddress { link, ip })
}

/// `struct rtmsg`.
fn route(body: &[u8]) -> Option<DefaultRoute> {
    let [family, to_bits, _, _, table, _, _, kind] = *body.first_chunk()?;
    let flags = number(body, 8, u32::from_ne_bytes)?;
    if to_bits != 0 || kind != UNICAST || table == LOCAL || flags & (DEAD | LINK_DOWN) != 0 {
        return None;
    }
    let (mut link, mut gateway, mut metric) = (None, None, 0);
    for (kind, value) in attributes(body, 12) {
        match kind {
            RTA_OIF => link = number(value, 0, u32::from_ne_bytes),
            RTA_GATEWAY => gateway = ip(value),
            RTA_VIA => gateway = value.get(2..).and_then(ip),
            RTA_PRIORITY => metric = number(value, 0, u32::from_ne_bytes)?,
            // Of several ways the first stands for all.
            RTA_MULTIPATH => {
                link = number(value, 4, u32::from_ne_bytes);
                let length = usize::from(number(value, 0, u16::from_ne_bytes)?);
                let hop = value.get(..length)?;
                let router = attributes(hop, 8).find(|(kind, _)| *kind == RTA_GATEWAY);
                gateway = router.and_then(|(_, value)| ip(value));
            }
            _ => {}
        }
    }
    Some(DefaultRoute { link: link?, six: family == INET6, gateway, metric })
}

/// Kinds and values (`struct rtattr`) behind a fixed part.
fn attributes(body: &[u8], fixed: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body.get(fixed..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(number(rest, 0, u16::from_ne_bytes)?);
        let kind = number(rest, 2, u16::from_ne_bytes)?;
        let value = rest.get(4..length)?;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        // The two highest bits say how a value is made.
        Some((kind & 0x3fff, value))
    })
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(four).into());
    }
    <[u8; 16]>::try_from(value).ok().map(|six| Ipv6Addr::from(six).into())
}

/// A number at a place.
fn number<T, const N: usize>(bytes: &[u8], at: usize, of: fn([u8; N]) -> T) -> Option<T> {
    bytes.get(at..)?.first_chunk().map(|bytes| of(*bytes))
}

const fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// `RTM_GETLINK`, `RTM_GETADDR`, `RTM_GETROUTE`.
pub(super) const LINKS: u16 = 18;
pub(super) const ADDRESSES: u16 = 22;
pub(super) const ROUTES: u16 = 26;
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST`, `NLM_F_DUMP`.
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const HEAD_BYTES: usize = 16;
/// With room for the longest fixed part, of zeros.
const REQUEST_BYTES: usize = HEAD_BYTES + 16;
/// No more of each is looked at.
const MOST: usize = 4096;
const IFLA_IFNAME: u16 = 3;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
const IFF_RUNNING: u32 = 0x40;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// `IFA_F_DADFAILED`, `IFA_F_TENTATIVE`.
const DAD_FAILED: u32 = 0x08;
const TENTATIVE: u32 = 0x40;
/// `RT_SCOPE_LINK`: what is narrower has higher numbers.
const SCOPE_LINK: u8 = 253;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_MULTIPATH: u16 = 9;
const RTA_VIA: u16 = 18;
/// `RTN_UNICAST`, `RT_TABLE_LOCAL`, `RTNH_F_DEAD`, `RTNH_F_LINKDOWN`, `AF_INET6`.
const UNICAST: u8 = 1;
const LOCAL: u8 = 255;
const DEAD: u32 = 1;
const LINK_DOWN: u32 = 16;
const INET6: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&((HEAD_BYTES + body.len()) as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }

    fn numbers(list: &[u32]) -> Vec<u8> {
        list.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn datagram() -> Vec<u8> {
        let link = [&numbers(&[0, 7, IFF_UP | IFF_RUNNING, 0])[..], &attribute(3, b"wlan0\0")];
        let mut address = vec![2, 24, 0, 0];
        address.extend_from_slice(&numbers(&[7]));
        address.extend_from_slice(&attribute(1, &[10, 0, 0, 2]));
        let mut tentative = vec![10, 64, 0, 0];
        tentative.extend_from_slice(&numbers(&[7]));
        tentative.extend_from_slice(&attribute(1, &[0xfd; 16]));
        tentative.extend_from_slice(&attribute(8, &numbers(&[TENTATIVE])));
        let mut route = vec![2, 0, 0, 0, 254, 3, 0, UNICAST];
        route.extend_from_slice(&numbers(&[0]));
        route.extend_from_slice(&attribute(4, &numbers(&[7])));
        route.extend_from_slice(&attribute(5, &[10, 0, 0, 1]));
        route.extend_from_slice(&attribute(6, &numbers(&[600])));
        let mut many = vec![10, 0, 0, 0, 254, 3, 0, UNICAST];
        many.extend_from_slice(&numbers(&[0]));
        let hop = attribute(5, &[0xfe; 16]);
        let mut hops = (8 + hop.len() as u16).to_ne_bytes().to_vec();
        hops.extend_from_slice(&[0, 0, 9, 0, 0, 0]);
        hops.extend_from_slice(&hop);
        many.extend_from_slice(&attribute(9, &hops));
        let mut local = route.clone();
        local[4] = LOCAL;
        [
            framed(NEW_LINK, &link.concat()),
            framed(NEW_ADDRESS, &address),
            framed(NEW_ADDRESS, &tentative),
            framed(NEW_ROUTE, &route),
            framed(NEW_ROUTE, &local),
            framed(NEW_ROUTE, &many),
            framed(DONE, &[0; 4]),
        ]
        .concat()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_datagram_becomes_a_picture() {
        let mut picture = Picture::default();
        assert_eq!(read(&datagram(), &mut picture), Progress::Done);
        let name = "wlan0".to_owned();
        assert_eq!(picture.links, [Link { index: 7, name, running: true, loopback: false }]);
        let ip = |bytes: [u8; 4]| IpAddr::from(bytes);
        assert_eq!(picture.addresses, [LinkAddress { link: 7, ip: ip([10, 0, 0, 2]) }]);
        let gateway = Some(ip([10, 0, 0, 1]));
        let by_two = Some(IpAddr::from([0xfe; 16]));
        assert_eq!(
            picture.routes,
            [
                DefaultRoute { link: 7, six: false, gateway, metric: 600 },
                DefaultRoute { link: 9, six: true, gateway: by_two, metric: 0 },
            ]
        );
    }

    #[test]
    fn what_is_cut_or_lies_about_its_length_ends_early() {
        let whole = datagram();
        for cut in 0..whole.len() {
            let progress = read(&whole[..cut], &mut Picture::default());
            assert!(matches!(progress, Progress::More | Progress::Failed(_)), "{cut}");
        }
        for place in 0..whole.len() {
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[place] = value;
                let _ = read(&changed, &mut Picture::default());
            }
        }
    }

    #[test]
    fn an_error_is_told_with_its_number() {
        let error = framed(ERROR, &(-1_i32).to_ne_bytes());
        assert_eq!(read(&error, &mut Picture::default()), Progress::Failed(1));
    }
}
