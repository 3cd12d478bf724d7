//! Parts of targets and authorities, as RFC 3986 names them.

pub mod query;

/// Where the path of an origin-form target ends: at `?` or `#`.
#[must_use]
#[inline]
pub fn path_end(target: &[u8]) -> usize {
    memchr::memchr2(b'?', b'#', target).unwrap_or(target.len())
}

/// The path of an origin-form target.
#[must_use]
pub fn without_query(target: &[u8]) -> &[u8] {
    &target[..path_end(target)]
}

/// An absolute URL as scheme, authority, and what is behind that, with its fragment. None where it is not absolute, or
/// could not stand in a head.
pub(crate) fn absolute(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let at = text.windows(3).position(|bytes| bytes == b"://")?;
    let (scheme, rest) = (&text[..at], &text[at + 3..]);
    let is_plain = text.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    if scheme.is_empty() || !scheme.iter().all(u8::is_ascii_alphabetic) || !is_plain {
        return None;
    }
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    Some((scheme, &rest[..end], &rest[end..]))
}

/// A path and query without a fragment.
pub(crate) fn without_fragment(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| *byte == b'#').unwrap_or(target.len());
    &target[..end]
}

/// The authority without `:port`; brackets of an IPv6 address stay.
#[must_use]
pub fn without_port(authority: &[u8]) -> &[u8] {
    match port_start(authority) {
        Some(colon) => &authority[..colon],
        None => authority,
    }
}

/// Where the `:` of the port is, if the authority has one.
#[must_use]
pub fn port_start(authority: &[u8]) -> Option<usize> {
    let colon = authority.iter().rposition(|byte| *byte == b':')?;
    let (name, port) = (&authority[..colon], &authority[colon + 1..]);
    let bare_ipv6 = name.contains(&b':') && name.last() != Some(&b']');
    (!bare_ipv6 && port.iter().all(u8::is_ascii_digit)).then_some(colon)
}
