//! What tokens a request must have.

use super::Provider;
use super::locations::Locations;
use towpath_proto::HeaderName;

/// Envoy `JwtRequirement`.
#[derive(Debug)]
pub enum Requirement {
    /// Nothing.
    Nothing,
    /// Tokens of one provider, or of all.
    Tokens(Box<Tokens>),
    /// `requires_any`.
    Any(Vec<Self>),
    /// `requires_all`.
    All(Vec<Self>),
}

/// Tokens that are looked for and verified together.
#[derive(Debug)]
pub struct Tokens {
    /// The number of the provider; none means that the issuer of a token says which.
    pub(super) provider: Option<usize>,
    /// In place of the provider's.
    pub(super) audiences: Option<Audiences>,
    pub(super) locations: Locations,
    pub(super) lenience: Lenience,
}

/// What is overlooked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lenience {
    /// Nothing.
    None,
    /// `allow_missing`.
    Missing,
    /// `allow_missing_or_failed`.
    Failed,
    /// `extract_only_without_validation`: the same, and a header says of tokens that fail that they do.
    Told(HeaderName),
}

impl Requirement {
    /// Tokens of the provider with this number.
    #[must_use]
    pub fn of_provider(
        providers: &[Provider],
        number: usize,
        audiences: Option<Audiences>,
    ) -> Self {
        let locations = Locations::of(providers.get(number));
        let provider = Some(number);
        let lenience = Lenience::None;
        Self::Tokens(Box::new(Tokens { provider, audiences, locations, lenience }))
    }

    /// Tokens of any provider, from where those of certain ones stand.
    #[must_use]
    pub fn lenient<'a>(from: impl IntoIterator<Item = &'a Provider>, lenience: Lenience) -> Self {
        let locations = Locations::of(from);
        Self::Tokens(Box::new(Tokens { provider: None, audiences: None, locations, lenience }))
    }

    /// How many [`Tokens`] it has.
    pub(super) fn leaves(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Tokens(_) => 1,
            Self::Any(parts) | Self::All(parts) => parts.iter().map(Self::leaves).sum(),
        }
    }
}

/// Audiences that are allowed, without their scheme and the slash at their end.
#[derive(Clone, Debug, Default)]
pub struct Audiences(Vec<Box<str>>);

impl Audiences {
    /// Of these; none means all.
    #[must_use]
    pub fn new<'a>(audiences: impl IntoIterator<Item = &'a str>) -> Self {
        Self(audiences.into_iter().map(|audience| bare(audience).into()).collect())
    }

    pub(super) fn allow(&self, audiences: &[Box<str>]) -> bool {
        let is_known = |audience: &str| self.0.iter().any(|one| **one == *bare(audience));
        self.0.is_empty() || audiences.iter().any(|audience| is_known(audience))
    }
}

fn bare(audience: &str) -> &str {
    let behind = |scheme| audience.strip_prefix(scheme);
    let rest = behind("http://").or_else(|| behind("https://")).unwrap_or(audience);
    rest.strip_suffix('/').unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audiences_are_compared_without_scheme_and_slash() {
        let allowed = Audiences::new(["https://a.test/", "b"]);
        let allows = |audience: &str| allowed.allow(&[audience.into()]);
        assert!(allows("a.test") && allows("http://a.test") && allows("b/") && allows("http://b"));
        assert!(!allows("a") && !allows("") && !allows("a.test//") && !allowed.allow(&[]));
        assert!(Audiences::default().allow(&[]));
    }
}
