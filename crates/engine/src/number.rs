//! Numbers and IP addresses as text in header values and log lines, without an allocation or `Display`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use towpath_proto::{Head, Name, PreparedField};

/// Room for a number's digits.
#[derive(Debug)]
pub(crate) struct Decimal {
    digits: [u8; 20],
}

impl Decimal {
    pub(crate) const fn new() -> Self {
        Self { digits: [b'0'; 20] }
    }

    /// The digits of a number.
    pub(crate) fn write(&mut self, mut number: u64) -> &[u8] {
        let mut length = 0;
        for digit in self.digits.iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
            length += 1;
            if number == 0 {
                break;
            }
        }
        &self.digits[self.digits.len() - length..]
    }
}

/// A field whose value is a number, most often the same: the last that came twice is written once.
#[derive(Debug)]
pub(crate) struct UsualNumber {
    name: Name,
    value: u64,
    prepared: PreparedField,
    /// Of the request before, where that was another.
    other: u64,
}

impl UsualNumber {
    pub(crate) fn new(name: Name, value: u64) -> Self {
        let prepared = PreparedField::new(name, Decimal::new().write(value));
        Self { name, value, prepared, other: value }
    }

    /// Makes the number the only value of the field.
    #[inline]
    pub(crate) fn set(&mut self, value: u64, head: &mut Head) {
        if value == self.value {
            return head.set_prepared(&self.prepared);
        }
        head.set_number(self.name, value);
        if std::mem::replace(&mut self.other, value) == value {
            *self = Self::new(self.name, value);
        }
    }
}

/// Each octet in decimal with a point behind it, and how long that is.
static OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([0; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let mut at = if octet >= 100 {
            0
        } else if octet >= 10 {
            1
        } else {
            2
        };
        let (text, length) = &mut octets[octet];
        while at < 3 {
            text[*length as usize] = b'0' + digits[at] as u8;
            *length += 1;
            at += 1;
        }
        text[*length as usize] = b'.';
        *length += 1;
        octet += 1;
    }
    octets
};

/// An IP address as text: what its `Display` writes, at a tenth of the instructions.
#[derive(Debug)]
pub(crate) struct AddressText {
    bytes: [u8; 40],
    length: usize,
}

impl AddressText {
    pub(crate) fn of(address: IpAddr) -> Self {
        let mut text = Self { bytes: [0; 40], length: 0 };
        match address {
            IpAddr::V4(address) => text.push_v4(address),
            IpAddr::V6(address) => text.push_v6(address),
        }
        text
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push_v4(&mut self, address: Ipv4Addr) {
        for octet in address.octets() {
            let (text, length) = &OCTETS[usize::from(octet)];
            if let Some(room) = self.bytes[self.length..].first_chunk_mut() {
                *room = *text;
            }
            self.length += usize::from(*length);
        }
        // Without the last point.
        self.length -= 1;
    }

    /// RFC 5952 §4: no leading zeros, `::` for the first of the longest runs of two and more zeros, lower case;
    /// §5: an IPv4-mapped address ends in its IPv4 form.
    fn push_v6(&mut self, address: Ipv6Addr) {
        if let Some(mapped) = address.to_ipv4_mapped() {
            b"::ffff:".iter().for_each(|byte| self.push(*byte));
            return self.push_v4(mapped);
        }
        let segments = address.segments();
        let (start, end) = longest_zeros(&segments);
        for (at, segment) in segments.into_iter().enumerate() {
            if at == start && start < end {
                self.push(b':');
            }
            if (start..end).contains(&at) {
                continue;
            }
            if at > 0 {
                self.push(b':');
            }
            self.push_hex(segment);
        }
        if end == segments.len() && start < end {
            self.push(b':');
        }
    }

    fn push_hex(&mut self, segment: u16) {
        let digits = (segment.max(1).ilog2() / 4) as u16 + 1;
        for digit in (0..digits).rev() {
            self.push(b"0123456789abcdef"[usize::from(segment >> (4 * digit) & 15)]);
        }
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }
}

/// The first of the longest runs of two and more zeros, or an empty range.
fn longest_zeros(segments: &[u16; 8]) -> (usize, usize) {
    let mut longest = (0, 0);
    let mut start = 0;
    for (at, segment) in segments.iter().enumerate() {
        if *segment != 0 {
            start = at + 1;
        } else if at + 1 - start > (longest.1 - longest.0).max(1) {
            longest = (start, at + 1);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn addresses_are_what_display_writes() {
        let same = |address: IpAddr| {
            assert_eq!(AddressText::of(address).as_bytes(), address.to_string().as_bytes());
        };
        for octet in 0..=u8::MAX {
            same(Ipv4Addr::new(octet, 255 - octet, octet / 2, octet / 10).into());
            // Each pattern of zero and other segments, among them all zeros.
            let long = |bit: u8| if octet >> bit & 1 == 0 { 0 } else { 0xfedc };
            let segments: [u16; 8] = std::array::from_fn(|at| long(at as u8));
            same(Ipv6Addr::from(segments).into());
        }
        for text in ["::1", "::ffff:192.0.2.255", "::255.255.255.255", "1::", "ffff::1:0:0:1"] {
            same(text.parse().unwrap());
        }
        let mut random = Random::new(5);
        for _ in 0..20_000 {
            let segments: [u16; 8] =
                std::array::from_fn(|_| (random.next() & random.next() & random.next()) as u16);
            same(Ipv6Addr::from(segments.map(|it| it & 0xf0ff)).into());
            same(Ipv6Addr::from(segments.map(|it| it & 0x0103)).into());
        }
        same(Ipv6Addr::from([0xffff; 8]).into());
    }

    #[test]
    fn writes_what_display_writes() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            assert_eq!(Decimal::new().write(number), number.to_string().as_bytes());
        }
    }

    #[test]
    fn usual_numbers_are_set_as_any_is() {
        let mut usual = UsualNumber::new(Name::Range, 5);
        for value in [5, 5, 7, 5, 7, 7, 7, 12_345, 12_345, 12_345, 5] {
            let mut head = Head::default();
            usual.set(value, &mut head);
            assert_eq!(head.get(Name::Range), Some(value.to_string().as_bytes()));
        }
        assert_eq!(usual.value, 12_345);
    }
}
