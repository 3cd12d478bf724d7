//! What an app that resolves names itself is asked.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::local::message::Command;
use towpath_engine::local::report::Answerer;
use towpath_proto::{Failure, QueryId};

use crate::call::Shared;

/// What the addresses of a name are. It is answered once, by any thread; one that is dropped counts as not answered in
/// time, and is asked again.
pub struct Question {
    query: QueryId,
    name: Arc<str>,
    shared: Arc<Shared>,
    answered: bool,
}

impl Question {
    pub(crate) const fn new(query: QueryId, name: Arc<str>, shared: Arc<Shared>) -> Self {
        Self { query, name, shared, answered: false }
    }

    /// The name, in lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addresses, the best first. None, or [`Failure::NoSuchName`], is the last word on a name that had no
    /// addresses before: requests that wait fail. After any other failure it is asked again in half a second.
    pub fn answer(self, outcome: Result<Vec<IpAddr>, Failure>) {
        self.tell(outcome, None, Answerer::App);
    }

    /// Leaves it to whom the engine asks without the app: its server of DNS over HTTPS, where it has one
    /// ([`Builder::dns_over_https`](crate::Builder::dns_over_https)), else the system or its DNS servers.
    pub fn pass_on(self) {
        let shared = Arc::clone(&self.shared);
        match &shared.dns_over_https {
            Some(server) => server.ask(self),
            None => self.leave_to_system(),
        }
    }

    /// Leaves it to the system, or to the engine's DNS servers.
    pub(crate) fn leave_to_system(mut self) {
        // One that cannot be asked there is not answered.
        let Some(handle) = self.shared.handle() else { return };
        self.answered = handle.resolve(self.query, self.name.to_string()).is_ok();
    }

    /// The same with how long it may be kept, where that is known.
    pub(crate) fn tell(
        mut self,
        outcome: Result<Vec<IpAddr>, Failure>,
        lifetime: Option<Duration>,
        by: Answerer,
    ) {
        self.send(outcome, lifetime, by);
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn send(
        &mut self,
        outcome: Result<Vec<IpAddr>, Failure>,
        lifetime: Option<Duration>,
        by: Answerer,
    ) {
        self.answered = true;
        let query = self.query;
        // An engine that is gone has no use for it.
        let _ = self.shared.command(Command::Resolved { query, outcome, lifetime, by });
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !self.answered {
            self.send(Err(Failure::TimedOut), None, Answerer::App);
        }
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("name", &self.name).finish_non_exhaustive()
    }
}
