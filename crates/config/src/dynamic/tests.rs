use std::time::Duration;

use towpath_engine::snapshot::Cluster;

use super::*;
use crate::load::encoded;
use crate::source::Source;

const BOOTSTRAP: &str = "
dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services: [ { envoy_grpc: { cluster_name: xds } } ]
static_resources:
  clusters: [ { name: xds } ]
";

fn resources() -> Resources {
    let sources = Sources::file(Source::yaml("t", BOOTSTRAP));
    Resources::new(sources, Options::default()).unwrap()
}

fn given(kind: Kind, name: &str, text: &str) -> Given {
    let body = encoded(&Source::yaml("t", text), kind.message()).unwrap();
    Given { name: name.to_owned(), body }
}

/// Offers, and takes what comes of it as that which serves.
fn offer(
    all: &mut Resources,
    base: &mut Base,
    kind: Kind,
    given: Vec<Given>,
) -> (Vec<Rejected>, Vec<(Kind, String)>) {
    let (build, rejected) = all.offer(kind, given, &[], base);
    *base = Base { snapshot: build.snapshot.into(), prints: build.prints, free: Vec::new() };
    (rejected, build.warming)
}

const EDS: &str = "{ name: a, type: EDS, eds_cluster_config: { eds_config: { ads: {} } }, connect_timeout: TIME }";
const HOSTS: &str = "{ cluster_name: a, endpoints: [ { lb_endpoints: [ { endpoint: { address: \
    { socket_address: { address: 127.0.0.1, port_value: PORT } } } } ] } ] }";

#[test]
fn a_cluster_waits_for_its_endpoints_and_serves_on_while_another_does() {
    let (mut all, mut base) = (resources(), Base::default());
    let eds = |time: &str| given(Kind::Cluster, "a", &EDS.replace("TIME", time));
    let (rejected, warming) = offer(&mut all, &mut base, Kind::Cluster, vec![eds("1s")]);
    assert_eq!((rejected, warming), (Vec::new(), vec![(Kind::Cluster, "a".to_owned())]));
    let id = base.snapshot.cluster_id("a").unwrap();
    assert!(base.snapshot.cluster(id).is_none());
    let hosts = given(Kind::Endpoints, "a", &HOSTS.replace("PORT", "1"));
    let (rejected, warming) = offer(&mut all, &mut base, Kind::Endpoints, vec![hosts]);
    assert_eq!((rejected, warming), (Vec::new(), Vec::new()));
    let first = base.snapshot.cluster(id).unwrap().clone();
    assert_eq!(first.endpoints.len(), 1);
    // Nothing new is the same object.
    offer(&mut all, &mut base, Kind::Cluster, vec![eds("1s")]);
    assert!(Arc::ptr_eq(&first, base.snapshot.cluster(id).unwrap()));
    // Another service's endpoints are not there yet.
    let other = EDS.replace("TIME", "1s").replace("{ eds_config", "{ service_name: b, eds_config");
    let (_, warming) =
        offer(&mut all, &mut base, Kind::Cluster, vec![given(Kind::Cluster, "a", &other)]);
    assert_eq!(warming, [(Kind::Cluster, "a".to_owned())]);
    assert!(Arc::ptr_eq(&first, base.snapshot.cluster(id).unwrap()));
    all.give_up(Kind::Endpoints, "b");
    let build = all.rebuild(&base);
    assert!(build.warming.is_empty());
    assert_eq!(build.snapshot.cluster(id).unwrap().endpoints.len(), 0);
}

#[test]
fn what_is_bad_is_named_with_all_its_fields_and_the_last_good_one_stays() {
    let (mut all, mut base) = (resources(), Base::default());
    let cluster = |name: &str, more: &str| {
        given(Kind::Cluster, name, &format!("{{ name: {name}, type: STATIC, {more} }}"))
    };
    offer(&mut all, &mut base, Kind::Cluster, vec![cluster("a", "connect_timeout: 1s")]);
    let id = base.snapshot.cluster_id("a").unwrap();
    let first = base.snapshot.cluster(id).unwrap().clone();
    let refused = "upstream_config: { name: a, typed_config: { \"@type\": \
                   type.googleapis.com/google.protobuf.StringValue } }";
    let bad = cluster("a", &format!("connect_timeout: -1s, {refused}"));
    let (rejected, _) = offer(&mut all, &mut base, Kind::Cluster, vec![bad, cluster("b", "")]);
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].name, "a");
    let lines: Vec<_> =
        rejected[0].reason.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["connect_timeout", "upstream_config"]);
    assert!(Arc::ptr_eq(&first, base.snapshot.cluster(id).unwrap()));
    assert!(base.snapshot.cluster_id("b").is_some());
    // Bytes that are no message, and a name of the bootstrap's.
    let garbage = Given { name: "c".to_owned(), body: Bytes::from_static(&[0xff]) };
    let (rejected, _) =
        offer(&mut all, &mut base, Kind::Cluster, vec![garbage, cluster("xds", "")]);
    assert_eq!(rejected.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["c", "xds"]);
    assert!(
        all.texts.iter().flatten().count() == 2,
        "names that are gone are free: {:?}",
        all.texts
    );
}

#[test]
fn a_route_table_that_was_taken_stays_when_its_cluster_goes() {
    let (mut all, mut base) = (resources(), Base::default());
    let listener = r#"{ name: l, address: { socket_address: { address: 127.0.0.1, port_value: 0 } }, filter_chains: [
        { filters: [ { name: h, typed_config: {
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager,
        stat_prefix: h, rds: { route_config_name: r, config_source: { ads: {} } }, http_filters: [ { name: r,
        typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router } } ] } } ] } ] }"#;
    let table = "{ name: r, validate_clusters: true, virtual_hosts: [ { name: v, domains: [\"*\"], routes: [
        { match: { prefix: / }, route: { cluster: a } } ] } ] }";
    let a = given(Kind::Cluster, "a", "{ name: a }");
    offer(&mut all, &mut base, Kind::Listener, vec![given(Kind::Listener, "l", listener)]);
    assert!(base.snapshot.listeners.is_empty());
    let (rejected, _) =
        offer(&mut all, &mut base, Kind::Routes, vec![given(Kind::Routes, "r", table)]);
    assert!(rejected[0].reason.contains("unknown cluster 'a'"), "{rejected:?}");
    offer(&mut all, &mut base, Kind::Cluster, vec![a]);
    let (rejected, warming) =
        offer(&mut all, &mut base, Kind::Routes, vec![given(Kind::Routes, "r", table)]);
    assert_eq!((rejected.len(), warming.len()), (0, 0));
    assert_eq!(base.snapshot.listeners.len(), 1);
    let (build, rejected) = all.offer(Kind::Cluster, Vec::new(), &["a".to_owned()], &base);
    assert!(rejected.is_empty());
    assert!(Arc::ptr_eq(&build.snapshot.listeners[0], &base.snapshot.listeners[0]));
}

#[test]
fn of_many_clusters_only_those_that_changed_are_converted() {
    let (mut all, mut base) = (resources(), Base::default());
    let count = 300;
    // The name is the first field of either.
    let named = |index: usize, body: &Bytes| {
        let name = format!("c{index}");
        let field = [&[0x0a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
        Given { name, body: [&field, &body[..]].concat().into() }
    };
    let unnamed = |kind, text: &str| given(kind, "", text).body;
    let cluster =
        |time: &str| unnamed(Kind::Cluster, &EDS.replace("name: a, ", "").replace("TIME", time));
    let hosts = |port: &str| {
        unnamed(Kind::Endpoints, &HOSTS.replace("cluster_name: a, ", "").replace("PORT", port))
    };
    let all_of = |body: &Bytes| (0..count).map(|index| named(index, body)).collect();
    let mut take = |kind, given: Vec<Given>| {
        let began = std::time::Instant::now();
        let (build, rejected) = all.offer(kind, given, &[], &base);
        let spent = began.elapsed();
        assert_eq!(rejected, []);
        let before = std::mem::take(&mut base);
        base = Base { snapshot: build.snapshot.into(), prints: build.prints, free: Vec::new() };
        let clusters = before.snapshot.clusters.iter().zip(&base.snapshot.clusters);
        let other = clusters.filter(|(before, after)| {
            before.as_ref().map(Arc::as_ptr) != after.as_ref().map(Arc::as_ptr)
        });
        (build.converted, other.count(), spent)
    };
    take(Kind::Cluster, all_of(&cluster("1s")));
    let (all_converted, _, of_all) = take(Kind::Endpoints, all_of(&hosts("1")));
    assert_eq!(all_converted, count + 1);
    // The one of the bootstrap is converted each time.
    let (converted, changed, of_one) = take(Kind::Cluster, vec![named(7, &cluster("2s"))]);
    assert_eq!((converted, changed), (2, 1));
    let (converted, changed, _) = take(Kind::Endpoints, vec![named(7, &hosts("2"))]);
    assert_eq!((converted, changed), (2, 1));
    eprintln!("{count} clusters: {of_all:?}; one of them: {of_one:?}");
}

#[test]
fn endpoints_leave_listeners_as_they_are() {
    const LISTENER: &str = "
name: web
address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
filter_chains:
- filters:
  - name: http
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: web
      rds: { route_config_name: table, config_source: { ads: {} } }
      http_filters:
      - name: router
        typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
";
    const TABLE: &str = "{ name: table, virtual_hosts: [ { name: all, domains: ['*'], routes: [ \
        { match: { prefix: / }, route: { cluster: CLUSTER } } ] } ] }";
    let (mut all, mut base) = (resources(), Base::default());
    let hosts = |port: &str| given(Kind::Endpoints, "a", &HOSTS.replace("PORT", port));
    let table = |cluster: &str| given(Kind::Routes, "table", &TABLE.replace("CLUSTER", cluster));
    let cluster = given(Kind::Cluster, "a", &EDS.replace("TIME", "1s"));
    offer(&mut all, &mut base, Kind::Cluster, vec![cluster]);
    offer(&mut all, &mut base, Kind::Listener, vec![given(Kind::Listener, "web", LISTENER)]);
    offer(&mut all, &mut base, Kind::Endpoints, vec![hosts("1")]);
    let judged = BTreeSet::from([(Kind::Endpoints, "a".to_owned())]);
    assert!(all.made_listeners(&base, &judged).is_none(), "it waits for its table");
    // A cluster that is only named has an id, too.
    offer(&mut all, &mut base, Kind::Routes, vec![table("later")]);
    assert!(all.made_listeners(&base, &judged).is_some());
    let before = Arc::clone(&base.snapshot.listeners[0]);
    let ids = base.snapshot.cluster_ids.clone();
    let (build, rejected) = all.offer(Kind::Endpoints, vec![hosts("2")], &[], &base);
    assert!(rejected.is_empty());
    let id = build.snapshot.cluster_id("a").unwrap();
    let port = |build: &Build| {
        build.snapshot.cluster(id).unwrap().endpoints[0].address.ip().unwrap().port()
    };
    assert_eq!(port(&build), 2);
    assert!(Arc::ptr_eq(&build.snapshot.listeners[0], &before));
    let whole = all.rebuild(&base);
    assert_eq!(build.needs, whole.needs);
    assert_eq!(build.prints.listeners, whole.prints.listeners);
    assert_eq!(build.snapshot.cluster_ids, whole.snapshot.cluster_ids);
    assert_eq!(build.snapshot.cluster_ids, ids);
    base = Base { snapshot: build.snapshot.into(), prints: build.prints, free: Vec::new() };
    // Whatever else comes is seen.
    offer(&mut all, &mut base, Kind::Routes, vec![table("a")]);
    assert!(!Arc::ptr_eq(&base.snapshot.listeners[0], &before));
    // Endpoints that are refused leave all as it was.
    let bad =
        given(Kind::Endpoints, "a", "{ cluster_name: a, policy: { overprovisioning_factor: 0 } }");
    let (rejected, _) = offer(&mut all, &mut base, Kind::Endpoints, vec![bad]);
    assert_eq!(rejected.len(), 1);
    assert_eq!(base.snapshot.listeners.len(), 1);
    all.give_up(Kind::Routes, "table");
    assert!(all.made_listeners(&base, &judged).is_none(), "something else changed");
}

#[test]
fn endpoints_alone_come_to_what_they_would_come_to_with_everything() {
    let (mut all, mut base) = (resources(), Base::default());
    let named = |name: &str, text: &str| text.replace("name: a", &format!("name: {name}"));
    let hosts = |name: &str, port: &str| {
        given(Kind::Endpoints, name, &named(name, &HOSTS.replace("PORT", port)))
    };
    let cluster = |name: &str, time: &str| {
        given(Kind::Cluster, name, &named(name, &EDS.replace("TIME", time)))
    };
    let port = |snapshot: &Snapshot, name: &str| {
        let cluster = snapshot.cluster(snapshot.cluster_id(name).unwrap()).unwrap();
        cluster.endpoints[0].address.ip().unwrap().port()
    };
    let clusters = vec![cluster("a", "1s"), cluster("b", "1s"), cluster("c", "1s")];
    offer(&mut all, &mut base, Kind::Cluster, clusters);
    let body =
        |all: &Resources, name: &str| all.given(Kind::Endpoints, name).map(|given| given.body);
    let none = |all: &mut Resources, base: &Base, given: Vec<Given>| {
        let before = given.iter().map(|it| body(all, &it.name)).collect::<Vec<_>>();
        assert!(all.offer_endpoints(&given, &base.snapshot).is_none());
        let after = given.iter().map(|it| body(all, &it.name)).collect::<Vec<_>>();
        assert!(before == after, "nothing is done");
    };
    none(&mut all, &base, vec![hosts("a", "1")]);
    let first = vec![hosts("a", "1"), hosts("b", "1")];
    offer(&mut all, &mut base, Kind::Endpoints, first);
    none(&mut all, &base, vec![hosts("a", "2"), hosts("c", "1")]);
    let bad = "{ cluster_name: b, policy: { overprovisioning_factor: 0 } }";
    let bad = given(Kind::Endpoints, "b", bad);
    none(&mut all, &base, vec![hosts("a", "2"), bad]);
    none(&mut all, &base, vec![hosts("unused", "2")]);

    // Twice in one update: the last counts.
    let news = [hosts("a", "2"), hosts("a", "3"), hosts("b", "1")];
    let patch = all.offer_endpoints(&news, &base.snapshot).unwrap();
    assert_eq!(patch.clusters.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["a"]);
    let before = Arc::clone(&base.snapshot);
    base.snapshot = patch.apply(&before, &mut base.prints).into();
    assert_eq!((port(&base.snapshot, "a"), port(&base.snapshot, "b")), (3, 1));
    assert_eq!(base.snapshot.generation, before.generation + 1);
    let again = all.offer_endpoints(&news[1..], &base.snapshot).unwrap();
    assert_eq!(again.clusters.len(), 0, "nothing is new");

    let whole = all.rebuild(&base);
    assert_eq!(whole.prints.clusters, base.prints.clusters);
    let same = |one: &Snapshot, other: &Snapshot| {
        let place = |it: &Option<Arc<Cluster>>| it.as_ref().map(Arc::as_ptr);
        one.clusters.iter().map(place).eq(other.clusters.iter().map(place))
    };
    assert!(same(&whole.snapshot, &base.snapshot));
    // A cluster that changed and has not been converted is not left out.
    offer(&mut all, &mut base, Kind::Cluster, vec![cluster("b", "2s")]);
    let patch = all.offer_endpoints(&[hosts("b", "4")], &base.snapshot).unwrap();
    assert_eq!(patch.clusters[0].connect_timeout, Duration::from_secs(2));
    let stale = Arc::new(Snapshot::default());
    assert!(all.offer_endpoints(&[hosts("b", "5")], &stale).is_none(), "it does not serve");
}

#[test]
fn a_file_of_listeners_that_changed_is_still_seen_to_have_changed() {
    let folder = std::env::temp_dir().join(format!("towpath-shared-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let bootstrap = "
dynamic_resources: { ads_config: { api_type: GRPC, transport_api_version: V3, grpc_services: [ { envoy_grpc: { \
cluster_name: xds } } ] } }
static_resources:
  clusters:
  - name: xds
    transport_socket:
      name: tls
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: { validation_context: { trusted_ca: { filename: FILE } } }
  listeners:
  - name: web
    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
    filter_chains:
    - transport_socket:
        name: tls
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context: { tls_certificates: [ { certificate_chain: { filename: FILE }, private_key: { filename: \
          KEY } } ] }
      filters:
      - name: tcp
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: web
          cluster: xds
";
    let path = file.display().to_string();
    let text = bootstrap.replace("FILE", &path).replace("KEY", &key.display().to_string());
    let sources = Sources::file(Source::yaml("t", &text));
    let (mut all, mut base) =
        (Resources::new(sources, Options::default()).unwrap(), Base::default());
    let hosts = |port: &str| given(Kind::Endpoints, "a", &HOSTS.replace("PORT", port));
    let cluster = given(Kind::Cluster, "a", &EDS.replace("TIME", "1s"));
    offer(&mut all, &mut base, Kind::Cluster, vec![cluster]);
    offer(&mut all, &mut base, Kind::Endpoints, vec![hosts("1")]);
    let before = Arc::clone(&base.snapshot.listeners[0]);
    let seen = base.prints.secrets[&*path];
    // A cluster reads it again with the next endpoints, and the listener does not.
    std::fs::write(&file, made.cert.pem() + "\n# more\n").unwrap();
    offer(&mut all, &mut base, Kind::Endpoints, vec![hosts("2")]);
    assert!(Arc::ptr_eq(&base.snapshot.listeners[0], &before));
    assert_eq!(base.prints.secrets[&*path], seen, "it would not be looked at again");
    let whole = all.rebuild(&base);
    assert_ne!(whole.prints.secrets[&*path], seen);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn credentials_of_calls_are_left_out_of_what_is_shown() {
    let mut all = resources();
    let text = "
name: authz
typed_config:
  '@type': type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
  grpc_service:
    google_grpc:
      target_uri: t
      stat_prefix: s
      call_credentials:
      - access_token: SECRET
      - google_refresh_token: SECRET
      - service_account_jwt_access: { json_key: SECRET }
      - google_iam: { authorization_token: SECRET, authority_selector: shown }
";
    let Given { body, .. } = given(Kind::Extension, "authz", text);
    let shown = all.describe(Kind::Extension, &body).unwrap().to_string();
    assert!(!shown.contains("SECRET") && shown.contains("shown"), "{shown}");
    assert_eq!(shown.matches("[redacted]").count(), 4, "{shown}");
}

#[test]
fn of_many_that_are_read_ahead_a_bad_one_is_refused_alone() {
    let (mut all, mut base) = (resources(), Base::default());
    let named = |index: usize| format!("c{index:0>99}");
    let cluster = |index: usize, time: &str| {
        let text = format!("{{ name: {}, type: STATIC, connect_timeout: {time} }}", named(index));
        given(Kind::Cluster, &named(index), &text)
    };
    let mut many: Vec<Given> = (0..800).map(|index| cluster(index, "1s")).collect();
    assert!(many.iter().map(|it| it.body.len()).sum::<usize>() >= reading::MANY_BYTES);
    // A field that is longer than what holds it.
    many[7].body = Bytes::from_static(&[0x0a, 0x7f]);
    let (rejected, _) = offer(&mut all, &mut base, Kind::Cluster, many);
    let [Rejected { name, reason }] = &rejected[..] else { panic!("{rejected:?}") };
    assert_eq!(*name, named(7));
    assert!(reason.starts_with("not a envoy.config.cluster.v3.Cluster: "), "{reason}");
    assert_eq!(base.snapshot.clusters.iter().flatten().count(), 800, "with that of the bootstrap");
    let numbers = all.texts.len() - all.free_texts.len();
    assert_eq!(numbers, 799 + BOOTSTRAP_TEXTS, "none is lost");
    // Without what was read all comes to the same.
    all.rest();
    let body = all.given(Kind::Cluster, &named(9)).unwrap().body;
    assert_eq!(all.printer().json(Kind::Cluster, &body).unwrap()["connect_timeout"], "1s");
    let first = base.snapshot.clusters.clone();
    let many = (0..800).map(|index| cluster(index, if index == 9 { "2s" } else { "1s" })).collect();
    let (rejected, _) = offer(&mut all, &mut base, Kind::Cluster, many);
    assert_eq!(rejected, []);
    let is_same = |name: &str| {
        let id = base.snapshot.cluster_id(name).unwrap();
        let of = |all: &[Option<Arc<Cluster>>]| all.get(id.0 as usize).cloned().flatten();
        of(&first).zip(of(&base.snapshot.clusters)).map(|(one, other)| Arc::ptr_eq(&one, &other))
    };
    assert_eq!(is_same(&named(9)), Some(false));
    assert_eq!(is_same(&named(7)), None);
    assert_eq!(is_same(&named(8)), Some(true));
}
