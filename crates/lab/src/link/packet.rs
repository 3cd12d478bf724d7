//! What is in a packet, and how a super-packet is cut.
//!
//! With segmentation offload the kernel hands over up to 64 KiB of one TCP flow as one packet; on a real
//! wire it would be dozens. Loss, rate and delay are decided for each of those, and what survives in a row
//! goes on as a smaller super-packet.

use std::ops::Range;

/// A packet with its virtio-net header, as a TUN device gives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'b> {
    bytes: &'b [u8],
    /// Where the IP packet ends its headers and begins its payload, when it is a super-packet.
    cut: Option<Cut>,
}

#[derive(Clone, Copy, Debug)]
struct Cut {
    transport: usize,
    payload: usize,
    size: usize,
    is_tcp: bool,
}

impl<'b> Packet<'b> {
    /// `None` for what is neither IPv4 nor IPv6, is not for one receiver, or is too short to be true.
    pub(super) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let ip = bytes.get(HEADER..)?;
        if !is_unicast(ip)? {
            return None;
        }
        let kind = bytes[1] & !ECN;
        if kind == GSO_NONE {
            return Some(Self { bytes, cut: None });
        }
        let is_tcp = matches!(kind, GSO_TCP4 | GSO_TCP6);
        if !is_tcp && kind != GSO_UDP {
            return None;
        }
        let size = usize::from(u16::from_ne_bytes([bytes[4], bytes[5]]));
        let transport = HEADER + usize::from(u16::from_ne_bytes([bytes[6], bytes[7]]));
        let header_length =
            if is_tcp { usize::from(*bytes.get(transport + 12)? >> 4) * 4 } else { 8 };
        let payload = transport + header_length;
        let is_sound =
            size > 0 && transport >= HEADER + 20 && payload < bytes.len() && header_length >= 8;
        is_sound.then_some(Self { bytes, cut: Some(Cut { transport, payload, size, is_tcp }) })
    }

    /// Whether its sender understands marks of congestion (RFC 3168 §5: ECT(0), ECT(1)) and it has none yet.
    pub(super) fn is_ect(&self) -> bool {
        matches!(ecn_of(&self.bytes[HEADER..]), Some(1 | 2))
    }

    /// How many packets this would be on a wire.
    pub(super) fn segments(&self) -> usize {
        self.cut.map_or(1, |cut| (self.bytes.len() - cut.payload).div_ceil(cut.size))
    }

    /// The size of one of them, IP header included.
    pub(super) fn segment_size(&self, index: usize) -> usize {
        match self.cut {
            None => self.bytes.len() - HEADER,
            Some(cut) => cut.payload - HEADER + self.payload_of(cut, index..index + 1).len(),
        }
    }

    /// The segments of `run` as one packet.
    pub(super) fn slice(&self, run: Range<usize>) -> Vec<u8> {
        let Some(cut) = self.cut else { return self.bytes.to_vec() };
        if run == (0..self.segments()) {
            return self.bytes.to_vec();
        }
        let is_last = run.end == self.segments();
        let payload = self.payload_of(cut, run.clone());
        let mut bytes = Vec::with_capacity(cut.payload + payload.len());
        bytes.extend_from_slice(&self.bytes[..cut.payload]);
        bytes.extend_from_slice(&self.bytes[payload.clone()]);
        if run.len() == 1 {
            bytes[1] = GSO_NONE;
            bytes[4..6].fill(0);
        }
        let before = self.bytes.len() - cut.transport;
        let after = bytes.len() - cut.transport;
        fix_ip_length(&mut bytes[HEADER..], run.start as u16);
        if cut.is_tcp {
            let sequence = &mut bytes[cut.transport + 4..cut.transport + 8];
            let offset = (payload.start - cut.payload) as u32;
            let number = u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]])
                .wrapping_add(offset);
            sequence.copy_from_slice(&number.to_be_bytes());
            let flags = &mut bytes[cut.transport + 13];
            if !is_last {
                *flags &= !(TCP_FIN | TCP_PUSH);
            }
            if run.start > 0 {
                *flags &= !TCP_CWR;
            }
        } else {
            bytes[cut.transport + 4..cut.transport + 6]
                .copy_from_slice(&(after as u16).to_be_bytes());
        }
        // The checksum field holds the sum of the pseudo-header, in which the length is one term.
        let checksum = cut.transport + if cut.is_tcp { 16 } else { 6 };
        let partial = u16::from_be_bytes([bytes[checksum], bytes[checksum + 1]]);
        let sum = fold(u32::from(partial) + u32::from(!(before as u16)) + after as u32);
        bytes[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn payload_of(&self, cut: Cut, run: Range<usize>) -> Range<usize> {
        let end = (cut.payload + run.end * cut.size).min(self.bytes.len());
        cut.payload + run.start * cut.size..end
    }
}

/// Marks a packet behind its virtio-net header as one that met congestion (RFC 3168, CE).
pub(super) fn mark(bytes: &mut [u8]) {
    let ip = &mut bytes[HEADER..];
    match ip.first().map(|byte| byte >> 4) {
        Some(4) if ip.len() >= 20 => {
            let header = usize::from(ip[0] & 15) * 4;
            ip[1] |= 3;
            ip[10..12].fill(0);
            let sum = !fold(ones_sum(&ip[..header.clamp(20, ip.len())]));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some(6) if ip.len() >= 40 => ip[1] |= 0x30,
        Some(_) | None => {}
    }
}

/// The two bits of explicit congestion notification.
fn ecn_of(ip: &[u8]) -> Option<u8> {
    match ip.first()? >> 4 {
        4 => Some(ip.get(1)? & 3),
        6 => Some(ip.get(1)? >> 4 & 3),
        _ => None,
    }
}

/// Completes the checksums of an IP packet whose sender left them to hardware that is not there.
pub(super) fn complete_checksums(ip: &mut [u8]) {
    let Some((transport, protocol, mut sum)) = pseudo_header(ip) else { return };
    let at = transport + if protocol == TCP { 16 } else { 6 };
    if ip.len() < at + 2 {
        return;
    }
    ip[at..at + 2].fill(0);
    sum += ones_sum(&ip[transport..]);
    let checksum = match !fold(sum) {
        // In UDP, zero says that there is none.
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    };
    ip[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Where the transport header begins, its protocol, and the pseudo-header's sum; for unfragmented TCP and UDP.
fn pseudo_header(ip: &[u8]) -> Option<(usize, u8, u32)> {
    let (transport, protocol, addresses) = match ip.first()? >> 4 {
        4 if ip.len() >= 20 && ip[6] & 0x3f == 0 && ip[7] == 0 => {
            (usize::from(ip[0] & 15) * 4, ip[9], &ip[12..20])
        }
        6 if ip.len() >= 40 => (40, ip[6], &ip[8..40]),
        _ => return None,
    };
    let length = ip.len().checked_sub(transport)?;
    let is_known = protocol == TCP || protocol == UDP;
    is_known
        .then(|| (transport, protocol, ones_sum(addresses) + u32::from(protocol) + length as u32))
}

fn is_unicast(ip: &[u8]) -> Option<bool> {
    match ip.first()? >> 4 {
        4 if ip.len() >= 20 => Some(ip[16] < 224),
        6 if ip.len() >= 40 => Some(ip[24] != 0xff),
        _ => None,
    }
}

fn fix_ip_length(ip: &mut [u8], segment: u16) {
    if ip[0] >> 4 == 6 {
        let length = (ip.len() - 40) as u16;
        ip[4..6].copy_from_slice(&length.to_be_bytes());
        return;
    }
    let length = ip.len() as u16;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    let number = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(segment);
    ip[4..6].copy_from_slice(&number.to_be_bytes());
    ip[10..12].fill(0);
    let header = usize::from(ip[0] & 15) * 4;
    let checksum = !fold(ones_sum(&ip[..header.min(ip.len())]));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn ones_sum(bytes: &[u8]) -> u32 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let sum: u32 = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    sum + odd.first().map_or(0, |byte| u32::from(*byte) << 8)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The length of struct virtio_net_hdr.
pub(super) const HEADER: usize = 10;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const ECN: u8 = 0x80;
const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_FIN: u8 = 1;
const TCP_PUSH: u8 = 8;
const TCP_CWR: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP super-packet with `payload` bytes, its checksum field as the kernel leaves it.
    fn super_packet(is_v6: bool, payload: usize, size: u16) -> Vec<u8> {
        let ip_length = if is_v6 { 40 } else { 20 };
        let mut bytes = vec![0; HEADER + ip_length + 20];
        bytes.extend((0..payload).map(|at| at as u8));
        (bytes[0], bytes[1]) = (1, if is_v6 { GSO_TCP6 } else { GSO_TCP4 });
        bytes[4..6].copy_from_slice(&size.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(ip_length as u16).to_ne_bytes());
        bytes[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let ip = &mut bytes[HEADER..];
        if is_v6 {
            (ip[0], ip[6], ip[23], ip[39]) = (0x60, TCP, 1, 2);
        } else {
            (ip[0], ip[9], ip[12], ip[15], ip[16], ip[19]) = (0x45, TCP, 10, 1, 10, 2);
        }
        fix_ip_length(ip, 7);
        (ip[ip_length + 12], ip[ip_length + 13]) = (0x50, TCP_FIN | TCP_PUSH | TCP_CWR);
        ip[ip_length + 4..ip_length + 8].copy_from_slice(&1000u32.to_be_bytes());
        let (_, _, sum) = pseudo_header(ip).unwrap();
        ip[ip_length + 16..ip_length + 18].copy_from_slice(&fold(sum).to_be_bytes());
        bytes
    }

    #[test]
    fn segments_add_up_to_the_super_packet_and_have_sound_headers() {
        for is_v6 in [false, true] {
            let bytes = super_packet(is_v6, 10_000, 1448);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(packet.segments(), 7);
            let head = if is_v6 { 60 } else { 40 };
            assert_eq!(packet.segment_size(0), head + 1448);
            assert_eq!(packet.segment_size(6), head + 10_000 - 6 * 1448);
            let mut payload = Vec::new();
            for run in [0..1, 1..4, 4..7] {
                let part = packet.slice(run.clone());
                let ip = &part[HEADER..];
                let (transport, _, sum) = pseudo_header(ip).unwrap();
                let sequence =
                    u32::from_be_bytes(ip[transport + 4..transport + 8].try_into().unwrap());
                assert_eq!(sequence as usize, 1000 + run.start * 1448);
                assert_eq!(
                    u16::from_be_bytes(ip[transport + 16..transport + 18].try_into().unwrap()),
                    fold(sum)
                );
                assert_eq!(ip[transport + 13] & TCP_FIN != 0, run.end == 7);
                assert_eq!(ip[transport + 13] & TCP_CWR != 0, run.start == 0);
                assert_eq!(Packet::parse(&part).unwrap().segments(), run.len());
                if !is_v6 {
                    assert_eq!(fold(ones_sum(&ip[..20])), 0xffff);
                    assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), 7 + run.start as u16);
                }
                payload.extend_from_slice(&ip[transport + 20..]);
            }
            assert_eq!(payload, bytes[HEADER + head..]);
            assert_eq!(packet.slice(0..7), bytes);
        }
    }

    #[test]
    fn completed_checksums_verify() {
        let mut bytes = super_packet(false, 101, 0);
        complete_checksums(&mut bytes[HEADER..]);
        let ip = &bytes[HEADER..];
        let (transport, _, sum) = pseudo_header(ip).unwrap();
        assert_eq!(fold(sum + ones_sum(&ip[transport..])), 0xffff);
    }

    #[test]
    fn a_mark_is_set_and_the_header_stays_sound() {
        for is_v6 in [false, true] {
            let mut bytes = super_packet(is_v6, 3000, 1448);
            assert!(!Packet::parse(&bytes).unwrap().is_ect(), "its sender said nothing");
            bytes[HEADER + 1] |= if is_v6 { 0x20 } else { 2 };
            fix_ip_length(&mut bytes[HEADER..], 7);
            assert!(Packet::parse(&bytes).unwrap().is_ect());
            let length = bytes.len();
            mark(&mut bytes);
            assert_eq!((ecn_of(&bytes[HEADER..]), bytes.len()), (Some(3), length));
            assert!(!Packet::parse(&bytes).unwrap().is_ect(), "it is marked already");
            if !is_v6 {
                assert_eq!(fold(ones_sum(&bytes[HEADER..HEADER + 20])), 0xffff);
            }
        }
    }

    #[test]
    fn hostile_bytes_are_ignored() {
        let good = super_packet(false, 3000, 1448);
        for length in 0..good.len() {
            let packet = Packet::parse(&good[..length]);
            let _ = packet.map(|packet| {
                (0..packet.segments()).map(|at| packet.slice(at..at + 1).len()).sum::<usize>()
            });
        }
        let mut random = crate::random::Random::new(3);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..4 {
                let at = random.below(60);
                bytes[at] = random.next() as u8;
            }
            let _ = Packet::parse(&bytes)
                .map(|packet| packet.slice(0..1).len() + packet.segment_size(0));
            complete_checksums(&mut bytes[HEADER..]);
            mark(&mut bytes);
        }
        let mut multicast = good;
        multicast[HEADER + 16] = 239;
        assert!(Packet::parse(&multicast).is_none());
    }
}
