//! Shares of what comes.

/// A share: `numerator` of `denominator`. Envoy `type.v3.FractionalPercent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction {
    /// Of these.
    pub numerator: u32,
    /// 100, 10,000 or 1,000,000.
    pub denominator: u32,
}

impl Fraction {
    /// Whether this share takes a request with this random number.
    #[must_use]
    #[inline]
    pub fn takes(self, random: u64) -> bool {
        random % u64::from(self.denominator.max(1)) < u64::from(self.numerator)
    }
}
