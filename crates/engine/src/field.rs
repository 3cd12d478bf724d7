//! Names a field of a head as Envoy's configuration does: a header, or a pseudo header such as `:path`.

use towpath_proto::{Head, HeaderName};

/// A header or a pseudo header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// `:method`.
    Method,
    /// `:scheme`.
    Scheme,
    /// `:authority` or `host`.
    Authority,
    /// `:path`.
    Path,
    /// `:status`.
    Status,
    /// Any other.
    Header(HeaderName),
}

impl Field {
    /// Reads a name; nothing when it cannot be one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            ":method" => Some(Self::Method),
            ":scheme" => Some(Self::Scheme),
            ":authority" | "host" => Some(Self::Authority),
            ":path" => Some(Self::Path),
            ":status" => Some(Self::Status),
            other => HeaderName::new(other).ok().map(Self::Header),
        }
    }

    /// Calls `then` with the first value.
    #[inline(always)]
    pub fn first<R>(&self, head: &Head, then: impl FnOnce(Option<&[u8]>) -> R) -> R {
        match self {
            Self::Header(name) => then(head.get_named(name)),
            Self::Method | Self::Scheme | Self::Authority | Self::Path | Self::Status => {
                self.pseudo(head, then)
            }
        }
    }

    /// Calls `each` with every value.
    pub fn each(&self, head: &Head, mut each: impl FnMut(&[u8])) {
        match self {
            Self::Header(name) => head.get_all(name).for_each(each),
            Self::Method | Self::Scheme | Self::Authority | Self::Path | Self::Status => {
                self.pseudo(head, |value| {
                    if let Some(value) = value {
                        each(value);
                    }
                });
            }
        }
    }

    fn pseudo<R>(&self, head: &Head, then: impl FnOnce(Option<&[u8]>) -> R) -> R {
        match self {
            Self::Method => then(present(head.method_bytes())),
            Self::Scheme => then(present(head.scheme())),
            Self::Authority => then(present(head.authority())),
            Self::Path => then(present(head.path())),
            Self::Status => match head.status() {
                0 => then(None),
                status => then(Some(&digits(status))),
            },
            Self::Header(name) => then(head.get_named(name)),
        }
    }
}

fn present(value: &[u8]) -> Option<&[u8]> {
    (!value.is_empty()).then_some(value)
}

/// A status as text.
fn digits(status: u16) -> [u8; 3] {
    let digit = |value: u16| b'0' + (value % 10) as u8;
    [digit(status / 100), digit(status / 10), digit(status)]
}
