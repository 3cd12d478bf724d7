//! What goes wrong around the program: peers that die, freeze, dawdle or crowd, and its own end under load.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

#[path = "../common/mod.rs"]
mod common;
mod drain;
mod health;
mod hostile;
mod limits;
mod load;
mod nginx;
mod origin;
mod reload;
mod slow;
mod tls;
#[expect(dead_code, reason = "requests are read elsewhere")]
#[path = "../../../../conformance/h1/wire.rs"]
mod wire;

use common::{Proxy, until};

/// Every connection and request is over.
fn nothing_is_left(proxy: &Proxy) {
    for gauge in [
        "http.ingress.downstream_rq_active",
        "http.ingress.downstream_cx_active",
        "cluster.origin.upstream_rq_active",
        "cluster.origin.upstream_rq_pending_active",
    ] {
        until(gauge, || proxy.stat(gauge) == Some(0));
    }
}

/// Lets this process hold as many sockets as the system allows, for these tests run side by side; answers how many.
fn many_descriptors() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    limit.current.unwrap_or(u64::MAX)
}

/// Resident bytes that the proxy has allocated: pages of its own file come and go as the kernel likes.
fn memory(proxy: &Proxy) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
