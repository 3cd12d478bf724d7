//! Another configuration while it serves: on SIGHUP and `POST /config/reload`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::common::{Proxy, Scratch, bootstrap, origin, until, with_access_log};
use crate::load::{Habit, Load, ask};
use crate::{memory, nothing_is_left};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const FORWARD: &str = "route: { cluster: origin }";
const TEAPOT: &str = "direct_response: { status: 418 }";

/// The proxy's file says this from here on.
fn write(proxy: &Proxy, config: &str) {
    // Replaced in one step, as an editor or a deployment does.
    let written = proxy.scratch.write("next.yaml", config);
    std::fs::rename(written, proxy.scratch.path("bootstrap.yaml")).unwrap();
}

/// Replaces the configuration, which must go well.
fn reload(proxy: &Proxy, config: &str) -> String {
    write(proxy, config);
    let (status, answer) = proxy.post("/config/reload");
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn the_next_request_of_a_connection_takes_the_new_routes() {
    let config = bootstrap(origin(Duration::ZERO));
    let proxy = Proxy::start(&config, &[]);
    let at = proxy.listener("ingress");
    let (answer, stream) = ask(TcpStream::connect(&at).unwrap(), GET).unwrap();
    assert_eq!(answer.status, 200);
    let said = reload(&proxy, &config.replace(FORWARD, TEAPOT));
    assert!(said.starts_with("version 2: clusters 0 added, 0 modified, 0 removed; "), "{said}");
    assert!(said.contains("listeners 0 added, 1 modified, 0 removed"), "{said}");
    let mut stream = Some(stream);
    let mut status = || {
        let (answer, next) = ask(stream.take().unwrap(), GET).unwrap();
        stream = Some(next);
        answer.status
    };
    assert_eq!(status(), 418, "every worker had it when it was answered");
    write(&proxy, &config);
    proxy.signal("HUP");
    until("SIGHUP is heard", || proxy.stat("towpath.config.version") == Some(3));
    until("the old routes", || status() == 200);
    assert_eq!(proxy.stat("http.ingress.downstream_cx_total"), Some(1), "the connection stays");
    assert_eq!(proxy.stat("cluster.origin.upstream_cx_total"), Some(1), "and that to the origin");
    assert_eq!(proxy.listener("ingress"), at, "and the socket");
    assert_eq!(proxy.stat("listener_manager.listener_modified"), Some(2));
    let (_, dump) = proxy.get("/config_dump?resource=static_listeners&mask=last_updated");
    let (_, cluster) = proxy.get("/config_dump?resource=static_clusters&mask=last_updated");
    let time = |text: &str| text.split("\"last_updated\": \"").nth(1).unwrap()[..24].to_owned();
    assert!(time(&dump) > time(&cluster), "{dump}{cluster}");
    assert!(proxy.get("/config_dump").1.contains("\"version_info\": \"3\""));
}

#[test]
fn what_is_wrong_is_said_and_what_serves_goes_on() {
    let config = bootstrap(origin(Duration::ZERO));
    let proxy = Proxy::start(&config, &[]);
    let at = proxy.listener("ingress");
    let file = proxy.scratch.path("bootstrap.yaml").display().to_string();
    let wrong = [
        (
            config.replace("connect_timeout", "conect_timeout"),
            format!("{file}:26:5: "),
            "conect_timeout",
        ),
        (
            config.replace("cluster: tests", "cluster: others"),
            format!("{file}: node: "),
            "cannot be changed",
        ),
        (
            config.replace(
                "127.0.0.1, port_value: 0 } } }\nstatic",
                "127.0.0.1, port_value: 1 } } }\nstatic",
            ),
            format!("{file}: admin: "),
            "cannot be changed",
        ),
        (
            with_access_log(&config, &proxy.scratch.path("no/such/log")),
            String::new(),
            "no/such/log",
        ),
        (String::new(), file, "nothing in it"),
    ];
    let count = wrong.len() as u64;
    for (config, begins, contains) in wrong {
        write(&proxy, &config);
        let (status, said) = proxy.post("/config/reload");
        assert_eq!(status, 400, "{said}");
        assert!(said.starts_with(&begins) && said.contains(contains), "{said}");
        assert_eq!(ask(TcpStream::connect(&at).unwrap(), GET).unwrap().0.status, 200);
    }
    assert_eq!(proxy.stat("towpath.config.update_rejected"), Some(count));
    assert_eq!(proxy.stat("towpath.config.update_success"), Some(0));
    assert_eq!(proxy.stat("towpath.config.version"), Some(1));
    assert_eq!(proxy.get("/config/reload").0, 405);
}

const MORE: &str = "  clusters:\n";

/// [`bootstrap`] with one more TCP listener.
fn with_listener(config: &str, name: &str, address: &str, options: &str) -> String {
    let listener = format!(
        "  - name: {name}\n    address: {{ {address} }}\n{options}    filter_chains:\n    \
         - filters:\n      - name: tcp\n        \
         typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, \
         stat_prefix: extra, cluster: origin }}\n{MORE}"
    );
    config.replace(MORE, &listener)
}

/// A port that others are not given while its socket is there: it does not listen, so that the proxy can.
fn reserve() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket_ipv4().unwrap().port();
    (socket, port)
}

fn at_port(port: u16) -> String {
    format!("socket_address: {{ address: 127.0.0.1, port_value: {port} }}")
}

#[test]
fn an_address_that_is_taken_leaves_everything_as_it_was() {
    let config = bootstrap(origin(Duration::ZERO));
    let proxy = Proxy::start(&config, &[]);
    let at = proxy.listener("ingress");
    let (_reserved, port) = reserve();
    let taken = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    taken.set_reuse_address(true).unwrap();
    taken.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into()).unwrap();
    taken.listen(1).unwrap();
    let next = with_listener(&config.replace(FORWARD, TEAPOT), "second", &at_port(port), "");
    let next = with_listener(&next, "third", &at_port(0), "");
    write(&proxy, &next);
    let (status, said) = proxy.post("/config/reload");
    let why = format!("listener 'second': cannot bind 127.0.0.1:{port}: address already in use");
    assert_eq!((status, said.trim()), (400, &*why));
    assert_eq!(ask(TcpStream::connect(&at).unwrap(), GET).unwrap().0.status, 200);
    assert_eq!(proxy.get("/listeners").1.lines().count(), 1);
    assert_eq!(proxy.stat("towpath.config.update_rejected"), Some(1));
    assert_eq!(proxy.stat("listener_manager.listener_create_failure"), Some(1));
    let dump = proxy.get("/config_dump").1;
    assert!(dump.contains("\"error_state\"") && dump.contains(&why), "{dump}");
    drop(taken);
    reload(&proxy, &next);
    assert_eq!(ask(TcpStream::connect(&at).unwrap(), GET).unwrap().0.status, 418);
    assert_eq!(proxy.listener("second"), format!("127.0.0.1:{port}"), "bound when it is answered");
    TcpStream::connect(proxy.listener("third")).unwrap();
    assert!(!proxy.get("/config_dump").1.contains("error_state"));
}

/// Its name, its backlog: all workers have one socket, which cannot be bound a second time.
#[test]
fn a_listener_that_changes_goes_on_with_its_only_socket() {
    let config = bootstrap(origin(Duration::ZERO));
    let alone =
        |backlog| format!("    enable_reuse_port: false\n    tcp_backlog_size: {backlog}\n");
    let (_reserved, free) = reserve();
    let scratch = Scratch::new();
    let path = scratch.path("socket");
    let pipe = format!("pipe: {{ path: \"{}\" }}", path.display());
    let both = |name: &str, backlog| {
        let config = with_listener(&config, "tcp", &at_port(free), &alone(backlog));
        with_listener(&config, name, &pipe, &alone(backlog))
    };
    let proxy = Proxy::start(&both("pipe", 100), &[]);
    for next in [both("pipe", 200), both("renamed", 200)] {
        reload(&proxy, &next);
        assert_eq!(proxy.get("/listeners").1.lines().count(), 3);
        // Both workers, by chance.
        for _ in 0..20 {
            let stream = TcpStream::connect(("127.0.0.1", free)).unwrap();
            assert_eq!(ask(stream, GET).unwrap().0.status, 200);
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(GET).unwrap();
            let mut first = [0];
            stream.read_exact(&mut first).unwrap();
        }
    }
    reload(&proxy, &config);
    assert!(!path.exists());
    assert!(TcpStream::connect(("127.0.0.1", free)).is_err());
}

#[test]
fn a_listener_that_gets_one_more_address_is_shown_with_both() {
    let config = bootstrap(origin(Duration::ZERO));
    let proxy = Proxy::start(&config, &[]);
    let more = format!(
        "    additional_addresses: [ {{ address: {{ {} }} }} ]\n    filter_chains:\n",
        "socket_address: { address: 127.0.0.2, port_value: 0 }"
    );
    reload(&proxy, &config.replacen("    filter_chains:\n", &more, 1));
    assert_eq!(proxy.get("/listeners").1.lines().count(), 2);
}

#[test]
fn log_files_follow_the_configuration() {
    let config = bootstrap(origin(Duration::ZERO));
    let proxy = Proxy::start(&config, &[]);
    let at = proxy.listener("ingress");
    let lines = |name: &str| proxy.scratch.read(name).lines().count();
    reload(&proxy, &with_access_log(&config, &proxy.scratch.path("one.log")));
    let asked = |name: &str| {
        ask(TcpStream::connect(&at).unwrap(), GET).unwrap();
        lines(name) > 0
    };
    until("the first log", || asked("one.log"));
    reload(&proxy, &with_access_log(&config, &proxy.scratch.path("two.log")));
    until("the second log", || asked("two.log"));
    let is_open = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", proxy.child.id())).unwrap();
        files
            .flatten()
            .filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|path| path.ends_with("one.log"))
    };
    until("the first log is closed", || !is_open());
}

fn descriptors(proxy: &Proxy) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", proxy.child.id())).unwrap().count()
}

/// The configuration of a turn: routes, a cluster's hosts and limits, and listeners and clusters that come and go.
fn turn(base: &str, turn: u32) -> String {
    let mut config = base.to_owned();
    if turn % 2 == 1 {
        config = config.replace(FORWARD, "route: { cluster: origin, timeout: 14s }");
    }
    if turn % 3 == 1 {
        config = config.replace("connect_timeout: 1s", "connect_timeout: 2s");
    }
    let cluster = format!(
        "  - {{ name: extra-{turn}, type: STATIC, health_checks: [ {{ timeout: 1s, interval: 1s, \
         unhealthy_threshold: 1, \
         healthy_threshold: 1, tcp_health_check: {{}} }} ], load_assignment: \
         {{ cluster_name: e, endpoints: [ {{ lb_endpoints: [ \
         {{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 9 }} }} }} }} ] }} ] }} }}\n"
    );
    if turn % 4 < 2 {
        config.push_str(&cluster);
    }
    if turn % 5 < 2 {
        config = with_listener(&config, &format!("extra-{turn}"), &at_port(0), "");
    }
    // A new socket at the same port, and the old one closed.
    if turn % 3 == 2 {
        config = config.replace("    traffic_direction: INBOUND\n", "    tcp_backlog_size: 1000\n");
    }
    config
}

/// `TOWPATH_RELOADS` says how often, for a long run.
#[test]
fn many_configurations_under_load_fail_no_request_and_leave_nothing() {
    let wanted = std::env::var("TOWPATH_RELOADS").ok().and_then(|count| count.parse().ok());
    let count: u32 = wanted.unwrap_or(60);
    // Its port is kept from others, so that listeners with other options can have it again.
    let (_reserved, port) = reserve();
    let first = at_port(0);
    let base = bootstrap(origin(Duration::ZERO));
    let (admin, listeners) = base.split_once("static_resources").unwrap();
    let listeners = listeners.replacen(&first, &at_port(port), 1);
    let base = format!("{admin}static_resources{listeners}");
    let proxy = Proxy::start(&base, &[]);
    let at = proxy.listener("ingress");
    assert_eq!(at, format!("127.0.0.1:{port}"));
    let began = Instant::now();
    let kept = Load::start(&at, 4, Habit::KeepAlive);
    let fresh = Load::start(&at, 2, Habit::Fresh);
    // What the first changes bring once and for all is not counted: a monitor, buffers, names.
    let warm = count / 3;
    (0..warm).for_each(|number| drop(reload(&proxy, &turn(&base, number))));
    let before = memory(&proxy);
    (warm..count).for_each(|number| drop(reload(&proxy, &turn(&base, number))));
    let grown = memory(&proxy).saturating_sub(before);
    let (kept, fresh) = (kept.stop(), fresh.stop());
    let rate = (kept.answered() + fresh.answered()) as f64 / began.elapsed().as_secs_f64();
    eprintln!(
        "{count} configurations, {rate:.0} requests/s, {grown} bytes more: {kept:?} {fresh:?}"
    );
    assert_eq!((kept.lost(), fresh.lost()), (0, 0));
    assert_eq!(kept.answered(), kept.count(200));
    assert_eq!(fresh.answered(), fresh.count(200));
    assert!(kept.count(200) > 1000 && fresh.count(200) > 100, "{kept:?} {fresh:?}");
    reload(&proxy, &base);
    nothing_is_left(&proxy);
    assert_eq!(proxy.stat("towpath.config.update_success"), Some(u64::from(count) + 1));
    // Two workers with their listening sockets and pools; nothing of any listener or monitor that came and went.
    until("descriptors", || descriptors(&proxy) < 40);
    until("statistics", || !proxy.get("/stats").1.contains("extra-"));
    assert!(grown < 8 << 20, "{grown}");
}

/// CPU time of a thread of the proxy, in nanoseconds.
fn cpu_ns(proxy: &Proxy, name: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", proxy.child.id())).unwrap();
    let task = tasks.flatten().map(|task| task.path()).find(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let times = std::fs::read_to_string(task.unwrap().join("schedstat")).unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_change_of_one_in_five_thousand_clusters_costs_little() {
    let base = bootstrap(origin(Duration::ZERO));
    let config = |timeout: u32| {
        let mut text = base.clone();
        for number in 0..5_000 {
            let timeout = if number == 2_500 { timeout } else { 5 };
            text +=
                &format!("  - {{ name: c{number}, type: STATIC, connect_timeout: {timeout}s }}\n");
        }
        text
    };
    let proxy = Proxy::start(&config(1), &["--concurrency", "1"]);
    let mut control_us = Vec::new();
    let before = cpu_ns(&proxy, "worker-0");
    let turns = 5;
    for turn in 0..turns {
        let said = reload(&proxy, &config(2 + turn));
        assert!(
            said.contains("clusters 0 added, 1 modified, 0 removed; listeners 0 added, 0"),
            "{said}"
        );
        let us = said.rsplit("; ").next().unwrap().split(' ').next().unwrap();
        control_us.push(us.parse::<u64>().unwrap());
    }
    let worker_us = (cpu_ns(&proxy, "worker-0") - before) / u64::from(turns) / 1000;
    let control_us = control_us.iter().sum::<u64>() / u64::from(turns);
    eprintln!(
        "one of 5,000 clusters changed: {control_us} us of the control thread, {worker_us} us of a worker"
    );
    // Without optimisation everything takes longer.
    let slower = if cfg!(debug_assertions) { 20 } else { 1 };
    assert!(control_us < 20_000 * slower, "{control_us}");
    assert!(worker_us < 100 * slower, "{worker_us}");
}
