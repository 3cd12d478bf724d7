//! Addresses for those who connect on their own, beside the worker: links.
//!
//! Arrives: who wants to reach which name, and what became of its attempts. Leaves: addresses in the order of the memory; at once those that the name
//! was answered with before on this network, and then what the resolver says.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Failure, Instant, Output, QueryId};

use super::message::{Event, Find, Found};
use crate::worker::Worker;

impl Worker {
    /// Somebody asks where to connect. A question of the same asker that is not answered yet is void.
    pub(super) fn find(&mut self, find: Find, now: Instant) {
        let network = self.local.memory.network();
        let known = self.local.answers.addresses(network, &find.host, now).to_vec();
        if !known.is_empty() {
            self.tell_found(&find, Ok(&known), false, now);
        }
        self.local.finds.retain(|_, other| other.asker != find.asker);
        let query = self.ask_resolver(Arc::clone(&find.host));
        self.local.finds.insert(query, find);
    }

    /// Asks the app or the system for the addresses of a name.
    pub(super) fn ask_resolver(&mut self, name: Arc<str>) -> QueryId {
        self.local.next_query += 1;
        let query = QueryId(self.local.next_query);
        if self.local.settings.app_resolves {
            self.tell_app(Event::Resolve { query, name });
        } else {
            self.push(Output::Resolve { query, name: name.to_string() });
        }
        query
    }

    /// The resolver answered. False if it was somebody else who asked.
    pub(super) fn on_find_resolved(
        &mut self,
        query: QueryId,
        outcome: &Result<Vec<IpAddr>, Failure>,
        now: Instant,
    ) -> bool {
        let Some(find) = self.local.finds.remove(&query) else { return false };
        let outcome = match outcome {
            Ok(found) if found.is_empty() => Err(Failure::NoSuchName),
            Ok(found) => Ok(found.as_slice()),
            Err(failure) => Err(*failure),
        };
        if let Ok(found) = outcome {
            let network = self.local.memory.network();
            self.local.answers.learn(network, &find.host, found, now);
        }
        self.tell_found(&find, outcome, true, now);
        true
    }

    /// What became of an attempt that was not the worker's: how long it took to a usable connection.
    pub(super) fn on_attempted(
        &mut self,
        address: SocketAddr,
        took: Option<Duration>,
        now: Instant,
    ) {
        match took {
            Some(took) => self.local.memory.succeeded(address, took, now),
            None => self.local.memory.failed(address, now),
        }
    }

    fn tell_found(
        &mut self,
        find: &Find,
        outcome: Result<&[IpAddr], Failure>,
        is_last: bool,
        now: Instant,
    ) {
        let &Find { asker, question, port, .. } = find;
        let given = outcome.unwrap_or_default().iter().take(MOST_ADDRESSES);
        let given: Vec<SocketAddr> = given.map(|ip| SocketAddr::new(*ip, port)).collect();
        let addresses = self.local.memory.order(&given, now);
        let stagger = self.local.memory.stagger(&addresses, now);
        let failure = outcome.err();
        let found = Found { asker, question, addresses, stagger, failure, is_last };
        self.tell_app(Event::Found(found));
    }
}

/// Of one name.
const MOST_ADDRESSES: usize = 32;
