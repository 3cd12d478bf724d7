//! What leaves a decoder and what an encoder takes: fields with resolved names.

use crate::head::FieldRef;
use crate::name::Name;

/// One field of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name.
    pub name: FieldName<'a>,
    /// The value as it came.
    pub value: &'a [u8],
    /// No intermediary may put it into a table (RFC 7541 §6.2.3).
    pub never_indexed: bool,
    /// The name is a token without capitals or starts with a colon as one of [`Pseudo`] does, and the value is as RFC
    /// 9113 §8.2.1 wants it: no control character but tabs, no blank or tab around it. A message with a field that is
    /// not well formed is malformed.
    pub well_formed: bool,
}

/// The name of a field, resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldName<'a> {
    /// A well-known name; not [`Name::Custom`], which has no spelling.
    Known(Name),
    /// A pseudo-field.
    Pseudo(Pseudo),
    /// Any other: never one of the above in its proper spelling. What is decoded may be anything, as `well_formed`
    /// says; what is encoded is written in small letters.
    Other(&'a [u8]),
}

/// The fields that say what a message is (RFC 9113 §8.3, RFC 8441 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pseudo {
    /// `:authority`
    Authority,
    /// `:method`
    Method,
    /// `:path`
    Path,
    /// `:scheme`
    Scheme,
    /// `:status`
    Status,
    /// `:protocol`
    Protocol,
}

impl<'a> FieldName<'a> {
    /// The name that `bytes` spell in small letters; what has a capital is [`FieldName::Other`].
    #[must_use]
    pub fn resolve(bytes: &'a [u8]) -> Self {
        if bytes.first() == Some(&b':') {
            return Pseudo::from_bytes(bytes).map_or(Self::Other(bytes), Self::Pseudo);
        }
        let name = Name::resolve(bytes);
        let known = name != Name::Custom && name.as_str().as_bytes() == bytes;
        if known { Self::Known(name) } else { Self::Other(bytes) }
    }

    /// Its spelling.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::Known(name) => name.as_str().as_bytes(),
            Self::Pseudo(pseudo) => pseudo.as_str().as_bytes(),
            Self::Other(bytes) => bytes,
        }
    }
}

impl<'a> From<&FieldRef<'a>> for FieldName<'a> {
    fn from(field: &FieldRef<'a>) -> Self {
        let known = field.name != Name::Custom;
        if known { Self::Known(field.name) } else { Self::Other(field.name_bytes) }
    }
}

impl Pseudo {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Authority, Self::Method, Self::Path, Self::Scheme, Self::Status, Self::Protocol];

    /// Its name, with the colon.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Authority => ":authority",
            Self::Method => ":method",
            Self::Path => ":path",
            Self::Scheme => ":scheme",
            Self::Status => ":status",
            Self::Protocol => ":protocol",
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|pseudo| pseudo.as_str().as_bytes() == bytes)
    }
}
