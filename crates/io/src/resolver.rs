//! Names to addresses on threads of their own: by DNS (Linux), or by the system's own resolver (`getaddrinfo`) where
//! that may know more.
//!
//! `getaddrinfo` blocks, sometimes for half a minute, and cannot be interrupted. So that names whose DNS hangs do not
//! hold up the others, a question that finds no idle thread gets a new one, up to `THREADS`; beyond that the newest
//! question is asked first, because callers that wait for an old one have probably given up, and one that no thread
//! could take in `LONGEST_WAIT` is answered unasked. Threads end when they had nothing to do for `IDLE`, or when the
//! driver goes.
//!
//! What others need that ask DNS in their own way is here as well: [`message`], [`order`], [`patience`] and
//! [`backoff`]. None of it needs a system of its own.

pub mod backoff;
#[cfg(linux)]
mod config;
#[cfg(linux)]
mod dns;
pub mod message;
pub mod order;
pub mod patience;
#[cfg(linux)]
mod stub;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use towpath_proto::{Failure, QueryId};

use crate::failure;
use crate::handle::Shared;

const THREADS: usize = 32;
/// Questions that may wait; one more is answered with [`Failure::Exhausted`].
const MAX_WAITING: usize = 1024;
/// Half of the time that a request has by default.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(10);
/// What `getaddrinfo` and the modules that it loads have room in.
const STACK_BYTES: usize = 512 * 1024;

type Answer = Result<Vec<IpAddr>, Failure>;

/// An answer, and how long it may be kept, where its resolver says that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) outcome: Answer,
    pub(crate) lifetime: Option<Duration>,
}

/// Called on any of the threads.
type Resolve = dyn Fn(&str) -> Told + Send + Sync;

/// Whom a driver asks for the addresses of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// The DNS servers of resolv.conf(5), both families apart, where DNS and the hosts file are all that the system
    /// would look at for the name (Linux); the system for all others.
    #[default]
    Dns,
    /// These DNS servers, for every name with a dot in it (Linux).
    Servers(Vec<SocketAddr>),
    /// The system alone (`getaddrinfo`).
    System,
}

pub(crate) struct Resolver {
    queue: Arc<Queue>,
    resolve: Arc<Resolve>,
}

/// What the driver and the threads share.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The newest last.
    waiting: VecDeque<Question>,
    threads: usize,
    idle: usize,
    closed: bool,
}

struct Question {
    query: QueryId,
    name: String,
    asked: Instant,
}

impl Resolver {
    pub(crate) fn new(names: Names) -> Self {
        Self { queue: Arc::default(), resolve: by(names) }
    }

    /// Asks; the answer comes as a message, or here and now when it cannot be asked.
    pub(crate) fn ask<T: Send + 'static>(
        &mut self,
        query: QueryId,
        name: String,
        shared: &Arc<Shared<T>>,
    ) -> Result<(), Failure> {
        let mut state = self.queue.lock();
        if state.waiting.len() >= MAX_WAITING {
            return Err(Failure::Exhausted);
        }
        if state.idle <= state.waiting.len() && state.threads < THREADS {
            let started = self.start(shared);
            state.threads += usize::from(started);
            if state.threads == 0 {
                return Err(Failure::Exhausted);
            }
        }
        state.waiting.push_back(Question { query, name, asked: Instant::now() });
        drop(state);
        self.queue.changed.notify_one();
        Ok(())
    }

    fn start<T: Send + 'static>(&self, shared: &Arc<Shared<T>>) -> bool {
        let (queue, shared) = (Arc::clone(&self.queue), Arc::clone(shared));
        let resolve = Arc::clone(&self.resolve);
        let thread = thread::Builder::new().name("resolver".to_owned()).stack_size(STACK_BYTES);
        let work = move || {
            while let Some(question) = queue.next() {
                let is_late = question.asked.elapsed() >= LONGEST_WAIT;
                let told = || resolve(&question.name);
                let told = if is_late { Err(Failure::TimedOut).into() } else { told() };
                shared.resolved(question.query, told);
            }
        };
        thread.spawn(work).is_ok()
    }
}

impl From<Answer> for Told {
    fn from(outcome: Answer) -> Self {
        Self { outcome, lifetime: None }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.closed = true;
        state.waiting.clear();
        drop(state);
        self.queue.changed.notify_all();
    }
}

impl Queue {
    /// The next question for a thread; none when the thread is to end, which is counted.
    fn next(&self) -> Option<Question> {
        let mut state = self.lock();
        state.idle += 1;
        let is_idle = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let waited = self.changed.wait_timeout_while(state, IDLE, is_idle);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.idle -= 1;
        // Those that have waited for too long are answered first: that takes no time.
        let late = state.waiting.front().is_some_and(|first| first.asked.elapsed() >= LONGEST_WAIT);
        let next = if late { state.waiting.pop_front() } else { state.waiting.pop_back() };
        state.threads -= usize::from(next.is_none());
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(linux)]
fn by(names: Names) -> Arc<Resolve> {
    let dns = dns::Dns::default();
    match names {
        Names::System => Arc::new(|name| resolve(name).into()),
        Names::Dns => Arc::new(move |name| dns.resolve(name, None)),
        Names::Servers(servers) => {
            let config = config::Config::of(&servers);
            Arc::new(move |name| dns.resolve(name, Some(&config)))
        }
    }
}

/// Elsewhere other files than these say whom to ask.
#[cfg(not(linux))]
fn by(_names: Names) -> Arc<Resolve> {
    Arc::new(|name| resolve(name).into())
}

fn resolve(name: &str) -> Answer {
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

    static GATE: Mutex<()> = Mutex::new(());

    /// Names that begin with "hang" have no answer until the gate is opened.
    fn gated(name: &str) -> Told {
        if name.starts_with("hang") {
            drop(GATE.lock().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(vec![IpAddr::from([192, 0, 2, 1])]).into()
    }

    /// What a driver's thread would be told.
    fn driver() -> (mio::Poll, Arc<Shared<()>>) {
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        (poll, Arc::new(Shared::new(waker, 1)))
    }

    /// The answered questions, in order, once there are so many.
    fn answered(shared: &Arc<Shared<()>>, poll: &mut mio::Poll, many: usize) -> Vec<u64> {
        let (mut found, mut events) = (Vec::new(), mio::Events::with_capacity(1));
        while found.len() < many {
            poll.poll(&mut events, Some(Duration::from_secs(30))).unwrap();
            assert!(!events.is_empty(), "{found:?}");
            let mut commands = VecDeque::new();
            shared.take(&mut commands);
            found.extend(commands.into_iter().map(|command| match command {
                crate::handle::Command::Resolved { query, .. } => query.0,
                crate::handle::Command::Message(())
                | crate::handle::Command::Resolve { .. }
                | crate::handle::Command::Accepted(_) => {
                    unreachable!("none is sent")
                }
            }));
        }
        found
    }

    #[test]
    fn names_that_hang_hold_up_no_other_until_all_threads_hang_and_then_the_newest_is_first() {
        let (mut poll, shared) = driver();
        let mut resolver = Resolver::new(Names::System);
        resolver.resolve = Arc::new(gated);
        let shut = GATE.lock().unwrap();
        let hanging = THREADS as u64 - 1;
        for number in 0..hanging {
            resolver.ask(QueryId(number), format!("hang{number}"), &shared).unwrap();
        }
        // A thread is left for a good name, and is used again.
        for number in [100, 101] {
            resolver.ask(QueryId(number), "good".to_owned(), &shared).unwrap();
            assert_eq!(answered(&shared, &mut poll, 1), [number]);
        }
        for number in [200, 201, 202, 203] {
            let name = if number < 202 { "hang" } else { "good" };
            resolver.ask(QueryId(number), name.to_owned(), &shared).unwrap();
        }
        assert!(resolver.queue.lock().threads <= THREADS);
        drop(shut);
        let all = answered(&shared, &mut poll, hanging as usize + 4);
        assert_eq!(all.len(), hanging as usize + 4, "each once: {all:?}");
    }

    #[test]
    fn the_newest_is_taken_first_and_what_waited_too_long_leaves_the_queue() {
        let queue = Queue::default();
        queue.lock().threads = 1;
        let now = Instant::now();
        let question =
            |number, asked| Question { query: QueryId(number), name: String::new(), asked };
        let long_ago = now.checked_sub(LONGEST_WAIT).unwrap();
        queue.lock().waiting.extend([question(0, long_ago), question(1, now), question(2, now)]);
        let taken: Vec<_> = (0..3).map(|_| queue.next().unwrap().query.0).collect();
        assert_eq!(taken, [0, 2, 1]);
        queue.lock().closed = true;
        assert!(queue.next().is_none());
        let state = queue.lock();
        assert_eq!((state.threads, state.idle), (0, 0));
    }

    #[test]
    fn the_queue_has_a_limit_and_its_threads_end_with_the_driver() {
        let (_poll, shared) = driver();
        let mut resolver = Resolver::new(Names::System);
        resolver.resolve = Arc::new(gated);
        resolver.queue.lock().threads = THREADS;
        for number in 0..MAX_WAITING as u64 {
            resolver.ask(QueryId(number), "good".to_owned(), &shared).unwrap();
        }
        let full = resolver.ask(QueryId(9999), "good".to_owned(), &shared);
        assert_eq!(full, Err(Failure::Exhausted));
        let queue = Arc::clone(&resolver.queue);
        drop(resolver);
        assert!(queue.next().is_none());
    }

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
