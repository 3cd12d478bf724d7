//! Addresses for what connects on its own, beside the worker: links.
//!
//! Arrives: who wants to reach which name, and what became of its attempts. Leaves: addresses in the order of the
//! memory; at once those that the name was answered with before on this network, and then what the resolver says.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Failure, Instant, Output, QueryId};

use super::message::{Event, Find, Found};
use crate::env::Env;
use crate::local::Local;

impl Local {
    /// A caller asks where to connect. A question of the same asker that is not answered yet is void.
    pub(crate) fn find(&mut self, find: Find, env: &mut Env, now: Instant) {
        let network = self.memory.network();
        let known = self.answers.addresses(network, &find.host, now).to_vec();
        if !known.is_empty() {
            self.tell_found(&find, Ok(&known), false, env, now);
        }
        self.finds.retain(|_, other| other.asker != find.asker);
        let query = self.ask_resolver(Arc::clone(&find.host), env);
        self.finds.insert(query, find);
    }

    /// Asks the app or the system for the addresses of a name.
    pub(crate) fn ask_resolver(&mut self, name: Arc<str>, env: &mut Env) -> QueryId {
        self.next_query += 1;
        let query = QueryId(self.next_query);
        if self.settings.app_resolves {
            env.tell_app(Event::Resolve { query, name });
        } else {
            env.outputs.push_back(Output::Resolve { query, name: name.to_string() });
        }
        query
    }

    /// The resolver answered. False if another caller asked.
    pub(crate) fn on_find_resolved(
        &mut self,
        query: QueryId,
        outcome: &Result<Vec<IpAddr>, Failure>,
        env: &mut Env,
        now: Instant,
    ) -> bool {
        let Some(find) = self.finds.remove(&query) else { return false };
        let outcome = match outcome {
            Ok(found) if found.is_empty() => Err(Failure::NoSuchName),
            Ok(found) => Ok(found.as_slice()),
            Err(failure) => Err(*failure),
        };
        if let Ok(found) = outcome {
            let network = self.memory.network();
            self.answers.learn(network, &find.host, found, now);
        }
        self.tell_found(&find, outcome, true, env, now);
        true
    }

    /// What became of an attempt that was not the worker's: how long it took to a usable connection.
    pub(crate) fn on_attempted(
        &mut self,
        address: SocketAddr,
        took: Option<Duration>,
        now: Instant,
    ) {
        match took {
            Some(took) => self.memory.succeeded(address, took, now),
            None => self.memory.failed(address, now),
        }
    }

    fn tell_found(
        &mut self,
        find: &Find,
        outcome: Result<&[IpAddr], Failure>,
        is_last: bool,
        env: &mut Env,
        now: Instant,
    ) {
        let &Find { asker, question, port, .. } = find;
        let given = outcome.unwrap_or_default().iter().take(MOST_ADDRESSES);
        let given: Vec<SocketAddr> = given.map(|ip| SocketAddr::new(*ip, port)).collect();
        let addresses = self.memory.order(&given, now);
        let stagger = self.memory.stagger(&addresses, now);
        let failure = outcome.err();
        let found = Found { asker, question, addresses, stagger, failure, is_last };
        env.tell_app(Event::Found(found));
    }
}

/// Of one name.
const MOST_ADDRESSES: usize = 32;
