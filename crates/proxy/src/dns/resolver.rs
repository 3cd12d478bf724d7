//! One resolver for each set of name servers and address family, made anew when the system's files change.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use hickory_resolver::Resolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ProtocolConfig, ResolveHosts,
    ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::read_system_conf;
use towpath_engine::names::{self, NameFault};
use towpath_engine::snapshot::cluster::Family;
use towpath_engine::snapshot::dns::DnsOptions;

use super::connected::ConnectedRuntime;

/// What a lookup came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Addresses, and how long they hold if the answer says so.
    Found { addresses: Vec<IpAddr>, ttl: Option<Duration> },
    /// The name does not exist or has no address of the wanted family.
    Empty,
    /// No answer.
    Failed(String),
}

/// Resolvers by what they ask.
#[derive(Debug, Default)]
pub(super) struct Resolvers {
    known: HashMap<(DnsOptions, FamilyKey), Resolver<ConnectedRuntime>>,
    files: [Option<SystemTime>; 2],
}

impl Resolvers {
    /// The resolver for these options and this family.
    pub(super) fn find(
        &mut self,
        options: &DnsOptions,
        family: Family,
    ) -> Result<Resolver<ConnectedRuntime>, String> {
        let files = ["/etc/resolv.conf", "/etc/hosts"].map(changed_at);
        if files != self.files {
            self.known.clear();
            self.files = files;
        }
        let family = FamilyKey::of(family);
        let family = match options.only_own_families {
            true => family.within(OwnFamilies::look()).ok_or(NO_FAMILY)?,
            false => family,
        };
        let key = (options.clone(), family);
        if let Some(resolver) = self.known.get(&key) {
            return Ok(resolver.clone());
        }
        let resolver = build(options, family)?;
        self.known.insert(key, resolver.clone());
        Ok(resolver)
    }
}

/// The same, with what it is that is not there.
pub(super) async fn look_up_fault(
    resolver: &Resolver<ConnectedRuntime>,
    name: &str,
) -> names::Answer {
    // As it is: what clients name need not be a host of the Internet.
    let Ok(asked) = Name::from_ascii(name) else {
        return names::Answer::Fault(NameFault::Malformed);
    };
    match resolver.lookup_ip(asked).await {
        Ok(lookup) => match found(&lookup) {
            Answer::Found { addresses, ttl } => names::Answer::Found { addresses, ttl },
            Answer::Empty | Answer::Failed(_) => names::Answer::Fault(NameFault::NoAddress),
        },
        Err(error) if error.is_nx_domain() => names::Answer::Fault(NameFault::NoSuchName),
        Err(error) if error.is_no_records_found() => names::Answer::Fault(NameFault::NoAddress),
        Err(_) => names::Answer::Fault(NameFault::Failed),
    }
}

/// Looks a name up.
pub(super) async fn look_up(resolver: &Resolver<ConnectedRuntime>, name: &str) -> Answer {
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Answer::Found { addresses: vec![address], ttl: None };
    }
    match resolver.lookup_ip(name).await {
        Ok(lookup) => found(&lookup),
        Err(error) if error.is_no_records_found() => Answer::Empty,
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn found(lookup: &LookupIp) -> Answer {
    let addresses: Vec<IpAddr> = lookup.iter().collect();
    let seconds = lookup.as_lookup().answers().iter().map(|record| record.ttl).min();
    // An entry of the hosts file carries no TTL; the resolver gives it the longest there is.
    let ttl = seconds
        .filter(|seconds| *seconds < LONGEST_TTL)
        .map(|seconds| Duration::from_secs(seconds.into()));
    if addresses.is_empty() { Answer::Empty } else { Answer::Found { addresses, ttl } }
}

/// RFC 8767 §4 advises to treat TTLs beyond this as this.
const LONGEST_TTL: u32 = 86_400;

fn build(asked: &DnsOptions, family: FamilyKey) -> Result<Resolver<ConnectedRuntime>, String> {
    let servers = &asked.servers;
    let (mut config, mut options) = match read_system_conf() {
        Ok(system) => system,
        Err(_) if !servers.is_empty() => (ResolverConfig::default(), ResolverOpts::default()),
        Err(error) => return Err(error.to_string()),
    };
    let is_overruled = asked.is_fallback && !config.name_servers().is_empty();
    let (mut domain, mut search, mut used) = config.into_parts();
    if !servers.is_empty() && !is_overruled {
        used = servers.iter().map(|server| name_server(*server)).collect();
    }
    if asked.no_search {
        (domain, search) = (None, Vec::new());
    }
    if asked.over_tcp {
        for server in &mut used {
            server.connections.retain(|it| matches!(it.protocol, ProtocolConfig::Tcp));
        }
    }
    config = ResolverConfig::from_parts(domain, search, used);
    options.ip_strategy = family.strategy();
    options.use_hosts_file = ResolveHosts::Always;
    // Clusters ask as often as their file says; an answer out of a cache would make that a lie.
    options.cache_size = 0;
    if let Some(timeout) = asked.timeout {
        options.timeout = timeout;
    }
    if let Some(tries) = asked.tries {
        options.attempts = usize::try_from(tries).unwrap_or(usize::MAX).saturating_sub(1);
    }
    if asked.rotates {
        options.server_ordering_strategy = ServerOrderingStrategy::RoundRobin;
    }
    if let Some(bytes) = asked.payload_bytes {
        (options.edns0, options.edns_payload_len) = (true, bytes);
    }
    let mut builder = Resolver::builder_with_config(config, ConnectedRuntime::default());
    *builder.options_mut() = options;
    builder.build().map_err(|error| error.to_string())
}

const NO_FAMILY: &str = "no interface has an address of the family that is asked for";

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

fn changed_at(path: &str) -> Option<SystemTime> {
    Path::new(path).metadata().and_then(|metadata| metadata.modified()).ok()
}

/// Which families of addresses this machine's interfaces have, but for its own loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnFamilies {
    v4: bool,
    v6: bool,
}

impl OwnFamilies {
    /// As Linux tells it; elsewhere both are taken to be there.
    fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self {
            v4: read("/proc/net/fib_trie").is_none_or(|text| has_v4(&text)),
            v6: read("/proc/net/if_inet6").is_none_or(|text| has_v6(&text)),
        }
    }
}

/// An address of our own is a leaf whose next line says so.
fn has_v4(trie: &str) -> bool {
    let lines = trie.lines().map(str::trim);
    let pairs = lines.clone().zip(lines.skip(1));
    let mut own = pairs.filter(|(_, kind)| kind.starts_with("/32 host LOCAL"));
    own.any(|(leaf, _)| {
        let address = leaf.rsplit(' ').next().and_then(|text| text.parse::<Ipv4Addr>().ok());
        address.is_some_and(|address| !address.is_loopback())
    })
}

/// Each line begins with an address in hexadecimal digits.
fn has_v6(list: &str) -> bool {
    let mut addresses = list.lines().filter_map(|line| line.split_whitespace().next());
    addresses.any(|address| u128::from_str_radix(address, 16).is_ok_and(|bits| bits != 1))
}

/// [`Family`] as part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FamilyKey {
    V4Only,
    V6Only,
    V4ThenV6,
    V6ThenV4,
    Both,
}

impl FamilyKey {
    fn of(family: Family) -> Self {
        match family {
            Family::Auto => Self::V6ThenV4,
            Family::V4Only => Self::V4Only,
            Family::V6Only => Self::V6Only,
            Family::V4Preferred => Self::V4ThenV6,
            Family::All => Self::Both,
        }
    }

    /// What of it can be reached; `None` where that is nothing.
    fn within(self, own: OwnFamilies) -> Option<Self> {
        match (own.v4, own.v6) {
            (true, true) => Some(self),
            (true, false) => (self != Self::V6Only).then_some(Self::V4Only),
            (false, true) => (self != Self::V4Only).then_some(Self::V6Only),
            (false, false) => None,
        }
    }

    fn strategy(self) -> LookupIpStrategy {
        match self {
            Self::V4Only => LookupIpStrategy::Ipv4Only,
            Self::V6Only => LookupIpStrategy::Ipv6Only,
            Self::V4ThenV6 => LookupIpStrategy::Ipv4thenIpv6,
            Self::V6ThenV4 => LookupIpStrategy::Ipv6thenIpv4,
            Self::Both => LookupIpStrategy::Ipv4AndIpv6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_as_the_kernel_tells_of_them() {
        let loopback = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert!(!has_v4(loopback) && !has_v4(""));
        let other = "     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        /32 host LOCAL\n";
        assert!(has_v4(&format!("{loopback}{other}")));
        assert!(!has_v4("     |-- 10.0.0.255\n        /32 link BROADCAST\n"));
        let one = "00000000000000000000000000000001 01 80 10 80       lo\n";
        assert!(!has_v6(one) && !has_v6(""));
        assert!(has_v6(&format!("{one}fe800000000000000042acfffe110002 02 40 20 80     eth0\n")));
    }

    #[test]
    fn families_that_are_not_there_are_not_asked_for() {
        use FamilyKey::{Both, V4Only, V6Only, V6ThenV4};
        let within = |family, v4, v6| FamilyKey::of(family).within(OwnFamilies { v4, v6 });
        assert_eq!(within(Family::Auto, true, true), Some(V6ThenV4));
        assert_eq!(within(Family::All, true, true), Some(Both));
        for family in [Family::Auto, Family::All, Family::V4Preferred, Family::V4Only] {
            assert_eq!(within(family, true, false), Some(V4Only));
        }
        for family in [Family::Auto, Family::All, Family::V4Preferred, Family::V6Only] {
            assert_eq!(within(family, false, true), Some(V6Only));
            assert_eq!(within(family, false, false), None);
        }
        assert_eq!(within(Family::V6Only, true, false), None);
        assert_eq!(within(Family::V4Only, false, true), None);
    }
}
