//! The directives of `cache-control` (RFC 9111 §5.2).

/// Those of one message: names in lower case, arguments without their quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Control(Vec<(String, Option<String>)>);

impl Control {
    /// Those of all the fields of that name.
    pub(super) fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut directives = Vec::new();
        for value in values {
            let value = String::from_utf8_lossy(value);
            directives.extend(elements(&value).filter_map(directive));
        }
        Self(directives)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    /// A number of seconds. One that cannot be read is 0, and of several the least counts: what is not clear is not
    /// fresh (§4.2.1).
    pub(super) fn seconds(&self, name: &str) -> Option<u64> {
        let named = self.0.iter().filter(|(other, _)| other == name);
        named.map(|(_, argument)| argument.as_deref().map_or(0, delta_seconds)).min()
    }

    /// Whether a directive is there without its argument.
    pub(super) fn is_bare(&self, name: &str) -> bool {
        self.0.iter().any(|(other, argument)| other == name && argument.is_none())
    }
}

/// RFC 9111 §1.2.2: what is too large is as long as it gets.
pub(super) fn delta_seconds(text: &str) -> u64 {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    text.parse().unwrap_or(LONGEST_S).min(LONGEST_S)
}

/// The parts of a list, divided by commas that are not inside quotes (RFC 9110 §5.6.1).
pub(super) fn elements(value: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = value.split(move |character| {
        let is_escaped = std::mem::take(&mut escaped);
        match character {
            '\\' if quoted => escaped = !is_escaped,
            '"' if !is_escaped => quoted = !quoted,
            _ => {}
        }
        character == ',' && !quoted
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

fn directive(element: &str) -> Option<(String, Option<String>)> {
    let (name, argument) = match element.split_once('=') {
        Some((name, argument)) => (name, Some(argument.trim().trim_matches('"').to_owned())),
        None => (element, None),
    };
    let name = name.trim().to_ascii_lowercase();
    (!name.is_empty()).then_some((name, argument))
}

const LONGEST_S: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    fn control(value: &str) -> Control {
        Control::of([value.as_bytes()].into_iter())
    }

    #[test]
    fn directives_are_read_whatever_their_case_and_quotes() {
        let read = control("Max-Age=60, private=\"a, b\" ,, NO-CACHE, x=\"\\\",no-store\"");
        assert_eq!(read.seconds("max-age"), Some(60));
        assert!(read.has("private") && read.has("no-cache") && !read.has("no-store"));
        assert!(read.is_bare("no-cache") && !read.is_bare("private"));
        assert_eq!(read.seconds("s-maxage"), None);
    }

    #[test]
    fn what_is_not_clear_is_not_fresh() {
        for (value, seconds) in [
            ("max-age", 0),
            ("max-age=", 0),
            ("max-age=-1", 0),
            ("max-age=1.5", 0),
            ("max-age=x", 0),
            ("max-age=\"7\"", 7),
            ("max-age=10, max-age=5", 5),
            ("max-age=99999999999999999999", 1 << 31),
        ] {
            assert_eq!(control(value).seconds("max-age"), Some(seconds), "{value}");
        }
    }
}
