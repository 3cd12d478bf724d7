//! The listener filter that reads who a client is from the header that a proxy before this one has written (the PROXY
//! protocol, versions 1 and 2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use towpath_proto::{Address, Instant};

use super::listener::{Arrival, ListenerFilter, ListenerFilterConfig, Look};
use crate::proxied::{Proxied, TlvRules};
use crate::stats::{
    ProxyProtocolErrors, ProxyProtocolStats, ProxyProtocolVersionStats, Registry, Scope,
};

/// Envoy `envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol`: the addresses of its header stand for the
/// connection's. It takes the header.
#[derive(Clone, Debug, Default)]
pub struct ProxyProtocol {
    /// `allow_requests_without_proxy_protocol`: a connection that does not begin with a header is none's but its own.
    /// Otherwise it ends.
    pub is_optional: bool,
    /// `disallowed_versions`, version 1 and version 2: a connection with such a header ends, unless it needs none. Then
    /// it is content.
    pub disallowed: [bool; 2],
    /// `stat_prefix`; it may be empty.
    pub stat_prefix: Arc<str>,
    /// What is kept of what stands behind the addresses.
    pub tlvs: TlvRules,
}

impl ListenerFilterConfig for ProxyProtocol {
    fn start(&self, registry: &Registry, worker: u32) -> Box<dyn ListenerFilter> {
        let prefix = || Arc::clone(&self.stat_prefix);
        let version = |version| Scope::ProxyProtocolVersion { prefix: prefix(), version };
        Box::new(Reader {
            config: self.clone(),
            without: registry.set(worker, Scope::ProxyProtocol(prefix())),
            versions: [1, 2].map(|number| registry.set(worker, version(number))),
            errors: registry.set(worker, Scope::ProxyProtocolErrors),
        })
    }
}

#[derive(Debug)]
struct Reader {
    config: ProxyProtocol,
    without: Arc<ProxyProtocolStats>,
    versions: [Arc<ProxyProtocolVersionStats>; 2],
    errors: Arc<ProxyProtocolErrors>,
}

impl ListenerFilter for Reader {
    /// The longest header of version 2.
    fn most_bytes(&self) -> usize {
        V2_FIXED + usize::from(u16::MAX)
    }

    fn look(&self, bytes: &[u8], arrival: &mut Arrival, _now: Instant) -> Look {
        let [v1, v2] = &self.versions;
        let ProxyProtocol { is_optional, disallowed, tlvs: ref rules, .. } = self.config;
        // Where a header need not be, one that is not allowed is none.
        let begins = |signature, is_disallowed: bool| {
            begins_alike(bytes, signature) && !(is_optional && is_disallowed)
        };
        let (read, stats, is_disallowed) = if begins(V2_SIGNATURE, disallowed[1]) {
            (version2(bytes), v2, disallowed[1])
        } else if begins(V1_SIGNATURE, disallowed[0]) {
            (version1(bytes), v1, disallowed[0])
        } else if is_optional {
            self.without.not_found_allowed.inc();
            return Look::Done { takes: 0 };
        } else {
            self.without.not_found_disallowed.inc();
            self.errors.all.inc();
            return Look::Refused;
        };
        match read {
            Header::Part => Look::More,
            Header::Broken => {
                stats.error.inc();
                self.errors.all.inc();
                Look::Refused
            }
            Header::Whole { .. } if is_disallowed => {
                stats.found.inc();
                stats.disallowed.inc();
                Look::Refused
            }
            Header::Whole { takes, said } => {
                if let Some(Said { client, wanted, tlvs }) = said {
                    let tlvs = bytes.get(tlvs..takes).unwrap_or_default();
                    let Ok(proxied) = Proxied::read(tlvs, rules) else {
                        stats.error.inc();
                        self.errors.all.inc();
                        return Look::Refused;
                    };
                    arrival.proxied = Some(Arc::new(proxied));
                    arrival.restored |= arrival.local != Address::Ip(wanted);
                    arrival.local = Address::Ip(wanted);
                    arrival.client = Address::Ip(client);
                }
                arrival.proxied.get_or_insert_default();
                stats.found.inc();
                Look::Done { takes }
            }
        }
    }
}

/// What the first bytes of a connection come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    /// More bytes are needed.
    Part,
    /// It is none, or one that is not taken.
    Broken,
    Whole {
        takes: usize,
        /// Nothing where the proxy speaks for itself.
        said: Option<Said>,
    },
}

/// The addresses of a header, and where what is said beside them begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    client: SocketAddr,
    wanted: SocketAddr,
    tlvs: usize,
}

/// Whether two texts are the same as far as the shorter goes.
fn begins_alike(bytes: &[u8], signature: &[u8]) -> bool {
    let seen = bytes.len().min(signature.len());
    bytes.get(..seen) == signature.get(..seen)
}

/// `PROXY TCP4 10.0.0.1 10.0.0.2 1000 80\r\n`, of 107 bytes at most (§2.1).
fn version1(bytes: &[u8]) -> Header {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < V1_MOST { Header::Part } else { Header::Broken };
    };
    let takes = end + 2;
    let words = std::str::from_utf8(bytes.get(..end).unwrap_or_default());
    let words: Vec<&str> = words.unwrap_or_default().split(' ').collect();
    let said = match *words {
        _ if takes > V1_MOST => return Header::Broken,
        ["PROXY", "UNKNOWN", ..] => return Header::Whole { takes, said: None },
        ["PROXY", family @ ("TCP4" | "TCP6"), client, wanted, client_port, wanted_port] => {
            let is_v4 = family == "TCP4";
            let address = |ip: &str, port: &str| {
                let ip = ip.parse::<IpAddr>().ok().filter(|ip| ip.is_ipv4() == is_v4)?;
                Some(SocketAddr::new(ip, port.parse().ok()?))
            };
            address(client, client_port).zip(address(wanted, wanted_port))
        }
        _ => None,
    };
    whole(takes, takes, said)
}

/// The binary header (§2.2).
fn version2(bytes: &[u8]) -> Header {
    let Some((fixed, rest)) = bytes.split_first_chunk::<V2_FIXED>() else { return Header::Part };
    let [.., version, family, high, low] = *fixed;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let known = matches!(family, 0x11 | 0x12 | 0x21 | 0x22) || version == V2_LOCAL;
    if !matches!(version, V2_LOCAL | V2_PROXY) || !known {
        return Header::Broken;
    }
    let Some(rest) = rest.get(..length) else { return Header::Part };
    let takes = V2_FIXED + length;
    if version == V2_LOCAL {
        return Header::Whole { takes, said: None };
    }
    let (length, said) = match family >> 4 {
        1 => (
            12,
            rest.first_chunk::<12>().map(|part| {
                let [a, b, c, d, e, f, g, h, ports @ ..] = *part;
                addresses(Ipv4Addr::new(a, b, c, d).into(), Ipv4Addr::new(e, f, g, h).into(), ports)
            }),
        ),
        _ => (
            36,
            rest.first_chunk::<36>().and_then(|part| {
                let (client, rest) = part.split_first_chunk::<16>()?;
                let (wanted, ports) = rest.split_first_chunk::<16>()?;
                let (client, wanted) = (Ipv6Addr::from(*client), Ipv6Addr::from(*wanted));
                Some(addresses(client.into(), wanted.into(), *ports.first_chunk()?))
            }),
        ),
    };
    whole(takes, V2_FIXED + length, said)
}

fn addresses(client: IpAddr, wanted: IpAddr, ports: [u8; 4]) -> (SocketAddr, SocketAddr) {
    let [a, b, c, d] = ports;
    let port = |high, low| u16::from_be_bytes([high, low]);
    (SocketAddr::new(client, port(a, b)), SocketAddr::new(wanted, port(c, d)))
}

/// A connection has two ends, each of which is one host's.
fn whole(takes: usize, tlvs: usize, said: Option<(SocketAddr, SocketAddr)>) -> Header {
    let is_one = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast()),
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast()),
    };
    match said.filter(|(client, wanted)| is_one(client) && is_one(wanted)) {
        Some((client, wanted)) => {
            Header::Whole { takes, said: Some(Said { client, wanted, tlvs }) }
        }
        None => Header::Broken,
    }
}

const V1_SIGNATURE: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V1_MOST: usize = 107;
/// The signature, version and command, family and transport, length.
const V2_FIXED: usize = 16;
const V2_LOCAL: u8 = 0x20;
const V2_PROXY: u8 = 0x21;

#[cfg(test)]
mod tests {
    use super::*;

    fn look(filter: &ProxyProtocol, bytes: &[u8]) -> (Look, Arrival) {
        let address = |text: &str| Address::Ip(text.parse().unwrap());
        let mut arrival = Arrival::new(address("127.0.0.1:80"), address("127.0.0.2:1"));
        let found = filter.start(&Registry::default(), 0).look(bytes, &mut arrival, Instant::ZERO);
        (found, arrival)
    }

    fn any() -> ProxyProtocol {
        ProxyProtocol::default()
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [V2_SIGNATURE, &[command, family], &length, rest].concat()
    }

    #[test]
    fn headers_say_who_the_client_is_wherever_they_are_cut() {
        let v4 = [10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 8];
        let mut v6 = [0; 39];
        (v6[0], v6[15], v6[16], v6[31], v6[33], v6[35]) = (0xfd, 1, 0xfd, 2, 9, 8);
        for (header, client, wanted) in [
            (b"PROXY TCP4 10.0.0.1 10.0.0.2 9 8\r\n".to_vec(), "10.0.0.1:9", "10.0.0.2:8"),
            (b"PROXY TCP6 fd00::1 fd00::2 9 8\r\n".to_vec(), "[fd00::1]:9", "[fd00::2]:8"),
            (b"PROXY UNKNOWN what ever\r\n".to_vec(), "127.0.0.2:1", "127.0.0.1:80"),
            (v2(0x21, 0x11, &v4), "10.0.0.1:9", "10.0.0.2:8"),
            (v2(0x21, 0x21, &v6), "[fd00::1]:9", "[fd00::2]:8"),
            (v2(0x20, 0x00, &[]), "127.0.0.2:1", "127.0.0.1:80"),
        ] {
            for cut in 0..header.len() {
                assert_eq!(look(&any(), &header[..cut]).0, Look::More, "{cut}");
            }
            let (found, arrival) = look(&any(), &[&header[..], b"GET"].concat());
            assert_eq!(found, Look::Done { takes: header.len() });
            assert_eq!(arrival.client.to_string(), client);
            assert_eq!(arrival.peer.to_string(), "127.0.0.2:1");
            assert_eq!(arrival.local.to_string(), wanted);
            assert_eq!(arrival.restored, wanted != "127.0.0.1:80");
        }
    }

    #[test]
    fn what_is_no_header_ends_the_connection_unless_it_may_be_missing() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY TCP4 10.0.0.1 10.0.0.2 9\r\n",
            b"PROXY TCP4 fd00::1 fd00::2 9 8\r\n",
            b"PROXY TCP4 10.0.0.1 10.0.0.2 9 65536\r\n",
            b"PROXY TCP4 0.0.0.0 10.0.0.2 9 8\r\n",
            b"PROXY TCP4 10.0.0.1 224.0.0.1 9 8\r\n",
            b"PROXY UDP4 10.0.0.1 10.0.0.2 9 8\r\n",
            &[&b"PROXY UNKNOWN "[..], &[b'x'; 100]].concat(),
            &v2(0x31, 0x11, &[10; 12]),
            &v2(0x22, 0x11, &[10; 12]),
            &v2(0x21, 0x31, &[10; 216]),
            &v2(0x21, 0x11, &[10; 11]),
            &v2(0x21, 0x11, &[10; 13]),
        ] {
            assert_eq!(look(&any(), bytes).0, Look::Refused, "{}", bytes.escape_ascii());
        }
        let optional = ProxyProtocol { is_optional: true, ..any() };
        assert_eq!(look(&optional, b"GET").0, Look::Done { takes: 0 });
        assert_eq!(look(&optional, b"PROXY ").0, Look::More);
        let optional = ProxyProtocol { disallowed: [true, false], ..optional };
        assert_eq!(look(&optional, b"PROXY UNKNOWN\r\n").0, Look::Done { takes: 0 });
        let newer = ProxyProtocol { disallowed: [true, false], ..any() };
        assert_eq!(look(&newer, b"PROXY UNKNOWN\r\n").0, Look::Refused);
        let older = ProxyProtocol { disallowed: [false, true], ..any() };
        assert_eq!(look(&older, &v2(0x20, 0, &[])).0, Look::Refused);
    }
}
