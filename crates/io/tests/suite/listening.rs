//! Listeners: ports, shards, files, and too many connections.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use towpath_io::Listeners;
use towpath_proto::{Address, Balance, Close, Failure, Input, ListenOptions, ListenerId, Output};

use super::scene::{
    PATIENCE, QUIET, Scene, connect, connect_unix, echo, loopback, say, socket_path,
};
use super::{Runner, Settings};

pub fn shards_share_port_zero_and_its_connections<R: Runner>() {
    let listeners = Listeners::new();
    let shards: Vec<_> = (0..3)
        .map(|shard| {
            let settings =
                Settings { shard, shards: 3, listeners: listeners.clone(), ..Settings::default() };
            echo::<R>(loopback(0), settings)
        })
        .collect();
    let address = shards[0].1.ip().unwrap();
    assert!(shards.iter().all(|(_, bound)| bound.ip() == Some(address)));
    let mut streams: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
    for stream in &mut streams {
        say(stream, b"which shard?");
    }
    let accepts: Vec<u64> =
        shards.iter().map(|(running, _)| running.handle.counters().accepts.value()).collect();
    assert_eq!(accepts.iter().sum::<u64>(), 300);
    assert!(accepts.iter().all(|&count| count > 30), "{accepts:?}");
}

pub fn connections_are_balanced_exactly<R: Runner>() {
    let listeners = Listeners::new();
    let options = || ListenOptions { balance: Balance::Exact, ..ListenOptions::default() };
    let shards: Vec<Scene> = (0..3)
        .map(|shard| {
            let listeners = listeners.clone();
            Scene::with::<R>(Settings { shard, shards: 3, listeners, ..Settings::default() })
        })
        .collect();
    let bound: Vec<_> =
        shards.iter().map(|shard| shard.listen_as(0, loopback(0), options()).unwrap()).collect();
    let address = bound[0].ip().unwrap();
    let accepted = |shard: &Scene| match shard.told() {
        Input::Accepted { connection, .. } => connection,
        other => panic!("{other:?}"),
    };
    let mut streams: Vec<TcpStream> = (0..30).map(|_| connect(address)).collect();
    let each: Vec<Vec<_>> =
        shards.iter().map(|shard| (0..10).map(|_| accepted(shard)).collect()).collect();
    // Those that one has lost are made good before any other gets more.
    for &connection in &each[1] {
        shards[1].order(Output::Close { connection, how: Close::Abort });
    }
    shards[1].listen_as(1, loopback(0), ListenOptions::default()).unwrap();
    streams.extend((0..13).map(|_| connect(address)));
    let takes = |shard: &Scene, count: usize| {
        let connections: Vec<_> = (0..count).map(|_| accepted(shard)).collect();
        assert_eq!(connections.len(), count);
    };
    takes(&shards[1], 11);
    takes(&shards[0], 1);
    takes(&shards[2], 1);
    // What is on its way to a shard that goes away is not lost.
    shards[2].order(Output::Unlisten { listener: ListenerId(0) });
    shards[2].listen_as(1, loopback(0), ListenOptions::default()).unwrap();
    streams.extend((0..6).map(|_| connect(address)));
    takes(&shards[0], 3);
    takes(&shards[1], 3);
}

pub fn shards_share_a_unix_socket<R: Runner>() {
    let listeners = Listeners::new();
    let path = socket_path("shards");
    let mut shards: Vec<_> = (0..2)
        .map(|shard| {
            let settings =
                Settings { shard, shards: 2, listeners: listeners.clone(), ..Settings::default() };
            echo::<R>(Address::Unix(Arc::from(&*path)), settings)
        })
        .collect();
    for _ in 0..50 {
        say(&mut connect_unix(&path), b"either");
    }
    shards.pop();
    for _ in 0..50 {
        say(&mut connect_unix(&path), b"the other");
    }
    shards.pop();
    assert!(!path.exists());
}

pub fn a_taken_address_is_told<R: Runner>() {
    let scene = Scene::new::<R>();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Ip(taken.local_addr().unwrap());
    let outcome = scene.listen_as(1, address, ListenOptions::default());
    assert_eq!(outcome, Err(Failure::AddressInUse));
    let foreign = Address::Ip(([192, 0, 2, 1], 0).into());
    let outcome = scene.listen_as(2, foreign.clone(), ListenOptions::default());
    assert_eq!(outcome, Err(Failure::AddressNotAvailable));
    let freebind = ListenOptions { freebind: true, ..ListenOptions::default() };
    assert!(scene.listen_as(3, foreign, freebind).is_ok());
    let again = scene.listen_as(3, loopback(0), ListenOptions::default());
    assert_eq!(again, Err(Failure::AddressInUse), "an id names one listener at a time");
}

pub fn who_connects_to_a_held_listener_waits<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    let listener = ListenerId(0);
    scene.order(Output::Hold { listener, is_held: true });
    scene.quiet();
    let mut stream = connect(address);
    stream.write_all(b"early").unwrap();
    scene.quiet();
    scene.order(Output::Hold { listener, is_held: false });
    match scene.told() {
        Input::Accepted { connection, .. } => scene.expect_bytes(connection, b"early"),
        other => panic!("{other:?}"),
    }
    scene.accept(address);
}

pub fn a_stopped_listener_refuses_and_its_connections_live_on<R: Runner>() {
    let scene = Scene::new::<R>();
    let address = scene.listen();
    let (mut stream, connection) = scene.accept(address);
    scene.order(Output::Unlisten { listener: ListenerId(0) });
    scene.quiet();
    let error = TcpStream::connect(address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    stream.write_all(b"still open").unwrap();
    scene.expect_bytes(connection, b"still open");
    let bound = scene.listen_as(0, Address::Ip(address), ListenOptions::default());
    assert_eq!(bound, Ok(Address::Ip(address)), "and the address is free again");
    scene.accept(address);
}

pub fn a_stopped_unix_listener_takes_its_file_along<R: Runner>() {
    let scene = Scene::new::<R>();
    let path = socket_path("stopped");
    // What a killed predecessor leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let address = Address::Unix(Arc::from(&*path));
    let options = ListenOptions { mode: 0o640, ..ListenOptions::default() };
    assert_eq!(scene.listen_as(0, address.clone(), options), Ok(address.clone()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let _stream = connect_unix(&path);
    match scene.told() {
        Input::Accepted { local, peer, connection, .. } => {
            assert_eq!(local, address);
            assert_eq!(peer, Address::Unix(Arc::from(std::path::Path::new(""))));
            scene.close(connection, Close::Abort);
        }
        other => panic!("{other:?}"),
    }
    scene.order(Output::Unlisten { listener: ListenerId(0) });
    scene.quiet();
    assert!(!path.exists());
}

pub fn a_wildcard_listener_tells_the_address_that_was_dialled<R: Runner>() {
    let scene = Scene::new::<R>();
    let any = Address::Ip(([0, 0, 0, 0], 0).into());
    let bound = scene.listen_as(0, any, ListenOptions::default()).unwrap();
    let dialled = (IpAddr::from([127, 0, 0, 3]), bound.ip().unwrap().port()).into();
    let _stream = connect(dialled);
    match scene.told() {
        Input::Accepted { local, .. } => assert_eq!(local, Address::Ip(dialled)),
        other => panic!("{other:?}"),
    }
}

pub fn an_ipv6_wildcard_takes_ipv4_when_asked<R: Runner>() {
    let scene = Scene::new::<R>();
    let any = Address::Ip((std::net::Ipv6Addr::UNSPECIFIED, 0).into());
    for (listener, v6_only) in [(0, true), (1, false)] {
        let options = ListenOptions { v6_only, ..ListenOptions::default() };
        let bound = scene.listen_as(listener, any.clone(), options).unwrap();
        // Another program may listen on the same port of IPv4, so that which one was told is what counts.
        let _stream = TcpStream::connect(("127.0.0.1", bound.ip().unwrap().port()));
        let told = scene.strings.told_within(QUIET);
        assert_eq!(matches!(told, Some(Input::Accepted { .. })), !v6_only, "{told:?}");
    }
}

pub fn few_accepts_at_a_time_lose_no_connection<R: Runner>() {
    let scene = Scene::new::<R>();
    let options = ListenOptions { accepts_per_wake: 1, ..ListenOptions::default() };
    let address = scene.listen_as(0, loopback(0), options).unwrap().ip().unwrap();
    let streams: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
    for _ in &streams {
        assert!(matches!(scene.told(), Input::Accepted { .. }));
    }
}

/// Set for the child process, whose parent has limited its descriptors.
const CHILD: &str = "TOWPATH_TEST_FEW_DESCRIPTORS";

/// The child of the next story: an echo that prints its address, and its counter when told to go on.
pub fn child_with_few_descriptors<R: Runner>() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (running, bound) = echo::<R>(loopback(0), Settings::default());
    eprintln!("listening {bound}");
    for line in std::io::stdin().lines() {
        match line.as_deref() {
            Ok("count") => {
                eprintln!("exhausted {}", running.handle.counters().accepts_exhausted.value());
            }
            _ => break,
        }
    }
}

pub fn descriptors_run_out_and_come_back<R: Runner>() {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 32; exec \"$0\" \"$@\""])
        .arg(program)
        .args(["--exact", "child_with_few_descriptors", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut orders = child.stdin.take().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut expect = |word: &str| loop {
        let line = said.next().expect("the child goes on").unwrap();
        if let Some(rest) = line.strip_prefix(word) {
            return rest.trim().to_owned();
        }
    };
    let address = expect("listening ").parse().unwrap();
    let mut streams: Vec<TcpStream> = (0..60).map(|_| connect(address)).collect();
    say(&mut streams[0], b"the first is served");
    let (start, busy) = (Instant::now(), cpu_time(child.id()));
    thread::sleep(Duration::from_millis(600));
    let spent = cpu_time(child.id()) - busy;
    assert!(spent <= Duration::from_millis(100), "spinning: {spent:?}");
    streams[59].set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    streams[59].write_all(b"patience").unwrap();
    let mut exhausted = 0;
    while exhausted < 2 {
        assert!(start.elapsed() < PATIENCE, "it does not try again");
        writeln!(orders, "count").unwrap();
        exhausted = expect("exhausted ").parse().unwrap();
    }
    assert!(exhausted < start.elapsed().as_millis() / 3, "{exhausted} failed accepts");
    // The first make room for the last.
    let mut last = streams.pop().unwrap();
    drop(streams);
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut words = [0; 8];
    std::io::Read::read_exact(&mut last, &mut words).unwrap();
    assert_eq!(&words, b"patience");
    writeln!(orders, "end").unwrap();
    assert!(child.wait().unwrap().success());
}

fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
