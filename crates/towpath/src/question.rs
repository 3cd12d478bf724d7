//! What an app that resolves names itself is asked.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use towpath_engine::local::message::Command;
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
    pub fn answer(mut self, outcome: Result<Vec<IpAddr>, Failure>) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Result<Vec<IpAddr>, Failure>) {
        self.answered = true;
        // An engine that is gone has no use for it.
        let _ = self.shared.command(Command::Resolved { query: self.query, outcome });
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !self.answered {
            self.send(Err(Failure::TimedOut));
        }
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("name", &self.name).finish_non_exhaustive()
    }
}
