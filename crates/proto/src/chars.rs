//! Which bytes may stand where (RFC 9110 §5.6.2, RFC 3986 §2 and §3).

use crate::block;

const TOKEN: u8 = 1;
const NAME: u8 = 2;
const SCHEME: u8 = 4;
const UNDERSCORE: u8 = 8;
/// As [`block::plain`].
const PLAIN: u8 = 16;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let word = b.is_ascii_alphanumeric();
        if word || among(b, b"!#$%&'*+-.^_`|~") {
            table[byte] |= TOKEN;
        }
        // reg-name without its escapes, and without the comma: a list of hosts is no host.
        if word || among(b, b"-._~!$&'()*+;=") {
            table[byte] |= NAME;
        }
        if word || among(b, b"+-.") {
            table[byte] |= SCHEME;
        }
        if word || among(b, b"-._") {
            table[byte] |= PLAIN;
        }
        if b == b'_' {
            table[byte] |= UNDERSCORE;
        }
        byte += 1;
    }
    table
}

const fn among(byte: u8, set: &[u8]) -> bool {
    let mut index = 0;
    while index < set.len() {
        if set[index] == byte {
            return true;
        }
        index += 1;
    }
    false
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&byte| CLASSES[byte as usize] & class != 0)
}

/// RFC 9110 §5.6.2: one or more token characters.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// As [`is_token`], of the first `length` of 32 bytes.
#[inline(always)]
pub(crate) fn is_token_within(bytes: &[u8; 32], length: usize) -> bool {
    let (blocks, _) = bytes.as_chunks::<16>();
    let plain = block::plain(&blocks[0]) | block::plain(&blocks[1]) << 16;
    // Most names have nothing but letters, digits and hyphens.
    length > 0 && (!plain).trailing_zeros() as usize >= length || is_token(&bytes[..length])
}

/// RFC 3986 §3.1.
pub(crate) fn is_scheme(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(u8::is_ascii_alphabetic) && all(bytes, SCHEME)
}

/// Whether a token has an underscore in it.
pub(crate) fn has_underscore(bytes: &[u8]) -> bool {
    bytes.iter().any(|&byte| CLASSES[byte as usize] & UNDERSCORE != 0)
}

/// RFC 9110 §7.2 and RFC 3986 §3.2: `uri-host [ ":" port ]`, not empty, without userinfo.
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    split_authority(bytes).is_some()
}

/// RFC 9110 §9.3.6: the target of CONNECT always names a port.
pub(crate) fn is_connect_authority(bytes: &[u8]) -> bool {
    split_authority(bytes).is_some_and(|port| !port.is_empty())
}

/// The port's digits (perhaps none) if the whole is an authority.
fn split_authority(bytes: &[u8]) -> Option<&[u8]> {
    let digits = bytes.iter().rev().take(MAX_PORT_DIGITS).take_while(|byte| byte.is_ascii_digit());
    let before = bytes.len() - digits.count();
    let end = match bytes[..before] {
        [.., b':'] => before - 1,
        _ => bytes.len(),
    };
    if end > 0 && is_plain_name(&bytes[..end]) {
        return port(&bytes[end..]);
    }
    split_rare_authority(bytes)
}

/// As [`split_authority`], of what has more in it than letters, digits, hyphens, dots and a port.
fn split_rare_authority(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.first()? == &b'[' {
        let end = bytes.iter().position(|&byte| byte == b']')?;
        return if is_ip_literal(&bytes[1..end]) { port(&bytes[end + 1..]) } else { None };
    }
    let end =
        bytes.iter().position(|&byte| CLASSES[byte as usize] & NAME == 0).unwrap_or(bytes.len());
    if end < bytes.len() && bytes[end] == b'%' {
        let colon = bytes.iter().position(|&byte| byte == b':').unwrap_or(bytes.len());
        return if is_escaped_name(&bytes[..colon]) { port(&bytes[colon..]) } else { None };
    }
    if end > 0 { port(&bytes[end..]) } else { None }
}

/// Whether there are only letters, digits, `-`, `.` and `_`; the last block is looked at twice in part.
fn is_plain_name(bytes: &[u8]) -> bool {
    let all = |block: &[u8; 16]| block::plain(block) == 0xffff;
    if let Some(last) = bytes.last_chunk::<16>() {
        return bytes.as_chunks::<16>().0.iter().all(all) && all(last);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        let both = u128::from(u64::from_le_bytes(*first)) << 64;
        return all(&(both | u128::from(u64::from_le_bytes(*last))).to_le_bytes());
    }
    self::all(bytes, PLAIN)
}

/// RFC 3986 §3.2.3: nothing, or a colon and digits; no more than a TCP port can be.
fn port(bytes: &[u8]) -> Option<&[u8]> {
    let digits = match bytes {
        [] => return Some(bytes),
        [b':', digits @ ..] => digits,
        _ => return None,
    };
    let mut number = 0_u32;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    }
    (number <= u32::from(u16::MAX)).then_some(digits)
}

/// As many as 65535 has.
const MAX_PORT_DIGITS: usize = 5;

/// An IPv6 address; zone identifiers and future versions have no use between hosts.
fn is_ip_literal(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// RFC 3986 §3.2.2: a registered name, in which a percent sign is followed by two hexadecimal digits.
fn is_escaped_name(mut bytes: &[u8]) -> bool {
    loop {
        bytes = match bytes {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [byte, rest @ ..] if CLASSES[*byte as usize] & NAME != 0 => rest,
            _ => return false,
        };
    }
}

/// Without the spaces and tabs around it (RFC 9110 §5.6.3, OWS).
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list, without white space; empty ones are skipped (RFC 9110 §5.6.1).
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}

/// One hexadecimal digit, for percent-encoding.
pub(crate) const fn hex(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[(nibble & 15) as usize]
}

/// `1*DIGIT`, if it is below 2⁶⁴.
#[inline]
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    if digits.len() <= 18 {
        // 10¹⁸ is below 2⁶⁴.
        let (mut sum, mut others) = (0_u64, false);
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            others |= digit > 9;
            sum = sum.wrapping_mul(10).wrapping_add(digit.into());
        }
        return (!others).then_some(sum);
    }
    digits.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_authorities_are_judged_as_all_others() {
        for length in 0..40 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut bytes = vec![b'a'; length];
                    bytes[at] = byte;
                    assert_eq!(split_authority(&bytes), split_rare_authority(&bytes), "{bytes:?}");
                    bytes.extend_from_slice(b":8080");
                    assert_eq!(split_authority(&bytes), split_rare_authority(&bytes), "{bytes:?}");
                }
            }
        }
        for port in
            ["", ":", ":0", ":65535", ":65536", ":00080", ":000080", ":8a", "::1", ":1:2", "1:"]
        {
            for name in ["", "a", "127.0.0.1", "orders.example.com", "a,b", "a%41", "[::1]"] {
                let text = [name, port].concat();
                let bytes = text.as_bytes();
                assert_eq!(split_authority(bytes), split_rare_authority(bytes), "{text}");
            }
        }
    }
}
