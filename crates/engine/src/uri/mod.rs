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
