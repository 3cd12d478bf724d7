//! Which names are asked of DNS servers directly, and for how long a server that cannot tell is left alone.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towpath_proto::Failure;

use super::config::{Config, has_host};
use super::stub::{Stub, Why};
use super::{Answer, resolve};

/// What is known between questions.
#[derive(Debug, Default)]
pub(super) struct Dns {
    stub: Stub,
    /// Names that the servers could not tell.
    failures: Mutex<HashMap<String, Backoff>>,
}

/// A name that is not asked for before a time (RFC 9520 §3.2).
#[derive(Clone, Copy, Debug)]
struct Backoff {
    failures: u32,
    until: Instant,
}

impl Dns {
    /// By these servers; without, by those of the system, where DNS is all that the system would ask.
    pub(super) fn resolve(&self, name: &str, servers: Option<&Config>) -> Answer {
        let system;
        let config = match servers {
            Some(config) => config,
            None => {
                system = Config::read();
                &system
            }
        };
        if !config.covers(name) {
            return resolve(name);
        }
        let hosts = || fs::read_to_string("/etc/hosts").unwrap_or_default();
        if servers.is_none() && has_host(&hosts(), name) {
            return resolve(name);
        }
        if self.backs_off(name, Instant::now()) {
            return Err(Failure::TimedOut);
        }
        let found = self.stub.resolve(name, config);
        self.note(name, &found, Instant::now());
        match found {
            Ok(found) => Ok(found),
            // With a domain of the search list behind it, it may.
            Err(Why::NoSuchName) if config.searches => resolve(name),
            Err(Why::NoSuchName) => Err(Failure::NoSuchName),
            Err(Why::Failed) => Err(Failure::TimedOut),
            Err(Why::Silent(failure)) => Err(failure),
            Err(Why::Forbidden) => resolve(name),
        }
    }

    fn backs_off(&self, name: &str, now: Instant) -> bool {
        self.failures().get(name).is_some_and(|backoff| now < backoff.until)
    }

    fn note(&self, name: &str, found: &Result<Vec<IpAddr>, Why>, now: Instant) {
        let mut failures = self.failures();
        if !matches!(found, Err(Why::Failed)) {
            failures.remove(name);
            return;
        }
        if failures.len() >= MOST_FAILURES {
            failures.retain(|_, backoff| now < backoff.until);
        }
        if failures.len() < MOST_FAILURES || failures.contains_key(name) {
            let before = failures.get(name).map_or(0, |backoff| backoff.failures);
            let until = now + pause(before, RandomState::new().build_hasher().finish());
            failures.insert(name.to_owned(), Backoff { failures: before + 1, until });
        }
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<String, Backoff>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Twice as long after each failure, drawn from the upper half.
fn pause(failures: u32, random: u64) -> Duration {
    let whole = (FIRST_PAUSE * (1 << failures.min(8))).min(LONGEST_PAUSE);
    whole / 2 + (whole / 2).mul_f64(random as f64 / u64::MAX as f64)
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest that a request waits for a server that can tell again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const MOST_FAILURES: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::message::tests::answer;
    use super::*;

    /// A server that says this to every question, and how many it was asked; one that was repeated because an answer
    /// took long counts once.
    fn server(code: u16) -> (Config, Arc<AtomicUsize>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let config = Config::of(&[socket.local_addr().unwrap()]);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            let (mut question, mut seen) = ([0; 512], HashSet::new());
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                seen.insert((from, question[12..length].to_vec()));
                count.store(seen.len(), Ordering::SeqCst);
                let addresses: &[IpAddr] = if code == 0 { &[[127, 0, 0, 9].into()] } else { &[] };
                socket.send_to(&answer(&question[..length], code, addresses), from).unwrap();
            }
        });
        (config, asked)
    }

    #[test]
    fn a_name_that_servers_cannot_tell_is_left_alone_for_a_while_and_then_asked_again() {
        let (dns, (failing, asked)) = (Dns::default(), server(2));
        for _ in 0..20 {
            assert_eq!(dns.resolve("name.test", Some(&failing)), Err(Failure::TimedOut));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2, "one question of each family");
        let other = dns.resolve("other.test", Some(&failing));
        assert_eq!((other, asked.load(Ordering::SeqCst)), (Err(Failure::TimedOut), 4));
        let passed = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        dns.failures().get_mut("name.test").unwrap().until = passed;
        let (good, _) = server(0);
        assert!(dns.resolve("name.test", Some(&good)).is_ok());
        assert!(!dns.failures().contains_key("name.test"), "a success forgets failures");
    }

    #[test]
    fn a_denied_name_and_one_that_dns_does_not_know_are_told_apart() {
        let (dns, (none, asked)) = (Dns::default(), server(3));
        assert_eq!(dns.resolve("name.test", Some(&none)), Err(Failure::NoSuchName));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert!(dns.resolve("localhost", Some(&none)).is_ok(), "the system knows it");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_are_drawn() {
        let all = |failures| (pause(failures, 0), pause(failures, u64::MAX));
        let seconds = Duration::from_secs_f64;
        assert_eq!(all(0), (seconds(0.5), seconds(1.0)));
        assert_eq!(all(1), (seconds(1.0), seconds(2.0)));
        assert_eq!(all(40), (seconds(2.5), seconds(5.0)));
    }

    #[test]
    fn failures_that_are_remembered_have_a_limit() {
        let (dns, now) = (Dns::default(), Instant::now());
        for number in 0..2 * MOST_FAILURES {
            dns.note(&number.to_string(), &Err(Why::Failed), now);
        }
        assert_eq!(dns.failures().len(), MOST_FAILURES);
        dns.note("new", &Err(Why::Failed), now + LONGEST_PAUSE);
        assert_eq!(dns.failures().len(), 1, "those whose time is over make room");
    }
}
