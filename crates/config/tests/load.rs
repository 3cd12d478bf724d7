//! What a bootstrap becomes.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

use std::sync::Arc;
use std::time::Duration;

use towpath_config::{Base, Error, Loaded, Options, Source, Sources, check, load, reload};
use towpath_engine::filter::header_mutation::{HeaderMutation, Mutations};
use towpath_engine::header_ops::HeaderMutation as Mutation;
use towpath_engine::snapshot::cluster::{Balancer, Discovery, Family};
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::snapshot::route::{Action, ClusterChoice, Forward, PathRewrite, RetryOn};
use towpath_engine::snapshot::{BufferLimit, Cluster, ClusterId, Http};
use towpath_proto::{Address, IpVersion};

#[test]
fn defaults_are_envoys() {
    let loaded = gateway("timeout: 15s", "");
    let http = http(&loaded);
    assert_eq!(http.idle_timeout, Some(Duration::from_secs(3600)));
    assert_eq!(http.stream_idle_timeout, Some(Duration::from_secs(300)));
    assert_eq!((http.request_timeout, http.request_headers_timeout), (None, None));
    assert_eq!(http.delayed_close_timeout, Duration::from_secs(1));
    assert_eq!(http.http1.max_head_bytes, 60 * 1024);
    assert_eq!(http.http1.max_fields, 100);
    assert_eq!(http.server_name.value(), b"envoy");
    assert!(
        http.generate_request_id && !http.use_remote_address && http.chain.router.dynamic_stats
    );
    let cluster = cluster(&loaded, "a");
    assert_eq!(cluster.connect_timeout, Duration::from_secs(5));
    assert_eq!(cluster.balancing.policy, Balancer::RoundRobin);
    assert_eq!(
        (
            cluster.limits.connections,
            cluster.limits.pending,
            cluster.limits.requests,
            cluster.limits.retries
        ),
        (1024, 1024, 1024, 3)
    );
    assert_eq!(cluster.balancing.panic_threshold, 50);
    assert_eq!(cluster.http1.max_head_bytes, 80 * 1024);
    let listener = &loaded.snapshot.listeners[0];
    assert_eq!((&*listener.name, &*listener.stat_prefix), ("127.0.0.1:10000", "127.0.0.1_10000"));
    assert_eq!(listener.buffer_limit, BufferLimit { bytes: 64 * 1024, grows: true });
    assert_eq!(listener.retry_buffer_limit, 1024 * 1024);
}

/// Envoy has none of the two beside it, not even its default of 15 s.
#[test]
fn a_maximum_duration_takes_the_place_of_the_timeout() {
    for timeout in ["", "timeout: 1s, "] {
        let loaded =
            gateway(&format!("{timeout}max_stream_duration: {{ max_stream_duration: 9s }}"), "");
        let forward = forward(&loaded);
        assert_eq!(forward.timeout, None);
        assert_eq!(forward.max_stream_duration, Some(Some(Duration::from_secs(9))));
        assert_eq!(loaded.ignored.len(), usize::from(!timeout.is_empty()), "{:?}", loaded.ignored);
    }
}

#[test]
fn routes_say_what_was_written() {
    let loaded = gateway(
        "timeout: 0s, idle_timeout: 0s, prefix_rewrite: /x, priority: HIGH, \
         retry_policy: \
         {retry_on: 'connect-failure, 5xx', num_retries: 3, per_try_timeout: 2s, \
         retriable_status_codes: [503, 429, 503]}",
        "",
    );
    let forward = forward(&loaded);
    assert_eq!((forward.timeout, forward.idle_timeout), (None, Some(None)));
    assert!(matches!(&forward.path, PathRewrite::Prefix(prefix) if **prefix == *b"/x"));
    assert!(forward.high_priority);
    assert!(
        matches!(forward.cluster, ClusterChoice::One(id) if loaded.snapshot.cluster(id).unwrap().name == "a".into())
    );
    let retry = forward.retry.as_ref().unwrap();
    assert_eq!(retry.on, RetryOn::CONNECT_FAILURE.with(RetryOn::STATUS_5XX));
    assert_eq!((retry.retries, retry.per_try_timeout), (3, Some(Duration::from_secs(2))));
    assert_eq!(retry.statuses, [429, 503]);
    assert_eq!(
        (retry.base_interval, retry.max_interval),
        (Duration::from_millis(25), Duration::from_millis(250))
    );
}

#[test]
fn filters_keep_their_order_and_names() {
    let mutation = "{name: own, typed_config: {'@type': \
                    type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation, \
                    mutations: {request_mutations: [{remove: x-a}, {append: {header: {key: X-B, value: \
                    '%PROTOCOL%'}}}]}}}, ";
    let loaded = gateway("timeout: 1s", mutation);
    let [filter] = http(&loaded).chain.filters.as_slice() else { panic!("one mutation") };
    assert_eq!((&*filter.name, filter.disabled), ("own", false));
    let config: &dyn std::any::Any = &*filter.config;
    let HeaderMutation { own: Mutations { request, response, .. }, .. } =
        config.downcast_ref().unwrap();
    let [Mutation::Remove(removed), Mutation::Add(added)] = &request.0[..] else {
        panic!("a removal and an addition");
    };
    assert_eq!((removed.as_str(), added.name.as_str()), ("x-a", "x-b"));
    assert!(response.is_empty());
}

#[test]
fn dns_clusters_have_names() {
    let text = "
static_resources:
  clusters:
  - name: a
    type: LOGICAL_DNS
    dns_lookup_family: V4_PREFERRED
    lb_policy: LEAST_REQUEST
    load_assignment:
      cluster_name: a
      endpoints:
      - locality: {region: r, zone: z}
        lb_endpoints:
        - {endpoint: {address: {socket_address: {address: app.internal, port_value: 81}}}, load_balancing_weight: 7}
";
    let loaded = yaml(text).unwrap();
    let cluster = cluster(&loaded, "a");
    let Discovery::Dns(dns) = &cluster.discovery else { panic!("a DNS cluster") };
    assert!(dns.logical && !dns.respect_ttl);
    assert_eq!((dns.refresh, dns.family), (Duration::from_secs(5), Family::V4Preferred));
    let name = &dns.names[0];
    assert_eq!((&*name.name, name.port, name.template.weight), ("app.internal", 81, 7));
    assert_eq!((&*name.template.hostname, &*name.template.locality), ("app.internal", "r/z/"));
    assert_eq!(cluster.balancing.policy, Balancer::LeastRequest { choices: 2, bias_milli: 1000 });
}

#[test]
fn limits_are_those_of_the_file() {
    let text = "
layered_runtime: {layers: [{name: s, static_layer: {overload.global_downstream_max_connections: 10}}]}
static_resources:
  clusters:
  - {name: a, type: STATIC, circuit_breakers: {thresholds: [{max_connections: 9, max_requests: 1, \
  max_pending_requests: 0}]}}
";
    let loaded = load(&Sources::file(Source::yaml("t", text)), &Options::default()).unwrap();
    let limits = cluster(&loaded, "a").limits;
    assert_eq!((limits.connections, limits.requests, limits.pending, limits.retries), (9, 1, 0, 3));
    assert_eq!(loaded.snapshot.max_connections, Some(10));
}

#[test]
fn runtime_keys_override_what_names_them() {
    let text = "
layered_runtime:
  layers:
  - {name: one, static_layer: {share: {numerator: 7, denominator: TEN_THOUSAND}, upstream: {healthy_panic_threshold: \
  10}}}
  - {name: two, static_layer: {upstream.healthy_panic_threshold: 20}}
static_resources:
  clusters: [{name: a, type: STATIC}]
";
    let loaded = yaml(text).unwrap();
    assert_eq!(cluster(&loaded, "a").balancing.panic_threshold, 20);
    assert_eq!(loaded.bootstrap.runtime.count(), 2);
}

/// What a runtime key says is a part of what a cluster was made from, and of no other.
#[test]
fn another_value_of_a_key_changes_what_reads_it_and_nothing_else() {
    let text = "
layered_runtime:
  layers: [ {name: file, static_layer: {circuit_breakers.a.default.max_requests: 7}}, {name: admin, admin_layer: {}} ]
static_resources:
  clusters: [ {name: a, type: STATIC}, {name: b, type: STATIC} ]
";
    let sources = Sources::file(Source::yaml("t", text));
    let first = load(&sources, &Options::default()).unwrap();
    assert_eq!(cluster(&first, "a").limits.requests, 7);
    let overrides = [("circuit_breakers.a.default.max_requests".to_owned(), "9".to_owned())];
    let options = Options { runtime_overrides: overrides.into(), ..Options::default() };
    let base = Base { snapshot: Arc::new(first.snapshot), prints: first.prints, free: Vec::new() };
    let second = reload(&sources, &options, &base).unwrap();
    let kept = |name: &str| {
        let id = base.snapshot.cluster_id(name).unwrap();
        let (before, after) = (base.snapshot.cluster(id), second.snapshot.cluster(id));
        Arc::ptr_eq(before.unwrap(), after.unwrap())
    };
    assert_eq!(cluster(&second, "a").limits.requests, 9);
    assert_eq!((kept("a"), kept("b")), (false, true));
    let layers = second.bootstrap.runtime.layers();
    assert_eq!(layers[1].values.len(), 1, "{layers:?}");
}

/// A text that `check` would say is not honoured for its runtime key.
#[test]
fn only_keys_that_would_change_something_are_refused() {
    let with = |key: &str| {
        yaml(&format!("layered_runtime: {{layers: [{{name: s, static_layer: {{{key}: true}}}}]}}"))
    };
    for key in [
        "envoy.reloadable_features.http_reject_path_with_fragment",
        "envoy.reloadable_features.of_another_version",
        "envoy.reloadable_features.quic_no_tcp_delay",
        "anything.else",
    ] {
        with(key).unwrap();
    }
    for key in ["envoy.reloadable_features.strict_chunk_parsing", "redis.something"] {
        assert!(with(key).unwrap_err().to_string().contains(key));
    }
}

#[test]
fn config_yaml_is_merged_over_the_file() {
    let sources = Sources {
        file: Some(Source::yaml(
            "file.yaml",
            "node: {id: one, cluster: c}\nstatic_resources: {clusters: [{name: a, type: STATIC}]}",
        )),
        yaml: Some(Source::yaml(
            "--config-yaml",
            "node: {id: two}\nstatic_resources: {clusters: [{name: b, type: STATIC}]}",
        )),
    };
    let loaded = load(&sources, &Options::default()).unwrap();
    assert_eq!((&*loaded.bootstrap.node.id, &*loaded.bootstrap.node.cluster), ("two", "c"));
    assert!(loaded.snapshot.cluster_id("a").is_some() && loaded.snapshot.cluster_id("b").is_some());
}

#[test]
fn problems_name_the_text_they_are_in() {
    let sources = Sources {
        file: Some(Source::yaml("file.yaml", "node: {}")),
        yaml: Some(Source::yaml("--config-yaml", "nod: {}")),
    };
    let error = load(&sources, &Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--config-yaml:1:1: nod: no such field in envoy.config.bootstrap.v3.Bootstrap; \
         did you mean `node`?"
    );
}

#[test]
fn service_flags_stand_before_the_file() {
    let options = Options {
        node_id: Some("flag".to_owned()),
        node_zone: Some("z2".to_owned()),
        ..Options::default()
    };
    let loaded =
        load(&Sources::file(Source::yaml("t", "node: {id: file, cluster: c}")), &options).unwrap();
    assert_eq!(
        (
            loaded.snapshot.node.id.as_str(),
            loaded.snapshot.node.cluster.as_str(),
            loaded.snapshot.node.zone.as_str()
        ),
        ("flag", "c", "z2")
    );
    assert_eq!(loaded.bootstrap.node.id, "flag");
}

#[test]
fn signature_algorithms_are_told_by_their_names() {
    let outcome = |names: &str| {
        let text = format!(
            "
static_resources:
  clusters:
  - name: c
    transport_socket:
      name: tls
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: {{ tls_params: {{ signature_algorithms: [ {names} ] }} }}
"
        );
        let sources = Sources::file(Source::yaml("t", &text));
        load(&sources, &Options::default()).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(outcome("rsa_pss_rsae_sha256, ed25519"), Ok(()));
    assert_eq!(outcome("'ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384'"), Ok(()));
    assert_eq!(outcome("rsa_pss_rsae_sha256, rsa_pkcs1_sha1"), Ok(()), "the weak one is left out");
    for (names, expected) in [
        ("rsa_pkcs1_sha1", "none of these signature algorithms is there"),
        ("ed25519, ed25519", "Failed to initialize TLS signature algorithms ed25519"),
        ("unheard", "Failed to initialize TLS signature algorithms unheard"),
        ("RSA+SHA256", "write `RSA+SHA256` as RFC 8446 does"),
    ] {
        let error = outcome(names).unwrap_err();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn the_node_that_asks_for_secrets_may_be_left_to_flags() {
    let text = "
static_resources:
  clusters:
  - name: c
    transport_socket:
      name: tls
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          tls_certificate_sds_secret_configs:
          - { name: mine, sds_config: { path_config_source: { path: /dev/null } } }
";
    let problems = |is_node_left_open| {
        let options = Options { is_node_left_open, ..Options::default() };
        check(&Sources::file(Source::yaml("t", text)), &options).unwrap().problems.len()
    };
    assert_eq!((problems(false), problems(true)), (1, 0));
}

#[test]
fn unknown_fields_pass_when_allowed_and_refused_ones_do_not() {
    let options = Options { allow_unknown_static_fields: true, ..Options::default() };
    let load = |text: &str| load(&Sources::file(Source::yaml("t", text)), &options);
    assert_eq!(load("nod: {}").unwrap().notes.len(), 1);
    assert!(
        matches!(load("nod: {}\nflags_path: x"), Err(Error::Unsupported(findings)) if findings.len() == 1)
    );
}

#[test]
fn check_lists_what_load_refuses_and_what_it_ignores() {
    let source = Source::yaml("t", "watchdogs: {}\nflags_path: x\nenable_dispatcher_stats: false");
    let checked = check(&Sources::file(source), &Options::default()).unwrap();
    let lines: Vec<String> = checked.findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "t:1:1: watchdogs: ignored: there is no watchdog",
            "t:2:1: flags_path: not supported: feature flags in files are not there",
        ]
    );
}

#[test]
fn what_is_invalid_does_not_hide_what_is_not_honoured() {
    let source = Source::yaml("t", "nod: {}\nflags_path: x\nadmin: {bogus: 1}");
    let checked = check(&Sources::file(source), &Options::default()).unwrap();
    let lines: Vec<String> = checked.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "t:1:1: nod: no such field in envoy.config.bootstrap.v3.Bootstrap; \
             did you mean `node`?",
            "t:3:9: admin.bogus: no such field in envoy.config.bootstrap.v3.Admin",
        ]
    );
    assert_eq!((checked.findings.len(), checked.left_out), (1, 0));
}

#[test]
fn a_misspelt_name_comes_with_the_one_that_was_meant() {
    let text = "
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          access_log:
          - name: file
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
              log_format: {text_format_source: {inline_string: '%RESPONSE_CODE%'}}
          route_config: \
          {virtual_hosts: [{name: v, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: app}}]}]}
          http_filters: \
          [{name: router, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
  clusters: [{name: app, type: STATIC, connect_timeout: 1s}]
";
    yaml(text).unwrap();
    for (right, written) in [
        ("connect_timeout", "conect_timeout"),
        (
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConectionManager",
        ),
        ("app", "appp"),
        ("RESPONSE_CODE", "RESPONSE_COD"),
    ] {
        let (from, to) = match right {
            "app" => ("cluster: app", "cluster: appp"),
            _ => (right, written),
        };
        let error = yaml(&text.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(written), "{error}");
        assert!(error.contains(&format!("; did you mean `{right}`?")), "{error}");
    }
}

#[test]
fn no_text_is_an_error() {
    assert!(matches!(load(&Sources::default(), &Options::default()), Err(Error::Read { .. })));
    assert!(Source::read("/no/such/file.yaml".as_ref()).is_err());
    assert!(
        Source::read("x.pb_text".as_ref()).unwrap_err().to_string().contains("convert it to YAML")
    );
}

#[test]
fn devices_and_huge_files_are_not_read_to_the_end() {
    assert!(
        Source::read("/dev/zero".as_ref())
            .unwrap_err()
            .to_string()
            .contains("more than 33554432 bytes")
    );
    let text = "static_resources: \
        {listeners: [{name: l, address: {pipe: {path: /x}}, filter_chains: [{filters: [{name: h, typed_config: \
        {'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
        HttpConnectionManager, \
         stat_prefix: h, \
        http_filters: \
        [{name: r, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}], \
        route_config: {virtual_hosts: [{name: v, domains: ['*'], routes: [{match: {prefix: /}, \
        direct_response: {status: 200, body: {filename: /dev/zero}}}]}]}}}]}]}]}";
    assert!(yaml(text).unwrap_err().to_string().ends_with("/dev/zero: is not a regular file"));
}

#[test]
fn unix_sockets_and_options_arrive() {
    let text = "
static_resources:
  listeners:
  - name: l
    address: {pipe: {path: '@abstract', mode: 384}}
    tcp_backlog_size: 7
    filter_chains: \
    [{filters: [{name: tcp, typed_config: {'@type': \
    type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: later}}]}]
";
    let loaded = yaml(text).unwrap();
    let listener = &loaded.snapshot.listeners[0];
    assert!(
        matches!(&listener.addresses[0], Address::Unix(path) if path.to_str() == Some("@abstract"))
    );
    assert_eq!((listener.options.backlog, listener.options.mode), (7, 0o600));
    assert!(loaded.snapshot.cluster(loaded.snapshot.cluster_id("later").unwrap()).is_none());
}

#[test]
fn the_dump_has_each_resource_once() {
    let dump = gateway("timeout: 1s", "").config_dump("2026-01-02T03:04:05Z");
    let configs = dump["configs"].as_array().unwrap();
    let types: Vec<_> = configs
        .iter()
        .map(|config| config["@type"].as_str().unwrap().rsplit('.').next().unwrap())
        .collect();
    assert_eq!(
        types,
        ["BootstrapConfigDump", "ClustersConfigDump", "ListenersConfigDump", "RoutesConfigDump"]
    );
    assert_eq!(configs[1]["static_clusters"][0]["cluster"]["name"], "a");
    assert_eq!(configs[2]["static_listeners"].as_array().unwrap().len(), 1);
    assert_eq!(
        configs[3]["static_route_configs"][0]["route_config"]["virtual_hosts"][0]["name"],
        "v"
    );
    assert_eq!(configs[3]["static_route_configs"][0]["last_updated"], "2026-01-02T03:04:05Z");
}

/// A connection manager with one route, whose action has these fields besides its cluster.
fn gateway(action: &str, filters: &str) -> Loaded {
    let text = format!(
        "
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: 10000}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: h
          route_config: \
          {{virtual_hosts: [{{name: v, domains: ['*'], routes: [{{match: {{prefix: /}}, route: {{cluster: a, \
          {action}}}}}]}}]}}
          http_filters: \
          [{filters}{{name: router, typed_config: {{'@type': \
          type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]
  clusters: [{{name: a, type: STATIC}}]
"
    );
    yaml(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn yaml(text: &str) -> Result<Loaded, Error> {
    load(&Sources::file(Source::yaml("t", text)), &Options::default())
}

fn http(loaded: &Loaded) -> &Http {
    let Terminal::Http(http) = &loaded.snapshot.listeners[0].chains[0].terminal else {
        panic!("HTTP")
    };
    http
}

fn forward(loaded: &Loaded) -> &Forward {
    let Action::Forward(forward) = &http(loaded).routes.hosts[0].routes[0].action else {
        panic!("forwarded")
    };
    forward
}

fn cluster<'a>(loaded: &'a Loaded, name: &str) -> &'a Cluster {
    let id = loaded.snapshot.cluster_id(name).unwrap_or_else(|| panic!("no cluster {name}"));
    loaded.snapshot.cluster(id).unwrap_or_else(|| panic!("no cluster {name}"))
}

#[test]
fn what_a_later_configuration_does_not_change_is_the_same_object_there() {
    let text = |clusters: &[&str], timeout: &str| {
        let mut text = String::from("static_resources:\n  clusters:\n");
        for name in clusters {
            let timeout = if *name == "b" { timeout } else { "5s" };
            text += &format!("  - {{name: {name}, type: STATIC, connect_timeout: {timeout}}}\n");
        }
        text
    };
    let follow = |before: Loaded, text: &str, free: Vec<ClusterId>| {
        let (snapshot, prints) = (Arc::new(before.snapshot), before.prints);
        let base = Base { snapshot: Arc::clone(&snapshot), prints, free };
        let sources = Sources::file(Source::yaml("t", text));
        (snapshot, reload(&sources, &Options::default(), &base).unwrap())
    };
    let first =
        load(&Sources::file(Source::yaml("t", &text(&["a", "b", "c"], "1s"))), &Options::default());
    let (first, second) = follow(first.unwrap(), &text(&["a", "b", "d"], "2s"), Vec::new());
    let same = |name| {
        let (before, after) = (first.cluster_id(name), second.snapshot.cluster_id(name));
        assert_eq!(before, after, "{name}");
        let id = after.unwrap();
        Arc::ptr_eq(first.cluster(id).unwrap(), second.snapshot.cluster(id).unwrap())
    };
    assert!(same("a") && !same("b"));
    assert_eq!((first.generation, second.snapshot.generation), (1, 2));
    let gone = first.cluster_id("c").unwrap();
    assert!(second.snapshot.cluster_id("c").is_none() && second.snapshot.cluster(gone).is_none());
    assert_eq!(second.snapshot.clusters.len(), 4, "an id is not used again by itself");
    let (_, third) = follow(second, &text(&["a", "e"], "1s"), vec![gone]);
    assert_eq!(third.snapshot.cluster_id("e"), Some(gone), "but once it is free");
}

#[test]
fn a_cluster_is_another_one_when_a_file_that_it_names_is() {
    let file = std::env::temp_dir().join(format!("towpath-reload-{}", std::process::id()));
    let text = format!(
        "static_resources: \
         {{listeners: [{{name: l, address: {{socket_address: {{address: 127.0.0.1, port_value: 1}}}}, \
         filter_chains: \
         [{{filters: [{{name: h, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.\
         network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: h, route_config: \
         {{virtual_hosts: [{{name: v, \
         domains: [\"*\"], routes: \
         [{{match: {{prefix: /}}, direct_response: {{status: 200, body: {{filename: {}}}}}}}]}}]}}, \
         http_filters: \
         [{{name: r, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.\
         Router}}}}]}}}}]}}]}}]}}",
        file.display()
    );
    let mut base = Base::default();
    let mut listeners = Vec::new();
    for body in ["one", "one", "two"] {
        std::fs::write(&file, body).unwrap();
        let sources = Sources::file(Source::yaml("t", &text));
        let loaded = reload(&sources, &Options::default(), &base).unwrap();
        listeners.push(Arc::clone(&loaded.snapshot.listeners[0]));
        base = Base { snapshot: loaded.snapshot.into(), prints: loaded.prints, free: Vec::new() };
    }
    std::fs::remove_file(&file).unwrap();
    assert!(Arc::ptr_eq(&listeners[0], &listeners[1]));
    assert!(!Arc::ptr_eq(&listeners[1], &listeners[2]));
    assert!(Arc::ptr_eq(&listeners[1].open, &listeners[2].open), "its connections are counted on");
}

#[test]
fn additional_addresses_have_options_of_their_own() {
    let text = "
static_resources:
  listeners:
  - name: l
    address: { socket_address: { address: 127.0.0.1, port_value: 1 } }
    tcp_keepalive: { keepalive_probes: 3 }
    socket_options: [ { level: 1, name: 9, int_value: 1, ip_version: SOCKET_IP_VERSION_IPV6 } ]
    additional_addresses:
    - { address: { socket_address: { address: 127.0.0.1, port_value: 2 } } }
    - address: { socket_address: { address: 127.0.0.1, port_value: 3 } }
      socket_options: { socket_options: [ { level: 1, name: 8, int_value: 2 } ] }
    - address: { socket_address: { address: 127.0.0.1, port_value: 4 } }
      socket_options: {}
      tcp_keepalive: { keepalive_time: 0 }
    filter_chains: [ { } ]
";
    let sources = Sources::file(Source::yaml("proxy.yaml", text));
    let loaded = load(&sources, &Options::default()).unwrap();
    let listener = &loaded.snapshot.listeners[0];
    let options = |port: u16| {
        let address = Address::Ip(([127, 0, 0, 1], port).into());
        let options = listener.options_of(&address);
        let names: Vec<_> =
            options.socket_options.iter().map(|option| (option.name, option.only)).collect();
        (names, options.keepalive.is_some())
    };
    let first = (vec![(9, Some(IpVersion::V6))], true);
    assert_eq!((options(1), options(2)), (first.clone(), first));
    assert_eq!(options(3), (vec![(8, None)], true));
    assert_eq!(options(4), (Vec::new(), false));
}
