//! Cookies of a request.

use towpath_proto::{Head, Name};

/// The value of a cookie (RFC 6265 §4.2.1), without quotes around it; none if that is empty.
pub(crate) fn cookie<'a>(head: &'a Head, name: &[u8]) -> Option<&'a [u8]> {
    first_cookie(head, name).filter(|value| !value.is_empty())
}

/// The same of one that may be empty.
pub(crate) fn first_cookie<'a>(head: &'a Head, name: &[u8]) -> Option<&'a [u8]> {
    let pairs = head.values(Name::Cookie).flat_map(|field| field.split(|byte| *byte == b';'));
    let named = pairs.filter_map(|pair| {
        let pair = pair.trim_ascii();
        let at = pair.iter().position(|byte| *byte == b'=')?;
        (&pair[..at] == name).then(|| &pair[at + 1..])
    });
    let value = named.into_iter().next()?;
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(inner.unwrap_or(value))
}
