//! Distinguished names as text, in the form that OpenSSL calls `XN_FLAG_RFC2253` and that Envoy writes in headers and
//! logs: `CN=client,O=Example\, Inc.`, the last part of the name first.
//!
//! Arrives: a `Name` (RFC 5280 §4.1.2.4) as DER. Leaves: its text, in ASCII.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};

use super::certificate::{OBJECT_ID, Reader, SEQUENCE, SET};

/// The text of a name; what is malformed ends it.
pub(super) fn text(name: &[u8]) -> String {
    let mut parts = Vec::new();
    let mut rest = Reader(name).enter(SEQUENCE).unwrap_or(Reader(&[]));
    while let Some(attributes) = rest.enter(SET) {
        parts.push(relative(attributes));
    }
    parts.reverse();
    parts.join(",")
}

/// The values of a name's attributes of one kind, in their order.
pub(super) fn values(name: &[u8], kind: &str) -> Vec<String> {
    let mut values = Vec::new();
    let mut rest = Reader(name).enter(SEQUENCE).unwrap_or(Reader(&[]));
    while let Some(mut attributes) = rest.enter(SET) {
        while let Some(mut attribute) = attributes.enter(SEQUENCE) {
            let Some(known) = attribute.enter(OBJECT_ID) else { break };
            let Some((tag, content)) = attribute.any() else { break };
            if short_name(known.0) == Some(kind) {
                values.extend(characters(tag, content));
            }
        }
    }
    values
}

/// A part, which may have several attributes.
fn relative(mut attributes: Reader<'_>) -> String {
    let mut texts = Vec::new();
    while let Some(mut attribute) = attributes.enter(SEQUENCE) {
        let Some(kind) = attribute.enter(OBJECT_ID) else { break };
        let der = attribute.0;
        let Some((tag, content)) = attribute.any() else { break };
        let (name, value) = match short_name(kind.0) {
            Some(name) => (name.to_owned(), characters(tag, content).map(|text| escaped(&text))),
            None => (dotted(kind.0), None),
        };
        // RFC 2253 §2.4: what has no text is written as the octets of its encoding.
        let value = value.unwrap_or_else(|| format!("#{}", hex(der, Case::Upper)));
        texts.push(format!("{name}={value}"));
    }
    texts.reverse();
    texts.join("+")
}

/// The characters of a string of one of ASN.1's kinds.
fn characters(tag: u8, content: &[u8]) -> Option<String> {
    Some(match tag {
        UTF8_STRING => String::from_utf8_lossy(content).into_owned(),
        NUMERIC_STRING | PRINTABLE_STRING | T61_STRING | IA5_STRING | VISIBLE_STRING => {
            content.iter().copied().map(char::from).collect()
        }
        BMP_STRING => {
            let units = content.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
            char::decode_utf16(units)
                .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        UNIVERSAL_STRING => content
            .chunks_exact(4)
            .map(|unit| u32::from_be_bytes([unit[0], unit[1], unit[2], unit[3]]))
            .map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect(),
        _ => return None,
    })
}

/// RFC 2253 §2.4, with octets beyond ASCII and control characters as `\XX`.
fn escaped(text: &str) -> String {
    let (mut out, last) = (String::new(), text.len().saturating_sub(1));
    for (at, byte) in text.bytes().enumerate() {
        let at_edge = (at == 0 && matches!(byte, b' ' | b'#')) || (at == last && byte == b' ');
        match byte {
            b'\\' | b',' | b'+' | b'"' | b'<' | b'>' | b';' => out.extend(['\\', char::from(byte)]),
            _ if at_edge => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\{byte:02X}");
            }
        }
    }
    out
}

/// What an attribute is called, by the content octets of its identifier.
fn short_name(kind: &[u8]) -> Option<&'static str> {
    Some(match kind {
        [0x55, 0x04, 0x03] => "CN",
        [0x55, 0x04, 0x04] => "SN",
        [0x55, 0x04, 0x05] => "serialNumber",
        [0x55, 0x04, 0x06] => "C",
        [0x55, 0x04, 0x07] => "L",
        [0x55, 0x04, 0x08] => "ST",
        [0x55, 0x04, 0x09] => "street",
        [0x55, 0x04, 0x0a] => "O",
        [0x55, 0x04, 0x0b] => "OU",
        [0x55, 0x04, 0x0c] => "title",
        [0x55, 0x04, 0x0d] => "description",
        [0x55, 0x04, 0x0f] => "businessCategory",
        [0x55, 0x04, 0x11] => "postalCode",
        [0x55, 0x04, 0x29] => "name",
        [0x55, 0x04, 0x2a] => "GN",
        [0x55, 0x04, 0x2b] => "initials",
        [0x55, 0x04, 0x2c] => "generationQualifier",
        [0x55, 0x04, 0x2e] => "dnQualifier",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19] => "DC",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01] => "emailAddress",
        _ => return None,
    })
}

/// An object identifier with its numbers (X.690 §8.19); the first octets stand for two.
fn dotted(kind: &[u8]) -> String {
    let (mut numbers, mut number) = (Vec::new(), 0_u64);
    for &octet in kind {
        number = number << 7 | u64::from(octet & 0x7f);
        if octet & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first.to_string());
                number -= first * 40;
            }
            numbers.push(number.to_string());
            number = 0;
        }
    }
    numbers.join(".")
}

/// SHA-256 in 64 hexadecimal digits.
#[must_use]
pub fn sha256_text(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref(), Case::Lower)
}

/// How hexadecimal digits are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Lower,
    Upper,
}

/// Octets as hexadecimal digits.
pub(super) fn hex(octets: &[u8], case: Case) -> String {
    let mut out = String::with_capacity(2 * octets.len());
    for octet in octets {
        // Writing to a string does not fail.
        let _ = match case {
            Case::Lower => write!(out, "{octet:02x}"),
            Case::Upper => write!(out, "{octet:02X}"),
        };
    }
    out
}

const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const T61_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const VISIBLE_STRING: u8 = 0x1a;
const UNIVERSAL_STRING: u8 = 0x1c;
const BMP_STRING: u8 = 0x1e;

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut der = vec![tag, u8::try_from(content.len()).unwrap()];
        der.extend(content);
        der
    }

    fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        element(SEQUENCE, &[element(OBJECT_ID, kind), element(tag, value)].concat())
    }

    #[test]
    fn a_name_is_written_from_its_end() {
        const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
        const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
        let name = |parts: &[Vec<Vec<u8>>]| {
            let parts = parts.iter().map(|attributes| element(SET, &attributes.concat()));
            text(&element(SEQUENCE, &parts.collect::<Vec<_>>().concat()))
        };
        let company = attribute(ORGANIZATION, PRINTABLE_STRING, b"Example, Inc. ");
        let common = |value: &str| attribute(COMMON_NAME, UTF8_STRING, value.as_bytes());
        assert_eq!(name(&[]), "");
        assert_eq!(name(&[vec![company], vec![common("me")]]), r"CN=me,O=Example\, Inc.\ ");
        assert_eq!(name(&[vec![common("a"), common("b")]]), "CN=b+CN=a");
        assert_eq!(name(&[vec![common("# ü\n\\")]]), r"CN=\# \C3\BC\0A\\");
        let wide = attribute(COMMON_NAME, BMP_STRING, &[0, b'a', 0, 0xfc]);
        assert_eq!(name(&[vec![wide]]), r"CN=a\C3\BC");
        let unknown = attribute(&[0x2a, 0x86, 0x48, 3], UTF8_STRING, b"x");
        assert_eq!(name(&[vec![unknown]]), "1.2.840.3=#0C0178");
        let bits = attribute(COMMON_NAME, 0x03, &[0, 1]);
        assert_eq!(name(&[vec![bits]]), "CN=#03020001");
    }

    #[test]
    fn what_is_malformed_ends_a_name() {
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[SEQUENCE, 2, SET, 9]), "");
        assert_eq!(dotted(&[0x88, 0x37]), "2.999");
    }
}
