//! How the client of a request is found that came from another proxy.

use std::net::IpAddr;

use towpath_proto::head::{Head, HeaderName};
use towpath_proto::name::Name;

use crate::cidr::Prefix;

/// One of `original_ip_detection_extensions`.
#[derive(Clone, Debug)]
pub enum Detection {
    /// `xff`: by `x-forwarded-for`.
    Forwarded {
        /// Which address it is.
        by: Trust,
        /// `skip_xff_append` turned round: the peer's address is appended. Default false.
        appends: bool,
    },
    /// `custom_header`: by a header of its own.
    Header {
        /// `header_name`: the first value is the address, without a port.
        name: HeaderName,
        /// `allow_extension_to_set_address_as_trusted`: whether such a client may be an internal one.
        is_trusted: bool,
        /// `reject_with_status`: what a request is answered that names no client. 400 to 511.
        refusal: Option<u16>,
    },
}

/// Which address of `x-forwarded-for` is the client's.
#[derive(Clone, Debug)]
pub enum Trust {
    /// `xff_num_trusted_hops`: the one that stands so many places before the last one.
    Hops(u32),
    /// `xff_trusted_cidrs`, not empty: the last one outside of these, of at most [`MOST_ADDRESSES`]; none where the
    /// peer is outside.
    Ranges(Vec<Prefix>),
}

/// More addresses than Envoy looks at.
pub const MOST_ADDRESSES: usize = 20;

/// What was found out about a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Detected {
    pub(crate) client: Option<IpAddr>,
    /// It may be an internal one.
    pub(crate) is_trusted: bool,
    /// The peer's address is appended to `x-forwarded-for`.
    pub(crate) appends: bool,
    /// The request is answered with this status.
    pub(crate) refusal: Option<u16>,
}

impl Detection {
    /// Looks for the client of a request that a peer has sent.
    pub(crate) fn detect(&self, head: &Head, peer: Option<IpAddr>) -> Detected {
        match self {
            Self::Forwarded { by: Trust::Hops(hops), appends } => {
                let all: Vec<_> = forwarded(head);
                let at = all.len().checked_sub(1 + *hops as usize);
                let client = at.and_then(|at| address(all[at]));
                let is_trusted = client.is_some() && all.len() == 1;
                Detected { client, is_trusted, appends: *appends, refusal: None }
            }
            Self::Forwarded { by: Trust::Ranges(ranges), appends } => {
                let is_trusted = |address: IpAddr| ranges.iter().any(|it| it.contains(address));
                match peer.filter(|peer| is_trusted(*peer)) {
                    Some(_) => {
                        let all = forwarded(head);
                        let client = last_outside(&all, is_trusted);
                        let is_trusted = client.is_some() && all.len() == 1;
                        Detected { client, is_trusted, appends: *appends, refusal: None }
                    }
                    // An address that is not trusted is appended in any case, as in Envoy.
                    None => Detected { appends: true, ..Detected::default() },
                }
            }
            Self::Header { name, is_trusted, refusal } => {
                match head.get_named(name).and_then(address) {
                    Some(client) => Detected {
                        client: Some(client),
                        is_trusted: *is_trusted,
                        ..Detected::default()
                    },
                    None => Detected { refusal: *refusal, ..Detected::default() },
                }
            }
        }
    }
}

/// The elements of `x-forwarded-for`.
fn forwarded(head: &Head) -> Vec<&[u8]> {
    head.values(Name::XForwardedFor).flat_map(|value| value.split(|byte| *byte == b',')).collect()
}

fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// The last address that is not trusted; the first one where all are. None where there are too many, or where one that
/// is passed is none.
fn last_outside(all: &[&[u8]], is_trusted: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let mut last = None;
    for text in all.iter().rev().take_while(|_| all.len() <= MOST_ADDRESSES) {
        let found = address(text)?;
        last = Some(found);
        if !is_trusted(found) {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(value: &str) -> Head {
        let mut head = Head::request(b"GET", b"http", b"a", b"/");
        head.set(Name::XForwardedFor, value.as_bytes());
        head
    }

    #[test]
    fn the_last_address_outside_is_the_client() {
        let ranges = vec![Prefix::new("10.0.0.0".parse().unwrap(), 8)];
        let detection = Detection::Forwarded { by: Trust::Ranges(ranges), appends: false };
        let client = |value: &str, peer: &str| {
            detection.detect(&from(value), peer.parse().ok()).client.map(|it| it.to_string())
        };
        assert_eq!(client("1.1.1.1, 2.2.2.2,10.0.0.1", "10.0.0.9").as_deref(), Some("2.2.2.2"));
        assert_eq!(client("10.0.0.1, 10.0.0.2", "10.0.0.9").as_deref(), Some("10.0.0.1"));
        assert_eq!(client("1.1.1.1, no, 10.0.0.2", "10.0.0.9"), None);
        assert_eq!(client("1.1.1.1", "1.1.1.2"), None);
        let many = |count: usize| vec!["10.0.0.1"; count].join(",");
        assert!(client(&many(MOST_ADDRESSES), "10.0.0.9").is_some());
        assert_eq!(client(&many(MOST_ADDRESSES + 1), "10.0.0.9"), None);
    }

    #[test]
    fn a_client_is_trusted_that_stands_alone() {
        let detection = Detection::Forwarded { by: Trust::Hops(0), appends: false };
        assert!(detection.detect(&from("10.0.0.1"), None).is_trusted);
        assert!(!detection.detect(&from("1.1.1.1,10.0.0.1"), None).is_trusted);
        let detection = Detection::Forwarded { by: Trust::Hops(1), appends: false };
        assert_eq!(detection.detect(&from("10.0.0.1"), None).client, None);
        assert!(!detection.detect(&from("10.0.0.1,1.1.1.1"), None).is_trusted);
    }
}
