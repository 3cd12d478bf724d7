//! The text of an `otherName` (RFC 5280 §4.2.1.6), whose value may be of any type of ASN.1, as Envoy writes it.

use std::borrow::Cow;

/// What a value of this type says; nothing of types that have no text.
pub(super) fn text(tag: u8, value: &[u8]) -> Cow<'_, [u8]> {
    match tag {
        BOOLEAN if value.iter().all(|byte| *byte == 0) => Cow::Borrowed(b"false"),
        BOOLEAN => Cow::Borrowed(b"true"),
        INTEGER | ENUMERATED => Cow::Owned(decimal(value).into_bytes()),
        OBJECT_ID => Cow::Owned(dotted(value).unwrap_or_default().into_bytes()),
        // Before the bits stands how many are not used.
        BIT_STRING => Cow::Borrowed(value.get(1..).unwrap_or_default()),
        BMP_STRING => Cow::Owned(of_units::<2>(value).unwrap_or_default().into_bytes()),
        UNIVERSAL_STRING => Cow::Owned(of_units::<4>(value).unwrap_or_default().into_bytes()),
        OCTET_STRING | UTF8_STRING | PRINTABLE_STRING | T61_STRING | IA5_STRING | UTC_TIME
        | GENERALIZED_TIME | VISIBLE_STRING | GENERAL_STRING => Cow::Borrowed(value),
        _ => Cow::Borrowed(b""),
    }
}

/// The content octets of an object identifier that is written in digits and dots (X.690 §8.19).
#[must_use]
pub fn object_id(text: &str) -> Option<Vec<u8>> {
    let mut arcs = text.split('.').map(|arc| arc.parse::<u64>().ok());
    let (first, second) = (arcs.next()??, arcs.next()??);
    if first > 2 || (first < 2 && second >= 40) {
        return None;
    }
    let mut octets = Vec::new();
    push_arc(&mut octets, (first * 40).checked_add(second)?);
    for arc in arcs {
        push_arc(&mut octets, arc?);
    }
    Some(octets)
}

fn push_arc(octets: &mut Vec<u8>, arc: u64) {
    let groups = (64 - arc.leading_zeros()).div_ceil(7).max(1);
    for group in (0..groups).rev() {
        let bits = (arc >> (group * 7) & 0x7f) as u8;
        octets.push(if group > 0 { bits | 0x80 } else { bits });
    }
}

/// An object identifier in digits and dots; nothing of one with numbers beyond 64 bits.
pub(super) fn dotted(octets: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut arc: u64 = 0;
    for &octet in octets {
        arc = arc.checked_mul(128)? | u64::from(octet & 0x7f);
        if octet & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let first = (arc / 40).min(2);
            text = format!("{first}.{}", arc - first * 40);
        } else {
            text.push('.');
            text.push_str(&arc.to_string());
        }
        arc = 0;
    }
    Some(text)
}

/// A whole number in two's complement; nothing of one that is longer than any serial number.
fn decimal(octets: &[u8]) -> String {
    if octets.is_empty() || octets.len() > MOST_INTEGER_OCTETS {
        return String::new();
    }
    let is_negative = octets[0] & 0x80 != 0;
    let mut rest = octets.to_vec();
    if is_negative {
        let mut carry = true;
        for octet in rest.iter_mut().rev() {
            (*octet, carry) = (!*octet).overflowing_add(u8::from(carry));
        }
    }
    let mut digits = Vec::new();
    while rest.iter().any(|octet| *octet != 0) {
        let mut remainder: u16 = 0;
        for octet in &mut rest {
            let all = remainder << 8 | u16::from(*octet);
            (*octet, remainder) = ((all / 10) as u8, all % 10);
        }
        digits.push(char::from(b'0' + remainder as u8));
    }
    if digits.is_empty() {
        digits.push('0');
    }
    digits.extend(is_negative.then_some('-'));
    digits.iter().rev().collect()
}

/// Text of UTF-16 or UTF-32, most significant byte first; nothing if it is none.
fn of_units<const BYTES: usize>(value: &[u8]) -> Option<String> {
    let (units, rest) = value.as_chunks::<BYTES>();
    let number = |unit: &[u8; BYTES]| unit.iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
    rest.is_empty().then(|| units.iter().map(|unit| char::from_u32(number(unit))).collect())?
}

const MOST_INTEGER_OCTETS: usize = 64;
const BOOLEAN: u8 = 1;
const INTEGER: u8 = 2;
const BIT_STRING: u8 = 3;
const OCTET_STRING: u8 = 4;
const OBJECT_ID: u8 = 6;
const ENUMERATED: u8 = 10;
const UTF8_STRING: u8 = 12;
const PRINTABLE_STRING: u8 = 19;
const T61_STRING: u8 = 20;
const IA5_STRING: u8 = 22;
const UTC_TIME: u8 = 23;
const GENERALIZED_TIME: u8 = 24;
const VISIBLE_STRING: u8 = 26;
const GENERAL_STRING: u8 = 27;
const UNIVERSAL_STRING: u8 = 28;
const BMP_STRING: u8 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_type_have_their_text() {
        let long = [1; MOST_INTEGER_OCTETS + 1];
        let cases: [(u8, &[u8], &str); 19] = [
            (UTF8_STRING, b"me@a.test", "me@a.test"),
            (IA5_STRING, b"a", "a"),
            (BOOLEAN, &[0xff], "true"),
            (BOOLEAN, &[0], "false"),
            (INTEGER, &[0], "0"),
            (INTEGER, &[0x7f], "127"),
            (INTEGER, &[0x80], "-128"),
            (INTEGER, &[0, 0x80], "128"),
            (ENUMERATED, &[0xff, 0x7f], "-129"),
            (INTEGER, &[1, 0, 0, 0, 0, 0, 0, 0, 0], "18446744073709551616"),
            (INTEGER, &long, ""),
            (INTEGER, &[], ""),
            (OBJECT_ID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d], "1.2.840.113549"),
            (OBJECT_ID, &[0x88, 0x37, 3], "2.999.3"),
            (BIT_STRING, &[3, b'x'], "x"),
            (BIT_STRING, &[], ""),
            (BMP_STRING, &[0, b'a', 0x20, 0xac], "a\u{20ac}"),
            (UNIVERSAL_STRING, &[0, 1, 0xf6, 0], "\u{1f600}"),
            (5, &[], ""),
        ];
        for (tag, value, wanted) in cases {
            let written = text(tag, value);
            assert_eq!(String::from_utf8_lossy(&written), wanted, "{tag} {value:?}");
        }
    }

    #[test]
    fn identifiers_are_read_as_they_are_written() {
        for text in
            ["1.2.3.4", "2.999.3", "1.3.6.1.4.1.311.20.2.3", "0.39", "2.5.29.18446744073709551615"]
        {
            assert_eq!(dotted(&object_id(text).unwrap()).as_deref(), Some(text));
        }
        for wrong in ["", "1", "3.1", "1.40", "1..2", "1.2.x", "1.2.18446744073709551616", "-1.2"] {
            assert_eq!(object_id(wrong), None, "{wrong}");
        }
    }
}
