//! Which names are asked of DNS servers directly.

use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use towpath_proto::Failure;

use super::backoff::Failures;
use super::config::{Config, has_host};
use super::stub::{Stub, Why};
use super::{Told, resolve};

/// What is known between questions.
#[derive(Debug, Default)]
pub(super) struct Dns {
    stub: Stub,
    /// Names that the servers could not tell.
    failures: Failures<()>,
}

impl Dns {
    /// By these servers; without, by those of the system, where DNS is all that the system would ask.
    pub(super) fn resolve(&self, name: &str, servers: Option<&Config>) -> Told {
        let system;
        let config = match servers {
            Some(config) => config,
            None => {
                system = Config::read();
                &system
            }
        };
        if !config.covers(name) {
            return resolve(name).into();
        }
        let hosts = || fs::read_to_string("/etc/hosts").unwrap_or_default();
        if servers.is_none() && has_host(&hosts(), name) {
            return resolve(name).into();
        }
        if self.failures.backs_off(name, Instant::now()).is_some() {
            return Err(Failure::TimedOut).into();
        }
        let (found, lifetime) = self.stub.resolve(name, config);
        self.note(name, &found, Instant::now());
        match found {
            Ok(found) => Told { outcome: Ok(found), lifetime },
            // With a domain of the search list behind it, it may.
            Err(Why::NoSuchName) if config.searches => resolve(name).into(),
            Err(Why::NoSuchName) => Told { outcome: Err(Failure::NoSuchName), lifetime },
            Err(Why::Failed) => Err(Failure::TimedOut).into(),
            Err(Why::Silent(failure)) => Err(failure).into(),
            Err(Why::Forbidden) => resolve(name).into(),
        }
    }

    fn note(&self, name: &str, found: &Result<Vec<IpAddr>, Why>, now: Instant) {
        if matches!(found, Err(Why::Failed)) {
            self.failures.add(name, (), now);
        } else {
            self.failures.forget(name);
        }
    }
}

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
            let told = dns.resolve("name.test", Some(&failing));
            assert_eq!(told, Err(Failure::TimedOut).into());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2, "one question of each family");
        let other = dns.resolve("other.test", Some(&failing)).outcome;
        assert_eq!((other, asked.load(Ordering::SeqCst)), (Err(Failure::TimedOut), 4));
        dns.failures.let_pass("name.test");
        let (good, _) = server(0);
        assert!(dns.resolve("name.test", Some(&good)).outcome.is_ok());
        assert_eq!(dns.failures.len(), 1, "a success forgets failures");
    }

    #[test]
    fn a_denied_name_and_one_that_dns_does_not_know_are_told_apart() {
        let (dns, (none, asked)) = (Dns::default(), server(3));
        let denied = dns.resolve("name.test", Some(&none));
        assert_eq!(denied, Err(Failure::NoSuchName).into());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert!(dns.resolve("localhost", Some(&none)).outcome.is_ok(), "the system knows it");
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
