//! Names to addresses by the system's own resolver (`getaddrinfo`), on threads of its own.
//!
//! `getaddrinfo` blocks, sometimes for half a minute, so a few threads ask and a bounded queue waits
//! before them. They are started by the first question and end when the driver goes.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use towpath_proto::{Failure, QueryId};

use crate::failure;
use crate::handle::Shared;

const THREADS: usize = 2;
/// Questions that may wait; one more is answered with [`Failure::Exhausted`].
const MAX_WAITING: usize = 1024;

pub(crate) struct Resolver {
    questions: Option<SyncSender<(QueryId, String)>>,
}

impl Resolver {
    pub(crate) const fn new() -> Self {
        Self { questions: None }
    }

    /// Asks; the answer comes as a letter, or here and now when it cannot be asked.
    pub(crate) fn ask<T: Send + 'static>(
        &mut self,
        query: QueryId,
        name: String,
        shared: &Arc<Shared<T>>,
    ) -> Result<(), Failure> {
        let questions = match &self.questions {
            Some(questions) => questions,
            None => self.questions.insert(start(shared)?),
        };
        match questions.try_send((query, name)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(Failure::Exhausted),
        }
    }
}

fn start<T: Send + 'static>(
    shared: &Arc<Shared<T>>,
) -> Result<SyncSender<(QueryId, String)>, Failure> {
    let (questions, waiting) = sync_channel(MAX_WAITING);
    let waiting = Arc::new(Mutex::new(waiting));
    let mut started = 0;
    for _ in 0..THREADS {
        let (waiting, shared) = (Arc::clone(&waiting), Arc::clone(shared));
        let thread = thread::Builder::new().name("resolver".to_owned());
        if thread.spawn(move || answer_all(&waiting, &shared)).is_ok() {
            started += 1;
        }
    }
    if started == 0 { Err(Failure::Exhausted) } else { Ok(questions) }
}

fn answer_all<T>(waiting: &Mutex<Receiver<(QueryId, String)>>, shared: &Shared<T>) {
    loop {
        let question = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((query, name)) = question else {
            return;
        };
        shared.resolved(query, resolve(&name));
    }
}

fn resolve(name: &str) -> Result<Vec<IpAddr>, Failure> {
    let found = (name, 0).to_socket_addrs().map_err(|error| why(&error))?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    if addresses.is_empty() { Err(Failure::NoSuchName) } else { Ok(addresses) }
}

/// `std` keeps `getaddrinfo`'s own codes to itself, so that its words must do: the one that does not
/// mean "no such name" is the temporary failure, in glibc's words and in musl's.
fn why(error: &io::Error) -> Failure {
    if error.raw_os_error().is_some() {
        return failure::of(error);
    }
    let words = error.to_string();
    if words.contains("emporary failure") || words.contains("ry again") {
        Failure::TimedOut
    } else {
        Failure::NoSuchName
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_resolve_to_themselves_once() {
        assert_eq!(resolve("127.0.0.1"), Ok(vec![IpAddr::from([127, 0, 0, 1])]));
        assert_eq!(resolve("::1"), Ok(vec!["::1".parse().unwrap()]));
    }

    #[test]
    fn words_tell_a_missing_name_from_a_missing_server() {
        let said = |words: &str| {
            why(&io::Error::other(format!("failed to lookup address information: {words}")))
        };
        assert_eq!(said("Name or service not known"), Failure::NoSuchName);
        assert_eq!(said("Temporary failure in name resolution"), Failure::TimedOut);
        assert_eq!(said("Try again"), Failure::TimedOut);
        assert_eq!(resolve("a name with spaces"), Err(Failure::NoSuchName));
    }
}
