//! Query strings of admin requests.

/// The parameters of a request, decoded, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses what follows the `?`. A `+` stays one: filters are regular expressions.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).take(MAX_PARAMETERS);
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key), decode(value))
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub(crate) fn first(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is there, with or without a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.first(key).is_some()
    }

    /// All parameters.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

const MAX_PARAMETERS: usize = 256;

/// Percent-decoding, RFC 3986 §2.1; what is not a valid escape stays as it is.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| tail.get(..2)).flatten().and_then(hex);
        match escaped {
            Some(value) => {
                bytes.push(value);
                rest = &tail[2..];
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(value(*high)? * 16 + value(*low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn istios_readiness_query() {
        let query =
            Query::parse("usedonly&filter=^(server\\.state|listener_manager%5C.workers_started)$");
        assert!(query.has("usedonly"));
        assert_eq!(
            query.first("filter"),
            Some("^(server\\.state|listener_manager\\.workers_started)$")
        );
        assert!(!query.has("format"));
    }

    #[test]
    fn odd_escapes_stay_as_they_are() {
        assert_eq!(decode("a+b%20c%2"), "a+b c%2");
        assert_eq!(decode("%zz%%41%"), "%zz%A%");
        assert_eq!(decode("%ff"), "\u{fffd}");
    }

    #[test]
    fn parameters_are_bounded() {
        let many = "a=1&".repeat(MAX_PARAMETERS + 1);
        assert_eq!(Query::parse(&many).pairs().count(), MAX_PARAMETERS);
        assert_eq!(Query::parse("&&").pairs().count(), 0);
    }
}
