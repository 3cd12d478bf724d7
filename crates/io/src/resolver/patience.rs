//! How long one family of addresses is waited for, once the other is there.

use std::time::Duration;

/// What is known of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing yet, or that it has no addresses.
    Nothing,
    /// Addresses.
    Addresses,
    /// That the name does not exist.
    Denied,
}

impl Known {
    /// Addresses or nothing.
    #[must_use]
    pub const fn of(has_addresses: bool) -> Self {
        if has_addresses { Self::Addresses } else { Self::Nothing }
    }
}

/// How long the family that is missing may take; none while there are no addresses to go on with.
#[must_use]
pub fn patience(six: Known, four: Known) -> Option<Duration> {
    // Some servers deny a name of which they have only no IPv6 address (RFC 4074 §4.2).
    let denied = six == Known::Denied || four == Known::Denied;
    match (six == Known::Addresses || denied, four == Known::Addresses) {
        (_, true) => Some(RESOLUTION_DELAY),
        (true, false) => Some(LONGEST_FOR_IPV4),
        (false, false) => None,
    }
}

/// How long IPv6 may take after IPv4 (RFC 8305 §8).
pub(super) const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// How long IPv4 may take after IPv6, without which there is nothing to fall back to.
pub(super) const LONGEST_FOR_IPV4: Duration = Duration::from_secs(1);
/// How long a name is asked for at most: as long as `getaddrinfo` does by default.
pub const LONGEST: Duration = Duration::from_secs(10);
