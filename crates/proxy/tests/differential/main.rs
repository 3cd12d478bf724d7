//! Towpath beside a real Envoy 1.40: the same bootstrap, the same requests, and everything that can be seen compared.
//!
//! The cases are data, in `conformance/differential`; its README says how they are written. What is compared for each:
//! what the client received, what the upstream received, the access-log lines, and by how much each counter moved.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod bootstrap;
mod case;
mod checks;
mod client;
mod coding;
mod curl;
mod dns;
mod http2;
mod oauth;
mod openssl;
mod outcome;
mod peer;
mod pressure;
mod processor;
mod script;
mod secure;
mod session;
mod spans;
mod upstream;
mod wire;

use std::io::Write as _;
use std::path::Path;

use case::{General, Suite};
use peer::{Kind, Peer};

#[test]
fn every_suite_can_be_read() {
    let mut names = Vec::new();
    for name in SUITES {
        names.extend(read(name).cases.into_iter().map(|case| case.name));
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a name is used twice");
    assert!(count >= 60, "only {count} cases");
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let files =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).count();
    assert_eq!(files, SUITES.len(), "a suite is not run");
}

/// One test for each suite, so that they run beside each other and fail alone.
macro_rules! suites {
    ($($name:ident),* $(,)?) => {
        const SUITES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            #[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
            fn $name() {
                compare(stringify!($name));
            }
        )*
    };
}

suites!(
    addresses,
    aggregates,
    destinations,
    messages,
    routes,
    router_headers,
    direct_bodies,
    header_mutation,
    mutations,
    tracked,
    tries,
    conditions,
    hedging,
    custom_response,
    decompressor,
    route_matches,
    weighted,
    headers,
    timing,
    retries,
    redirects,
    resolvers,
    spelling,
    clients,
    local_replies,
    logs,
    closes,
    log_services,
    log_entries,
    opaque,
    own_logs,
    tunneling,
    admin,
    drain,
    drops,
    ends,
    excluded,
    expressions,
    statistics,
    virtual_clusters,
    mirrors,
    cluster_policies,
    upgrade_filters,
    upgrades,
    internal,
    passing,
    hbone,
    internal_headers,
    tls,
    tls_downstream,
    tls_judged,
    tls_revoked,
    http2,
    inspectors,
    proxy_protocol,
    upstream_proxy_protocol,
    connection_limit,
    connection_metadata,
    client_times,
    connection_rates,
    network_filters,
    original_sources,
    override_hosts,
    google_grpc,
    grpc,
    http2_upstreams,
    compression,
    cors,
    counted,
    credential_injector,
    answers,
    api_key_auth,
    bandwidth_limit,
    basic_auth,
    ext_authz,
    ext_proc,
    fault,
    flushing,
    forward_proxy,
    sub_clusters,
    jwt_authn,
    grpc_filters,
    grpc_health,
    grpc_stats,
    transcoder,
    matchers,
    oauth2,
    metadata,
    load_reports,
    local_ratelimit,
    lua,
    ratelimit,
    filters,
    health,
    health_check,
    health_check_passed,
    outliers,
    overload,
    balancing,
    bounds,
    attempt_logs,
    callout_retries,
    callout_spans,
    phase_spans,
    hash_cookies,
    hashing,
    set_metadata,
    slow_start,
    subsets,
    sni,
    sockets,
    socket_matchers,
    cluster_specifiers,
    pools,
    client_certificates,
    rbac,
    stateful_session,
    tracing,
    zones
);

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/differential")
}

fn read(name: &str) -> Suite {
    let path = folder().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut suite: Suite = toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let general = std::fs::read_to_string(folder().join("general/differs.toml")).unwrap();
    suite.differs.extend(toml::from_str::<General>(&general).unwrap().differs);
    suite
}

/// Runs every case of a suite against both; what differs is asked again, and fails if it differs still. `TOWPATH_CASE`
/// names the only ones to run.
fn compare(name: &str) {
    let suite = read(name);
    let only = std::env::var("TOWPATH_CASE").unwrap_or_default();
    let (mut envoy, mut towpath) = std::thread::scope(|scope| {
        let envoy = scope.spawn(|| Peer::start(Kind::Envoy, &suite));
        let towpath = Peer::start(Kind::Towpath, &suite);
        (envoy.join().unwrap(), towpath)
    });
    let (mut wrong, mut once, mut count) = (Vec::new(), Vec::new(), 0);
    for case in suite.cases.iter().filter(|case| case.name.contains(&only)) {
        count += 1;
        let start = std::time::Instant::now();
        let mut ask = || outcome::differences(case, &suite, &mut envoy, &mut towpath);
        let found = ask();
        println!("{name}: {} in {} ms", case.name, start.elapsed().as_millis());
        // Which of two ends is seen first is up to a busy machine. What is wrong is wrong again.
        if found.is_empty() {
            continue;
        } else if ask().is_empty() {
            once.push(format!("--- {}\n{found}", case.name));
        } else {
            wrong.push(format!("--- {}\n{found}", case.name));
        }
    }
    if !once.is_empty() {
        // Past the capture of what a test prints that passes.
        let told =
            format!("{name}: {} of {count} cases differed once\n{}", once.len(), once.join("\n"));
        let _ = writeln!(std::io::stdout(), "{told}");
    }
    println!("{name}: not kept by Towpath: {:?}", outcome::not_kept(&mut envoy, &mut towpath));
    assert!(wrong.is_empty(), "{} of {count} cases differ\n{}", wrong.len(), wrong.join("\n"));
}
