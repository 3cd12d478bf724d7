//! What of a certificate is looked at beside its signature: who issued it, when it is valid, its key and its names.
//!
//! Arrives: DER (X.690) as a peer sent it. Leaves: slices of it. Reads RFC 5280 §4.1 and nothing more; a caller that
//! wants to know whether the certificate is to be believed asks the cryptography library.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::distinguished::{self, Case, hex};
use super::other_name;
use super::verify::sha256;

/// A certificate, as ranges over its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Certificate<'a> {
    serial: &'a [u8],
    issuer: &'a [u8],
    validity: (i64, i64),
    subject: &'a [u8],
    key: &'a [u8],
    names: Option<&'a [u8]>,
    /// Its extensions, one after the other.
    extensions: &'a [u8],
    must_staple: bool,
    signs: bool,
}

/// Another name of a certificate's subject (RFC 5280 §4.2.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlternativeName<'a> {
    /// A domain name, possibly with a wildcard.
    Dns(&'a [u8]),
    /// A URI, such as a SPIFFE id.
    Uri(&'a [u8]),
    /// A mail address.
    Email(&'a [u8]),
    /// An IP address.
    Ip(IpAddr),
    /// A name of a kind that is named by an object identifier.
    Other {
        /// The identifier's content octets.
        kind: &'a [u8],
        /// The value's type.
        tag: u8,
        /// The value's content octets.
        value: &'a [u8],
    },
}

impl<'a> AlternativeName<'a> {
    /// What it says, as text.
    #[must_use]
    pub fn text(&self) -> Cow<'a, [u8]> {
        match *self {
            Self::Dns(text) | Self::Uri(text) | Self::Email(text) => Cow::Borrowed(text),
            Self::Ip(address) => Cow::Owned(address.to_string().into_bytes()),
            Self::Other { tag, value, .. } => other_name::text(tag, value),
        }
    }
}

impl<'a> Certificate<'a> {
    /// Reads a certificate; `None` if it is not one.
    #[must_use]
    pub fn parse(der: &'a [u8]) -> Option<Self> {
        let mut whole = Reader(der);
        let mut certificate = whole.enter(SEQUENCE)?;
        if !whole.0.is_empty() {
            return None;
        }
        let mut body = certificate.enter(SEQUENCE)?;
        body.skip_if(VERSION)?;
        let serial = body.enter(INTEGER)?.0;
        body.enter(SEQUENCE)?;
        let issuer = body.element(SEQUENCE)?;
        let mut validity = body.enter(SEQUENCE)?;
        let validity = (validity.time()?, validity.time()?);
        let subject = body.element(SEQUENCE)?;
        let key = body.element(SEQUENCE)?;
        body.skip_if(ISSUER_ID)?;
        body.skip_if(SUBJECT_ID)?;
        let Extensions { all: extensions, names, must_staple, no_signatures } = match body.0 {
            [] => Extensions::default(),
            _ => Extensions::read(body.enter(EXTENSIONS)?)?,
        };
        let signs = !no_signatures;
        Some(Self { serial, issuer, validity, subject, key, names, extensions, must_staple, signs })
    }

    /// The first certificate (DER) in a PEM file, if there is one.
    #[must_use]
    pub fn first_of(pem: &[u8]) -> Option<Vec<u8>> {
        Some(CertificateDer::pem_slice_iter(pem).next()?.ok()?.to_vec())
    }

    /// SHA-256 of a certificate (DER) in hexadecimal digits.
    #[must_use]
    pub fn fingerprint(der: &[u8]) -> String {
        hex(&sha256(der), Case::Lower)
    }

    /// SHA-1 of a certificate (DER) in hexadecimal digits. It tells certificates apart, but no forged ones.
    #[must_use]
    pub fn old_fingerprint(der: &[u8]) -> String {
        use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
        hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, der).as_ref(), Case::Lower)
    }

    /// Whether issuer and subject are the same.
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Whether it has the name of another's issuer.
    pub(super) fn may_have_issued(&self, other: &Self) -> bool {
        self.subject == other.issuer
    }

    /// Its serial number in hexadecimal digits, as Envoy writes it.
    #[must_use]
    pub fn serial(&self) -> String {
        // An integer whose first bit is set has an octet of zeros before it (X.690 §8.3).
        hex(self.serial.strip_prefix(&[0]).unwrap_or(self.serial), Case::Lower)
    }

    /// Its serial number's content octets.
    pub(super) const fn serial_octets(&self) -> &'a [u8] {
        self.serial
    }

    /// Whether it demands that its server shows what its authority says of it (RFC 7633).
    pub(super) const fn must_staple(&self) -> bool {
        self.must_staple
    }

    /// Whether its key may sign handshakes (RFC 5280 §4.2.1.3, `digitalSignature`): it does not say what its key is
    /// for, or says that among others.
    pub(super) const fn signs(&self) -> bool {
        self.signs
    }

    /// Whom it is for, as RFC 2253 writes it.
    #[must_use]
    pub fn subject(&self) -> String {
        distinguished::text(self.subject)
    }

    /// The common names of its subject, in their order.
    #[must_use]
    pub fn common_names(&self) -> Vec<String> {
        distinguished::values(self.subject, "CN")
    }

    /// The organizations of its subject, in their order.
    #[must_use]
    pub fn organizations(&self) -> Vec<String> {
        distinguished::values(self.subject, "O")
    }

    /// Who has issued it, as RFC 2253 writes it.
    #[must_use]
    pub fn issuer(&self) -> String {
        distinguished::text(self.issuer)
    }

    /// First and last second at which it is valid, since 1970.
    #[must_use]
    pub const fn validity(&self) -> (i64, i64) {
        self.validity
    }

    /// Its `SubjectPublicKeyInfo`, whole.
    #[must_use]
    pub const fn subject_public_key_info(&self) -> &'a [u8] {
        self.key
    }

    /// The object identifiers of its extensions in digits and dots, in their order.
    pub fn extension_ids(&self) -> impl Iterator<Item = String> + use<'a> {
        let mut rest = Reader(self.extensions);
        let ids = std::iter::from_fn(move || rest.enter(SEQUENCE)?.enter(OBJECT_ID));
        ids.filter_map(|id| other_name::dotted(id.0))
    }

    /// Its alternative names, but for kinds that are never matched (X.400, directory and EDI names, registered ids).
    pub fn alternative_names(&self) -> impl Iterator<Item = AlternativeName<'a>> + use<'a> {
        let mut rest = Reader(self.names.unwrap_or_default());
        std::iter::from_fn(move || rest.any()).filter_map(|(tag, content)| name(tag, content))
    }

    /// Whether one of its alternative names is this host: a domain, where `*` may stand for the first label of the
    /// certificate's (RFC 6125 §6.4.3), a URI or an IP address.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        self.alternative_names().any(|name| match name {
            AlternativeName::Dns(domain) => is_domain_for(domain, host.as_bytes()),
            AlternativeName::Uri(uri) => uri == host.as_bytes(),
            AlternativeName::Ip(ip) => host.parse() == Ok(ip),
            AlternativeName::Email(_) | AlternativeName::Other { .. } => false,
        })
    }

    /// The names of the server that it is for: its alternative names for domains, or without any alternative name at
    /// all its subject's common name (RFC 6125 §6.4.4).
    pub(super) fn server_names(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let common_name = if self.names.is_none() { common_name(self.subject) } else { None };
        let domains = self.alternative_names().filter_map(|name| match name {
            AlternativeName::Dns(domain) => Some(domain),
            AlternativeName::Uri(_)
            | AlternativeName::Email(_)
            | AlternativeName::Ip(_)
            | AlternativeName::Other { .. } => None,
        });
        domains.chain(common_name)
    }
}

fn is_domain_for(domain: &[u8], host: &[u8]) -> bool {
    if domain.eq_ignore_ascii_case(host) {
        return true;
    }
    let label = host.iter().position(|byte| *byte == b'.');
    match (domain.strip_prefix(b"*"), label) {
        (Some(rest), Some(label)) if label > 0 && rest.len() > 1 => {
            rest.eq_ignore_ascii_case(&host[label..])
        }
        _ => false,
    }
}

/// The first `commonName` of a subject.
fn common_name(subject: &[u8]) -> Option<&[u8]> {
    let mut subject = Reader(subject).enter(SEQUENCE)?;
    loop {
        let mut attributes = subject.enter(SET)?;
        while !attributes.0.is_empty() {
            let mut attribute = attributes.enter(SEQUENCE)?;
            if attribute.enter(OBJECT_ID)?.0 == COMMON_NAME {
                return Some(attribute.any()?.1);
            }
        }
    }
}

/// What of a certificate's extensions is looked at.
#[derive(Default)]
struct Extensions<'a> {
    all: &'a [u8],
    /// The content of `subjectAltName`.
    names: Option<&'a [u8]>,
    must_staple: bool,
    /// A `keyUsage` without `digitalSignature`.
    no_signatures: bool,
}

impl<'a> Extensions<'a> {
    /// `None` is for malformed ones.
    fn read(mut extensions: Reader<'a>) -> Option<Self> {
        let mut list = extensions.enter(SEQUENCE)?;
        let mut found = Self { all: list.0, ..Self::default() };
        while !list.0.is_empty() {
            let mut extension = list.enter(SEQUENCE)?;
            let id = extension.enter(OBJECT_ID)?.0;
            extension.skip_if(BOOLEAN)?;
            let mut value = extension.enter(OCTET_STRING)?;
            match id {
                SUBJECT_ALT_NAME => found.names = Some(value.enter(SEQUENCE)?.0),
                KEY_USAGE => {
                    // Behind the number of bits that do not count.
                    let first = value.enter(BIT_STRING)?.0.get(1).copied().unwrap_or_default();
                    found.no_signatures = first & DIGITAL_SIGNATURE == 0;
                }
                TLS_FEATURE => {
                    let mut features = value.enter(SEQUENCE)?;
                    while !features.0.is_empty() {
                        found.must_staple |= features.enter(INTEGER)?.0 == STATUS_REQUEST;
                    }
                }
                _ => {}
            }
        }
        // A name that cannot be read makes the list unfit, not shorter.
        let mut rest = Reader(found.names.unwrap_or_default());
        while !rest.0.is_empty() {
            rest.any()?;
        }
        Some(found)
    }
}

fn name(tag: u8, content: &[u8]) -> Option<AlternativeName<'_>> {
    match tag {
        0xa0 => {
            let mut other = Reader(content);
            let kind = other.enter(OBJECT_ID)?.0;
            let (tag, value) = other.enter(OTHER_NAME_VALUE)?.any()?;
            Some(AlternativeName::Other { kind, tag, value })
        }
        0x81 => Some(AlternativeName::Email(content)),
        0x82 => Some(AlternativeName::Dns(content)),
        0x86 => Some(AlternativeName::Uri(content)),
        0x87 => {
            let v4 = <[u8; 4]>::try_from(content).map(|octets| Ipv4Addr::from(octets).into());
            let v6 = || <[u8; 16]>::try_from(content).map(|octets| Ipv6Addr::from(octets).into());
            v4.or_else(|_| v6()).ok().map(AlternativeName::Ip)
        }
        _ => None,
    }
}

/// What is left to read.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next element's tag and content.
    pub(super) fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        // Tags of more than one byte do not occur in certificates.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, rest) = length(first, rest)?;
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The next element's content, if it has this tag.
    pub(super) fn enter(&mut self, tag: u8) -> Option<Self> {
        let (found, content) = self.any()?;
        (found == tag).then_some(Self(content))
    }

    /// The next element with its tag and length.
    fn element(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        self.enter(tag)?;
        before.get(..before.len() - self.0.len())
    }

    /// Passes over the next element if it has this tag. `None` if it is malformed.
    fn skip_if(&mut self, tag: u8) -> Option<()> {
        if self.0.first() == Some(&tag) {
            self.any()?;
        }
        Some(())
    }

    /// `UTCTime` or `GeneralizedTime` in the forms of RFC 5280 §4.1.2.5, as seconds since 1970.
    pub(super) fn time(&mut self) -> Option<i64> {
        let (tag, text) = self.any()?;
        let text = text.strip_suffix(b"Z")?;
        let (first, rest) = two_digits(text)?;
        let (year, rest) = match tag {
            UTC_TIME if first < 50 => (2000 + i32::from(first), rest),
            UTC_TIME => (1900 + i32::from(first), rest),
            GENERALIZED_TIME => {
                let (last, rest) = two_digits(rest)?;
                (i32::from(first) * 100 + i32::from(last), rest)
            }
            _ => return None,
        };
        let (month, rest) = two_digits(rest)?;
        let (day, rest) = two_digits(rest)?;
        let (hour, rest) = two_digits(rest)?;
        let (minute, rest) = two_digits(rest)?;
        let (second, rest) = two_digits(rest)?;
        if !rest.is_empty() {
            return None;
        }
        let month = time::Month::try_from(month).ok()?;
        let date = time::Date::from_calendar_date(year, month, day).ok()?;
        Some(date.with_hms(hour, minute, second).ok()?.as_utc().unix_timestamp())
    }
}

/// A length in its shortest form (X.690 §10.1), and what follows it.
fn length(first: u8, rest: &[u8]) -> Option<(usize, &[u8])> {
    if first < 0x80 {
        return Some((first.into(), rest));
    }
    let octets = usize::from(first & 0x7f);
    if !(1..=3).contains(&octets) {
        return None;
    }
    let (length, rest) = rest.split_at_checked(octets)?;
    let value = length.iter().fold(0, |value, &octet| value << 8 | usize::from(octet));
    let shortest = length.first() != Some(&0) && value >= 0x80;
    shortest.then_some((value, rest))
}

fn two_digits(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<2>()?;
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| ((digits[0] - b'0') * 10 + (digits[1] - b'0'), rest))
}

const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;
const OTHER_NAME_VALUE: u8 = 0xa0;
/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.15.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
/// The first bit.
const DIGITAL_SIGNATURE: u8 = 0x80;
/// 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// 1.3.6.1.5.5.7.1.24.
const TLS_FEATURE: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x18];
/// The number of the TLS extension `status_request`.
const STATUS_REQUEST: &[u8] = &[5];

#[cfg(test)]
mod tests {
    #[test]
    fn a_wildcard_stands_for_one_label() {
        for (domain, host, is_for) in [
            ("a.test", "A.test", true),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "c.b.a.test", false),
            ("*.a.test", ".a.test", false),
            ("*", "a", false),
            ("b*.a.test", "bb.a.test", false),
        ] {
            assert_eq!(
                is_domain_for(domain.as_bytes(), host.as_bytes()),
                is_for,
                "{domain} {host}"
            );
        }
    }

    use super::*;

    #[test]
    fn times_have_two_forms_and_no_other() {
        let time = |tag: u8, text: &[u8]| {
            let mut der = vec![tag, u8::try_from(text.len()).unwrap()];
            der.extend(text);
            Reader(&der).time()
        };
        assert_eq!(time(UTC_TIME, b"941106084937Z"), Some(784_111_777));
        assert_eq!(time(UTC_TIME, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(time(GENERALIZED_TIME, b"20500101000000Z"), Some(2_524_608_000));
        assert_eq!(time(GENERALIZED_TIME, b"19691231235959Z"), Some(-1));
        assert_eq!(time(GENERALIZED_TIME, b"99991231235959Z"), Some(253_402_300_799));
        assert_eq!(time(GENERALIZED_TIME, b"20010229000000Z"), None, "no leap year");
        for text in [&b"9411060849Z"[..], b"941106084937", b"941306084937Z", b"94110608493xZ", b""]
        {
            assert_eq!(time(UTC_TIME, text), None);
        }
    }

    #[test]
    fn lengths_have_their_shortest_form() {
        assert_eq!(length(0x7f, &[]), Some((0x7f, &[][..])));
        assert_eq!(length(0x81, &[0x80, 9]), Some((0x80, &[9][..])));
        assert_eq!(length(0x82, &[1, 0]), Some((0x100, &[][..])));
        for (first, rest) in [
            (0x80, &[][..]),
            (0x81, &[0x7f]),
            (0x81, &[]),
            (0x82, &[0, 0x80]),
            (0x84, &[1, 0, 0, 0]),
            (0xff, &[]),
        ] {
            assert_eq!(length(first, rest), None, "{first:x} {rest:?}");
        }
    }
}
