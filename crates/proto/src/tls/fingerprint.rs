//! By what a client's TLS can be told from others': JA3
//! (<https://github.com/salesforce/ja3>) and JA4 (<https://github.com/FoxIO-LLC/ja4>), as Envoy makes them.
//!
//! Arrives: the records of a connection from its first byte. Leaves: texts, of which JA3's is still to be hashed by
//! MD5. What a client sends only to keep servers tolerant (RFC 8701) is left out, but in JA3's groups, as in Envoy.

use std::fmt::Write as _;

use super::distinguished::sha256_text;
use super::hello::{Hello, HelloReader, Reader};

/// What a whole `ClientHello` says of the client that wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    version: u16,
    suites: Vec<u16>,
    /// In order, the name and the protocols among them.
    extensions: Vec<u16>,
    /// The list of each of these extensions, as far as it can be read.
    groups: Vec<u16>,
    formats: Vec<u8>,
    schemes: Vec<u16>,
    versions: Vec<u16>,
    /// The first protocol that is offered.
    protocol: Vec<u8>,
}

impl Fingerprint {
    /// Reads all that has come since a connection's first byte. `None` if it is no `ClientHello`, or not whole.
    #[must_use]
    pub fn read(records: &[u8]) -> Option<Self> {
        let mut reader = HelloReader::default();
        reader.read(records).filter(|offer| offer.is_hello)?;
        let hello = Hello::of_message(reader.message())?;
        let mut print = Self { version: hello.version, ..Self::default() };
        print.suites = numbers(hello.suites).filter(|suite| !is_grease(*suite)).collect();
        let mut extensions = hello.extensions;
        while let Some((kind, mut content)) = extensions.extension() {
            let list = |content: &mut Reader<'_>| content.take(2).map(|_| ());
            match kind {
                GROUPS if list(&mut content).is_some() => print.groups = numbers(content).collect(),
                POINT_FORMATS if content.take(1).is_some() => print.formats = content.0.to_vec(),
                SCHEMES if list(&mut content).is_some() => {
                    print.schemes = numbers(content).collect()
                }
                VERSIONS => {
                    print.versions = content.list8().into_iter().flat_map(numbers).collect()
                }
                PROTOCOLS if list(&mut content).is_some() => {
                    print.protocol = content.list8().map_or_else(Vec::new, |name| name.0.to_vec());
                }
                _ => {}
            }
            if !is_grease(kind) {
                print.extensions.push(kind);
            }
        }
        Some(print)
    }

    /// What JA3 is the MD5 of: `version,suites,extensions,groups,formats`, numbers joined by `-`.
    #[must_use]
    pub fn ja3(&self) -> String {
        let joined = |numbers: &[u16]| join(numbers.iter().map(u16::to_string), '-');
        format!(
            "{},{},{},{},{}",
            self.version,
            joined(&self.suites),
            joined(&self.extensions),
            joined(&self.groups),
            join(self.formats.iter().map(u8::to_string), '-')
        )
    }

    /// JA4: version, whether a server is named, counts, protocol, and 48 bits of two hashes.
    #[must_use]
    pub fn ja4(&self) -> String {
        let newest = self.versions.iter().copied().filter(|version| !is_grease(*version)).max();
        let version = match newest.filter(|version| *version != 0).unwrap_or(self.version) {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            _ => "00",
        };
        let named = if self.extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
        let (suites, extensions) = (self.suites.len().min(99), self.extensions.len().min(99));
        let mut text = format!("t{version}{named}{suites:02}{extensions:02}");
        match self.protocol[..] {
            [] => text.push_str("00"),
            [first, .., last] | [first @ last]
                if [first, last].iter().all(u8::is_ascii_alphanumeric) =>
            {
                text.extend([char::from(first), char::from(last)]);
            }
            [first, .., last] | [first @ last] => {
                let _ = write!(text, "{:x}{:x}", first >> 4, last & 0x0f);
            }
        }
        let others = self.extensions.iter().copied();
        let others = others.filter(|kind| ![SERVER_NAME, PROTOCOLS].contains(kind)).collect();
        let mut schemes = join(self.schemes.iter().map(four_digits), ',');
        if !schemes.is_empty() {
            schemes.insert(0, '_');
        }
        let _ = write!(
            text,
            "_{}_{}",
            short_hash(self.suites.clone(), ""),
            short_hash(others, &schemes)
        );
        text
    }
}

/// The first 48 bits of a hash of sorted numbers and what follows them.
fn short_hash(mut numbers: Vec<u16>, rest: &str) -> String {
    if numbers.is_empty() {
        return "0".repeat(12);
    }
    numbers.sort_unstable();
    let text = join(numbers.iter().map(four_digits), ',') + rest;
    let mut hash = sha256_text(text.as_bytes());
    hash.truncate(12);
    hash
}

fn four_digits(number: &u16) -> String {
    format!("{number:04x}")
}

fn join(parts: impl Iterator<Item = String>, between: char) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() {
            text.push(between);
        }
        text.push_str(&part);
    }
    text
}

fn numbers(mut list: Reader<'_>) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || list.number())
}

/// RFC 8701 §2: values that mean nothing.
const fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SCHEMES: u16 = 13;
const PROTOCOLS: u16 = 16;
const VERSIONS: u16 = 43;
