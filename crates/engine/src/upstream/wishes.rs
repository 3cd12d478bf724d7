//! What single requests ask of the connections to their hosts, beyond what their cluster says of all: that hosts are
//! told for whom they are, or something of TLS. Those that ask alike share connections.
//!
//! Arrives: a wish. Leaves: its number, which is a part of a pool's class.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::free_slot;
use crate::mesh::Protocols;
use crate::proxied::Client;
use crate::snapshot::original_src::Source;
use crate::stream_info::SharedObject;

/// What a request asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsWish {
    /// The protocols that are offered in place of the configuration's.
    pub(crate) alpn: Option<Protocols>,
    /// The name by which the server is asked for. Envoy `auto_sni`.
    pub(crate) server: Option<Arc<str>>,
    /// The name that its certificate must have, whatever else it must. Envoy `auto_san_validation`.
    pub(crate) certified: Option<Arc<str>>,
    /// For whom the connection is, where the host is told that.
    pub(crate) client: Option<Arc<Client>>,
    /// Where it comes from, if not from us.
    pub(crate) source: Option<Source>,
    /// The client's connection, where those of others do not share it.
    pub(crate) connection: Option<u64>,
    /// What of its client's filter state goes along with it, as far as that tells connections apart.
    pub(crate) state: Option<Arc<[SharedObject]>>,
}

impl TlsWish {
    fn of_client(&self) -> OfClient {
        (self.client.clone(), self.source, self.connection, self.state.clone())
    }

    /// Whether it asks nothing of TLS.
    fn is_plain(&self) -> bool {
        self.alpn.is_none() && self.server.is_none() && self.certified.is_none()
    }

    const fn is_of_client(&self) -> bool {
        self.client.is_some()
            || self.source.is_some()
            || self.connection.is_some()
            || self.state.is_some()
    }

    fn is_none(&self) -> bool {
        self.is_plain() && !self.is_of_client()
    }
}

/// One that is for a client and nothing else.
type OfClient = (Option<Arc<Client>>, Option<Source>, Option<u64>, Option<Arc<[SharedObject]>>);

/// All wishes of one cluster, by their numbers less one.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    list: Vec<Option<TlsWish>>,
    /// The numbers of those that are for a client and nothing else.
    of_clients: HashMap<OfClient, u16>,
    /// With so many, those on which nothing hangs are worth a look.
    sweep_at: usize,
}

impl Wishes {
    /// The number of a wish, if it has one; that of no wish is 0.
    pub(crate) fn number(&self, wish: &TlsWish) -> Option<u16> {
        if wish.is_none() {
            return Some(0);
        }
        if wish.is_plain() {
            return self.of_clients.get(&wish.of_client()).copied();
        }
        let place = self.list.iter().position(|known| known.as_ref() == Some(wish))?;
        u16::try_from(place + 1).ok()
    }

    /// Whether there are many more than the last look has left. Each has pools of its own, at every host that its
    /// streams went to.
    pub(crate) fn are_many(&self) -> bool {
        self.list.iter().flatten().count() >= self.sweep_at.max(FEW)
    }

    /// Gives a wish a number, unless there are too many.
    pub(crate) fn add(&mut self, wish: TlsWish) -> Option<u16> {
        let most = if wish.is_of_client() { MOST_CLIENTS } else { MOST_WISHES };
        if self.list.iter().flatten().count() >= most {
            return None;
        }
        let client = wish.is_plain().then(|| wish.of_client());
        let number = u16::try_from(free_slot::put(&mut self.list, wish) + 1).ok()?;
        if let Some(client) = client {
            self.of_clients.insert(client, number);
        }
        Some(number)
    }

    pub(crate) fn get(&self, number: u16) -> Option<&TlsWish> {
        self.list.get(usize::from(number).checked_sub(1)?)?.as_ref()
    }

    /// Forgets all but those with these numbers.
    pub(crate) fn keep(&mut self, used: &[u16]) {
        let used: HashSet<u16> = used.iter().copied().collect();
        for (number, wish) in (1..).zip(&mut self.list) {
            if !used.contains(&number) {
                *wish = None;
            }
        }
        self.of_clients.retain(|_, number| used.contains(number));
        self.sweep_at = used.len().saturating_mul(2);
    }
}

/// So many are never looked through.
const FEW: usize = 256;
/// Clients choose names: of a cluster a worker keeps apart so many at once.
const MOST_WISHES: usize = 1000;
/// The same where hosts are told for whom connections are.
const MOST_CLIENTS: usize = 8000;

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
    fn clients_have_numbers_of_their_own() {
        let of = |port: u16| {
            let source = ([10, 0, 0, 1], port).into();
            let client = Client { source, destination: source, tlvs: Box::default() };
            TlsWish { client: Some(Arc::new(client)), ..TlsWish::default() }
        };
        let named = TlsWish { server: Some(Arc::from("a")), ..of(1) };
        let mut wishes = Wishes::default();
        let numbers = [of(1), of(2), named.clone()].map(|wish| wishes.add(wish));
        assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
        assert_eq!((wishes.number(&of(2)), wishes.number(&named)), (Some(2), Some(3)));
        assert!(!wishes.are_many());
        wishes.keep(&[1]);
        assert_eq!((wishes.number(&of(1)), wishes.number(&of(2))), (Some(1), None));
        for port in 2..=u16::try_from(MOST_CLIENTS).unwrap() {
            assert!(wishes.add(of(port)).is_some());
            assert_eq!(wishes.are_many(), usize::from(port) >= FEW);
        }
        assert_eq!(wishes.add(of(u16::MAX)), None);
        let used: Vec<u16> = (1..=1000).collect();
        wishes.keep(&used);
        assert!(!wishes.are_many());
    }

    #[test]
    fn connections_of_clients_share_nothing() {
        let on = |serial| TlsWish { connection: Some(serial), ..TlsWish::default() };
        let mut wishes = Wishes::default();
        assert_eq!([on(7), on(8)].map(|wish| wishes.add(wish)), [Some(1), Some(2)]);
        assert_eq!((wishes.number(&on(8)), wishes.number(&on(9))), (Some(2), None));
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
