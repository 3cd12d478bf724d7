//! The header of the PROXY protocol with which connections to a cluster begin.

use std::net::{IpAddr, SocketAddr};

use towpath_proto::Address;

use super::sockets::OfSockets;
use crate::added_tlvs::AddedTlvs;
use crate::proxied::{Client, Passes, Tlv, tlvs};

/// The headers of a cluster's transport sockets.
pub type ProxyHeaders = OfSockets<ProxyHeader>;

/// Envoy `config.core.v3.ProxyProtocolConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeader {
    /// `version: V2`; otherwise it is version 1, which has no TLVs.
    pub is_binary: bool,
    /// `pass_through_tlvs`: what goes on of that which came from the client.
    pub passes: Passes,
    /// `added_tlvs`. What came from the client with the same type does not go on.
    pub added: AddedTlvs,
}

impl ProxyHeader {
    /// The header of a connection for a client; without one, of a connection between these addresses. What is the
    /// host's `own` is added first, in place of what else is added with the same type, and what was `made` for the
    /// connection last. Answers also whether all TLVs had room.
    #[must_use]
    pub fn write(
        &self,
        client: Option<&Client>,
        (own, made): (&[Tlv], &[Tlv]),
        local: &Address,
        peer: &Address,
    ) -> (Vec<u8>, bool) {
        let ends = client.map(|client| (client.source, client.destination));
        match (self.is_binary, client, ends.filter(are_alike)) {
            (true, Some(client), Some(ends)) => self.write_binary(client, own, made, ends),
            // It speaks for itself.
            (true, _, _) => ([V2_SIGNATURE, &[0x20, 0, 0, 0]].concat(), true),
            (false, _, _) => {
                let own = || Some((local.ip()?, peer.ip()?));
                (write_text(ends.or_else(own).filter(are_alike)), true)
            }
        }
    }

    fn write_binary(
        &self,
        client: &Client,
        own: &[Tlv],
        made: &[Tlv],
        ends: (SocketAddr, SocketAddr),
    ) -> (Vec<u8>, bool) {
        let mut rest = Vec::new();
        write_addresses(&mut rest, ends);
        let mut had_room = true;
        let mut put = |kind: u8, value: &[u8]| {
            if rest.len() + TLV_START + value.len() > usize::from(u16::MAX) {
                had_room = false;
                return;
            }
            rest.push(kind);
            rest.extend_from_slice(&length_of(value));
            rest.extend_from_slice(value);
        };
        let has = |list: &[Tlv], kind| list.iter().any(|tlv| tlv.kind == kind);
        let others = self.added.list.iter().chain(made).filter(|added| !has(own, added.kind));
        for tlv in own.iter().chain(others) {
            put(tlv.kind, &tlv.value);
        }
        for (kind, value) in tlvs(&client.tlvs).flatten() {
            let is_added = [own, &self.added.list, made].into_iter().any(|list| has(list, kind));
            if self.passes.takes(kind) && !is_added {
                put(kind, value);
            }
        }
        let family = if ends.0.is_ipv4() { 0x11 } else { 0x21 };
        let header = [V2_SIGNATURE, &[0x21, family], &length_of(&rest), &rest].concat();
        (header, had_room)
    }
}

/// Both are of one family, as a header has it.
fn are_alike((source, destination): &(SocketAddr, SocketAddr)) -> bool {
    source.is_ipv4() == destination.is_ipv4()
}

/// Version 1 (§2.1).
fn write_text(ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let Some((from, to)) = ends else { return b"PROXY UNKNOWN\r\n".to_vec() };
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    let (source, destination) = (from.ip(), to.ip());
    format!("PROXY {family} {source} {destination} {} {}\r\n", from.port(), to.port()).into_bytes()
}

/// The addresses of version 2 (§2.2).
fn write_addresses(out: &mut Vec<u8>, (source, destination): (SocketAddr, SocketAddr)) {
    for address in [source, destination] {
        match address.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    for address in [source, destination] {
        out.extend_from_slice(&address.port().to_be_bytes());
    }
}

/// The length that stands before a value; what is longer was refused before.
fn length_of(value: &[u8]) -> [u8; 2] {
    u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes()
}

const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The type and length of a TLV.
const TLV_START: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn client(source: &str, destination: &str, tlvs: &[u8]) -> Client {
        Client {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            tlvs: tlvs.into(),
        }
    }

    fn address(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    fn write(header: &ProxyHeader, client: Option<&Client>) -> Vec<u8> {
        header.write(client, (&[], &[]), &address("10.0.0.8:8"), &address("10.0.0.9:9")).0
    }

    fn added(list: Vec<Tlv>) -> AddedTlvs {
        AddedTlvs { list, made: Vec::new() }
    }

    #[test]
    fn text_tells_addresses() {
        let header = ProxyHeader::default();
        let v6 = client("[fd00::1]:1", "[fd00::2]:2", b"");
        assert_eq!(write(&header, Some(&v6)), b"PROXY TCP6 fd00::1 fd00::2 1 2\r\n");
        assert_eq!(write(&header, None), b"PROXY TCP4 10.0.0.8 10.0.0.9 8 9\r\n");
        let mixed = client("10.0.0.1:1", "[fd00::2]:2", b"");
        assert_eq!(write(&header, Some(&mixed)), b"PROXY UNKNOWN\r\n");
        let pipe = Address::Internal("a/".into());
        assert_eq!(header.write(None, (&[], &[]), &pipe, &pipe).0, b"PROXY UNKNOWN\r\n");
    }

    #[test]
    fn what_is_added_comes_first_and_in_place_of_what_goes_on() {
        let header = ProxyHeader {
            is_binary: true,
            passes: Passes::These([2, 3].into()),
            added: added(vec![Tlv { kind: 2, value: b"own".as_slice().into() }]),
        };
        let from = client("1.2.3.4:1", "5.6.7.8:2", b"\x01\0\x01a\x02\0\x01b\x03\0\x01c");
        let wanted =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x16\x01\x02\x03\x04\x05\x06\x07\x08\0\x01\0\x02\
            \x02\0\x03own\x03\0\x01c";
        assert_eq!(write(&header, Some(&from)), wanted);
        assert_eq!(write(&header, None), b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
    }

    #[test]
    fn what_is_the_hosts_stands_for_all_of_its_types() {
        let tlv = |kind, value: &[u8]| Tlv { kind, value: value.into() };
        let header = ProxyHeader {
            is_binary: true,
            passes: Passes::All,
            added: added(vec![tlv(2, b"added"), tlv(4, b"d")]),
        };
        let from =
            client("1.2.3.4:1", "5.6.7.8:2", b"\x02\0\x01a\x05\0\x01e\x06\0\x01f\x07\0\x01g");
        let own = [tlv(2, b"b"), tlv(6, b"h")];
        let local = address("10.0.0.8:8");
        let (bytes, had_room) = header.write(Some(&from), (&own, &[tlv(7, b"m")]), &local, &local);
        assert_eq!(&bytes[16 + 12..], b"\x02\0\x01b\x06\0\x01h\x04\0\x01d\x07\0\x01m\x05\0\x01e");
        assert!(had_room);
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let large = Tlv { kind: 1, value: vec![0; 65_530].into() };
        let small = Tlv { kind: 2, value: b"x".as_slice().into() };
        let header =
            ProxyHeader { is_binary: true, passes: Passes::All, added: added(vec![large, small]) };
        let local = address("10.0.0.8:8");
        let from = client("1.2.3.4:1", "5.6.7.8:2", b"");
        let (bytes, had_room) = header.write(Some(&from), (&[], &[]), &local, &local);
        assert_eq!((bytes.len(), had_room), (16 + 12 + 4, false));
    }
}
