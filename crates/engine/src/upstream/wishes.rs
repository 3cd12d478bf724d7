//! What single requests ask of the TLS to their hosts, beyond what their cluster says of all: those that ask alike
//! share connections.
//!
//! Arrives: a wish. Leaves: its number, which is a part of a pool's class.

use std::sync::Arc;

use crate::free_slot;
use crate::mesh::Protocols;

/// What a request asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsWish {
    /// The protocols that are offered in place of the configuration's.
    pub(crate) alpn: Option<Protocols>,
    /// The name by which the server is asked for. Envoy `auto_sni`.
    pub(crate) server: Option<Arc<str>>,
    /// The name that its certificate must have, whatever else it must. Envoy `auto_san_validation`.
    pub(crate) certified: Option<Arc<str>>,
}

impl TlsWish {
    fn is_none(&self) -> bool {
        self.alpn.is_none() && self.server.is_none() && self.certified.is_none()
    }
}

/// All wishes of one cluster, by their numbers less one.
#[derive(Debug, Default)]
pub(crate) struct Wishes(Vec<Option<TlsWish>>);

impl Wishes {
    /// The number of a wish, if it has one; that of no wish is 0.
    pub(crate) fn number(&self, wish: &TlsWish) -> Option<u16> {
        if wish.is_none() {
            return Some(0);
        }
        let place = self.0.iter().position(|known| known.as_ref() == Some(wish))?;
        u16::try_from(place + 1).ok()
    }

    /// Gives a wish a number, unless there are too many.
    pub(crate) fn add(&mut self, wish: TlsWish) -> Option<u16> {
        if self.0.iter().flatten().count() >= MOST_WISHES {
            return None;
        }
        u16::try_from(free_slot::put(&mut self.0, wish) + 1).ok()
    }

    pub(crate) fn get(&self, number: u16) -> Option<&TlsWish> {
        self.0.get(usize::from(number).checked_sub(1)?)?.as_ref()
    }

    /// Forgets all but those with these numbers.
    pub(crate) fn keep(&mut self, used: &[u16]) {
        for (number, wish) in (1..).zip(&mut self.0) {
            if !used.contains(&number) {
                *wish = None;
            }
        }
    }
}

/// Clients choose names: of a cluster a worker keeps apart so many at once.
const MOST_WISHES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> TlsWish {
        TlsWish { server: Some(Arc::from(name)), ..TlsWish::default() }
    }

    #[test]
    fn those_that_ask_alike_have_one_number() {
        let mut wishes = Wishes::default();
        assert_eq!(wishes.number(&TlsWish::default()), Some(0));
        assert_eq!(wishes.number(&named("a")), None);
        assert_eq!(wishes.add(named("a")), Some(1));
        assert_eq!(wishes.add(named("b")), Some(2));
        assert_eq!(wishes.number(&named("a")), Some(1));
        assert_eq!(wishes.get(2), Some(&named("b")));
        wishes.keep(&[2]);
        assert_eq!((wishes.get(1), wishes.get(0)), (None, None));
        assert_eq!(wishes.add(named("c")), Some(1), "a number is used again");
    }

    #[test]
    fn there_are_not_too_many() {
        let mut wishes = Wishes::default();
        for number in 0..MOST_WISHES {
            assert!(wishes.add(named(&number.to_string())).is_some());
        }
        assert_eq!(wishes.add(named("more")), None);
    }
}
