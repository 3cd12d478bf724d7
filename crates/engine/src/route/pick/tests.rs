use super::*;
use crate::matcher::{
    HeaderMatcher, HeaderTest, QueryMatcher, QueryTest, StringMatcher, Text, full_regex,
};
use crate::snapshot::ClusterId;
use crate::snapshot::HostIndex;
use crate::snapshot::route::{Action, Expressions, Fraction, HeaderOps};

fn route(path: PathMatch) -> Route {
    Route {
        name: "".into(),
        stat_prefix: None,
        path,
        headers: Vec::new(),
        query: Vec::new(),
        rare: None,
        fraction: None,
        grpc_only: false,
        action: Action::Direct { status: 200, body: (*b"").into(), format: None },
        request_headers: HeaderOps::default(),
        response_headers: HeaderOps::default(),
        retry_buffer_limit: None,
        tracing: None,
        filters: Vec::new(),
        filter_metadata: None,
    }
}

fn host(domain: &str, routes: Vec<Route>) -> VirtualHost {
    let routes: Vec<_> = routes.into_iter().map(Arc::new).collect();
    VirtualHost {
        name: domain.into(),
        domains: vec![domain.into()],
        expressions: Expressions::of(&routes),
        routes,
        matcher: None,
        virtual_clusters: Vec::new(),
        require_tls: RequireTls::None,
        request_headers: HeaderOps::default(),
        response_headers: HeaderOps::default(),
        attempt_count_in_request: false,
        attempt_count_in_response: false,
        timeout_retry_in_request: false,
        filters: Vec::new(),
        filter_metadata: None,
    }
}

fn table(hosts: Vec<VirtualHost>) -> RouteTable {
    let index = HostIndex::new(hosts.iter().zip(0..).map(|(host, at)| (&*host.name, at))).unwrap();
    RouteTable { hosts, index, ..RouteTable::default() }
}

fn get(authority: &str, target: &str) -> Head {
    Head::request(b"GET", b"http", authority.as_bytes(), target.as_bytes())
}

fn picked(table: &RouteTable, head: &Head, random: u64) -> Option<usize> {
    match table.pick(head, Known::default(), random) {
        Picked::Route { route_index, .. } => Some(route_index),
        Picked::NoHost | Picked::NoRoute { .. } | Picked::TlsRequired { .. } => None,
    }
}

fn one(path: PathMatch) -> RouteTable {
    table(vec![host("*", vec![route(path)])])
}

/// Which of these paths Envoy 1.40 matched.
#[test]
fn paths_match_as_envoys() {
    let paths = [
        "/a", "/a/", "/a/b", "/ab", "/A", "/a;x", "/a;x/b", "/a?b", "/a;x?b", "/b/c", "/B/c",
        "/r1", "/r12", "/r1?x", "/sep", "/sep/", "/sep/x", "/sepx", "/sep?x", "/a%62", "/x;y/z;w",
    ];
    let matching = |table: &RouteTable| {
        let all = paths.iter().copied();
        all.filter(|path| picked(table, &get("h", path), 0).is_some()).collect::<Vec<_>>()
    };
    let prefix = one(PathMatch::Prefix(Text::new("/a", true)));
    assert_eq!(
        matching(&prefix),
        ["/a", "/a/", "/a/b", "/ab", "/a;x", "/a;x/b", "/a?b", "/a;x?b", "/a%62"]
    );
    let mut exact = one(PathMatch::Exact(Text::new("/a", true)));
    assert_eq!(matching(&exact), ["/a", "/a?b"]);
    exact.ignore_path_parameters = true;
    assert_eq!(matching(&exact), ["/a", "/a;x", "/a?b", "/a;x?b"]);
    let any_case = one(PathMatch::Exact(Text::new("/a", false)));
    assert_eq!(matching(&any_case), ["/a", "/A", "/a?b"]);
    assert_eq!(matching(&one(PathMatch::Prefix(Text::new("/B", false)))), ["/b/c", "/B/c"]);
    assert_eq!(matching(&one(PathMatch::Regex(full_regex(r"/r\d").unwrap()))), ["/r1", "/r1?x"]);
    let separated = one(PathMatch::SeparatedPrefix(Text::new("/sep", true)));
    assert_eq!(matching(&separated), ["/sep", "/sep/", "/sep/x", "/sep?x"]);
    let mut deep = one(PathMatch::Exact(Text::new("/x/z", true)));
    assert!(matching(&deep).is_empty());
    deep.ignore_path_parameters = true;
    assert_eq!(matching(&deep), ["/x;y/z;w"]);
}

#[test]
fn only_connect_routes_take_what_has_no_path() {
    let connect = Head::request(b"CONNECT", b"", b"h:80", b"");
    let prefix = || route(PathMatch::Prefix(Text::new("", true)));
    let table = table(vec![host("*", vec![prefix(), route(PathMatch::Connect)])]);
    assert_eq!(picked(&table, &connect, 0), Some(1));
    assert_eq!(picked(&table, &get("h", "/"), 0), Some(0));
}

#[test]
fn the_first_route_of_which_all_holds_wins() {
    let slash = || route(PathMatch::Prefix(Text::new("/", true)));
    let header = HeaderMatcher::new("a", HeaderTest::Present(true)).unwrap();
    let query = QueryMatcher::new("q", QueryTest::Text(StringMatcher::exact("1", false)));
    let half = Fraction { numerator: 50, denominator: 100 };
    let routes = vec![
        Route { headers: vec![header], ..slash() },
        Route { query: vec![query], ..slash() },
        Route { grpc_only: true, ..slash() },
        Route { fraction: Some(half), ..slash() },
        slash(),
    ];
    let table = table(vec![host("*", routes)]);
    let mut head = get("h", "/?q=1");
    assert_eq!(picked(&table, &head, 99), Some(1));
    head.append_bytes(b"a", b"");
    assert_eq!(picked(&table, &head, 99), Some(0));
    let mut grpc = get("h", "/?q=2");
    grpc.append(Name::ContentType, b"application/grpc+proto");
    assert_eq!(picked(&table, &grpc, 99), Some(2));
    assert_eq!(picked(&table, &get("h", "/"), 149), Some(3));
    assert_eq!(picked(&table, &get("h", "/"), 150), Some(4));
}

#[test]
fn without_host_or_route_it_says_so() {
    let table = table(vec![host("a.com", vec![route(PathMatch::Exact(Text::new("/x", true)))])]);
    assert!(matches!(table.pick(&get("b.com", "/x"), Known::default(), 0), Picked::NoHost));
    assert!(matches!(
        table.pick(&get("A.com", "/y"), Known::default(), 0),
        Picked::NoRoute { host_index: 0, .. }
    ));
    assert_eq!(picked(&table, &get("A.com", "/x"), 0), Some(0));
    assert!(matches!(
        RouteTable::default().pick(&get("", "/"), Known::default(), 0),
        Picked::NoHost
    ));
}

#[test]
fn tls_is_required_of_all_or_of_strangers() {
    let mut table = one(PathMatch::Prefix(Text::new("/", true)));
    let asked = |table: &RouteTable, head: &Head| {
        matches!(table.pick(head, Known::default(), 0), Picked::TlsRequired { host_index: 0, .. })
    };
    let (plain, mut secured, mut internal) = (get("h", "/"), get("h", "/"), get("h", "/"));
    secured.set(Name::XForwardedProto, b"https");
    internal.set(Name::XEnvoyInternal, b"true");
    for (wanted, answers) in [
        (RequireTls::None, [false, false, false]),
        (RequireTls::ExternalOnly, [true, false, false]),
        (RequireTls::All, [true, false, true]),
    ] {
        table.hosts[0].require_tls = wanted;
        assert_eq!([&plain, &secured, &internal].map(|head| asked(&table, head)), answers);
    }
}

#[test]
fn weights_share_the_random_numbers() {
    let cluster = |id, weight| WeightedCluster::new(ClusterId(id), weight);
    let clusters = vec![cluster(0, 1), cluster(1, 0), cluster(2, 3)];
    let choice = ClusterChoice::Weighted { clusters, total: 4, by_hash: false, number: None };
    let id = |random| choice.weighted(random).unwrap().named().unwrap().0;
    let ids: Vec<_> = (0..8).map(id).collect();
    assert_eq!(ids, [0, 2, 2, 2, 0, 2, 2, 2]);
    assert!(ClusterChoice::One(ClusterId(0)).weighted(0).is_none());
    assert!(
        ClusterChoice::Weighted { clusters: Vec::new(), total: 0, by_hash: false, number: None }
            .weighted(0)
            .is_none()
    );
}

/// Routes that go by expressions are looked for at once; what is found is what asking one after the other finds.
#[test]
fn many_expressions_are_as_each_by_itself() {
    let patterns = [
        r"/a/\d+",
        r"/a/[^/]+",
        "/b.*",
        r"/(a|b)/x",
        "/é+",
        ".*c",
        r"/A/1",
        r"/a/1",
        r"(?i)/D/\w*",
        "",
        r"/a/\d+/(x|y)?",
        r"/.{3,5}",
    ];
    let wants = |name: &str| vec![HeaderMatcher::new(name, HeaderTest::Present(true)).unwrap()];
    let route_of = |number: usize| {
        let pattern = patterns[number * 7 % patterns.len()];
        let path = match number % 5 {
            3 => PathMatch::Prefix(Text::new("/a/2", true)),
            _ => PathMatch::Regex(full_regex(pattern).unwrap()),
        };
        let headers = if number.is_multiple_of(3) { wants("x") } else { Vec::new() };
        Route { headers, ..route(path) }
    };
    for count in [2, 3, 5, 17, 40] {
        let mut all = host("*", (0..count).map(route_of).collect());
        let at_once = table(vec![host("*", (0..count).map(route_of).collect())]);
        all.expressions = Expressions::default();
        let one_by_one = table(vec![all]);
        for path in [
            "/a/1", "/a/22", "/a/q", "/b", "/b/x", "/é", "/c", "/d/e", "/D/", "/a/1/x", "/abc",
            "/", "/z?b",
        ] {
            for named in [false, true] {
                let mut head = get("h", path);
                if named {
                    head.append_bytes(b"x", b"1");
                }
                let found = picked(&at_once, &head, 0);
                assert_eq!(found, picked(&one_by_one, &head, 0), "{count} {path} {named}");
            }
        }
    }
    let many = table(vec![host(
        "*",
        (0..400)
            .map(|number| {
                let pattern = format!("/{number}/[a-z]+");
                route(PathMatch::Regex(full_regex(&pattern).unwrap()))
            })
            .collect(),
    )]);
    for number in [0, 1, 255, 256, 399] {
        assert_eq!(picked(&many, &get("h", &format!("/{number}/q")), 0), Some(number));
    }
    assert_eq!(picked(&many, &get("h", "/400/q"), 0), None);
}
