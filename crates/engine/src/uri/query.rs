//! Query strings, as Envoy's router reads them: `&` alone separates, a parameter without `=` has an empty value.

/// The first value of the parameter `name`, as it is written. Names are compared as they are written, too.
#[must_use]
pub fn first<'a>(target: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    parameters(target).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The first value of the parameter whose decoded name is `name`, as it is written.
#[must_use]
pub fn first_decoded<'a>(target: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    parameters(target)
        .find(|(key, _)| decoded(key).eq(name.iter().copied()))
        .map(|(_, value)| value)
}

/// The bytes with `%XX` decoded; what is no escape stays.
pub fn decoded(value: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = value;
    std::iter::from_fn(move || {
        let (byte, after) = rest.split_first()?;
        if let (b'%', [high, low, after @ ..]) = (byte, after)
            && let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low))
        {
            rest = after;
            return Some(high << 4 | low);
        }
        rest = after;
        Some(*byte)
    })
}

/// The target without the parameters whose decoded name is `name`; the others stay as they are.
#[must_use]
pub fn without(target: &[u8], name: &[u8]) -> Vec<u8> {
    let Some(start) = target.iter().position(|byte| *byte == b'?') else { return target.to_vec() };
    let (path, query) = (&target[..start], &target[start + 1..]);
    let is_other = |part: &&[u8]| {
        let key = part.split(|byte| *byte == b'=').next().unwrap_or_default();
        !decoded(key).eq(name.iter().copied())
    };
    let kept: Vec<&[u8]> = query.split(|byte| *byte == b'&').filter(is_other).collect();
    let query = kept.join(&b'&');
    if query.is_empty() { path.to_vec() } else { [path, b"?", &query].concat() }
}

/// The value of a hexadecimal digit.
pub(crate) const fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Names and values in their order. A fragment ends the query.
fn parameters(target: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let start = target.iter().position(|byte| *byte == b'?').map_or(target.len(), |at| at + 1);
    let query = &target[start..];
    let end = query.iter().position(|byte| *byte == b'#').unwrap_or(query.len());
    query[..end].split(|byte| *byte == b'&').filter(|part| !part.is_empty()).map(|part| match part
        .iter()
        .position(|byte| *byte == b'=')
    {
        Some(equals) => (&part[..equals], &part[equals + 1..]),
        None => (part, &part[part.len()..]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_counts() {
        let target = b"/p?a=1&b&a=2&c=x=y&&d=&%65=e";
        for (name, value) in [
            ("a", Some("1")),
            ("b", Some("")),
            ("c", Some("x=y")),
            ("d", Some("")),
            ("e", None),
            ("%65", Some("e")),
            ("", None),
        ] {
            assert_eq!(first(target, name.as_bytes()), value.map(str::as_bytes), "{name}");
        }
        assert_eq!(first_decoded(target, b"e"), Some(&b"e"[..]));
        assert_eq!(first(b"/p", b"a"), None);
        assert_eq!(first(b"/p?", b""), None);
    }

    #[test]
    fn escapes_are_decoded_and_the_rest_stays() {
        for (text, plain) in [("a%41%zz%4", "aA%zz%4"), ("%", "%"), ("%%41", "%A"), ("+", "+")] {
            assert!(decoded(text.as_bytes()).eq(plain.bytes()), "{text}");
        }
    }

    #[test]
    fn a_parameter_is_taken_out_and_the_others_stay_as_they_are() {
        for (target, wanted) in [
            ("/a?t=1", "/a"),
            ("/a?t", "/a"),
            ("/a?z=1&t=2&b=%20c&t=3&&d", "/a?z=1&b=%20c&&d"),
            ("/a?%74=1&tt=2", "/a?tt=2"),
            ("/a", "/a"),
            ("/a?", "/a"),
        ] {
            assert_eq!(without(target.as_bytes(), b"t"), wanted.as_bytes(), "{target}");
        }
    }
}
