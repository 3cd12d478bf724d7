//! Listener filters: what they are shown, what becomes of the connection, and which filter chain gets it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::bench::Bench;
use scene::origin::{Habits, Log, origin};
use scene::{
    HTTP, Plan, add_worker_for, address, drain_and_check, http, listener, origin_address, route,
    table,
};
use towpath_engine::field::Field;
use towpath_engine::message::{Message, ToWorker};
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::cluster::{Discovery, OriginalDestination};
use towpath_engine::snapshot::listener::{
    Arrival, ChainMatch, FilterChain, Listener, ListenerFilter, ListenerFilterConfig,
    ListenerFilters, Look, NetworkFilters, OriginalDst, Terminal,
};
use towpath_engine::snapshot::route::Action;
use towpath_engine::stats::Registry;
use towpath_engine::worker::Worker;
use towpath_proto::{Address, Close, Input, Instant};
use towpath_sim::{NodeId, Orders, Random, Script, World, for_each_seed};

/// Connections begin with a line: the port that the client wanted.
#[derive(Clone, Debug)]
struct PortLine;

const MOST_BYTES: usize = 64;

impl ListenerFilter for PortLine {
    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }

    fn look(&self, bytes: &[u8], arrival: &mut Arrival, _now: Instant) -> Look {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Look::More };
        let port = std::str::from_utf8(&bytes[..end]).ok().and_then(|text| text.parse().ok());
        let (Some(port), Address::Ip(local)) = (port, &mut arrival.local) else {
            return Look::Refused;
        };
        local.set_port(port);
        Look::Done { takes: end + 1 }
    }
}

/// A filter that wants to see some bytes and takes none.
#[derive(Clone, Debug)]
struct Sees(usize);

impl ListenerFilter for Sees {
    fn most_bytes(&self) -> usize {
        self.0
    }

    fn look(&self, bytes: &[u8], _: &mut Arrival, _now: Instant) -> Look {
        if bytes.len() < self.0 { Look::More } else { Look::Done { takes: 0 } }
    }
}

/// A chain for each port that answers with it, and a chain that forwards for all others.
fn plan(filters: ListenerFilters) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    let Terminal::Http(forwards) = &snapshot.listeners[0].chains[0].terminal else {
        panic!("the first listener is for HTTP")
    };
    let chain = |port: Option<u16>, terminal| FilterChain {
        name: "".into(),
        matches: ChainMatch { destination_port: port, ..ChainMatch::default() },
        filters: NetworkFilters::default(),
        terminal,
        tls: None,
        transport_timeout: None,
        filter_metadata: None,
    };
    let answers = |port: u16| {
        let answer = Action::Direct {
            status: 200,
            body: port.to_string().into_bytes().into(),
            format: None,
        };
        let routes = table(vec![route("/", answer)]);
        Arc::new(chain(Some(port), Terminal::Http(Arc::new(http(routes)))))
    };
    let forwards = chain(None, Terminal::Http(Arc::clone(forwards)));
    let chains = vec![answers(1001), answers(1002), Arc::new(forwards)];
    let http = Terminal::Http(Arc::new(http(table(Vec::new()))));
    let listener = Listener { filters, chains, ..listener(HTTP, http) };
    snapshot.listeners = vec![Arc::new(listener)];
    snapshot
}

fn filters(list: Vec<Arc<dyn ListenerFilterConfig>>) -> ListenerFilters {
    ListenerFilters { list, ..ListenerFilters::default() }
}

/// What a client got, and whether its connection ended.
type Got = Rc<RefCell<(Vec<u8>, Option<Instant>)>>;

/// A client that sends pieces, one each 10 ms, and waits.
fn client(
    pieces: Vec<Bytes>,
    got: &Got,
    then_ends: bool,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant) + use<>> {
    let got = Rc::clone(got);
    let mut pieces = pieces.into_iter();
    let mut connection = None;
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Timeout if connection.is_none() => {
                orders.connect(address(HTTP));
            }
            Input::Connected { connection: id, .. } => {
                connection = Some(id);
                orders.wake_at(now + Duration::from_millis(10));
            }
            Input::Timeout => match (connection, pieces.next()) {
                (Some(id), Some(piece)) if got.borrow().1.is_none() => {
                    orders.send(id, piece);
                    orders.wake_at(now + Duration::from_millis(10));
                }
                (Some(id), None) if then_ends && got.borrow().1.is_none() => {
                    orders.close(id, Close::Abort);
                    got.borrow_mut().1 = Some(now);
                }
                _ => {}
            },
            Input::Received { chunk, .. } => got.borrow_mut().0.extend_from_slice(&chunk),
            Input::Ended { connection: id } => {
                orders.close(id, Close::Flush);
                got.borrow_mut().1 = Some(now);
            }
            Input::Closed { .. } => got.borrow_mut().1 = Some(now),
            _ => {}
        },
    )
}

struct Run {
    world: World<Message>,
    worker: NodeId,
    registry: Arc<Registry>,
    got: Got,
}

impl Run {
    fn new(seed: u64, filters: ListenerFilters, pieces: Vec<Bytes>, then_ends: bool) -> Self {
        let mut world: World<Message> = World::new(seed);
        world.add(origin(origin_address(1), Log::default(), Habits::default()));
        let (registry, got) = (Arc::new(Registry::default()), Got::default());
        let worker = add_worker_for(&mut world, seed, Arc::new(plan(filters)), &registry);
        world.run_for(Duration::from_millis(1));
        world.add(client(pieces, &got, then_ends));
        Self { world, worker, registry, got }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.got.borrow().0).into_owned()
    }

    fn number(&self, name: &str) -> u64 {
        self.registry.read().number(&format!("listener.in.{name}")).unwrap_or(0)
    }

    /// Nothing is left of any connection.
    fn end(mut self) {
        drain_and_check(&mut self.world, self.worker);
        assert_eq!(self.number("downstream_pre_cx_active"), 0);
        assert_eq!(self.number("downstream_cx_active"), 0);
    }
}

const REQUEST: &[u8] =
    b"GET /x HTTP/1.1\r\nhost: app.test\r\nx-id: one\r\nx-size: 4\r\nx-body: 0\r\n\r\n";

/// The line for a port and a request, cut at some places.
fn pieces(line: &str, random: &mut Random) -> Vec<Bytes> {
    let whole = [line.as_bytes(), REQUEST].concat();
    let mut cuts: Vec<usize> = (0..3).map(|_| random.size(&(1..=whole.len() - 1))).collect();
    cuts.extend([0, whole.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|cut| Bytes::copy_from_slice(&whole[cut[0]..cut[1]])).collect()
}

#[test]
fn a_chain_is_chosen_by_what_the_filters_say_wherever_the_bytes_are_cut() {
    for_each_seed(100, |seed| {
        let mut random = Random::new(seed);
        let (line, answer) = match seed % 3 {
            0 => ("1001\n", "1001"),
            1 => ("1002\n", "1002"),
            _ => ("80\n", ""),
        };
        let list = filters(vec![Arc::new(Sees(3)), Arc::new(PortLine), Arc::new(Sees(20))]);
        let mut run = Run::new(seed, list, pieces(line, &mut random), false);
        run.world.run_for(Duration::from_secs(20));
        let text = run.text();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        if answer.is_empty() {
            assert!(text.contains("x-id: one"), "from the origin: {text}");
        } else {
            assert!(text.ends_with(&format!("\r\n\r\n{answer}")), "{text}");
        }
        assert_eq!(run.number("downstream_cx_total"), 1);
        run.end();
    });
}

#[test]
fn a_connection_that_does_not_say_what_it_must_ends_in_time() {
    let long = Bytes::from(vec![b'1'; MOST_BYTES]);
    let cases = [
        // Refused, too long, and nothing at all.
        (vec![Bytes::from_static(b"no port\n")], Duration::from_secs(1), 0),
        (vec![long], Duration::from_secs(1), 0),
        (vec![Bytes::from_static(b"10")], Duration::from_secs(16), 1),
        (vec![], Duration::from_secs(16), 1),
    ];
    for (seed, (pieces, time, timeouts)) in (0..).zip(cases) {
        let mut run = Run::new(seed, filters(vec![Arc::new(PortLine)]), pieces, false);
        run.world.run_for(time);
        assert!(run.got.borrow().1.is_some(), "case {seed}");
        assert_eq!(
            (run.text(), run.number("downstream_pre_cx_timeout")),
            (String::new(), timeouts)
        );
        assert_eq!(run.number("downstream_cx_total"), 0, "no chain had it");
        run.end();
    }
}

/// What no filter has taken is unread, and resets the connection.
#[test]
fn a_client_that_ends_while_more_is_wanted_is_reset_if_it_has_said_something() {
    for (sent, is_reset) in [(&b""[..], false), (b"123", true)] {
        let mut bench = Bench::of(plan(filters(vec![Arc::new(PortLine)])));
        let client = bench.client;
        if !sent.is_empty() {
            bench.ask(sent);
        }
        bench.give(Input::Ended { connection: client });
        bench.sent();
        assert_eq!(bench.closed, [client]);
        assert_eq!(bench.reset.contains(&client), is_reset, "{}", sent.escape_ascii());
    }
}

#[test]
fn a_filter_sees_no_more_than_it_may_ask_for_however_much_comes_at_once() {
    for (zeros, is_taken) in [(MOST_BYTES - 3, true), (MOST_BYTES - 2, false)] {
        let mut bench = Bench::of(plan(filters(vec![Arc::new(PortLine)])));
        let client = bench.client;
        let line = format!("{}80\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "0".repeat(zeros));
        bench.ask(line.as_bytes());
        assert_eq!(bench.reset.contains(&client), !is_taken, "{zeros}");
    }
}

#[test]
fn where_the_listener_says_so_a_chain_is_chosen_without_the_filters() {
    let waits = Arc::new(Sees(1000));
    let list = ListenerFilters { continues_on_timeout: true, ..filters(vec![waits]) };
    let mut run = Run::new(1, list, vec![Bytes::from_static(REQUEST)], false);
    run.world.run_for(Duration::from_secs(14));
    assert_eq!((run.text(), run.number("downstream_pre_cx_active")), (String::new(), 1));
    run.world.run_for(Duration::from_secs(2));
    assert!(run.text().contains("x-id: one"), "{}", run.text());
    assert_eq!(run.number("downstream_pre_cx_timeout"), 1);
    run.end();
}

#[test]
fn a_client_that_goes_before_a_chain_is_chosen_leaves_nothing() {
    for_each_seed(30, |seed| {
        let mut random = Random::new(seed);
        let mut pieces = pieces("1001\n", &mut random);
        pieces.truncate(random.size(&(0..=2)));
        let list = filters(vec![Arc::new(PortLine), Arc::new(Sees(40))]);
        let mut run = Run::new(seed, list, pieces, true);
        run.world.run_for(Duration::from_secs(3));
        assert!(run.got.borrow().1.is_some());
        let machine = run.world.machine::<Worker>(run.worker);
        assert_eq!((machine.streams(), machine.connections()), (0, 0));
        run.end();
    });
}

#[test]
fn a_connection_that_arrives_gets_a_chain_of_the_configuration_that_is_there_by_then() {
    let mut run =
        Run::new(1, filters(vec![Arc::new(PortLine)]), vec![Bytes::from_static(b"10")], false);
    run.world.run_for(Duration::from_secs(1));
    let mut next = plan(filters(vec![Arc::new(PortLine)]));
    next.generation = 2;
    run.world.send(run.worker, Message::To(ToWorker::Snapshot(Arc::new(next))));
    run.world.run_for(Duration::from_secs(1));
    assert_eq!(run.number("downstream_pre_cx_active"), 1, "it is not touched");
    // Without a listener it has nowhere to go.
    let none = Snapshot { generation: 3, ..Snapshot::default() };
    run.world.send(run.worker, Message::To(ToWorker::Snapshot(Arc::new(none))));
    run.world.run_for(Duration::from_secs(20));
    assert!(run.got.borrow().1.is_some());
    run.end();
}

#[test]
fn connections_that_arrive_count_for_the_limit() {
    let mut snapshot = plan(filters(vec![Arc::new(PortLine)]));
    let first = Arc::get_mut(&mut snapshot.listeners[0]).unwrap();
    first.max_connections = Some(3);
    let mut world: World<Message> = World::new(7);
    let registry = Arc::new(Registry::default());
    let worker = add_worker_for(&mut world, 7, Arc::new(snapshot), &registry);
    world.run_for(Duration::from_millis(1));
    let all: Vec<Got> = (0..5).map(|_| Got::default()).collect();
    for got in &all {
        world.add(client(vec![Bytes::from_static(b"1")], got, false));
    }
    world.run_for(Duration::from_secs(5));
    assert_eq!(all.iter().filter(|got| got.borrow().1.is_some()).count(), 2, "two too many");
    world.run_for(Duration::from_secs(15));
    assert!(all.iter().all(|got| got.borrow().1.is_some()), "the others had their time");
    drain_and_check(&mut world, worker);
}

/// A socket's peer is the client as long as no filter knows better.
#[test]
fn what_filters_find_out_is_what_is_known_behind_them() {
    #[derive(Clone, Debug)]
    struct Peer;
    impl ListenerFilter for Peer {
        fn most_bytes(&self) -> usize {
            0
        }
        fn look(&self, _: &[u8], arrival: &mut Arrival, _now: Instant) -> Look {
            arrival.client = Address::Ip(SocketAddr::from(([192, 0, 2, 7], 4000)));
            Look::Done { takes: 0 }
        }
    }
    let mut snapshot = plan(filters(vec![Arc::new(Peer)]));
    let first = Arc::get_mut(&mut snapshot.listeners[0]).unwrap();
    let chain = Arc::get_mut(&mut first.chains[0]).unwrap();
    chain.matches = ChainMatch { source_ports: vec![4000], ..ChainMatch::default() };
    let mut world: World<Message> = World::new(9);
    let worker = add_worker_for(&mut world, 9, Arc::new(snapshot), &Arc::default());
    world.run_for(Duration::from_millis(1));
    let got = Got::default();
    world.add(client(vec![Bytes::from_static(REQUEST)], &got, false));
    world.run_for(Duration::from_secs(5));
    assert!(got.borrow().0.ends_with(b"\r\n\r\n1001"));
    drain_and_check(&mut world, worker);
}

/// Every connection was redirected from here.
#[derive(Clone, Debug)]
struct Redirected(SocketAddr);

impl ListenerFilter for Redirected {
    fn most_bytes(&self) -> usize {
        0
    }

    fn look(&self, bytes: &[u8], arrival: &mut Arrival, now: Instant) -> Look {
        arrival.original = Some(self.0);
        OriginalDst.look(bytes, arrival, now)
    }
}

/// All that comes in goes to where its client was going, before it was redirected from there.
fn to_where_it_was_going(filters: ListenerFilters, header: Option<Field>) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    let to = OriginalDestination { metadata: None, header, port: None, cleanup_interval: CLEANUP };
    let cluster = snapshot.clusters[0].take().unwrap();
    let mut cluster = Arc::try_unwrap(cluster).unwrap();
    cluster.discovery = Discovery::OriginalDestination(to);
    (cluster.endpoints, cluster.idle_timeout) = (Arc::from([]), Some(CLEANUP * 3));
    snapshot.clusters[0] = Some(Arc::new(cluster));
    let chains = snapshot.listeners[0].chains.clone();
    let http = Terminal::Http(Arc::new(http(table(Vec::new()))));
    let listener = Listener { filters, chains, ..listener(HTTP, http) };
    snapshot.listeners = vec![Arc::new(listener)];
    snapshot
}

const CLEANUP: Duration = Duration::from_secs(5);

fn run_of(snapshot: Snapshot, pieces: Vec<Bytes>) -> Run {
    let mut world: World<Message> = World::new(1);
    world.add(origin(origin_address(1), Log::default(), Habits::default()));
    let (registry, got) = (Arc::new(Registry::default()), Got::default());
    let worker = add_worker_for(&mut world, 1, Arc::new(snapshot), &registry);
    world.run_for(Duration::from_millis(1));
    world.add(client(pieces, &got, false));
    Run { world, worker, registry, got }
}

#[test]
fn a_destination_is_a_host_as_long_as_something_is_connected_to_it() {
    let Address::Ip(there) = origin_address(1) else { panic!("the origin has a port") };
    let list = filters(vec![Arc::new(Redirected(there))]);
    let mut run = run_of(to_where_it_was_going(list, None), vec![Bytes::from_static(REQUEST)]);
    run.world.run_for(Duration::from_secs(1));
    assert!(run.text().contains("x-id: one"), "{}", run.text());
    let hosts = |run: &Run| run.registry.read().number("cluster.app.membership_total");
    assert_eq!(hosts(&run), Some(1));
    // Its connection is idle, and kept for others.
    run.world.run_for(CLEANUP * 2);
    assert_eq!(hosts(&run), Some(1));
    run.world.run_for(CLEANUP * 3);
    assert_eq!(hosts(&run), Some(0));
    assert_eq!(run.registry.read().number("cluster.app.upstream_cx_active"), Some(0));
    run.end();
}

#[test]
fn a_request_names_its_destination_only_where_it_may() {
    let request = |destination: &str| {
        let text = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx-to: {destination}\r\nx-id: one\r\nx-size: 4\r\nx-body: 0\r\n\r\n"
        );
        vec![Bytes::from(text)]
    };
    let header = || Field::parse("x-to");
    let there = origin_address(1).to_string();
    for (header, said, status, invalid) in [
        (header(), &*there, "200", 0),
        (header(), "app.test:80", "503", 1),
        (header(), "10.0.1.1", "503", 1),
        (None, &*there, "503", 0),
    ] {
        let mut run =
            run_of(to_where_it_was_going(ListenerFilters::default(), header), request(said));
        run.world.run_for(Duration::from_secs(1));
        assert_eq!(run.text().get(9..12), Some(status), "{said}: {}", run.text());
        let counted = run.registry.read().number("cluster.app.original_dst_host_invalid");
        assert_eq!(counted, Some(invalid), "{said}");
        run.end();
    }
}

/// Two listeners: one that connections are redirected to, and one that only gets those for its port.
fn two(there: SocketAddr, bound: SocketAddr) -> Snapshot {
    let mut snapshot =
        plan(ListenerFilters { hands_over: true, ..filters(vec![Arc::new(Redirected(there))]) });
    let answer = Action::Direct { status: 200, body: b"handed over"[..].into(), format: None };
    let terminal = Terminal::Http(Arc::new(http(table(vec![route("/", answer)]))));
    let chain = FilterChain {
        name: "".into(),
        matches: ChainMatch { destination_port: Some(there.port()), ..ChainMatch::default() },
        filters: NetworkFilters::default(),
        terminal: terminal.clone(),
        tls: None,
        transport_timeout: None,
        filter_metadata: None,
    };
    let other = Listener {
        name: "other".into(),
        stat_prefix: "other".into(),
        addresses: vec![Address::Ip(bound)],
        bind: false,
        filters: filters(vec![Arc::new(Sees(5))]),
        chains: vec![Arc::new(chain)],
        ..listener(HTTP, terminal)
    };
    snapshot.listeners.push(Arc::new(other));
    snapshot
}

#[test]
fn a_redirected_connection_goes_to_the_listener_of_its_address_else_of_its_port_else_stays() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    for (there, bound, handed) in [
        ("10.7.7.7:5000", "10.7.7.7:5000", true),
        ("10.7.7.7:5000", "0.0.0.0:5000", true),
        ("10.7.7.7:5000", "10.7.7.8:5000", false),
        ("10.7.7.7:5000", "0.0.0.0:5001", false),
        ("[fd00::1]:5000", "[::]:5000", true),
    ] {
        let snapshot = two(address(there), address(bound));
        let mut run = run_of(snapshot, vec![Bytes::from_static(REQUEST)]);
        run.world.run_for(Duration::from_secs(1));
        assert_eq!(run.text().ends_with("handed over"), handed, "{there} {bound}: {}", run.text());
        let counted = run.registry.read().number("listener.other.downstream_cx_total");
        assert_eq!(
            (counted, run.number("downstream_cx_total")),
            (Some(handed.into()), u64::from(!handed))
        );
        assert_eq!(run.registry.read().number("listener.other.downstream_pre_cx_active"), Some(0));
        run.end();
    }
}
