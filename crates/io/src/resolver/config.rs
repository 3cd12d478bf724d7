//! Where names are looked up, as resolv.conf(5), nsswitch.conf(5) and hosts(5) say, and whether we can do it as the
//! system would.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::message::is_of_dns;

/// What the files say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    /// Whom to ask, the best first.
    pub(super) servers: Vec<SocketAddr>,
    /// So many dots make a name that is asked for as it is first.
    ndots: usize,
    /// Names that do not exist may with one of these behind them.
    pub(super) searches: bool,
    /// Only what DNS and the hosts file know counts.
    is_plain: bool,
}

impl Config {
    /// As the files say at this moment; cheap beside a question.
    pub(super) fn read() -> Self {
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        let overridden = ["LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES"];
        let mut config = Self::parse(&file("/etc/resolv.conf"), &file("/etc/nsswitch.conf"));
        config.is_plain &= overridden.iter().all(|name| std::env::var_os(name).is_none());
        let host = rustix::system::uname();
        // Without a search list glibc goes by the host's own domain.
        config.searches |= host.nodename().to_bytes().contains(&b'.');
        config
    }

    /// Those servers alone.
    pub(super) fn of(servers: &[SocketAddr]) -> Self {
        Self { servers: servers.to_vec(), ndots: 1, searches: false, is_plain: true }
    }

    fn parse(resolv: &str, nsswitch: &str) -> Self {
        let mut config = Self::of(&[]);
        for line in resolv.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") if config.servers.len() < MOST_SERVERS => {
                    match words.next().and_then(|word| word.parse::<IpAddr>().ok()) {
                        Some(ip) => config.servers.push(SocketAddr::new(ip, PORT)),
                        // One with a scope, say.
                        None => config.is_plain = false,
                    }
                }
                Some("search" | "domain") => config.searches = words.any(|word| word != "."),
                Some("options") => words.for_each(|word| config.take_option(word)),
                _ => {}
            }
        }
        if config.servers.is_empty() {
            config.servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
        }
        config.is_plain &= is_plain(nsswitch);
        config
    }

    fn take_option(&mut self, word: &str) {
        match word.split_once(':') {
            Some(("ndots", count)) => self.ndots = count.parse().unwrap_or(1),
            // How long and how often is ours to say.
            Some(("timeout" | "attempts", _)) => {}
            None if HARMLESS.contains(&word) => {}
            _ => self.is_plain = false,
        }
    }

    /// Whether a question to these servers is all that the system would do for this name.
    pub(super) fn covers(&self, name: &str) -> bool {
        let dots = name.bytes().filter(|byte| *byte == b'.').count();
        self.is_plain
            && !self.servers.is_empty()
            && (dots >= self.ndots || name.ends_with('.'))
            && is_of_dns(name)
    }
}

/// Whether a name stands in a hosts file.
pub(super) fn has_host(hosts: &str, name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    hosts.lines().any(|line| {
        let names = line.split('#').next().unwrap_or_default().split_ascii_whitespace().skip(1);
        names.into_iter().any(|other| other.eq_ignore_ascii_case(name))
    })
}

/// Whether nothing but files and DNS is asked for hosts; without a file nothing else is.
fn is_plain(nsswitch: &str) -> bool {
    let hosts = nsswitch.lines().find_map(|line| line.trim_start().strip_prefix("hosts:"));
    let Some(hosts) = hosts else { return true };
    let hosts = hosts.split('#').next().unwrap_or_default();
    // What stands in brackets says what to do with an answer.
    let sources = hosts.split('[').flat_map(|part| {
        part.split_once(']').map_or(part, |(_, sources)| sources).split_ascii_whitespace()
    });
    let mut dns = false;
    for source in sources {
        match source {
            "dns" | "resolve" => dns = true,
            "files" | "myhostname" | "mymachines" => {}
            // For names below `local` alone.
            "mdns" | "mdns4" | "mdns6" | "mdns_minimal" | "mdns4_minimal" | "mdns6_minimal" => {}
            _ => return false,
        }
    }
    dns
}

const PORT: u16 = 53;
/// As many as glibc knows.
const MOST_SERVERS: usize = 3;
/// Options that change nothing for us.
const HARMLESS: [&str; 8] = [
    "edns0",
    "inet6",
    "ip6-bytestring",
    "no-tld-query",
    "rotate",
    "single-request",
    "single-request-reopen",
    "trust-ad",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_options_and_searches_are_read() {
        let read = |resolv: &str| Config::parse(resolv, "");
        let servers = "# mine\nnameserver 192.0.2.1\nnameserver\t2001:db8::1\n";
        let config = read(&format!("{servers}options ndots:2 rotate timeout:1\n"));
        let addresses: Vec<_> = config.servers.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["192.0.2.1:53", "[2001:db8::1]:53"]);
        assert!(config.is_plain && !config.searches);
        assert!(config.covers("a.b.test") && config.covers("b.test.") && !config.covers("b.test"));
        assert_eq!(read("").servers, ["127.0.0.1:53".parse().unwrap()]);
        assert_eq!(read(&"nameserver 192.0.2.1\n".repeat(5)).servers.len(), 3);
        assert!(read("search example.org\n").searches && !read("search .\n").searches);
        for unknown in ["options use-vc", "options no-aaaa", "nameserver fe80::1%eth0"] {
            assert!(!read(unknown).covers("a.test"), "{unknown}");
        }
    }

    #[test]
    fn other_sources_than_files_and_dns_are_the_system_s() {
        for (line, plain) in [
            ("hosts: files dns", true),
            ("hosts:\tfiles mdns4_minimal [NOTFOUND=return] dns myhostname # x ldap", true),
            ("hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns", true),
            ("passwd: files ldap\nhosts: files dns", true),
            ("hosts: files", false),
            ("hosts: files ldap dns", false),
            ("hosts: files [NOTFOUND=return] wins dns", false),
            ("passwd: files", true),
        ] {
            assert_eq!(is_plain(line), plain, "{line}");
        }
    }

    #[test]
    fn names_that_others_know_are_left_to_them() {
        let config = Config::of(&["192.0.2.1:53".parse().unwrap()]);
        for name in ["example.org", "_srv.Example.org", "a.b.c.", "notlocal.org", "mylocal.lan"] {
            assert!(config.covers(name), "{name}");
        }
        for name in [
            "host",
            "localhost",
            "a.localhost",
            "printer.local",
            "Printer.LOCAL.",
            "x.onion",
            "127.0.0.1",
            "0x7f.1",
            "::1",
            "a b.org",
            "b\u{fc}cher.org",
            "",
            ".",
        ] {
            assert!(!config.covers(name), "{name}");
        }
        let hosts = "127.0.0.1 localhost\n192.0.2.9\tapi.test  Web.test # old.test\n";
        assert!(has_host(hosts, "API.test") && has_host(hosts, "web.test."));
        assert!(!has_host(hosts, "old.test") && !has_host(hosts, "192.0.2.9"));
    }
}
