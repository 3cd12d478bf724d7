//! Query strings, as Envoy's router reads them: `&` alone separates, a parameter without `=` has an empty value.

use std::collections::BTreeMap;

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

/// The parameters of a query, sorted by names, as Envoy's filters change them.
#[derive(Debug, Default)]
pub(crate) struct Parameters(pub(crate) BTreeMap<Vec<u8>, Vec<Vec<u8>>>);

impl Parameters {
    /// Those of a path. `&` alone separates; one without `=` has an empty value, and nothing between two of them is
    /// one too.
    pub(crate) fn of(path: &[u8], read: fn(&[u8]) -> Vec<u8>) -> Self {
        let mut all = BTreeMap::<_, Vec<_>>::new();
        let start = path.iter().position(|byte| *byte == b'?');
        let query = start.map_or(&[][..], |start| &path[start + 1..]);
        if query.is_empty() {
            return Self(all);
        }
        // What follows the last `&` is one only if it is something.
        let query = query.strip_suffix(b"&").unwrap_or(query);
        for part in query.split(|byte| *byte == b'&') {
            let equals = part.iter().position(|byte| *byte == b'=');
            let (name, value) = match equals {
                Some(equals) => (&part[..equals], &part[equals + 1..]),
                None => (part, &[][..]),
            };
            all.entry(read(name)).or_default().push(read(value));
        }
        Self(all)
    }

    /// The path with these in place of its own. What would end the line in which it stands is written as an escape.
    pub(crate) fn in_path(&self, path: &[u8]) -> Vec<u8> {
        let mut out = path.split(|byte| *byte == b'?').next().unwrap_or_default().to_vec();
        let mut delimiter = b'?';
        for (name, values) in &self.0 {
            for value in values {
                out.push(std::mem::replace(&mut delimiter, b'&'));
                name.iter().for_each(|byte| escape(*byte, u8::is_ascii_graphic, &mut out));
                out.push(b'=');
                value.iter().for_each(|byte| escape(*byte, u8::is_ascii_graphic, &mut out));
            }
        }
        out
    }
}

/// Writes a byte, as an escape unless it stands for itself.
pub(crate) fn escape(byte: u8, is_plain: fn(&u8) -> bool, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if is_plain(&byte) {
        out.push(byte);
    } else {
        out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
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
