//! One resolver for each set of name servers and address family, made anew when the system's files change.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use hickory_resolver::Resolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
    ResolverOpts,
};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::read_system_conf;
use towpath_engine::names::{self, NameFault};
use towpath_engine::snapshot::cluster::Family;

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
    known: HashMap<(Vec<SocketAddr>, FamilyKey), Resolver<ConnectedRuntime>>,
    files: [Option<SystemTime>; 2],
}

impl Resolvers {
    /// The resolver for these servers (the system's when empty) and this family.
    pub(super) fn find(
        &mut self,
        servers: &[SocketAddr],
        family: Family,
    ) -> Result<Resolver<ConnectedRuntime>, String> {
        let files = ["/etc/resolv.conf", "/etc/hosts"].map(changed_at);
        if files != self.files {
            self.known.clear();
            self.files = files;
        }
        let key = (servers.to_vec(), FamilyKey::of(family));
        if let Some(resolver) = self.known.get(&key) {
            return Ok(resolver.clone());
        }
        let resolver = build(servers, key.1)?;
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

fn build(servers: &[SocketAddr], family: FamilyKey) -> Result<Resolver<ConnectedRuntime>, String> {
    let (mut config, mut options) = match read_system_conf() {
        Ok(system) => system,
        Err(_) if !servers.is_empty() => (ResolverConfig::default(), ResolverOpts::default()),
        Err(error) => return Err(error.to_string()),
    };
    if !servers.is_empty() {
        let servers = servers.iter().map(|server| name_server(*server)).collect();
        config =
            ResolverConfig::from_parts(config.domain().cloned(), config.search().to_vec(), servers);
    }
    options.ip_strategy = family.strategy();
    options.use_hosts_file = ResolveHosts::Always;
    // Clusters ask as often as their file says; an answer out of a cache would make that a lie.
    options.cache_size = 0;
    let mut builder = Resolver::builder_with_config(config, ConnectedRuntime::default());
    *builder.options_mut() = options;
    builder.build().map_err(|error| error.to_string())
}

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
