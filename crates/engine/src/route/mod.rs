//! Picks the virtual host and the route of a request, and says what the route does to path and authority.

mod hash;
pub(crate) mod head;
pub mod index;
pub mod path;
mod pick;
pub mod query;
mod redirect;
mod rewrite;

pub(crate) use hash::address_hash;
pub use hash::request_hash;
pub use index::{DuplicateDomain, HostIndex};
pub use path::{PathRules, Sanitized};
pub use pick::Picked;

use crate::snapshot::route::Fraction;

impl Fraction {
    /// Whether this share takes a request with this random number.
    #[must_use]
    #[inline]
    pub fn takes(self, random: u64) -> bool {
        random % u64::from(self.denominator.max(1)) < u64::from(self.numerator)
    }
}
