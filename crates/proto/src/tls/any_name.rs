//! Server names that are no domain names: an address, one whose last label is a number, one with a wildcard. RFC 6066
//! §3 has no place for them, but clients and servers that agree on them are about: Envoy sends and takes any text.
//!
//! rustls can express domain names alone. So it is given another spelling, which is one: `payments.9090` is
//! `payments.9090.sni.invalid` to it, and `*.test` `_2a.test.sni.invalid` (RFC 6761 §6.4: no host is called so). The
//! `ClientHello` that the peer sees, and what is hashed and signed of it (`transcript.rs`), have the name itself.

use rustls::pki_types::DnsName;

use super::hello::{
    CLIENT_HELLO, HANDSHAKE, HOST_NAME, MESSAGE_HEADER_BYTES, RANDOM_BYTES, Reader, SERVER_NAME,
};

/// The name as rustls can express it; `None` where it is one that needs no other spelling, or has none: more than some
/// 240 bytes, a label of more than 63, an empty one, one that begins or ends with a hyphen, a NUL.
pub(super) fn spell(name: &str) -> Option<DnsName<'static>> {
    if name.is_empty() || name.contains('\0') || is_expressible(name) {
        return None;
    }
    let mut spelled = String::with_capacity(name.len() + SUFFIX.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.') {
            spelled.push(char::from(byte));
        } else {
            let digits = [byte >> 4, byte & 15].map(|digit| HEX_DIGITS[usize::from(digit)]);
            spelled.push(ESCAPE);
            spelled.extend(digits.map(char::from));
        }
    }
    spelled.push_str(SUFFIX);
    DnsName::try_from(spelled).ok()
}

/// Whether rustls expresses it as it is.
pub(super) fn is_expressible(name: &str) -> bool {
    !name.ends_with(SUFFIX) && DnsName::try_from(name).is_ok()
}

/// The name behind a spelling of [`spell`]; `None` for any other.
pub(super) fn read_back(spelled: &str) -> Option<String> {
    let escaped = spelled.strip_suffix(SUFFIX)?;
    let mut pieces = escaped.split(ESCAPE);
    let mut name = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        name.push(u8::from_str_radix(digits, 16).ok()?);
        name.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(name).ok()
}

/// Handshake messages with the name itself in the `ClientHello` among them, the last of which may be cut off (RFC 8446
/// §4.2.11.2); `None` when they are as they should be.
pub(super) fn restore(messages: &[u8]) -> Option<Vec<u8>> {
    let mut start = 0;
    while let Some(&[kind, high, middle, low]) = messages.get(start..)?.first_chunk() {
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let end = (start + MESSAGE_HEADER_BYTES + length).min(messages.len());
        if kind == CLIENT_HELLO
            && let Some(hello) = renamed(&messages[start..end], read_back)
        {
            return Some([&messages[..start], &hello, &messages[end..]].concat());
        }
        start = end;
    }
    None
}

/// Puts the name itself into a `ClientHello` that stands behind `start` in records to be sent.
pub(super) fn restore_record(records: &mut Vec<u8>, start: usize) {
    let Some(([HANDSHAKE, _, _, high, low], rest)) = records[start..].split_first_chunk() else {
        return;
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let Some(hello) = rest.get(..length).and_then(restore) else { return };
    let Ok(restored) = u16::try_from(hello.len()) else { return };
    let content = start + RECORD_HEADER_BYTES;
    records.splice(content..content + length, hello);
    records[content - 2..content].copy_from_slice(&restored.to_be_bytes());
}

/// A `ClientHello` in records, its name as rustls can express it; `None` where nothing has to be spelled.
pub(super) fn spelled_records(hello: &[u8]) -> Option<Vec<u8>> {
    let hello = renamed(hello, |name| Some(spell(name)?.as_ref().to_owned()))?;
    let mut records = Vec::with_capacity(hello.len() + RECORD_HEADER_BYTES);
    for piece in hello.chunks(MOST_RECORD_BYTES) {
        records.extend_from_slice(&[HANDSHAKE, 3, 1]);
        // A piece fits.
        records.extend_from_slice(&u16::try_from(piece.len()).unwrap_or_default().to_be_bytes());
        records.extend_from_slice(piece);
    }
    Some(records)
}

/// A `ClientHello`, the end of which may be missing, with another name; `None` without a name, or one to put there.
fn renamed(hello: &[u8], other: impl FnOnce(&str) -> Option<String>) -> Option<Vec<u8>> {
    let mut rest = Reader(hello.get(MESSAGE_HEADER_BYTES + VERSION_BYTES + RANDOM_BYTES..)?);
    let _before = (rest.list8()?, rest.list16()?, rest.list8()?);
    let extensions = hello.len() - rest.0.len();
    rest.number()?;
    let extension = loop {
        let start = hello.len() - rest.0.len();
        if rest.extension()?.0 == SERVER_NAME {
            break start;
        }
    };
    let name = extension + NAME_IN_EXTENSION;
    let (mut list, end) = (Reader(hello.get(extension + 4..)?), hello.len() - rest.0.len());
    let mut names = list.list16()?;
    let is_host = names.take(1)? == HOST_NAME;
    let old = names.list16()?.0;
    if !is_host || !names.0.is_empty() || name + old.len() != end {
        return None;
    }
    let new = other(std::str::from_utf8(old).ok()?)?;
    let mut changed = [&hello[..name], new.as_bytes(), &hello[end..]].concat();
    let [_, high, middle, low, ..] = changed[..] else { return None };
    let length = u32::from_be_bytes([0, high, middle, low]) as usize + new.len();
    let length = u32::try_from(length.checked_sub(old.len())?).ok()?.to_be_bytes();
    changed[1..MESSAGE_HEADER_BYTES].copy_from_slice(&length[1..]);
    for at in [extensions, extension + 2, extension + 4, name - 2] {
        let field = changed.get_mut(at..at + 2)?;
        let length = usize::from(u16::from_be_bytes([field[0], field[1]])) + new.len();
        let length = u16::try_from(length.checked_sub(old.len())?).ok()?;
        field.copy_from_slice(&length.to_be_bytes());
    }
    Some(changed)
}

const SUFFIX: &str = ".sni.invalid";
const ESCAPE: char = '_';
const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
const VERSION_BYTES: usize = 2;
const RECORD_HEADER_BYTES: usize = 5;
const MOST_RECORD_BYTES: usize = 16 * 1024;
/// The kind and the length of the extension, the length of the list, the kind and the length of the name.
const NAME_IN_EXTENSION: usize = 2 + 2 + 2 + 1 + 2;
