//! A header name compiled from configuration.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "well-known names are many: each match means a few and all the others"
)]

use std::fmt;
use std::str::FromStr;

use crate::chars::is_token;
use crate::name::Name;

/// A valid field name in lower case: a well-known one by number, another by its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderName(Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Known(Name),
    Custom(Box<str>),
}

impl HeaderName {
    /// Compiles a name given in any case.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        match Name::resolve(text.as_bytes()) {
            Name::Custom if !is_token(text.as_bytes()) || text.len() > super::MAX_NAME => {
                Err(InvalidName)
            }
            Name::Custom => Ok(Self(Kind::Custom(text.to_ascii_lowercase().into()))),
            known => Ok(Self(Kind::Known(known))),
        }
    }

    /// Its number, or [`Name::Custom`].
    #[must_use]
    pub const fn name(&self) -> Name {
        match self.0 {
            Kind::Known(name) => name,
            Kind::Custom(_) => Name::Custom,
        }
    }

    /// Its spelling in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kind::Known(name) => name.as_str(),
            Kind::Custom(text) => text,
        }
    }

    /// The bytes of [`HeaderName::as_str`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.as_str().as_bytes()
    }
}

impl TryFrom<&str> for HeaderName {
    type Error = InvalidName;

    fn try_from(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl FromStr for HeaderName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a field name (RFC 9110 §5.1: a token), or longer than one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidName;

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a header name: it must be a token (RFC 9110 §5.1)")
    }
}

impl std::error::Error for InvalidName {}
