//! Addresses of names that requests choose: Envoy's DNS cache.
//!
//! One [`Cache`] for each `DnsCacheConfig`, on the control thread, decides which names are kept and when they are asked
//! for; a worker has `Names`, what it was told of them and what waits for them. Between the two pass
//! [`NameQuestion`]s and [`NameNews`].

mod cache;
mod known;
mod subs;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use cache::{Act, Answer, Cache};
pub(crate) use known::{Lookup, Names, Ticket, Waiter};
pub use subs::{SubCluster, SubEvent, SubNews, SubQuestion, sub_name};
pub(crate) use subs::{SubTicket, Subs};

/// From a worker: it does not know a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameQuestion {
    /// Which cache is asked.
    pub cache: Arc<str>,
    /// `HOST:PORT`.
    pub host: Arc<str>,
}

/// To all workers: what became of a name.
#[derive(Clone, Debug)]
pub struct NameNews {
    /// Of which cache.
    pub cache: Arc<str>,
    /// `HOST:PORT`.
    pub host: Arc<str>,
    /// What became of it.
    pub event: NameEvent,
}

/// What became of a name.
#[derive(Clone, Debug)]
pub enum NameEvent {
    /// It was asked for, the first time or with another answer.
    Resolved(Arc<Resolved>),
    /// It was not used for `host_ttl`.
    Gone,
    /// There are `max_hosts` others.
    Full,
}

/// What a name came to.
#[derive(Debug)]
pub struct Resolved {
    /// Where it is, the first of its addresses; why not.
    pub address: Result<SocketAddr, NameFault>,
    /// When a request last went there, in milliseconds since 1970.
    used: Arc<AtomicU64>,
}

impl Resolved {
    /// A request goes there.
    pub(crate) fn touch(&self, unix_ms: u64) {
        self.used.fetch_max(unix_ms, Ordering::Relaxed);
    }
}

/// Why a name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFault {
    /// There is no such name.
    NoSuchName,
    /// It has no address of the wanted family.
    NoAddress,
    /// It cannot be a name.
    Malformed,
    /// The server has failed, or none was reached.
    Failed,
    /// There was no answer within `dns_query_timeout`.
    TimedOut,
}

impl NameFault {
    /// `%RESPONSE_CODE_DETAILS%`, in the words of Envoy and of c-ares.
    #[must_use]
    pub const fn details(self) -> &'static str {
        match self {
            Self::NoSuchName => "dns_resolution_failure{cares_norecords:Domain_name_not_found}",
            Self::NoAddress => {
                "dns_resolution_failure{cares_norecords:DNS_server_returned_answer_with_no_data}"
            }
            Self::Malformed => "dns_resolution_failure{cares_failure:Misformatted_domain_name}",
            Self::Failed => {
                "dns_resolution_failure{cares_failure:DNS_server_returned_general_failure}"
            }
            Self::TimedOut => "dns_resolution_failure{resolve_timeout}",
        }
    }
}

/// A host with a port: its own, else the default. Envoy `normalizeHostForDfp`.
#[must_use]
pub fn with_port(host: &str, default_port: u16) -> String {
    match port_of(host) {
        Some(_) => host.to_owned(),
        None => format!("{host}:{default_port}"),
    }
}

/// The host and port of `HOST:PORT`, an IPv6 address without its brackets.
#[must_use]
pub fn parts(host: &str) -> (&str, u16) {
    let (name, port) = match (port_of(host), host.rfind(':')) {
        (Some(port), Some(colon)) => (&host[..colon], port),
        _ => (host, 80),
    };
    (name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name), port)
}

fn port_of(host: &str) -> Option<u16> {
    let colon = host.rfind(':')?;
    let is_inside = host.rfind(']').is_some_and(|end| end > colon);
    let digits = &host[colon + 1..];
    let is_number = !is_inside && digits.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_port_of_its_own_or_the_default() {
        let cases = [
            ("a.test", "a.test:80"),
            ("a.test:8080", "a.test:8080"),
            ("a.test:0", "a.test:0"),
            ("a.test:x", "a.test:x:80"),
            ("a.test:", "a.test::80"),
            ("a.test:70000", "a.test:70000:80"),
            ("[fc00::1]", "[fc00::1]:80"),
            ("[fc00::1]:443", "[fc00::1]:443"),
        ];
        for (host, wanted) in cases {
            assert_eq!(with_port(host, 80), wanted);
        }
        assert_eq!(parts("a.test:8080"), ("a.test", 8080));
        assert_eq!(parts("[fc00::1]:443"), ("fc00::1", 443));
        assert_eq!(parts("a.test:x:80"), ("a.test:x", 80));
    }
}
