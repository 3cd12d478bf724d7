//! Where a redirected connection was going, and connections that come from an address which is not this machine's, in a
//! network namespace that the test makes.
#![cfg(linux)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed, and says when it cannot begin"
)]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use towpath_io::readiness::{Driver, Options};
use towpath_proto::{
    Address, AttemptId, ConnectOptions, Input, Instant, ListenOptions, ListenerId, Machine, Output,
    SocketOption, SocketState,
};

#[test]
fn a_listener_tells_where_its_connections_were_going() {
    in_a_namespace("what_happens_in_a_namespace");
}

/// Runs a test of this file in a network namespace of its own.
fn in_a_namespace(test: &str) {
    let unshare = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--net"]);
        unshare
    };
    let permitted = unshare().args(["ip", "link"]).output();
    if !permitted.as_ref().is_ok_and(|output| output.status.success()) {
        let why = format!("no network namespace, or no iproute2: {permitted:?}");
        assert!(std::env::var_os("CI").is_none(), "CI promises both: {why}");
        return eprintln!("not tested here: {why}");
    }
    let inside = ["--exact", test, "--nocapture"];
    let program = std::env::current_exe().unwrap();
    let status = unshare().arg(program).args(inside).env(INSIDE, "yes").status().unwrap();
    assert!(status.success());
}

/// What the test above runs in a namespace of its own; nothing by itself.
#[test]
fn what_happens_in_a_namespace() {
    if std::env::var(INSIDE).is_err() {
        return;
    }
    assert!(run("ip", "link set lo up"));
    // Every address of the network is this machine's.
    assert!(run("ip", "route add local 10.7.0.0/16 dev lo"));
    connections_come_from_clients();
    let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
    let there = SocketAddr::from(([10, 7, 8, 9], 5000));
    let asks = ListenOptions { original_destination: true, ..ListenOptions::default() };
    let transparent = ListenOptions { transparent: true, ..asks.clone() };
    let silent = ListenOptions { transparent: true, ..ListenOptions::default() };
    assert_eq!(accepted(any(5000), transparent, there), (there, Some(there)));
    assert_eq!(accepted(any(5000), silent, there), (there, None));
    // Without rules most kernels keep no track of connections.
    let (local, original) = accepted(any(5000), asks, there);
    assert!(local == there && original.is_none_or(|it| it == there), "{original:?}");
}

#[test]
#[ignore = "needs nft: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn a_listener_tells_what_rules_of_the_kernel_led_to_it() {
    in_a_namespace("what_happens_with_rules");
}

/// What the test above runs in a namespace of its own; nothing by itself.
#[test]
fn what_happens_with_rules() {
    if std::env::var(INSIDE).is_err() {
        return;
    }
    assert!(run("ip", "link set lo up"));
    assert!(run("ip", "route add local 10.7.0.0/16 dev lo"));
    let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
    let there = SocketAddr::from(([10, 7, 8, 9], 5000));
    let asks = ListenOptions { original_destination: true, ..ListenOptions::default() };
    let transparent = ListenOptions { transparent: true, ..asks.clone() };
    let nft = format!("{}/nft", std::env::var("TOWPATH_PEERS").unwrap());
    let nft = |words: &str| assert!(run(&nft, words), "nft {words}");
    nft("add table ip test");
    nft("add chain ip test out { type nat hook output priority -100; }");
    nft("add rule ip test out tcp dport 5000 redirect to :6000");
    let here = SocketAddr::from(([127, 0, 0, 1], 6000));
    assert_eq!(accepted(any(6000), asks.clone(), there), (here, Some(there)));
    assert_eq!(accepted(any(6000), ListenOptions::default(), there), (here, None));
    // One that was not redirected was going where it came.
    assert_eq!(accepted(any(6000), asks, here), (here, Some(here)));
    // What leaves for another machine comes back by a mark, and TPROXY gives it to the socket of another port.
    assert!(run("ip", "route add local default dev lo table 101"));
    assert!(run("ip", "rule add fwmark 1 lookup 101"));
    assert!(run("ip", "route add 10.9.0.0/16 dev lo"));
    nft("add chain ip test marks { type route hook output priority -150; }");
    nft("add rule ip test marks ip daddr 10.9.0.0/16 meta mark set 1");
    nft("add chain ip test led { type filter hook prerouting priority -150; }");
    nft("add rule ip test led ip daddr 10.9.0.0/16 meta l4proto tcp tproxy to :7001 accept");
    let away = SocketAddr::from(([10, 9, 1, 2], 7000));
    assert_eq!(accepted(any(7001), transparent, away), (away, Some(away)));
}

/// As after Envoy's `original_src`: what is sent to clients is led back here, but their addresses are not ours.
fn connections_come_from_clients() {
    assert!(run("ip", "route add local 10.8.0.0/16 dev lo table 100"));
    assert!(run("ip", "rule add to 10.8.0.0/16 lookup 100"));
    let client = SocketAddr::from(([10, 8, 0, 9], 0));
    let transparent = SocketOption {
        level: libc::SOL_IP,
        name: libc::IP_TRANSPARENT,
        value: 1_i32.to_ne_bytes().to_vec(),
        state: SocketState::PreBind,
        only: None,
    };
    let plain = ConnectOptions { source: Some(client), ..ConnectOptions::default() };
    let bound = ConnectOptions { socket_options: vec![transparent], ..plain };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = server.local_addr().unwrap();
    assert!(!connects(there, plain), "the address is this machine's");
    assert!(connects(there, bound));
    assert_eq!(server.accept().unwrap().1.ip(), client.ip());
}

/// Whether a connect comes about.
fn connects(to: SocketAddr, options: ConnectOptions) -> bool {
    let told = Arc::new(Mutex::new(None));
    let machine = Connects { ask: Some((to, options)), told: Arc::clone(&told) };
    let mut driver = Driver::new(machine, Options::default(), |()| {}).unwrap();
    let begin = std::time::Instant::now();
    loop {
        if let Some(made) = *told.lock().unwrap() {
            return made;
        }
        assert!(begin.elapsed() < PATIENCE, "nothing came of a connect to {to}");
        driver.turn(Some(PATIENCE)).unwrap();
    }
}

/// Connects, and takes note of what comes of it.
struct Connects {
    ask: Option<(SocketAddr, ConnectOptions)>,
    told: Arc<Mutex<Option<bool>>>,
}

impl Machine for Connects {
    type Message = ();

    fn handle(&mut self, input: Input<()>, _now: Instant) {
        let made = match input {
            Input::Connected { .. } => true,
            Input::ConnectFailed { .. } => false,
            _ => return,
        };
        *self.told.lock().unwrap() = Some(made);
    }

    fn poll(&mut self, _now: Instant) -> Output<()> {
        match self.ask.take() {
            Some((address, options)) => Output::Connect {
                attempt: AttemptId(0),
                address: Address::Ip(address),
                options: Arc::new(options),
            },
            None => Output::Idle,
        }
    }
}

/// The local address of a connection to `to`, and where it was going, as its listener tells.
fn accepted(
    at: SocketAddr,
    options: ListenOptions,
    to: SocketAddr,
) -> (SocketAddr, Option<SocketAddr>) {
    let told = Arc::new(Mutex::new(None));
    let machine = Listens { ask: Some((at, options)), told: Arc::clone(&told) };
    let mut driver = Driver::new(machine, Options::default(), |()| {}).unwrap();
    let turn = |driver: &mut Driver<Listens>| driver.turn(Some(PATIENCE)).unwrap();
    turn(&mut driver);
    let _client = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    let begin = std::time::Instant::now();
    loop {
        if let Some(found) = told.lock().unwrap().take() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "no connection came from {to}");
        turn(&mut driver);
    }
}

type Told = Arc<Mutex<Option<(SocketAddr, Option<SocketAddr>)>>>;

/// Listens, and takes note of the connection that comes.
struct Listens {
    ask: Option<(SocketAddr, ListenOptions)>,
    told: Told,
}

impl Machine for Listens {
    type Message = ();

    fn handle(&mut self, input: Input<()>, _now: Instant) {
        if let Input::Listening { outcome, .. } = &input {
            outcome.as_ref().unwrap();
        }
        if let Input::Accepted { local, original, .. } = input {
            *self.told.lock().unwrap() = Some((local.ip().unwrap(), original));
        }
    }

    fn poll(&mut self, _now: Instant) -> Output<()> {
        match self.ask.take() {
            Some((address, options)) => {
                let (listener, address) = (ListenerId(0), Address::Ip(address));
                Output::Listen { listener, address, options: Arc::new(options) }
            }
            None => Output::Idle,
        }
    }
}

/// Whether a command did what it was asked.
fn run(program: &str, words: &str) -> bool {
    Command::new(program).args(words.split(' ')).status().is_ok_and(|status| status.success())
}

const INSIDE: &str = "TOWPATH_INSIDE_NAMESPACE";
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
