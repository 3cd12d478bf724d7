//! Filters that a control plane gives (ECDS), told once with this program and once with Envoy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use towpath_xds::Type;

use super::beside::{Start, envoy, towpath};
use super::common::{PATIENCE, Proxy, Scratch, exchange, exchange_whole, origin, until};
use super::control_plane::ControlPlane;
use super::{ANY_PORT, FORMS, acked, bootstrap, cluster, endpoints, listener, nack, routes, tcp};

const MUTATION: &str = "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
const BUFFER: &str = "envoy.extensions.filters.http.buffer.v3.Buffer";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const RBAC: &str = "envoy.extensions.filters.network.rbac.v3.RBAC";
const LIMIT: &str = "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit";
const INSPECTOR: &str = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
const PROXY_PROTOCOL: &str = "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol";

/// A filter that says which it is in a response.
fn says(value: &str) -> String {
    format!(
        "{{ \"@type\": type.googleapis.com/{MUTATION}, mutations: {{ response_mutations: [ {{ append: \
         {{ header: {{ key: x-seen, value: \"{value}\" }} }} }} ] }} }}"
    )
}

fn named(name: &str, config: &str) -> String {
    format!("{{ name: {name}, typed_config: {config} }}")
}

/// Where a filter is asked for, with what else is said of it.
fn asked(types: &[&str], timeout: &str, more: &str) -> String {
    let types: Vec<String> = types.iter().map(|of| format!("type.googleapis.com/{of}")).collect();
    format!(
        "{{ config_source: {{ ads: {{}}, resource_api_version: V3, initial_fetch_timeout: {timeout} }}, \
         type_urls: [ {} ]{more} }}",
        types.join(", ")
    )
}

/// A listener that asks for its first HTTP filter.
fn asking(name: &str, filter: &str, discovery: &str) -> String {
    let filters =
        format!("http_filters:\n      - {{ name: {filter}, config_discovery: {discovery} }}\n");
    listener(name, ANY_PORT, "table").replace("http_filters:\n", &filters)
}

fn plane(listeners: &[(&str, &str)]) -> ControlPlane {
    let plane = ControlPlane::start();
    plane.set(Type::Cluster, "c1", &[("app", &cluster("app"))]);
    plane.set(Type::Endpoints, "e1", &[("app", &endpoints("app", origin(Duration::ZERO)))]);
    plane.set(Type::Routes, "r1", &[("table", &routes("table", "route: { cluster: app }"))]);
    plane.set(Type::Listener, "l1", listeners);
    plane
}

/// Status, and what the filter says.
fn seen(proxy: &Proxy, listener: &str) -> (String, String) {
    let answer = exchange_whole(&proxy.listener(listener), "GET", "/").unwrap_or_default();
    said(&answer)
}

fn said(answer: &str) -> (String, String) {
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    let header = answer.lines().find_map(|line| line.strip_prefix("x-seen: "));
    (status, header.unwrap_or_default().to_owned())
}

fn becomes(proxy: &Proxy, listener: &str, status: &str, value: &str) {
    let wanted = (status.to_owned(), value.to_owned());
    until(&format!("{listener} answers {wanted:?}"), || seen(proxy, listener) == wanted);
}

fn live(proxy: &Proxy) {
    until("it is live", || proxy.get("/ready").1 == "LIVE\n");
}

/// A request on a connection that stays.
fn again(stream: &mut TcpStream) -> (String, String) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the connection ended");
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.trim().parse().unwrap();
        }
        head += &line;
        if line == "\r\n" {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    said(&head)
}

type Counters = Vec<(String, Option<u64>)>;

/// Counters of an extension, and of what it is for.
fn counters(proxy: &Proxy, of: &[&str], more: &[&str]) -> Counters {
    let mut names = Vec::new();
    for extension in of {
        for counter in [
            "config_conflict",
            "config_fail",
            "config_reload",
            "init_fetch_timeout",
            "update_rejected",
            "update_success",
        ] {
            names.push(format!("extension_config_discovery.{extension}.{counter}"));
        }
    }
    names.extend(more.iter().map(|name| (*name).to_owned()));
    names.into_iter().map(|name| (name.clone(), proxy.stat(&name))).collect()
}

fn reloads(proxy: &Proxy, extension: &str, count: u64) {
    let name = format!("extension_config_discovery.{extension}.config_reload");
    until(&format!("{count} reloads"), || proxy.stat(&name) == Some(count));
}

/// It comes, becomes another, is refused, and is gone.
fn life(start: Start, form: &str) -> (Counters, String) {
    let web = asking("web", "mut", &asked(&[MUTATION, ROUTER], "0s", ""));
    let plane = plane(&[("web", &web)]);
    let proxy = start(&bootstrap(&tcp(plane.address), form));
    acked(&plane, Type::Listener, "l1");
    until("it is asked for", || plane.last(Type::Extension).is_some());
    assert_eq!(plane.last(Type::Extension).unwrap().names, ["mut".to_owned()].into(), "{form}");
    assert_eq!(proxy.get("/ready").1, "INITIALIZING\n", "{form}: it is waited for");
    let set = |version, config: &str| {
        plane.set(Type::Extension, version, &[("mut", &named("mut", config))]);
    };
    set("x1", &says("one"));
    live(&proxy);
    acked(&plane, Type::Extension, "x1");
    assert_eq!(seen(&proxy, "web"), ("200".to_owned(), "one".to_owned()), "{form}");
    reloads(&proxy, "http_filter.mut", 1);
    let at = proxy.listener("web");
    let mut open = TcpStream::connect(&at).unwrap();
    assert_eq!(again(&mut open).1, "one", "{form}");
    set("x2", &says("two"));
    acked(&plane, Type::Extension, "x2");
    becomes(&proxy, "web", "200", "two");
    reloads(&proxy, "http_filter.mut", 2);
    until("a connection that is open has it, too", || again(&mut open).1 == "two");
    assert_eq!(proxy.listener("web"), at, "{form}");
    for (version, config, why) in [
        (
            "x3",
            format!("{{ \"@type\": type.googleapis.com/{BUFFER}, max_request_bytes: 7 }}"),
            "has type url",
        ),
        ("x4", format!("{{ \"@type\": type.googleapis.com/{ROUTER} }}"), "must be the last filter"),
        ("x5", says("two").replace("key: x-seen", "key: \"\""), "key"),
    ] {
        set(version, &config);
        let refused = || plane.last(Type::Extension).and_then(|said| said.error);
        until(&format!("{form}: {why}"), || {
            refused().is_some_and(|error| error.to_lowercase().contains(why))
        });
        assert_eq!(seen(&proxy, "web").1, "two", "{form}: what was good stays");
    }
    // The same again is taken, and is nothing new.
    set("x6", &says("two"));
    if form != "DELTA_GRPC" {
        acked(&plane, Type::Extension, "x6");
    }
    set("x7", &says("three"));
    becomes(&proxy, "web", "200", "three");
    reloads(&proxy, "http_filter.mut", 3);
    acked(&plane, Type::Extension, "x7");
    let (_, dump) = proxy.get("/config_dump?resource=ecds_filters");
    for text in ["envoy.admin.v3.EcdsConfigDump.EcdsFilterConfig", "\"x7\"", "three", MUTATION] {
        assert!(dump.contains(text), "{form}: {dump}");
    }
    let mut gone = String::new();
    if form == "DELTA_GRPC" {
        plane.set(Type::Extension, "x8", &[]);
        becomes(&proxy, "web", "500", "");
        reloads(&proxy, "http_filter.mut", 4);
        gone = without_date(&exchange_whole(&at, "GET", "/").unwrap());
        until("an open connection does without, too", || again(&mut open).0 == "500");
        set("x9", &says("four"));
        becomes(&proxy, "web", "200", "four");
        reloads(&proxy, "http_filter.mut", 5);
    }
    let more = ["listener_manager.listener_modified", "listener_manager.lds.update_success"];
    (counters(&proxy, &["http_filter.mut"], &more), gone)
}

fn without_date(answer: &str) -> String {
    let lines = answer.lines().filter(|line| !line.starts_with("date: ") && !line.is_empty());
    let mut lines: Vec<&str> = lines.collect();
    lines.sort_unstable();
    lines.join("\n").replace("server: envoy", "server: it").replace("server: towpath", "server: it")
}

/// What never comes, with a default and without; what is not waited for; what is for one listener and not for another.
fn absences(start: Start, form: &str) -> (Counters, Vec<String>) {
    let default = |value: &str| format!(", default_config: {}", says(value));
    let at_once = format!("{}, apply_default_config_without_warming: true", default("at once"));
    let both = [MUTATION, BUFFER];
    let logs = Scratch::new();
    let log = format!(
        "stat_prefix: never\n      access_log: [ {{ name: file, typed_config: {{ \"@type\": \
         type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: {}, log_format: {{ \
         text_format_source: {{ inline_string: \"%RESPONSE_CODE% %RESPONSE_FLAGS%\\n\" \
         }} }} }} }} ]",
        logs.path("log").display()
    );
    let never = asking("never", "none", &asked(&both, "0.3s", ""));
    let listeners = [
        ("never", never.replace("stat_prefix: never", &log)),
        ("late", asking("late", "late", &asked(&both, "0.3s", &default("default")))),
        ("eager", asking("eager", "eager", &asked(&both, "0s", &at_once))),
    ];
    let listed: Vec<(&str, &str)> = listeners.iter().map(|(name, it)| (*name, &**it)).collect();
    let plane = plane(&listed);
    let proxy = start(&bootstrap(&tcp(plane.address), form));
    live(&proxy);
    becomes(&proxy, "never", "500", "");
    becomes(&proxy, "late", "200", "default");
    becomes(&proxy, "eager", "200", "at once");
    let mut answers = Vec::new();
    let at = proxy.listener("never");
    answers.push(without_date(&exchange_whole(&at, "GET", "/").unwrap()));
    until("it is logged", || !logs.read("log").is_empty());
    answers.push(logs.read("log").lines().next().unwrap_or_default().to_owned());
    let of = |name, value: &str| (name, named(name, &says(value)));
    let came = [of("none", "a"), of("late", "b"), of("eager", "c")];
    let came: Vec<(&str, &str)> = came.iter().map(|(name, it)| (*name, &**it)).collect();
    plane.set(Type::Extension, "x1", &came);
    becomes(&proxy, "never", "200", "a");
    becomes(&proxy, "late", "200", "b");
    becomes(&proxy, "eager", "200", "c");
    for name in ["none", "late", "eager"] {
        reloads(&proxy, &format!("http_filter.{name}"), 1);
    }
    // One that asks for another type has its default, and counts.
    let other = asking(
        "other",
        "late",
        &asked(
            &[BUFFER, ROUTER],
            "0.3s",
            &format!(
                ", default_config: {{ \"@type\": type.googleapis.com/{BUFFER}, max_request_bytes: 7 }}"
            ),
        ),
    );
    let mut more = listed.clone();
    more.push(("other", &other));
    plane.set(Type::Listener, "l2", &more);
    acked(&plane, Type::Listener, "l2");
    until("the other", || proxy.get("/listeners").1.contains("other::"));
    becomes(&proxy, "other", "200", "");
    becomes(&proxy, "late", "200", "b");
    if form == "DELTA_GRPC" {
        plane.set(Type::Extension, "x2", &came[..1]);
        becomes(&proxy, "late", "200", "default");
        becomes(&proxy, "eager", "200", "at once");
    }
    let of = ["http_filter.none", "http_filter.late", "http_filter.eager"];
    (counters(&proxy, &of, &[]), answers)
}

/// A network filter, and a listener filter.
fn others(start: Start, form: &str) -> (Counters, Vec<String>) {
    let discovery = |types: &[&str]| asked(types, "0.3s", "");
    let network = listener("network", ANY_PORT, "table").replace(
        "- filters:\n",
        &format!(
            "- filters:\n  - {{ name: gate, config_discovery: {} }}\n",
            discovery(&[RBAC, LIMIT])
        ),
    );
    let first = listener("first", ANY_PORT, "table")
        + &format!(
            "listener_filters:\n- {{ name: first, config_discovery: {} }}\n",
            discovery(&[INSPECTOR, PROXY_PROTOCOL])
        );
    let plane = plane(&[("network", &network), ("first", &first)]);
    let proxy = start(&bootstrap(&tcp(plane.address), form));
    live(&proxy);
    let ask = |name: &str| exchange(&proxy.listener(name), "GET", "/").map(|it| it.0).unwrap_or(0);
    for name in ["network", "first"] {
        until("connections are closed", || ask(name) == 0);
    }
    let missing = ["network_extension_config_missing", "extension_config_missing"]
        .map(|name| format!("listener.127.0.0.1_0.{name}"));
    for name in &missing {
        until(name, || proxy.stat(name).is_some_and(|count| count > 0));
    }
    let limit = |count: u32| {
        named(
            "gate",
            &format!(
                "{{ \"@type\": type.googleapis.com/{LIMIT}, stat_prefix: gate, max_connections: {count} }}"
            ),
        )
    };
    let inspector = named("first", &format!("{{ \"@type\": type.googleapis.com/{INSPECTOR} }}"));
    let set = |version, gate: &str, first: &str| {
        plane.set(Type::Extension, version, &[("gate", gate), ("first", first)]);
    };
    set("x1", &limit(5), &inspector);
    until("the network filter", || ask("network") == 200);
    until("the listener filter", || ask("first") == 200);
    let denies = named(
        "gate",
        &format!(
            "{{ \"@type\": type.googleapis.com/{RBAC}, stat_prefix: gate, rules: {{ action: DENY, policies: {{ all: \
         {{ permissions: [ {{ any: true }} ], principals: [ {{ any: true }} ] }} }} }} }}"
        ),
    );
    set("x2", &denies, &inspector);
    until("all are denied", || ask("network") == 0);
    set("x3", &limit(5), &inspector.replace(INSPECTOR, PROXY_PROTOCOL));
    until("again", || ask("network") == 200);
    until("a header is wanted", || ask("first") == 0);
    let wrong = named("gate", &format!("{{ \"@type\": type.googleapis.com/{MUTATION} }}"));
    reloads(&proxy, "tcp_listener_filter.first", 2);
    let first_counters = counters(&proxy, &["tcp_listener_filter.first"], &[]);
    set("x4", &wrong, &inspector.replace(INSPECTOR, PROXY_PROTOCOL));
    assert!(nack(&plane, Type::Extension).contains("has type URL"), "{form}");
    assert_eq!(ask("network"), 200, "{form}: what was good stays");
    reloads(&proxy, "network_filter.gate", 3);
    // Envoy refuses all of a response for one resource, and counts it for the others, too.
    let all = [counters(&proxy, &["network_filter.gate"], &[]), first_counters].concat();
    (all, Vec::new())
}

#[test]
fn an_http_filter_comes_and_goes_without_its_listener() {
    for form in FORMS {
        let (counters, _) = life(towpath, form);
        let modified = counters.iter().find(|(name, _)| name.ends_with("listener_modified"));
        assert_eq!(modified.unwrap().1, Some(0), "{form}");
    }
}

#[test]
fn without_a_filter_its_default_serves_or_nothing() {
    for form in FORMS {
        let (counters, answers) = absences(towpath, form);
        let conflicts = counters
            .iter()
            .filter(|(name, count)| name.ends_with("config_conflict") && *count == Some(1));
        assert_eq!(conflicts.count(), 1, "{form}: {counters:?}");
        assert!(answers[0].contains("HTTP/1.1 500"), "{form}: {answers:?}");
        assert_eq!(answers[1], "500 NFCF", "{form}");
    }
}

#[test]
fn network_filters_and_listener_filters_come_as_well() {
    for form in FORMS {
        others(towpath, form);
    }
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn extensions_go_as_in_envoy() {
    for form in FORMS {
        assert_eq!(life(towpath, form), life(envoy, form), "{form}");
        assert_eq!(absences(towpath, form), absences(envoy, form), "{form}");
        assert_eq!(others(towpath, form), others(envoy, form), "{form}");
    }
}
